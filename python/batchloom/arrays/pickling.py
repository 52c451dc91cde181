"""Arrays as pickles keep them: memory maps as their file, and types that torch cannot pickle as their bits.

A pickle of a dataset that lies in a file is as small as the path: another process maps the file again. Maps that keep
writes to themselves (mode ``"c"``), and arrays without a file, are kept as they are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy
from batchloom.arrays.frameworks import owner
from batchloom.errors import DataError


@dataclass(frozen=True)
class MappedFile:
    """An array in a file that was mapped.

    Attributes:
        path: The file.
        first: The place in the file of its first byte.
        size: The bytes of the file that it covers.
        begin: The place of its first element in these bytes: not 0 where it runs backwards.
        dtype: The type of its elements.
        shape: The lengths of its dimensions.
        strides: The bytes from one element to the next, in each dimension.
        writable: ``True`` if writes go to the file.
    """

    path: str
    first: int
    size: int
    begin: int
    dtype: numpy.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    writable: bool

    def open(self) -> numpy.ndarray[Any, Any]:
        """Map the file again.

        Raises:
            DataError: The file is not there any more, or is shorter.
        """
        try:
            file_size = os.stat(self.path).st_size
        except OSError as error:
            raise DataError(f"the file of a memory map cannot be read: {error}; expected it where it was") from None
        if file_size < self.first + self.size:
            raise DataError(
                f"{self.path} has {file_size} bytes; expected at least {self.first + self.size}, as when it was mapped"
            )
        mode: Literal["r", "r+"] = "r+" if self.writable else "r"
        memory: Any = numpy.memmap(self.path, numpy.uint8, mode, self.first, (self.size,))
        return numpy.ndarray(self.shape, self.dtype, memory, self.begin, self.strides)


@dataclass(frozen=True)
class Bits:
    """A tensor of torch, of a type that torch cannot pickle.

    Attributes:
        tensor: The same bits as integers.
        dtype: The name of the type.
    """

    tensor: Any
    dtype: str

    def open(self) -> Any:
        """Return the tensor."""
        import torch

        return self.tensor.view(getattr(torch, self.dtype))


def to_pickle(value: Any) -> Any:
    """Return what a pickle keeps of arrays in tuples and dicts; of anything else, the value itself."""
    if type(value) is tuple:
        return tuple(to_pickle(each) for each in value)
    if type(value) is dict:
        return {name: to_pickle(each) for name, each in value.items()}
    framework = owner(value)
    return value if framework is None else framework.to_pickle(value)


def from_pickle(value: Any) -> Any:
    """Return the arrays of a value that :func:`to_pickle` returned."""
    if type(value) is tuple:
        return tuple(from_pickle(each) for each in value)
    if type(value) is dict:
        return {name: from_pickle(each) for name, each in value.items()}
    return value.open() if isinstance(value, MappedFile | Bits) else value


def mapped_file(array: numpy.ndarray[Any, Any]) -> MappedFile | None:
    """Return where an array lies in a file that is mapped; ``None`` if it does not, or writes stay in memory."""
    base: Any = array
    while isinstance(base, numpy.ndarray) and isinstance(base.base, numpy.ndarray):
        base = base.base
    if not isinstance(base, numpy.memmap) or base.filename is None or base.mode not in ("r", "r+", "w+"):
        return None
    low, high = _reach(array)
    first = base.offset + (array.ctypes.data + low) - base.ctypes.data
    if not array.size or not os.path.exists(base.filename):
        return None
    return MappedFile(
        os.path.abspath(base.filename),
        first,
        high - low,
        -low,
        array.dtype,
        array.shape,
        array.strides,
        array.flags.writeable,
    )


def _reach(array: numpy.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the first byte of an array and the one after its last, counted from its first element."""
    ends = [(length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)]
    low, high = sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends)
    return low, high + array.itemsize
