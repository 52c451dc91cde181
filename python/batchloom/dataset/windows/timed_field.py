"""Fields of rows with separate times: read from arguments, and checked against the series that they lie beside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arrays import frames
from batchloom.arrays.chunked import join_chunks
from batchloom.arrays.field import BorrowedArray, lend
from batchloom.arrays.frameworks import is_arrow
from batchloom.arrays.inputs import read_plain
from batchloom.dataset.variable import is_variable, variable
from batchloom.dataset.windows.step_arrays import read_steps
from batchloom.dataset.windows.ticks import find_clock, show_tick, to_ticks
from batchloom.dataset.windows.timed import Timed
from batchloom.dataset.windows.timeline import Timeline
from batchloom.errors import ArgumentError, DataError, DTypeError, Error, many

Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class TimedField:
    """Rows with separate times, and the rows that a window takes of them.

    Attributes:
        field: The rows of all series, one after the other.
        series: The beginning of each series among the rows, and the end of the last one.
        times: The time of each row, as ticks of the clock.
        offsets: The distances from the time of a window, as ticks.
        tolerance: The greatest distance of a row, in an array of one tick; ``None`` for any.
        match: The row that is valid at a time.
        pads: ``True`` if a window may lack rows.
        clock: The type of the ticks, as :func:`find_clock` names it.
    """

    field: BorrowedArray
    series: Array
    times: Array
    offsets: Array
    tolerance: Array | None
    match: str
    pads: bool
    clock: str

    @property
    def count(self) -> int:
        """The number of rows that a window takes."""
        return len(self.offsets)

    def steps(self, timeline: Timeline) -> Array:
        """Return the time of each step of the series, as ticks of the clock."""
        assert timeline.times is not None
        return to_ticks("time", timeline.times, self.clock)

    def add(self, name: str, windows: _native.Windows, timeline: Timeline, anchor: int) -> _native.Windows:
        """Return windows of the engine with this field, and with its mask if rows may be missing.

        Args:
            name: The name of the field.
            windows: The windows.
            timeline: The steps of the series, and their times.
            anchor: The step of a window at which its time is read.
        """
        arrays = (self.steps(timeline), self.times, self.series, self.offsets)
        lent = [_native.borrow(array, name) for array in arrays]
        tolerance = None if self.tolerance is None else _native.borrow(self.tolerance, name)
        windows = windows.with_timed(
            name, self.field.tensor, *lent, tolerance=tolerance, match=self.match, pads=self.pads, anchor=anchor
        )
        return windows.with_timed_mask(mask_name(name), name) if self.pads else windows

    def to_pickle(self) -> dict[str, Any]:
        """Return the attributes, with the array in place of the field."""
        return {**vars(self), "field": self.field.array}

    @classmethod
    def from_pickle(cls, name: str, state: dict[str, Any]) -> TimedField:
        """Return the rows with the attributes that :meth:`to_pickle` returned."""
        return cls(**{**state, "field": BorrowedArray(name, join_chunks(state["field"]))})


def mask_name(name: str) -> str:
    """Return the name of the mask of a field."""
    return f"{name}_mask"


def read_timed(given: Any, timeline: Timeline, ids: list[Any] | None, taken: Collection[str]) -> dict[str, TimedField]:
    """Read fields with separate times.

    Args:
        given: Fields by name, as users give them, or ``None``.
        timeline: The steps of the series, and their times.
        ids: The id of each series, if series have ids.
        taken: The names of other fields.

    Raises:
        ArgumentError: They are no :class:`Timed` by name; a name is taken; series have no times.
        DataError: Another number of series; times that do not grow, or are of another kind than the times of steps.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ArgumentError(f"timed is a {type(given).__name__}; expected a dict of bl.Timed by the names of fields")
    fields: dict[str, TimedField] = {}
    names = [*taken]
    for name, timed in given.items():
        if not isinstance(name, str):
            raise ArgumentError(f"timed names a field {name!r}; expected a text")
        if not isinstance(timed, Timed):
            raise ArgumentError(
                f"timed has a {type(timed).__name__} for {name!r}; expected a bl.Timed, "
                "as bl.Timed(values, times, offsets)"
            )
        own = [name, mask_name(name)] if timed.missing == "pad" else [name]
        for each in (each for each in own if each in names):
            raise ArgumentError(f"timed adds a field named {each}, which is taken; expected another name for {name!r}")
        names += own
        fields[name] = _read_field(name, timed, timeline, ids)
    return fields


