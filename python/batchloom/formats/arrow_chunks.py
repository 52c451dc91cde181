"""Compressed files of Arrow IPC: a record batch is a chunk, which is decoded when the plan needs it.

Promise: nulls are refused by what the headers of batches count, before a value is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import pyarrow
from batchloom.dataset.base import Dataset
from batchloom.dataset.map.chunk_dataset import ChunkDataset
from batchloom.dataset.map.map_dataset import MapDataset
from batchloom.dataset.samples import MAPPED
from batchloom.dataset.tables import ATTENTION
from batchloom.errors import ArgumentError, DataError, DTypeError
from batchloom.formats.arrays import choose_for_kind
from batchloom.formats.arrow_batches import BatchFile, open_batches
from batchloom.formats.arrow_columns import require_type
from batchloom.formats.arrow_tables import flatten_schema, flatten_table, require_nulls_named, require_same_columns
from batchloom.formats.arrow_types import BITS, CODES, LISTS, OBJECTS, TIMES, describe_type, numbers_of_type
from batchloom.formats.arrow_types import ROWS as FIXED
from batchloom.formats.columns import ChosenColumn
from batchloom.formats.items import FileReader, open_items
from batchloom.formats.kept_rows import find_kept_in_chunks, keep
from batchloom.formats.kinds import ROWS, SEQUENCES, fix_length, require_ones, warn_of_ones
from batchloom.formats.lists import Lists
from batchloom.formats.options import OpenOptions
from batchloom.formats.places import Places
from batchloom.formats.several import require_rows
from batchloom.formats.table_rows import (
    MakeFieldRows,
    MakePlainRows,
    TableChunks,
    choose_values,
    read_table_fields,
)

Array = numpy.ndarray[Any, Any]


def open_compressed(
    files: Sequence[str], sources: Sequence[FileReader], memories: Sequence[Array], options: OpenOptions
) -> Dataset[Any]:
    """Return the dataset of files, some or all of them compressed.

    Raises:
        ArgumentError: A column does not exist, or the kind takes no chunks.
        DataError: Columns differ, or a file is damaged.
        DTypeError: A column makes no tensor, or differs in type.
    """
    if options.kind not in (None, ROWS, SEQUENCES):
        raise ArgumentError(
            f"kind is {options.kind!r}, and {files[0]} is compressed, which is read in chunks; expected 'rows' or "
            f"'sequences', or {MAPPED}"
        )
    opened = [open_batches(*each) for each in zip(files, sources, memories, strict=True)]
    if options.fn is not None:
        return _open_rows(opened, options)
    schema = flatten_schema(opened[0].schema)
    chosen = choose_for_kind(schema.names, options, files[0])
    wanted = list(dict.fromkeys(name for column in chosen.values() for name in column.names))
    require_nulls_named(options.fills, schema.names, files[0])
    for each in opened[1:]:
        other = flatten_schema(each.schema)
        require_same_columns(files[0], schema, each.path, other, wanted, takes_all=options.columns is None)
    kinds = {name: require_type(name, schema.field(name).type, files[0]) for name in wanted}
    lists = [field for field, column in chosen.items() if kinds[column.name] == LISTS]
    has_lengths = bool(lists) and options.kind != ROWS
    if has_lengths and ATTENTION in lists:
        BatchChunks(opened, {ATTENTION: chosen.pop(ATTENTION)}, options).require_ones()
        lists.remove(ATTENTION)
    chunks = BatchChunks(opened, chosen, options)
    if not options.drops_nulls:
        chunks.require_no_nulls()
    kept = find_kept_in_chunks(opened, wanted) if options.drops_nulls else numpy.ones(1, numpy.bool_)
    lengths = chunks.read_lengths(lists) if has_lengths else None
    columns = lists if has_lengths else None
    window = {name: getattr(options, name) for name in ("memory", "chunks_open", "on_error") if name in options.given}
    if OBJECTS in (kinds[name] if kinds[name] != CODES else _describe_codes(schema, name) for name in wanted):
        rows = TableChunks(opened, MakeFieldRows(chosen, options))
        return keep(MapDataset(rows, sizes=lengths, columns=columns, **window, **options.more), kept)
    dataset = ChunkDataset(chunks.sizes, chunks, lengths=lengths, columns=columns, **window, **options.more)
    return keep(dataset, kept)


def _name_type(schema: Any, column: ChosenColumn) -> str:
    """Return the type of a field in the words that the engine has for the types of files."""
    kind, extent, is_list = _decoded(schema.field(column.name).type), 1, False
    is_row = describe_type(kind) == FIXED
    while describe_type(kind) in (FIXED, LISTS):
        if describe_type(kind) == LISTS:
            is_list = True
        else:
            extent *= kind.list_size
        kind = _decoded(kind.value_type)
    dtype = "int64" if describe_type(kind) == TIMES else "bool" if describe_type(kind) == BITS else str(kind)
    name = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(dtype, dtype)
    if is_list:
        return f"lists of {name}"
    return f"rows of {extent * len(column.names)} {name}" if column.joined or is_row else name


def _decoded(kind: Any) -> Any:
    """Return the type in which a field takes values, without categories."""
    kind = numbers_of_type(kind)
    return numbers_of_type(kind.value_type) if pyarrow.types.is_dictionary(kind) else kind


def _describe_codes(schema: Any, name: str) -> str | None:
    """Return what a field makes of the values of a column of categories."""
    return describe_type(_decoded(schema.field(name).type))


def _open_rows(opened: Sequence[BatchFile], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of the samples that a function makes of rows, a record batch at a time."""
    first = opened[0]
    require_rows(sum(sum(file.rows) for file in opened), first.path)
    columns = choose_values(first.schema.names, options, first.path)
    wanted = list(dict.fromkeys(columns.values()))
    for each in opened[1:]:
        takes_all = options.columns is None
        require_same_columns(first.path, first.schema, each.path, each.schema, wanted, takes_all=takes_all)
    dataset = open_items(TableChunks(opened, MakePlainRows(columns, options.fills)), options)
    return keep(dataset, find_kept_in_chunks(opened, wanted)) if options.drops_nulls else dataset


