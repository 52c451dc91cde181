"""The laws on a GPU itself: values, resumes, streams, graphs, no synchronisation, memory that does not grow.

Without a GPU the CPU is the device, and tests that need a GPU are skipped.
"""

import itertools
import os

import batchloom as bl
import pytest
import torch
from batchloom.delivery import placement
from oracles.devices import KINDS, arrays, data, seen
from refusals import refused

DEVICE = os.environ.get("BATCHLOOM_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _let_the_cpu_stand_in(monkeypatch):
    monkeypatch.setattr(placement, "cpu_stands_in", True)


WAYS = ({"resident": True}, {"resident": False})
every_way = pytest.mark.parametrize("way", WAYS, ids=str)
every_kind = pytest.mark.parametrize("kind", KINDS)
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU of CUDA")


def on_host(batches):
    """Batches as they are on the host, each copied as it comes."""
    found = []
    for batch in batches:
        named = isinstance(batch, dict)
        values = [value.cpu() if isinstance(value, torch.Tensor) else value for value in arrays_of(batch)]
        found.append(dict(zip(batch, values, strict=True)) if named else tuple(values))
    return found


def arrays_of(batch):
    return list(batch.values()) if isinstance(batch, dict) else list(batch)


def assert_there(batch):
    assert {array.device.type for array in arrays(batch)} == {torch.device(DEVICE).type}


@every_way
@every_kind
def test_batches_are_those_of_the_host(kind, way):
    dataset, options = data(kind)
    loader = bl.DataLoader(dataset, **options, device=DEVICE, **way)
    host = bl.DataLoader(dataset, **options, output="torch")
    for _ in range(2):
        assert seen(on_host(loader)) == seen(host)
    assert_there(next(iter(loader)))


@every_way
@every_kind
def test_a_run_goes_on_at_every_step_on_the_device(kind, way):
    dataset, options = data(kind)
    host = bl.DataLoader(dataset, **options, output="torch")
    whole = seen(host) + seen(host)
    loader = bl.DataLoader(dataset, **options, device=DEVICE, **way)
    states = [loader.state_dict()]
    for _ in range(2):
        for _ in loader:
            states.append(loader.state_dict())
    for step in {*range(0, len(whole), 5), len(host) - 1, len(host), len(whole) - 1}:
        again = bl.DataLoader(dataset, **options, device=DEVICE, **way)
        again.load_state_dict(states[step])
        first = seen(on_host(itertools.islice(again, 1)))
        assert first == whole[step : step + 1]


@every_way
@every_kind
def test_ranks_take_every_batch_on_the_device(kind, way):
    dataset, options = data(kind)
    for rank in range(3):
        ranks = options | {"rank": rank, "world_size": 3}
        loader = bl.DataLoader(dataset, **ranks, device=DEVICE, **way)
        assert seen(on_host(loader)) == seen(bl.DataLoader(dataset, **ranks, output="torch"))


@every_way
@every_kind
def test_static_buffers_hold_the_batches_of_the_host(kind, way):
    dataset, options = data(kind)
    loader = bl.DataLoader(dataset, **options, device=DEVICE, buffers="static", **way)
    host = bl.DataLoader(dataset, **options, output="torch")
    for _ in range(2):
        for batch, other in zip(loader, host, strict=True):
            assert_there(batch)
            assert seen(on_host([batch])) == seen([other])


def test_shards_hold_every_row_once_and_follow_the_plan():
    torch.manual_seed(0)
    rows = torch.randn(20_000, 25)
    loader = bl.DataLoader(bl.TensorDataset(rows), 64, shuffle=True, device=DEVICE, resident=500_000)
    assert loader.placement.mode == "sharded"
    for epoch in range(2):
        for samples, (batch,) in zip(loader.plan(epoch), loader, strict=True):
            assert torch.equal(batch.cpu(), rows[torch.as_tensor(samples)])


@every_way
def test_types_and_scales_are_those_of_the_host(way):
    pixels = torch.randint(0, 256, (500, 3, 8, 8), dtype=torch.uint8)
    options = {
        "fields": bl.Field(dtype="float32", scale=1 / 255, mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.4]),
        "shuffle": True,
    }
    loader = bl.DataLoader(bl.TensorDataset(pixels), 32, device=DEVICE, **options, **way)
    assert seen(on_host(loader)) == seen(bl.DataLoader(bl.TensorDataset(pixels), 32, output="torch", **options))


@pytest.mark.parametrize("way", [{}, {"resident": False}], ids=str)
def test_mixtures_and_selections_are_those_of_the_host(way):
    """Two datasets are streamed."""
    parts = {name: bl.SequenceDataset(x=[torch.full((n % 7 + 1,), n) for n in range(60)]) for name in "ab"}
    mixture = bl.Mixture({"a": parts["a"].select(range(40)), "b": parts["b"]}, weights={"a": 0.7, "b": 0.3})
    options = {"batching": bl.TokenBudget(32, pool=20), "shuffle": True}
    loader = bl.DataLoader(mixture, device=DEVICE, **options, **way)
    assert seen(on_host(loader)) == seen(bl.DataLoader(mixture, output="torch", **options))


@every_way
def test_a_model_trains_on_batches_as_they_are(way):
    torch.manual_seed(0)
    X = torch.randn(2048, 8)
    y = X.sum(1)
    model = torch.nn.Linear(8, 1).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    loader = bl.DataLoader(bl.TensorDataset(X, y), 64, shuffle=True, device=DEVICE, **way)
    for _ in range(8):
        for x, target in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x).squeeze(1), target)
            loss.backward()
            optimizer.step()
    assert loss.item() < 1e-3


