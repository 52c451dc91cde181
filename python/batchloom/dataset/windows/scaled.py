"""Scales of windows: fitted to some steps, applied to the whole series once, and inverted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import batchloom._native as _native
import numpy
from batchloom.arrays.field import Field
from batchloom.dataset.base import Form
from batchloom.dataset.windows import scaler as scaling
from batchloom.dataset.windows.scaler import Scaler
from batchloom.dataset.windows.series import columns_of
from batchloom.dataset.windows.slid import SlidWindows
from batchloom.dataset.windows.span import Span
from batchloom.errors import ArgumentError, DataError, DTypeError, many

if TYPE_CHECKING:
    pass

Array = numpy.ndarray[Any, Any]


class ScaledWindows(SlidWindows[Form]):
    """Windows that can be scaled."""

    _scaler: Any
    _unit: str
    _chosen: tuple[Any] | None

    def scale(self, scale: Any, *, per_series: bool = False) -> Self:
        """Return the windows of scaled series, ``(value - center) / scale``: inputs and targets alike.

        A scale is fitted to the steps of this dataset (of selected windows: to theirs), and applied to the
        whole series once: that copy is the only one. To fit it to the training part alone, give it to :meth:`split`, or
        scale other data by ``train.scaler``. Missing values (NaN) are left out of a fit. Columns of one value have no
        scale: a warning names them, and they stay as they are. ``past``, ``future`` and marks are not scaled.

        Steps that ``fill`` put in are steps like others. Floats keep their type; integers become float32, whose 24 bits
        also limit what :meth:`unscale` brings back of them: cast them to float64 before if every unit counts.

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

        They come in the type of ``y`` or of the series before the scale, whichever is wider; for integers, in float64
        (JAX computes in float32 unless it is told to keep types of 64 bits). What a transformer inverts is a new array,
        without a gradient.

        Args:
            y: An array of NumPy, torch or JAX whose last dimensions are those of a step of ``y``.
            samples: The number of each window in ``y``, for scales of each series.

        Raises:
            ArgumentError: The dataset has no scale, or samples are missing.
            DataError: Another number of columns than ``y`` has, or another number of samples.
            DTypeError: Complex numbers.
        """
        if self._scaler is None:
            raise ArgumentError("unscale() is for series that were scaled; expected scale() or split(scale=) before")
        inner = tuple(self._targets.tensor.shape[1:])
        y = y if hasattr(y, "shape") else numpy.asarray(y)
        if "complex" in str(y.dtype):
            raise DTypeError(f"y has type {y.dtype}; expected real numbers, as scales are of these")
        shape = tuple(y.shape)
        if len(shape) < len(inner) or shape[len(shape) - len(inner) :] != inner:
            raise DataError(f"y has shape {shape}; expected its last dimensions to be {inner}, those of a step")
        if not isinstance(self._scaler, Scaler):
            chosen = self._chosen if "y" in self._spans else None
            return scaling.inverse(self._scaler, y, self._spans["x"].field, chosen, self._unit)
        center, scale = self._scaler.target_center, self._scaler.target_scale
        if not self._scaler.per_series:
            return scaling.inverted(y, center[0], scale[0], self._unit)
        if samples is None:
            raise ArgumentError("each series has a scale of its own; expected samples=, the number of each window in y")
        rows = [self._windows.place(self._number(sample))[0] for sample in samples]
        if len(rows) != shape[0]:
            raise DataError(
                f"samples has {many(len(rows), 'number')} for {many(shape[0], 'window')}; expected one for each"
            )
        between = (1,) * (len(shape) - 1 - len(inner))
        center, scale = (found[rows].reshape(-1, *between, *inner) for found in (center, scale))
        return scaling.inverted(y, center, scale, self._unit)

    @property
    def _targets(self) -> Field:
        """The array of ``y``, or of ``x`` where there is no horizon."""
        return self._spans["y" if "y" in self._spans else "x"].field

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

    def _with_spans(self, spans: dict[str, Span], scaler: Any) -> Self:
        """Return the same windows of other arrays."""
        found = self.__new__(type(self))
        found.__dict__.update(self.__dict__)
        found._spans, found._scaler, found._unit = spans, scaler, self._targets.dtype
        found._take(found._slide())
        if self._selection is not None:
            found._choose(self._selection)
        return found
