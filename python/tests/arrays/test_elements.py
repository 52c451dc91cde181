"""Element types: each goes in as it is and comes out as it was, in every framework."""

import batchloom as bl
import numpy
import pytest
import torch
from oracles.elements import TYPES, content, numpy_type
from oracles.rows import assert_gathers, batches_of, numpy_array, torch_tensor

SHAPES = [(7,), (7, 1), (7, 3), (7, 16), (7, 0), (7, 2, 3), (7, 2, 0, 3), (7, 1, 2, 1, 3), (1, 5), (7, 100, 11)]


# Element types


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_numpy_in_numpy_out(name, shape):
    X = numpy_array(name, shape)
    assert_gathers(X)
    for _, batch in batches_of(X):
        assert type(batch) is numpy.ndarray
        assert batch.dtype == X.dtype


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_torch_in_torch_out(name, shape):
    X = torch_tensor(name, shape)
    assert bl.TensorDataset(X).fields[0] is X
    for samples, batch in batches_of(X):
        assert type(batch) is torch.Tensor
        assert batch.dtype == X.dtype
        assert batch.shape == (len(samples), *shape[1:])
        rows = numpy_array(name, shape)[samples]
        assert content(batch) == content(rows)


@pytest.mark.parametrize("name", TYPES)
def test_from_one_framework_to_the_other(name):
    X, T = numpy_array(name, (7, 5)), torch_tensor(name, (7, 5))
    for samples, batch in batches_of(X, output="torch"):
        assert (type(batch), batch.dtype) == (torch.Tensor, getattr(torch, name))
        assert content(batch) == content(X[samples])
    for samples, batch in batches_of(T, output="numpy"):
        assert (type(batch), batch.dtype) == (numpy.ndarray, numpy_type(name))
        assert content(batch) == content(X[samples])


@pytest.mark.parametrize("name", ["int4", "uint1"])
def test_types_that_dlpack_takes_for_others_are_refused_or_kept(name):
    X = torch.zeros(4, 2, dtype=getattr(torch, name))
    try:
        dataset = bl.TensorDataset(X)
    except bl.DTypeError:
        return
    ((batch,),) = bl.DataLoader(dataset, 4)
    assert batch.dtype == X.dtype
