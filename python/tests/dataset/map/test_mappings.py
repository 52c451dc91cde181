"""Samples and batches that are mappings, as collators of transformers return them."""

import collections

import batchloom as bl
import numpy
import pytest


class BatchEncoding(collections.UserDict):
    """A mapping that is no dict."""


def encode(item):
    return BatchEncoding(x=numpy.full(3, item), nested=BatchEncoding(y=item))


def collate(samples):
    return BatchEncoding(input_ids=numpy.stack(samples))


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_samples_that_are_mappings_are_dicts(workers):
    for _ in range(2):
        loader = bl.DataLoader(bl.MapDataset(range(10), encode, workers=workers), 4, shuffle=True, num_threads=2)
        plan = loader.plan()
        for step, batch in enumerate(loader):
            assert batch["x"][:, 0].tolist() == batch["nested"]["y"].tolist() == plan[step].tolist()


def test_batches_that_are_mappings_are_dicts():
    batch = next(iter(bl.DataLoader(bl.MapDataset([numpy.zeros(3)] * 8), 4, collate=collate)))
    assert batch["input_ids"].shape == (4, 3)
