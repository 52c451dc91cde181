"""Batches padded to given lengths, and samples truncated to the largest: against a slow definition, on every way."""

import bisect
import pickle

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

LENGTHS = st.lists(st.integers(0, 30), min_size=1, max_size=40)
PAD_TO = st.lists(st.sampled_from([3, 6, 9, 12, 24]), min_size=1, max_size=4)
RULES = (
    bl.FixedSize(4),
    bl.LengthBuckets(4),
    bl.TokenBudget(48, multiple_of=3),
    bl.TokenBudget(60),
    bl.CostOptimal(bl.CostModel(fixed=9.0, per_token=1.0, per_pair=0.1), max_tokens=48),
)
WAYS = ("host", "device", "streamed", "on demand")


def samples_of(lengths):
    """A sample of consecutive numbers for each length."""
    return [numpy.arange(number * 100, number * 100 + length) for number, length in enumerate(lengths)]


def loader(samples, way, **options):
    """A loader of these samples, by one of the ways on which batches are made."""
    if way == "on demand":
        dataset = bl.MapDataset(samples, lambda sample: {"x": sample}, sizes=[*map(len, samples)])
        return bl.DataLoader(dataset, num_threads=2, **options)
    resident = {"host": {}, "device": {"resident": True}, "streamed": {"resident": False}}[way]
    output = {} if way == "host" else {"output": "torch"}
    return bl.DataLoader(bl.SequenceDataset(x=samples), **resident, **output, **options)


@pytest.mark.law("L6")
@given(
    LENGTHS,
    PAD_TO,
    st.sampled_from(RULES),
    st.sampled_from(WAYS),
    st.sampled_from(["left", "right"]),
    st.sampled_from(["left", "right"]),
    st.booleans(),
)
def test_batches_are_as_long_as_the_smallest_length_that_holds_them(
    lengths, pad_to, rule, way, truncate, side, shuffle
):
    samples, widths = samples_of(lengths), sorted(pad_to)
    options = {"batching": rule, "shuffle": shuffle, "seed": 5}
    ours = loader(samples, way, pad_to=pad_to, truncate=truncate, pad_side=side, pad_value=-1, **options)
    counted = [widths[min(bisect.bisect_left(widths, length), len(widths) - 1)] for length in lengths]
    expected = bl.Plan(sizes=counted, **options)
    taken = [sample[: widths[-1]] if truncate == "right" else sample[-widths[-1] :] for sample in samples]
    stats, padded = ours.plan(0).stats(), 0
    for batch, indices in zip(ours, expected, strict=True):
        assert numpy.asarray(batch["index"]).tolist() == indices.tolist()
        width = max(counted[sample] for sample in indices)
        padded += width * len(indices)
        if isinstance(rule, bl.TokenBudget):
            assert width * len(indices) <= rule.max_tokens
        for row, mask, length, sample in zip(
            numpy.asarray(batch["x"]),
            numpy.asarray(batch["attention_mask"]),
            numpy.asarray(batch["lengths"]),
            indices,
            strict=True,
        ):
            data = taken[sample]
            before = width - len(data) if side == "left" else 0
            assert len(row) == len(mask) == width
            assert row.tolist() == [*[-1] * before, *data, *[-1] * (width - before - len(data))]
            assert mask.tolist() == [before <= place < before + len(data) for place in range(width)]
            assert length == len(data)
    assert stats["padded"] == padded
    assert stats["samples"] == len(lengths)
    assert stats["truncated"] == sum(length > widths[-1] for length in lengths)
    assert stats["truncated_tokens"] == sum(max(length - widths[-1], 0) for length in lengths)
    assert stats["real"] == sum(map(len, taken))


