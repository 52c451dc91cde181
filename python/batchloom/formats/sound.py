"""Offsets of Arrow arrays that leave the values of their array, which are refused before pyarrow reads a value.

When a file is opened, pyarrow checks the first and the last offset of an array. It trusts the offsets between them: a
wrong offset leads out of memory, and ends the process.

Promises:

- A row that passes leads to no byte outside of its arrays, at any depth of lists, structs, dictionaries and unions. The
  number of nulls in the file is not trusted.
- For texts and lists, offsets are read and no values. A dictionary is read whole, once, and so are the values of
  unions, of runs and of views of lists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pyarrow
from batchloom.errors import DataError
from batchloom.formats.arrow_memory import bits_of, numbers_of, offsets_of
from pyarrow import types

Array = numpy.ndarray[Any, Any]

# The bytes of a text that its view holds itself, and the parts of a view: bytes, a prefix, a buffer and its first byte.
_INLINE, _VIEW = 12, numpy.dtype([("size", "i4"), ("prefix", "i4"), ("buffer", "i4"), ("start", "i4")])


class SoundArrays:
    """Checks rows of arrays, and remembers the arrays that it checked whole.

    It holds these arrays as long as it lives.
    """

    def __init__(self) -> None:
        self._whole: dict[tuple[object, ...], Any] = {}

    def require(self, array: Any, start: int, end: int) -> None:
        """Refuse rows of an array with offsets that leave their values.

        Args:
            array: An array of Arrow, with buffers as long as its type needs.
            start: The first row.
            end: The end of the last one.

        Raises:
            DataError: There is such a row.
        """
        if isinstance(array, pyarrow.ExtensionArray):
            self.require(array.storage, start, end)
        elif start < end:
            for is_kind, require in _CHECKS:
                if is_kind(array.type):
                    require(self, array, start, end)
                    return

    def require_whole(self, array: Any) -> None:
        """Refuse an array with an offset that leaves its values.

        Raises:
            DataError: There is one.
        """
        buffers = [None if each is None else each.address for each in array.buffers()]
        key = (str(array.type), array.offset, len(array), *buffers)
        if key not in self._whole:
            self.require(array, 0, len(array))
            self._whole[key] = array

    def find_unsound(self, array: Any) -> tuple[int, DataError] | None:
        """Return the first row of an array that is refused, and its error; ``None`` if all rows pass."""
        start, end = 0, len(array)
        error = self._try(array, start, end)
        if error is None:
            return None
        while end - start > 1:
            middle = (start + end) // 2
            found = self._try(array, start, middle)
            if found is None:
                start = middle
            else:
                end, error = middle, found
        return start, self._try(array, start, end) or error

    def _try(self, array: Any, start: int, end: int) -> DataError | None:
        try:
            self.require(array, start, end)
        except DataError as error:
            return error
        return None


def _make_error(fact: str) -> DataError:
    return DataError(f"{fact}; expected a file without damage")


def _require_steps(offsets: Array, size: int, unit: str) -> None:
    """Refuse offsets that decrease, or leave the number of values.

    Raises:
        DataError: There is such an offset.
    """
    is_wrong = (offsets[:-1] < 0) | (offsets[1:] < offsets[:-1]) | (offsets[1:] > size)
    if is_wrong.any():
        place = int(is_wrong.argmax())
        raise _make_error(f"it goes from {unit} {offsets[place]} to {offsets[place + 1]} of {size} {unit}s")


def _require_texts(sound: SoundArrays, array: Any, start: int, end: int) -> None:
    data = array.buffers()[2]
    _require_steps(offsets_of(array, start, end), 0 if data is None else data.size, "byte")


def _require_lists(sound: SoundArrays, array: Any, start: int, end: int) -> None:
    offsets = offsets_of(array, start, end)
    _require_steps(offsets, len(array.values), "element")
    sound.require(array.values, int(offsets[0]), int(offsets[-1]))


def _require_fixed_lists(sound: SoundArrays, array: Any, start: int, end: int) -> None:
    width, first = array.type.list_size, array.offset
    sound.require(array.values, (first + start) * width, (first + end) * width)


def _require_structs(sound: SoundArrays, array: Any, start: int, end: int) -> None:
    for number in range(array.type.num_fields):
        sound.require(array.field(number), start, end)


def _valid_rows(array: Any, start: int, end: int) -> Array:
    """Return a bit for each row, true unless the row is null; all are true where the file counts no null."""
    valid = array.buffers()[0]
    if valid is None or not array.null_count:
        return numpy.ones(end - start, numpy.bool_)
    return bits_of(valid, array.offset + start, end - start)


def _require_categories(sound: SoundArrays, array: Any, start: int, end: int) -> None:
    numbers = numbers_of(array.indices.slice(start, end - start))[_valid_rows(array, start, end)]
    size = len(array.dictionary)
    is_wrong = (numbers < 0) | (numbers >= size)
    if is_wrong.any():
        raise _make_error(f"it is category {numbers[is_wrong][0]} of {size}")
    sound.require_whole(array.dictionary)


def _require_text_views(sound: SoundArrays, array: Any, start: int, end: int) -> None:
    _, views, *buffers = array.buffers()
    found = numpy.frombuffer(views, _VIEW, end - start, (array.offset + start) * _VIEW.itemsize)
    found = found[_valid_rows(array, start, end)]
    if (found["size"] < 0).any():
        raise _make_error(f"it has {found['size'].min()} bytes")
    found = found[found["size"] > _INLINE]
    is_wrong = (found["buffer"] < 0) | (found["buffer"] >= len(buffers))
    if is_wrong.any():
        raise _make_error(f"it lies in buffer {found['buffer'][is_wrong][0]} of {len(buffers)}")
    sizes = numpy.array([each.size for each in buffers], numpy.int64)[found["buffer"]]
    ends = found["start"].astype(numpy.int64) + found["size"]
    is_wrong = (found["start"] < 0) | (ends > sizes)
    if is_wrong.any():
        place = int(is_wrong.argmax())
        raise _make_error(f"it goes from byte {found['start'][place]} to {ends[place]} of {sizes[place]} bytes")


def _require_list_views(sound: SoundArrays, array: Any, start: int, end: int) -> None:
    part, valid = array.slice(start, end - start), _valid_rows(array, start, end)
    firsts, sizes = (numbers_of(numbers)[valid].astype(numpy.int64) for numbers in (part.offsets, part.sizes))
    count = len(array.values)
    is_wrong = (firsts < 0) | (sizes < 0) | (firsts > count) | (sizes > count - firsts)
    if is_wrong.any():
        place = int(is_wrong.argmax())
        raise _make_error(f"it has {sizes[place]} elements from {firsts[place]} on, of {count} elements")
    sound.require_whole(array.values)


def _require_unions(sound: SoundArrays, array: Any, start: int, end: int) -> None:
    kind = array.type
    buffers = array.buffers()
    numbers = numpy.frombuffer(buffers[1], numpy.int8, end - start, array.offset + start)
    known = list(kind.type_codes)
    is_wrong = ~numpy.isin(numbers, known)
    if is_wrong.any():
        raise _make_error(f"it is of type {numbers[is_wrong][0]} of the types {known}")
    children = [array.field(number) for number in range(kind.num_fields)]
    if kind.mode == "dense":
        places = numpy.frombuffer(buffers[2], numpy.int32, end - start, 4 * (array.offset + start))
        sizes = numpy.zeros(128, numpy.int64)
        sizes[known] = [len(child) for child in children]
        is_wrong = (places < 0) | (places >= sizes[numbers])
        if is_wrong.any():
            place = int(is_wrong.argmax())
            raise _make_error(f"it is value {places[place]} of {sizes[numbers[place]]}")
    for child in children:
        sound.require_whole(child)


def _require_runs(sound: SoundArrays, array: Any, start: int, end: int) -> None:
    ends = numbers_of(array.run_ends)
    is_whole = len(ends) and ends[0] > 0 and (ends[1:] > ends[:-1]).all() and ends[-1] >= array.offset + len(array)
    if not is_whole or len(array.values) < len(ends):
        raise _make_error(f"it is one of {len(array)} rows in {len(ends)} runs that do not hold them")
    sound.require_whole(array.values)


def _are_texts(kind: Any) -> bool:
    checks = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(is_kind(kind) for is_kind in checks)


def _are_lists(kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind))


def _are_text_views(kind: Any) -> bool:
    return kind in (pyarrow.string_view(), pyarrow.binary_view())


def _are_list_views(kind: Any) -> bool:
    return bool(types.is_list_view(kind) or types.is_large_list_view(kind))


# Other types have no offsets.
_CHECKS: tuple[tuple[Callable[[Any], bool], Callable[[SoundArrays, Any, int, int], None]], ...] = (
    (_are_texts, _require_texts),
    (_are_lists, _require_lists),
    (types.is_fixed_size_list, _require_fixed_lists),
    (types.is_struct, _require_structs),
    (types.is_dictionary, _require_categories),
    (_are_text_views, _require_text_views),
    (_are_list_views, _require_list_views),
    (types.is_union, _require_unions),
    (types.is_run_end_encoded, _require_runs),
)
