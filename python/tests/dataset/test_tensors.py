"""Datasets: every element type and every layout goes in as it is and comes out as it was."""

import copy
import gc
import pickle
import weakref

import batchloom as bl
import ml_dtypes
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from refusals import refused

SHARED = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
FOREIGN = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
TYPES = SHARED + FOREIGN
SHAPES = [(7,), (7, 1), (7, 3), (7, 16), (7, 0), (7, 2, 3), (7, 2, 0, 3), (7, 1, 2, 1, 3), (1, 5), (7, 100, 11)]


def numpy_type(name):
    return numpy.dtype(getattr(ml_dtypes, name)) if name in FOREIGN else numpy.dtype(name)


def numpy_array(name, shape):
    """Arbitrary bits, NaNs among them."""
    dtype = numpy_type(name)
    random = numpy.random.default_rng(len(shape))
    if name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    return random.integers(0, 256, (*shape, dtype.itemsize), numpy.uint8).view(dtype).reshape(shape)


def torch_tensor(name, shape):
    array = numpy_array(name, shape)
    integers = torch.from_numpy(array.view(f"uint{8 * array.itemsize}") if name in FOREIGN else array)
    return integers.view(getattr(torch, name))


def bits(array):
    """The bytes of an array in row-major order."""
    if isinstance(array, torch.Tensor):
        return bytes(array.contiguous().reshape(-1).view(torch.uint8).numpy()) if array.numel() else b""
    return array.tobytes()


def batches_of(field, batch_size=3, **options):
    """The batches of the only field, and the samples of each."""
    loader = bl.DataLoader(bl.TensorDataset(field), batch_size, shuffle=True, **options)
    return [(samples, batch) for samples, (batch,) in zip(loader.plan(0), loader, strict=True)]


def assert_gathers(field, reference=None, **options):
    """Every batch holds just the bytes of its rows."""
    reference = field if reference is None else reference
    count = 0
    for samples, batch in batches_of(field, **options):
        rows = reference[torch.from_numpy(samples) if isinstance(reference, torch.Tensor) else samples]
        assert tuple(batch.shape) == tuple(rows.shape)
        assert bits(batch) == bits(rows)
        count += len(batch)
    assert count == len(reference)


# Element types


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_numpy_in_numpy_out(name, shape):
    X = numpy_array(name, shape)
    assert_gathers(X)
    for _, batch in batches_of(X):
        assert type(batch) is numpy.ndarray
        assert batch.dtype == X.dtype


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_torch_in_torch_out(name, shape):
    X = torch_tensor(name, shape)
    assert bl.TensorDataset(X).fields[0] is X
    for samples, batch in batches_of(X):
        assert type(batch) is torch.Tensor
        assert batch.dtype == X.dtype
        assert batch.shape == (len(samples), *shape[1:])
        rows = numpy_array(name, shape)[samples]
        assert bits(batch) == bits(rows)


@pytest.mark.parametrize("name", TYPES)
def test_from_one_framework_to_the_other(name):
    X, T = numpy_array(name, (7, 5)), torch_tensor(name, (7, 5))
    for samples, batch in batches_of(X, output="torch"):
        assert (type(batch), batch.dtype) == (torch.Tensor, getattr(torch, name))
        assert bits(batch) == bits(X[samples])
    for samples, batch in batches_of(T, output="numpy"):
        assert (type(batch), batch.dtype) == (numpy.ndarray, numpy_type(name))
        assert bits(batch) == bits(X[samples])


@pytest.mark.parametrize("name", ["int4", "uint1"])
def test_types_that_dlpack_takes_for_others_are_refused_or_kept(name):
    X = torch.zeros(4, 2, dtype=getattr(torch, name))
    try:
        dataset = bl.TensorDataset(X)
    except bl.DTypeError:
        return
    ((batch,),) = bl.DataLoader(dataset, 4)
    assert batch.dtype == X.dtype


# Layouts


