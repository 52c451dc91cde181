"""The dataset of windows over time series: series, the shape of a window, and the part of the series to cut it from."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self, Unpack, overload

import batchloom._native as _native
import numpy
from batchloom.arguments import answer_unknown_keywords, integer
from batchloom.arrays.copying import copy_argument
from batchloom.batching.rules import Rule
from batchloom.collate.schema import Columns, Schema
from batchloom.dataset.array_windows import ArrayWindows
from batchloom.dataset.base import Dataset, Dicts, Form, Tuples, with_samples
from batchloom.dataset.concat import StoredSamples
from batchloom.dataset.location import Location
from batchloom.dataset.samples import Recipe, override
from batchloom.dataset.selection import refuse_unnamed
from batchloom.dataset.window_shape import WindowShape
from batchloom.dataset.windows.backtest import Backtest, read_folds
from batchloom.dataset.windows.covariates import Covariates
from batchloom.dataset.windows.given_series import SeriesOptions
from batchloom.dataset.windows.part import Part, covered_rows, ranges_of
from batchloom.dataset.windows.places import WindowPlace, find_sample, place_of
from batchloom.dataset.windows.series import Series
from batchloom.dataset.windows.shape_arguments import read_shape
from batchloom.dataset.windows.sliding import slide
from batchloom.dataset.windows.stats import WindowStats, count
from batchloom.dataset.windows.time_split import read_ends, read_origin
from batchloom.dataset.windows.timed import Timed
from batchloom.dataset.windows.timed_field import require_rows
from batchloom.dataset.windows.window_options import WindowAttributes, WindowOptions
from batchloom.device.data import DeviceData
from batchloom.errors import ArgumentError, RangeError, many

Array = numpy.ndarray[Any, Any]


@answer_unknown_keywords
class WindowDataset(Dataset[Form], WindowAttributes):
    """Windows over time series: ``input_len`` steps of input, and the ``horizon`` steps to predict after them.

    Windows are not stored: batches are strided views on the series, or gathered from it. Windows never cross series. A
    series of ``T`` steps makes ``(T - input_len - gap - horizon) // stride + 1`` windows.

    A series is an array ``[time, features]`` or ``[time]``: NumPy, a memory map, torch or JAX on the CPU, an Arrow
    column, whose lists of one size are rows, or anything else that :class:`batchloom.TensorDataset` takes as an array.
    Several series are a list of such arrays, ``(values, offsets)``, where series ``k`` is
    ``values[offsets[k]:offsets[k + 1]]``, or an Arrow column of lists of any length. Or they are a frame (pandas,
    polars, pyarrow, or a dict of columns), in which ``id`` tells series apart, ``time`` grows within each, and all
    other columns are features. Lists and frames are copied once; all other data is borrowed, never copied.

    A batch is a tuple:

    - ``x``, ``[batch, input_len, features]``: steps ``s`` to ``s + input_len``,
    - ``y``, ``[batch, label_len + horizon, targets]``, unless ``horizon`` is 0: it begins ``label_len`` steps before
      the horizon, which begins ``gap`` steps after ``x`` ends,
    - ``x_mark`` and ``y_mark``, the marks of the same steps, if ``marks`` is given,
    - ``mask``, ``[batch, input_len]``, and ``target_mask``, ``[batch, label_len + horizon]``, on request: False at
      steps that the series does not have.

    Such steps are zeros. ``pad_value=`` of a loader, or ``bl.Field(pad=...)``, puts other numbers there, or
    ``"edge"``, the nearest step of the series; a part of a split is a series of its own. ``dataset[k]`` keeps zeros.

    Masks, and what ``index`` adds, are the extras of a batch: ``extras=`` of a loader chooses among them.

    With ``past``, ``future``, ``labels``, ``static``, ``timed``, ``index`` or ``offsets``, a batch is a dict with these
    by name.

    **Batches of neighbours are views** (``shuffle=False`` or ``"runs"``). Windows overlap in memory: a write in place
    changes other windows, and the series. NumPy's are read-only; torch has no read-only tensors, so do not write to
    them, or use ``buffers="own"``. Batches of random windows (``shuffle=True``), of windows of two series,
    with a padded window, or with ``patch_pad`` own their memory.

    Args:
        series: The series that windows slide over.
        input_len: Steps of input, or the least and the most steps: windows at the beginning of a series begin with
            zeros, in place of the steps that they lack.
        horizon: Steps to predict; 0 for inputs alone.
        label_len: Steps before the horizon with which ``y`` begins, for decoders such as Informer's.
        gap: Steps between input and horizon, which neither ``x`` nor the horizon holds.
        stride: Steps from one window to the next.
        targets: The columns that ``y`` takes: an index, a slice or indices, or names for a frame; ``None`` for all.
            Evenly spaced columns are a view on the series; other columns are copied once.
        marks: More values for each step. Series of the same lengths, the names of columns of a frame, or marks that are
            made from ``time``: the names ``"second"``, ``"minute"``, ``"hour"``, ``"weekday"`` (0 is Monday),
            ``"day"``, ``"yearday"``, ``"week"``, ``"month"``, ``"quarter"`` and ``"year"`` are integers as calendars
            count, ``"tslib"`` the marks of the Time-Series-Library for steps like these, ``"sin-cos"`` a sine and a
            cosine for each cycle. Times with a time zone count as it shows them. Where a column has such a name,
            ``"time.hour"`` is the mark and ``"column.hour"`` the column.
        past: More series of the same lengths, by name, cut as ``x`` is.
        future: More series of the same lengths, by name, cut as ``y`` is.
        labels: A row for each window, each series or each step, inferred from their number: an array, arrays by name,
            or columns of a frame. Labels of steps are cut as ``x`` is. Labels of windows keep their windows in parts of
            a split; a part with a window that has no label, as with ``stride > 1``, is an error.
        labels_of: ``"windows"``, ``"series"`` or ``"steps"``, for labels whose number fits several.
        static: A row for each series: an array, arrays by name, columns of the frame that do not change within a
            series, or a frame with the column ``id``. A batch of neighbours of one series repeats the row by a view.
        timed: Rows with separate times by name, each a :class:`batchloom.Timed`. It needs ``time``. With
            ``offsets``, the time of a sample is the time of its anchor; otherwise that of the last step of its input.
        index: If ``True``, batches hold ``series``, ``start`` (the first step of the window in its series, negative if
            zeros come before the series), ``time`` (the time of the first step that exists, if times are known;
            datetimes as int64 in the unit of :attr:`times`) and ``index`` (the number of the window).
        offsets: The steps of each field by name, relative to an anchor: ``{"state": [0], "action": range(16)}``.
            ``series`` is a frame or a dict of arrays ``[time, ...]`` then, without ``input_len``. All steps of a window
            exist; with ``short="pad"`` every step is an anchor, and steps outside the series are zeros, which
            ``state_mask``, ... mark. ``index=True`` adds ``step``, the step of the anchor, in place of ``start``.
        id: The column of a frame with the name of the series.
        time: A column of a frame, or an array, of numbers or datetimes that grow within each series.
        freq: The step from each time to the next, which is checked: a name as pandas has it (``"s"``, ``"min"``,
            ``"h"``, ``"D"``, ``"W-MON"``, ``"B"``, ``"MS"``, ``"ME"``, ``"QS"``, ``"QE"``, ``"YS"``, ``"YE"``, as in
            ``"15min"`` with a number before it), a timedelta, or a number for times that are numbers. ``"infer"``
            takes the most frequent step. Hours and less count elapsed time; days and more keep the time that clocks
            show. ``None`` checks no step.
        fill: The values of missing steps, which get times and marks too: ``"forward"`` (of the step before),
            ``"linear"`` (on a straight line to the next step, for floats), ``"zero"``, ``"nan"`` or a number; or a dict
            of these by column, by ``"marks"`` or by names of ``past`` and ``future``. ``None``: they are an error.
        columns: The columns of a frame to take; ``None`` for all remaining columns, which must be numbers.
        anchor: ``"start"``: the first window begins with the series. ``"end"``: the last one ends with it.
        short: Treatment of a series that is too short for its targets: it has fewer steps than ``y``, or no step of
            input beside gap and horizon (fewer than the least ``input_len``, or than ``offsets`` reach over).
            ``"error"`` names the first such series and counts them. ``"drop"`` leaves them out: :meth:`stats` counts
            them as ``series_without_windows``. ``"pad"`` makes one window of each, whose first targets are zeros that
            nobody measured: batches hold the masks then, as with ``mask=True``. A series that has all targets and is
            shorter than a window makes one window, whose input begins with zeros.
        sampled_by: ``"windows"``: an epoch has every window once. ``"series"``: every series equally often;
            those with fewer windows repeat them.
        mask: If ``True``, or with ``short="pad"``, batches hold ``mask``, and ``target_mask`` if there is a horizon.
            They are True at steps that ``fill`` put in, which :attr:`filled` tells apart.
        patch_len: Cuts ``x`` into patches, ``[batch, features, patches, patch_len]``: a view of the batch (read-only in
            NumPy), whose patches overlap if ``patch_stride`` is shorter. With ``buffers="own"`` of a loader, a copy.
        patch_stride: Steps from one patch to the next; ``None`` for ``patch_len``. Steps at the end of ``x`` that fill
            no patch are left out.
        patch_pad: ``"end"`` repeats the last step of ``x`` ``patch_stride`` times before patches are cut, as PatchTST
            does: there is one patch more, and no step is left out. Batches own their memory in every order.

    Raises:
        ArgumentError: Lengths that make no sense, or columns that do not exist.
        DataError: Series that disagree; labels of another number; a static column that changes; a time that is missing,
            does not grow or breaks ``freq`` (the message names series and step); a series too short for its targets,
            with ``short="error"``; no window at all; a window that lacks a row of ``timed``.
        DTypeError: Elements that cannot be moved as bytes, or not filled so; a column that does not hold numbers.
        DeviceError: An array that is neither on the CPU nor of torch.
    """

    _samples: WindowSamples

    # fmt: off
    @overload
    def __init__(
        self: WindowDataset[Tuples], series: Any, input_len: int | tuple[int, int], horizon: int = 0, *,
        past: None = None, future: None = None, labels: None = None, static: None = None, timed: None = None,
        index: Literal[False] = False, **options: Unpack[WindowOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: WindowDataset[Dicts], series: Any, input_len: int | tuple[int, int] | None = None, horizon: int = 0, *,
        past: dict[str, Any] | None = None, future: dict[str, Any] | None = None, labels: Any = None,
        static: Any = None, timed: Mapping[str, Timed] | None = None, index: bool = False,
        offsets: Mapping[str, Any] | None = None,
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
        timed: Mapping[str, Timed] | None = None,
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
        lengths = {"horizon": horizon, "label_len": label_len, "gap": gap, "stride": stride}
        words = {"anchor": anchor, "short": short, "sampled_by": sampled_by}
        shape = read_shape(input_len, lengths, words, offsets, (patch_len, patch_stride, patch_pad), mask, index)
        covariates = Covariates(past, future, labels, labels_of, static, timed)
        options = SeriesOptions(id, time, freq, fill, columns, targets, marks)
        given = {"id": id, "freq": freq, "fill": fill, "columns": columns, "targets": targets, "input_len": input_len}
        given |= {"labels_of": labels_of, "mask": mask, "patch_len": patch_len, "patch_stride": patch_stride}
        given |= {"patch_pad": patch_pad, "index": index, "short": short, "sampled_by": sampled_by} | lengths
        vars(self).update({name: copy_argument(value) for name, value in given.items()})
        self._samples = WindowSamples(Series.read(series, options, covariates, shape), shape, Part())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays of a batch, in order."""
        return self._samples.array_windows.names

    @property
    def fields(self) -> dict[str, Any]:
        """The series from which each array of a batch is cut."""
        return {name: field.array for name, field in self._samples.array_windows.fields().items()}

    @property
    def offsets(self) -> Array:
        """The offsets of series, int64: series ``k`` is the rows ``offsets[k]`` to ``offsets[k + 1]`` of each array."""
        return self._samples.series.timeline.offsets

    @property
    def ids(self) -> list[Any] | None:
        """The id of each series; ``None`` unless they came in a frame with ids."""
        return self._samples.series.ids

    @property
    def times(self) -> Array | None:
        """The time of each step of all series, in UTC where times have a time zone; ``None`` without times.

        The field ``time`` of a batch counts in their unit: ``batch["time"].view(dataset.times.dtype)`` for NumPy.
        """
        return self._samples.series.timeline.times

    @property
    def filled(self) -> Array | None:
        """``True`` at each step of all series that was missing and was filled; ``None`` without ``freq``."""
        return self._samples.series.timeline.filled

    @property
    def series(self) -> Array:
        """The number of the series of each sample; int64. To split by series: ``select(dataset.series < 80)``."""
        return self._samples.array_windows.begins()[0]

    @property
    def anchor(self) -> int:
        """The step of a window that is its anchor: with ``offsets``, the steps before it; else 0."""
        return self._samples.shape.anchor_step

    def place(self, sample: int) -> WindowPlace:
        """Return the place of a window in its series, to join predictions with series and times."""
        return place_of(self._samples.array_windows, self._number(sample))

    def sample_at(self, series: int, start: int) -> int:
        """Return the number of the first sample at a place, as batches with ``index=True`` or :meth:`place` give it.

        Args:
            series: The number of the series.
            start: The first step of the window, negative if zeros are put before; with ``offsets``, its anchor's step.

        Raises:
            RangeError: There is no such window.
        """
        return find_sample(self._samples.array_windows, series, start)

    def _number(self, sample: int) -> int:
        """Return the number of a sample, which may count from the end."""
        number = operator.index(sample)
        if not -len(self) <= number < len(self):
            raise RangeError(f"sample {number} is outside the dataset; expected 0 <= sample < {len(self)}")
        return number % len(self)

    def stats(self, batch_size: int = 64) -> WindowStats:
        """Return the counts of windows and series, and the bytes of an epoch and of a batch, stacked or not.

        A part of a split counts what is in the part, except for ``series_bytes``: parts share the arrays.
        """
        return count(self._samples.array_windows, integer("batch_size", batch_size, least=1))

    def scale(self, scale: Any, *, per_series: bool = False) -> Self:
        """Return the windows of scaled series, ``(value - center) / scale``: inputs and targets alike.

        A scale is fitted to the steps of this dataset (or of the windows that were selected), and applied to the whole
        series once, the only copy. To fit it to the training part alone, give it to :meth:`split`, or scale other data
        by ``train.scaler``. Missing values (NaN) are left out of a fit. Columns of one value have no scale: a warning
        names them, and they stay as they are. ``past``, ``future`` and marks are not scaled.

        Steps that ``fill`` put in are steps like others. Floats keep their type; integers become float32, whose 24 bits
        also limit what :meth:`unscale` brings back of them: cast them to float64 before if every unit counts.

        Args:
            scale: ``"standard"`` (mean and standard deviation), ``"robust"`` (median and range of the middle half) or
                ``"minmax"`` (to 0 and 1); the ``scaler`` of another dataset; or a transformer of scikit-learn that was
                fitted to the columns of ``x``.
            per_series: If ``True``, each series has its own scale.

        Raises:
            ArgumentError: An unknown scale, a transformer that was not fitted, or series that are scaled already.
            DataError: A scale that is not finite, or is one of another number of columns or series.
        """
        samples = self._samples
        return with_samples(self, samples.with_series(samples.scale_series(scale, per_series)))

    @property
    def scaler(self) -> Any:
        """The scale of the series: a :class:`Scaler`, or the transformer that was given; ``None`` without one."""
        return self._samples.series.scaler

    def unscale(self, y: Any, samples: Any = None) -> Any:
        """Return targets, or predictions of them, in the units of the series.

        Their type is the type of ``y`` or of the series before the scale, whichever is wider; float64 for integers
        (float32 in JAX without types of 64 bits). A transformer returns a new array, without a gradient.

        Args:
            y: An array of NumPy, torch or JAX. Its last dimensions are the dimensions of a step of ``y``.
            samples: The number of each window in ``y``, for scales of each series.

        Raises:
            ArgumentError: The dataset has no scale, or samples are missing.
            DataError: Another number of columns than ``y`` has, or another number of samples.
            DTypeError: Complex numbers.
        """
        return self._samples.series.unscale(
            y, samples, lambda sample: self._samples.array_windows.native.place(self._number(sample))[0]
        )

    def split(
        self,
        borders: str | None = None,
        /,
        *unnamed: Any,
        by: str | None = None,
        rounding: str = "exact",
        reach_back: bool = True,
        scale: Any = None,
        per_series: bool = False,
        **ends: Any,
    ) -> tuple[Self, ...]:
        """Split the time of every series in parts: ``train, val, test = dataset.split(train=0.7, val=0.1, test=0.2)``.

        A part holds the windows whose horizon lies in it: horizons of different parts have no step in common, and a
        model that was fitted to one part has not seen the horizons of later parts. Inputs may reach back into the
        previous part, as they would in production; with ``reach_back=False``, parts have no step in common. Windows
        without a horizon lie wholly in their part. All parts share the arrays of the dataset.

        Args:
            borders: The borders of a published evaluation, instead of parts: ``"ett-hour"`` or ``"ett-minute"``, the
                12, 4 and 4 months of the ETT sets.
            unnamed: Parts without names, which are an error that names them.
            by: The kind of ends: ``"share"``, ``"index"`` or ``"time"``; ``None`` infers it from their types. With
                ``"end"``, each part but the first has a number of steps, counted from the end of each series, whatever
                its length, and the first has the other steps: ``split(by="end", train=None, val=24, test=24)``.
            rounding: ``"exact"`` adds shares as they are meant. ``"tslib"`` counts as the Time-Series-Library does: the
                first and the last of three parts hold ``int(steps * share)`` steps, and the second one the rest.
            reach_back: If ``True``, inputs may reach into the previous part.
            scale: A scale for all parts, which is fitted to the first one alone: see :meth:`scale`.
            per_series: If ``True``, each series has its own scale.
            ends: Parts in order of time, by name. Floats are shares of each series, integers are the steps at which
                parts end (exclusive) in each series, and other values are the times at which they end (exclusive). The
                last may be ``None``, for the rest. When splitting a part, steps and shares are relative to that part.

        Returns:
            A dataset for each part, in the order of their names.

        Raises:
            ArgumentError: Parts that overlap or have no names, or shares that sum to more than 1.
            DataError: A part without a window.
        """
        if unnamed or not isinstance(borders, str | None):
            refuse_unnamed((borders, *unnamed))
        if not isinstance(reach_back, bool):
            raise ArgumentError(f"reach_back is {reach_back!r}; expected True or False")
        samples = self._samples
        ranges, native = ranges_of(samples.array_windows.native), samples.array_windows.native
        ends_of_parts = read_ends(ends, borders, by, rounding, samples.series.timeline, ranges)
        parts = [
            samples.within(ranges, part, reach_back, name)
            for (name, _), part in zip(ends_of_parts, native.split(ends_of_parts, reach_back), strict=True)
        ]
        if scale is not None:
            series = parts[0].scale_series(scale, per_series)
            parts = [part.with_series(series) for part in parts]
        return tuple(with_samples(self, part) for part in parts)

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
    ) -> Backtest[Self]:
        """Return pairs ``(train, test)`` with a moving origin: ``for train, test in dataset.backtest(24): ...``.

        The origin is the step at which the horizons of ``test`` begin; windows of ``train`` lie wholly before it. The
        inputs of ``test`` may reach back before the origin, as they would in production. A series takes part in a fold
        if it has all steps of its test part; the last fold is the last with a series. All folds share the arrays.

        Args:
            horizon: The steps of each test part; ``None`` for the horizon of windows, or the whole window without one.
            stride: Steps from one origin to the next; ``None`` for ``horizon``, so that every step is tested once.
            start: The first origin: a share of each series, a step of each, or a time.
            refit: ``True`` moves ``train`` up to the origin in each fold, ``False`` keeps the first one, and a number
                counts the folds after which it moves. Until then, ``train`` is the same object.
            train_len: The steps of ``train``; ``None`` for all before the origin.
            scale: A scale for both, fitted to ``train`` alone whenever it moves: see :meth:`scale`. Each is a copy.
            per_series: If ``True``, each series has its own scale.

        Raises:
            ArgumentError: A number that makes no sense, or a start that lies outside the series.
            DataError: A fold without a window.
        """
        samples, shape = self._samples, self._samples.shape
        native, timeline = samples.array_windows.native, samples.series.timeline
        ranges = ranges_of(native)
        steps = shape.horizon or shape.span if horizon is None else integer("horizon", horizon, least=1)
        folds = read_folds(native, read_origin(start, timeline, ranges), steps, stride, refit, train_len)

        def scale_by(train: Self) -> Callable[[Self], Self]:
            series = train._samples.scale_series(scale, per_series)
            return lambda dataset: with_samples(dataset, dataset._samples.with_series(series))

        return Backtest(
            folds,
            lambda part, reach_back: with_samples(self, samples.within(ranges, part, reach_back)),
            None if scale is None else scale_by,
        )

    def __repr__(self) -> str:
        fields = ", ".join(repr(span.field) for span in self._samples.array_windows.spans.values())
        lengths = {
            name: getattr(self._samples.shape, name) for name in ("input_len", "horizon", "label_len", "gap", "stride")
        }
        shown = ", ".join(f"{name}={value}" for name, value in lengths.items() if value)
        return f"WindowDataset({fields}; {shown}; {many(len(self), 'window')} of {len(self.offsets) - 1} series)"


