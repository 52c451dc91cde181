"""Fields that hold objects: texts, paths and anything else that is no array. Batches hold them as lists.

The engine moves no objects. It moves a ticket for each, an int64; zero is the ticket of a place without a sample.
Objects of samples on demand travel beside the bytes of a block, in tables by ticket: the number of the sample, and one.
Objects of stored rows stay where they are: a ticket is the number of their field, and the row. What takes a block as
arrays puts the objects in the place of the tickets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy

Table = dict[int, tuple[Any, ...]]
"""The objects of samples, by ticket: one for each field that holds objects, in the order of fields."""

OBJECT, STORED_OBJECT = "object", "stored object"
"""The frameworks of a field that holds objects: they travel with blocks, or stay where rows are stored."""

OBJECTS = (OBJECT, STORED_OBJECT)
"""Both of them."""

TICKET = "int64"
"""The type of tickets."""


class ObjectViews(NamedTuple):
    """The fields of a batch that hold objects.

    Attributes:
        places: The places of the fields among the fields of a batch.
        find: Returns the objects of a field.
    """

    places: list[int]
    find: Callable[[Sequence[Table], int, Any], Any]


def ticket_of(sample: int) -> int:
    """Return the ticket of a sample."""
    return sample + 1


def find_objects(tables: Sequence[Mapping[int, tuple[Any, ...]]], number: int, tickets: Any) -> Any:
    """Return the objects of one field, a list with one for each ticket; ``None`` for a place without a sample.

    Batches in rows of one shape have a list for each row.

    Args:
        tables: The objects of samples.
        number: The number of the field among those that hold objects.
        tickets: The tickets, an array; a single one stands for an object that a whole batch has.
    """
    if tickets.ndim == 0:
        return tables[0][int(tickets)][number]
    if tickets.ndim > 1:
        return [find_objects(tables, number, row) for row in tickets]
    if len(tables) == 1:
        (table,) = tables
    else:
        table = {}
        for part in tables:
            table.update(part)
    return [table[ticket][number] if ticket in table else None for ticket in tickets.tolist()]


class StoredObjects(Protocol):
    """A field of rows that holds objects."""

    values: Sequence[Any]


# The fields of rows that hold objects, by number, and the bits of a ticket that are the row.
_stored: WeakValueDictionary[int, StoredObjects] = WeakValueDictionary()
_numbers = count(1)
ROW = 40


def make_stored_tickets(field: StoredObjects, rows: int) -> numpy.ndarray[Any, Any]:
    """Return the tickets of the rows of a field."""
    number = next(_numbers)
    _stored[number] = field
    return numpy.arange(number << ROW, (number << ROW) + rows, dtype=TICKET)


def find_stored(tickets: Any) -> list[Any]:
    """Return the objects of stored rows, one for each ticket of an array; ``None`` for a place without a row.

    Batches in rows of one shape have a list for each row.
    """
    if tickets.ndim > 1:
        return [find_stored(row) for row in tickets]
    fields, rows = (tickets >> ROW).tolist(), (tickets & ((1 << ROW) - 1)).tolist()
    values = {number: _stored[number].values for number in {*fields} if number}
    return [values[number][row] if number else None for number, row in zip(fields, rows, strict=True)]