@every_way
def test_a_compiled_model_is_compiled_once_for_each_shape(way):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    counter = CompileCounter()
    layer = torch.nn.Linear(4, 2).to(DEVICE)
    model = torch.compile(layer, backend=counter, dynamic=False)
    rows = torch.randn(640, 4)
    loader = bl.DataLoader(bl.TensorDataset(rows), 64, shuffle=True, drop_last=True, device=DEVICE, **way)
    for _ in range(3):
        for (batch,) in loader:
            assert torch.equal(model(batch), layer(batch))
    assert counter.frame_count == 1


@every_way
def test_a_consumer_that_keeps_every_batch_in_poisoned_memory(way, monkeypatch):
    monkeypatch.setenv("BATCHLOOM_POISON", "1")
    rows = torch.arange(400_000).view(100_000, 4)
    loader = bl.DataLoader(bl.TensorDataset(rows), 100, shuffle=True, device=DEVICE, **way)
    held = [batch for _ in range(3) for (batch,) in loader]
    expected = torch.arange(400_000).view(100_000, 4)
    for epoch in range(3):
        found = torch.cat(held[epoch * 1000 : (epoch + 1) * 1000]).cpu()
        assert torch.equal(found[found[:, 0].argsort()], expected)


@on_a_gpu
@every_way
def test_a_consumer_that_changes_its_stream(way):
    rows = torch.arange(400_000).view(100_000, 4)
    loader = bl.DataLoader(bl.TensorDataset(rows), 100, device=DEVICE, **way)
    streams = [torch.cuda.Stream() for _ in range(3)]
    sums, batches = [], iter(loader)
    for number in range(len(loader)):
        with torch.cuda.stream(streams[number % 3]):
            (batch,) = next(batches)
            sums.append((batch * 1).sum())
            del batch
    torch.cuda.synchronize()
    assert torch.stack(sums).cpu().tolist() == rows.view(1000, -1).sum(1).tolist()


@on_a_gpu
@every_way
@every_kind
def test_nothing_synchronises_in_the_steady_state(kind, way):
    dataset, options = data(kind)
    loader = bl.DataLoader(dataset, **options, device=DEVICE, **way)
    for batch in loader:
        arrays(batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in loader:
            arrays(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@on_a_gpu
@every_way
def test_memory_does_not_grow_over_fifty_epochs(way):
    lengths = torch.randint(1, 300, (5000,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    dataset = bl.SequenceDataset(x=(torch.arange(int(offsets[-1])), offsets))
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(20_000, pool=500), shuffle=True, device=DEVICE, **way)
    for epoch in range(50):
        for batch in loader:
            assert batch["x"].is_cuda
        if epoch == 10:
            torch.cuda.synchronize()
            early = torch.cuda.max_memory_allocated()
    assert torch.cuda.max_memory_allocated() <= early * 1.1


@on_a_gpu
def test_two_shards_are_all_that_a_limit_holds():
    """However far the CPU runs ahead of a device that is busy."""
    rows, limit = torch.randint(0, 255, (1_600_000, 1000), dtype=torch.uint8), 800_000_000
    loader = bl.DataLoader(bl.TensorDataset(rows), 1000, shuffle=True, device=DEVICE, resident=limit)
    assert loader.placement.mode == "sharded"
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        total = torch.zeros((), dtype=torch.int64, device=DEVICE)
        for (batch,) in loader:
            torch.cuda._sleep(200_000)
            total += batch.sum()
        assert total.item() == int(rows.sum())
    # Besides: the rows of the block in use, of the one before, and their numbers.
    assert torch.cuda.max_memory_allocated() - before <= limit + (128 << 20)


@on_a_gpu
def test_a_graph_reads_fixed_places():
    rows = torch.randn(6400, 8)
    loader = bl.DataLoader(bl.TensorDataset(rows), 64, drop_last=True, buffers="static", device=DEVICE)
    batches = iter(loader)
    (place,) = next(batches)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # threads of the loader may pin memory
        total = place.sum(0)
    for number, (batch,) in enumerate(batches, start=1):
        assert batch is place
        graph.replay()
        assert torch.allclose(total.cpu(), rows[number * 64 : (number + 1) * 64].sum(0), atol=1e-4)


@on_a_gpu
@every_way
def test_graphs_of_padded_batches_one_for_each_shape(way):
    lengths = [n % 29 + 1 for n in range(400)]
    dataset = bl.SequenceDataset(x=[torch.full((n,), float(n)) for n in lengths])
    rule = bl.LengthBuckets(8, pool=4, multiple_of=16)
    options = {"batching": rule, "shuffle": True, "drop_last": True}
    loader = bl.DataLoader(dataset, **options, buffers="static", device=DEVICE, **way)
    graphs, found = {}, []
    for _ in range(2):
        for batch in loader:
            shape = batch["x"].shape
            if shape not in graphs:
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    total = (batch["x"] * batch["attention_mask"]).sum(1)
                graphs[shape] = graph, total
            graph, total = graphs[shape]
            graph.replay()
            found.append(total.tolist())
    host = bl.DataLoader(dataset, **options, output="torch")
    assert found == [batch["x"].sum(1).tolist() for _ in range(2) for batch in host]
    assert len(graphs) <= 2


@on_a_gpu
def test_too_little_memory_says_how_much_there_is():
    free, _ = torch.cuda.mem_get_info()
    huge = torch.empty(1, dtype=torch.uint8).expand(2 * free)
    with refused(bl.DeviceError, f"{2 * free} bytes", "resident", "False"):
        bl.DataLoader(bl.TensorDataset(huge), device=DEVICE, resident=True)
