"""Rows with separate times as users give them: forms, units, exactness, and each thing that is refused."""

import datetime

import batchloom as bl
import numpy
import pandas
import pyarrow
import pytest
import torch
from batchloom.dataset.base import samples_of
from refusals import refused as refusal


def refused(kind, make):
    """Return the message with which a call is refused."""
    with refusal(kind) as caught:
        make()
    return str(caught.value)


def listed(batch):
    return {name: numpy.asarray(values).tolist() for name, values in batch.items()}


def test_a_part_that_lacks_a_row_says_which_part():
    """Windows without a horizon lie in their part, and so do their rows: the day began before the part does."""
    time = numpy.arange("2024-01-01", "2024-01-04", dtype="datetime64[h]")
    days = numpy.arange("2024-01-01", "2024-01-04", dtype="datetime64[D]")
    hourly, zero = numpy.arange(72.0), [numpy.timedelta64(0, "h")]
    dataset = bl.WindowDataset(hourly, 4, time=time, timed={"daily": bl.Timed(days.astype(float), days, zero)})
    message = refused(bl.DataError, lambda: dataset.split(train=30, test=None))
    assert "part test: field daily has no row at 2024-01-02T09, for step 33 of series 0" in message
    assert "the closest is at 2024-01-03T00" in message
    dataset.split(train=48, test=None)
    bl.WindowDataset(hourly, 4, 2, time=time, timed={"daily": bl.Timed(days.astype(float), days, zero)}).split(
        train=30, test=None
    )


def test_forms_of_input_are_one():
    numbers, lengths = numpy.arange(7.0), [3, 4]
    steps, time = [numpy.zeros(5), numpy.zeros(6)], [numpy.arange(5), numpy.arange(6)]
    times = [numpy.array([0, 2, 4]), numpy.array([1, 2, 3, 5])]
    lists = [numbers[:3], numbers[3:]]
    offsets = numpy.array([0, 3, 7])
    arrow = pyarrow.array([part.tolist() for part in lists])
    ticks = pyarrow.array([part.tolist() for part in times])
    assert lengths == numpy.diff(offsets).tolist()
    forms = [
        (lists, times),
        ((numbers, offsets), (numpy.concatenate(times), offsets)),
        (lists, numpy.concatenate(times)),
        (arrow, ticks),
        (arrow, times),
        ([torch.from_numpy(part) for part in lists], [torch.from_numpy(part) for part in times]),
        ((numbers, offsets), [part.astype("float64").tolist() for part in times]),
        ((numbers, offsets), [part.astype("uint8") for part in times]),
        ((pandas.Series(numbers), offsets), (pandas.Series(numpy.concatenate(times)), offsets)),
    ]
    expected = None
    for values, ticks in forms:
        field = bl.Timed(values, ticks, offsets=(0, -1), missing="pad")
        dataset = bl.WindowDataset(steps, 2, time=time, timed={"row": field})
        batch = listed(next(iter(bl.DataLoader(dataset, 64))))
        expected = expected or batch
        assert batch == expected
    assert (expected["row"][0], expected["row_mask"][0]) == ([0, 0], [True, True])


def test_times_and_rows_are_borrowed():
    values, times = numpy.arange(100.0), numpy.arange(100.0)
    time = numpy.arange(50, dtype="float64")
    field = bl.Timed(values, times, offsets=[0.0, 0.5])
    dataset = bl.WindowDataset(numpy.zeros(50), 4, time=time, timed={"row": field})
    held = samples_of(dataset).series.timed["row"]
    assert numpy.shares_memory(held.times, times)
    assert held.field.array is values
    values += 1000
    assert next(iter(bl.DataLoader(dataset, 1)))["row"].tolist() == [[1003, 1003]]
    assert dataset.fields["row"] is values


def test_time_zones_are_those_of_the_dataset():
    time = pandas.date_range("2024-03-30", periods=48, freq="h", tz="Europe/Berlin")
    days = pandas.date_range("2024-03-30", periods=3, freq="D", tz="Europe/Berlin")
    field = bl.Timed(numpy.arange(3), days, [pandas.Timedelta(0)])
    dataset = bl.WindowDataset(numpy.zeros(48), 1, time=time, timed={"day": field})
    # The second day has 23 hours, as clocks are set forward.
    days_of = numpy.concatenate([batch["day"][:, 0] for batch in bl.DataLoader(dataset, 48)])
    assert numpy.bincount(days_of).tolist() == [24, 23, 1]
    naive = bl.Timed(numpy.arange(3), days.tz_localize(None), [pandas.Timedelta(0)])
    message = refused(bl.DataError, lambda: bl.WindowDataset(numpy.zeros(48), 1, time=time, timed={"day": naive}))
    assert "times of field day have no time zone; expected a time zone, as for time=" in message
    plain = time.tz_localize(None)
    message = refused(bl.DataError, lambda: bl.WindowDataset(numpy.zeros(48), 1, time=plain, timed={"day": field}))
    assert "have a time zone; expected no time zone" in message


