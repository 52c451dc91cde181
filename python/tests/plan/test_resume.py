"""Runs of samples of any size, left at any step (L4) and resumed on other ranks (L5), their length known (L10)."""

import pickle
from collections import Counter

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import batches_of, flat, rules, seen, sized
from oracles.plans import EACH, SMALL, SPREAD, few, named, planned, ranks, run, worlds
from oracles.runs import advance, assert_resumes, chained, finish, fractions, saved, unfilled
from refusals import refused


@pytest.mark.law("L4")
@pytest.mark.parametrize("rule", EACH, ids=named)
@pytest.mark.parametrize("world_size", [1, 3])
def test_resume_at_every_step(rule, world_size):
    first, following = (run(rule, SMALL, world_size, world_size - 1) for _ in range(2))
    following.set_epoch(1)
    expected = [seen(first), seen(following)]
    loader = run(rule, SMALL, world_size, world_size - 1)
    assert_resumes(loader, lambda: run(rule, SMALL, world_size, world_size - 1, seed=77), expected, seen)


@pytest.mark.law("L5")
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


@pytest.mark.law("L5")
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
    left = Counter(map(unfilled, seen(run(rule, sizes, balance=balance)))) - Counter(map(unfilled, taken))
    found = Counter(map(unfilled, finish(ranks(rule, sizes, after, balance=balance), seen, state)))
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


@pytest.mark.law("L10")
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
