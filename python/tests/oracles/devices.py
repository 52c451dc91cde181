"""Batches as a device makes them: its ways, blocks of few batches, and what a batch is, bit for bit.

The CPU pretends to be the device, unless ``BATCHLOOM_TEST_DEVICE`` names a real one.
"""

import contextlib
import os

import batchloom as bl
import numpy
import pytest
import torch
from batchloom.dataset.base import samples_of
from oracles.windows import pretended

# The name of a real device, if tests are to run on one.
REAL = os.environ.get("BATCHLOOM_TEST_DEVICE")
ON = {"device": REAL} if REAL else {}
WAYS = ("resident", "streamed", "sharded", "device", "device streamed")
GIVEN = {
    "resident": {"resident": True} | ON,
    "streamed": {"resident": False} | ON,
    "device": {"device": REAL or "meta"},
    "device streamed": {"device": REAL or "meta", "resident": False},
}


@contextlib.contextmanager
def blocks(size):
    """Blocks of about so many bytes, so that an epoch has many."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STREAMED", "GATHERED", "TABLE"):
            patch.setattr(f"batchloom.delivery.on_device.{name}", size)
        yield


def loader_on(way, dataset, size=2000, **options):
    """A loader whose batches are made in one of the ways of a device; and the options that say the same of the host."""
    options = {"output": "torch"} | options
    with contextlib.nullcontext() if REAL else pretended(), blocks(size):
        if way != "sharded":
            return bl.DataLoader(dataset, **GIVEN[way], **options), options
        needed = sum(field.tensor.nbytes for field in samples_of(dataset).location.all_arrays)
        for limit in (max(needed * 2 // 3, 1), max(needed - 1, 1), needed + 1):
            # Two of its shards, or of its batches, may not fit into little.
            with contextlib.suppress(bl.ArgumentError):
                loader = bl.DataLoader(dataset, resident=limit, **ON, **options)
                return loader, options | {"shard_size": loader.placement.shard_size}
        raise AssertionError("what fits is refused")


def bits(value):
    """A value of a batch, bit for bit."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    content = bytes(plain.reshape(-1).view(torch.uint8).numpy()) if plain.numel() else b""
    return plain.dtype, tuple(plain.shape), content


def seen(batches):
    """Batches bit for bit, and with their names, if they have any."""
    found = []
    for batch in batches:
        named = isinstance(batch, dict)
        values = [bits(value) for value in (batch.values() if named else batch)]
        found.append((list(batch), values) if named else (type(batch), values))
    return found


def data(kind):
    """A dataset of a kind, and options of a loader that makes a few dozen batches of it."""
    ids = torch.arange(200)
    lengths = [(11 * k) % 17 for k in range(60)]
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    total = int(offsets[-1])
    sequences = bl.SequenceDataset(
        ids=(torch.arange(total), offsets), wide=(torch.randn(total, 3), offsets), label=torch.arange(60.0)
    )
    shuffled = {"shuffle": True, "seed": 3}
    return {
        "rows": lambda: (bl.TensorDataset(ids, torch.randn(200, 3)), {"batch_size": 7} | shuffled),
        "named rows": lambda: (bl.TensorDataset(x=torch.randn(200, 3), y=ids), {"batch_size": 7, "drop_last": True}),
        "sequences": lambda: (sequences, {"batching": bl.TokenBudget(48, pool=20), "labels": "ids"} | shuffled),
        "left": lambda: (sequences, {"batch_size": 4, "pad_side": "left", "pad_value": -1} | shuffled),
        "packed": lambda: (sequences, {"batching": bl.Packing(14, pool=20, oversize="split")} | shuffled),
        "groups": lambda: (bl.GroupDataset(ids * 7 % 41, x=ids, y=torch.randn(200, 2)), {"batch_size": 3} | shuffled),
        "padded groups": lambda: (
            bl.GroupDataset(ids * 7 % 41, ids, layout="padded", max_rows=3, oversize="subsample"),
            {"batch_size": 3} | shuffled,
        ),
        "stream": lambda: (
            bl.TokenDataset(ids.to(torch.uint16), 6, documents=[0, 9, 40, 77, 200], separator=7, segment_ids=True),
            {"batch_size": 2} | shuffled,
        ),
        "windows": lambda: (bl.WindowDataset([ids, ids[:3]], 5, 2, mask=True), {"batch_size": 8} | shuffled),
        "neighbours": lambda: (bl.WindowDataset(torch.randn(200, 2), 5, 2), {"batch_size": 8, "shuffle": "runs"}),
    }[kind]()


KINDS = (
    *("rows", "named rows", "sequences", "left", "packed", "groups", "padded groups", "stream", "windows"),
    "neighbours",
)


def arrays(batch):
    """The tensors of a batch."""
    return [
        value for value in (batch.values() if isinstance(batch, dict) else batch) if isinstance(value, torch.Tensor)
    ]


def assert_as_on_the_host(dataset, ways=WAYS, epochs=2, **options):
    """Every way yields the batches of the host, bit for bit, as many as were announced."""
    for way in ways:
        loader, same = loader_on(way, dataset, **options)
        host = bl.DataLoader(dataset, **same)
        for _ in range(epochs):
            assert loader.state_dict() == host.state_dict()
            length = len(loader)
            batches = seen(loader)
            assert len(batches) == length
            assert batches == seen(host), way
        assert loader.plan().fingerprint == host.plan().fingerprint
