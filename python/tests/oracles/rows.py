"""Batches of rows, by definition: the very bytes of the rows that the plan names."""

import batchloom as bl
import torch
from oracles.elements import arbitrary, content, tensor


def numpy_array(name, shape):
    return arbitrary(name, shape, seed=len(shape))


def torch_tensor(name, shape):
    return tensor(numpy_array(name, shape))


def batches_of(field, batch_size=3, **options):
    """The batches of the only field, and the samples of each."""
    loader = bl.DataLoader(bl.TensorDataset(field), batch_size, shuffle=True, **options)
    return [(samples, batch) for samples, (batch,) in zip(loader.plan(0), loader, strict=True)]


def assert_gathers(field, reference=None, **options):
    """Every batch holds just the bytes of its rows."""
    reference = field if reference is None else reference
    count = 0
    for samples, batch in batches_of(field, **options):
        rows = reference[torch.from_numpy(samples) if isinstance(reference, torch.Tensor) else samples]
        assert tuple(batch.shape) == tuple(rows.shape)
        assert content(batch) == content(rows)
        count += len(batch)
    assert count == len(reference)
