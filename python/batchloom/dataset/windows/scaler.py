"""Scales of series: fitted to some of their steps, applied to all of them once, and inverted for predictions."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy
from batchloom.arguments import caller, choice
from batchloom.arrays.field import BorrowedArray
from batchloom.dataset.windows.step_arrays import take_columns
from batchloom.errors import ArgumentError, DataError, DTypeError

Array = numpy.ndarray[Any, Any]

# The first row and the end of ranges of rows.
Ranges = list[list[int]]

KINDS = ("standard", "robust", "minmax")

# Rows that are scaled at a time, so that they stay in the cache.
CHUNK = 2**14


@dataclass(frozen=True)
class Scaler:
    """A scale of series: ``(value - center) / scale``, made by ``WindowDataset.scale``.

    Centers and scales are float64, ``[series, ...]`` of the features; there is one series if all share a scale.
    """

    kind: str
    """``"standard"``: mean and standard deviation; ``"robust"``: median and range of the middle half; ``"minmax"``:
    least value and range. Or the name of a transformer's class."""
    center: Array
    """The centers of ``x``."""
    scale: Array
    """The scales of ``x``."""
    target_center: Array
    """The centers of ``y``."""
    target_scale: Array
    """The scales of ``y``."""

    per_series: bool
    """``True`` if each series has its own scale."""

    def of_columns(self, columns: Callable[[Array], Array]) -> Scaler:
        """Return the same scale, with ``columns`` of the scales of ``x`` for ``y``."""
        return replace(self, target_center=columns(self.center), target_scale=columns(self.scale))


def fit_scale(
    kind: str, x: BorrowedArray, y: BorrowedArray, rows: list[Ranges], ids: list[Any] | None, *, per_series: bool
) -> Scaler:
    """Fit a scale to ranges of rows of each series.

    Raises:
        ArgumentError: There is no such kind.
        DataError: A column has no finite scale, or a series has no rows.
        DTypeError: Values are complex.
    """
    choice("scale", kind, KINDS)
    groups = rows if per_series else [[each for group in rows for each in group]]
    for number, group in enumerate(groups):
        if not any(end > start for start, end in group):
            name = f" ({ids[number]!r})" if ids is not None else ""
            raise DataError(
                f"series {number}{name} has no steps to fit a scale to; expected some, or one scale for all"
            )
    fits = [_fit_field(kind, field, groups) for field in ((x,) if y is x else (x, y))]
    return Scaler(kind, *fits[0], *fits[-1], per_series)


def apply_scale(scale: Any, field: BorrowedArray, offsets: Array, *, target: bool) -> Any:
    """Return an array of scaled rows, in the framework of the field: floats keep their type, all else becomes float32.

    Args:
        scale: A :class:`Scaler`, or a fitted transformer.
        field: The rows.
        offsets: The beginning of each series, and the end of the last one.
        target: ``True`` for targets that are no columns of ``x``.

    Raises:
        ArgumentError: It is no scale, or a transformer that was not fitted or does not take the rows.
        DataError: It is a scale of another number of columns or series.
    """
    if isinstance(scale, Scaler):
        return _apply(scale, field, offsets, target)
    if isinstance(scale, type):
        raise ArgumentError(f"scale is the class {scale.__name__}; expected {scale.__name__}().fit(...)")
    if not (hasattr(scale, "transform") and hasattr(scale, "inverse_transform")):
        raise ArgumentError(f"scale is a {type(scale).__name__}; expected one of {KINDS}, a scaler or a transformer")
    if target:
        raise ArgumentError(
            f"scale is a {type(scale).__name__}, and targets are no columns of the series; expected targets among these"
        )
    return _transform(scale, field)


def _apply(scaler: Scaler, field: BorrowedArray, offsets: Array, target: bool) -> Any:
    center, scale = (scaler.target_center, scaler.target_scale) if target else (scaler.center, scaler.scale)
    if center.shape[1:] != tuple(field.tensor.shape[1:]):
        shape, expected = tuple(field.tensor.shape[1:]), center.shape[1:]
        raise DataError(
            f"{field.label} has steps of shape {shape}, and the scale is one of {expected}; expected the same"
        )
    if scaler.per_series and len(center) != len(offsets) - 1:
        raise DataError(f"the scale is one of {len(center)} series, and there are {len(offsets) - 1}; expected as many")
    out = _Rows(field)
    bounds = list(pairwise(offsets.tolist())) if scaler.per_series else [(0, len(field))]
    for (start, end), shift, divisor in zip(bounds, center, scale, strict=True):
        for first in range(start, end, CHUNK):
            last = min(first + CHUNK, end)
            out.put(first, (_rows(field, first, last) - shift) / divisor)
    return out.array()


