"""NumPy arrays and memory maps in and out; reads other DLPack producers, too."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral, Number, Real
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arrays.pickling import mapped_file
from batchloom.errors import ArgumentError, DataError, DTypeError
from numpy.lib.stride_tricks import sliding_window_view

TAKES_CAPSULES = False
PICKLES_STORAGE = False
HAS_VIEWS = HAS_BACKWARD_VIEWS = True
HAS_SPARSE_ROWS = True
HAS_DEVICES = HAS_PLACES = False

# NumPy has these only through the package ml_dtypes, and neither DLPack nor the buffer protocol lets them through. They
# travel as integers of the same size.
FOREIGN = {
    "bfloat16": numpy.uint16,
    "float8_e4m3fn": numpy.uint8,
    "float8_e4m3fnuz": numpy.uint8,
    "float8_e5m2": numpy.uint8,
    "float8_e5m2fnuz": numpy.uint8,
}


def owns(array: Any) -> bool:
    """Return whether an object is an array of NumPy."""
    return isinstance(array, numpy.ndarray)


def is_masked(array: Any) -> bool:
    """Return whether an array has masked elements. An import of ``numpy.ma`` takes several milliseconds."""
    # Another thread may import it right now: there is no masked array before it is done.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and isinstance(array, masked)


def borrow(array: Any, label: str) -> _native.Tensor:
    """Share the memory of an array."""
    if not isinstance(array, numpy.ndarray):
        return _native.borrow(array, label)
    if is_masked(array):
        raise DataError(f"field {label} is a masked array; expected plain values: use .filled(value)")
    # NumPy makes the name of a type anew each time, in the time of all else here.
    if array.dtype.isbuiltin != 1 and array.dtype.name in FOREIGN:
        integers = array.view(FOREIGN[array.dtype.name])
        return _native.borrow(integers, label).reinterpret(array.dtype.name)
    if not array.dtype.isnative:
        raise DTypeError(
            f"field {label} has byte order {array.dtype.byteorder!r}; expected this machine's: use "
            f'.astype(dtype.newbyteorder("="))'
        )
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], list | numpy.ndarray):
        raise DTypeError(
            f"field {label} has type object and holds lists of any length; expected lists of one size, whose type has "
            "the size, or a SequenceDataset, which takes all lists"
        )
    if array.dtype.kind not in "biufc":
        raise DTypeError(
            f"field {label} has type {array.dtype}; expected booleans, integers, floats or complex numbers"
        )
    if any(stride % array.itemsize for stride in array.strides):
        array = numpy.ascontiguousarray(array)  # elements that are not aligned, as in a packed record
    return _native.borrow(array, label)


def address(array: Any, label: str) -> tuple[Any, ...]:
    """Return the address and the layout of an array.

    Raises:
        DataError: The array lies in a memory map whose file was truncated.
    """
    if not isinstance(array, numpy.ndarray):
        return id(array), tuple(getattr(array, "shape", ()))
    _require_file(array, label)
    return array.__array_interface__["data"][0], array.shape, array.strides


def _require_file(array: Any, label: str) -> None:
    """Raise if ``array`` is, or is a view of, a memory map whose file is shorter than the map by now."""
    mapping, offset, name = _mapping(array)
    if mapping is None:
        return
    try:
        size = mapping.size()  # of the file that is mapped, whatever its name stands for now
    except (OSError, ValueError):
        return  # no file behind it
    expected = offset + len(mapping)
    if size < expected:
        raise DataError(f"field {label} maps {expected} bytes of {name}, which now has {size}: it was truncated")


def _mapping(array: Any) -> tuple[mmap.mmap | None, int, str]:
    """Return the memory map that an array lies in, if any; where in its file it starts, and the name of that file."""
    offset, name = 0, "a file"
    while array is not None and not isinstance(array, mmap.mmap):
        if isinstance(array, numpy.memmap) and array.offset is not None:
            offset, name = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY, str(array.filename)
        array = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
    return array, offset, name


def was_shared(array: Any, address: tuple[Any, ...]) -> bool:
    """Return ``False``: NumPy does not know which memory processes share."""
    return False


def can_change(array: Any) -> bool:
    """Return whether an array may lose its memory: it owns it, lies in a map of a file, or is no array of NumPy."""
    return not isinstance(array, numpy.ndarray) or bool(array.flags.owndata) or _find_map(array) is not None


def _find_map(array: Any) -> numpy.memmap[Any, Any] | None:
    """Return the memory map that an array lies in, if it lies in one."""
    while array is not None and not isinstance(array, numpy.memmap):
        array = getattr(array, "base", None)
    return array


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


def views(column: _native.Column) -> Sequence[numpy.ndarray[Any, Any]]:
    """Cut a column into batches."""
    return [batch for run in column.runs for batch in view(run)]


def view(tensor: _native.Tensor) -> numpy.ndarray[Any, Any]:
    """Take a tensor of the engine as an array."""
    if tensor.dtype not in FOREIGN:
        return numpy.from_dlpack(tensor)
    integers = numpy.from_dlpack(tensor.reinterpret(numpy.dtype(FOREIGN[tensor.dtype]).name))
    batch: numpy.ndarray[Any, Any] = integers.view(getattr(_ml_dtypes(), tensor.dtype))
    return batch


def windows(array: numpy.ndarray[Any, Any], steps: int) -> numpy.ndarray[Any, Any]:
    """Return each run of ``steps`` rows, ``[runs, steps, ...]``, over the memory of ``array``; read-only."""
    return numpy.moveaxis(sliding_window_view(array, steps, axis=0), -1, 1)


def slices(array: numpy.ndarray[Any, Any], places: tuple[int, int, int, int, int]) -> Sequence[numpy.ndarray[Any, Any]]:
    """Return slices of an array, which ``places`` names: views."""
    first, rows, every, distance, count = places
    extent = (rows - 1) * every + 1
    return [array[start : start + extent : every] for start in (first + number * distance for number in range(count))]


def patches(array: numpy.ndarray[Any, Any], length: int, stride: int) -> numpy.ndarray[Any, Any]:
    """Cut ``[batch, steps, ...]`` into ``[batch, ..., patches, length]``, over the same memory; read-only."""
    return numpy.moveaxis(sliding_window_view(array, length, axis=1)[:, ::stride], 1, -2)


def pad_rows(array: numpy.ndarray[Any, Any], before: int, after: int) -> numpy.ndarray[Any, Any]:
    """Put rows of zeros before an array, and after it."""
    zeros = numpy.zeros((before + after, *array.shape[1:]), array.dtype)
    return numpy.concatenate([zeros[:before], array, zeros[before:]])


def repeat(row: numpy.ndarray[Any, Any], samples: int) -> numpy.ndarray[Any, Any]:
    """Repeat a row in its own memory; read-only."""
    return numpy.broadcast_to(row, (samples, *row.shape))


def ones(samples: int, steps: int, device: None) -> numpy.ndarray[Any, Any]:
    """Return an array of True in the memory of one element; read-only."""
    return numpy.broadcast_to(numpy.True_, (samples, steps))


def weights(index: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Return 1 for each sample, 0 for each place of a batch that only fills up."""
    return (index >= 0).astype(numpy.float32)


