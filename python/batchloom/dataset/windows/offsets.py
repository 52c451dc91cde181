"""Series by name, of which fields take steps relative to an anchor: ``offsets={"state": [0], "action": range(16)}``.

Every step of a series is an anchor, or, without padding, every step around which all steps of a window exist.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy
from batchloom.arrays import frames
from batchloom.arrays.field import Field
from batchloom.arrays.frameworks import is_arrow
from batchloom.collate.window_steps import MOST_STEPS, WindowSteps
from batchloom.dataset.variable import is_variable, variable
from batchloom.dataset.windows.series import aligned, timeline_of
from batchloom.dataset.windows.timeline import Timeline
from batchloom.errors import ArgumentError, DataError, many

Array = numpy.ndarray[Any, Any]


class Offsets(NamedTuple):
    """The steps of each field, as steps of a window.

    Attributes:
        steps: The steps of each field, counted from the first step that any field takes.
        span: The number of steps of a window.
        anchor: The step of a window that is its anchor.
    """

    steps: dict[str, WindowSteps]
    span: int
    anchor: int


def read(offsets: Any) -> Offsets:
    """Read the steps that fields take.

    Raises:
        ArgumentError: They are not a dict of steps by name, or a field takes no step.
    """
    if not isinstance(offsets, Mapping) or not offsets:
        raise ArgumentError(
            f"offsets is {offsets!r}; expected the steps of each field by name, such as "
            '{"state": [0], "action": range(16)}'
        )
    listed = {name: _listed(name, steps) for name, steps in offsets.items()}
    first = min(0, *(min(steps) for steps in listed.values()))
    last = max(0, *(max(steps) for steps in listed.values()))
    steps = {name: WindowSteps.of(step - first for step in steps) for name, steps in listed.items()}
    return Offsets(steps, last - first + 1, -first)


def _listed(name: Any, steps: Any) -> list[int]:
    if not isinstance(name, str):
        raise ArgumentError(f"offsets names a field {name!r}; expected a text")
    try:
        found = [operator.index(step) for step in (steps if isinstance(steps, Iterable) else [steps])]
    except TypeError:
        raise ArgumentError(f"offsets of field {name} are {steps!r}; expected whole steps, such as [-1, 0]") from None
    if not found:
        raise ArgumentError(f"offsets of field {name} are empty; expected at least one step")
    far = max(found, key=abs)
    if abs(far) >= MOST_STEPS:
        raise ArgumentError(f"offsets of field {name} have step {far}; expected steps of a series")
    return found


class NamedSeries(NamedTuple):
    """Series by name.

    Attributes:
        values: The array of each field, ``[time, ...]``, all series one after the other.
        timeline: The steps of series, and the time of each.
        ids: The id of each series, for series with ids.
        zoned: ``True`` if times have a time zone.
    """

    values: dict[str, Any]
    timeline: Timeline
    ids: list[Any] | None
    zoned: bool


def from_columns(
    series: Any, names: Iterable[str], id: Any, time: Any, freq: Any = None, fill: Any = None
) -> NamedSeries:
    """Read fields from the columns of a frame, or from a dict of arrays ``[time, ...]`` of any shape.

    Raises:
        ArgumentError: ``series`` has no names, or not one of those that are asked for.
        DataError: Columns have different numbers of steps, or a column of lists has lists of different lengths.
    """
    if not frames.is_frame(series):
        raise ArgumentError(
            f"offsets is given, and series is a {type(series).__name__}; expected series by name: a frame, or a dict "
            "of arrays"
        )
    frame = frames.Frame(series)
    ids, offsets = (None, None) if id is None else frames.runs(frame.column(id, "id"))
    columns = {name: frame.raw(name, "offsets") for name in names}
    first = next(iter(columns))
    if offsets is None:
        offsets = _offsets(first, columns[first])
    raw = frame.raw(time, "time") if isinstance(time, str) else time
    timeline, zoned = timeline_of(raw, offsets, ids, freq, fill)
    values = {name: timeline.filled(name, _steps(name, column, offsets)) for name, column in columns.items()}
    timeline.require_used()
    return NamedSeries(values, timeline, ids, zoned)


def _offsets(name: str, column: Any) -> Array:
    """Return the offsets of series in a list of arrays or in values with offsets; another array is one series."""
    if isinstance(column, list | tuple) and is_variable(column):
        found: Array = variable(name, column).offsets
        return found
    return numpy.array([0, len(column)], numpy.int64)


def _steps(name: str, column: Any, offsets: Array) -> Any:
    """Return a column as an array with a row for each step."""
    if isinstance(column, list | tuple) and is_variable(column):
        return aligned(name, column, offsets)
    column = _rows(name, column)
    if len(column) != offsets[-1]:
        raise DataError(f"field {name} has {many(len(column), 'step')}; expected {offsets[-1]}, as the others have")
    Field(name, column)  # An array that cannot be shared is refused under this name.
    return column


def _rows(name: str, column: Any) -> Any:
    """Return a column as an array: lists of one length are rows of it."""
    if hasattr(column, "__dlpack__") or hasattr(column, "detach"):
        return column
    column = column.to_arrow() if hasattr(column, "to_arrow") else column
    if is_arrow(column) and "list" in str(getattr(column, "type", "")):
        lists = variable(name, column)
        lengths = numpy.diff(lists.offsets)
        if len(lengths) and (lengths != lengths[0]).any():
            row = int((lengths != lengths[0]).argmax())
            raise DataError(
                f"field {name} has lists of {lengths[0]} and, in row {row}, of {lengths[row]}; expected one length"
            )
        values = lists.values.slice(int(lists.offsets[0]), int(lists.offsets[-1]))
        return values.reshape(len(lengths), -1)
    found = frames.to_numpy(column, f"column {name!r}")
    return numpy.stack([numpy.asarray(row) for row in found]) if found.dtype == object else found
