"""Pad values, as bytes of the type of each field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchloom.arrays.frameworks import DEFAULT_FRAMEWORK, DEVICE_FRAMEWORK, load
from batchloom.errors import ArgumentError


def pad_values(fields: Mapping[str, str], pad_value: Any, pads: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the bytes of one element of padding, for each field that is given a value.

    Args:
        fields: The types of padded fields, by name.
        pad_value: The value for all other fields. The engine pads with 0 by itself, which every type has.
        pads: Values by the names of fields.

    Raises:
        ArgumentError: The type of a field cannot hold its value.
    """
    is_zero = type(pad_value) is int and pad_value == 0
    others = {} if is_zero else {name: dtype for name, dtype in fields.items() if name not in pads}
    elements = {name: element("pad_value", name, dtype, pad_value) for name, dtype in others.items()}
    own = {name: element("pad", name, fields[name], pad) for name, pad in pads.items() if name in fields}
    return elements | own


def element(option: str, field: str, dtype: str, value: Any) -> bytes:
    """Return the bytes of ``value`` as one element of type ``dtype``.

    Raises:
        ArgumentError: The type cannot hold the value.
    """
    try:
        return _element(dtype, value)
    except (ValueError, TypeError, OverflowError) as error:
        remedy = "; give the field a pad of its own by bl.Field(pad=...)" if option == "pad_value" else ""
        found = f"{option} is {value!r}, which field {field} of {dtype} cannot hold: {error}"
        raise ArgumentError(found + remedy) from None


def _element(dtype: str, value: Any) -> bytes:
    try:
        return load(DEFAULT_FRAMEWORK).element(dtype, value)
    except ModuleNotFoundError:
        # NumPy has the type only through ml_dtypes, which is not installed: the array came from torch.
        return load(DEVICE_FRAMEWORK).element(dtype, value)
