"""Draws of an epoch that is not every sample once: by weights, by classes, or of another number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arguments import integer
from batchloom.errors import ArgumentError
from batchloom.samples.keys import classes_of
from batchloom.samples.per_sample import read_each, require_each

Array = numpy.ndarray[Any, Any]

# More samples than any epoch draws.
MOST = 2**62


def draws_of(
    samples: int, weights: Any, num_samples: int | None, balanced_by: Any, per_class: int | None = None
) -> _native.Draws | None:
    """Return the draws of an epoch; ``None`` if it is every sample once.

    Args:
        samples: The number of samples.
        weights: The weight of each sample, or ``None``.
        num_samples: The number of draws; ``None`` for the number of samples.
        balanced_by: The class of each sample, or ``None``.
        per_class: The number of samples of each class in a batch, or ``None``. The engine then knows the number of
            draws.

    Raises:
        ArgumentError: Weights and classes are both given; a weight is negative, or no number; or none is above 0.
        DataError: Weights or classes are not one for each sample.
        DTypeError: Weights are not numbers.
    """
    number = None if num_samples is None else integer("num_samples", num_samples, least=1, most=MOST)
    if weights is not None and balanced_by is not None:
        raise ArgumentError("weights and balanced_by are both given; expected one of them")
    if balanced_by is not None:
        classes = classes_of(balanced_by, "balanced_by")
        require_each("balanced_by", classes, samples)
        number = samples if number is None and per_class is None else number
        return _native.Draws.balanced(_native.borrow(classes, "balanced_by"), number)
    if weights is None:
        return None if number is None else _native.Draws.weighted(number, None)
    each = numpy.ascontiguousarray(read_each("weights", weights, "biuf", samples), numpy.float64)
    return _native.Draws.weighted(number, _native.borrow(each, "weights"))


def describe_draws(draws: _native.Draws | None) -> tuple[Any, int | None, Any]:
    """Return the weights of samples in proportion, the number of draws and the class of each sample, where known."""
    if draws is None:
        return None, None, None
    number, units, sources, _, _, members, _, _ = draws.written()
    weights = None if units is None else numpy.from_dlpack(units)
    if members is None or sources is None:
        return weights, number, None
    order, counts = numpy.from_dlpack(members), sources[0]
    classes = numpy.empty(len(order), numpy.int64)
    classes[order] = numpy.repeat(numpy.arange(len(counts)), counts)
    return weights, number, classes


def grouping_of(
    samples: int, homogeneous_by: Any, distinct_by: tuple[Array, str] | None
) -> tuple[str, _native.Tensor, str] | None:
    """Return the option that restricts which samples share a batch, the keys, and the treatment of a surplus.

    Args:
        samples: The number of samples.
        homogeneous_by: The key of each sample, the same for all samples of a batch; or ``None``.
        distinct_by: The numbers of the keys that differ in a batch, and the treatment of samples that no batch has room
            for; or ``None``.

    Raises:
        ArgumentError: Both are given, or keys are no numbers or texts.
        DataError: Keys are not one for each sample.
    """
    if homogeneous_by is not None and distinct_by is not None:
        raise ArgumentError("homogeneous_by and distinct_by are both given; expected one of them")
    if distinct_by is not None:
        numbers, surplus = distinct_by
        return "distinct_by", _native.borrow(numpy.ascontiguousarray(numbers), "distinct_by"), surplus
    if homogeneous_by is None:
        return None
    if isinstance(homogeneous_by, Mapping):
        raise ArgumentError("homogeneous_by is a dict; expected one key for each sample")
    keys = classes_of(homogeneous_by, "homogeneous_by")
    require_each("homogeneous_by", keys, samples)
    return "homogeneous_by", _native.borrow(keys.astype(numpy.uint32), "homogeneous_by"), "error"


def pickle_draws(draws: _native.Draws | None) -> tuple[Any, ...] | None:
    """Return what :func:`restore_draws` takes, for a pickle."""
    if draws is None:
        return None
    number, units, sources, exhausted, measure, members, names, windows = draws.written()
    by = None if measure is None else (measure[0], numpy.from_dlpack(measure[1]))
    arrays = [None if array is None else numpy.from_dlpack(array) for array in (units, members)]
    return number, arrays[0], sources, exhausted, by, arrays[1], names, *([] if windows is None else [windows])


def restore_draws(pickled: tuple[Any, ...] | None) -> _native.Draws | None:
    """Return draws from what :func:`pickle_draws` returned."""
    if pickled is None:
        return None
    number, units, sources, exhausted, measure, members, names, *windows = pickled
    borrowed = [None if array is None else _native.borrow(array, "draws") for array in (units, members)]
    by = None if measure is None else (measure[0], _native.borrow(measure[1], "draws"))
    return _native.Draws.restored(number, borrowed[0], sources, exhausted, by, borrowed[1], names, *windows)
