"""`ObjectField`: a field of rows that holds texts or other objects, which batches hold as lists.

Promise: datasets that are put together find the objects of each, as a ticket names the field as well as the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from batchloom.arrays.field import BorrowedArray
from batchloom.arrays.objects import ANY, TEXTS, is_object
from batchloom.collate.objects import STORED_OBJECT, make_stored_tickets


class LazyObjects(Sequence[Any]):
    """Objects that are made when a batch holds them: a column of texts in files is one. Slices are such objects too.

    Attributes:
        maps: The memory maps of files that they lie in.
    """

    maps: Sequence[numpy.ndarray[Any, Any]] = ()


class ObjectField(BorrowedArray):
    """One field of rows with an object each. The engine moves tickets in their place.

    Attributes:
        maps: The memory maps of files that the objects lie in.

    Args:
        label: The name of the field.
        values: The objects.
    """

    def __init__(self, label: str, values: Sequence[Any]) -> None:
        self.values = values
        super().__init__(label, make_stored_tickets(self, len(values)))
        self.framework = STORED_OBJECT
        maps = values.maps if isinstance(values, LazyObjects) else ()
        self.maps = tuple(BorrowedArray(label, each) for each in maps)

    @property
    def data(self) -> Sequence[Any]:
        """The objects."""
        return self.values

    def row(self, sample: int) -> Any:
        """Return one object."""
        return self.values[sample]

    def slice(self, start: int, end: int) -> Sequence[Any]:
        """Return some of the objects."""
        return self.values[start:end]

    def part(self, start: int, end: int) -> Sequence[Any]:
        """Return some of the objects, for a pickle that holds no others."""
        return self.slice(start, end)

    def __repr__(self) -> str:
        return f"{self.label}: {len(self.values)} objects"


def read_objects(data: Any) -> Sequence[Any] | None:
    """Return the objects that an array or a list holds, one for each sample; ``None`` for numbers.

    Texts, bytes, paths, dicts and lists of texts are objects. An array of type ``object`` holds objects unless an
    element is a number or a list of numbers: that is mostly a mistake, which sharing the array reports.
    """
    if isinstance(data, numpy.ndarray):
        return _read_array(data)
    if isinstance(data, LazyObjects):
        return data
    if isinstance(data, list | tuple):
        first = next((value for value in data if value is not None), None)
        return list(data) if _is_object(first) else None
    return None


def _read_array(array: numpy.ndarray[Any, Any]) -> list[Any] | None:
    """Return the objects of an array; ``None`` for numbers."""
    kind = array.dtype.kind
    if kind not in TEXTS + ANY or not array.ndim:
        return None
    values: list[Any] = array.tolist()
    if kind == ANY and (array.ndim > 1 or not all(value is None or _is_object(value) for value in values)):
        return None
    return values


def _is_object(value: Any) -> bool:
    """Return whether an element of a column is an object: of lists, those that hold texts are."""
    if isinstance(value, list | tuple):
        return any(isinstance(part, str | bytes) for part in value)
    return is_object(value)
