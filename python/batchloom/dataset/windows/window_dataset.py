"""Time series, and the windows that slide over them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack, overload

import batchloom._native as _native
import numpy
from batchloom.arguments import choice, integer, unpadded
from batchloom.arrays import frames
from batchloom.arrays.field import Field, lend
from batchloom.arrays.frameworks import require
from batchloom.batch import Column, Columns, Schema
from batchloom.dataset.base import Dataset, Dicts, Form, Made, Sliceable, Span, Tuples
from batchloom.dataset.windows import scaler as scaling
from batchloom.dataset.windows import time_split
from batchloom.dataset.windows.backtest import Backtest
from batchloom.dataset.windows.scaler import Scaler
from batchloom.dataset.windows.series import Series, aligned, columns_of, from_arrays, from_frame
from batchloom.errors import ArgumentError, DataError, RangeError

if TYPE_CHECKING:
    from batchloom.batch import CollateOptions
    from batchloom.device.collate.windows import Windows as Gatherer
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident

Array = numpy.ndarray[Any, Any]

OWN = ("x", "y", "x_mark", "y_mark", "mask", "target_mask")

# Attributes that are derived from the others, and are left out of a pickle.
OF_WINDOWS = ("_windows", "_spans", "_selection")

# More steps than any series has.
MOST = 2**48


class WindowPlace(NamedTuple):
    """The place of a window in its series."""

    series: int
    """The number of the series."""
    start: int
    """The first step of the series that the window takes."""
    missing: int
    """The steps of zeros before ``start``, for a series that is too short."""


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
    columns: Sequence[Any] | None
    anchor: str
    short: str
    sampled_by: str
    mask: bool
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
    - ``mask``, ``[batch, input_len]``, and ``target_mask``, ``[batch, label_len + horizon]``, on request: False at the
      zeros in front of a short series.

    With ``past`` or ``future``, a batch is a dict that also holds these series, by name.

    **Batches of neighbours are views** (``shuffle=False`` or ``"runs"``): their windows overlap in memory, so writing
    to one in place changes others, and the series. In NumPy they are read-only. Torch has no read-only tensors, so do
    not write to them, or ask the loader for ``copy=True``. Batches of random windows (``shuffle=True``), batches that
    cross from one series to the next, and batches with a padded window own their memory.

    Args:
        series: The series that windows slide over.
        input_len: Steps of input.
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
        id: The column of a frame that tells series apart.
        time: A column of a frame, or an array, of numbers or datetimes that grow within each series.
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
        DataError: Series that disagree; time that is missing or does not grow (the message names series and step); a
            series too short with ``short="error"``; no window at all.
        DTypeError: An element type that cannot be moved as bytes; a column that does not hold numbers.
        DeviceError: An array that is neither on the CPU nor of torch.
    """

    # fmt: off
    @overload
    def __init__(
        self: WindowDataset[Tuples], series: Any, input_len: int, horizon: int = 0, *,
        past: None = None, future: None = None, **options: Unpack[WindowOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WindowDataset[Dicts], series: Any, input_len: int, horizon: int = 0, *,
        past: dict[str, Any] | None = None, future: dict[str, Any] | None = None, **options: Unpack[WindowOptions],
    ) -> None: ...
    # fmt: on
    def __init__(
        self,
        series: Any,
        input_len: int,
        horizon: int = 0,
        *,
        label_len: int = 0,
        gap: int = 0,
        stride: int = 1,
        targets: Any = None,
        marks: Any = None,
        past: dict[str, Any] | None = None,
        future: dict[str, Any] | None = None,
        id: Any = None,
        time: Any = None,
        columns: Sequence[Any] | None = None,
        anchor: str = "start",
        short: str = "pad",
        sampled_by: str = "windows",
        mask: bool = False,
        patch_len: int | None = None,
        patch_stride: int | None = None,
    ) -> None:
        self._lengths: dict[str, Any] = {
            "input_len": integer("input_len", input_len, least=1, most=MOST),
            "horizon": integer("horizon", horizon, most=MOST),
            "label_len": integer("label_len", label_len, most=MOST),
            "gap": integer("gap", gap, most=MOST),
            "stride": integer("stride", stride, least=1, most=MOST),
        }
        self._options: dict[str, Any] = {
            "anchor": choice("anchor", anchor, ("start", "end")),
            "short": choice("short", short, ("pad", "skip", "error")),
            "sampled_by": choice("sampled_by", sampled_by, ("windows", "series")),
            "mask": bool(mask),
        }
        self._patches = _patches(patch_len, patch_stride, input_len)
        if frames.is_frame(series):
            found = from_frame(series, targets, marks, id, time, columns)
        else:
            if id is not None or columns is not None:
                name = "id" if id is not None else "columns"
                raise ArgumentError(f"{name} is given, but series is not a frame; expected a frame with named columns")
            found = from_arrays(series, targets, marks, time)
        past, future = _by_name("past", past), _by_name("future", future)
        self._named = bool(past or future)
        self._scaler: Scaler | None = None
        self._set_up(found, past, future)

    def _set_up(self, found: Series, past: dict[str, Any], future: dict[str, Any]) -> None:
        self._offsets, self._ids, self._times, self._zoned = found.offsets, found.ids, found.times, found.zoned
        self._chosen = found.chosen
        if found.times is not None:
            frames.require_increasing(found.times, found.offsets, found.ids)
        horizon = self._lengths["horizon"]
        inputs, targets = {"x": found.x}, {"y": found.y} if horizon else {}
        if found.marks is not None:
            inputs["x_mark"] = found.marks
            targets |= {"y_mark": found.marks} if horizon else {}
        if future and not horizon:
            raise ArgumentError("future is given, but horizon is 0; expected horizon to be at least 1")
        for name, data in {**past, **future}.items():
            if name in OWN or (name in past and name in future):
                raise ArgumentError(f"a series is named {name}, which is taken; expected another name")
            values = aligned(name, data, found.offsets)
            (inputs if name in past else targets)[name] = values
        self._spans = self._cut(inputs, targets)
        self._parts: tuple[tuple[Array, Array, bool], ...] = ()
        self._windows = self._slide()

    def _slide(self) -> _native.Windows:
        """Return the windows of the engine."""
        fields = [(name, span.field.tensor, span.target) for name, span in self._spans.items()]
        offsets = _native.borrow(self._offsets, "offsets")
        windows = _native.Windows(offsets, fields, **self._lengths, **self._options)
        for starts, stops, reach_back in self._parts:
            windows = windows.part(_native.borrow(starts, "part"), _native.borrow(stops, "part"), reach_back)
        return windows

    def _cut(self, inputs: dict[str, Any], targets: dict[str, Any]) -> dict[str, Span]:
        """Return the span of each field of a batch in a window: first those of :data:`OWN`, in that order."""
        lengths = self._lengths
        start = lengths["input_len"] + lengths["gap"] - lengths["label_len"]
        spans = {name: Span(Field(name, data), 0, lengths["input_len"], False) for name, data in inputs.items()}
        steps = lengths["label_len"] + lengths["horizon"]
        spans |= {name: Span(Field(name, data), start, steps, True) for name, data in targets.items()}
        first = [name for name in OWN if name in spans]
        return {name: spans[name] for name in (*first, *(name for name in spans if name not in first))}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays of a batch, in order."""
        return (*self._spans, *self._masks)

    @property
    def fields(self) -> dict[str, Any]:
        """The series from which each array of a batch is cut."""
        return {name: span.field.array for name, span in self._spans.items()}

    @property
    def offsets(self) -> Array:
        """The offsets of series, int64: series ``k`` is the rows ``offsets[k]`` to ``offsets[k + 1]`` of each array."""
        return self._offsets

    @property
    def ids(self) -> list[Any] | None:
        """The id of each series; ``None`` unless they came in a frame with ids."""
        return self._ids

    def _whole_len(self) -> int:
        return len(self._windows)

    def _sample(self, sample: int) -> Any:
        """Return one window: the arrays of a batch without their first dimension, as copies."""
        _, row, missing = self._windows.place(sample)
        found = {name: self._part(name, span, row, missing) for name, span in self._spans.items()}
        for name, (start, steps) in self._masks.items():
            exists = numpy.arange(start, start + steps) >= missing
            found[name] = lend(_native.borrow(exists, name), self._framework)
        return found if self._named else tuple(found.values())

    def _part(self, name: str, span: Span, row: int, missing: int) -> Any:
        zeros = min(max(missing - span.start, 0), span.steps)
        start = row + max(span.start - missing, 0)
        found = span.field.slice(start, start + span.steps - zeros)
        module = require(span.field.framework, span.field.dtype, name)
        found = module.pad_front(found, zeros) if zeros else module.own(found, None)
        return module.patches(found[None], *self._patches)[0] if self._patches and name == "x" else found

    def place(self, sample: int) -> WindowPlace:
        """Return the place of a window in its series, to join predictions with series and times."""
        series, row, missing = self._windows.place(self._number(sample))
        return WindowPlace(series, row - int(self._offsets[series]), missing)

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
        window = sum(span.steps * span.field.row_bytes for span in self._spans.values())
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
            name: Span(Field(name, arrays[name]), span.start, span.steps, span.target) if name in arrays else span
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
        found._windows = found._slide()
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
        part._windows = windows
        return part

    def _choose(self, selection: _native.Selection) -> None:
        self._windows = self._windows.select(selection)

    def _made(self) -> Made:
        state = {name: value for name, value in self.__dict__.items() if name not in OF_WINDOWS}
        arrays = {name: (span.field.array, span.start, span.steps, span.target) for name, span in self._spans.items()}
        return _rebuild, (type(self), state, arrays)

    def __repr__(self) -> str:
        fields = ", ".join(repr(span.field) for span in self._spans.values())
        lengths = ", ".join(f"{name}={value}" for name, value in self._lengths.items() if value)
        return f"WindowDataset({fields}; {lengths}; {len(self)} windows of {len(self._offsets) - 1} series)"

    @property
    def _span(self) -> int:
        """The steps of a window: input, gap and horizon."""
        span: int = self._lengths["input_len"] + self._lengths["gap"] + self._lengths["horizon"]
        return span

    @property
    def _framework(self) -> str:
        """The framework of the series."""
        return self._spans["x"].field.framework

    def _native_dataset(self) -> _native.Dataset:
        return self._windows.dataset()

    def _pad_values(self, pad_value: Any, dtypes: Mapping[str, str]) -> list[tuple[str, bytes]]:
        return unpadded(pad_value, "short series are padded with zeros")

    def _arrays(self) -> tuple[Field, ...]:
        return tuple({id(span.field.array): span.field for span in reversed(self._spans.values())}.values())

    def _element_bytes(self) -> int | None:
        return sum(field.row_bytes for field in self._arrays()) if self._padded else None

    def _schema(self, columns: Columns) -> Schema:
        frameworks = {name: span.field.framework for name, span in self._spans.items()}
        found = (Column(name, dtype, frameworks.get(name, self._framework)) for name, dtype in columns)
        return Schema(tuple(found), named=self._named, patches=self._patches)

    def _collator(self, resident: Resident, options: CollateOptions) -> Collator:
        return self._gatherer(resident, options)

    def _gatherer(self, resident: Resident, options: CollateOptions | None = None) -> Gatherer:
        from batchloom.device.collate.windows import StepRange
        from batchloom.device.collate.windows import Windows as Gatherer
        from batchloom.device.conversion import converted

        arrays = {id(field.array): partial(resident.rows_of, field) for field in self._arrays()}

        def step_range(name: str, span: Span) -> StepRange:
            fetch = arrays[id(span.field.array)]
            return StepRange(fetch if options is None else converted(options, name, fetch), span.start, span.steps)

        step_ranges = [step_range(name, span) for name, span in self._spans.items()]
        return Gatherer(step_ranges, list(self._masks.values()), self._padded)

    def _in_parts(self) -> frozenset[str]:
        return frozenset(self._spans)

    @property
    def _masks(self) -> dict[str, tuple[int, int]]:
        """The first step of the window that each mask is about, and their number."""
        if not self._options["mask"]:
            return {}
        lengths = self._lengths
        masks = {"mask": (0, lengths["input_len"])}
        start, steps = lengths["input_len"] + lengths["gap"] - lengths["label_len"], lengths["horizon"]
        return masks | ({"target_mask": (start, lengths["label_len"] + steps)} if steps else {})

    def _sliceable(self, documents: bool) -> Sliceable:
        return Sliceable(
            windows=self._windows,
            spans=self._spans,
            stride=self._lengths["stride"],
            span=self._span,
            masks=tuple(steps for _, steps in self._masks.values()),
            patches=self._patches,
            keys=list(self.names) if self._named else None,
            collator=self._gatherer,
        )

    @property
    def _is_formed_without_torch(self) -> bool:
        return True

    @property
    def _padded(self) -> bool:
        """``True`` if windows may begin with zeros."""
        _, _, _, padded, _ = self._windows.counts()
        return bool(padded)


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


def _rebuild(kind: type[WindowDataset], state: dict[str, Any], arrays: dict[str, tuple[Any, ...]]) -> WindowDataset:
    dataset = kind.__new__(kind)
    dataset.__dict__.update(state)
    dataset._spans = {name: Span(Field(name, array), *rest) for name, (array, *rest) in arrays.items()}
    dataset._windows = dataset._slide()
    return dataset
