"""Rows of mapped files of Arrow, as plain values for a function.

Promise: a row is made when its batch is formed, over the map of its file. Rows have places, so all are shuffled at
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError
from batchloom.formats.arrow_selections import leave_out_nulls
from batchloom.formats.arrow_tables import map_whole, read_stored, refuse_chunk_options, require_same_columns
from batchloom.formats.items import open_items
from batchloom.formats.options import OpenOptions
from batchloom.formats.several import require_rows
from batchloom.formats.table_rows import MappedRows, choose_values


class OpenArrowFiles:
    """Opens the tables of files; it pickles, and other processes open them again.

    Args:
        files: The paths.
    """

    def __init__(self, files: Sequence[str]) -> None:
        self._files = tuple(files)

    def __call__(self) -> list[tuple[str, Any]]:
        """Return the name and the table of each file."""
        return [(file, read_stored(file, map_whole(file))) for file in self._files]


def open_mapped_rows(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of the samples that a function makes of the rows of files.

    Raises:
        ArgumentError: A column does not exist, or options are for chunks.
        DataError: A file is damaged, differs from the first one, or holds no row.
        DTypeError: Columns differ in type.
    """
    return open_table_rows(OpenArrowFiles(files), None, options)


def open_table_rows(open_tables: Any, indices: Any, options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of the samples that a function makes of rows of mapped tables.

    Args:
        open_tables: Returns the name and the table of each file; it pickles.
        indices: The rows that are shown; ``None`` for all.
        options: The options.
    """
    named = open_tables()
    (first, table), *others = named
    if options.memory is not None:
        raise ArgumentError(
            f"memory is {options.memory!r}, and fn reads rows of {first} one by one from its map, where loaders count "
            "no page: the system takes pages back when it needs them; expected no memory, or no fn"
        )
    refuse_chunk_options(options, first, ("chunks_open",))
    require_rows(sum(each.num_rows for _, each in named), first)
    columns = choose_values(table.schema.names, options, first)
    wanted = list(dict.fromkeys(columns.values()))
    for other, found in others:
        require_same_columns(first, table.schema, other, found.schema, wanted, takes_all=options.columns is None)
    if options.drops_nulls:
        indices = leave_out_nulls(named, wanted, indices)
    return open_items(MappedRows(open_tables, columns, options.fills, indices), options)