def test_integers_are_exact_where_floats_are_not():
    """At 0.3 less 0.1 a float is less than 0.2; milliseconds are exact."""
    seconds, frames = numpy.arange(5) / 10, numpy.arange(5)
    last = bl.Timed(frames, seconds, [-0.1], missing="pad")
    dataset = bl.WindowDataset(numpy.zeros(5), 1, time=seconds, timed={"frame": last})
    assert dataset[3]["frame"].tolist() == [1]
    exact = bl.Timed(frames, (seconds * 1000).round().astype(int), [-100], missing="pad")
    time = (seconds * 1000).round().astype(int)
    dataset = bl.WindowDataset(numpy.zeros(5), 1, time=time, timed={"frame": exact})
    assert dataset[3]["frame"].tolist() == [2]
    near = bl.Timed(frames, seconds, [-0.1], match="nearest", missing="pad", tolerance=1e-4)
    dataset = bl.WindowDataset(numpy.zeros(5), 1, time=seconds, timed={"frame": near})
    assert dataset[3]["frame"].tolist() == [2]
    assert dataset[0]["frame_mask"].tolist() == [False]
    # Whole floats beside integers are integers, however large those are.
    large = 2**60 + numpy.arange(5)
    dataset = bl.WindowDataset(
        numpy.zeros(5), 1, time=large, timed={"frame": bl.Timed(frames, large, [-1.0], missing="pad")}
    )
    assert [dataset[step]["frame"].item() for step in range(5)] == [0, 0, 1, 2, 3]


def test_datetimes_of_any_unit_are_exact():
    time = numpy.datetime64("2024-01-01T00:00:00.000000001", "ns") + numpy.arange(3).astype("timedelta64[s]")
    times = numpy.array(["2024-01-01T00:00:00", "2024-01-01T00:00:02"], "datetime64[s]")
    field = bl.Timed([0, 1], times, [numpy.timedelta64(0, "ms"), numpy.timedelta64(-2, "ns")], missing="pad")
    dataset = bl.WindowDataset(numpy.zeros(3), 1, time=time, timed={"row": field})
    assert [dataset[step]["row"].tolist() for step in range(3)] == [[0, 0], [0, 0], [1, 0]]
    assert dataset[0]["row_mask"].tolist() == [True, False]
    months = numpy.array(["2023-12", "2024-01"], "datetime64[M]")
    field = bl.Timed([0, 1], months, [numpy.timedelta64(0, "D")])
    dataset = bl.WindowDataset(numpy.zeros(3), 1, time=time, timed={"row": field})
    assert dataset[0]["row"].tolist() == [1]


SERIES = numpy.zeros(8)
TIME = numpy.arange(8)


def build(field, time=TIME, name="image", **more):
    return lambda: bl.WindowDataset(SERIES, 2, time=time, timed={name: field}, **more)


