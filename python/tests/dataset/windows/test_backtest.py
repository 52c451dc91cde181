"""Backtests: folds that move on in time, without a copy and without a look ahead."""

from __future__ import annotations

import pickle
from typing import Any

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st


def steps_of(dataset: bl.WindowDataset[Any]) -> list[tuple[set[int], set[int]]]:
    """Return the steps of the input and of the horizon of each window."""
    return [(set(x.tolist()), set(y.tolist())) for x, y in dataset]


@pytest.mark.law("W1")
@given(
    st.lists(st.integers(15, 50), min_size=1, max_size=3),
    st.integers(3, 9),
    st.integers(1, 12),
    st.one_of(st.booleans(), st.integers(1, 3)),
    st.one_of(st.none(), st.integers(12, 20)),
)
def test_no_window_to_train_on_lies_at_the_origin_or_after_it(
    lengths: list[int], horizon: int, stride: int, refit: bool | int, train_len: int | None
) -> None:
    series = [1000 * number + numpy.arange(length) for number, length in enumerate(lengths)]
    dataset = bl.WindowDataset(series, 4, 2, short="drop")
    if max(lengths) < 12 + horizon:
        with pytest.raises(bl.ArgumentError, match="come after the start"):
            dataset.backtest(horizon, stride, start=12)
        return
    backtest = dataset.backtest(horizon, stride, start=12, refit=refit, train_len=train_len)
    trained: list[Any] = []
    for fold, (train, test) in enumerate(backtest):
        if not any(train is other for other in trained):
            trained.append(train)
        origins = [12 + fold * stride for _ in lengths]
        trained_at = fold * stride if refit is True else 0 if refit is False else fold // refit * refit * stride
        for inputs, horizons in steps_of(train):
            number = min(inputs) // 1000
            last = max(inputs | horizons) % 1000
            assert last < min(12 + trained_at, lengths[number])
            assert train_len is None or min(inputs) % 1000 >= min(12 + trained_at, lengths[number]) - train_len
        tested = set[int]()
        for inputs, horizons in steps_of(test):
            number = min(inputs) // 1000
            assert origins[number] <= min(horizons) % 1000
            tested |= horizons
        whole = [number for number, length in enumerate(lengths) if 12 + fold * stride + horizon <= length]
        expected = {1000 * number + 12 + fold * stride + step for number in whole for step in range(horizon)}
        assert tested == expected
    folds = len(backtest)
    assert folds == max((length - 12 - horizon) // stride + 1 for length in lengths if length >= 12 + horizon)
    assert len(trained) == (folds if refit is True else 1 if refit is False else -(-folds // refit))


def test_folds_share_the_series() -> None:
    series = numpy.arange(1000.0)
    dataset = bl.WindowDataset(series, 24, 8)
    backtest = dataset.backtest(16)
    assert len(backtest) == 31
    for train, test in backtest:
        for part in (train, test):
            x, _ = next(iter(bl.DataLoader(part, 4)))
            assert numpy.shares_memory(x, series)
        restored = pickle.loads(pickle.dumps(test))
        assert steps_of(restored) == steps_of(test)
    assert [len(test) for _, test in backtest] == [9] * 31


def test_a_backtest_begins_at_a_time() -> None:
    time = numpy.arange("2024-01-01", "2024-02-20", dtype="datetime64[D]")
    dataset = bl.WindowDataset(numpy.arange(50.0), 7, 7, time=time)
    (train, test), *_ = dataset.backtest(start="2024-02-01")
    assert len(train) == 31 - 14 + 1
    assert [y.tolist() for _, y in test] == [[31.0, 32, 33, 34, 35, 36, 37]]
    # A part is tested as it is.
    _, last = dataset.split(train=0.5, test=0.5)
    (train, test), *_ = last.backtest(7, start=0.6)
    assert [y[0] for _, y in test] == [40.0]
    assert max(y[-1] for _, y in train) == 39.0
    # Windows without a horizon lie wholly in a part.
    (_, test), *_ = bl.WindowDataset(numpy.arange(50.0), 5).backtest()
    assert [x.tolist() for (x,) in test] == [[25.0, 26, 27, 28, 29]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 1}, "parts to test on have 1 steps; expected at least 2"),
        ({"stride": 0}, "stride"),
        ({"refit": 0}, "refit"),
        ({"train_len": 0}, "train_len"),
        ({"start": 1.5}, "start is 1.5"),
        ({"start": 0}, "start is 0"),
        ({"start": "2024"}, "no times"),
        ({"start": 2}, "part train"),
        ({"start": 49}, "at most 1 come after the start"),
    ],
)
def test_backtests_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    dataset = bl.WindowDataset(numpy.arange(50.0), 4, 2, short="drop")
    with pytest.raises(bl.Error, match=message):
        dataset.backtest(**options)


@pytest.mark.law("W1")
@pytest.mark.parametrize("steps", [10, 101, 999, 17_420])
def test_splits_of_the_time_series_library(steps: int) -> None:
    dataset = bl.WindowDataset(numpy.arange(steps), 1, 1)
    train, val, test = dataset.split(train=0.7, val=0.1, test=0.2, rounding="tslib")
    first, last = int(steps * 0.7), int(steps * 0.2)
    # Dataset_Custom: the inputs of val and test begin seq_len steps before their border.
    assert [len(part) for part in (train, val, test)] == [first - 1, steps - first - last, last]
    assert (val[0][1], test[0][1], test[-1][1]) == ([first], [steps - last], [steps - 1])


def test_splits_of_the_ett_sets() -> None:
    for name, month in (("ett-hour", 30 * 24), ("ett-minute", 30 * 24 * 4)):
        dataset = bl.WindowDataset(numpy.zeros((month * 24, 2), numpy.float32), 336, 96)
        found = [len(part) for part in dataset.split(name)]
        assert found == [12 * month - 336 - 96 + 1, 4 * month - 96 + 1, 4 * month - 96 + 1]
    for wrong, message in (
        ({"train": 0.7, "test": 0.3}, "three parts by shares"),
        ({"train": 70, "val": 80, "test": 90}, "three parts by shares"),
        ({"train": 0.7, "val": 0.1, "test": 0.1}, "0.9"),
    ):
        with pytest.raises(bl.ArgumentError, match=message):
            dataset.split(rounding="tslib", **wrong)
    with pytest.raises(bl.ArgumentError, match="rounding"):
        dataset.split(train=0.7, test=0.3, rounding="up")
    with pytest.raises(bl.ArgumentError, match="borders"):
        dataset.split("ett-day")
    with pytest.raises(bl.ArgumentError, match="given too"):
        dataset.split("ett-hour", train=0.5)
