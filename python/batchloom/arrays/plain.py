"""Values that users give as arrays, lists or columns, as plain arrays of NumPy in memory of the CPU."""

from __future__ import annotations

from typing import Any

import numpy
from batchloom.arrays.field import host
from batchloom.arrays.numpy import is_masked
from batchloom.errors import DataError, DTypeError, Error


def read_plain(name: str, given: Any, expected: str, refused: type[Error] = DTypeError) -> numpy.ndarray[Any, Any]:
    """Return values as an array of NumPy.

    Args:
        name: The name of the argument.
        given: The values.
        expected: The values that the argument takes, for messages.
        refused: The class of the error of values that make no array.

    Raises:
        DataError: The values are a masked array.
        DeviceError: The values are on a device that has none to read.
    """
    if is_masked(given):
        raise DataError(f"{name}: found a masked array; expected {expected}: use .filled(value)")
    try:
        return numpy.asarray(host(name, given))
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, Error):
            raise
        raise refused(f"{name}: found a {type(given).__name__}; expected {expected}: {error}") from None
