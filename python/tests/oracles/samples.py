"""Samples that functions make on demand, at the top level of a module, so that other processes find them.

These processes import what the module does: functions that take torch, which is slow to import, are in `draws`.
"""

import multiprocessing
import os
import random
import signal
import time

import batchloom as bl
import numpy

LENGTHS = [(7 * number) % 11 for number in range(60)]


def row(number):
    """A row of two fields."""
    return {"x": numpy.full((2, 3), number, numpy.float32), "y": number}


def sequence(number):
    """A sequence of the length that `LENGTHS` says, and a number."""
    return numpy.arange(LENGTHS[number], dtype=numpy.int64) + 100 * number, number


def failing(number):
    """A sample, but for number 13."""
    if number == 13:
        raise KeyError("thirteen")
    return numpy.full(3, number)


def killed(number):
    """A sample, but for number 13, which ends the process."""
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return numpy.full(3, number)


def parent(number):
    """The process that the process of this function is a child of."""
    return numpy.int64(os.getppid())


def late_variable(number):
    """A variable of the environment that was set after a server of processes may have started."""
    return os.environ.get("BATCHLOOM_SET_LATE", "not seen")


def process(number):
    """The process that makes the sample."""
    return os.getpid()


def torch_threads(number):
    """The threads with which torch computes in the process that makes the sample."""
    import torch

    return torch.get_num_threads()


def fill_reversed(sample, slot):
    """Write a sample from its end to its start."""
    slot[: len(sample)] = sample[::-1]


def fill_drawn(sample, slot):
    """Fill a slot with a number of a generator that threads share."""
    slot[...] = random.randrange(10**9)


def fill_sums(sample, slot):
    """Write the sum of a sample, and its length."""
    slot[:] = sample.sum(), len(sample)


SLOT = bl.Slot((2,), fill_sums, dtype="float32")


def ragged_batch(samples):
    """A batch of sequences one after the other, their lengths, and their numbers."""
    sequences, numbers = zip(*samples, strict=True)
    return {
        "x": numpy.concatenate(sequences),
        "lengths": numpy.array([len(sequence) for sequence in sequences]),
        "number": numpy.array(numbers),
    }


def turned(number):
    """A sample whose keys come in an order of its own."""
    inner = {"y": 2 * number, "z": number}
    if number % 3 == 1:
        inner = dict(reversed(inner.items()))
    sample = {"a": numpy.full(2, -number), "b": inner}
    return dict(reversed(sample.items())) if number % 2 else sample


def failing_eight_to_twelve(number):
    """A sample, but for numbers 8 to 11."""
    if 8 <= number < 12:
        raise ValueError("a bad shard")
    return numpy.full(2, number)


def ends_early(at, number):
    """A sample that ends its process for number `at`."""
    if number == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return numpy.full(3, number)


def empty(number):
    """An array without elements, and a number."""
    return numpy.zeros((0, 3)), number


def draws_late(number, at=30, of=("random", "numpy")):
    """Numbers that samples from `at` on draw from generators that a process shares; -1 for others."""
    draws = {"random": random.random, "numpy": numpy.random.random}
    return numpy.array([number, *(draw() if number >= at and name in of else -1.0 for name, draw in draws.items())])


def joins_drawn(samples):
    """A batch of numbers that the function itself draws."""
    return {"x": numpy.random.random(len(samples))}


def keeps_state(folder, number):
    """A sample whose calls are files of a folder."""
    with open(f"{folder}/{number}-{os.getpid()}-{len(os.listdir(folder))}-{random.SystemRandom().random()}", "x"):
        return number


def rests(number):
    """A sample that takes a second."""
    time.sleep(1)
    return number


def ends_slowly(number):
    """A sample that takes an hour from number 8 on."""
    if number >= 8:
        time.sleep(3600)
    return number


class Unmakeable:
    """Items that pickle, and cannot be made of that."""

    def __len__(self):
        return 8

    def __getitem__(self, number):
        return number

    def __setstate__(self, state):
        raise OSError("the file is gone")

    def __getstate__(self):
        return {"path": "gone"}


class Handles:
    """Items that are handles: they pickle, and cannot be made of that."""

    def __len__(self):
        return 60

    def __getitem__(self, number):
        return Unmakeable()


def refuses(handle):
    """An error instead of a sample."""
    raise ValueError("no such handle")


def draws_of_another_generator(number):
    """Numbers of the bit generator that stands in the place of NumPy's own."""
    if type(numpy.random.get_bit_generator()) is not numpy.random.PCG64:
        numpy.random.set_bit_generator(numpy.random.PCG64())
    return numpy.array([number, *numpy.random.random(2)])


def many_arrays(number):
    """A sample of thousands of arrays."""
    return tuple(numpy.full(1, number + place) for place in range(3000))


def hold_lock(number):
    """The number; the process holds a lock from then on, as libraries do."""
    global held
    held = multiprocessing.Lock()
    return number
