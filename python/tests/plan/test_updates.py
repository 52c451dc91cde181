"""Updates of the optimizer: what they hold, what losses are divided by, and batches that are balanced within them."""

import itertools
from collections import Counter

import batchloom as bl
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import balance, batching
from oracles.batching import packings, rules, sized
from oracles.plans import SPREAD, planned, run, seeds, worlds
from refusals import refused

MODEL = bl.CostModel(3, 1, 0.25)
whole = rules.filter(lambda rule: batching.policy(rule) != "split")


def recount(plan, rule, sizes, begun=0):
    """The updates of a plan, from its steps and nothing else; ``begun`` steps of the first were taken before."""
    steps = [plan.step(step) for step in range(plan.stats()["steps"])]
    number = plan.options.accumulate
    starts = sorted({0, *range(number - begun, len(steps), number)}) if steps else []
    for start, end in itertools.pairwise([*starts, len(steps)]):
        held = steps[start:end]
        costs = [[balance.cost_of(MODEL, rule, batch.tolist(), sizes) for batch in step.batches] for step in held]
        counted = [
            batch[:count].tolist() for step in held for batch, count in zip(step.batches, step.counts, strict=True)
        ]
        yield {
            "steps": range(start, end),
            "samples": sum(step.samples for step in held),
            "tokens": sum(step.tokens for step in held),
            "cost": pytest.approx(sum(map(sum, costs))),
            "imbalance": pytest.approx(balance.waiting(costs, plan.world_size), abs=1e-9),
            "members": counted,
        }


def held(update):
    return {name: getattr(update, name) for name in ("steps", "samples", "tokens", "cost", "imbalance")}


@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(),
    rule=whole,
    accumulate=st.integers(1, 5),
    world_size=worlds,
    uneven=st.sampled_from(["pad", "short", "mask"]),
    seed=seeds,
)
def test_updates_are_a_recount_of_steps(sizes, rule, accumulate, world_size, uneven, seed):
    options = {"shuffle": True, "seed": seed, "uneven": uneven, "accumulate": accumulate}
    counts = [size // 3 for size in sizes]
    has_counts = batching.policy(rule) != "truncate"
    if has_counts:
        options["label_counts"] = counts
    plan = planned(sizes, rule, **options, world_size=world_size)
    expected = list(recount(plan, rule, sizes))
    assert plan.updates == len(expected)
    for number, update in enumerate(expected):
        members = batching.flat(update.pop("members"))
        counted = plan.update(number, cost=MODEL)
        assert (counted.index, held(counted)) == (number, update)
        if has_counts:
            assert counted.labels == sum(counts[sample] for sample in members)
            assert counted.sequences == sum(counts[sample] > 0 for sample in members)
    with refused(bl.RangeError, "update", str(plan.updates)):
        plan.update(plan.updates)


@pytest.mark.law("L4")
@pytest.mark.parametrize("stop", range(9))
@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize(
    "within",
    [{}, {"balance": MODEL, "balance_within": "update"}, {"balance": MODEL, "balance_within": "update_sum"}],
    ids=["plain", "update", "update_sum"],
)
def test_an_update_that_a_resume_cuts_ends_with_what_is_left(stop, after, within):
    rule, options = bl.Packing(60), {"uneven": "short", "accumulate": 4, **within}
    one = run(rule, SPREAD, 2, 0, **options)
    state, batches = one.state_dict(), iter(one)
    for _ in range(stop):
        next(batches)
        state = one.state_dict()
    ranks = [run(rule, SPREAD, after, rank, **options) for rank in range(after)]
    for rank in ranks:
        rank.load_state_dict(state)
    rest = ranks[0].plan()
    whole = one.plan(0)
    updates = [rest.update(number) for number in range(rest.updates)]
    assert len(updates[0].steps) == 4 - stop % 4
    assert [step for update in updates for step in update.steps] == list(range(len(rest)))
    assert all(len(update.steps) == 4 for update in updates[1:-1])
    taken = sum(whole.step(step).samples for step in range(stop))
    assert sum(update.samples for update in updates) == len(SPREAD) - taken


@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(samples=120),
    rule=packings.filter(lambda rule: rule.oversize != "split"),
    accumulate=st.integers(2, 5),
    world_size=worlds,
    seed=seeds,
)
def test_batches_are_balanced_within_updates(sizes, rule, accumulate, world_size, seed):
    options = {"shuffle": True, "seed": seed, "uneven": "short", "balance": MODEL, "world_size": world_size}
    within = planned(sizes, rule, **options, accumulate=accumulate, balance_within="update")
    window = planned(sizes, rule, **options)
    batches = lambda plan: Counter(  # noqa: E731
        tuple(batch.tolist()) for step in range(plan.stats()["steps"]) for batch in plan.step(step).batches
    )
    assert batches(within) == batches(window)
    assert within.fingerprint != window.fingerprint
    for number in range(within.updates):
        steps = [within.step(step).batches for step in within.update(number).steps]
        costs = [[balance.cost_of(MODEL, rule, batch.tolist(), sizes) for batch in step] for step in steps]
        # The costliest batches form the first step; each rank takes what evens out its sum.
        assert all(min(above) >= max(below) - 1e-9 for above, below in itertools.pairwise(costs))
        sums = [0.0] * world_size
        for step in costs:
            order = sorted(range(len(step)), key=lambda rank: (sums[rank], rank))
            assert [step[rank] for rank in order] == sorted(step, reverse=True)
            sums = [before + cost for before, cost in itertools.zip_longest(sums, step, fillvalue=0)]


