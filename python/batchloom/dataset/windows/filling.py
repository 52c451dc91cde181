"""Ways to fill steps that a frame has no row for, and the values that they give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy
from batchloom.errors import ArgumentError, DTypeError

Array = numpy.ndarray[Any, Any]

WAYS = ("forward", "zero", "nan", "linear")


@dataclass(frozen=True)
class Gaps:
    """Steps that are missing among the rows of series.

    Attributes:
        source: The row of each step, or the last one before it.
        steps: The steps that are missing.
        places: The number of steps from the row before each of them.
        shares: The share of the way to the row after it.
    """

    source: Array
    steps: Array
    places: Array
    shares: Array

    @classmethod
    def after(cls, rows: int, breaks: Array, jumps: Array) -> Gaps:
        """Return the gaps before the rows ``breaks``, each ``jumps`` steps after the row before it."""
        counts = numpy.ones(rows, numpy.int64)
        counts[breaks - 1] = jumps
        source = numpy.repeat(numpy.arange(rows), counts)
        first = numpy.cumsum(counts) - counts
        is_missing = numpy.ones(len(source), bool)
        is_missing[first] = False
        steps = numpy.flatnonzero(is_missing)
        before = source[steps]
        places = steps - first[before]
        return cls(source, steps, places, places / counts[before])


class Fill:
    """Ways to fill missing steps, as users give them: one for all, or one for each column.

    Raises:
        ArgumentError: There is no such way.
    """

    def __init__(self, fill: Any) -> None:
        self._fill = fill
        for way in fill.values() if isinstance(fill, Mapping) else [fill]:
            is_number = isinstance(way, Real | numpy.number) and not isinstance(way, numpy.timedelta64)
            if not is_number and not (isinstance(way, str) and way in WAYS):
                raise ArgumentError(f"fill is {way!r}; expected {', '.join(map(repr, WAYS))}, a number, or a dict")
        self._unused = set(fill) if isinstance(fill, Mapping) else set()

    @property
    def looks_ahead(self) -> bool:
        """``True`` if missing steps take values from steps after them."""
        return "linear" in (self._fill.values() if isinstance(self._fill, Mapping) else [self._fill])

    def ways(self, label: str, columns: Sequence[Any]) -> list[Any]:
        """Return a list of the way for each of some columns, or of one way for all.

        Raises:
            ArgumentError: A column has none.
        """
        if not isinstance(self._fill, Mapping):
            return [self._fill]
        names = [label] if label in self._fill or not len(columns) else columns
        for name in names:
            if name not in self._fill:
                raise ArgumentError(f"fill names no way for {name!r}; expected one for each column, or one for all")
            self.use(name)
        return [self._fill[name] for name in names]

    def use(self, name: Any) -> None:
        """Note that there is a column or a series of this name."""
        self._unused.discard(name)

    def require_used(self) -> None:
        """Check that every name is the name of a column.

        Raises:
            ArgumentError: A name is not.
        """
        for name in sorted(self._unused, key=str):
            raise ArgumentError(f"fill names {name!r}, which is no column or series; expected the name of one")


def fill_gaps(label: str, values: Any, gaps: Gaps | None, ways: list[Any]) -> Any:
    """Return values with the missing steps, in their framework and type; the same array if no step is missing.

    Args:
        label: The name of the values, for errors.
        values: The values of rows, ``[rows, ...]``.
        gaps: The missing steps.
        ways: A way for each column, or one for all.

    Raises:
        DTypeError: Values of their type cannot be filled in this way.
    """
    if gaps is None:
        return values
    for way in ways:
        _check(label, way, str(values.dtype).removeprefix("torch."))
    framework = type(values).__module__.partition(".")[0]
    rows: Any = values.detach() if framework == "torch" else numpy.asarray(values)
    source, steps = (_index(rows, places) for places in (gaps.source, gaps.steps))
    values_of_steps = rows[source]
    for column, way in enumerate(ways):
        # An ellipsis is all columns.
        place = ... if len(ways) == 1 else column
        if way == "linear":
            values_of_steps[steps, place] = _between(rows[:, place], gaps)
        elif way != "forward":
            values_of_steps[steps, place] = {"zero": 0, "nan": numpy.nan}.get(way, way) if isinstance(way, str) else way
    return _to_framework(framework, values_of_steps)


def _check(label: str, way: Any, dtype: str) -> None:
    if "float" in dtype or way in ("forward", "zero"):
        return
    if isinstance(way, str):
        raise DTypeError(
            f"fill is {way!r}, and {label} has type {dtype}; expected floats, 'forward', 'zero' or a number"
        )
    limits = None if dtype == "bool" or "complex" in dtype else numpy.iinfo(dtype)
    least, most = (0, 1) if limits is None else (limits.min, limits.max)
    if "complex" not in dtype and not (least <= way <= most and way == int(way)):
        raise DTypeError(f"fill is {way!r}, and {label} has type {dtype}; expected a number of that type")


def _index(rows: Any, places: Array) -> Any:
    if isinstance(rows, numpy.ndarray):
        return places
    import torch

    return torch.from_numpy(places).to(rows.device)


def _between(rows: Any, gaps: Gaps) -> Any:
    """Return values on the straight line from the row before each missing step to the row after it."""
    before = _index(rows, gaps.source[gaps.steps])
    shares = _index(rows, gaps.shares.reshape(-1, *(1,) * (rows.ndim - 1)))
    if isinstance(rows, numpy.ndarray):
        low, high = rows[before].astype(numpy.float64), rows[before + 1].astype(numpy.float64)
    else:
        low, high = rows[before].double(), rows[before + 1].double()
    between = low + (high - low) * shares
    return between if isinstance(rows, numpy.ndarray) else between.to(rows.dtype)


def _to_framework(framework: str, values: Any) -> Any:
    """Return values in the framework from which they came."""
    if framework not in ("jax", "jaxlib"):
        return values
    import jax

    return jax.device_put(values, jax.devices("cpu")[0])
