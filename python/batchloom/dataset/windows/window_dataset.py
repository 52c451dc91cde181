"""Time series, and the windows that slide over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import numpy
from batchloom.arguments import boolean, choice, integer
from batchloom.arrays import frames
from batchloom.arrays.field import Field
from batchloom.collate.window_steps import MOST_STEPS, WindowSteps
from batchloom.dataset.base import Dicts, Form, Tuples
from batchloom.dataset.windows import offsets as anchored
from batchloom.dataset.windows.beside import Beside, ReadBeside
from batchloom.dataset.windows.in_parts import WindowsInParts
from batchloom.dataset.windows.scaler import Scaler
from batchloom.dataset.windows.series import Series, from_arrays, from_frame
from batchloom.dataset.windows.slid import OWN
from batchloom.dataset.windows.span import Span
from batchloom.errors import ArgumentError, DataError, many

if TYPE_CHECKING:
    pass

Array = numpy.ndarray[Any, Any]


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
    patch_pad: str | None


class WindowDataset(WindowsInParts[Form]):
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
    not write to them, or use ``buffers="own"``. Batches of random windows (``shuffle=True``), batches that
    cross from one series to the next, and batches with a padded window own their memory. So do all with ``patch_pad``.

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
            split, and a part with windows that are not among them, as with ``stride > 1``, is an error.
        labels_of: ``"windows"``, ``"series"`` or ``"steps"``, for labels whose number fits several.
        static: A row for each series: an array, arrays by name, columns of the frame that do not change within a
            series, or a frame with the column ``id``. A batch of neighbours repeats the row by a view; one of windows
            of several series holds a row for each of them.
        index: If ``True``, batches hold ``series``, ``start`` (the first step of the window in its series, negative if
            zeros come before the series), ``time`` (that of its first step which the series has, if times are known;
            datetimes as int64 in the unit of :attr:`times`) and ``index`` (the number of the window).
        offsets: For each field by name, the steps that it takes relative to an anchor, such as
            ``{"state": [0], "action": range(16)}``. ``series`` is a frame or a dict of arrays ``[time, ...]`` then, and
            there is no ``input_len``. All steps of a window exist; with ``short="pad"`` every step is an anchor, and
            steps outside the series are zeros, which ``state_mask``, ... tell apart. ``index=True`` adds
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
        short: Treatment of a series that is too short for its targets: it has fewer steps than ``y``, or no step of
            input beside gap and horizon (with a least ``input_len``, fewer than that; with ``offsets``, fewer than
            these reach over). ``"error"`` raises an error that names the first such series and counts them. ``"drop"``
            leaves them out: :meth:`stats` counts them as ``series_without_windows``. ``"pad"`` makes one window of
            each, whose first targets are zeros that nobody measured: batches hold the masks then, as with
            ``mask=True``. A series that has all targets and is shorter than a window makes one window, whose input
            begins with zeros.
        sampled_by: ``"windows"``: every window comes once an epoch. ``"series"``: every series comes equally often;
            those with fewer windows repeat them.
        mask: If ``True``, or with ``short="pad"``, batches hold ``mask``, and ``target_mask`` if there is a horizon.
            They are True at steps that ``fill`` put in, which :attr:`filled` tells apart.
        patch_len: Cuts ``x`` into patches, ``[batch, features, patches, patch_len]``, without a copy: a view of the
            batch, whose patches overlap if ``patch_stride`` is shorter (read-only in NumPy). With ``buffers="own"``
            of a loader they are a copy.
        patch_stride: Steps from one patch to the next; ``None`` for ``patch_len``. Steps at the end of ``x`` that fill
            no patch are left out.
        patch_pad: ``"end"`` repeats the last step of ``x`` ``patch_stride`` times before patches are cut, as PatchTST
            does: there is one patch more, and no step is left out. ``x`` with its longer end is gathered in every
            order, since each window has an end of its own, and patches are views of that.

    Raises:
        ArgumentError: Lengths that make no sense, or columns that do not exist.
        DataError: Series that disagree; labels of another number; a static column that changes; time that is missing,
            does not grow or does not go on by ``freq`` (the message names series and step); a series too short for
            its targets, with ``short="error"``; no window at all.
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
        short: str = "error",
        sampled_by: str = "windows",
        mask: bool = False,
        patch_len: int | None = None,
        patch_stride: int | None = None,
        patch_pad: str | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "anchor": choice("anchor", anchor, ("start", "end")),
            "short": choice("short", short, ("error", "drop", "pad")),
            "sampled_by": choice("sampled_by", sampled_by, ("windows", "series")),
        }
        self._mask, self._index = boolean("mask", mask) or short == "pad", boolean("index", index)
        self._scaler: Scaler | None = None
        self._chosen: tuple[Any] | None = None
        self._steps_of_fields = None if offsets is None else anchored.read(offsets)
        self._lengths: dict[str, Any] = {
            **self._inputs(input_len),
            "horizon": integer("horizon", horizon, most=MOST_STEPS),
            "label_len": integer("label_len", label_len, most=MOST_STEPS),
            "gap": integer("gap", gap, most=MOST_STEPS),
            "stride": integer("stride", stride, least=1, most=MOST_STEPS),
        }
        self._patches = _patches(patch_len, patch_stride, self._lengths["input_len"])
        self._repeats = _repeats(patch_pad, self._patches, self._lengths["input_len"])
        beside = Beside(labels, labels_of, static)
        past, future = _by_name("past", past), _by_name("future", future)
        if self._steps_of_fields is not None:
            given = {"horizon": horizon, "label_len": label_len, "gap": gap, "targets": targets, "marks": marks}
            given |= {
                "past": past,
                "future": future,
                "columns": columns,
                "patch_len": patch_len,
                "patch_pad": patch_pad,
            }
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
        """Return the steps of input, those that windows may lack at the ends of a series, and if they are whole."""
        fields = self._steps_of_fields
        if fields is not None:
            if input_len is not None:
                raise ArgumentError(
                    f"input_len is {input_len!r}, and offsets is given, which says all steps; expected one"
                )
            pads = self._options["short"] == "pad"
            lead, trail = (fields.anchor, fields.span - fields.anchor - 1) if pads else (0, 0)
            return {"input_len": fields.span, "lead": lead, "trail": trail, "whole": True}
        if input_len is None:
            raise ArgumentError("input_len is None; expected the steps of input, or offsets=")
        if not isinstance(input_len, tuple | list):
            steps = integer("input_len", input_len, least=1, most=MOST_STEPS)
            return {"input_len": steps, "lead": 0, "trail": 0, "whole": False}
        if len(input_len) != 2:
            raise ArgumentError(f"input_len is {input_len!r}; expected a number, or the least and the most steps")
        least = integer("the least input_len", input_len[0], least=1, most=MOST_STEPS)
        most = integer("the most input_len", input_len[1], least=least, most=MOST_STEPS)
        return {"input_len": most, "lead": most - least, "trail": 0, "whole": True}

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
        self._ids, self._zoned, self._filled_ahead = found.ids, found.zoned, found.timeline.filled_ahead
        self._require_whole_windows(found.timeline.offsets, found.ids)
        taken = [name for name in steps if name in (*self._place_names, "labels", "static")]
        if taken:
            raise ArgumentError(f"offsets names a field {taken[0]}, which is taken; expected another name")
        spans = {name: Span(Field(name, values), steps[name]) for name, values in found.values.items()}
        masked = {f"{name}_mask": steps[name] for name in steps} if self._mask else {}
        self._finish(spans, masked, beside.read(series, id, found.timeline, found.ids), fields.anchor)

    def _require_whole_windows(self, offsets: Array, ids: list[Any] | None) -> None:
        """Check that each series has all steps of a window, if one that has not is an error.

        Raises:
            DataError: A series is too short; the message names the steps that reach furthest.
        """
        fields = self._steps_of_fields
        assert fields is not None
        lengths = numpy.diff(offsets)
        are_short = lengths < fields.span
        if self._options["short"] != "error" or not are_short.any():
            return
        series = int(are_short.argmax())
        which = f"series {series}" if ids is None else f"series {series} ({ids[series]!r})"
        steps = {name: [step - fields.anchor for step in found.numbers] for name, found in fields.steps.items()}
        first, last = (best(steps, key=lambda name: best(steps[name])) for best in (min, max))
        raise DataError(
            f"{which} has {many(lengths[series], 'step')}, and offsets reach from {min(0, *steps[first])} ({first}) to "
            f"{max(0, *steps[last])} ({last}), which are {fields.span} ({are_short.sum()} of {len(lengths)} series are "
            'too short); expected longer series, or short="drop" or "pad"'
        )

    def _set_up(self, found: Series, past: dict[str, Any], future: dict[str, Any], beside: ReadBeside) -> None:
        self._offsets, self._ids, self._times, self._zoned = found.offsets, found.ids, found.times, found.zoned
        self._chosen, self._is_filled = found.chosen, found.timeline.is_filled
        self._filled_ahead = found.timeline.filled_ahead
        horizon = self._lengths["horizon"]
        inputs, targets = {"x": found.x}, {"y": found.y} if horizon else {}
        if found.marks is not None:
            inputs["x_mark"] = found.marks
            targets |= {"y_mark": found.marks} if horizon else {}
        if future and not horizon:
            raise ArgumentError("future is given, but horizon is 0; expected horizon to be at least 1")
        for name, data in {**past, **future}.items():
            if name in (*OWN, *self._place_names) or (name in past and name in future):
                raise ArgumentError(f"a series is named {name}, which is taken; expected another name")
            values = found.beside(name, data)
            (inputs if name in past else targets)[name] = values
        found.timeline.require_used()
        lengths = self._lengths
        input_steps = WindowSteps(0, lengths["input_len"])
        start = lengths["input_len"] + lengths["gap"] - lengths["label_len"]
        target_steps = WindowSteps(start, lengths["label_len"] + horizon)
        spans = {name: Span(Field(name, data), input_steps) for name, data in inputs.items()}
        if self._repeats:
            last = lengths["input_len"] - 1
            steps = WindowSteps.of([*range(last + 1), *[last] * self._repeats])
            spans["x"] = Span(spans["x"].field, steps)
        spans |= {name: Span(Field(name, data), target_steps) for name, data in targets.items()}
        first = [name for name in OWN if name in spans]
        spans = {name: spans[name] for name in (*first, *(name for name in spans if name not in first))}
        masks = {"mask": input_steps} | ({"target_mask": target_steps} if horizon else {}) if self._mask else {}
        self._finish(spans, masks, beside, 0)


def _patches(patch_len: int | None, patch_stride: int | None, input_len: int) -> tuple[int, int] | None:
    if patch_len is None:
        if patch_stride is not None:
            raise ArgumentError(f"patch_stride is {patch_stride}, but patch_len is not given; expected both")
        return None
    length = integer("patch_len", patch_len, least=1, most=input_len)
    # A stride longer than the input makes one patch, as a stride of the length of the input does.
    return length, length if patch_stride is None else min(integer("patch_stride", patch_stride, least=1), input_len)


def _repeats(patch_pad: str | None, patches: tuple[int, int] | None, input_len: int) -> int:
    """Return how often patches need the last step of ``x`` once more."""
    if patch_pad is None:
        return 0
    choice("patch_pad", patch_pad, ("end",))
    if patches is None:
        raise ArgumentError(f"patch_pad is {patch_pad!r}, but patch_len is not given; expected both")
    length, stride = patches
    # Of as many repeated steps as a stride has, the last ones fill no patch.
    return stride - (input_len - length) % stride


def _by_name(role: str, series: Any) -> dict[str, Any]:
    if series is None:
        return {}
    if not isinstance(series, dict) or not all(isinstance(name, str) for name in series):
        raise ArgumentError(f"{role} is a {type(series).__name__}; expected a dict of series by name")
    return series
