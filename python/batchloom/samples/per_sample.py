"""An argument with one value for each sample: numbers, classes or keys, read and checked in one place."""

from __future__ import annotations

from typing import Any

import numpy
from batchloom.arrays.inputs import read_plain
from batchloom.errors import DataError, DTypeError, Error, many


def read_each(
    name: str,
    given: Any,
    kinds: str | None,
    samples: int | None = None,
    *,
    expected: str = "a number for each sample",
    most_dimensions: int = 1,
    refused: type[Error] = DTypeError,
) -> numpy.ndarray[Any, Any]:
    """Return an argument with one value for each sample as an array of NumPy.

    Args:
        name: The name of the argument.
        given: The values: an array, a list or a column.
        kinds: The kinds of element types that the argument takes, as NumPy names kinds; ``None`` for every kind.
        samples: The number of samples; ``None`` where another place compares it.
        expected: The values that the argument takes, for messages.
        most_dimensions: The most dimensions that the array may have.
        refused: The class of the error of values that are no array of such kinds.

    Raises:
        DataError: The values are a masked array, have another number of dimensions, or are not one for each sample.
        DeviceError: The values are on a device that has none to read.
    """
    array = read_plain(name, given, expected, refused)
    if not 1 <= array.ndim <= most_dimensions:
        raise DataError(f"{name}: found an array of shape {array.shape}; expected {expected}")
    if kinds is not None and array.dtype.kind not in kinds:
        raise refused(f"{name}: found values of type {array.dtype}; expected {expected}")
    if samples is not None:
        require_each(name, array, samples)
    return array


def require_each(name: str, array: numpy.ndarray[Any, Any], samples: int, unit: str = "sample") -> None:
    """Check that an array has one value for each sample, or for each of another unit.

    Raises:
        DataError: It has more values, or fewer.
    """
    if len(array) != samples:
        raise DataError(f"{name} has {len(array)} values for {many(samples, unit)}; expected one for each")