def layouts(X):
    """Views of ``X``, an array [8, 6, 4], by name."""
    frozen = X.copy()
    frozen.flags.writeable = False
    packed = numpy.zeros(8, [("first", "u1"), ("value", "f8", (3,))])
    packed["value"] = X[:, :3, 0]
    unaligned = numpy.frombuffer(b"." + X.tobytes(), X.dtype, offset=1).reshape(X.shape)
    return {
        "slice": X[2:7],
        "step": X[::3],
        "backwards": X[::-1],
        "all backwards": X[::-1, ::-1, ::-1],
        "inner step": X[:, ::2],
        "inner backwards": X[:, :, ::-1],
        "inner slice": X[:, 1:3, 1:3],
        "last column": X[:, :, -1],
        "column": X[:, 0, 0],
        "transposed": X.T,
        "swapped": X.transpose(1, 0, 2),
        "inner swapped": X.transpose(0, 2, 1),
        "Fortran": numpy.asfortranarray(X),
        "one row for all": numpy.broadcast_to(X[0], (9, 6, 4)),
        "one value for all": numpy.broadcast_to(X[0, 0, :1], (9, 5)),
        "repeated columns": numpy.broadcast_to(X[:, :, :1], (8, 6, 5)),
        "windows": numpy.lib.stride_tricks.sliding_window_view(X.reshape(-1), 7),
        "new axis": X[:, None, :, None],
        "read-only": frozen,
        "field of a packed record": packed["value"],
        "unaligned": unaligned,
        "imaginary part": (X * 1j).imag,
        "single": X[:1, ::-1],
        "none": X[:, :0],
        "many dimensions": X.reshape(2, 2, 2, 3, 2, 2, 2)[::-1, :, ::-1, ::2],
    }


NAMES = list(layouts(numpy.zeros((8, 6, 4))))


@pytest.mark.parametrize("name", NAMES)
def test_layouts(name):
    X = layouts(numpy.random.default_rng(1).random((8, 6, 4)))[name]
    before = X.copy()
    assert_gathers(X)
    assert_gathers(X, output="torch", reference=torch.from_numpy(before))
    assert numpy.array_equal(X, before)
    assert all(batch.flags.c_contiguous and batch.flags.aligned for _, batch in batches_of(X))


@pytest.mark.parametrize("name", ["bool", "float16", "bfloat16", "float8_e5m2", "complex128"])
def test_layouts_of_other_sizes(name):
    X = numpy_array(name, (8, 6, 4))
    for view in (X[::-1], X[:, ::2], X.T, numpy.broadcast_to(X[0], (9, 6, 4)), numpy.asfortranarray(X)):
        assert_gathers(view)


@st.composite
def views(draw):
    """Any view that indexing and transposing make, of any element size and rank."""
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=5, min_side=1, max_side=6))
    dtype = numpy.dtype(draw(st.sampled_from(["u1", "u2", "u4", "u8", "c16"])))
    X = numpy.arange(numpy.prod(shape), dtype=numpy.int64).astype(dtype).reshape(shape)
    X = X.transpose(draw(st.permutations(range(X.ndim))))
    index = draw(arrays.basic_indices(X.shape, min_dims=1, allow_newaxis=True, allow_ellipsis=True))
    view = X[index]
    if draw(st.booleans()):
        view = numpy.broadcast_to(view, (draw(st.integers(1, 3)), *view.shape))
    return view


@given(view=views(), batch_size=st.integers(1, 8), threads=st.integers(1, 3))
def test_any_view_is_gathered(view, batch_size, threads):
    if len(view) == 0:
        with refused(bl.DataError, "no samples"):
            batches_of(view)
    else:
        assert_gathers(view, batch_size=batch_size, num_threads=threads)


@given(
    width=st.integers(1, 300),
    samples=st.integers(1, 400),
    batch_size=st.integers(1, 150),
    dense=st.booleans(),
)
def test_rows_of_any_width(width, samples, batch_size, dense):
    X = (numpy.arange(samples * width * 2, dtype=numpy.uint32) * 2654435761 >> 24).astype(numpy.uint8)
    X = X.reshape(samples, 2 * width)[:, width:] if not dense else X[: samples * width].reshape(samples, width)
    assert_gathers(X, batch_size=batch_size)


@pytest.mark.parametrize(("samples", "width", "batch_size"), [(3, 3_000_000, 2), (200_001, 1, 1), (70_000, 65, 9000)])
def test_rows_and_batches_that_span_pieces_and_blocks(samples, width, batch_size):
    X = numpy.random.default_rng(0).integers(0, 256, (samples, width), numpy.uint8)
    assert_gathers(X, batch_size=batch_size)
    if samples < 100_000:
        assert_gathers(numpy.asfortranarray(X), batch_size=batch_size)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X[::2],
        lambda X: X[:, 1:],
        lambda X: X.t(),
        lambda X: X.flip(0),
        lambda X: X[:1].expand(9, 6),
        lambda X: X.unfold(0, 3, 1),
        lambda X: X.as_strided((5, 3), (1, 2), 3),
        lambda X: torch.nn.Parameter(X),
        lambda X: X.clone().requires_grad_(),
        lambda X: X.clone().requires_grad_() * 2,
        lambda X: torch.complex(X, X).conj(),
        lambda X: torch.complex(X, X).conj().imag,
        lambda X: X.share_memory_(),
        lambda X: X.to(memory_format=torch.channels_last) if X.ndim == 4 else X[:, ::3],
    ],
)
def test_torch_layouts(change):
    X = change(torch.arange(48.0).reshape(8, 6).clone())
    for samples, batch in batches_of(X):
        assert torch.equal(batch, X.detach()[torch.from_numpy(samples)])
        assert not batch.requires_grad
        assert not batch.is_conj()
        assert batch.is_contiguous()


