"""Batches of samples of any size: the rules against slow and obvious oracles. Integers only, no data."""

import itertools
from collections import Counter

import batchloom as bl
import numpy
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import batches_of, buckets, budgets, flat, optimals, packings, rules, sized
from oracles.plans import MODEL, SPREAD, by_pool, epochs, few, plan_of, planned, pools_of, seeds, worlds
from refusals import refused


@settings(max_examples=settings.default.max_examples * 3)
@given(sizes=sized(), rule=batching.fixed | buckets | budgets, shuffle=st.booleans(), seed=seeds, epoch=epochs)
def test_every_pool_is_cut_as_the_oracle_cuts_it(sizes, rule, shuffle, seed, epoch):
    plan = planned(sizes, rule, shuffle=shuffle, seed=seed, epoch=epoch)
    pools = pools_of(plan, sizes)
    for batches, pool in zip(by_pool(plan, pools), pools, strict=True):
        expected = batching.cut(rule, pool, sizes, len(sizes) if shuffle else None)
        assert sorted(batches) == sorted(expected)
        if not shuffle:
            assert batches == expected


@given(sizes=sized(), rule=buckets, shuffle=st.booleans(), seed=seeds)
def test_the_remainder_that_is_dropped_is_the_end_of_the_order(sizes, rule, shuffle, seed):
    plan = plan_of(sizes, rule, shuffle=shuffle, seed=seed, drop_last=True)
    if len(sizes) < rule.batch_size:
        assert plan is None
        return
    order = batching.order(len(sizes), shuffle, seed, 0)
    left = order[: len(sizes) - len(sizes) % rule.batch_size]
    together = len(left) if shuffle else None
    assert sorted(flat(batches_of(plan))) == sorted(left)
    pools = pools_of(plan, sizes)
    assert [sorted(batching.cut(rule, pool, sizes, together)) for pool in pools] == [
        sorted(found) for found in by_pool(plan, pools)
    ]


@settings(max_examples=settings.default.max_examples * 2)
@given(sizes=sized(samples=8, size=25), rule=optimals, shuffle=st.booleans(), seed=seeds)
@example(sizes=[3, 3, 3], rule=bl.CostOptimal(bl.CostModel(0, 0, 1)), shuffle=False, seed=0)
@example(sizes=[0, 0, 5], rule=bl.CostOptimal(bl.CostModel(1, 1, 0), max_tokens=8), shuffle=False, seed=0)
def test_no_division_costs_less_than_the_optimal_one(sizes, rule, shuffle, seed):
    plan = planned(sizes, rule, shuffle=shuffle, seed=seed)
    pools = pools_of(plan, sizes)
    for batches, pool in zip(by_pool(plan, pools), pools, strict=True):
        samples = [sample for batch in batches for sample in batch]
        large = [sample for sample in samples if batching.too_large(rule, sizes[sample]) and rule.oversize == "alone"]
        assert all([sample] in batches for sample in large)
        left = [sample for sample in batching.descending(pool, sizes) if sample in samples and sample not in large]
        found = [batch for batch in batches if batch[0] not in large]
        allowed = (
            division
            for division in batching.every_division(left)
            if all(batching.fits(rule, batch, sizes) for batch in division)
        )
        assert batching.cost(rule, found, sizes) == min(batching.cost(rule, division, sizes) for division in allowed)


@settings(max_examples=settings.default.max_examples * 2)
@given(sizes=sized(), rule=optimals, shuffle=st.booleans(), seed=seeds)
def test_optimal_batches_are_runs_of_the_sorted_pool_at_the_least_cost(sizes, rule, shuffle, seed):
    plan = planned(sizes, rule, shuffle=shuffle, seed=seed)
    pools = pools_of(plan, sizes)
    for batches, pool in zip(by_pool(plan, pools), pools, strict=True):
        left = [
            sample
            for sample in batching.descending(pool, sizes)
            if rule.oversize != "drop" or not batching.too_large(rule, sizes[sample])
        ]
        at = {sample: place for place, sample in enumerate(left)}
        assert flat(sorted(batches, key=lambda batch: at[batch[0]])) == left
        assert batching.cost(rule, batches, sizes) == batching.least_cost(rule, pool, sizes)


