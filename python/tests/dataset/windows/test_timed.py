"""Rows with times of their own beside windows: the row that is valid at the time of a sample, against a look at all."""

import datetime
import itertools
import pickle

import batchloom as bl
import numpy
import pandas
import pyarrow
import pytest
import torch
from batchloom.dataset.base import samples_of
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.runs import few, resume_after
from oracles.timed import Clock, clocked
from oracles.windows import Shape, pretended
from refusals import refused as refusal

ORDERS = st.sampled_from([False, "runs", True])

# The ways in which batches are made: on the host, and on a device that is pretended.
WAYS = {
    "host": {},
    "one thread": {"num_threads": 1, "prefetch": 0},
    "own": {"buffers": "own"},
    "checked": {"buffers": "checked"},
    "cpu": {"device": "cpu", "resident": True},
    "torch": {"output": "torch"},
    "resident": {"output": "torch", "resident": True},
    "streamed": {"output": "torch", "resident": False},
    "sharded": {"output": "torch", "resident": 1 << 20, "shard_size": 8},
    "device": {"device": "meta", "output": "torch", "resident": True},
    "device streamed": {"device": "meta", "output": "torch", "resident": False},
    "device sharded": {"device": "meta", "output": "torch", "resident": 1 << 20, "shard_size": 8},
    "device own": {"device": "meta", "output": "torch", "buffers": "own"},
    "device static": {"device": "meta", "output": "torch", "buffers": "static", "drop_last": True},
}
ways = st.sampled_from(list(WAYS))


def refused(kind, make):
    """Return the message with which a call is refused."""
    with refusal(kind) as caught:
        make()
    return str(caught.value)


def loader_of(dataset, way, batch_size, **options):
    """A loader in one of the ways."""
    given = WAYS[way] | options
    if "shard_size" in given:
        given["shard_size"] = max(given["shard_size"], batch_size)
    with pretended():
        return bl.DataLoader(dataset, batch_size, **given)


def check(case, dataset, batch, samples, bounds=None, pad=0):
    """Check all fields of a batch against their definition."""
    places = [dataset.place(sample) for sample in samples]
    places = [(place.series, place.start + place.missing, place.missing) for place in places]
    rows, mask = case.batch(places, bounds, pad)
    found = numpy.asarray(batch["row"])
    assert found.shape == rows.shape
    assert numpy.array_equal(found, rows), (found.tolist(), rows.tolist())
    if case.clock.missing == "pad":
        assert numpy.array_equal(numpy.asarray(batch["row_mask"]), mask)
    for name, values in zip(("x", "y"), case.shape.stack_places(places), strict=False):
        assert numpy.array_equal(numpy.asarray(batch[name]), values)


@pytest.mark.law("L8", "L9")
@given(case=clocked(), order=ORDERS, size=st.integers(1, 9), way=ways)
def test_batches_hold_the_rows_of_their_times(case, order, size, way):
    dataset = case.dataset()
    assert dataset.names[-2:] == ("row", "row_mask")
    loader = loader_of(dataset, way, size, shuffle=order)
    assume(len(loader))
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        assert tuple(batch) == dataset.names
        check(case, dataset, batch, samples.tolist())


@pytest.mark.law("L9")
@given(case=clocked(missing="error", short="drop", whole=True), order=ORDERS, way=ways)
def test_without_missing_rows_batches_hold_no_mask(case, order, way):
    dataset = case.dataset()
    for samples, batch in zip(dataset_plan(dataset, order), loader_of(dataset, way, 4, shuffle=order), strict=False):
        assert "row_mask" not in batch
        check(case, dataset, batch, samples.tolist())


def dataset_plan(dataset, order):
    return bl.DataLoader(dataset, 4, shuffle=order).plan(0)