def test_images_with_channels_last():
    X = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert_gathers(X)


@pytest.mark.parametrize("dimensions", [32, 62, 63, 64])
def test_the_highest_ranks_come_out_or_are_refused_at_once(dimensions):
    X = numpy.arange(3).reshape(3, *[1] * (dimensions - 1))
    try:
        loader = bl.DataLoader(bl.TensorDataset(X), 2)
    except bl.Error:
        return
    assert [batch.shape[0] for (batch,) in loader] == [2, 1]


# Files


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_maps_of_npy_files(tmp_path, order, mode):
    X = numpy.asarray(numpy.random.default_rng(2).random((50, 7)), order=order)
    numpy.save(tmp_path / "rows.npy", X)
    mapped = numpy.load(tmp_path / "rows.npy", mmap_mode=mode)
    assert_gathers(mapped, reference=X)
    assert_gathers(mapped[10:40:3, ::-1], reference=X[10:40:3, ::-1])
    for _, batch in batches_of(mapped):
        assert type(batch) is numpy.ndarray
        batch[:] = 0
    assert numpy.array_equal(numpy.load(tmp_path / "rows.npy"), X)


def test_a_memory_map_with_an_offset(tmp_path):
    X = numpy.arange(5000, dtype=numpy.int32)
    path = tmp_path / "rows.bin"
    path.write_bytes(b"head" * 2000 + X.tobytes())
    assert_gathers(numpy.memmap(path, numpy.int32, "r", offset=8000), reference=X)
    assert_gathers(numpy.memmap(path, numpy.int32, "r", offset=8000)[4000:], reference=X[4000:])


def test_a_memory_map_whose_file_was_deleted(tmp_path):
    X = numpy.arange(5000)
    numpy.save(tmp_path / "rows.npy", X)
    mapped = numpy.load(tmp_path / "rows.npy", mmap_mode="r")
    (tmp_path / "rows.npy").unlink()
    assert_gathers(mapped, reference=X)


def test_a_memory_map_whose_file_was_replaced_by_a_shorter_one(tmp_path):
    X = numpy.arange(5000)
    numpy.save(tmp_path / "rows.npy", X)
    mapped = numpy.load(tmp_path / "rows.npy", mmap_mode="r")
    numpy.save(tmp_path / "new.npy", X[:3])
    (tmp_path / "new.npy").rename(tmp_path / "rows.npy")
    # The old file lives on, unnamed, as long as it is mapped.
    assert_gathers(mapped, reference=X)


# Other producers


class Producer:
    """The least that a DLPack producer of today has."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **request):
        return self.array.__dlpack__(**request)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldProducer(Producer):
    """A producer from before versions: it knows of no other argument, and consumers have to ask again."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


@pytest.mark.parametrize("kind", [Producer, OldProducer])
@pytest.mark.parametrize("X", [numpy.arange(20.0).reshape(10, 2), torch.arange(10)], ids=["numpy", "torch"])
def test_any_producer(kind, X):
    for samples, batch in batches_of(kind(X)):
        assert type(batch) is numpy.ndarray
        assert numpy.array_equal(batch, numpy.asarray(X)[samples])


def test_a_read_only_producer():
    X = numpy.arange(10)
    X.flags.writeable = False
    assert_gathers(Producer(X), reference=X)


def test_a_producer_in_torch_clothes():
    for _, batch in batches_of(Producer(torch.arange(10)), output="torch"):
        assert type(batch) is torch.Tensor


def test_one_sample_of_a_producer():
    assert bl.TensorDataset(Producer(numpy.arange(10)))[3] == (3,)


