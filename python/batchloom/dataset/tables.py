"""Tables with fields of sequences as columns: a `datasets.Dataset`, a frame, or a dict of columns.

Promises:

- Columns hold the rows that a table shows, in its order, whichever were selected or shuffled before.
- An attention mask decides which elements samples have. It is no field, since batches have a mask anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arrays.chunked import borrow_field
from batchloom.arrays.field import BorrowedArray, host
from batchloom.arrays.frames import Frame, as_array, as_list, is_frame
from batchloom.arrays.frameworks import is_arrow
from batchloom.dataset.object_field import LazyObjects, ObjectField, read_objects
from batchloom.dataset.variable import Variable, is_variable, variable
from batchloom.errors import ArgumentError, DataError, DTypeError

Array = numpy.ndarray[Any, Any]
SequenceField = Variable | BorrowedArray
Fields = dict[str, SequenceField]

# No field with a dimension that is given.
NO_DIMS: Mapping[str, int] = MappingProxyType({})
# The field that marks the elements of samples.
ATTENTION = "attention_mask"
# Methods of columns that list their values as objects of Python.
LISTS = ("to_pylist", "to_list", "tolist")


def read_field(label: str, data: Any, dim: int | None = None) -> SequenceField:
    """Return the field that ``data`` stands for: sequences, an array with a row for each sample, or objects.

    Args:
        label: The name of the field.
        data: Its samples.
        dim: The dimension in which sequences vary; ``None`` for those in which they differ.

    Raises:
        DataError: Samples do not fit each other.
        DTypeError: An element type that is neither moved as bytes nor an object.
    """
    data = data if isinstance(data, LazyObjects) else as_list(data)
    is_ragged = is_variable(data)
    if not (is_ragged or isinstance(data, list | tuple | LazyObjects)):
        data = as_array(label, data)
    if isinstance(data, list | LazyObjects) or not is_ragged:
        objects = read_objects(data)
        if objects is not None:
            return ObjectField(label, objects)
        return variable(label, data, dim) if is_ragged else borrow_field(label, as_array(label, data))
    try:
        return variable(label, data, dim)
    except DTypeError:
        method = next((name for name in LISTS if hasattr(data, name)), None)
        objects = None if method is None else read_objects(getattr(data, method)())
        if objects is None:
            raise
        return ObjectField(label, objects)


def read_fields(
    given: Mapping[str, Any], columns: Fields, own_lengths: Collection[str], dim: Mapping[str, int]
) -> Fields:
    """Return the fields of a dataset of sequences: columns of a table that were read, and fields by name.

    Arrow has lists of one size, which are rows where other fields have other lengths, and otherwise sequences.

    Args:
        given: The samples of fields.
        columns: The columns that were read.
        own_lengths: The names of fields with separate sizes.
        dim: The dimension in which sequences of a field vary, where it is known.
    """
    data = {name: each if isinstance(each, LazyObjects) else as_list(each) for name, each in given.items()}
    read = {**columns, **{name: read_field(name, each, dim.get(name)) for name, each in data.items()}}
    rows = [name for name, each in data.items() if is_arrow(each) and _native.are_rows(each)]
    return _fix_other_lengths(read, own_lengths, rows) if rows else read


def read_table(table: Any, own_lengths: Collection[str], dim: Mapping[str, int] = NO_DIMS) -> Fields:
    """Return a field for each column of a table.

    Columns of lists are sequences. Where all lists of a column have one length, and other columns have other lengths,
    the column is an array with a row for each sample. Integers of ``datasets`` become int64, as its own tensors are.

    Args:
        table: A ``datasets.Dataset``, a frame of pandas, polars or Arrow, or a dict of columns.
        own_lengths: The names of fields with separate sizes.
        dim: The dimension in which sequences of a column vary, where it is given.

    Raises:
        ArgumentError: It is another object.
    """
    is_hugging_face = hasattr(type(table), "with_format") and not isinstance(table, Mapping)
    columns = _columns_of_datasets(table) if is_hugging_face else _columns(table)
    read = {name: read_field(name, column, dim.get(name)) for name, column in columns.items()}
    fields = use_attention_mask(read, own_lengths)
    fields = _fix_other_lengths(fields, own_lengths, fields)
    return {name: _widen(field) for name, field in fields.items()} if is_hugging_face else fields


def _columns(table: Any) -> dict[str, Any]:
    if not is_frame(table) or isinstance(table, type):
        raise ArgumentError(
            f"table is a {type(table).__name__}; expected a datasets.Dataset, a frame or a dict of columns; or fields "
            "by name, as in SequenceDataset(input_ids=...)"
        )
    frame = Frame(table)
    unnamed = [name for name in frame.names if not isinstance(name, str)]
    if unnamed:
        raise ArgumentError(f"table has column {unnamed[0]!r}; expected names of columns that are texts")
    columns = {str(name): frame.read_raw(name, "table") for name in frame.names}
    splits = [name for name, column in columns.items() if hasattr(type(column), "with_format")]
    if splits and isinstance(table, Mapping):
        raise ArgumentError(f"table is a {type(table).__name__}; expected one of its splits, as table[{splits[0]!r}]")
    return columns


def _columns_of_datasets(table: Any) -> dict[str, Any]:
    """Return the columns of a ``datasets.Dataset`` that its format shows, as Arrow holds them."""
    if not hasattr(table, "__len__"):
        raise ArgumentError(
            f"table is a {type(table).__name__}, whose rows have no numbers; expected a datasets.Dataset, as "
            "load_dataset(..., streaming=False) returns"
        )
    shown = table.with_format("arrow", columns=table.format["columns"])[:]
    return {name: shown.column(name) for name in shown.column_names}


def use_attention_mask(fields: Fields, own_lengths: Collection[str] = ()) -> Fields:
    """Return fields without an attention mask; fields with its lengths have only the elements that it marks.

    Where a mask is an array, samples are padded to one length: arrays of that length are sequences then.

    Raises:
        DataError: The mask fits no field, holds other values than 0 and 1, or leaves out elements in the middle.
    """
    given = fields.get(ATTENTION)
    if given is None or ATTENTION in own_lengths:
        return fields
    shape = tuple(given.tensor.shape) if isinstance(given, BorrowedArray) else ()
    fields = {name: _split_rows(field, shape) for name, field in fields.items()}
    mask = fields.pop(ATTENTION)
    if not isinstance(mask, Variable) or mask.shapes is not None or len(mask.sequences.shape) != 1:
        raise DataError(f"field {ATTENTION} has no lengths; expected one value for each element of a sample")
    marked = {
        name: field
        for name, field in fields.items()
        if isinstance(field, Variable) and name not in own_lengths and _have_same_lengths(field, mask)
    }
    if not marked:
        raise DataError(f"field {ATTENTION} has the lengths of no other field; expected those of the field it marks")
    kept = _read_mask(mask)
    if kept.all():
        return fields
    ends = numpy.concatenate([[0], numpy.cumsum(kept)])
    offsets = ends[mask.offsets - mask.offsets[0]].astype(numpy.int64)
    return fields | {name: Variable(name, _elements(field)[kept], offsets=offsets) for name, field in marked.items()}


def _split_rows(field: SequenceField, shape: tuple[int, ...]) -> SequenceField:
    """Return an array of ``shape``, which may have more dimensions, as sequences of one length; else the field."""
    if isinstance(field, Variable) or len(shape) != 2 or tuple(field.tensor.shape[:2]) != shape:
        return field
    samples, length = shape
    rows = field.array.reshape(samples * length, *field.tensor.shape[2:])
    return Variable(field.label, rows, offsets=numpy.arange(samples + 1) * length)


def _have_same_lengths(field: Variable, other: Variable) -> bool:
    return field.shapes is None and numpy.array_equal(numpy.diff(field.offsets), numpy.diff(other.offsets))


def _elements(field: Variable) -> Any:
    """Return the elements of all samples, one sample after the other."""
    return field.values.slice(int(field.offsets[0]), int(field.offsets[-1]))


def _read_mask(mask: Variable) -> Array:
    """Return the elements that an attention mask marks, as booleans.

    Raises:
        DataError: A value is neither 0 nor 1, or a sample has marked elements on both sides of a gap.
    """
    values = numpy.asarray(host(f"field {ATTENTION}", _elements(mask)))
    kept: Array = values == 1
    if not (kept | (values == 0)).all():
        raise DataError(f"field {ATTENTION} holds {values[~(kept | (values == 0))][0]}; expected 0 and 1")
    offsets = mask.offsets - mask.offsets[0]
    begins = kept.copy()
    begins[1:] &= ~kept[:-1]
    begins[offsets[:-1][offsets[:-1] < len(kept)]] = kept[offsets[:-1][offsets[:-1] < len(kept)]]
    before = numpy.concatenate([[0], numpy.cumsum(begins)])
    runs = before[offsets[1:]] - before[offsets[:-1]]
    if (runs > 1).any():
        raise DataError(
            f"field {ATTENTION} leaves out elements between others in sample {int((runs > 1).argmax())}; expected "
            "padding at the ends alone: a mask for other ends needs another name"
        )
    return kept


def _fix_other_lengths(fields: Fields, own_lengths: Collection[str], names: Collection[str]) -> Fields:
    """Return fields; of some names, sequences of one length are arrays of rows where others have other lengths."""
    lists = {name: field for name, field in fields.items() if isinstance(field, Variable) and field.shapes is None}
    lengths = {name: numpy.diff(field.offsets) for name, field in lists.items() if name not in own_lengths}
    same = {name: each for name, each in lengths.items() if name in names and len(each) and (each == each[0]).all()}
    usual = next((each for name, each in lengths.items() if name not in same), next(iter(lengths.values()), None))
    others = (name for name, each in same.items() if usual is not None and not numpy.array_equal(each, usual))
    return fields | {name: _join_rows(lists[name], same[name]) for name in others}


def _join_rows(field: Variable, lengths: Array) -> BorrowedArray:
    """Return sequences of one length as an array with a row for each sample."""
    elements = _elements(field)
    shape = (len(lengths), int(lengths[0]), *elements.shape[1:])
    return BorrowedArray(field.values.label, elements.reshape(shape))


def _widen(field: SequenceField) -> SequenceField:
    """Return a field of NumPy with integers as int64."""
    array = field.values.array if isinstance(field, Variable) else field.array
    if isinstance(field, ObjectField) or array.dtype.kind not in "iu" or array.dtype == numpy.uint64:
        return field
    wide = array.astype(numpy.int64, copy=False)
    if not isinstance(field, Variable):
        return borrow_field(field.label, wide)
    shape = {"offsets": field.offsets} if field.shapes is None else {"shapes": field.shapes}
    return Variable(field.values.label, wide, **shape)