@given(case=clocked(), as_list=st.booleans(), kind=st.sampled_from(["numpy", "torch"]))
def test_a_sample_is_a_batch_of_one(case, as_list, kind):
    values = case.clock.values()
    dataset = case.dataset(torch.from_numpy(values) if kind == "torch" else None, as_list)
    dataset = pickle.loads(pickle.dumps(dataset))
    for sample, batch in enumerate(bl.DataLoader(dataset, 1)):
        one = dataset[sample]
        assert list(one) == list(batch)
        assert [type(one[name]) for name in one] == [type(batch[name]) for name in one]
        assert all(numpy.array_equal(one[name], batch[name][0]) for name in one)
        assert isinstance(batch["row_mask"], torch.Tensor if kind == "torch" else numpy.ndarray)


@given(case=clocked(short="drop", whole=True))
def test_a_missing_row_is_an_error_that_counts_all(case):
    missing = case.missing()
    case = case.replaced(missing="error")
    if not missing:
        assert len(case.dataset()) == len(case.shape.windows())
        return
    message = refused(bl.DataError, case.dataset)
    first = next(place for place in case.shape.windows() if 0 in case.rows(place))
    all = len(dict.fromkeys(case.shape.windows())) * len(case.clock.offsets)
    step = first[1] - first[2] + case.shape.input_len - 1
    assert f"for step {step} of series {first[0]}" in message
    assert f"({missing} of {all} row" in message
    rows = case.clock.times[first[0]]
    assert ("the closest is at" in message) == bool(rows)


@pytest.mark.law("W1")
@given(
    case=clocked(sampled_by="windows"),
    ends=st.lists(st.integers(1, 14), min_size=1, max_size=2).map(sorted),
    reach_back=st.booleans(),
    way=st.sampled_from(["host", "resident", "device streamed"]),
    by_time=st.booleans(),
)
def test_parts_see_no_row_from_their_end_on(case, ends, reach_back, way, by_time):
    parts = {f"part{number}": end for number, end in enumerate(ends)} | {"rest": None}
    try:
        split = case.dataset().split(**parts, reach_back=reach_back)
    except bl.Error:
        assume(False)
    begin = 0
    for part, end in itertools.zip_longest(split, ends):
        reaches = reach_back and case.shape.horizon > 0
        bounds = [
            (
                steps[begin] if 0 < begin < len(steps) and not reaches else None,
                steps[end] if end is not None and end < len(steps) else None,
            )
            for steps in case.steps
        ]
        again = pickle.loads(pickle.dumps(part))
        loader = loader_of(again, way, 4, shuffle=True)
        for samples, batch in zip(loader.plan(0), loader, strict=True):
            check(case, part, batch, samples.tolist(), bounds)
        for sample in range(len(part)):
            assert numpy.array_equal(numpy.asarray(part[sample]["row"]), again[sample]["row"])
        begin = end


@pytest.mark.law("W1")
@given(case=clocked(sampled_by="windows", short="drop"), end=st.integers(1, 13))
def test_a_part_is_what_its_series_would_be_without_their_future(case, end):
    """The first part of a split holds what a dataset of truncated series and truncated rows holds."""
    assume(all(length > end for length in case.shape.lengths))
    try:
        first, _ = case.dataset().split(first=end, rest=None)
        known = type(case)(
            Shape(**{**vars(case.shape), "lengths": tuple(end for _ in case.shape.lengths)}),
            tuple(steps[:end] for steps in case.steps),
            case.replaced(
                times=tuple(
                    tuple(time for time in times if time < steps[end])
                    for times, steps in zip(case.clock.times, case.steps, strict=True)
                )
            ).clock,
        )
        expected = known.dataset()
    except bl.Error:
        assume(False)
    # Rows are numbered in the whole data: compare the masks, which numbers do not change.
    assert len(first) == len(expected)
    for one, other in zip(first, expected, strict=True):
        assert numpy.array_equal(one["row_mask"], other["row_mask"])


@pytest.mark.law("L4")
@few
@given(case=clocked(), order=ORDERS, size=st.integers(1, 5), way=ways, other=ways, stop=st.integers(0, 20))
def test_a_run_goes_on_with_the_same_rows(case, order, size, way, other, stop):
    dataset = case.dataset()
    options = {"shuffle": order, "seed": 3, "drop_last": True}
    batches = [listed(batch) for batch in loader_of(dataset, way, size, **options)]
    assume(batches)
    stop %= len(batches)
    resumed = resume_after(lambda: loader_of(dataset, other, size, **options), stop)
    assert [listed(batch) for batch in resumed] == batches[stop:]


