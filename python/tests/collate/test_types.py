"""Types and scales of fields: every kind of data, formed in memory or made on a device, against NumPy; refusals."""

import batchloom as bl
import numpy
import pytest
import torch
from batchloom import DataError
from by_field import by_field
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

CPU = ({}, {"resident": True}, {"resident": False})
"""The host, and torch on the CPU in the place of a device: gathered, and formed and copied."""


def converted(array, dtype, scale=None, mean=None, std=None):
    """The values of an array in another type, each step in float32, or in float64 for that."""
    if scale is None and mean is None and std is None:
        return array.astype(dtype)
    real = numpy.float64 if dtype == "float64" else numpy.float32
    scale, mean, std = (
        numpy.asarray(default if number is None else number, real)
        for number, default in ((scale, 1), (mean, 0), (std, 1))
    )
    return ((array.astype(real) * scale - mean) / std).astype(dtype)


def rows(generator, kind, shape):
    """Random values of a type."""
    if kind == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    if kind.startswith("float"):
        return (generator.standard_normal(shape) * 100).astype(kind)
    return generator.integers(0, 120, shape).astype(kind)


STORED = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int32", "int64", "float16", "float32", "float64")
WANTED = ("float32", "float64", "float16")


@given(
    st.sampled_from(STORED),
    st.sampled_from(WANTED),
    st.sampled_from([None, 1 / 255, 2.0]),
    st.sampled_from([None, 0.5, [0.1, 0.2, 0.3]]),
    st.sampled_from([None, 0.25, [1.0, 2.0, 4.1]]),
    st.integers(1, 7),
    st.sampled_from(CPU),
)
def test_rows_are_scaled_as_numpy_scales_them(stored, wanted, scale, mean, std, batch_size, place):
    array = rows(numpy.random.default_rng(0), stored, (11, 4, 3))
    numbers = {"scale": scale, "mean": mean, "std": std}
    dataset = bl.TensorDataset(array, numpy.arange(11))
    fields = {0: bl.Field(dtype=wanted, **numbers)}
    loader = bl.DataLoader(dataset, batch_size, shuffle=True, fields=fields, output="torch", **place)
    expected = converted(array, wanted, **numbers)
    for x, k in loader:
        assert x.dtype == getattr(torch, wanted)
        numpy.testing.assert_array_equal(x.numpy(), expected[k.numpy()])


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=20).filter(any),
    st.booleans(),
    st.sampled_from(["left", "right"]),
    st.sampled_from(CPU),
    st.sampled_from([0, -7, {"ids": -100, "x": 2.5}, {"ids": 65535}]),
    st.sampled_from([{}, {"scale": {"x": 0.5}}, {"mean": {"x": [1.0, 2.0]}, "std": {"x": 0.3}}]),
)
def test_sequences_are_converted_and_their_padding_is_not(lengths, packs, side, place, pad_value, options):
    generator = numpy.random.default_rng(1)
    ids = [generator.integers(0, 2**16, length).astype(numpy.uint16) for length in lengths]
    x = [rows(generator, "uint8", (length, 2)) for length in lengths]
    dataset = bl.SequenceDataset(ids=ids, x=x, y=numpy.arange(len(lengths), dtype=numpy.uint8))
    rule = bl.Packing(40) if packs else bl.FixedSize(3)
    types = {"ids": "int64", "x": "float32", "y": torch.int32}
    pads = pad_value if isinstance(pad_value, dict) else {}
    arguments = {
        "batching": rule,
        "shuffle": True,
        "fields": by_field(dtype=types, pad=pads, **options),
        "pad_side": side,
    }
    arguments |= {} if pads else {"pad_value": pad_value}
    loader = bl.DataLoader(dataset, output="torch", **arguments, **place)
    scales = {name: each["x"] for name, each in options.items()}
    pads = pad_value if isinstance(pad_value, dict) else {"ids": pad_value, "x": pad_value}
    for batch in loader:
        samples = batch["index"].numpy()
        assert batch["y"].dtype == torch.int32
        numpy.testing.assert_array_equal(batch["y"].numpy(), samples)
        for name, arrays, dtype, numbers in (("ids", ids, "int64", {}), ("x", x, "float32", scales)):
            wanted = [converted(arrays[sample], dtype, **numbers) for sample in samples]
            found = batch[name].numpy()
            assert found.dtype == dtype
            if packs:
                numpy.testing.assert_array_equal(found, numpy.concatenate(wanted))
                continue
            mask = batch["attention_mask"].numpy()
            numpy.testing.assert_array_equal(found[mask], numpy.concatenate(wanted))
            assert (found[~mask] == pads.get(name, 0)).all()


