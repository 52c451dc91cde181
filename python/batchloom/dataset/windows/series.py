"""Series: the arrays that windows are cut from, and what is known of each step and of each series."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import batchloom._native as _native
import numpy
from batchloom.arrays import frames
from batchloom.arrays.chunked import join_chunks
from batchloom.arrays.field import BorrowedArray
from batchloom.dataset.array_windows import LookedUp
from batchloom.dataset.window_shape import WindowShape
from batchloom.dataset.windows.covariates import OWN, Covariates, LabelRows
from batchloom.dataset.windows.given_series import GivenSeries, SeriesOptions, read_arrays, read_columns, read_frame
from batchloom.dataset.windows.scaler import (
    Ranges,
    Scaler,
    apply_scale,
    fit_scale,
    invert_scale,
    invert_transformer,
)
from batchloom.dataset.windows.step_arrays import take_columns
from batchloom.dataset.windows.timed_field import TimedField
from batchloom.dataset.windows.timeline import Timeline
from batchloom.errors import ArgumentError, DataError, DTypeError, many

Array = numpy.ndarray[Any, Any]


class Series(NamedTuple):
    """Time series, one after the other, from which windows are cut.

    Attributes:
        fields: The arrays that fields are cut from, ``[steps, ...]``, by the names of fields, in the order of a batch.
        targets: The names of the fields that are cut as ``y`` is.
        timeline: The steps of the series, and the time of each.
        ids: The id of each series, for frames with ids.
        looked_up: Labels and rows of series, by the names of fields.
        named: ``True`` if a batch of these fields is a dict.
        are_columns: ``True`` if fields are columns that users named, and not ``x`` and ``y``.
        chosen: The columns of ``x`` that are ``y``, in a tuple of one; ``None`` if ``y`` is an array apart.
        scaler: The scale of the series: a :class:`Scaler` or a transformer; ``None`` without one.
        unit: The type of the targets before they were scaled.
        timed: The fields with separate times, by name.
    """

    fields: dict[str, BorrowedArray]
    targets: frozenset[str]
    timeline: Timeline
    ids: list[Any] | None
    looked_up: dict[str, LookedUp]
    named: bool
    are_columns: bool
    chosen: tuple[Any] | None = None
    scaler: Any = None
    unit: str = ""
    timed: Mapping[str, TimedField] = MappingProxyType({})

    @classmethod
    def read(cls, series: Any, options: SeriesOptions, covariates: Covariates, shape: WindowShape) -> Series:
        """Read series in the form that they are given in.

        Args:
            series: The series: a frame, an array or arrays; where the shape has fields, columns with their names.
            options: The options for reading the series.
            covariates: The fields that the dataset adds.
            shape: The shape of the windows that are cut from them.
        """
        if shape.fields is not None:
            return cls.from_columns(series, options, covariates, shape)
        if frames.is_frame(series):
            return cls.from_frame(series, options, covariates, shape)
        return cls.from_arrays(series, options, covariates, shape)

    @classmethod
    def from_arrays(cls, series: Any, options: SeriesOptions, covariates: Covariates, shape: WindowShape) -> Series:
        """Read series from an array, a list of arrays, or values with offsets."""
        given = read_arrays(series, options)
        return cls._of(given, covariates, covariates.read_rows(series, None, given.rows, None), shape)

    @classmethod
    def from_frame(cls, frame: Any, options: SeriesOptions, covariates: Covariates, shape: WindowShape) -> Series:
        """Read series from the columns of a frame."""
        given = read_frame(frame, options, covariates.columns(frame))
        return cls._of(given, covariates, covariates.read_rows(frame, options.id, given.rows, given.ids), shape)

    @classmethod
    def from_columns(cls, series: Any, options: SeriesOptions, covariates: Covariates, shape: WindowShape) -> Series:
        """Read a series for each field of the shape: from the columns of a frame, or a dict of arrays.

        Raises:
            ArgumentError: An option is for ``x`` and ``y`` alone, or the name of a field is taken.
            DataError: A series is too short for the steps of the fields.
        """
        assert shape.fields is not None
        _require_no_inputs(options, covariates, shape)
        given = read_columns(series, options, shape.fields)
        shape.require_reach(given.rows.offsets, given.ids)
        taken = [name for name in shape.fields if name in (*shape.place_names, "labels", "static")]
        if taken:
            raise ArgumentError(f"offsets names a field {taken[0]}, which is taken; expected another name")
        return cls._of(given, covariates, covariates.read_rows(series, options.id, given.rows, given.ids), shape)

    @classmethod
    def _of(cls, given: GivenSeries, covariates: Covariates, rows: LabelRows, shape: WindowShape) -> Series:
        """Return the series of the arrays that were given, and of the covariates."""
        past, future = covariates.align(given.rows, shape)
        given.rows.require_used()
        targets = given.targets | future if shape.horizon else {}
        fields = _borrow(given.inputs | past | targets)
        if shape.fields is None:
            first = [name for name in OWN if name in fields]
            fields = {name: fields[name] for name in (*first, *(name for name in fields if name not in first))}
        timeline, looked_up = given.rows.timeline(), dict[str, LookedUp]()
        if rows.labels or rows.static:
            _add_rows(fields, looked_up, rows, shape, shape.slide(timeline.offsets, given.ids))
        taken = (*fields, *shape.masks, *shape.place_names, *looked_up)
        return cls(
            fields,
            frozenset(targets),
            timeline,
            given.ids,
            looked_up,
            named=covariates.are_given or shape.fields is not None,
            are_columns=shape.fields is not None,
            chosen=given.chosen,
            timed=covariates.read_timed(timeline, given.ids, taken),
        )

    @property
    def target(self) -> BorrowedArray:
        """The array of ``y``, or of ``x`` where there is no horizon."""
        return self.fields["y" if "y" in self.fields else "x"]

    def scale(self, scale: Any, rows: Callable[[], list[Ranges]], *, per_series: bool) -> Series:
        """Return the series with scaled inputs and targets.

        Args:
            scale: The name of a scale, a :class:`Scaler` or a transformer.
            rows: Returns the ranges of rows of each series to which a scale is fitted.
            per_series: ``True`` if each series has its own scale.

        Raises:
            ArgumentError: An unknown scale, or series that are scaled already or have no ``x``.
            DataError: A scale that is not finite, or is one of another number of columns or series.
        """
        if self.scaler is not None:
            raise ArgumentError("the series are scaled already; expected one scale")
        if self.are_columns:
            raise ArgumentError(
                "a scale is of x and y, and fields have names of their own with offsets; scale them before"
            )
        x, y, chosen, offsets = self.fields["x"], self.fields.get("y"), self.chosen, self.timeline.offsets
        apart = y if chosen is None else None
        if isinstance(scale, str):
            scale = fit_scale(scale, x, x if apart is None else apart, rows(), self.ids, per_series=per_series)
            if y is not None and chosen is not None:
                scale = scale.of_columns(lambda columns: take_columns(columns, *chosen))
        arrays = {"x": apply_scale(scale, x, offsets, target=False)}
        if apart is not None:
            arrays["y"] = apply_scale(scale, apart, offsets, target=True)
        elif y is not None and chosen is not None:
            arrays["y"] = take_columns(arrays["x"], *chosen)
        return self._replace(fields=self.fields | _borrow(arrays), scaler=scale, unit=self.target.dtype)

    def unscale(self, y: Any, samples: Any, series_of: Callable[[Any], int]) -> Any:
        """Return targets, or predictions of them, in the units of the series before they were scaled.

        Args:
            y: An array whose last dimensions are the dimensions of a step of ``y``.
            samples: The number of each window in ``y``, or ``None``.
            series_of: Returns the series of a window.

        Raises:
            ArgumentError: The series have no scale, or samples are missing.
            DataError: Another number of columns than ``y`` has, or another number of samples.
            DTypeError: Complex numbers.
        """
        if self.scaler is None:
            raise ArgumentError("unscale() is for series that were scaled; expected scale() or split(scale=) before")
        inner = tuple(self.target.tensor.shape[1:])
        y = y if hasattr(y, "shape") else numpy.asarray(y)
        if "complex" in str(y.dtype):
            raise DTypeError(f"y has type {y.dtype}; expected real numbers, as scales are of these")
        shape = tuple(y.shape)
        if len(shape) < len(inner) or shape[len(shape) - len(inner) :] != inner:
            raise DataError(f"y has shape {shape}; expected its last dimensions to be {inner}, those of a step")
        if not isinstance(self.scaler, Scaler):
            chosen = self.chosen if "y" in self.fields else None
            return invert_transformer(self.scaler, y, self.fields["x"], chosen, self.unit)
        center, scale = self.scaler.target_center, self.scaler.target_scale
        if not self.scaler.per_series:
            return invert_scale(y, center[0], scale[0], self.unit)
        if samples is None:
            raise ArgumentError("each series has a scale of its own; expected samples=, the number of each window in y")
        rows = [series_of(sample) for sample in samples]
        if len(rows) != shape[0]:
            raise DataError(
                f"samples has {many(len(rows), 'number')} for {many(shape[0], 'window')}; expected one for each"
            )
        between = (1,) * (len(shape) - 1 - len(inner))
        center, scale = (each[rows].reshape(-1, *between, *inner) for each in (center, scale))
        return invert_scale(y, center, scale, self.unit)

    def to_pickle(self) -> dict[str, Any]:
        """Return the attributes as dicts of arrays, which :meth:`from_pickle` takes."""
        looked_up = {
            name: (each.of, None if each.field is None else each.field.array) for name, each in self.looked_up.items()
        }
        arrays = {name: field.array for name, field in self.fields.items()}
        timeline = self.timeline._asdict()
        timed = {name: each.to_pickle() for name, each in self.timed.items()}
        return {**self._asdict(), "fields": arrays, "looked_up": looked_up, "timeline": timeline, "timed": timed}

    @classmethod
    def from_pickle(cls, state: dict[str, Any]) -> Series:
        """Return the series with the attributes that :meth:`to_pickle` returned."""
        fields = _borrow(state["fields"])
        looked_up = {
            name: LookedUp(of, None if rows is None else BorrowedArray(name, join_chunks(rows)))
            for name, (of, rows) in state["looked_up"].items()
        }
        timed = {name: TimedField.from_pickle(name, each) for name, each in state.get("timed", {}).items()}
        read = {"fields": fields, "looked_up": looked_up, "timeline": Timeline(**state["timeline"]), "timed": timed}
        return cls(**{**state, **read})


def _borrow(arrays: dict[str, Any]) -> dict[str, BorrowedArray]:
    """Return the fields of arrays by name. An array that several fields have is borrowed once."""
    fields: dict[str, BorrowedArray] = {}
    borrowed: dict[int, BorrowedArray] = {}
    for name, values in arrays.items():
        first = borrowed.get(id(values))
        if first is None:
            fields[name] = borrowed[id(values)] = BorrowedArray(name, join_chunks(values))
        else:
            fields[name] = field = BorrowedArray.__new__(BorrowedArray)
            vars(field).update(vars(first), label=name)
    return fields


def _add_rows(
    fields: dict[str, BorrowedArray],
    looked_up: dict[str, LookedUp],
    rows: LabelRows,
    shape: WindowShape,
    windows: _native.Windows,
) -> None:
    """Add labels and rows of series: labels of steps to the fields, the rest to what is looked up.

    Raises:
        ArgumentError: A name is taken, or the number of labels fits several units.
        DataError: The number of rows fits no unit.
    """
    _, different, series, *_ = windows.counts()
    steps = rows.rows.offsets[-1]
    for name, values, of in rows.assign({"windows": different, "series": series, "steps": int(steps)}):
        if name in (*fields, *shape.masks, *shape.place_names, *looked_up):
            raise ArgumentError(f"a field is named {name}, which is taken; expected another name")
        if of != "steps":
            looked_up[name] = LookedUp(of, BorrowedArray(name, join_chunks(values)))
        elif shape.fields is not None:
            raise ArgumentError(f"{name} has a row for each step; expected it among the fields of offsets")
        else:
            fields[name] = BorrowedArray(name, join_chunks(values))


def _require_no_inputs(options: SeriesOptions, covariates: Covariates, shape: WindowShape) -> None:
    """Refuse the arguments of inputs and targets where ``offsets`` gives the steps of each field.

    Raises:
        ArgumentError: One of them is given.
    """
    given: dict[str, Any] = {"horizon": shape.horizon, "label_len": shape.label_len, "gap": shape.gap}
    given |= {"targets": options.targets, "marks": options.marks, "past": covariates.past, "future": covariates.future}
    given |= {"columns": options.columns, "patch_len": shape.patches}
    refused = [name for name, value in given.items() if value is not None and value not in (0, {})]
    if refused:
        raise ArgumentError(
            f"{refused[0]} is given, and so is offsets, which says the steps of each field; expected one"
        )