@pytest.mark.law("L1")
@few
@given(case=clocked(), world_size=st.integers(1, 3), order=ORDERS, way=ways)
def test_ranks_share_the_rows(case, world_size, order, way):
    dataset = case.dataset()
    whole = [listed(batch) for batch in bl.DataLoader(dataset, 2, shuffle=order)]
    options = {"shuffle": order, "world_size": world_size, "uneven": "short", "drop_last": False}
    assume("static" not in way)
    ranks = [[listed(batch) for batch in loader_of(dataset, way, 2, rank=rank, **options)] for rank in range(world_size)]
    dealt = [batch for step in itertools.zip_longest(*ranks) for batch in step if batch is not None]
    assert dealt == whole


def listed(batch):
    return {name: numpy.asarray(values).tolist() for name, values in batch.items()}


@pytest.mark.law("L9")
@given(case=clocked(sampled_by="windows"), order=ORDERS, way=ways, data=st.data())
def test_selections_keep_their_rows(case, order, way, data):
    dataset = case.dataset(index=True)
    chosen = data.draw(st.lists(st.integers(0, len(dataset) - 1), min_size=1, max_size=12))
    selected = dataset.select(chosen)
    loader = loader_of(selected, way, 3, shuffle=order)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        assert numpy.asarray(batch["index"]).tolist() == samples.tolist()
        check(case, selected, batch, samples.tolist())


@given(first=clocked(), second=clocked(), order=ORDERS)
def test_datasets_are_put_together(first, second, order):
    one = first.replaced(width=())
    other = type(second)(second.shape, second.steps, second.replaced(offsets=one.clock.offsets, width=()).clock)
    assume(one.shape.input_len == other.shape.input_len and one.shape.horizon + one.shape.label_len == 0)
    assume(other.shape.horizon == 0 and one.shape.short == other.shape.short)
    both = one.dataset().concat(other.dataset())
    loader = bl.DataLoader(both, 3, shuffle=order)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        for place, sample in enumerate(samples.tolist()):
            source, number = both.origin(sample)
            case, dataset = [(one, one.dataset()), (other, other.dataset())][source]
            check(case, dataset, {name: values[place : place + 1] for name, values in batch.items()}, [number])


def test_a_mixture_draws_windows_with_rows():
    case = Clock(((0, 3), (1, 2, 9)), (-1, 0))
    parts = [robot(clock=case, start=start) for start in (0, 100)]
    mixture = bl.Mixture({"a": parts[0], "b": parts[1]}, weights={"a": 0.5, "b": 0.5})
    loader = bl.DataLoader(mixture, 4, shuffle=True)
    batch = next(iter(loader))
    assert batch["row"].shape == (4, 2) and batch["row_mask"].shape == (4, 2)


def robot(clock, start=0, **more):
    """Two episodes of eight and ten steps, a tick apart, with rows beside the steps around an anchor."""
    lengths = [8, 10]
    state = [numpy.arange(length) + start for length in lengths]
    time = [numpy.arange(length) for length in lengths]
    return bl.WindowDataset(
        {"state": state, "action": state},
        time=time,
        offsets={"state": [-1, 0], "action": range(3)},
        timed={"row": clock.timed()},
        **more,
    )


