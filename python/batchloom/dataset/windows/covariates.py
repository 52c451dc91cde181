"""The fields that datasets add to series: more series for past and future, labels, and rows for each series."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy
from batchloom.arguments import choice
from batchloom.arrays import frames
from batchloom.dataset.window_shape import WindowShape
from batchloom.dataset.windows.step_arrays import align, align_rows
from batchloom.dataset.windows.timed_field import TimedField, read_timed
from batchloom.dataset.windows.timeline import TimedRows, Timeline
from batchloom.errors import ArgumentError, DataError, many

Array = numpy.ndarray[Any, Any]

# The names that the fields of series have, in the order of a batch.
OWN = ("x", "y", "x_mark", "y_mark", "mask", "target_mask")

LABELS_OF = ("windows", "series", "steps")


class Covariates:
    """The arguments of a dataset that add fields to its batches.

    Attributes:
        past: More series by name, which are cut as ``x`` is.
        future: More series by name, which are cut as ``y`` is.

    Args:
        past: The same, as users give them.
        future: The same, as users give them.
        labels: Labels of windows, series or steps: an array, arrays by name, or columns of a frame.
        labels_of: One of :data:`LABELS_OF`, or ``None`` to infer it from the number of labels.
        static: Rows for each series: an array, arrays by name, columns of the frame of series, or another frame.
        timed: Rows with separate times by name.

    Raises:
        ArgumentError: ``labels_of`` is given without labels, or is unknown; series have no names.
    """

    def __init__(
        self, past: Any, future: Any, labels: Any, labels_of: str | None, static: Any, timed: Any = None
    ) -> None:
        self._labels, self._static, self._timed = labels, static, timed
        self._of = None if labels_of is None else choice("labels_of", labels_of, LABELS_OF)
        if labels is None and labels_of is not None:
            raise ArgumentError(f"labels_of is {labels_of!r}, and labels is not given; expected both")
        self.past, self.future = _read_names("past", past), _read_names("future", future)

    @property
    def are_given(self) -> bool:
        """``True`` if there is at least one more field."""
        given = (self._labels, self._static, self._timed)
        return bool(self.past or self.future or any(each is not None for each in given))

    def read_timed(self, timeline: Timeline, ids: list[Any] | None, taken: Collection[str]) -> dict[str, TimedField]:
        """Read the fields with separate times.

        Args:
            timeline: The steps of the series, and their times.
            ids: The id of each series, if series have ids.
            taken: The names of other fields.

        Raises:
            ArgumentError: They are no :class:`Timed` by name; a name is taken; series have no times.
            DataError: Another number of series; times that do not grow.
        """
        return read_timed(self._timed, timeline, ids, taken)

    def columns(self, series: Any) -> list[Any]:
        """Return the columns of a frame that are labels or rows of series, and so no features."""
        return [*_read_columns(self._labels, series), *_read_columns(self._static, series)]

    def align(self, rows: TimedRows, shape: WindowShape) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arrays of the past and of the future, with a row for each step.

        Raises:
            ArgumentError: A name is taken, or there is no horizon for a future.
            DataError: A series has another length; the message names it.
        """
        if self.future and not shape.horizon:
            raise ArgumentError("future is given, but horizon is 0; expected horizon to be at least 1")
        arrays: dict[str, Any] = {}
        for name, data in {**self.past, **self.future}.items():
            if name in (*OWN, *shape.place_names) or (name in self.past and name in self.future):
                raise ArgumentError(f"a series is named {name}, which is taken; expected another name")
            arrays[name] = align_rows(name, data, rows)
        return {name: arrays[name] for name in self.past}, {name: arrays[name] for name in self.future}

    def read_rows(self, series: Any, id: Any, rows: TimedRows, ids: list[Any] | None) -> LabelRows:
        """Read the arrays of labels, and the rows of series.

        Args:
            series: The series, which may be a frame.
            id: The column of ids, for frames.
            rows: The rows that were given, and the steps that they became.
            ids: The id of each series.

        Raises:
            ArgumentError: A column does not exist.
            DataError: A column changes within a series, or a series has no row.
        """
        labels, of = self._read_labels(series, rows, ids)
        if columns := _read_columns(self._static, series):
            values = _stack_columns(series, columns, "static", True)
            return LabelRows(labels, of, {"static": take_constant("static", columns, values, rows.rows, ids)}, rows)
        is_frame = frames.is_frame(self._static) and not isinstance(self._static, Mapping)
        static = sort_by_id(self._static, id, ids) if is_frame else self._static
        named = {name: frames.as_array(name, each) for name, each in name_fields("static", static).items()}
        return LabelRows(labels, of, named, rows)

    def _read_labels(self, series: Any, rows: TimedRows, ids: list[Any] | None) -> tuple[dict[str, Any], str | None]:
        """Return the arrays of labels by name, and the unit that has a row of them, if it is known."""
        columns = _read_columns(self._labels, series)
        if not columns:
            named = name_fields("labels", self._labels)
            return {name: _to_array(name, labels, rows) for name, labels in named.items()}, self._of
        values = _stack_columns(series, columns, "labels", isinstance(self._labels, list))
        if self._of == "windows":
            raise ArgumentError(
                f"labels_of is 'windows', and labels names {', '.join(map(repr, columns))} of the frame, which has "
                "a row for each step; expected 'steps' or 'series', or an array of labels"
            )
        if self._of == "series":
            return {"labels": take_constant("labels", columns, values, rows.rows, ids)}, "series"
        return {"labels": rows.fill("labels", values, columns)}, "steps"


