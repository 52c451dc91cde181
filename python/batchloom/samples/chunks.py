"""Sizes of chunks that the user gives: checks, and conversion for the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from batchloom.errors import DataError
from batchloom.samples.per_sample import read_each

PerChunk = Sequence[int] | numpy.ndarray[Any, Any]
"""One number for each chunk."""

# Sums of sizes below this limit do not overflow: no plan has as many samples.
MOST = 2**62


def check_chunks(sizes: PerChunk, name: str = "chunks") -> numpy.ndarray[Any, numpy.dtype[numpy.uint64]]:
    """Return the number of samples in each chunk as uint64.

    Args:
        sizes: The number of samples in each chunk.
        name: The name of the argument in messages.

    Raises:
        DataError: There is more than one dimension; or a size is negative, fractional, NaN or above 2**62. The message
            names the first such chunk.
        DTypeError: The sizes are not numbers.
    """
    array = read_each(name, sizes, "iuf", expected="integers, the number of samples in each chunk")
    wrong = ~((array >= 0) & (array <= MOST) & (array == numpy.floor(array)))
    if wrong.any():
        chunk = int(wrong.argmax())
        raise DataError(f"chunk {chunk} has size {array[chunk]}; expected a whole number of samples, at least 0")
    total = sum(map(int, array[array > MOST / max(len(array), 1)])) if len(array) else 0
    if total > MOST:
        raise DataError(f"the sizes of {len(array)} chunks add up to {total} samples and more; expected at most {MOST}")
    return numpy.ascontiguousarray(array, numpy.uint64)
