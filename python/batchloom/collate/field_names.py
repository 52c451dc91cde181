"""`FieldNames`: the fields of batches, and the keys that name them in arguments.

Promises:

- A field of batches that are tuples is named by its place in the batch, the same for every argument; a field of batches
  that are dicts by its key.
- An argument names a field once.
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
        dtypes: The types of the fields that are taken from samples, by name.
        shapes: The shapes of the rows of these fields, where they are known.
        places: The names of the fields that integers stand for: the places in a tuple, the integer keys of a dict.
        objects: The names of the fields that hold objects, to which nothing is done.
    """

    dtypes: Mapping[str, str]
    shapes: Mapping[str, Sequence[int]]
    places: Mapping[int, str]
    objects: Collection[str] = ()

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
        field = self._find_name(key)
        if field in allowed:
            return field  # type: ignore[return-value]
        if field in self.objects:
            raise ArgumentError(
                f"{label} names {key!r}, which holds objects, and batches hold these as they are; expected a field of "
                f"arrays: {self.list_keys(allowed) or 'there is none'}{otherwise}"
            )
        raise ArgumentError(f"{label} names {key!r}; expected {self.list_keys(allowed) or 'no field'}{otherwise}")

    def _find_name(self, key: Any) -> str | None:
        if isinstance(key, str):
            return None if key.isdecimal() and key in self.places.values() else key
        if not isinstance(key, bool):
            with suppress(TypeError):
                return self.places.get(operator.index(key))
        return None

    def list_keys(self, names: Collection[str]) -> str:
        """Return the keys of fields, and what each holds: ``"1 (float64[..., 4]) or 2 (float64[...])"``."""
        keys = {name: repr(place) for place, name in self.places.items()}
        known = (*self.dtypes, *(name for name in names if name not in self.dtypes))
        return " or ".join(self._describe(keys.get(name, repr(name)), name) for name in known if name in names)

    def _describe(self, key: str, name: str) -> str:
        if name not in self.dtypes:
            return key
        inner = "".join(f", {extent}" for extent in self.shapes[name]) if name in self.shapes else ""
        return f"{key} ({self.dtypes[name]}[...{inner}])"


class LateFieldNames:
    """The fields of samples that are made on demand. The keys of arguments are kept for :meth:`require`."""

    def __init__(self) -> None:
        self._given: list[tuple[str, Any]] = []

    def name(self, label: str, key: Any, among: Collection[str] | None = None, otherwise: str = "") -> str:
        """Return the name of the field that a key of an argument stands for.

        Raises:
            ArgumentError: The key is neither a text nor a place.
        """
        self._given.append((label, key))
        if isinstance(key, str):
            return key
        if not isinstance(key, bool):
            with suppress(TypeError):
                if (place := operator.index(key)) >= 0:
                    return str(place)
        raise ArgumentError(f"{label} names {key!r}; expected the name of a field, or its place in a tuple{otherwise}")

    def require(self, names: FieldNames) -> None:
        """Compare the keys that arguments gave with the fields of a sample.

        Raises:
            ArgumentError: There is no field for a key.
        """
        for label, key in self._given:
            names.name(label, key)


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
        """Return the values of an argument by the names of fields; a value that is no dict as it is.

        Raises:
            ArgumentError: There is no field for a key, or two keys stand for one field.
        """
        if not isinstance(value, Mapping):
            return value
        keys: dict[str, Any] = {}
        for key in value:
            name = self.names.name(label, key, among)
            if name in keys:
                raise ArgumentError(f"{label} names one field by {keys[name]!r} and by {key!r}; expected one of them")
            keys[name] = key
        return {name: value[key] for name, key in keys.items()}
