"""Measure collation of sequences beside peers and beside the machine's own copy.

    python -m bench collate [--only packed] [--rounds 5] [--scale 0.02] [--output FILE]

200 000 sequences of int64 tokens, lengths lognormal (median 80, sigma 0.7, from 1 to 2048), a label each, shuffled,
loop body ``pass``. Three workloads: ``buckets`` pads batches of 64 of similar length, ``fixed`` pads 64 at random,
``packed`` fills bins of 8192 tokens, with boundaries, positions, segments and numbers of the samples. Promises:

- All candidates make the same batches, and before anything is timed their values were compared with batchloom's,
  batch by batch. Peers are told the batches; batchloom also plans them in its time.
- Peers that use torch run with one thread or with all, whichever was faster on a few batches before.
- Slow peers make the first batches only; their time is scaled to all (``measured_batches`` says so).
- The copy is torch's, on all its threads, of as many bytes as an epoch of batchloom's batches has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import batchloom
import numpy
import torch

from bench.collate import peers
from bench.collate.peers import CAT, COLLATOR, PACKING, PADDING, ROWS, TORCH, Batches, Corpus, Former
from bench.harness.claims import all_slower
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.measure import COPY, LOOM, Candidate, exhaust, fastest_threads, interleave, with_threads
from bench.harness.record import write
from bench.harness.report import report

SAMPLES = 200_000
MEDIAN, SIGMA, LONGEST = 80, 0.7, 2048
BATCH, CAPACITY = 64, 8192
CHECKED_BATCHES, TUNING_BATCHES = 200, 20
FACTS = {"batches measured": "measured_batches", "torch threads": "torch_threads"}
PADDED_CLAIMS = {TORCH: 8, ROWS: 2, COLLATOR: 100}


@dataclass(frozen=True)
class Workload:
    """A rule, the peers that make its batches, and how many times batchloom's time they are to take."""

    name: str
    batching: Any
    peers: tuple[Former, ...]
    claims: dict[str, float]


WORKLOADS = (
    Workload("buckets", batchloom.LengthBuckets(BATCH), PADDING, PADDED_CLAIMS),
    Workload("fixed", batchloom.FixedSize(BATCH), PADDING, PADDED_CLAIMS),
    Workload("packed", batchloom.Packing(CAPACITY), PACKING, {CAT: 4}),
)


def draw(samples: int) -> Corpus:
    """Draw the sequences."""
    drawn = numpy.random.default_rng(0).lognormal(math.log(MEDIAN), SIGMA, samples)
    return Corpus.make(numpy.clip(numpy.rint(drawn), 1, LONGEST).astype(numpy.int64))


def candidate(former: Former, corpus: Corpus, batches: Batches, loom: peers.Epochs) -> Candidate:
    """Check a peer against batchloom, choose its threads, and make it ready for its part of the batches.

    Raises:
        ImportError: It is not installed.
    """
    measured = batches[: max(round(len(batches) * former.part), TUNING_BATCHES)]
    epochs = former.epochs(corpus, measured)
    checked = peers.check(islice(loom(), CHECKED_BATCHES), epochs(), former)
    threads = fastest_threads(former.epochs(corpus, measured[:TUNING_BATCHES]))
    factor = len(batches) / len(measured)
    facts = {
        "measured_batches": len(measured),
        "checked_batches": checked,
        "torch_threads": threads,
        "lacks": former.lacks,
    }
    return Candidate(former.name, lambda: with_threads(threads, epochs) * factor, facts, slow=former.part < 1)


def copying(size: int) -> Callable[[], None]:
    """Copy so many bytes into memory that was written before."""
    source = torch.ones(size // 8, dtype=torch.int64)
    target = source.clone()
    return lambda: target.copy_(source) is None or None


def bytes_of(epoch: Iterable[peers.Batch]) -> int:
    """Return the bytes of all tensors of an epoch."""
    return sum(value.nbytes for batch in epoch for value in batch.values() if isinstance(value, torch.Tensor))


def measure(workload: Workload, corpus: Corpus, rounds: int) -> dict[str, Any]:
    """Run one workload."""
    plan = batchloom.Plan(sizes=corpus.lengths.numpy(), batching=workload.batching, shuffle=True)
    batches = [batch.tolist() for batch in plan]
    loom = peers.loom(corpus, workload.batching)
    size = bytes_of(loom())
    everything = {"measured_batches": len(batches), "torch_threads": torch.get_num_threads()}
    candidates = [
        Candidate(COPY, copying(size), {**everything, "bytes": size}),
        Candidate(LOOM, lambda: exhaust(loom()), everything),
    ]
    not_measured = {}
    for former in workload.peers:
        try:
            candidates.append(candidate(former, corpus, batches, loom))
        except ImportError as error:
            not_measured[former.name] = str(error)
    timings = interleave(workload.name, candidates, rounds)
    claims = all_slower(workload.name, timings, workload.claims)
    return {
        "workload": workload.name,
        "settings": repr(workload.batching),
        "plan": plan.stats(),
        **report(workload.name, timings, claims, FACTS, not_measured),
    }


def main() -> None:
    """Run the chapter."""
    parts = {workload.name: workload for workload in WORKLOADS}
    chosen = arguments(__doc__, parts)
    torch.manual_seed(0)
    corpus = draw(max(round(SAMPLES * chosen.scale), 50 * BATCH))
    cases = [measure(workload, corpus, chosen.rounds) for workload in wanted(chosen, parts).values()]
    write("collate", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
