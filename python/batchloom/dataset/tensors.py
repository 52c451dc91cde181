"""Samples of one shape: rows of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import batchloom._native as _native
from batchloom.arguments import answer_unknown_keywords
from batchloom.arrays.chunked import borrow_field
from batchloom.arrays.field import BorrowedArray
from batchloom.arrays.frames import as_array
from batchloom.arrays.frameworks import DEFAULT_FRAMEWORK
from batchloom.collate.objects import OBJECTS
from batchloom.collate.schema import Column, Columns, Compressed, Schema
from batchloom.dataset.base import Dataset, Dicts, Form, Tuples
from batchloom.dataset.concat import StoredSamples
from batchloom.dataset.location import Location
from batchloom.dataset.object_field import LazyObjects, ObjectField, read_objects
from batchloom.dataset.on_device import SamplesOnDevice
from batchloom.dataset.samples import Recipe, override
from batchloom.dataset.sparse_rows import SparseField, is_sparse_field
from batchloom.device.data import DeviceData
from batchloom.errors import ArgumentError, DataError, many

if TYPE_CHECKING:
    from batchloom.batching.rules import Rule
    from batchloom.collate.schema import CollateOptions
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident


@answer_unknown_keywords
class TensorDataset(Dataset[Form]):
    """Arrays that share their first dimension: sample ``k`` is row ``k`` of each.

    ``TensorDataset(X, y)`` makes batches that are tuples ``(xb, yb)``; ``TensorDataset(x=X, y=y)`` makes dicts.

    A field is a NumPy array or memory map, a torch tensor, a JAX CPU array, or anything else with ``__dlpack__``, with
    the capsules of Arrow, with ``__array__``, or with ``shape``, ``dtype`` and ``[]``; shape ``[samples, ...]``, any
    rank, any element type that NumPy or torch share, any strides. Objects that only give their values by the last two,
    as arrays of HDF5 and Zarr on disk, are read once, whole, in their type: they take memory from then on. A
    :class:`ChunkDataset`, or :func:`batchloom.open`, is for what memory does not hold.
    Lists of numbers, and columns and frames of pandas, polars or Arrow become arrays of NumPy: a frame is one field
    with a column for each of its columns, and ``TensorDataset(**frame)`` makes a field of each column. A column of
    Arrow in several chunks is borrowed as a :class:`ChunkedArray`, and its lists of one size are rows. A column or list
    of texts, paths or other objects that are no numbers is a field as well: a batch holds them as a list, wherever its
    arrays are.

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
        DTypeError: An element type that cannot be moved as bytes, such as ``object`` with numbers.
        DeviceError: An array that is neither on the CPU nor of torch.
    """

    _samples: RowSamples

    @overload
    def __init__(self: TensorDataset[Tuples], /, *fields: Any) -> None: ...
    @overload
    def __init__(self: TensorDataset[Dicts], /, **named: Any) -> None: ...
    def __init__(self, /, *fields: Any, **named: Any) -> None:
        if fields and named:
            raise ArgumentError("positional and named fields are mixed; expected all of one kind")
        arrays = tuple(named.values()) if named else fields
        self._samples = RowSamples(tuple(named) if named else None, arrays)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the fields; ``None`` if they are positional."""
        return self._samples.names

    @property
    def fields(self) -> tuple[Any, ...]:
        """The arrays, as they were given."""
        return self._samples.given

    def __repr__(self) -> str:
        fields = ", ".join(repr(field) for field in self._samples.fields)
        return f"TensorDataset({fields}; {many(len(self), 'sample')})"


