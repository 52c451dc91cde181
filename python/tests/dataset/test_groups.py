"""Groups of rows: ids and arrays of every kind, what a batch of them is, and in place of batch-iter."""

import array
import itertools
import pickle
import weakref

import batchloom as bl
import jax
import ml_dtypes
import numpy
import pandas
import polars
import pyarrow
import pytest
import scipy.sparse
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.groups import ids, members, padded
from refusals import refused

IDS = [5, 5, 3, 5, -7, -7, 3]
TEXTS = list("bbabccz")
CODES = [0, 0, 1, 0, 2, 2, 3]
ROWS = len(IDS)


def whole(dataset, **options):
    """All groups as one batch, in order."""
    (batch,) = bl.DataLoader(dataset, len(dataset), **options)
    return batch


def by_group(values, names):
    """Values row by row, those of the first group first."""
    return [values[row] for row in itertools.chain(*members(names))]


def assert_ids(given, names, expected):
    """Rows with these ids are grouped as rows with ``names`` are, and batches hold ``expected``."""
    rows = numpy.arange(len(names))
    dataset = bl.GroupDataset(given, rows)
    found, places = whole(dataset)
    assert numpy.asarray(found).tolist() == by_group(expected, names)
    assert places.tolist() == by_group(rows.tolist(), names)
    found, places, mask = whole(bl.GroupDataset(given, rows, layout="padded"), pad_value=-1)
    assert numpy.asarray(found).tolist() == [expected[group[0]] for group in members(names)]
    assert [part.tolist() for part in (places, mask)] == [part.tolist() for part in padded(members(names))]
    assert pickle.loads(pickle.dumps(dataset)).offsets.tolist() == dataset.offsets.tolist()
    return dataset, found


# Ids of every kind

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64", "longdouble"]


@pytest.mark.parametrize("kind", INTEGERS)
def test_ids_of_every_width(kind):
    least, most = numpy.iinfo(kind).min, numpy.iinfo(kind).max
    names = [most, least, most, least + 1, most - 1, most - 1, 0, least, 5]
    for made in (numpy.array(names, kind), torch.tensor(names, dtype=getattr(torch, kind))):
        dataset, found = assert_ids(made, names, names)
        assert str(found.dtype).removeprefix("torch.") == kind
        assert type(found) is type(made)
        assert dataset.ids is None


