"""Make the candidates that parts of the chapter share."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

import batchloom as bl

from bench.harness.measure import Candidate

ROWS, WIDTH, BATCH = 400_000, 256, 64
PER_BATCH, SEED, MEASURED_BATCHES = 1000, 0, 200


def epoch(loader: bl.DataLoader[Any]) -> Callable[[], None]:
    """Return the loop that is timed."""

    def run() -> None:
        for _ in loader:
            pass

    return run


def peer(
    name: str, loader: Iterable[Any], batches: int, measured: int = MEASURED_BATCHES, not_measured: int = 0
) -> Candidate:
    """Return a loader of torch that makes its first batches; those while its workers start may be left out."""
    measured = min(measured, batches)

    def run() -> float:
        made = iter(loader)
        for _ in itertools.islice(made, not_measured):
            pass
        start = time.perf_counter()
        for _ in itertools.islice(made, measured):
            pass
        return (time.perf_counter() - start) * batches / measured

    return Candidate(name, run, {"measured_batches": measured}, slow=True)