class LabelRows(NamedTuple):
    """Labels, and rows of series, as arrays by name.

    Attributes:
        labels: The arrays of labels.
        of: The unit that has a row of labels, one of :data:`LABELS_OF`; ``None`` if it is to be inferred.
        static: The arrays with a row for each series.
        rows: The rows that were given, and the steps that they became.
    """

    labels: dict[str, Any]
    of: str | None
    static: dict[str, Any]
    rows: TimedRows

    def assign(self, counts: dict[str, int]) -> list[tuple[str, Any, str]]:
        """Return the name and the array of each field, and the unit that has a row of it.

        Args:
            counts: The number of windows, of series and of steps.

        Raises:
            ArgumentError: The number of labels fits several units.
            DataError: The number of rows fits no unit.
        """
        given = int(self.rows.rows[-1])
        assigned = []
        for name, labels in self.labels.items():
            of = infer_unit(name, labels, counts, given, self.of)
            has_gaps = of == "steps" and len(labels) == given != counts["steps"]
            assigned.append((name, self.rows.fill(name, labels) if has_gaps else labels, of))
        for name, rows in self.static.items():
            if not hasattr(rows, "shape"):
                raise DataError(f"{name} is a {type(rows).__name__}; expected an array with a row for each series")
            if not rows.shape or len(rows) != counts["series"]:
                have = f"{many(len(rows), 'row')}" if rows.shape else "no rows"
                raise DataError(
                    f"{name} has {have}; expected an array with a row for each of the {counts['series']} series"
                )
            assigned.append((name, rows, "series"))
        return assigned


def infer_unit(name: str, labels: Any, counts: dict[str, int], given: int, chosen: str | None) -> str:
    """Return the unit that has a row of labels, inferred from the number of labels where that is enough.

    Args:
        name: The name of the field.
        labels: An array of labels.
        counts: The number of windows, of series and of steps.
        given: The number of steps that were given, where more were filled in.
        chosen: One of :data:`LABELS_OF`, or ``None`` to infer it.

    Raises:
        ArgumentError: The number of labels fits several units, and none was chosen.
        DataError: There is another number of labels.
    """
    if not hasattr(labels, "shape") or not labels.shape:
        raise DataError(f"{name} is {labels!r}; expected an array with a row for each window, series or step")
    rows = len(labels)
    fitting = [of for of, count in counts.items() if rows == count or (of == "steps" and rows == given)]
    if chosen is not None and chosen not in fitting:
        raise DataError(f"{name} has {many(rows, 'row')}; expected {counts[chosen]}, one for each of the {chosen}")
    if chosen is not None:
        return chosen
    if not fitting:
        expected = ", ".join(f"{count} {of}" for of, count in counts.items())
        raise DataError(
            f"{name} has {many(rows, 'row')}; expected one for each window, series or step: there are {expected}"
        )
    if len(fitting) > 1:
        raise ArgumentError(
            f"{name} has {many(rows, 'row')}, as many as there are {' and '.join(fitting)}; expected labels_of= "
            "to say which"
        )
    return fitting[0]