NUMBERS = {
    "list": IDS,
    "tuple": tuple(IDS),
    "scalars": list(numpy.array(IDS)),
    "array": array.array("q", IDS),
    "strided": numpy.repeat(IDS, 3)[::3],
    "backward": numpy.array(IDS[::-1])[::-1],
    "read-only": numpy.frombuffer(numpy.array(IDS).tobytes(), numpy.int64),
    "column": numpy.stack([IDS, IDS], 1)[:, 1],
    **{kind: numpy.array(IDS, kind) for kind in FLOATS},
    "list of floats": [float(name) for name in IDS],
    "pandas": pandas.Series(IDS),
    "pandas with an index": pandas.Series(IDS, index=[3, 3, 1, 1, 2, 0, 9]),
    "pandas index": pandas.Index(IDS),
    "objects": numpy.array(IDS, object),
    "pandas objects": pandas.Series(IDS, dtype=object),
    "pandas Int64": pandas.Series(IDS, dtype="Int64"),
    "pandas Int8": pandas.Series(IDS, dtype="Int8"),
    "pandas Float64": pandas.Series(IDS, dtype="Float64"),
    "pandas of Arrow": pandas.Series(IDS, dtype="int64[pyarrow]"),
    "pandas categories": pandas.Series(pandas.Categorical(IDS)),
    "pandas sparse": pandas.Series(pandas.arrays.SparseArray(IDS)),
    "polars": polars.Series(IDS),
    "polars Int8": polars.Series(IDS, dtype=polars.Int8),
    "polars chunks": polars.concat([polars.Series(IDS[:3]), polars.Series(IDS[3:])], rechunk=False),
    "pyarrow": pyarrow.array(IDS),
    "pyarrow slice": pyarrow.array([9, *IDS, 9])[1:-1],
    "pyarrow chunks": pyarrow.chunked_array([IDS[:3], IDS[3:]]),
    "pyarrow dictionary": pyarrow.array(IDS).dictionary_encode(),
    "torch": torch.tensor(IDS),
    "torch strided": torch.tensor(IDS).repeat_interleave(2)[::2],
    "torch float": torch.tensor(IDS, dtype=torch.float32, requires_grad=True),
    "jax": jax.numpy.asarray(IDS),
    "jax int8": jax.numpy.asarray(IDS, "int8"),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_ids_that_are_integers(kind):
    dataset, _ = assert_ids(NUMBERS[kind], IDS, IDS)
    assert dataset.ids is None


WORDS = {
    "list": TEXTS,
    "tuple": tuple(TEXTS),
    "NumPy U": numpy.array(TEXTS),
    "NumPy objects": numpy.array(TEXTS, object),
    "NumPy StringDType": numpy.array(TEXTS, numpy.dtypes.StringDType()),
    "pandas": pandas.Series(TEXTS),
    "pandas objects": pandas.Series(TEXTS, dtype=object),
    "pandas string": pandas.Series(TEXTS, dtype="string"),
    "pandas of Arrow": pandas.Series(TEXTS, dtype=pandas.ArrowDtype(pyarrow.string())),
    "pandas categories": pandas.Series(pandas.Categorical(TEXTS)),
    "Categorical": pandas.Categorical(TEXTS),
    "polars": polars.Series(TEXTS),
    "polars categories": polars.Series(TEXTS, dtype=polars.Categorical),
    "polars Enum": polars.Series(TEXTS, dtype=polars.Enum(list("abcz"))),
    "pyarrow": pyarrow.array(TEXTS),
    "pyarrow large": pyarrow.array(TEXTS, pyarrow.large_string()),
    "pyarrow view": pyarrow.array(TEXTS, pyarrow.string_view()),
    "pyarrow chunks": pyarrow.chunked_array([TEXTS[:3], TEXTS[3:]]),
    "pyarrow dictionaries": pyarrow.chunked_array(
        [pyarrow.array(TEXTS[:3]).dictionary_encode(), pyarrow.array(TEXTS[3:]).dictionary_encode()]
    ),
}


@pytest.mark.parametrize("kind", WORDS)
def test_ids_that_are_texts(kind):
    dataset, found = assert_ids(WORDS[kind], TEXTS, CODES)
    assert found.dtype == numpy.int64
    assert dataset.ids == ["b", "a", "c", "z"]
    assert all(type(name) is str for name in dataset.ids)
    assert pickle.loads(pickle.dumps(dataset)).ids == dataset.ids


@pytest.mark.parametrize("make", [list, numpy.array, lambda texts: numpy.array(texts, object)])
def test_ids_that_are_bytes(make):
    dataset, _ = assert_ids(make([text.encode() for text in TEXTS]), TEXTS, CODES)
    assert dataset.ids == [b"b", b"a", b"c", b"z"]


@pytest.mark.parametrize(
    "make", [list, numpy.array, torch.tensor, jax.numpy.asarray, polars.Series, pyarrow.array, pandas.Series]
)
def test_ids_that_are_truths(make):
    truths = [True, False, False, True, True]
    assert_ids(make(truths), truths, truths)


def test_texts_that_differ_a_little():
    texts = ["a", "a ", "A", "\xe0", "a\N{COMBINING GRAVE ACCENT}", "a", "", "nan", "None"]
    for made in (texts, numpy.array(texts), pyarrow.array(texts), polars.Series(texts)):
        dataset, _ = assert_ids(made, texts, [0, 1, 2, 3, 4, 0, 5, 6, 7])
        assert dataset.ids == list(dict.fromkeys(texts))


@pytest.mark.parametrize(
    "names",
    [
        [1, "1", "a"],
        ("1", 1, "a"),
        [b"a", "a"],
        [2**64 - 1, 0, 2**64 - 2],
        [2**64 - 1, 2**64 - 2],
        numpy.array([2**63, 2**63 + 1], object),
        numpy.array([2**63, 2**63 + 1], numpy.uint64),
        [2**70, 2**70 + 1],
        [2**63, -1],
        [2**53 + 1, 2**53],
        [2**53 + 1, 2**53, 0.0],
        pandas.Series([2**53 + 1, 2**53, 0.0], dtype=object),
        numpy.array([2**53 + 1, 2**53], numpy.longdouble),
        numpy.array([2.0**53, 2.0**53 + 2]),
        numpy.array([-0.0, 1.0]),
    ],
    ids=str,
)
def test_different_ids_are_different_groups_or_refused(names):
    try:
        dataset = bl.GroupDataset(names, numpy.arange(len(names)))
    except bl.DTypeError:
        return
    assert len(dataset) == len(names)
    assert (dataset.ids or whole(dataset)[0].tolist()) == list(names)


@given(names=ids)
def test_one_row_a_group_and_one_group(names):
    rows = numpy.arange(len(names))
    for other in (rows[::-1] * 3, numpy.zeros_like(rows)):
        dataset = bl.GroupDataset(other, rows)
        assert dataset.sizes.tolist() == [len(group) for group in members(other)]
        assert whole(dataset)[1].tolist() == rows.tolist()


# Arrays of every kind

VALUES = numpy.arange(ROWS * 3.0).reshape(ROWS, 3)
ARRAYS = {
    "rows": lambda path: VALUES,
    "columns": lambda path: numpy.asfortranarray(VALUES),
    "turned": lambda path: numpy.ascontiguousarray(VALUES.T).T,
    "strided": lambda path: numpy.repeat(numpy.repeat(VALUES, 2, 0), 3, 1)[::2, ::3],
    "backward": lambda path: VALUES[::-1, ::-1].copy()[::-1, ::-1],
    "map": lambda path: mapped(path),
    "tensor": lambda path: torch.from_numpy(VALUES),
    "turned tensor": lambda path: torch.from_numpy(VALUES.T.copy()).T,
    "gradients": lambda path: torch.from_numpy(VALUES).requires_grad_(),
    "jax": lambda path: jax.numpy.asarray(VALUES, "float32"),
    "csr": lambda path: scipy.sparse.csr_array(VALUES),
    "csc": lambda path: scipy.sparse.csc_matrix(VALUES),
    "coo": lambda path: scipy.sparse.coo_array(VALUES),
}
FLAT = {
    "values": lambda values: values,
    "tensor": torch.from_numpy,
    "bfloat16": lambda values: values.astype(ml_dtypes.bfloat16),
    "tensor of bfloat16": lambda values: torch.from_numpy(values).bfloat16(),
    "unaligned": lambda values: numpy.array([(b"", value) for value in values], "S1,f8")["f1"],
    "pandas": pandas.Series,
    "polars": polars.Series,
    "pyarrow": pyarrow.array,
    "pyarrow slice": lambda values: pyarrow.array([9.0, *values, 9.0])[1:-1],
    "pyarrow chunks": lambda values: pyarrow.chunked_array([values[:2], values[2:]]),
}


def mapped(path):
    VALUES.tofile(path / "values")
    return numpy.memmap(path / "values", numpy.float64, "r", shape=VALUES.shape)


def numbers(values):
    """Values of any framework as a list."""
    values = values.detach().double() if isinstance(values, torch.Tensor) else numpy.asarray(values).astype(float)
    return values.tolist()


def assert_values(given, expected, names):
    groups = members(names)
    dataset = bl.GroupDataset(names, given)
    assert numbers(whole(dataset)[1]) == by_group(expected.tolist(), names)
    beside = bl.GroupDataset(names, given, layout="padded")
    places, mask = padded(groups)
    found = numpy.array(numbers(whole(beside, pad_value=-1)[1]))
    assert (
        found.tolist()
        == numpy.where(mask.reshape(*mask.shape, *[1] * (expected.ndim - 1)), expected[places], -1).tolist()
    )
    for output, kind in (("torch", torch.Tensor), ("numpy", numpy.ndarray), ("jax", jax.Array)):
        batch = whole(beside, output=output)
        assert all(isinstance(part, kind) for part in batch)
        assert numbers(batch[1])[0][0] == expected.tolist()[0]
    return dataset, beside


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("names", [IDS, sorted(IDS)], ids=["scattered", "together"])
def test_arrays_of_every_kind(kind, names, tmp_path):
    given = ARRAYS[kind](tmp_path)
    for dataset in assert_values(given, VALUES, names):
        for number, rows in itertools.product(range(len(dataset)), (-len(dataset), 0)):
            name, found = dataset[number + rows]
            assert numbers(found) == VALUES[members(names)[number]].tolist()
            assert numpy.unique(name).tolist() == [names[members(names)[number][0]]]


@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("names", [IDS, sorted(IDS)], ids=["scattered", "together"])
def test_columns_of_every_kind(kind, names):
    assert_values(FLAT[kind](VALUES[:, 0].copy()), VALUES[:, 0], names)


@pytest.mark.parametrize("kind", FLAT)
@pytest.mark.parametrize("names", [IDS, sorted(IDS)], ids=["scattered", "together"])
def test_a_dataset_is_a_sequence_of_groups(kind, names):
    dataset = bl.GroupDataset(names, FLAT[kind](VALUES[:, 0].copy()))
    for (name, found), rows in zip(dataset, members(names), strict=True):
        assert numbers(found) == VALUES[rows, 0].tolist()
        assert name.tolist() == [names[rows[0]]] * len(rows)


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_frames_are_their_rows(frame):
    assert_values(frame(VALUES), VALUES, IDS)


@pytest.mark.parametrize("shape", [(), (2,), (0,), (2, 3), (1,) * 60], ids=str)
@pytest.mark.parametrize("kind", ["bool", "int8", "uint16", "float16", "complex64"])
def test_rows_of_any_shape_and_type(shape, kind):
    values = (numpy.arange(ROWS * numpy.prod(shape, dtype=int)) % 5).reshape(ROWS, *shape).astype(kind)
    for options in ({}, {"layout": "padded"}):
        dataset = bl.GroupDataset(IDS, values, torch.from_numpy(values), **options)
        _, one, other, *_ = whole(dataset)
        assert one.dtype == kind
        assert numpy.array_equal(one, other.numpy())
        rows = one if not options else one[padded(members(IDS))[1]]
        assert numpy.array_equal(rows, values[by_group(range(ROWS), IDS)])


def test_arrays_are_borrowed_and_read_late():
    for values in (numpy.zeros(ROWS), torch.zeros(ROWS)):
        dataset = bl.GroupDataset(IDS, values)
        for number in (3.0, 4.0):
            values[:] = number
            assert numbers(whole(dataset)[1]) == [number] * ROWS


def test_an_array_that_was_resized():
    values = torch.zeros(ROWS)
    loader = bl.DataLoader(bl.GroupDataset(IDS, x=values))
    values.resize_(10_000)
    with refused(bl.DataError, "field x", "resized"):
        next(iter(loader))


def test_arrays_are_let_go_with_loader_and_dataset():
    class Owner(numpy.ndarray):
        pass

    values = VALUES.copy().view(Owner)
    alive = weakref.ref(values)
    batch = whole(bl.GroupDataset(IDS, values))
    del values
    assert alive() is None
    assert batch[1].tolist() == by_group(VALUES.tolist(), IDS)


@pytest.mark.parametrize("what", ["offsets", "sizes", "row"])
def test_what_a_dataset_shows_may_be_written_to(what):
    dataset = bl.GroupDataset(IDS, VALUES.copy())
    stats = dataset.stats()
    shown = dataset[0][1] if what == "row" else getattr(dataset, what)
    if shown.flags.writeable:
        shown[...] = 0
    assert dataset.stats() == stats
    assert dataset[0][1].tolist() == VALUES[[0, 1, 3]].tolist()
    assert whole(dataset)[1].tolist() == by_group(VALUES.tolist(), IDS)


def test_groups_stay_what_they_are_when_a_list_of_ids_changes():
    names = list(IDS)
    dataset = bl.GroupDataset(names, VALUES, layout="padded")
    names[0] = names[1] = 100
    travelled = pickle.loads(pickle.dumps(dataset))
    assert travelled.offsets.tolist() == dataset.offsets.tolist() == [0, 3, 5, 7]
    assert [part.tolist() for part in whole(travelled)] == [part.tolist() for part in whole(dataset)]


# What a batch is


@pytest.mark.parametrize("make", [numpy.asarray, torch.tensor, jax.numpy.asarray])
def test_batches_are_of_the_framework_that_came_in(make):
    kind = type(make([0]))
    dataset = bl.GroupDataset(torch.tensor(IDS), a=make(IDS), b=numpy.array(IDS))
    assert {name: type(part) for name, part in whole(dataset).items()} == {
        "group_ids": torch.Tensor,
        "a": kind,
        "b": numpy.ndarray,
        "offsets": kind,
    }
    *_, mask = whole(bl.GroupDataset(IDS, make(IDS), numpy.array(IDS), layout="padded"))
    assert isinstance(mask, kind)


def test_tuples_and_dicts():
    assert [type(whole(bl.GroupDataset(IDS, *arrays))) for arrays in ((), (VALUES,), (VALUES, VALUES))] == [tuple] * 3
    assert len(whole(bl.GroupDataset(IDS))) == 1
    assert list(whole(bl.GroupDataset(IDS, b=VALUES, a=VALUES))) == ["group_ids", "b", "a", "offsets"]
    assert list(whole(bl.GroupDataset(IDS, b=VALUES, layout="padded"))) == ["group_ids", "b", "mask"]
    assert list(bl.GroupDataset(IDS, b=VALUES)[1]) == ["group_ids", "b"]
    assert "7 rows in 3 groups" in repr(bl.GroupDataset(IDS, VALUES))


def test_padding_of_each_array():
    dataset = bl.GroupDataset([0, 0, 1], a=numpy.ones(3), b=numpy.ones(3, bool), c=torch.ones(3, 2), layout="padded")
    batch = whole(dataset, fields={"a": bl.Field(pad=numpy.nan), "c": bl.Field(pad=-5)}, pad_side="left")
    assert numpy.isnan(batch["a"][1, 0])
    assert batch["b"].tolist() == [[True, True], [False, True]]
    assert batch["c"][1].tolist() == [[-5, -5], [1, 1]]
    assert batch["mask"].tolist() == [[True, True], [False, True]]


def test_the_mask_is_of_places_and_not_of_values():
    dataset = bl.GroupDataset([0, 0, 1], numpy.array([0, -1, 0]), layout="padded")
    for value in (0, -1):
        assert whole(dataset, pad_value=value)[2].tolist() == [[True, True], [True, False]]


def test_a_plan_is_a_batch_sampler_of_the_dataset():
    dataset = bl.GroupDataset(IDS, VALUES)
    plan = bl.DataLoader(dataset, batching=bl.TokenBudget(5)).plan()
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=plan, collate_fn=list)
    for chosen, batch in zip(plan, loader, strict=True):
        assert [len(rows) for _, rows in batch] == dataset.sizes[chosen].tolist()


