"""NumPy arrays and memory maps in and out; also the way in for other DLPack producers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy

from batchloom import _native
from batchloom.errors import DataError, DTypeError

# NumPy has these only through the package ml_dtypes, and neither DLPack nor the buffer protocol lets them through. They
# travel as integers of the same size.
FOREIGN = {
    "bfloat16": numpy.uint16,
    "float8_e4m3fn": numpy.uint8,
    "float8_e4m3fnuz": numpy.uint8,
    "float8_e5m2": numpy.uint8,
    "float8_e5m2fnuz": numpy.uint8,
}


def borrow(array: Any, label: str) -> _native.Tensor:
    """Share the memory of an array."""
    if not isinstance(array, numpy.ndarray):
        return _native.borrow(array, label)
    if isinstance(array, numpy.ma.MaskedArray):
        raise DataError(f"field {label} is a masked array; expected plain values: use .filled(value)")
    if array.dtype.name in FOREIGN:
        integers = array.view(FOREIGN[array.dtype.name])
        return _native.borrow(integers, label).reinterpret(array.dtype.name)
    if not array.dtype.isnative:
        raise DTypeError(
            f"field {label} has byte order {array.dtype.byteorder!r}; expected this machine's: use "
            f'.astype(dtype.newbyteorder("="))'
        )
    try:
        return _native.borrow(array, label)
    except (BufferError, TypeError) as error:
        raise DTypeError(
            f"field {label} of type {array.dtype} cannot be shared ({error}); expected booleans, integers, floats or "
            "complex numbers, aligned to their size"
        ) from error


def address(array: Any, label: str) -> tuple[int, tuple[int, ...]]:
    """Where the memory is. A memory map is compared with its file: what was cut off cannot be read."""
    if not isinstance(array, numpy.ndarray):
        return id(array), tuple(getattr(array, "shape", ()))
    if isinstance(array, numpy.memmap):
        _require_file(array, label)
    return array.__array_interface__["data"][0], array.shape


def _require_file(array: numpy.memmap[Any, Any], label: str) -> None:
    mapped = getattr(array, "_mmap", None)
    filename = getattr(array, "filename", None)
    if mapped is None or filename is None:
        return
    try:
        found = os.stat(filename).st_size
    except OSError:
        return  # Deleted, but still mapped: the pages stay.
    offset = array.offset - array.offset % _granularity()
    expected = offset + len(mapped)
    if found < expected:
        raise DataError(
            f"field {label} maps {expected} bytes of {filename}, which now has {found}; the file was truncated"
        )


def _granularity() -> int:
    import mmap

    return mmap.ALLOCATIONGRANULARITY


def require(dtype: str, label: str) -> None:
    """Raise if NumPy has no such type here."""
    if dtype in FOREIGN:
        try:
            import ml_dtypes  # noqa: F401
        except ModuleNotFoundError:
            raise DTypeError(
                f"field {label} is {dtype}, which NumPy has only with the package ml_dtypes; install it, or use "
                'output="torch"'
            ) from None


def views(tensor: _native.Tensor) -> Sequence[numpy.ndarray[Any, Any]]:
    """Cut ``[batches, samples, ...]`` into batches."""
    if tensor.dtype not in FOREIGN:
        return list(numpy.from_dlpack(tensor))
    import ml_dtypes

    integers = numpy.from_dlpack(tensor.reinterpret(numpy.dtype(FOREIGN[tensor.dtype]).name))
    return list(integers.view(getattr(ml_dtypes, tensor.dtype)))