@few
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=60),
    coefficients=st.tuples(*[st.floats(0, 1e6, allow_subnormal=False)] * 3),
    max_tokens=st.none() | st.integers(3000, 20_000),
)
def test_optimal_cuts_by_any_coefficients(sizes, coefficients, max_tokens):
    assume(any(coefficients))
    rule = bl.CostOptimal(bl.CostModel(*coefficients), max_tokens=max_tokens)
    plan = bl.Plan(sizes=sizes, batching=rule)
    found = float(batching.cost(rule, batches_of(plan), sizes))
    assert found == pytest.approx(float(batching.least_cost(rule, range(len(sizes)), sizes)), rel=1e-9)


@pytest.mark.parametrize(
    "coefficients",
    [(1e308, 1e308, 1e308), (5e-324, 0, 0), (0, 5e-324, 0), (1e308, 5e-324, 0), (0, 0, 1e308), (1e-300, 1e300, 1e-300)],
)
def test_costs_at_the_edge_of_numbers_still_cut(coefficients):
    sizes = [2**32 - 1, 0, 5, 5, 2**31, 1, 0]
    for rule in (
        bl.CostOptimal(bl.CostModel(*coefficients)),
        bl.CostOptimal(bl.CostModel(*coefficients), max_tokens=2**33, max_samples=3),
    ):
        batches = batches_of(bl.Plan(sizes=sizes, batching=rule))
        assert sorted(flat(batches)) == list(range(7))
        assert all(batches)


@settings(max_examples=settings.default.max_examples * 3)
@given(sizes=sized(), rule=packings, shuffle=st.booleans(), seed=seeds)
def test_bins_are_those_of_best_fit(sizes, rule, shuffle, seed):
    plan = planned(sizes, rule, shuffle=shuffle, seed=seed)
    loads = {tuple(batch): [] for batch in batches_of(plan)}
    for step, batch in enumerate(batches_of(plan)):
        loads[tuple(batch)].append(plan.step(step).tokens)
        assert plan.step(step).tokens <= rule.max_tokens
        assert len(batch) <= (rule.max_samples or len(batch))
    pools = pools_of(plan, sizes)
    for batches, pool in zip(by_pool(plan, pools), pools, strict=True):
        times = Counter(sample for batch in batches for sample in batch)
        parts = {sample: len(batching.parts(rule, sizes[sample])) for sample in pool}
        assert times == {sample: count for sample, count in parts.items() if count}
        full = [load for batch in {*map(tuple, batches)} for load in loads[batch]]
        assert sum(full) == sum(sum(batching.parts(rule, sizes[sample])) for sample in pool)
        if rule.max_samples is None:
            assert sorted(full) == batching.best_fit(rule, pool, sizes, shuffle)
        # Best fit opens a bin only for what no other takes, so no two are one.
        for (first, second), (one, other) in zip(
            itertools.combinations(batches, 2),
            itertools.combinations([loads[tuple(b)][0] for b in batches], 2),
            strict=True,
        ):
            crowded = len(first) + len(second) > (rule.max_samples or len(sizes) * 99)
            assert crowded or one + other > rule.max_tokens or rule.oversize == "split"


