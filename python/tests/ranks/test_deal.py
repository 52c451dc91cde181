"""Batches of any size on ranks (L3): shared, balanced, the largest first."""

from collections import Counter

import batchloom as bl
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import batches_of, rules, sized
from oracles.plans import planned, pools_of, seeds, worlds
from oracles.runs import dealt, unfilled


@pytest.mark.law("L3")
@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(),
    rule=rules,
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    uneven=st.sampled_from(["pad", "mask", "short"]),
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
    one = batches_of(bl.Plan(sizes=sizes, batching=rule, **options))
    steps = dealt(one, world_size, drop_last, uneven, isinstance(rule, bl.FixedSize | bl.LengthBuckets))
    counts = steps if uneven != "mask" else dealt(one, world_size, drop_last, "short")
    counts = [[len(batch) for batch in step] + [0] * (world_size - len(step)) for step in counts]
    ranks = [
        bl.Plan(sizes=sizes, batching=rule, **options, world_size=world_size, rank=rank) for rank in range(world_size)
    ]
    assert [batches_of(rank) for rank in ranks] == [
        [step[rank] for step in steps if rank < len(step)] for rank in range(world_size)
    ]
    if drop_last or uneven != "short":
        assert {len(rank) for rank in ranks} == {len(steps)}
    assert plan.stats()["steps"] == len(steps)
    found = [plan.step(number) for number in range(len(steps))]
    assert [[batch.tolist() for batch in step.batches] for step in found] == steps
    assert [step.samples for step in found] == list(map(sum, counts))
    taking = [count[: len(step)] for count, step in zip(counts, steps, strict=True)]
    assert [list(step.counts) for step in found] == taking
    if batching.policy(rule) != "split":
        counted = [
            [sample for batch, count in zip(*pair, strict=False) for sample in batch[:count]]
            for pair in zip(steps, counts, strict=True)
        ]
        real = [[batching.taken(rule, sizes[sample]) for sample in step] for step in counted]
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
    plain, plan = (
        planned(sizes, rule, **options),
        planned(sizes, rule, **options, balance=True),
    )
    ranks = [bl.Plan(sizes=sizes, batching=rule, **options, balance=True, rank=rank) for rank in range(world_size)]
    assert len({len(rank) for rank in ranks}) == 1 or uneven == "short"
    one = bl.Plan(sizes=sizes, batching=rule, shuffle=shuffle, seed=seed, balance=True)
    once = Counter(unfilled(batch) for batch in batches_of(one))
    found = Counter(unfilled(batch) for rank in ranks for batch in batches_of(rank))
    assert found == once if uneven == "short" else not once - found
    one_pool = len(pools_of(plan, sizes)) == 1
    # Packs that are balanced hold other samples.
    assert isinstance(rule, bl.Packing) or len(plan) == len(plain)
    if one_pool and uneven == "short" and not isinstance(rule, bl.Packing):
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
    # Batches as the rule makes them: a small one of long samples may be filled up to more.
    plan = planned(sizes, rule, **options, largest_first=True, uneven="short")
    assert max(plan._native.elements(0)) == plan.stats()["largest"]
    assert balance or plan._native.elements(0)[0] == plan.stats()["largest"]
    other = planned(sizes, rule, **options)
    assert len(plan) == len(other)
    if world_size == 1:
        assert sorted(batches_of(plan)) == sorted(batches_of(other))
