"""Generators of random numbers for functions of users: functions of items, of whole batches and of slots.

Promises:

- The numbers of a generator follow from the seed, the epoch, and the sample or samples that it is made for; so they are
  the same for any number of threads, processes and ranks, and after a resume.
- A function gets a generator if it has a parameter named ``rng``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.errors import ArgumentError


def takes_rng(name: str, function: Callable[..., Any], given: str) -> bool:
    """Return whether a function has a parameter named ``rng`` that is not bound yet.

    Args:
        name: The name of the argument that is the function.
        function: The function.
        given: The positional arguments that it is called with, as ``"sample, slot"``.

    Raises:
        ArgumentError: It has such a parameter, and cannot be called with those arguments and ``rng``.
    """
    if isinstance(function, partial) and "rng" in function.keywords:
        return False
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    if "rng" not in signature.parameters:
        return False
    try:
        signature.bind(*given.split(", "), rng=None)
    except TypeError as error:
        expected = f"a function ({given}, rng)"
        raise ArgumentError(f"{name} is a function {signature}; expected {expected}: {error}") from None
    return True


def make_sample_generator(seed: int, epoch: int, sample: int) -> numpy.random.Generator:
    """Return the generator for the function that makes a sample of an item."""
    return _make_generator(_native.sample_key(seed, epoch, sample))


def make_slot_generator(seed: int, epoch: int, sample: int) -> numpy.random.Generator:
    """Return the generator for the function that fills the slots of a sample, the same for all of its fields.

    It draws other numbers than the generator of the function that makes the sample.
    """
    return _make_generator(_native.slot_key(seed, epoch, sample))


def make_batch_generator(seed: int, epoch: int, samples: list[int]) -> numpy.random.Generator:
    """Return the generator for the function that makes a batch of samples.

    It draws other numbers than the generator of one of the samples.
    """
    state = numpy.random.SeedSequence((seed, epoch, *samples))
    return numpy.random.Generator(numpy.random.Philox(state))


def _make_generator(key: tuple[int, int]) -> numpy.random.Generator:
    first, second = key
    return numpy.random.Generator(numpy.random.Philox(key=first | second << 64))