@pytest.mark.parametrize("max_tokens", [63, 64, 65, 4095, 4096, 4097, 300_000])
@pytest.mark.parametrize("oversize", ["truncate", "split"])
def test_bins_of_any_capacity_are_those_of_best_fit(max_tokens, oversize):
    """The tree of free space has a level for each six bits."""
    random = numpy.random.default_rng(max_tokens)
    rule = bl.Packing(max_tokens, oversize=oversize)
    for most in (max_tokens // 2, max_tokens + 1, 3 * max_tokens):
        sizes = random.integers(0, most, 300).tolist()
        plan = bl.Plan(sizes=sizes, batching=rule)
        assert sorted(plan.step(step).tokens for step in range(len(plan))) == batching.best_fit(rule, range(300), sizes)


@pytest.mark.parametrize(
    "limits", [{}, {"max_tokens": 30_000}, {"max_samples": 20}, {"max_tokens": 9000, "multiple_of": 16}]
)
def test_optimal_cuts_of_many_samples(limits):
    random = numpy.random.default_rng(0)
    sizes = random.lognormal(5, 1, 1500).astype(int).clip(0, 4000)
    for coefficients in ((5000, 1, 0.001), (0.5, 0, 1e-6), (10, 3, 0)):
        rule = bl.CostOptimal(bl.CostModel(*coefficients), **limits)
        plan = bl.Plan(sizes=sizes, batching=rule)
        lengths = numpy.sort(-(-sizes // rule.multiple_of) * rule.multiple_of)[::-1].astype(float)
        fixed, per_token, per_pair = coefficients
        best = numpy.zeros(len(sizes) + 1)
        for end in range(1, len(sizes) + 1):
            starts = numpy.arange(max(0, end - (rule.max_samples or end)), end)
            each = lengths[starts]
            tokens = (end - starts) * each
            costs = best[starts] + fixed + tokens * (per_token + per_pair * each)
            best[end] = costs[tokens <= (rule.max_tokens or numpy.inf)].min()
        found = float(batching.cost(rule, batches_of(plan), sizes.tolist()))
        assert found == pytest.approx(best[-1], rel=1e-12)


@pytest.mark.law("L8")
@given(sizes=sized(size=200), max_tokens=st.integers(1, 60), shuffle=st.booleans(), seed=seeds)
def test_split_samples_are_all_there(sizes, max_tokens, shuffle, seed):
    plan = bl.Plan(sizes=sizes, batching=bl.Packing(max_tokens, oversize="split"), shuffle=shuffle, seed=seed)
    times = Counter(flat(batches_of(plan)))
    assert times == {sample: max(-(-size // max_tokens), 1) for sample, size in enumerate(sizes)}
    assert sum(plan.step(step).tokens for step in range(len(plan))) == sum(sizes)
    stats = plan.stats()
    assert stats["split"] == sum(size > max_tokens for size in sizes)
    assert (stats["truncated"], stats["truncated_tokens"], stats["dropped"]) == (0, 0, 0)
    for sample, count in times.items():
        assert len(plan.where(sample)) == count
        assert all(sample == plan[place.step][place.index] for place in plan.where(sample))


# L1 partition, L6 budget, L8 whole


@pytest.mark.law("L1", "L6")
@settings(max_examples=settings.default.max_examples * 3)
@given(sizes=sized(), rule=rules, shuffle=st.booleans(), drop_last=st.booleans(), seed=seeds, world_size=worlds)
def test_every_sample_comes_once_within_every_limit_less_what_the_plan_says(
    sizes, rule, shuffle, drop_last, seed, world_size
):
    options = {"shuffle": shuffle, "drop_last": drop_last, "seed": seed, "world_size": world_size, "uneven": "short"}
    plan = planned(sizes, rule, **options)
    ranks = [bl.Plan(sizes=sizes, batching=rule, **options, rank=rank) for rank in range(world_size)]
    batches = [batch for rank in ranks for batch in batches_of(rank)]
    times = Counter(flat(batches))
    whole = rule.oversize != "split" if isinstance(rule, bl.Packing) else True
    assert all(batches)
    assert set(times) <= set(range(len(sizes)))
    assert not whole or set(times.values()) <= {1}
    stats = plan.stats()
    assert stats["dropped"] == len(sizes) - len(times) or not whole
    if not drop_last:
        left_out = [size for size in sizes if batching.too_large(rule, size) and batching.policy(rule) == "drop"]
        assert stats["dropped"] == len(left_out)
        assert stats["dropped_tokens"] == sum(left_out)
    if isinstance(rule, bl.TokenBudget | bl.CostOptimal):
        for batch in batches:
            alone = len(batch) == 1 and rule.oversize == "alone" and batching.too_large(rule, sizes[batch[0]])
            assert alone or batching.fits(rule, batch, sizes)


@given(sizes=sized(), rule=rules, shuffle=st.booleans(), seed=seeds, world_size=worlds, drop_last=st.booleans())
def test_samples_of_a_batch_come_longest_first(sizes, rule, shuffle, seed, world_size, drop_last):
    assume(not isinstance(rule, bl.FixedSize))
    options = {"shuffle": shuffle, "seed": seed, "world_size": world_size, "drop_last": drop_last}
    plan = planned(sizes, rule, **options, uneven="short")
    for batch in batches_of(plan):
        lengths = [batching.taken(rule, sizes[sample]) for sample in batch]
        assert lengths == sorted(lengths, reverse=True) or batching.policy(rule) == "split"


@pytest.mark.law("L6")
@pytest.mark.parametrize("policy", ["error", "alone", "drop", "truncate"])
@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize("kind", [bl.TokenBudget, lambda **options: bl.CostOptimal(MODEL, **options)])
def test_a_sample_too_large_at_any_place(policy, place, kind):
    """A batcher of graphs delivers neighbours of such a sample twice."""
    sizes = [5] * 6
    sizes[place] = 20
    rule = kind(max_tokens=10, oversize=policy)
    plan = plan_of(sizes, rule)
    if policy == "error":
        assert plan is None
        return
    assert sorted(flat(batches_of(plan))) == [sample for sample in range(6) if policy != "drop" or sample != place]
    stats = plan.stats()
    assert (stats["dropped"], stats["dropped_tokens"]) == ((1, 20) if policy == "drop" else (0, 0))
    assert (stats["truncated"], stats["truncated_tokens"]) == ((1, 10) if policy == "truncate" else (0, 0))
    assert stats["real"] == {"alone": 45, "drop": 25, "truncate": 35}[policy]
    assert [place] in batches_of(plan) or policy == "drop"


def test_samples_that_just_fit_are_not_too_large():
    for rule in (
        bl.TokenBudget(10),
        bl.CostOptimal(MODEL, max_tokens=10),
        bl.Packing(10),
        bl.TokenBudget(10, count="real"),
    ):
        assert bl.Plan(sizes=[10, 0, 10, 1], batching=rule).stats()["real"] == 21
        with refused(bl.DataError, "sample 2", "size 11"):
            bl.Plan(sizes=[10, 0, 11, 12], batching=rule)
    # 9 is padded to 12.
    with refused(bl.DataError, "sample 1", "size 9", "4", "max_tokens", "10"):
        bl.Plan(sizes=[8, 9], batching=bl.TokenBudget(10, multiple_of=4))
    assert bl.Plan(sizes=[8, 9], batching=bl.TokenBudget(10, multiple_of=4, oversize="truncate")).stats()["real"] == 16
    assert bl.Plan(sizes=[8, 9], batching=bl.TokenBudget(10, multiple_of=4, count="real")).stats()["padded"] == 20


def test_empty_samples_cost_nothing_and_are_all_there():
    sizes = [0] * 1000
    for rule in (
        bl.TokenBudget(1),
        bl.TokenBudget(1, count="real"),
        bl.Packing(1),
        bl.CostOptimal(bl.CostModel(1), max_tokens=1),
    ):
        plan = bl.Plan(sizes=sizes, batching=rule)
        assert batches_of(plan) == [list(range(1000))]
        stats = plan.stats()
        assert (stats["real"], stats["padded"], stats["padding"], stats["efficiency"] or 0.0) == (0, 0, 0.0, 0.0)
    plan = bl.Plan(sizes=[0, 3, 0], batching=bl.TokenBudget(3))
    assert batches_of(plan) == [[1], [0, 2]]


def test_packing_fills_its_bins():
    sizes = numpy.random.default_rng(0).lognormal(6, 1, 60_000).astype(int).clip(1, 8192)
    for shuffle in (False, True):
        plan = bl.Plan(sizes=sizes, batching=bl.Packing(8192), shuffle=shuffle)
        assert plan.stats()["efficiency"] >= 0.995
        assert plan.stats()["real"] == sizes.sum()
    assert bl.Plan(sizes=sizes, batching=bl.Packing(8192)).stats()["efficiency"] >= 0.9995


@pytest.mark.parametrize("pool", [1, 2, 2**32, 2**64 - 1])
def test_pools_of_any_size(pool):
    for rule in (
        bl.LengthBuckets(3, pool=pool),
        bl.LengthBuckets(2**64 - 1, pool=pool),
        bl.TokenBudget(60, pool=pool),
        bl.CostOptimal(MODEL, pool=pool),
        bl.Packing(60, pool=pool),
    ):
        plan = bl.Plan(sizes=SPREAD, batching=rule, shuffle=True, world_size=3, uneven="short")
        ranks = [
            bl.Plan(sizes=SPREAD, batching=rule, shuffle=True, world_size=3, rank=rank, uneven="short")
            for rank in range(3)
        ]
        assert sorted(flat(flat(map(batches_of, ranks)))) == list(range(101))
        assert plan.stats()["real"] == sum(SPREAD)