@pytest.mark.law("L8")
@given(
    clock=st.builds(
        Clock,
        st.tuples(*[st.sets(st.integers(-4, 14), max_size=9).map(sorted).map(tuple)] * 2),
        st.lists(st.integers(-9, 9), min_size=1, max_size=4).map(tuple),
        st.sampled_from(["last", "nearest"]),
        st.none() | st.integers(0, 4),
    ),
    short=st.sampled_from(["drop", "pad"]),
    order=ORDERS,
    way=ways,
    stride=st.integers(1, 3),
)
def test_steps_around_an_anchor_have_rows_at_its_time(clock, short, order, way, stride):
    dataset = robot(clock, short=short, index=True, stride=stride)
    names = list(dataset.names)
    assert names.index("row") + 1 == names.index("row_mask") == names.index("series") - 1
    for batch in loader_of(dataset, way, 5, shuffle=order):
        assert list(batch) == names
        for place, (series, step) in enumerate(zip(batch["series"].tolist(), batch["step"].tolist(), strict=True)):
            expected = clock.row(series, step)
            assert batch["row"][place].tolist() == expected
            assert batch["row_mask"][place].tolist() == [row > 0 for row in expected]
            assert batch["time"][place] == step
            assert batch["state"][place].tolist()[1] == step


@given(case=clocked(), pad=st.sampled_from([0, 7, -1]), way=ways, own=st.booleans())
def test_missing_rows_are_padded_as_asked(case, pad, way, own):
    dataset = case.dataset()
    padded = {"fields": {"row": bl.Field(pad=pad)}} if own else {"pad_value": pad}
    loader = loader_of(dataset, way, 3, shuffle=True, **padded)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        places = [dataset.place(sample) for sample in samples.tolist()]
        places = [(place.series, place.start + place.missing, place.missing) for place in places]
        rows, _ = case.batch(places, pad=pad)
        assert numpy.array_equal(numpy.asarray(batch["row"]), rows)


@given(case=clocked(), way=ways, order=ORDERS)
def test_edges_repeat_the_row_without_its_tolerance(case, way, order):
    dataset = case.dataset()
    loader = loader_of(dataset, way, 3, shuffle=order, fields={"row": bl.Field(pad="edge")})
    without = case.replaced(tolerance=None)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        for place, sample in enumerate(samples.tolist()):
            series, start, missing = dataset.place(sample)
            here = (series, start + missing, missing)
            before = sum(map(len, case.clock.times[:series]))
            first = before + 1 if case.clock.times[series] else 0
            expected = [row or first for row in without.rows(here)]
            found = numpy.asarray(batch["row"])[place].reshape(len(case.clock.offsets), -1)
            assert [set(row.tolist()) for row in found] == [{row} for row in expected]
            mask = [row > 0 for row in case.rows(here)]
            assert numpy.asarray(batch["row_mask"])[place].tolist() == mask


@given(case=clocked(), way=ways, pad=st.sampled_from([0, -5, "edge"]))
def test_rows_are_converted_and_padding_is_not(case, way, pad):
    dataset = case.dataset()
    options = {"fields": {"row": bl.Field(dtype="float32", scale=0.5, mean=1.0, pad=pad)}}
    loader = loader_of(dataset, way, 3, shuffle=True, **options)
    plain = bl.DataLoader(dataset, 3, shuffle=True, drop_last=loader.plan(0).stats()["dropped"] > 0, fields={"row": bl.Field(pad=pad)})
    for batch, stored in zip(loader, plain, strict=True):
        rows = stored["row"].astype("float32")
        is_data = stored["row_mask"].reshape(*stored["row_mask"].shape, *(1 for _ in case.clock.width))
        if pad == "edge":
            is_data = rows != 0
        assert numpy.array_equal(numpy.asarray(batch["row"]), numpy.where(is_data, rows * 0.5 - 1, rows))


def test_masks_are_extras_that_a_loader_may_leave_out():
    dataset = robot(Clock(((0, 3), ()), (-1, 0)), short="pad", index=True)
    for way in WAYS:
        loader = loader_of(dataset, way, 4, extras=("index",))
        assert list(next(iter(loader))) == ["state", "action", "row", "index"]
        loader = loader_of(dataset, way, 4, extras=("row_mask",))
        assert list(next(iter(loader))) == ["state", "action", "row", "row_mask"]


