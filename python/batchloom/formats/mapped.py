"""`map_bytes`: an array at a place in a file, mapped.

Promise: an array that leaves its part of the file, or the file, is an error and never mapped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy
from batchloom.errors import DataError


def map_bytes(
    path: str, start: int, end: int, dtype: Any, shape: Sequence[int], label: str, *, is_fortran: bool = False
) -> Any:
    """Return an array over bytes of a file, read-only; an array without elements is in memory.

    Args:
        path: The file.
        start: The place of its first byte.
        end: The end of the part of the file that it may take.
        dtype: The type of its elements.
        shape: The lengths of its dimensions.
        label: Its name in messages.
        is_fortran: ``True`` if its first dimension is the innermost one.

    Raises:
        DataError: Lengths are negative, or the array leaves its part of the file.
    """
    shape, dtype = tuple(shape), numpy.dtype(dtype)
    if any(length < 0 for length in shape):
        raise DataError(f"{label} in {path} has shape {list(shape)}; expected lengths from 0 on")
    size = math.prod(shape) * dtype.itemsize
    limit = min(end, os.stat(path).st_size)
    if not 0 <= start <= start + size <= limit:
        raise DataError(
            f"{label} in {path} takes bytes {start} to {start + size}, and the file has them to {limit}; expected a "
            "whole file"
        )
    order: Any = "F" if is_fortran else "C"
    if not size:
        return numpy.zeros(shape, dtype, order)
    return numpy.memmap(path, dtype, "r", start, shape, order)
