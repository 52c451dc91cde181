"""Names of the types of elements, as users write them."""

from __future__ import annotations

from typing import Any

import numpy
from batchloom.errors import ArgumentError


def dtype_name(value: Any) -> str:
    """Return the name of an element type."""
    if isinstance(value, str):
        return value.removeprefix("torch.")
    name = str(value)
    if name.startswith("torch."):
        return name.removeprefix("torch.")
    if isinstance(value, type) and value in (bool, int, float, complex):
        raise ArgumentError(f"dtype is {value.__name__}, which does not say how many bits; expected as 'float32'")
    try:
        return str(numpy.dtype(value).name)
    except TypeError:
        raise ArgumentError(f"dtype is {value!r}; expected the name of an element type, as 'float32'") from None
