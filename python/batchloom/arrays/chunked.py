"""`ChunkedArray`: arrays that lie one after the other, as one array.

Promises:

- Row ``k`` is the same row, whatever the chunks, and no array is copied.
- A field of several chunks answers what a field of one array does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, SupportsIndex, overload

import batchloom._native as _native
import numpy
from batchloom.arrays.field import BorrowedArray, host, lend, lend_to_devices
from batchloom.arrays.frameworks import DEFAULT_FRAMEWORK, DEVICE_FRAMEWORK, framework_of, load
from batchloom.arrays.inputs import read_input
from batchloom.arrays.pickling import from_pickle, to_pickle
from batchloom.errors import ArgumentError, DataError, DeviceError, DTypeError, RangeError

Array = numpy.ndarray[Any, Any]

# The maps of files, while fields are borrowed whose rows are read from there.
_MAPS: ContextVar[_native.FileMaps | None] = ContextVar("MAPS", default=None)

# The number of chunks that are checked before a block is formed.
MOST_CHECKED = 8


class ChunkedArray:
    """Arrays one after the other along their first dimension, as one array without a copy.

        shards = [numpy.load(path, mmap_mode="r") for path in sorted(paths)]
        dataset = bl.TokenDataset(bl.ChunkedArray(shards), seq_len=1024)

    Datasets take it wherever they take an array: samples are shuffled over all chunks, and pieces of tokens and samples
    of sequences cross from one chunk to the next. Columns of Arrow tables in several chunks become such arrays by
    themselves.

    Attributes:
        chunks: The arrays, in order, as arrays of their framework.

    Args:
        chunks: Arrays of one framework and one type, whose rows have one shape, in memory of the CPU; at least one.
            A dataset takes the same arrays. Each chunk of a column of Arrow is one array.

    Raises:
        ArgumentError: It is no list of arrays.
        DataError: There is no array, an array is a scalar, or shapes of rows differ.
        DeviceError: An array is on a device.
        DTypeError: Types or frameworks differ.
    """

    def __init__(self, chunks: Iterable[Any]) -> None:
        if not isinstance(chunks, Iterable) or hasattr(chunks, "__array__"):
            raise ArgumentError(f"chunks is a {type(chunks).__name__}; expected a list of arrays")
        self.chunks = tuple(part for number, chunk in enumerate(chunks) for part in _parts(f"chunks[{number}]", chunk))
        if not self.chunks:
            raise DataError("chunks is empty; expected at least one array")
        frameworks = [framework_of(f"chunks[{number}]", chunk) for number, chunk in enumerate(self.chunks)]
        for number, (framework, chunk) in enumerate(zip(frameworks, self.chunks, strict=True)):
            if framework != frameworks[0]:
                raise DTypeError(
                    f"chunk {number} is of {framework}, and chunk 0 of {frameworks[0]}; expected one framework"
                )
            if load(framework).device_of(chunk) is not None:
                raise DeviceError(
                    f"chunk {number} is on {chunk.device}; expected chunks in memory of the CPU, or one array on a "
                    "device"
                )
        self.framework = frameworks[0]
        self.fields = tuple(BorrowedArray(f"chunks[{number}]", chunk) for number, chunk in enumerate(self.chunks))
        self.tensor = _native.ChunkedTensor("chunks", [field.tensor for field in self.fields])

    @classmethod
    def over(cls, tensor: _native.ChunkedTensor) -> ChunkedArray:
        """Return an array of NumPy over memory of the engine."""
        array = cls.__new__(cls)
        array.framework, array.fields, array.tensor = DEFAULT_FRAMEWORK, (), tensor
        array.chunks = tuple(lend(chunk, DEFAULT_FRAMEWORK) for chunk in tensor.chunks)
        return array

    @classmethod
    def in_maps(cls, chunks: Sequence[Array], maps: Iterable[Array]) -> ChunkedArray:
        """Return an array of thousands of chunks that lie in few memory maps, of which only the maps are checked.

        Args:
            chunks: Arrays of NumPy of one type that NumPy itself has, with rows of one shape; at least one.
            maps: The maps that they lie in; none where the chunks keep their memory.
        """
        array = cls.__new__(cls)
        array.framework, array.chunks = DEFAULT_FRAMEWORK, tuple(chunks)
        array.fields = tuple(BorrowedArray(f"map {number}", each) for number, each in enumerate(maps))
        array.tensor = _native.ChunkedTensor("chunks", [_native.borrow(chunk, "chunks") for chunk in chunks])
        return array

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.chunks[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions, over all chunks."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.tensor.shape)

    @cached_property
    def _ends(self) -> Array:
        return numpy.cumsum([len(chunk) for chunk in self.chunks])

    def __len__(self) -> int:
        """Return the number of rows of all chunks."""
        return len(self.tensor)

    @overload
    def __getitem__(self, rows: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, rows: slice | Array) -> Any: ...
    def __getitem__(self, rows: Any) -> Any:
        """Return one row; or the rows of a slice or of an index, as one array: a copy where chunks meet."""
        if isinstance(rows, SupportsIndex) and not isinstance(rows, numpy.ndarray):
            row = self._resolve(rows)
            chunk = int(numpy.searchsorted(self._ends, row, side="right"))
            return self.chunks[chunk][row - int(self._ends[chunk])]
        if isinstance(rows, slice) and rows.step in (None, 1):
            return self._join(self.cut(*rows.indices(len(self))[:2]))
        return self._gather(numpy.arange(len(self))[rows])

    def _resolve(self, row: SupportsIndex) -> int:
        try:
            return range(len(self))[row]
        except IndexError:
            raise RangeError(f"row {row} is out of range; expected 0 <= row < {len(self)}") from None

    def cut(self, start: int, end: int) -> list[Any]:
        """Return the parts of chunks that hold some rows: at least one, over the same memory."""
        if end <= start:
            return [self.chunks[0][:0]]
        first, last = (int(numpy.searchsorted(self._ends, row, side="right")) for row in (start, end - 1))
        before = [int(self._ends[chunk]) - len(self.chunks[chunk]) for chunk in range(first, last + 1)]
        chunks = zip(self.chunks[first : last + 1], before, strict=True)
        return [chunk[max(start - begin, 0) : end - begin] for chunk, begin in chunks]

    def _gather(self, rows: Array) -> Any:
        places = rows.reshape(-1)
        chunks = numpy.searchsorted(self._ends, places, side="right")
        order = numpy.argsort(chunks, kind="stable")
        bounds = numpy.flatnonzero(numpy.diff(chunks[order])) + 1
        parts = [
            self.chunks[chunk][places[part] - int(self._ends[chunk]) + len(self.chunks[chunk])]
            for part in (numpy.split(order, bounds) if len(order) else [])
            for chunk in [int(chunks[part[0]])]
        ]
        gathered = self._join(parts or [self.chunks[0][:0]])[numpy.argsort(order, kind="stable")]
        return gathered.reshape((*rows.shape, *self.shape[1:]))

    def _join(self, parts: list[Any]) -> Any:
        return parts[0] if len(parts) == 1 else load(self.framework).concatenate(parts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return a copy of all rows as an array of NumPy."""
        if copy is False and len(self.chunks) > 1:
            raise ValueError("an array in several chunks becomes one array by a copy; expected copy=None or True")
        whole = numpy.concatenate([numpy.asarray(host("chunk", chunk)) for chunk in self.chunks])
        return whole if dtype is None else whole.astype(dtype)

    def astype(self, dtype: Any, copy: bool = True) -> ChunkedArray:
        """Return the chunks in another type: this array, where it has the type and no copy is asked for."""
        if not copy and self.dtype == numpy.dtype(dtype):
            return self
        return ChunkedArray([numpy.asarray(chunk).astype(dtype) for chunk in self.chunks])

    def reshape(self, *shape: Any) -> Any:
        """Return a copy of all rows in another shape, as one array."""
        return self._join(list(self.chunks)).reshape(*shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (to_pickle(self.chunks),)

    def __repr__(self) -> str:
        return f"ChunkedArray({self.tensor.dtype}{self.shape} in {len(self.chunks)} chunks)"


class BorrowedChunks(BorrowedArray):
    """One field of a dataset whose array lies in several chunks in memory of the CPU."""

    def __init__(self, label: str, array: ChunkedArray) -> None:
        self.label, self.array = label, array
        self.framework, self.device = array.framework, None
        self.tensor: Any = array.tensor
        self._module = load(self.framework)
        self._moved = None
        self._changeable = [field for field in array.fields if field.can_change]
        self._checked = 0

    def check(self) -> None:
        """Raise if a chunk was resized or moved since it was borrowed: of many chunks, the next ones in turn."""
        fields = self._changeable
        for field in fields[self._checked : self._checked + MOST_CHECKED]:
            field.check()
        self._checked = self._checked + MOST_CHECKED if self._checked + MOST_CHECKED < len(fields) else 0

    def check_whole(self) -> None:
        """Raise if a chunk was resized or moved since it was borrowed."""
        for field in self._changeable:
            field.check()

    @property
    def was_shared(self) -> bool:
        """``True`` if torch has moved a chunk to memory that processes share: the same values, elsewhere."""
        return any(field.was_shared for field in self._changeable)

    def tensors(self, rows: Any) -> Any:
        """Return some rows of the array as the framework of devices has them, joined by a copy where chunks meet.

        Args:
            rows: A slice, or an array of rows.
        """
        if not isinstance(rows, slice):
            return lend_to_devices(self.array[rows], self.label)
        start, end, _ = rows.indices(len(self))
        parts = [lend_to_devices(part, self.label) for part in self.array.cut(start, end)]
        return parts[0] if len(parts) == 1 else load(DEVICE_FRAMEWORK).concatenate(parts)

    def narrow(self, start: int, end: int) -> Any:
        """Return some rows as an array that a dataset takes, over the same memory."""
        parts = self.array.cut(start, end)
        return parts[0] if len(parts) == 1 else ChunkedArray(parts)


def join_chunks(array: Any) -> Any:
    """Return an array in one piece of memory, as data needs whose batches may be views: a copy of several chunks."""
    return array.reshape(array.shape) if isinstance(array, ChunkedArray) else array


def borrow_field(label: str, array: Any) -> BorrowedArray:
    """Borrow the array of a field, in one piece of memory or in several."""
    field = BorrowedChunks(label, array) if isinstance(array, ChunkedArray) else BorrowedArray(label, array)
    maps = _MAPS.get()
    if maps is not None and field.device is None:
        field.tensor = maps.find_files(field.tensor)
    return field


@contextmanager
def reading_files() -> Iterator[None]:
    """Let batches read the rows of fields that are borrowed meanwhile from files, if they lie in maps of files.

    The pages of the maps stay out of memory. Rows are copied from memory where they lie elsewhere, or in a file that is
    not at its path any more, and where too many files are open already.
    """
    token = _MAPS.set(_MAPS.get() or _native.FileMaps())
    try:
        yield
    finally:
        _MAPS.reset(token)


def read_array(label: str, data: Any) -> Any:
    """Return anything that is an array as an array of a framework, or as one of several chunks.

    Raises:
        DataError: It is no array, holds nulls, or gives other values than it describes.
        DTypeError: Its type makes no array.
    """
    if isinstance(data, ChunkedArray):
        return data
    read = read_input(label, data)
    return over(read) if isinstance(read, _native.ChunkedTensor) else read


def over(tensor: _native.ChunkedTensor) -> Any:
    """Return an array over memory of the engine: of NumPy, or one of several chunks."""
    array = ChunkedArray.over(tensor)
    return array.chunks[0] if len(array.chunks) == 1 else array


def _parts(label: str, chunk: Any) -> tuple[Any, ...]:
    """Return the arrays that a chunk consists of: one, unless it has chunks itself."""
    array = read_array(label, chunk)
    return array.chunks if isinstance(array, ChunkedArray) else (array,)


def _restore(chunks: tuple[Any, ...]) -> ChunkedArray:
    return ChunkedArray(from_pickle(chunks))
