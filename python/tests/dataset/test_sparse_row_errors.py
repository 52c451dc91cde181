"""Sparse matrices that make no dataset, and rows that make no batch: the class of the error, and what it names."""

import batchloom as bl
import numpy
import pytest
import torch
from refusals import refused
from scipy import sparse

EYE = sparse.csr_array(numpy.eye(3, dtype=numpy.float32))


def rows(data=(1.0, 2.0), indices=(0, 2), indptr=(0, 1, 2, 2), shape=(3, 3), layout="csr"):
    arrays = numpy.array(data, numpy.float32), numpy.array(indices), numpy.array(indptr)
    return bl.SparseRows(arrays, shape=shape, layout=layout)


@pytest.mark.parametrize("format", ["csc", "coo", "lil", "dok", "bsr", "dia"])
def test_other_formats(format):
    with refused(bl.DataError, "field x", format, ".tocsr()"):
        bl.TensorDataset(x=EYE.asformat(format))


@pytest.mark.parametrize("layout", ["csc", "coo"])
def test_other_layouts_of_torch(layout):
    matrix = torch.eye(3).to_sparse(layout=getattr(torch, f"sparse_{layout}"))
    with refused(bl.DataError, "field x", f"torch.sparse_{layout}", ".to_sparse_csr()"):
        bl.TensorDataset(x=matrix)


def test_matrices_of_matrices():
    arrays = torch.tensor([0, 1]), torch.tensor([0]), torch.ones(1, 2)
    with refused(bl.DataError, "field x", "(1, 2)"):
        bl.TensorDataset(x=torch.sparse_csr_tensor(*arrays, (1, 1, 2), check_invariants=True))


def test_a_matrix_elsewhere():
    with refused(bl.DeviceError, "field x", "meta", ".cpu()"):
        bl.TensorDataset(x=torch.eye(3).to_sparse_csr().to("meta"))


def test_a_matrix_in_a_file():
    class CSRDataset:
        format, shape = "csr", (3, 3)

        def to_memory(self):
            raise AssertionError("nothing is read")

    with refused(bl.DataError, "field x", "CSRDataset", ".to_memory()"):
        bl.TensorDataset(x=CSRDataset())


def test_layouts_and_shapes():
    with refused(bl.ArgumentError, "layout", "'coo'", "csr", "dense"):
        bl.SparseRows(EYE, layout="coo")
    with refused(bl.DataError, "field x", "shape", "None"):
        bl.TensorDataset(x=rows(shape=None))
    with refused(bl.DataError, "field x", "(3, 3)"):
        bl.TensorDataset(x=bl.SparseRows(EYE, shape=(3, 3)))
    with refused(bl.DataError, "field x", "2", "three"):
        bl.TensorDataset(x=bl.SparseRows((EYE.data, EYE.indices), shape=(3, 3)))
    with refused(bl.DataError, "field x", "4", "5"):
        bl.TensorDataset(x=rows(shape=(5, 3)))
    with refused(bl.DataError, "field x", "data", "(2, 1)"):
        bl.TensorDataset(x=rows(data=((1.0,), (2.0,))))


@pytest.mark.parametrize(
    ("indptr", "row", "values"),
    [((0, 2, 1, 2), "sample 1", ("2", "1")), ((-1, 1, 2, 2), "sample 0", ("-1",)), ((0, 1, 2, 3), "sample 2", ("3",))],
)
def test_offsets(indptr, row, values):
    with refused(bl.DataError, "field x", row, *values):
        bl.TensorDataset(x=rows(indptr=indptr))


def test_lengths_and_types():
    with refused(bl.DataError, "field x", "3", "2"):
        bl.TensorDataset(x=rows(data=(1.0, 2.0, 3.0)))
    with refused(bl.DataError, "field x", "indptr"):
        bl.TensorDataset(x=rows(indptr=numpy.zeros(0, int)))
    arrays = numpy.ones(1), numpy.zeros(1, "uint16"), numpy.array([0, 1])
    with refused(bl.DTypeError, "field x", "indices", "uint16", "int32", "int64"):
        bl.TensorDataset(x=bl.SparseRows(arrays, shape=(1, 3)))
    with refused(bl.DataError, "field y", "3", "4"):
        bl.TensorDataset(x=numpy.zeros(4), y=rows())


@pytest.mark.parametrize("layout", ["csr", "dense"])
@pytest.mark.parametrize("column", [-1, 3, 2**40])
@pytest.mark.parametrize("way", [{}, {"output": "torch", "resident": False}, {"output": "torch", "resident": True}])
def test_a_column_outside_names_its_row(layout, column, way):
    dataset = bl.TensorDataset(x=rows(indices=(0, column), layout=layout))
    with refused(bl.DataError, "field x", "row 1", str(column), "3"):
        list(bl.DataLoader(dataset, 1, **way))
    with refused(bl.DataError, "field x", "row 1", str(column), "3"):
        dataset[1]


@pytest.mark.parametrize("resident", [True, False])
def test_a_column_twice_in_a_type_that_is_not_added(resident):
    values = torch.ones(2, dtype=torch.bfloat16)
    arrays = values, torch.tensor([1, 1]), torch.tensor([0, 0, 2])
    dataset = bl.TensorDataset(x=bl.SparseRows(arrays, shape=(2, 3), layout="dense"))
    with refused(bl.DataError, "field x", "row 1", "column 1", "bfloat16"):
        list(bl.DataLoader(dataset, 1, resident=resident))


def test_jax_has_no_compressed_batches():
    with refused(bl.ArgumentError, "field x", "csr", "jax", "dense"):
        bl.DataLoader(bl.TensorDataset(x=EYE), 2, output="jax")


def test_static_buffers_need_one_shape():
    with refused(bl.ArgumentError, "buffers", "field x", "dense"):
        bl.DataLoader(bl.TensorDataset(x=EYE), 2, output="torch", buffers="static")


def test_rows_are_not_counted_by_their_entries():
    with refused(bl.ArgumentError, "TokenBudget"):
        bl.DataLoader(bl.TensorDataset(x=EYE), batching=bl.TokenBudget(10))
