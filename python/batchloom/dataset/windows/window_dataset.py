"""Time series, and the windows that slide over them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack, overload

import batchloom._native as _native
import numpy
from batchloom.arguments import choice, integer, unpadded
from batchloom.arrays import frames
from batchloom.arrays.field import Field, lend
from batchloom.arrays.frameworks import require
from batchloom.batch import Column, Columns, Schema
from batchloom.dataset.base import Dataset, Dicts, Form, Made, Sliceable, Tuples
from batchloom.dataset.windows import offsets as anchored
from batchloom.dataset.windows import scaler as scaling
from batchloom.dataset.windows import time_split
from batchloom.dataset.windows.backtest import Backtest
from batchloom.dataset.windows.beside import Beside, LookedUp, ReadBeside, SeriesTable
from batchloom.dataset.windows.scaler import Scaler
from batchloom.dataset.windows.series import Series, columns_of, from_arrays, from_frame
from batchloom.dataset.windows.span import Span
from batchloom.errors import ArgumentError, DataError, RangeError
from batchloom.window_steps import WindowSteps

if TYPE_CHECKING:
    from batchloom.batch import CollateOptions
    from batchloom.device.collate.gather import ResidentRows
    from batchloom.device.collate.windows import Windows as Gatherer
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange

Array = numpy.ndarray[Any, Any]

OWN = ("x", "y", "x_mark", "y_mark", "mask", "target_mask")

# Names of fields that say which window a sample is.
PLACES = ("series", "start", "step", "time", "index", "weight")

# Attributes that are derived from the others, and are left out of a pickle.
OF_WINDOWS = ("_windows", "_spans", "_looked", "_table", "_selection")

# Lengths that follow from others.
ENDS = ("lead", "trail")

# More steps than any series has.
MOST = 2**48


class WindowPlace(NamedTuple):
    """The place of a window in its series."""

    series: int
    """The number of the series."""
    start: int
    """The first step of the series that the window takes."""
    missing: int
    """The steps of zeros before ``start``, which the series does not have."""


@dataclass(frozen=True)
class WindowStats:
    """Counts of windows and series, and their bytes."""

    windows: int
    """Different windows."""
    samples: int
    """Samples of an epoch: more than windows if shorter series repeat theirs."""
    series: int
    """Series."""
    padded_series: int
    """Series that are too short, and make one window that begins with zeros."""
    series_without_windows: int
    """Series without a window."""
    series_bytes: int
    """Bytes of the arrays themselves."""
    stacked_bytes: int
    """Bytes of the windows of an epoch, each copied to arrays of its own."""
    gathered_bytes: int
    """Bytes of a batch of windows that owns its memory, as with ``shuffle=True``."""
    viewed_bytes: int
    """Bytes of the rows that a batch of neighbours covers: a batch of views needs these alone, all in the series."""


class WindowOptions(TypedDict, total=False):
    """Options that :class:`WindowDataset` takes by name, for signatures that tell the type of its batches."""

    label_len: int
    gap: int
    stride: int
    targets: Any
    marks: Any
    id: Any
    time: Any
    freq: Any
    fill: Any
    columns: Sequence[Any] | None
    anchor: str
    short: str
    sampled_by: str
    mask: bool
    labels_of: str | None
    patch_len: int | None
    patch_stride: int | None


class WindowDataset(Dataset[Form]):
    """Windows over time series: ``input_len`` steps of input, and the ``horizon`` steps to predict after them.

    Windows are not stored: batches are strided views on the series, or gathered from it. Windows never cross series. A
    series of ``T`` steps makes ``(T - input_len - gap - horizon) // stride + 1`` windows.

    A series is an array ``[time, features]`` or ``[time]``: NumPy, a memory map, torch or JAX on the CPU, or an Arrow
    column. Several series are a list of such arrays, which are concatenated once, or ``(values, offsets)``, where
    series ``k`` is ``values[offsets[k]:offsets[k + 1]]``, or an Arrow column of lists. Or they are a frame: a pandas or
    polars frame, a pyarrow table, a dict of columns. Then ``id`` names the column that tells series apart, ``time`` the
    column that must grow within each, and the other columns are features, put side by side once. Lists and frames are
    copied once; all other data is borrowed, never copied.

    A batch is a tuple:

    - ``x``, ``[batch, input_len, features]``: steps ``s`` to ``s + input_len``,
    - ``y``, ``[batch, label_len + horizon, targets]``, unless ``horizon`` is 0: it begins ``label_len`` steps before
      the horizon, which begins ``gap`` steps after ``x`` ends,
    - ``x_mark`` and ``y_mark``, the marks of the same steps, if ``marks`` is given,
    - ``mask``, ``[batch, input_len]``, and ``target_mask``, ``[batch, label_len + horizon]``, on request: False at
      zeros that the series does not have.

    With ``past``, ``future``, ``labels``, ``static``, ``index`` or ``offsets``, a batch is a dict that also holds
    these, by name.

    **Batches of neighbours are views** (``shuffle=False`` or ``"runs"``): their windows overlap in memory, so writing
    to one in place changes others, and the series. In NumPy they are read-only. Torch has no read-only tensors, so do
    not write to them, or ask the loader for ``copy=True``. Batches of random windows (``shuffle=True``), batches that
    cross from one series to the next, and batches with a padded window own their memory.

    Args:
        series: The series that windows slide over.
        input_len: Steps of input; or the least and the most of them: windows at the beginning of a series, which has
            less than the most before them, begin with zeros.
        horizon: Steps to predict; 0 for inputs alone.
        label_len: Steps before the horizon with which ``y`` begins, for decoders such as Informer's.
        gap: Steps between input and horizon, which neither ``x`` nor the horizon holds.
        stride: Steps from one window to the next.
        targets: The columns that ``y`` takes: an index, a slice or indices, or names for a frame; ``None`` for all.
            A slice, or evenly spaced indices, is a view on the series; others are copied once.
        marks: More values for each step. Series of the same lengths, the names of columns of a frame, or marks that are
            made from ``time``: the names ``"second"``, ``"minute"``, ``"hour"``, ``"weekday"`` (0 is Monday),
            ``"day"``, ``"yearday"``, ``"week"``, ``"month"``, ``"quarter"`` and ``"year"`` are integers as calendars
            count, ``"tslib"`` the marks of the Time-Series-Library for steps like these, ``"sin-cos"`` a sine and a
            cosine for each cycle. Times with a time zone count as it shows them. Where a column has such a name,
            ``"time.hour"`` is the mark and ``"column.hour"`` the column.
        past: More series of the same lengths, by name, cut as ``x`` is.
        future: More series of the same lengths, by name, cut as ``y`` is.
        labels: A row for each window, each series or each step, told by their number: an array, arrays by name, or
            columns of a frame. Labels of steps are cut as ``x`` is; those of windows keep their windows in parts of a
            split.
        labels_of: ``"windows"``, ``"series"`` or ``"steps"``, for labels whose number fits several.
        static: A row for each series: an array, arrays by name, columns of the frame that do not change within a
            series, or a frame with the column ``id``. A batch of neighbours repeats the row by a view.
        index: If ``True``, batches hold ``series``, ``start`` (the first step of the window in its series, negative if
            zeros come before the series), ``time`` (that of its first step, if times are known) and ``index`` (the
            number of the window).
        offsets: For each field by name, the steps that it takes relative to an anchor, such as
            ``{"state": [0], "action": range(16)}``. ``series`` is a frame or a dict of arrays ``[time, ...]`` then, and
            there is no ``input_len``. With ``short="pad"`` every step is an anchor, and steps outside the series are
            zeros (``mask=True`` adds ``state_mask``, ...); else all steps of a window exist. ``index=True`` adds
            ``step``, the step of the anchor, in place of ``start``.
        id: The column of a frame that tells series apart.
        time: A column of a frame, or an array, of numbers or datetimes that grow within each series.
        freq: The step from each time to the next, which is checked: a name as pandas has it (``"s"``, ``"min"``,
            ``"h"``, ``"D"``, ``"W-MON"``, ``"B"``, ``"MS"``, ``"ME"``, ``"QS"``, ``"QE"``, ``"YS"``, ``"YE"``, as in
            ``"15min"`` with a number before it), a timedelta, or a number for times that are numbers. ``"infer"``
            takes the most frequent step. Hours and less count elapsed time; days and more keep the time that clocks
            show. ``None`` checks no step.
        fill: The values of missing steps, which come with their times and marks: ``"forward"`` (those of the step
            before), ``"linear"`` (those on a straight line to the next step, for floats), ``"zero"``, ``"nan"`` or a
            number; or a dict of these by the column of a frame or of an array, where ``"marks"`` and the names of
            ``past`` and ``future`` stand for these. ``None``: a missing step is an error.
        columns: The columns of a frame to take; ``None`` for all others, which must be numbers.
        anchor: ``"start"``: the first window begins with the series. ``"end"``: the last one ends with it.
        short: Treatment of a series too short for one window: ``"pad"`` makes one window with zeros in front,
            ``"skip"`` makes no window, ``"error"`` raises an error.
        sampled_by: ``"windows"``: every window comes once an epoch. ``"series"``: every series comes equally often;
            those with fewer windows repeat them.
        mask: If ``True``, batches hold ``mask``, and ``target_mask`` if there is a horizon.
        patch_len: Cuts ``x`` into patches, ``[batch, features, patches, patch_len]``, without a copy: a view of the
            batch, whose patches overlap if ``patch_stride`` is shorter (read-only in NumPy). With ``copy=True`` of the
            loader they are a copy.
        patch_stride: Steps from one patch to the next; ``None`` for ``patch_len``.

    Raises:
        ArgumentError: Lengths that make no sense, or columns that do not exist.
        DataError: Series that disagree; labels of another number; a static column that changes; time that is missing,
            does not grow or does not go on by ``freq`` (the message names series and step); a series too short with
            ``short="error"``; no window at all.
        DTypeError: An element type that cannot be moved as bytes, or not filled so; a column that does not hold
            numbers.
        DeviceError: An array that is neither on the CPU nor of torch.
    """

    # fmt: off
    @overload
    def __init__(
        self: WindowDataset[Tuples], series: Any, input_len: int | tuple[int, int], horizon: int = 0, *,
        past: None = None, future: None = None, labels: None = None, static: None = None, index: Literal[False] = False,
        **options: Unpack[WindowOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WindowDataset[Dicts], series: Any, input_len: int | tuple[int, int] | None = None, horizon: int = 0, *,
        past: dict[str, Any] | None = None, future: dict[str, Any] | None = None, labels: Any = None,
        static: Any = None, index: bool = False, offsets: Mapping[str, Any] | None = None,
        **options: Unpack[WindowOptions],
    ) -> None: ...
    # fmt: on
    def __init__(
        self,
        series: Any,
        input_len: int | tuple[int, int] | None = None,
        horizon: int = 0,
        *,
        label_len: int = 0,
        gap: int = 0,
        stride: int = 1,
        targets: Any = None,
        marks: Any = None,
        past: dict[str, Any] | None = None,
        future: dict[str, Any] | None = None,
        labels: Any = None,
        labels_of: str | None = None,
        static: Any = None,
        index: bool = False,
        offsets: Mapping[str, Any] | None = None,
        id: Any = None,
        time: Any = None,
        freq: Any = None,
        fill: Any = None,
        columns: Sequence[Any] | None = None,
        anchor: str = "start",
        short: str = "pad",
        sampled_by: str = "windows",
        mask: bool = False,
        patch_len: int | None = None,
        patch_stride: int | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "anchor": choice("anchor", anchor, ("start", "end")),
            "short": choice("short", short, ("pad", "skip", "error")),
            "sampled_by": choice("sampled_by", sampled_by, ("windows", "series")),
        }
        self._mask, self._index = bool(mask), bool(index)
        self._scaler: Scaler | None = None
        self._chosen: tuple[Any] | None = None
        self._steps_of_fields = None if offsets is None else anchored.read(offsets)
        self._lengths: dict[str, Any] = {
            **self._inputs(input_len),
            "horizon": integer("horizon", horizon, most=MOST),
            "label_len": integer("label_len", label_len, most=MOST),
            "gap": integer("gap", gap, most=MOST),
            "stride": integer("stride", stride, least=1, most=MOST),
        }
        self._patches = _patches(patch_len, patch_stride, self._lengths["input_len"])
        beside = Beside(labels, labels_of, static)
        past, future = _by_name("past", past), _by_name("future", future)
        if self._steps_of_fields is not None:
            given = {"horizon": horizon, "label_len": label_len, "gap": gap, "targets": targets, "marks": marks}
            given |= {"past": past, "future": future, "columns": columns, "patch_len": patch_len}
            self._take_offsets(series, id, (time, freq, fill), beside, given)
            return
        if frames.is_frame(series):
            found = from_frame(series, targets, marks, id, time, columns, freq, fill, beside.columns(series))
        else:
            if id is not None or columns is not None:
                name = "id" if id is not None else "columns"
                raise ArgumentError(f"{name} is given, but series is not a frame; expected a frame with named columns")
            found = from_arrays(series, targets, marks, time, freq, fill)
        self._named = bool(past or future or beside.is_given or self._index)
        self._set_up(found, past, future, beside.read(series, id, found.timeline, found.ids))

    def _inputs(self, input_len: Any) -> dict[str, int]:
        """Return the steps of input, and those of them that windows may do without at the ends of a series."""
        fields = self._steps_of_fields
        if fields is not None:
            if input_len is not None:
                raise ArgumentError(
                    f"input_len is {input_len!r}, and offsets is given, which says all steps; expected one"
                )
            pads = self._options["short"] == "pad"
            lead, trail = (fields.anchor, fields.span - fields.anchor - 1) if pads else (0, 0)
            return {"input_len": fields.span, "lead": lead, "trail": trail}
        if input_len is None:
            raise ArgumentError("input_len is None; expected the steps of input, or offsets=")
        if not isinstance(input_len, tuple | list):
            return {"input_len": integer("input_len", input_len, least=1, most=MOST), "lead": 0, "trail": 0}
        if len(input_len) != 2:
            raise ArgumentError(f"input_len is {input_len!r}; expected a number, or the least and the most steps")
        least = integer("the least input_len", input_len[0], least=1, most=MOST)
        most = integer("the most input_len", input_len[1], least=least, most=MOST)
        return {"input_len": most, "lead": most - least, "trail": 0}

    def _take_offsets(
        self, series: Any, id: Any, time: tuple[Any, Any, Any], beside: Beside, given: dict[str, Any]
    ) -> None:
        """Take fields by name, each with steps of its own."""
        assert self._steps_of_fields is not None
        refused = [name for name, value in given.items() if value is not None and value not in (0, {})]
        if refused:
            raise ArgumentError(
                f"{refused[0]} is given, and so is offsets, which says the steps of each field; expected one"
            )
        fields, steps, self._named = self._steps_of_fields, self._steps_of_fields.steps, True
        found = anchored.from_columns(series, steps, id, *time)
        self._offsets, self._times, self._is_filled = (
            found.timeline.offsets,
            found.timeline.times,
            found.timeline.is_filled,
        )
        self._ids, self._zoned = found.ids, found.zoned
        taken = [name for name in steps if name in (*PLACES, "labels", "static")]
        if taken:
            raise ArgumentError(f"offsets names a field {taken[0]}, which is taken; expected another name")
        spans = {name: Span(Field(name, values), steps[name]) for name, values in found.values.items()}
        masked = {f"{name}_mask": steps[name] for name in steps} if self._mask else {}
        self._finish(spans, masked, beside.read(series, id, found.timeline, found.ids), fields.anchor)

    def _set_up(self, found: Series, past: dict[str, Any], future: dict[str, Any], beside: ReadBeside) -> None:
        self._offsets, self._ids, self._times, self._zoned = found.offsets, found.ids, found.times, found.zoned
        self._chosen, self._is_filled = found.chosen, found.timeline.is_filled
        horizon = self._lengths["horizon"]
        inputs, targets = {"x": found.x}, {"y": found.y} if horizon else {}
        if found.marks is not None:
            inputs["x_mark"] = found.marks
            targets |= {"y_mark": found.marks} if horizon else {}
        if future and not horizon:
            raise ArgumentError("future is given, but horizon is 0; expected horizon to be at least 1")
        for name, data in {**past, **future}.items():
            if name in (*OWN, *PLACES) or (name in past and name in future):
                raise ArgumentError(f"a series is named {name}, which is taken; expected another name")
            values = found.beside(name, data)
            (inputs if name in past else targets)[name] = values
        found.timeline.require_used()
        lengths = self._lengths
        input_steps = WindowSteps(0, lengths["input_len"])
        start = lengths["input_len"] + lengths["gap"] - lengths["label_len"]
        target_steps = WindowSteps(start, lengths["label_len"] + horizon)
        spans = {name: Span(Field(name, data), input_steps) for name, data in inputs.items()}
        spans |= {name: Span(Field(name, data), target_steps) for name, data in targets.items()}
        first = [name for name in OWN if name in spans]
        spans = {name: spans[name] for name in (*first, *(name for name in spans if name not in first))}
        masks = {"mask": input_steps} | ({"target_mask": target_steps} if horizon else {}) if self._mask else {}
        self._finish(spans, masks, beside, 0)

    def _finish(self, spans: dict[str, Span], masks: dict[str, WindowSteps], beside: ReadBeside, anchor: int) -> None:
        """Take the fields of a window, and those that are looked up beside it."""
        self._spans, self._masks, self._anchor = spans, masks, anchor
        self._parts: tuple[tuple[Array, Array, bool], ...] = ()
        whole = self._places()
        self._firsts: Array = numpy.from_dlpack(whole.firsts())
        counts = {"windows": whole.counts()[1], "series": len(self._offsets) - 1, "steps": int(self._offsets[-1])}
        self._looked: dict[str, LookedUp] = {}
        for name, rows, of in beside.told(counts):
            if name in (*spans, *masks, *PLACES, *self._looked):
                raise ArgumentError(f"a field is named {name}, which is taken; expected another name")
            if of == "steps":
                if self._steps_of_fields is not None:
                    raise ArgumentError(f"{name} has a row for each step; expected it among the fields of offsets")
                spans[name] = Span(Field(name, rows), WindowSteps(0, self._lengths["input_len"]))
            else:
                self._looked[name] = LookedUp(of, Field(name, rows))
        if self._index:
            self._looked |= self._place_fields()
        self._take(self._slide())

    def _take(self, windows: _native.Windows) -> None:
        """Take the windows of the engine, and the table that follows from them."""
        ranges: Array = numpy.from_dlpack(windows.ranges())
        rows = numpy.stack([self._offsets[:-1], ranges[:, 1], *self._firsts.T], axis=1)
        self._windows, self._table = windows, SeriesTable(rows, self._lengths["stride"], self._anchor)

    def _place_fields(self) -> dict[str, LookedUp]:
        """Return the fields that say which window a sample is."""
        found = {"series": LookedUp("series"), self._step_name: LookedUp("steps")}
        if self._times is None:
            return found
        times = self._times.view(numpy.int64) if self._times.dtype.kind == "M" else self._times
        return found | {"time": LookedUp("steps", Field("time", times))}

    @property
    def _step_name(self) -> str:
        """The name of the field that says where in its series a window is."""
        return "start" if self._steps_of_fields is None else "step"

    def _places(self) -> _native.Windows:
        """Return the windows of the engine, without fields."""
        return _native.Windows(_native.borrow(self._offsets, "offsets"), **self._lengths, **self._options)

    def _slide(self) -> _native.Windows:
        """Return the windows of the engine."""
        windows = self._places()
        for name, span in self._spans.items():
            windows = windows.with_steps(name, span.field.tensor, span.steps.native)
        for name, steps in self._masks.items():
            windows = windows.with_mask(name, steps.native)
        for name, each in self._looked.items():
            if each.field is not None and name != "time":
                windows = windows.with_rows(name, each.field.tensor, each.of, self._anchor)
        if self._index:
            windows = windows.with_index(self._step_name, self._anchor)
            time = self._looked.get("time")
            if time is not None and time.field is not None:
                windows = windows.with_rows("time", time.field.tensor, "steps", self._anchor)
        for starts, stops, reach_back in self._parts:
            windows = windows.part(_native.borrow(starts, "part"), _native.borrow(stops, "part"), reach_back)
        return windows

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays of a batch, in order."""
        return (*self._spans, *self._masks, *self._looked, *(["index"] if self._index else []))

    @property
    def fields(self) -> dict[str, Any]:
        """The series from which each array of a batch is cut."""
        rows = {name: each.field.array for name, each in self._looked.items() if each.field is not None}
        return {name: span.field.array for name, span in self._spans.items()} | rows

    @property
    def offsets(self) -> Array:
        """The offsets of series, int64: series ``k`` is the rows ``offsets[k]`` to ``offsets[k + 1]`` of each array."""
        return self._offsets

    @property
    def ids(self) -> list[Any] | None:
        """The id of each series; ``None`` unless they came in a frame with ids."""
        return self._ids

    @property
    def times(self) -> Array | None:
        """The time of each step of all series, in UTC where times have a time zone; ``None`` without times.

        The field ``time`` of a batch counts in their unit: ``batch["time"].view(dataset.times.dtype)`` for NumPy.
        """
        return self._times

    @property
    def filled(self) -> Array | None:
        """``True`` at each step of all series that was missing and was filled; ``None`` without ``freq``."""
        return self._is_filled

    @property
    def anchor(self) -> int:
        """The step of a window that is its anchor: with ``offsets``, the steps before it; else 0."""
        return self._anchor

    def _whole_len(self) -> int:
        return len(self._windows)

    def _sample(self, sample: int) -> Any:
        """Return one window: the arrays of a batch without their first dimension, as copies."""
        series, row, missing = self._windows.place(sample)
        end = int(self._table.rows[series, 1])
        found = {name: self._part(name, span, row - missing, row, end) for name, span in self._spans.items()}
        for name, steps in self._masks.items():
            rows = row - missing + numpy.asarray(steps.numbers, numpy.int64)
            found[name] = lend(_native.borrow((rows >= row) & (rows < end), name), self._framework)
        for name, each in self._looked.items():
            found[name] = self._looked_up(name, each, series, row - missing, row)
        if self._index:
            found["index"] = lend(_native.borrow(numpy.array([sample]), "index"), self._framework)[0]
        return found if self._named else tuple(found.values())

    def _part(self, name: str, span: Span, begin: int, first: int, end: int) -> Any:
        """Return the steps of a field of the window that begins at row ``begin``, of the rows ``first`` to ``end``."""
        steps = span.steps
        low, high = begin + steps.start, begin + steps.start + steps.covered
        start, stop = min(max(low, first), high), max(min(high, end), low)
        module = require(span.field.framework, span.field.dtype, name)
        found = span.field.slice(start, max(start, stop))
        zeros = (start - low, high - max(start, stop))
        found = module.pad_rows(found, *zeros) if any(zeros) else module.own(found, None)
        if not steps.are_neighbours:
            found = found[numpy.asarray(steps.numbers) - steps.start]
        return module.patches(found[None], *self._patches)[0] if self._patches and name == "x" else found

    def _looked_up(self, name: str, each: LookedUp, series: int, begin: int, first: int) -> Any:
        """Return a field of the window of ``series`` that begins at row ``begin``, and exists from ``first`` on."""
        start, _, before, first_window = self._table.rows[series].tolist()
        if each.field is None:
            number = series if each.of == "series" else begin - start + self._anchor
            return lend(_native.borrow(numpy.array([number]), name), self._framework)[0]
        window = before + (begin - first_window) // self._lengths["stride"]
        row = {"series": series, "windows": window, "steps": max(begin + self._anchor, first)}[each.of]
        return each.field.slice(row, row + 1)[0]

    def place(self, sample: int) -> WindowPlace:
        """Return the place of a window in its series, to join predictions with series and times."""
        series, row, missing = self._windows.place(self._number(sample))
        return WindowPlace(series, row - int(self._offsets[series]), missing)

    def sample_at(self, series: int, start: int) -> int:
        """Return the number of the window of a series at a step, as batches with ``index=True`` say both.

        Args:
            series: The number of the series.
            start: The first step of the window, negative if zeros come before the series; with ``offsets``, the step of
                its anchor.

        Raises:
            RangeError: There is no such window.
        """
        most = len(self._offsets) - 2
        number, step = integer("series", series, most=most), operator.index(start) - self._anchor
        found = self._windows.sample_at(number, step) if abs(step) < MOST else None
        if found is None:
            raise RangeError(f"series {number} has no window at step {start}; place() says where windows begin")
        return found

    def _number(self, sample: int) -> int:
        number = operator.index(sample)
        if not -len(self) <= number < len(self):
            raise RangeError(f"sample {number} is outside the dataset; expected 0 <= sample < {len(self)}")
        return number % len(self)

    def stats(self, batch_size: int = 64) -> WindowStats:
        """Return the counts of windows and series, and the bytes of an epoch and of a batch, stacked or not.

        For a part of a split, all of these are of the part, except ``series_bytes``: parts share the arrays.
        """
        batch_size = integer("batch_size", batch_size, least=1)
        samples, windows, series, padded, without = self._windows.counts()
        lengths, own = self._lengths, list({id(span.field.array): span for span in self._spans.values()}.values())
        covered = (batch_size - 1) * lengths["stride"] + self._span
        window = sum(span.steps.count * span.field.row_bytes for span in self._spans.values())
        row = sum(span.field.row_bytes for span in own)
        return WindowStats(
            windows=windows,
            samples=samples,
            series=series,
            padded_series=padded,
            series_without_windows=without,
            series_bytes=sum(len(span.field.tensor) * span.field.row_bytes for span in own),
            stacked_bytes=samples * window,
            gathered_bytes=batch_size * window,
            viewed_bytes=covered * row,
        )

    def split(
        self,
        borders: str | None = None,
        /,
        *,
        by: str | None = None,
        rounding: str = "exact",
        reach_back: bool = True,
        scale: Any = None,
        per_series: bool = False,
        **ends: Any,
    ) -> tuple[WindowDataset, ...]:
        """Split the time of every series in parts: ``train, val, test = dataset.split(train=0.7, val=0.1, test=0.2)``.

        A part holds the windows whose horizon lies in it, so that horizons of different parts have no step in common,
        and a model that was fitted to one part has not seen the horizons of later parts. The input and the gap before
        the horizon may reach back into the previous part, as they would in production; with ``reach_back=False`` they
        may not, and then the parts have no step in common. Windows without a horizon lie wholly in their part. All
        parts share the arrays of the dataset.

        Args:
            borders: The borders of a published evaluation, instead of parts: ``"ett-hour"`` or ``"ett-minute"``, the
                12, 4 and 4 months of the ETT sets.
            by: The kind of ends: ``"share"``, ``"index"`` or ``"time"``; ``None`` infers it from their types.
            rounding: ``"exact"`` adds shares and takes them as they are meant. ``"tslib"`` counts as the
                Time-Series-Library does: the first and the last of three parts hold ``int(steps * share)`` steps, and
                the second one the rest.
            reach_back: If ``True``, inputs may reach into the previous part.
            scale: A scale for all parts, which is fitted to the first one alone: see :meth:`scale`.
            per_series: If ``True``, each series has a scale of its own.
            ends: Parts in order of time, by name. Floats are shares of each series, integers are the steps at which
                parts end (exclusive) in each series, and other values are the times at which they end (exclusive). The
                last may be ``None``, for the rest. When splitting a part, steps and shares are relative to that part.

        Returns:
            A dataset for each part, in the order of their names.

        Raises:
            ArgumentError: Parts that overlap, or shares that sum to more than 1.
            DataError: A part without a window.
        """
        if not isinstance(reach_back, bool):
            raise ArgumentError(f"reach_back is {reach_back!r}; expected True or False")
        if borders is not None:
            ends = dict[str, Any](time_split.published(borders, ends))
        ranges, times = self._ranges()
        lengths = ranges[:, 1] - ranges[:, 0]
        parts = time_split.parts(ends, times, by, self._zoned, rounding, lengths)
        found = self._windows.split(parts, reach_back)
        datasets = tuple(self._within(windows, ranges[:, :1], reach_back) for windows in found)
        if scale is None:
            return datasets
        spans, scaler = datasets[0]._scaled(scale, per_series)
        return tuple(dataset._with_spans(spans, scaler) for dataset in datasets)

    def backtest(
        self,
        horizon: int | None = None,
        stride: int | None = None,
        *,
        start: Any = 0.5,
        refit: bool | int = True,
        train_len: int | None = None,
        scale: Any = None,
        per_series: bool = False,
    ) -> Backtest[WindowDataset]:
        """Return pairs ``(train, test)`` whose origin moves on: ``for train, test in dataset.backtest(24): ...``.

        The origin is the step at which the horizons of ``test`` begin; windows of ``train`` lie wholly before it. The
        inputs of ``test`` may reach back before the origin, as they would in production. A series takes part in a fold
        if it has all steps of its test part, and the last fold is the last one in which some series does. Nothing is
        copied: each fold is a dataset over the same arrays.

        Args:
            horizon: The steps of each test part; ``None`` for the horizon of the windows (the whole window, if it has
                none).
            stride: Steps from one origin to the next; ``None`` for ``horizon``, so that every step is tested once.
            start: The first origin: a share of each series, a step of each, or a time.
            refit: ``True`` moves ``train`` up to the origin in each fold, ``False`` keeps that of the first fold, and a
                number moves it up every so many folds. Until then, ``train`` is the same object.
            train_len: The steps of ``train``; ``None`` for all before the origin.
            scale: A scale for both, which is fitted to ``train`` alone whenever that moves: see :meth:`scale`. The
                scaled series is a copy for as long as the pair is there.
            per_series: If ``True``, each series has a scale of its own.

        Raises:
            ArgumentError: A number that makes no sense, or a start that lies outside the series.
            DataError: A fold without a window.
        """
        steps = self._lengths["horizon"] or self._span if horizon is None else integer("horizon", horizon, least=1)
        ranges, times = self._ranges()
        folds = self._windows.backtest(
            time_split.origin(start, times, self._zoned),
            horizon=steps,
            stride=steps if stride is None else integer("stride", stride, least=1, most=MOST),
            refit=int(refit) if isinstance(refit, bool) else integer("refit", refit, least=1, most=MOST),
            train_len=None if train_len is None else integer("train_len", train_len, least=1, most=MOST),
        )

        def part(windows: _native.Windows, reach_back: bool) -> WindowDataset:
            return self._within(windows, ranges[:, :1], reach_back)

        def scaled(train: WindowDataset) -> Callable[[WindowDataset], WindowDataset]:
            spans, scaler = train._scaled(scale, per_series)
            return lambda dataset: dataset._with_spans(spans, scaler)

        return Backtest(folds, part, None if scale is None else scaled)

    def scale(self, scale: Any, *, per_series: bool = False) -> WindowDataset:
        """Return the windows of scaled series, ``(value - center) / scale``: inputs and targets alike.

        A scale is fitted to the steps of this dataset (of selected windows: to theirs), and applied to the
        whole series once: that copy is the only one. To fit it to the training part alone, give it to :meth:`split`, or
        scale other data by ``train.scaler``. Missing values (NaN) are left out of a fit. Columns of one value have no
        scale: a warning names them, and they stay as they are. ``past``, ``future`` and marks are not scaled.

        Args:
            scale: ``"standard"`` (mean and standard deviation), ``"robust"`` (median and range of the middle half) or
                ``"minmax"`` (to 0 and 1); the ``scaler`` of another dataset; or a transformer of scikit-learn that was
                fitted to the columns of ``x``.
            per_series: If ``True``, each series has a scale of its own.

        Raises:
            ArgumentError: An unknown scale, a transformer that was not fitted, or series that are scaled already.
            DataError: A scale that is not finite, or is one of another number of columns or series.
        """
        return self._with_spans(*self._scaled(scale, per_series))

    @property
    def scaler(self) -> Any:
        """The scale of the series: a :class:`Scaler`, or the transformer that was given; ``None`` without one."""
        return self._scaler

    def unscale(self, y: Any, samples: Any = None) -> Any:
        """Return targets, or predictions of them, in the units of the series.

        Args:
            y: An array of NumPy, torch or JAX whose last dimensions are those of a step of ``y``.
            samples: The number of each window in ``y``, for scales of each series.

        Raises:
            ArgumentError: The dataset has no scale, or samples are missing.
            DataError: Another number of columns than ``y`` has, or another number of samples.
        """
        if self._scaler is None:
            raise ArgumentError("unscale() is for series that were scaled; expected scale() or split(scale=) before")
        inner = tuple(self._spans["y" if "y" in self._spans else "x"].field.tensor.shape[1:])
        shape = tuple(y.shape)
        if len(shape) < len(inner) or shape[len(shape) - len(inner) :] != inner:
            raise DataError(f"y has shape {shape}; expected its last dimensions to be {inner}, those of a step")
        if not isinstance(self._scaler, Scaler):
            chosen = self._chosen if "y" in self._spans else None
            return scaling.inverse(self._scaler, y, self._spans["x"].field, chosen)
        center, scale = self._scaler.target_center, self._scaler.target_scale
        if not self._scaler.per_series:
            return scaling.inverted(y, center[0], scale[0])
        if samples is None:
            raise ArgumentError("each series has a scale of its own; expected samples=, the number of each window in y")
        rows = [self._windows.place(self._number(sample))[0] for sample in samples]
        if len(rows) != shape[0]:
            raise DataError(f"samples has {len(rows)} numbers for {shape[0]} windows; expected one for each")
        between = (1,) * (len(shape) - 1 - len(inner))
        return scaling.inverted(y, *(found[rows].reshape(-1, *between, *inner) for found in (center, scale)))

    def _scaled(self, scale: Any, per_series: bool) -> tuple[dict[str, Span], Any]:
        """Return the spans over scaled series, and the scale."""
        if self._scaler is not None:
            raise ArgumentError("the series are scaled already; expected one scale")
        if self._steps_of_fields is not None:
            raise ArgumentError(
                "a scale is of x and y, and fields have names of their own with offsets; scale them before"
            )
        x, span = self._spans["x"].field, self._spans.get("y")
        is_apart = span is not None and self._chosen is None
        y = span.field if span is not None and is_apart else x
        if isinstance(scale, str):
            scale = scaling.fitted(scale, x, y, self._rows_of_series(), self._ids, per_series=per_series)
            if span is not None and self._chosen is not None:
                chosen = self._chosen
                scale = scale.of_columns(lambda found: columns_of(found, *chosen))
        arrays = {"x": scaling.applied(scale, x, self._offsets, target=False)}
        if span is not None:
            apart = scaling.applied(scale, y, self._offsets, target=True) if is_apart else None
            arrays["y"] = apart if self._chosen is None else columns_of(arrays["x"], *self._chosen)
        spans = {
            name: Span(Field(name, arrays[name]), span.steps) if name in arrays else span
            for name, span in self._spans.items()
        }
        return spans, scale

    def _rows_of_series(self) -> list[list[list[int]]]:
        """Return the ranges of rows of each series: all of a part, and of selected windows those that they cover."""
        ranges, _ = self._ranges()
        if self._selection is None:
            return [[each] for each in ranges.tolist()]
        windows = _native.borrow(numpy.arange(len(self)), "windows")
        places: list[Array] = [numpy.from_dlpack(found) for found in self._windows.rows(windows)]
        starts, ends = places[0], places[0] + self._span - places[1]
        order = numpy.argsort(starts, kind="stable")
        found: list[list[list[int]]] = [[] for _ in ranges]
        for start, end in zip(starts[order].tolist(), ends[order].tolist(), strict=True):
            group = found[int(numpy.searchsorted(self._offsets, start, side="right")) - 1]
            if group and start <= group[-1][1]:
                group[-1][1] = max(group[-1][1], end)
            else:
                group.append([start, end])
        return found

    def _with_spans(self, spans: dict[str, Span], scaler: Any) -> WindowDataset:
        """Return the same windows of other arrays."""
        found = self.__new__(type(self))
        found.__dict__.update(self.__dict__)
        found._spans, found._scaler = spans, scaler
        found._take(found._slide())
        if self._selection is not None:
            found._choose(self._selection)
        return found

    def _ranges(self) -> tuple[Array, list[Array] | None]:
        """Return the first row and the end of each series, and the times of each, where they are known."""
        ranges: Array = numpy.from_dlpack(self._windows.ranges())
        times = None if self._times is None else [self._times[start:end] for start, end in ranges.tolist()]
        return ranges, times

    def _within(self, windows: _native.Windows, firsts: Array, reach_back: bool) -> WindowDataset:
        """Return the dataset of a part, which shares all arrays with this one."""
        part = self.__new__(type(self))
        # Attributes are shared, as a copy of the dataset would borrow all arrays again.
        part.__dict__.update(self.__dict__)
        ranges: Array = numpy.from_dlpack(windows.ranges())
        starts, stops = numpy.ascontiguousarray((ranges - firsts).T)
        part._parts = (*self._parts, (starts, stops, reach_back))
        part._take(windows)
        return part

    def _choose(self, selection: _native.Selection) -> None:
        self._windows = self._windows.select(selection)

    def _made(self) -> Made:
        state = {name: value for name, value in self.__dict__.items() if name not in OF_WINDOWS}
        arrays = {name: (span.field.array, span.steps) for name, span in self._spans.items()}
        beside = {
            name: (each.of, None if each.field is None else each.field.array) for name, each in self._looked.items()
        }
        return _rebuild, (type(self), state, arrays, beside)

    def __repr__(self) -> str:
        fields = ", ".join(repr(span.field) for span in self._spans.values())
        lengths = ", ".join(f"{name}={value}" for name, value in self._lengths.items() if value and name not in ENDS)
        return f"WindowDataset({fields}; {lengths}; {len(self)} windows of {len(self._offsets) - 1} series)"

    @property
    def _span(self) -> int:
        """The steps of a window: input, gap and horizon."""
        span: int = self._lengths["input_len"] + self._lengths["gap"] + self._lengths["horizon"]
        return span

    @property
    def _framework(self) -> str:
        """The framework of the series."""
        return next(iter(self._spans.values())).field.framework

    def _native_dataset(self) -> _native.Dataset:
        return self._windows.dataset()

    def _pad_values(self, pad_value: Any, dtypes: Mapping[str, str]) -> list[tuple[str, bytes]]:
        return unpadded(pad_value, "short series are padded with zeros")

    def _series_arrays(self) -> tuple[Field, ...]:
        """Return the arrays that fields are cut from, each once."""
        return tuple({id(span.field.array): span.field for span in reversed(self._spans.values())}.values())

    def _row_arrays(self) -> tuple[Field, ...]:
        """Return the arrays that rows are looked up in."""
        return tuple(each.field for each in self._looked.values() if each.field is not None)

    def _arrays(self) -> tuple[Field, ...]:
        return (*self._series_arrays(), *self._row_arrays())

    def _beside(self) -> tuple[Field, ...]:
        return (self._table.field,) if self._looked or self._lengths["trail"] else ()

    def _row_ranges(self, first: int, end: int) -> list[RowRange]:
        from batchloom.device.shards import RowRange

        start, stop = self._native_dataset().rows(first, end)[0]
        whole = [RowRange(field, 0, len(field)) for field in (*self._row_arrays(), *self._beside())]
        return [RowRange(field, start, stop) for field in self._series_arrays()] + whole

    def _most_rows(self, samples: int) -> list[tuple[Field, int]]:
        most = self._native_dataset().most_rows(samples)[0]
        whole = [(field, len(field)) for field in (*self._row_arrays(), *self._beside())]
        return [(field, most) for field in self._series_arrays()] + whole

    def _element_bytes(self) -> int | None:
        return sum(field.row_bytes for field in self._series_arrays()) if self._padded else None

    def _schema(self, columns: Columns) -> Schema:
        frameworks = {name: span.field.framework for name, span in self._spans.items()}
        frameworks |= {name: each.field.framework for name, each in self._looked.items() if each.field is not None}
        found = (Column(name, dtype, frameworks.get(name, self._framework)) for name, dtype in columns)
        return Schema(tuple(found), named=self._named, patches=self._patches)

    def _collator(self, resident: Resident, options: CollateOptions) -> Collator:
        return self._gatherer(resident, options)

    def _gatherer(self, resident: Resident, options: CollateOptions | None = None) -> Gatherer:
        from batchloom.device.collate.windows import LookedUpRows, SeriesPlaces, StepRange
        from batchloom.device.collate.windows import Windows as Gatherer
        from batchloom.device.conversion import converted

        def fetched(name: str, field: Field) -> Callable[[], ResidentRows]:
            fetch = partial(resident.rows_of, field)
            return fetch if options is None else converted(options, name, fetch)

        shared = {id(field.array): field for field in self._series_arrays()}
        step_ranges = [
            StepRange(fetched(name, shared[id(span.field.array)]), span.steps) for name, span in self._spans.items()
        ]
        looked_up = [
            LookedUpRows(each.of, None if each.field is None else fetched(name, each.field))
            for name, each in self._looked.items()
        ]
        places = SeriesPlaces(partial(resident.rows_of, self._table.field), self._table.stride, self._table.anchor)
        ends = "both" if self._lengths["trail"] else "front" if self._padded else "none"
        lists = self._index and not (options is not None and options.marked)
        return Gatherer(step_ranges, list(self._masks.values()), ends, looked_up, places, lists)

    def _in_parts(self) -> frozenset[str]:
        return frozenset(self._spans)

    def _sliceable(self, documents: bool) -> Sliceable | None:
        if not all(span.steps.are_strided for span in self._spans.values()):
            return None
        return Sliceable(
            windows=self._windows,
            spans=self._spans,
            stride=self._lengths["stride"],
            span=self._span,
            masks=tuple(steps.count for steps in self._masks.values()),
            beside=self._looked,
            table=self._table,
            index=self._index,
            patches=self._patches,
            keys=list(self.names) if self._named else None,
            collator=self._gatherer,
            where=partial(frames.where, offsets=self._offsets, ids=self._ids),
        )

    @property
    def _is_formed_without_torch(self) -> bool:
        return True

    @property
    def _padded(self) -> bool:
        """``True`` if windows may hold zeros that their series does not have."""
        _, _, _, padded, _ = self._windows.counts()
        return bool(padded or self._lengths["lead"] or self._lengths["trail"])


