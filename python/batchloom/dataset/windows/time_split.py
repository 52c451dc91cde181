"""Splits of time series in parts that end by shares, by steps, or by times."""

from __future__ import annotations

import math
import operator
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arguments import choice, integer
from batchloom.arrays import frames
from batchloom.dataset.selection import share, share_number
from batchloom.dataset.windows.timeline import Timeline
from batchloom.errors import ArgumentError, many

Array = numpy.ndarray[Any, Any]

ENDS = ("share", "index", "time", "end")
ROUNDINGS = ("exact", "tslib")
BORDERS = ("ett-hour", "ett-minute")

# Arguments with which other samples are split.
OF_OTHER_SPLITS = {"seed", "stratify"}
I64 = 2**63


def read_ends(
    ends: dict[str, Any], borders: str | None, by: str | None, rounding: str, timeline: Timeline, ranges: Array
) -> list[tuple[str, _native.PartEnd]]:
    """Return the end of each part as the engine takes it.

    Args:
        ends: The share of each part, the step or the time at which it ends, or ``None`` for the rest. With
            ``by="end"``, the steps of each part, at the end of each series.
        borders: One of :data:`BORDERS` in place of ``ends``, or ``None``.
        by: One of :data:`ENDS`, or ``None`` to infer it from ``ends``.
        rounding: One of :data:`ROUNDINGS`.
        timeline: The steps of the series, and their times.
        ranges: The first row and the end of each series that is split, ``[series, 2]``.

    Raises:
        ArgumentError: No part, or an end that is not a share, step or time.
    """
    if by == "end" and borders is None and rounding == "exact":
        return _read_last_steps(ends, ranges)
    if borders is not None:
        ends = dict[str, Any](_read_borders(borders, ends))
    for name in OF_OTHER_SPLITS & ends.keys():
        raise ArgumentError(
            f"{name} is given: time is not divided at random; expected the ends of parts alone, as train=0.7, test=None"
        )
    said, kind = _list_ends(ends, by)
    *_, last = ends
    if choice("rounding", rounding, ROUNDINGS) == "tslib":
        if kind != "share" or len(said) != 3:
            raise ArgumentError("rounding is 'tslib', which is for three parts by shares; expected these, or 'exact'")
        shares = [(name, share_number(name, part)) for name, part in said]
        steps = _native.borrow(numpy.ascontiguousarray(ranges[:, 1] - ranges[:, 0], numpy.int64), "lengths")
        return list(zip(ends, _native.PartEnd.tslib(steps, shares), strict=True))
    read = [(name, _read_end(kind, name, end, timeline, ranges)) for name, end in said]
    return read if ends[last] is not None else [*read, (last, _native.PartEnd.rest())]


def _read_last_steps(ends: dict[str, Any], ranges: Array) -> list[tuple[str, _native.PartEnd]]:
    """Return the ends of parts at the end of each series: all but the first have a number of steps."""
    if len(ends) < 2:
        raise ArgumentError(f"by is 'end' with {many(len(ends), 'part')}; expected train=None, val=24, test=24 or such")
    (first, rest), *last = ends.items()
    if rest is not None:
        raise ArgumentError(f"part {first} is {rest!r}; expected None for the first part, which has the other steps")
    counts = {name: integer(name, count, least=1, most=I64 - 1) for name, count in last}
    after, lengths = sum(counts.values()), ranges[:, 1] - ranges[:, 0]
    read = []
    for name in ends:
        after -= counts.get(name, 0)
        steps = [max(0, int(length) - after) for length in lengths]
        read.append((name, _native.PartEnd.steps(_native.borrow(numpy.array(steps, numpy.int64), "part"))))
    return read


def _list_ends(ends: dict[str, Any], by: str | None) -> tuple[list[tuple[str, Any]], str]:
    """Return the parts that end somewhere, all but a rest, and the kind of their ends."""
    if not ends:
        raise ArgumentError("split() names no part; expected parts, such as train=0.7, val=0.1, test=0.2")
    for name, end in ends.items():
        if isinstance(end, str) and end in BORDERS:
            raise ArgumentError(f"part {name} is {end!r}, which are borders of all parts; expected split({end!r})")
    *before, last = ends.items()
    for name, end in before:
        if end is None:
            raise ArgumentError(
                f"part {name} is None, which means the rest; expected None for the last part only, or "
                'by="end" with the steps of each later part'
            )
    said = before if last[1] is None else [*before, last]
    return said, choice("by", by, ENDS) if by is not None else _kind_of_all(said)


def _read_borders(borders: str, ends: dict[str, Any]) -> dict[str, int]:
    """Return the steps at which the parts of a published evaluation end.

    Raises:
        ArgumentError: There are no borders of this name, or parts are given too.
    """
    name = choice("borders", borders, BORDERS)
    if ends:
        raise ArgumentError(f"borders is {name!r}, and parts {', '.join(ends)} are given too; expected one of them")
    return dict(zip(("train", "val", "test"), _native.PartEnd.ett(name == "ett-hour"), strict=True))


def read_origin(start: Any, timeline: Timeline, ranges: Array) -> _native.PartEnd:
    """Return the place at which a backtest begins, from a share, a step or a time.

    Raises:
        ArgumentError: The value is neither.
    """
    return _read_end(_kind(start), "start", start, timeline, ranges)


def _read_end(kind: str, name: str, end: Any, timeline: Timeline, ranges: Array) -> _native.PartEnd:
    """Return the end of one part."""
    if kind == "time":
        return _read_time(name, end, timeline, ranges)
    return share(name, end) if kind == "share" else _read_step(name, end)


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


def _read_step(name: str, end: Any) -> _native.PartEnd:
    step = None if isinstance(end, bool) or not hasattr(end, "__index__") else operator.index(end)
    if step is None or not -I64 <= step < I64:
        raise ArgumentError(f"part {name} is {end!r}; expected the step at which it ends")
    return _native.PartEnd.step(step)


def _read_time(name: str, end: Any, timeline: Timeline, ranges: Array) -> _native.PartEnd:
    """Return the step of each series at which a part ends that ends at a time."""
    times, zoned = timeline.times_in(ranges), timeline.zoned
    if times is None:
        raise ArgumentError("parts end at times, but the dataset has no times; make it with time=")
    if zoned != frames.has_zone(end):
        has, expected = ("no", "a time zone") if zoned else ("a", "no time zone")
        raise ArgumentError(f"part {name} is {end!r}, which has {has} time zone; expected {expected}, as for time=")
    find = _before_datetime if times[0].dtype.kind == "M" else _before_number
    try:
        steps = numpy.array([find(series, end) for series in times], numpy.int64)
    except (TypeError, ValueError) as error:
        kind = "a datetime" if times[0].dtype.kind == "M" else "a number"
        raise ArgumentError(f"part {name} is {end!r}; expected {kind}, as for time=: {error}") from None
    return _native.PartEnd.steps(_native.borrow(steps, "part"))


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
