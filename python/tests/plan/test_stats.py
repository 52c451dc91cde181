"""Statistics of plans by size, against a recount; sums that are large."""

from collections import Counter

import batchloom as bl
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import balance, batching
from oracles.batching import batches_of, buckets, budgets, flat, optimals, packings, rules, sized
from oracles.plans import EACH, SPREAD, named, planned, seeds, worlds


def recount(plan, sizes):
    """The numbers of ``stats()``, from the batches of all ranks and nothing else."""
    rule = plan.batching
    steps = [plan.step(step) for step in range(plan.stats()["steps"])]
    batches = [batch.tolist() for step in steps for batch in step.batches]
    padded = [[batching.padded(rule, batch.tolist(), sizes) for batch in step.batches] for step in steps]
    each = flat(padded)
    samples = flat(batches)
    model = bl.CostModel.default() if plan.options.balance else None
    costs = [[balance.cost_of(model, rule, batch.tolist(), sizes) for batch in step.batches] for step in steps]
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
        "banned": 0,
        "banned_tokens": 0,
        "earlier": 0,
        "earlier_tokens": 0,
        "tail": 0,
        "largest": max(each),
        "imbalance": pytest.approx(balance.waiting(costs, plan.world_size), abs=1e-9),
        "imbalance_cost": plan.stats()["imbalance_cost"],
        "step_spread": plan.stats()["step_spread"],
        "mates_kept": plan.stats()["mates_kept"],
        "length_correlation": plan.stats()["length_correlation"],
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


@pytest.mark.law("L1")
@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(),
    rule=rules,
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    uneven=st.sampled_from(["pad", "mask", "short"]),
    balance=st.booleans(),
    seed=seeds,
    world_size=worlds,
)
def test_no_token_is_lost_without_being_counted(sizes, rule, shuffle, drop_last, uneven, balance, seed, world_size):
    options = {"shuffle": shuffle, "drop_last": drop_last, "uneven": uneven, "seed": seed, "world_size": world_size}
    stats = planned(sizes, rule, **options, balance=balance).stats()
    given_tokens = stats["tokens"] + stats["repeated_tokens"]
    assert given_tokens == sum(stats[kind] for kind in ("real", "truncated_tokens", "dropped_tokens", "earlier_tokens"))
    counted = {name: value for name, value in stats.items() if name not in ("length_correlation", "imbalance_cost")}
    assert all(value is None or value >= 0 for value in counted.values())
    if batching.policy(rule) != "alone" and not batching.counts_real(rule):
        assert 0 <= (stats["efficiency"] or 0.0) <= 1


def test_an_efficiency_is_not_rounded_and_counts_every_batch():
    """One packer subtracts after slicing and floors, another leaves the dropped batch out."""
    plan = bl.Plan(sizes=[6, 5, 5, 4, 3], batching=bl.Packing(10))
    assert sorted(map(sorted, batches_of(plan))) == [[0, 3], [1, 2], [4]]
    assert plan.stats()["efficiency"] == pytest.approx(23 / 30)


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


@pytest.mark.parametrize("rule", EACH, ids=named)
def test_reports_of_plans_with_sizes(rule, tmp_path):
    plan = bl.Plan(sizes=SPREAD, batching=rule, shuffle=True, world_size=3, balance=True)
    plan.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text()
    assert type(rule).__name__ in text
    assert str(plan.stats()["steps"]) in text


@pytest.mark.parametrize("mode", ["chunk", "continuous"])
@pytest.mark.parametrize("world_size", [1, 3])
def test_the_tail_of_a_stream_is_what_no_batch_holds(mode, world_size):
    dataset = bl.TokenDataset(numpy.arange(1003), 7, mode=mode)
    options = {"world_size": world_size, "uneven": "short"}
    loaders = [bl.DataLoader(dataset, 4, rank=rank, **options) for rank in range(world_size)]
    inputs = sum(x.size for loader in loaders for x, _ in loader)
    for loader in loaders:
        assert loader.plan().stats()["tail"] == 1003 - inputs == dataset.stats(4 * world_size).tail
