"""Samples of one shape: rows of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import batchloom._native as _native
from batchloom.arrays.field import Field
from batchloom.collate.schema import Column, Columns, Compressed, Schema
from batchloom.dataset.base import Dataset, Dicts, Form, Made, Tuples
from batchloom.dataset.sparse_rows import SparseField, is_sparse
from batchloom.errors import ArgumentError, DataError, many

if TYPE_CHECKING:
    from batchloom.collate.schema import CollateOptions
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident


class TensorDataset(Dataset[Form]):
    """Arrays that share their first dimension: sample ``k`` is row ``k`` of each.

    ``TensorDataset(X, y)`` makes batches that are tuples ``(xb, yb)``; ``TensorDataset(x=X, y=y)`` makes dicts.

    A field is a NumPy array or memory map, a torch tensor, a JAX CPU array, or anything else with
    ``__dlpack__``; shape ``[samples, ...]``, any rank, any element type that NumPy or torch share, any strides.

    A field may also be a sparse matrix: SciPy's or torch's, in CSR format, or :class:`SparseRows`. A batch holds its
    rows as a matrix of the same kind, or with all columns if ``SparseRows(X, layout="dense")`` asks for that;
    ``dataset[k]`` has all columns. The matrix is never made dense as a whole.

    Fields are borrowed, never copied: the dataset shares their memory, however large they are. So do not resize
    them, and do not write to them while a loader runs. (A row that is not contiguous in memory, as in
    ``X[:, ::2]`` or ``X.T``, is gathered piece by piece: correct, without a copy of the whole, but slower than a
    contiguous one. Only arrays that cannot be shared are copied, once, when the dataset is made: NumPy elements that
    are not aligned to their size, as those of a packed record, and torch tensors that are conjugated or negated
    lazily.)

    A dataset pickles with the content of its arrays, including memory maps.

    Raises:
        ArgumentError: Positional and named fields are mixed.
        DataError: No field; fields of different lengths; a value that is not an array; a memory map whose file is
            shorter than the map.
        DTypeError: An element type that cannot be moved as bytes, such as ``object``.
        DeviceError: An array that is neither on the CPU nor of torch.
    """

    @overload
    def __init__(self: TensorDataset[Tuples], /, *fields: Any) -> None: ...
    @overload
    def __init__(self: TensorDataset[Dicts], /, **named: Any) -> None: ...
    def __init__(self, /, *fields: Any, **named: Any) -> None:
        if fields and named:
            raise ArgumentError("positional and named fields are mixed; expected all of one kind")
        self._names = tuple(named) if named else None
        arrays = tuple(named.values()) if named else fields
        if not arrays:
            raise DataError("the dataset has no fields; expected at least one array")
        labels = self._names or tuple(str(place) for place in range(len(arrays)))
        self._fields = tuple(_field(label, array) for label, array in zip(labels, arrays, strict=True))
        self._samples = _common_length(self._fields)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the fields; ``None`` if they are positional."""
        return self._names

    @property
    def fields(self) -> tuple[Any, ...]:
        """The arrays, as they were given."""
        return tuple(field.array for field in self._fields)

    def _whole_len(self) -> int:
        return self._samples

    def _sample(self, sample: int) -> Any:
        """Return a row of every field: a tuple, or a dict if the fields are named."""
        rows = tuple(field.row(self._row(sample)) for field in self._fields)
        return rows if self._names is None else dict(zip(self._names, rows, strict=True))

    def _made(self) -> Made:
        return _rebuild, (type(self), self._names, self.fields)

    def _arrays_by_sample(self) -> tuple[Field, ...]:
        return tuple(field for field in self._fields if isinstance(field, Field))

    def _narrowed(self) -> tuple[Made, _native.Selection]:
        selection = self._held()
        if selection.range is None or not all(isinstance(field, Field) for field in self._fields):
            return super()._narrowed()
        fields = tuple(field.part(*selection.range) for field in self._arrays())
        return (_rebuild, (type(self), self._names, fields)), selection.cut(*selection.range)

    def __repr__(self) -> str:
        fields = ", ".join(repr(field) for field in self._fields)
        return f"TensorDataset({fields}; {many(len(self), 'sample')})"

    def _native_dataset(self) -> _native.Dataset:
        whole = _native.Dataset.tensors(
            [(field.label, field.rows if isinstance(field, SparseField) else field.tensor) for field in self._fields]
        )
        return whole if self._selection is None else whole.select(self._selection)

    def _arrays(self) -> tuple[Field, ...]:
        found: list[Field] = []
        for field in self._fields:
            found += field.arrays if isinstance(field, SparseField) else (field,)
        return tuple(found)

    def _schema(self, columns: Columns) -> Schema:
        # Marks come after the fields.
        frameworks: list[str] = []
        compressed: list[Compressed] = []
        for field in self._fields:
            held = field.columns(len(frameworks)) if isinstance(field, SparseField) else None
            frameworks += [field.framework] * (1 if held is None else held.COLUMNS)
            compressed += [] if held is None else [held]
        frameworks += frameworks[:1] * (len(columns) - len(frameworks))
        found = (Column(*column, framework) for column, framework in zip(columns, frameworks, strict=True))
        return Schema(tuple(found), named=self._names is not None, compressed=tuple(compressed))

    def _collator(self, resident: Resident, options: CollateOptions) -> Collator:
        from batchloom.device.collate.rows import Rows
        from batchloom.device.conversion import converted

        if any(isinstance(field, SparseField) for field in self._fields):
            from batchloom.device.collate.sparse import SparseAndDense

            return SparseAndDense(
                [
                    field.on(resident) if isinstance(field, SparseField) else partial(resident.rows_of, field)
                    for field in self._fields
                ]
            )
        fetches = [converted(options, field.label, partial(resident.rows_of, field)) for field in self._arrays()]
        return Rows(lambda: [fetch() for fetch in fetches])

    def _ungathered(self, conversions: Mapping[str, _native.Conversion]) -> str | None:
        sparse = [field.label for field in self._fields if isinstance(field, SparseField)]
        return f"field {sparse[0]} is sparse, and fields come in other types" if sparse and conversions else None


def _field(label: str, array: Any) -> Field | SparseField:
    return SparseField(label, array) if is_sparse(array) else Field(label, array)


def _rebuild(kind: type[TensorDataset], names: tuple[str, ...] | None, fields: tuple[Any, ...]) -> TensorDataset:
    return kind(*fields) if names is None else kind(**dict(zip(names, fields, strict=True)))


def _common_length(fields: tuple[Field | SparseField, ...]) -> int:
    first = fields[0]
    for field in fields:
        if isinstance(field, Field) and not field.tensor.shape:
            raise DataError(
                f"field {field.label} is a scalar; expected an array whose first dimension counts the samples"
            )
        if len(field) != len(first):
            raise DataError(
                f"field {field.label} has {many(len(field), 'row')} but field {first.label} has {len(first)}; "
                "expected the "
                "same number of samples in every field"
            )
    return len(first)
