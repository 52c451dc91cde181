"""Weights, classes, and epochs of any length: what a loader, a plan and a sampler draw, on the host and on devices."""

import pickle
from collections import Counter

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.batching import flat
from oracles.devices import assert_as_on_the_host
from oracles.runs import assert_resumes, few
from refusals import refused

SAMPLES = 60
Y = numpy.arange(SAMPLES) % 7 // 3  # classes of three, three and one in seven
WEIGHTS = numpy.where(Y == 2, 4.0, 1.0)
SIZES = [1 + (7 * k) % 11 for k in range(SAMPLES)]
DRAWS = {
    "weights": {"weights": WEIGHTS},
    "more": {"weights": WEIGHTS, "num_samples": 150},
    "part": {"num_samples": 25},
    "passes": {"num_samples": 130},
    "classes": {"balanced_by": Y},
}
every_draw = pytest.mark.parametrize("draws", DRAWS)
RULES = {
    "fixed": bl.FixedSize(8),
    "buckets": bl.LengthBuckets(8),
    "budget": bl.TokenBudget(40),
    "packing": bl.Packing(40),
}


def sequences():
    return bl.SequenceDataset(ids=[100 * k + numpy.arange(size) for k, size in enumerate(SIZES)], sizes=SIZES)


def numbers(loader):
    return [batch["index"].tolist() for batch in loader]


@every_draw
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("world_size", [1, 3])
def test_ranks_deliver_what_is_drawn_and_resume(draws, rule, world_size):
    options = {"batching": RULES[rule], "shuffle": True, "seed": 4, "uneven": "short"} | DRAWS[draws]

    def loader(rank):
        return bl.DataLoader(sequences(), **options, rank=rank, world_size=world_size)

    for epoch in range(2):
        held = Counter(flat(flat(numbers(each) for each in skipped(map(loader, range(world_size)), epoch))))
        plan = loader(0).plan(epoch)
        assert sum(held.values()) == plan.stats()["samples"] == DRAWS[draws].get("num_samples", SAMPLES)
        whole = bl.DataLoader(sequences(), **options).plan(epoch)
        assert held == Counter(flat(batch.tolist() for batch in whole))
        for sample in (0, 6, 59):
            places = whole.where(sample)
            assert len(places) == held[sample]
            assert all(whole[place.step][place.index] == sample for place in places)
    expected = [numbers(each) for each in [loader(0)] for _ in range(2)]
    assert_resumes(loader(0), lambda: loader(0), expected, numbers)


def skipped(loaders, epochs):
    for loader in loaders:
        loader.set_epoch(epochs)
        yield loader


@every_draw
@pytest.mark.parametrize("way", ["resident", "streamed", "device", "device streamed"])
def test_devices_gather_what_is_drawn(draws, way):
    rows = bl.TensorDataset(torch.arange(SAMPLES), torch.randn(SAMPLES, 3))
    assert_as_on_the_host(rows, [way], batch_size=7, shuffle=True, seed=3, **DRAWS[draws])
    windows = bl.WindowDataset(torch.arange(SAMPLES + 4.0), 5)
    assert_as_on_the_host(windows, [way], batch_size=7, shuffle=True, seed=3, **DRAWS[draws])
    if way != "device streamed":
        options = {"batching": bl.TokenBudget(40), "shuffle": True}
        data = bl.SequenceDataset(ids=[torch.arange(size) for size in SIZES])
        assert_as_on_the_host(data, [way], **options, **DRAWS[draws])


@pytest.mark.law("L1")
@few
@given(weights=st.lists(st.floats(0, 100), min_size=2, max_size=30).filter(any), draws=st.integers(1, 200))
def test_samples_come_as_often_as_their_weights_say(weights, draws):
    loader = bl.DataLoader(
        bl.TensorDataset(torch.arange(len(weights))), 16, shuffle=True, weights=weights, num_samples=draws
    )
    found = Counter(flat(batch[0].tolist() for batch in loader))
    for sample, weight in enumerate(weights):
        assert abs(found[sample] - draws * weight / sum(weights)) < 2
        assert weight or not found[sample]


def test_epochs_of_any_length_go_through_all_samples():
    loader = bl.DataLoader(bl.TensorDataset(torch.arange(10)), 4, shuffle=True, num_samples=4, seed=1)
    found = flat(batch[0].tolist() for _ in range(5) for batch in loader)
    assert sorted(found[:10]) == sorted(found[10:]) == list(range(10))
    stored = bl.DataLoader(bl.TensorDataset(torch.arange(5)), 4, num_samples=8)
    assert [batch[0].tolist() for _ in range(2) for batch in stored] == [
        [0, 1, 2, 3],
        [4, 0, 1, 2],
        [3, 4, 0, 1],
        [2, 3, 4, 0],
    ]


