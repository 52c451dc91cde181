"""Tables of Arrow over the bytes of files: read, compared with each other, and made a dataset.

Promise: a table keeps its memory in the file. Nothing is copied, and nothing is read before a batch is formed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError, DataError, DTypeError
from batchloom.formats.arrays import choose_for_kind, dataset_of, gather
from batchloom.formats.columns import ChosenColumn, make_unknown_column_error
from batchloom.formats.kinds import WINDOWS
from batchloom.formats.options import OpenOptions
from batchloom.formats.places import Places
from batchloom.formats.several import require_same_names

Array = numpy.ndarray[Any, Any]

# The bytes at the beginning of a file; a stream does not have them.
MAGIC = b"ARROW1"


@dataclass(frozen=True)
class MappedTable:
    """The table of a file.

    Attributes:
        path: The file.
        memory: Its bytes, mapped.
        table: Its columns, over these bytes; those of structs by dotted names.
    """

    path: str
    memory: Array
    table: Any


def require_pyarrow(file: str, reason: str = "") -> None:
    """Refuse a file where pyarrow, which reads it, is not installed.

    Args:
        file: The path of the file.
        reason: The reason that pyarrow reads it, where other files of the format need no pyarrow.

    Raises:
        ArgumentError: It is not.
    """
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError:
        why = f", as {reason}" if reason else ""
        raise ArgumentError(f"{file} is read by pyarrow{why}; pyarrow is not installed: pip install pyarrow") from None


def map_whole(path: str) -> Array:
    """Return the bytes of a file, mapped.

    Raises:
        DataError: It cannot be mapped.
    """
    try:
        return numpy.memmap(path, numpy.uint8, "r")
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be mapped: {error}; expected a whole file of Arrow IPC") from None


def read_table(path: str, memory: Array) -> MappedTable:
    """Return the table of a file or of a stream, over its bytes.

    Raises:
        DataError: It is damaged.
    """
    return MappedTable(path, memory, flatten_table(read_stored(path, memory)))


def read_stored(path: str, memory: Array) -> Any:
    """Return the table of a file or of a stream, over its bytes, with columns of structs as they are.

    Raises:
        DataError: It is damaged.
    """
    try:
        table = open_reader(memory).read_all()
        table.validate()
        table.schema.names  # noqa: B018 a name that is no UTF-8 is an error
    except Exception as error:  # whatever pyarrow makes of a damaged file
        raise make_damaged_error(path, error) from error
    return table


def refuse_chunk_options(options: OpenOptions, where: str, names: Sequence[str]) -> None:
    """Refuse options about chunks for rows that are mapped.

    Raises:
        ArgumentError: One is given.
    """
    for name in names:
        if name in options.given:
            raise ArgumentError(f"{name} is given, and {where} is mapped, without chunks to decode; expected none")


def hold_table(path: str, table: Any) -> MappedTable:
    """Return a table in memory, which a file was read into."""
    return MappedTable(path, numpy.zeros(0, numpy.uint8), flatten_table(table))


def flatten_table(table: Any) -> Any:
    """Return a table with columns of structs by dotted names; a struct that is a file stays."""
    import pyarrow

    while any(_has_parts(field.type) for field in table.schema):
        pairs = zip(table.schema, table.columns, strict=True)
        parts = [column.flatten() if _has_parts(field.type) else [column] for field, column in pairs]
        schema = _flatten_once(table.schema)
        table = pyarrow.Table.from_arrays([part for column in parts for part in column], schema=schema)
    return table


def flatten_schema(schema: Any) -> Any:
    """Return the schema of a table with columns of structs by dotted names; a struct that is a file stays."""
    while any(_has_parts(field.type) for field in schema):
        schema = _flatten_once(schema)
    return schema


def _flatten_once(schema: Any) -> Any:
    import pyarrow

    fields = [field.flatten() if _has_parts(field.type) else [field] for field in schema]
    return pyarrow.schema([field for parts in fields for field in parts])


def _has_parts(kind: Any) -> bool:
    """Return whether a type is a struct with columns of their own."""
    import pyarrow
    from batchloom.formats.arrow_types import holds_file

    return pyarrow.types.is_struct(kind) and not holds_file(kind)


def open_reader(memory: Array) -> Any:
    """Return pyarrow's reader of a file or of a stream."""
    import pyarrow

    buffer = pyarrow.py_buffer(memory)
    is_file = memory[: len(MAGIC)].tobytes() == MAGIC
    return pyarrow.ipc.open_file(buffer) if is_file else pyarrow.ipc.open_stream(buffer)


