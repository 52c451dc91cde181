"""Times of several clocks as ticks of one: integers of one unit, or floats.

Promise: times and offsets are converted exactly, or refused. Sums of floats are rounded as float64 rounds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
from batchloom.errors import DataError

Array = numpy.ndarray[Any, Any]

# Integers up to this number are floats too.
EXACT = 2**53

# Units in which a month has no length.
_CALENDAR = ("Y", "M")


def find_clock(label: str, times: Sequence[Array], offsets: Sequence[Array]) -> str:
    """Return the type that holds times and offsets of one clock: ``"int64"``, ``"float64"``, or a type of datetimes.

    Args:
        label: The name of the field, for errors.
        times: Numbers, or datetimes.
        offsets: Numbers, or timedeltas: the distances between times.

    Raises:
        DataError: An offset counts months, and times have a finer unit.
    """
    if times[0].dtype.kind != "M":
        are_whole = all(each.dtype.kind in "iu" for each in times) and all(_are_whole(each) for each in offsets)
        return "int64" if are_whole else "float64"
    units = [numpy.datetime_data(each.dtype) for each in (*times, *offsets)]
    clock = numpy.result_type(*(numpy.dtype(f"datetime64[{count}{unit}]") for unit, count in units))
    if numpy.datetime_data(clock)[0] not in _CALENDAR:
        for each in offsets:
            if numpy.datetime_data(each.dtype)[0] in _CALENDAR:
                raise DataError(
                    f"offsets of field {label} have type {each.dtype}, and months have no fixed length in the "
                    f"{clock} of the times; expected days, or a finer unit"
                )
    return str(clock)


def to_ticks(label: str, values: Array, clock: str) -> Array:
    """Return times, or distances between times, as ticks of a clock: the same memory where they are.

    Args:
        label: The name of the values, for errors.
        values: Numbers, datetimes, or timedeltas.
        clock: A type that :func:`find_clock` returned.

    Raises:
        DataError: A value is no tick of the clock.
    """
    if values.dtype.kind in "Mm":
        kind = numpy.dtype(clock.replace("datetime64", "timedelta64") if values.dtype.kind == "m" else clock)
        ticks = _convert(label, values, kind).view(numpy.int64)
    elif clock == "int64":
        ticks = _convert(label, values, numpy.dtype(numpy.int64))
    else:
        if values.dtype.kind in "iu":
            far = (values > EXACT) | (values < -EXACT) if values.dtype.itemsize == 8 else numpy.zeros(1, bool)
            if far.any():
                raise DataError(
                    f"{label} has {values[far.argmax()]}, which floats do not hold exactly, and other times or offsets "
                    "are floats; expected integers for all, or smaller ones"
                )
        ticks = _convert(label, values, numpy.dtype(numpy.float64))
    return numpy.require(ticks, requirements=["C", "A"])


def show_tick(tick: Any, clock: str) -> str:
    """Return a tick of a clock as text."""
    return repr(tick) if clock in ("int64", "float64") else str(numpy.int64(tick).view(clock))


def _are_whole(offsets: Array) -> bool:
    """Return whether offsets are integers, whatever their type."""
    return offsets.dtype.kind in "iu" or bool((numpy.floor(offsets) == offsets).all() and (abs(offsets) <= EXACT).all())


def _convert(label: str, values: Array, kind: numpy.dtype[Any]) -> Array:
    """Return values in another type, which holds all of them."""
    if values.dtype == kind:
        return values
    try:
        with numpy.errstate(all="ignore"):
            converted: Array = values.astype(kind)
            differs = converted.astype(values.dtype) != values
            if values.dtype.kind == "u" and kind.kind == "i":
                differs |= converted < 0
    except OverflowError:
        raise DataError(f"{label} has times that {kind} does not hold; expected times in its range") from None
    if differs.any():
        raise DataError(
            f"{label} has {values[differs.argmax()]}, which {kind} does not hold; expected values in its range"
        )
    return converted
