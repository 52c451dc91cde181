"""Plans that decide by size: the laws, against slow and obvious oracles. Integers only, no data."""

import contextlib
import itertools
import pickle
import random
from collections import Counter

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import batches_of, buckets, budgets, flat, optimals, packings, rules, seen, sized
from oracles.runs import advance, assert_resumes, chained, dealt, finish, fractions, saved
from refusals import refused

few = settings(max_examples=max(settings.default.max_examples // 2, 5))
worlds = st.integers(1, 5)
epochs = st.integers(0, 3)
seeds = st.integers(0, 2**64 - 1)
MODEL = bl.CostModel(7, 2, 1)
EACH = [
    bl.FixedSize(4),
    bl.LengthBuckets(4, pool=3, multiple_of=2),
    bl.TokenBudget(70, pool=25),
    bl.TokenBudget(50, count="real", max_length_spread=6, oversize="drop", pool=40),
    bl.TokenBudget(30, max_samples=3, multiple_of=4, oversize="truncate", pool=20),
    bl.CostOptimal(MODEL, max_tokens=80, oversize="alone", pool=33),
    bl.Packing(50, pool=30),
    bl.Packing(16, oversize="split", max_samples=3, pool=30),
    bl.Packing(16, oversize="truncate", pool=30),
]
SPREAD = [size * 7 % 41 for size in range(101)]


def named(rule):
    return str(rule).replace(" ", "")


def plan_of(sizes, rule, **options):
    """The plan; none where it is refused, for the reasons that there are."""
    first = batching.refused(rule, sizes)
    if first is not None:
        with refused(bl.DataError, f"sample {first}", f"size {sizes[first]}", "max_tokens", str(rule.max_tokens)):
            bl.Plan(sizes=sizes, batching=rule, **options)
        return None
    try:
        return bl.Plan(sizes=sizes, batching=rule, **options)
    except bl.ArgumentError as error:
        message = str(error)
    left = [size for size in sizes if not (batching.too_large(rule, size) and batching.policy(rule) == "drop")]
    assert (not left and "oversize" in message) or (options.get("drop_last") and "drop_last" in message)
    return None


def planned(sizes, rule, **options):
    plan = plan_of(sizes, rule, **options)
    assume(plan is not None)
    return plan


def by_pool(plan, pools):
    """The batches of each pool; a batch holds samples of one pool only, and pools follow each other."""
    pool_of = {sample: number for number, pool in enumerate(pools) for sample in pool}
    found = [[] for _ in pools]
    last = 0
    for batch in batches_of(plan):
        numbers = {pool_of[sample] for sample in batch}
        assert len(numbers) == 1
        assert numbers >= {last} or min(numbers) > last
        last = min(numbers)
        found[last].append(batch)
    return found


def pools_of(plan):
    rule = plan.batching
    order = batching.order(plan.samples, plan.shuffle, plan.seed, plan.epoch)
    return batching.pools(rule, order, plan.shuffle, plan.drop_last)


# What a rule makes of a pool


@settings(max_examples=settings.default.max_examples * 3)
@given(sizes=sized(), rule=batching.fixed | buckets | budgets, shuffle=st.booleans(), seed=seeds, epoch=epochs)
def test_every_pool_is_cut_as_the_oracle_cuts_it(sizes, rule, shuffle, seed, epoch):
    plan = planned(sizes, rule, shuffle=shuffle, seed=seed, epoch=epoch)
    pools = pools_of(plan)
    for batches, pool in zip(by_pool(plan, pools), pools, strict=True):
        expected = batching.cut(rule, pool, sizes)
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
    assert sorted(flat(batches_of(plan))) == sorted(left)
    pools = pools_of(plan)
    assert [sorted(batching.cut(rule, pool, sizes)) for pool in pools] == [
        sorted(found) for found in by_pool(plan, pools)
    ]


@settings(max_examples=settings.default.max_examples * 2)
@given(sizes=sized(samples=8, size=25), rule=optimals, shuffle=st.booleans(), seed=seeds)
@example(sizes=[3, 3, 3], rule=bl.CostOptimal(bl.CostModel(0, 0, 1)), shuffle=False, seed=0)
@example(sizes=[0, 0, 5], rule=bl.CostOptimal(bl.CostModel(1, 1, 0), max_tokens=8), shuffle=False, seed=0)
def test_no_division_costs_less_than_the_optimal_one(sizes, rule, shuffle, seed):
    plan = planned(sizes, rule, shuffle=shuffle, seed=seed)
    pools = pools_of(plan)
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
    pools = pools_of(plan)
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
    pools = pools_of(plan)
    for batches, pool in zip(by_pool(plan, pools), pools, strict=True):
        times = Counter(sample for batch in batches for sample in batch)
        assert times == {sample: len(batching.parts(rule, sizes[sample])) for sample in pool}
        full = [load for batch in {*map(tuple, batches)} for load in loads[batch]]
        assert sum(full) == sum(sum(batching.parts(rule, sizes[sample])) for sample in pool)
        if rule.max_samples is None:
            assert sorted(full) == batching.best_fit(rule, pool, sizes)
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
    plan = planned(sizes, rule, shuffle=shuffle, seed=seed, world_size=world_size, drop_last=drop_last)
    for batch in batches_of(plan):
        lengths = [batching.taken(rule, sizes[sample]) for sample in batch]
        assert lengths == sorted(lengths, reverse=True) or batching.policy(rule) == "split"


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


# L3 equal, and the deal


@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(),
    rule=rules,
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    uneven=st.sampled_from(["pad", "short"]),
    seed=seeds,
    world_size=worlds,
    largest_first=st.booleans(),
)
def test_ranks_share_the_batches_of_one(sizes, rule, shuffle, drop_last, uneven, seed, world_size, largest_first):
    options = {
        "shuffle": shuffle,
        "drop_last": drop_last,
        "uneven": uneven,
        "seed": seed,
        "largest_first": largest_first,
    }
    plan = planned(sizes, rule, **options, world_size=world_size)
    steps = dealt(batches_of(bl.Plan(sizes=sizes, batching=rule, **options)), world_size, drop_last, uneven)
    ranks = [
        bl.Plan(sizes=sizes, batching=rule, **options, world_size=world_size, rank=rank) for rank in range(world_size)
    ]
    assert [batches_of(rank) for rank in ranks] == [
        [step[rank] for step in steps if rank < len(step)] for rank in range(world_size)
    ]
    if drop_last or uneven == "pad":
        assert {len(rank) for rank in ranks} == {len(steps)}
    assert plan.stats()["steps"] == len(steps)
    found = [plan.step(number) for number in range(len(steps))]
    assert [[batch.tolist() for batch in step.batches] for step in found] == steps
    assert [step.samples for step in found] == [sum(map(len, step)) for step in steps]
    if batching.policy(rule) != "split":
        real = [[batching.taken(rule, sizes[sample]) for batch in step for sample in batch] for step in steps]
        assert [step.tokens for step in found] == [sum(lengths) for lengths in real]


@given(
    sizes=sized(),
    rule=rules,
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    seed=seeds,
    world_size=worlds,
    data=st.data(),
)
def test_where_is_where_it_comes(sizes, rule, shuffle, drop_last, seed, world_size, data):
    balance, largest_first = data.draw(st.booleans()), data.draw(st.booleans())
    plan = planned(
        sizes,
        rule,
        shuffle=shuffle,
        drop_last=drop_last,
        seed=seed,
        world_size=world_size,
        balance=balance,
        largest_first=largest_first,
    )
    places = {sample: [] for sample in range(len(sizes))}
    for step in range(plan.stats()["steps"]):
        for rank, batch in enumerate(plan.step(step).batches):
            for index, sample in enumerate(batch.tolist()):
                places[sample].append(bl.Place(step, rank, index))
    assert {sample: sorted(plan.where(sample)) for sample in places} == places


@given(
    sizes=sized(),
    rule=rules,
    seed=seeds,
    world_size=worlds,
    shuffle=st.booleans(),
    uneven=st.sampled_from(["pad", "short"]),
)
def test_balanced_steps_hold_the_same_batches(sizes, rule, seed, world_size, shuffle, uneven):
    options = {"shuffle": shuffle, "seed": seed, "world_size": world_size, "uneven": uneven}
    plain, plan = planned(sizes, rule, **options), planned(sizes, rule, **options, balance=True)
    ranks = [bl.Plan(sizes=sizes, batching=rule, **options, balance=True, rank=rank) for rank in range(world_size)]
    assert len({len(rank) for rank in ranks}) == 1 or uneven == "short"
    assert len(plan) == len(plain)
    once = Counter(
        tuple(batch) for batch in batches_of(bl.Plan(sizes=sizes, batching=rule, shuffle=shuffle, seed=seed))
    )
    found = Counter(tuple(batch) for rank in ranks for batch in batches_of(rank))
    assert found == once if uneven == "short" else not once - found
    one_pool = len(pools_of(plan)) == 1
    if one_pool and uneven == "short":
        assert plan.stats()["imbalance"] <= plain.stats()["imbalance"] + 1e-12


def test_balance_saves_most_of_the_waiting():
    sizes = numpy.random.default_rng(0).lognormal(5, 1, 20_000).astype(int).clip(1, 4000)
    for rule in (bl.LengthBuckets(16), bl.CostOptimal(bl.CostModel(5000, 1, 0.001), max_tokens=16_000)):
        plain = bl.Plan(sizes=sizes, batching=rule, shuffle=True, world_size=4).stats()
        even = bl.Plan(sizes=sizes, batching=rule, shuffle=True, world_size=4, balance=True).stats()
        assert even["real"] - even["repeated_tokens"] == plain["real"] - plain["repeated_tokens"]
        assert even["imbalance"] < plain["imbalance"] / 2


@given(sizes=sized(), rule=rules, seed=seeds, world_size=worlds, shuffle=st.booleans(), balance=st.booleans())
def test_the_largest_batch_comes_first_when_asked(sizes, rule, seed, world_size, shuffle, balance):
    options = {"shuffle": shuffle, "seed": seed, "world_size": world_size, "balance": balance}
    plan = planned(sizes, rule, **options, largest_first=True)
    assert max(plan._native.elements(0)) == plan.stats()["largest"]
    assert balance or plan._native.elements(0)[0] == plan.stats()["largest"]
    other = planned(sizes, rule, **options)
    assert len(plan) == len(other)
    if world_size == 1:
        assert sorted(batches_of(plan)) == sorted(batches_of(other))


# What plans say they cost


def recount(plan, sizes):
    """The numbers of ``stats()``, from the batches of all ranks and nothing else."""
    rule = plan.batching
    steps = [plan.step(step) for step in range(plan.stats()["steps"])]
    batches = [batch.tolist() for step in steps for batch in step.batches]
    padded = [[batching.padded(rule, batch.tolist(), sizes) for batch in step.batches] for step in steps]
    each = flat(padded)
    samples = flat(batches)
    waiting = sum(max(step) * plan.world_size for step in padded)
    lengths = [batching.taken(rule, sizes[sample]) for sample in samples]
    once = {sample: batching.taken(rule, sizes[sample]) for sample in samples}
    shapes = {(len(batch), cost // len(batch)) for batch, cost in zip(batches, each, strict=True)}
    budget = getattr(rule, "max_tokens", None)
    return {
        "samples": len(sizes),
        "tokens": sum(sizes),
        "batches": len(batches),
        "steps": len(steps),
        "world_size": plan.world_size,
        "real": sum(lengths),
        "padded": sum(each),
        "padding": pytest.approx(1 - sum(lengths) / sum(each) if sum(each) else 0.0),
        "efficiency": None
        if budget is None
        else pytest.approx((sum(lengths) if batching.counts_real(rule) else sum(each)) / (budget * len(batches))),
        "shapes": len(shapes),
        "dropped": len(sizes) - len(once),
        "dropped_tokens": sum(size for sample, size in enumerate(sizes) if sample not in once),
        "truncated": sum(sizes[sample] > batching.taken(rule, sizes[sample]) for sample in samples),
        "truncated_tokens": sum(sizes[sample] - batching.taken(rule, sizes[sample]) for sample in samples),
        "split": 0,
        "repeated": len(samples) - len(once),
        "repeated_tokens": sum(sizes[sample] for sample in samples) - sum(sizes[sample] for sample in once),
        "earlier": 0,
        "earlier_tokens": 0,
        "largest": max(each),
        "imbalance": pytest.approx(1 - sum(each) / waiting if waiting else 0.0),
    }


@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(),
    rule=batching.fixed | buckets | budgets | optimals,
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    uneven=st.sampled_from(["pad", "short"]),
    balance=st.booleans(),
    largest_first=st.booleans(),
    seed=seeds,
    world_size=worlds,
)
def test_stats_are_what_a_recount_says(
    sizes, rule, shuffle, drop_last, uneven, balance, largest_first, seed, world_size
):
    plan = planned(
        sizes,
        rule,
        shuffle=shuffle,
        drop_last=drop_last,
        uneven=uneven,
        balance=balance,
        largest_first=largest_first,
        seed=seed,
        world_size=world_size,
    )
    assert plan.stats() == recount(plan, sizes)


@given(
    sizes=sized(), rule=packings, drop_last=st.booleans(), uneven=st.sampled_from(["pad", "short"]), world_size=worlds
)
def test_stats_of_packs_are_what_a_recount_says(sizes, rule, drop_last, uneven, world_size):
    plan = planned(sizes, rule, shuffle=True, drop_last=drop_last, uneven=uneven, world_size=world_size)
    stats = plan.stats()
    steps = [plan.step(step) for step in range(stats["steps"])]
    loads = [plan._native.elements(step) for step in range(stats["steps"])]
    assert [step.tokens for step in steps] == [sum(load) for load in loads]
    each = flat(loads)
    assert stats["real"] == stats["padded"] == sum(each)
    assert stats["padding"] == 0.0
    assert stats["batches"] == len(each)
    assert stats["largest"] == max(each)
    assert stats["efficiency"] == pytest.approx(sum(each) / (len(each) * rule.max_tokens))
    assert stats["shapes"] == len(set(each))
    if rule.oversize != "split":
        times = Counter(sample for step in steps for batch in step.batches for sample in batch.tolist())
        assert stats["dropped"] == len(sizes) - len(times)
        assert stats["repeated"] == times.total() - len(times)
        cut = sum((sizes[sample] - batching.taken(rule, sizes[sample])) * count for sample, count in times.items())
        assert stats["truncated_tokens"] == cut


@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(),
    rule=rules,
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    uneven=st.sampled_from(["pad", "short"]),
    balance=st.booleans(),
    seed=seeds,
    world_size=worlds,
)
def test_no_token_is_lost_without_being_counted(sizes, rule, shuffle, drop_last, uneven, balance, seed, world_size):
    options = {"shuffle": shuffle, "drop_last": drop_last, "uneven": uneven, "seed": seed, "world_size": world_size}
    stats = planned(sizes, rule, **options, balance=balance).stats()
    given_tokens = stats["tokens"] + stats["repeated_tokens"]
    assert given_tokens == sum(stats[kind] for kind in ("real", "truncated_tokens", "dropped_tokens", "earlier_tokens"))
    assert all(value >= 0 for value in stats.values() if value is not None)
    if batching.policy(rule) != "alone" and not batching.counts_real(rule):
        assert 0 <= (stats["efficiency"] or 0.0) <= 1


def test_an_efficiency_is_not_rounded_and_counts_every_batch():
    """One packer subtracts after slicing and floors, another leaves the dropped batch out."""
    plan = bl.Plan(sizes=[6, 5, 5, 4, 3], batching=bl.Packing(10))
    assert sorted(map(sorted, batches_of(plan))) == [[0, 3], [1, 2], [4]]
    assert plan.stats()["efficiency"] == pytest.approx(23 / 30)


def test_packing_fills_its_bins():
    sizes = numpy.random.default_rng(0).lognormal(6, 1, 60_000).astype(int).clip(1, 8192)
    for shuffle in (False, True):
        plan = bl.Plan(sizes=sizes, batching=bl.Packing(8192), shuffle=shuffle)
        assert plan.stats()["efficiency"] >= 0.995
        assert plan.stats()["real"] == sizes.sum()
    assert bl.Plan(sizes=sizes, batching=bl.Packing(8192)).stats()["efficiency"] >= 0.9995


# Numbers that are large


def test_sums_beyond_32_bits_are_exact():
    sizes = [2**32 - 1, 2**32 - 1, 2**32 - 2, 3, 0]
    plan = bl.Plan(sizes=sizes, batching=bl.LengthBuckets(3))
    assert batches_of(plan) == [[0, 1, 2], [3, 4]]
    stats = plan.stats()
    assert (stats["tokens"], stats["real"]) == (sum(sizes), sum(sizes))
    assert (stats["padded"], stats["largest"]) == (3 * (2**32 - 1) + 6, 3 * (2**32 - 1))
    assert plan.step(0).tokens == 3 * 2**32 - 4
    budget = bl.TokenBudget(2**33)
    assert batches_of(bl.Plan(sizes=sizes, batching=budget)) == [[0, 1], [2, 3], [4]]
    assert batches_of(bl.Plan(sizes=sizes, batching=bl.TokenBudget(2**63, multiple_of=2**32 - 1))) == [[0, 1, 2, 3, 4]]
    assert batches_of(bl.Plan(sizes=sizes, batching=bl.TokenBudget(2**64 - 1, count="real"))) == [[0, 1, 2, 3, 4]]
    optimal = bl.CostOptimal(bl.CostModel(1, 1, 1e-9), max_tokens=2**40)
    assert sorted(flat(batches_of(bl.Plan(sizes=sizes, batching=optimal)))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("multiple_of", [2**31, 2**32 - 1])
def test_lengths_rounded_up_beyond_32_bits(multiple_of):
    sizes = [2**32 - 1, 2**31 + 1, 1, 0]
    for rule in (
        bl.LengthBuckets(1, multiple_of=multiple_of),
        bl.TokenBudget(2**33, max_samples=1, multiple_of=multiple_of),
        bl.CostOptimal(bl.CostModel(0, 1, 0), max_samples=1, multiple_of=multiple_of),
    ):
        plan = bl.Plan(sizes=sizes, batching=rule)
        assert plan.stats()["padded"] == sum(batching.rounded(size, multiple_of) for size in sizes)
        assert len(plan) == 4


def test_split_pieces_of_the_longest_samples():
    plan = bl.Plan(sizes=[2**32 - 1, 2**32 - 1, 5], batching=bl.Packing(2**28, oversize="split"))
    assert len(plan) == 32 + 1
    assert plan.stats()["real"] == 2**33 + 3
    assert Counter(flat(batches_of(plan))) == {0: 16, 1: 16, 2: 1}


def test_many_samples_of_many_tokens():
    sizes = numpy.full(3_000_000, 4000, numpy.uint16)
    plan = bl.Plan(sizes=sizes, batching=bl.TokenBudget(2**20), shuffle=True, world_size=5)
    stats = plan.stats()
    assert stats["tokens"] == 12_000_000_000
    assert stats["real"] == stats["padded"] == 12_000_000_000 + stats["repeated_tokens"]
    assert stats["largest"] == 262 * 4000


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


# L2 pure


@given(sizes=sized(), rule=rules, shuffle=st.booleans(), seed=seeds, epoch=st.integers(0, 2**64 - 1), world_size=worlds)
def test_a_plan_is_a_value(sizes, rule, shuffle, seed, epoch, world_size):
    options = {
        "shuffle": shuffle,
        "seed": seed,
        "epoch": epoch,
        "world_size": world_size,
        "rank": world_size - 1,
        "balance": True,
    }
    plan = planned(sizes, rule, **options)
    expected = batches_of(plan)
    again = bl.Plan(sizes=sizes, batching=rule, **options)
    places = list(range(len(again)))
    random.Random(0).shuffle(places)
    assert {place: again[place].tolist() for place in places} == dict(enumerate(expected))
    travelled = pickle.loads(pickle.dumps(plan))
    assert travelled == again == plan
    assert hash(travelled) == hash(plan)
    assert batches_of(travelled) == expected
    assert travelled.stats() == plan.stats()
    assert travelled.sizes.tolist() == sizes
    assert batches_of(plan.at_epoch(epoch)) == expected


SAME = {
    "list": list,
    "tuple": tuple,
    "uint8": lambda sizes: numpy.array(sizes, numpy.uint8),
    "int16": lambda sizes: numpy.array(sizes, numpy.int16),
    "uint32": lambda sizes: numpy.array(sizes, numpy.uint32),
    "uint64": lambda sizes: numpy.array(sizes, numpy.uint64),
    "big endian": lambda sizes: numpy.array(sizes, ">u4"),
    "strided": lambda sizes: numpy.repeat(numpy.array(sizes, numpy.uint32), 3)[::3],
    "backwards": lambda sizes: numpy.array(sizes[::-1], numpy.uint32)[::-1],
    "float": lambda sizes: numpy.array(sizes, float),
    "float32": lambda sizes: numpy.array(sizes, numpy.float32),
    "tensor": lambda sizes: torch.tensor(sizes),
    "int32 tensor": lambda sizes: torch.tensor(sizes, dtype=torch.int32),
    "read-only": lambda sizes: numpy.frombuffer(numpy.array(sizes, numpy.uint32).tobytes(), numpy.uint32),
}


@pytest.mark.parametrize("kind", SAME)
def test_sizes_of_any_kind_are_the_same_sizes(kind):
    expected = bl.Plan(sizes=SPREAD, batching=bl.TokenBudget(99), shuffle=True)
    plan = bl.Plan(sizes=SAME[kind](SPREAD), batching=bl.TokenBudget(99), shuffle=True)
    assert plan == expected
    assert batches_of(plan) == batches_of(expected)
    assert plan.sizes.tolist() == SPREAD


def test_half_floats_are_sizes_too():
    plan = bl.Plan(sizes=numpy.array(SPREAD, numpy.float16), batching=bl.TokenBudget(99))
    assert plan.sizes.tolist() == SPREAD


def test_sizes_are_read_when_the_plan_is_made():
    sizes = numpy.array(SPREAD, numpy.uint32)
    plan = bl.Plan(sizes=sizes, batching=bl.TokenBudget(99), shuffle=True)
    expected, fingerprint = batches_of(plan), plan.fingerprint
    sizes[:] = 1
    assert (batches_of(plan), plan.fingerprint, plan.sizes.tolist()) == (expected, fingerprint, SPREAD)
    plan.sizes[:] = 2
    assert plan.sizes.tolist() == SPREAD


OTHERS = [
    bl.FixedSize(4),
    bl.FixedSize(5),
    bl.LengthBuckets(4),
    bl.LengthBuckets(4, pool=3),
    bl.LengthBuckets(4, multiple_of=2),
    bl.TokenBudget(50),
    bl.TokenBudget(51),
    bl.TokenBudget(50, count="real"),
    bl.TokenBudget(50, max_length_spread=0),
    bl.TokenBudget(50, max_length_spread=1),
    bl.TokenBudget(50, max_samples=3),
    bl.TokenBudget(50, multiple_of=2),
    bl.TokenBudget(50, oversize="alone"),
    bl.TokenBudget(50, oversize="drop"),
    bl.TokenBudget(50, oversize="truncate"),
    bl.TokenBudget(50, pool=3),
    bl.CostOptimal(MODEL),
    bl.CostOptimal(bl.CostModel(7, 2, 1.0000000000000002)),
    bl.CostOptimal(MODEL, max_tokens=50),
    bl.CostOptimal(MODEL, max_samples=3),
    bl.CostOptimal(MODEL, multiple_of=2),
    bl.CostOptimal(MODEL, oversize="drop"),
    bl.CostOptimal(MODEL, pool=3),
    bl.Packing(50),
    bl.Packing(51),
    bl.Packing(50, max_samples=3),
    bl.Packing(50, oversize="truncate"),
    bl.Packing(50, oversize="split"),
    bl.Packing(50, pool=3),
]


def test_different_runs_have_different_fingerprints_and_equal_ones_equal():
    def prints():
        yield from (bl.Plan(sizes=SPREAD, batching=rule).fingerprint for rule in OTHERS)
        yield bl.Plan(len(SPREAD), 4).fingerprint
        for place in (0, 50, 100):
            changed = list(SPREAD)
            changed[place] += 1
            yield bl.Plan(sizes=changed, batching=OTHERS[5]).fingerprint
        yield bl.Plan(sizes=SPREAD[::-1], batching=OTHERS[5]).fingerprint
        yield bl.Plan(sizes=[*SPREAD, 0], batching=OTHERS[5]).fingerprint
        yield bl.Plan(sizes=[0, *SPREAD], batching=OTHERS[5]).fingerprint
        for option in ({"shuffle": True}, {"seed": 1}, {"drop_last": True}, {"uneven": "short"}, {"balance": True}):
            yield bl.Plan(sizes=SPREAD, batching=OTHERS[5], **option).fingerprint
        yield bl.Plan(sizes=SPREAD, batching=OTHERS[5], largest_first=True).fingerprint

    found = list(prints())
    assert len(set(found)) == len(found)
    assert list(prints()) == found


@pytest.mark.parametrize("rule", EACH, ids=named)
def test_worlds_epochs_and_ranks_share_a_fingerprint(rule):
    plans = [
        bl.Plan(sizes=SPREAD, batching=rule, shuffle=True, world_size=world_size, rank=world_size - 1, epoch=epoch)
        for world_size in range(1, 4)
        for epoch in range(3)
    ]
    assert len({plan.fingerprint for plan in plans}) == 1
    loader = bl.DataLoader(batching.dataset(SPREAD), batching=rule, shuffle=True)
    assert loader.plan().fingerprint == plans[0].fingerprint
    assert loader.plan() == plans[0]


@pytest.mark.parametrize("rule", OTHERS, ids=named)
def test_rules_are_values(rule):
    travelled = pickle.loads(pickle.dumps(rule))
    assert travelled == rule
    assert hash(travelled) == hash(rule)
    assert repr(travelled) == repr(rule)
    assert eval(repr(rule), vars(bl)) == rule
    assert sum(rule == other for other in OTHERS) == 1
    with pytest.raises(AttributeError):
        rule.pool = 5


# L4 resume, L5 elastic, L10 exact length


def run(rule, sizes, world_size=1, rank=0, **options):
    options = {"shuffle": True, "seed": 5, "output": "numpy", "num_threads": 1} | options
    return bl.DataLoader(batching.dataset(sizes), batching=rule, world_size=world_size, rank=rank, **options)


def ranks(rule, sizes, world_size, **options):
    return [run(rule, sizes, world_size, rank, **options) for rank in range(world_size)]


SMALL = SPREAD[:37]


@pytest.mark.parametrize("rule", EACH, ids=named)
@pytest.mark.parametrize("world_size", [1, 3])
def test_resume_at_every_step(rule, world_size):
    first, following = (run(rule, SMALL, world_size, world_size - 1) for _ in range(2))
    following.set_epoch(1)
    expected = [seen(first), seen(following)]
    loader = run(rule, SMALL, world_size, world_size - 1)
    assert_resumes(loader, lambda: run(rule, SMALL, world_size, world_size - 1, seed=77), expected, seen)


@pytest.mark.parametrize("rule", EACH, ids=named)
@pytest.mark.parametrize("balance", [False, True])
def test_another_world_takes_exactly_what_is_left(rule, balance):
    options = {"uneven": "short", "balance": balance}
    whole = seen(run(rule, SMALL, **options))
    for before, after in [(1, 2), (2, 1), (2, 3), (3, 3), (5, 2), (4, 5)]:
        steps = len(whole) // before
        for stop in {1, steps // 2, steps}:
            taken, state = advance(ranks(rule, SMALL, before, **options), min(stop, steps), seen)
            found = taken + finish(ranks(rule, SMALL, after, **options), seen, state)
            if balance:
                assert sorted(found) == sorted(whole)
            else:
                assert found == whole


@few
@given(
    sizes=sized(samples=40),
    rule=rules,
    chain=st.lists(st.tuples(worlds, fractions), min_size=1, max_size=3),
    end=worlds,
    balance=st.booleans(),
    largest_first=st.booleans(),
    shuffle=st.booleans(),
)
def test_any_chain_of_worlds_delivers_each_batch_once(sizes, rule, chain, end, balance, largest_first, shuffle):
    options = {"uneven": "short", "balance": balance, "largest_first": largest_first, "shuffle": shuffle}
    planned(sizes, rule, **options)
    loader = run(rule, sizes, **options)
    before = [(ranks(rule, sizes, world_size, **options), stop) for world_size, stop in chain]
    found = chained(loader.state_dict(), before, ranks(rule, sizes, end, **options), seen)
    assert all(loaders[0].plan().stats()["earlier"] <= len(sizes) for loaders, _ in before)
    whole = seen(loader)
    assert sorted(found) == sorted(whole)
    assert balance or found == whole


@few
@given(sizes=sized(samples=40), rule=rules, before=worlds, after=worlds, stop=fractions, balance=st.booleans())
def test_a_padded_remainder_loses_nothing_and_ranks_stay_equal(sizes, rule, before, after, stop, balance):
    planned(sizes, rule)
    taken, state = advance(ranks(rule, sizes, before, balance=balance), stop, seen)
    left = Counter(seen(run(rule, sizes, balance=balance))) - Counter(taken)
    found = Counter(finish(ranks(rule, sizes, after, balance=balance), seen, state))
    assert not left - found
    assert found.total() % after == 0
    assert found.total() - left.total() < after


@pytest.mark.parametrize("rule", EACH, ids=named)
def test_the_stats_of_a_remainder_count_what_came_earlier(rule):
    loader = run(rule, SPREAD, uneven="short")
    batches = iter(loader)
    delivered = [next(batches) for _ in range(5)]
    resumed = run(rule, SPREAD, uneven="short")
    resumed.load_state_dict(saved(loader.state_dict()))
    stats, whole = resumed.plan().stats(), loader.plan(0).stats()
    assert stats["batches"] == whole["batches"] - 5
    lengths = [numpy.diff(batch["cu_seqlens"]) if "cu_seqlens" in batch else batch["lengths"] for batch in delivered]
    assert whole["real"] - stats["real"] == sum(int(length.sum()) for length in lengths)
    for kind in ("samples", "tokens", "dropped", "dropped_tokens"):
        assert stats[kind] == whole[kind]
    assert (
        stats["tokens"] == stats["real"] + stats["truncated_tokens"] + stats["dropped_tokens"] + stats["earlier_tokens"]
    )


def test_a_state_of_other_sizes_or_another_rule_is_refused():
    state = saved(run(bl.TokenBudget(50), SPREAD).state_dict())
    changed = [*SPREAD[:-1], SPREAD[-1] + 1]
    for other in (run(bl.TokenBudget(50), changed), run(bl.TokenBudget(51), SPREAD), run(bl.Packing(50), SPREAD)):
        before = other.state_dict()
        with refused(bl.StateError, "fingerprint"):
            other.load_state_dict(state)
        assert other.state_dict() == before
    run(bl.TokenBudget(50), SPREAD).load_state_dict(state)


@pytest.mark.parametrize("rule", EACH, ids=named)
def test_the_length_is_exact_in_every_epoch(rule):
    for world_size in range(1, 6):
        for uneven in ("pad", "short"):
            for rank in range(world_size):
                loader = run(rule, SMALL, world_size, rank, uneven=uneven)
                for epoch in range(3):
                    length = len(loader)
                    assert length == len(loader.plan(epoch))
                    assert sum(1 for _ in loader) == length


# L7 fresh


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


@few
@given(sizes=sized(samples=30), rule=rules)
def test_asking_for_a_step_needs_no_other(sizes, rule):
    """A step of a late epoch, asked for first."""
    late = planned(sizes, rule, shuffle=True, epoch=2**63)
    step = len(late) - 1
    fresh = bl.Plan(sizes=sizes, batching=rule, shuffle=True, epoch=2**63)
    assert fresh[step].tolist() == late[step].tolist()
    assert fresh.step(step).tokens == late.step(step).tokens


@pytest.mark.parametrize("rule", EACH, ids=named)
def test_a_remainder_says_where_samples_come(rule):
    loader = run(rule, SMALL, uneven="short")
    batches = iter(loader)
    early = [next(batches)["index"].tolist() for _ in range(3)]
    resumed = run(rule, SMALL, 2, 1, uneven="short")
    resumed.load_state_dict(saved(loader.state_dict()))
    plan = resumed.plan()
    travelled = pickle.loads(pickle.dumps(plan))
    assert travelled == plan
    assert batches_of(travelled) == batches_of(plan)
    for sample in range(len(SMALL)):
        assert travelled.where(sample) == plan.where(sample)
        assert not plan.where(sample) or sample not in flat(early) or batching.policy(rule) == "split"
        for place in plan.where(sample):
            assert plan.step(place.step).batches[place.rank][place.index] == sample


@pytest.mark.parametrize("rule", EACH, ids=named)
def test_reports_of_plans_with_sizes(rule, tmp_path):
    plan = bl.Plan(sizes=SPREAD, batching=rule, shuffle=True, world_size=3, balance=True)
    plan.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text()
    assert type(rule).__name__ in text
    assert str(plan.stats()["steps"]) in text


# Sizes that make no sense


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([3, -1, 2], ("sample 1", "-1")),
        ([3, 2, -(2**63)], ("sample 2",)),
        ([3, 2, 2**32], ("sample 2", str(2**32))),
        ([3, 2**63 - 1], ("sample 1", str(2**63 - 1))),
        (numpy.array([1, 2**64 - 1], numpy.uint64), ("sample 1", str(2**64 - 1))),
        ([1, float("nan"), 2], ("sample 1", "nan")),
        ([1, 2, float("inf")], ("sample 2", "inf")),
        ([float("-inf"), 2], ("sample 0", "-inf")),
        ([1, 2.5], ("sample 1", "2.5")),
        ([1, -0.5], ("sample 1", "-0.5")),
        (torch.tensor([1, -7]), ("sample 1", "-7")),
        (numpy.array([1, 2**40], float), ("sample 1",)),
        (5, ("()",)),
        (numpy.ones((2, 3, 4), int), ("(2, 3, 4)",)),
        ("abc", ("()",)),
        ({1: 2}, ("()",)),
    ],
    ids=str,
)
def test_sizes_that_are_none(sizes, parts):
    for rule in (bl.TokenBudget(5), bl.FixedSize(2)):
        with refused(bl.DataError, "sizes" if "sample" not in parts[0] else "size", *parts):
            bl.Plan(sizes=sizes, batching=rule)


@pytest.mark.parametrize(
    "sizes",
    [[None], ["1", "2"], [True], [1j], [2**70], numpy.array([1], "M8[s]"), numpy.array([{}])],
    ids=str,
)
def test_sizes_that_are_no_numbers(sizes):
    with refused(bl.DTypeError, "sizes", "integers"):
        bl.Plan(sizes=sizes, batching=bl.TokenBudget(5))


@pytest.mark.parametrize(
    "dtype",
    [
        numpy.float32,
        numpy.float64,
    ],
)
def test_floats_just_beyond_sizes(dtype):
    with refused(bl.DataError, "sample 1", {"4294967296", "4294967296.0"}):
        bl.Plan(sizes=numpy.array([3, 2**32], dtype), batching=bl.LengthBuckets(2))


def test_infinite_half_floats():
    with refused(bl.DataError, "sample 1", "inf"):
        bl.Plan(sizes=numpy.array([3, numpy.inf], numpy.float16), batching=bl.LengthBuckets(2))


@pytest.mark.parametrize("sizes", [[], numpy.zeros(0, numpy.uint32), numpy.zeros(0)], ids=str)
def test_no_sizes(sizes):
    for rule in (bl.TokenBudget(5), bl.FixedSize(2)):
        with refused(bl.DataError, "no samples"):
            bl.Plan(sizes=sizes, batching=rule)


@pytest.mark.parametrize(
    "sizes",
    [
        [[1], [1, 2]],
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, requires_grad=True),
        torch.ones(3, device="meta"),
    ],
    ids=["ragged", "brain floats", "gradient", "device"],
)
def test_sizes_that_numpy_cannot_read(sizes):
    with contextlib.suppress(bl.Error):
        assert bl.Plan(sizes=sizes, batching=bl.TokenBudget(5)).sizes.tolist() == [1, 1, 1]


