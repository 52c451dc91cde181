"""Batches of a step that cost the same: the cost that statistics name, even packs, and windows of pools."""

import itertools
from collections import Counter

import batchloom as bl
import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import balance, batching
from oracles.batching import batches_of, packings, rules, sized
from oracles.plans import planned, pools_of, seeds, worlds
from refusals import refused

models = st.builds(bl.CostModel, st.floats(0, 100), st.floats(0.5, 4), st.floats(0, 1)) | st.builds(
    bl.CostModel, st.just(0), st.just(0), st.floats(1e-3, 1e3)
)
packs = packings.filter(lambda rule: rule.oversize != "split")
small_pools = st.sampled_from([bl.Packing(40, pool=2), bl.TokenBudget(60, pool=3), bl.LengthBuckets(1, pool=2)])


def steps_of(plan):
    return [[batch.tolist() for batch in plan.step(step).batches] for step in range(plan.stats()["steps"])]


@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(),
    rule=rules.filter(lambda rule: batching.policy(rule) != "split"),
    model=models | st.none(),
    balanced_by=models | st.none(),
    is_balanced=st.booleans(),
    shuffle=st.booleans(),
    uneven=st.sampled_from(["pad", "short"]),
    seed=seeds,
    world_size=worlds,
)
def test_waiting_is_recomputed_from_steps(
    sizes, rule, model, balanced_by, is_balanced, shuffle, uneven, seed, world_size
):
    options = {"shuffle": shuffle, "uneven": uneven, "seed": seed, "world_size": world_size}
    plan = planned(sizes, rule, **options, balance=is_balanced and (balanced_by or True))
    used = model or (is_balanced and (balanced_by or bl.CostModel.default())) or None
    steps, stats = steps_of(plan), plan.stats(cost=model)
    costs = [[balance.cost_of(used, rule, batch, sizes) for batch in step] for step in steps]
    assert stats["imbalance"] == pytest.approx(balance.waiting(costs, world_size), abs=1e-9)
    spread = balance.spread(map(batching.flat, steps), rule, sizes)
    assert stats["step_spread"] == (None if spread is None else pytest.approx(spread, rel=1e-6, abs=1e-9))
    named = {name: getattr(used, name) for name in ("fixed", "per_token", "per_pair")} if used else {}
    text = dict(part.split("=") for part in stats["imbalance_cost"].split(",")) if used else {}
    assert {name: float(number) for name, number in text.items()} == {k: v for k, v in named.items() if v}
    assert used or stats["imbalance_cost"] == "tokens"


@given(sizes=sized(samples=80), rule=rules, one=models, other=models, seed=seeds, pair=st.tuples(worlds, worlds))
def test_neither_cost_nor_world_decides_which_samples_share_a_batch(sizes, rule, one, other, seed, pair):
    options = {"shuffle": True, "seed": seed, "uneven": "short"}

    def members(world_size, model):
        ranks = [
            planned(sizes, rule, **options, balance=model, world_size=world_size, rank=rank)
            for rank in range(world_size)
        ]
        return Counter(tuple(batch) for rank in ranks for batch in batches_of(rank))

    found = members(pair[0], one)
    assert found == members(pair[1], other)
    if not isinstance(rule, bl.Packing):
        assert found == Counter(map(tuple, batches_of(bl.Plan(sizes=sizes, batching=rule, shuffle=True, seed=seed))))


