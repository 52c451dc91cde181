"""Classes and keys of samples, as numbers: equal keys have equal numbers.

Promise: values share a number exactly where Python finds them equal; nothing is rounded, cut off or turned into text.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from numbers import Real
from typing import Any

import numpy
from batchloom.errors import ArgumentError, DataError
from batchloom.samples.per_sample import read_each, require_each

Array = numpy.ndarray[Any, Any]


def classes_of(given: Any, name: str) -> Array:
    """Return a number for each class, in the order of classes, for an array or a list of numbers or texts.

    Raises:
        ArgumentError: It is no such thing, or holds values of several kinds.
        DataError: It has more than one dimension, or a sample has no class: ``None``, NaN, or a value that is masked.
    """
    return _number(given, name)[1]


def classes_of_columns(columns: Mapping[str, Any], option: str, samples: int) -> Array:
    """Return a number for each class ``[samples, columns]``, in the order of classes: one numbering for all columns.

    Args:
        columns: The classes of samples in each column, by the name of the column in messages.
        option: The option that they are given for.
        samples: The number of samples.

    Raises:
        ArgumentError: A column is no such thing, or columns hold values of several kinds.
        DataError: A column has more than one dimension, or not one class for each sample.
    """
    numbered = {name: _number(given, name) for name, given in columns.items()}
    for name, (_, codes) in numbered.items():
        require_each(name, codes, samples)
    different = {name: values for name, (values, _) in numbered.items()}
    numbers = _number_jointly(different, option)
    starts = numpy.cumsum([0, *map(len, different.values())])
    each = [numbers[start + codes] for start, (_, codes) in zip(starts, numbered.values(), strict=False)]
    return numpy.stack(each, axis=1)


def _number_jointly(different: Mapping[str, Any], option: str) -> Array:
    """Return the place of each value of several ordered lists or arrays among all different values, in order."""
    kinds: dict[Any, str] = {}
    for name, values in different.items():
        if len(values) > 0:
            kinds.setdefault(_kind_of(values), name)
    if len(kinds) > 1:
        first, other = list(kinds.values())[:2]
        raise ArgumentError(
            f"{first} has {_first(different[first])!r} and {other} has {_first(different[other])!r}; expected numbers "
            f"in all columns of {option}, or texts in all of them"
        )
    arrays = [values for values in different.values() if isinstance(values, numpy.ndarray)]
    # Integers with a sign and without one would be rounded to a common type.
    if len(arrays) == len(different) and len({values.dtype.kind for values in arrays}) == 1:
        return numpy.unique(numpy.concatenate(arrays), return_inverse=True)[1]
    values = [value for each in different.values() for value in (each if isinstance(each, list) else each.tolist())]
    # Each list is in order, so that sorting merges them.
    places = {value: place for place, value in enumerate(dict.fromkeys(sorted(values)))}
    return numpy.fromiter(map(places.__getitem__, values), numpy.int64, len(values))


def _kind_of(values: Any) -> Any:
    """Return what stands for all values that are compared with each other, for a list or an array of one kind."""
    if isinstance(values, list):
        return _kind(type(values[0]))
    return {"U": str, "S": bytes}.get(values.dtype.kind, Real if values.dtype.kind in "biuf" else values.dtype.type)


def _first(values: Any) -> Any:
    """Return the first value of a list or an array, as Python has it."""
    return values[0] if isinstance(values, list) else values[:1].tolist()[0]


def _number(given: Any, name: str) -> tuple[Any, Array]:
    """Return the different classes, in order, and the place of each class among them."""
    if isinstance(given, list | tuple):
        return _codes(name, list(given))
    values = read_each(name, given, None, expected="a class for each sample", refused=ArgumentError)
    if values.dtype.kind not in "biufcmMSU":
        return _codes(name, values.tolist())
    missing = values != values
    if missing.any():
        raise _make_error(name, int(missing.argmax()), values[missing.argmax()])
    different, codes = numpy.unique(values, return_inverse=True)
    return different, numpy.ascontiguousarray(codes, numpy.int64)


def _codes(name: str, values: list[Any]) -> tuple[list[Any], Array]:
    """Return the different values, in order, and the place of each value among them."""
    types = set(map(type, values))
    if any(hasattr(kind, "item") and not issubclass(kind, numpy.generic) for kind in types):
        return _codes(name, [_element(name, value) for value in values])
    try:
        different = set(values)
    except TypeError:
        value = next((value for value in values if not isinstance(value, Hashable)), values[0])
        raise ArgumentError(f"{name} has {value!r:.80}; expected a number or a text for each sample") from None
    for value in different:
        if _is_missing(value):
            sample = next(sample for sample, each in enumerate(values) if _is_missing(each))
            raise _make_error(name, sample, values[sample])
    kinds = {_kind(kind): kind for kind in types}
    if len(kinds) > 1:
        samples = sorted(
            next(place for place, each in enumerate(values) if type(each) is kind) for kind in kinds.values()
        )
        first, other = samples[:2]
        raise ArgumentError(
            f"{name} has {values[first]!r} for sample {first} and {values[other]!r} for sample {other}; expected "
            "numbers alone, or texts alone"
        )
    try:
        places = {value: place for place, value in enumerate(sorted(different))}
    except TypeError as error:
        raise ArgumentError(f"{name} has values without an order; expected numbers or texts: {error}") from None
    return list(places), numpy.fromiter(map(places.__getitem__, values), numpy.int64, len(values))


def _kind(kind: type) -> type:
    """Return what stands for all types whose values are compared with each other."""
    return Real if issubclass(kind, Real | numpy.bool_) else str if issubclass(kind, str) else kind


def _element(name: str, value: Any) -> Any:
    """Return the value of an array without dimensions."""
    if getattr(value, "ndim", None) != 0:
        raise ArgumentError(f"{name} has an array of shape {getattr(value, 'shape', ())}; expected one class a sample")
    try:
        return value.item()
    except RuntimeError as error:
        raise ArgumentError(f"{name} has {value!r}; expected a class for each sample: {error}") from None


def _is_missing(value: Any) -> bool:
    """Return whether a value is missing: ``None``, NaN, or the missing value of a frame."""
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return True


def _make_error(name: str, sample: int, value: Any) -> DataError:
    return DataError(f"{name} has {value!r} for sample {sample}; expected a class for each sample")
