"""Arrays with a row for each step of some series: read from arguments, aligned with each other, cut to columns."""

from __future__ import annotations

import operator
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arrays import frames
from batchloom.arrays.chunked import join_chunks
from batchloom.arrays.field import share
from batchloom.arrays.frameworks import framework_of, is_arrow, load
from batchloom.dataset.variable import is_variable, variable
from batchloom.dataset.windows.timeline import TimedRows
from batchloom.errors import ArgumentError, DataError, many

Array = numpy.ndarray[Any, Any]


def read_steps(label: str, data: Any) -> tuple[Any, Array]:
    """Return an array of the steps of all series, and the offsets of the series in it."""
    if is_variable(data) and not (is_arrow(data) and _native.are_rows(data)):
        return _read_lists(label, data)
    data = join_chunks(frames.as_array(label, data))
    tensor = share(data, label)  # An array that cannot be shared is refused under this label.
    if not tensor.shape:
        raise DataError(f"{label} is a scalar; expected an array [time, features] or [time]")
    if not hasattr(data, "shape"):
        load(framework_of(label, data)).require(tensor.dtype, label)
    return data, offsets_of_one(len(tensor))


def _read_lists(label: str, data: Any) -> tuple[Any, Array]:
    """Return an array of the steps of series that are a list of arrays, and their offsets."""
    lists = variable(label, data)
    if lists.shapes is not None:
        if isinstance(data, tuple):
            raise DataError(f"{label} has values with shapes; expected values with offsets")
        shapes = lists.shapes[:, 1:]
        other = int((shapes != shapes[0]).any(axis=1).argmax())
        raise DataError(
            f"{label}: series {other} has features {shapes[other].tolist()}, series 0 has {shapes[0].tolist()}; "
            "expected the same features in all series"
        )
    first, end = int(lists.offsets[0]), int(lists.offsets[-1])
    if first == 0 and end == len(lists.values.tensor):
        return join_chunks(lists.values.array), lists.offsets
    return lists.values.slice(first, end), lists.offsets - first


def offsets_of_one(steps: int) -> Array:
    """Return the offsets of a single series."""
    return numpy.array([0, steps], numpy.int64)


def align(label: str, data: Any, offsets: Array) -> Any:
    """Return the array of series that have the same lengths as the series at ``offsets``.

    Raises:
        DataError: A series has another length; the message names it.
    """
    values, own = read_steps(label, data)
    _require_aligned(label, data, values, own, offsets)
    return values


def align_rows(label: str, data: Any, rows: TimedRows) -> Any:
    """Return the array of series that have a value for each step, or for each row, whose missing steps are filled.

    Raises:
        DataError: A series has another length; the message names it.
    """
    values, own = read_steps(label, data)
    is_whole = len(values) == rows.offsets[-1]
    _require_aligned(label, data, values, own, rows.offsets if is_whole else rows.rows)
    if is_whole:
        rows.use(label)
        return values
    return rows.fill(label, values)


def _require_aligned(label: str, data: Any, values: Any, own: Array, offsets: Array) -> None:
    """Check that series with the offsets ``own`` have the same lengths as the series at ``offsets``."""
    if isinstance(data, list | tuple) and is_variable(data) and len(own) != len(offsets):
        raise DataError(f"{label} has {len(own) - 1} series; expected {len(offsets) - 1}")
    lengths, expected = numpy.diff(own), numpy.diff(offsets)
    if len(own) == len(offsets) and (lengths != expected).any():
        series = int((lengths != expected).argmax())
        raise DataError(
            f"{label}: series {series} has {many(lengths[series], 'step')}; expected {expected[series]}, as the "
            "main series has"
        )
    if len(values) != offsets[-1]:
        raise DataError(
            f"{label} has {many(len(values), 'step')} in all; expected {offsets[-1]}, as the main series have"
        )


def take_columns(values: Any, targets: Any) -> Any:
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
            columns = list(range(width))[targets]
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"targets is {targets!r}, which is not a valid slice of columns: {error}") from None
    else:
        columns = [_read_column(column, width) for column in (targets if hasattr(targets, "__iter__") else [targets])]
    if not columns:
        raise ArgumentError(f"targets is {targets!r}, which takes no column; expected at least one of the {width}")
    step = columns[1] - columns[0] if len(columns) > 1 else 1
    if step > 0 and columns == list(range(columns[0], columns[-1] + 1, step)):
        return values[:, columns[0] : columns[-1] + 1 : step]
    return values[:, columns]


def _read_column(column: Any, width: int) -> int:
    """Return the number of a column of ``width``."""
    number = (
        None if isinstance(column, bool | numpy.bool) or not hasattr(column, "__index__") else operator.index(column)
    )
    if number is None or not -width <= number < width:
        raise ArgumentError(f"targets has column {column!r}; expected an index from {-width} to {width - 1}")
    return number % width
