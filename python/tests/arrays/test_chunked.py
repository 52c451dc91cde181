"""Arrays in several chunks: datasets of them are those of one array with the same rows, in every kind and placement."""

import itertools
import pickle

import batchloom as bl
import numpy
import polars
import pyarrow
import pytest
import torch
from batchloom.delivery import placement
from hypothesis import given
from hypothesis import strategies as st
from oracles.runs import few
from oracles.selections import assert_same, torch_seen
from refusals import refused

ROWS = 60
OFFSETS = numpy.array([0, 0, 5, 6, 20, 33, 33, 48, ROWS])
borders = st.lists(st.integers(0, ROWS), max_size=8).map(sorted)
matrix = numpy.arange(3 * ROWS, dtype=numpy.float32).reshape(ROWS, 3)
numbers = numpy.arange(ROWS) * 7 % 23


def rows(x, ids):
    return bl.TensorDataset(x=x, id=ids)


def sequences(x, ids):
    return bl.SequenceDataset(x=(x, OFFSETS), ids=(ids, OFFSETS))


def groups(x, ids):
    return bl.GroupDataset(numpy.arange(ROWS) % 9, x=x, ids=ids, shuffle_rows=True)


def tokens(x, ids):
    return bl.TokenDataset(ids, 7, documents=OFFSETS, separator=99, position_ids=True)


def pieces(x, ids):
    return bl.TokenDataset(ids, 7)


def continuous(x, ids):
    return bl.TokenDataset(ids, 7, mode="continuous")


def windows(x, ids):
    return bl.WindowDataset(x, past={"ids": ids}, input_len=5, horizon=2)