def test_a_rule_that_needs_sizes_says_so():
    for rule in OTHERS[2:]:
        with refused(bl.ArgumentError, type(rule).__name__, "size"):
            bl.Plan(10, batching=rule)
    with refused(bl.DataError, "3 sizes", "4 samples"):
        bl.Plan(4, sizes=[1, 2, 3], batching=bl.TokenBudget(5))
    with refused(bl.ArgumentError, "samples", "sizes"):
        bl.Plan(batching=bl.TokenBudget(5))


def test_nothing_is_left():
    with refused(bl.ArgumentError, "oversize", "3 samples", "max_tokens", "5"):
        bl.Plan(sizes=[6, 7, 8], batching=bl.TokenBudget(5, oversize="drop"))
    with refused(bl.ArgumentError, "drop_last", "3 samples", "1", "4 ranks"):
        bl.Plan(sizes=[6, 7, 8], batching=bl.TokenBudget(50), drop_last=True, world_size=4)
    with refused(bl.ArgumentError, "drop_last", "3 samples", "4"):
        bl.Plan(sizes=[6, 7, 8], batching=bl.LengthBuckets(4), drop_last=True)


def test_more_parts_than_memory_is_an_error_and_no_abort(script):
    script(
        """
        import resource
        import batchloom as bl

        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        try:
            len(bl.Plan(sizes=[2**32 - 1], batching=bl.Packing(1, oversize="split")))
        except (bl.Error, MemoryError) as error:
            print(error)
        """
    )


def test_an_epoch_without_a_step_is_an_error_and_not_an_empty_loop():
    lengths = numpy.random.default_rng(0).integers(1, 50, 40)
    rule = bl.TokenBudget(100, pool=8)
    values = (numpy.zeros(int(lengths.sum())), numpy.concatenate([[0], numpy.cumsum(lengths)]))
    options = {"batching": rule, "shuffle": True, "drop_last": True, "rank": 0, "world_size": 17}
    loader = bl.DataLoader(bl.SequenceDataset(x=values), **options)
    for epoch in range(10):
        loader.set_epoch(epoch)
        if len(loader.plan(epoch)):
            assert len(list(loader)) == len(loader.plan(epoch))
        else:
            with refused(bl.ArgumentError, "drop_last"):
                iter(loader)
