"""The steps of series and the time of each: those of the rows that were given, and those that were missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import Any

import numpy
from batchloom.arrays import frames, zones
from batchloom.dataset.windows.filling import Fill, Gaps, filled
from batchloom.dataset.windows.frequency import Grid, grid
from batchloom.errors import ArgumentError, DataError

Array = numpy.ndarray[Any, Any]


class Timeline:
    """The steps of series, and the time of each.

    Attributes:
        rows: The offsets of series among the rows that were given.
        offsets: The offsets of series among steps: the same, unless some are missing.
        times: The moment of each step, or ``None``.
        is_filled: ``True`` at steps that were missing; ``None`` if steps have no frequency.

    Args:
        times: The moment of each row, or ``None``.
        wall: Returns the time of each row as clocks show it.
        zone: Returns the time zone; ``None`` if there is none.
        rows: The offsets of series among rows.
        ids: The id of each series, if series have ids.
        freq: The frequency, as users give it, or ``None``.
        fill: The ways to fill missing steps, as users give them, or ``None``.

    Raises:
        ArgumentError: There is no such frequency, or no such way.
        DataError: Times that do not grow, or break the frequency: the message names series, step and times.
    """

    def __init__(
        self,
        times: Array | None,
        wall: Callable[[], Array],
        zone: Callable[[], tzinfo | None] | None,
        rows: Array,
        ids: list[Any] | None,
        freq: Any,
        fill: Any,
    ) -> None:
        self.rows = self.offsets = rows
        self.times, self._zone = times, zone
        self._wall = wall if zone is not None or times is None else lambda: times
        self._gaps: Gaps | None = None
        self._fill = _fill(times, freq, fill)
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
            raise DataError(self._broken(places, int(breaks[at]), int(jumps[at]), ids))
        self.is_filled = numpy.zeros(int(self.rows[-1] + (jumps - 1).sum()), bool)
        if not len(breaks):
            return
        self._gaps = gaps = Gaps.after(len(times), breaks, jumps)
        self.is_filled[gaps.steps] = True
        self.offsets = numpy.searchsorted(gaps.source, self.rows)
        missing = places.after(gaps.source[gaps.steps], gaps.places)
        self.times = _with_gaps(times, places.moments(missing), gaps)

    def _broken(self, places: Grid, row: int, jump: int, ids: list[Any] | None) -> str:
        after = "" if row in self.rows else f" after {places.text(row - 1)}"
        found = f"{frames.where(row, self.rows, ids)} is at {places.text(row)}{after}"
        expected = f"expected {places.expected(row)}, as freq is {places.name!r}"
        if jump < 1:
            return f"{found}; {expected}: times are never moved, so round them, or name another freq"
        missing = f"{jump - 1} step is missing" if jump == 2 else f"{jump - 1} steps are missing"
        return f"{found}; {expected}: {missing}, which fill= fills"

    def wall(self) -> Array:
        """Return the time of each step as clocks show it."""
        if self._zone is None and self.times is not None:
            return self.times
        wall = self._wall()
        if self._gaps is None or self.times is None or self._zone is None:
            return wall
        zone = self._zone()
        missing = self.times[self._gaps.steps]
        return _with_gaps(wall, missing if zone is None else zones.shown(missing, zone), self._gaps)

    def filled(self, label: str, values: Any, columns: Sequence[Any] | None = None) -> Any:
        """Return values of rows with those of missing steps; the same array if no step is missing.

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
        return filled(label, values, self._gaps, self._fill.ways(label, columns))

    @property
    def filled_ahead(self) -> Array | None:
        """``True`` at steps whose values come from steps after them; ``None`` if there are none."""
        return self.is_filled if self._fill is not None and self._fill.looks_ahead else None

    def use(self, label: str) -> None:
        """Note that there is a series of this name, which need not be filled."""
        if self._fill is not None:
            self._fill.use(label)

    def require_used(self) -> None:
        """Check that every name in ``fill`` was that of a column or a series.

        Raises:
            ArgumentError: One was not.
        """
        if self._fill is not None:
            self._fill.require_used()


def _with_gaps(times: Array, missing: Array, gaps: Gaps) -> Array:
    """Return the times of rows and of the steps that are missing."""
    found: Array = times.astype(numpy.result_type(times, missing), copy=False)[gaps.source]
    found[gaps.steps] = missing
    return found


def _fill(times: Array | None, freq: Any, fill: Any) -> Fill | None:
    for name, value in (("freq", freq), ("fill", fill)):
        if value is not None and times is None:
            raise ArgumentError(f"{name} is {value!r}, but the series have no times; expected time= too")
    if fill is not None and freq is None:
        raise ArgumentError(f"fill is {fill!r}, but freq is not given; expected the step of times, or freq='infer'")
    return None if fill is None else Fill(fill)
