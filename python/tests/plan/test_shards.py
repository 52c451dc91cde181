"""Orders that go shard by shard: still a partition, pure, resumable and elastic; and no batch lies in two shards."""

import itertools
import json
import pickle
from pathlib import Path

import batchloom as bl
import numpy
import pytest
import torch
from batchloom.dataset.base import samples_of as held_by
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.batching import batches_of, flat, rules, sized
from oracles.runs import listed, saved
from refusals import refused

GOLDEN = Path(__file__).parents[3] / "crates" / "batchloom" / "tests" / "golden"


samples_of = st.integers(1, 300)
worlds = st.integers(1, 7)
seeds = st.integers(0, 2**64 - 1)
shuffles = st.sampled_from([False, True, "runs"])


@st.composite
def options(draw, **fixed):
    """The options of a plan without sizes, in shards of whole batches."""
    batch_size = draw(st.integers(1, 20))
    return {
        "samples": draw(samples_of),
        "batch_size": batch_size,
        "shard_size": batch_size * draw(st.integers(1, 12)),
        "shuffle": draw(shuffles),
        "seed": draw(seeds),
        "uneven": draw(st.sampled_from(["pad", "mask", "short"])),
    } | fixed


def loader(options, world_size=1, rank=0):
    """A loader over the sample numbers, so that a batch says which samples it holds."""
    rest = {name: value for name, value in options.items() if name != "samples"}
    return bl.DataLoader(bl.TensorDataset(numpy.arange(options["samples"])), **rest, world_size=world_size, rank=rank)


def ranges(plan):
    """The shards of a plan of one rank, in the order in which they come."""
    return [shard for shard, _ in itertools.groupby(plan.shard(step) for step in range(len(plan)))]


