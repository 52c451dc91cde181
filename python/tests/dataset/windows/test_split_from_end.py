"""Parts of a number of steps at the end of each series, whatever its length."""

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

INPUT, HORIZON = 3, 2


def make_series(lengths):
    return [numpy.arange(1000 * number, 1000 * number + length) for number, length in enumerate(lengths)]


def horizons(dataset):
    return [y.tolist() for _, y in (dataset[k] for k in range(len(dataset)))]


def expected(lengths, counts, part):
    """The horizons of windows in part number ``part``, given the steps of each later part than the first."""
    found = []
    for number, length in enumerate(lengths):
        end = max(0, length - sum(counts[part:]))
        begin = max(0, length - sum(counts[part - 1 :])) if part else 0
        for first in range(INPUT, length - HORIZON + 1):
            if begin <= first and first + HORIZON <= end:
                found.append([1000 * number + first, 1000 * number + first + 1])
    return found


@given(
    lengths=st.lists(st.integers(30, 60), min_size=1, max_size=5),
    counts=st.lists(st.integers(2, 12), min_size=1, max_size=2),
)
def test_parts_are_the_last_steps_of_each_series(lengths, counts):
    dataset = bl.WindowDataset(make_series(lengths), INPUT, HORIZON)
    names = ("train", "val", "test")[: len(counts) + 1]
    parts = dataset.split(by="end", **dict(zip(names, [None, *counts], strict=True)))
    assert [horizons(part) for part in parts] == [expected(lengths, counts, part) for part in range(len(names))]


def test_a_series_that_is_too_short_has_no_window_in_the_first_part():
    lengths = [40, 7]
    dataset = bl.WindowDataset(make_series(lengths), INPUT, HORIZON, short="drop")
    train, val, test = dataset.split(by="end", train=None, val=4, test=6)
    assert [horizons(part) for part in (train, val, test)] == [expected(lengths, [4, 6], part) for part in range(3)]
    assert {row[0] // 1000 for row in horizons(train)} == {0}
    assert {row[0] // 1000 for row in horizons(test)} == {0, 1}


def test_a_part_is_split_from_its_own_end():
    lengths = [50, 40]
    rest, _ = bl.WindowDataset(make_series(lengths), INPUT, HORIZON).split(by="end", rest=None, test=10)
    train, val = rest.split(by="end", train=None, val=5)
    assert horizons(val) == [row for row in expected(lengths, [5, 10], 1)]
    assert horizons(train) == expected(lengths, [5, 10], 0)


REFUSED = {
    "no rest": ({"by": "end", "train": 10, "test": 4}, ["train is 10", "None"]),
    "one part": ({"by": "end", "train": None}, ["1 part", "train=None"]),
    "a share": ({"by": "end", "train": None, "test": 0.2}, ["test is 0.2"]),
    "no steps": ({"by": "end", "train": None, "test": 0}, ["test is 0", "at least 1"]),
    "not said": ({"train": None, "test": 4}, ["train is None", 'by="end"']),
}


@pytest.mark.parametrize(("parts", "words"), REFUSED.values(), ids=REFUSED)
def test_parts_that_make_no_sense(parts, words):
    with refused(bl.ArgumentError, *words):
        bl.WindowDataset(make_series([30]), INPUT, HORIZON).split(**parts)