def _patches(patch_len: int | None, patch_stride: int | None, input_len: int) -> tuple[int, int] | None:
    if patch_len is None:
        if patch_stride is not None:
            raise ArgumentError(f"patch_stride is {patch_stride}, but patch_len is not given; expected both")
        return None
    length = integer("patch_len", patch_len, least=1, most=input_len)
    # A stride longer than the input makes one patch, as a stride of the length of the input does.
    return length, length if patch_stride is None else min(integer("patch_stride", patch_stride, least=1), input_len)


def _by_name(role: str, series: Any) -> dict[str, Any]:
    if series is None:
        return {}
    if not isinstance(series, dict) or not all(isinstance(name, str) for name in series):
        raise ArgumentError(f"{role} is a {type(series).__name__}; expected a dict of series by name")
    return series


def _rebuild(
    kind: type[WindowDataset],
    state: dict[str, Any],
    arrays: dict[str, tuple[Any, WindowSteps]],
    beside: dict[str, tuple[str, Any]],
) -> WindowDataset:
    dataset = kind.__new__(kind)
    dataset.__dict__.update(state)
    dataset._spans = {name: Span(Field(name, array), steps) for name, (array, steps) in arrays.items()}
    dataset._looked = {
        name: LookedUp(of, None if array is None else Field(name, array)) for name, (of, array) in beside.items()
    }
    dataset._take(dataset._slide())
    return dataset
