"""Masked evaluation (L1, L3, L9): equal steps and sizes on every rank, every sample once, fillers marked."""

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import rules, sized
from oracles.devices import GIVEN, KINDS, assert_as_on_the_host, data, loader_on
from oracles.windows import loader_of
from refusals import refused

OUTPUTS = ("numpy", "torch", "jax")
MODES = ("views", "copy", "rows", "shards", "torch", "torch rows", "device", "device copy", "jax")
every_kind = pytest.mark.parametrize("kind", KINDS)


def marked(batch):
    """The index and the weight of a batch, as arrays of NumPy: by name, or last."""
    index, weight = (batch["index"], batch["weight"]) if isinstance(batch, dict) else batch[-2:]
    return numpy.asarray(index), numpy.asarray(weight)


def contents(batch):
    """The fields of a batch of one, and nothing that describes the batch or tells places apart."""
    values = dict(enumerate(batch[:-2])) if isinstance(batch, tuple) else dict(batch)
    for name in ("index", "weight", "labels"):
        values.pop(name, None)
    return {name: numpy.asarray(value).tolist() for name, value in values.items()}


def counted(loaders, equal):
    """The samples that count, in all batches of all ranks, step by step; checks marks, sizes and the plan's counts."""
    plan = loaders[0].plan()
    received = [list(loader) for loader in loaders]
    assert len({len(batches) for batches in received}) == 1
    found = []
    for number, step in enumerate(zip(*received, strict=True)):
        here, marks = plan.step(number), [marked(batch) for batch in step]
        assert not equal or len({len(index) for index, _ in marks}) == 1
        for (index, weight), count, samples in zip(marks, here.counts, here.batches, strict=True):
            assert weight.dtype == numpy.float32
            assert weight.tolist() == [1.0] * count + [0.0] * (len(samples) - count)
            assert index.tolist() == samples[:count].tolist() + [-1] * (len(samples) - count)
            found += index[:count].tolist()
            assert set(samples.tolist()) <= {sample for batch in here.batches for sample in batch.tolist()}
        assert here.samples == sum(here.counts)
    return found


@given(
    samples=st.integers(1, 60),
    batch_size=st.integers(1, 20),
    shuffle=st.sampled_from([False, True, "runs"]),
    world_size=st.integers(1, 9),
    output=st.sampled_from(OUTPUTS),
)
def test_rows_count_once_on_any_number_of_ranks(samples, batch_size, shuffle, world_size, output):
    numbers = numpy.arange(samples)
    loaders = [
        bl.DataLoader(
            bl.TensorDataset(numbers, numbers * 3.0), batch_size, shuffle=shuffle, uneven="mask", output=output,
            rank=rank, world_size=world_size,
        )
        for rank in range(world_size)
    ]  # fmt: skip
    assert sorted(counted(loaders, equal=True)) == list(range(samples))
    for loader in loaders:
        loader.set_epoch(0)
        plan = loader.plan()
        for step, (x, y, index, weight) in enumerate(loader):
            assert numpy.asarray(x).tolist() == plan[step].tolist()  # places that fill up hold samples of the step
            assert numpy.asarray(y).tolist() == [3.0 * sample for sample in plan[step]]
            assert len(index) == len(weight) == len(x)


@pytest.mark.parametrize("samples", [1, 2, 5, 8, 40, 103])
def test_metrics_are_those_of_one_process(samples):
    scores, truth = numpy.random.default_rng(samples).normal(size=(2, samples)).astype(numpy.float32)
    hits = (scores > 0) == (truth > 0)
    for world_size in range(1, 10):
        right, total = 0.0, 0.0
        for rank in range(world_size):
            options = {"uneven": "mask", "rank": rank, "world_size": world_size}
            for score, true, _, weight in bl.DataLoader(bl.TensorDataset(scores, truth), 10, **options):
                right += float((((score > 0) == (true > 0)) * weight).sum())
                total += float(weight.sum())
        assert (right, total) == (hits.sum(), samples)


@pytest.mark.law("L1")
@every_kind
@pytest.mark.parametrize("world_size", [1, 2, 3, 9])
def test_every_kind_of_data_on_the_host(kind, world_size):
    dataset, options = data(kind)
    equal, options = "batch_size" in options, options | {"drop_last": False, "uneven": "mask"}
    loaders = [bl.DataLoader(dataset, **options, rank=rank, world_size=world_size) for rank in range(world_size)]
    found, samples = counted(loaders, equal), range(len(loaders[0].dataset))
    # Parts of a split sample count as the rule divides it.
    assert sorted(set(found)) == list(samples)
    assert kind == "packed" or len(found) == len(samples)


@every_kind
@pytest.mark.parametrize("way", [*GIVEN, "sharded"])
def test_every_way_to_a_device_yields_the_marks_of_the_host(kind, way):
    dataset, options = data(kind)
    for world_size in (1, 5):
        for rank in {0, world_size - 1}:
            more = {"uneven": "mask", "rank": rank, "world_size": world_size}
            assert_as_on_the_host(dataset, (way,), **options, **more)


@pytest.mark.parametrize(
    "mode", ["views", "copy", "rows", "shards", "torch", "torch rows", "device", "device copy", "jax"]
)
@pytest.mark.parametrize("mask", [False, True])
def test_views_of_windows_are_marked(mode, mask):
    series = numpy.arange(60, dtype=numpy.float32).reshape(60, 1)
    for world_size in (1, 4):
        for shuffle in (False, "runs", True):
            loaders = [
                loader_of(
                    bl.WindowDataset([series, series[:3]], 4, 2, mask=mask), mode, 8, shuffle=shuffle, uneven="mask",
                    rank=rank, world_size=world_size,
                )
                for rank in range(world_size)
            ]  # fmt: skip
            assert sorted(counted(loaders, equal=True)) == list(range(len(loaders[0].dataset)))
            one = loader_of(bl.WindowDataset([series, series[:3]], 4, 2, mask=mask), mode, 1, uneven="mask")
            alone = [contents(batch) for batch in one]
            for loader in loaders:
                loader.set_epoch(0)
                for samples, batch in zip(loader.plan(), loader, strict=True):
                    expected = [alone[sample] for sample in samples]
                    whole = {name: [value for each in expected for value in each[name]] for name in expected[0]}
                    assert contents(batch) == whole