class BatchChunks:
    """The record batches of files as the chunks of a dataset; calling it reads one.

    Attributes:
        sizes: The rows of each chunk.
        types: The type of each field in words.
    """

    def __init__(self, files: Sequence[BatchFile], chosen: Mapping[str, ChosenColumn], options: OpenOptions) -> None:
        self._chosen, self._options = chosen, options
        schema = flatten_schema(files[0].schema)
        self.types = {field: _name_type(schema, column) for field, column in chosen.items()}
        self._batches = [(file, number) for file in files for number, rows in enumerate(file.rows) if rows]
        self.sizes = [file.rows[number] for file, number in self._batches]

    def __call__(self, chunk: int) -> dict[str, Any]:
        """Return the fields of a chunk.

        Raises:
            DataError: It is damaged, or has nulls.
        """
        file, number = self._batches[chunk]
        name = file.name(number)
        fields = read_table_fields(flatten_table(file.decode(number)), self._chosen, self._options, name)
        if self._options.kind == ROWS:
            places = Places([name], [file.rows[number]])
            return {field: fix_length(field, values, places) for field, values in fields.items()}
        return fields

    def require_no_nulls(self) -> None:
        """Refuse nulls that no value stands for, by what the headers of batches count.

        Raises:
            DataError: There is one; the batch that has it is decoded, to name its row.
        """
        names = {name for column in self._chosen.values() for name in column.names}
        for file in dict.fromkeys(file.path for file, _ in self._batches):
            opened = next(each for each, _ in self._batches if each.path == file)
            found = {number for name in names if (number := opened.find_nulls(name)) is not None}
            for number in sorted(found):
                self(self._batches.index((opened, number)))

    def read_lengths(self, names: Sequence[str]) -> Array:
        """Return the length of each sample; lists are decoded once for it.

        Raises:
            DataError: Lists of one sample differ in length.
            DTypeError: A column has lists of lists.
        """
        found = []
        for chunk, (file, number) in enumerate(self._batches):
            fields = self(chunk)
            for name in names:
                if not isinstance(fields[name], Lists):
                    raise DTypeError(f"column {name!r} of {file.path} has lists of lists; expected lists of numbers")
            lengths = {name: numpy.diff(fields[name].offsets) for name in names}
            first = lengths[names[0]]
            for name, others in lengths.items():
                if (others != first).any():
                    row = int((others != first).argmax())
                    raise DataError(
                        f"column {name!r} has {others[row]} elements in row {row} of batch {number} of {file.path}, "
                        f"and column {names[0]!r} has {first[row]}; expected lists of one length in a row"
                    )
            found.append(first)
        return numpy.concatenate(found)

    def require_ones(self) -> None:
        """Refuse an attention mask, the only field, that marks padding.

        Raises:
            DataError: It does.
        """
        for chunk, (file, number) in enumerate(self._batches):
            places = Places([file.name(number)], [file.rows[number]])
            require_ones(self(chunk)[ATTENTION], places)
        warn_of_ones(Places([self._batches[0][0].path], [0]))
