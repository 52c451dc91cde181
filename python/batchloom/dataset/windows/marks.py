"""Marks of steps that are made from their times: the hour, the weekday, and the marks that publications use.

Marks are read off the clock on the wall: times with a time zone count in that zone, through its changes of summer time.
All but the smallest parts of a time follow from its day, so they are computed once for each day and looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy
from batchloom.errors import ArgumentError, DataError

Array = numpy.ndarray[Any, Any]

# Kinds of steps, from the shortest to the longest, with the longest distance of such steps, in seconds.
KINDS = {"second": 59, "minute": 3_599, "hour": 86_399, "day": 604_799, "week": 27 * 86_400, "month": 2**62}

# What marks are, as integers.
NAMES = ("second", "minute", "hour", "weekday", "day", "yearday", "week", "month", "quarter", "year")

# Sets of marks, each a function of the kind of the steps.
SETS = ("tslib", "sin-cos")

# What tells a mark of the time from a column of a frame that has its name.
PREFIX = "time."

# Steps that are made at a time, so that all of their parts stay in the cache.
CHUNK = 2**15

# Ticks of a day, for units that count in it.
_TICKS = {"D": 1, "h": 24, "m": 1440, "s": 86_400, "ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}

# The values of the parts of a day.
_COUNTS = {"second": 60, "minute": 60, "hour": 24}

# A table of values, and the part of a time by which it is looked up.
Column = tuple[str, Array]

# The parts of a time that the Time-Series-Library takes for each kind of steps, from the fastest to the slowest.
_SLOW = ("weekday", "day", "yearday")
_TSLIB = {
    "second": ("second", "minute", "hour", *_SLOW),
    "minute": ("minute", "hour", *_SLOW),
    "hour": ("hour", *_SLOW),
    "day": _SLOW,
    "week": ("day", "week"),
    "month": ("month",),
}

# Its smallest and largest value of each: marks lie between -0.5 and 0.5.
_RANGE = {
    "second": (0, 59.0),
    "minute": (0, 59.0),
    "hour": (0, 23.0),
    "weekday": (0, 6.0),
    "day": (1, 30.0),
    "yearday": (1, 365.0),
    "week": (1, 52.0),
    "month": (1, 11.0),
}

# The cycles of each kind of steps, and the values of a cycle. Years have the days that they have.
_CYCLES = {
    "second": ("second", "minute", "hour", "weekday", "yearday"),
    "minute": ("minute", "hour", "weekday", "yearday"),
    "hour": ("hour", "weekday", "yearday"),
    "day": ("weekday", "yearday"),
    "week": ("yearday",),
    "month": ("month",),
}
_VALUES = {**_COUNTS, "weekday": 7, "month": 12}


def is_mark(name: Any) -> bool:
    """Return whether a name is the name of a mark of the time."""
    return isinstance(name, str) and (name in NAMES or name in SETS or name.startswith(PREFIX))


def make_marks(names: Sequence[str], times: Array, offsets: Array, dtype: Any) -> Array:
    """Return the marks of each step, ``[steps, marks]``.

    Args:
        names: Names of :data:`NAMES` and :data:`SETS`, which may begin with ``time.``.
        times: The time of each step on the wall, as datetimes.
        offsets: The beginning of each series, and the end of the last one.
        dtype: The type of marks that are no integers; integers are int32.

    Raises:
        ArgumentError: There is no mark of such a name.
        DataError: Times are no datetimes, or one is missing.
    """
    plain = [name.removeprefix(PREFIX) for name in names]
    for name in plain:
        if name not in NAMES and name not in SETS:
            raise ArgumentError(f"marks has {name!r}; expected some of {', '.join((*NAMES, *SETS))}")
    if times.dtype.kind != "M":
        raise DataError(f"marks has {plain[0]!r}, but time has type {times.dtype}; expected datetimes")
    if numpy.isnat(times).any():
        raise DataError(f"marks has {plain[0]!r}, but step {int(numpy.isnat(times).argmax())} has no time")
    clock = _Clock(times if len(times) else numpy.zeros(1, times.dtype))
    columns = [column for name in plain for column in _columns(name, clock, offsets)]
    whole = all(table.dtype.kind == "i" for _, table in columns)
    marks = numpy.empty((len(times), len(columns)), numpy.int32 if whole else dtype)
    tables = [(part, table.astype(marks.dtype)) for part, table in columns]
    for start in range(0, len(times), CHUNK):
        places = clock.places(slice(start, start + CHUNK))
        for place, (part, table) in enumerate(tables):
            marks[start : start + CHUNK, place] = table[places[part]]
    return marks


def kind_of(times: Array, offsets: Array) -> str:
    """Return the kind of the shortest step between two times of a series."""
    spans = [times[start:end] for start, end in pairwise(offsets.tolist()) if end - start > 1]
    shortest = min((numpy.diff(span).min() for span in spans), default=numpy.timedelta64(0, "s"))
    shortest = shortest.astype("timedelta64[s]").astype(int)
    return next(kind for kind, longest in KINDS.items() if shortest <= longest)


def _columns(name: str, clock: _Clock, offsets: Array) -> list[Column]:
    if name in NAMES:
        return [clock.column(name, lambda values: values.astype(numpy.int32))]
    kind = kind_of(clock.times, offsets)
    if name == "tslib":
        return [clock.column(part, _between(*_RANGE[part])) for part in _TSLIB[kind]]
    return [clock.column(part, _turn(part, turn, clock)) for part in _CYCLES[kind] for turn in (numpy.sin, numpy.cos)]


def _between(first: int, width: float) -> Callable[[Array], Array]:
    return lambda values: (values - first if first else values) / width - 0.5


def _turn(part: str, turn: Callable[[Array], Array], clock: _Clock) -> Callable[[Array], Array]:
    """Return the sine or the cosine of the place in a cycle."""
    first, count = _RANGE[part][0], _days_of_year(clock.days) if part == "yearday" else _VALUES[part]
    return lambda values: turn(2 * numpy.pi * (values - first) / count)


class _Clock:
    """The parts of times, each as a table and the place of each time in it."""

    def __init__(self, times: Array) -> None:
        unit, count = numpy.datetime_data(times.dtype)
        if unit not in _TICKS:
            # Weeks, months and years begin with a day; what is finer than nanoseconds has no part here.
            unit, count = ("D" if unit in "YMW" else "ns"), 1
            times = times.astype(f"datetime64[{unit}]")
        self.times, self._ticks = times, times.view(numpy.int64)
        # Ticks of several units, as every 15 minutes, are ticks of the unit.
        self._count, self._in_day = count, _TICKS[unit]
        first, last = (int(day) for day in self._day_of(numpy.array([self._ticks.min(), self._ticks.max()])))
        self._first: int | None = first if last - first < len(times) else None
        self.days = numpy.arange(first, last + 1)
        if self._first is None:
            self.days, self._place = numpy.unique(self._day_of(self._ticks), return_inverse=True)

    def column(self, part: str, then: Callable[[Array], Array]) -> Column:
        """Return the table of ``then`` of a part of the time, and what it is looked up by."""
        if part in _COUNTS:
            return part, then(numpy.arange(_COUNTS[part]))
        return "day", then(_CALENDAR[part](self.days))

    def places(self, steps: slice) -> dict[str, Array]:
        """Return the place of each of some steps in tables."""
        ticks = self._ticks[steps]
        days = self._day_of(ticks)
        ticks = ticks * self._count if self._count > 1 else ticks
        rest = ticks - days * self._in_day
        seconds = rest // (self._in_day // 86_400) if self._in_day >= 86_400 else rest * (86_400 // self._in_day)
        return {
            "second": seconds % 60,
            "minute": seconds // 60 % 60,
            "hour": seconds // 3600,
            "day": days - self._first if self._first is not None else self._place[steps],
        }

    def _day_of(self, ticks: Array) -> Array:
        days: Array = (ticks * self._count if self._count > 1 else ticks) // self._in_day
        return days


def _dates(days: Array) -> Array:
    return days.astype("datetime64[D]")


def _months(days: Array) -> Array:
    """Return the number of months since January 1970."""
    return _dates(days).astype("datetime64[M]").astype(numpy.int64)


def _years(days: Array) -> Array:
    return _dates(days).astype("datetime64[Y]").astype(numpy.int64)


def _start_of(period: Array, unit: str) -> Array:
    """Return the first day of months or years."""
    return period.astype(f"datetime64[{unit}]").astype("datetime64[D]").astype(numpy.int64)


def _yearday(days: Array) -> Array:
    return days - _start_of(_years(days), "Y") + 1


def _days_of_year(days: Array) -> Array:
    years = _years(days)
    return _start_of(years + 1, "Y") - _start_of(years, "Y")


def _week(days: Array) -> Array:
    """Return the number of the ISO week: it belongs to the year of its Thursday."""
    thursdays = days - _weekday(days) + 3
    return (_yearday(thursdays) - 1) // 7 + 1


def _weekday(days: Array) -> Array:
    return (days + 3) % 7  # 1970 began on a Thursday


_CALENDAR: dict[str, Callable[[Array], Array]] = {
    "weekday": _weekday,
    "day": lambda days: days - _start_of(_months(days), "M") + 1,
    "yearday": _yearday,
    "week": _week,
    "month": lambda days: _months(days) % 12 + 1,
    "quarter": lambda days: _months(days) % 12 // 3 + 1,
    "year": lambda days: _years(days) + 1970,
}
