"""Measure the cost beside copying: epochs so short that their start shows, and the hand-over of each batch.

Promises:

- ``short``: epochs of 1000 rows of 64 bytes, shuffled. A run is many epochs one after the other on one loader; the
  figure is the seconds of one of them. The bar is the loop that people write for data of this size: one
  ``randperm``, one ``index_select`` and one ``split`` for the whole epoch.
- ``hand-over``: as many batches of rows of 4 bytes, of 64 bytes and of 4 KB. Rows of 4 bytes leave nothing to copy, so
  their time is that of handing batches over. The figure is the microseconds of a batch; one line has them without
  those that torch takes to copy the bytes of a batch. The floor is ``split`` by hand in order: views alone.
- Every candidate has shown on a small version that it delivers each row exactly once with its own label.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from statistics import median
from typing import Any

from bench.harness.claims import Claim, stated
from bench.harness.measure import COPY, LOOM, Candidate, Timing, exhaust, interleave
from bench.harness.report import faster_than, fastest_first, print_disturbed, table
from bench.rows import peers
from bench.rows.peers import BATCH, BATCH_ITER, SELECT, TORCH, Epochs, Rows

SHORT_ROWS, SHORT_FLOATS, LONGEST_SHORT = 1000, 16, 1.2
WHOLE = "randperm, index_select, split, by hand"
# A run is so many epochs; of slow peers, so many.
TOGETHER, TOGETHER_SLOW, LEAST_TOGETHER = 500, 20, 10
SHORT = {
    LOOM: peers.loom,
    WHOLE: peers.select_whole,
    SELECT: peers.select_batches,
    BATCH_ITER: peers.batch_iter,
    TORCH: peers.torch_loader,
}
# What is handed over: so many batches, of rows of so many float32.
HANDED, WIDTHS = 4000, {"4 B": 1, "64 B": 16, "4 KB": 1024}
IN_ORDER, SPLIT = "batchloom, in order", "split: views, by hand"


def measure_short(scale: float, rounds: int) -> list[dict[str, Any]]:
    """Measure short epochs; return its record for the JSON."""
    rows = Rows.make(SHORT_ROWS, SHORT_FLOATS)
    candidates = []
    for name, peer in SHORT.items():
        peers.check(peer(rows), rows)
        together = max(round((TOGETHER_SLOW if name == TORCH else TOGETHER) * scale), LEAST_TOGETHER)
        facts = {"rows": SHORT_ROWS, "epochs_together": together}
        candidates.append(Candidate(name, partial(seconds_of_one, peer(rows), together), facts))
    timings = interleave("short epochs", candidates, rounds)
    print_microseconds(f"epochs of {SHORT_ROWS} rows of 64 B", "an epoch", timings, 1, WHOLE)
    text = "short epochs: time of batchloom, times that of randperm, index_select and split by hand"
    claims = [Claim.of_ratio(text, timings[LOOM], timings[WHOLE], "<=", LONGEST_SHORT)]
    case = {"workload": "short", "order": "shuffled", "row_floats": SHORT_FLOATS, "batch_size": BATCH}
    return [{**case, **recorded(timings, {"by_hand": timings[WHOLE]}), "claims": stated(claims)}]


def seconds_of_one(epochs: Epochs, together: int) -> float:
    """Return the seconds of one of so many epochs."""
    start = time.perf_counter()
    for _ in range(together):
        exhaust(epochs())
    return (time.perf_counter() - start) / together


def measure_hand_over(scale: float, rounds: int) -> list[dict[str, Any]]:
    """Measure the hand-over of batches of each width; return its record for the JSON."""
    batches = max(round(HANDED * scale), 16)
    return [hand_over(name, width, batches, rounds) for name, width in WIDTHS.items()]


def hand_over(name: str, width: int, batches: int, rounds: int) -> dict[str, Any]:
    """Measure the hand-over of batches of one width."""
    rows, few = Rows.make(batches * BATCH, width), Rows.make(SHORT_ROWS, width)
    shuffled, in_order, split = peers.loom, partial(peers.loom, shuffle=False), peers.split_views
    candidates = [Candidate(COPY, peers.copy(rows), {"bytes": rows.bytes})]
    for called, peer in {LOOM: shuffled, IN_ORDER: in_order, SPLIT: split}.items():
        peers.check(peer(few), few, shuffled=called == LOOM)
        candidates.append(Candidate(called, partial(exhaust_one, peer(rows)), {"batches": batches}))
    timings = interleave(f"hand-over of rows of {name}", candidates, rounds)
    print_microseconds(f"hand-over: {batches} batches of rows of {name}", "a batch", timings, batches, COPY)
    beside = {called: beside_copy(timings[called], timings[COPY], batches) for called in (LOOM, IN_ORDER)}
    for called, microseconds in beside.items():
        print(f"{called}: {microseconds:.2f} microseconds a batch beside the copy")
    each = {called: timing.median / batches * 1e6 for called, timing in timings.items()}
    case = {"workload": "hand-over", "row_floats": width, "batch_size": BATCH, "batches": batches}
    figures = {"microseconds_a_batch": each, "microseconds_a_batch_beside_the_copy": beside, "claims": []}
    return {**case, **recorded(timings, {"copy": timings[COPY]}), **figures}


def exhaust_one(epochs: Epochs) -> None:
    """Run one epoch."""
    exhaust(epochs())


def beside_copy(timing: Timing, copy: Timing, batches: int) -> float:
    """Return the microseconds of a batch without those of its copy: the median over rounds."""
    pairs = zip(timing.rounds, copy.rounds, strict=True)
    return median((mine - theirs) / batches * 1e6 for mine, theirs in pairs)


def recorded(timings: dict[str, Timing], against: Mapping[str, Timing]) -> dict[str, Any]:
    """Return the JSON's record of all candidates."""
    others = {**against, "batchloom": timings[LOOM]}
    candidates = [timing.record(others) for timing in timings.values()]
    return {"candidates": candidates, "faster_than_batchloom": faster_than(LOOM, timings)}


def print_microseconds(title: str, unit: str, timings: dict[str, Timing], count: int, bar: str) -> None:
    """Print one line for each candidate, the fastest first, beside the candidate that is the bar."""
    rows = [
        (
            timing.name,
            f"{timing.median / count * 1e6:.2f}",
            f"{timing.minimum / count * 1e6:.2f}",
            f"{timing.ratio(timings[bar]):.2f}",
            f"{timing.ratio(timings[LOOM]):.2f}",
        )
        for timing in fastest_first(timings)
    ]
    table(title, ("candidate", f"median us {unit}", "min us", f"x {bar.partition(',')[0]}", "x batchloom"), rows)
    print_disturbed(title, timings)
