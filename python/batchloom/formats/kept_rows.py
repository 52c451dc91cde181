"""Rows that `nulls="drop"` keeps: those without a null in a chosen column, or in the lists of one.

Promise: a dataset of files has them as a selection, in the order of the files. A chunk is read for it only if its file
counts nulls in a chosen column, or does not count them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy
import pyarrow
import pyarrow.compute
from batchloom.dataset.base import Dataset
from batchloom.errors import DataError
from batchloom.formats.arrow_columns import find_nulls, has_null_category, mark_nulls
from batchloom.formats.arrow_memory import numbers_of
from batchloom.formats.arrow_tables import flatten_table
from batchloom.formats.arrow_types import is_list, numbers_of_type, storage_of
from batchloom.formats.sound import SoundArrays
from batchloom.formats.table_rows import TableFile

Array = numpy.ndarray[Any, Any]


class CountedFile(TableFile, Protocol):
    """A file of tables that counts nulls."""

    def may_have_nulls(self, number: int, columns: Sequence[str]) -> bool:
        """Return whether columns of a table may have nulls, or their lists may."""


def find_kept_in_chunks(files: Sequence[CountedFile], columns: Sequence[str]) -> Array:
    """Return ``True`` for each row of files without a null in some columns.

    Raises:
        DataError: A table is damaged, or all rows have nulls.
    """
    parts = []
    for file in files:
        for number, rows in enumerate(file.rows):
            if rows and file.may_have_nulls(number, columns):
                table = file.decode(number)
                is_flat = not set(columns) <= set(table.column_names)
                parts.append(_find_kept(file.name(number), flatten_table(table) if is_flat else table, columns))
            else:
                parts.append(numpy.ones(rows, numpy.bool_))
    return _require_some(numpy.concatenate(parts), files[0].path)


def find_kept(named: Sequence[tuple[str, Any]], columns: Sequence[str]) -> Array:
    """Return ``True`` for each row of tables without a null in some columns.

    Args:
        named: The name and the table of each file.
        columns: The columns.

    Raises:
        DataError: A table is damaged, or all rows have nulls.
    """
    return _require_some(numpy.concatenate([_find_kept(*each, columns) for each in named]), named[0][0])


def keep(dataset: Dataset[Any], kept: Array) -> Dataset[Any]:
    """Return a dataset of the rows that are kept."""
    return dataset if kept.all() else dataset.select(numpy.flatnonzero(kept))


def _require_some(kept: Array, where: str) -> Array:
    if len(kept) and not kept.any():
        raise DataError(f"every row of {where} has a null, and of files beside it; expected rows without: columns=")
    return kept


def _find_kept(name: str, table: Any, columns: Sequence[str]) -> Array:
    kept = numpy.ones(len(table), numpy.bool_)
    sound = SoundArrays()
    for column in columns:
        start = 0
        for chunk in table.column(column).chunks:
            if _may_have_nulls(chunk):
                if found := sound.find_unsound(chunk):
                    raise DataError(f"row {start + found[0]} of {name}, column {column}: it is damaged: {found[1]}")
                kept[start + _find_null_rows(chunk)] = False
            start += len(chunk)
    return kept


def _may_have_nulls(array: Any) -> bool:
    while isinstance(array, pyarrow.ExtensionArray):
        array = array.storage
    return (
        bool(array.null_count)
        or has_null_category(array)
        or (_is_any_list(array.type) and _may_have_nulls(array.values))
    )


def _is_any_list(kind: Any) -> bool:
    kind = storage_of(kind)
    return pyarrow.types.is_fixed_size_list(kind) or is_list(numbers_of_type(kind))


def _find_null_rows(array: Any) -> Array:
    """Return the rows of an array that are null, or have a null in their lists."""
    while isinstance(array, pyarrow.ExtensionArray):
        array = array.storage
    found = find_nulls(mark_nulls(array) if has_null_category(array) else array)
    if not _is_any_list(array.type) or not _may_have_nulls(array.values):
        return found
    rows = numbers_of(pyarrow.compute.list_parent_indices(array))
    return numpy.union1d(found, rows[_find_null_rows(array.flatten())])
