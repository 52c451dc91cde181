"""Batches of whole groups on a device: the published experiment.

What it promises:

- Rows as in rows.py, in groups of 1 to 15, 8 on average, whose rows lie together; 64 groups a batch, shuffled.
  Their number is a multiple of 64: else batch-iter loses the last ones.
- Before anything is timed, every value of an epoch was compared: with the batches that batchloom forms on the CPU, or
  for batch-iter, which cannot be told the batches, with the groups.
- batch-iter's set-up belongs to each epoch, as it draws its order there. One line has batchloom's in its time, too:
  dataset, search for the groups, and loader. What torch's loader needs to know is made before the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import batchloom
import torch
from batch_iter import GroupBatchIter
from torch.utils.data import DataLoader, Dataset

from bench.device.place import PINNED, Found, Place, report
from bench.device.rows import BATCH_ITER, CPU_ROWS, GIVEN, MOVED, ROWS, STREAMED, TORCH_MOVED, TORCH_THERE, WIDTH
from bench.groups import bench as groups
from bench.groups.bench import BATCH, Batch, Batches, Epochs, Groups, Way
from bench.harness.measure import COPY, interleave
from bench.windows.peers import moved

SET_UP = "batchloom resident, set-up included"
LEAST_ROWS = 4 * BATCH * 8


class Slices(Dataset[Batch]):
    """The rows of one group, sliced out of arrays anywhere."""

    def __init__(self, arrays: Batch, known: Groups) -> None:
        self._arrays = arrays
        ends = known.lengths.cumsum(0).tolist()
        self._rows = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    def __getitem__(self, group: int) -> Batch:
        """Return the ids, features and labels of one group."""
        return tuple(array[self._rows[group]] for array in self._arrays)


def torch_loader(arrays: Batch, known: Groups, batches: Batches) -> Any:
    """Use torch's ``DataLoader``."""
    return DataLoader(Slices(arrays, known), batch_sampler=batches, collate_fn=groups.concatenate)


def loom(arrays: Batch, **options: Any) -> batchloom.DataLoader:
    """Use batchloom."""
    return batchloom.DataLoader(batchloom.GroupDataset(*arrays), BATCH, shuffle=True, **options)


def first_epochs(loader: batchloom.DataLoader) -> Callable[[], Iterable[Batch]]:
    """The same epoch again and again."""

    def epoch() -> Iterable[Batch]:
        loader.set_epoch(0)
        return loader

    return epoch


def ways(device: torch.device, there: Batch) -> tuple[Way, ...]:
    """Return all ways; ``there`` are the arrays on the device."""
    seeds, options = count(), {"batch_size": BATCH, "shuffle": True}
    return (
        Way(SET_UP, lambda known, _: lambda: loom(there, resident=True)),
        Way(GIVEN, lambda known, _: first_epochs(loom(there, resident=True))),
        Way(MOVED, lambda known, _: first_epochs(loom(known.arrays, resident=True, device=device))),
        Way(STREAMED, lambda known, _: first_epochs(loom(known.arrays, resident=False, device=device))),
        Way(BATCH_ITER, lambda *_: lambda: GroupBatchIter(*there, **options, shuffle_seed=next(seeds)), told=False),
        Way(TORCH_THERE, lambda known, batches: over(torch_loader(there, known, batches)), slow=True),
        Way(
            TORCH_MOVED,
            lambda known, batches: lambda: moved(torch_loader(known.arrays, known, batches), device),
            slow=True,
        ),
    )


def over(loader: Any) -> Epochs:
    """The same loader for each epoch."""
    return lambda: loader


def measure_groups(place: Place) -> Found:
    """Measure the loop alone; return what the JSON says."""
    rows = place.scaled(ROWS, CPU_ROWS, least=LEAST_ROWS)
    # Sizes are drawn: a few rows more than their mean would take.
    known = Groups.make(rows, scattered=False, features=torch.rand(round(rows * 1.02) + 2000, WIDTH))
    there = tuple(array.to(place.device) for array in known.arrays)
    first = groups.loom(known, "concatenated")
    batches = [batch.tolist() for batch in first.plan(0)]
    size, title = sum(array.nbytes for array in known.arrays), f"groups, {BATCH} a batch"
    candidates = [place.copying(size), place.sending(size)]
    for way in ways(place.device, there):
        epochs = way.epochs(known, batches)
        groups.check(way, on_cpu(epochs, place.device), groups.loom(known, "concatenated"), known)
        candidates.append(place.epochs(way.name, epochs, slow=way.slow))
    timings = interleave(title, candidates, place.rounds)
    against = {"copy": COPY, "pinned": PINNED, "batchloom": GIVEN}
    facts = {"rows": len(known.ids), "groups": len(known.lengths), "batch_size": BATCH}
    return Found({**facts, **report(title, timings, size, len(batches), against)}, [])


def on_cpu(epochs: Epochs, device: torch.device) -> Iterable[Batch]:
    """Take an epoch's batches from the device, where they have to be, to the CPU."""
    for batch in epochs():
        assert all(array.device == device for array in batch), "batches are elsewhere"
        yield tuple(array.cpu() for array in batch)
