"""Row groups of Parquet as chunks of items: of texts and other objects, and of whatever a function makes samples of.

Promises:

- A row group is decoded by one call of pyarrow, when the plan comes to it; columns that are not wanted are not read.
- A file that has changed since it was opened is an error in place of the batch that needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from batchloom.errors import DataError
from batchloom.formats.arrow_tables import require_pyarrow
from batchloom.formats.items import find_stamp


@dataclass(frozen=True)
class GroupFile:
    """The row groups of a file.

    Attributes:
        path: The file.
        stamp: The file as it was when it was opened.
        rows: The rows of each row group.
        schema: The columns, as Arrow has them.
        footer: The footer, as pyarrow has it.
        columns: The columns to read; ``None`` for all.
    """

    path: str
    stamp: tuple[int, ...]
    rows: list[int]
    schema: Any
    footer: Any
    columns: tuple[str, ...] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self.path, self.stamp, self.columns)

    def reading(self, columns: Iterable[str]) -> GroupFile:
        """Return the same file, of which some columns are read: of a struct with all of them, unless it is named."""
        names = self.schema.names
        roots = {name if name in names else name.partition(".")[0] for name in columns}
        return GroupFile(self.path, self.stamp, self.rows, self.schema, self.footer, tuple(sorted(roots)))

    def name(self, number: int) -> str:
        """Return the name of a row group for messages."""
        return f"row group {number} of {self.path}"

    def decode(self, number: int) -> Any:
        """Return the table of a row group.

        Raises:
            DataError: It cannot be read, or the file has changed.
        """
        from pyarrow import parquet

        self._require_unchanged()
        try:
            # Threads of a loader read row groups side by side, each with a reader of its own, over one footer.
            with parquet.ParquetFile(self.path, metadata=self.footer) as file:
                columns = None if self.columns is None else list(self.columns)
                table = file.read_row_group(number, columns=columns, use_threads=False)
        except Exception as error:  # whatever pyarrow makes of a damaged file
            self._require_unchanged()
            reason = str(error).partition("\n")[0]
            raise DataError(f"{self.name(number)} cannot be read: {reason}; expected a whole file") from error
        return table

    def has_nulls(self, number: int, columns: Sequence[str]) -> bool:
        """Return whether the footer counts nulls in some columns of a row group. It counts none of columns of lists."""
        group = self.footer.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            path = column.path_in_schema
            counted = column.statistics if path in columns or path.removesuffix(".bytes") in columns else None
            if counted is not None and counted.has_null_count and counted.null_count:
                return True
        return False

    def may_have_nulls(self, number: int, columns: Sequence[str]) -> bool:
        """Return whether the footer counts nulls in columns of a row group, or does not count them.

        Of lists, it counts lists without elements as nulls.
        """
        group = self.footer.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            path, counted = column.path_in_schema, column.statistics
            if any(path == name or path.startswith(f"{name}.") for name in columns) and (
                counted is None or not counted.has_null_count or counted.null_count
            ):
                return True
        return False

    def has_bounds(self, name: str) -> bool:
        """Return whether the footer has the least and the greatest value of a column, or of its lists, everywhere."""
        for number, rows in enumerate(self.rows):
            group = self.footer.row_group(number)
            for place in range(group.num_columns if rows else 0):
                column = group.column(place)
                is_it = column.path_in_schema == name or column.path_in_schema.startswith(f"{name}.")
                if is_it and (column.statistics is None or not column.statistics.has_min_max):
                    return False
        return True

    def _require_unchanged(self) -> None:
        if find_stamp(self.path) != self.stamp:
            raise DataError(f"{self.path} has changed since it was opened; expected it as it was: open it again")


def open_groups(path: str) -> GroupFile:
    """Return the row groups of a file.

    Raises:
        ArgumentError: pyarrow is not installed.
        DataError: The footer cannot be read.
    """
    require_pyarrow(path)
    from pyarrow import parquet

    stamp = find_stamp(path)
    try:
        with parquet.ParquetFile(path) as file:
            footer, schema = file.metadata, file.schema_arrow
    except Exception as error:  # whatever pyarrow makes of a file that it does not read
        reason = str(error).partition("\n")[0]
        raise DataError(f"{path} cannot be read: {reason}; expected a whole file") from error
    rows = [footer.row_group(number).num_rows for number in range(footer.num_row_groups)]
    return GroupFile(path, stamp, rows, schema, footer)


def _open_again(path: str, stamp: tuple[int, ...], columns: tuple[str, ...] | None) -> GroupFile:
    found = open_groups(path)
    # A file that has changed since is refused when it is read.
    return GroupFile(path, stamp, found.rows, found.schema, found.footer, columns)
