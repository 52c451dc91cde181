"""Tokens that are converted while they are padded.

200 000 sequences of tokens, lengths lognormal (median 80, sigma 0.7, from 1 to 2048), in batches of 64 of similar
length, shuffled, padded, as int64, loop body ``pass``. Tokens lie there as uint16 or as int64. Promises:

- Before anything is timed, all ways have made the same epoch, every token equal.
- batchloom runs with its defaults; one candidate pads int64, so that the other shows what the conversion takes.
- NumPy is told the batches, and pads row by row with one thread: it makes no masks and no numbers of samples.
- The copy is torch's, on all its threads, of as many bytes as an epoch of padded int64 has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import batchloom
import numpy
import torch

from bench.harness.claims import Claim
from bench.harness.measure import COPY, LOOM, Candidate, exhaust, interleave
from bench.harness.report import report

SAMPLES, MEDIAN, SIGMA, LONGEST, BATCH, VOCABULARY = 200_000, 80, 0.7, 2048, 64, 50_000
WIDE, NUMPY = "batchloom, tokens are int64", "NumPy, row by row"

Array = numpy.ndarray
Epochs = Callable[[], Iterable[Array]]


def loom(tokens: Array, offsets: Array) -> Epochs:
    """Use batchloom: the same epoch again and again."""
    dataset = batchloom.SequenceDataset(input_ids=(tokens, offsets))
    rule = batchloom.LengthBuckets(BATCH)
    loader = batchloom.DataLoader(
        dataset, batching=rule, shuffle=True, fields={"input_ids": batchloom.Field(dtype="int64")}
    )

    def epoch() -> Iterable[Array]:
        loader.set_epoch(0)
        return (batch["input_ids"] for batch in loader)

    return epoch


def by_hand(tokens: Array, offsets: Array) -> Epochs:
    """By hand: NumPy's zeros for each batch, and one row after the other converted to its place."""
    lengths = numpy.diff(offsets)
    plan = batchloom.Plan(sizes=lengths, batching=batchloom.LengthBuckets(BATCH), shuffle=True)
    batches = [batch.tolist() for batch in plan]
    rows = numpy.split(tokens, offsets[1:-1])

    def epoch() -> Iterator[Array]:
        for batch in batches:
            padded = numpy.zeros((len(batch), lengths[batch].max()), numpy.int64)
            for row, sample in zip(padded, batch, strict=True):
                row[: len(rows[sample])] = rows[sample]
            yield padded

    return epoch


def measure(scale: float, rounds: int) -> list[dict[str, Any]]:
    """Check and time all ways."""
    random = numpy.random.default_rng(0)
    samples = max(round(SAMPLES * scale), 50 * BATCH)
    lengths = numpy.clip(numpy.rint(random.lognormal(math.log(MEDIAN), SIGMA, samples)), 1, LONGEST).astype(numpy.int64)
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    tokens = random.integers(1, VOCABULARY, offsets[-1], dtype=numpy.uint16)
    ways = {
        LOOM: loom(tokens, offsets),
        WIDE: loom(tokens.astype(numpy.int64), offsets),
        NUMPY: by_hand(tokens, offsets),
    }
    for name in (LOOM, WIDE):
        for batch, other in zip(ways[name](), ways[NUMPY](), strict=True):
            assert batch.dtype == numpy.int64, f"{name} makes batches of {batch.dtype}"
            assert numpy.array_equal(batch, other), f"{name} makes other batches"
    source = torch.ones(sum(batch.size for batch in ways[NUMPY]()), dtype=torch.int64)
    target = source.clone()
    candidates = [Candidate(COPY, lambda: target.copy_(source) is None or None, {"bytes": source.nbytes})]
    candidates += [Candidate(name, lambda epoch=epoch: exhaust(epoch())) for name, epoch in ways.items()]
    title = "tokens of uint16, padded to int64"
    timings = interleave(title, candidates, rounds)
    text = "time of padding uint16 to int64, times that of padding int64"
    claims = [Claim.of_ratio(text, timings[LOOM], timings[WIDE], "<=", 1.1)]
    facts = {"samples": samples, "batch_size": BATCH, "padded_bytes": source.nbytes}
    return [{"workload": title, **facts, **report(title, timings, claims, {})}]
