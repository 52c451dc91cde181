"""Values of Arrow arrays as plain values of Python, by row.

Promises:

- A value is what ``as_py`` makes of it. Numbers, texts and lists of numbers are made of the array's memory, without
  an object of Arrow for each.
- An offset that leaves its values is an error of its row.
- No value is made in a call that lets other threads of Python in: a thread that makes samples would wait for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Protocol

import numpy
from batchloom.errors import DataError
from batchloom.formats.arrow_memory import numbers_of, offsets_of
from batchloom.formats.arrow_types import CONTENTS, PATH, holds_file
from batchloom.formats.sound import SoundArrays
from pyarrow import types

Array = numpy.ndarray[Any, Any]

# Offsets are checked for this number of rows together.
_BLOCK = 1024


class PlainValues(Protocol):
    """Values by row."""

    def __getitem__(self, row: int) -> Any:
        """Return a value."""


class ArrowValues:
    """Values of any type.

    Args:
        values: An array of Arrow.
        sound: Checks its rows.
    """

    def __init__(self, values: Any, sound: SoundArrays) -> None:
        self._values, self._arrays = values, sound
        # The blocks of rows that were found sound.
        self._sound: set[int] = set()

    def __getitem__(self, row: int) -> Any:
        """Return a value.

        Raises:
            DataError: Its offsets leave their values.
        """
        block = row // _BLOCK
        if block not in self._sound:
            self._check(block, row)
        return self._values[row].as_py()

    def _check(self, block: int, row: int) -> None:
        start = block * _BLOCK
        try:
            self._arrays.require(self._values, start, min(start + _BLOCK, len(self._values)))
            self._sound.add(block)
        except DataError:
            self._arrays.require(self._values, row, row + 1)


class ChunkedValues:
    """Values of arrays, one array after the other.

    Args:
        chunks: The arrays, each with a row at least.
    """

    def __init__(self, chunks: Sequence[Any]) -> None:
        self._chunks, self._sound = list(chunks), SoundArrays()
        # There may be thousands of chunks, most of which no batch needs.
        self._values: list[PlainValues | None] = [None] * len(self._chunks)
        self._ends = list(accumulate(map(len, self._chunks)))

    def __len__(self) -> int:
        """Return the number of values."""
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, row: int) -> Any:
        """Return a value."""
        chunk = bisect_right(self._ends, row)
        values = self._values[chunk]
        if values is None:
            values = self._values[chunk] = read_array(self._chunks[chunk], self._sound)
        return values[row - (self._ends[chunk - 1] if chunk else 0)]


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


class FileContents:
    """The contents of files, which lie in an array or, by their paths, elsewhere.

    Args:
        values: Structs of contents and a path.
        sound: Checks their rows.
    """

    def __init__(self, values: Any, sound: SoundArrays) -> None:
        fields = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
        self._contents, self._paths = read_array(fields[CONTENTS], sound), read_array(fields[PATH], sound)
        self._valid = numbers_of(values.is_valid())

    def __getitem__(self, row: int) -> bytes | None:
        """Return the contents of a file; ``None`` for a null.

        Raises:
            DataError: There are neither contents nor a path, or the file cannot be read.
        """
        found: bytes | None = self._contents[row]
        if found is not None or not self._valid[row]:
            return found
        path = self._paths[row]
        if path is None:
            raise DataError("it has neither bytes nor a path; expected one of them")
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise DataError(f"it has no bytes, and its path {path} cannot be read: {error.strerror}") from None


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
        """Return a list.

        Raises:
            DataError: Its offsets leave the numbers of all lists, or decrease.
        """
        start, end = self._offset(row), self._offset(row + 1)
        if not 0 <= start <= end <= len(self._numbers):
            raise DataError(
                f"it goes from number {start} to {end} of {len(self._numbers)} in lists; expected a file without damage"
            )
        return self._numbers[start:end].tolist()


def read_values(chunks: Sequence[Any]) -> PlainValues:
    """Return the values of arrays of Arrow, one array after the other."""
    held = [chunk for chunk in chunks if len(chunk)]
    return read_array(held[0], SoundArrays()) if len(held) == 1 else ChunkedValues(held)


def read_array(values: Any, sound: SoundArrays) -> PlainValues:
    """Return the values of an array of Arrow; ``sound`` checks the rows that pyarrow makes values of."""
    kind = values.type
    if not len(values):
        return ArrowValues(values, sound)
    for is_kind, make in _TEXTS:
        if is_kind(kind):
            valid, _, data = values.buffers()
            starts = offsets_of(values, 0, len(values))
            texts = Texts(starts, memoryview(b"" if data is None else data), make)
            return NullableTexts(texts, memoryview(valid), values.offset) if values.null_count else texts
    if holds_file(kind):
        return FileContents(values, sound)
    if values.null_count:
        return ArrowValues(values, sound)
    if _are_numbers(kind):
        return Numbers(numbers_of(values))
    if types.is_list(kind) or types.is_large_list(kind):
        elements, offsets = values.values, offsets_of(values, 0, len(values))
        if _are_numbers(kind.value_type) and not elements.null_count:
            return NumberLists(offsets, numbers_of(elements))
    return ArrowValues(values, sound)


# The types of texts and of bytes that lie one after the other, and what makes a value of its bytes.
_TEXTS: tuple[tuple[Callable[[Any], bool], Callable[[memoryview], str | bytes]], ...] = (
    (types.is_string, _decode),
    (types.is_large_string, _decode),
    (types.is_binary, bytes),
    (types.is_large_binary, bytes),
)


def _are_numbers(kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind) or types.is_boolean(kind))
