"""Producers of DLPack that are of no framework that we know."""

import gc
import time
import weakref

import batchloom as bl
import numpy
import pytest
import torch
from oracles.rows import assert_gathers, batches_of


class Producer:
    """The least that a DLPack producer of today has."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **request):
        return self.array.__dlpack__(**request)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OldProducer(Producer):
    """A producer from before versions: it knows of no other argument, and consumers have to ask again."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


@pytest.mark.parametrize("kind", [Producer, OldProducer])
@pytest.mark.parametrize("X", [numpy.arange(20.0).reshape(10, 2), torch.arange(10)], ids=["numpy", "torch"])
def test_any_producer(kind, X):
    for samples, batch in batches_of(kind(X)):
        assert type(batch) is numpy.ndarray
        assert numpy.array_equal(batch, numpy.asarray(X)[samples])


def test_a_read_only_producer():
    X = numpy.arange(10)
    X.flags.writeable = False
    assert_gathers(Producer(X), reference=X)


def test_a_producer_in_torch_clothes():
    for _, batch in batches_of(Producer(torch.arange(10)), output="torch"):
        assert type(batch) is torch.Tensor


def test_one_sample_of_a_producer():
    assert bl.TensorDataset(Producer(numpy.arange(10)))[3] == (3,)


def test_a_producer_is_let_go_with_the_last_batch():
    class Owner(numpy.ndarray):
        pass

    X = numpy.arange(100).view(Owner)
    alive = weakref.ref(X)
    dataset = bl.TensorDataset(X)
    loader = bl.DataLoader(dataset, 10)
    batches = iter(loader)
    batch = next(batches)
    del X, dataset, loader, batches
    # A worker that has not run yet holds the dataset until it does.
    until = time.monotonic() + 10
    while alive() is not None and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert alive() is None
    assert batch[0].tolist() == list(range(10))
