"""Sparse matrices of any content, and their rows as SciPy has them."""

import batchloom as bl
import numpy
import torch
from hypothesis import strategies as st
from scipy import sparse

TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
TYPES += ["complex64", "complex128"]
WAYS = [
    {"output": "numpy"},
    {"output": "torch"},
    {"output": "torch", "resident": True},
    {"output": "torch", "resident": False},
]


@st.composite
def matrices(draw, types=TYPES, least=1):
    """A matrix in CSR format: empty rows, columns in any order, columns twice, space behind the entries."""
    rows, width = draw(st.integers(least, 20)), draw(st.integers(1, 12))
    lengths = draw(st.lists(st.integers(0, 8), min_size=rows, max_size=rows))
    wide, beyond = draw(st.sampled_from(["int32", "int64"])), draw(st.integers(0, 3))
    column = st.integers(0, width - 1)
    repeats = draw(st.booleans())
    columns = [
        draw(st.lists(column, min_size=length, max_size=length, unique=not repeats))
        for length in (lengths if repeats else [min(length, width) for length in lengths])
    ]
    offsets = numpy.cumsum([0, *map(len, columns)]).astype(wide)
    flat = numpy.array([column for row in columns for column in row] + [0] * beyond, wide)
    values = numpy.arange(1, len(flat) + 1).astype(draw(st.sampled_from(types)))
    found = sparse.csr_matrix((rows, width), dtype=values.dtype)
    # As they are: SciPy's constructor would choose a width of indices of its own.
    found.data, found.indices, found.indptr = values, flat, offsets
    return draw(st.sampled_from([lambda matrix: matrix, _as_array]))(found)


def _as_array(matrix):
    found = sparse.csr_array(matrix.shape, dtype=matrix.dtype)
    found.data, found.indices, found.indptr = matrix.data, matrix.indices, matrix.indptr
    return found


def dense(matrix):
    """All columns of a matrix, whose repeated columns are added one after the other."""
    found = numpy.zeros(matrix.shape, matrix.dtype)
    with numpy.errstate(over="ignore"):
        for row in range(matrix.shape[0]):
            for entry in range(matrix.indptr[row], matrix.indptr[row + 1]):
                found[row, matrix.indices[entry]] += matrix.data[entry]
    return found


def opened(batch):
    """The rows of a batch with all columns, whatever holds them."""
    if isinstance(batch, torch.Tensor):
        if batch.layout == torch.strided:
            return batch.numpy()
        batch = sparse.csr_array(
            (batch.values().numpy(), batch.col_indices().numpy(), batch.crow_indices().numpy()), shape=batch.shape
        )
    return batch if isinstance(batch, numpy.ndarray) else dense(batch)


def dataset_of(matrix, layout):
    """A dataset of a matrix and the numbers of its rows."""
    return bl.TensorDataset(x=bl.SparseRows(matrix, layout=layout), row=numpy.arange(matrix.shape[0]))
