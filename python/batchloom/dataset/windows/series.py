"""Time series from arrays, lists and frames, with targets, marks and times for each step."""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy
from batchloom.arrays import frames, zones
from batchloom.arrays.field import Field
from batchloom.arrays.frameworks import framework_of, is_arrow
from batchloom.dataset.variable import is_variable, variable
from batchloom.dataset.windows.marks import PREFIX, is_mark, made
from batchloom.dataset.windows.timeline import Timeline
from batchloom.errors import ArgumentError, DataError, many

Array = numpy.ndarray[Any, Any]


# What tells a column of a frame from a mark of the time that has its name.
COLUMN = "column."


class Series(NamedTuple):
    """Series as arrays, from which windows are cut.

    Attributes:
        x: The values, all series one after the other, ``[steps, ...]``.
        y: The columns to predict.
        marks: The marks of each step, or ``None``.
        timeline: The steps of the series, and their times.
        ids: The id of each series, for frames with ids.
        zoned: ``True`` if times have a time zone.
        chosen: The columns that ``y`` takes of the values, as :func:`columns_of` takes them, in a tuple of one;
            ``None`` if ``y`` is apart.
    """

    x: Any
    y: Any
    marks: Any
    timeline: Timeline
    ids: list[Any] | None
    zoned: bool = False
    chosen: tuple[Any] | None = None

    @property
    def offsets(self) -> Array:
        """The beginning of each series, and the end of the last one."""
        return self.timeline.offsets

    @property
    def times(self) -> Array | None:
        """The time of each step, or ``None``."""
        return self.timeline.times

    def beside(self, label: str, data: Any) -> Any:
        """Return the array of more series for the same steps, or for the rows from which they came.

        Raises:
            DataError: A series has another length; the message names it.
        """
        return _beside(label, data, self.timeline)


def from_arrays(series: Any, targets: Any, marks: Any, time: Any, freq: Any = None, fill: Any = None) -> Series:
    """Read series from an array, a list of arrays, or values with offsets."""
    values, offsets = _series("series", series)
    timeline, zoned = timeline_of(time, offsets, None, freq, fill)
    values = timeline.filled("series", values)
    beside: Any = None
    if all(isinstance(name, str) for name in _names(marks)):
        beside = _of_times(_names(marks), timeline, values)
    elif marks is not None:
        beside = _beside("marks", marks, timeline)
    return Series(values, columns_of(values, targets), beside, timeline, None, zoned, (targets,))


def from_frame(
    data: Any,
    targets: Any,
    marks: Any,
    id: Any,
    time: Any,
    columns: Any,
    freq: Any = None,
    fill: Any = None,
    looked_up: Sequence[Any] = (),
) -> Series:
    """Read series from the columns of a frame, all but those that are looked up beside windows."""
    frame = frames.Frame(data)
    if id is not None and not _is_name(id, frame):
        raise ArgumentError(f"id is {id!r}; expected one of {', '.join(map(repr, frame.names))}")
    marked, of_times = _marked(marks, frame)
    aside: list[Any] = [id, *marked, *looked_up, *([time] if _is_name(time, frame) else [])]
    names = [name for name in frame.names if name not in aside] if columns is None else _listed(columns)
    values = frame.numbers(names, "columns")
    ids, offsets = (None, _one_series(len(values))) if id is None else frames.runs(frame.column(id, "id"))
    raw = frame.raw(time, "time") if _is_name(time, frame) else time
    timeline, zoned = timeline_of(raw, offsets, ids, freq, fill)
    values = timeline.filled("series", values, names)
    beside: Any = None
    if marked or of_times:
        taken = [timeline.filled("marks", frame.numbers(marked, "marks"), marked)] if marked else []
        beside = numpy.concatenate([*taken, *_made(of_times, timeline, values)], axis=1)
    elif marks is not None:
        beside = _beside("marks", marks, timeline)
    chosen = _chosen(frame, names, targets)
    if chosen is None:
        y = timeline.filled("targets", frame.numbers(_listed(targets), "targets"), _listed(targets))
    else:
        y = columns_of(values, *chosen)
    return Series(values, y, beside, timeline, ids, zoned, chosen)


