"""Samples that draw from torch's generator too, in the processes that make them."""

import random

import numpy
import torch


def drawn(number, rng):
    """Numbers of the keyed generator, and of those that threads would share."""
    shared = [random.random(), float(numpy.random.random()), float(torch.rand(()))]
    return {"own": rng.random(2), "shared": numpy.array(shared), "number": number}


def draws_late_of_torch(number, at=30):
    """Numbers that samples from `at` on draw from the generators of Python and of torch; -1 for others."""
    return numpy.array([number, random.random(), float(torch.rand(()))] if number >= at else [number, -1.0, -1.0])