@pytest.mark.parametrize("place", CPU)
@pytest.mark.parametrize("layout", ["concatenated", "padded"])
def test_groups_and_windows_are_converted(place, layout):
    values = numpy.arange(12, dtype=numpy.uint8).reshape(6, 2)
    groups = bl.GroupDataset(numpy.array([3, 3, 5, 3, 5, 5], numpy.uint16), values, layout=layout)
    for shift in ({}, {"mean": {1: 1.0}}):
        fields = by_field(dtype={0: "int64", 1: "float32"}, **shift)
        arguments = {"fields": fields, "output": "torch", **place}
        ids, found, *_ = next(iter(bl.DataLoader(groups, 2, **arguments)))
        wanted = converted(values[[0, 1, 3, 2, 4, 5]], "float32", mean=1.0 if shift else None)
        assert ids.dtype == torch.int64
        numpy.testing.assert_array_equal(found.numpy().reshape(-1, 2), wanted)
    series = [values[:2], values]
    windows = bl.WindowDataset(series, 4, 0, mask=True)
    for shift in ({"scale": {"x": 0.5}}, {"mean": {"x": [1.0, 2.0]}}):
        loader = bl.DataLoader(windows, 2, shuffle=True, fields=by_field(**shift), output="torch", **place)
        for x, mask in loader:
            assert x.dtype == torch.float32
            assert (x[~mask] == 0).all()
        whole = bl.DataLoader(windows, 4, fields=by_field(**shift), output="torch", **place)
        assert whole.placement.mode != "views"
        (x, mask), *_ = whole
        scaled = converted(values, "float32", **{name: each["x"] for name, each in shift.items()})
        numpy.testing.assert_array_equal(
            x[mask].numpy(), numpy.concatenate([scaled[:2], *(scaled[k : k + 4] for k in range(3))])
        )


@pytest.mark.parametrize("place", CPU)
def test_tokens_come_in_other_types_and_a_corpus_of_uint16_reaches_an_embedding(place):
    tokens = numpy.arange(100, dtype=numpy.uint16)
    embedding = torch.nn.Embedding(100, 2)
    for dataset, arguments in (
        (bl.TokenDataset(tokens, 8), {}),
        (bl.SequenceDataset(ids=(tokens, [0, 40, 100])), {"fields": {"ids": bl.Field(dtype="int64")}}),
    ):
        batch = next(iter(bl.DataLoader(dataset, 2, **arguments, output="torch", **place)))
        assert embedding(batch["ids"] if isinstance(batch, dict) else batch[0]).dtype == torch.float32
    if place.get("resident"):
        with refused(bl.ArgumentError, "input_ids", "resident=False"):
            bl.DataLoader(bl.TokenDataset(tokens, 8), 2, dtype="int32", output="torch", **place)
        return
    loader = bl.DataLoader(bl.TokenDataset(tokens, 8), 2, dtype="int32", output="torch", **place)
    x, y = next(iter(loader))
    assert (x.dtype, y.dtype) == (torch.int32, torch.int32)
    assert (x + 1 == y).all()


