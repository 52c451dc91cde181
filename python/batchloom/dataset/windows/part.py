"""The part of their time in which series have windows: all of it, or a range that a split or a backtest cut."""

from __future__ import annotations

from typing import Any, NamedTuple

import batchloom._native as _native
import numpy
from batchloom.dataset.array_windows import ArrayWindows
from batchloom.dataset.windows.scaler import Ranges

Array = numpy.ndarray[Any, Any]


class TimeRange(NamedTuple):
    """A range of the steps of each series.

    Attributes:
        starts: The first step of each series, counted from the start of the part that the range was cut from.
        stops: The step after the last one.
        reach_back: ``True`` if inputs may reach back before the range; horizons never do.
    """

    starts: Array
    stops: Array
    reach_back: bool


class Part(NamedTuple):
    """The part of their time in which series have windows.

    Attributes:
        ranges: Ranges of steps, each cut from the range before; empty for all steps.
    """

    ranges: tuple[TimeRange, ...] = ()

    def within(self, whole: Array, ranges: Array, reach_back: bool) -> Part:
        """Return a part of this part.

        Args:
            whole: The first row and the end of each series in this part, ``[series, 2]``.
            ranges: The same in the part of it.
            reach_back: ``True`` if inputs may reach back before these rows.
        """
        starts, stops = numpy.ascontiguousarray((ranges - whole[:, :1]).T)
        return Part((*self.ranges, TimeRange(starts, stops, reach_back)))

    def cut(self, windows: _native.Windows) -> _native.Windows:
        """Return the windows of the engine that lie in the part, out of all windows."""
        for each in self.ranges:
            starts, stops = _native.borrow(each.starts, "part"), _native.borrow(each.stops, "part")
            windows = windows.part(starts, stops, each.reach_back)
        return windows


def ranges_of(windows: _native.Windows) -> Array:
    """Return the first row and the end of each series in the part that windows lie in, ``[series, 2]``."""
    ranges: Array = numpy.from_dlpack(windows.ranges())
    return ranges


def covered_rows(windows: ArrayWindows, selected: bool) -> list[Ranges]:
    """Return the ranges of rows of each series to which a scale is fitted.

    Args:
        windows: The windows of a dataset.
        selected: ``True`` if they were selected, and cover less than their part.
    """
    ranges = ranges_of(windows.native)
    if not selected:
        return [[each] for each in ranges.tolist()]
    numbers = _native.borrow(numpy.arange(len(windows.native)), "windows")
    places: list[Array] = [numpy.from_dlpack(each) for each in windows.native.rows(numbers)]
    starts, missing = places
    ends = starts + windows.shape.span - missing
    order = numpy.argsort(starts, kind="stable")
    series = windows.table.series_at(starts[order]).tolist()
    covered: list[Ranges] = [[] for _ in ranges]
    for number, start, end in zip(series, starts[order].tolist(), ends[order].tolist(), strict=True):
        group = covered[number]
        if group and start <= group[-1][1]:
            group[-1][1] = max(group[-1][1], end)
        else:
            group.append([start, end])
    return covered
