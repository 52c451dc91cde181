"""The argument ``own_lengths``: which fields differ in size from the rest, and which of them share their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from batchloom.errors import ArgumentError

OwnLengths = list[tuple[str, list[str]]]
"""The names of sizes, and the fields that share each of them."""


def read_own_lengths(own_lengths: Any) -> OwnLengths:
    """Return the sizes that the argument names.

    Raises:
        ArgumentError: It is neither a list of names of fields nor a dict of such lists.
    """
    if isinstance(own_lengths, Mapping):
        shared = {name: (fields,) if isinstance(fields, str) else fields for name, fields in own_lengths.items()}
        if all(map(_are_names, (shared, *shared.values()))):
            return [(name, list(fields)) for name, fields in shared.items()]
    elif _are_names(own_lengths):
        return [(name, [name]) for name in own_lengths]
    raise ArgumentError(
        f"own_lengths is {own_lengths!r}; expected names of fields, as ('target',), or names of sizes with the fields "
        "that share them, as {'edges': ('edge_index', 'edge_attr')}"
    )


def list_fields(own_lengths: OwnLengths) -> list[str]:
    """Return the names of the fields with separate sizes."""
    return [field for _, fields in own_lengths for field in fields]


def _are_names(names: Any) -> bool:
    """Return whether these are names; a single text is none."""
    return isinstance(names, Iterable) and not isinstance(names, str) and all(isinstance(name, str) for name in names)
