"""Rows of Parquet, a row group at a time: as plain values for a function, or as fields where columns hold texts.

Promise: files that differ in the columns that are read, and nulls that the footer counts, are errors before the first
batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from batchloom.dataset.base import Dataset
from batchloom.dataset.map.map_dataset import MapDataset
from batchloom.formats.arrow_columns import require_type
from batchloom.formats.arrow_tables import flatten_schema, require_same_columns
from batchloom.formats.columns import ChosenColumn
from batchloom.formats.items import open_items
from batchloom.formats.kept_rows import find_kept_in_chunks, keep
from batchloom.formats.lists import Lengths
from batchloom.formats.options import OpenOptions
from batchloom.formats.row_groups import GroupFile, open_groups
from batchloom.formats.several import require_rows
from batchloom.formats.table_rows import MakeFieldRows, MakePlainRows, TableChunks, choose_values


def open_rows(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of the samples that a function makes of rows.

    Raises:
        ArgumentError: A column does not exist, or options exclude each other.
        DataError: A file is damaged, differs from the first one, or holds no row.
        DTypeError: Columns differ in type.
    """
    opened = [open_groups(file) for file in files]
    require_rows(sum(sum(file.rows) for file in opened), files[0])
    columns = choose_values(opened[0].schema.names, options, files[0])
    wanted = list(dict.fromkeys(columns.values()))
    require_same_files(opened, wanted, takes_all=options.columns is None)
    chunks = TableChunks([file.reading(wanted) for file in opened], MakePlainRows(columns, options.fills))
    dataset = open_items(chunks, options)
    return keep(dataset, find_kept_in_groups(opened, wanted)) if options.drops_nulls else dataset


def find_kept_in_groups(opened: Sequence[GroupFile], wanted: Sequence[str]) -> Any:
    """Return ``True`` for each row of files without a null in some columns.

    Raises:
        DataError: A row group is damaged, or all rows have nulls.
    """
    return find_kept_in_chunks([file.reading(wanted) for file in opened], wanted)


def open_groups_of_fields(
    files: Sequence[str], chosen: Mapping[str, ChosenColumn], options: OpenOptions, lengths: Lengths | None
) -> Dataset[Any]:
    """Return the dataset of rows of fields, some of which hold texts.

    Raises:
        ArgumentError: Memory holds too few row groups.
        DataError: A file is damaged, differs from the first one, or has nulls.
        DTypeError: A column makes no tensor, or differs in type.
    """
    opened = [open_groups(file) for file in files]
    wanted = list(dict.fromkeys(name for column in chosen.values() for name in column.names))
    # The columns of structs have dotted names, and are of one type where the structs are.
    roots = list(dict.fromkeys(name if name in opened[0].schema.names else name.partition(".")[0] for name in wanted))
    require_same_files(opened, roots, takes_all=options.columns is None)
    schema = flatten_schema(opened[0].schema)
    for name in wanted:
        require_type(name, schema.field(name).type, opened[0].path)
    chunks = TableChunks([file.reading(wanted) for file in opened], MakeFieldRows(chosen, options))
    if not options.drops_nulls:
        _require_no_nulls(opened, chunks, wanted)
    window = {name: getattr(options, name) for name in ("chunks_open", "memory")}
    sized = {} if lengths is None else {"sizes": lengths.each, "columns": lengths.fields}
    dataset = MapDataset(chunks, on_error=options.on_error or "raise", **window, **sized)
    return keep(dataset, find_kept_in_groups(opened, wanted)) if options.drops_nulls else dataset


def require_same_files(opened: Sequence[GroupFile], wanted: Sequence[str], *, takes_all: bool) -> None:
    """Refuse files that differ from the first one in the columns that are read.

    Raises:
        DataError: Names differ.
        DTypeError: Types differ.
    """
    first = opened[0]
    for other in opened[1:]:
        require_same_columns(first.path, first.schema, other.path, other.schema, wanted, takes_all=takes_all)


def _require_no_nulls(opened: Sequence[GroupFile], chunks: TableChunks, wanted: Sequence[str]) -> None:
    """Refuse nulls that footers count and that no value stands for.

    Raises:
        DataError: There is one; its row group is read, to name its row.
    """
    groups = [(file, number) for file in opened for number, rows in enumerate(file.rows) if rows]
    for chunk, (file, number) in enumerate(groups):
        if file.has_nulls(number, wanted):
            chunks.read_chunk(chunk)
