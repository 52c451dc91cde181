"""Copies of arguments, which later changes in place do not reach."""

from __future__ import annotations

from typing import Any

from batchloom.arrays.frameworks import owner


def copy_argument(value: Any) -> Any:
    """Return an argument as it is now: later changes in place do not reach it.

    Lists, dicts, arrays and frames of pandas are copied; any other value is returned as it is.
    """
    if isinstance(value, dict):
        return {name: copy_argument(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(value)
    if hasattr(value, "iloc"):
        return value.copy()
    framework = owner(value)
    return value if framework is None else framework.copy(value)