# In place of batch-iter
def batch_iter(*arguments, **options):
    return pytest.importorskip("batch_iter").GroupBatchIter(*arguments, **options)


def test_the_last_groups_are_not_lost_as_in_batch_iter():
    names = torch.repeat_interleave(torch.arange(4), torch.tensor([2, 1, 3, 2]))
    theirs = [found.unique().tolist() for (found,) in batch_iter(names, batch_size=3)]
    ours = [found.unique().tolist() for (found,) in bl.DataLoader(bl.GroupDataset(names), 3)]
    assert (theirs, ours) == ([[0, 1, 2]], [[0, 1, 2], [3]])


def test_the_length_is_not_off_by_one_as_in_batch_iter():
    names = torch.arange(6).repeat_interleave(2)
    theirs, ours = batch_iter(names, batch_size=3), bl.DataLoader(bl.GroupDataset(names), 3)
    assert (len(theirs), len(list(theirs))) == (3, 2)
    assert len(ours) == len(list(ours)) == 2


def test_the_order_is_not_one_for_ever_as_in_batch_iter():
    names = torch.arange(50).repeat_interleave(2)
    theirs, ours = (
        batch_iter(names, batch_size=10, shuffle=True),
        bl.DataLoader(bl.GroupDataset(names), 10, shuffle=True),
    )
    first, second = ([batch[0].tolist() for batch in loader] for loader in (theirs, theirs))
    assert first == second
    epochs = [str([batch[0].tolist() for batch in ours]) for _ in range(4)]
    assert len(set(epochs)) == 4