@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(samples=120),
    rule=packings.filter(lambda rule: rule.oversize != "split"),
    accumulate=st.integers(2, 5),
    world_size=worlds,
    seed=seeds,
)
def test_sums_of_ranks_are_even_over_updates(sizes, rule, accumulate, world_size, seed):
    options = {"shuffle": True, "seed": seed, "uneven": "short", "balance": MODEL, "world_size": world_size}
    within = {"accumulate": accumulate, "balance_within": "update"}
    sums = planned(sizes, rule, **options, **within | {"balance_within": "update_sum"})
    steps = planned(sizes, rule, **options, **within)
    assert len({sums.fingerprint, steps.fingerprint}) == 2
    assert sums.updates == steps.updates
    assert sums.stats()["step_spread"] == pytest.approx(steps.stats()["step_spread"])
    longest = total = 0.0
    for number in range(sums.updates):
        members = [
            Counter(tuple(batch.tolist()) for step in plan.update(number).steps for batch in plan.step(step).batches)
            for plan in (sums, steps)
        ]
        assert members[0] == members[1]
        update = [sums.step(step).batches for step in sums.update(number).steps]
        costs = [[balance.cost_of(MODEL, rule, batch.tolist(), sizes) for batch in step] for step in update]
        expected = balance.even_sums(batching.flat(costs), world_size)
        assert costs == [[of_rank[step] for of_rank in expected if step < len(of_rank)] for step in range(len(costs))]
        longest += max(map(sum, expected))
        total += sum(map(sum, expected))
        alone = sums.update(number)
        assert alone.imbalance == pytest.approx(1 - alone.cost / (world_size * max(map(sum, expected))), abs=1e-9)
    if sums.updates:
        assert sums.stats()["imbalance"] == pytest.approx(1 - total / (world_size * longest), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_rank_with_a_costly_batch_waits_for_cheap_ones(seed):
    lengths = numpy.random.default_rng(seed).lognormal(7, 1.5, 4000).astype(int).clip(16, 32_768)
    rule = bl.Packing(32_768)
    plan = bl.Plan(
        sizes=lengths, batching=rule, shuffle=True, world_size=8, drop_last=True,
        balance=MODEL, accumulate=4, balance_within="update_sum",
    )  # fmt: skip
    # The last update may hold batches that no step delivers.
    for number in range(plan.updates - 1):
        steps = [plan.step(step).batches for step in plan.update(number).steps]
        costs = [[balance.cost_of(MODEL, rule, batch.tolist(), lengths.tolist()) for batch in step] for step in steps]
        expected = balance.even_sums(batching.flat(costs), 8)
        assert costs == [[of_rank[step] for of_rank in expected] for step in range(len(costs))]


@settings(max_examples=settings.default.max_examples)
@given(sizes=sized(samples=120), accumulate=st.integers(2, 5), world_size=worlds, seed=seeds)
def test_the_spread_of_updates_is_counted_where_batches_are_balanced_within_them(sizes, accumulate, world_size, seed):
    rule = bl.Packing(60)
    options = {"shuffle": True, "seed": seed, "uneven": "short", "balance": MODEL, "world_size": world_size}
    plan = planned(sizes, rule, **options, accumulate=accumulate, balance_within="update")
    updates = [
        batching.flat([batch.tolist() for step in plan.update(number).steps for batch in plan.step(step).batches])
        for number in range(plan.updates)
    ]
    expected = balance.spread(updates, rule, sizes)
    assert plan.stats()["step_spread"] == (None if expected is None else pytest.approx(expected, rel=1e-6, abs=1e-9))


def test_updates_of_random_samples_wait_less_than_as_batches_come():
    lengths = numpy.random.default_rng(0).lognormal(5.7, 1, 60_000).astype(int).clip(16, 8192)
    cost = bl.CostModel(per_token=1, per_pair=1 / 8192)
    options = {"sizes": lengths, "batching": bl.Packing(8192), "shuffle": True, "world_size": 8, "drop_last": True}
    plain = bl.Plan(**options).stats(cost=cost)
    within = bl.Plan(**options, balance=cost, accumulate=8, balance_within="update").stats()
    sums = bl.Plan(**options, balance=cost, accumulate=8, balance_within="update_sum").stats()
    window = bl.Plan(**options, balance=cost).stats()
    assert window["imbalance"] < within["imbalance"] < plain["imbalance"] / 2
    assert sums["imbalance"] < within["imbalance"]
    assert within["step_spread"] == pytest.approx(sums["step_spread"])
    assert within["step_spread"] < 1.3
    assert window["step_spread"] > 2
    assert abs(within["length_correlation"]) < 0.3


def test_updates_are_refused_before_any_work():
    for accumulate in (0, -1, 2.0, True, None):
        with refused(bl.ArgumentError, "accumulate", repr(accumulate)):
            bl.Plan(10, 2, accumulate=accumulate)
    with refused(bl.ArgumentError, "balance_within", "'step'"):
        bl.Plan(sizes=SPREAD, batch_size=2, balance_within="step")
    for options, missing in (({"accumulate": 2}, "not balanced"), ({"balance": True}, "has one step")):
        for within in ("update", "update_sum"):
            with refused(bl.ArgumentError, "balance_within", f'"{within}"', missing):
                bl.Plan(sizes=SPREAD, batch_size=2, balance_within=within, **options)
    plan = bl.Plan(sizes=SPREAD, batch_size=2, accumulate=3)
    for name in ("labels", "sequences"):
        with refused(bl.ArgumentError, "labels", "label_counts"):
            getattr(plan.update(0), name)
    # The number of steps of an update changes no batch: a run may go on with another.
    assert plan.fingerprint == bl.Plan(sizes=SPREAD, batch_size=2).fingerprint
