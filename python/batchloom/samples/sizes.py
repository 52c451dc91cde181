"""Sizes of samples that the user gives: checks, and conversion for the engine."""

from __future__ import annotations

from typing import Any

import numpy
from batchloom.arguments import U32
from batchloom.errors import DataError
from batchloom.samples.per_sample import read_each

Sizes = numpy.ndarray[Any, numpy.dtype[numpy.uint32]]


class HasSizes:
    """The base class of datasets, as rules see them."""

    @property
    def sizes(self) -> Sizes | None:
        """The size of each sample; ``None`` if all count the same."""
        return None


def check_sizes(sizes: Any, name: str, most_dimensions: int = 1, samples: int | None = None) -> Sizes:
    """Return ``sizes`` as uint32, one for each of ``samples`` where their number is given.

    Raises:
        DataError: The number of dimensions or of sizes is wrong; or a size is negative, fractional, NaN or not below
            2**32. The message names the first such sample.
        DTypeError: The sizes are not numbers.
    """
    array = read_each(
        name, sizes, "iuf", samples, expected="integers, one for each sample", most_dimensions=most_dimensions
    )
    if array.dtype == numpy.uint32:
        return numpy.ascontiguousarray(array)
    if array.dtype.kind == "f":
        array = array.astype(numpy.float64)
    # All sizes are checked at once; the wrong one is searched only if there is one. NaN is not at least 0.
    whole = array.dtype.kind != "f" or (array == numpy.floor(array)).all()
    if array.size and not (whole and array.min() >= 0 and array.max() <= U32):
        wrong = ~((array >= 0) & (array <= U32) & (array == numpy.floor(array)))
        sample = int(wrong.reshape(len(array), -1).any(axis=1).argmax())
        raise DataError(
            f"sample {sample} has size {array[sample]}; expected a whole number, at least 0 and below 2**32"
        )
    return numpy.ascontiguousarray(array, numpy.uint32)


def longest(offsets: numpy.ndarray[Any, Any], samples: int) -> int:
    """Return the most elements of ``samples`` neighbours, for samples that begin at ``offsets``."""
    return int((offsets[samples:] - offsets[: len(offsets) - samples]).max())


def read_sizes(sizes: Any) -> Sizes:
    """Return sizes of the engine as an array of NumPy, without a copy."""
    return numpy.asarray(numpy.from_dlpack(sizes), dtype=numpy.uint32)


def copy_offsets(label: str, places: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Return a copy of offsets as int64.

    Raises:
        DataError: One is too large for any array.
    """
    copy = places.astype(numpy.int64)
    if places.dtype.kind == "u" and (copy < 0).any():
        at = int((copy < 0).argmax())
        raise DataError(f"{label}: offset {at} is {places[at]}; expected numbers of values, which are less than 2**63")
    return copy
