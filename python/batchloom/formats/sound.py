"""Whether the offsets of Arrow arrays stay inside of what they point into.

When a file is opened, pyarrow looks at the first and at the last offset of an array. It trusts the offsets between
them, and the process ends where a wrong one leads out of memory.

Promises:

- Rows that pass lead to no byte outside of their arrays, at any depth of lists, structs and dictionaries.
- Offsets of these rows are read, and no value but of dictionaries, of lists that are views, and of unions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pyarrow
from batchloom.errors import DataError
from batchloom.formats.arrow_memory import numbers_of, offsets_of
from pyarrow import types

Array = numpy.ndarray[Any, Any]

# The bytes of a text that its view holds itself, and the parts of a view: bytes, a prefix, a buffer and its first byte.
_INLINE, _VIEW = 12, numpy.dtype([("size", "i4"), ("prefix", "i4"), ("buffer", "i4"), ("start", "i4")])


def require_sound(array: Any, start: int, end: int) -> None:
    """Refuse rows of an array whose offsets leave what they point into.

    Args:
        array: An array of Arrow, whose buffers are as long as its type needs.
        start: The first row.
        end: The end of the last one.

    Raises:
        DataError: There is such a row.
    """
    if isinstance(array, pyarrow.ExtensionArray):
        require_sound(array.storage, start, end)
    elif start < end:
        for is_kind, require in _CHECKS:
            if is_kind(array.type):
                require(array, start, end)
                return


def require_whole(array: Any) -> None:
    """Refuse an array of which an offset leaves what it points into.

    Raises:
        DataError: There is one.
    """
    require_sound(array, 0, len(array))


def _make_error(what: str, found: object, size: int, unit: str) -> DataError:
    return DataError(f"{what} {found} of {size} {unit}; expected a file without damage")


def _require_steps(offsets: Array, size: int, unit: str) -> None:
    """Refuse offsets that decrease, or leave the number of values.

    Raises:
        DataError: There is such an offset.
    """
    is_wrong = (offsets[:-1] < 0) | (offsets[1:] < offsets[:-1]) | (offsets[1:] > size)
    if is_wrong.any():
        place = int(is_wrong.argmax())
        raise _make_error(f"it goes from {unit} {offsets[place]} to", offsets[place + 1], size, f"{unit}s")


def _require_texts(array: Any, start: int, end: int) -> None:
    data = array.buffers()[2]
    _require_steps(offsets_of(array, start, end), 0 if data is None else data.size, "byte")


def _require_lists(array: Any, start: int, end: int) -> None:
    offsets = offsets_of(array, start, end)
    _require_steps(offsets, len(array.values), "element")
    require_sound(array.values, int(offsets[0]), int(offsets[-1]))


def _require_fixed_lists(array: Any, start: int, end: int) -> None:
    width = array.type.list_size
    first = array.offset
    require_sound(array.values, (first + start) * width, (first + end) * width)


def _require_structs(array: Any, start: int, end: int) -> None:
    for number in range(array.type.num_fields):
        require_sound(array.field(number), start, end)


def _require_categories(array: Any, start: int, end: int) -> None:
    part = array.indices.slice(start, end - start)
    numbers = numbers_of(part.drop_null() if part.null_count else part)
    size = len(array.dictionary)
    is_wrong = (numbers < 0) | (numbers >= size)
    if is_wrong.any():
        raise _make_error("it is category", numbers[is_wrong][0], size, "categories")
    require_whole(array.dictionary)


def _require_text_views(array: Any, start: int, end: int) -> None:
    _, views, *buffers = array.buffers()
    found = numpy.frombuffer(views, _VIEW, end - start, (array.offset + start) * _VIEW.itemsize)
    if array.null_count:
        found = found[numbers_of(array.slice(start, end - start).is_valid())]
    if (found["size"] < 0).any():
        raise _make_error("it has", found["size"].min(), 0, "bytes or more")
    found = found[found["size"] > _INLINE]
    is_wrong = (found["buffer"] < 0) | (found["buffer"] >= len(buffers))
    if is_wrong.any():
        raise _make_error("it lies in buffer", found["buffer"][is_wrong][0], len(buffers), "buffers")
    sizes = numpy.array([each.size for each in buffers], numpy.int64)
    ends = found["start"].astype(numpy.int64) + found["size"]
    is_wrong = (found["start"] < 0) | (ends > sizes[found["buffer"]])
    if is_wrong.any():
        place = int(is_wrong.argmax())
        size = int(sizes[found["buffer"][place]])
        raise _make_error(f"it goes from byte {found['start'][place]} to", ends[place], size, "bytes")


def _require_list_views(array: Any, start: int, end: int) -> None:
    part = array.slice(start, end - start)
    firsts, sizes = (numbers_of(numbers).astype(numpy.int64) for numbers in (part.offsets, part.sizes))
    if part.null_count:
        is_valid = numbers_of(part.is_valid())
        firsts, sizes = firsts[is_valid], sizes[is_valid]
    if not len(firsts):
        return
    ends, count = firsts + sizes, len(array.values)
    is_wrong = (firsts < 0) | (sizes < 0) | (ends > count)
    if is_wrong.any():
        place = int(is_wrong.argmax())
        raise _make_error(f"it goes from element {firsts[place]} to", ends[place], count, "elements")
    require_sound(array.values, int(firsts.min()), int(ends.max()))


def _require_others(array: Any, start: int, end: int) -> None:
    """Refuse rows of a type whose parts pyarrow checks: runs, and unions."""
    try:
        array.slice(start, end - start).validate(full=True)
    except pyarrow.ArrowException as error:
        raise DataError(f"{error}; expected a file without damage") from None


def _are_texts(kind: Any) -> bool:
    return any(
        is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _are_lists(kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind))


def _are_text_views(kind: Any) -> bool:
    return kind in (pyarrow.string_view(), pyarrow.binary_view())


def _are_list_views(kind: Any) -> bool:
    return bool(types.is_list_view(kind) or types.is_large_list_view(kind))


def _are_others(kind: Any) -> bool:
    return bool(types.is_run_end_encoded(kind) or types.is_union(kind))


# Other types have no offsets.
_CHECKS: tuple[tuple[Callable[[Any], bool], Callable[[Any, int, int], None]], ...] = (
    (_are_texts, _require_texts),
    (_are_lists, _require_lists),
    (types.is_fixed_size_list, _require_fixed_lists),
    (types.is_struct, _require_structs),
    (types.is_dictionary, _require_categories),
    (_are_text_views, _require_text_views),
    (_are_list_views, _require_list_views),
    (_are_others, _require_others),
)
