"""Windows are what their definition says, however they are handed over; parts of time share no target."""

import itertools
import pickle
from dataclasses import replace

import batchloom as bl
import jax.numpy
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.runs import few, runs, worlds
from oracles.windows import FEATURES, Shape, equal, loader_of, modes, shapes
from refusals import refused


def windows_of(dataset, shape, within=None):
    """The windows of a dataset, each found in its series by its values: the series, the first step, and the zeros."""
    places = []
    for number in range(len(dataset)):
        x = numpy.asarray(dataset[number][0])[..., 0].reshape(-1)
        place = dataset.place(number)
        real = x[x != 0] // 10
        if len(real):
            assert set(real // 1000) == {place.series + 1}
            assert real[0] % 1000 - 1 == place.start + place.missing
            assert numpy.array_equal(real, real[0] + numpy.arange(len(real)))
        places.append((place.series, place.start + place.missing, place.missing))
    return places


# How many, and which


@given(shape=shapes())
def test_windows_are_all_that_fit(shape):
    dataset = shape.dataset()
    assert windows_of(dataset, shape) == shape.windows()
    assert len(dataset) == len(shape.windows())


@given(
    steps=st.integers(1, 200),
    lengths=st.tuples(st.integers(1, 20), st.integers(1, 10), st.integers(0, 5)),
    stride=st.integers(1, 9),
    anchor=st.sampled_from(["start", "end"]),
)
def test_the_number_of_windows_is_the_closed_form(steps, lengths, stride, anchor):
    input_len, horizon, gap = lengths
    assume(steps >= input_len + horizon + gap)
    dataset = bl.WindowDataset(numpy.arange(steps), input_len, horizon, gap=gap, stride=stride, anchor=anchor)
    assert len(dataset) == (steps - input_len - gap - horizon) // stride + 1
    first, last = dataset.place(0).start, dataset.place(-1).start + input_len + gap + horizon
    assert (first == 0) if anchor == "start" else (last == steps)
    assert first < stride
    assert steps - last < stride


@given(shape=shapes(short="drop", sampled_by="windows"))
def test_short_series_are_padded_dropped_or_refused(shape):
    below = [length < shape.least for length in shape.lengths]
    short = [k for k, length in enumerate(shape.lengths) if length < shape.least_len]
    stats = shape.dataset().stats()
    assert stats.series == len(shape.lengths)
    assert stats.padded_series == sum(below) - len(short)
    assert stats.series_without_windows == len(short)
    padding = replace(shape, short="pad")
    assert padding.dataset().stats().padded_series == sum(
        shape.lengths[k] > 0 for k, is_below in enumerate(below) if is_below
    )
    assert padding.dataset().stats().series_without_windows == sum(length == 0 for length in shape.lengths)
    if short:
        facts = (f"series {short[0]}", f"{shape.lengths[short[0]]} steps", str(shape.least_len))
        with refused(bl.DataError, *facts, f"{len(short)} of {len(shape.lengths)}"):
            replace(shape, short="error").dataset()
    else:
        assert len(replace(shape, short="error").dataset()) == len(shape.windows())


@pytest.mark.law("L1")
@given(shape=shapes(short="drop"))
def test_no_target_is_made_up(shape):
    dataset = shape.dataset(mask=True)
    made_up = [
        place for place in map(dataset.place, range(len(dataset))) if shape.horizon and not shape.window(place)[3].all()
    ]
    assert not made_up
    for batch in bl.DataLoader(dataset, 8):
        assert shape.horizon == 0 or batch[3].all()
        assert batch[1 + bool(shape.horizon)].any(axis=1).all()


@given(shape=shapes(short="pad"))
def test_masks_come_with_targets_that_are_made_up(shape):
    dataset = shape.dataset()
    assert dataset.names[-2:] == ("mask", "target_mask") if shape.horizon else dataset.names[-1:] == ("mask",)


def test_a_window_of_no_series_is_an_error():
    with refused(bl.DataError, "2 series", "3 steps"):
        bl.WindowDataset([numpy.zeros(1), numpy.zeros(2)], 5, 2, short="drop")


@given(shape=shapes(sampled_by="series"))
def test_series_that_count_the_same_come_equally_often(shape):
    dataset = shape.dataset()
    times = numpy.bincount([dataset.place(k).series for k in range(len(dataset))], minlength=len(shape.lengths))
    once = numpy.bincount([k for k, *_ in replace(shape, sampled_by="windows").windows()], minlength=len(shape.lengths))
    assert times.tolist() == [most if found else 0 for found, most in zip(once, [max(once)] * len(once), strict=True)]
    assert dataset.stats().windows == once.sum()
    assert dataset.stats().samples == times.sum()


@given(shape=shapes())
def test_statistics_are_the_bytes_of_the_arrays(shape):
    dataset = shape.dataset(mask=False)
    stats, windows = dataset.stats(7), shape.windows()
    bytes_of = sum(part.nbytes for part in shape.window(windows[0])[: 2 if shape.horizon else 1])
    assert stats.series_bytes == sum(array.nbytes for array in shape.arrays())
    assert stats.stacked_bytes == len(windows) * bytes_of
    assert stats.gathered_bytes == 7 * bytes_of
    assert stats.viewed_bytes == (6 * shape.stride + shape.span) * FEATURES * 8


# What they hold


@pytest.mark.law("L8")
@given(shape=shapes(), run=runs(most=1), mode=modes(), world_size=st.integers(1, 3))
def test_batches_are_stacked_windows(shape, run, mode, world_size):
    run = replace(run, samples=len(shape.windows()))
    assume(run.steps(0, world_size))
    dataset = shape.dataset(mask=True)
    for rank in range(world_size):
        loader = loader_of(dataset, mode, **run.options(), world_size=world_size, rank=rank)
        for epoch in range(2):
            expected = run.seen(epoch, world_size, rank)
            batches = list(loader)
            assert len(batches) == len(expected)
            for batch, samples in zip(batches, expected, strict=True):
                assert equal(batch, shape.stack(samples)), (samples, batch)


@given(shape=shapes())
def test_one_window_is_what_a_batch_holds(shape):
    dataset = shape.dataset(mask=True)
    for sample, place in enumerate(shape.windows()):
        assert equal(dataset[sample], shape.window(place))
        assert equal(dataset[sample - len(dataset)], shape.window(place))


@given(
    shape=shapes(series=1, most=40, short="drop"),
    targets=st.sampled_from([0, -1, slice(1, None), slice(None, None, 2), [2, 0], [1, 1], [0, 2, 1]]),
)
@pytest.mark.parametrize("kind", [numpy.asarray, torch.as_tensor, jax.numpy.asarray])
def test_targets(kind, shape, targets):
    assume(shape.horizon)
    dataset, columns = shape.dataset(kind, targets=targets), numpy.arange(FEATURES)[targets].reshape(-1)
    for mode in ("views", "copy", "rows", "device"):
        loader = loader_of(dataset, mode, 5)
        for samples, (x, y) in zip(loader.plan(0), loader, strict=True):
            expected = shape.stack(samples)
            assert equal((x, y), [expected[0], expected[1][..., columns]])


@few
@given(shape=shapes(), mode=modes(), order=st.sampled_from([False, True, "runs"]))
def test_everything_at_once_is_a_dict_in_order(shape, mode, order):
    assume(shape.horizon)
    values = numpy.concatenate(shape.arrays())
    dataset = shape.dataset(
        targets=[0, 2],
        marks=values[:, 0] + 1,
        past={"load": values.astype(numpy.float32)},
        future={"price": (values[:, :1] * 2, shape.offsets())},
        mask=True,
        patch_len=1,
    )
    assert dataset.names == ("x", "y", "x_mark", "y_mark", "load", "price", "mask", "target_mask")
    loader = loader_of(dataset, mode, 5, shuffle=order)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        x, y, mask, target_mask = shape.stack(samples)
        real_y = (y != 0).any(-1)
        assert list(batch) == list(dataset.names)
        expected = {
            "x": numpy.moveaxis(x, 1, 2)[..., None],
            "y": y[..., [0, 2]],
            "x_mark": numpy.where(mask, x[..., 0] + 1, 0),
            "y_mark": numpy.where(real_y, y[..., 0] + 1, 0),
            "mask": mask,
            "target_mask": target_mask,
            "load": x,
            "price": y[..., :1] * 2,
        }
        assert equal(batch, [expected[name] for name in dataset.names])


def test_a_padded_horizon_is_zeros_too():
    x, y, *masks = bl.WindowDataset(numpy.array([5, 6]), 2, 3, short="pad")[0]
    assert (x.tolist(), y.tolist()) == ([0, 0], [0, 5, 6])
    assert [mask.tolist() for mask in masks] == [[False, False], [False, True, True]]


# Patches


@given(
    shape=shapes(),
    patch=st.tuples(st.integers(1, 6), st.none() | st.integers(1, 8)),
    mode=modes(),
    order=st.sampled_from([False, True, "runs"]),
)
def test_patches_are_slices_of_x(shape, patch, mode, order):
    length, stride = patch
    assume(length <= shape.input_len)
    dataset = shape.dataset(patch_len=length, patch_stride=stride)
    loader = loader_of(dataset, mode, 4, shuffle=order)
    starts = range(0, shape.input_len - length + 1, stride or length)
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        x, *rest = shape.data(samples)
        cut = numpy.stack([x[:, start : start + length] for start in starts], axis=1)
        assert equal(batch, [numpy.moveaxis(cut, 3, 1), *rest])
        assert equal([batch[0][0]], [numpy.asarray(dataset[samples[0]][0])])


def test_patches_of_one_column_are_without_features():
    (x,) = next(iter(bl.DataLoader(bl.WindowDataset(numpy.arange(20), 6, patch_len=3, patch_stride=2), batch_size=2)))
    assert x.tolist() == [[[0, 1, 2], [2, 3, 4]], [[1, 2, 3], [3, 4, 5]]]


@pytest.mark.parametrize("kind", [numpy.asarray, torch.as_tensor])
@pytest.mark.parametrize("stride", [2, 4, 5])
def test_patches_are_views(kind, stride):
    values = kind(numpy.arange(400.0).reshape(100, 4))
    loader = bl.DataLoader(bl.WindowDataset(values, 12, patch_len=4, patch_stride=stride), batch_size=9)
    assert all(numpy.shares_memory(numpy.asarray(x), numpy.asarray(values)) for (x,) in loader)


# Parts of time


def targets_of(dataset, shape):
    """The series and step of each target of each window, told by its values."""
    windows = (
        window[1][shape.label_len :] if shape.horizon else window[0]
        for window in map(dataset.__getitem__, range(len(dataset)))
    )
    codes = ((y[:, 0][y[:, 0] != 0] // 10).tolist() for y in windows)
    return [[(code // 1000 - 1, code % 1000 - 1) for code in window] for window in codes]


def within(shape, ends, reach_back):
    """The steps of each part of each series that its windows may take, and those that its horizons may."""
    starts = [0] * len(shape.lengths)
    for stops in ends:
        reach = shape.context if reach_back and shape.horizon else 0
        yield [
            (stop, stop) if reach and start and stop - start < shape.horizon else (max(start - reach, 0), stop, start)
            for start, stop in zip(starts, stops, strict=True)
        ]
        starts = stops


@pytest.mark.law("W1")
@given(
    shape=shapes(series=3, most=40),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    reach_back=st.booleans(),
)
def test_parts_hold_the_windows_whose_targets_lie_in_them(shape, cuts, reach_back):
    ends = [[min(cut, length) for length in shape.lengths] for cut in sorted(cuts)]
    assume(max(cuts) <= max(shape.lengths))
    names = [f"part{k}" for k in range(len(cuts))]
    expected = [shape.windows(steps) for steps in within(shape, ends, reach_back)]
    split = dict(zip(names, sorted(cuts), strict=True))
    empty = [name for name, windows in zip(names, expected, strict=True) if not windows]
    if empty:
        with refused(bl.DataError, f"part {empty[0]}"):
            shape.dataset().split(reach_back=reach_back, **split)
        return
    parts = shape.dataset().split(reach_back=reach_back, **split)
    asked, starts = [], [0] * len(shape.lengths)
    for part, windows, stops in zip(parts, expected, ends, strict=True):
        places = [part.place(k) for k in range(len(part))]
        assert [(series, start + missing, missing) for series, start, missing in places] == windows
        targets = list(itertools.chain(*targets_of(part, shape)))
        assert all(starts[k] <= step < stops[k] for k, step in targets)
        asked.append(set(targets))
        starts = stops
        loader = bl.DataLoader(part, batch_size=5)
        for samples, batch in zip(loader.plan(0), loader, strict=True):
            assert equal(batch, shape.data(samples, windows))
    assert sum(map(len, asked)) == len(set().union(*asked))


@given(
    shape=shapes(short="drop", sampled_by="windows", stride=1),
    lengths=st.lists(st.integers(50, 70), min_size=1, max_size=3),
    share=st.integers(30, 70),
)
def test_parts_leave_no_target_out(shape, lengths, share):
    """Together they ask for what the whole asks for; only a window that asks for steps of both parts is in none."""
    shape = replace(shape, lengths=tuple(lengths))
    assume(shape.horizon)
    parts = shape.dataset().split(early=share / 100, late=None)
    asked = [targets for part in parts for targets in targets_of(part, shape)]
    ends = [length * share // 100 for length in lengths]
    crossing = [
        targets
        for targets in targets_of(shape.dataset(), shape)
        if targets[0][1] < ends[targets[0][0]] <= targets[-1][1]
    ]
    assert sorted(asked + crossing) == sorted(targets_of(shape.dataset(), shape))


def test_shares_are_exact():
    whole = bl.WindowDataset([numpy.arange(10), numpy.arange(101)], 1, 1)
    parts = whole.split(train=0.7, val=0.1, test=0.2)
    lengths = [[sum(part.place(k).series == s for k in range(len(part))) for s in (0, 1)] for part in parts]
    assert lengths == [[6, 69], [1, 10], [2, 21]]


@pytest.mark.parametrize(
    "shares",
    [
        (0.7, 1 - 0.7),
        (2 / 3, 1 / 3),
        (1 / 3, 1 / 3, 1 / 3),
        tuple(map(numpy.float32, (0.7, 0.1, 0.2))),
        *(tuple(numpy.random.default_rng(seed).dirichlet([9, 9, 9])) for seed in range(20)),
    ],
)
def test_shares_that_are_all_leave_nothing_out(shares):
    parts = bl.WindowDataset(numpy.arange(300), 5, 1).split(**{f"p{k}": share for k, share in enumerate(shares)})
    assert sum(map(len, parts)) == 295


TIMES = numpy.datetime64("2020-01-01") + numpy.arange(100)


@pytest.mark.parametrize(
    ("times", "end"),
    [
        (TIMES, "2020-02-20"),
        (TIMES.astype("datetime64[ns]"), numpy.datetime64("2020-02-20")),
        (TIMES.astype("datetime64[s]"), TIMES[50].item()),
        (TIMES.astype(str).tolist(), "2020-02-20T00:00"),
        (numpy.arange(100), 50),
        (numpy.arange(100) / 8, 6.25),
        (torch.arange(100), 49.5),
    ],
)
def test_times_end_parts_before_their_step(times, end):
    early, late = bl.WindowDataset(numpy.arange(100), 5, 2, time=times).split(by="time", early=end, late=None)
    assert (early[-1][1].tolist(), late[0][1].tolist()) == ([48, 49], [50, 51])


@pytest.mark.parametrize("end", ["9999-12-31", "2262-12-31", numpy.datetime64("9999-12-31")])
def test_an_end_far_ahead_is_the_end(end):
    dataset = bl.WindowDataset(numpy.arange(100), 5, 2, time=TIMES.astype("datetime64[ns]"))
    assert [len(part) for part in dataset.split(a="2020-02-20", b=end)] == [44, 49]


def test_times_are_of_each_series():
    """One date ends the parts of series that begin and end at different times."""
    lengths, begins = (30, 50, 20), (0, 20, 60)
    arrays = [begin + numpy.arange(length) for begin, length in zip(begins, lengths, strict=True)]
    whole = bl.WindowDataset(arrays, 4, 2, gap=1, time=TIMES[numpy.concatenate(arrays)])
    early, late = whole.split(early="2020-02-10", late=None)  # day 40
    assert sorted({int(step) for k in range(len(early)) for step in early[k][1]}) == list(range(5, 40))
    assert sorted({int(step) for k in range(len(late)) for step in late[k][1]}) == list(range(40, 80))
    assert {late.place(k).series for k in range(len(late))} == {1, 2}


@pytest.mark.parametrize("how", ["index", "time", "share"])
@pytest.mark.parametrize("reach_back", [False, True])
def test_parts_of_parts_keep_to_their_part(how, reach_back):
    shape = Shape((100,), 10, 2)
    whole = shape.dataset(time=numpy.arange(100))
    train, rest = whole.split(train=50, rest=None, reach_back=reach_back)
    ends = {"index": 25, "time": 75, "share": 0.5}
    val, test = rest.split(by=how, val=ends[how], test=None, reach_back=reach_back)
    asked = [set(itertools.chain(*targets_of(part, shape))) for part in (train, val, test)]
    reach = 0 if reach_back else 10
    begins, ends = (10, 50 + reach, 75 + reach), (50, 75, 100)
    assert asked == [{(0, step) for step in range(*steps)} for steps in zip(begins, ends, strict=True)]


def test_a_part_of_a_part_that_is_too_short_asks_for_nothing_of_another():
    shape = Shape((100,), 10, 2)
    train, rest = shape.dataset().split(train=50, rest=None)
    asked = set(itertools.chain(*targets_of(train, shape)))
    val, _ = rest.split(val=7, test=None)
    assert not asked & set(itertools.chain(*targets_of(val, shape)))


def test_without_a_horizon_windows_lie_in_their_part():
    parts = bl.WindowDataset(numpy.arange(100), 7).split(a=30, b=60, c=None)
    assert [(int(part[0][0][0]), int(part[-1][0][-1])) for part in parts] == [(0, 29), (30, 59), (60, 99)]


@pytest.mark.parametrize(
    ("ends", "values"),
    [
        ({}, ("part",)),
        ({"a": 50, "b": 40}, ("part b",)),
        ({"a": "2020-03-01", "b": "2020-02-01"}, ("part b",)),
        ({"a": 0.8, "b": 0.3}, ("part b", "0.3", "1.1")),
        ({"a": 0.0, "b": 0.3}, ("part a", "0.0")),
        ({"a": -0.5}, ("part a", "-0.5")),
        ({"a": float("nan"), "b": None}, ("part a", "nan")),
        ({"a": 0.5, "b": 60}, ("a by share", "b by index")),
        ({"a": "2020-02-01", "b": 60}, ("a by time", "b by index")),
        ({"a": None, "b": 60}, ("part a", "None")),
        ({"a": 0, "b": 60}, ("part a", "0", "1", "100")),
        ({"a": -5, "b": 60}, ("part a", "-5")),
        ({"a": 101}, ("part a", "101", "100")),
        ({"a": True}, ("part a", "True")),
        ({"a": "yesterday"}, ("part a", "'yesterday'", "datetime")),
        ({"a": "NaT"}, ("part a", "'NaT'")),
        ({"a": [50]}, ("part a", "50")),
        ({"a": 50, "b": 50}, ("part b", "50", "where it begins")),
        ({"by": "day", "a": 50}, ("by", "'day'")),
        ({"by": "index", "a": 0.5}, ("part a", "0.5")),
        ({"by": "share", "a": 50}, ("part a", "50")),
        ({"by": "share", "a": "half"}, ("part a", "'half'")),
    ],
)
def test_parts_that_make_no_sense(ends, values):
    dataset = bl.WindowDataset(numpy.arange(100), 5, 2, time=TIMES)
    with refused((bl.ArgumentError, bl.DataError), *values):
        dataset.split(**ends)


@pytest.mark.parametrize("end", [300, -1, float("inf")])
def test_ends_outside_the_type_of_times(end):
    dataset = bl.WindowDataset(numpy.arange(100), 5, 2, time=numpy.arange(100, dtype=numpy.uint8))
    if end < 0:
        with refused(bl.DataError, "part all"):
            dataset.split(by="time", all=end)
    else:
        assert len(dataset.split(by="time", all=end)[0]) == 94


def test_times_that_are_not_known():
    with refused(bl.ArgumentError, "times", "time="):
        bl.WindowDataset(numpy.arange(100), 5).split(a="2020-01-01", b=None)


# Copies of a dataset


@few
@given(shape=shapes(sampled_by="windows"), cut=st.integers(1, 30), world_size=worlds)
def test_a_dataset_and_its_parts_survive_pickling(shape, cut, world_size):
    whole = shape.dataset(mask=True, marks=numpy.arange(sum(shape.lengths)))
    datasets = [whole]
    if cut < max(shape.lengths):
        try:
            datasets += whole.split(a=cut, b=None)
        except bl.DataError:
            assume(False)
    for dataset in datasets:
        again = pickle.loads(pickle.dumps(dataset))
        assert len(again) == len(dataset)
        assert again.names == dataset.names
        assert again.stats() == dataset.stats()
        options = {"batch_size": 4, "shuffle": "runs", "rank": world_size - 1, "world_size": world_size}
        ours, theirs = (bl.DataLoader(one, **options) for one in (dataset, again))
        assert all(equal(a, list(b)) for a, b in zip(ours, theirs, strict=True))
        assert ours.state_dict() == theirs.state_dict()


def test_a_copy_of_a_part_can_be_split_and_its_arrays_are_its_own():
    values = numpy.arange(100)
    part = bl.WindowDataset(values, 5, 1).split(a=50, b=None)[1]
    again = pickle.loads(pickle.dumps(part))
    values[:] = -1
    assert again[0][1].tolist() == [50]
    assert [len(p) for p in again.split(a=0.5, b=0.5)] == [len(p) for p in part.split(a=0.5, b=0.5)]
