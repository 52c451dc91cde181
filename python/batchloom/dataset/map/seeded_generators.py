"""The generators that functions of a process share, Python's, NumPy's and torch's, seeded for samples that draw.

To seed them takes as long as many functions do, and most functions draw nothing from them. So a process seeds them for
each sample only once a sample has drawn. Promises:

- A sample draws the numbers that follow from the seed, the epoch and the sample, whatever its process did before.
- A function that draws nothing is called once for each sample. One that draws is called twice for the first sample that
  a process reads; and if it first draws after the first request, for the samples of that request.
- Numbers that a function draws from a generator whose state it restores afterwards are the same for each sample.
"""

from __future__ import annotations

import ctypes
import random
import sys
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, TypeVar

import batchloom._native as _native
import numpy

T = TypeVar("T")

# The bytes of the state of NumPy's usual generator: 624 words, and the place of the next.
MT19937_BYTES = 625 * 4

# Seeds Python's generator with a number, without the work for seeds of other types.
_seed_python = super(random.Random, random.seed.__self__).seed  # type: ignore[attr-defined]


class SeededGenerators:
    """The generators of a process that reads samples.

    Attributes:
        are_drawn: True once a sample has drawn from them, so that they are seeded for each.
        is_first: True as long as no request was answered, so that each sample is looked at.
    """

    def __init__(self) -> None:
        self.are_drawn = False
        self.is_first = True
        # The states that the generators have unless something draws; None if they are seeded for a sample.
        self._watched: tuple[Any, ...] | None = None

    def request(self, answer: Callable[[], T]) -> T:
        """Return the answer to a request, given again if it turns out that its samples draw."""
        if self.are_drawn:
            return answer()
        self._watch()
        reply = answer()
        self.is_first = False
        if self.are_drawn or not self._have_moved():
            return reply
        self.are_drawn = True
        return answer()

    def first(self, read: Callable[[], T]) -> T:
        """Return a sample of the first request, read again if it draws."""
        sample = read()
        if self.are_drawn or not self._have_moved():
            return sample
        self.are_drawn = True
        return read()

    def seed(self, seed: int, epoch: int, sample: int) -> None:
        """Seed the generators by the seed, the epoch and the sample."""
        self._watched = None
        _seed(*_native.sample_key(seed, epoch, sample))

    def _watch(self) -> None:
        """Seed the generators by zeros, unless that is what they are, so that draws can be told."""
        if self._watched is None:
            _seed(0, 0)
            self._watched = _states()

    def _have_moved(self) -> bool:
        """Return whether generators that are watched have been drawn from, or whether torch has been imported."""
        return _states() != self._watched


def _seed(first: int, second: int) -> None:
    random.seed(first)
    numpy.random.seed(second & 0xFFFFFFFF)
    torch = _torch()
    if torch is not None:
        # Generators of accelerators are left alone: to seed them takes longer than many functions.
        torch.default_generator.manual_seed(first & 0x7FFFFFFFFFFFFFFF)


def _states() -> tuple[Any, ...]:
    """Return a fingerprint of the states of generators seeded by zeros; leave the generators as they are.

    To take a state apart, or to seed anew, costs as much as several samples of a fast function: so the memory of states
    is compared where it can be had.
    """
    torch = _torch()
    if torch is None:
        return _python_state(), _numpy_state()
    state = torch.default_generator.get_state()
    return _python_state(), _numpy_state(), _bytes_type(_torch_bytes()).from_address(state.data_ptr()).raw


def _torch() -> Any:
    """Return torch, if the program has imported it."""
    return sys.modules.get("torch")


def _python_state() -> int:
    number = random.getrandbits(64)
    _seed_python(0)
    return number


def _numpy_state() -> bytes:
    memory = _numpy_memory(numpy.random.get_bit_generator())  # type: ignore[attr-defined]
    if memory is not None:
        return bytes(memory.raw)
    number = numpy.random.bytes(8)
    numpy.random.seed(0)
    return number


@lru_cache(1)
def _numpy_memory(generator: Any) -> Any:
    """Return the state of NumPy's usual generator as it lies in memory; ``None`` for one of another kind."""
    if type(generator) is not numpy.random.MT19937:
        return None
    return _bytes_type(MT19937_BYTES).from_address(generator.ctypes.state_address)


@cache
def _torch_bytes() -> int:
    torch: Any = _torch()
    return int(torch.default_generator.get_state().numel())


@cache
def _bytes_type(size: int) -> Any:
    return ctypes.c_char * size
