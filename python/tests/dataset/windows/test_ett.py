"""The same windows, targets and marks, bit for bit, as the field's standard pipeline for the ETT series."""

import itertools
from functools import cache

import batchloom as bl
import numpy
import pytest
import torch
from oracles import ett
from oracles.ett import PARTS, Shape, Windows
from torch.utils.data import default_collate

TABLES = [
    pytest.param(ett.etth1, marks=pytest.mark.skipif(not ett.ETTH1.exists(), reason="no ETTh1 here")),
    ett.synthetic,
]
SHAPE = Shape(96, 24, 48)
SHAPES = [
    Shape(12, 6),
    Shape(12, 6, 4),
    Shape(12, 6, 12),
    Shape(12, 6, 0, 5),
    Shape(12, 6, 4, 5),
    Shape(12, 6, 12, 3),
    Shape(1, 1),
    Shape(1, 9, 1, 2),
    Shape(30, 1, 7),
    Shape(25, 48, 24, 24),
]
EVERY_TABLE = pytest.mark.parametrize("table", TABLES, ids=lambda make: make.__name__)
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=str)


@cache
def parts(make, shape, features="M", timeenc=None, kind=numpy.asarray, dtype="float64"):
    """The three parts as batchloom makes them."""
    table = make()
    marks = None if timeenc is None else kind(table.marks(timeenc))
    targets = -1 if features == "MS" else None
    series = kind(table.scaled(features).astype(dtype))
    whole = bl.WindowDataset(series, **shape.options(), targets=targets, marks=marks)
    return dict(zip(PARTS, whole.split(**table.ends()), strict=True))


@cache
def daily():
    """Small enough to compare every window many times."""
    return ett.synthetic(hours=24, columns=2)


def bits(arrays):
    """Types, shapes and bytes: equal only if nothing differs."""
    arrays = [numpy.asarray(array) for array in arrays]
    return [(array.dtype, array.shape, array.tobytes()) for array in arrays]


def stacked(windows, batch_size):
    return torch.utils.data.DataLoader(windows, batch_size=batch_size)


def spans(dataset, shape):
    """For each window of a series that counts its own steps: what it sees, and what it has to forecast."""
    for x, y in bl.DataLoader(dataset, batch_size=64):
        yield from zip(x[..., 0].tolist(), y[:, shape.label_len :, 0].tolist(), strict=True)


def clock(shape, months=20, **options):
    """A series whose values are its step numbers, and its parts at the borders of ``daily``."""
    series = numpy.arange(months * 30)[:, None]
    return bl.WindowDataset(series, **shape.options()).split(train=360, val=480, test=600, **options)


# The same batches


@EVERY_TABLE
@pytest.mark.parametrize("features", ["M", "S", "MS"])
@pytest.mark.parametrize("timeenc", [0, 1])
def test_every_window_of_the_test_part_in_order(table, features, timeenc):
    ours = bl.DataLoader(parts(table, SHAPE, features, timeenc)["test"], batch_size=512)
    theirs = stacked(Windows(table(), "test", SHAPE, features, timeenc), 512)
    assert len(ours) == len(theirs)
    for mine, expected in zip(ours, theirs, strict=True):
        assert bits(mine) == bits(expected)