def test_batches_of_jax():
    jax = pytest.importorskip("jax")
    dataset = bl.WindowDataset(
        numpy.arange(12, dtype="float32"),
        3,
        1,
        time=numpy.arange(12),
        timed={"row": bl.Timed(numpy.arange(4, dtype="float32"), [2, 4, 6, 8], [-2, 0], missing="pad")},
    )
    for options in ({"output": "jax"}, {"output": "jax", "device": jax.devices("cpu")[0]}):
        loader = bl.DataLoader(dataset, 3, **options)
        assert all(isinstance(values, jax.Array) for batch in loader for values in batch.values())
        rows = numpy.concatenate([batch["row"] for batch in loader]).tolist()
        assert rows[:4] == [[0, 0], [0, 0], [0, 1], [0, 1]]


def test_scales_and_backtests_keep_the_rows():
    time = numpy.arange("2024-01-01", "2024-01-11", dtype="datetime64[h]")
    days = numpy.arange("2024-01-01", "2024-01-11", dtype="datetime64[D]")
    daily = bl.Timed(numpy.arange(10.0), days, [numpy.timedelta64(0, "D"), datetime.timedelta(days=1)])
    hourly = numpy.arange(240.0)
    dataset = bl.WindowDataset(hourly, 24, 6, time=time, timed={"daily": daily})
    for batch in bl.DataLoader(dataset.scale("standard"), 32):
        last = numpy.asarray(bl.DataLoader(dataset, 32).dataset is not None) * 0 + batch["daily"]
        assert (last[:, 1] >= last[:, 0]).all() and (last[:, 1] - last[:, 0] <= 1).all()
    for train, test in dataset.backtest(24, start=0.6, scale="standard"):
        origin = test.place(0).start + 24
        # No window to train on sees the row of the day on which the test part begins, or a later one.
        assert max(batch["daily"].max() for batch in bl.DataLoader(train, 64)) <= (origin - 1) // 24
        assert max(batch["daily"].max() for batch in bl.DataLoader(test, 64)) <= (origin + 23) // 24


def test_a_part_that_lacks_a_row_says_which_part():
    """Windows without a horizon lie in their part, and so do their rows: the day began before the part does."""
    time = numpy.arange("2024-01-01", "2024-01-04", dtype="datetime64[h]")
    days = numpy.arange("2024-01-01", "2024-01-04", dtype="datetime64[D]")
    hourly, zero = numpy.arange(72.0), [numpy.timedelta64(0, "h")]
    dataset = bl.WindowDataset(hourly, 4, time=time, timed={"daily": bl.Timed(days.astype(float), days, zero)})
    message = refused(bl.DataError, lambda: dataset.split(train=30, test=None))
    assert "part test: field daily has no row at 2024-01-02T09, for step 33 of series 0" in message
    assert "the closest is at 2024-01-03T00" in message and 'missing="pad"' in message
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
    for values, given in forms:
        field = bl.Timed(values, given, offsets=(0, -1), missing="pad")
        dataset = bl.WindowDataset(steps, 2, time=time, timed={"row": field})
        batch = listed(next(iter(bl.DataLoader(dataset, 64))))
        expected = expected or batch
        assert batch == expected
    assert expected["row"][0] == [0, 0] and expected["row_mask"][0] == [True, True]


def test_times_and_rows_are_borrowed():
    values, times = numpy.arange(100.0), numpy.arange(100.0)
    time = numpy.arange(50, dtype="float64")
    field = bl.Timed(values, times, offsets=[0.0, 0.5])
    dataset = bl.WindowDataset(numpy.zeros(50), 4, time=time, timed={"row": field})
    held = samples_of(dataset).series.timed["row"]
    assert numpy.shares_memory(held.times, times) and held.field.array is values
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
    assert dataset[3]["frame"].tolist() == [2] and dataset[0]["frame_mask"].tolist() == [False]
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
        ["times of field image has 1152921504606846976, which no float holds exactly"],
    ),
    "years that no nanosecond reaches": (
        build(bl.Timed(ROWS, numpy.array(["0001", "2024", "2500"], "datetime64[Y]"), [numpy.timedelta64(0, "ns")]), DAYS),
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
    frame = {"store": numpy.repeat(["north", "south"], 4), "day": numpy.tile(numpy.arange(4), 2), "sold": numpy.zeros(8)}
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