@pytest.mark.parametrize("classes", [Y, Y.tolist(), torch.from_numpy(Y), numpy.array(["a", "b", "c"])[Y]], ids=type)
def test_batches_hold_as_many_of_each_class(classes):
    loader = bl.DataLoader(bl.TensorDataset(torch.from_numpy(Y)), 12, shuffle=True, balanced_by=classes)
    batches = list(loader)
    assert sum(len(batch[0]) for batch in batches) == SAMPLES
    assert all(numpy.bincount(batch[0], minlength=3).tolist() == [4, 4, 4] for batch in batches)


@every_draw
def test_pickles_of_loaders_plans_and_samplers(draws):
    options = {"shuffle": True, "seed": 4} | DRAWS[draws]
    loader = bl.DataLoader(bl.TensorDataset(torch.arange(SAMPLES)), 8, **options)
    batches = iter(loader)
    next(batches)
    again = pickle.loads(pickle.dumps(loader))
    assert [batch[0].tolist() for batch in again] == [batch[0].tolist() for batch in batches]
    plan = bl.Plan(SAMPLES, 8, **options, epoch=3)
    copy = pickle.loads(pickle.dumps(plan))
    assert copy == plan
    assert [batch.tolist() for batch in copy] == [batch.tolist() for batch in plan]
    assert plan != bl.Plan(SAMPLES, 8, shuffle=True, seed=4, epoch=3)
    sampler = bl.BatchSampler(SAMPLES, 8, **options)
    sampler.set_epoch(3)
    assert list(sampler) == [batch.tolist() for batch in plan]


def test_weights_may_change_between_epochs_alone():
    data = bl.TensorDataset(torch.arange(SAMPLES))
    loader = bl.DataLoader(data, 8, shuffle=True, weights=WEIGHTS)
    other = bl.DataLoader(data, 8, shuffle=True, weights=WEIGHTS + 1)
    assert loader.plan().fingerprint == other.plan().fingerprint
    batches = iter(loader)
    next(batches)
    with refused(bl.StateError, "weights"):
        other.load_state_dict(loader.state_dict())
    list(batches)
    other.load_state_dict(loader.state_dict())
    assert other.epoch == 1


def test_a_share_of_the_labels_is_known():
    data = bl.SequenceDataset(ids=[torch.arange(size) for size in SIZES])
    loader = bl.DataLoader(data, 8, shuffle=True, labels="ids", weights=WEIGHTS)
    found = [int((batch["labels"] != -100).sum()) for batch in loader]
    assert found == [loader.plan(0).step(k).labels for k in range(len(found))]


@pytest.mark.parametrize(
    ("options", "kind", "named"),
    [
        ({"weights": -WEIGHTS}, bl.ArgumentError, ("sample 0", "-1")),
        ({"weights": numpy.where(Y == 1, numpy.nan, 1)}, bl.ArgumentError, ("sample 3", "NaN")),
        ({"weights": 0 * WEIGHTS}, bl.ArgumentError, ("60", "0")),
        ({"weights": [1, 2]}, bl.DataError, ("2", "60")),
        ({"weights": "abc"}, (bl.DTypeError, bl.DataError), ("weights",)),
        ({"weights": [[1]] * SAMPLES}, bl.DataError, ("(60, 1)",)),
        ({"weights": WEIGHTS, "shuffle": False}, bl.ArgumentError, ("weights", "shuffled")),
        ({"weights": WEIGHTS, "shuffle": "runs"}, bl.ArgumentError, ("weights", "runs")),
        ({"weights": WEIGHTS, "shard_size": 20, "batch_size": 10}, bl.ArgumentError, ("weights", "shard_size")),
        ({"weights": WEIGHTS, "balanced_by": Y}, bl.ArgumentError, ("weights", "balanced_by")),
        ({"balanced_by": Y[:5]}, bl.DataError, ("5", "60")),
        ({"num_samples": 0}, bl.ArgumentError, ("num_samples", "0")),
        ({"num_samples": 2.5}, bl.ArgumentError, ("num_samples", "2.5")),
    ],
)
def test_draws_that_make_no_sense(options, kind, named):
    options = {"batch_size": 8, "shuffle": True} | options
    with refused(kind, *named):
        bl.DataLoader(bl.TensorDataset(torch.arange(SAMPLES)), **options)
    with refused(kind, *named):
        bl.Plan(SAMPLES, **options)


def test_streams_that_continue_are_not_drawn_from():
    stream = bl.TokenDataset(numpy.arange(400), 4, mode="continuous")
    with refused(bl.ArgumentError, "continues"):
        bl.DataLoader(stream, 4, num_samples=20)