@pytest.mark.law("L1")
@given(options=options(), epoch=seeds)
def test_shards_come_one_after_the_other_and_hold_every_sample_once(options, epoch):
    plan = bl.Plan(**options, epoch=epoch)
    assert sorted(flat(batches_of(plan))) == list(range(options["samples"]))
    for step, batch in enumerate(batches_of(plan)):
        assert set(batch) <= set(plan.shard(step))
    shards, size = ranges(plan), options["shard_size"]
    assert sorted(flat(shards)) == list(range(options["samples"]))
    if options["shuffle"] == "runs":
        runs = [-(-len(shard) // options["batch_size"]) for shard in shards]
        assert set(runs[:-1]) <= {size // options["batch_size"]}
    else:
        assert {len(shard) for shard in shards[:-1]} <= {size}
    if options["shuffle"] is False:
        assert flat(batches_of(plan)) == list(range(options["samples"]))
        assert shards == sorted(shards, key=lambda shard: shard.start)


@given(options=options(shuffle=True), other=st.integers(1, 2**64 - 1))
def test_the_order_is_a_function_of_seed_epoch_and_shard_size(options, other):
    options["samples"] += 50
    whole = bl.Plan(**options)
    assert batches_of(bl.Plan(**options)) == batches_of(whole)
    assert bl.Plan(**options) == whole
    # Of two batches or more, so that shards are permuted or what is in them is.
    seeded = bl.Plan(**options | {"seed": (options["seed"] + other) % 2**64})
    assert flat(batches_of(seeded)) != flat(batches_of(whole))
    assert flat(batches_of(whole.at_epoch(other))) != flat(batches_of(whole))
    assert bl.Plan(**options | {"shard_size": None}).fingerprint != whole.fingerprint != seeded.fingerprint


def test_the_order_is_the_one_of_the_rust_interface():
    for vector in json.loads((GOLDEN / "shards.json").read_text()):
        options = {name: vector[name] for name in ("samples", "shard_size", "seed", "epoch")}
        plan = bl.Plan(**options, batch_size=1, shuffle=True)
        for position, sample in enumerate(vector["order"], vector["start"]):
            assert plan.where(sample) == [bl.Place(position, 0, 0)]


@pytest.mark.law("L7")
def test_what_the_short_shard_holds_differs_from_epoch_to_epoch():
    plan = bl.Plan(1050, 10, shuffle=True, shard_size=100)
    last = [ranges(plan.at_epoch(epoch))[-1] for epoch in range(40)]
    assert {len(shard) for shard in last} == {50}
    assert len({shard.start for shard in last}) > 5


@given(options=options(), world_size=worlds, then=worlds, stop=st.floats(0, 1))
def test_stopping_and_going_on_with_other_ranks_changes_nothing(options, world_size, then, stop):
    options["uneven"] = "short"
    loaders = [loader(options, world_size, rank) for rank in range(world_size)]
    steps, got = int(stop * min(map(len, loaders))), []
    for batches in zip(*(itertools.islice(each, steps) for each in loaders), strict=True):
        got += [batch[0].tolist() for batch in batches]
    state = saved(loaders[0].state_dict())
    again = [loader(options | {"seed": 0}, then, rank) for rank in range(then)]
    for each in again:
        each.load_state_dict(state)
    if state["epoch"] > 0:
        assert got == batches_of(bl.Plan(**options))
        return
    plans = [each.plan() for each in again]
    for rest in itertools.zip_longest(*map(listed, again)):
        got += [batch for batch in rest if batch is not None]
    assert got == batches_of(bl.Plan(**options))
    for plan in plans:
        assert all(set(batch) <= set(plan.shard(step)) for step, batch in enumerate(batches_of(plan)))


@given(
    sizes=sized(),
    rule=rules,
    shard=st.integers(1, 40),
    flags=st.tuples(*[st.booleans()] * 4),
    world_size=worlds,
    uneven=st.sampled_from(["pad", "mask", "short"]),
    seed=seeds,
)
def test_batches_of_every_rule_lie_in_one_shard(sizes, rule, shard, flags, world_size, uneven, seed):
    shard_size = shard * getattr(rule, "batch_size", 1)
    names = ("shuffle", "drop_last", "balance", "largest_first")
    options = dict(zip(names, flags, strict=True)) | {"seed": seed, "uneven": uneven, "world_size": world_size}
    try:
        plans = [
            bl.Plan(sizes=sizes, batching=rule, shard_size=shard_size, rank=rank, **options)
            for rank in range(world_size)
        ]
    except bl.Error as error:
        # What is refused is refused without shards too: a sample that is too large, or nothing that is left.
        with pytest.raises(type(error)):
            bl.Plan(sizes=sizes, batching=rule, **options)
        return
    stats = plans[0].stats()
    assert stats["tokens"] + stats["repeated_tokens"] == (
        stats["real"] + stats["truncated_tokens"] + stats["dropped_tokens"]
    )
    for plan in plans:
        for step, batch in enumerate(batches_of(plan)):
            assert set(batch) <= set(plan.shard(step))
            assert len(plan.shard(step)) <= shard_size


def test_a_pool_ends_where_its_shard_ends():
    sizes = numpy.random.default_rng(0).integers(1, 100, 1000)
    plan = bl.Plan(sizes=sizes, batching=bl.LengthBuckets(8, pool=10), shuffle=True, shard_size=240)
    for step, batch in enumerate(batches_of(plan)):
        # A pool of 80 samples: the batches of each shard come in three pools of ten.
        pool = {
            sample for other in range(step - step % 10, min(step - step % 10 + 10, len(plan))) for sample in plan[other]
        }
        assert pool <= set(plan.shard(step))
        assert len(batch) == 8
    unshuffled = bl.Plan(sizes=sizes, batching=bl.LengthBuckets(8), shard_size=240)
    assert sorted(flat(batches_of(unshuffled)[:30])) == list(range(240))
    assert [max(sizes[batch]) for batch in unshuffled][:30] == sorted(
        (max(sizes[batch]) for batch in unshuffled[:30]), reverse=True
    )


# A value


@given(options=options(), world_size=worlds)
def test_plans_with_shards_are_values(options, world_size):
    plan = bl.Plan(**options, world_size=world_size)
    again = pickle.loads(pickle.dumps(plan))
    assert (again, hash(again), again.options.shard_size) == (plan, hash(plan), options["shard_size"])
    assert batches_of(again) == batches_of(plan)
    assert [again.shard(step) for step in range(len(again))] == [plan.shard(step) for step in range(len(plan))]
    assert plan != bl.Plan(**options | {"shard_size": None}, world_size=world_size)
    assert plan.at_epoch(3).options.shard_size == options["shard_size"]


def test_without_shards_nothing_is_said_of_them():
    plan = bl.Plan(100, 10, shuffle=True)
    assert (plan.options.shard_size, plan.shard(0), plan.shard(-1)) == (None, None, None)
    assert "shard" not in repr(plan)
    assert bl.Plan(100, 10, shuffle=True, shard_size=None) == plan


def test_steps_count_from_the_end_and_are_checked():
    plan = bl.Plan(100, 10, shard_size=30)
    assert plan.shard(0) == plan.shard(2) == range(30)
    assert plan.shard(-1) == range(90, 100)
    for step in (10, -11, 2**70):
        with refused(bl.RangeError, str(step), "10"):
            plan.shard(step)


# Errors


@pytest.mark.parametrize("make", [
    lambda **options: bl.Plan(1000, **options),
    lambda **options: bl.DataLoader(bl.TensorDataset(numpy.arange(1000)), **options),
])  # fmt: skip
def test_sizes_that_make_no_shards(make):
    with refused(bl.ArgumentError, "shard_size", "100", "64", "64 or 128"):
        make(batch_size=64, shard_size=100)
    with refused(bl.ArgumentError, "shard_size", "63", "multiple", "64"):
        make(batch_size=64, shard_size=63)
    with refused(bl.ArgumentError, "shard_size", "100", "96 or 102"):
        make(batching=bl.FixedSize(6), shard_size=100)
    with refused(bl.ArgumentError, "shard_size", "0", "at least 1"):
        make(batch_size=4, shard_size=0)
    with refused(bl.ArgumentError, "shard_size", "-8", "at least 1"):
        make(batch_size=4, shard_size=-8)
    for wrong in (8.0, "8", True, [8]):
        with refused(bl.ArgumentError, "shard_size", "integer"):
            make(batch_size=4, shard_size=wrong)


def test_shards_of_buckets_hold_whole_batches():
    with refused(bl.ArgumentError, "shard_size", "100", "96 or 104"):
        bl.Plan(sizes=[1] * 300, batching=bl.LengthBuckets(8), shuffle=True, shard_size=100)


def test_a_state_of_other_shards_is_refused():
    options = {"samples": 200, "batch_size": 10, "shuffle": True}
    state = loader(options | {"shard_size": 50}).state_dict()
    for other in (None, 40):
        with refused(bl.StateError, "fingerprint"):
            loader(options | {"shard_size": other}).load_state_dict(state)


# Every kind of data


@given(options=options(), epoch=st.integers(0, 9))
def test_a_loader_yields_what_its_plan_says(options, epoch):
    each = loader(options)
    each.set_epoch(epoch)
    plan = each.plan(epoch)
    assert plan == bl.Plan(**options, epoch=epoch)
    assert listed(each) == batches_of(plan)


def test_a_plan_with_shards_is_a_batch_sampler():
    class Opened(torch.utils.data.Dataset):
        """Counts how often another file of 100 samples has to be opened."""

        opened, current = 0, None

        def __getitem__(self, sample):
            self.opened += self.current != sample // 100
            self.current = sample // 100
            return sample

    shuffled, sharded = Opened(), Opened()
    everything = bl.Plan(1000, 10, shuffle=True)
    by_shards = bl.Plan(1000, 10, shuffle=True, shard_size=100)
    for dataset, plan in ((shuffled, everything), (sharded, by_shards)):
        found = torch.cat(list(torch.utils.data.DataLoader(dataset, batch_sampler=plan)))
        assert found.sort().values.tolist() == list(range(1000))
    assert (sharded.opened, shuffled.opened > 800) == (10, True)


@pytest.mark.parametrize("shuffle", [True, "runs"])
def test_windows(shuffle):
    series = numpy.arange(500.0)
    dataset = bl.WindowDataset(series, input_len=6, horizon=2)
    each = bl.DataLoader(dataset, 10, shuffle=shuffle, shard_size=50)
    plan = each.plan(0)
    assert len(ranges(plan)) == -(-len(dataset) // 50)
    for samples, (x, _) in zip(plan, each, strict=True):
        assert numpy.asarray(x)[:, 0].ravel().tolist() == samples.tolist()


def test_tokens_and_groups_and_sequences():
    tokens = bl.TokenDataset(numpy.arange(1001, dtype=numpy.uint16), seq_len=10)
    each = bl.DataLoader(tokens, 4, shuffle="chunks", shard_size=20)
    for samples, (x, _) in zip(each.plan(0), each, strict=True):
        assert (numpy.asarray(x)[:, 0] // 10).tolist() == samples.tolist()
    sequences = bl.SequenceDataset(x=[numpy.full(1 + sample % 5, sample) for sample in range(100)])
    each = bl.DataLoader(sequences, batching=bl.TokenBudget(20, pool=8), shuffle=True, shard_size=20)
    plan = each.plan(0)
    for step, batch in enumerate(each):
        assert set(batch["index"].tolist()) <= set(plan.shard(step))
    ids = numpy.repeat(numpy.arange(60), 3)
    each = bl.DataLoader(bl.GroupDataset(ids, ids * 1.0), 5, shuffle=True, shard_size=15)
    plan = each.plan(0)
    for step, (found, _) in enumerate(each):
        assert set(found.tolist()) == set(plan[step].tolist()) <= set(plan.shard(step))


@given(samples=st.integers(1, 2**62), shard=st.integers(1, 2**40), seed=seeds, at=st.floats(0, 1))
def test_any_step_of_any_size_costs_nothing(samples, shard, seed, at):
    plan = bl.Plan(samples, 8, shuffle=True, shard_size=shard * 8, seed=seed)
    assume(len(plan) > 0)
    step = min(int(at * len(plan)), len(plan) - 1)
    inside = plan.shard(step)
    for index, sample in enumerate(plan[step].tolist()):
        assert sample in inside
        assert plan.where(sample) == [bl.Place(step, 0, index)]


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    sampled_by=st.sampled_from(["windows", "series"]),
    samples=st.integers(1, 60),
)
def test_the_most_rows_of_neighbouring_windows_are_those_of_some(lengths, sampled_by, samples):
    dataset = bl.WindowDataset([torch.zeros(n) for n in lengths], 3, short="pad", sampled_by=sampled_by)
    samples = min(samples, len(dataset))
    data = held_by(dataset).device_data()
    ((_, most),) = data.most_rows(samples)
    starts = range(len(dataset) - samples + 1)
    rows = [row_range.end - row_range.first for k in starts for row_range in data.row_ranges(k, k + samples)]
    assert most == max(rows)
