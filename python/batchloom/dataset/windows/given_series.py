"""Series as users give them: an array, a list of arrays, a frame, or named columns of a frame."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import batchloom._native as _native
import numpy
from batchloom.arrays import frames
from batchloom.arrays.chunked import join_chunks, read_array
from batchloom.arrays.field import share
from batchloom.arrays.frameworks import is_arrow, owner_name
from batchloom.dataset.variable import is_variable, variable
from batchloom.dataset.windows.marks import PREFIX, is_mark, make_marks
from batchloom.dataset.windows.step_arrays import align, align_rows, offsets_of_one, read_steps, take_columns
from batchloom.dataset.windows.timeline import TimedRows
from batchloom.errors import ArgumentError, DataError, many

Array = numpy.ndarray[Any, Any]

# The beginning of a name in ``marks`` that is a column of the frame, where a mark of the time has the same name.
COLUMN = "column."


class SeriesOptions(NamedTuple):
    """The arguments of a dataset that its series are read by, as users give them.

    Attributes:
        id: The column of a frame with the name of the series.
        time: The times of steps, or the column that holds them.
        freq: The step from each time to the next.
        fill: The values of missing steps.
        columns: The columns of a frame that are features.
        targets: The columns that ``y`` takes.
        marks: More values for each step: series, columns, or marks of the time.
    """

    id: Any = None
    time: Any = None
    freq: Any = None
    fill: Any = None
    columns: Any = None
    targets: Any = None
    marks: Any = None


class GivenSeries(NamedTuple):
    """Series as arrays, ``[steps, ...]``, all series one after the other.

    Attributes:
        inputs: The arrays that are cut as ``x`` is, by the names of fields.
        targets: The arrays that are cut as ``y`` is.
        rows: The rows that were given, and the steps that they became.
        ids: The id of each series, for frames with ids.
        chosen: The columns of ``x`` that are ``y``, as :func:`take_columns` takes them, in a tuple of one; ``None`` if
            ``y`` is an array apart.
    """

    inputs: dict[str, Any]
    targets: dict[str, Any]
    rows: TimedRows
    ids: list[Any] | None = None
    chosen: tuple[Any] | None = None


def read_arrays(series: Any, options: SeriesOptions) -> GivenSeries:
    """Read series from an array, a list of arrays, or values with offsets.

    Raises:
        ArgumentError: An option is for frames alone.
    """
    for name, value in (("id", options.id), ("columns", options.columns)):
        if value is not None:
            raise ArgumentError(f"{name} is given, but series is not a frame; expected a frame with named columns")
    values, offsets = read_steps("series", series)
    rows = TimedRows(options.time, offsets, None, options.freq, options.fill)
    values = rows.fill("series", values)
    marks = options.marks
    names = _list_marks(marks)
    if all(isinstance(name, str) for name in names):
        marks = _make_marks(names, rows, values)
    elif marks is not None:
        marks = align_rows("marks", marks, rows)
    return _with_marks(values, take_columns(values, options.targets), marks, rows, None, (options.targets,))


def read_frame(data: Any, options: SeriesOptions, besides: Sequence[Any]) -> GivenSeries:
    """Read series from the columns of a frame.

    Args:
        data: The frame.
        options: The columns to read, and how.
        besides: The columns that are labels or rows of series, and so no features.

    Raises:
        ArgumentError: ``id`` is no column; or a name in ``marks`` is both a column and a mark.
    """
    frame, id, time = frames.Frame(data), options.id, options.time
    if id is not None and not _is_name(id, frame):
        raise ArgumentError(f"id is {id!r}; expected one of {', '.join(map(repr, frame.names))}")
    marked, of_times = _read_marks(options.marks, frame)
    aside: list[Any] = [id, *marked, *besides, *([time] if _is_name(time, frame) else [])]
    names = _list_names(options.columns)
    if options.columns is None:
        names = [name for name in frame.names if name not in aside]
    values = frame.numbers(names, "columns")
    ids, offsets = (None, offsets_of_one(len(values))) if id is None else frames.runs(frame.column(id, "id"))
    moments = frame.read_raw(time, "time") if _is_name(time, frame) else time
    rows = TimedRows(moments, offsets, ids, options.freq, options.fill)
    values = rows.fill("series", values, names)
    marks: Any = None
    if marked or of_times:
        parts = [rows.fill("marks", frame.numbers(marked, "marks"), marked)] if marked else []
        parts += [_make_marks(of_times, rows, values)] if of_times else []
        marks = numpy.concatenate(parts, axis=1)
    elif options.marks is not None:
        marks = align_rows("marks", options.marks, rows)
    chosen = _places_of(frame, names, options.targets)
    if chosen is None:
        targets = _list_names(options.targets)
        y = rows.fill("targets", frame.numbers(targets, "targets"), targets)
    else:
        y = take_columns(values, *chosen)
    return _with_marks(values, y, marks, rows, ids, chosen)


def read_columns(series: Any, options: SeriesOptions, names: Iterable[str]) -> GivenSeries:
    """Read fields from the columns of a frame, or from a dict of arrays ``[time, ...]`` of any shape.

    Raises:
        ArgumentError: ``series`` has no names, or lacks one of ``names``.
        DataError: Columns have different numbers of steps, or a column of lists has lists of different lengths.
    """
    if not frames.is_frame(series):
        raise ArgumentError(
            f"offsets is given, and series is a {type(series).__name__}; expected series by name: a frame, or a dict "
            "of arrays"
        )
    frame, id, time = frames.Frame(series), options.id, options.time
    ids, offsets = (None, None) if id is None else frames.runs(frame.column(id, "id"))
    columns = {name: _read_column(name, frame.read_raw(name, "offsets")) for name in names}
    if offsets is None:
        offsets = _offsets_of(*next(iter(columns.items())))
    moments = frame.read_raw(time, "time") if isinstance(time, str) else time
    rows = TimedRows(moments, offsets, ids, options.freq, options.fill)
    inputs = {name: rows.fill(name, _align(name, column, offsets)) for name, column in columns.items()}
    rows.require_used()
    return GivenSeries(inputs, {}, rows, ids)


def _with_marks(
    x: Any, y: Any, marks: Any, rows: TimedRows, ids: list[Any] | None, chosen: tuple[Any] | None
) -> GivenSeries:
    """Return series of values, targets and marks, if there are marks."""
    inputs, targets = {"x": x}, {"y": y}
    if marks is not None:
        inputs["x_mark"] = targets["y_mark"] = marks
    return GivenSeries(inputs, targets, rows, ids, chosen)


def _places_of(frame: frames.Frame, names: list[Any], targets: Any) -> tuple[Any] | None:
    """Return the places of target columns among ``names``, in a tuple of one; ``None`` if some are not among them."""
    options = _list_names(targets)
    if targets is None:
        return (None,)
    is_among = all(_is_name(name, frame) and name in names for name in options)
    return ([names.index(name) for name in options],) if is_among else None


def _is_name(value: Any, frame: frames.Frame) -> bool:
    """Return whether an argument is the name of a column: any text, or a value that the frame has as a name."""
    if isinstance(value, str):
        return True
    return value is not None and not hasattr(value, "shape") and isinstance(value, Hashable) and value in frame.names


def _read_marks(marks: Any, frame: frames.Frame) -> tuple[list[Any], list[str]]:
    """Return the columns that hold marks, and the marks that are made from times: none if ``marks`` are series.

    Raises:
        ArgumentError: A name could be both.
    """
    if marks is None or not all(_is_name(name, frame) for name in _list_names(marks)):
        return [], []
    columns: list[Any] = []
    of_times: list[str] = []
    for name in _list_names(marks):
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


def _list_marks(marks: Any) -> list[Any]:
    """Return ``marks`` as a list, if it is a text or a list."""
    return [marks] if isinstance(marks, str) else list(marks) if isinstance(marks, list | tuple) and marks else [None]


def _make_marks(names: list[str], rows: TimedRows, values: Any) -> Array:
    """Return marks of the times of series, in the type of their values, if NumPy has that type of floats.

    Raises:
        ArgumentError: There are no times.
    """
    if rows.times is None:
        raise ArgumentError(f"marks has {names[0]!r}, but the series have no times; expected time=, or marks as series")
    kind = str(getattr(values, "dtype", "")).removeprefix("torch.")
    dtype = kind if kind in ("float16", "float32", "float64") else "float32"
    return make_marks(names, rows.wall(), rows.offsets, dtype)


def _list_names(names: Any) -> list[Any]:
    """Return one name or several names of columns as a list."""
    if names is None:
        return []
    if isinstance(names, str) or not hasattr(names, "__iter__"):
        return [names]
    return list(names.tolist() if hasattr(names, "tolist") else names)


def _offsets_of(name: str, column: Any) -> Array:
    """Return the offsets of series in a list of arrays or in values with offsets; another array is one series."""
    if isinstance(column, list | tuple):
        offsets: Array = variable(name, column).offsets
        return offsets
    return offsets_of_one(len(column))


def _align(name: str, column: Any, offsets: Array) -> Any:
    """Return a column that was read as an array with a row for each step."""
    if isinstance(column, list | tuple):
        return align(name, column, offsets)
    if len(column) != offsets[-1]:
        raise DataError(f"field {name} has {many(len(column), 'step')}; expected {offsets[-1]}, as the others have")
    share(column, name)  # An array that cannot be shared is refused under this name.
    return column


def _read_column(name: str, column: Any) -> Any:
    """Return a column as an array: lists of one length are its rows. A list of series is returned as it is."""
    if (isinstance(column, list | tuple) and is_variable(column)) or owner_name(column) is not None:
        return column
    if is_arrow(column) and _native.are_rows(column):
        return join_chunks(read_array(name, column))
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
    array = join_chunks(frames.as_array(name, column))
    is_of_rows = isinstance(array, numpy.ndarray) and array.dtype == object
    return numpy.stack([numpy.asarray(row) for row in array]) if is_of_rows else array
