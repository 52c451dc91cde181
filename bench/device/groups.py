"""Measure batches of whole groups on a device: the published experiment.

Promises:

- Rows as in rows.py, in groups of 1 to 15, 8 on average, whose rows lie together; 64 groups a batch, shuffled.
  Their number is a multiple of 64: else batch-iter loses the last ones.
- Before anything is timed, every value of an epoch was compared: with the batches that batchloom forms on the CPU, or
  for batch-iter, which cannot be told the batches, with the groups.
- batch-iter's set-up belongs to each epoch, as it draws its order there. One line has batchloom's in its time, too:
  dataset, search for the groups, and loader. What torch's loader needs to know is made before the clock.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from bench.device.peers import CPU_ROWS, GIVEN, ROWS, WIDTH, group_ways
from bench.device.place import PINNED, Found, Place, report
from bench.groups import peers
from bench.groups.peers import BATCH, Batch, Epochs, Groups
from bench.harness.measure import COPY, interleave

LEAST_ROWS = 4 * BATCH * 8


def measure_groups(place: Place) -> Found:
    """Measure the loop alone; return its record for the JSON."""
    rows = place.scaled(ROWS, CPU_ROWS, least=LEAST_ROWS)
    # Sizes are drawn: a few rows more than their mean would take.
    known = Groups.make(rows, scattered=False, features=torch.rand(round(rows * 1.02) + 2000, WIDTH))
    there = tuple(array.to(place.device) for array in known.arrays)
    first = peers.loom(known, "concatenated")
    batches = [batch.tolist() for batch in first.plan(0)]
    size, title = sum(array.nbytes for array in known.arrays), f"groups, {BATCH} a batch"
    candidates = [place.copying(size), place.sending(size)]
    for way in group_ways(place.device, there):
        epochs = way.epochs(known, batches)
        peers.check(way, on_cpu(epochs, place.device), peers.loom(known, "concatenated"), known)
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
