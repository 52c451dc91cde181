"""Columns of ``datasets`` as their files hold them: numbers, and lists of numbers, without a copy.

pyarrow is imported for such a column alone.
"""

from __future__ import annotations

from typing import Any


def read_stored_column(column: Any) -> Any:
    """Return the numbers, or the lists of numbers, that a column of ``datasets`` holds, in the memory of Arrow.

    Integers become int64, as tensors of ``datasets`` are. ``None`` for all other objects: columns of texts, and columns
    that a format converts, too.
    """
    source: Any = getattr(column, "source", None) if hasattr(column, "column_name") else None
    if not hasattr(source, "with_format") or source.format["type"] is not None:
        return None
    name = column.column_name
    stored = source.with_format("arrow", columns=[name])[:][name]
    wide = _widen_type(stored.type)
    return None if wide is None else stored.cast(wide)


def _widen_type(stored: Any) -> Any:
    """Return a type of Arrow with int64 for its integers; ``None`` for types that hold no numbers."""
    import pyarrow

    kinds = pyarrow.types
    if kinds.is_integer(stored):
        return stored if kinds.is_uint64(stored) else pyarrow.int64()
    if kinds.is_floating(stored) or kinds.is_boolean(stored):
        return stored
    if not (kinds.is_list(stored) or kinds.is_large_list(stored) or kinds.is_fixed_size_list(stored)):
        return None
    inner = _widen_type(stored.value_type)
    if inner is None:
        return None
    if kinds.is_fixed_size_list(stored):
        return pyarrow.list_(inner, stored.list_size)
    return pyarrow.large_list(inner) if kinds.is_large_list(stored) else pyarrow.list_(inner)
