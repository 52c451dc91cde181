"""Measure batches of whole groups on a device: the published experiment.

Promises:

- Rows as in rows.py, in groups of 1 to 15, 8 on average, whose rows lie together; 64 groups a batch, shuffled.
  Their number is a multiple of 64: else batch-iter loses the last ones.
- Before anything is timed, every value of an epoch of fewer groups was compared: with the batches that batchloom forms
  on the CPU, or for batch-iter, which draws its own batches, with the groups.
- batch-iter's set-up belongs to each epoch, as it draws its order there. One line has batchloom's in its time, too:
  dataset, search for the groups, and loader. What torch's loader needs to know is made before the clock.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from bench.device.peers import CPU_ROWS, GIVEN, ROWS, SET_UP, TORCH_MOVED, WIDTH, group_ways
from bench.device.place import PINNED, Found, Place, report
from bench.groups import peers
from bench.groups.peers import BATCH, BATCH_ITER, Batch, Epochs, Groups
from bench.harness.claims import slower
from bench.harness.measure import COPY

# The numbers to reach on the CPU; a batch of groups is wide, and so a device gains less than with rows.
TORCH_RATIO, BATCH_ITER_RATIO = 3, 2
LEAST_ROWS, CHECKED_ROWS = 4 * BATCH * 8, 1 / 10


def measure_groups(place: Place) -> Found:
    """Measure the loop alone; return its record for the JSON."""
    for way, epochs, known in prepared(place, CHECKED_ROWS):
        peers.check(way, on_cpu(epochs, place.device), peers.loom(known, "concatenated"), known)
    ways = prepared(place)
    *_, known = ways[0]
    size, title = sum(array.nbytes for array in known.arrays), f"groups, {BATCH} a batch"
    candidates = [place.copying(size), place.sending(size)]
    candidates += [place.epochs(way.name, epochs, slow=way.slow) for way, epochs, _ in ways]
    timings = place.interleave(title, candidates)
    against = {"copy": COPY, "pinned": PINNED, "batchloom": GIVEN}
    facts = {"rows": len(known.ids), "groups": len(known.lengths), "batch_size": BATCH}
    batches = len(peers.loom(known, "concatenated"))
    claims = [slower(title, timings[TORCH_MOVED], timings[GIVEN], TORCH_RATIO)]
    claims.append(slower(title, timings[BATCH_ITER], timings[SET_UP], BATCH_ITER_RATIO))
    return Found({**facts, **report(title, timings, size, batches, against)}, claims)


def prepared(place: Place, part: float = 1.0) -> list[tuple[peers.Way, Epochs, Groups]]:
    """Make groups of a part of the rows, and every way to their batches."""
    rows = place.scaled(round(ROWS * part), CPU_ROWS, least=LEAST_ROWS)
    # Sizes are drawn: a few rows more than their mean would take.
    known = Groups.make(rows, scattered=False, features=place.rand(round(rows * 1.02) + 2000, WIDTH).cpu())
    there = tuple(array.to(place.device) for array in known.arrays)
    batches = [batch.tolist() for batch in peers.loom(known, "concatenated").plan(0)]
    return [(way, way.epochs(known, batches), known) for way in group_ways(place.device, there)]


def on_cpu(epochs: Epochs, device: torch.device) -> Iterable[Batch]:
    """Take an epoch's batches from the device, where they have to be, to the CPU."""
    for batch in epochs():
        assert all(array.device == device for array in batch), "batches are elsewhere"
        yield tuple(array.cpu() for array in batch)
