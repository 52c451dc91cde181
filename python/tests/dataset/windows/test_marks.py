"""Marks that are made from times: as calendars count, and as publications do."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import batchloom as bl
import numpy
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

NAMES = ["second", "minute", "hour", "weekday", "day", "yearday", "week", "month", "quarter", "year"]


def calendar(times: Any) -> numpy.ndarray[Any, Any]:
    """Return the parts of times as pandas reads them."""
    index = pandas.DatetimeIndex(times)
    parts = [index.second, index.minute, index.hour, index.day_of_week, index.day, index.day_of_year]
    parts += [index.isocalendar().week, index.month, index.quarter, index.year]
    return numpy.stack([numpy.asarray(part, numpy.int64) for part in parts], axis=1)


def published(times: Any, parts: list[str]) -> numpy.ndarray[Any, Any]:
    """Return marks as the Time-Series-Library scales them."""
    index = pandas.DatetimeIndex(times)
    found = {
        "second": index.second / 59.0 - 0.5,
        "minute": index.minute / 59.0 - 0.5,
        "hour": index.hour / 23.0 - 0.5,
        "weekday": index.day_of_week / 6.0 - 0.5,
        "day": (index.day - 1) / 30.0 - 0.5,
        "yearday": (index.day_of_year - 1) / 365.0 - 0.5,
        "week": (index.isocalendar().week - 1) / 52.0 - 0.5,
        "month": (index.month - 1) / 11.0 - 0.5,
    }
    return numpy.stack([numpy.asarray(found[part], numpy.float64) for part in parts], axis=1)


def marks_of(times: Any, marks: Any, dtype: str = "float64") -> numpy.ndarray[Any, Any]:
    dataset = bl.WindowDataset(numpy.zeros(len(times), dtype), 1, time=times, marks=marks)
    return dataset.fields["x_mark"]


@pytest.mark.law("W3")
@given(
    st.lists(st.datetimes(datetime(1905, 1, 1), datetime(2155, 1, 1)), min_size=1, max_size=40, unique=True),
    st.sampled_from(["s", "ms", "us", "ns"]),
)
def test_calendars(moments: list[datetime], unit: str) -> None:
    times = numpy.unique(numpy.array(moments, "datetime64[us]").astype(f"datetime64[{unit}]"))
    found = marks_of(times, NAMES)
    assert found.dtype == numpy.int32
    numpy.testing.assert_array_equal(found, calendar(times))


@pytest.mark.law("W3")
@given(st.integers(-(10**6), 10**6), st.integers(1, 4000), st.sampled_from(["D", "h", "m", "15m", "s", "W", "M"]))
def test_calendars_of_neighbours(start: int, steps: int, unit: str) -> None:
    start //= 10 if unit == "D" else 60 if unit in "WM" else 1
    times = (numpy.arange(steps) + start).astype(f"datetime64[{unit}]")
    numpy.testing.assert_array_equal(marks_of(times, NAMES), calendar(times.astype("datetime64[s]")))


@pytest.mark.parametrize(
    ("frequency", "parts"),
    [
        ("10s", ["second", "minute", "hour", "weekday", "day", "yearday"]),
        ("15min", ["minute", "hour", "weekday", "day", "yearday"]),
        ("h", ["hour", "weekday", "day", "yearday"]),
        ("D", ["weekday", "day", "yearday"]),
        ("W", ["day", "week"]),
        ("MS", ["month"]),
    ],
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_marks_of_the_time_series_library(frequency: str, parts: list[str], dtype: str) -> None:
    times = pandas.date_range("2015-12-20", periods=900, freq=frequency)
    found = marks_of(times, "tslib", dtype)
    assert found.dtype == dtype
    numpy.testing.assert_array_equal(found, published(times, parts).astype(dtype))
    # Gaps change no kind, and series are apart in time.
    frame = pandas.DataFrame({"id": numpy.arange(900) // 300, "time": times.delete([5, 6]).append(times[:2]), "x": 0.0})
    frame = frame.sort_values(["id", "time"])
    apart = bl.WindowDataset(frame, 1, id="id", time="time", marks="tslib", columns=["x"]).fields["x_mark"]
    numpy.testing.assert_array_equal(apart, published(frame["time"], parts))


def test_cycles_are_sines_and_cosines() -> None:
    times = pandas.date_range("2019-12-30", periods=24 * 800, freq="h")
    found = marks_of(times, ["sin-cos"])
    year = 2 * numpy.pi * (times.day_of_year - 1) / numpy.where(times.is_leap_year, 366, 365)
    angles = [2 * numpy.pi * times.hour / 24, 2 * numpy.pi * times.day_of_week / 7, year]
    expected = [turn(angle) for angle in angles for turn in (numpy.sin, numpy.cos)]
    numpy.testing.assert_allclose(found, numpy.stack(expected, axis=1), atol=1e-12)


def zoned() -> dict[str, Any]:
    """Return hours around both changes of summer time, with their zone, in every kind of frame."""
    zone = ZoneInfo("Europe/Berlin")
    starts = [datetime(2024, 3, 30, 20), datetime(2024, 10, 26, 20)]
    utc = ZoneInfo("UTC")
    hours = [start.replace(tzinfo=utc) + timedelta(hours=step) for start in starts for step in range(12)]
    local = [hour.astimezone(zone) for hour in hours]
    index = pandas.DatetimeIndex(hours).tz_convert("Europe/Berlin")
    values = numpy.zeros(24)
    return {
        "pandas": pandas.DataFrame({"time": index, "x": values}),
        "polars": polars.DataFrame({"time": pandas.Series(index), "x": values}),
        "pyarrow": pyarrow.table({"time": pyarrow.array(index), "x": values}),
        "datetimes": {"time": local, "x": values},
        "texts": {"time": [hour.isoformat() for hour in local], "x": values},
    }


@pytest.mark.law("W3")
@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "datetimes", "texts"])
def test_summer_time_counts_as_clocks_show_it(kind: str) -> None:
    dataset = bl.WindowDataset(zoned()[kind], 1, time="time", marks=["hour", "day"])
    spring, autumn = numpy.split(dataset.fields["x_mark"], 2)
    assert spring[:, 0].tolist() == [21, 22, 23, 0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert autumn[:, 0].tolist() == [22, 23, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8]
    assert spring[:3, 1].tolist() == [30] * 3
    assert spring[3:, 1].tolist() == [31] * 9


def test_marks_of_columns_and_of_times() -> None:
    frame = {
        "time": numpy.arange("2024-02-27", "2024-03-05", dtype="datetime64[D]"),
        "promo": numpy.arange(7) % 2 * 0.5,
        "day": numpy.arange(7),
        "x": numpy.arange(7.0),
    }
    both = bl.WindowDataset(frame, 2, 1, time="time", columns=["x"], marks=["promo", "time.day", "weekday"])
    assert both.fields["x_mark"].T.tolist() == [
        [0, 0.5, 0, 0.5, 0, 0.5, 0],
        [27, 28, 29, 1, 2, 3, 4],
        [1, 2, 3, 4, 5, 6, 0],
    ]
    _, _, x_mark, y_mark = both[2]
    assert x_mark[:, 1].tolist() == [29, 1]
    assert y_mark[:, 1].tolist() == [2]
    series = [frame["x"][:3], frame["x"][3:]]
    apart = bl.WindowDataset(series, 1, time=[frame["time"][:3], frame["time"][3:]], marks=["month"])
    assert apart.fields["x_mark"].ravel().tolist() == [2, 2, 2, 3, 3, 3, 3]
    column = bl.WindowDataset(frame, 2, 1, time="time", columns=["x"], marks="column.day").fields["x_mark"]
    assert column.ravel().tolist() == list(range(7))
    with pytest.raises(bl.ArgumentError, match=r"'day', which is a column .* expected 'column\.day' or 'time\.day'"):
        bl.WindowDataset(frame, 2, time="time", marks=["day"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"marks": "hour"}, "no times"),
        ({"marks": ["hour", "century"], "time": numpy.arange("2024", "2032", dtype="datetime64[Y]")}, "'century'"),
        ({"marks": ["time.sin-cosine"], "time": numpy.arange("2024", "2032", dtype="datetime64[Y]")}, "'sin-cosine'"),
        ({"marks": ["hour"], "time": numpy.arange(8)}, "int64; expected datetimes"),
    ],
)
def test_marks_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(bl.Error, match=message):
        bl.WindowDataset(numpy.zeros(8), 2, **options)
