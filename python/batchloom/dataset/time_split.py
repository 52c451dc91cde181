"""Splits of time series in parts that end by shares, by steps, or by times."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy
from batchloom.arguments import choice
from batchloom.arrays import frames
from batchloom.errors import ArgumentError

Array = numpy.ndarray[Any, Any]

ENDS = ("share", "index", "time")


def borders(
    ends: dict[str, Any], lengths: Array, times: list[Array] | None, by: str | None, zoned: bool
) -> Iterator[Array]:
    """Yield the step at which each part ends, in each series; a part begins where the one before it ends.

    Args:
        ends: What was said of each part: its share, the step or the time at which it ends, or ``None`` for the rest.
        lengths: The steps of each series.
        times: Those of each series, where they are known.
        zoned: Whether these are of a time zone.
        by: One of :data:`ENDS`, or ``None`` to tell from ``ends``.

    Raises:
        ArgumentError: Nothing or nonsense was said.
    """
    if not ends:
        raise ArgumentError("split() names no part; expected parts, such as train=0.7, val=0.1, test=0.2")
    *before, last = ends.items()
    for name, end in before:
        if end is None:
            raise ArgumentError(f"part {name} is None, which means the rest; expected None for the last part only")
    said = before if last[1] is None else [*before, last]
    kind = choice("by", by, ENDS) if by is not None else _kind_of_all(said)
    found = _times(said, times, zoned) if kind == "time" else (_shares if kind == "share" else _indices)(said, lengths)
    latest = numpy.zeros_like(lengths)
    for name, steps in found:
        if (steps < latest).any():
            raise ArgumentError(f"part {name} ends before the part in front of it; expected parts in order of time")
        yield steps
        latest = steps
    if last[1] is None:
        yield lengths


def _kind_of_all(said: list[tuple[str, Any]]) -> str:
    """Return the kind of the ends, which is the same for all."""
    ways = {name: _kind(end) for name, end in said}
    if len(set(ways.values())) > 1:
        text = ", ".join(f"{name} by {kind}" for name, kind in ways.items())
        raise ArgumentError(f"parts end {text}; expected one kind for all")
    return next(iter(ways.values()), "index")


def _kind(end: Any) -> str:
    if isinstance(end, float | numpy.floating):
        return "share"
    return "index" if hasattr(end, "__index__") else "time"


def _shares(said: list[tuple[str, Any]], lengths: Array) -> Iterator[tuple[str, Array]]:
    total = Fraction(0)
    for name, share in said:
        try:
            total = _meant(total + Fraction(float(share)))
        except (TypeError, ValueError, OverflowError):
            raise ArgumentError(f"part {name} is {share!r}; expected a share between 0 and 1") from None
        if not 0 < float(share) <= 1 or total > 1:
            raise ArgumentError(
                f"part {name} is {share!r}, which brings the shares to {float(total):g}; expected shares above 0 that "
                "sum to at most 1"
            )
        yield name, numpy.array([total.numerator * int(n) // total.denominator for n in lengths], numpy.int64)


def _meant(share: Fraction) -> Fraction:
    """A share as meant: 0.7 is seven tenths and 2 / 3 two thirds, not the floats next to them."""
    simple = share.limit_denominator(10**6)
    return simple if abs(simple - share) < Fraction(1, 10**7) else share


def _indices(said: list[tuple[str, Any]], lengths: Array) -> Iterator[tuple[str, Array]]:
    for name, end in said:
        try:
            step = operator.index(end)
        except TypeError:
            raise ArgumentError(f"part {name} is {end!r}; expected the step at which it ends") from None
        if isinstance(end, bool) or not 0 < step <= lengths.max():
            raise ArgumentError(
                f"part {name} is {end!r}; expected the step at which it ends, from 1 to {lengths.max()}, the longest "
                "series"
            )
        yield name, numpy.minimum(lengths, step)


def _times(said: list[tuple[str, Any]], times: list[Array] | None, zoned: bool) -> Iterator[tuple[str, Array]]:
    if times is None:
        raise ArgumentError("parts end at times, but the dataset knows no times; expected time= when it is made")
    for name, end in said:
        if zoned != frames.has_zone(end):
            found, expected = ("no", "one") if zoned else ("a", "none")
            raise ArgumentError(f"part {name} is {end!r}, with {found} time zone; expected {expected}, as time has")
        find = _before_datetime if times[0].dtype.kind == "M" else _before_number
        try:
            yield name, numpy.array([find(steps, end) for steps in times], numpy.int64)
        except (TypeError, ValueError) as error:
            kind = "a datetime" if times[0].dtype.kind == "M" else "a number"
            raise ArgumentError(f"part {name} is {end!r}; expected {kind}, as time is: {error}") from None


def _before_number(times: Array, end: Any) -> int:
    """Return the number of ``times``, in growing order, before a number."""
    if isinstance(end, str | bool) or end != end:
        raise ValueError(f"got a {type(end).__name__}" if isinstance(end, str | bool) else "got NaN")
    if times.dtype.kind == "f":
        return int(numpy.searchsorted(times, times.dtype.type(end)))
    if math.isinf(end):
        return len(times) if end > 0 else 0
    limits, first = numpy.iinfo(times.dtype), math.ceil(end)
    if not limits.min <= first <= limits.max:
        return len(times) if first > 0 else 0
    return int(numpy.searchsorted(times, times.dtype.type(first)))


def _before_datetime(times: Array, end: Any) -> int:
    """Return the number of ``times``, in growing order, before a datetime."""
    moment = frames.moment(end)
    if numpy.isnat(moment):
        raise ValueError("got NaT")
    if not len(times):
        return 0
    # Years are compared first: finer units have a smaller range, and would wrap.
    year, first, last = (when.astype("datetime64[Y]") for when in (moment, times[0], times[-1]))
    if year > last or year < first:
        return len(times) if year > last else 0
    return int(numpy.searchsorted(times, moment))
