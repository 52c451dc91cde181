"""Batches of samples that functions of Python make.

64 samples a batch, shuffled, as tensors, loop body ``pass``, beside torch's ``DataLoader`` and the bare function, which
is called in a loop that does nothing else. Three functions: ``cheap`` takes ten microseconds of NumPy, on rows of
256 float32; ``bound`` takes 200 microseconds of pure Python; ``long`` returns a megabyte, so a batch has 64. Promises:

- Before anything is timed, each way has made the same epoch in order, every value equal.
- batchloom runs in two processes, like torch's two workers, with its threads beside them. Processes and workers
  persist, and the epochs in which they start do not count.
- torch's operators have one thread, as in its workers, so that without workers it waits for no other core.
- With threads no loader can be faster than the bare function where the interpreter runs one thread at a time: the time
  of the function alone, which is printed, bounds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.harness.claims import all_slower
from bench.harness.measure import LOOM, Candidate, interleave, with_threads
from bench.harness.report import report
from bench.on_demand import function_peers as peers
from bench.on_demand.function_peers import NO_WORKERS, ONE_THREAD, PROCESSES, THREADS, TWO_WORKERS, Epochs, Function

ALONE, TORCH, TORCH_ALONE = "the function alone", "torch DataLoader, 2 workers", "torch DataLoader, no workers"
LEAST_BATCHES, CHECKED_BATCHES = 8, 4


@dataclass(frozen=True)
class Workload:
    """A function, the ways to make batches with it, and how many times batchloom's time peers are to take."""

    name: str
    function: Function
    samples: int
    ways: dict[str, Callable[..., Epochs]]
    claims: dict[str, float]


TWO_PROCESSES = partial(PROCESSES, threads=2)
WORKLOADS = (
    Workload(
        "a cheap function",
        peers.cheap,
        48_000,
        {
            LOOM: TWO_PROCESSES,
            "batchloom, threads": THREADS,
            "batchloom, one thread": ONE_THREAD,
            TORCH: TWO_WORKERS,
            TORCH_ALONE: NO_WORKERS,
        },
        {TORCH: 3, TORCH_ALONE: 1.5},
    ),
    Workload(
        "a function of pure Python",
        peers.bound,
        9_600,
        {LOOM: TWO_PROCESSES, "batchloom, threads": THREADS, TORCH: TWO_WORKERS, TORCH_ALONE: NO_WORKERS},
        {TORCH: 1},
    ),
    Workload(
        "batches of 64 MB",
        peers.long,
        2_048,
        {LOOM: TWO_PROCESSES, "batchloom, threads": THREADS, TORCH: TWO_WORKERS, TORCH_ALONE: NO_WORKERS},
        {TORCH: 2.5},
    ),
)


def measure(scale: float, rounds: int) -> list[dict[str, Any]]:
    """Run all workloads."""
    return [_case(workload, scale, rounds) for workload in WORKLOADS]


def _case(workload: Workload, scale: float, rounds: int) -> dict[str, Any]:
    """Check and time the ways of one workload."""
    name, function, checked = workload.name, workload.function, CHECKED_BATCHES * peers.BATCH
    for way, make in workload.ways.items():
        peers.check(way, make(function, checked, shuffle=False)(), NO_WORKERS(function, checked, shuffle=False)())
    samples = max(round(workload.samples * scale), LEAST_BATCHES * peers.BATCH)
    ways = workload.ways.items()
    candidates = [Candidate(ALONE, lambda: peers.alone(function, samples))]
    candidates += [Candidate(way, partial(with_threads, 1, make(function, samples))) for way, make in ways]
    timings = interleave(name, candidates, rounds)
    for timing in timings.values():
        timing.candidate.facts["microseconds_a_sample"] = round(timing.median / samples * 1e6, 2)
    claims = all_slower(name, timings, workload.claims)
    columns = {"us a sample": "microseconds_a_sample"}
    found = report(name, timings, claims, columns, bar=("function", ALONE))
    return {"workload": name, "samples": samples, "batch_size": peers.BATCH, **found}