ROWS, TICKS = numpy.arange(3), numpy.arange(3)
DAYS = numpy.arange("2024-01-01", "2024-01-09", dtype="datetime64[D]")
WRONG = {
    "no time": (build(bl.Timed(ROWS, TICKS, [0]), None), bl.ArgumentError, ["field image", "expected time="]),
    "no dict": (
        lambda: bl.WindowDataset(SERIES, 2, time=TIME, timed=[1]),
        bl.ArgumentError,
        ["timed is a list", "expected a dict of bl.Timed"],
    ),
    "a dict": (build({"values": ROWS}), bl.ArgumentError, ["a dict for 'image'", "expected a bl.Timed"]),
    "a name that is no text": (build(bl.Timed(ROWS, TICKS, [0]), name=3), bl.ArgumentError, ["names a field 3"]),
    "a name twice": (build(bl.Timed(ROWS, TICKS, [0]), name="x"), bl.ArgumentError, ["named x, which is taken"]),
    "a mask twice": (
        lambda: bl.WindowDataset(
            SERIES,
            2,
            time=TIME,
            past={"row_mask": SERIES},
            timed={"row": bl.Timed(ROWS, TICKS, [0], missing="pad")},
        ),
        bl.ArgumentError,
        ["named row_mask, which is taken", "'row'"],
    ),
    "the name of a place": (
        build(bl.Timed(ROWS, TICKS, [0]), name="time", index=True),
        bl.ArgumentError,
        ["named time, which is taken"],
    ),
    "another number of series": (
        build(bl.Timed([ROWS, ROWS], [TICKS, TICKS], [0])),
        bl.DataError,
        ["field image has rows of 2 series, and the dataset has 1"],
    ),
    "times of other rows": (
        build(bl.Timed(ROWS, TICKS[:2], [0])),
        bl.DataError,
        ["times of field image are 2; expected 3"],
    ),
    "times of other series": (
        build(bl.Timed([ROWS], [TICKS[:2], TICKS[:1]], [0])),
        bl.DataError,
        ["times of field image are of series of lengths [2, 1]; expected [3]"],
    ),
    "times that do not grow": (
        build(bl.Timed(ROWS, [0, 2, 2], [0])),
        bl.DataError,
        ["times of field image: row 2 of series 0 has the same time as the row before it: 2 after 2"],
    ),
    "a time that is missing": (
        build(bl.Timed(ROWS, [0, numpy.nan, 2], [0])),
        bl.DataError,
        ["times of field image: row 1 of series 0 has no time"],
    ),
    "a time without end": (
        build(bl.Timed(ROWS, [0, 1, numpy.inf], [0])),
        bl.DataError,
        ["times of field image: row 2 of series 0 is at inf; expected finite times"],
    ),
    "datetimes beside numbers": (
        build(bl.Timed(ROWS, DAYS[:3], [numpy.timedelta64(0, "D")])),
        bl.DTypeError,
        ["times of field image are datetimes, and time= has numbers"],
    ),
    "numbers beside datetimes": (
        build(bl.Timed(ROWS, TICKS, [0]), DAYS),
        bl.DTypeError,
        ["times of field image are numbers, and time= has datetimes"],
    ),
    "numbers for datetimes": (
        build(bl.Timed(ROWS, DAYS[:3], [0]), DAYS),
        bl.ArgumentError,
        ["offsets of field image are numbers, and its times are datetimes; expected timedeltas"],
    ),
    "timedeltas for numbers": (
        build(bl.Timed(ROWS, TICKS, [numpy.timedelta64(0, "D")])),
        bl.ArgumentError,
        ["offsets of field image are timedeltas, and its times are numbers; expected numbers"],
    ),
    "months of no length": (
        build(bl.Timed(ROWS, DAYS[:3], [numpy.timedelta64(1, "M")]), DAYS),
        bl.DataError,
        ["months have no fixed length"],
    ),
    "texts": (build(bl.Timed(ROWS, ["a", "b", "c"], [0])), bl.DTypeError, ["times of field image", "expected numbers"]),
    "integers that no float holds": (
        build(bl.Timed(ROWS, 2**60 + TICKS, [0.5])),
        bl.DataError,
        ["times of field image has 1152921504606846976, which floats do not hold exactly"],
    ),
    "years that no nanosecond reaches": (
        build(
            bl.Timed(ROWS, numpy.array(["0001", "2024", "2500"], "datetime64[Y]"), [numpy.timedelta64(0, "ns")]), DAYS
        ),
        bl.DataError,
        ["times of field image", "datetime64[ns]"],
    ),
    "no row": (
        build(bl.Timed(ROWS, TICKS + 3, [-1, 0])),
        bl.DataError,
        [
            "field image has no row at 0, for step 1 of series 0: the closest is at 3 (5 of 14 rows are missing)",
            'expected a row there, missing="pad"',
        ],
    ),
    "a row too far": (
        build(bl.Timed(ROWS, TICKS, [0], tolerance=1)),
        bl.DataError,
        ["no row at 4 within 1, for step 4 of series 0", "at 2 (4 of 7 rows are missing)", "or a larger tolerance"],
    ),
    "no rows": (build(bl.Timed(ROWS[:0], TICKS[:0], [0])), bl.DataError, ["there is no row at all (7 of 7 rows"]),
    "a scalar": (build(bl.Timed(numpy.array(3), TICKS, [0])), bl.DataError, ["image is a scalar"]),
    "no offset": (lambda: bl.Timed(ROWS, TICKS, []), bl.ArgumentError, ["offsets is empty"]),
    "an offset that is no number": (lambda: bl.Timed(ROWS, TICKS, [0, numpy.nan]), bl.ArgumentError, ["has nan"]),
    "an offset without end": (lambda: bl.Timed(ROWS, TICKS, [-numpy.inf]), bl.ArgumentError, ["has -inf"]),
    "an offset that is no time": (
        lambda: bl.Timed(ROWS, TICKS, [numpy.timedelta64("NaT", "s")]),
        bl.ArgumentError,
        ["has NaT"],
    ),
    "an offset without a unit": (lambda: bl.Timed(ROWS, TICKS, [numpy.timedelta64(3)]), bl.ArgumentError, ["a unit"]),
    "offsets of two kinds": (
        lambda: bl.Timed(ROWS, TICKS, [0, datetime.timedelta(0)]),
        bl.ArgumentError,
        ["numbers and timedeltas"],
    ),
    "an offset that is a text": (lambda: bl.Timed(ROWS, TICKS, "now"), bl.ArgumentError, ["offsets is 'now'"]),
    "offsets that are texts": (lambda: bl.Timed(ROWS, TICKS, ["now"]), bl.ArgumentError, ["expected numbers"]),
    "offsets that are flags": (lambda: bl.Timed(ROWS, TICKS, [True]), bl.ArgumentError, ["type bool"]),
    "a negative tolerance": (
        lambda: bl.Timed(ROWS, TICKS, [0], tolerance=-0.5),
        bl.ArgumentError,
        ["tolerance is -0.5; expected a distance of at least 0"],
    ),
    "a tolerance that is no number": (
        lambda: bl.Timed(ROWS, TICKS, [0], tolerance=numpy.nan),
        bl.ArgumentError,
        ["tolerance has nan"],
    ),
    "several tolerances": (lambda: bl.Timed(ROWS, TICKS, [0], tolerance=[1, 2]), bl.ArgumentError, ["has 2 values"]),
    "a tolerance of another kind": (
        lambda: bl.Timed(ROWS, TICKS, [0], tolerance=datetime.timedelta(1)),
        bl.ArgumentError,
        ["tolerance is a timedelta and each offset a number"],
    ),
    "an unknown match": (lambda: bl.Timed(ROWS, TICKS, [0], match="next"), bl.ArgumentError, ["match is 'next'"]),
    "an unknown treatment": (
        lambda: bl.Timed(ROWS, TICKS, [0], missing="zero"),
        bl.ArgumentError,
        ["missing is 'zero'"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_one_line(name):
    make, error, words = WRONG[name]
    message = refused(error, make)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_padding_of_rows_that_are_never_missing_is_refused():
    dataset = build(bl.Timed(ROWS, TICKS, [0]))()
    message = refused(bl.ArgumentError, lambda: bl.DataLoader(dataset, 2, fields={"image": bl.Field(pad=7)}))
    assert "one shape" in message


def test_names_of_series_are_in_errors():
    frame = {
        "store": numpy.repeat(["north", "south"], 4),
        "day": numpy.tile(numpy.arange(4), 2),
        "sold": numpy.zeros(8),
    }
    timed = {"price": bl.Timed([[1.0], []], [[0], []], [0])}
    message = refused(bl.DataError, lambda: bl.WindowDataset(frame, 2, id="store", time="day", timed=timed))
    assert "step 1 of series 1 ('south'), and there is no row at all (3 of 6 rows are missing)" in message
    timed = {"price": bl.Timed([[1.0, 2.0], [1.0, 2.0]], [[0, 1], [1, 0]], [0])}
    message = refused(bl.DataError, lambda: bl.WindowDataset(frame, 2, id="store", time="day", timed=timed))
    assert "row 1 of series 1 ('south') has an earlier time than the row before it" in message


def test_counts_hold_the_rows():
    stats = build(bl.Timed(numpy.zeros((3, 5), "float32"), TICKS, [0, -1, 0], missing="pad"))().stats(4)
    assert stats.series_bytes == 8 * 8 + 3 * 5 * 4
    assert stats.gathered_bytes == 4 * (2 * 8 + 3 * 5 * 4)


def test_a_field_says_what_it_is():
    field = bl.Timed([1.0], [0], [0.5], match="nearest", tolerance=0.25)
    assert repr(field) == "Timed(list, offsets=[0.5], match='nearest', tolerance=[0.25], missing='error')"
    with pytest.raises(ValueError, match="read-only"):
        field.offsets[0] = 1
