"""Make samples by functions of Python: the functions, and loaders of batchloom and of torch over them.

Promises:

- Everyone calls the same function with the same numbers, and collates what it returns to tensors: torch by its default.
- Workers of torch and processes of batchloom persist: they start with the first epoch of a loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import batchloom
import numpy
import torch
from torch.utils.data import DataLoader

BATCH, WIDTH = 64, 256
# The length of a long sample: a megabyte of float32, so that a batch has 64.
LONG = 1 << 18
ROUNDS, WORDS = 1700, 32

Function = Callable[[int], numpy.ndarray]
Epochs = Callable[[], Iterable[Any]]
TABLE = numpy.random.default_rng(0).standard_normal((1024, WIDTH), dtype=numpy.float32)


def cheap(number: int) -> numpy.ndarray:
    """Return a row, centred, scaled and cut off: ten microseconds in several calls of NumPy."""
    row = TABLE[number % len(TABLE)]
    centred = row - row.mean()
    return (centred / numpy.sqrt((centred * centred).mean())).clip(-3, 3)


def bound(number: int) -> numpy.ndarray:
    """Return numbers that pure Python computes for 200 microseconds."""
    state, words = number, [0] * WORDS
    for turn in range(ROUNDS):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        words[turn % WORDS] ^= state
    return numpy.array(words)


def long(number: int) -> numpy.ndarray:
    """Return a megabyte."""
    return numpy.full(LONG, number, numpy.float32)


class Samples:
    """A data set as it is usually written for torch: the function of each number."""

    def __init__(self, function: Function, samples: int) -> None:
        self.function, self.samples = function, samples

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.samples

    def __getitem__(self, number: int) -> numpy.ndarray:
        """Return one."""
        return self.function(number)


def loom(workers: str, function: Function, samples: int, shuffle: bool = True, threads: int | None = None) -> Epochs:
    """Use batchloom with its defaults, and so many threads or processes; ``None`` for one for each core."""
    dataset = batchloom.MapDataset(range(samples), function, workers=workers)
    loader = batchloom.DataLoader(dataset, BATCH, shuffle=shuffle, output="torch", num_threads=threads)
    return lambda: loader


def torch_loader(workers: int, function: Function, samples: int, shuffle: bool = True) -> Epochs:
    """Use torch's ``DataLoader``."""
    persist = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(Samples(function, samples), BATCH, shuffle=shuffle, **persist)
    return lambda: loader


def alone(function: Function, samples: int) -> None:
    """Call the function, and do nothing else."""
    for number in range(samples):
        function(number)


THREADS, ONE_THREAD = partial(loom, "threads"), partial(loom, "threads", threads=1)
PROCESSES = partial(loom, "processes")
TWO_WORKERS, NO_WORKERS = partial(torch_loader, 2), partial(torch_loader, 0)


def check(name: str, found: Iterable[Any], expected: Iterable[Any]) -> None:
    """Refuse a way that makes other batches.

    Raises:
        AssertionError: It does.
    """
    for batch, other in zip(found, expected, strict=True):
        assert batch.dtype == other.dtype, f"{name} makes batches of {batch.dtype}, not of {other.dtype}"
        assert torch.equal(batch, other), f"{name} makes other batches"
