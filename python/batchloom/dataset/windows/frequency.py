"""Frequencies of series: the step from each time to the next, as a length, or on a calendar.

Steps of a length are equal in numbers or in elapsed time, through changes of summer time. Steps on a calendar (days,
weeks, business days, months, quarters, years) keep the time of day that clocks show.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta, tzinfo
from numbers import Real
from typing import Any, Protocol

import numpy
from batchloom.arrays import zones
from batchloom.errors import ArgumentError, DataError

Array = numpy.ndarray[Any, Any]

_NAME = re.compile(r"(\d*)([A-Za-z]+)(?:-([A-Z]{3}))?$")

_LENGTHS: dict[str, Any] = {
    "h": numpy.timedelta64(1, "h"),
    "min": numpy.timedelta64(1, "m"),
    "s": numpy.timedelta64(1, "s"),
    "ms": numpy.timedelta64(1, "ms"),
    "us": numpy.timedelta64(1, "us"),
    "ns": numpy.timedelta64(1, "ns"),
}
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")

# Names that pandas had for the same before.
_FORMER = {
    "H": "h",
    "T": "min",
    "S": "s",
    "L": "ms",
    "U": "us",
    "N": "ns",
    "M": "ME",
    "Q": "QE",
    "A": "YE",
    "Y": "YE",
    "AS": "YS",
}

EXPECTED = (
    "'s', 'min', 'h', 'D', 'W-MON', 'B', 'MS', 'ME', 'QS', 'QE', 'YS' or 'YE', with a number before it if it is not 1, "
    "a timedelta, a number for times that are numbers, or 'infer'"
)


@dataclass(frozen=True)
class Length:
    """Steps of one length: a number, or a duration."""

    name: str
    step: Any


@dataclass(frozen=True)
class Calendar:
    """Steps on a calendar.

    Attributes:
        name: Its name.
        number: Returns the number of the period that each day lies in.
        day: Returns the day of each period, given a day that shows which of its days it is.
        period: The name of such a day, for errors.
        every: The periods of a step.
        cycle: The periods after which the calendar begins anew.
        phase: The place in the cycle at which steps are.
    """

    name: str
    number: Callable[[Array], Array]
    day: Callable[[Array, Array], Array]
    period: str
    every: int = 1
    cycle: int = 1
    phase: int = 0


class TimeGrid(Protocol):
    """Times of series, as places among steps of a frequency."""

    name: str

    def breaks(self) -> tuple[Array, Array]:
        """Return the rows that are not one step after the row before, and how many they are; 0 for no whole number."""

    def after(self, rows: Array, steps: Array) -> Array:
        """Return the times that are some steps after the times of rows."""

    def moments(self, times: Array) -> Array:
        """Return such times as moments."""

    def describe_expected(self, row: int) -> str:
        """Return the time that was expected at a row, for errors."""

    def text(self, row: int) -> str:
        """Return the time of a row, for errors."""


def grid(
    freq: Any, times: Array, wall: Callable[[], Array], zone: Callable[[], tzinfo | None] | None, offsets: Array
) -> TimeGrid:
    """Return times as places among steps of a frequency.

    Args:
        freq: The frequency, as users give it.
        times: The moment of each row.
        wall: Returns the times of rows as their clocks show them.
        zone: Returns the time zone, if there is one.
        offsets: The beginning of each series, and the end of the last one.

    Raises:
        ArgumentError: There is no such frequency for such times.
        DataError: No series has two steps from which to infer it.
    """
    frequency = _infer(times, wall, offsets) if _is_inferred(freq) else _read_frequency(freq, times)
    if isinstance(frequency, Calendar):
        return _OnCalendar(frequency, _in_days(wall()), offsets, zone)
    return _Even(frequency, times, offsets, is_zoned=zone is not None)


def _is_inferred(freq: Any) -> bool:
    return isinstance(freq, str) and freq == "infer"


def _read_frequency(freq: Any, times: Array) -> Length | Calendar:
    freq = getattr(freq, "freqstr", freq)
    if isinstance(freq, timedelta):
        freq = numpy.timedelta64(freq)
    is_number = isinstance(freq, Real | numpy.number) and not isinstance(freq, bool | numpy.timedelta64)
    if times.dtype.kind != "M":
        if not is_number:
            raise ArgumentError(f"freq is {freq!r}, and time has type {times.dtype}; expected a number, or 'infer'")
        return _read_number(freq, times)
    if isinstance(freq, numpy.timedelta64):
        return _read_duration(freq)
    parts = _NAME.match(freq) if isinstance(freq, str) else None
    known = None if parts is None else _parse_name(int(parts[1] or 1), _FORMER.get(parts[2], parts[2]), parts[3])
    if known is None or (parts is not None and parts[1] and not int(parts[1])):
        raise ArgumentError(f"freq is {freq!r}; expected {EXPECTED}")
    return replace(known, name=freq)


def _read_number(freq: Any, times: Array) -> Length:
    if not 0 < freq < 2**63:
        raise ArgumentError(f"freq is {freq!r}; expected a number above 0, and below 2**63")
    if times.dtype.kind == "f":
        return Length(str(freq), float(freq))
    if freq != int(freq):
        raise ArgumentError(f"freq is {freq!r}, and time has type {times.dtype}; expected an integer")
    return Length(str(freq), int(freq))


def _read_duration(step: numpy.timedelta64[Any]) -> Length | Calendar:
    unit, count = numpy.datetime_data(step.dtype)
    if unit == "generic" or numpy.isnat(step) or step.astype(numpy.int64) <= 0:
        raise ArgumentError(f"freq is {step!r}; expected a duration above 0, with a unit")
    if unit not in "YM":
        return Length(str(step), step)
    return replace(_SAME_DAY, name=str(step), every=int(step.astype(numpy.int64)) * count * (12 if unit == "Y" else 1))


def _parse_name(count: int, name: str, anchor: str | None) -> Length | Calendar | None:
    """Return the frequency of a name; ``None`` if the name is unknown."""
    if name in _LENGTHS and anchor is None:
        return Length(name, count * _LENGTHS[name])
    if name in ("D", "B", "MS", "ME") and anchor is None:
        return replace({"D": _DAYS, "B": _BUSINESS_DAYS, "MS": _FIRST_DAY, "ME": _LAST_DAY}[name], every=count)
    if name == "W" and (anchor or "SUN") in _WEEKDAYS:
        anchor = anchor or "SUN"
        period = f"a day that is {anchor}: name another weekday as in 'W-MON'"
        # 1970 began on a Thursday.
        phase = (_WEEKDAYS.index(anchor) - 3) % 7
        return replace(_DAYS, period=period, every=7 * count, cycle=7, phase=phase)
    if name in ("QS", "QE", "YS", "YE") and (anchor is None or anchor in _MONTHS):
        cycle, first = (3 if name[0] == "Q" else 12), name[1] == "S"
        month = _MONTHS.index(anchor or ("JAN" if first else "DEC"))
        months = ", ".join(_MONTHS[month % cycle :: cycle])
        days = _FIRST_DAY if first else _LAST_DAY
        period = days.period.replace("a month", months)
        return replace(days, period=period, every=cycle * count, cycle=cycle, phase=month % cycle)
    return None


def _infer(times: Array, wall: Callable[[], Array], offsets: Array) -> Length | Calendar:
    """Return the most frequent step, on a calendar if it takes whole days."""
    shown = wall() if times.dtype.kind == "M" else times
    steps = numpy.delete(_differences(shown), _inner(offsets) - 1)
    if not len(steps):
        raise DataError("freq is 'infer', and no series has two steps; expected a frequency, or a longer series")
    if times.dtype.kind == "f":
        return Length(str(step := float(numpy.median(steps))), step)
    step = _most_frequent(steps)
    if times.dtype.kind != "M":
        return Length(str(step), int(step))
    day = numpy.timedelta64(1, "D")
    if step % day != numpy.timedelta64(0, "s"):
        return Length(str(step), step)
    return _infer_days(shown.astype("datetime64[D]").astype(numpy.int64), int(step // day), offsets)


def _infer_days(days: Array, step: int, offsets: Array) -> Calendar:
    """Return the calendar with ``step`` days as the most frequent step."""
    if step == 1 and ((days + 3) % 7 < 5).all():
        fridays = (days[:-1] + 3) % 7 == 4
        if (numpy.diff(days)[fridays] == 3).any():
            return _BUSINESS_DAYS
    if step >= 28:
        for calendar in (_FIRST_DAY, _LAST_DAY, _SAME_DAY):
            months = calendar.number(days)
            if (calendar.day(months, _of_first(days, offsets)) == days).all():
                every = int(_most_frequent(numpy.delete(numpy.diff(months), _inner(offsets) - 1)))
                return replace(calendar, name=f"{every}{calendar.name}" if every > 1 else calendar.name, every=every)
    return replace(_DAYS, name=f"{step}D" if step > 1 else "D", every=step)


def _most_frequent(steps: Array) -> Any:
    """Return the most frequent value; of several, the smallest."""
    if (steps == steps[0]).all():
        return steps[0]
    values, counts = numpy.unique(steps, return_counts=True)
    return values[counts.argmax()]


def _differences(times: Array) -> Array:
    """Return the differences of neighbours, in a type that holds them."""
    times = _in_days(times) if times.dtype.kind == "M" else times
    wide = {"i": numpy.int64, "u": numpy.uint64, "f": numpy.float64}.get(times.dtype.kind, times.dtype)
    return numpy.diff(times.astype(wide, copy=False))


def _inner(offsets: Array) -> Array:
    """Return the rows at which a series begins after another one."""
    return numpy.unique(offsets[(offsets > 0) & (offsets < offsets[-1])])


def _of_first(values: Array, offsets: Array) -> Array:
    """Return, for each row, the value of the first row of its series."""
    starts, lengths = offsets[:-1], numpy.diff(offsets)
    return numpy.repeat(values[starts[lengths > 0]], lengths[lengths > 0])


def _in_days(times: Array) -> Array:
    """Return times in days or finer."""
    return times.astype("datetime64[D]") if numpy.datetime_data(times.dtype)[0] in "YMW" else times


def _text(time: Any) -> str:
    return re.sub(r"\.0+$", "", str(time))


class _Even:
    """Times among steps of one length."""

    def __init__(self, length: Length, times: Array, offsets: Array, *, is_zoned: bool) -> None:
        self.name, self._step, self._offsets, self._is_zoned = length.name, length.step, offsets, is_zoned
        self.times = times
        if times.dtype.kind == "M":
            days = _in_days(times)
            self.times = days.astype((days[:0] + length.step).dtype, copy=False)

    def breaks(self) -> tuple[Array, Array]:
        """Return the rows that are not one step after the row before, and how many they are; 0 for no whole number."""
        steps = _differences(self.times)
        differs = steps != self._step
        differs[_inner(self._offsets) - 1] = False
        rows = numpy.flatnonzero(differs) + 1
        if self.times.dtype.kind == "f":
            return self._find_breaks(rows, steps[rows - 1])
        whole = steps[rows - 1] // self._step
        return rows, numpy.where(steps[rows - 1] % self._step == steps[:0].dtype.type(0), whole, 0).astype(numpy.int64)

    def _find_breaks(self, rows: Array, steps: Array) -> tuple[Array, Array]:
        """Return the breaks among rows of floats, which are rounded."""
        whole = numpy.rint(steps / self._step)
        rounding = numpy.finfo(self.times.dtype).eps * numpy.abs(self.times[rows].astype(numpy.float64))
        whole[numpy.abs(steps - whole * self._step) > 1e-6 * self._step + 4 * rounding] = 0
        return rows[whole != 1], whole[whole != 1].astype(numpy.int64)

    def after(self, rows: Array, steps: Array) -> Array:
        """Return the times that are some steps after the times of rows."""
        if self.times.dtype.kind in "iu":
            # The product lies between two times, so that it fits into their type.
            steps = steps.astype(self.times.dtype)
        times: Array = (self.times[rows] + steps * self._step).astype(self.times.dtype)
        return times

    def moments(self, times: Array) -> Array:
        """Return such times as moments."""
        return times

    def describe_expected(self, row: int) -> str:
        """Return the time that was expected at a row, for errors."""
        expected = self.after(numpy.array([row - 1]), numpy.array([1]))[0]
        return _text(expected) + "Z" * self._is_zoned

    def text(self, row: int) -> str:
        """Return the time of a row, for errors."""
        return _text(self.times[row]) + "Z" * self._is_zoned


class _OnCalendar:
    """Times among steps on a calendar."""

    def __init__(
        self, calendar: Calendar, times: Array, offsets: Array, zone: Callable[[], tzinfo | None] | None
    ) -> None:
        self.name, self._calendar, self.times, self._offsets, self._zone = calendar.name, calendar, times, offsets, zone
        dates = times.astype("datetime64[D]")
        self._days, self._of_day = dates.astype(numpy.int64), times - dates
        self._numbers = calendar.number(self._days)
        self._first_days = _of_first(self._days, offsets)

    def breaks(self) -> tuple[Array, Array]:
        """Return the rows that are not one step after the row before, and how many they are; 0 for no whole number."""
        calendar = self._calendar
        steps, rest = numpy.divmod(numpy.diff(self._numbers, prepend=self._numbers[:1]), calendar.every)
        is_right = (calendar.day(self._numbers, self._first_days) == self._days) & (rest == 0)
        is_right &= self._of_day == _of_first(self._of_day, self._offsets)
        firsts = self._offsets[:-1][numpy.diff(self._offsets) > 0]
        steps[firsts] = 1
        is_right[firsts] = self._begins(firsts)
        steps[~is_right] = 0
        rows = numpy.flatnonzero(steps != 1)
        return rows, steps[rows]

    def _begins(self, rows: Array) -> Array:
        """Return whether a series can begin with the times of rows."""
        calendar, days = self._calendar, self._days[rows]
        can_begin: Array = (self._numbers[rows] - calendar.phase) % calendar.cycle == 0
        can_begin &= calendar.day(self._numbers[rows], days) == days
        return can_begin

    def after(self, rows: Array, steps: Array) -> Array:
        """Return the times that are some steps after the times of rows."""
        days = self._calendar.day(self._numbers[rows] + steps * self._calendar.every, self._first_days[rows])
        times: Array = days.astype("datetime64[D]") + self._of_day[rows]
        return times

    def moments(self, times: Array) -> Array:
        """Return such times as moments."""
        zone = None if self._zone is None else self._zone()
        return times if zone is None else zones.moments(times, zone)

    def describe_expected(self, row: int) -> str:
        """Return the time that was expected at a row, for errors."""
        if row in self._offsets:  # it is the first one
            return self._calendar.period
        return _text(self.after(numpy.array([row - 1]), numpy.array([1]))[0])

    def text(self, row: int) -> str:
        """Return the time of a row, for errors."""
        return _text(self.times[row])


def _months(days: Array) -> Array:
    """Return the number of months since January 1970."""
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(numpy.int64)


def _day_of_month(months: Array, place: Array | int) -> Array:
    """Return the day ``place`` days after the first of each month, or the last day of a shorter month."""
    first, end = (numpy.asarray(months + ahead).astype("datetime64[M]").astype("datetime64[D]") for ahead in (0, 1))
    start = first.astype(numpy.int64)
    days: Array = numpy.minimum(start + place, end.astype(numpy.int64) - 1)
    return days


def _place_in_month(days: Array) -> Array:
    return days - _day_of_month(_months(days), 0)


def _business_days(days: Array) -> Array:
    """Return the number of the business day, or of the business day after a weekend."""
    weeks, weekday = numpy.divmod(days + 3, 7)
    return 5 * weeks + numpy.minimum(weekday, 5)


def _day_of_business(numbers: Array, like: Array) -> Array:
    weeks, weekday = numpy.divmod(numbers, 5)
    return 7 * weeks + weekday - 3


_DAYS = Calendar("D", lambda days: days, lambda numbers, like: numbers, "a day")
_BUSINESS_DAYS = Calendar("B", _business_days, _day_of_business, "a day from Monday to Friday")
_FIRST_DAY = Calendar("MS", _months, lambda months, like: _day_of_month(months, 0), "the first day of a month")
_LAST_DAY = Calendar("ME", _months, lambda months, like: _day_of_month(months, 31), "the last day of a month")
_SAME_DAY = Calendar(
    "months", _months, lambda months, like: _day_of_month(months, _place_in_month(like)), "a day of a month"
)
