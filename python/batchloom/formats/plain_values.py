"""Values of Arrow arrays as plain values of Python, by row.

Promises:

- A value is what ``as_py`` makes of it. Numbers, texts and lists of numbers are made of the array's memory, without
  an object of Arrow for each.
- No value is made in a call that lets other threads of Python in: a thread that makes samples would wait for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy
import pyarrow
from batchloom.errors import DataError
from pyarrow import types

Array = numpy.ndarray[Any, Any]


class PlainValues(Protocol):
    """Values by row."""

    def __getitem__(self, row: int) -> Any:
        """Return a value."""


class ArrowValues:
    """Values of any type.

    Args:
        values: An array of Arrow, or an array in chunks.
    """

    def __init__(self, values: Any) -> None:
        self._values = values

    def __getitem__(self, row: int) -> Any:
        """Return a value."""
        return self._values[row].as_py()


class Texts:
    """Texts, or bytes, without nulls.

    Args:
        offsets: The byte at which each text begins, and the end of the last one.
        data: The bytes of all texts.
        make: Makes a value of its bytes.
    """

    def __init__(self, offsets: Array, data: memoryview, make: Callable[[memoryview], str | bytes]) -> None:
        self._offset, self._data, self._make, self._size = offsets.item, data, make, len(data)

    def __getitem__(self, row: int) -> str | bytes:
        """Return a text.

        Raises:
            DataError: Its offsets leave the bytes of all texts, or decrease.
        """
        start, end = self._offset(row), self._offset(row + 1)
        if not 0 <= start <= end <= self._size:
            raise DataError(
                f"it goes from byte {start} to {end} of {self._size} bytes of texts; expected a file without damage"
            )
        return self._make(self._data[start:end])


class NullableTexts:
    """Texts, or bytes; some are null.

    Args:
        texts: The texts, with any text in place of a null.
        valid: A bit for each text, 0 for a null.
        first: The bit of the first text.
    """

    def __init__(self, texts: Texts, valid: memoryview, first: int) -> None:
        self._texts, self._valid, self._first = texts, valid, first

    def __getitem__(self, row: int) -> str | bytes | None:
        """Return a text, or ``None``.

        Raises:
            DataError: As :meth:`Texts.__getitem__`.
        """
        place = self._first + row
        return self._texts[row] if self._valid[place >> 3] >> (place & 7) & 1 else None


_decode: Callable[[memoryview], str] = partial(str, encoding="utf-8")


class Numbers:
    """Numbers without nulls.

    Args:
        numbers: The numbers.
    """

    def __init__(self, numbers: Array) -> None:
        self._item = numbers.item

    def __getitem__(self, row: int) -> Any:
        """Return a number."""
        return self._item(row)


class NumberLists:
    """Lists of numbers, without nulls in place of a list or of a number.

    Args:
        offsets: The number at which each list begins, and the end of the last one.
        numbers: The numbers of all lists.
    """

    def __init__(self, offsets: Array, numbers: Array) -> None:
        self._offset, self._numbers = offsets.item, numbers

    def __getitem__(self, row: int) -> Any:
        """Return a list."""
        return self._numbers[self._offset(row) : self._offset(row + 1)].tolist()


def read_values(values: Any) -> PlainValues:
    """Return the values of an array, or of an array in chunks."""
    if isinstance(values, pyarrow.ChunkedArray):
        if values.num_chunks != 1:
            return ArrowValues(values)
        values = values.chunk(0)
    kind = values.type
    if not len(values):
        return ArrowValues(values)
    for is_kind, width, make in _TEXTS:
        if is_kind(kind):
            valid, offsets, data = values.buffers()
            starts = numpy.frombuffer(offsets, width, len(values) + 1, values.offset * numpy.dtype(width).itemsize)
            texts = Texts(starts, memoryview(b"" if data is None else data), make)
            return NullableTexts(texts, memoryview(valid), values.offset) if values.null_count else texts
    if values.null_count:
        return ArrowValues(values)
    if _are_numbers(kind):
        return Numbers(values.to_numpy(zero_copy_only=False))
    if types.is_list(kind) or types.is_large_list(kind):
        elements = values.values
        if _are_numbers(kind.value_type) and not elements.null_count:
            return NumberLists(values.offsets.to_numpy(), elements.to_numpy(zero_copy_only=False))
    return ArrowValues(values)


# The types of texts and of bytes that lie one after the other: their offsets, and what makes a value of its bytes.
_TEXTS: tuple[tuple[Callable[[Any], bool], Any, Callable[[memoryview], str | bytes]], ...] = (
    (types.is_string, numpy.int32, _decode),
    (types.is_large_string, numpy.int64, _decode),
    (types.is_binary, numpy.int32, bytes),
    (types.is_large_binary, numpy.int64, bytes),
)


def _are_numbers(kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_boolean(kind))