def test_next_tokens_are_those_of_what_is_left():
    samples = samples_of([9, 2, 5])
    dataset = bl.SequenceDataset(x=samples)
    for truncate, first in (("right", [0, 1, 2, 3]), ("left", [5, 6, 7, 8])):
        ours = bl.DataLoader(dataset, 3, pad_to=4, truncate=truncate, labels="x")
        batch = next(iter(ours))
        assert batch["x"][0].tolist() == first
        assert batch["labels"][0].tolist() == [*first[1:], -100]
        assert ours.plan(0).step(0).labels == 3 + 1 + 3
    with refused(bl.ArgumentError, "pad_to", "label_counts", "sample 0", "4"):
        bl.DataLoader(dataset, 3, pad_to=4, truncate="left", label_counts=dataset.count_labels("x"))


def test_resume_and_pickles_keep_the_lengths():
    ours = loader(samples_of(range(20)), "host", batch_size=4, pad_to=[8, 16], truncate="left", shuffle=True)
    batches = iter(ours)
    next(batches)
    state, rest = ours.state_dict(), [batch["x"].tolist() for batch in batches]
    again = loader(samples_of(range(20)), "host", batch_size=4, pad_to=[16, 8], truncate="left", shuffle=True)
    again.load_state_dict(state)
    assert [batch["x"].tolist() for batch in again] == rest
    plan = ours.plan(0)
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert pickle.loads(pickle.dumps(plan)).stats() == plan.stats()
    other = loader(samples_of(range(20)), "host", batch_size=4, truncate="error", shuffle=True)
    with refused(bl.StateError, "plan"):
        other.load_state_dict(state)


def test_groups_are_padded_to_lengths():
    x, ids = numpy.arange(10), numpy.repeat([0, 1], [7, 3])
    groups = bl.GroupDataset(ids, x=x, layout="padded")
    batch = next(iter(bl.DataLoader(groups, 2, pad_to=5, truncate="left")))
    assert batch["x"].tolist() == [[2, 3, 4, 5, 6], [7, 8, 9, 0, 0]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"pad_to": 8}, ["sample 2", "9 elements", "8", "truncate"]),
        ({"pad_to": []}, ["pad_to", "empty"]),
        ({"pad_to": 0}, ["pad_to", "0"]),
        ({"pad_to": "short"}, ["pad_to", "'short'", "'longest'"]),
        ({"pad_to": [4, 2.5]}, ["pad_to", "2.5"]),
        ({"pad_to": True}, ["pad_to", "True"]),
        ({"truncate": "left"}, ["truncate", "'left'", "'longest'"]),
        ({"pad_to": 16, "truncate": "middle"}, ["truncate", "'middle'"]),
        ({"pad_to": 16, "batching": bl.Packing(16)}, ["pad_to", "concatenations"]),
        ({"pad_to": 16, "batching": bl.TokenBudget(32, oversize="truncate")}, ["pad_to", "TokenBudget", "oversize"]),
        ({"pad_to": 10, "batching": bl.TokenBudget(32, multiple_of=4)}, ["pad_to", "10", "4"]),
        ({"pad_to": 40, "batching": bl.TokenBudget(32)}, ["sample 0", "40", "32"]),
    ],
)
def test_lengths_that_make_no_sense(options, words):
    expected = bl.DataError if words[0].startswith("sample") else bl.ArgumentError
    with refused(expected, *words):
        bl.DataLoader(bl.SequenceDataset(x=samples_of([3, 8, 9])), **options)


def test_data_that_has_no_lengths():
    x = numpy.zeros((4, 3))
    images = [numpy.zeros((height, 3 + height)) for height in range(1, 4)]
    refusals = [
        (bl.TensorDataset(x), ["have no sizes"]),
        (bl.SequenceDataset(x=images), ["2 dimensions", "slot"]),
        (bl.SequenceDataset(x=samples_of([1, 2]), sizes=[5, 6]), ["sizes of your own"]),
        (bl.SequenceDataset(x=samples_of([1, 2]), y=samples_of([2, 3]), own_lengths=("y",)), ["lengths of their own"]),
    ]
    for dataset, words in refusals:
        with refused(bl.ArgumentError, "pad_to", *words):
            bl.DataLoader(dataset, 2, pad_to=9)
