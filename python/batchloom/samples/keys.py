"""Classes and keys of samples, as numbers: equal keys have equal numbers.

Promise: values share a number exactly where Python finds them equal; nothing is rounded, cut off or turned into text.
"""

from __future__ import annotations

from collections.abc import Hashable
from numbers import Real
from typing import Any

import numpy
from batchloom.errors import ArgumentError, DataError
from batchloom.samples.per_sample import read_each

Array = numpy.ndarray[Any, Any]


def classes_of(given: Any, name: str) -> Array:
    """Return a number for each class, in the order of classes, for an array or a list of numbers or texts.

    Raises:
        ArgumentError: It is no such thing, or holds values of several kinds.
        DataError: It has more than one dimension, or a sample has no class: ``None``, NaN, or a value that is masked.
    """
    if isinstance(given, list | tuple):
        return _codes(name, list(given))
    values = read_each(name, given, None, expected="a class for each sample", refused=ArgumentError)
    if values.dtype.kind not in "biufcmMSU":
        return _codes(name, values.tolist())
    missing = values != values
    if missing.any():
        raise _make_error(name, int(missing.argmax()), values[missing.argmax()])
    return numpy.ascontiguousarray(numpy.unique(values, return_inverse=True)[1], numpy.int64)


def _codes(name: str, values: list[Any]) -> Array:
    """Return the place of each value among the different ones, in order."""
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
    return numpy.fromiter(map(places.__getitem__, values), numpy.int64, len(values))


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
