"""Measure the start of an epoch for more and more documents: time to the first batch, and memory.

Promises:

- The corpus is imaginary: one token again and again, 10 billion times, in the memory of one, so that no reading is in
  the time. What the offsets take is there before. Each number of documents has a process of its own.
- An epoch without an order of documents starts threads and blocks of batches, too: that is taken off where a figure is
  for each document.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import batchloom
import numpy

from bench.harness.processes import elsewhere, peak, reset_peak
from bench.harness.report import table
from bench.tokens.peers import BATCH, SEQ_LEN

PLANNED, PLANNED_TOKENS = (1_000_000, 10_000_000, 100_000_000), 10**10
MEBIBYTE = 2**20


def measure_planning(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure the start of an epoch for more and more documents, each number in a process of its own."""
    counts = [max(round(documents * scale), 1000) for documents in PLANNED]
    cases = [elsewhere(first_batch, documents, rounds) for documents in counts]
    heads = (
        "documents",
        "dataset s",
        "loader s",
        "first batch s",
        "without s",
        "ns each",
        "MiB",
        "without MiB",
        "bytes each",
    )
    rows = [
        (
            f"{case['documents']:,}",
            f"{case['dataset_seconds']:.3f}",
            f"{case['loader_seconds']:.3f}",
            f"{case['first_batch_seconds']:.4f}",
            f"{case['without_seconds']:.4f}",
            f"{case['nanoseconds_a_document']:.1f}",
            f"{case['grown_mebibytes']:.1f}",
            f"{case['without_mebibytes']:.1f}",
            f"{case['bytes_a_document']:.2f}",
        )
        for case in cases
    ]
    table("planning: from iter() to the first batch, documents and pieces shuffled; without: pieces alone", heads, rows)
    less, more = cases[0], cases[-1]
    factor = more["documents"] / less["documents"]
    names = {"seconds": "first_batch_seconds", "mebibytes": "grown_mebibytes"}
    growth = {name: more[key] / max(less[key], 1e-9) for name, key in names.items()}
    said = f"{growth['seconds']:.1f} times the time, {growth['mebibytes']:.1f} times the memory"
    print(f"{factor:g} times as many documents: {said}")
    return {"name": "planning", "cases": cases, "growth": {"documents": factor, **growth}, "claims": []}


def first_batch(documents: int, rounds: int) -> dict[str, Any]:
    """Measure the start of an epoch of so many documents: seconds, and memory beside the offsets."""
    offsets = numpy.zeros(documents + 1, numpy.int64)
    lengths = numpy.random.default_rng(0).integers(0, 2 * PLANNED_TOKENS // documents, documents, numpy.int64)
    numpy.cumsum(lengths, out=offsets[1:])
    del lengths
    tokens = numpy.broadcast_to(numpy.uint16(7), (int(offsets[-1]),))
    begun = time.perf_counter()
    dataset = batchloom.TokenDataset(tokens, SEQ_LEN, documents=offsets)
    made = time.perf_counter()
    loader = batchloom.DataLoader(dataset, BATCH, shuffle=True, output="torch")
    ready = time.perf_counter()
    without = batchloom.DataLoader(dataset, BATCH, shuffle="chunks", output="torch")
    start(without)  # what the first start of all takes is neither's
    (seconds, grown), (alone, grown_alone) = (starts(each, rounds) for each in (loader, without))
    return {
        "documents": documents,
        "tokens": len(tokens),
        "offset_mebibytes": offsets.nbytes / MEBIBYTE,
        "dataset_seconds": made - begun,
        "loader_seconds": ready - made,
        "first_batch_seconds": seconds,
        "without_seconds": alone,
        "nanoseconds_a_document": (seconds - alone) / documents * 1e9,
        "grown_mebibytes": grown,
        "without_mebibytes": grown_alone,
        "bytes_a_document": (grown - grown_alone) * MEBIBYTE / documents,
    }


def starts(loader: batchloom.DataLoader, rounds: int) -> tuple[float, float]:
    """Return the median seconds to the first batch, and the growth of this process by the first start in MiB."""
    before = reset_peak()
    first = start(loader)
    grown = (peak() - before) / MEBIBYTE
    return median([first, *(start(loader) for _ in range(rounds - 1))]), grown


def start(loader: batchloom.DataLoader) -> float:
    """Return the seconds to the first batch of an epoch, which is then left."""
    begun = time.perf_counter()
    batches = iter(loader)
    next(batches)
    return time.perf_counter() - begun
