"""Frequencies that times go on by, and steps that are missing: as pandas counts and fills them."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import batchloom as bl
import jax
import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

MARKS = ["hour", "weekday", "day", "yearday", "month", "year"]
NAMES = ["s", "15min", "h", "3h", "D", "2D", "W-SUN", "2W-WED", "B", "3B", "MS", "ME", "2MS", "QS", "QE"]
NAMES += ["QS-FEB", "2QE-NOV", "YS", "YE", "YS-APR", "YE-JUN"]
ZONES = [None, "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]

STEPS = st.lists(st.booleans(), min_size=1, max_size=60)
STARTS = st.datetimes(datetime(1995, 1, 1), datetime(2030, 1, 1))


def regular(freq: str, start: datetime, steps: int, zone: str | None) -> pandas.DatetimeIndex:
    """Return neighbouring times as pandas makes them."""
    # Midnight and noon are there on every day, in these zones.
    start = start.replace(hour=start.hour // 12 * 12, minute=0, second=0, microsecond=0)
    return pandas.date_range(start, periods=steps, freq=freq, tz=zone)


def with_gaps(index: pandas.DatetimeIndex, keep: list[bool]) -> pandas.DataFrame:
    """Return a frame of two series, without some of their inner rows; the second one begins a step later."""
    kept = numpy.array([True, *keep, True])
    values = numpy.arange(len(index) + 1.0) ** 2 + 1
    parts = [(index, values[:-1]), (index[1:], values[2:])]
    frames = [
        pandas.DataFrame({"id": name, "time": times, "a": part, "b": -part})[kept[-len(times) :]]
        for name, (times, part) in zip(("n", "s"), parts, strict=True)
    ]
    # The second one keeps its first row.
    return (
        pandas.concat([frames[0], pandas.DataFrame({"id": ["s"], "time": index[1:2], "a": 4.0, "b": -4.0})])
        if (len(frames[1]) == 0)
        else pandas.concat(frames, ignore_index=True)
    )


def oracle(frame: pandas.DataFrame, index: pandas.DatetimeIndex, way: Any) -> pandas.DataFrame:
    """Return the frame with a row for each time, series by series, by pandas."""
    found = []
    for name, part in frame.groupby("id"):
        times = part["time"]
        whole = index[(index >= times.iloc[0]) & (index <= times.iloc[-1])]
        rows = part.set_index("time")[["a", "b"]].reindex(whole)
        filled = rows["a"].isna().to_numpy()
        if way == "forward":
            rows = rows.ffill()
        elif way == "linear":
            rows = rows.interpolate("linear")
        elif way != "nan":
            rows = rows.fillna(0 if way == "zero" else way)
        found.append(rows.assign(id=name, filled=filled).reset_index(names="time"))
    return pandas.concat(found, ignore_index=True)


def calendar(times: pandas.Series[Any]) -> numpy.ndarray[Any, Any]:
    """Return marks of times as pandas reads them off the clock."""
    parts = (times.dt.hour, times.dt.day_of_week, times.dt.day, times.dt.day_of_year, times.dt.month, times.dt.year)
    return numpy.stack([numpy.asarray(part) for part in parts], axis=1)


def moments(times: pandas.Series[Any]) -> numpy.ndarray[Any, Any]:
    zoned = times.dt.tz is not None
    return numpy.asarray(times.dt.tz_convert(None) if zoned else times)


@pytest.mark.law("W3")
@given(
    freq=st.sampled_from(NAMES),
    start=STARTS,
    keep=STEPS,
    zone=st.sampled_from(ZONES),
    way=st.sampled_from(["forward", "linear", "zero", "nan", -2.5]),
)
def test_missing_steps_are_filled_as_pandas_fills_them(
    freq: str, start: datetime, keep: list[bool], zone: str | None, way: Any
) -> None:
    index = regular(freq, start, len(keep) + 2, zone)
    frame = with_gaps(index, keep)
    dataset = bl.WindowDataset(frame, 1, id="id", time="time", freq=freq, fill=way, marks=MARKS)
    expected = oracle(frame, index, way)
    numpy.testing.assert_allclose(dataset.fields["x"], expected[["a", "b"]].to_numpy(), rtol=1e-12)
    numpy.testing.assert_array_equal(dataset.times, moments(expected["time"]))
    numpy.testing.assert_array_equal(dataset.filled, expected["filled"])
    numpy.testing.assert_array_equal(dataset.fields["x_mark"], calendar(expected["time"]))
    assert numpy.diff(dataset.offsets).tolist() == expected.groupby("id").size().tolist()


@pytest.mark.law("W3")
@given(freq=st.sampled_from(NAMES), start=STARTS, keep=STEPS, zone=st.sampled_from(ZONES))
def test_a_gap_is_an_error_that_names_it(freq: str, start: datetime, keep: list[bool], zone: str | None) -> None:
    index = regular(freq, start, len(keep) + 2, zone)
    frame = with_gaps(index, keep)
    whole = oracle(frame, index, "nan")
    options = {"id": "id", "time": "time", "freq": freq}
    if not whole["filled"].any():
        dataset = bl.WindowDataset(frame, 1, **options)
        assert dataset.filled is not None
        assert not dataset.filled.any()
        return
    at = int(whole["filled"].to_numpy().argmax())
    step = at - int((whole["id"] == "n").sum()) * int(whole["id"][at] == "s")
    missing = len(list(itertools.takewhile(bool, whole["filled"][at:])))
    shown = whole["time"] if zone is None else whole["time"].dt.tz_localize(None)
    if freq in ("s", "15min", "h", "3h") and zone is not None:
        shown = whole["time"].dt.tz_convert(None)
    times = [str(numpy.datetime64(shown[row].to_pydatetime(), "s")) for row in (at - 1, at, at + missing)]
    values = [f"step {step} of series {int(whole['id'][at] == 's')}", whole["id"][at], f"'{freq}'", "fill=", *times]
    with pytest.raises(bl.DataError) as caught:
        bl.WindowDataset(frame, 1, **options)
    assert [value for value in (*values, f"{missing} step") if value not in str(caught.value)] == []


@pytest.mark.law("W3")
@given(freq=st.sampled_from(NAMES), start=STARTS, zone=st.sampled_from(ZONES), nudge=st.sampled_from([1, -1]))
def test_times_between_steps_are_never_moved(freq: str, start: datetime, zone: str | None, nudge: int) -> None:
    index = regular(freq, start, 6, zone)
    times = index.to_list()
    times[3] += pandas.Timedelta(nudge * 250, "ms")
    frame = pandas.DataFrame({"time": pandas.DatetimeIndex(times), "a": numpy.arange(6.0)})
    with refused(bl.DataError, "step 3 of series 0", f"'{freq}'", "never moved"):
        bl.WindowDataset(frame, 1, time="time", freq=freq, fill="forward")


@given(
    freq=st.sampled_from([name for name in NAMES if name != "3B"]),  # which looks like any number of days
    start=STARTS,
    keep=st.lists(st.booleans(), min_size=30, max_size=60),
)
def test_the_most_frequent_step_is_found(freq: str, start: datetime, keep: list[bool]) -> None:
    # Most steps are there, and business days show that they are.
    kept = [flag or place % 10 != 3 for place, flag in enumerate(keep)]
    index = regular(freq, start, len(keep) + 2, None)
    frame = with_gaps(index, kept)
    found, expected = (
        bl.WindowDataset(frame, 1, id="id", time="time", freq=each, fill="nan") for each in ("infer", freq)
    )
    numpy.testing.assert_array_equal(found.times, expected.times)
    numpy.testing.assert_array_equal(found.fields["x"], expected.fields["x"])


@pytest.mark.parametrize("kind", [dict, pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_every_kind_of_frame_and_everything_beside_the_series(kind: Any) -> None:
    time = numpy.array(["2024-02-27", "2024-02-28", "2024-03-02", "2024-03-03"], "datetime64[us]")
    columns = {"time": time, "a": numpy.array([1.0, 2, 5, 6]), "n": numpy.array([4, 5, 6, 7])}
    promo, plan = numpy.array([True, False, True, True]), numpy.array([[1], [2], [3], [4]], numpy.int8)
    dataset = bl.WindowDataset(
        kind(columns),
        3,
        2,
        time="time",
        freq="D",
        fill={"a": "linear", "n": 9, "promo": "zero", "plan": "forward"},
        columns=["a"],
        targets="n",
        marks=["day", "column.n"],
        past={"promo": promo},
        future={"plan": plan},
    )
    fields = dataset.fields
    assert fields["x"].ravel().tolist() == [1, 2, 3, 4, 5, 6]
    assert fields["y"].ravel().tolist() == [4, 5, 9, 9, 6, 7]
    assert fields["x_mark"].tolist() == [[4, 27], [5, 28], [9, 29], [9, 1], [6, 2], [7, 3]]
    assert fields["promo"].tolist() == [True, False, False, False, True, True]
    assert fields["promo"].dtype == bool
    assert fields["plan"].ravel().tolist() == [1, 2, 2, 2, 3, 4]
    assert dataset.filled.tolist() == [False, False, True, True, False, False]
    again = bl.WindowDataset(
        kind(columns), 3, 2, time="time", freq="D", fill="forward", past={"filled": dataset.filled}
    )
    assert again[0]["filled"].tolist() == [False, False, True]
    train, test = again.split(train="2024-03-02", test=None)
    assert (len(train), len(test)) == (1, 1)


@pytest.mark.parametrize("kind", [numpy.asarray, torch.as_tensor, jax.numpy.asarray])
@pytest.mark.parametrize("way", ["forward", "linear", "zero", "nan", 7])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_arrays_keep_their_framework_and_their_type(kind: Any, way: Any, dtype: str) -> None:
    lengths, time = [4, 3], [numpy.array([0, 10, 40, 50]), numpy.array([5, 25, 35])]
    parts = [numpy.arange(2.0 * length).reshape(length, 2).astype(dtype) for length in lengths]
    dataset = bl.WindowDataset([kind(part) for part in parts], 2, time=time, freq=10, fill=way, targets=1)
    gap = {
        "forward": [[2, 3], [2, 3], [0, 1]],
        "linear": [[2 + 2 / 3, 3 + 2 / 3], [2 + 4 / 3, 3 + 4 / 3], [1, 2]],
        "zero": numpy.zeros((3, 2)),
        "nan": numpy.full((3, 2), numpy.nan),
        7: numpy.full((3, 2), 7),
    }[way]
    expected = numpy.array([[0, 1], [2, 3], *gap[:2], [4, 5], [6, 7], [0, 1], gap[2], [2, 3], [4, 5]], dtype)
    found = dataset.fields["x"]
    assert type(found) is type(kind(parts[0]))
    assert str(found.dtype).removeprefix("torch.") == dtype
    numpy.testing.assert_array_equal(numpy.asarray(found), expected)
    assert dataset.times.tolist() == [0, 10, 20, 30, 40, 50, 5, 15, 25, 35]
    assert dataset.offsets.tolist() == [0, 6, 10]


@pytest.mark.parametrize("kind", [numpy.asarray, torch.as_tensor])
def test_nothing_is_copied_where_nothing_is_missing(kind: Any) -> None:
    rows, marks, past = kind(numpy.zeros((40, 2))), kind(numpy.zeros((40, 1))), kind(numpy.zeros(40))
    time = numpy.datetime64("2024-01-01T00", "s") + numpy.arange(40) * numpy.timedelta64(900, "s")
    dataset = bl.WindowDataset(rows, 4, time=time, freq="15min", fill="linear", marks=marks, past={"past": past})
    assert all(dataset.fields[name] is array for name, array in (("x", rows), ("x_mark", marks), ("past", past)))
    assert dataset.times is time


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64", "float32", "float64"])
@pytest.mark.parametrize("freq", [5, "infer"])
def test_numbers(dtype: str, freq: Any) -> None:
    first = -100 if dtype[0] == "i" else 100
    time = numpy.array([0, 5, 10, 25, 30, 100], dtype) + numpy.array(first, dtype)
    dataset = bl.WindowDataset(numpy.arange(6.0), 1, time=time, freq=freq, fill=-1)
    assert dataset.times.dtype == dtype
    assert dataset.times.tolist() == list(range(first, first + 101, 5))
    with refused(bl.DataError, "step 3 of series 0", str(first + 25), str(first + 10), str(first + 15), "fill="):
        bl.WindowDataset(numpy.arange(6.0), 1, time=time, freq=freq)


def test_numbers_that_are_rounded_are_on_the_grid() -> None:
    time = numpy.cumsum(numpy.full(10_000, 0.1))
    dataset = bl.WindowDataset(numpy.arange(9_999.0), 1, time=numpy.delete(time, 77), freq=0.1, fill="linear")
    numpy.testing.assert_allclose(dataset.times, time, rtol=1e-12)
    numpy.testing.assert_allclose(dataset.fields["x"][77], 76.5)


@pytest.mark.parametrize("unit", ["Y", "M", "W", "D", "h", "ns"])
def test_units_of_times(unit: str) -> None:
    steps = numpy.array([0, 1, 4, 5])
    time = numpy.array(["2023-11-01"], f"datetime64[{unit}]") + steps
    for freq in (numpy.timedelta64(1, unit), "infer"):
        dataset = bl.WindowDataset(numpy.arange(4.0), 1, time=time, freq=freq, fill="linear")
        numpy.testing.assert_array_equal(dataset.times, time[0] + numpy.arange(6))


@pytest.mark.parametrize("day", [28, 29, 30, 31])
def test_months_from_any_day(day: int) -> None:
    start = pandas.Timestamp(2023, 12, day, 6)
    index = pandas.DatetimeIndex([start + pandas.DateOffset(months=step) for step in range(30)])
    frame = pandas.DataFrame({"time": index, "a": numpy.arange(30.0)}).drop(index=[2, 3, 14, 15, 27])
    for freq in (numpy.timedelta64(1, "M"), "infer"):
        dataset = bl.WindowDataset(frame, 1, time="time", freq=freq, fill="linear")
        numpy.testing.assert_array_equal(dataset.times, index.to_numpy())
        numpy.testing.assert_allclose(dataset.fields["x"].ravel(), numpy.arange(30.0))


def zoned(times: list[datetime]) -> dict[str, Any]:
    """Return times with a zone, in every kind of frame, with a row for each."""
    index = pandas.Series(pandas.DatetimeIndex(times))
    values = numpy.arange(float(len(times)))
    return {
        "pandas": pandas.DataFrame({"time": index, "a": values}),
        "polars": polars.DataFrame({"time": index, "a": values}),
        "pyarrow": pyarrow.table({"time": pyarrow.array(index), "a": values}),
        "datetimes": {"time": times, "a": values},
    }


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "datetimes"])
def test_hours_are_absolute_and_days_are_those_of_the_wall(kind: str) -> None:
    zone = ZoneInfo("Europe/Berlin")
    hours = [datetime(2024, 3, 30, 23, tzinfo=ZoneInfo("UTC")) + timedelta(hours=step) for step in (0, 3)]
    frame = zoned([hour.astimezone(zone) for hour in hours])[kind]
    dataset = bl.WindowDataset(frame, 1, time="time", freq="h", fill="linear", marks="hour")
    assert dataset.fields["x_mark"].ravel().tolist() == [0, 1, 3, 4]
    days = [datetime(2024, 10, day, 6, tzinfo=zone) for day in (25, 26, 29)]
    dataset = bl.WindowDataset(zoned(days)[kind], 1, time="time", freq="D", fill="linear", marks=["day", "hour"])
    assert dataset.fields["x_mark"].tolist() == [[25, 6], [26, 6], [27, 6], [28, 6], [29, 6]]
    hours = numpy.diff(dataset.times).astype("timedelta64[h]").astype(int)
    assert hours.tolist() == [24, 25, 24, 24]


@pytest.mark.law("W3")
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca"])
@pytest.mark.parametrize("freq", ["h", "15min", "D", "W-SUN"])
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32), first=st.integers(0, 360))
def test_gaps_across_changes_of_summer_time(zone: str, freq: str, seed: int, first: int) -> None:
    start = datetime(2024, 1, 1) + timedelta(days=first)
    index = pandas.date_range(start, periods=202, freq=freq, tz=zone)
    # Few rows are kept, so that a gap may hold both changes of a year.
    frame = with_gaps(index, (numpy.random.default_rng(seed).random(200) < 0.1).tolist())
    dataset = bl.WindowDataset(frame, 1, id="id", time="time", freq=freq, fill="linear", marks=MARKS)
    expected = oracle(frame, index, "linear")
    numpy.testing.assert_array_equal(dataset.times, moments(expected["time"]))
    numpy.testing.assert_array_equal(dataset.fields["x_mark"], calendar(expected["time"]))


@pytest.mark.parametrize(("day", "often"), [("2024-03-31", "never"), ("2024-10-27", "twice")])
def test_a_step_that_clocks_do_not_show_once_is_an_error(day: str, often: str) -> None:
    days = pandas.DatetimeIndex([pandas.Timestamp(day) + pandas.Timedelta(f"{away}D") for away in (-1, 1)])
    frame = {"time": (days + pandas.Timedelta("150min")).tz_localize("Europe/Berlin"), "a": numpy.zeros(2)}
    with refused(bl.DataError, f"{day}T02:30:00", often, "Europe/Berlin"):
        bl.WindowDataset(frame, 1, time="time", freq="D", fill="forward")


DAYS = numpy.arange("2024-01-01", "2024-01-07", dtype="datetime64[D]")
WRONG = {
    "no time": ({"freq": "h"}, bl.ArgumentError, ["freq", "time="]),
    "fill alone": ({"time": DAYS, "fill": "zero"}, bl.ArgumentError, ["fill", "freq"]),
    "an unknown name": ({"time": DAYS, "freq": "fortnight"}, bl.ArgumentError, ["'fortnight'", "'h'", "'infer'"]),
    "no step": ({"time": DAYS, "freq": "0D"}, bl.ArgumentError, ["'0D'"]),
    "an anchor of another kind": ({"time": DAYS, "freq": "W-JAN"}, bl.ArgumentError, ["'W-JAN'"]),
    "an anchor of none": ({"time": DAYS, "freq": "D-MON"}, bl.ArgumentError, ["'D-MON'"]),
    "a number for datetimes": ({"time": DAYS, "freq": 3}, bl.ArgumentError, ["3"]),
    "a name for numbers": ({"time": numpy.arange(6), "freq": "h"}, bl.ArgumentError, ["'h'", "int64", "number"]),
    "a fraction of integers": ({"time": numpy.arange(6), "freq": 0.5}, bl.ArgumentError, ["0.5", "int64"]),
    "a negative number": ({"time": numpy.arange(6), "freq": -1}, bl.ArgumentError, ["-1"]),
    "NaN": ({"time": numpy.arange(6.0), "freq": numpy.nan}, bl.ArgumentError, ["nan"]),
    "a duration of nothing": ({"time": DAYS, "freq": numpy.timedelta64(0, "D")}, bl.ArgumentError, ["freq"]),
    "NaT": ({"time": DAYS, "freq": numpy.timedelta64("NaT", "D")}, bl.ArgumentError, ["freq"]),
    "a duration without unit": ({"time": DAYS, "freq": numpy.timedelta64(3)}, bl.ArgumentError, ["unit"]),
    "another weekday": ({"time": DAYS[::7], "freq": "W"}, bl.DataError, ["2024-01-01", "SUN", "'W-MON'"]),
    "no way": ({"time": DAYS, "freq": "D", "fill": "backward"}, bl.ArgumentError, ["'backward'", "'forward'"]),
    "a list of ways": ({"time": DAYS, "freq": "D", "fill": ["zero"]}, bl.ArgumentError, ["fill", "'zero'"]),
    "a way for one column": ({"time": DAYS, "freq": "D", "fill": {0: "zero"}}, bl.ArgumentError, ["1"]),
    "a column too many": (
        {"time": DAYS, "freq": "D", "fill": {0: "zero", 1: 3, 2: 4}},
        bl.ArgumentError,
        ["2"],
    ),
    "the same time": ({"time": DAYS.astype("datetime64[M]"), "freq": "MS"}, bl.DataError, ["step 1", "same time"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_frequencies_that_make_no_sense(name: str) -> None:
    options, kind, values = WRONG[name]
    steps = len(options.get("time", DAYS))
    with refused(kind, *values):
        bl.WindowDataset(numpy.zeros((steps, 2)), 1, **options)


@pytest.mark.parametrize(
    ("dtype", "way"),
    [("int64", "nan"), ("int64", "linear"), ("bool", "linear"), ("int8", 200), ("int64", 0.5), ("bool", 2)],
)
@pytest.mark.parametrize("kind", [numpy.asarray, torch.as_tensor])
def test_values_that_are_no_values_of_their_column(dtype: str, way: Any, kind: Any) -> None:
    rows = kind(numpy.zeros((6, 2), dtype))
    with refused(bl.DTypeError, repr(way), dtype):
        bl.WindowDataset(rows, 1, time=DAYS.astype("datetime64[D]") + numpy.arange(6), freq="D", fill=way)


def test_a_zone_is_one() -> None:
    times = ["2024-01-01T00:00+01:00", "2024-01-01T02:00+02:00", "2024-01-01T05:00+02:00"]
    options = {"time": times, "freq": "h", "fill": "zero"}
    assert bl.WindowDataset(numpy.zeros(3), 1, **options).filled.tolist() == [False, False, True, True, False]
    with refused(bl.DataError, "several time zones", "UTC+01:00", "UTC+02:00"):
        bl.WindowDataset(numpy.zeros(3), 1, **options, marks="hour")


def test_series_without_two_steps_have_no_frequency_to_infer() -> None:
    series, time = [numpy.zeros(1), numpy.zeros(1)], [DAYS[:1], DAYS[3:4]]
    with refused(bl.DataError, "'infer'", "two steps"):
        bl.WindowDataset(series, 1, time=time, freq="infer")
    assert bl.WindowDataset(series, 1, time=time, freq="D").filled.tolist() == [False, False]


def test_gaps_between_series_are_none() -> None:
    series = [numpy.zeros(0), numpy.zeros(2), numpy.zeros(0), numpy.zeros(1), numpy.zeros(3), numpy.zeros(0)]
    time = [DAYS[:0], DAYS[4:6], DAYS[:0], DAYS[1:2], DAYS[[0, 1, 3]], DAYS[:0]]
    for freq in ("D", numpy.timedelta64(24, "h"), "infer"):
        dataset = bl.WindowDataset(series, 1, time=time, freq=freq, fill="zero", short="drop")
        assert dataset.offsets.tolist() == [0, 0, 2, 2, 3, 7, 7]
        assert dataset.filled.tolist() == [False] * 5 + [True, False]
