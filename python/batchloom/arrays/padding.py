"""Pad values, as bytes of the type of each field."""

from __future__ import annotations

from typing import Any

from batchloom.arrays.frameworks import load
from batchloom.errors import ArgumentError


def pad_values(fields: dict[str, str], pad_value: Any) -> list[tuple[str, bytes]]:
    """Return the bytes of one element of padding, for each field whose padding is not zeros.

    Args:
        fields: The types of padded fields, by name.
        pad_value: One value for all fields, or values by the names of padded fields.

    Raises:
        ArgumentError: The type of a field cannot hold the value.
    """
    if not isinstance(pad_value, dict):
        if type(pad_value) is int and pad_value == 0:
            return []  # the engine pads with zeros, which every type has
        pad_value = dict.fromkeys(fields, pad_value)
    return [(name, element(name, fields[name], value)) for name, value in pad_value.items()]


def element(label: str, dtype: str, value: Any) -> bytes:
    """Return the bytes of ``value`` as one element of type ``dtype``.

    Raises:
        ArgumentError: The type cannot hold the value.
    """
    try:
        return _element(dtype, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(f"pad_value is {value!r}, which field {label} of {dtype} cannot hold: {error}") from None


def _element(dtype: str, value: Any) -> bytes:
    try:
        found: bytes = load("numpy").element(dtype, value)
    except ModuleNotFoundError:
        # NumPy has the type only through ml_dtypes, which is not installed: the array came from torch.
        found = load("torch").element(dtype, value)
    return found
