"""Some rows of tables as a dataset: the rows that an object shows, without those whose nulls are left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import DataError, DTypeError
from batchloom.formats.arrays import choose_for_kind
from batchloom.formats.arrow_tables import MappedTable, hold_table, open_tables
from batchloom.formats.kinds import GROUPS, TOKENS, WINDOWS
from batchloom.formats.options import OpenOptions

Array = numpy.ndarray[Any, Any]

# Kinds whose samples are not rows: a selection of rows is made before them.
OF_OTHER_SAMPLES = (GROUPS, TOKENS, WINDOWS)


def open_some(
    tables: Sequence[MappedTable],
    indices: Array | None,
    options: OpenOptions,
    change: Callable[[Dataset[Any]], Dataset[Any]] = lambda dataset: dataset,
) -> Dataset[Any]:
    """Return the dataset of tables, or of some of their rows.

    Args:
        tables: The tables.
        indices: The rows that are shown; ``None`` for all.
        options: The options, which may leave out rows with nulls.
        change: Returns the dataset that rows are selected of, of the one that has them all.
    """
    if options.drops_nulls:
        columns = choose_for_kind(tables[0].table.column_names, options, tables[0].path).values()
        wanted = list(dict.fromkeys(name for column in columns for name in column.names))
        indices = leave_out_nulls([(each.path, each.table) for each in tables], wanted, indices)
    if indices is not None and options.kind in OF_OTHER_SAMPLES:
        tables, indices = [_take_rows(tables, indices)], None
    if indices is None:
        return change(open_tables(tables, options))
    shown = numpy.zeros(sum(each.table.num_rows for each in tables), numpy.bool_)
    shown[indices] = True
    return change(open_tables(tables, options, shown)).select(indices)


def leave_out_nulls(named: Sequence[tuple[str, Any]], columns: Sequence[str], indices: Array | None) -> Array | None:
    """Return the rows that are shown, without rows that have a null.

    Args:
        named: The name and the table of each file.
        columns: The columns that are looked at.
        indices: The rows that are shown; ``None`` for all.

    Raises:
        DataError: A table is damaged, or all rows have nulls.
    """
    from batchloom.formats.kept_rows import find_kept

    kept = find_kept(named, columns)
    if kept.all():
        return indices
    return numpy.flatnonzero(kept) if indices is None else indices[kept[indices]]


def _take_rows(tables: Sequence[MappedTable], indices: Array) -> MappedTable:
    """Return rows of tables, copied.

    Raises:
        DataError: A table is damaged.
        DTypeError: A column has a type whose rows pyarrow does not take.
    """
    import pyarrow
    from batchloom.formats.sound import SoundArrays

    sound = SoundArrays()
    for each in tables:
        for name, column in zip(each.table.column_names, each.table.columns, strict=True):
            for chunk in column.chunks:
                if found := sound.find_unsound(chunk):
                    raise DataError(f"column {name} of {each.path} is damaged: {found[1]}")
    try:
        whole = pyarrow.concat_tables([each.table for each in tables]).take(pyarrow.array(indices))
    except pyarrow.ArrowException as error:
        raise DTypeError(f"rows of {tables[0].path} cannot be taken: {error}; expected other columns") from None
    return hold_table(tables[0].path, whole)
