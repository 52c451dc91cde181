"""The structure of samples: how dicts and tuples hold their arrays, so that a batch holds its arrays alike.

Promises:

- Dicts with the same keys have one structure, in whatever order they list them. The engine has fields in the order of
  keys as text; a batch lists them as the first sample did that was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arrays.field import share
from batchloom.arrays.frameworks import DEFAULT_FRAMEWORK, framework_of, owner
from batchloom.collate.field_names import FieldNames
from batchloom.errors import DataError, DeviceError, DTypeError

# The kinds of NumPy's types that are moved as bytes.
NUMBERS = "biufc"


@dataclass(frozen=True)
class Node:
    """A dict, a tuple or a list in a sample.

    Attributes:
        kind: ``dict``, ``tuple``, ``list`` or a class of named tuples.
        keys: The keys of a dict, sorted as text, or the names of a named tuple's fields; places of other kinds.
        children: The parts, in the order of ``keys``: nodes, and the frameworks of arrays.
        listed: The keys of a dict in the order in which a batch lists them.
    """

    kind: type
    keys: tuple[Any, ...]
    children: tuple[Node | str, ...]
    listed: tuple[Any, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        if self.kind is dict:
            return "{" + ", ".join(f"{key}: {child}" for key, child in zip(self.keys, self.children, strict=True)) + "}"
        parts = ", ".join(map(str, self.children))
        return f"[{parts}]" if self.kind is list else f"{'' if self.kind is tuple else self.kind.__name__}({parts})"

    def build(self, arrays: Any) -> Any:
        """Return the arrays of an iterator in this structure."""
        parts = [child.build(arrays) if isinstance(child, Node) else next(arrays) for child in self.children]
        if self.kind is dict:
            by_key = dict(zip(self.keys, parts, strict=True))
            return {key: by_key[key] for key in self.listed}
        return self.kind(*parts) if hasattr(self.kind, "_fields") else self.kind(parts)


@dataclass(frozen=True)
class Structure:
    """The structure of a sample.

    Attributes:
        root: The outermost node, or the framework of the only array.
        names: The names of the arrays: keys and places on the way to each, joined by dots.
        frameworks: The framework of each array. Numbers are of the framework of the first array.
    """

    root: Node | str
    names: tuple[str, ...]
    frameworks: tuple[str, ...]

    @property
    def text(self) -> str:
        """The structure in words; samples are compared by it."""
        return str(self.root)

    @property
    def parts(self) -> int | list[str] | None:
        """The way to the arrays: 0 for a single one, the length of a tuple, the keys of a dict; ``None`` if nested."""
        if not isinstance(self.root, Node):
            return 0
        if not self.is_flat:
            return None
        return list(self.root.keys) if self.root.kind is dict else len(self.names) or None

    @property
    def is_flat(self) -> bool:
        """``True`` if a batch is a plain dict with text as keys, or a plain tuple."""
        if not isinstance(self.root, Node) or any(isinstance(child, Node) for child in self.root.children):
            return False
        return self.root.kind is tuple or (
            self.root.kind is dict and all(isinstance(key, str) for key in self.root.keys)
        )

    @property
    def is_sorted(self) -> bool:
        """``True`` if a batch lists its fields in the order of the engine."""
        return not isinstance(self.root, Node) or self.root.kind is not dict or self.root.keys == self.root.listed

    @property
    def is_named(self) -> bool:
        """``True`` if a batch is a dict."""
        return isinstance(self.root, Node) and self.root.kind is dict

    def field_names(self, dtypes: Iterable[str]) -> FieldNames:
        """Return the fields of batches, given the type of each array."""
        root = self.root if isinstance(self.root, Node) else Node(tuple, (0,), (self.root,))
        places = {key: str(key) for key in root.keys if isinstance(key, int) and not isinstance(key, bool)}
        return FieldNames(dict(zip(self.names, dtypes, strict=True)), {}, places)

    def builder(self, further: Sequence[str]) -> Callable[[tuple[Any, ...]], Any]:
        """Return the function that makes a batch of arrays: the arrays of samples, then ``further`` arrays by name."""
        root, own = self.root, len(self.names)

        def build(arrays: tuple[Any, ...]) -> Any:
            batch = root.build(iter(arrays[:own])) if isinstance(root, Node) else arrays[0]
            if not further:
                return batch
            if isinstance(batch, dict):
                return batch | dict(zip(further, arrays[own:], strict=True))
            return (*batch, *arrays[own:]) if isinstance(batch, tuple | list) else (batch, *arrays[own:])

        return build


class Structures:
    """Takes samples apart, and remembers the structures that it has seen.

    Args:
        floats: The names of fields whose Python numbers are floats, though some may be written as integers.
    """

    def __init__(self, floats: Collection[str] = ()) -> None:
        self._floats = frozenset(floats)
        self._of_types: dict[Any, tuple[Structure, list[int]]] = {}
        self._of_text: dict[str, Structure] = {}

    def take_apart(self, sample: Any) -> tuple[Structure, list[_native.Tensor]]:
        """Return the structure of a sample, the same object for the same structure, and its arrays, borrowed.

        Raises:
            DataError: A part of the sample is neither an array nor a number.
            DeviceError: An array is not in memory of the CPU.
            DTypeError: The engine does not know the type of an array.
        """
        parts, types = _types(sample)
        known = self._of_types.get(types)
        if known is not None:
            structure, places = known
            arrays = [self._array(name, parts[place]) for name, place in zip(structure.names, places, strict=True)]
        else:
            leaves: list[tuple[str, Any]] = []
            try:
                _collect(sample, "", leaves)
            except RecursionError:
                raise DataError("it holds itself, or is nested too deeply; expected arrays or numbers") from None
            if not leaves:
                raise DataError(f"it is an empty {type(sample).__name__}; expected arrays or numbers")
            arrays = [self._array(name, part) for name, part in leaves]
            structure = self._remember(sample, leaves, types)
        return structure, [share(array, name) for name, array in zip(structure.names, arrays, strict=True)]

    def _array(self, name: str, part: Any) -> Any:
        """Return a part of a sample as an array."""
        if type(part) is int and name in self._floats:
            part = float(part)
        return _array(name, part)

    def _remember(self, sample: Any, leaves: list[tuple[str, Any]], types: Any) -> Structure:
        """Return the structure of a sample, given its arrays; remember it by the types of its parts."""
        names = tuple(name for name, _ in leaves)
        known = [_framework(name, part) for name, part in leaves]
        usual = next((framework for framework in known if framework is not None), DEFAULT_FRAMEWORK)
        frameworks = tuple(framework or usual for framework in known)
        structure = Structure(_node(sample, iter(frameworks)), names, frameworks)
        structure = self._of_text.setdefault(structure.text, structure)
        if types is not None:
            keys = [str(key) for key in sample] if isinstance(sample, Mapping) else None
            places = range(len(names)) if keys is None else sorted(range(len(keys)), key=keys.__getitem__)
            self._of_types[types] = structure, list(places)
        return structure

    def share(self, others: Structures) -> None:
        """Know the texts of structures that ``others`` know, and make known to them what is seen here."""
        self._of_text = others._of_text

    def of_text(self, text: str) -> Structure:
        """Return the structure that a text stands for."""
        return self._of_text[text]

    def add(self, structure: Structure) -> Structure:
        """Remember a structure that another process has seen; return the known structure that equals it."""
        return self._of_text.setdefault(structure.text, structure)


def _types(sample: Any) -> tuple[list[Any], Any]:
    """Return the parts of a sample, and the types that decide its structure; ``None`` if types do not decide it."""
    kind = type(sample)
    keys: Any = None
    if kind is dict:
        parts, keys = list(sample.values()), tuple(sample)
    elif kind is tuple:
        parts, keys = list(sample), kind
    elif isinstance(sample, Mapping):  # what collators of transformers return
        parts, keys = list(sample.values()), tuple(sample)
    else:
        parts = [sample]
    types = tuple(map(type, parts))
    if any(issubclass(part, (dict, tuple, list, Mapping)) for part in types):
        return parts, None
    return parts, (keys, types)


def _is_array(value: list[Any]) -> bool:
    """Return whether a list holds numbers alone, and so is an array, or lists of them."""
    return bool(value) and all(
        isinstance(part, Number) or (isinstance(part, list) and _is_array(part)) for part in value
    )


def _children(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the keys and the parts of a dict, a tuple or a list; ``None`` for an array."""
    if isinstance(value, Mapping):
        return sorted(value.items(), key=lambda item: str(item[0]))
    if isinstance(value, tuple):
        return list(zip(getattr(value, "_fields", range(len(value))), value, strict=True))
    if isinstance(value, list) and not _is_array(value):
        return list(enumerate(value))
    return None


