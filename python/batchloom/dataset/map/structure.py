"""The structure of samples: how dicts and tuples hold their arrays, so that a batch holds its arrays alike.

Promises:

- Dicts with the same keys have one structure, in whatever order they list them. The engine has fields in the order of
  keys as text; a batch lists them as the first sample did that was seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Number
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arrays.chunked import join_chunks, read_array
from batchloom.arrays.field import share
from batchloom.arrays.frames import is_frame
from batchloom.arrays.frameworks import DEFAULT_FRAMEWORK, framework_of, make_no_array_error, owner
from batchloom.arrays.objects import NUMBERS, is_object
from batchloom.collate.field_names import FieldNames
from batchloom.collate.objects import OBJECT, Table
from batchloom.errors import DataError, DeviceError, DTypeError


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
        frameworks: The framework of each array. Numbers are of the framework of the first array. Texts and other
            objects, for which there are tickets among the arrays, are of ``OBJECT``.
    """

    root: Node | str
    names: tuple[str, ...]
    frameworks: tuple[str, ...]

    @cached_property
    def objects(self) -> list[int]:
        """The places, among the arrays, of tickets for objects."""
        return [place for place, framework in enumerate(self.frameworks) if framework == OBJECT]

    @cached_property
    def framework(self) -> str:
        """The framework of the first array."""
        return next((framework for framework in self.frameworks if framework != OBJECT), DEFAULT_FRAMEWORK)

    @property
    def text(self) -> str:
        """The structure in words; samples are compared by it."""
        return str(self.root)

    @property
    def parts(self) -> int | list[str] | None:
        """The way to the arrays: 0 for a single one, the length of a tuple, the keys of a dict.

        ``None`` where samples are nested.
        """
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
        arrays = zip(self.names, self.frameworks, dtypes, strict=True)
        own = {name: dtype for name, framework, dtype in arrays if framework != OBJECT}
        return FieldNames(own, {}, places, [self.names[place] for place in self.objects])

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
        whole: ``True`` if samples are whole batches, in which only arrays are arrays: numbers and lists of numbers are
            objects.
    """

    def __init__(self, floats: Collection[str] = (), *, whole: bool = False) -> None:
        self._floats, self._whole = frozenset(floats), whole
        self._of_types: dict[Any, tuple[Structure, list[int]]] = {}
        self._of_text: dict[str, Structure] = {}

    def take_apart(self, sample: Any, ticket: int, table: Table) -> tuple[Structure, list[_native.Tensor]]:
        """Return the structure of a sample, the same object for the same structure, and its arrays, borrowed.

        Args:
            sample: The sample.
            ticket: The ticket of the sample, which is the array of each of its objects.
            table: The table that its objects are put in.

        Raises:
            DataError: A part of the sample is neither an array, nor a number, nor an object.
            DeviceError: An array is not in memory of the CPU.
            DTypeError: The engine does not know the type of an array.
        """
        parts, types = ([], None) if self._whole else _types(sample)
        known = self._of_types.get(types)
        if known is not None:
            structure, places = known
            leaves = [parts[place] for place in places]
        else:
            named: list[tuple[str, Any]] = []
            try:
                self._collect(sample, "", named)
            except RecursionError:
                raise DataError("it holds itself, or is nested too deeply; expected arrays or numbers") from None
            if not named:
                raise DataError(f"it is an empty {type(sample).__name__}; expected arrays or numbers")
            if self._whole and sample is None:
                raise DataError("it is None; expected a batch: a function without return gives None")
            named = [(name, _read(name, leaf)) for name, leaf in named]
            structure, leaves = self._remember(sample, named, types), [leaf for _, leaf in named]
        arrays = [self._array(name, leaf) for name, leaf in zip(structure.names, leaves, strict=True)]
        if structure.objects:
            table[ticket] = tuple(leaves[place] for place in structure.objects)
            for place in structure.objects:
                arrays[place] = numpy.array(ticket)
        return structure, [share(array, name) for name, array in zip(structure.names, arrays, strict=True)]

    def _array(self, name: str, part: Any) -> Any:
        """Return a part of a sample as an array; an object as it is."""
        if type(part) is int and name in self._floats:
            part = float(part)
        return _array(name, part)

    def _children(self, value: Any, path: str) -> list[tuple[Any, Any]] | None:
        """Return the keys and the parts of a dict, a tuple or a list; ``None`` for an array or an object.

        A list that is a part of a sample and holds objects is one object: lists of words differ in length.
        """
        if not isinstance(value, Mapping | tuple | list):
            return None
        if self._whole:
            return _children(value) if _holds_arrays(value) else None
        if isinstance(value, list) and (_is_array(value) or (path and _holds_objects(value))):
            return None
        return _children(value)

    def _collect(self, value: Any, path: str, leaves: list[tuple[str, Any]]) -> None:
        """Append the name and the value of each array, and of each object, in a sample."""
        children = self._children(value, path)
        if children is None:
            leaves.append((path or "0", value))
            return
        for key, child in children:
            self._collect(child, f"{path}.{key}" if path else str(key), leaves)

    def _node(self, value: Any, frameworks: Any, path: str = "") -> Node | str:
        """Return the node for a sample, or for a part of one, given the frameworks of its arrays."""
        children = self._children(value, path)
        if children is None:
            return str(next(frameworks))
        kinds = ((Mapping, dict), (tuple, tuple), (list, list))
        kind = (
            type(value) if hasattr(value, "_fields") else next(kind for like, kind in kinds if isinstance(value, like))
        )
        nodes = tuple(self._node(child, frameworks, "part") for _, child in children)
        return Node(kind, tuple(key for key, _ in children), nodes, tuple(value) if kind is dict else ())

    def _framework(self, name: str, value: Any) -> str | None:
        """Return the framework of an array; ``None`` for a number."""
        if _is_object(value) or (self._whole and (value is None or isinstance(value, Number | list | tuple | dict))):
            return OBJECT
        if isinstance(value, Number | numpy.generic):
            return None
        return framework_of(name, _array(name, value))

    def _remember(self, sample: Any, leaves: list[tuple[str, Any]], types: Any) -> Structure:
        """Return the structure of a sample, given its arrays; remember it by the types of its parts."""
        names = tuple(name for name, _ in leaves)
        known = [self._framework(name, part) for name, part in leaves]
        usual = next((framework for framework in known if framework not in (None, OBJECT)), DEFAULT_FRAMEWORK)
        frameworks = tuple(framework or usual for framework in known)
        structure = Structure(self._node(sample, iter(frameworks)), names, frameworks)
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
    if any(type(part) is numpy.ndarray and is_object(part) for part in parts):
        return parts, None
    return parts, (keys, types)


def _is_array(value: list[Any]) -> bool:
    """Return whether a list holds numbers alone, and so is an array, or lists of them."""
    return bool(value) and all(
        isinstance(part, Number) or (isinstance(part, list) and _is_array(part)) for part in value
    )


def _children(value: Any) -> list[tuple[Any, Any]]:
    """Return the keys and the parts of a dict, a tuple or a list."""
    if isinstance(value, Mapping):
        return sorted(value.items(), key=lambda item: str(item[0]))
    if isinstance(value, tuple):
        return list(zip(getattr(value, "_fields", range(len(value))), value, strict=True))
    return list(enumerate(value))


def _holds_arrays(value: Any) -> bool:
    """Return whether a dict, a tuple or a list holds an array, however deeply."""
    parts = value.values() if isinstance(value, Mapping) else value
    return any(
        _holds_arrays(part) if isinstance(part, Mapping | tuple | list) else _is_plain_array(part) for part in parts
    )


def _holds_objects(value: list[Any]) -> bool:
    """Return whether a list holds an object, however deeply, or nothing."""
    return not value or any(
        _holds_objects(list(part.values()) if isinstance(part, Mapping) else list(part))
        if isinstance(part, Mapping | tuple | list)
        else _is_object(part)
        for part in value
    )


def _is_plain_array(value: Any) -> bool:
    """Return whether a value is an array of a framework, of numbers."""
    return not isinstance(value, Number | numpy.generic) and value is not None and not _is_object(value)


def _is_object(value: Any) -> bool:
    """Return whether a part of a sample is neither an array, nor a list of numbers, nor a number, nor absent."""
    return not _is_array(value) if isinstance(value, list) else is_object(value)


def _array(name: str, value: Any) -> Any:
    """Return a part of a sample as an array: numbers, lists of them and images become one of NumPy."""
    if type(value) is numpy.ndarray or _is_object(value):
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
    return _read(name, value)


def _read(name: str, value: Any) -> Any:
    """Return an array of no framework as one of a framework; any other part of a sample as it is."""
    is_plain = value is None or isinstance(value, Number | numpy.generic | list) or owner(value) is not None
    if is_plain or _is_object(value):
        return value
    if is_frame(value):
        raise make_no_array_error(name, value)  # as its columns are fields of a dict
    return join_chunks(read_array(name, value))
