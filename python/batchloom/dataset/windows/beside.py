"""The fields beside the windows of a batch: a row or a number that is looked up for each window.

Labels, covariates of series, and the places of windows are not cut from series. Batches hold copies of their rows, so
that writing to them changes no data; a batch of neighbours has one of the row of its series, repeated by a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arguments import choice
from batchloom.arrays import frames
from batchloom.arrays.field import Field, lend
from batchloom.arrays.frameworks import require
from batchloom.dataset.windows.series import aligned
from batchloom.dataset.windows.timeline import Timeline
from batchloom.errors import ArgumentError, DataError, many

Array = numpy.ndarray[Any, Any]

LABELS_OF = ("windows", "series", "steps")


@dataclass(frozen=True)
class LookedUp:
    """A field that is looked up for each window.

    Attributes:
        of: The row that it takes: that of the ``"series"``, of the window among all ``"windows"``, or of a step among
            all ``"steps"``. Without an array, it holds the number of the series, or the step.
        field: The array of its rows, if it has one.
    """

    of: str
    field: Field | None = None


class SeriesTable:
    """Places of series and of their windows, from which the fields beside a window follow.

    Attributes:
        rows: For each series its first row, the row after the last one that windows may take, the number of windows
            before its own, and the row with which its first window begins; int64, ``[series, 4]``.
        field: The same as a field, which may move to a device.
        stride: The steps from one window to the next.
        anchor: The step of a window that steps are counted by.
    """

    def __init__(self, rows: Array, stride: int, anchor: int) -> None:
        self.rows, self.stride, self.anchor = numpy.ascontiguousarray(rows), stride, anchor
        self.field = Field("series", self.rows)

    def series_at(self, row: int) -> int:
        """Return the series that has a row."""
        return int(numpy.searchsorted(self.rows[:, 0], row, side="right")) - 1


def view(
    name: str, looked_up: LookedUp, table: SeriesTable, output: str | None, framework: str, row: int, samples: int
) -> Any:
    """Return a field of windows that are neighbours without zeros, the first of which begins with ``row``.

    Args:
        name: The name of the field.
        looked_up: The field.
        table: The places of series.
        output: The framework of batches; ``None`` for that of the data.
        framework: The framework of numbers where there is no ``output``.
        row: The first row of the first window.
        samples: The number of windows.
    """
    series, stride, anchor = table.series_at(row), table.stride, table.anchor
    start, _, before, first = table.rows[series].tolist()
    if looked_up.field is None:
        numbers = numpy.array([series])
        if looked_up.of == "steps":
            numbers = numpy.arange(row - start + anchor, row - start + anchor + samples * stride, stride)
        found = lend(_native.borrow(numbers, name), output or framework)
        return found if looked_up.of == "steps" else _module(output or framework, name).repeated(found[0], samples)
    framework = output or looked_up.field.framework
    rows, module = lend(looked_up.field.tensor, framework), _module(framework, name)
    if looked_up.of == "series":
        return module.repeated(module.own(rows[series : series + 1], None)[0], samples)
    if looked_up.of == "windows":
        window = before + (row - first) // stride
        return module.own(rows[window : window + samples], None)
    return module.own(rows[row + anchor : row + anchor + (samples - 1) * stride + 1 : stride], None)


def _module(framework: str, name: str) -> Any:
    return require(framework, "int64", name)


class Beside:
    """The labels and the covariates that a dataset is given.

    Args:
        labels: Labels of windows, series or steps: an array, arrays by name, or columns of a frame.
        labels_of: One of :data:`LABELS_OF`, or ``None`` to tell by their number.
        static: Covariates of series: an array, arrays by name, columns of the frame of series, or a frame of their own.

    Raises:
        ArgumentError: ``labels_of`` is given without labels, or is unknown.
    """

    def __init__(self, labels: Any, labels_of: str | None, static: Any) -> None:
        self._labels, self._static = labels, static
        self._of = None if labels_of is None else choice("labels_of", labels_of, LABELS_OF)
        if labels is None and labels_of is not None:
            raise ArgumentError(f"labels_of is {labels_of!r}, and labels is not given; expected both")

    @property
    def is_given(self) -> bool:
        """``True`` if there are labels or covariates."""
        return self._labels is not None or self._static is not None

    def columns(self, series: Any) -> list[Any]:
        """Return the columns of a frame that are labels or covariates, and so no features."""
        return [*_columns(self._labels, series), *_columns(self._static, series)]

    def read(self, series: Any, id: Any, timeline: Timeline, ids: list[Any] | None) -> ReadBeside:
        """Read the arrays of labels and covariates.

        Args:
            series: The series, which may be a frame.
            id: The column of ids, for frames.
            timeline: The steps of series.
            ids: The id of each series.

        Raises:
            ArgumentError: A column does not exist.
            DataError: A covariate changes within a series, or a series has none.
        """
        of = self._of
        if columns := _columns(self._labels, series):
            labels = {"labels": _side_by_side(series, columns, "labels", isinstance(self._labels, list))}
            if of == "windows":
                raise ArgumentError(
                    f"labels_of is 'windows', and labels names {', '.join(map(repr, columns))} of the frame, which has "
                    "a row for each step; expected 'steps' or 'series', or an array of labels"
                )
            if of == "series":
                labels = {"labels": constant("labels", columns, labels["labels"], timeline.rows, ids)}
            else:
                of, labels = "steps", {"labels": timeline.filled("labels", labels["labels"], columns)}
        else:
            labels = {name: _labels(name, rows, timeline) for name, rows in named("labels", self._labels).items()}
        if columns := _columns(self._static, series):
            values = _side_by_side(series, columns, "static", True)
            rows = constant("static", columns, values, timeline.rows, ids)
            return ReadBeside(labels, of, {"static": rows}, timeline)
        is_frame = frames.is_frame(self._static) and not isinstance(self._static, Mapping)
        static = of_ids(self._static, id, ids) if is_frame else self._static
        return ReadBeside(labels, of, named("static", static), timeline)


def _labels(name: str, rows: Any, timeline: Timeline) -> Any:
    """Return labels as an array: those of lists of series one after the other."""
    if isinstance(rows, list | tuple):
        listed = isinstance(rows, list) and all(numpy.isscalar(row) for row in rows)
        return numpy.asarray(rows) if listed else aligned(name, rows, timeline.rows)
    is_array = any(hasattr(rows, each) for each in ("__dlpack__", "detach"))
    return rows if is_array or not hasattr(rows, "__len__") else frames.to_numpy(rows, name)


@dataclass(frozen=True)
class ReadBeside:
    """Labels and covariates as arrays by name."""

    labels: dict[str, Any]
    of: str | None
    static: dict[str, Any]
    timeline: Timeline

    def told(self, counts: dict[str, int]) -> list[tuple[str, Any, str]]:
        """Return the name and the rows of each field, and what they are of.

        Args:
            counts: The number of windows, of series and of steps.

        Raises:
            ArgumentError: The number of labels fits several of them.
            DataError: There is not a row for each.
        """
        given = int(self.timeline.rows[-1])
        found = []
        for name, rows in self.labels.items():
            of = labels_of(name, rows, counts, given, self.of)
            was_given = of == "steps" and len(rows) == given != counts["steps"]
            found.append((name, self.timeline.filled(name, rows) if was_given else rows, of))
        for name, rows in self.static.items():
            if not hasattr(rows, "shape"):
                raise DataError(f"{name} is a {type(rows).__name__}; expected an array with a row for each series")
            if not rows.shape or len(rows) != counts["series"]:
                have = f"{many(len(rows), 'row')}" if rows.shape else "no rows"
                raise DataError(
                    f"{name} has {have}; expected an array with a row for each of the {counts['series']} series"
                )
            found.append((name, rows, "series"))
        return found


def _columns(given: Any, series: Any) -> list[Any]:
    """Return the columns of a frame that are named; nothing if arrays are given."""
    names = given if isinstance(given, list) else [given]
    return names if names and all(isinstance(name, str) for name in names) and frames.is_frame(series) else []


def _side_by_side(series: Any, names: list[Any], role: str, is_list: bool) -> Array:
    """Return columns of a frame, ``[rows, columns]``, or ``[rows]`` for one that was not in a list."""
    found = frames.Frame(series).numbers(names, role)
    return found if is_list else numpy.ascontiguousarray(found[:, 0])


def labels_of(name: str, labels: Any, counts: dict[str, int], given: int, chosen: str | None) -> str:
    """Return what labels are rows of, told by their number where that is enough.

    Args:
        name: The name of the field.
        labels: An array of labels.
        counts: The number of windows, of series and of steps.
        given: The number of steps that were given, where more were filled in.
        chosen: One of :data:`LABELS_OF`, or ``None`` to tell by the number.

    Raises:
        ArgumentError: The number of labels fits several of them, and none was chosen.
        DataError: There is another number of labels.
    """
    if not hasattr(labels, "shape") or not labels.shape:
        raise DataError(f"{name} is {labels!r}; expected an array with a row for each window, series or step")
    found = len(labels)
    fitting = [of for of, count in counts.items() if found == count or (of == "steps" and found == given)]
    if chosen is not None and chosen not in fitting:
        raise DataError(f"{name} has {many(found, 'row')}; expected {counts[chosen]}, one for each of the {chosen}")
    if chosen is not None:
        return chosen
    if not fitting:
        expected = ", ".join(f"{count} {of}" for of, count in counts.items())
        raise DataError(
            f"{name} has {many(found, 'row')}; expected one for each window, series or step: there are {expected}"
        )
    if len(fitting) > 1:
        raise ArgumentError(
            f"{name} has {many(found, 'row')}, as many as there are {' and '.join(fitting)}; expected labels_of= "
            "to say which"
        )
    return fitting[0]


def named(role: str, rows: Any) -> dict[str, Any]:
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


def of_ids(static: Any, id: Any, ids: list[Any] | None) -> Array:
    """Return the rows of a frame of covariates in the order of series, side by side as numbers.

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
    found: dict[Any, int] = {}
    for row, each in enumerate(frame.column(id, "id").tolist()):
        if each in found:
            raise DataError(
                f"static has rows {found[each]} and {row} for series {each!r}; expected one row for each series"
            )
        found[each] = row
    absent = [each for each in ids if each not in found]
    if absent:
        raise DataError(f"static has no row for series {absent[0]!r}; expected one for each of the {len(ids)} series")
    values = frame.numbers([name for name in frame.names if name != id], "static")
    return values[[found[each] for each in ids]]


def constant(role: str, names: list[Any], values: Array, offsets: Array, ids: list[Any] | None) -> Array:
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