def _collect(value: Any, path: str, leaves: list[tuple[str, Any]]) -> None:
    """Append the name and the value of each array in a sample."""
    children = _children(value)
    if children is None:
        leaves.append((path or "0", value))
        return
    for key, child in children:
        _collect(child, f"{path}.{key}" if path else str(key), leaves)


def _node(value: Any, frameworks: Any) -> Node | str:
    """Return the node for a sample, or for a part of one, given the frameworks of its arrays."""
    children = _children(value)
    if children is None:
        return str(next(frameworks))
    kinds = ((Mapping, dict), (tuple, tuple), (list, list))
    kind = type(value) if hasattr(value, "_fields") else next(kind for like, kind in kinds if isinstance(value, like))
    nodes = tuple(_node(child, frameworks) for _, child in children)
    return Node(kind, tuple(key for key, _ in children), nodes, tuple(value) if kind is dict else ())


def _framework(name: str, value: Any) -> str | None:
    """Return the framework of an array; ``None`` for a number."""
    if isinstance(value, Number | numpy.generic):
        return None
    return framework_of(name, _array(name, value))


def _array(name: str, value: Any) -> Any:
    """Return a part of a sample as an array: numbers, lists of them and images become one of NumPy."""
    if type(value) is numpy.ndarray:
        return value
    if isinstance(value, Number | numpy.generic | list) or (
        hasattr(value, "__array_interface__") and not hasattr(value, "__dlpack__")
    ):
        try:
            array = numpy.asarray(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"field {name} is not an array of numbers: {error}") from None
        if array.dtype.kind not in NUMBERS:
            raise DTypeError(f"field {name} holds {array.dtype}; expected numbers")
        return array
    framework = owner(value)
    if framework is not None:
        device = framework.device_of(value)
        if device is not None:
            raise DeviceError(f"field {name} is on {device}; expected memory of the CPU: move it with .cpu()")
        return value
    if value is None:
        raise DataError(
            f"field {name} is None; expected an array or a number (a function that raises an error leaves its sample "
            'out with on_error="skip")'
        )
    if isinstance(value, str | bytes):
        raise DataError(f"field {name} is {value!r:.50}; expected an array or a number")
    return value
