"""Ask batchloom and each peer for epochs on a device: rows, and whole groups of them.

Promises:

- *Resident* data is on the device before the clock starts; *streamed* data travels inside it. A peer's name says where
  its data lies.
- What can be made once for all epochs is made before the clock. batch-iter draws its order when it is made, so it is
  made in each epoch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

import batchloom
import torch
from batch_iter import GroupBatchIter
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bench.device.place import Place
from bench.groups.peers import BATCH, Batch, Batches, Groups, Way, concatenate
from bench.rows import peers
from bench.rows.peers import BATCH_ITER, SELECT, SELECT_BLOCKS, Epochs, Rows
from bench.windows.peers import moved

ROWS, WIDTH, LARGE = 500_000, 1000, 1024
# Rows of 64 bytes: twice what the cache of a large GPU holds.
NARROW_ROWS, NARROW_WIDTH = 2_000_000, 16
CPU_ROWS = 1 / 100
GIVEN, MOVED, STREAMED = "batchloom resident", "batchloom resident, data from the CPU", "batchloom streamed"
STREAMED_THREADS = "batchloom streamed, a thread on each core"
SET_UP = "batchloom resident, set-up included"
TORCH_MOVED, TORCH_THERE = "torch DataLoader, .to(device)", "torch DataLoader, data on the device"


@dataclass(frozen=True)
class Data:
    """Rows in memory of the CPU, the same rows on the device, and the size of a batch."""

    host: Rows
    there: Rows
    batch: int

    @classmethod
    def make(cls, place: Place, rows: int = ROWS, width: int = WIDTH, batch: int = BATCH) -> Data:
        """Draw features on the device; the label of a row is its number, exact in float32 below 2**24."""
        count = place.scaled(rows, CPU_ROWS, least=4 * LARGE)
        there = Rows(place.rand(count, width), torch.arange(count, dtype=torch.float32, device=place.device))
        return cls(Rows(there.features.cpu(), there.labels.cpu()), there, batch)

    def first(self, rows: int) -> Data:
        """Return the first rows: views."""
        return Data(self.host.first(rows), self.there.first(rows), self.batch)

    def in_batches_of(self, batch: int) -> Data:
        """Return the same rows in batches of another size."""
        return Data(self.host, self.there, batch)

    def with_labels_below(self, highest: float) -> Data:
        """Return the same features; labels go from 0 to ``highest``, as a model learns them."""
        scale = highest / len(self.host)
        host, there = (Rows(rows.features, rows.labels * scale) for rows in (self.host, self.there))
        return Data(host, there, self.batch)

    @property
    def device(self) -> torch.device:
        """Return the device of batches."""
        return self.there.features.device

    @property
    def batches(self) -> int:
        """Return the number of batches."""
        return -(-len(self.host) // self.batch)


def torch_moved(data: Data) -> Epochs:
    """Use torch's ``DataLoader`` as it is usually written, and bring each batch to the device."""
    loader = DataLoader(TensorDataset(data.host.features, data.host.labels), data.batch, shuffle=True)
    return lambda: moved(loader, data.device)


def torch_there(data: Data) -> Epochs:
    """Use torch's ``DataLoader`` over rows that are on the device, as published."""
    loader = DataLoader(TensorDataset(data.there.features, data.there.labels), data.batch, shuffle=True)
    return lambda: loader


ROW_WAYS: dict[str, Callable[[Data], Epochs]] = {
    GIVEN: lambda data: peers.loom(data.there, data.batch, resident=True),
    MOVED: lambda data: peers.loom(data.host, data.batch, resident=True, device=data.device),
    STREAMED: lambda data: peers.loom(data.host, data.batch, resident=False, device=data.device),
    STREAMED_THREADS: lambda data: peers.loom(
        data.host, data.batch, resident=False, device=data.device, num_threads=os.cpu_count()
    ),
    SELECT: lambda data: peers.select_batches(data.there, data.batch),
    SELECT_BLOCKS: lambda data: peers.select_blocks(data.there, data.batch),
    BATCH_ITER: lambda data: peers.batch_iter(data.there, data.batch),
    TORCH_THERE: torch_there,
    TORCH_MOVED: torch_moved,
}


class Slices(Dataset[Batch]):
    """The rows of one group, sliced out of arrays anywhere."""

    def __init__(self, arrays: Batch, known: Groups) -> None:
        self._arrays = arrays
        ends = known.lengths.cumsum(0).tolist()
        self._rows = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def __getitem__(self, group: int) -> Batch:
        """Return the ids, features and labels of one group."""
        return tuple(array[self._rows[group]] for array in self._arrays)


def torch_groups(arrays: Batch, known: Groups, batches: Batches) -> Any:
    """Use torch's ``DataLoader``."""
    return DataLoader(Slices(arrays, known), batch_sampler=batches, collate_fn=concatenate)


def loom_groups(arrays: Batch, **options: Any) -> batchloom.DataLoader:
    """Use batchloom."""
    return batchloom.DataLoader(batchloom.GroupDataset(*arrays), BATCH, shuffle=True, **options)


def first_epochs(loader: batchloom.DataLoader) -> Callable[[], Iterable[Batch]]:
    """Repeat the same epoch."""

    def epoch() -> Iterable[Batch]:
        loader.set_epoch(0)
        return loader

    return epoch


def group_ways(device: torch.device, there: Batch) -> tuple[Way, ...]:
    """Return all ways; ``there`` are the arrays on the device."""
    seeds, options = count(), {"batch_size": BATCH, "shuffle": True}
    return (
        Way(SET_UP, lambda known, _: lambda: loom_groups(there, resident=True)),
        Way(GIVEN, lambda known, _: first_epochs(loom_groups(there, resident=True))),
        Way(MOVED, lambda known, _: first_epochs(loom_groups(known.arrays, resident=True, device=device))),
        Way(STREAMED, lambda known, _: first_epochs(loom_groups(known.arrays, resident=False, device=device))),
        Way(BATCH_ITER, lambda *_: lambda: GroupBatchIter(*there, **options, shuffle_seed=next(seeds)), told=False),
        Way(TORCH_THERE, lambda known, batches: over(torch_groups(there, known, batches)), slow=True),
        Way(
            TORCH_MOVED,
            lambda known, batches: lambda: moved(torch_groups(known.arrays, known, batches), device),
            slow=True,
        ),
    )


def over(loader: Any) -> Epochs:
    """Use the same loader for each epoch."""
    return lambda: loader
