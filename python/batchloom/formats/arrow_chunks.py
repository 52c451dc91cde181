"""Compressed files of Arrow IPC: a record batch is a chunk, which is decoded when the plan comes to it.

Promise: the rows and the nulls of each batch are known from the headers of its messages, before a value is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from batchloom.formats.arrow_columns import require_type
from batchloom.formats.arrow_tables import (
    FILE_HEADER,
    MAGIC,
    flatten_schema,
    flatten_table,
    make_damaged_error,
    map_whole,
    open_reader,
    require_nulls_named,
    require_same_columns,
)
from batchloom.formats.arrow_types import BITS, CODES, LISTS, OBJECTS, TIMES, describe_type, storage_of
from batchloom.formats.arrow_types import ROWS as FIXED
from batchloom.formats.columns import ChosenColumn
from batchloom.formats.items import open_items
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

# The places of fields in the tables of a message: of the message its header, of a record batch its rows and codec.
HEADER, ROWS_FIELD, NODES, CODEC = 2, 0, 1, 3
# The bytes of a node, which counts the rows and the nulls of a column, and the place of its nulls.
NODE, NULLS = 16, 8
RECORD_BATCH, DICTIONARY = "record batch", "dictionary"


@dataclass(frozen=True)
class BatchFile:
    """The record batches of a file.

    Attributes:
        path: The file.
        schema: The columns.
        messages: The message of each record batch, over the bytes of the file.
        rows: The rows of each.
        reader: The reader of pyarrow, where categories lie in messages beside the batches; else ``None``.
    """

    path: str
    schema: Any
    messages: list[Any]
    rows: list[int]
    reader: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self.path,)

    def name(self, number: int) -> str:
        """Return the name of a record batch for messages."""
        return f"batch {number} of {self.path}"

    def decode(self, number: int) -> Any:
        """Return the table of a record batch, decoded.

        Raises:
            DataError: It is damaged.
        """
        try:
            if self.reader is None:
                batch = pyarrow.ipc.read_record_batch(self.messages[number], self.schema)
            else:
                batch = self.reader.get_batch(number)
            batch.validate()
        except Exception as error:  # whatever pyarrow makes of a damaged batch
            raise make_damaged_error(f"record batch {number} of {self.path}", error) from error
        return pyarrow.Table.from_batches([batch])

    def find_nulls(self, name: str) -> int | None:
        """Return the first record batch in which a column, or what is in its lists, has nulls; ``None`` for none.

        Args:
            name: The name of the column: of a struct, the name before its first dot.
        """
        names = [field.name for field in self.schema]
        place = names.index(name if name in names else name.partition(".")[0])
        first = sum(_count_nodes(field.type) for field in list(self.schema)[:place])
        nodes = range(first, first + _count_nodes(self.schema.field(place).type))
        for number, message in enumerate(self.messages):
            if self.rows[number] and _count_nulls(self.path, message, nodes):
                return number
        return None


def is_compressed(path: str, memory: Array) -> bool:
    """Return whether the record batches of a file are compressed: as the first one with rows is.

    Raises:
        DataError: The file is damaged.
    """
    for message in _messages(path, memory):
        if message.type == RECORD_BATCH and _read_rows(path, message):
            return _read_field(_header(message.metadata), CODEC) is not None
    return False


def open_compressed(files: Sequence[str], memories: Sequence[Array], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of files that are compressed, or of which some are.

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
    opened = [_open_batches(file, memory) for file, memory in zip(files, memories, strict=True)]
    if options.fn is not None:
        return _open_rows(opened, options)
    schema = flatten_schema(opened[0].schema)
    chosen = choose_for_kind(schema.names, options, files[0])
    wanted = list(dict.fromkeys(name for column in chosen.values() for name in column.names))
    require_nulls_named(options.nulls, schema.names, files[0])
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
    chunks.require_no_nulls()
    lengths = chunks.read_lengths(lists) if has_lengths else None
    columns = lists if has_lengths else None
    window = {name: getattr(options, name) for name in ("memory", "chunks_open", "on_error") if name in options.given}
    if OBJECTS in (kinds[name] if kinds[name] != CODES else _describe_codes(schema, name) for name in wanted):
        rows = TableChunks(opened, MakeFieldRows(chosen, options))
        return MapDataset(rows, sizes=lengths, columns=columns, **window, **options.more)
    return ChunkDataset(chunks.sizes, chunks, lengths=lengths, columns=columns, **window, **options.more)


def _name_type(schema: Any, column: ChosenColumn) -> str:
    """Return the type of a field in the words that the engine has for the types of files."""
    kind, extent, is_list = storage_of(schema.field(column.name).type), 1, False
    is_row = describe_type(kind) == FIXED
    while describe_type(kind) in (FIXED, LISTS):
        if describe_type(kind) == LISTS:
            is_list = True
        else:
            extent *= kind.list_size
        kind = storage_of(kind.value_type)
    if pyarrow.types.is_dictionary(kind):
        kind = storage_of(kind.value_type)
    dtype = "int64" if describe_type(kind) == TIMES else "bool" if describe_type(kind) == BITS else str(kind)
    name = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(dtype, dtype)
    if is_list:
        return f"lists of {name}"
    return f"rows of {extent * len(column.names)} {name}" if column.joined or is_row else name


def _describe_codes(schema: Any, name: str) -> str | None:
    """Return what a field makes of the values of a column of categories."""
    return describe_type(storage_of(schema.field(name).type).value_type)


def _open_rows(opened: Sequence[BatchFile], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of the samples that a function makes of rows, a record batch at a time."""
    first = opened[0]
    require_rows(sum(sum(file.rows) for file in opened), first.path)
    columns = choose_values(first.schema.names, options, first.path)
    wanted = list(dict.fromkeys(columns.values()))
    for each in opened[1:]:
        takes_all = options.columns is None
        require_same_columns(first.path, first.schema, each.path, each.schema, wanted, takes_all=takes_all)
    return open_items(TableChunks(opened, MakePlainRows(columns, options.nulls)), options)