def is_sparse(value: Any) -> bool:
    """Return whether an object is a sparse matrix of SciPy, in memory or in a file."""
    scipy = sys.modules.get("scipy.sparse")
    return (scipy is not None and scipy.issparse(value)) or _is_in_file(value)


def _is_in_file(value: Any) -> bool:
    """Return whether an object is a sparse matrix that is backed by a file, as a matrix of AnnData may be."""
    return hasattr(value, "to_memory") and isinstance(getattr(value, "format", None), str)


def sparse_parts(matrix: Any, label: str) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """Return the values, the columns, the bounds of rows and the shape of a matrix of SciPy.

    Raises:
        DataError: The object is no matrix in CSR format, or the matrix is in a file.
    """
    layout, kind = getattr(matrix, "format", None), type(matrix).__name__
    if _is_in_file(matrix):
        raise DataError(
            f"field {label} is a {kind} in a file; expected a matrix in memory: use .to_memory(), or a memory map of "
            "its three arrays"
        )
    if layout != "csr":
        has = kind if layout is None else f"{kind} in format {layout!r}"
        raise DataError(
            f"field {label} is a {has}; expected a matrix in format 'csr', whose rows lie together: use .tocsr()"
        )
    if len(matrix.shape) != 2:
        raise DataError(f"field {label} has shape {matrix.shape}; expected rows and columns")
    return matrix.data, matrix.indices, matrix.indptr, tuple(matrix.shape)


