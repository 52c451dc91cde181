"""`Memory`: the memory that columns of Arrow lie in, as arrays of NumPy; and the offsets of lists in it.

Promises:

- An array over a map of a file keeps the map, so that it is checked, let go of and pickled as maps are.
- Offsets that leave their values or decrease are an error, before a value is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pyarrow
from batchloom.arrays.chunked import ChunkedArray
from batchloom.errors import DataError

Array = numpy.ndarray[Any, Any]


class Memory:
    """The memory of columns: maps of files, from which arrays are cut that keep them.

    Args:
        maps: The maps, as bytes.
    """

    def __init__(self, maps: Sequence[Array] = ()) -> None:
        found = sorted((each.ctypes.data, each) for each in maps if len(each)) if len(maps) else []
        self.maps = [each for _, each in found]
        self._starts = [start for start, _ in found]

    def holds(self, address: int, size: int) -> bool:
        """Return whether bytes lie in one of the maps."""
        return self._find(address, size) is not None

    def cut(self, buffer: Any, dtype: Any, start: int, count: int) -> Array:
        """Return elements of a buffer as an array: of a map, if the buffer lies in one."""
        dtype = numpy.dtype(dtype)
        if not count or buffer is None:
            return numpy.zeros(0, dtype)
        address, size = buffer.address + start * dtype.itemsize, count * dtype.itemsize
        found = self._find(address, size)
        if found is None:
            return numpy.frombuffer(buffer, dtype, count, start * dtype.itemsize)
        return numpy.ndarray(count, dtype, self.maps[found], address - self._starts[found])

    def _find(self, address: int, size: int) -> int | None:
        place = bisect_right(self._starts, address) - 1
        if place < 0 or address + size > self._starts[place] + len(self.maps[place]):
            return None
        return place

    def join(self, chunks: Sequence[Array]) -> Any:
        """Return arrays one after the other as one array, without a copy."""
        held = [chunk for chunk in chunks if len(chunk)] or list(chunks[:1])
        return held[0] if len(held) == 1 else ChunkedArray.in_maps(held, self.maps)


class ListOffsets:
    """The offsets of lists in several arrays of Arrow.

    Attributes:
        firsts: The first element of each array, counted in its values.
        lasts: The end of its last one.
        lengths: The length of each list, of one array after the other.

    Args:
        memory: The memory of the arrays.
        chunks: The arrays: lists with offsets; at least one.
        where: Names the column and the file of an array, by its number, for messages.

    Raises:
        DataError: Offsets leave the values, or decrease.
    """

    def __init__(self, memory: Memory, chunks: Sequence[Any], where: Callable[[int], str]) -> None:
        self._parts = [_cut_offsets(memory, chunk) for chunk in chunks]
        # All at once: there are thousands of arrays, of a few lists each.
        whole = numpy.concatenate(self._parts)
        stops = numpy.cumsum([len(part) for part in self._parts])
        self.firsts = whole[[0, *stops[:-1]]]
        self.lasts = whole[stops - 1]
        lengths, decreases = numpy.diff(whole), whole[1:] < whole[:-1]
        if len(stops) > 1:
            lengths, decreases = (numpy.delete(each, stops[:-1] - 1) for each in (lengths, decreases))
        self.lengths = lengths
        sizes = numpy.array([len(chunk.values) for chunk in chunks])
        if decreases.any() or (self.firsts < 0).any() or (self.lasts > sizes).any():
            number = next(number for number, part in enumerate(self._parts) if _is_wrong(part, sizes[number]))
            raise DataError(
                f"offsets of lists in {where(number)} leave their values or decrease; expected a whole file"
            )

    def join(self) -> Array:
        """Return the offsets of all lists in the values of one array after the other; int64."""
        ends = numpy.zeros(len(self.lengths) + 1, numpy.int64)
        numpy.cumsum(self.lengths, out=ends[1:])
        return ends

    def find_lists(self, chunk: int, places: Array) -> Array:
        """Return the lists of an array that have some elements, counted from the first element of the array."""
        return numpy.searchsorted(self._parts[chunk] - self.firsts[chunk], places, side="right") - 1


def numbers_of(array: Any) -> Array:
    """Return the numbers or bits of an array of Arrow, over its memory, anything in place of nulls; bits are copied.

    ``to_numpy`` imports pandas on its first use.
    """
    if not len(array):
        return numpy.zeros(0, array.type.to_pandas_dtype())
    content = array.buffers()[1]
    if pyarrow.types.is_boolean(array.type):
        return bits_of(content, array.offset, len(array))
    dtype = numpy.dtype(array.type.to_pandas_dtype())
    return numpy.frombuffer(content, dtype, len(array), array.offset * dtype.itemsize)


def bits_of(buffer: Any, start: int, count: int) -> Array:
    """Return some bits of a buffer, copied, from the bit ``start`` on."""
    first, skipped = start >> 3, start & 7
    held = numpy.frombuffer(buffer, numpy.uint8, (skipped + count + 7) >> 3, first)
    return numpy.unpackbits(held, count=skipped + count, bitorder="little")[skipped:].view(numpy.bool_)


def offsets_of(array: Any, start: int, end: int) -> Array:
    """Return the offsets of some rows of an array of lists or texts, and the end of the last one, over its memory."""
    kind, types = array.type, pyarrow.types
    is_large = types.is_large_list(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    dtype = numpy.dtype(numpy.int64 if is_large else numpy.int32)
    return numpy.frombuffer(array.buffers()[1], dtype, end - start + 1, (array.offset + start) * dtype.itemsize)


def _is_wrong(offsets: Array, size: int) -> bool:
    return bool(offsets[0] < 0 or offsets[-1] > size or (offsets[1:] < offsets[:-1]).any())


def _cut_offsets(memory: Memory, chunk: Any) -> Array:
    dtype = numpy.int64 if pyarrow.types.is_large_list(chunk.type) else numpy.int32
    return memory.cut(chunk.buffers()[1], dtype, chunk.offset, len(chunk) + 1)
