"""Fields with lengths of their own, as sources and targets of translation: against a slow definition, on every way."""

import itertools
import pickle

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

WAYS = ({}, {"resident": False}, {"resident": 10**9})

PAIRS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=40)

RULES = (
    bl.FixedSize(4),
    bl.LengthBuckets(4),
    bl.TokenBudget(45, multiple_of=3),
    bl.TokenBudget(40),
    bl.CostOptimal(bl.CostModel(fixed=9.0, per_token=1.0, per_pair=0.1), max_tokens=40),
)


def numbers(lengths, first):
    """A sample of consecutive numbers for each length."""
    ends = numpy.cumsum([first, *lengths])
    return [numpy.arange(start, end, dtype=numpy.uint16) for start, end in itertools.pairwise(ends)]


def data(pairs, **options):
    """Pairs as arrays, and as a dataset."""
    source, target = (
        numbers(lengths, first) for lengths, first in zip(zip(*pairs, strict=True), (1, 1000), strict=True)
    )
    return source, target, bl.SequenceDataset(source=source, target=target, own_lengths=("target",), **options)


def padded(samples, multiple_of, left):
    """Samples padded one by one, and their mask."""
    width = -(-max(map(len, samples)) // multiple_of) * multiple_of
    found, mask = numpy.zeros((len(samples), width), numpy.int64), numpy.zeros((len(samples), width), bool)
    for row, sample in enumerate(samples):
        place = slice(width - len(sample), None) if left else slice(len(sample))
        found[row, place], mask[row, place] = sample, True
    return found, mask


def size(of, source, target):
    """The size of a pair."""
    return {"max": max(source, target), "sum": source + target, "source": source, "target": target}[of]


@pytest.mark.law("L6")
@given(
    PAIRS,
    st.sampled_from(RULES),
    st.sampled_from(["max", "sum", "source", "target"]),
    st.booleans(),
    st.sampled_from(WAYS),
)
def test_each_field_is_padded_to_its_own_longest_within_what_a_budget_bounds(pairs, rule, of, left, way):
    source, target, dataset = data(pairs, of=of)
    if isinstance(rule, bl.TokenBudget) and rule.max_tokens < max(size(of, *pair) for pair in pairs) + 2:
        return
    assert numpy.asarray(dataset.sizes).tolist() == [size(of, *pair) for pair in pairs]
    side = "left" if left else "right"
    loader = bl.DataLoader(
        dataset,
        batching=rule,
        shuffle=True,
        pad_side=side,
        fields={"target": bl.Field(dtype="int64")},
        output="torch",
        **way,
    )
    multiple_of, seen = getattr(rule, "multiple_of", 1), []
    for batch in loader:
        samples = batch["index"].tolist()
        assert batch["source"].dtype == torch.uint16
        assert batch["target"].dtype == torch.int64
        for field, arrays, mask, lengths in (
            ("source", source, "attention_mask", "lengths"),
            ("target", target, "target_mask", "target_lengths"),
        ):
            wanted = [arrays[sample] for sample in samples]
            found, marked = padded(wanted, multiple_of, left)
            numpy.testing.assert_array_equal(batch[field].numpy(), found)
            numpy.testing.assert_array_equal(batch[mask].numpy(), marked)
            assert batch[lengths].tolist() == [len(sample) for sample in wanted]
            if hasattr(rule, "max_tokens") and of in ("max", field):
                assert found.size <= rule.max_tokens
        longest = max(size(of, *pairs[sample]) for sample in samples)
        if hasattr(rule, "max_tokens"):
            assert -(-longest // multiple_of) * multiple_of * len(samples) <= rule.max_tokens
        seen += samples
    assert sorted(seen) == list(range(len(pairs)))


@pytest.mark.parametrize("way", WAYS)
def test_pairs_resume_pickle_and_say_why_they_are_not_gathered(way):
    _, _, dataset = data([(k % 7 + 1, k % 5) for k in range(50)])
    loader = bl.DataLoader(dataset, 8, shuffle=True, labels="target", output="torch", **way)
    if way:
        assert loader.placement.mode == "streamed"
        assert way == {"resident": False} or "target" in loader.placement.reason
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    for first, second in zip(batches, copy, strict=True):
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)
        assert first["labels"].shape == first["target"].shape
    plan = bl.Plan(len(dataset), batching=bl.FixedSize(8), shuffle=True, sizes=dataset.sizes)
    assert [list(batch) for batch in plan] == [list(batch) for batch in loader.plan(0)]


def test_what_makes_no_sense_is_refused():
    source, target = numbers([1, 2], 0), numbers([3, 1], 0)
    with refused(bl.ArgumentError, "other", "target"):
        bl.SequenceDataset(source=source, target=target, own_lengths=("other",))
    with refused(bl.ArgumentError, "'target'"):
        bl.SequenceDataset(source=source, target=target, own_lengths="target")
    with refused(bl.DataError):
        bl.SequenceDataset(source=source, target=target, own_lengths=("source", "target"))
    with refused(bl.ArgumentError, "least"):
        bl.SequenceDataset(source=source, target=target, own_lengths=("target",), of="least")
    with refused(bl.ArgumentError, "sum"):
        bl.SequenceDataset(source=source, of="sum")
    with refused(bl.ArgumentError, "target_mask"):
        bl.SequenceDataset(source=source, target=target, target_mask=numpy.zeros(2), own_lengths=("target",))
    dataset = bl.SequenceDataset(source=source, target=target, own_lengths=("target",))
    with refused(bl.ArgumentError, "Packing", "target"):
        bl.DataLoader(dataset, batching=bl.Packing(8, oversize="truncate"))
    with refused(bl.ArgumentError, "TokenBudget"):
        bl.DataLoader(dataset, batching=bl.TokenBudget(2, oversize="truncate"))
    with refused(bl.ArgumentError, "target", "resident=False"):
        bl.DataLoader(dataset, 2, resident=True, output="torch")