def timeline_of(time: Any, offsets: Array, ids: list[Any] | None, freq: Any, fill: Any) -> tuple[Timeline, bool]:
    """Return the steps of series and their times, and whether these have a time zone."""
    times = None if time is None else _times(time, offsets)
    zoned = frames.has_zone(time)
    zone = partial(zones.zone_of, time) if zoned else None
    wall = partial(_times, time, offsets, frames.on_the_wall)
    return Timeline(times, wall, zone, offsets, ids, freq, fill), zoned


def _chosen(frame: frames.Frame, names: list[Any], targets: Any) -> tuple[Any] | None:
    """Return the places of target columns among ``names``, in a tuple of one; ``None`` if some are not among them."""
    options = _listed(targets)
    if targets is None:
        return (None,)
    is_among = all(_is_name(name, frame) and name in names for name in options)
    return ([names.index(name) for name in options],) if is_among else None


def _is_name(value: Any, frame: frames.Frame) -> bool:
    if isinstance(value, str):
        return True
    return value is not None and not hasattr(value, "shape") and isinstance(value, Hashable) and value in frame.names


def _marked(marks: Any, frame: frames.Frame) -> tuple[list[Any], list[str]]:
    """Return the columns that hold marks, and the marks that are made from times: none if ``marks`` are series.

    Raises:
        ArgumentError: A name could be both.
    """
    if marks is None or not all(_is_name(name, frame) for name in _listed(marks)):
        return [], []
    columns: list[Any] = []
    of_times: list[str] = []
    for name in _listed(marks):
        if isinstance(name, str) and name.startswith(COLUMN) and name not in frame.names:
            columns.append(name.removeprefix(COLUMN))
        elif not is_mark(name):
            columns.append(name)
        elif name in frame.names:
            raise ArgumentError(
                f"marks has {name!r}, which is a column of the frame and a mark of its times; expected "
                f"{COLUMN + name!r} or {PREFIX + name!r}"
            )
        else:
            of_times.append(name)
    return columns, of_times


def _names(marks: Any) -> list[Any]:
    """Return ``marks`` as a list, if it is a text or a list."""
    return [marks] if isinstance(marks, str) else list(marks) if isinstance(marks, list | tuple) and marks else [None]


def _made(names: list[str], timeline: Timeline, values: Any) -> list[Array]:
    return [_of_times(names, timeline, values)] if names else []


def _of_times(names: list[str], timeline: Timeline, values: Any) -> Array:
    """Return marks of the times of series, in the type of their values, if that is one of NumPy's floats.

    Raises:
        ArgumentError: There are no times.
    """
    if timeline.times is None:
        raise ArgumentError(f"marks has {names[0]!r}, but the series have no times; expected time=, or marks as series")
    kind = str(getattr(values, "dtype", "")).removeprefix("torch.")
    dtype = kind if kind in ("float16", "float32", "float64") else "float32"
    return made(names, timeline.wall(), timeline.offsets, dtype)


def _listed(names: Any) -> list[Any]:
    if names is None:
        return []
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        return [names]
    return list(names.tolist() if hasattr(names, "tolist") else names)


def _times(time: Any, offsets: Array, read: Callable[[Any], Array] = frames.moments) -> Array:
    """Return the time of every step of the series at ``offsets``, as ``read`` makes it of what was given."""
    if isinstance(time, list) and time and all(hasattr(part, "__len__") and not isinstance(part, str) for part in time):
        lengths = [len(part) for part in time]
        if lengths != numpy.diff(offsets).tolist():
            raise DataError(f"time has series of lengths {lengths}; expected {numpy.diff(offsets).tolist()}")
        times = numpy.concatenate([read(part) for part in time])
    elif isinstance(time, tuple) and len(time) == 2:
        if not numpy.array_equal(numpy.asarray(time[1]), offsets):
            raise DataError("time and series have different offsets; expected the same offsets for both")
        times = read(time[0])
    else:
        times = read(time)
    if len(times) != offsets[-1]:
        raise DataError(f"time has {many(len(times), 'step')}; expected {offsets[-1]}, one for each step of the series")
    return times