def test_a_producer_is_let_go_with_the_last_batch():
    class Owner(numpy.ndarray):
        pass

    X = numpy.arange(100).view(Owner)
    alive = weakref.ref(X)
    dataset = bl.TensorDataset(X)
    loader = bl.DataLoader(dataset, 10)
    batches = iter(loader)
    batch = next(batches)
    del X, dataset, loader, batches
    gc.collect()
    assert alive() is None
    assert batch[0].tolist() == list(range(10))


# The dataset itself


def test_a_dataset_borrows():
    X, T = numpy.zeros(5), torch.zeros(5)
    dataset = bl.TensorDataset(X, T)
    X[2], T[3] = 1, 1
    ((xb, tb),) = bl.DataLoader(dataset, 5)
    assert (xb.tolist(), tb.tolist()) == ([0, 0, 1, 0, 0], [0, 0, 0, 1, 0])


def test_length_names_and_fields():
    X, y = numpy.zeros((5, 2)), torch.zeros(5)
    positional, named = bl.TensorDataset(X, y), bl.TensorDataset(x=X, y=y)
    assert len(positional) == len(named) == 5
    assert (positional.names, named.names) == (None, ("x", "y"))
    assert positional.fields[0] is named.fields[0] is X
    assert positional.fields[1] is named.fields[1] is y


def test_one_sample():
    X, y = numpy.arange(10).reshape(5, 2), torch.arange(5)
    row, label = bl.TensorDataset(X, y)[3]
    assert (row.tolist(), label.item()) == ([6, 7], 3)
    named = bl.TensorDataset(x=X, y=y)[-1]
    assert (named["x"].tolist(), named["y"].item()) == ([8, 9], 4)
    assert bl.TensorDataset(y)[numpy.int64(2)][0].item() == 2


@pytest.mark.parametrize("sample", [5, -6, 2**70])
def test_a_sample_outside(sample):
    with refused(bl.RangeError, str(sample), "5"):
        bl.TensorDataset(numpy.arange(5))[sample]


def test_a_dataset_is_iterable_by_index():
    assert [row.item() for (row,) in bl.TensorDataset(numpy.arange(5))] == list(range(5))


@pytest.mark.parametrize("name", ["x", "label ids", "größe", "", "class", "0", "fields", "self"])
def test_a_field_has_any_name(name):
    dataset = bl.TensorDataset(**{name: numpy.arange(4)})
    assert dataset.names == (name,)
    ((batch),) = bl.DataLoader(pickle.loads(pickle.dumps(dataset)), 4)
    assert batch[name].tolist() == [0, 1, 2, 3]


def test_the_repr_tells_types_and_shapes():
    text = repr(bl.TensorDataset(x=numpy.zeros((5, 2), numpy.float32), y=torch.zeros(5, dtype=torch.bfloat16)))
    for part in ("x: float32[5, 2]", "y: bfloat16[5]", "5 samples"):
        assert part in text


# torch itself unpickles no tensor of its younger types.
@pytest.mark.parametrize("name", sorted({*TYPES} - {"uint16", "uint32", "uint64", *FOREIGN} | {"bfloat16"}))
def test_datasets_pickle(name):
    dataset = bl.TensorDataset(x=numpy_array(name, (7, 3))[::2], t=torch_tensor(name, (4, 2)))
    for again in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset), copy.copy(dataset)):
        assert (len(again), again.names) == (4, ("x", "t"))
        ((batch),) = bl.DataLoader(again, 4)
        ((expected),) = bl.DataLoader(dataset, 4)
        assert all(bits(batch[field]) == bits(expected[field]) for field in ("x", "t"))


@pytest.mark.parametrize("name", TYPES)
def test_numpy_datasets_pickle(name):
    X = numpy_array(name, (7, 3))
    assert bits(pickle.loads(pickle.dumps(bl.TensorDataset(X))).fields[0]) == bits(X)


def test_positional_datasets_pickle():
    again = pickle.loads(pickle.dumps(bl.TensorDataset(numpy.arange(3), torch.arange(3))))
    assert again.names is None
    ((xb, tb),) = bl.DataLoader(again, 3)
    assert (type(xb), type(tb)) == (numpy.ndarray, torch.Tensor)


def test_subclasses_of_arrays():
    class Kind(numpy.ndarray):
        pass

    X = numpy.arange(12.0).reshape(6, 2)
    assert_gathers(X.view(Kind), reference=X)
    assert_gathers(X.view(numpy.matrix), reference=X)
    records = numpy.zeros(6, [("a", "f8"), ("b", "f8")]).view(numpy.recarray)
    records.b = X[:, 1]
    assert_gathers(records.b, reference=X[:, 1].copy())
