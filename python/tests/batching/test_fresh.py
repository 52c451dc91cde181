"""Batches of each epoch anew (L7): in another order, of other samples, at the same cost."""

import itertools

import batchloom as bl
import numpy
import pytest
from oracles import batching
from oracles.batching import batches_of
from oracles.plans import EACH, SPREAD, named


@pytest.mark.law("L7")
@pytest.mark.parametrize("rule", EACH, ids=named)
def test_seeds_and_epochs_give_different_batches(rule):
    keys = [(seed, epoch) for seed in (0, 1, 2, 2**63) for epoch in (0, 1, 2, 2**63)]
    plans = [bl.Plan(sizes=SPREAD, batching=rule, shuffle=True, seed=seed, epoch=epoch) for seed, epoch in keys]
    orders = {str(batches_of(plan)) for plan in plans}
    assert len(orders) == len(keys)
    # Not the same batches in another order, either.
    mixtures = {str(sorted(map(sorted, batches_of(plan)))) for plan in plans}
    assert len(mixtures) == len(keys)


@pytest.mark.parametrize("rule", EACH, ids=named)
def test_without_shuffle_seed_epoch_and_pool_change_nothing(rule):
    plans = [
        bl.Plan(sizes=SPREAD, batching=rule, seed=seed, epoch=epoch) for seed, epoch in [(0, 0), (0, 1), (9, 0), (9, 7)]
    ]
    assert all(batches_of(plan) == batches_of(plans[0]) for plan in plans)
    if isinstance(rule, bl.FixedSize):
        return
    other = type(rule)(**{field: getattr(rule, field) for field in rule.__dataclass_fields__} | {"pool": 1})
    assert batches_of(bl.Plan(sizes=SPREAD, batching=other)) == batches_of(plans[0])
    longest = [max(batching.taken(rule, SPREAD[sample]) for sample in batch) for batch in batches_of(plans[0])]
    assert longest == sorted(longest, reverse=True) or batching.policy(rule) == "split"


LONG_AND_SHORT = numpy.random.default_rng(0).lognormal(4, 1, 30_000).astype(int).clip(1, 2000)


@pytest.mark.parametrize(
    "rule",
    [
        bl.LengthBuckets(16),
        bl.TokenBudget(8000),
        bl.TokenBudget(8000, pool=2**20),
        bl.CostOptimal(bl.CostModel(5000, 1, 0.001), max_tokens=16_000),
        bl.Packing(8192, pool=2**20),
    ],
    ids=named,
)
@pytest.mark.parametrize("balance", [False, True])
def test_the_order_of_batches_does_not_follow_length(rule, balance):
    """Else losses rise and fall with it."""
    plan = bl.Plan(sizes=LONG_AND_SHORT, batching=rule, shuffle=True, balance=balance, world_size=4 if balance else 1)
    lengths = numpy.array([LONG_AND_SHORT[batch].mean() for batch in plan])
    steps = numpy.arange(len(lengths))
    bound = 4 / len(lengths) ** 0.5
    assert abs(numpy.corrcoef(steps, lengths)[0, 1]) < bound
    assert abs(numpy.corrcoef(lengths[:-1], lengths[1:])[0, 1]) < bound
    counts = numpy.array([len(batch) for batch in plan], float)
    if counts.std() > 0:
        assert abs(numpy.corrcoef(steps, counts)[0, 1]) < bound


def test_which_samples_share_a_batch_changes_with_the_epoch():
    plans = [
        bl.Plan(sizes=LONG_AND_SHORT, batching=bl.TokenBudget(8000, pool=1024), shuffle=True, epoch=epoch)
        for epoch in (0, 1)
    ]
    mates = [{pair for batch in batches_of(plan) for pair in itertools.pairwise(sorted(batch))} for plan in plans]
    assert len(mates[0] & mates[1]) < len(mates[0]) / 10


def test_a_multiple_leaves_few_shapes():
    plain = bl.Plan(sizes=LONG_AND_SHORT, batching=bl.TokenBudget(8192, max_samples=32), shuffle=True).stats()
    rounded = bl.Plan(sizes=LONG_AND_SHORT, batching=bl.TokenBudget(8192, max_samples=32, multiple_of=64), shuffle=True)
    assert rounded.stats()["shapes"] < plain["shapes"] / 4
    assert rounded.stats()["padded"] > plain["padded"]
    lengths = {elements // len(batch) for batch, elements in each_padded(rounded)}
    assert all(length % 64 == 0 for length in lengths)


def each_padded(plan):
    return [(batch, plan._native.elements(step)[0]) for step, batch in enumerate(plan)]


def test_more_pool_means_less_padding_and_budgets_are_well_filled():
    shares = [
        bl.Plan(sizes=LONG_AND_SHORT, batching=bl.TokenBudget(8000, pool=pool), shuffle=True).stats()
        for pool in (64, 1024, 30_000)
    ]
    assert [stats["padding"] for stats in shares] == sorted((stats["padding"] for stats in shares), reverse=True)
    assert shares[-1]["padding"] < 0.01
    assert shares[1]["efficiency"] > 0.9
