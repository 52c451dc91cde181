"""Types of Arrow: what a field makes of each, and which make no tensor.

Promise: types that differ only in names of inner fields, in what may be null, or in the width of offsets are the same.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from typing import Any

import pyarrow
from pyarrow import types

# What a field makes of a type.
NUMBERS, BITS, TIMES, CODES, OBJECTS, ROWS, LISTS = "numbers", "bits", "times", "codes", "objects", "rows", "lists"

STRINGS = (types.is_string, types.is_large_string, types.is_string_view)
BYTES = (types.is_binary, types.is_large_binary, types.is_binary_view)
TEXTS = (*STRINGS, *BYTES)
_TIMES = (types.is_timestamp, types.is_duration, types.is_date, types.is_time)
_LISTS = (types.is_list, types.is_large_list)


# The fields of a struct that `datasets` stores an image or a sound as.
CONTENTS, PATH = "bytes", "path"


def holds_file(kind: Any) -> bool:
    """Return whether values of a type are files: structs of their contents and their path, as `datasets` has images."""
    if not types.is_struct(kind) or {field.name for field in kind} != {CONTENTS, PATH} or kind.num_fields != 2:
        return False
    contents, path = kind.field(CONTENTS).type, kind.field(PATH).type
    return any(check(contents) for check in BYTES) and any(check(path) for check in STRINGS)


@cache
def is_list(kind: Any) -> bool:
    """Return whether values of a type are lists of any length."""
    return any(check(kind) for check in _LISTS)


@cache  # a column has thousands of arrays of one type
def describe_type(kind: Any) -> str | None:
    """Return what a field makes of a type; ``None`` for a type that makes no tensor."""
    if list(getattr(kind, "permutation", None) or []) != sorted(getattr(kind, "permutation", None) or []):
        return None  # a tensor whose dimensions are stored in another order
    kind = numbers_of_type(kind)
    if types.is_boolean(kind):
        return BITS
    if types.is_integer(kind) or types.is_floating(kind):
        return NUMBERS
    if any(check(kind) for check in _TIMES):
        return TIMES
    if types.is_dictionary(kind):
        inner = describe_type(kind.value_type)
        is_bytes = types.is_fixed_size_binary(kind.value_type)
        return CODES if inner in (NUMBERS, BITS, TIMES, OBJECTS) or is_bytes else None
    if any(check(kind) for check in TEXTS) or holds_file(kind):
        return OBJECTS
    if types.is_fixed_size_list(kind):
        return ROWS if describe_type(kind.value_type) in (NUMBERS, BITS, TIMES, ROWS) else None
    if is_list(kind):
        inner = describe_type(kind.value_type)
        return OBJECTS if inner == OBJECTS else LISTS if inner in (NUMBERS, BITS, TIMES, ROWS, LISTS) else None
    return None


def storage_of(kind: Any) -> Any:
    """Return the type in which values are stored: of an extension, the one below it."""
    while isinstance(kind, pyarrow.BaseExtensionType):
        kind = kind.storage_type
    return kind


def numbers_of_type(kind: Any) -> Any:
    """Return the type in which a field takes values: bytes of one size are rows, views of lists are lists."""
    kind = storage_of(kind)
    if types.is_list_view(kind):
        return pyarrow.list_(kind.value_type)
    if types.is_large_list_view(kind):
        return pyarrow.large_list(kind.value_type)
    return pyarrow.list_(pyarrow.uint8(), kind.byte_width) if types.is_fixed_size_binary(kind) else kind


def has_list_views(kind: Any) -> bool:
    """Return whether values of a type, or what is in them, are views of lists."""
    kind = storage_of(kind)
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return types.is_list_view(kind) or types.is_large_list_view(kind) or any(map(has_list_views, inner))


def fixed_shape(field: Any) -> tuple[int, ...] | None:
    """Return the shape of the values of a field of an extension type, if it has one for all of them.

    The arrays of `datasets` are such a type where that package was imported; else their shape is in the metadata.
    """
    shape = getattr(field.type, "shape", None) if isinstance(field.type, pyarrow.BaseExtensionType) else None
    metadata = field.metadata or {}
    if metadata.get(b"ARROW:extension:name", b"").startswith(b"datasets."):
        with suppress(ValueError, TypeError):
            shape, _ = json.loads(metadata[b"ARROW:extension:metadata"])
    if not isinstance(shape, list | tuple) or not all(isinstance(length, int) and length >= 0 for length in shape):
        return None
    return tuple(shape)


def are_same(first: Any, other: Any) -> bool:
    """Return whether two types hold the same values."""
    if first == other:
        return True
    first, other = (numbers_of_type(kind) if has_list_views(kind) else storage_of(kind) for kind in (first, other))
    if is_list(first) and is_list(other):
        return are_same(first.value_type, other.value_type)
    if types.is_fixed_size_list(first) and types.is_fixed_size_list(other):
        return first.list_size == other.list_size and are_same(first.value_type, other.value_type)
    if types.is_dictionary(first) or types.is_dictionary(other):
        return are_same(_value_type(first), _value_type(other))
    for checks in (STRINGS, BYTES):
        if any(check(first) for check in checks) and any(check(other) for check in checks):
            return True
    both_times = describe_type(first) == describe_type(other) == TIMES
    return bool(first == other) or (both_times and type(first) is type(other))


def _value_type(kind: Any) -> Any:
    return kind.value_type if types.is_dictionary(kind) else kind
