"""Windows of a shape, slid over series: the fields that batches hold, and the windows of the engine that have them."""

from __future__ import annotations

from functools import partial
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arrays import frames
from batchloom.arrays.field import BorrowedArray, lend
from batchloom.collate.window_steps import WindowSteps
from batchloom.dataset.array_windows import ArrayWindows, FoundRows, LookedUp, SeriesTable, Span
from batchloom.dataset.window_shape import WindowShape
from batchloom.dataset.windows.part import Part
from batchloom.dataset.windows.series import Series
from batchloom.dataset.windows.timed_field import mask_name, require_rows


def slide(series: Series, shape: WindowShape, part: Part) -> ArrayWindows:
    """Return the windows of a shape over a part of series.

    Raises:
        ArgumentError: Lengths that make no sense.
        DataError: A series is too short; the message names it. Or there is no window, or one lacks a row of a field
            with separate times.
    """
    offsets, ids = series.timeline.offsets, series.ids
    whole = shape.slide(offsets, ids)
    spans = {name: Span(field, shape.steps_of(name, name in series.targets)) for name, field in series.fields.items()}
    masks, looked_up = shape.masks, series.looked_up
    if shape.index:
        looked_up = looked_up | _look_up_places(series, shape)
    native = part.cut(_with_fields(whole, series, spans, masks, looked_up, shape))
    if series.timed:
        require_rows(native, series.timed, series.timeline, ids)
    found = {
        name: FoundRows(each.field, each.count, mask_name(name) if each.pads else None)
        for name, each in series.timed.items()
    }
    table = SeriesTable.of(whole, native, shape, offsets)
    where = partial(frames.where, offsets=offsets, ids=ids)
    return ArrayWindows(native, shape, spans, masks, looked_up, table, series.named or shape.index, where, found)


def _look_up_places(series: Series, shape: WindowShape) -> dict[str, LookedUp]:
    """Return the fields that hold the place of a window: its series, its step, and the time of the step."""
    looked_up = {"series": LookedUp("series"), shape.step_name: LookedUp("steps")}
    times: Any = series.timeline.times
    if times is None:
        return looked_up
    times = times.view(numpy.int64) if times.dtype.kind == "M" else times
    if next(iter(series.fields.values())).framework == "torch":
        times = lend(_native.borrow(times, "time"), "torch")
    return looked_up | {"time": LookedUp("steps", BorrowedArray("time", times))}


def _with_fields(
    windows: _native.Windows,
    series: Series,
    spans: dict[str, Span],
    masks: dict[str, WindowSteps],
    looked_up: dict[str, LookedUp],
    shape: WindowShape,
) -> _native.Windows:
    """Return windows of the engine with fields."""
    for name, span in spans.items():
        windows = windows.with_steps(name, span.field.tensor, span.steps.native)
    for name, steps in masks.items():
        windows = windows.with_mask(name, steps.native)
    for name, field in series.timed.items():
        windows = field.add(name, windows, series.timeline, shape.time_step)
    for name, each in looked_up.items():
        # The time of a step is put after the places that the engine makes; without places, a label may be named time.
        if each.field is not None and not (shape.index and name == "time"):
            windows = windows.with_rows(name, each.field.tensor, each.of, shape.anchor_step)
    if shape.index:
        windows = windows.with_index(shape.step_name, shape.anchor_step)
        time = looked_up.get("time")
        if time is not None and time.field is not None:
            windows = windows.with_rows("time", time.field.tensor, "steps", shape.anchor_step)
    return windows
