"""Plans over chunks: a window over them is an order, ranks take parts, and runs go on at every step in any world."""

import itertools
import json
import math
import pickle
from pathlib import Path

import batchloom as bl
import numpy
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.batching import batches_of, flat, rules
from oracles.chunks import chunk_of, dealt, most_open, parts, sizes_of_chunks
from oracles.plans import few, planned, seeds
from oracles.runs import saved
from refusals import refused

GOLDEN = Path(__file__).parents[3] / "crates" / "batchloom" / "tests" / "golden"

HALVES = {"chunks": [30, 30]}

worlds = st.integers(1, 9)
open_at_a_time = st.integers(1, 20)
unevens = st.sampled_from(["pad", "mask", "short"])


@st.composite
def plans(draw, **fixed):
    """The arguments of a plan over chunks, of samples with sizes."""
    chunks = draw(sizes_of_chunks)
    return {
        "sizes": [1 + sample * 7 % 20 for sample in range(sum(chunks))],
        "rule": draw(rules),
        "chunks": chunks,
        "chunks_open": draw(open_at_a_time),
        "shuffle": draw(st.booleans()),
        "seed": draw(seeds),
    } | fixed


def sampler(options, world_size=1, rank=0, **changed):
    arguments = {"batching" if name == "rule" else name: value for name, value in (options | changed).items()}
    return bl.BatchSampler(arguments.pop("sizes"), world_size=world_size, rank=rank, **arguments)


@pytest.mark.law("L1")
@given(chunks=sizes_of_chunks, open_=open_at_a_time, seed=seeds, shuffle=st.booleans())
def test_the_order_has_every_sample_once_and_few_chunks_open(chunks, open_, seed, shuffle):
    plan = bl.Plan(sum(chunks), 1, chunks=chunks, chunks_open=open_, shuffle=shuffle, seed=seed)
    order = flat(batches_of(plan))
    assert sorted(order) == list(range(sum(chunks)))
    assert shuffle or order == sorted(order)
    assert most_open(order, chunks) <= (open_ if shuffle else 1)
    assert all(plan.where(sample) == [bl.Place(step, 0, 0)] for step, sample in enumerate(order))


@pytest.mark.law("L2")
def test_the_order_is_the_one_of_the_rust_interface():
    for vector in json.loads((GOLDEN / "chunk_window.json").read_text()):
        options = {name: vector[name] for name in ("chunks", "chunks_open", "seed", "epoch")}
        plan = bl.Plan(sum(vector["chunks"]), 1, shuffle=True, **options)
        for position, sample in enumerate(vector["order"], vector["start"]):
            assert plan.where(sample) == [bl.Place(position, 0, 0)]


@pytest.mark.law("L1", "L3")
@given(options=plans(), world_size=worlds, drop_last=st.booleans(), uneven=unevens)
def test_ranks_take_contiguous_parts_of_the_same_batches(options, world_size, drop_last, uneven):
    whole = batches_of(planned(**options, drop_last=drop_last, uneven="short"))
    options |= {"drop_last": drop_last, "uneven": uneven}
    if drop_last and len(whole) < world_size:
        return
    for rank, part in enumerate(dealt(whole, world_size, drop_last, uneven)):
        found = batches_of(planned(**options, world_size=world_size, rank=rank))
        assert len(found) == len(part)
        for batch, own in zip(found, part, strict=True):
            assert batch == list(itertools.islice(itertools.cycle(own), len(batch)))
            assert batch == own or not (drop_last or uneven == "short")