@EVERY_TABLE
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("order", [False, "runs", True])
def test_first_middle_and_last_batch_of_every_part(table, part, order):
    windows = Windows(table(), part, SHAPE, "MS", 1)
    dataset = parts(table, SHAPE, "MS", 1)[part]
    assert len(dataset) == len(windows)
    loader = bl.DataLoader(dataset, batch_size=32, shuffle=order, seed=9)
    plan = loader.plan(0)
    places = {0, len(plan) // 2, len(plan) - 1}
    for place, batch in enumerate(loader):
        if place in places:
            assert bits(batch) == bits(default_collate([windows[sample] for sample in plan[place]]))


@EVERY_TABLE
@pytest.mark.parametrize("shape", [Shape(336, 96), Shape(336, 96, 48), Shape(24, 720, 24), Shape(720, 1, 1)], ids=str)
def test_the_shapes_of_the_literature(table, shape):
    for part, dataset in parts(table, shape, timeenc=0).items():
        windows = Windows(table(), part, shape)
        assert len(dataset) == len(windows)
        for sample in (0, 1, len(windows) // 2, len(windows) - 1):
            assert bits(dataset[sample]) == bits(windows[sample])


@EVERY_SHAPE
@pytest.mark.parametrize("part", PARTS)
def test_any_label_and_gap(shape, part):
    ours = bl.DataLoader(parts(daily, shape, timeenc=1)[part], batch_size=50)
    theirs = stacked(Windows(daily(), part, shape, timeenc=1), 50)
    for mine, expected in zip(ours, theirs, strict=True):
        assert bits(mine) == bits(expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", [numpy.asarray, torch.as_tensor])
@pytest.mark.parametrize("order", [False, "runs", True])
@pytest.mark.parametrize("buffers", ["views", "own"])
def test_types_and_frameworks(dtype, kind, order, buffers):
    windows = Windows(daily(), "val", SHAPES[1])
    loader = bl.DataLoader(
        parts(daily, SHAPES[1], "M", 0, kind, dtype)["val"], batch_size=16, shuffle=order, buffers=buffers
    )
    for samples, batch in zip(loader.plan(0), loader, strict=True):
        assert {type(part) for part in batch} == {type(kind(numpy.zeros(1)))}
        x, y, *marks = default_collate([windows[sample] for sample in samples])
        assert bits(batch) == bits([x.numpy().astype(dtype), y.numpy().astype(dtype), *marks])


@pytest.mark.parametrize("features", ["M", "S", "MS"])
def test_frames(features):
    pandas = pytest.importorskip("pandas")
    table, names = daily(), ["load", "OT"]
    columns = names[-1:] if features == "S" else names
    frame = pandas.DataFrame(table.scaled(features), columns=columns)
    frame.insert(0, "date", table.times)
    marks = ["month", "day", "weekday", "hour"]
    frame[marks] = table.marks()
    targets = "OT" if features == "MS" else None
    columns_of_marks = [f"column.{name}" for name in marks]
    whole = bl.WindowDataset(frame, **SHAPES[1].options(), targets=targets, marks=columns_of_marks, time="date")
    for part, dataset in zip(PARTS, whole.split(**table.ends()), strict=True):
        windows = Windows(table, part, SHAPES[1], features)
        for mine, expected in zip(bl.DataLoader(dataset, batch_size=64), stacked(windows, 64), strict=True):
            assert bits(mine) == bits(expected)


# Every window, once


@EVERY_TABLE
@pytest.mark.parametrize("batch_size", [32, 128, 512])
def test_an_evaluation_counts_every_window_once(table, batch_size):
    """The error of a model depends on the batch size where the last batch is dropped, as the lineage did."""
    dataset, windows = parts(table, SHAPE)["test"], Windows(table(), "test", SHAPE)
    begins = numpy.concatenate([x[:, -1] for x, _ in bl.DataLoader(dataset, batch_size=batch_size)])
    expected = numpy.array([windows[sample][0][-1] for sample in range(len(windows))])
    assert len(dataset) == len(windows) == 4 * 720 - SHAPE.horizon + 1
    assert begins.tobytes() == expected.tobytes()
    dropping = bl.DataLoader(dataset, batch_size=batch_size, drop_last=True)
    assert sum(len(x) for x, _ in dropping) == len(windows) - len(windows) % batch_size
    assert dropping.plan().stats()["dropped"] == len(windows) % batch_size > 0


@pytest.mark.parametrize("order", [False, "runs", True])
def test_places_of_windows(order):
    """A window that a model did badly on can be found in the series."""
    shape, series = SHAPES[4], daily().scaled()
    dataset = parts(daily, shape)["val"]
    loader = bl.DataLoader(dataset, batch_size=16, shuffle=order)
    for samples, (x, _) in zip(loader.plan(0), loader, strict=True):
        for sample, window in zip(samples.tolist(), x, strict=True):
            start = dataset.place(sample).start
            assert window.tobytes() == series[start : start + shape.input_len].tobytes()


# Parts that do not leak


@pytest.mark.law("W1")
@EVERY_SHAPE
@pytest.mark.parametrize("reach_back", [True, False])
def test_no_step_is_a_target_in_two_parts(shape, reach_back):
    seen, asked = [], []
    for dataset in clock(shape, reach_back=reach_back):
        windows = list(spans(dataset, shape))
        assert all(y[0] == x[-1] + 1 + shape.gap for x, y in windows)
        seen.append({step for x, _ in windows for step in x})
        asked.append({step for _, y in windows for step in y})
    context = shape.input_len + shape.gap
    reach = 0 if reach_back else context
    assert asked == [set(range(context, 360)), set(range(360 + reach, 480)), set(range(480 + reach, 600))]
    assert all(max(before) < min(after) for before, after in itertools.pairwise(asked))
    if not reach_back:
        assert all(max(before) < min(after) for before, after in itertools.pairwise(seen))


@EVERY_SHAPE
@pytest.mark.parametrize("kind", ["share", "text", "datetime", "datetime64"])
def test_shares_and_times_cut_where_steps_do(shape, kind):
    """Twelve, four and four months are the shares 0.6, 0.2 and 0.2; a time ends a part before its own step."""
    table = daily()
    series, times = table.scaled()[:600], table.times[:600]
    ends = [table.times[end] for end in table.ends().values()]
    cuts = {
        "share": [0.6, 0.2, 0.2],
        "text": [str(end) for end in ends],
        "datetime": [end.item() for end in ends],
        "datetime64": ends,
    }
    whole = bl.WindowDataset(series, **shape.options(), time=times)
    by_kind = whole.split(**dict(zip(PARTS, cuts[kind], strict=True)))
    for ours, expected in zip(by_kind, whole.split(**table.ends()), strict=True):
        assert len(ours) == len(expected)
        for mine, theirs in zip(*(bl.DataLoader(part, batch_size=600) for part in (ours, expected)), strict=True):
            assert bits(mine) == bits(theirs)


@pytest.mark.parametrize("steps", [100, 600, 1700, 17421, *range(601, 610)])
@pytest.mark.parametrize("hundredths", [(70, 10, 20), (60, 20, 20), (80, 10, 10), (29, 28, 43)])
def test_shares_leave_no_step_out(steps, hundredths):
    """In floating point 0.7, 0.1 and 0.2 are less than 1, and shares of steps miss whole numbers."""
    shares = dict(zip(PARTS, (hundredth / 100 for hundredth in hundredths), strict=True))
    parts = bl.WindowDataset(numpy.arange(steps)[:, None], 5, 1).split(**shares)
    asked = [[step for _, (step,) in spans(part, Shape(5, 1))] for part in parts]
    assert list(itertools.chain(*asked)) == list(range(5, steps))
    ends = [sum(hundredths[: place + 1]) * steps / 100 for place in range(3)]
    assert all(abs(part[-1] + 1 - end) < 1 for part, end in zip(asked, ends, strict=True))


# The same model


@pytest.mark.parametrize("features", ["M", "S", "MS"])
@pytest.mark.parametrize("buffers", ["views", "own"])
@EVERY_TABLE
def test_a_model_trained_in_order_has_the_same_weights(table, features, buffers):
    dataset = parts(table, SHAPE, features, None, torch.as_tensor, "float32")["val"]
    ours = ett.trained([bl.DataLoader(dataset, batch_size=128, buffers=buffers)], SHAPE)
    theirs = ett.trained([stacked(Windows(table(), "val", SHAPE, features), 128)], SHAPE)
    assert ours == theirs


@pytest.mark.parametrize("order", ["runs", True])
@EVERY_TABLE
def test_a_model_trained_at_random_has_the_same_weights(table, order):
    """The plan tells the other side which windows to stack, in the first epoch and in the next."""
    dataset = parts(table, SHAPE, "M", None, torch.as_tensor, "float32")["val"]
    loader, windows = bl.DataLoader(dataset, batch_size=128, shuffle=order, seed=2), Windows(table(), "val", SHAPE)
    plans = [loader.plan(epoch) for epoch in range(2)]
    theirs = ett.trained([torch.utils.data.DataLoader(windows, batch_sampler=plan) for plan in plans], SHAPE)
    assert ett.trained([loader, loader], SHAPE) == theirs