def make_damaged_error(path: str, error: Exception) -> DataError:
    """Return the error for a file that pyarrow does not read."""
    reason = str(error).partition("\n")[0]
    return DataError(f"{path} cannot be read: {reason}; expected a whole file of Arrow IPC")


def open_tables(tables: Sequence[MappedTable], options: OpenOptions, shown: Array | None = None) -> Dataset[Any]:
    """Return the dataset of tables, one after the other.

    Args:
        tables: The tables.
        options: The options.
        shown: ``True`` for each row that a selection of the dataset keeps, which alone has to have values; ``None`` for
            all.

    Raises:
        ArgumentError: A column does not exist.
        DataError: Tables have other columns than the first one, nulls, or no rows.
        DTypeError: A column makes no tensor, or differs in type.
    """
    first = tables[0]
    chosen = choose_for_kind(first.table.column_names, options, first.path)
    places = Places([each.path for each in tables], [each.table.num_rows for each in tables])
    require_nulls_named(options.fills, first.table.column_names, first.path)
    wanted = list(dict.fromkeys(name for column in chosen.values() for name in column.names))
    for other in tables[1:]:
        schemas = (first.path, first.table.schema, other.path, other.table.schema)
        require_same_columns(*schemas, wanted, takes_all=options.columns is None)
    if options.kind == WINDOWS:
        return dataset_of(_frame(tables, wanted), options, places)
    return dataset_of(read_fields(tables, chosen, options, places, shown), options, places)


def read_fields(
    tables: Sequence[MappedTable],
    chosen: Mapping[str, ChosenColumn],
    options: OpenOptions,
    places: Places,
    shown: Array | None,
) -> dict[str, Any]:
    """Return the fields of tables, each over all of them; ``shown`` is as :class:`ColumnReader` has it."""
    from batchloom.formats.arrow_columns import ColumnReader
    from batchloom.formats.arrow_memory import Memory

    reader = ColumnReader(Memory([each.memory for each in tables]), options.fills, places, shown)
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for column in chosen.values() for name in column.names):
        chunks = [chunk for each in tables for chunk in each.table.column(name).chunks]
        columns[name] = reader.read(tables[0].table.schema.field(name), chunks)
    return {field: gather(column, columns, field) for field, column in chosen.items()}


def require_nulls_named(nulls: Mapping[str, Any] | None, available: Sequence[str], where: str) -> None:
    """Refuse values for nulls of columns that do not exist.

    Raises:
        ArgumentError: There is one.
    """
    for name in nulls or {}:
        if name not in available:
            raise make_unknown_column_error(str(name), available, where)


def require_same_columns(
    first: str, expected: Any, other: str, found: Any, wanted: Sequence[str], *, takes_all: bool
) -> None:
    """Refuse a file that differs from the first one in the names or the types of columns.

    Args:
        first: The first file.
        expected: Its schema.
        other: The other file.
        found: Its schema.
        wanted: The columns that are chosen.
        takes_all: ``True`` if all columns are.

    Raises:
        DataError: Names differ.
        DTypeError: Types differ.
    """
    from batchloom.formats.arrow_types import are_same

    names = [name for name in found.names if takes_all or name in wanted]
    require_same_names(first, wanted, other, names)
    for name in wanted:
        usual, kind = expected.field(name).type, found.field(name).type
        if not are_same(usual, kind):
            raise DTypeError(
                f"column {name!r} is {kind} in {other} and {usual} in {first}; expected one type in all files"
            )


def _frame(tables: Sequence[MappedTable], names: Sequence[str]) -> dict[str, Any]:
    """Return columns as a frame has them, with times and texts as they are."""
    import pyarrow

    columns = {}
    for name in names:
        kind = tables[0].table.schema.field(name).type
        chunks = [_cast(each, name, chunk, kind) for each in tables for chunk in each.table.column(name).chunks]
        columns[name] = pyarrow.chunked_array(chunks, kind)
    return columns


def _cast(table: MappedTable, name: str, chunk: Any, kind: Any) -> Any:
    """Return an array of a column, which is read as a whole, in a type.

    Raises:
        DataError: It is damaged.
        DTypeError: The type does not hold it.
    """
    import pyarrow

    try:
        chunk.validate(full=True)
        return chunk if chunk.type == kind else chunk.cast(kind)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"column {name} of {table.path} is damaged: {error}; expected a whole file") from None
    except pyarrow.ArrowException as error:
        raise DTypeError(f"column {name} is {chunk.type} in {table.path}; expected {kind}: {error}") from None
