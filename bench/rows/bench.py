"""Measure epochs of uniform rows beside peers and beside the machine's own copy.

    python -m bench rows [--only wide|narrow|short|hand-over] [--rounds 5] [--scale 0.02] [--output FILE]

Batches of 64, shuffled, on the CPU, labels beside the features, loop body ``pass``: ``wide`` is 250 000 rows of 1024
float32 (4 KB), ``narrow`` 4 million rows of 16 float32 (64 B). ``short`` and ``hand-over`` measure the cost beside the
copying (overhead.py). Promises:

- Before anything is timed, every candidate has shown on a small version that it delivers each row exactly
  once with its own label.
- Slow peers run on the first rows only; their time is stretched to all rows, start and end counted once (more
  rows do not start workers more often). ``measured_rows`` says so. A part fits caches better and its order is
  drawn sooner: this favours the peer.
- It also measures a case that a peer wins: rows in order, where views of the data need no copy at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bench.harness.claims import all_slower
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.measure import COPY, LOOM, Candidate, Timing, exhaust, interleave
from bench.harness.record import write
from bench.harness.report import report
from bench.rows import peers
from bench.rows.overhead import measure_hand_over, measure_short
from bench.rows.peers import BATCH, BATCH_ITER, RUST, SELECT, SELECT_BLOCKS, TORCH, Rows, RustLoader

CHECKED_ROWS = 9_001


@dataclass(frozen=True)
class Workload:
    """Rows of one width, and the claims: for each peer, how many times batchloom's time it takes."""

    name: str
    rows: int
    width: int
    claims: dict[str, float]


WORKLOADS = (
    Workload("wide", 250_000, 1024, {TORCH: 12, BATCH_ITER: 2, SELECT: 1, COPY: 1}),
    Workload("narrow", 4_000_000, 16, {TORCH: 60, BATCH_ITER: 4, SELECT_BLOCKS: 1}),
)


@dataclass(frozen=True)
class Peer:
    """A way to make epochs, and the part of each workload that it is measured on."""

    name: str
    epochs: Callable[[Rows], peers.Epochs]
    wide_part: float = 1.0
    narrow_part: float = 1.0
    shuffled: bool = True

    def part(self, workload: Workload) -> float:
        """Return the part of the rows that is measured."""
        return self.wide_part if workload.name == "wide" else self.narrow_part


SHUFFLED = (
    Peer(LOOM, peers.loom),
    Peer(SELECT, peers.select_batches),
    Peer(SELECT_BLOCKS, peers.select_blocks),
    Peer("numpy take a batch, by hand", peers.take_batches),
    Peer(BATCH_ITER, peers.batch_iter),
    Peer("torch DataLoader, __getitems__", peers.torch_whole_batches),
    Peer(TORCH, peers.torch_loader),
    Peer("torch DataLoader, 2 workers", lambda rows: peers.torch_loader(rows, workers=2), 1 / 4, 1 / 32),
    Peer("grain", peers.grain_rows, 1 / 4, 1 / 32),
    Peer("grain, whole batches", peers.grain_whole_batches, 1 / 4, 1 / 32),
)
IN_ORDER = (
    Peer(LOOM, lambda rows: peers.loom(rows, shuffle=False), shuffled=False),
    Peer("split: views, by hand", peers.split_views, shuffled=False),
)


def candidate(peer: Peer, workload: Workload, rows: Rows) -> Candidate:
    """Check a peer on a few rows, then make it ready for all of them, or for its part."""
    few = Rows.make(CHECKED_ROWS, workload.width)
    peers.check(peer.epochs(few), few, peer.shuffled)
    measured = max(round(len(rows) * peer.part(workload)), 4 * BATCH)
    epochs = peer.epochs(rows.first(measured))
    facts = {"rows": len(rows), "measured_rows": measured, "checked_rows": CHECKED_ROWS}
    if measured == len(rows):
        return Candidate(peer.name, lambda: exhaust(epochs()), facts, slow=peer.name == TORCH)
    stretch = (batches(len(rows)) - 1) / (batches(measured) - 1)
    return Candidate(peer.name, lambda: stretched(epochs(), stretch), facts, slow=True)


def batches(rows: int) -> int:
    """Return the number of batches of so many rows."""
    return -(-rows // BATCH)


def stretched(epoch: Iterable[Any], stretch: float) -> float:
    """Return the seconds of a longer epoch: from the first batch to the last takes ``stretch`` times as long."""
    start = time.perf_counter()
    iterator = iter(epoch)
    next(iterator)
    first = last = time.perf_counter()
    for _ in iterator:
        last = time.perf_counter()
    end = time.perf_counter()
    return (first - start) + (last - first) * stretch + (end - last)


def copying(rows: Rows) -> Candidate:
    """Return the machine's copy, as a candidate."""
    facts = {"rows": len(rows), "measured_rows": len(rows), "bytes": rows.bytes}
    return Candidate(COPY, peers.copy(rows), facts)


def measure_shuffled(workload: Workload, rows: Rows, rounds: int) -> dict[str, Any]:
    """Run the claims of one workload."""
    candidates = [copying(rows), *(candidate(peer, workload, rows) for peer in SHUFFLED)]
    missing = RustLoader.missing()
    if missing:
        return case(workload, "shuffled", interleave(workload.name, candidates, rounds), {RUST: missing})
    rust = RustLoader(len(rows), workload.width)
    try:
        candidates.append(rust_candidate(rust, rows))
        return case(workload, "shuffled", interleave(workload.name, candidates, rounds))
    finally:
        rust.close()


def rust_candidate(rust: RustLoader, rows: Rows) -> Candidate:
    """Return the Rust program as a candidate: it has checked itself and chosen its settings."""
    facts = {"rows": len(rows), "measured_rows": len(rows), "checked_rows": CHECKED_ROWS}
    return Candidate(RUST, rust.epoch, {**facts, "tuned": rust.settings})


def measure_in_order(workload: Workload, rows: Rows, rounds: int) -> dict[str, Any]:
    """Run the case that a peer wins."""
    candidates = [copying(rows), *(candidate(peer, workload, rows) for peer in IN_ORDER)]
    return case(workload, "in order", interleave(f"{workload.name}, in order", candidates, rounds))


def case(
    workload: Workload, order: str, timings: dict[str, Timing], not_measured: dict[str, str] | None = None
) -> dict[str, Any]:
    """Print the measurements; return them for the JSON."""
    claims = all_slower(workload.name, timings, workload.claims if order == "shuffled" else {})
    return {
        "workload": workload.name,
        "order": order,
        "row_floats": workload.width,
        "batch_size": BATCH,
        **report(f"{workload.name}, {order}", timings, claims, {"rows measured": "measured_rows"}, not_measured),
    }


def measure(workload: Workload, scale: float, rounds: int) -> list[dict[str, Any]]:
    """Run one workload."""
    rows = Rows.make(max(round(workload.rows * scale), 16 * BATCH), workload.width)
    return [measure_shuffled(workload, rows, rounds), measure_in_order(workload, rows, rounds)]


PARTS: dict[str, Callable[[float, int], list[dict[str, Any]]]] = {
    **{workload.name: partial(measure, workload) for workload in WORKLOADS},
    "short": measure_short,
    "hand-over": measure_hand_over,
}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    torch.manual_seed(0)
    cases = [case for part in wanted(chosen, PARTS).values() for case in part(chosen.scale, chosen.rounds)]
    write("rows", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
