"""Sizes of samples that the user gives: checked, and as the engine takes them."""

from __future__ import annotations

from typing import Any

import numpy
from batchloom.arguments import U32
from batchloom.errors import DataError, DTypeError

Sizes = numpy.ndarray[Any, numpy.dtype[numpy.uint32]]


def checked(sizes: Any) -> Sizes:
    """Return ``sizes`` as uint32.

    Raises:
        DataError: They are not one-dimensional; one of them is negative, fractional, no number or not below 2**32.
            The message names the first such sample.
        DTypeError: They are no numbers.
    """
    array = numpy.asarray(sizes)
    if array.ndim != 1:
        raise DataError(f"sizes have shape {array.shape}; expected one number for each sample")
    if array.dtype == numpy.uint32:
        return numpy.ascontiguousarray(array)
    if array.dtype.kind not in "iuf":
        raise DTypeError(f"sizes have type {array.dtype}; expected integers")
    # One look at all of them; which one is wrong is asked only where one is. No number is not at least 0.
    whole = array.dtype.kind != "f" or (array == numpy.floor(array)).all()
    if len(array) and not (whole and array.min() >= 0 and array.max() <= U32):
        wrong = ~((array >= 0) & (array <= U32) & (array == numpy.floor(array)))
        sample = int(wrong.argmax())
        raise DataError(
            f"sample {sample} has size {array[sample]}; expected a whole number, at least 0 and below 2**32"
        )
    return array.astype(numpy.uint32)


def read(sizes: Any) -> Sizes:
    """Return sizes that the engine lends."""
    return numpy.asarray(numpy.from_dlpack(sizes), dtype=numpy.uint32)
