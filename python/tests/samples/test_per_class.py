"""Batches of several classes with several samples of each: ``balanced_by`` and ``per_class``."""

import itertools
import pickle

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.batching import batches_of, flat
from oracles.devices import assert_as_on_the_host
from oracles.per_class import require_classes
from oracles.runs import assert_resumes, few
from refusals import refused

SIZES = [60, 13, 8, 5, 3, 1]
Y = numpy.random.default_rng(0).permutation(numpy.repeat(numpy.arange(6), SIZES))
ROWS = bl.TensorDataset(x=numpy.arange(len(Y)), y=Y)
OPTIONS = {"batch_size": 8, "shuffle": True, "seed": 3, "balanced_by": Y, "per_class": 2}

classes = st.lists(st.integers(1, 5) | st.integers(1, 30), min_size=1, max_size=9).flatmap(
    lambda sizes: st.permutations(flat([one] * size for one, size in enumerate(sizes)))
)


def numbers(batches):
    return [batch["x"].tolist() for batch in batches]


@pytest.mark.law("L1")
@few
@given(
    of=classes,
    per_class=st.integers(1, 6),
    in_batch=st.integers(1, 12),
    batches=st.none() | st.integers(1, 5),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
)
def test_batches_hold_classes_and_classes_hold_samples(of, per_class, in_batch, batches, shuffle, seed):
    size = per_class * in_batch
    drawn = None if batches is None else batches * size
    options = {"shuffle": shuffle, "seed": seed, "balanced_by": of, "per_class": per_class, "num_samples": drawn}
    plans = [bl.Plan(len(of), size, **options, epoch=epoch) for epoch in range(3)]
    assert [len(plan) for plan in plans] == [batches or -(-len(of) // size)] * 3
    require_classes([batches_of(plan) for plan in plans], of, per_class, size)


@pytest.mark.law("L4", "L5")
@few
@given(
    of=classes,
    per_class=st.integers(1, 4),
    in_batch=st.integers(1, 5),
    worlds=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    uneven=st.sampled_from(["pad", "short", "mask"]),
    steps=st.integers(0, 3),
)
def test_ranks_of_any_number_deliver_whole_batches(of, per_class, in_batch, worlds, uneven, steps):
    rows = bl.TensorDataset(x=numpy.arange(len(of)))
    options = {"batch_size": per_class * in_batch, "shuffle": True, "balanced_by": of, "per_class": per_class}
    expected = batches_of(bl.Plan(len(of), **options, epoch=0))
    state, found = None, []
    for place, world_size in enumerate(worlds):
        world = {"uneven": uneven, "world_size": world_size}
        ranks = [bl.DataLoader(rows, **options, **world, rank=rank) for rank in range(world_size)]
        for rank in ranks if state else ():
            rank.load_state_dict(state)
        if ranks[0].epoch > 0:
            break
        stop = None if place + 1 == len(worlds) else min(steps, *(rank.remaining for rank in ranks))
        taken = [numbers(itertools.islice(rank, stop)) for rank in ranks]
        found += [batch for step in itertools.zip_longest(*taken) for batch in step if batch is not None]
        state = ranks[0].state_dict()
    # Batches that fill the last step come again.
    assert found[: len(expected)] == expected[: len(found)]
    assert all(batch in expected for batch in found)
    assert uneven != "short" or len(found) <= len(expected)


@pytest.mark.law("L4")
@pytest.mark.parametrize("more", [{}, {"num_samples": 24}, {"shuffle": False}, {"batch_size": 16, "per_class": 1}])
def test_a_run_resumes_at_each_step(more):
    def loader():
        return bl.DataLoader(ROWS, **OPTIONS | more)

    expected = [numbers(run) for run in [loader()] for _ in range(2)]
    assert more.get("shuffle") is False or expected[0] != expected[1]
    assert_resumes(loader(), loader, expected, numbers)


@pytest.mark.law("L7")
def test_mates_change_from_epoch_to_epoch():
    def mates(epoch):
        batches = batches_of(bl.Plan(len(Y), **OPTIONS, epoch=epoch))
        pairs = {frozenset(turn) for batch in batches for turn in zip(batch[::2], batch[1::2], strict=True)}
        return pairs, [tuple(Y[batch[::2]]) for batch in batches]

    (pairs, classes_of), (others, others_of) = mates(0), mates(1)
    rare = {frozenset(pair) for pair in pairs | others if all(SIZES[Y[sample]] > 10 for sample in pair)}
    assert len(rare & pairs & others) < 3
    assert len(set(map(frozenset, classes_of + others_of))) > 10, "of 15 ways to take four of six classes"


@pytest.mark.law("L1")
def test_batches_of_a_report():
    """Sizes of classes from an issue: a batch never has one class, nor a class with one sample."""
    y = numpy.repeat(numpy.arange(6), [600, 40, 30, 20, 10, 4])
    rows, seen = bl.TensorDataset(x=numpy.arange(len(y)), y=y), set()
    loader = bl.DataLoader(rows, 8, shuffle=True, balanced_by="y", per_class=2)
    assert len(loader) == 88
    for batch in loader:
        assert sorted(numpy.unique(batch["y"], return_counts=True)[1]) == [2, 2, 2, 2]
        seen.update(batch["x"].tolist())
    assert set(range(600, len(y))) <= seen


def test_classes_may_be_texts_fields_and_tensors():
    ways = [Y, Y.tolist(), torch.from_numpy(Y), numpy.array(list("abcdef"))[Y], "y"]
    found = [numbers(bl.DataLoader(ROWS, **OPTIONS | {"balanced_by": way})) for way in ways]
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("way", ["resident", "streamed", "device", "device streamed"])
def test_devices_gather_the_same_batches(way):
    assert_as_on_the_host(bl.TensorDataset(torch.arange(len(Y)), torch.randn(len(Y), 3)), [way], **OPTIONS)


def test_sequences_of_any_length_and_samplers_have_the_same_batches():
    data = bl.SequenceDataset(ids=[numpy.arange(1 + sample % 7) for sample in range(len(Y))])
    expected = batches_of(bl.Plan(len(Y), **OPTIONS))
    assert [batch["index"].tolist() for batch in bl.DataLoader(data, **OPTIONS)] == expected
    assert list(bl.BatchSampler(len(Y), **OPTIONS)) == expected
    plan = bl.Plan(len(Y), **OPTIONS)
    assert pickle.loads(pickle.dumps(plan)) == plan != bl.Plan(len(Y), **OPTIONS | {"per_class": 4})
    assert (plan.options.per_class, plan.options.num_samples) == (2, None)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"per_class": 3}, ("batch_size is 8", "per_class, which is 3", "6 or 9")),
        ({"per_class": 16}, ("batch_size is 8", "per_class, which is 16", "16")),
        ({"per_class": 0}, ("per_class", "0", "at least 1")),
        ({"per_class": -2}, ("per_class", "-2")),
        ({"per_class": 2.5}, ("per_class", "2.5", "integer")),
        ({"balanced_by": None}, ("per_class is 2", "balanced_by")),
        ({"balanced_by": None, "weights": numpy.ones(len(Y))}, ("per_class is 2", "balanced_by")),
        ({"num_samples": 30}, ("num_samples is 30", "batch_size, which is 8", "24 or 32")),
        ({"num_samples": 4}, ("num_samples is 4", "batch_size, which is 8", "8")),
        ({"homogeneous_by": Y}, ("balanced_by does not go with homogeneous_by",)),
        ({"distinct_by": Y}, ("balanced_by does not go with distinct_by",)),
        ({"shuffle": "runs"}, ("an order of runs does not go with balanced_by",)),
        ({"shard_size": 16}, ("shard_size does not go with balanced_by",)),
    ],
)
def test_options_that_make_no_sense(options, named):
    for make in (lambda given: bl.DataLoader(ROWS, **given), lambda given: bl.Plan(len(Y), **given)):
        with refused(bl.ArgumentError, *named):
            make(OPTIONS | options)


def test_other_rules_and_mixtures_are_refused():
    data = bl.SequenceDataset(ids=[numpy.arange(1 + sample % 7) for sample in range(len(Y))])
    for rule in (bl.LengthBuckets(8), bl.TokenBudget(40), bl.Packing(40)):
        with refused(bl.ArgumentError, "a rule that sorts by size does not go with per_class"):
            bl.DataLoader(data, batching=rule, shuffle=True, balanced_by=Y, per_class=2)
    mixture = bl.Mixture({"a": ROWS, "b": ROWS.take(20)})
    with refused(bl.ArgumentError, "per_class is 2", "balanced_by"):
        bl.DataLoader(mixture, 8, shuffle=True, per_class=2)
