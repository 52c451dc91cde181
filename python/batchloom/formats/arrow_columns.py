"""Columns of Arrow as fields: over the memory of the columns, in however many chunks.

Promises:

- Numbers, and the numbers in lists, keep their memory. Bits, categories, times in other units than nanoseconds, and
  lists of lists are copied once; texts are made when a batch holds them.
- Nulls are found by the counts that files have of them, without a look at values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy
import pyarrow
import pyarrow.compute
from batchloom.dataset.map.source import describe_error
from batchloom.dataset.object_field import LazyObjects
from batchloom.errors import DataError, DTypeError
from batchloom.formats.arrow_memory import ListOffsets, Memory, numbers_of
from batchloom.formats.arrow_types import (
    BITS,
    CODES,
    LISTS,
    OBJECTS,
    ROWS,
    TIMES,
    describe_type,
    fixed_shape,
    has_list_views,
    is_list,
    numbers_of_type,
)
from batchloom.formats.lists import Lists, Shaped
from batchloom.formats.places import Places
from batchloom.formats.plain_values import read_values
from batchloom.formats.sound import SoundArrays

Array = numpy.ndarray[Any, Any]


class ArrowObjects(LazyObjects):
    """A column of texts, bytes, or lists of them, each made when it is asked for.

    Args:
        column: The column.
        maps: The maps of files that it lies in.
        name: Its name, for messages.
        places: The files that its rows lie in.
        first: The number of its first row in them.
    """

    def __init__(self, column: Any, maps: Sequence[Array], name: str, places: Places, first: int = 0) -> None:
        self.maps, self._where = maps, (name, places, first)
        self._column = column
        self._values = read_values(column.chunks)

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self._column)

    def __getitem__(self, row: Any) -> Any:
        """Return one object; for a slice, the objects of some rows."""
        if isinstance(row, slice):
            start, end, step = row.indices(len(self))
            if step != 1:
                return [self[place] for place in range(start, end, step)]
            name, places, first = self._where
            part = self._column.slice(start, max(end - start, 0))
            return ArrowObjects(part, self.maps, name, places, first + start)
        place = range(len(self))[row]
        try:
            return self._values[place]
        except Exception as error:  # a text that is no UTF-8, or whose bytes are not there
            name, places, first = self._where
            raise DataError(
                f"{places.name(first + place)}, column {name}: it has no plain value: {describe_error(error)}"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrowObjects, (self._column, (), *self._where)


class ColumnReader:
    """Reads columns of Arrow as fields.

    Args:
        memory: The memory that columns lie in.
        nulls: Values in place of nulls, by column.
        places: The files that rows lie in, for messages.
        shown: ``True`` for each row that is shown, where rows are hidden: what a hidden row holds in place of a null
            is up to the file. ``None`` where all are shown.
    """

    def __init__(
        self, memory: Memory, nulls: Mapping[str, Any] | None, places: Places, shown: Array | None = None
    ) -> None:
        self._memory, self._nulls, self._places, self._shown = memory, nulls or {}, places, shown
        self._sound = SoundArrays()

    def read(self, field: Any, chunks: Sequence[Any]) -> Any:
        """Return the field of a column: an array, lists, or objects.

        Args:
            field: The name and the type of the column.
            chunks: Its arrays of pyarrow.

        Raises:
            DataError: It has nulls without a value, lists in lists that differ within a sample, or no such times.
            DTypeError: Its type makes no tensor.
        """
        name = field.name
        what: str | None = require_type(name, field.type, self._places.first)
        shape = fixed_shape(field)
        chunks = [chunk for chunk in chunks if len(chunk)]
        if not chunks:
            raise DataError(f"column {name!r} of {self._places.first} has no rows; expected at least one")
        starts = list(accumulate((len(chunk) for chunk in chunks[:-1]), initial=0))
        for chunk, start in zip(chunks, starts, strict=True):
            if has_list_views(chunk.type) or has_null_category(chunk):
                self._require_sound(name, chunk, start)
        chunks = self._fill(name, [_stored(chunk) for chunk in chunks], starts)
        # One of several files may have categories where another one has their values.
        chunks = [_stored(self._decode(name, chunk, start)) for chunk, start in zip(chunks, starts, strict=True)]
        what = describe_type(chunks[0].type) if what == CODES else what
        if what == OBJECTS:
            kind = chunks[0].type
            cast = [self._cast(name, chunk, start, kind) for chunk, start in zip(chunks, starts, strict=True)]
            column = pyarrow.chunked_array(cast, kind)
            return ArrowObjects(column, self._memory.maps, name, self._places)
        if what == LISTS and shape is None:
            return self._lists(name, chunks, starts, starts)
        if what == LISTS:
            chunks = _fill_hidden(name, chunks)
        rows = [self._rows(name, chunk, start) for chunk, start in zip(chunks, starts, strict=True)]
        return self._memory.join(rows if shape is None else [self._shape(name, each, shape) for each in rows])

    def _fill(self, name: str, chunks: list[Any], starts: list[int]) -> list[Any]:
        """Return chunks without nulls in rows that are shown; ``starts`` has the number of the first row of each.

        Raises:
            DataError: There is one, and no value for it.
        """
        if not any(chunk.null_count for chunk in chunks):
            return chunks
        value = self._nulls.get(name)
        takes_value = name in self._nulls and is_list(chunks[0].type) == (value == [] and isinstance(value, list))
        if takes_value:
            return [
                self._fill_rows(name, chunk, start, value) if chunk.null_count else chunk
                for chunk, start in zip(chunks, starts, strict=True)
            ]
        for chunk, start in zip(chunks, starts, strict=True):
            row = self._find_shown(start + find_nulls(chunk))
            if row is not None:
                raise self._make_null_error(name, row, describe_fill(chunk.type))
        return chunks

    def _find_shown(self, rows: Array) -> int | None:
        """Return the first of some rows that is shown; ``None`` if all of them are hidden."""
        shown = rows if self._shown is None else rows[self._shown[rows]]
        return int(shown[0]) if len(shown) else None

    def _fill_rows(self, name: str, chunk: Any, start: int, value: Any) -> Any:
        """Return rows with a value in place of nulls; ``start`` is the number of the first row."""
        self._require_sound(name, chunk, start)
        return _fill_nulls(name, chunk, value)

    def _make_null_error(self, name: str, row: int, value: str, inside: str = "") -> DataError:
        return DataError(
            f"column {name!r} is null {inside}in {self._places.name(row)}; expected a value everywhere: fill or drop "
            f"nulls, or nulls={{{name!r}: {value}}}"
        )

    def _rows(self, name: str, chunk: Any, start: int) -> Array:
        """Return an array of Arrow that has as many numbers for each row as an array of NumPy.

        Args:
            name: The name of the column.
            chunk: Numbers, lists of one size, or lists of one shape.
            start: The number of its first row.
        """
        what = describe_type(chunk.type)
        if what in (ROWS, LISTS):
            if what == LISTS:
                self._require_one_length(name, chunk, start)
            # Rows that are null take as many elements as the others.
            inner = chunk.flatten() if what == LISTS else _elements_of(chunk)
            width = len(inner) // max(len(chunk), 1)
            self._require_filled(name, inner, lambda places: start + places // max(width, 1))
            inner = self._fill_inner(name, inner)
            below = self._rows(name, inner, 0)
            return below.reshape(len(chunk), width, *below.shape[1:])
        if what == BITS:
            return numbers_of(chunk)
        if what == TIMES:
            chunk = _count_nanoseconds(name, chunk, self._places)
        return self._memory.cut(chunk.buffers()[1], chunk.type.to_pandas_dtype(), chunk.offset, len(chunk))

    def _require_one_length(self, name: str, chunk: Any, start: int) -> None:
        """Refuse lists of several lengths, whose type promises one shape.

        Raises:
            DataError: There are some.
        """
        lengths = ListOffsets(self._memory, [chunk], lambda _: self._where(name, start)).lengths
        other = lengths != lengths[:1]
        if other.any():
            row = self._places.name(start + int(other.argmax()))
            raise DataError(f"column {name!r} has {lengths[other][0]} elements in {row}; expected {lengths[0]}")

    def _lists(self, name: str, chunks: list[Any], starts: list[int], rows: list[int]) -> Any:
        """Return lists: in one dimension over their memory, in two dimensions as a copy.

        Args:
            name: The name of the column.
            chunks: Its arrays, or the lists in them.
            starts: The number of the first list of each.
            rows: The number of the first row of each.
        """
        chunks = [chunk for chunk in chunks]
        offsets, inner = ListOffsets(self._memory, chunks, lambda number: self._where(name, rows[number])), []
        for number, (chunk, start) in enumerate(zip(chunks, starts, strict=True)):
            first = int(offsets.firsts[number])
            values = _stored(chunk.values).slice(first, int(offsets.lasts[number]) - first)
            self._require_filled(name, values, partial(_find_rows, offsets, number, start))
            inner.append(self._fill_inner(name, values))
        ends = offsets.join()
        if describe_type(inner[0].type) != LISTS:
            return Lists(self._memory.join([self._rows(name, values, 0) for values in inner]), ends)
        below = self._lists(name, inner, [0] * len(inner), rows)
        if not isinstance(below, Lists):
            raise DTypeError(
                f"column {name!r} of {self._places.first} has lists in more than two dimensions; expected two at most"
            )
        return _shape_of_lists(name, below, ends, self._places)

    def _require_filled(self, name: str, values: Any, rows_of: Callable[[Array], Array]) -> None:
        """Refuse nulls in lists that no value stands for, in rows that are shown.

        Raises:
            DataError: There is one.
        """
        is_number = describe_type(values.type) not in (LISTS, ROWS)
        if not values.null_count or (is_number and name in self._nulls and self._nulls[name] != []):
            return
        row = self._find_shown(rows_of(find_nulls(values)))
        if row is not None:
            raise self._make_null_error(name, row, describe_fill(values.type), "inside of a list ")

    def _fill_inner(self, name: str, values: Any) -> Any:
        """Return values in lists with a number in place of nulls."""
        values = _stored(values)
        value = self._nulls.get(name, [])
        return _fill_nulls(name, values, value) if values.null_count and value != [] else values

    def _decode(self, name: str, chunk: Any, start: int) -> Any:
        """Return the values of categories, and any other array as it is; ``start`` is the number of its first row."""
        if not pyarrow.types.is_dictionary(chunk.type):
            return chunk
        self._require_sound(name, chunk, start)
        return pyarrow.DictionaryArray.from_arrays(chunk.indices, _without_views(chunk.dictionary)).dictionary_decode()

    def _cast(self, name: str, chunk: Any, start: int, kind: Any) -> Any:
        """Return an array in a type that is like its own; ``start`` is the number of its first row."""
        if chunk.type == kind:
            return chunk
        self._require_sound(name, chunk, start)
        return chunk.cast(kind)

    def _where(self, name: str, row: int) -> str:
        return f"column {name} of {self._places.file(row)}"

    def _require_sound(self, name: str, chunk: Any, start: int) -> None:
        """Refuse an array with an offset that leaves its values, before pyarrow copies it.

        Args:
            name: The name of the column.
            chunk: The array.
            start: The number of its first row.

        Raises:
            DataError: There is one.
        """
        if found := self._sound.find_unsound(chunk):
            row, error = found
            raise DataError(f"{self._places.name(start + row)}, column {name}: it is damaged: {error}")

    def _shape(self, name: str, rows: Array, shape: tuple[int, ...]) -> Array:
        """Return the numbers of each row in a shape.

        Raises:
            DataError: They do not fill it.
        """
        if rows.size != len(rows) * math.prod(shape):
            raise DataError(
                f"column {name!r} of {self._places.first} has rows of shape {list(rows.shape[1:])}; expected "
                f"{list(shape)}, as its type has it"
            )
        return rows.reshape(len(rows), *shape)


def require_type(name: str, kind: Any, where: str) -> str:
    """Return what a field makes of a type.

    Raises:
        DTypeError: The type makes no tensor.
    """
    what = describe_type(kind)
    if what is None:
        raise DTypeError(
            f"column {name!r} of {where} has type {kind}, which makes no tensor; expected numbers, texts, times or "
            "lists of them: columns= chooses others"
        )
    return what


def _stored(chunk: Any) -> Any:
    """Return an array of the type in which a field takes values: over the same memory, unless it has views of lists."""
    while isinstance(chunk, pyarrow.ExtensionArray):
        chunk = chunk.storage
    if has_null_category(chunk):
        return mark_nulls(chunk)
    kind = numbers_of_type(chunk.type)
    if kind == chunk.type:
        return chunk
    if is_list(kind):
        return _copy_views(chunk, kind)
    valid, contents = chunk.buffers()
    inner = pyarrow.Array.from_buffers(kind.value_type, (chunk.offset + len(chunk)) * kind.list_size, [None, contents])
    return pyarrow.Array.from_buffers(kind, len(chunk), [valid], offset=chunk.offset, children=[inner])


def has_null_category(array: Any) -> bool:
    """Return whether an array has categories with a null among them."""
    return pyarrow.types.is_dictionary(array.type) and bool(array.dictionary.null_count)


def mark_nulls(array: Any) -> Any:
    """Return categories with a null in place of each number of a category that is null."""
    codes = array.indices
    are_null = pyarrow.compute.is_in(codes, pyarrow.array(find_nulls(array.dictionary)).cast(codes.type))
    codes = pyarrow.compute.if_else(are_null, pyarrow.scalar(None, codes.type), codes)
    return pyarrow.DictionaryArray.from_arrays(codes, array.dictionary)


def describe_fill(kind: Any) -> str:
    """Return a value that may stand for a null of a type, as Python writes it."""
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    what = describe_type(kind)
    if what == LISTS:
        return "[]"
    if what == ROWS:
        return f"[0] * {kind.list_size}"
    if what == OBJECTS:
        return "''" if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) else "b''"
    return "False" if pyarrow.types.is_boolean(kind) else "0"


def _copy_views(chunk: Any, kind: Any) -> Any:
    """Return views of lists as lists, one after the other; a cast of pyarrow 26 takes other elements for them."""
    sizes = numbers_of(chunk.sizes).copy()
    sizes[find_nulls(chunk)] = 0
    is_large = pyarrow.types.is_large_list(kind)
    offsets = pyarrow.array(numpy.append(0, numpy.cumsum(sizes)), pyarrow.int64() if is_large else pyarrow.int32())
    make = pyarrow.LargeListArray if is_large else pyarrow.ListArray
    return make.from_arrays(offsets, chunk.flatten(), mask=chunk.is_null() if chunk.null_count else None)


def _fill_nulls(name: str, chunk: Any, value: Any) -> Any:
    """Return an array of Arrow with a value in place of nulls.

    Raises:
        DTypeError: The type does not hold the value.
    """
    try:
        chunk = _without_views(chunk)
        stands = value if isinstance(value, pyarrow.Scalar) else pyarrow.scalar(value, chunk.type)
        return pyarrow.compute.coalesce(chunk, stands)
    except (pyarrow.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DTypeError(
            f"nulls has {value!r} for column {name!r}, which holds {chunk.type}; expected such a value: {error}"
        ) from None


def _without_views(array: Any) -> Any:
    """Return texts or bytes that lie one after the other, of views, with which pyarrow does not compute."""
    if pyarrow.types.is_string_view(array.type):
        return array.cast(pyarrow.large_string())
    if pyarrow.types.is_binary_view(array.type):
        return array.cast(pyarrow.large_binary())
    return array


def _count_nanoseconds(name: str, chunk: Any, places: Places) -> Any:
    """Return times of any unit as int64 in nanoseconds: from 1970 on, or from midnight on.

    Raises:
        DataError: A time is out of their range.
    """
    kind = chunk.type
    if pyarrow.types.is_duration(kind):
        wanted = pyarrow.duration("ns")
    elif pyarrow.types.is_time(kind):
        wanted = pyarrow.time64("ns")
    else:
        wanted = pyarrow.timestamp("ns", getattr(kind, "tz", None))
    try:
        return (chunk if kind == wanted else chunk.cast(wanted)).view(pyarrow.int64())
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"column {name!r} of {places.first} has a time that no nanoseconds count: {error}") from None


def find_nulls(array: Any) -> Array:
    """Return the places of the nulls of an array of Arrow."""
    if not array.null_count:
        return numpy.zeros(0, numpy.int64)
    return numpy.flatnonzero(numbers_of(array.is_null()))


def _elements_of(chunk: Any) -> Any:
    """Return the elements of lists of one size. Null rows have elements too."""
    width = chunk.type.list_size
    return chunk.values.slice(chunk.offset * width, len(chunk) * width)


def _fill_hidden(name: str, chunks: list[Any]) -> list[Any]:
    """Return lists that are to have one shape, with one of them in place of nulls, which are in hidden rows."""
    found = next((chunk.drop_null() for chunk in chunks if chunk.null_count < len(chunk)), None)
    if found is None:
        return chunks
    return [_fill_nulls(name, chunk, found[0]) if chunk.null_count else chunk for chunk in chunks]


def _find_rows(offsets: ListOffsets, chunk: int, start: int, places: Array) -> Array:
    """Return the rows that have elements of a chunk, which begins at a row."""
    return start + offsets.find_lists(chunk, places)


def _shape_of_lists(name: str, below: Lists, ends: Array, places: Places) -> Shaped:
    """Return lists of lists as samples of two dimensions.

    Raises:
        DataError: Lists of one sample differ in length.
    """
    lengths = numpy.diff(below.offsets)
    heights = numpy.diff(ends)
    widths = numpy.zeros(len(heights), numpy.int64)
    filled = heights > 0
    widths[filled] = lengths[ends[:-1][filled]]
    other = lengths != numpy.repeat(widths, heights)
    if other.any():
        row = int(numpy.searchsorted(ends, int(other.argmax()), side="right")) - 1
        raise DataError(
            f"column {name!r} has lists of different lengths in {places.name(row)}; expected one length within a sample"
        )
    values = numpy.asarray(below.values[int(below.offsets[0]) : int(below.offsets[-1])])
    return Shaped(values, numpy.stack([heights, widths], axis=1))