def _read_field(name: str, timed: Timed, timeline: Timeline, ids: list[Any] | None) -> TimedField:
    """Read one field."""
    steps = timeline.times
    if steps is None:
        raise ArgumentError(
            f"timed has field {name}, and the series have no times; expected time=, the time of each step"
        )
    values, series = read_steps(name, timed.values)
    if len(series) != len(timeline.offsets):
        raise DataError(
            f"field {name} has rows of {len(series) - 1} series, and the dataset has {len(timeline.offsets) - 1}; "
            "expected rows of each: a list with an array for each series, which may be empty"
        )
    label = f"times of field {name}"
    times = _read_times(name, timed.times, series, steps)
    _require_kind(name, timed, times, timeline)
    try:
        frames.require_increasing(times, series, ids, "row")
    except DataError as error:
        raise DataError(f"{label}: {error}") from None
    for of, each, offsets, unit in ((label, times, series, "row"), ("time", steps, timeline.offsets, "step")):
        if each.dtype.kind == "f" and not numpy.isfinite(each).all():
            row = int((~numpy.isfinite(each)).argmax())
            raise DataError(f"{of}: {frames.where(row, offsets, ids, unit)} is at {each[row]}; expected finite times")
    distances = [timed.offsets] if timed.tolerance is None else [timed.offsets, timed.tolerance]
    clock = find_clock(name, (steps, times), distances)
    to_ticks("time", steps, clock)  # Times of steps that are no ticks are refused here.
    return TimedField(
        BorrowedArray(name, join_chunks(values)),
        series,
        to_ticks(label, times, clock),
        to_ticks(f"offsets of field {name}", timed.offsets, clock),
        None if timed.tolerance is None else to_ticks(f"tolerance of field {name}", timed.tolerance, clock),
        timed.match,
        timed.missing == "pad",
        clock,
    )


def _read_times(name: str, given: Any, series: Array, steps: Array) -> Array:
    """Return the time of each row of the series at ``series``; without rows, in the type of ``steps``.

    Raises:
        DataError: There are times of other rows.
        DTypeError: They are neither numbers nor datetimes.
    """
    label = f"times of field {name}"
    own: Array | None = None
    try:
        if isinstance(given, list) and given and all(map(_is_series, given)):
            parts = [frames.moments(part) for part in given if len(part)]
            own = numpy.cumsum([0, *map(len, given)])
            if len({_kind_of(part) for part in parts}) > 1:
                raise DTypeError("series have times of several types; expected one")
            times = numpy.concatenate(parts) if parts else steps[:0]
        elif isinstance(given, tuple) and len(given) == 2:
            times, own = frames.moments(given[0]), read_plain(label, given[1], "offsets")
            if own.ndim == 1 and own.dtype.kind in "iu" and own.size:
                times, own = times[int(own[0]) : int(own[-1])], own - own[0]
        elif is_arrow(given) and not _native.are_rows(given) and not frames.is_frame(given) and is_variable(given):
            lists = variable("times", given)
            times, own = numpy.asarray(lend(lists.values.tensor, "numpy")), lists.offsets
        else:
            times = frames.moments(given)
    except Error as error:
        raise type(error)(f"{label}: {error}") from None
    if own is not None and not numpy.array_equal(own, series):
        lengths, expected = ([*numpy.diff(each)[:8].tolist()] for each in (own, series))
        raise DataError(f"{label} are of series of lengths {lengths}; expected {expected}, a time for each row")
    if len(times) != series[-1]:
        raise DataError(f"{label} are {len(times)}; expected {series[-1]}, a time for each row")
    return times if len(times) else steps[:0]


