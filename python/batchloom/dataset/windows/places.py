"""The place of a window: its series and its step, found from the number of a sample, and back."""

from __future__ import annotations

import operator
from typing import NamedTuple

from batchloom.arguments import integer
from batchloom.collate.window_steps import MOST_STEPS
from batchloom.dataset.array_windows import ArrayWindows
from batchloom.errors import RangeError


class WindowPlace(NamedTuple):
    """The place of a window in its series."""

    series: int
    """The number of the series."""
    start: int
    """The first step of the window in its series, as batches with ``index=True`` hold it.

    It is negative if zeros are put before the series. With ``offsets``, it is the step of the anchor.
    """
    missing: int
    """The steps of zeros before the series."""


def place_of(windows: ArrayWindows, number: int) -> WindowPlace:
    """Return the place of a window."""
    series, row, missing = windows.native.place(number)
    start = int(windows.table.rows[series, 0])
    return WindowPlace(series, row - missing - start + windows.table.anchor, missing)


def find_sample(windows: ArrayWindows, series: int, start: int) -> int:
    """Return the number of the first sample that is the window of a series at a step.

    Raises:
        ArgumentError: There is no such series.
        RangeError: The series has no window at the step.
    """
    table = windows.table
    number, step = integer("series", series, most=len(table.rows) - 1), operator.index(start) - table.anchor
    sample = windows.native.sample_at(number, step) if abs(step) < MOST_STEPS else None
    if sample is None:
        raise RangeError(
            f"series {number} has no window at step {start}; expected the start of one, as place() and batches "
            "with index=True say it"
        )
    return sample
