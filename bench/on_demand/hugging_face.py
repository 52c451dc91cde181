"""Batches of a set of ``datasets``, read on demand.

64 samples a batch, shuffled, as tensors, loop body ``pass``: 32 floats, a list of 64 tokens and a label, in the format
"torch". Beside torch's ``DataLoader`` over the same object, without workers and with two. Promises:

- Before anything is timed, each way has made the same epoch in order, every value equal.
- All ask the set for many rows by one call, which takes most of the time: its tables are read, and rows made, by its
  own code. With one thread that code runs as in torch's loader; several threads take turns in the interpreter.
- batchloom has a line more with ``bl.open``, which takes the tables and makes no rows: the way to read such a set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import batchloom
import datasets
import numpy
import torch
from torch.utils.data import DataLoader

from bench.harness.claims import all_slower
from bench.harness.measure import LOOM, Candidate, interleave, with_threads
from bench.harness.report import report

BATCH, SAMPLES, LEAST_BATCHES, CHECKED_BATCHES = 64, 32_000, 8, 4
TORCH, TORCH_ALONE = "torch DataLoader, 2 workers", "torch DataLoader, no workers"
ONE_THREAD, PROCESSES, OPENED = "batchloom, one thread", "batchloom, two processes", "batchloom, bl.open"
CLAIMS = {TORCH: 1.0, TORCH_ALONE: 1.0}

Batches = Iterable[Mapping[str, torch.Tensor]]
Epochs = Callable[[], Batches]


def make_rows(samples: int) -> datasets.Dataset:
    """Return a set in memory."""
    random = numpy.random.default_rng(0)
    columns = {
        "x": random.standard_normal((samples, 32), dtype=numpy.float32),
        "tokens": random.integers(0, 50_000, (samples, 64)),
        "label": random.integers(0, 10, samples),
    }
    return datasets.Dataset.from_dict(columns).with_format("torch")


def of_loom(
    rows: datasets.Dataset, *, shuffle: bool = True, workers: str = "threads", threads: int | None = None
) -> Epochs:
    """Use batchloom, with its defaults unless the number of threads is given."""
    dataset = batchloom.MapDataset(rows, workers=workers)
    loader = batchloom.DataLoader(dataset, BATCH, shuffle=shuffle, num_threads=threads)
    return lambda: loader


def of_opened(rows: datasets.Dataset, *, shuffle: bool = True) -> Epochs:
    """Use batchloom over the tables of the set."""
    loader = batchloom.DataLoader(batchloom.open(rows), BATCH, shuffle=shuffle, output="torch")
    return lambda: loader


def of_torch(rows: datasets.Dataset, *, shuffle: bool = True, workers: int = 0) -> Epochs:
    """Use torch; its workers persist."""
    loader: Any = DataLoader(rows, BATCH, shuffle=shuffle, num_workers=workers, persistent_workers=workers > 0)  # type: ignore[arg-type]
    return lambda: loader


WAYS: dict[str, Callable[..., Epochs]] = {
    LOOM: of_loom,
    ONE_THREAD: partial(of_loom, threads=1),
    PROCESSES: partial(of_loom, workers="processes", threads=2),
    OPENED: of_opened,
    TORCH: partial(of_torch, workers=2),
    TORCH_ALONE: of_torch,
}


def require_equal(name: str, batches: Batches, expected: Batches) -> None:
    """Compare every value.

    Raises:
        AssertionError: A batch has other fields or values.
    """
    for batch, other in zip(batches, expected, strict=True):
        for field, values in other.items():
            assert torch.equal(batch[field], values), f"{name} makes other values of {field}"


def measure(scale: float, rounds: int) -> list[dict[str, Any]]:
    """Check and time all ways."""
    name, few = "a set of datasets", make_rows(CHECKED_BATCHES * BATCH)
    for way, make in WAYS.items():
        require_equal(way, make(few, shuffle=False)(), of_torch(few, shuffle=False)())
    rows = make_rows(max(round(SAMPLES * scale), LEAST_BATCHES * BATCH))
    # As in torch's workers, operators have one thread.
    candidates = [Candidate(way, partial(with_threads, 1, make(rows))) for way, make in WAYS.items()]
    timings = interleave(name, candidates, rounds)
    for timing in timings.values():
        timing.candidate.facts["microseconds_a_sample"] = round(timing.median / len(rows) * 1e6, 2)
    claims = all_slower(name, timings, CLAIMS)
    found = report(name, timings, claims, {"us a sample": "microseconds_a_sample"}, bar=("torch", TORCH_ALONE))
    return [{"workload": name, "samples": len(rows), "batch_size": BATCH, **found}]
