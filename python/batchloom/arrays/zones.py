"""Time zones: what their clocks show at a moment, and the moment at which they show a time.

Offsets are looked up once a day. Moments at which clocks change are looked up each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import numpy
from batchloom.errors import DataError

Array = numpy.ndarray[Any, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400

# A zone that is its distance from UTC, as "+01:00".
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)$")


def zone_of(times: Any) -> tzinfo | None:
    """Return the time zone of times, as the column of a frame or the times themselves have it; ``None`` without one.

    Raises:
        DataError: Times have several zones, or one that this machine does not know.
    """
    kind = getattr(times, "dtype", getattr(times, "type", None))
    for zone in (getattr(kind, "tz", None), getattr(kind, "time_zone", None)):
        if zone is not None:
            return _find_zone(zone) if isinstance(zone, str) else zone
    zones = list(dict.fromkeys(_find_zones(times)))
    if len(zones) > 1:
        named = ", ".join(str(zone) for zone in zones[:3])
        raise DataError(f"times have several time zones ({named}); expected one: convert them to UTC, or to one zone")
    return zones[0] if zones else None


def _find_zones(times: Any) -> Iterator[tzinfo | None]:
    """Yield the zone of each of some objects."""
    if isinstance(times, list | tuple) or getattr(getattr(times, "dtype", None), "kind", None) in ("O", "U"):
        for time in times:
            yield from _find_zones(time)
    elif isinstance(times, str):
        yield datetime.fromisoformat(times).tzinfo
    elif isinstance(times, datetime):
        yield times.tzinfo
    elif hasattr(times, "dtype"):
        yield zone_of(times)


def _find_zone(name: str) -> tzinfo:
    offset = _OFFSET.match(name)
    if offset is not None:
        sign, hours, minutes = offset.groups()
        return timezone(timedelta(hours=int(hours), minutes=int(minutes)) * (1 if sign == "+" else -1))
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError) as error:
        raise DataError(f"times have the time zone {name!r}, which is not known here: {error}") from None


def to_wall_times(moments: Array, zone: tzinfo) -> Array:
    """Return what the clocks of a zone show at moments in UTC."""
    return moments + _offsets(moments, zone)


def moments(shown: Array, zone: tzinfo) -> Array:
    """Return the moments, in UTC, at which the clocks of a zone show these times.

    Raises:
        DataError: They show one of them twice or never, since they are put forward or back.
    """
    day = numpy.timedelta64(_DAY, "s")
    before, after = _offsets(shown - day, zone), _offsets(shown + day, zone)
    first, second = shown - before, shown - after
    is_first, is_second = _offsets(first, zone) == before, _offsets(second, zone) == after
    for wrong, often in ((~(is_first | is_second), "never"), (is_first & is_second & (before != after), "twice")):
        if wrong.any():
            time = shown[int(wrong.argmax())].astype("datetime64[s]")
            raise DataError(
                f"a missing step is at {time}, which clocks in {zone} show {often}; expected steps at times that they "
                "show once: give times in UTC, or without a time zone"
            )
    return numpy.where(is_first, first, second)


def _offsets(moments: Array, zone: tzinfo) -> Array:
    """Return how far the clocks of a zone are ahead at moments in UTC."""
    seconds = moments.astype("datetime64[s]").astype(numpy.int64)
    days, place = numpy.unique(seconds // _DAY, return_inverse=True)
    first, end = (_look_up_offsets((days + ahead) * _DAY, zone)[place] for ahead in (0, 1))
    offsets, changes = first.copy(), first != end
    offsets[changes] = _look_up_offsets(seconds[changes], zone)
    return offsets.astype("timedelta64[s]")


def _look_up_offsets(seconds: Array, zone: tzinfo) -> Array:
    times = ((_EPOCH + timedelta(seconds=second)).astimezone(zone) for second in seconds.tolist())
    offsets = (time.utcoffset() or timedelta() for time in times)
    return numpy.fromiter((offset.total_seconds() for offset in offsets), numpy.int64, len(seconds))
