"""The steps of series and the time of each, which are read from rows: steps that have no row are put in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy
from batchloom.arrays import frames, zones
from batchloom.arrays.inputs import read_plain
from batchloom.dataset.windows.filling import Fill, Gaps, fill_gaps
from batchloom.dataset.windows.frequency import TimeGrid, grid
from batchloom.errors import ArgumentError, DataError, many

Array = numpy.ndarray[Any, Any]


class Timeline(NamedTuple):
    """The steps of series, and the time of each.

    Attributes:
        offsets: The beginning of each series among all steps, and the end of the last one.
        times: The moment of each step; ``None`` without times.
        zoned: ``True`` if times have a time zone.
        filled: ``True`` at steps that were missing and were filled; ``None`` without a frequency.
        filled_ahead: ``True`` at steps that were filled from later steps; ``None`` if no step may be.
    """

    offsets: Array
    times: Array | None = None
    zoned: bool = False
    filled: Array | None = None
    filled_ahead: Array | None = None

    def times_in(self, ranges: Array) -> list[Array] | None:
        """Return the times of a range of each series, ``[series, 2]``; ``None`` without times."""
        times = self.times
        return None if times is None else [times[start:end] for start, end in ranges.tolist()]

    def require_no_look_ahead(self, ranges: Array) -> None:
        """Check that no range of a series ends with steps that were filled from steps after it.

        Args:
            ranges: The first row and the end of the range of each series, ``[series, 2]``.

        Raises:
            DataError: A range does; the message names the series and the step.
        """
        if self.filled_ahead is None:
            return
        for series, (start, end) in enumerate(ranges.tolist()):
            if start < end < self.offsets[series + 1] and self.filled_ahead[end - 1]:
                step = end - int(self.offsets[series])
                raise DataError(
                    f"a part ends at step {step} of series {series}, in a gap that fill='linear' fills from the step "
                    "after it; expected an end where steps were given, or fill='forward'"
                )


class TimedRows:
    """The rows that series are given as, and the steps that they become.

    Attributes:
        rows: The offsets of series among rows.
        offsets: The offsets of series among steps: the same, unless some are missing.
        times: The moment of each step, or ``None``.
        is_filled: ``True`` at steps that were missing; ``None`` if steps have no frequency.

    Args:
        time: The time of each row, as users give it, or ``None``.
        rows: The offsets of series among rows.
        ids: The id of each series, if series have ids.
        freq: The frequency, as users give it, or ``None``.
        fill: The ways to fill missing steps, as users give them, or ``None``.

    Raises:
        ArgumentError: There is no such frequency, or no such way.
        DataError: Times that do not grow, or break the frequency: the message names series, step and times.
    """

    def __init__(self, time: Any, rows: Array, ids: list[Any] | None, freq: Any, fill: Any) -> None:
        self.rows = self.offsets = rows
        self.times = times = None if time is None else _read_times(time, rows)
        self._zone = partial(zones.zone_of, time) if frames.has_zone(time) else None
        shown = partial(_read_times, time, rows, frames.on_the_wall)
        self._wall: Callable[[], Any] = shown if self._zone is not None or times is None else lambda: times
        self._gaps: Gaps | None = None
        self._fill = _read_fill(times, freq, fill)
        self.is_filled: Array | None = None
        if times is not None:
            frames.require_increasing(times, rows, ids)
            if freq is not None:
                self._go_on_by(freq, times, ids)

    def _go_on_by(self, freq: Any, times: Array, ids: list[Any] | None) -> None:
        """Check that times go on by a frequency, and put missing steps in."""
        places = grid(freq, times, self._wall, self._zone, self.rows)
        breaks, jumps = places.breaks()
        wrong = jumps < 1 if self._fill is not None else jumps != 1
        if wrong.any():
            at = int(wrong.argmax())
            raise DataError(self._describe_break(places, int(breaks[at]), int(jumps[at]), ids))
        self.is_filled = numpy.zeros(int(self.rows[-1] + (jumps - 1).sum()), bool)
        if not len(breaks):
            return
        self._gaps = gaps = Gaps.after(len(times), breaks, jumps)
        self.is_filled[gaps.steps] = True
        self.offsets = numpy.searchsorted(gaps.source, self.rows)
        missing = places.after(gaps.source[gaps.steps], gaps.places)
        self.times = _put_in_gaps(times, places.moments(missing), gaps)

    def _describe_break(self, places: TimeGrid, row: int, jump: int, ids: list[Any] | None) -> str:
        """Return the message of an error: a row that is ``jump`` steps after the row before it, and not one."""
        after = "" if row in self.rows else f" after {places.text(row - 1)}"
        place = f"{frames.where(row, self.rows, ids)} is at {places.text(row)}{after}"
        expected = f"expected {places.describe_expected(row)}, as freq is {places.name!r}"
        if jump < 1:
            return f"{place}; {expected}: times are never moved, so round them, or name another freq"
        missing = f"{jump - 1} step is missing" if jump == 2 else f"{jump - 1} steps are missing"
        return f"{place}; {expected}: {missing}, which fill= fills"

    def wall(self) -> Array:
        """Return the time of each step as clocks show it."""
        if self._zone is None and self.times is not None:
            return self.times
        wall: Array = self._wall()
        if self._gaps is None or self.times is None or self._zone is None:
            return wall
        zone = self._zone()
        missing = self.times[self._gaps.steps]
        return _put_in_gaps(wall, missing if zone is None else zones.to_wall_times(missing, zone), self._gaps)

    def timeline(self) -> Timeline:
        """Return the steps, without the rows from which they were read."""
        ahead = self.is_filled if self._fill is not None and self._fill.looks_ahead else None
        return Timeline(self.offsets, self.times, self._zone is not None, self.is_filled, ahead)

    def fill(self, label: str, values: Any, columns: Sequence[Any] | None = None) -> Any:
        """Return the values of rows and of missing steps; the same array if no step is missing.

        Args:
            label: The name of the values.
            values: The values of rows, ``[rows, ...]``.
            columns: The names of columns; ``None`` for their numbers.

        Raises:
            ArgumentError: A column has no way to be filled.
            DTypeError: Values of their type cannot be filled in this way.
        """
        if self._fill is None:
            return values
        if columns is None:
            columns = range(values.shape[1]) if len(values.shape) == 2 and label == "series" else []
        return fill_gaps(label, values, self._gaps, self._fill.ways(label, columns))

    def use(self, label: str) -> None:
        """Note that there is a series of this name, which need not be filled."""
        if self._fill is not None:
            self._fill.use(label)

    def require_used(self) -> None:
        """Check that every name in ``fill`` is the name of a column or a series.

        Raises:
            ArgumentError: A name is not.
        """
        if self._fill is not None:
            self._fill.require_used()


def _put_in_gaps(times: Array, missing: Array, gaps: Gaps) -> Array:
    """Return the times of all steps: the times of rows, and the times of missing steps."""
    whole: Array = times.astype(numpy.result_type(times, missing), copy=False)[gaps.source]
    whole[gaps.steps] = missing
    return whole


def _read_fill(times: Array | None, freq: Any, fill: Any) -> Fill | None:
    """Return the ways to fill missing steps; ``None`` without ``fill``."""
    for name, value in (("freq", freq), ("fill", fill)):
        if value is not None and times is None:
            raise ArgumentError(f"{name} is {value!r}, but the series have no times; expected time= too")
    if fill is not None and freq is None:
        raise ArgumentError(f"fill is {fill!r}, but freq is not given; expected the step of times, or freq='infer'")
    return None if fill is None else Fill(fill)


def _read_times(time: Any, offsets: Array, read: Callable[[Any], Array] = frames.moments) -> Array:
    """Return the time of every row of the series at ``offsets``, as ``read`` makes it of an argument."""
    if isinstance(time, list) and time and all(hasattr(part, "__len__") and not isinstance(part, str) for part in time):
        lengths = [len(part) for part in time]
        if lengths != numpy.diff(offsets).tolist():
            raise DataError(f"time has series of lengths {lengths}; expected {numpy.diff(offsets).tolist()}")
        times = numpy.concatenate([read(part) for part in time])
    elif isinstance(time, tuple) and len(time) == 2:
        if not numpy.array_equal(read_plain("time", time[1], "offsets"), offsets):
            raise DataError("time and series have different offsets; expected the same offsets for both")
        times = read(time[0])
    else:
        times = read(time)
    if len(times) != offsets[-1]:
        raise DataError(f"time has {many(len(times), 'step')}; expected {offsets[-1]}, one for each step of the series")
    return times