def _is_series(part: Any) -> bool:
    return hasattr(part, "__len__") and not isinstance(part, str)


def _kind_of(times: Array) -> str:
    """Return the kind of times: whole numbers, floats or datetimes."""
    return "i" if times.dtype.kind == "u" else times.dtype.kind


def _require_kind(name: str, timed: Timed, times: Array, timeline: Timeline) -> None:
    """Refuse times or offsets of another kind than the times of steps."""
    assert timeline.times is not None
    kinds = ["datetimes" if each.dtype.kind == "M" else "numbers" for each in (times, timeline.times)]
    if kinds[0] != kinds[1]:
        raise DTypeError(
            f"times of field {name} are {kinds[0]}, and time= has {kinds[1]}; expected {kinds[1]} for both"
        )
    given = timed.times[0] if isinstance(timed.times, tuple) and len(timed.times) == 2 else timed.times
    if len(times) and frames.has_zone(given) != timeline.zoned:
        has, expected = ("no", "a time zone") if timeline.zoned else ("a", "no time zone")
        raise DataError(f"times of field {name} have {has} time zone; expected {expected}, as for time=")
    if (timed.offsets.dtype.kind == "m") != (kinds[0] == "datetimes"):
        found, expected = ("timedeltas", "numbers") if kinds[0] == "numbers" else ("numbers", "timedeltas")
        raise ArgumentError(
            f"offsets of field {name} are {found}, and its times are {kinds[0]}; expected {expected}"
            + ("" if expected == "numbers" else ", as numpy.timedelta64(100, 'ms')")
        )


def require_rows(
    windows: _native.Windows,
    fields: Mapping[str, TimedField],
    timeline: Timeline,
    ids: list[Any] | None,
    part: str = "",
) -> None:
    """Check that windows lack no row of a field in which that is an error.

    Args:
        windows: The windows of the engine.
        fields: The fields with separate times, by name.
        timeline: The steps of the series, and their times.
        ids: The id of each series, if series have ids.
        part: The name of the part of a split that the windows lie in, if they lie in one.

    Raises:
        DataError: A row is missing: the message names the first one, and counts them.
    """
    missing = windows.first_missing()
    if missing is None:
        return
    name, series, step, offset, closest, count, of = missing
    field = fields[name]
    which = f"series {series}" if ids is None else f"series {series} ({ids[series]!r})"
    counted = f"{count} of {many(of, 'row')} {'is' if count == 1 else 'are'} missing"
    within = "" if field.tolerance is None else f" within {_show_distance(field.tolerance.item(), field.clock)}"
    if step is None:
        found = f"a window of {which} has no time, as its input ends before the series, so it has no row"
    else:
        place = int(timeline.offsets[series]) + step
        wanted = field.steps(timeline)[place].item() + field.offsets[offset].item()
        found = f"no row at {show_tick(wanted, field.clock)}{within}, for step {step} of {which}"
        if closest is None:
            found += ", and there is no row at all"
        else:
            found += f": the closest is at {show_tick(field.times[closest].item(), field.clock)}"
    where = f"part {part}: " if part else ""
    ends = " (a part finds no row from its end on)" if part else ""
    raise DataError(
        f'{where}field {name} has {found} ({counted}){ends}; expected a row there, missing="pad"'
        + (", or a larger tolerance" if field.tolerance is not None else "")
    )


def _show_distance(tick: Any, clock: str) -> str:
    """Return a distance in ticks of a clock as text."""
    if clock in ("int64", "float64"):
        return repr(tick)
    return str(numpy.int64(tick).view(clock.replace("datetime64", "timedelta64")))
