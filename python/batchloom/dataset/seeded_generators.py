"""The generators that functions of a process share, Python's, NumPy's and torch's, seeded for samples that draw.

To seed them takes as long as many functions do, and most functions draw nothing from them. So a process seeds them for
each sample only once a sample has drawn. Promises:

- A sample draws the numbers that follow from the seed, the epoch and the sample, whatever its process did before.
- A function that draws nothing is called once for each sample. One that draws is called twice for the first sample that
  a process reads; and if it first draws after the first request, for the samples of that request.
- Numbers that a function draws from a generator whose state it restores afterwards are the same for each sample.
"""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import batchloom._native as _native
import numpy

T = TypeVar("T")


class SeededGenerators:
    """The generators of a process that reads samples.

    Attributes:
        are_drawn: True once a sample has drawn from them, so that they are seeded for each.
        is_first: True as long as no request was answered, so that each sample is looked at.
    """

    def __init__(self) -> None:
        self.are_drawn = False
        self.is_first = True

    def request(self, answer: Callable[[], T]) -> T:
        """Return the answer to a request, given again if it turns out that its samples draw."""
        if self.are_drawn:
            return answer()
        _watch()
        found = answer()
        self.is_first = False
        if self.are_drawn or not _have_moved():
            return found
        self.are_drawn = True
        return answer()

    def first(self, read: Callable[[], T]) -> T:
        """Return a sample of the first request, read again if it draws."""
        found = read()
        if self.are_drawn:
            return found
        if not _have_moved():
            _watch()
            return found
        self.are_drawn = True
        return read()


def seed_generators(seed: int, epoch: int, sample: int) -> None:
    """Seed the generators by the seed, the epoch and the sample."""
    _seed(*_native.sample_key(seed, epoch, sample))


def _seed(first: int, second: int) -> None:
    random.seed(first)
    numpy.random.seed(second & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        # Generators of accelerators are left alone: to seed them takes longer than many functions.
        torch.default_generator.manual_seed(first & 0x7FFFFFFFFFFFFFFF)


def _watch() -> None:
    """Seed the generators by zeros, so that draws can be told."""
    _seed(0, 0)


def _have_moved() -> bool:
    """Return whether generators that were seeded by zeros have been drawn from, or whether torch has been imported."""
    return _next() != _first_numbers("torch" in sys.modules)


def _next() -> tuple[Any, ...]:
    """Draw a number from each generator."""
    torch = sys.modules.get("torch")
    drawn = () if torch is None else (torch.default_generator.get_state().numpy().tobytes(),)
    return random.getrandbits(64), numpy.random.bytes(8), *drawn


@functools.cache
def _first_numbers(_torch_is_loaded: bool) -> tuple[Any, ...]:
    """Return the numbers that generators seeded by zeros begin with."""
    _watch()
    return _next()
