"""``buffers="static"``: batches at fixed places, as a captured graph reads the same memory at each replay."""

import itertools

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.devices import KINDS, WAYS, arrays, data, loader_on, seen
from refusals import refused

PAIRS = [*itertools.product(WAYS[:3], KINDS), *((way, "neighbours") for way in WAYS[3:])]


def shape(batch):
    """The shape of a batch: batches of different shapes have places of their own."""
    values = batch.values() if isinstance(batch, dict) else batch
    return tuple(value.shape if isinstance(value, torch.Tensor) else value for value in values)


@pytest.mark.parametrize(("way", "kind"), PAIRS)
def test_batches_of_a_shape_are_the_same_objects_with_new_values(way, kind):
    torch.manual_seed(0)
    dataset, options = data(kind)
    loader, same = loader_on(way, dataset, **options, buffers="static")
    host = bl.DataLoader(dataset, **same | {"buffers": "views"})
    places = {}
    for _ in range(3):
        for batch, other in zip(loader, host, strict=True):
            assert seen([batch]) == seen([other])
            found = places.setdefault(shape(batch), (batch, [array.data_ptr() for array in arrays(batch)]))
            assert batch is found[0]
            assert [array.data_ptr() for array in arrays(batch)] == found[1]
            assert all(array.is_contiguous() for array in arrays(batch))
    storages = [
        array.untyped_storage().data_ptr() for batch, _ in places.values() for array in arrays(batch) if array.numel()
    ]
    assert len(set(storages)) == len(storages)
    assert len(places) < 3 * len(host)


def test_one_shape_is_one_set_over_all_epochs():
    loader = bl.DataLoader(
        bl.TensorDataset(torch.arange(60).view(20, 3), torch.arange(20)), 5, shuffle=True, buffers="static"
    )
    batches = [batch for _ in range(4) for batch in loader]
    assert len({id(batch) for batch in batches}) == 1
    assert loader.placement.mode == "resident"
    short = bl.DataLoader(bl.TensorDataset(torch.arange(22)), 5, buffers="static")
    assert len({id(batch) for _ in range(4) for batch in short}) == 2


@pytest.mark.parametrize("named", [False, True])
def test_tuples_and_dicts(named):
    fields = {"x": torch.arange(20.0), "y": torch.arange(20)}
    dataset = bl.TensorDataset(**fields) if named else bl.TensorDataset(*fields.values())
    for resident in (True, False, "auto"):
        for batch in bl.DataLoader(dataset, 5, buffers="static", resident=resident):
            assert type(batch) is (dict if named else tuple)
            assert not named or list(batch) == ["x", "y"]


def test_the_longest_sample_is_part_of_the_shape():
    """A graph is captured with it, as a number."""
    dataset = bl.SequenceDataset(x=[torch.ones(n) for n in (4, 4, 5, 3, 4, 4, 6, 2)])
    batches = list(bl.DataLoader(dataset, 2, batching=None, buffers="static"))
    assert len({tuple(batch["x"].shape) for batch in batches}) == 3
    packed = bl.DataLoader(dataset, batching=bl.Packing(8), buffers="static")
    longest = []
    places = {}
    for batch in packed:
        assert batch["cu_seqlens"].diff().max() == batch["max_seqlen"]
        longest.append(batch["max_seqlen"])
        assert places.setdefault(shape(batch), batch) is batch
    assert sorted(longest) == [4, 4, 5, 6]
    assert len(places) == 3


def test_a_consumer_that_replays_what_it_captured():
    """Captured once for a shape, by address: each replay is of the batch that was just handed over."""
    values = torch.randn(64, 3)
    loader = bl.DataLoader(bl.TensorDataset(values), 8, shuffle=True, buffers="static", resident=True)
    graphs, sums = {}, []
    for _ in range(2):
        for (batch,) in loader:
            graph = graphs.setdefault(batch.shape, lambda batch=batch: batch.sum().item())
            sums.append(graph())
    expected = [values[samples].sum().item() for epoch in range(2) for samples in loader.plan(epoch)]
    assert sums == pytest.approx(expected, abs=1e-4)
    assert len(graphs) == 1


