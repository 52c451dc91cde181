"""Rows of Arrow tables as items: of mapped tables by number, of tables that are decoded a chunk at a time.

Promises:

- A function of rows gets plain values of Python, as `datasets` gives them; without a function, a row is what its fields
  hold, in the types that batches of the columns have.
- A row knows its number and its file, so that an error of the function names both.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol

import numpy
from batchloom.arrays.field import BorrowedArray
from batchloom.dataset.map.chunk_dataset import ChunkFields, read_fields
from batchloom.dataset.map.item_chunks import FieldItems
from batchloom.dataset.map.source import describe_error
from batchloom.dataset.object_field import ObjectField
from batchloom.errors import ArgumentError, DataError
from batchloom.formats.arrays import gather
from batchloom.formats.arrow_columns import ColumnReader
from batchloom.formats.arrow_memory import Memory
from batchloom.formats.arrow_tables import flatten_table
from batchloom.formats.columns import ChosenColumn, choose_columns, make_unknown_column_error
from batchloom.formats.kinds import ROWS, fix_length
from batchloom.formats.options import OpenOptions
from batchloom.formats.places import Places
from batchloom.formats.plain_values import PlainValues, read_array
from batchloom.formats.sound import SoundArrays


class Row(dict[str, Any]):
    """The values of a row, by the names of fields.

    Attributes:
        number: The number of the row.
        places: The files that rows lie in.
    """

    __slots__ = ("number", "places")

    number: int
    places: Places

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def __repr__(self) -> str:
        return f"{self.places.name(self.number)}, with {', '.join(self)}"


# The name of a field, its values, whether a value stands for nulls, and that value.
PlainColumn = tuple[str, PlainValues, bool, Any]


class PlainRows:
    """The rows of tables, one table after the other, each a dict of plain values.

    Args:
        tables: The tables.
        columns: The column of each field.
        nulls: Values in place of nulls, by column.
        places: The files that rows lie in.
        first: The number of the first row of the first table.
    """

    def __init__(
        self,
        tables: Sequence[Any],
        columns: Mapping[str, str],
        nulls: Mapping[str, Any] | None,
        places: Places,
        first: int = 0,
    ) -> None:
        self._columns, self._nulls, self._places, self._first = columns, nulls or {}, places, first
        self._batches = [batch for table in tables for batch in table.to_batches() if len(batch)]
        self._starts = [0, *accumulate(len(batch) for batch in self._batches)]
        # There may be thousands of record batches, most of which no batch needs.
        self._values: list[list[PlainColumn] | None] = [None] * len(self._batches)
        self._sound, self._types = SoundArrays(), _common_types(tables, columns.values())
        # Unlike ``nbytes``, it is the sum of buffers, without a look at offsets.
        self.nbytes = sum(int(table.get_total_buffer_size()) for table in tables)

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._starts[-1]

    def __getitem__(self, row: int) -> Row:
        """Return a row."""
        found = Row()
        field = None
        batch = bisect_right(self._starts, row) - 1
        place = row - self._starts[batch]
        try:
            for field, values, fills, null in self._values[batch] or self._read(batch):
                value = values[place]
                found[field] = _fill(value, null) if fills else value
        except Exception as error:  # a text that is no UTF-8, a time that Python has no value for
            raise DataError(
                f"{self._places.name(self._first + row)}, field {field}: it has no plain value: {describe_error(error)}"
            ) from error
        found.number, found.places = self._first + row, self._places
        return found

    def _read(self, batch: int) -> list[PlainColumn]:
        """Return the values of a record batch, by column."""
        arrays = self._batches[batch]
        read = [
            (
                field,
                read_array(self._promote(name, arrays.column(name)), self._sound),
                name in self._nulls,
                self._nulls.get(name),
            )
            for field, name in self._columns.items()
        ]
        self._values[batch] = read
        return read

    def _promote(self, name: str, array: Any) -> Any:
        """Return an array of a column in the type that holds the values of all tables."""
        kind = self._types.get(name, array.type)
        if array.type == kind:
            return array
        self._sound.require(array, 0, len(array))
        return array.cast(kind)


def _common_types(tables: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """Return for each column that differs in type between tables the type that holds all values, if there is one."""
    import pyarrow

    found = {}
    for name in names:
        kinds: list[Any] = []
        for table in tables:
            kind = table.schema.field(name).type
            if kind not in kinds:  # types of users need no hash
                kinds.append(kind)
        if len(kinds) > 1:
            schemas = [pyarrow.schema([pyarrow.field(name, kind)]) for kind in kinds]
            with contextlib.suppress(pyarrow.ArrowException):
                found[name] = pyarrow.unify_schemas(schemas, promote_options="permissive").field(0).type
    return found


def _fill(value: Any, null: Any) -> Any:
    """Return a value without nulls: a list of no elements stands for a list, any other value for elements of lists."""
    if value is None:
        return null
    if isinstance(value, list) and null != []:
        return [_fill(each, null) for each in value]
    return value


class FieldRows(FieldItems):
    """The rows of a chunk, each a dict of what its fields hold.

    Args:
        fields: The fields of the chunk.
        count: The number of rows.
        nbytes: Their bytes.
    """

    def __init__(self, fields: ChunkFields, count: int, nbytes: int) -> None:
        self.columns = {name: _value_finder(field) for name, field in fields.fields.items()}
        self._count, self.nbytes = count, nbytes

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    def __getitem__(self, row: int) -> Any:
        """Return a row."""
        return {name: find(row) for name, find in self.columns.items()}


def _value_finder(field: Any) -> Callable[[int], Any]:
    """Return the function that returns the value of a row: the one of the array itself, where it is one of NumPy."""
    if isinstance(field, ObjectField):
        return field.values.__getitem__
    if type(field) is BorrowedArray and isinstance(field.array, numpy.ndarray):
        return field.array.__getitem__
    find: Callable[[int], Any] = field.row
    return find


class TableFile(Protocol):
    """A file of tables, each of which is decoded alone."""

    @property
    def path(self) -> str:
        """The file."""

    @property
    def rows(self) -> Sequence[int]:
        """The number of rows of each table."""

    def name(self, number: int) -> str:
        """Return the name of a table for messages."""

    def decode(self, number: int) -> Any:
        """Return a table."""


class RowMaker(Protocol):
    """A function that makes the rows of a table; it pickles."""

    def __call__(self, table: Any, name: str, places: Places, first: int) -> Any:
        """Return the rows of a table.

        Args:
            table: The table.
            name: Its name.
            places: The files that rows lie in.
            first: The number of its first row.
        """


class TableChunks:
    """The rows of files, whose tables are the chunks of items.

    Args:
        files: The files.
        make_rows: Makes rows of a table.

    Attributes:
        chunks: The rows of each table that has some.
    """

    def __init__(self, files: Sequence[TableFile], make_rows: RowMaker) -> None:
        self._files, self._make_rows = list(files), make_rows
        self._tables = [(file, number) for file in files for number, rows in enumerate(file.rows) if rows]
        self._places = Places([file.path for file in files], [sum(file.rows) for file in files])
        self.chunks = [file.rows[number] for file, number in self._tables]
        self._firsts = [0, *accumulate(self.chunks)]

    def __reduce__(self) -> tuple[Any, ...]:
        return TableChunks, (self._files, self._make_rows)

    def read_chunk(self, chunk: int) -> Any:
        """Return the rows of a table.

        Raises:
            DataError: It cannot be read.
        """
        file, number = self._tables[chunk]
        return self._make_rows(file.decode(number), file.name(number), self._places, self._firsts[chunk])


class MakePlainRows:
    """Makes rows of plain values of tables.

    Args:
        columns: The column of each field.
        nulls: Values in place of nulls, by column.
    """

    def __init__(self, columns: Mapping[str, str], nulls: Mapping[str, Any] | None) -> None:
        self._columns, self._nulls = dict(columns), nulls

    def __call__(self, table: Any, name: str, places: Places, first: int) -> PlainRows:
        """Return the rows of a table."""
        wanted = table.select(list(dict.fromkeys(self._columns.values())))
        return PlainRows([wanted], self._columns, self._nulls, places, first)


class MakeFieldRows:
    """Makes rows of fields of tables, as a dataset of the whole table has them.

    Args:
        chosen: The columns of each field.
        options: The values in place of nulls, and the kind.
    """

    def __init__(self, chosen: Mapping[str, ChosenColumn], options: OpenOptions) -> None:
        self._chosen, self._options = dict(chosen), options

    def __call__(self, table: Any, name: str, places: Places, first: int) -> FieldRows:
        """Return the rows of a table.

        Raises:
            DataError: It has nulls, or lists of several lengths where these are to be rows.
            DTypeError: A column makes no tensor.
        """
        fields = read_table_fields(flatten_table(table), self._chosen, self._options, name)
        if self._options.kind == ROWS:
            inside = Places([name], [len(table)])
            fields = {field: fix_length(field, values, inside) for field, values in fields.items()}
        return FieldRows(read_fields(fields), len(table), int(table.get_total_buffer_size()))


def read_table_fields(
    table: Any, chosen: Mapping[str, ChosenColumn], options: OpenOptions, name: str
) -> dict[str, Any]:
    """Return the fields of a table that was decoded; where rows with nulls are left out, nulls are in hidden rows.

    Raises:
        DataError: It has nulls.
        DTypeError: A column makes no tensor.
    """
    shown = numpy.zeros(len(table), numpy.bool_) if options.drops_nulls else None
    reader = ColumnReader(Memory(), options.fills, Places([name], [len(table)]), shown)
    names = dict.fromkeys(column for field in chosen.values() for column in field.names)
    columns = {column: reader.read(table.schema.field(column), table.column(column).chunks) for column in names}
    return {field: gather(column, columns, field) for field, column in chosen.items()}


def choose_values(available: Sequence[str], options: OpenOptions, where: str) -> dict[str, str]:
    """Return the column of each value that a function of rows gets, by the name that it has there.

    Raises:
        ArgumentError: A column does not exist, or columns are joined; or a value stands for nulls of no column.
    """
    chosen = choose_columns(available, options.columns, where)
    joined = next((field for field, column in chosen.items() if column.joined), None)
    if joined is not None:
        raise ArgumentError(f"columns[{joined!r}] joins columns, and fn gets plain values; expected one column")
    for name in options.fills:
        if name not in available:
            raise make_unknown_column_error(str(name), available, where)
    return {field: column.name for field, column in chosen.items()}


class MappedRows:
    """The rows of mapped tables by number, each a dict of plain values; it pickles by what opens the tables.

    Args:
        open_tables: Returns the name and the table of each file; it pickles, and other processes call it again.
        columns: The column of each field.
        nulls: Values in place of nulls, by column.
        indices: The rows that are shown; ``None`` for all.
    """

    def __init__(
        self,
        open_tables: Callable[[], Sequence[tuple[str, Any]]],
        columns: Mapping[str, str],
        nulls: Mapping[str, Any] | None,
        indices: Any = None,
    ) -> None:
        self._recipe = (open_tables, dict(columns), nulls, indices)
        named = list(open_tables())
        places = Places([name for name, _ in named], [table.num_rows for _, table in named])
        wanted = list(dict.fromkeys(columns.values()))
        self._rows = PlainRows([table.select(wanted) for _, table in named], columns, nulls, places)
        self._indices = indices

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedRows, self._recipe

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows) if self._indices is None else len(self._indices)

    def __getitem__(self, number: int) -> Row:
        """Return a row."""
        return self._rows[number if self._indices is None else int(self._indices[number])]

    def __iter__(self) -> Iterator[Row]:
        """Yield all rows."""
        return map(self.__getitem__, range(len(self)))
