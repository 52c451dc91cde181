"""Record batches of Arrow IPC: their places, rows and nulls by their headers, and the table of each when it is read.

Promises:

- Opening a file reads headers, and no value.
- A file is read by its footer, as the format has it: the bytes between its messages are up to its writer.
- A batch is read into memory before it is decoded. A file that has changed since it was opened is an error in place of
  the batch that needs it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy
import pyarrow
from batchloom.errors import DataError
from batchloom.formats.arrow_tables import MAGIC, make_damaged_error, open_reader
from batchloom.formats.arrow_types import storage_of
from batchloom.formats.items import FileReader

Array = numpy.ndarray[Any, Any]

# The places of fields in tables: of a message its header, of a record batch its rows, nodes and codec, and of a footer
# the blocks of its record batches.
HEADER, ROWS_FIELD, NODES, CODEC, BLOCKS = 2, 0, 1, 3, 3
# A node counts the rows and the nulls of an array; a block has the place and the bytes of a message.
NODE = numpy.dtype([("rows", "<i8"), ("nulls", "<i8")])
BLOCK = numpy.dtype([("start", "<i8"), ("header", "<i4"), ("padding", "<i4"), ("body", "<i8")])
# The length of a footer, and the mark that ends a file.
TAIL = struct.Struct(f"<i{len(MAGIC)}s")
RECORD_BATCH = "record batch"


class BatchHeader(NamedTuple):
    """The place of a record batch, and what its header counts.

    Attributes:
        start: The first byte of its message.
        size: The bytes of its message.
        rows: Its rows.
        nulls: The nulls of each of the arrays that make it up.
        is_compressed: ``True`` if its values are compressed.
    """

    start: int
    size: int
    rows: int
    nulls: Array
    is_compressed: bool


@dataclass(frozen=True, eq=False)
class BatchFile:
    """The record batches of a file.

    Attributes:
        path: The file.
        schema: The columns.
        headers: The header of each record batch.
        source: Reads the bytes of the file.
    """

    path: str
    schema: Any
    headers: Sequence[BatchHeader]
    source: FileReader

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_reader"}

    @cached_property
    def rows(self) -> list[int]:
        """The rows of each record batch."""
        return [header.rows for header in self.headers]

    def name(self, number: int) -> str:
        """Return the name of a record batch for messages."""
        return f"batch {number} of {self.path}"

    def decode(self, number: int) -> Any:
        """Return the table of a record batch, decoded.

        Raises:
            DataError: It is damaged, or the file has changed.
        """
        try:
            batch = self._decode(number)
            batch.validate()
        except DataError:
            raise
        except Exception as error:  # whatever pyarrow makes of a damaged batch
            raise make_damaged_error(f"record {self.name(number)}", error) from error
        return pyarrow.Table.from_batches([batch])

    def _decode(self, number: int) -> Any:
        if self._has_categories:
            return self._reader.get_batch(number)
        header = self.headers[number]
        message = pyarrow.ipc.read_message(pyarrow.py_buffer(self.source.read(0, header.start, header.size)))
        return pyarrow.ipc.read_record_batch(message, self.schema)

    @cached_property
    def _has_categories(self) -> bool:
        return has_categories(self.schema)

    @cached_property
    def _reader(self) -> Any:
        """The reader of pyarrow, for categories: these lie in messages beside the batches."""
        reader = pyarrow.ipc.open_file(pyarrow.PythonFile(_FileBytes(self.source), "r"))
        reader.get_batch(0)  # which reads the categories, before threads read at once
        return reader

    def find_nulls(self, name: str) -> int | None:
        """Return the first record batch in which a column, or what is in its lists, has nulls; ``None`` for none.

        Args:
            name: The name of the column: of a struct, the name before its first dot.
        """
        nodes = self._find_nodes(name)
        found = (number for number, header in enumerate(self.headers) if header.rows and header.nulls[nodes].any())
        return next(found, None)

    def may_have_nulls(self, number: int, columns: Sequence[str]) -> bool:
        """Return whether the header of a record batch counts nulls in columns, or in what is in their lists.

        Categories may have a null among them, which no header counts.
        """
        counted = self.headers[number].nulls
        return any(self._is_of_categories(name) or counted[self._find_nodes(name)].any() for name in columns)

    def _is_of_categories(self, name: str) -> bool:
        names = [field.name for field in self.schema]
        return _has_categories(self.schema.field(name if name in names else name.partition(".")[0]).type)

    def _find_nodes(self, name: str) -> slice:
        """Return the places of the arrays of a column: of a struct, if the name has a dot."""
        names = [field.name for field in self.schema]
        place = names.index(name if name in names else name.partition(".")[0])
        first = sum(_count_nodes(field.type) for field in list(self.schema)[:place])
        return slice(first, first + _count_nodes(self.schema.field(place).type))


class _FileBytes(io.RawIOBase):
    """The bytes of a file as pyarrow reads them: by a reader that refuses a file which has changed.

    Args:
        source: The reader.
    """

    def __init__(self, source: FileReader) -> None:
        self._source, self._place, self._size = source, 0, source.size(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, count: int = -1) -> bytes:
        left = max(self._size - self._place, 0)
        found = self._source.read(0, self._place, left if count < 0 else min(count, left))
        self._place += len(found)
        return found


def is_compressed(path: str, memory: Array) -> bool:
    """Return whether the record batches of a file are compressed: as the first one with rows is.

    Raises:
        DataError: The file is damaged.
    """
    first = next((header for header in read_headers(path, memory) if header.rows), None)
    return first is not None and first.is_compressed


def open_batches(path: str, source: FileReader, memory: Array) -> BatchFile:
    """Return the record batches of a file.

    Args:
        path: The file.
        source: Reads its bytes, and was made before it was mapped.
        memory: Its bytes, mapped.

    Raises:
        DataError: The file is damaged, or a stream of categories.
    """
    headers = list(read_headers(path, memory))
    try:
        schema = open_reader(memory).schema
        schema.names  # noqa: B018 a name that is no UTF-8 is an error
    except Exception as error:
        raise make_damaged_error(path, error) from error
    if has_categories(schema) and not _is_file(memory):
        raise DataError(
            f"{path} is a compressed stream with categories, which change from batch to batch; expected plain columns, "
            "a file, or a stream that is not compressed"
        )
    return BatchFile(path, schema, headers, source)


def has_categories(schema: Any) -> bool:
    """Return whether a column, or what is in its lists or structs, has categories."""
    return any(_has_categories(field.type) for field in schema)


def _has_categories(kind: Any) -> bool:
    kind = storage_of(kind)
    inner = (kind.field(place).type for place in range(kind.num_fields))
    return pyarrow.types.is_dictionary(kind) or any(map(_has_categories, inner))


def _count_nodes(kind: Any) -> int:
    """Return the nodes of a type: one for each array that makes it up."""
    kind = storage_of(kind)
    if pyarrow.types.is_dictionary(kind):
        return 1
    return 1 + sum(_count_nodes(kind.field(place).type) for place in range(kind.num_fields))


def _is_file(memory: Array) -> bool:
    return memory[: len(MAGIC)].tobytes() == MAGIC


def read_headers(path: str, memory: Array) -> Iterator[BatchHeader]:
    """Yield the headers of the record batches of a file or of a stream.

    Raises:
        DataError: A header is damaged.
    """
    try:
        for start, size, message in _find_messages(memory):
            if message.type == RECORD_BATCH:
                yield _read_header(start, size, bytes(message.metadata))
    except DataError as error:
        raise DataError(f"{path} {error}") from None
    except Exception as error:  # whatever pyarrow makes of a damaged file
        raise make_damaged_error(path, error) from error


def _find_messages(memory: Array) -> Iterator[tuple[int, int, Any]]:
    """Yield the place, the bytes and the message of each record batch, and of other messages of a stream."""
    whole = pyarrow.py_buffer(memory)
    if _is_file(memory):
        pyarrow.ipc.open_file(whole)  # which checks the footer
        for start, header, _, body in _read_blocks(memory).tolist():
            if not 0 <= start <= start + header + body <= len(memory) or min(header, body) < 0:
                raise DataError(
                    f"has a message of {header} and {body} bytes at byte {start}, of {len(memory)} bytes; expected a "
                    "whole file"
                )
            yield start, header + body, pyarrow.ipc.read_message(whole.slice(start, header + body))
    else:
        stream = pyarrow.BufferReader(whole)
        start = 0
        for message in pyarrow.ipc.MessageReader.open_stream(stream):
            end = stream.tell()
            yield start, end - start, message
            start = end


def _read_blocks(memory: Array) -> Array:
    """Return the blocks of record batches that the footer of a file lists."""
    length, _ = TAIL.unpack(memory[-TAIL.size :].tobytes())
    footer = memory[len(memory) - TAIL.size - length : len(memory) - TAIL.size].tobytes()
    place = _read_field((footer, _follow(footer, 0)), BLOCKS)
    return numpy.zeros(0, BLOCK) if place is None else _read_vector(place, BLOCK)


def _read_header(start: int, size: int, metadata: bytes) -> BatchHeader:
    """Return the header of a record batch, of its message.

    Raises:
        DataError: It counts less than no rows.
    """
    place = _read_field((metadata, _follow(metadata, 0)), HEADER)
    if place is None:
        raise struct.error("a message has no header")
    header = metadata, _follow(*place)
    place = _read_field(header, ROWS_FIELD)
    rows = 0 if place is None else int(struct.unpack_from("<q", *place)[0])
    if rows < 0:
        raise DataError(f"has a record batch of {rows} rows; expected a whole file")
    place = _read_field(header, NODES)
    nodes = numpy.zeros(0, NODE) if place is None else _read_vector(place, NODE)
    return BatchHeader(start, size, rows, nodes["nulls"].copy(), _read_field(header, CODEC) is not None)


Place = tuple[bytes, int]
"""A place in bytes that are encoded as FlatBuffers has it."""


def _follow(contents: bytes, place: int) -> int:
    """Return the place that an offset stands for."""
    return place + int(struct.unpack_from("<I", contents, place)[0])


def _read_vector(place: Place, dtype: Any) -> Array:
    """Return the elements of a vector, whose offset lies at a place."""
    contents, _ = place
    start = _follow(*place)
    return numpy.frombuffer(contents, dtype, struct.unpack_from("<I", contents, start)[0], start + 4)


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
