"""Samples that functions make on demand, at the top level of a module, so that other processes find them."""

import os
import random
import signal

import batchloom as bl
import numpy
import torch

LENGTHS = [(7 * number) % 11 for number in range(60)]


def row(number):
    """A row of two fields."""
    return {"x": numpy.full((2, 3), number, numpy.float32), "y": number}


def sequence(number):
    """A sequence of the length that `LENGTHS` says, and a number."""
    return numpy.arange(LENGTHS[number], dtype=numpy.int64) + 100 * number, number


def drawn(number, rng):
    """Numbers of the keyed generator, and of those that threads would share."""
    shared = [random.random(), float(numpy.random.random()), float(torch.rand(()))]
    return {"own": rng.random(2), "shared": numpy.array(shared), "number": number}


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


def process(number):
    """The process that makes the sample."""
    return os.getpid()


def fill_reversed(sample, slot):
    """Write a sample from its end to its start."""
    slot[: len(sample)] = sample[::-1]


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