def test_every_framework_gets_the_type():
    jax = pytest.importorskip("jax")
    dataset = bl.TensorDataset(x=numpy.arange(6, dtype=numpy.uint8))
    for output, kind in (("numpy", numpy.ndarray), ("torch", torch.Tensor), ("jax", jax.Array)):
        batch = next(iter(bl.DataLoader(dataset, 3, fields={"x": bl.Field(dtype=numpy.float32)}, output=output)))["x"]
        assert isinstance(batch, kind)
        assert str(batch.dtype).endswith("float32")


def test_single_values_are_for_the_fields_that_they_make_sense_for():
    dataset = bl.TensorDataset(
        image=numpy.zeros((4, 2), numpy.float64), flag=numpy.zeros(4, bool), label=numpy.zeros(4, numpy.int32)
    )

    def types(**arguments):
        return {name: str(array.dtype) for name, array in next(iter(bl.DataLoader(dataset, **arguments))).items()}

    assert types(dtype="float32") == {"image": "float32", "flag": "bool", "label": "int32"}
    assert types(dtype=torch.int64) == {"image": "float64", "flag": "bool", "label": "int64"}
    (only,) = next(
        iter(bl.DataLoader(bl.TensorDataset(numpy.full((4, 3), 9, numpy.uint8)), fields=bl.Field(mean=[1, 2, 3])))
    )
    assert only.tolist() == [[8, 7, 6]] * 4
    with refused(bl.ArgumentError, "bool", "image"):
        bl.DataLoader(dataset, dtype="bool")
    with refused(bl.ArgumentError, "float32", "uint8"):
        bl.DataLoader(bl.TensorDataset(numpy.zeros(4, numpy.uint8)), dtype="float32")
    with refused(bl.ArgumentError, "fields", "several fields", "'image' (float64[..., 2])"):
        bl.DataLoader(dataset, fields=bl.Field(scale=0.5))
    with pytest.raises(TypeError, match=r"scale is an attribute of a field: expected fields=.*bl.Field\(scale=...\)"):
        bl.DataLoader(dataset, scale=0.5)
    with refused(bl.ArgumentError, "dtype", "fields={'image': bl.Field(dtype='float32')}"):
        bl.DataLoader(dataset, dtype={"image": "float32"})
    mixed = next(iter(bl.DataLoader(dataset, dtype="int64", fields={"label": bl.Field(dtype="int8")})))
    assert [str(part.dtype) for part in mixed.values()] == ["float64", "bool", "int8"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fields": {"picture": bl.Field(dtype="float32")}}, ("picture", "image")),
        ({"fields": {0: bl.Field(dtype="float32")}}, ("0", "image")),
        ({"fields": {"image": bl.Field(dtype="float33")}}, ("float33",)),
        ({"fields": {"image": bl.Field(dtype=float)}}, ("float", "float32")),
        ({"fields": {"image": bl.Field(dtype=object())}}, ("object",)),
        ({"fields": {"image": bl.Field(dtype="complex64")}}, ("image", "complex64")),
        ({"fields": {"image": bl.Field(dtype="int64", scale=2)}}, ("int64", "float32")),
        ({"fields": {"image": bl.Field(scale="2")}}, ("scale", "'2'")),
        ({"fields": {"image": bl.Field(scale=True)}}, ("scale", "True")),
        ({"fields": {"image": bl.Field(mean=[1.0, 2.0])}}, ("2", "[3, 3]")),
        ({"fields": {"image": bl.Field(mean=[1.0, 2.0, 3.0])}}, ("3", "[3, 3]")),
        ({"fields": {"image": bl.Field(mean=numpy.ones((2, 2)))}}, ("mean", "(2, 2)")),
        ({"fields": {"image": bl.Field(mean=[])}}, ("mean", "(0,)")),
        ({"fields": {"image": bl.Field(std=0)}}, ("std", "0.0")),
        ({"fields": {"image": bl.Field(mean=numpy.ones((3, 1)), std=numpy.ones((1, 3)))}}, ("first", "last")),
        ({"fields": {"image": bl.Field(mean=float("nan"))}}, ("mean", "NaN")),
    ],
)
def test_arguments_that_make_no_sense_are_refused_when_the_loader_is_made(options, words):
    with refused(bl.ArgumentError, *words):
        bl.DataLoader(bl.TensorDataset(image=numpy.zeros((4, 3, 3), numpy.uint8)), **options)


