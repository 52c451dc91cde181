"""Rows of a sparse matrix as a field: of each row, only some columns are stored."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
import numpy
from batchloom.arguments import choice
from batchloom.arrays.chunked import join_chunks, read_array
from batchloom.arrays.field import BorrowedArray, lend
from batchloom.arrays.frameworks import DEFAULT_FRAMEWORK, is_sparse, load, owner
from batchloom.collate.schema import Compressed
from batchloom.errors import DataError, DTypeError, many

if TYPE_CHECKING:
    from batchloom.device.collate import sparse
    from batchloom.device.resident import Resident

LAYOUTS = ("csr", "dense")


class SparseRows:
    """Rows of a sparse matrix, as a field of a :class:`TensorDataset`, and the layout that batches hold them in.

    ``TensorDataset(X, y)`` takes a SciPy or torch matrix as it is, in layout ``"csr"``. This class chooses the other
    layout, or takes the three arrays of a matrix that neither of them holds::

        bl.TensorDataset(bl.SparseRows(X, layout="dense"), y)
        bl.TensorDataset(bl.SparseRows((data, indices, indptr), shape=(n, m)), y)

    The matrix is shared, never copied, and never made dense as a whole. Its columns may come in any order. A column
    that a row holds twice stands for the sum: batches in layout ``"dense"`` add, those in layout ``"csr"`` hold both.

    Args:
        rows: A SciPy matrix or array in CSR format; a torch tensor of layout ``torch.sparse_csr`` on the CPU; or
            ``(data, indices, indptr)``, in SciPy's order: arrays of one dimension, memory maps among them, where row
            ``k`` has the entries ``indptr[k]`` to ``indptr[k + 1]``. Indices and ``indptr`` are int32 or int64.
        shape: The numbers of rows and columns, for three arrays.
        layout: ``"csr"``: a batch holds a sparse matrix (``torch.sparse_csr_tensor``, or SciPy's for
            ``output="numpy"``). ``"dense"``: a batch holds an array ``[batch, columns]``, whose zeros are written as it
            is formed.

    Raises:
        ArgumentError: There is no such layout; ``shape`` is missing, or was given for a matrix.
        DataError: The format is another one; the arrays do not fit each other; offsets decrease.
        DeviceError: The matrix is not in memory of the CPU.
        DTypeError: Indices or ``indptr`` are neither int32 nor int64.
    """

    def __init__(self, rows: Any, *, shape: tuple[int, int] | None = None, layout: str = "csr") -> None:
        self.layout = choice("layout", layout, LAYOUTS)
        self.rows, self.shape = rows, shape

    def __repr__(self) -> str:
        return f"SparseRows({type(self.rows).__name__}, layout={self.layout!r})"


class SparseField:
    """One sparse field of a dataset: the arrays of the matrix, and its rows as the engine sees them.

    Attributes:
        label: The name of the field.
        array: The matrix, as it was given.
        arrays: The columns of all entries, and their values.
        offsets: The first entry of each row, and the end of the last one.
        width: The number of columns.
        layout: The layout of batches.
    """

    def __init__(self, label: str, given: Any) -> None:
        self.label, self.array = label, given
        rows = given if isinstance(given, SparseRows) else SparseRows(given)
        self.layout = rows.layout
        values, columns, offsets, shape = _parts(label, rows)
        self._is_matrix = type(rows.rows).__name__ == "csr_matrix"
        self.arrays = BorrowedArray(label, columns), BorrowedArray(label, values)
        self.offsets, self.width = BorrowedArray(label, offsets), shape[1]
        for what, field in (("data", self.arrays[1]), ("indices", self.arrays[0]), ("indptr", self.offsets)):
            if len(field.tensor.shape) != 1:
                raise DataError(f"field {label}: {what} has shape {tuple(field.tensor.shape)}; expected one dimension")
        for what, field in (("indices", self.arrays[0]), ("indptr", self.offsets)):
            if field.dtype not in ("int32", "int64"):
                raise DTypeError(f"field {label}: {what} is {field.dtype}; expected int32 or int64")
        if len(self.offsets) != shape[0] + 1:
            raise DataError(
                f"field {label}: indptr has {many(len(self.offsets), 'number')} for {many(shape[0], 'row')}; "
                "expected one more than "
                "rows"
            )
        tensors = self.offsets.tensor, self.arrays[0].tensor, self.arrays[1].tensor
        self.rows = _native.SparseRows(label, *tensors, self.width, self.layout)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    @property
    def framework(self) -> str:
        """The framework of the values."""
        return self.arrays[1].framework

    def row(self, sample: int) -> Any:
        """Return one row, with all its columns."""
        return lend(self.rows.row(sample % len(self)), self.framework)

    def columns(self, place: int) -> Compressed | None:
        """Return how batches hold the field; its first column is at ``place``; ``None`` for a dense array."""
        if self.layout == "dense":
            return None
        return Compressed(self.label, place, self.width, self.framework, self._is_matrix)

    @cached_property
    def repeats(self) -> bool:
        """``True`` if a row holds a column twice. One pass over all columns, which raises if one is outside."""
        return self.rows.check()

    def on(self, resident: Resident) -> sparse.ResidentSparse:
        """Return the field for a collator on a device."""
        from batchloom.device.collate import sparse

        columns, values = (partial(resident.rows_of, field) for field in self.arrays)
        offsets = numpy.from_dlpack(self.offsets.tensor)
        return sparse.ResidentSparse(columns, values, offsets, self.width, self.layout == "dense", self.repeats)

    def __repr__(self) -> str:
        values = self.arrays[1]
        return f"{self.label}: {values.dtype}({len(self)}, {self.width}) in {len(values.tensor)} entries"


def is_sparse_field(given: Any) -> bool:
    """Return whether a field is a sparse matrix, in any format."""
    return isinstance(given, SparseRows) or is_sparse(given)


def _parts(label: str, given: SparseRows) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """Return values, columns, offsets and shape of a matrix."""
    rows = given.rows
    if isinstance(rows, tuple):
        if given.shape is None or len(given.shape) != 2:
            raise DataError(f"field {label}: shape is {given.shape}; expected the numbers of rows and columns")
        if len(rows) != 3:
            raise DataError(f"field {label} has {len(rows)} arrays; expected three: data, indices and indptr")
        return (*(join_chunks(read_array(label, each)) for each in rows), tuple(given.shape))
    if given.shape is not None:
        raise DataError(f"field {label}: shape is {given.shape}, and the matrix has one; expected shape for arrays")
    framework = owner(rows)
    if framework is None or not framework.HAS_SPARSE_ROWS:
        framework = load(DEFAULT_FRAMEWORK)
    return framework.sparse_parts(rows, label)