class BatchChunks:
    """The record batches of files as the chunks of a dataset; calling it reads one.

    Attributes:
        sizes: The rows of each chunk.
        types: The type of each field in words.
    """

    def __init__(self, files: Sequence[BatchFile], chosen: Mapping[str, ChosenColumn], options: OpenOptions) -> None:
        self._chosen, self._nulls, self._kind = chosen, options.nulls, options.kind
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
        fields = read_table_fields(flatten_table(file.decode(number)), self._chosen, self._nulls, name)
        if self._kind == ROWS:
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
        """Return the length of each sample, whose lists are decoded once for it.

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


def _open_batches(path: str, memory: Array) -> BatchFile:
    """Return the record batches of a file.

    Raises:
        DataError: The file is damaged, or a stream of categories.
    """
    messages = list(_messages(path, memory))
    if not messages:
        raise DataError(f"{path} holds no message; expected a whole file of Arrow IPC")
    batches = [message for message in messages if message.type == RECORD_BATCH]
    has_categories = any(message.type == DICTIONARY for message in messages)
    if has_categories and memory[: len(MAGIC)].tobytes() != MAGIC:
        raise DataError(
            f"{path} is a compressed stream with categories, which change from batch to batch; expected plain columns, "
            "a file, or a stream that is not compressed"
        )
    try:
        schema = pyarrow.ipc.read_schema(messages[0])
        schema.names  # noqa: B018 a name that is no UTF-8 is an error
        reader = open_reader(memory) if has_categories else None
        if reader is not None and batches:
            reader.get_batch(0)  # which reads the categories, before threads read at once
    except Exception as error:
        raise make_damaged_error(path, error) from error
    return BatchFile(path, schema, batches, [_read_rows(path, message) for message in batches], reader)


def _open_again(path: str) -> BatchFile:
    return _open_batches(path, map_whole(path))


def _messages(path: str, memory: Array) -> Iterator[Any]:
    """Yield the messages of a file or of a stream, over its bytes; a file is a stream between two marks."""
    start = FILE_HEADER if memory[: len(MAGIC)].tobytes() == MAGIC else 0
    try:
        yield from pyarrow.ipc.MessageReader.open_stream(pyarrow.py_buffer(memory[start:]))
    except Exception as error:
        raise make_damaged_error(path, error) from error


def _read_rows(path: str, message: Any) -> int:
    """Return the rows of a record batch.

    Raises:
        DataError: Its header is damaged.
    """
    try:
        header = _header(message.metadata)
        place = _read_field(header, ROWS_FIELD)
        rows = 0 if place is None else struct.unpack_from("<q", *place)[0]
    except (struct.error, TypeError) as error:
        raise make_damaged_error(path, Exception(error)) from error
    if rows < 0:
        raise DataError(f"{path} has a record batch of {rows} rows; expected a whole file")
    return int(rows)


def _count_nulls(path: str, message: Any, nodes: range) -> int:
    """Return the nulls that the header of a record batch counts in some of its nodes.

    Raises:
        DataError: The header is damaged.
    """
    try:
        place = _read_field(_header(message.metadata), NODES)
        if place is None:
            return 0
        contents, start = place
        first = _follow(contents, start) + 4
        return sum(struct.unpack_from("<q", contents, first + NODE * node + NULLS)[0] for node in nodes)
    except (struct.error, TypeError) as error:
        raise make_damaged_error(path, Exception(error)) from error


def _count_nodes(kind: Any) -> int:
    """Return the nodes of a type: one for each array that makes it up."""
    kind = storage_of(kind)
    if pyarrow.types.is_dictionary(kind):
        return 1
    return 1 + sum(_count_nodes(kind.field(place).type) for place in range(kind.num_fields))


Place = tuple[bytes, int]
"""A place in the bytes of a header."""


def _header(metadata: Any) -> Place:
    """Return the table of the header of a message, which is encoded as FlatBuffers has it."""
    contents = bytes(metadata)
    place = _read_field((contents, _follow(contents, 0)), HEADER)
    if place is None:
        raise struct.error("a message has no header")
    return contents, _follow(*place)


def _follow(contents: bytes, place: int) -> int:
    """Return the place that an offset stands for."""
    return place + int(struct.unpack_from("<I", contents, place)[0])


def _read_field(table: Place, number: int) -> Place | None:
    """Return the place of a field of a table; ``None`` for a field that is absent."""
    contents, place = table
    fields = place - int(struct.unpack_from("<i", contents, place)[0])
    if not 0 <= fields < len(contents):
        raise struct.error("a table leaves its message")
    size = struct.unpack_from("<H", contents, fields)[0]
    if 4 + 2 * number + 2 > size:
        return None
    offset = struct.unpack_from("<H", contents, fields + 4 + 2 * number)[0]
    return (contents, place + offset) if offset else None