@pytest.mark.law("L6")
@settings(max_examples=settings.default.max_examples * 3)
@given(
    sizes=sized(samples=120),
    rule=st.builds(
        bl.Packing,
        st.integers(20, 200),
        oversize=st.sampled_from(["drop", "truncate", "split"]),
        order=st.sampled_from(["random", "decreasing"]),
        pool=st.sampled_from([None, "all", 7, 30]),
    ),
    shuffle=st.booleans(),
    seed=seeds,
)
def test_even_packs_are_those_of_the_definition(sizes, rule, shuffle, seed):
    plan = planned(sizes, rule, shuffle=shuffle, seed=seed, balance=True)
    found = {pool: [] for pool in range(len(pools_of(plan, sizes)))}
    pool_of = {sample: number for number, pool in enumerate(pools_of(plan, sizes)) for sample in pool}
    for step, batch in enumerate(batches_of(plan)):
        (pool,) = {pool_of[sample] for sample in batch}
        found[pool].append((plan.step(step).tokens, batch))
    for number, pool in enumerate(pools_of(plan, sizes)):
        loads, chosen = balance.even_packs(rule, pool, sizes, shuffle)
        assert sorted(tokens for tokens, _ in found[number]) == loads
        if chosen is None or rule.oversize == "split":
            continue
        # Large samples of sizes that come once are in the bins that the definition has chosen for them.
        lengths = sorted((batching.parts(rule, sizes[sample]) for sample in pool), reverse=True)
        large = [part for part in batching.flat(lengths) if part > rule.max_tokens // 8]
        once = {
            part: bin for part, bin in zip(large, chosen, strict=True) if large.count(part) == 1 and bin is not None
        }
        together = {part: {other for other in once if once[other] == bin} for part, bin in once.items()}
        for _, batch in found[number]:
            held = {batching.taken(rule, sizes[sample]) for sample in batch} & once.keys()
            assert all(held == together[part] for part in held)


@given(sizes=sized(samples=60), rule=packs, seed=seeds, world_size=worlds)
def test_packs_hold_no_more_than_their_budget_and_every_sample(sizes, rule, seed, world_size):
    plan = planned(sizes, rule, shuffle=True, seed=seed, world_size=world_size, uneven="short", balance=True)
    batches = batching.flat(steps_of(plan))
    lengths = [[batching.taken(rule, sizes[sample]) for sample in batch] for batch in batches]
    assert all(batch and sum(batch) <= rule.max_tokens for batch in lengths)
    assert all(len(batch) <= (rule.max_samples or len(batch)) for batch in batches)
    kept = [s for s in range(len(sizes)) if not (batching.too_large(rule, sizes[s]) and rule.oversize == "drop")]
    assert sorted(batching.flat(batches)) == kept


@settings(max_examples=settings.default.max_examples // 2)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=100, max_size=500),
    rule=small_pools,
    model=models,
    seed=seeds,
    world_size=st.sampled_from([1, 2, 3, 5, 600]),
)
def test_steps_are_neighbours_by_cost_in_a_window_of_pools(sizes, rule, model, seed, world_size):
    plan = planned(sizes, rule, shuffle=True, seed=seed, world_size=world_size, uneven="short", balance=model)
    windows = balance.windows(pools_of(plan, sizes), world_size)
    assert world_size > 512 or len(sizes) < 200 or len(windows) > 1
    window_of = {sample: number for number, window in enumerate(windows) for sample in window}
    bounds = {number: [] for number in range(len(windows))}
    last = 0
    for step in steps_of(plan):
        numbers = [window_of[sample] for batch in step for sample in batch]
        assert min(numbers) >= last
        last = max(numbers)
        costs = [balance.cost_of(model, rule, batch, sizes) for batch in step]
        if min(numbers) == last and len(step) == world_size:
            bounds[last].append((min(costs), max(costs)))
    for steps in bounds.values():
        # Two steps at most overlap: the one that completes a step of the window before holds the cheapest batches.
        pairs = itertools.pairwise(sorted(steps))
        assert all(below[1] <= above[0] * (1 + 1e-12) for below, above in pairs)


def test_packs_of_a_long_tail_no_longer_wait():
    lengths = numpy.random.default_rng(0).lognormal(7.3, 1.5, 30_000).astype(int).clip(16, 131_072)
    cost = bl.CostModel(per_token=1, per_pair=1 / 8192)
    options = {"sizes": lengths, "batching": bl.Packing(131_072), "shuffle": True, "world_size": 8, "drop_last": True}
    plain, even = bl.Plan(**options).stats(cost=cost), bl.Plan(**options, balance=cost).stats()
    by_tokens = bl.Plan(**options).stats()
    assert by_tokens["imbalance"] < 0.02
    assert plain["imbalance"] > 0.5
    assert even["imbalance"] < 0.02
    assert even["efficiency"] > plain["efficiency"] - 0.002
    assert even["step_spread"] < 6
    assert abs(even["mates_kept"] - plain["mates_kept"]) < 0.01


@pytest.mark.parametrize(
    "rule", [bl.FixedSize(4), bl.LengthBuckets(4), bl.TokenBudget(4096), bl.Packing(1024)], ids=str
)
def test_edges_are_balanced(rule):
    """One enormous sample, equal ones, fewer than ranks, lengths of 0, and a coefficient that dwarfs all else."""
    for sizes in ([1024, *[1] * 50], [7] * 33, [3, 1], [0] * 9, [0, 5, 0, 900]):
        for model in (True, bl.CostModel(per_pair=1e300), bl.CostModel(fixed=1e-300), bl.CostModel(per_token=1e-9)):
            plan = bl.Plan(sizes=sizes, batching=rule, shuffle=True, world_size=3, uneven="short", balance=model)
            assert sorted(batching.flat(batching.flat(steps_of(plan)))) == list(range(len(sizes)))
            assert 0 <= plan.stats()["imbalance"] <= 1


def test_a_balance_is_a_choice_or_a_model():
    model = bl.CostModel(per_token=1, per_pair=1 / 512)
    plans = {
        name: bl.Plan(sizes=[5, 900, 30] * 9, batching=bl.Packing(1000), world_size=2, **options)
        for name, options in {
            "off": {},
            "default": {"balance": True},
            "named": {"balance": bl.CostModel.default()},
            "model": {"balance": model},
        }.items()
    }
    assert plans["default"] == plans["named"]
    assert len({plan.fingerprint for plan in plans.values()}) == 3
    options = {name: plan.options.balance for name, plan in plans.items()}
    assert options == {"off": False, "default": True, "named": True, "model": model}
    for wrong in ("yes", 2, None, [model]):
        with refused(bl.ArgumentError, "balance", repr(wrong), "CostModel"):
            bl.Plan(sizes=[1, 2], batch_size=1, balance=wrong)


def test_statistics_name_the_cost_that_they_are_asked_for(tmp_path):
    model, other = bl.CostModel(per_token=1, per_pair=1 / 512), bl.CostModel(per_pair=3)
    options = {"sizes": [5, 900, 30] * 9, "batching": bl.Packing(1000), "world_size": 2}
    plain, even = bl.Plan(**options), bl.Plan(**options, balance=model)
    text = "per_token=1,per_pair=0.001953125"
    named = [plan.stats(cost=cost)["imbalance_cost"] for plan in (plain, even) for cost in (None, model, other)]
    assert named == ["tokens", text, "per_pair=3", text, text, "per_pair=3"]
    loader = bl.DataLoader(bl.SequenceDataset(x=[[0] * size for size in options.pop("sizes")]), rank=0, **options)
    assert loader.stats(cost=model) == {**plain.stats(cost=model), "skipped": 0}
    assert even.update(0).cost == even.update(0, cost=model).cost != even.update(0, cost=other).cost
    for plan, cost, shown in (
        (plain, model, text),
        (even, None, text),
        (even, other, "per_pair=3"),
        (plain, None, "tokens"),
    ):
        plan.report(tmp_path / "plan.html", cost=cost)
        assert f"by {shown}: in a step" in (tmp_path / "plan.html").read_text()
    for ask in (
        plain.stats,
        lambda cost: plain.update(0, cost=cost),
        lambda cost: plain.report(tmp_path / "x", cost=cost),
    ):
        with refused(bl.ArgumentError, "cost", "3", "CostModel"):
            ask(cost=3)
    assert not (tmp_path / "x").exists()
    for owner in (bl.Plan, bl.BatchSampler):
        with pytest.raises(TypeError, match="cost"):
            owner(9, batch_size=1, cost=model)


def few_bins(bins):
    """Samples that best fit puts into one bin less than even bins need, which are ``bins``."""
    return bl.Packing(1000, pool="all"), [200] * bins + [100] * ((bins - 1) * 10 - 2 * bins)


def more_bins(bins):
    """Samples that even bins need one more for than the ``bins`` of their elements, and best fit fills otherwise."""
    sizes = [992] * (bins - 4) + [500] * 4 + [492] * 4 + [125] * 8
    return bl.Packing(1000, pool="all", order="decreasing"), sizes


@pytest.mark.parametrize(
    ("samples", "is_even"),
    [(few_bins(128), False), (few_bins(129), True), (more_bins(249), False), (more_bins(250), True)],
    ids=["128 bins", "129 bins", "more than 4 in a thousand", "4 in a thousand"],
)
def test_even_packs_give_way_to_best_fit_at_their_limits(samples, is_even):
    """One bin more is much for up to 128 bins, and four in a thousand are for more."""
    rule, sizes = samples
    plan = bl.Plan(sizes=sizes, batching=rule, shuffle=True, balance=True)
    found = sorted(sum(sizes[sample] for sample in batch) for batch in batches_of(plan))
    loads, chosen = balance.even_packs(rule, range(len(sizes)), sizes, shuffle=True)
    assert found == loads
    assert (chosen is not None) == is_even
    assert (found == sorted(batching.best_fit(rule, range(len(sizes)), sizes, shuffle=True))) != is_even
