"""Measure batches of whole groups beside peers and beside the machine's own copy.

    python -m bench groups [--only together|scattered|padded] [--rounds 5] [--scale 0.1] [--output FILE]

250 000 rows of 1024 float32 (4 KB) with an id and a label each, in groups of 1 to 15 rows (8 on average), 64 groups a
batch, shuffled, on the CPU, loop body ``pass``. ``together``: the rows of a group lie one after the other;
``scattered``: anywhere; ``padded``: as together, batches ``[groups, rows, 1024]`` with a mask. Promises:

- batchloom's time is that of making dataset and loader and of their first epoch: finding the groups counts in every
  run. A line of its own, which no claim uses, has a loader that was made before the clock.
- batch-iter draws its order when it is made, so its set-up is part of every epoch, too. torch's loader and the loops by
  hand know the rows of each group before the clock; in a line of its own, torch's loader has every slice, too.
- Before anything is timed, every value of an epoch was compared with batchloom's, batch by batch. Peers are told the
  batches; batch-iter cannot be, and has to show each group once, whole and in its order. It would lose the last
  groups here where their number is no multiple of 64 (nor one less): so there are as many.
- Peers run with one of torch's threads or with all, whichever was faster on a few batches before.
- The copy is torch's, on all its threads, of as many bytes as an epoch of batchloom's batches has.
- It also measures a case that a peer wins: groups in order, where batches are views of the data.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bench.groups.peers import (
    BATCH,
    BATCH_ITER,
    CONCATENATED,
    IN_ORDER,
    PADDED,
    TORCH,
    TORCH_VIEWS,
    WIDTH,
    Batch,
    Batches,
    Epochs,
    Groups,
    Views,
    Way,
    check,
    concatenate,
    loom,
    torch_loader,
)
from bench.harness.claims import all_slower
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.measure import COPY, Candidate, fastest_threads, interleave, with_threads
from bench.harness.record import write
from bench.harness.report import report

ROWS, TUNING_BATCHES = 250_000, 20
CLAIMS = {BATCH_ITER: 2, TORCH: 3}


@dataclass(frozen=True)
class Workload:
    """Groups, a layout of batches, and the ways to make them."""

    name: str
    ways: tuple[Way, ...]
    scattered: bool = False
    layout: str = "concatenated"
    shuffle: bool = True

    @property
    def claims(self) -> dict[str, float]:
        """Return, for some ways, how many times batchloom's time they take."""
        return CLAIMS if self.shuffle else {}


WORKLOADS = (
    Workload("together", (*CONCATENATED, Way(TORCH_VIEWS, torch_loader(Views, concatenate), slow=True))),
    Workload("scattered", CONCATENATED, scattered=True),
    Workload("padded", PADDED, layout="padded"),
    Workload("together, in order", IN_ORDER, shuffle=False),
)


def candidate(way: Way, groups: Groups, batches: Batches, expected: Epochs) -> Candidate:
    """Check a way, choose its threads, and make it ready."""
    epochs = way.epochs(groups, batches)
    check(way, epochs(), expected(), groups)
    threads = fastest_threads(epochs, TUNING_BATCHES) if way.tuned else torch.get_num_threads()
    facts = {"torch_threads": threads, "told": way.told}
    return Candidate(way.name, lambda: with_threads(threads, epochs), facts, slow=way.slow)


def copying(size: int, source: Tensor) -> Candidate:
    """Copy so many bytes, of 4 KB rows as often as it takes, into memory that was written before."""
    target = source.clone()
    whole, rest = divmod(size, source.nbytes)
    part = rest // (WIDTH * source.itemsize)

    def run() -> None:
        for _ in range(whole):
            target.copy_(source)
        target[:part].copy_(source[:part])

    return Candidate(COPY, run, {"torch_threads": torch.get_num_threads(), "bytes": size})


def measure(workload: Workload, features: Tensor, rows: int, rounds: int) -> dict[str, Any]:
    """Run one workload."""
    groups = Groups.make(rows, workload.scattered, features)
    first = loom(groups, workload.layout, workload.shuffle)
    batches = [batch.tolist() for batch in first.plan(0)]

    def expected() -> Iterable[Batch]:
        return loom(groups, workload.layout, workload.shuffle)

    size = sum(array.nbytes for batch in first for array in batch)
    candidates = [copying(size, groups.features)]
    candidates += [candidate(way, groups, batches, expected) for way in workload.ways]
    timings = interleave(workload.name, candidates, rounds)
    claims = all_slower(workload.name, timings, workload.claims)
    return {
        "workload": workload.name,
        "rows": len(groups.ids),
        "groups": len(groups.lengths),
        "batches": len(batches),
        "batch_size": BATCH,
        **report(workload.name, timings, claims, {"torch threads": "torch_threads"}),
    }


def main() -> None:
    """Run the chapter."""
    parts = {workload.name: workload for workload in WORKLOADS}
    chosen = arguments(__doc__, parts)
    torch.manual_seed(0)
    rows = round(ROWS * chosen.scale)
    # Sizes are drawn: a few rows more than their mean would take.
    features = torch.rand(round(rows * 1.02) + 2000, WIDTH)
    cases = [measure(workload, features, rows, chosen.rounds) for workload in wanted(chosen, parts).values()]
    write("groups", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