class RowSamples(StoredSamples):
    """Rows of arrays that share their first dimension.

    Attributes:
        names: The names of the fields; ``None`` if they are positional.
        fields: The arrays.
        is_bare: ``True`` if a batch is one array, and not a tuple of one.
    """

    are_items = True

    def __init__(self, names: tuple[str, ...] | None, arrays: tuple[Any, ...], *, is_bare: bool = False) -> None:
        if not arrays:
            raise DataError("the dataset has no fields; expected at least one array")
        labels = names or tuple(str(place) for place in range(len(arrays)))
        self.names, self.is_bare = names, is_bare
        self.fields = tuple(_field(label, array) for label, array in zip(labels, arrays, strict=True))
        self._count = _common_length(self.fields)
        self._whole = self._engine = _native.Dataset.tensors(
            [(field.label, field.rows if isinstance(field, SparseField) else field.tensor) for field in self.fields]
        )
        held: list[BorrowedArray] = []
        for field in self.fields:
            if not isinstance(field, ObjectField):
                held += field.arrays if isinstance(field, SparseField) else (field,)
        watched = (each for field in self.fields if isinstance(field, ObjectField) for each in field.maps)
        self.location = Location(tuple(held), watched=tuple(watched))
        self._schemas: dict[tuple[tuple[str, str], ...], Schema] = {}

    @property
    def given(self) -> tuple[Any, ...]:
        """The arrays, as they were given."""
        return tuple(field.array if isinstance(field, SparseField) else field.data for field in self.fields)

    @property
    def sparse(self) -> list[str]:
        """The names of sparse fields."""
        return [field.label for field in self.fields if isinstance(field, SparseField)]

    @property
    @override
    def lie_in_order(self) -> bool:
        return self.are_neighbours

    @override
    def whole_len(self) -> int:
        return self._count

    def sample(self, sample: int) -> Any:
        """Return a row of every field: a tuple, or a dict if the fields are named."""
        row = self.row(sample)
        rows = tuple(self.as_in_batches(field.label, field.row(row)) for field in self.fields)
        return rows if self.names is None else dict(zip(self.names, rows, strict=True))

    @override
    def narrow(self, selection: _native.Selection) -> None:
        assert self.selection is not None
        self._engine = self._whole.select(self.selection)

    @override
    def recipe(self) -> Recipe:
        return _rebuild, (self.names, self.given, self.is_bare)

    @override
    def narrow_recipe(self) -> tuple[Recipe, _native.Selection]:
        selection = self.locate_selected()
        if selection.range is None or self.sparse:
            return super().narrow_recipe()
        arrays = tuple(field.part(*selection.range) for field in self.fields if isinstance(field, BorrowedArray))
        return (_rebuild, (self.names, arrays, self.is_bare)), selection.cut(*selection.range)

    @override
    def engine(self) -> _native.Dataset:
        return self._engine

    @override
    def arrays_by_sample(self) -> tuple[BorrowedArray, ...]:
        return tuple(field for field in self.fields if isinstance(field, BorrowedArray))

    @override
    def list_extras(self, rule: Rule) -> list[str]:
        return []  # rows are described by nothing

    @override
    def schema(self, columns: Columns) -> Schema:
        # The same for each loader with the same types of fields: loaders are made for every minibatch of a rollout.
        key = tuple(columns)
        if key not in self._schemas:
            self._schemas[key] = self._make_schema(columns)
        return self._schemas[key]

    def _make_schema(self, columns: Columns) -> Schema:
        # Marks come after the fields.
        frameworks: list[str] = []
        compressed: list[Compressed] = []
        for field in self.fields:
            held = field.columns(len(frameworks)) if isinstance(field, SparseField) else None
            frameworks += [field.framework] * (1 if held is None else held.COLUMNS)
            compressed += [] if held is None else [held]
        usual = next((framework for framework in frameworks if framework not in OBJECTS), DEFAULT_FRAMEWORK)
        frameworks += [usual] * (len(columns) - len(frameworks))
        with_frameworks = [Column(*column, framework) for column, framework in zip(columns, frameworks, strict=True)]
        return Schema(tuple(with_frameworks), named=self.names is not None, compressed=tuple(compressed))

    @property
    @override
    def object_fields(self) -> list[str]:
        return [field.label for field in self.fields if isinstance(field, ObjectField)]

    @override
    def device_data(self) -> DeviceData:
        return RowsOnDevice(self)


class RowsOnDevice(SamplesOnDevice[RowSamples]):
    """Rows of arrays on a device."""

    @override
    def collator(self, resident: Resident, options: CollateOptions) -> Collator:
        from batchloom.device.collate.rows import Rows
        from batchloom.device.conversion import add_conversion

        fields = self.samples.fields
        if self.samples.sparse:
            from batchloom.device.collate.sparse import SparseAndDense

            return SparseAndDense(
                [
                    field.on(resident) if isinstance(field, SparseField) else partial(resident.rows_of, field)
                    for field in fields
                ],
                options.marks,
            )
        arrays = self.samples.location.arrays
        fetches = [add_conversion(options, field.label, partial(resident.rows_of, field)) for field in arrays]
        return Rows(lambda: [fetch() for fetch in fetches], options.marks)

    @override
    def why_not_gathered(self, conversions: Mapping[str, _native.Conversion]) -> str | None:
        objects = self.samples.object_fields
        if objects:
            return f"field {objects[0]} holds objects, which stay in memory"
        sparse = self.samples.sparse
        return f"field {sparse[0]} is sparse, and fields come in other types" if sparse and conversions else None


def _field(label: str, array: Any) -> BorrowedArray | SparseField:
    if isinstance(array, Mapping) and not hasattr(array, "shape"):  # a DOK matrix of scipy is a dict, too
        raise DataError(
            f"field {label} is a {type(array).__name__}; expected an array: TensorDataset(**fields) makes a field of "
            "each"
        )
    if isinstance(array, list | tuple) and array and hasattr(array[0], "shape"):
        raise DataError(
            f"field {label} is a {type(array).__name__} of arrays; expected an array: TensorDataset(*arrays) makes a "
            "field of each"
        )
    if is_sparse_field(array):
        return SparseField(label, array)
    is_list = isinstance(array, list | tuple | LazyObjects)
    array = array if is_list else as_array(label, array)
    objects = read_objects(array)
    if objects is not None:
        return ObjectField(label, objects)
    return borrow_field(label, as_array(label, array) if is_list else array)


def _rebuild(names: tuple[str, ...] | None, arrays: tuple[Any, ...], is_bare: bool) -> RowSamples:
    return RowSamples(names, arrays, is_bare=is_bare)


def _common_length(fields: tuple[BorrowedArray | SparseField, ...]) -> int:
    first = fields[0]
    for field in fields:
        if isinstance(field, BorrowedArray) and not field.tensor.shape:
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
