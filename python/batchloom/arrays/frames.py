"""Columns of frames: pandas, polars, pyarrow tables, or a dict of columns.

A frame is asked for two things that all of them have, the names of its columns and a column as a NumPy array; no
package is imported for it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from numbers import Number
from typing import Any

import numpy
from batchloom.arrays.chunked import ChunkedArray, read_array
from batchloom.arrays.frameworks import is_arrow, owner_name
from batchloom.arrays.inputs import read_column
from batchloom.arrays.stored_columns import read_stored_column
from batchloom.errors import ArgumentError, DataError, DTypeError, Error, many

Array = numpy.ndarray[Any, Any]
Name = Hashable

# What ends a text in ISO format that names a time zone.
_ZONE = re.compile(r"T?\d\d:\d\d.*(Z|[+-]\d\d:?\d\d)$")


def is_frame(data: Any) -> bool:
    """Return whether ``data`` has named columns."""
    kind = type(data)
    if kind.__module__.startswith("batchloom."):
        return False  # a dataset, with ``columns`` that name its fields
    return isinstance(data, Mapping) or hasattr(kind, "columns") or hasattr(kind, "column_names")


class Frame:
    """A frame, column by column."""

    def __init__(self, frame: Any) -> None:
        if hasattr(frame, "collect") and not hasattr(frame, "to_numpy"):
            raise DataError(f"series is a {type(frame).__name__}, whose columns are not there yet; use .collect()")
        self._frame = frame
        self.names = names_of(frame)
        repeated = [name for place, name in enumerate(self.names) if name in self.names[:place]]
        if repeated:
            raise DataError(f"the frame has column {repeated[0]!r} twice; expected every name once")

    def column(self, name: Name, role: str) -> Array:
        """Return one column.

        Raises:
            ArgumentError: The frame has no such column.
        """
        column = to_numpy(self.read_raw(name, role), f"column {name!r}")
        if column.ndim != 1:
            raise DataError(f"column {name!r} has shape {column.shape}; expected one value for each row")
        return column

    def read_raw(self, name: Name, role: str) -> Any:
        """Return one column, as the frame has it.

        Raises:
            ArgumentError: The frame has no such column.
        """
        if not isinstance(name, Hashable) or name not in self.names:
            hint = " (columns of a frame go by name)" if isinstance(name, int) else ""
            raise ArgumentError(
                f"{role} names column {name!r}; expected one of {', '.join(map(repr, self.names))}{hint}"
            )
        return self._frame[name]

    def numbers(self, names: Sequence[Name], role: str) -> Array:
        """Return columns side by side, ``[rows, columns]``, in the type that holds all of them.

        Raises:
            ArgumentError: The frame has no such column, or ``names`` is empty.
            DTypeError: One does not hold numbers.
        """
        if not names:
            raise ArgumentError(f"{role} names no column; expected at least one of {', '.join(map(repr, self.names))}")
        columns = [self.column(name, role) for name in names]
        for name, column in zip(names, columns, strict=True):
            if column.dtype.kind not in "biuf":
                raise DTypeError(
                    f"column {name!r} has type {column.dtype}; expected numbers without nulls: name the columns to "
                    "take, or fill and convert it first"
                )
        kind = numpy.result_type(*columns)
        values = numpy.empty((len(columns[0]), len(columns)), kind)
        for place, (name, column) in enumerate(zip(names, columns, strict=True)):
            if len(column) != len(values):
                raise DataError(
                    f"column {name!r} has {many(len(column), 'row')}; expected {len(values)}, as {names[0]!r} has"
                )
            values[:, place] = column
        return values


def names_of(frame: Any) -> list[Name]:
    """Return the names of the columns of a frame, or of a record batch."""
    if isinstance(frame, Mapping):
        return list(frame)
    names = getattr(frame, "column_names", None)
    if (
        names is None
        and hasattr(frame, "schema")
        and hasattr(frame.schema, "names")
        and not callable(frame.schema.names)
    ):
        names = frame.schema.names
    return list(frame.columns if names is None else names)


def to_numpy(column: Any, label: str) -> Array:
    """Return a column as a NumPy array.

    Raises:
        DataError: It has nulls, or is masked.
        DTypeError: NumPy does not take it.
    """
    if is_frame(column):
        frame = Frame(column)
        return frame.numbers(frame.names, label)
    return read_column(label, column)


def as_list(data: Any) -> Any:
    """Return a sequence that is read when it is indexed as a list, or a column of ``datasets`` as Arrow holds it.

    Other data is returned as it is.
    """
    column = read_stored_column(data)
    if column is not None:
        return column
    if not isinstance(data, Sequence) or isinstance(data, list | tuple | str | bytes | range | memoryview | array):
        return data
    values = data[:]  # at once, where reading one after the other takes long
    return values if isinstance(values, list) else list(data)


def as_array(label: str, data: Any) -> Any:
    """Return the data of a field as an array with a row for each sample.

    NumPy converts lists of numbers, and frames of numbers (a column of the array for each). All other objects are read
    as :mod:`batchloom.arrays.inputs` reads them; arrays of a framework are returned as they are.

    Raises:
        DataError: It is no array, samples differ in shape, or a column has nulls.
        DTypeError: NumPy does not take the data.
    """
    if owner_name(data) is not None or isinstance(data, Mapping | str | bytes | ChunkedArray):
        return data
    if hasattr(data, "__dlpack__") and not is_arrow(data):
        return read_array(label, data)
    data = as_list(data)
    if isinstance(data, list | tuple) and not (data and isinstance(data[0], Number | str | list | tuple)):
        return data
    if isinstance(data, list | tuple | range | memoryview | array):
        try:
            return numpy.asarray(data)
        except ValueError:
            raise DataError(
                f"field {label} is a {type(data).__name__} of samples that differ in shape; expected one shape: a "
                "SequenceDataset takes samples of any length"
            ) from None
    if not is_frame(data):
        return read_array(label, data)
    try:
        return to_numpy(data, f"field {label}")
    except Error as error:
        raise type(error)(f"field {label}: {error}") from None


def runs(ids: Array) -> tuple[list[Any], Array]:
    """Return the id of each series and the offsets of the rows that have it.

    Raises:
        DataError: An id is null, or is repeated after another id.
    """
    if not len(ids):
        raise DataError("the frame has no rows; expected at least one")
    ids = ids if ids.dtype.kind in "biufM" else ids.astype(object)
    absent = find_missing(ids)
    if absent.any():
        raise DataError(f"row {int(absent.argmax())} has no id; expected one in every row")
    if ids.dtype.kind == "O" and not all(isinstance(name, Hashable) for name in ids):
        raise DTypeError("ids are lists or other things that change; expected numbers or texts")
    changes = numpy.flatnonzero(ids[1:] != ids[:-1]) + 1
    offsets = numpy.concatenate([[0], changes, [len(ids)]]).astype(numpy.int64)
    seen: dict[Any, int] = {}
    for row in offsets[:-1].tolist():
        name = ids[row].item() if isinstance(ids[row], numpy.generic) else ids[row]
        if name in seen:
            raise DataError(
                f"series {name!r} begins at row {seen[name]} and comes again at row {row}; expected the rows of a "
                "series one after the other: sort the frame by id and time"
            )
        seen[name] = row
    return list(seen), offsets


def moments(times: Any) -> Array:
    """Return times as numbers or as NumPy's datetimes.

    Raises:
        DTypeError: They are neither, nor ISO texts.
    """
    array = to_numpy(times, "time")
    if array.dtype.kind in "OUST":
        try:
            array = numpy.array([moment(time) for time in array])
        except (TypeError, ValueError) as error:
            raise DTypeError(f"time has type {array.dtype}; expected numbers or datetimes: {error}") from None
    if array.ndim != 1 or array.dtype.kind not in "iufM":
        raise DTypeError(f"time has type {array.dtype} and shape {array.shape}; expected one number or datetime a row")
    return array


def on_the_wall(times: Any) -> Array:
    """Return times as :func:`moments` does, but as their time zone shows them, where they have one.

    Raises:
        DTypeError: They are neither numbers nor datetimes, nor ISO texts.
    """
    kind = getattr(times, "dtype", getattr(times, "type", None))
    if getattr(kind, "tz", None) is not None and hasattr(times, "to_numpy") and not hasattr(times, "combine_chunks"):
        if hasattr(times, "tz_localize") and not hasattr(times, "dt"):
            return moments(times.tz_localize(None))
        if hasattr(times, "dt"):
            return moments(times.dt.tz_localize(None))
    if getattr(kind, "time_zone", None) is not None:
        return moments(times.dt.replace_time_zone(None))
    if getattr(kind, "tz", None) is not None:
        import pyarrow.compute

        return moments(pyarrow.compute.local_timestamp(times))
    array = to_numpy(times, "time")
    return moments(numpy.array([_without_zone(time) for time in array]) if array.dtype.kind in "OUST" else array)


def _without_zone(time: Any) -> Any:
    if isinstance(time, str) and _ZONE.search(time):
        time = datetime.fromisoformat(time)
    return time.replace(tzinfo=None) if isinstance(time, datetime) else time


def moment(time: Any) -> numpy.datetime64[Any]:
    """Return one time as a datetime of NumPy, in UTC where it has a time zone.

    Raises:
        TypeError: A number stands for the time.
        ValueError: A text is not in ISO format.
    """
    if hasattr(time, "to_datetime64"):  # pandas, in nanoseconds
        at: numpy.datetime64[Any] = time.to_datetime64()
    else:
        if isinstance(time, str) and _ZONE.search(time):
            time = datetime.fromisoformat(time)
        if isinstance(time, datetime) and time.tzinfo is not None:
            time = time.astimezone(UTC).replace(tzinfo=None)
        if isinstance(time, int | float | numpy.number):
            raise TypeError("a number is not a datetime")
        at = numpy.datetime64(time)
    return at


def has_zone(times: Any) -> bool:
    """Return whether times have a time zone."""
    if isinstance(times, str):
        return _ZONE.search(times) is not None
    if isinstance(times, list | tuple) or getattr(getattr(times, "dtype", None), "kind", None) == "O":
        have_zone = {has_zone(time) for time in times}
        if len(have_zone) > 1:
            raise DataError("some times have a time zone and others do not; expected one kind")
        return have_zone == {True}
    kind = getattr(times, "dtype", getattr(times, "type", None))
    zones = (getattr(times, "tzinfo", None), getattr(kind, "tz", None), getattr(kind, "time_zone", None))
    return any(zone is not None for zone in zones)


def require_increasing(times: Array, offsets: Array, ids: list[Any] | None, unit: str = "step") -> None:
    """Check that time grows from step to step of each series, or from another ``unit`` to the next.

    Raises:
        DataError: The message names the series and the step.
    """
    absent = find_missing(times)
    if absent.any():
        row = int(absent.argmax())
        raise DataError(f"{where(row, offsets, ids, unit)} has no time ({times[row]}); expected one at every {unit}")
    late = numpy.flatnonzero(times[1:] <= times[:-1]) + 1
    late = late[~numpy.isin(late, offsets)]
    if len(late):
        row = int(late[0])
        kind = "the same time as" if times[row] == times[row - 1] else "an earlier time than"
        raise DataError(
            f"{where(row, offsets, ids, unit)} has {kind} the {unit} before it: {times[row]} after {times[row - 1]}; "
            "expected time to grow within a series: sort by id and time, and drop duplicates"
        )


def where(row: int, offsets: Array, ids: list[Any] | None, unit: str = "step") -> str:
    """Return the name of a row, for errors: its step, or another ``unit``, and its series."""
    series = int(numpy.searchsorted(offsets, row, side="right")) - 1
    name = "" if ids is None else f" ({ids[series]!r})"
    return f"{unit} {row - int(offsets[series])} of series {series}{name}"


def find_missing(values: Array) -> Array:
    """Return a mask of absent values: NaN, NaT and nulls."""
    if values.dtype.kind == "M":
        return numpy.isnat(values)
    if values.dtype.kind in "fc":
        return numpy.isnan(values)
    if values.dtype.kind == "O":
        return numpy.fromiter(map(_is_null, values), bool, len(values))
    return numpy.zeros(len(values), bool)


def _is_null(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA answers neither yes nor no
        return True
    except ValueError:  # An array, which is not a null.
        return False