def name_fields(role: str, rows: Any) -> dict[str, Any]:
    """Return arrays by the name of their field: ``role`` for a single one.

    Raises:
        ArgumentError: A name is no text.
    """
    if rows is None:
        return {}
    if not isinstance(rows, Mapping):
        return {role: rows}
    if not all(isinstance(name, str) for name in rows):
        raise ArgumentError(f"{role} has names {list(rows)}; expected texts")
    return dict(rows)


def sort_by_id(static: Any, id: Any, ids: list[Any] | None) -> Array:
    """Return the rows of a frame in the order of series, its columns side by side as numbers.

    Args:
        static: A frame with a row for each series, and a column of their ids.
        id: The name of that column.
        ids: The id of each series.

    Raises:
        ArgumentError: Series have no ids.
        DataError: A series has no row, or several.
    """
    if id is None or ids is None:
        raise ArgumentError(
            "static is a frame, and the series have no ids; expected id=, or an array with a row a series"
        )
    frame = frames.Frame(static)
    places: dict[Any, int] = {}
    for row, each in enumerate(frame.column(id, "id").tolist()):
        if each in places:
            raise DataError(
                f"static has rows {places[each]} and {row} for series {each!r}; expected one row for each series"
            )
        places[each] = row
    absent = [each for each in ids if each not in places]
    if absent:
        raise DataError(f"static has no row for series {absent[0]!r}; expected one for each of the {len(ids)} series")
    values = frame.numbers([name for name in frame.names if name != id], "static")
    return values[[places[each] for each in ids]]


def take_constant(role: str, names: list[Any], values: Array, offsets: Array, ids: list[Any] | None) -> Array:
    """Return the row of each series of columns that do not change within one.

    Raises:
        DataError: One changes; the message names the column, the series and the step. Or a series has no step.
    """
    columns = values.reshape(len(values), -1)
    differs = (columns[1:] != columns[:-1]) & ((columns[1:] == columns[1:]) | (columns[:-1] == columns[:-1]))
    differs[offsets[(offsets > 0) & (offsets < len(values))] - 1] = False
    if differs.any():
        row, column = (int(place[0]) for place in numpy.nonzero(differs))
        series = int(numpy.searchsorted(offsets, row + 1, side="right")) - 1
        which = f"series {series}" if ids is None else f"series {series} ({ids[series]!r})"
        raise DataError(
            f"{role} column {names[column]!r} changes within {which}: {columns[row + 1, column]} at step "
            f"{row + 1 - int(offsets[series])} after {columns[row, column]}; expected one value for each series"
        )
    empty = numpy.diff(offsets) == 0
    if empty.any():
        raise DataError(f"series {int(empty.argmax())} has no step, and so no {role}; expected at least one")
    return values[offsets[:-1]]


def _read_names(role: str, series: Any) -> dict[str, Any]:
    """Return series by name."""
    if series is None:
        return {}
    if not isinstance(series, dict) or not all(isinstance(name, str) for name in series):
        raise ArgumentError(f"{role} is a {type(series).__name__}; expected a dict of series by name")
    return series


def _read_columns(given: Any, series: Any) -> list[Any]:
    """Return the columns of a frame that an argument names; nothing if arrays are given."""
    names = given if isinstance(given, list) else [given]
    return names if names and all(isinstance(name, str) for name in names) and frames.is_frame(series) else []


def _stack_columns(series: Any, names: list[Any], role: str, is_list: bool) -> Array:
    """Return columns of a frame, ``[rows, columns]``, or ``[rows]`` for a column that is not in a list."""
    values = frames.Frame(series).numbers(names, role)
    return values if is_list else numpy.ascontiguousarray(values[:, 0])


def _to_array(name: str, labels: Any, rows: TimedRows) -> Any:
    """Return labels as an array: lists of series are put one after the other."""
    if isinstance(labels, list | tuple):
        listed = isinstance(labels, list) and all(numpy.isscalar(row) for row in labels)
        return numpy.asarray(labels) if listed else align(name, labels, rows.rows)
    return frames.as_array(name, labels)