@pytest.mark.parametrize("kind", ["sequences", "left", "packed", "stream"])
@pytest.mark.parametrize("way", ["host", "resident", "streamed", "sharded"])
def test_labels_that_a_loader_makes_are_ignored_at_fillers(kind, way):
    dataset, options = data(kind)
    if kind != "stream":
        options |= {"labels": "ids"}
    for world_size in (1, 3, 8):
        more = {"uneven": "mask", "world_size": world_size}
        make = (lambda **given: loader_on(way, dataset, **given)[0]) if way != "host" else partial_of(dataset)
        loaders = [make(**options, **more, rank=rank) for rank in range(world_size)]
        plan, used = loaders[0].plan(), {}
        for loader in loaders:
            for step, batch in enumerate(loader):
                labels = numpy.asarray(batch["labels"] if isinstance(batch, dict) else batch[1])
                used[step] = used.get(step, 0) + int((labels != -100).sum())
        assert used == {step: plan.step(step).labels for step in used}


def partial_of(dataset):
    """A maker of loaders of the host."""
    return lambda **given: bl.DataLoader(dataset, **given)


@pytest.mark.law("L1")
@given(sizes=sized(), rule=rules, world_size=st.integers(1, 9), seed=st.integers(0, 2**64 - 1))
def test_masked_plans_count_what_one_process_delivers(sizes, rule, world_size, seed):
    options = {"sizes": sizes, "batching": rule, "shuffle": True, "seed": seed}
    try:
        masked = bl.Plan(**options, uneven="mask", world_size=world_size)
    except bl.Error:
        return
    one = sorted(sample for batch in bl.Plan(**options, uneven="short") for sample in batch.tolist())
    steps = [masked.step(step) for step in range(len(masked))]
    pairs = [pair for step in steps for pair in zip(step.batches, step.counts, strict=True)]
    assert sorted(sample for batch, count in pairs for sample in batch[:count].tolist()) == one
    stats = masked.stats()
    assert stats["repeated"] == 0
    if isinstance(rule, bl.FixedSize | bl.LengthBuckets):
        assert all(len({len(batch) for batch in step.batches}) == 1 for step in steps)
    if batching.policy(rule) != "split":
        places = [masked.where(sample) for sample in range(len(sizes))]
        assert sum(map(len, places)) == len(one)


def test_a_field_of_the_name_of_a_mark_is_an_error():
    numbers = numpy.arange(6)
    for name in ("index", "weight"):
        for dataset in (
            bl.TensorDataset(**{name: numbers}),
            bl.GroupDataset(numbers // 2, **{name: numbers}),
        ):
            with refused(bl.ArgumentError, name, "mask", "pad"):
                bl.DataLoader(dataset, uneven="mask")
            assert name in next(iter(bl.DataLoader(dataset)))
    dataset = bl.SequenceDataset(t=[[1], [2, 3]], weight=numpy.array([2.0, 3.0]))
    with refused(bl.ArgumentError, "weight", "mask"):
        bl.DataLoader(dataset, uneven="mask")


def test_a_state_goes_on_on_other_ranks_with_marks():
    dataset = bl.TensorDataset(numpy.arange(50))

    def loaders(world_size):
        options = {"batch_size": 4, "shuffle": True, "uneven": "mask", "world_size": world_size}
        return [bl.DataLoader(dataset, **options, rank=rank) for rank in range(world_size)]

    for stop in range(5):
        first, found = loaders(3), []
        for loader in first:
            for _, (_, (_, index, weight)) in zip(range(stop), enumerate(loader), strict=False):
                found += index[weight > 0].tolist()
        state = first[0].state_dict()
        assert all(loader.state_dict() == state for loader in first)
        for loader in (later := loaders(7)):
            loader.load_state_dict(state)
        for loader in later:
            for _, index, weight in loader:
                found += index[weight > 0].tolist()
        assert sorted(found) == list(range(50))


def test_results_of_fillers_are_left_out():
    dataset = bl.SequenceDataset(t=[numpy.arange(k % 5) for k in range(23)])
    outputs, index = [], []
    for rank in range(4):
        for batch in bl.DataLoader(dataset, 4, shuffle=True, uneven="mask", rank=rank, world_size=4):
            outputs.append(batch["lengths"] + 100)
            index.append(batch["index"])
    assert any((part < 0).any() for part in index)
    assert bl.restore_order(outputs, index).tolist() == [k % 5 + 100 for k in range(23)]
    assert bl.restore_order([7, 8, 9], numpy.array([1, -1, 0])) == [9, 7]
    with refused(bl.DataError, "-2"):
        bl.restore_order([7, 8], numpy.array([0, -2]))


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_bare_array_has_marks_beside_it(world_size):
    X, places = torch.arange(3), []
    for rank in range(world_size):
        for x, index, weight in bl.DataLoader(X, 2, uneven="mask", rank=rank, world_size=world_size):
            places += zip(x.tolist(), index.tolist(), weight.tolist(), strict=True)
    assert sorted(x for x, _, weight in places if weight) == [0, 1, 2]
    assert all((index == x) if weight else (index == -1) for x, index, weight in places)