KINDS = {
    "rows": (rows, {"batch_size": 7, "shuffle": True}),
    "sequences": (sequences, {"batching": bl.TokenBudget(64), "shuffle": True, "labels": "ids"}),
    "packed": (sequences, {"batching": bl.Packing(25), "shuffle": True}),
    "groups": (groups, {"batch_size": 2, "shuffle": True}),
    "documents": (tokens, {"batch_size": 3, "shuffle": True}),
    "pieces": (pieces, {"batch_size": 2, "shuffle": True}),
    "continuous": (continuous, {"batch_size": 2}),
    "windows": (windows, {"batch_size": 4}),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def cut(array, places):
    """An array in chunks that end at some places; every second one has gaps between its elements."""
    chunks = numpy.split(array, places)
    return [numpy.repeat(chunk, 2, axis=-1)[..., ::2] if k % 2 else chunk for k, chunk in enumerate(chunks)]


@pytest.mark.law("L2", "L3")
@every_kind
@few
@given(x=borders, ids=borders)
def test_no_batch_tells_where_a_chunk_ends(kind, x, ids):
    make, options = KINDS[kind]
    for like in (numpy.asarray, torch.from_numpy):
        found = make(
            bl.ChunkedArray([like(each) for each in cut(matrix, x)]),
            bl.ChunkedArray([like(each) for each in cut(numbers, ids)]),
        )
        expected = make(like(matrix), like(numbers))
        assert_same(found, expected, options)
        loaders = [bl.DataLoader(each, **options) for each in (found, expected, pickle.loads(pickle.dumps(found)))]
        assert len({loader.plan().fingerprint for loader in loaders}) == 1
        assert torch_seen(loaders[0]) == torch_seen(loaders[2])


@every_kind
@pytest.mark.parametrize("resident", [True, False])
def test_devices_get_the_batches_of_one_array(kind, resident, monkeypatch):
    monkeypatch.setattr(placement, "cpu_stands_in", True)
    make, options = KINDS[kind]
    found = make(bl.ChunkedArray(cut(matrix, [1, 30])), bl.ChunkedArray(cut(numbers, [17, 18])))
    on_device = bl.DataLoader(found, device="cpu", output="torch", resident=resident, **options)
    expected = bl.DataLoader(make(torch.from_numpy(matrix), torch.from_numpy(numbers)), **options)
    assert torch_seen(on_device) == torch_seen(expected)


@every_kind
def test_some_of_the_samples_are_selected(kind):
    make, options = KINDS[kind]
    found = make(bl.ChunkedArray(cut(matrix, [9, 40])), bl.ChunkedArray(cut(numbers, [17, 18])))
    expected = make(matrix, numbers)
    if kind in ("pieces", "windows", "continuous"):
        return
    run, some = slice(1, 4), [3, 1, 2]
    assert_same(found.select(run), expected.select(run), options)
    assert_same(pickle.loads(pickle.dumps(found.select(run))), expected.select(run), options)
    assert_same(found.select(some), expected.select(some), options)


@few
@given(
    places=borders, start=st.integers(0, ROWS), end=st.integers(0, ROWS), picks=st.lists(st.integers(-ROWS, ROWS - 1))
)
def test_rows_of_chunks_are_rows_of_the_array(places, start, end, picks):
    chunked = bl.ChunkedArray(numpy.split(matrix, places))
    numpy.testing.assert_array_equal(chunked[start:end], matrix[start:end])
    index = numpy.array(picks, numpy.int64)
    numpy.testing.assert_array_equal(chunked[index], matrix[index])
    numpy.testing.assert_array_equal(numpy.asarray(chunked), matrix)
    assert (chunked.shape, chunked.dtype) == (matrix.shape, matrix.dtype)
    for pick in picks:
        numpy.testing.assert_array_equal(chunked[pick], matrix[pick])


def test_columns_of_arrow_keep_their_memory():
    table = pyarrow.table({"x": matrix[:, 0], "id": numbers})
    chunked = pyarrow.concat_tables([table.slice(0, 10), table.slice(10, 35), table.slice(45)])
    columns = {name: chunked.column(name) for name in chunked.column_names}
    assert_same(bl.TensorDataset(**columns), bl.TensorDataset(x=matrix[:, 0].copy(), id=numbers), {"batch_size": 7})
    (array, _) = bl.TensorDataset(**columns).fields
    addresses = [chunk.__array_interface__["data"][0] for chunk in array.chunks]
    assert addresses == [chunk.buffers()[1].address + 4 * chunk.offset for chunk in chunked.column("x").chunks]
    series = polars.concat([polars.Series("x", matrix[:20, 0]), polars.Series("x", matrix[20:, 0])], rechunk=False)
    assert series.n_chunks() == 2
    assert_same(bl.TensorDataset(series), bl.TensorDataset(matrix[:, 0].copy()), {"batch_size": 7})


@pytest.mark.parametrize("places", [[], [20], [0, 7, 7, 41]])
def test_lists_of_one_size_are_rows(places):
    flat = pyarrow.array(matrix.reshape(-1))
    whole = pyarrow.FixedSizeListArray.from_arrays(flat, 3)
    ends = [0, *places, ROWS]
    column = pyarrow.chunked_array([whole.slice(a, b - a) for a, b in itertools.pairwise(ends)])
    assert_same(bl.TensorDataset(x=column), bl.TensorDataset(x=matrix), {"batch_size": 7})
    nested = pyarrow.FixedSizeListArray.from_arrays(pyarrow.FixedSizeListArray.from_arrays(flat, 3), 2)
    assert_same(bl.TensorDataset(nested), bl.TensorDataset(matrix.reshape(-1, 2, 3)), {"batch_size": 7})


def test_nulls_of_chunks_are_named_by_their_row():
    with refused(bl.DataError, "field x", "sample 4", "null"):
        bl.TensorDataset(x=pyarrow.chunked_array([[1, 2, 3], [4, None]]))
    lists = pyarrow.array([[1, 2], None, [3, 4]], pyarrow.list_(pyarrow.int64(), 2))
    with refused(bl.DataError, "field x", "sample 1", "null"):
        bl.TensorDataset(x=lists)


def test_chunks_of_several_kinds_are_refused():
    floats = numpy.zeros(3, numpy.float32)
    with refused(bl.ArgumentError, "chunks", "ndarray", "list of arrays"):
        bl.ChunkedArray(floats)
    with refused(bl.DataError, "chunks is empty", "at least one"):
        bl.ChunkedArray([])
    with refused(bl.DTypeError, "chunk 1", "int64", "float32"):
        bl.ChunkedArray([floats, numbers])
    with refused(bl.DTypeError, "chunk 1", "torch", "numpy"):
        bl.ChunkedArray([floats, torch.zeros(3)])
    with refused(bl.DataError, "chunk 1", "[3]", "[]"):
        bl.ChunkedArray([floats, matrix])
    with refused(bl.DeviceError, "chunk 1", "meta"):
        bl.ChunkedArray([torch.zeros(3), torch.zeros(3, device="meta")])
    with refused(bl.DataError, "field x", "shapes", "2 chunks"):
        bl.SequenceDataset(x=(bl.ChunkedArray([floats, floats]), numpy.array([[1, 2], [2, 2]])))


def test_a_chunk_that_was_resized_is_named():
    chunks = [numpy.zeros(4), numpy.zeros(5)]
    loader = bl.DataLoader(bl.TensorDataset(x=bl.ChunkedArray(chunks)), batch_size=2)
    chunks[1].resize(9, refcheck=False)
    with refused(bl.DataError, "chunks[1]", "resized"):
        next(iter(loader))


def test_lists_without_elements_in_several_chunks():
    column = pyarrow.chunked_array([[[]], [[]]], pyarrow.list_(pyarrow.int64()))
    (batch,) = bl.DataLoader(bl.SequenceDataset(ids=column), 2)
    assert batch["ids"].shape == (2, 0)
    (packed,) = bl.DataLoader(bl.SequenceDataset(ids=column), batching=bl.Packing(4))
    assert packed["ids"].shape == (0,)
