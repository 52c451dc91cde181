"""Plans by size over one set of samples and rules of every kind, and the errors that they may end in."""

import batchloom as bl
from hypothesis import assume, settings
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import batches_of
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
    bl.LengthBuckets(5),
    bl.TokenBudget(60),
    bl.Packing(60, order="decreasing", pool="all"),
]
SPREAD = [size * 7 % 41 for size in range(101)]


def named(rule):
    return str(rule).replace(" ", "")


def plan_of(sizes, rule, **options):
    """The plan, or ``None`` where it is refused, for the reasons that there are."""
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


def pools_of(plan, sizes):
    rule = plan.batching
    order = batching.order(plan.samples, plan.shuffle, plan.seed, plan.epoch)
    return batching.pools(rule, order, plan.shuffle, plan.drop_last, sizes)


OTHERS = [
    bl.FixedSize(4),
    bl.FixedSize(5),
    bl.LengthBuckets(4),
    bl.LengthBuckets(4, pool=3),
    bl.LengthBuckets(4, pool="all"),
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
    bl.Packing(50, order="decreasing"),
]


def run(rule, sizes, world_size=1, rank=0, **options):
    options = {"shuffle": True, "seed": 5, "output": "numpy", "num_threads": 1} | options
    return bl.DataLoader(batching.dataset(sizes), batching=rule, world_size=world_size, rank=rank, **options)


def ranks(rule, sizes, world_size, **options):
    return [run(rule, sizes, world_size, rank, **options) for rank in range(world_size)]


SMALL = SPREAD[:37]
