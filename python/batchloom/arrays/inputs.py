"""Inputs: the one reader of anything that is an array, for all datasets and all arguments that take arrays.

Promises:

- What lies in memory is borrowed: arrays of NumPy, torch and JAX, and other objects with DLPack or with the capsules of
  Arrow. Only booleans of Arrow, which are bits there, are copied.
- What only gives its values, by ``__array__`` or by ``shape``, ``dtype`` and ``[]``, is read once and whole, in its own
  type. Arrays of HDF5 and Zarr on disk are such objects: their values take memory from then on.
- Texts of Arrow become objects of Python.
- What is refused is refused in the same words for every argument.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from numbers import Number
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arrays.dtypes import dtype_name
from batchloom.arrays.field import host, lend, share
from batchloom.arrays.frameworks import (
    DEFAULT_FRAMEWORK,
    INPUTS,
    is_arrow,
    is_sparse,
    load,
    make_no_array_error,
    owner_name,
)
from batchloom.arrays.numpy import is_masked
from batchloom.arrays.stored_columns import read_stored_column
from batchloom.errors import DataError, DTypeError, Error

Array = numpy.ndarray[Any, Any]

# What an array on disk has, where it has nothing else.
DESCRIBED = ("shape", "dtype", "__getitem__")


def is_input(data: Any) -> bool:
    """Return whether an object is an array that neither a framework owns nor NumPy converts."""
    if isinstance(data, list | tuple | str | bytes | Number | numpy.ndarray) or data is None or _is_converted(data):
        return False
    if isinstance(data, type | Mapping):
        return False
    return is_arrow(data) or hasattr(data, "__dlpack__") or _is_described(data)


def is_array(data: Any) -> bool:
    """Return whether an object of no framework is an array of numbers, as far as can be known without its values."""
    if not is_input(data):
        return _is_converted(data)
    return not is_arrow(data) or _native.are_numbers(data) or _native.are_rows(data)


def read_input(label: str, data: Any) -> Any:
    """Return anything that is an array as an array of a framework, or as chunks of the engine where Arrow has several.

    Args:
        label: The name of the argument, for messages.
        data: An array of a framework, which is returned as it is; or an object with the capsules of Arrow, DLPack,
            ``__array__``, or ``shape``, ``dtype`` and ``[]``: the first of these that it has. Objects with both Arrow
            and DLPack are read as Arrow, which knows nulls and chunks.

    Raises:
        DataError: It is no array, holds nulls, or gives other values than it describes.
        DeviceError: It lies on a device.
        DTypeError: Its type makes no array.
    """
    if owner_name(data) is not None:
        return data
    if isinstance(data, type | Mapping):
        raise make_no_array_error(label, data)
    column = read_stored_column(data)
    data = data if column is None else column
    if is_arrow(data) and (not _is_converted(data) or _lies_in_chunks(data)):
        rows = _native.borrow_rows(data, label)
        return _as_objects(label, rows) if isinstance(rows, list) else rows
    if hasattr(data, "__dlpack__") and not is_arrow(data):
        return _read_dlpack(label, data)
    if _is_converted(data):
        return read_column(f"field {label}", data)
    if _is_described(data):
        return _read_described(label, data)
    raise make_no_array_error(label, data)


def read_column(name: str, column: Any) -> Array:
    """Return a column of a frame, or another object that NumPy converts, as an array of NumPy.

    Raises:
        DataError: It has nulls, or is masked.
        DTypeError: NumPy does not take it.
    """
    nulls = getattr(column, "null_count", 0)
    if numpy.any(nulls() if callable(nulls) else nulls):  # of a frame, the nulls of each column
        raise DataError(f"{name} has nulls; expected a value in every place: fill or drop them")
    if hasattr(column, "detach"):
        column = column.detach()
    if getattr(getattr(column, "dtype", None), "tz", None) is not None:
        # Times with a zone are converted to UTC, as other frames give them.
        column = (column.dt if hasattr(column, "dt") else column).tz_convert(None)
    return read_plain(name, column, "an array that NumPy takes")


def read_plain(name: str, given: Any, expected: str, refused: type[Error] = DTypeError) -> Array:
    """Return values as an array of NumPy in memory of the CPU.

    Args:
        name: The name of the argument.
        given: The values: an array, a list or a column.
        expected: The values that the argument takes, for messages.
        refused: The class of the error of values that make no array.

    Raises:
        DataError: The values are a masked array, or lie where they cannot be read.
        DeviceError: The values are on a device that has none to read.
    """
    if is_masked(given):
        raise DataError(f"{name}: found a masked array; expected {expected}: use .filled(value)")
    if is_input(given):
        given = _join(read_input(name.removeprefix("field "), given))
    try:
        return numpy.asarray(host(name, given))
    except OSError as error:
        raise DataError(
            f"{name}: found a {type(given).__name__} that could not be read: {error}; expected all of its values"
        ) from error
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, Error):
            raise
        raise refused(f"{name}: found a {type(given).__name__}; expected {expected}: {error}") from None


def _as_objects(label: str, texts: list[str | None]) -> Array:
    """Return texts as an array of NumPy that holds objects, as NumPy converts columns of texts."""
    if None in texts:
        raise DataError(f"field {label} has nulls; expected a value in every place: fill or drop them")
    return numpy.array(texts, object)


def _is_converted(data: Any) -> bool:
    """Return whether NumPy knows how an object becomes an array."""
    return hasattr(data, "__array__") or hasattr(data, "__array_interface__")


def _is_described(data: Any) -> bool:
    """Return whether an object describes an array and has ``[]``. A sparse matrix has both, and is no array."""
    return all(hasattr(data, name) for name in DESCRIBED) and not is_sparse(data)


def _lies_in_chunks(column: Any) -> bool:
    """Return whether a column of Arrow holds lists of one size, or numbers in several chunks."""
    if _native.are_rows(column):
        return True
    counts = (getattr(column, name, 1) for name in ("num_chunks", "n_chunks"))
    return any((count() if callable(count) else count) != 1 for count in counts) and _native.are_numbers(column)


def _join(read: Any) -> Any:
    """Return one array of what was read: a copy of several chunks."""
    if not isinstance(read, _native.ChunkedTensor):
        return read
    chunks = [lend(chunk, DEFAULT_FRAMEWORK) for chunk in read.chunks]
    return chunks[0] if len(chunks) == 1 else numpy.concatenate(chunks)


def _read_dlpack(label: str, data: Any) -> Any:
    """Return an array of NumPy over the memory of an object with DLPack; the object where NumPy lacks its type."""
    tensor = share(data, label)
    try:
        load(DEFAULT_FRAMEWORK).require(tensor.dtype, label)
    except DTypeError:
        return data
    return lend(tensor, DEFAULT_FRAMEWORK)


def _read_described(label: str, data: Any) -> Any:
    """Return all values of an object with ``shape``, ``dtype`` and ``[]``, which are to be as it describes them."""
    kind = type(data).__name__
    try:
        shape = tuple(map(operator.index, data.shape))
    except TypeError:
        raise DataError(
            f"field {label} is a {kind} of shape {data.shape!r:.80}; expected a tuple of integers as its shape"
        ) from None
    values = _take_all(label, data)
    if owner_name(values) is None:
        if not (isinstance(values, Number | list) or _has_protocol(values)):
            raise DataError(f"field {label} is a {kind} that gave a {type(values).__name__} by []; expected an array")
        values = read_plain(f"field {label}", values, INPUTS, DataError)
    if tuple(values.shape) != shape:
        raise DataError(
            f"field {label} is a {kind} of shape {shape} that gave an array of shape {tuple(values.shape)} by []; "
            "expected the same shape"
        )
    if not _are_alike(data.dtype, values.dtype):
        raise DTypeError(
            f"field {label} is a {kind} of type {data.dtype} that gave an array of {values.dtype} by []; expected the "
            "same type"
        )
    return values


def _has_protocol(data: Any) -> bool:
    """Return whether an object gives its values as an array, and not only by ``[]``."""
    return _is_converted(data) or is_arrow(data) or hasattr(data, "__dlpack__")


def _take_all(label: str, data: Any) -> Any:
    """Return what an object gives for all of its values: for ``[...]``, or for other indices where it refuses that."""
    first: Exception | None = None
    for index in (..., (), slice(None)):
        try:
            return data[index]
        except MemoryError:
            raise
        except Exception as error:
            first = first or error
    raise DataError(
        f"field {label} is a {type(data).__name__} whose values could not be read by [...], [()] or [:]: "
        f"{type(first).__name__}: {first}; expected all of its values"
    ) from first


def _are_alike(described: Any, found: Any) -> bool:
    """Return whether a type that an object describes is the type of its values, as far as NumPy knows the first."""
    try:
        kind = numpy.dtype(described) if not str(described).startswith("torch.") else None
    except TypeError:
        return True
    if kind is not None and kind.kind in "USTO":
        return getattr(found, "kind", None) in ("U", "S", "T", "O")
    return dtype_name(described if kind is None else kind) == dtype_name(found)
