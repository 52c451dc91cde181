"""Measure epochs of a stream of tokens beside the loops that people write.

    python -m bench tokens [--only epoch] [--rounds 5] [--scale 0.02] [--output FILE]

100 million uint16 tokens in a memory map, pieces of 1024, batches of 8, handed over as int64 tensors of torch: inputs,
and labels one token later. Loop body ``pass``. Promises:

- Before anything is timed, every candidate ran on a small corpus whose tokens are all different: a candidate that
  promises an epoch delivered each of them once, labels one token after inputs; documents came whole.
- Slow peers make the first batches of an epoch only; their time is scaled to all (``measured_batches`` says so).
- nanoGPT's ``get_batch`` opens the map for each batch, as published (else its resident memory grows); the same with a
  map that is opened once stands beside it. It draws with replacement: its epoch is as many batches, not each token.
- The file was written just before: all of it lies in the system's cache, for every candidate.
- The copy is torch's, on all its threads, of an eighth of the bytes that an epoch of batches has, times eight.
- ``planning``: the time from ``iter()`` to the first batch, and memory, for up to 100 million documents (planning.py).
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy
import torch

from bench.harness.claims import Claim
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.measure import COPY, Candidate, Timing, interleave
from bench.harness.record import write
from bench.harness.report import report
from bench.tokens.peers import BATCH, SEQ_LEN, WAYS, Corpus, Way, check
from bench.tokens.planning import measure_planning

TOKENS, DOCUMENTS, COPY_PART = 100_000_000, 200_000, 8


def candidate(way: Way, corpus: Corpus) -> Candidate:
    """Make a way ready for its part of an epoch."""
    epoch = way.epoch(corpus)
    batches = max(round(corpus.batches * way.part), 1)

    def run() -> float:
        start = time.perf_counter()
        for _ in itertools.islice(epoch(), batches):
            pass
        return (time.perf_counter() - start) * corpus.batches / batches

    facts = {"batches": corpus.batches, "measured_batches": batches, "each_token_once": way.once}
    return Candidate(way.name, run, facts, slow=way.part < 1)


def copying(corpus: Corpus) -> Candidate:
    """Copy as many bytes as an epoch of inputs and labels has, a part again and again."""
    size = corpus.pieces * corpus.seq_len * 2 * 8
    source = torch.ones(size // COPY_PART // 8, dtype=torch.int64)
    target = source.clone()

    def run() -> None:
        for _ in range(COPY_PART):
            target.copy_(source)

    return Candidate(COPY, run, {"bytes": size})


def measure_epoch(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure epochs of every way in the same rounds."""
    checked = check(folder)
    print(f"compared with the stream: {checked} batches of {len(WAYS)} ways")
    length, documents = round(TOKENS * scale), max(round(DOCUMENTS * scale), 2)
    drawn = numpy.random.default_rng(0).integers(0, 50_257, length, dtype=numpy.uint16)
    corpus = Corpus.make(folder / "train.bin", drawn, SEQ_LEN, documents)
    del drawn
    candidates = [copying(corpus), *(candidate(way, corpus) for way in WAYS)]
    timings = interleave("epoch", candidates, rounds)
    claims = [claim(way, timings) for way in WAYS if way.bound is not None]
    pairs = [(timing, timings[way.against]) for way in WAYS if way.against for timing in [timings[way.name]]]
    return {
        "name": "epoch",
        "tokens": length,
        "documents": documents,
        "seq_len": SEQ_LEN,
        "batch_size": BATCH,
        "checked_batches": checked,
        **report("epoch", timings, claims, {"batches measured": "measured_batches"}),
        "faster_than_batchloom": [timing.name for timing, ours in pairs if timing.ratio(ours) < 1],
    }


def claim(way: Way, timings: dict[str, Timing]) -> Claim:
    """Return the number to reach: a peer's time over batchloom's; beside a loop by hand, batchloom's time over its."""
    peer, ours = timings[way.name], timings[way.against]
    if way.bound == 1:
        return Claim.of_ratio(f"time of {ours.name}, times that of {way.name}", ours, peer, "<=", 1)
    return Claim.of_ratio(f"time of {way.name}, times that of {ours.name}", peer, ours, ">=", way.bound)


PARTS = {"epoch": measure_epoch, "planning": measure_planning}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        cases = [part(Path(folder), chosen.rounds, chosen.scale) for part in wanted(chosen, PARTS).values()]
    write("tokens", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
