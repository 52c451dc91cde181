"""`Timed`: rows with separate times, as users give them for a field of windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import numpy
from batchloom.arguments import choice
from batchloom.arrays.inputs import read_plain
from batchloom.errors import ArgumentError

Array = numpy.ndarray[Any, Any]

MATCHES = ("last", "nearest")
MISSING = ("error", "pad")


@dataclass(frozen=True, eq=False, repr=False)
class Timed:
    """Rows with separate times, as a field of windows: frames of a camera, sound, daily values beside hourly steps.

        frames = bl.Timed(images, times=seconds, offsets=[-0.1, 0.0], match="nearest", tolerance=0.02)
        dataset = bl.WindowDataset(series, time=time, offsets={"state": [0]}, timed={"image": frames})

    A sample holds ``[offsets, ...]``, and a batch ``[batch, offsets, ...]``: for each offset the row that is valid at
    the time of the sample plus the offset. The time of a sample is the time of its anchor, or, for windows of
    ``input_len``, of the last step of the input. If that step lies before its series, the sample has no time and lacks
    all rows.

    Rows are found when a batch is formed, by a binary search in the times of the series: no row number is stored.
    ``values`` is borrowed, and so is an array ``times`` of int64 or float64, or of datetimes in the finest unit of all;
    lists and other types are copied once.

    **Exactness.** Integers and datetimes are compared exactly, whatever their units. If any time or offset is a
    fraction, all times are float64, and comparisons are on the float64 sum of time and offset: ``0.3 - 0.1`` is less
    than ``0.2``, so ``"last"`` takes the row before the row at ``0.2``. Where clocks share ticks, give integers (as
    milliseconds) or datetimes, or take ``"nearest"``. Integers above ``2**53`` beside fractions are an error.

    **Parts of a split** find no row from the time of the first step after the part on, whatever the offset.
    Where inputs may reach back before a part (``reach_back`` and a horizon), so do offsets, as far as there are rows.
    Other windows find no row before the first step of their part. The ends of a series itself hide no row.

    Args:
        values: The rows, ``[rows, ...]``, in the forms that series have: an array, a list of arrays with one for each
            series, ``(values, offsets)``, or an Arrow column of lists. There are as many series as the dataset has; a
            series may have no row.
        times: The time of each row, in the same forms: numbers in the unit of ``time=`` of the dataset, or datetimes
            of any unit, with a time zone if those have one. They grow within a series.
        offsets: The distances from the time of a sample, in any order: numbers in the unit of the times, or timedeltas
            (of ``datetime``, NumPy or pandas) for datetimes.
        match: ``"last"``: the last row at the time or before it, so no row of its future. ``"nearest"``: the row that
            is closest to it; of two that are as close, the earlier one.
        tolerance: The greatest distance of a valid row; ``None`` for any.
        missing: The treatment of rows that a sample lacks. ``"error"``: the dataset is not made, nor is the part of a
            split. With a tolerance, this takes a look at every sample. ``"pad"``: they are zeros, or what
            ``pad_value=`` of a loader or ``bl.Field(pad=...)`` puts there (``"edge"`` repeats the row without the
            tolerance, or the first row of the series), and batches hold a mask, ``image_mask`` for ``image``,
            ``[batch, offsets]``.

    Raises:
        ArgumentError: No offset, or one that is no finite number or timedelta; a tolerance that is negative; an unknown
            ``match`` or ``missing``.
    """

    values: Any
    times: Any
    offsets: Any
    match: Literal["last", "nearest"] = "last"
    tolerance: Any = None
    missing: Literal["error", "pad"] = "error"

    def __post_init__(self) -> None:
        choice("match", self.match, MATCHES)
        choice("missing", self.missing, MISSING)
        object.__setattr__(self, "offsets", _read_distances("offsets", self.offsets))
        if self.tolerance is not None:
            object.__setattr__(self, "tolerance", self._read_tolerance())

    def _read_tolerance(self) -> Array:
        """Return the tolerance as an array of one distance."""
        tolerance = _read_distances("tolerance", self.tolerance)
        if len(tolerance) != 1:
            raise ArgumentError(f"tolerance has {len(tolerance)} values; expected one distance for all offsets")
        if (tolerance.dtype.kind == "m") != (self.offsets.dtype.kind == "m"):
            kinds = ["timedelta" if each.dtype.kind == "m" else "number" for each in (tolerance, self.offsets)]
            raise ArgumentError(f"tolerance is a {kinds[0]} and each offset a {kinds[1]}; expected a {kinds[1]}")
        if tolerance[0] < numpy.zeros(1, tolerance.dtype)[0]:
            raise ArgumentError(f"tolerance is {tolerance[0]}; expected a distance of at least 0")
        return tolerance

    def __repr__(self) -> str:
        options = f"match={self.match!r}, tolerance={self.tolerance}, missing={self.missing!r}"
        return f"Timed({type(self.values).__name__}, offsets={self.offsets}, {options})"


def _read_distances(option: str, given: Any) -> Array:
    """Return numbers or timedeltas as an array ``[distances]`` that nothing changes.

    Raises:
        ArgumentError: They are neither, one is not finite, or the list is empty.
    """
    expected = "numbers, or timedeltas for datetimes"
    if isinstance(given, str | bytes | dict):
        raise ArgumentError(f"{option} is {given!r}; expected {expected}")
    if isinstance(given, Iterable) and not hasattr(given, "__array__") and not hasattr(given, "shape"):
        given = [_read_distance(each) for each in given]
        if len({isinstance(each, numpy.timedelta64) for each in given}) > 1:
            raise ArgumentError(f"{option} has numbers and timedeltas; expected one kind")
    distances = read_plain(option, _read_distance(given), expected, ArgumentError).reshape(-1)
    if not distances.size:
        raise ArgumentError(f"{option} is empty; expected at least one distance from the time of a sample, such as [0]")
    if distances.dtype.kind not in "iufm":
        raise ArgumentError(f"{option} has type {distances.dtype}; expected {expected}")
    if distances.dtype.kind == "m" and numpy.datetime_data(distances.dtype)[0] == "generic":
        raise ArgumentError(f"{option} has timedeltas without a unit; expected a unit, as numpy.timedelta64(100, 'ms')")
    absent = numpy.isnat(distances) if distances.dtype.kind == "m" else ~numpy.isfinite(distances)
    if absent.any():
        raise ArgumentError(f"{option} has {distances[absent.argmax()]}; expected finite values")
    distances = distances.copy()
    distances.flags.writeable = False
    return distances


def _read_distance(distance: Any) -> Any:
    """Return a timedelta as NumPy has it; anything else as it is."""
    if hasattr(distance, "to_timedelta64"):  # pandas, in nanoseconds
        return distance.to_timedelta64()
    return numpy.timedelta64(distance) if isinstance(distance, timedelta) else distance
