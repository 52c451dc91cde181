"""`choose_columns`: the columns of files that become fields, and the names that fields have.

Promises:

- Fields come in the order of the argument, and the columns of a pattern in the order of the file.
- Each name that does not exist is an error, before a value is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from batchloom.arguments import find_alike, text
from batchloom.errors import ArgumentError, DataError

# A name with one of these is a pattern, unless a column has that very name.
WILDCARDS = frozenset("*?[")

# The names of columns in a message.
SHOWN = 20


@dataclass(frozen=True)
class ChosenColumn:
    """The columns of one field.

    Attributes:
        names: The names of the columns in the file, in order.
        joined: ``True`` if the columns are side by side in one matrix ``[samples, columns]``.
    """

    names: tuple[str, ...]
    joined: bool = False

    @property
    def name(self) -> str:
        """The name of the first column: of the only one, unless columns are joined."""
        return self.names[0]


def choose_columns(available: Sequence[str], columns: Any, where: str) -> dict[str, ChosenColumn]:
    """Return the columns of each field, by the name of the field.

    Args:
        available: The names of all columns, in the order of the file.
        columns: ``None`` for a field of each column. A list of names, for these columns alone; a pattern such as
            ``"f*"`` stands for each column that it fits. Or a dict from the name of a field to its column; a pattern
            or a list there joins columns of one type to a matrix ``[samples, columns]``.
        where: The file, or other place, that has the columns, for messages.

    Raises:
        ArgumentError: A column does not exist, a pattern fits none, nothing is chosen, or a column is chosen twice for
            one place.
        DataError: The file has no column, or two of one name.
    """
    names = _require_distinct(available, where)
    if columns is None:
        return {name: ChosenColumn((name,)) for name in names}
    if isinstance(columns, Mapping):
        chosen = {_field_name(field): _choose(names, column, field, where) for field, column in columns.items()}
    else:
        listed = _expand(names, columns, "columns", where)
        chosen = {name: ChosenColumn((name,)) for name in listed}
    if not chosen:
        raise ArgumentError(f"columns is {columns!r}; expected at least one column of {where}: {show_names(names)}")
    return chosen


def show_names(names: Sequence[str]) -> str:
    """Return the names of columns for a message: the first ones, and how many more there are."""
    shown = ", ".join(map(repr, names[:SHOWN]))
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


def make_unknown_column_error(name: str, available: Sequence[str], where: str) -> ArgumentError:
    """Return the error for a column that does not exist, with the column that is spelled most like it."""
    alike = find_alike(name, available)
    meant = "; it has" if alike is None else f"; did you mean {alike!r}? It has"
    return ArgumentError(f"{where} has no column {name!r}{meant} {show_names(available)}")


def _require_distinct(available: Sequence[str], where: str) -> list[str]:
    names = list(available)
    if not names:
        raise DataError(f"{where} has no columns; expected at least one")
    repeated = next((name for place, name in enumerate(names) if name in set(names[:place])), None)
    if repeated is not None:
        raise DataError(f"{where} has column {repeated!r} twice; expected every name once")
    return names


def _field_name(field: object) -> str:
    return text("the name of a field in columns", field)


def _choose(available: Sequence[str], column: Any, field: str, where: str) -> ChosenColumn:
    """Return the columns of one field of a dict."""
    if isinstance(column, str) and not _is_pattern(column, available):
        return ChosenColumn(tuple(_match(available, column, where)))
    names = _expand(available, column, f"columns[{field!r}]", where)
    if not names:
        raise ArgumentError(
            f"columns[{field!r}] names no column; expected at least one of {where}: {show_names(available)}"
        )
    return ChosenColumn(tuple(names), joined=True)


def _expand(available: Sequence[str], columns: Any, argument: str, where: str) -> list[str]:
    """Return the columns that a name, a pattern or a list of these stands for, each once."""
    listed = [columns] if isinstance(columns, str) else columns
    if not isinstance(listed, Iterable) or isinstance(listed, bytes):
        raise ArgumentError(f"{argument} is {columns!r}; expected names of columns: a name, a pattern or a list")
    names = [name for each in listed for name in _match(available, text(f"a column in {argument}", each), where)]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ArgumentError(f"{argument} has column {name!r} twice; expected every column once")
        seen.add(name)
    return names


def _match(available: Sequence[str], name: str, where: str) -> list[str]:
    """Return the columns that a name or a pattern stands for, in the order of the file."""
    if name in available:
        return [name]
    if not _is_pattern(name, available):
        raise make_unknown_column_error(name, available, where)
    found = [each for each in available if fnmatchcase(each, name)]
    if not found:
        raise ArgumentError(f"no column of {where} fits {name!r}; it has {show_names(available)}")
    return found


def _is_pattern(name: str, available: Sequence[str]) -> bool:
    return name not in available and not WILDCARDS.isdisjoint(name)