@pytest.mark.law("L4", "L5")
@few
@given(options=plans(), before=worlds, after=worlds)
def test_a_run_goes_on_at_every_step_in_another_world(options, before, after):
    options["uneven"] = "short"
    assume(getattr(options["rule"], "oversize", None) != "split")  # lists name no parts of samples
    planned(**options)
    whole = list(sampler(options))
    ranks = [sampler(options, before, rank) for rank in range(before)]
    batches = [iter(rank) for rank in ranks]
    for taken in range(len(whole) // before):
        left = flat(part[taken:] for part in parts(whole, before))
        state = saved(ranks[0].state_dict())
        assert all(rank.state_dict() == state for rank in ranks)
        for rank, part in enumerate(parts(left, after)):
            resumed = sampler(options, after, rank, seed=0)
            resumed.load_state_dict(state)
            assert list(resumed) == part
        assert [next(rank) for rank in batches] == [part[taken] for part in parts(whole, before)]


@pytest.mark.law("L4")
@few
@given(options=plans(), world_size=worlds, uneven=st.sampled_from(["pad", "short"]))
def test_a_run_that_is_resumed_equals_one_that_was_not(options, world_size, uneven):
    options["uneven"] = uneven
    assume(getattr(options["rule"], "oversize", None) != "split")  # lists name no parts of samples
    planned(**options)
    for rank in {0, world_size // 2, world_size - 1}:
        whole = list(sampler(options, world_size, rank))
        taking = sampler(options, world_size, rank)
        for taken, batch in enumerate(taking):
            resumed = sampler(options, world_size, rank)
            state = saved(taking.state_dict())
            resumed.load_state_dict(state)
            assert state["epoch"] == 1 or list(resumed) == whole[taken + 1 :]
            assert batch == whole[taken]


@pytest.mark.law("L7")
@given(seed=seeds, other=st.integers(1, 2**64 - 1))
def test_seeds_and_epochs_give_other_orders(seed, other):
    plan = bl.Plan(400, 10, chunks=[20] * 20, chunks_open=4, shuffle=True, seed=seed)
    again = bl.Plan(400, 10, chunks=[20] * 20, chunks_open=4, shuffle=True, seed=(seed + other) % 2**64)
    assert batches_of(plan) != batches_of(again)
    assert batches_of(plan) != batches_of(plan.at_epoch(other))


@given(options=plans(), world_size=worlds)
def test_stats_say_what_is_read_and_mixed(options, world_size):
    chunks = chunk_of(options["chunks"])
    plan = planned(**options | {"rule": bl.FixedSize(4)}, world_size=world_size, uneven="short")
    stats = plan.stats()
    assert stats["chunks_open"] == (min(options["chunks_open"], len(options["chunks"])) if options["shuffle"] else 1)
    batches = batches_of(planned(**options | {"rule": bl.FixedSize(4)}))
    held = [{chunks[sample] for sample in flat(part)} for part in parts(batches, world_size)]
    assert sum(map(len, held)) <= stats["chunks_read"]
    assert stats["chunks_read"] <= len(set(chunks)) + (world_size - 1) * stats["chunks_open"]
    pairs = [(chunks[one] == chunks[other]) for batch in batches for one, other in itertools.combinations(batch, 2)]
    expected = sum(pairs) / len(pairs) if pairs else None
    assert stats["pairs_of_one_chunk"] == (pytest.approx(expected) if pairs else None)
    without = bl.Plan(20, 4).stats()
    assert not {"chunks_open", "chunks_read", "pairs_of_one_chunk"} & without.keys()


@pytest.mark.parametrize(("count", "open_"), [(100, 8), (100, 16), (64, 32)])
def test_pairs_of_one_chunk_are_as_few_as_the_window_promises(count, open_):
    plan = bl.Plan(count * 1024, 64, chunks=[1024] * count, chunks_open=open_, shuffle=True)
    edge = 2 * (2 * open_ + 1) / (3 * open_ * (open_ + 1))
    expected = ((count - open_ - 1) / open_ + (open_ + 1) * edge) / count
    assert math.isclose(plan.stats()["pairs_of_one_chunk"], expected, rel_tol=0.05)


@given(options=plans(), world_size=worlds, epoch=st.integers(0, 5))
def test_plans_are_values(options, world_size, epoch):
    plan = planned(**options, world_size=world_size, epoch=epoch)
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert batches_of(again) == batches_of(plan)
    assert plan.options.chunks.tolist() == options["chunks"]
    assert plan.options.chunks_open == options["chunks_open"]
    assert plan.fingerprint == plan.at_epoch(epoch + 1).fingerprint


def test_the_default_is_sixteen_chunks():
    options = {"chunks": numpy.full(30, 10), "shuffle": True}
    assert bl.Plan(300, 4, **options) == bl.Plan(300, 4, **options, chunks_open=16)
    assert bl.Plan(300, 4, **options).options.chunks_open == 16
    assert bl.Plan(300, 4).options.chunks_open is None


def test_a_state_of_another_window_is_refused():
    options = {"sizes": [3] * 60, "rule": bl.FixedSize(4), "chunks": [20, 40], "chunks_open": 2, "shuffle": True}
    first = sampler(options)
    next(iter(first))
    state = saved(first.state_dict())
    assert state["chunks_open"] == 2
    with refused(bl.StateError, "mixes 2 chunks at a time", "1 chunk at a time", "chunks_open"):
        sampler(options, chunks_open=1).load_state_dict(state)
    with refused(bl.StateError, "fingerprint"):
        sampler(options, chunks=[40, 20]).load_state_dict(state)
    assert "chunks_open" not in bl.BatchSampler(60, 4).state_dict()


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"chunks": [30, 29]}, bl.ArgumentError, ("59 samples in 2 chunks", "there are 60 samples", "add up")),
        ({"chunks": [70, -10]}, bl.DataError, ("chunk 1 has size -10", "at least 0")),
        ({"chunks": [30.5, 29.5]}, bl.DataError, ("chunk 0 has size 30.5", "whole number")),
        ({"chunks": [float("nan"), 60]}, bl.DataError, ("chunk 0 has size nan",)),
        ({"chunks": [2**63, 2**63, 60]}, bl.DataError, ("chunk 0 has size 9.223372036854776e+18",)),
        ({"chunks": [[30, 30]]}, bl.DataError, ("chunks", "shape (1, 2)")),
        ({"chunks": ["a", "b"]}, bl.DTypeError, ("chunks", "integers")),
        ({"chunks": []}, bl.ArgumentError, ("0 samples in 0 chunks",)),
        (HALVES | {"chunks_open": 0}, bl.ArgumentError, ("chunks_open",)),
        (HALVES | {"chunks_open": 2.5}, bl.ArgumentError, ("chunks_open",)),
        ({"chunks_open": 4}, bl.ArgumentError, ("chunks_open is 4", "no chunks")),
        (HALVES | {"balance": True}, bl.ArgumentError, ("balance does not go with chunks",)),
        (HALVES | {"largest_first": True}, bl.ArgumentError, ("largest_first does not go with chunks",)),
        (HALVES | {"shard_size": 4}, bl.ArgumentError, ("shard_size does not go with chunks",)),
        (HALVES | {"num_samples": 4}, bl.ArgumentError, ("chunks does not go with num_samples",)),
        (
            {"chunks": [30, 30], "homogeneous_by": [0] * 60},
            bl.ArgumentError,
            ("homogeneous_by does not go with chunks",),
        ),
        (HALVES | {"distinct_by": range(60)}, bl.ArgumentError, ("distinct_by does not go with chunks",)),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(options, kind, words):
    with refused(kind, *words):
        bl.Plan(60, 4, sizes=[3] * 60, shuffle=True, **options)


@pytest.mark.parametrize("option", [{"chunks": [30, 30]}, {"chunks_open": 4}])
def test_a_loader_takes_no_chunks(option):
    with pytest.raises(TypeError, match="unexpected keyword argument 'chunks"):
        bl.DataLoader(bl.TensorDataset(numpy.arange(60)), 4, shuffle=True, **option)


@pytest.mark.parametrize("sizes", [None, [3] * 60])
def test_bans_hold_from_the_step_at_which_they_are_given(sizes):
    options = {"sizes": sizes, "batch_size": 4, "chunks": [20, 25, 15], "chunks_open": 2, "shuffle": True}
    plan = bl.Plan(60, **options, world_size=3, ban=[7, 31])
    assert plan.where(7) == plan.where(31) == []
    steps = [plan.step(step) for step in range(len(plan))]
    assert sum(step.samples for step in steps) == 58
    assert plan.stats()["banned"] == 2
    assert [step.batches[1].tolist() for step in steps] == batches_of(bl.Plan(60, **options, world_size=3, rank=1))
