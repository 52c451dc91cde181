"""Windows in parts of the time: splits, and backtests whose origin moves on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import batchloom._native as _native
import numpy
from batchloom.arguments import integer
from batchloom.collate.window_steps import MOST_STEPS
from batchloom.dataset.base import Form
from batchloom.dataset.windows import time_split
from batchloom.dataset.windows.backtest import Backtest
from batchloom.dataset.windows.scaled import ScaledWindows
from batchloom.errors import ArgumentError, DataError

if TYPE_CHECKING:
    pass

Array = numpy.ndarray[Any, Any]


class WindowsInParts(ScaledWindows[Form]):
    """Windows that can be split in time."""

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
    ) -> tuple[Self, ...]:
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
    ) -> Backtest[Self]:
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
            stride=steps if stride is None else integer("stride", stride, least=1, most=MOST_STEPS),
            refit=int(refit) if isinstance(refit, bool) else integer("refit", refit, least=1, most=MOST_STEPS),
            train_len=None if train_len is None else integer("train_len", train_len, least=1, most=MOST_STEPS),
        )

        def part(windows: _native.Windows, reach_back: bool) -> Any:
            return self._within(windows, ranges[:, :1], reach_back)

        def scaled(train: WindowsInParts[Form]) -> Callable[[Any], Any]:
            spans, scaler = train._scaled(scale, per_series)
            return lambda dataset: dataset._with_spans(spans, scaler)

        return Backtest(folds, part, None if scale is None else scaled)

    def _within(self, windows: _native.Windows, firsts: Array, reach_back: bool) -> Self:
        """Return the dataset of a part, which shares all arrays with this one."""
        part = self.__new__(type(self))
        # Attributes are shared, as a copy of the dataset would borrow all arrays again.
        part.__dict__.update(self.__dict__)
        ranges: Array = numpy.from_dlpack(windows.ranges())
        self._require_no_look_ahead(ranges)
        starts, stops = numpy.ascontiguousarray((ranges - firsts).T)
        part._parts = (*self._parts, (starts, stops, reach_back))
        part._take(windows)
        return part

    def _require_no_look_ahead(self, ranges: Array) -> None:
        """Check that no part ends with steps whose values come from steps after it.

        Raises:
            DataError: One does; the message names the series and the step.
        """
        if self._filled_ahead is None:
            return
        for series, (start, end) in enumerate(ranges.tolist()):
            if start < end < self._offsets[series + 1] and self._filled_ahead[end - 1]:
                step = end - int(self._offsets[series])
                raise DataError(
                    f"a part ends at step {step} of series {series}, in a gap that fill='linear' fills from the step "
                    "after it; expected an end where steps were given, or fill='forward'"
                )