def test_scattered_groups_are_not_divided_as_in_batch_iter():
    names = torch.tensor([1, 2, 1, 3, 2, 1])
    assert len([found for (found,) in batch_iter(names, batch_size=1)]) == 6
    assert [found.tolist() for (found,) in bl.DataLoader(bl.GroupDataset(names), 1)] == [[1, 1, 1], [2, 2], [3]]


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=30), batch_size=st.integers(1, 7))
def test_batches_in_order_are_what_batch_iter_gives(sizes, batch_size):
    """All of its batches where it loses nothing, value by value, in the type that came in."""
    sizes = sizes[: len(sizes) - len(sizes) % batch_size]
    assume(sizes)
    names = torch.repeat_interleave(torch.randperm(len(sizes)), torch.tensor(sizes))
    x, y = torch.randn(len(names), 3), torch.arange(len(names), dtype=torch.int16)
    loader = bl.DataLoader(bl.GroupDataset(names, x, y), batch_size)
    for (g, xb, yb), theirs in zip(loader, batch_iter(names, x, y, batch_size=batch_size), strict=True):
        for found, expected in zip((g, xb, yb), theirs, strict=True):
            assert found.dtype == expected.dtype
            assert torch.equal(found, expected)


@given(names=ids)
def test_groups_in_random_order_are_those_of_batch_iter(names):
    names, rows = torch.tensor(names), torch.arange(len(names))
    groups = [
        sorted((g.tolist(), r.tolist()) for g, r in loader)
        for loader in (
            batch_iter(names, rows, batch_size=1, shuffle=True),
            bl.DataLoader(bl.GroupDataset(names, rows), 1, shuffle=True),
        )
    ]
    assert groups[0][: len(groups[1])] == groups[1]


def test_ids_and_places_count_among_what_a_device_needs():
    ids = numpy.random.default_rng(0).integers(0, 99, 1000)
    rows = torch.zeros(1000, 2, dtype=torch.float16)
    loader = bl.DataLoader(bl.GroupDataset(ids, rows), 8, device="meta")
    assert loader.placement.needed == 4000 + 8000 + 8000
    assert bl.DataLoader(bl.GroupDataset(numpy.sort(ids), rows), 8, device="meta").placement.needed == 12000
