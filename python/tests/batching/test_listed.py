"""Batches given as lists: every kind of dataset takes them, ranks share them, states resume them."""

import pickle

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

SAMPLES = 12
lists = st.lists(st.lists(st.integers(0, SAMPLES - 1), min_size=1, max_size=5), min_size=1, max_size=12)
SIZES = [size % 5 + 1 for size in range(SAMPLES)]


def rows():
    return bl.TensorDataset(x=numpy.arange(SAMPLES))


def documents():
    return bl.SequenceDataset(x=[numpy.full(size, sample) for sample, size in enumerate(SIZES)])


def groups():
    return bl.GroupDataset(numpy.repeat(numpy.arange(SAMPLES), SIZES), x=numpy.repeat(numpy.arange(SAMPLES), SIZES))


def windows():
    return bl.WindowDataset(numpy.arange(SAMPLES + 2.0), input_len=2, horizon=1)


def first(batch):
    """The first number of each sample of a batch, which is the sample itself."""
    if isinstance(batch, tuple):
        return batch[0][:, 0].reshape(-1).astype(int).tolist()
    if "index" in batch:
        return batch["index"].tolist()
    if "offsets" in batch:
        return batch["x"][batch["offsets"][:-1]].tolist()
    return batch["x"].tolist()


@given(lists=lists, make=st.sampled_from([rows, documents, groups, windows]), world=st.integers(1, 3), data=st.data())
def test_ranks_share_lists_and_states_resume_them(lists, make, world, data):
    dataset = make()

    def loader(rank, world):
        return bl.DataLoader(dataset, batching=bl.Listed(lists), rank=rank, world_size=world, uneven="short")

    stop = data.draw(st.integers(0, len(lists) // world), label="stop")
    taken, state = [], None
    for rank in range(world):
        ours = loader(rank, world)
        iterator = iter(ours)
        taken.append([first(next(iterator)) for _ in range(stop)])
        state = ours.state_dict() if stop < len(lists) // world else None
    assert [taken[place % world][place // world] for place in range(stop * world)] == lists[: stop * world]
    if state is not None:
        rest = loader(0, 1)
        rest.load_state_dict(state)
        assert [first(batch) for batch in rest] == lists[stop * world :]


@given(lists=lists)
def test_a_rule_of_lists_is_a_value(lists):
    rule = bl.Listed(lists)
    assert (len(rule), rule) == (len(lists), bl.Listed([numpy.array(batch) for batch in lists]))
    assert pickle.loads(pickle.dumps(rule)) == rule
    assert hash(rule) == hash(bl.Listed(lists))
    plan = bl.Plan(SAMPLES, batching=rule)
    assert [batch.tolist() for batch in pickle.loads(pickle.dumps(plan))] == lists
    for sample in range(SAMPLES):
        expected = [(step, index) for step, batch in enumerate(lists) for index, it in enumerate(batch) if it == sample]
        assert [(place.step, place.index) for place in plan.where(sample)] == expected


@pytest.mark.law("L3")
@given(
    size=st.integers(1, 5), world=st.integers(1, 4), uneven=st.sampled_from(["pad", "mask"]), samples=st.integers(1, 12)
)
def test_lists_of_equal_counts_fill_up_as_batches_of_a_rule_do(size, world, uneven, samples):
    listed = bl.Listed([range(start, min(start + size, samples)) for start in range(0, samples, size)])
    assert listed.batch_size == min(size, samples)
    dataset = bl.TensorDataset(x=numpy.arange(samples))
    for rank in range(world):
        place = {"rank": rank, "world_size": world, "uneven": uneven}
        given, made = (bl.DataLoader(dataset, batching=rule, **place) for rule in (listed, bl.FixedSize(size)))
        assert [str(batch) for batch in given] == [str(batch) for batch in made]


def test_lists_of_other_counts_stay_as_they_are():
    lists = [[0, 1], [2, 3, 4], [5]]
    assert bl.Listed(lists).batch_size is None
    for uneven in ("pad", "mask"):
        plans = [bl.Plan(SAMPLES, batching=bl.Listed(lists), uneven=uneven, rank=rank, world_size=2) for rank in (0, 1)]
        assert [batch.tolist() for batch in plans[0]] == [[0, 1], [5]]
        assert [batch.tolist() for batch in plans[1]] == [[2, 3, 4], [0, 1] if uneven == "pad" else [5]]


def test_a_state_of_other_lists_is_refused():
    ours = bl.DataLoader(rows(), batching=bl.Listed([[0, 1], [2]]))
    next(iter(ours))
    state = ours.state_dict()
    other = bl.DataLoader(rows(), batching=bl.Listed([[1, 0], [2]]))
    with refused(bl.StateError, state["lists"]):
        other.load_state_dict(state)
    assert [first(batch) for batch in other] == [[1, 0], [2]]


@pytest.mark.parametrize(
    "lists", [[[0], []], [[0], [-1]], [[0.5]], [["a"]], [[[1]]], [[2**32]], [3], [[True]]], ids=repr
)
def test_lists_that_are_no_batches(lists):
    with refused(bl.ArgumentError, f"batch {len(lists) - 1}"):
        bl.Listed(lists)


@pytest.mark.parametrize(
    "options", [{"shuffle": True}, {"shuffle": "runs"}, {"shard_size": 4}, {"balance": True}, {"largest_first": True}]
)
def test_nothing_else_decides_the_order_of_lists(options):
    with refused(bl.ArgumentError, next(iter(options))):
        bl.Plan(sizes=SIZES, batching=bl.Listed([[0]]), **options)


def test_samples_that_are_not_there():
    with refused(bl.RangeError, str(SAMPLES)):
        bl.DataLoader(rows(), batching=bl.Listed([[0], [SAMPLES]]))
    with refused(bl.ArgumentError, "0"):
        bl.DataLoader(rows(), batching=bl.Listed([]))


def test_lists_on_a_device_of_torch():
    dataset = bl.TensorDataset(x=torch.arange(SAMPLES))
    ours = bl.DataLoader(dataset, batching=bl.Listed([[3, 3, 1], [5]]), resident=True)
    assert [batch["x"].tolist() for batch in ours] == [[3, 3, 1], [5]]
