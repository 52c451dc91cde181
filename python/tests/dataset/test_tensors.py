"""Rows of arrays as a dataset: length, samples, names, pickles."""

import copy
import os
import pickle

import batchloom as bl
import numpy
import pytest
import torch
from oracles.elements import TYPES, content
from oracles.rows import numpy_array, torch_tensor
from refusals import refused


def test_a_dataset_borrows():
    X, T = numpy.zeros(5), torch.zeros(5)
    dataset = bl.TensorDataset(X, T)
    X[2], T[3] = 1, 1
    ((xb, tb),) = bl.DataLoader(dataset, 5)
    assert (xb.tolist(), tb.tolist()) == ([0, 0, 1, 0, 0], [0, 0, 0, 1, 0])


def test_length_names_and_fields():
    X, y = numpy.zeros((5, 2)), torch.zeros(5)
    positional, named = bl.TensorDataset(X, y), bl.TensorDataset(x=X, y=y)
    assert len(positional) == len(named) == 5
    assert (positional.names, named.names) == (None, ("x", "y"))
    assert positional.fields[0] is named.fields[0] is X
    assert positional.fields[1] is named.fields[1] is y


def test_one_sample():
    X, y = numpy.arange(10).reshape(5, 2), torch.arange(5)
    row, label = bl.TensorDataset(X, y)[3]
    assert (row.tolist(), label.item()) == ([6, 7], 3)
    named = bl.TensorDataset(x=X, y=y)[-1]
    assert (named["x"].tolist(), named["y"].item()) == ([8, 9], 4)
    assert bl.TensorDataset(y)[numpy.int64(2)][0].item() == 2


@pytest.mark.parametrize("sample", [5, -6, 2**70])
def test_a_sample_outside(sample):
    with refused(bl.RangeError, str(sample), "5"):
        bl.TensorDataset(numpy.arange(5))[sample]


def test_a_dataset_is_iterable_by_index():
    assert [row.item() for (row,) in bl.TensorDataset(numpy.arange(5))] == list(range(5))


@pytest.mark.parametrize("name", ["x", "label ids", "größe", "", "class", "0", "fields", "self"])
def test_a_field_has_any_name(name):
    dataset = bl.TensorDataset(**{name: numpy.arange(4)})
    assert dataset.names == (name,)
    ((batch),) = bl.DataLoader(pickle.loads(pickle.dumps(dataset)), 4)
    assert batch[name].tolist() == [0, 1, 2, 3]


def test_the_repr_tells_types_and_shapes():
    text = repr(bl.TensorDataset(x=numpy.zeros((5, 2), numpy.float32), y=torch.zeros(5, dtype=torch.bfloat16)))
    for part in ("x: float32[5, 2]", "y: bfloat16[5]", "5 samples"):
        assert part in text


@pytest.mark.parametrize("name", TYPES)
def test_datasets_pickle(name):
    dataset = bl.TensorDataset(x=numpy_array(name, (7, 3))[::2], t=torch_tensor(name, (4, 2)))
    for again in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset), copy.copy(dataset)):
        assert (len(again), again.names) == (4, ("x", "t"))
        ((batch),) = bl.DataLoader(again, 4)
        ((expected),) = bl.DataLoader(dataset, 4)
        assert all(content(batch[field]) == content(expected[field]) for field in ("x", "t"))


@pytest.mark.parametrize("name", TYPES)
def test_numpy_datasets_pickle(name):
    X = numpy_array(name, (7, 3))
    assert content(pickle.loads(pickle.dumps(bl.TensorDataset(X))).fields[0]) == content(X)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
@pytest.mark.parametrize(
    "part",
    [
        lambda rows: rows,
        lambda rows: rows[3:-1:2],
        lambda rows: rows[:, 1:],
        lambda rows: rows[::-1],
        lambda rows: rows.T,
        lambda rows: numpy.asarray(rows)[5:],
    ],
)
def test_a_memory_map_pickles_as_its_path(tmp_path, mode, part):
    numpy.save(tmp_path / "rows.npy", numpy.arange(30_000, dtype=numpy.int32).reshape(10_000, 3))
    rows = part(numpy.load(tmp_path / "rows.npy", mmap_mode=mode))
    dataset = bl.TensorDataset(x=rows, y=numpy.arange(len(rows)))
    text = pickle.dumps(dataset)
    assert len(text) < 90_000 or mode == "c"
    some = dataset.select(slice(0, 2))
    for again in (pickle.loads(text), copy.copy(dataset), pickle.loads(pickle.dumps(pickle.loads(text)))):
        assert numpy.array_equal(again.fields[0], rows)
    assert numpy.array_equal(pickle.loads(pickle.dumps(some))[1]["x"], rows[1])


def test_a_file_that_a_pickle_names_and_that_is_gone_is_an_error(tmp_path):
    numpy.save(tmp_path / "rows.npy", numpy.zeros((100, 3)))
    text = pickle.dumps(bl.TensorDataset(numpy.load(tmp_path / "rows.npy", mmap_mode="r")))
    os.truncate(tmp_path / "rows.npy", 500)
    with refused(bl.DataError, "rows.npy has 500 bytes", "at least 2528"):
        pickle.loads(text)
    (tmp_path / "rows.npy").unlink()
    with refused(bl.DataError, "rows.npy"):
        pickle.loads(text)


def test_positional_datasets_pickle():
    again = pickle.loads(pickle.dumps(bl.TensorDataset(numpy.arange(3), torch.arange(3))))
    assert again.names is None
    ((xb, tb),) = bl.DataLoader(again, 3)
    assert (type(xb), type(tb)) == (numpy.ndarray, torch.Tensor)