def test_gradients_of_what_is_in_a_place():
    loader = bl.DataLoader(bl.TensorDataset(torch.arange(24.0)), 4, buffers="static")
    for number, (batch,) in enumerate(loader):
        batch.requires_grad_()
        batch.grad = None
        (batch**2).sum().backward()
        assert torch.equal(batch.grad, 2 * torch.arange(4.0 * number, 4.0 * number + 4))
    held = (batch**2).sum()
    next(iter(loader))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        held.backward()


def test_views_are_copied_to_their_place():
    series = torch.arange(100.0)
    for options in ({}, {"resident": False}, {"resident": 320}):
        loader = bl.DataLoader(
            bl.WindowDataset(series, 6, 2, mask=True), 10, buffers="static", output="torch", **options
        )
        found = [(x.data_ptr(), x.clone(), y.clone(), mask.clone()) for x, y, mask, _ in loader]
        assert len({place for place, *_ in found if place}) == 2
        for samples, (_, x, y, mask) in zip(loader.plan(0), found, strict=True):
            assert torch.equal(x[:, 0], torch.as_tensor(samples).float())
            assert torch.equal(y, x[:, -2:] + 2)
            assert mask.all()
        (x, *_), *_ = loader
        x.zero_()
        assert torch.equal(series, torch.arange(100.0))


@pytest.mark.parametrize("shuffle", [False, True, "runs"])
def test_only_torch_has_fixed_places(shuffle):
    for dataset in (bl.TensorDataset(numpy.zeros(9)), bl.WindowDataset(numpy.zeros((9, 2)), 3)):
        with refused(bl.ArgumentError, "buffers", "numpy", 'output="torch"'):
            bl.DataLoader(dataset, 2, buffers="static", shuffle=shuffle)
        assert len(list(bl.DataLoader(dataset, 2, buffers="static", shuffle=shuffle, output="torch"))) > 3
        with refused(bl.ArgumentError, "output"):
            bl.DataLoader(dataset, 2, buffers="static", device="meta", output="jax")


@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=20), batch_size=st.integers(1, 4))
def test_values_are_those_of_any_shapes_in_any_order(sizes, batch_size):
    offsets = numpy.concatenate([[0], numpy.cumsum(sizes)])
    dataset = bl.SequenceDataset(x=(torch.arange(int(offsets[-1])), offsets), y=torch.arange(len(sizes)))
    for options in ({"batch_size": batch_size}, {"batching": bl.Packing(12)}):
        host = bl.DataLoader(dataset, **options, shuffle=True, output="torch")
        loader = bl.DataLoader(dataset, **options, shuffle=True, buffers="static")
        for _ in range(2):
            assert [seen([batch]) for batch in loader] == [seen([batch]) for batch in host]


def test_more_shapes_than_anyone_captures_are_refused():
    offsets = numpy.cumsum(numpy.arange(100))
    dataset = bl.SequenceDataset(x=(torch.arange(int(offsets[-1])), offsets))
    batches = iter(bl.DataLoader(dataset, 1, buffers="static"))
    for length in range(1, 65):
        assert next(batches)["x"].shape == (1, length)
    with refused(bl.LoaderError, "64", {"65", "(1, 65)", "[1, 65]"}, "multiple_of"):
        next(batches)


def test_samples_on_demand_and_in_chunks_keep_their_places_in_every_epoch():
    rows = torch.arange(60).view(20, 3)
    on_demand = bl.MapDataset(range(20), lambda item: {"x": rows[item], "y": item})
    chunks = bl.ChunkDataset([10, 10], lambda chunk: {"x": rows[10 * chunk : 10 * chunk + 10]})
    for dataset in (on_demand, chunks):
        loader = bl.DataLoader(dataset, 5, shuffle=True, output="torch", buffers="static")
        places = {batch["x"].data_ptr() for _ in range(4) for batch in loader}
        assert len(places) == 1
        for _ in range(2):
            assert sorted(row for batch in loader for row in batch["x"][:, 0].tolist()) == list(range(0, 60, 3))


def test_another_type_in_a_later_epoch_has_places_of_its_own():
    dtypes = [torch.float32]
    dataset = bl.MapDataset(range(6), lambda item: {"x": torch.full((2,), item + 0.5, dtype=dtypes[-1])})
    loader = bl.DataLoader(dataset, 3, num_threads=1, buffers="static")
    assert [batch["x"].dtype for batch in loader] == [torch.float32] * 2
    dtypes.append(torch.float64)
    assert [batch["x"].dtype for batch in loader] == [torch.float64] * 2
