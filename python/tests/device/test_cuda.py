"""The laws on a GPU itself, where there is one: values, streams, no synchronisation, memory that does not grow."""

import batchloom as bl
import pytest
import torch
from oracles.devices import KINDS, arrays, data, seen
from refusals import refused

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU of CUDA")

DEVICE = "cuda"
WAYS = ({"resident": True}, {"resident": False})
every_way = pytest.mark.parametrize("way", WAYS, ids=str)


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


@every_way
@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_the_host(kind, way):
    dataset, options = data(kind)
    loader = bl.DataLoader(dataset, **options, device=DEVICE, **way)
    host = bl.DataLoader(dataset, **options, output="torch")
    for _ in range(2):
        assert seen(on_host(loader)) == seen(host)


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


@every_way
@pytest.mark.parametrize("kind", KINDS)
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


def test_two_shards_are_all_that_a_limit_holds():
    """However far the CPU runs ahead of a device that is busy."""
    rows, limit = torch.randint(0, 255, (1_600_000, 1000), dtype=torch.uint8), 800_000_000
    loader = bl.DataLoader(bl.TensorDataset(rows), 1000, shuffle=True, device=DEVICE, memory_limit=limit)
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


def test_a_graph_reads_fixed_places():
    rows = torch.randn(6400, 8)
    loader = bl.DataLoader(bl.TensorDataset(rows), 64, drop_last=True, static_buffers=True, device=DEVICE)
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


def test_too_little_memory_says_how_much_there_is():
    free, _ = torch.cuda.mem_get_info()
    huge = torch.empty(1, dtype=torch.uint8).expand(2 * free)
    with refused(bl.DeviceError, f"{2 * free} bytes", "resident", "False"):
        bl.DataLoader(bl.TensorDataset(huge), device=DEVICE, resident=True)
