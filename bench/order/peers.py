"""Ask batchloom and each peer for indices in random order: a first batch, and as many as they name.

Promises:

- A first batch includes the making of its plan. torch and NumPy draw whole permutations; grain's plan is lazy, as
  batchloom's is.
- Timing ends when indices are there, as arrays or lists; no sample is gathered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import batchloom
import numpy
import torch

from bench.harness.measure import LOOM

BATCH = 64
BILLION, HUNDRED_MILLION = 10**9, 10**8
CALL = 1 << 16
# grain is asked for so many indices, one after the other.
GRAIN_INDICES = 100_000


def first_of_plan(samples: int) -> Any:
    """Return the first batch of a shuffled plan."""
    return batchloom.Plan(samples, batch_size=BATCH, shuffle=True)[0]


def first_of_torch(samples: int) -> Any:
    """Return the first batch of torch's permutation."""
    return torch.randperm(samples)[:BATCH]


def first_of_numpy(samples: int) -> Any:
    """Return the first batch of NumPy's permutation."""
    return numpy.random.default_rng(0).permutation(samples)[:BATCH]


def first_of_grain(samples: int) -> Any:
    """Return the first batch of grain's lazy shuffle."""
    return grain().MapDataset.range(samples).shuffle(seed=0).batch(BATCH)[0]


def grain() -> Any:
    """Import grain without its warning that there is no JAX."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    import grain

    return grain


FIRST: dict[str, tuple[Callable[[int], Any], int]] = {
    LOOM: (first_of_plan, BILLION),
    "grain": (first_of_grain, BILLION),
    "torch.randperm": (first_of_torch, HUNDRED_MILLION),
    "numpy permutation": (first_of_numpy, HUNDRED_MILLION),
}


def plan(samples: int, shuffle: bool) -> batchloom.Plan:
    """Return a plan whose batches are as large as one call."""
    return batchloom.Plan(samples, batch_size=min(samples, CALL), shuffle=shuffle)


def name_indices(plan: batchloom.Plan, calls: int) -> float:
    """Iterate over a plan, again and again if it is short; return the seconds for a million indices."""
    named, epoch = 0, min(len(plan), calls)
    start = time.perf_counter()
    for _ in range(calls // epoch):
        for batch in islice(plan, epoch):
            named += batch.size
    return (time.perf_counter() - start) / named * 1e6


def draw_permutations(samples: int, calls: int) -> float:
    """Draw whole permutations with torch; return the seconds for a million indices."""
    start = time.perf_counter()
    for _ in range(calls):
        torch.randperm(samples)
    return (time.perf_counter() - start) / (calls * samples) * 1e6


def shuffle_each(samples: int) -> float:
    """Ask grain's C++ permutation for each index; return the seconds for a million."""
    index_shuffle = grain().experimental.index_shuffle
    start = time.perf_counter()
    for index in range(GRAIN_INDICES):
        index_shuffle(index, samples - 1, 7, 4)
    return (time.perf_counter() - start) / GRAIN_INDICES * 1e6