def _transform(transformer: Any, field: BorrowedArray) -> Any:
    """Return the array that a fitted transformer makes of all rows.

    Raises:
        ArgumentError: It was not fitted, or does not take the rows.
    """
    name = type(transformer).__name__
    rows = _rows(field, 0, len(field))
    _require_fitted(transformer)
    try:
        scaled = numpy.asarray(transformer.transform(rows.reshape(len(rows), -1)))
    except (AttributeError, TypeError, ValueError) as error:
        raise ArgumentError(f"scale is a {name} that does not take the series: {error}") from None
    if scaled.shape != rows.reshape(len(rows), -1).shape:
        raise ArgumentError(f"scale is a {name} that makes {scaled.shape} of {rows.shape}; expected the same shape")
    out = _Rows(field)
    out.put(0, scaled.reshape(rows.shape))
    return out.array()


def invert_transformer(transformer: Any, values: Any, x: BorrowedArray, chosen: tuple[Any] | None, unit: str) -> Any:
    """Return targets, which are the columns ``chosen`` of ``x``, in the units that they had before a transformer."""
    inner = tuple(x.tensor.shape[1:])
    width = math.prod(inner)
    places = take_columns(numpy.arange(width).reshape(1, *inner), *(chosen or (None,))).ravel()
    framework = _framework(values)
    plain = numpy.asarray(values.detach().cpu().double() if framework == "torch" else values)
    rows = numpy.zeros((plain.size // len(places), width))
    rows[:, places] = plain.reshape(-1, len(places))
    whole = transformer.inverse_transform(rows) if len(rows) else rows
    inverted = numpy.asarray(whole)[:, places].reshape(plain.shape)
    kind = widen(str(values.dtype), unit)
    if framework == "numpy":
        return inverted.astype(kind)
    if framework == "torch":
        torch = sys.modules["torch"]
        return torch.as_tensor(inverted, dtype=_narrow_type(values.device, getattr(torch, kind)), device=values.device)
    jax = sys.modules["jax"]
    return jax.numpy.asarray(inverted, jax.dtypes.canonicalize_dtype(kind))


def invert_scale(values: Any, center: Array, scale: Array, unit: str) -> Any:
    """Return ``values * scale + center`` in the framework of ``values``: in its type or in ``unit``, the wider one."""
    kind = widen(str(values.dtype), unit)
    if _framework(values) == "torch":
        torch = sys.modules["torch"]
        like = {"dtype": _narrow_type(values.device, torch.float64), "device": values.device}
        inverted = values.to(**like) * torch.as_tensor(scale, **like) + torch.as_tensor(center, **like)
        return inverted.to(_narrow_type(values.device, getattr(torch, kind)))
    if _framework(values) == "jax":
        return (values * scale + center).astype(sys.modules["jax"].dtypes.canonicalize_dtype(kind))
    return (values.astype(numpy.float64) * scale + center).astype(kind)


def widen(first: str, second: str) -> str:
    """Return the wider of two types of floats: integers count as float64, and two kinds of 16 bits are float32."""
    kinds = [name.removeprefix("torch.") if "float" in name else "float64" for name in (first, second)]
    bits = [int(kind.partition("float")[2].partition("_")[0]) for kind in kinds]
    if bits[0] == bits[1]:
        return kinds[0] if kinds[0] == kinds[1] else "float32"
    return kinds[bits.index(max(bits))]


def _framework(values: Any) -> str:
    """Return the framework of an array, or of what JAX traces: ``"torch"``, ``"jax"`` or ``"numpy"``."""
    for framework, kind in (("torch", "Tensor"), ("jax", "Array")):
        module = sys.modules.get(framework)
        if module is not None and isinstance(values, getattr(module, kind)):
            return framework
    return "numpy"


def _narrow_type(device: Any, kind: Any) -> Any:
    """Return a type of torch, or float32 in place of float64, which devices of Apple lack."""
    torch = sys.modules["torch"]
    return torch.float32 if device.type == "mps" and kind == torch.float64 else kind


def _require_fitted(transformer: Any) -> None:
    if "sklearn" not in sys.modules:
        return
    exceptions, validation = import_module("sklearn.exceptions"), import_module("sklearn.utils.validation")
    try:
        validation.check_is_fitted(transformer)
    except exceptions.NotFittedError:
        name = type(transformer).__name__
        raise ArgumentError(f"scale is a {name} that was not fitted; expected {name}().fit(...) first") from None
    except TypeError:
        return  # It is no estimator, and says itself what it lacks.


def _fit_field(kind: str, field: BorrowedArray, groups: list[Ranges]) -> tuple[Array, Array]:
    """Return the center and the scale of each group of rows, ``[groups, ...]``."""
    fit = {"standard": _fit_standard, "robust": _fit_robust, "minmax": _fit_minmax}[kind]
    with numpy.errstate(invalid="ignore", over="ignore"):
        fits = [fit(field, group) for group in groups]
    center, scale = numpy.stack([each[0] for each in fits]), numpy.stack([each[1] for each in fits])
    if not (numpy.isfinite(center) & numpy.isfinite(scale)).all():
        where = numpy.argwhere(~(numpy.isfinite(center) & numpy.isfinite(scale)))[0].tolist()
        column = f" of column {', '.join(map(str, where[1:]))}" if len(where) > 1 else ""
        name = f"{field.label} of series {where[0]}" if len(groups) > 1 else field.label
        least, _ = _find_extremes(field, groups[where[0]])
        if numpy.isnan(least[tuple(where[1:])]):
            raise DataError(f"{name}: the {kind} scale{column} has no values to fit to, but NaN; expected some")
        raise DataError(f"{name}: the {kind} scale{column} is not finite; expected values without infinity")
    # Rounding leaves a small scale to a column of one value.
    small = scale <= 1e-9 * numpy.abs(center)
    for place in numpy.argwhere(small).tolist():
        least, most = _find_extremes(field, groups[place[0]])
        small[tuple(place)] = least[tuple(place[1:])] == most[tuple(place[1:])] or scale[tuple(place)] == 0
    if small.any():
        columns = sorted({tuple(place[1:]) for place in numpy.argwhere(small).tolist()})
        named = ", ".join(":".join(map(str, place)) or "0" for place in columns)
        warnings.warn(
            f"{field.label}: the {kind} scale of column {named} is 0, so its values stay as they are",
            stacklevel=caller(),
        )
        center, scale = numpy.where(small, 0.0, center), numpy.where(small, 1.0, scale)
    return center, scale


def _fit_standard(field: BorrowedArray, group: Ranges) -> tuple[Array, Array]:
    count, total = numpy.int64(0), numpy.float64(0)
    for rows, exists in _chunks(field, group):
        total = total + rows.sum(axis=0)
        count = count + exists
    mean = total / count
    squares = numpy.float64(0)
    for start, end in _bounds(group):
        away = _rows(field, start, end) - mean
        numpy.nan_to_num(away, copy=False, nan=0.0, posinf=numpy.inf, neginf=-numpy.inf)
        squares = squares + numpy.einsum("i...,i...->...", away, away)
    return numpy.asarray(mean), numpy.sqrt(squares / count)


def _fit_minmax(field: BorrowedArray, group: Ranges) -> tuple[Array, Array]:
    least, most = _find_extremes(field, group)
    return least, most - least


def _fit_robust(field: BorrowedArray, group: Ranges) -> tuple[Array, Array]:
    rows = numpy.concatenate([_rows(field, start, end) for start, end in group])
    # A column of missing values has no scale; NumPy would warn of it.
    rows = numpy.where(numpy.isnan(rows).all(axis=0), numpy.inf, rows)
    quantiles = numpy.nanpercentile if numpy.isnan(rows).any() else numpy.percentile
    low, middle, high = quantiles(rows, [25, 50, 75], axis=0)
    return middle, numpy.asarray(high - low)


def _find_extremes(field: BorrowedArray, group: Ranges) -> tuple[Array, Array]:
    least, most = numpy.float64(numpy.nan), numpy.float64(numpy.nan)
    for start, end in _bounds(group):
        rows = _rows(field, start, end)
        least = numpy.fmin(least, numpy.fmin.reduce(rows, axis=0))
        most = numpy.fmax(most, numpy.fmax.reduce(rows, axis=0))
    return numpy.asarray(least), numpy.asarray(most)


def _chunks(field: BorrowedArray, group: Ranges) -> Iterator[tuple[Array, Any]]:
    """Yield rows, and how many of them exist in each column; what is missing is 0."""
    for start, end in _bounds(group):
        rows = _rows(field, start, end)
        absent = numpy.isnan(rows)
        yield numpy.where(absent, 0.0, rows), (~absent).sum(axis=0)


def _bounds(group: Ranges) -> Iterator[tuple[int, int]]:
    for start, end in group:
        for first in range(start, end, CHUNK):
            yield first, min(first + CHUNK, end)


def _rows(field: BorrowedArray, start: int, end: int) -> Array:
    """Return rows as float64."""
    rows = field.slice(start, end)
    if field.framework == "torch":
        rows = rows.detach().cpu().double() if not rows.is_complex() else rows
    if "complex" in str(rows.dtype):
        raise DTypeError(f"{field.label} has type {field.dtype}; expected real numbers to scale")
    return numpy.asarray(rows).astype(numpy.float64)


class _Rows:
    """An array that is filled row by row, in the framework of a field."""

    def __init__(self, field: BorrowedArray) -> None:
        self._framework, shape = field.framework, field.array.shape
        if field.framework == "torch":
            import torch

            kind = field.array.dtype if field.array.is_floating_point() else torch.float32
            self._values: Any = torch.empty(shape, dtype=kind, device=field.array.device)
        else:
            dtype = numpy.dtype(getattr(field.array, "dtype", numpy.float32))
            floats = dtype.kind == "f" or "float" in dtype.name
            self._values = numpy.empty(shape, dtype if floats else numpy.float32)

    def put(self, first: int, rows: Array) -> None:
        if self._framework == "torch":
            import torch

            self._values[first : first + len(rows)] = torch.from_numpy(rows)
        else:
            self._values[first : first + len(rows)] = rows

    def array(self) -> Any:
        if self._framework != "jax":
            return self._values
        import jax

        return jax.device_put(self._values, jax.devices("cpu")[0])
