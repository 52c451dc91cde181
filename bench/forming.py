"""What batchloom claims for forming batches of sequences, measured beside its peers and the machine's own copy.

    python bench/forming.py [--only packed] [--rounds 5] [--samples-scale 0.02] [--output FILE]

200 000 sequences of int64 tokens, lengths lognormal (median 80, sigma 0.7, from 1 to 2048), a label each, shuffled,
loop body ``pass``. Three workloads: ``buckets`` pads batches of 64 of similar length, ``fixed`` pads 64 at random,
``packed`` fills bins of 8192 tokens, with boundaries, positions, segments and numbers of the samples. Promises:

- All candidates form the same batches, and before anything is timed their values were compared with batchloom's,
  batch by batch. Peers are told the batches; batchloom also plans them in its time.
- Peers that use torch run with one thread or with all, whichever was faster on a few batches before.
- Slow peers form the first batches only; their time is scaled to all (``measured_batches`` says so).
- The copy is torch's, on all its threads, of as many bytes as an epoch of batchloom's batches has.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import batchloom
import collators
import numpy
import torch
from collators import CAT, COLLATOR, LOOM, PACKING, PADDING, ROWS, TORCH, Batches, Corpus, Former
from measure import Candidate, Claim, Timing, interleave, print_disturbed, table, write

SAMPLES = 200_000
MEDIAN, SIGMA, LONGEST = 80, 0.7, 2048
BATCH, CAPACITY = 64, 8192
CHECKED_BATCHES, TUNING_BATCHES = 200, 20
COPY = "copy of the same bytes"
PADDED_CLAIMS = {TORCH: 8, ROWS: 2, COLLATOR: 100}


@dataclass(frozen=True)
class Workload:
    """A rule, the peers that form what it cuts, and the claims: how many times batchloom's time a peer takes."""

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
    """The sequences."""
    drawn = numpy.random.default_rng(0).lognormal(math.log(MEDIAN), SIGMA, samples)
    return Corpus.make(numpy.clip(numpy.rint(drawn), 1, LONGEST).astype(numpy.int64))


def exhaust(epoch: Iterable[Any]) -> None:
    """The loop that is timed."""
    for _ in epoch:
        pass


def seconds(epochs: collators.Epochs) -> float:
    """Time one epoch."""
    start = time.perf_counter()
    exhaust(epochs())
    return time.perf_counter() - start


def candidate(former: Former, corpus: Corpus, batches: Batches, loom: collators.Epochs) -> Candidate:
    """Check a peer against batchloom, choose its threads, and make it ready for its part of the batches.

    Raises:
        ImportError: It is not installed.
    """
    measured = batches[: max(round(len(batches) * former.part), TUNING_BATCHES)]
    epochs = former.epochs(corpus, measured)
    checked = collators.check(islice(loom(), CHECKED_BATCHES), epochs(), former)
    threads = fastest_threads(former.epochs(corpus, measured[:TUNING_BATCHES]))
    factor = len(batches) / len(measured)
    facts = {
        "measured_batches": len(measured),
        "checked_batches": checked,
        "torch_threads": threads,
        "lacks": former.lacks,
    }
    return Candidate(former.name, lambda: with_threads(threads, epochs) * factor, facts, slow=former.part < 1)


def with_threads(threads: int, epochs: collators.Epochs) -> float:
    """Time one epoch with so many of torch's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return seconds(epochs)
    finally:
        torch.set_num_threads(before)


def fastest_threads(epochs: collators.Epochs) -> int:
    """Whether one thread is faster, or all of them."""
    choices = (1, torch.get_num_threads())
    return min(choices, key=lambda threads: min(with_threads(threads, epochs) for _ in range(3)))


def copying(size: int) -> Callable[[], None]:
    """Copy so many bytes into memory that was written before."""
    source = torch.ones(size // 8, dtype=torch.int64)
    target = source.clone()
    return lambda: target.copy_(source) is None or None


def bytes_of(epoch: Iterable[collators.Batch]) -> int:
    """Bytes of all tensors of an epoch."""
    return sum(value.nbytes for batch in epoch for value in batch.values() if isinstance(value, torch.Tensor))


def measure(workload: Workload, corpus: Corpus, rounds: int) -> dict[str, Any]:
    """Run one workload."""
    plan = batchloom.Plan(sizes=corpus.lengths.numpy(), batching=workload.batching, shuffle=True)
    batches = [batch.tolist() for batch in plan]
    loom = collators.loom(corpus, workload.batching)
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
    return report(workload, plan.stats(), timings, not_measured)


def report(
    workload: Workload, stats: dict[str, Any], timings: dict[str, Timing], not_measured: dict[str, str]
) -> dict[str, Any]:
    """Print what was measured; return it for the JSON."""
    copy, loom = timings[COPY], timings[LOOM]
    print_timings(workload.name, timings)
    print_disturbed(workload.name, timings)
    for name, reason in not_measured.items():
        print(f"not measured: {name}: {reason}")
    claims = [claim(workload, name, timings) for name in workload.claims if name in timings]
    for each in claims:
        each.print()
    against = {"copy": copy, "batchloom": loom}
    return {
        "workload": workload.name,
        "settings": repr(workload.batching),
        "plan": stats,
        "candidates": [timing.record(against) for timing in timings.values()],
        "not_measured": not_measured,
        "claims": [each.record() for each in claims],
        "faster_than_batchloom": [name for name, timing in timings.items() if timing.ratio(loom) < 1],
    }


def print_timings(title: str, timings: dict[str, Timing]) -> None:
    """Print one line for each candidate, the fastest first."""
    heads = ("candidate", "median s", "min s", "x copy", "x batchloom", "batches measured", "torch threads")
    rows = [
        (
            timing.name,
            f"{timing.median:.4f}",
            f"{timing.minimum:.4f}",
            f"{timing.ratio(timings[COPY]):.2f}",
            f"{timing.ratio(timings[LOOM]):.2f}",
            f"{timing.candidate.facts['measured_batches']}",
            f"{timing.candidate.facts['torch_threads']}",
        )
        for timing in sorted(timings.values(), key=lambda timing: timing.median)
    ]
    table(title, heads, rows)


def claim(workload: Workload, name: str, timings: dict[str, Timing]) -> Claim:
    """One number to reach: how many times batchloom's time a peer takes."""
    peer, loom = timings[name], timings[LOOM]
    text = f"{workload.name}: time of {name}, times batchloom's"
    return Claim(text, peer.ratio(loom), ">=", workload.claims[name], peer.best_ratio(loom))


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples-scale", type=float, default=1.0, help="shrink the data for a quick run")
    parser.add_argument("--rounds", type=int, default=5, help="how many rounds; at least 5 to quote a figure")
    parser.add_argument("--only", choices=[workload.name for workload in WORKLOADS], help="one workload")
    parser.add_argument("--output", help="the JSON file to write")
    return parser.parse_args()


def main() -> None:
    """Run the script."""
    chosen = arguments()
    torch.manual_seed(0)
    corpus = draw(max(round(SAMPLES * chosen.samples_scale), 50 * BATCH))
    wanted = [workload for workload in WORKLOADS if chosen.only in (None, workload.name)]
    cases = [measure(workload, corpus, chosen.rounds) for workload in wanted]
    whole = chosen.samples_scale == 1 and chosen.rounds >= 5 and chosen.only is None
    write("forming", vars(chosen), {"torch_threads": torch.get_num_threads(), "cases": cases}, whole)


if __name__ == "__main__":
    main()