def sparse_rows(width: int, is_matrix: bool) -> Callable[..., Any]:
    """Return a function that makes a matrix of the bounds of rows, their columns, and the values.

    Raises:
        ArgumentError: SciPy, which has the class of these matrices, is not installed.
    """
    try:
        from scipy import sparse
    except ModuleNotFoundError as error:
        raise ArgumentError(
            f'layout is "csr", whose batches are matrices of SciPy, but {error.name} is not installed; expected it, or '
            'output="torch", or layout "dense"'
        ) from None
    kind = sparse.csr_matrix if is_matrix else sparse.csr_array

    def make(bounds: Any, columns: Any, values: Any) -> Any:
        return kind((values, columns, bounds), shape=(len(bounds) - 1, width), copy=False)

    return make


def is_repeated(array: numpy.ndarray[Any, Any]) -> bool:
    """Return whether rows share one memory, and may be written to."""
    return len(array) > 1 and array.strides[0] == 0 and array.flags.writeable


def bits(array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Return the bytes of each row, ``[rows, bytes]``: a view of an array that is compact, otherwise a copy."""
    return numpy.ascontiguousarray(array).reshape(len(array), math.prod(array.shape[1:])).view(numpy.uint8)


def differences(array: numpy.ndarray[Any, Any], expected: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Return the number of elements of each row that differ."""
    count: numpy.ndarray[Any, Any] = (array != expected).sum(1)
    return count


def own(array: numpy.ndarray[Any, Any], device: None) -> numpy.ndarray[Any, Any]:
    """Copy an array."""
    return array.copy()


def copy(array: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Copy an array."""
    return array.copy()


def to_plain(array: Any) -> Any:
    """Return the array itself."""
    return array


def device_of(array: Any) -> None:
    """Return ``None``: arrays of NumPy are in memory of the CPU."""


def to_host(array: Any) -> Any:
    """Return the array itself."""
    return array


def values(array: numpy.ndarray[Any, Any]) -> Iterator[tuple[str, numpy.ndarray[Any, Any]]]:
    """Yield the array itself."""
    yield "", array


def concatenate(arrays: Sequence[Any]) -> numpy.ndarray[Any, Any]:
    """Join arrays along their first dimension."""
    return numpy.concatenate(arrays)


def take(array: Any, places: _native.Tensor) -> Any:
    """Return the rows of an array at places."""
    return array[numpy.from_dlpack(places)]


def to_pickle(array: numpy.ndarray[Any, Any]) -> Any:
    """Return the file of a memory map, where the map can be made again; otherwise the array itself."""
    return mapped_file(array) or array


def element(dtype: str, value: Any) -> bytes:
    """Return the bytes of one value; a number that the type rounds is rounded.

    Raises:
        TypeError: The value is not a number that the type could hold.
        ValueError: The value is outside the range of the type.
    """
    kind = numpy.dtype(dtype) if dtype not in FOREIGN else numpy.dtype(getattr(_ml_dtypes(), dtype))
    allowed: type = {"b": Integral, "i": Integral, "u": Integral, "c": Number}.get(kind.kind, Real)
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, bool | numpy.bool):
        value = int(value)
    if isinstance(value, float | numpy.floating) and allowed is Integral and float(value).is_integer():
        value = int(value)
    if not isinstance(value, allowed):
        raise TypeError(f"expected a {'whole ' if allowed is Integral else ''}number")
    number: Any = value
    if kind.kind == "b" and number not in (0, 1):
        raise ValueError("expected True or False")
    with numpy.errstate(all="ignore"):
        rounded = numpy.array(number).astype(kind) if kind.kind not in "iu" else numpy.array(number, kind)
    if (
        kind.kind not in "biu"
        and numpy.isfinite(complex(number))
        and not numpy.isfinite(rounded.astype(numpy.complex128))
    ):
        raise ValueError(f"it would be {rounded}")
    return rounded.tobytes()


def _ml_dtypes() -> Any:
    import ml_dtypes

    return ml_dtypes
