"""Rows with separate times beside windows: the row that is valid at the time of a sample, against a look at all."""

import datetime
import itertools
import pickle
from dataclasses import replace

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.runs import few, resume_after
from oracles.timed import Clock, Clocked, clocked
from oracles.windows import pretended
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
    "sharded": {"output": "torch", "resident": 1 << 20},
    "device": {"device": "meta", "output": "torch", "resident": True},
    "device streamed": {"device": "meta", "output": "torch", "resident": False},
    "device sharded": {"device": "meta", "output": "torch", "resident": 1 << 20},
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
    batch_size = min(batch_size, len(dataset)) if given.get("drop_last") else batch_size
    if "sharded" in way:
        given["shard_size"] = 2 * batch_size
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
    loader = loader_of(dataset, way, 4, shuffle=order)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        assert "row_mask" not in batch
        check(case, dataset, batch, samples.tolist())


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
@given(case=clocked(sampled_by="windows", lengths=(9, 11), stride=1), end=st.integers(5, 8))
def test_a_part_is_what_its_series_would_be_without_their_future(case, end):
    """The first part of a split holds what a dataset of truncated series and truncated rows holds."""
    known = Clocked(
        replace(case.shape, lengths=(end, end)),
        tuple(steps[:end] for steps in case.steps),
        replace(
            case.clock,
            times=tuple(
                tuple(time for time in times if time < steps[end])
                for times, steps in zip(case.clock.times, case.steps, strict=True)
            ),
        ),
    )
    try:
        first, _ = case.dataset().split(first=end, rest=None)
    except bl.Error:
        assume(False)
    expected = known.dataset()
    assert len(first) == len(expected)
    # Rows are numbered over all series: those of the second one begin with another number.
    later = len(case.clock.times[0]) - len(known.clock.times[0])
    for sample in range(len(first)):
        one, other = first[sample], expected[sample]
        shift = numpy.where(other["row"] > 0, later * first.place(sample).series, 0)
        assert numpy.array_equal(one["row"], other["row"] + shift)
        assert numpy.array_equal(one["row_mask"], other["row_mask"])


@pytest.mark.law("L4")
@few
@given(case=clocked(), order=ORDERS, size=st.integers(1, 5), way=ways, other=ways, stop=st.integers(0, 20))
def test_a_run_goes_on_with_the_same_rows(case, order, size, way, other, stop):
    dataset = case.dataset()
    options = {"shuffle": order, "seed": 3, "drop_last": True}
    if "sharded" in way or "sharded" in other:
        options["shard_size"] = 2 * min(size, len(dataset))
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
    whole = [listed(batch) for batch in loader_of(dataset, way, 2, shuffle=order)]
    options = {"shuffle": order, "world_size": world_size, "uneven": "short", "drop_last": False}
    assume("static" not in way)
    ranks = [
        [listed(batch) for batch in loader_of(dataset, way, 2, rank=rank, **options)] for rank in range(world_size)
    ]
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


@given(case=clocked(), order=ORDERS)
def test_datasets_are_put_together(case, order):
    """A dataset and the same series in reverse order: samples of both share batches."""
    turned = Clocked(
        replace(case.shape, lengths=case.shape.lengths[::-1]),
        case.steps[::-1],
        replace(case.clock, times=case.clock.times[::-1]),
    )
    cases = [(each, each.dataset()) for each in (case, turned)]
    both = cases[0][1].concat(cases[1][1])
    loader = bl.DataLoader(both, 3, shuffle=order)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        for place, sample in enumerate(samples.tolist()):
            source, number = both.origin(sample)
            one = {name: values[place : place + 1] for name, values in batch.items()}
            check(*cases[source], one, [number])


def test_a_mixture_draws_windows_with_rows():
    case = Clock(((0, 3), (1, 2, 9)), (-1, 0))
    parts = [robot(clock=case, start=start) for start in (0, 100)]
    mixture = bl.Mixture({"a": parts[0], "b": parts[1]}, weights={"a": 0.5, "b": 0.5})
    loader = bl.DataLoader(mixture, 4, shuffle=True)
    batch = next(iter(loader))
    assert batch["row"].shape == batch["row_mask"].shape == (4, 2)


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
    loader = loader_of(dataset, way, 3, shuffle=True, drop_last=True, **options)
    stored = {"shuffle": True, "drop_last": True, "shard_size": loader.placement.shard_size}
    plain = loader_of(dataset, "host", 3, **stored, fields={"row": bl.Field(pad=pad)})
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
        assert set((batch["daily"][:, 1] - batch["daily"][:, 0]).tolist()) <= {0, 1}
    for train, test in dataset.backtest(24, start=0.6, scale="standard"):
        origin = test.place(0).start + 24
        # No window to train on sees the row of the day on which the test part begins, or a later one.
        assert max(batch["daily"].max() for batch in bl.DataLoader(train, 64)) <= (origin - 1) // 24
        assert max(batch["daily"].max() for batch in bl.DataLoader(test, 64)) <= (origin + 23) // 24
