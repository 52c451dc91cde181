"""Pools: batches that are new in every epoch, and what says so."""

import itertools
import warnings
from collections import Counter

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import batches_of, rules, sized
from oracles.plans import planned, seeds

LENGTHS = {
    "exponential": lambda random, samples: random.exponential(100, samples),
    "lognormal": lambda random, samples: random.lognormal(5, 0.8, samples),
    "uniform": lambda random, samples: random.uniform(1, 512, samples),
}
RULES = [
    bl.FixedSize(16),
    bl.LengthBuckets(64),
    bl.TokenBudget(4096),
    bl.CostOptimal(bl.CostModel(1000, 1, 0), max_tokens=8192),
    bl.Packing(8192),
]


def pairs(batches):
    return {frozenset(pair) for batch in batches for pair in itertools.combinations(batch, 2)}


@given(
    sizes=sized(), rule=rules.filter(lambda rule: batching.policy(rule) != "split"), seed=seeds, shuffle=st.booleans()
)
def test_mates_kept_is_a_recount_of_pairs(sizes, rule, seed, shuffle):
    plan = planned(sizes, rule, seed=seed, shuffle=shuffle, uneven="short")
    now, later = pairs(batches_of(plan)), pairs(batches_of(plan.at_epoch(1)))
    assert plan.stats()["mates_kept"] == (pytest.approx(len(now & later) / len(now)) if now else None)


@given(sizes=sized(), rule=rules, seed=seeds, shuffle=st.booleans())
def test_length_correlation_is_that_of_ranks(sizes, rule, seed, shuffle):
    plan = planned(sizes, rule, seed=seed, shuffle=shuffle, uneven="short")
    means = [plan.step(step).tokens / len(batch) for step, batch in enumerate(batches_of(plan))]
    below, equal = Counter(), Counter(means)
    for mean in equal:
        below[mean] = sum(other < mean for other in means)
    ranks = [below[mean] + equal[mean] / 2 for mean in means]
    found = plan.stats()["length_correlation"]
    if len(equal) < 2:
        assert found is None
    else:
        assert found == pytest.approx(numpy.corrcoef(ranks, range(len(ranks)))[0, 1], abs=1e-9)


@pytest.mark.law("L7")
@pytest.mark.parametrize("samples", [1000, 10_000, 50_000])
@pytest.mark.parametrize("kind", LENGTHS)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_by_default_three_quarters_of_mates_are_new(samples, kind, rule):
    sizes = LENGTHS[kind](numpy.random.default_rng(0), samples).astype(int).clip(1, 4000)
    stats = bl.Plan(sizes=sizes, batching=rule, shuffle=True).stats()
    assert stats["mates_kept"] <= 0.27
    assert abs(stats["length_correlation"]) < 5 / numpy.sqrt(stats["batches"])


@pytest.mark.parametrize("rule", [bl.LengthBuckets(64, pool="all"), bl.TokenBudget(4096, pool="all")], ids=str)
def test_one_pool_of_everything_makes_the_same_batches(rule):
    sizes = numpy.random.default_rng(0).exponential(100, 1000).astype(int)
    assert bl.Plan(sizes=sizes, batching=rule, shuffle=True).stats()["mates_kept"] > 0.8


def test_inference_keeps_one_pool_and_every_mate():
    sizes = numpy.random.default_rng(0).integers(1, 99, 1000)
    for rule in RULES:
        found = bl.Plan(sizes=sizes, batching=rule)
        assert found.stats()["mates_kept"] == 1.0
    lengths = [sizes[batch].max() for batch in bl.Plan(sizes=sizes, batching=bl.LengthBuckets(64))]
    assert lengths == sorted(lengths, reverse=True)


def test_a_number_that_covers_a_shuffled_set_warns():
    sizes = [place % 50 + 1 for place in range(1000)]
    text = r"one pool of TokenBudget.*max_tokens=90.*mates_kept.*pool=\"all\""
    with pytest.warns(UserWarning, match=text) as caught:
        bl.Plan(sizes=sizes, batching=bl.TokenBudget(90, pool=1000), shuffle=True)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=text) as caught:
        bl.DataLoader(batching.dataset(sizes), batching=bl.TokenBudget(90, pool=4096), shuffle=True)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pool in (None, "all", 999):
            bl.Plan(sizes=sizes, batching=bl.TokenBudget(90, pool=pool), shuffle=True)
        bl.Plan(sizes=sizes, batching=bl.TokenBudget(90, pool=1000))
        bl.Plan(sizes=sizes, batching=bl.Packing(90, pool=1000), shuffle=True)
        # Two batches are the least that a pool holds.
        bl.Plan(sizes=sizes[:20], batching=bl.LengthBuckets(10, pool=2), shuffle=True)


@given(sizes=sized(), seed=seeds)
def test_a_random_order_of_packing_is_as_full_as_its_oracle(sizes, seed):
    rule = bl.Packing(60)
    plan = planned(sizes, rule, seed=seed, shuffle=True)
    order = batching.order(len(sizes), True, seed, 0)
    loads = sorted(plan.step(step).tokens for step in range(len(plan)))
    assert loads == batching.best_fit(rule, order, sizes, shuffle=True)
