"""Plans by size are values: pure (L2), comparable, told apart by their fingerprints."""

import pickle
import random

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import batches_of, rules, sized
from oracles.plans import EACH, OTHERS, SPREAD, few, named, planned, seeds, worlds


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
    assert eval(repr(rule), {name: getattr(bl, name) for name in bl.__all__}) == rule
    assert sum(rule == other for other in OTHERS) == 1
    with pytest.raises(AttributeError):
        rule.pool = 5


@few
@given(sizes=sized(samples=30), rule=rules)
def test_asking_for_a_step_needs_no_other(sizes, rule):
    """A step of a late epoch, asked for first."""
    late = planned(sizes, rule, shuffle=True, epoch=2**63)
    step = len(late) - 1
    fresh = bl.Plan(sizes=sizes, batching=rule, shuffle=True, epoch=2**63)
    assert fresh[step].tolist() == late[step].tolist()
    assert fresh.step(step).tokens == late.step(step).tokens


@pytest.mark.parametrize("option", ["shuffle", "drop_last", "balance", "largest_first"])
@pytest.mark.parametrize("value", [2, "no", [], 0.5, numpy.ones(2)])
def test_options_that_are_true_or_false_take_nothing_else(option, value):
    with pytest.raises(bl.ArgumentError, match=f"^{option} is .*; expected True"):
        bl.Plan(100, 4, **{option: value})
    with pytest.raises(bl.ArgumentError, match=f"^{option} is .*; expected True"):
        bl.DataLoader(bl.TensorDataset(numpy.arange(100)), 4, **{option: value})


@pytest.mark.parametrize("value", [True, 1, numpy.True_])
def test_booleans_are_those_of_python_and_numpy(value):
    assert bl.Plan(10, 4, drop_last=value).drop_last is True
    assert bl.Plan(10, 4, shuffle=None).shuffle == bl.Plan(10, 4).shuffle