class WindowSamples(StoredSamples):
    """Windows over series.

    Attributes:
        series: The series.
        shape: The shape of a window.
        part: The part of the series that windows are cut from.
        array_windows: The windows on the arrays of the series.
    """

    are_items = True
    is_formed_without_torch = True

    def __init__(self, series: Series, shape: WindowShape, part: Part) -> None:
        self.series, self.shape, self.part = series, shape, part
        self._set(slide(series, shape, part))

    def _set(self, windows: ArrayWindows) -> None:
        """Set the windows, and where they lie."""
        self.array_windows, self.location = windows, Location(windows.arrays, windows.tables)

    @override
    def whole_len(self) -> int:
        return len(self.array_windows.native)

    @override
    def sample(self, sample: int) -> Any:
        return self.array_windows.sample(sample)

    @override
    def narrow(self, selection: _native.Selection) -> None:
        self.array_windows = self.array_windows.select(selection, are_neighbours=self.are_neighbours)

    def scale_series(self, scale: Any, per_series: bool) -> Series:
        """Return the scaled series, by a scale that is fitted to the steps of these windows."""
        rows = partial(covered_rows, self.array_windows, selected=self.selection is not None)
        return self.series.scale(scale, rows, per_series=per_series)

    def with_series(self, series: Series) -> WindowSamples:
        """Return the same windows over other series."""
        windows = WindowSamples(series, self.shape, self.part)
        windows.memory = self.memory
        return windows if self.selection is None else windows.select(self.selection)

    def within(self, whole: Array, native: _native.Windows, reach_back: bool, name: str = "") -> WindowSamples:
        """Return the windows in a range of each series, which may have a name; ``whole`` are the ranges of these."""
        ranges, series = ranges_of(native), self.series
        series.timeline.require_no_look_ahead(ranges)
        if series.timed:
            require_rows(native, series.timed, series.timeline, series.ids, name)
        windows = self.__new__(type(self))
        windows.__dict__.update(self.__dict__)
        windows.part = self.part.within(whole, ranges, reach_back)
        windows._set(self.array_windows.within(native, ranges))
        return windows

    @override
    def recipe(self) -> Recipe:
        return _rebuild, (self.series.to_pickle(), self.shape, self.part)

    @override
    def engine(self) -> _native.Dataset:
        return self.array_windows.native.dataset()

    @override
    def classes(self, option: str, field: str | int) -> Any:
        classes = self.array_windows.classes(option, str(field))
        return super().classes(option, field) if classes is None else classes

    @override
    def padded_fields(self) -> Mapping[str, str]:
        # Whether a window leaves its series depends on the data, and on the part of a split.
        windows = self.array_windows
        found = {name: each.field.dtype for name, each in windows.found.items() if self.series.timed[name].pads}
        return {name: span.field.dtype for name, span in windows.spans.items()} | found

    @override
    def row_shapes(self) -> Mapping[str, Sequence[int]]:
        return self.array_windows.row_shapes()

    @override
    def list_extras(self, rule: Rule) -> list[str]:
        return self.array_windows.extras

    @override
    def schema(self, columns: Columns) -> Schema:
        return self.array_windows.schema(columns)

    @override
    def windows(self, documents: bool) -> ArrayWindows | None:
        return self.array_windows if self.array_windows.are_views else None

    @override
    def device_data(self) -> DeviceData:
        return self.array_windows


def _rebuild(series: dict[str, Any], shape: WindowShape, part: Part) -> WindowSamples:
    return WindowSamples(Series.from_pickle(series), shape, part)