def _series(label: str, data: Any) -> tuple[Any, Array]:
    """Return an array of the steps of all series, and the offsets of the series in it."""
    if is_variable(data):
        found = variable(label, data)
        if found.shapes is not None:
            if isinstance(data, tuple):
                raise DataError(f"{label} has values with shapes; expected values with offsets")
            shapes = found.shapes[:, 1:]
            other = int((shapes != shapes[0]).any(axis=1).argmax())
            raise DataError(
                f"{label}: series {other} has features {shapes[other].tolist()}, series 0 has {shapes[0].tolist()}; "
                "expected the same features in all series"
            )
        first, end = int(found.offsets[0]), int(found.offsets[-1])
        if first == 0 and end == len(found.values.tensor):
            return found.values.array, found.offsets
        return found.values.slice(first, end), found.offsets - first
    if is_arrow(data):
        data = frames.to_numpy(data, label)
    elif framework_of(label, data) == "numpy" and not isinstance(data, numpy.ndarray):
        data = numpy.from_dlpack(data)
    if not data.shape:
        raise DataError(f"{label} is a scalar; expected an array [time, features] or [time]")
    Field(label, data)  # An array that cannot be shared is refused under this label.
    return data, _one_series(len(data))


def _one_series(steps: int) -> Array:
    return numpy.array([0, steps], numpy.int64)


def aligned(label: str, data: Any, offsets: Array) -> Any:
    """Return the array of series that have the same lengths as those at ``offsets``.

    Raises:
        DataError: A series has another length; the message names it.
    """
    values, found = _series(label, data)
    _require_aligned(label, data, values, found, offsets)
    return values


def _beside(label: str, data: Any, timeline: Timeline) -> Any:
    """Return the array of series that have a value for each step, or for each row, to which those of steps come."""
    values, found = _series(label, data)
    is_whole = len(values) == timeline.offsets[-1]
    _require_aligned(label, data, values, found, timeline.offsets if is_whole else timeline.rows)
    if is_whole:
        timeline.use(label)
        return values
    return timeline.filled(label, values)


def _require_aligned(label: str, data: Any, values: Any, found: Array, offsets: Array) -> None:
    if isinstance(data, list | tuple) and len(found) != len(offsets):
        raise DataError(f"{label} has {len(found) - 1} series; expected {len(offsets) - 1}")
    lengths, expected = numpy.diff(found), numpy.diff(offsets)
    if len(found) == len(offsets) and (lengths != expected).any():
        series = int((lengths != expected).argmax())
        raise DataError(
            f"{label}: series {series} has {many(lengths[series], 'step')}; expected {expected[series]}, as the "
            "main series has"
        )
    if len(values) != offsets[-1]:
        raise DataError(
            f"{label} has {many(len(values), 'step')} in all; expected {offsets[-1]}, as the main series have"
        )


def columns_of(values: Any, targets: Any) -> Any:
    """Return some columns of ``values``: a view if they are evenly spaced, otherwise a copy."""
    if targets is None:
        return values
    if len(values.shape) < 2:
        raise ArgumentError(
            f"targets is {targets!r}, but the series has shape [time]; expected None, or a series [time, features]"
        )
    width = values.shape[1]
    if isinstance(targets, slice):
        try:
            options = list(range(width))[targets]
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"targets is {targets!r}, which is not a valid slice of columns: {error}") from None
    else:
        options = [_column(column, width) for column in (targets if hasattr(targets, "__iter__") else [targets])]
    if not options:
        raise ArgumentError(f"targets is {targets!r}, which takes no column; expected at least one of the {width}")
    step = options[1] - options[0] if len(options) > 1 else 1
    if step > 0 and options == list(range(options[0], options[-1] + 1, step)):
        return values[:, options[0] : options[-1] + 1 : step]
    return values[:, options]


def _column(column: Any, width: int) -> int:
    number = (
        None if isinstance(column, bool | numpy.bool) or not hasattr(column, "__index__") else operator.index(column)
    )
    if number is None or not -width <= number < width:
        raise ArgumentError(f"targets has column {column!r}; expected an index from {-width} to {width - 1}")
    return number % width
