"""`FieldNames`: the fields of batches, and the keys by which arguments name them.

Promise: a field of batches that are tuples is named by its place in the batch, the same for every argument; a field of
batches that are dicts by its key.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from batchloom.errors import ArgumentError


@dataclass(frozen=True)
class FieldNames:
    """The fields of the batches of a dataset.

    Attributes:
        keys: The name of each part of a batch, in order.
        dtypes: The types of the fields that are taken from samples, by name.
        shapes: The shapes of the rows of these fields, where they are known.
        are_places: ``True`` if batches are tuples, so that places name their fields.
    """

    keys: Sequence[str]
    dtypes: Mapping[str, str]
    shapes: Mapping[str, Sequence[int]]
    are_places: bool

    def name(self, label: str, key: Any, among: Collection[str] | None = None, otherwise: str = "") -> str:
        """Return the name of the field that a key of an argument stands for.

        Args:
            label: The name of the argument.
            key: The key.
            among: The fields that the argument may name; ``None`` for all.
            otherwise: The end of the message, for arguments that take other values too.

        Raises:
            ArgumentError: There is no such field, or a text has the digits of a place.
        """
        allowed = self.dtypes if among is None else among
        found = self._named(key)
        if found in allowed:
            return found  # type: ignore[return-value]
        raise ArgumentError(f"{label} names {key!r}; expected {self.listed(allowed) or 'no field'}{otherwise}")

    def _named(self, key: Any) -> str | None:
        if isinstance(key, str):
            return None if self.are_places and key.isdecimal() else key
        if self.are_places and not isinstance(key, bool):
            with suppress(TypeError):
                place = operator.index(key)
                return self.keys[place] if 0 <= place < len(self.keys) else None
        return None

    def listed(self, names: Collection[str]) -> str:
        """Return the keys of fields, and what each holds: ``"1 (float64[..., 4]) or 2 (float64[...])"``."""
        return " or ".join(self._described(place, name) for place, name in enumerate(self.keys) if name in names)

    def _described(self, place: int, name: str) -> str:
        key = repr(place) if self.are_places else repr(name)
        if name not in self.dtypes:
            return key
        inner = "".join(f", {extent}" for extent in self.shapes[name]) if name in self.shapes else ""
        return f"{key} ({self.dtypes[name]}[...{inner}])"


class LateFieldNames:
    """The fields of samples that are made on demand: the first block tells whether there is one of such a name."""

    def name(self, label: str, key: Any, among: Collection[str] | None = None, otherwise: str = "") -> str:
        """Return the name of the field that a key of an argument stands for.

        Raises:
            ArgumentError: The key is neither a text nor a place, or a text has the digits of a place.
        """
        if isinstance(key, str) and not key.isdecimal():
            return key
        if not isinstance(key, str | bool):
            with suppress(TypeError):
                if (place := operator.index(key)) >= 0:
                    return str(place)
        expected = f"the place {int(key)}" if isinstance(key, str) else "the name of a field, or its place in a tuple"
        raise ArgumentError(f"{label} names {key!r}; expected {expected}{otherwise}")


class Namer:
    """Names fields by the keys of arguments; it looks at the fields when the first key is given."""

    def __init__(self, find: Callable[[], FieldNames | LateFieldNames]) -> None:
        self._find = find
        self._found: FieldNames | LateFieldNames | None = None

    @property
    def names(self) -> FieldNames | LateFieldNames:
        """The fields."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def by_name(self, label: str, value: Any, among: Collection[str] | None = None) -> Any:
        """Return the values of an argument by the names of fields; a value that is no dict as it is."""
        if not isinstance(value, Mapping):
            return value
        return {self.names.name(label, key, among): each for key, each in value.items()}
