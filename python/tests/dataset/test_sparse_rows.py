"""Rows of sparse matrices: what batches hold is what SciPy has in these rows, for every kind of matrix and of batch."""

import itertools
import pickle
import tracemalloc

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.elements import TORCH_TYPES
from oracles.sparse import WAYS, dataset_of, dense, matrices, opened
from scipy import sparse

layouts = st.sampled_from(["csr", "dense"])


@pytest.mark.law("L9")
@given(matrix=matrices(), layout=layouts, way=st.sampled_from(WAYS), size=st.integers(1, 8), threads=st.integers(1, 3))
def test_batches_hold_the_rows(matrix, layout, way, size, threads):
    loader = bl.DataLoader(dataset_of(matrix, layout), size, shuffle=True, num_threads=threads, **way)
    rows, expected = [], dense(matrix)
    for _ in range(2):
        for batch in loader:
            taken = numpy.asarray(batch["row"])
            found = opened(batch["x"])
            assert found.dtype == matrix.dtype
            assert numpy.array_equal(found, expected[taken])
            rows.extend(taken.tolist())
    assert sorted(rows) == sorted(list(range(matrix.shape[0])) * 2)


@given(matrix=matrices(), way=st.sampled_from(WAYS), size=st.integers(1, 8))
def test_compressed_batches_hold_entries_as_they_lie(matrix, way, size):
    for batch in bl.DataLoader(dataset_of(matrix, "csr"), size, **way):
        found, rows = batch["x"], numpy.asarray(batch["row"])
        expected = [
            numpy.concatenate([part[matrix.indptr[row] : matrix.indptr[row + 1]] for row in rows])
            for part in (matrix.indices, matrix.data)
        ]
        if isinstance(found, torch.Tensor):
            assert found.layout == torch.sparse_csr
            assert found.crow_indices().dtype == found.col_indices().dtype
            assert f"torch.{matrix.indices.dtype}" == str(found.col_indices().dtype)
            parts = found.col_indices().numpy(), found.values().numpy()
        else:
            assert type(found) is type(matrix)
            parts = found.indices, found.data
        assert [part.tolist() for part in parts] == [part.tolist() for part in expected]


@given(matrix=matrices(), layout=layouts)
def test_a_sample_is_a_row_with_all_columns(matrix, layout):
    dataset = pickle.loads(pickle.dumps(dataset_of(matrix, layout)))
    assert numpy.array_equal([dataset[k]["x"] for k in range(len(dataset))], dense(matrix))
    assert numpy.array_equal(dataset[-1]["x"], dense(matrix)[-1])


@given(matrix=matrices(), layout=layouts, way=st.sampled_from(WAYS), stop=st.integers(0, 5))
def test_resume_continues_to_the_bit(matrix, layout, way, stop):
    def loader():
        return bl.DataLoader(dataset_of(matrix, layout), 3, shuffle=True, seed=7, **way)

    def taken(batches):
        return [(opened(batch["x"]).tolist(), numpy.asarray(batch["row"]).tolist()) for batch in batches]

    whole, first, second = taken(loader()), loader(), loader()
    head = taken(itertools.islice(first, min(stop, len(first) - 1)))
    second.load_state_dict(first.state_dict())
    assert head + taken(second) == whole


@given(matrix=matrices(), layout=layouts, way=st.sampled_from(WAYS[1:]), size=st.integers(1, 4))
def test_ranks_and_masks_take_every_row_once(matrix, layout, way, size):
    rows, expected = [], dense(matrix)
    for rank in range(3):
        dataset = dataset_of(matrix, layout)
        for batch in bl.DataLoader(dataset, size, shuffle=True, rank=rank, world_size=3, uneven="mask", **way):
            kept = numpy.asarray(batch["weight"]) > 0
            assert numpy.array_equal(opened(batch["x"])[kept], expected[batch["index"].numpy()[kept]])
            rows.extend(batch["index"].numpy()[kept].tolist())
    assert sorted(rows) == list(range(matrix.shape[0]))


@pytest.mark.law("L9")
@given(
    first=matrices(least=20), second=matrices(least=20), layouts=st.tuples(layouts, layouts), way=st.sampled_from(WAYS)
)
def test_fields_differ_in_entries(first, second, layouts, way):
    dataset = bl.TensorDataset(
        *(bl.SparseRows(matrix, layout=layout) for matrix, layout in zip((first, second), layouts, strict=True)),
        numpy.arange(20),
    )
    for one, other, rows in bl.DataLoader(dataset, 6, shuffle=True, **way):
        assert numpy.array_equal(opened(one), dense(first)[numpy.asarray(rows)])
        assert numpy.array_equal(opened(other), dense(second)[numpy.asarray(rows)])