def test_the_dimension_of_channels_is_said_by_a_shape():
    image = numpy.arange(18, dtype=numpy.uint8).reshape(2, 3, 3)
    for shape in ((3, 1), (1, 3)):
        mean = numpy.array([0, 10, 20.0]).reshape(shape)
        (found,) = next(iter(bl.DataLoader(bl.TensorDataset(image), 2, fields=bl.Field(mean=mean))))
        numpy.testing.assert_array_equal(found, image - mean)


@pytest.mark.parametrize(
    ("stored", "wanted", "value"),
    [
        ("int64", "int32", 2**31),
        ("int32", "uint8", -1),
        ("uint64", "int64", 2**63),
        ("int64", "uint64", -5),
        ("uint8", "bool", 2),
        ("float32", "int64", 0.5),
        ("float32", "int32", float("nan")),
        ("float64", "int64", 2.0**63),
        ("float64", "float32", 1e300),
        ("float32", "float16", 65520.0),
    ],
)
def test_a_value_that_the_type_cannot_hold_is_an_error_that_names_it(stored, wanted, value):
    array = numpy.zeros((6, 2), stored)
    array[4, 1] = value
    for place in CPU:
        with refused(DataError, "x", "4", wanted, stored):
            next(
                iter(
                    bl.DataLoader(
                        bl.TensorDataset(x=array), 6, fields={"x": bl.Field(dtype=wanted)}, output="torch", **place
                    )
                )
            )


def test_sparse_rows_are_converted_where_they_are_made_dense():
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_array(numpy.eye(6, 4))
    for place in ({}, {"resident": False}, {"resident": 10**9}):
        dataset = bl.TensorDataset(bl.SparseRows(matrix, layout="dense"), numpy.arange(6))
        (x, _), *_ = bl.DataLoader(dataset, 6, fields={0: bl.Field(scale=2, dtype="float32")}, output="torch", **place)
        assert x.dtype == torch.float32
        numpy.testing.assert_array_equal(x.numpy(), 2 * matrix.toarray())
    with refused(bl.ArgumentError, "0", "1"):
        bl.DataLoader(bl.TensorDataset(matrix, numpy.arange(6)), 6, fields={0: bl.Field(dtype="float32")})


def test_a_device_gathers_where_it_can_and_says_why_not():
    images = bl.SequenceDataset(x=[numpy.zeros((2, length), numpy.uint8) for length in (3, 4)])
    loader = bl.DataLoader(images, 2, fields={"x": bl.Field(mean=[1, 2])}, resident=10**9, output="torch")
    assert loader.placement.mode == "streamed"
    assert "x" in loader.placement.reason
    with refused(bl.ArgumentError, "x", "first", "resident=False"):
        bl.DataLoader(images, 2, fields={"x": bl.Field(mean=[1, 2])}, resident=True, output="torch")


def test_a_loader_with_types_pickles_and_resumes():
    import pickle

    dataset = bl.TensorDataset(x=numpy.arange(20, dtype=numpy.uint8))
    loader = bl.DataLoader(dataset, 4, shuffle=True, fields={"x": bl.Field(dtype="float32", scale=0.5)})
    plain = bl.DataLoader(dataset, 4, shuffle=True)
    assert loader.plan().fingerprint == plain.plan().fingerprint
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    for first, second in zip(batches, copy, strict=True):
        numpy.testing.assert_array_equal(first["x"], second["x"])
        assert first["x"].dtype == numpy.float32