def test_a_matrix_is_a_field_as_it_is():
    matrix = sparse.csr_array(numpy.eye(4, dtype=numpy.float32))
    ((found, labels),) = bl.DataLoader(bl.TensorDataset(matrix, numpy.arange(4)), 4)
    assert isinstance(found, sparse.csr_array)
    assert found.toarray().tolist() == numpy.eye(4).tolist()
    assert labels.tolist() == [0, 1, 2, 3]


def test_a_torch_matrix_comes_back_as_one():
    matrix = torch.eye(4, dtype=torch.float64).to_sparse_csr()
    dataset = bl.TensorDataset(matrix)
    ((found,),) = bl.DataLoader(dataset, 4)
    assert found.layout == torch.sparse_csr
    assert torch.equal(found.to_dense(), torch.eye(4, dtype=torch.float64))
    assert torch.equal(found @ torch.ones(4, 2, dtype=torch.float64), torch.ones(4, 2, dtype=torch.float64))
    assert torch.equal(dataset[2][0], torch.eye(4, dtype=torch.float64)[2])


@pytest.mark.parametrize("dtype", [name for name in ("bfloat16", "float16", "float8_e5m2") if name in TORCH_TYPES])
@pytest.mark.parametrize("resident", [True, False, "auto"])
def test_types_of_torch_alone(dtype, resident):
    values = torch.tensor([1.0, 2.0, 3.0]).to(getattr(torch, dtype))
    rows = bl.SparseRows((values, torch.tensor([2, 0, 1]), torch.tensor([0, 2, 2, 3])), shape=(3, 3), layout="dense")
    ((found,),) = bl.DataLoader(bl.TensorDataset(rows), 3, resident=resident)
    assert found.dtype == values.dtype
    assert found.float().tolist() == [[2, 0, 1], [0, 0, 0], [0, 3, 0]]


def test_memory_maps_stay_maps(tmp_path):
    parts = {"data": numpy.arange(1.0, 4.0), "indices": numpy.array([2, 0, 1]), "indptr": numpy.array([0, 2, 2, 3])}
    for name, part in parts.items():
        numpy.save(tmp_path / f"{name}.npy", part)
    maps = tuple(numpy.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in parts)
    ((found,),) = bl.DataLoader(bl.TensorDataset(bl.SparseRows(maps, shape=(3, 3), layout="dense")), 3)
    assert found.tolist() == [[2, 0, 1], [0, 0, 0], [0, 3, 0]]


def test_the_matrix_is_never_dense_as_a_whole():
    matrix = sparse.random_array((2000, 30_000), density=1e-4, format="csr", rng=numpy.random.default_rng(0))
    dataset = dataset_of(matrix, "dense")
    tracemalloc.start()
    batch = next(iter(bl.DataLoader(dataset, 8)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert batch["x"].shape == (8, 30_000)
    assert peak < 1 << 20


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", ["csr", "dense"])
def test_no_entries_at_all(way, layout):
    for matrix in (sparse.csr_array((5, 3)), sparse.csr_array((5, 0)), sparse.csr_array((1, 3))):
        shapes = [tuple(batch["x"].shape) for batch in bl.DataLoader(dataset_of(matrix, layout), 2, **way)]
        assert shapes == [(min(2, matrix.shape[0] - k), matrix.shape[1]) for k in range(0, matrix.shape[0], 2)]


def test_a_device_takes_shards_of_entries():
    matrix = sparse.random_array((64, 20), density=0.5, format="csr", rng=numpy.random.default_rng(0))
    for layout in ("csr", "dense"):
        dataset = dataset_of(matrix, layout)
        loader = bl.DataLoader(dataset, 4, shuffle=True, output="torch", resident=6000)
        assert loader.placement.mode == "sharded"
        rows = []
        for batch in loader:
            assert numpy.array_equal(opened(batch["x"]), matrix.toarray()[batch["row"].numpy()])
            rows.extend(batch["row"].tolist())
        assert sorted(rows) == list(range(64))


def test_jax_takes_dense_batches():
    matrix = sparse.csr_array(numpy.eye(4, dtype=numpy.float32))
    ((found,),) = bl.DataLoader(bl.TensorDataset(bl.SparseRows(matrix, layout="dense")), 4, output="jax")
    assert found.tolist() == numpy.eye(4).tolist()
