"""Samples made on demand: their structure in a batch, failures, and values that no sample can hold."""

import pickle
import threading
from typing import NamedTuple

import batchloom as bl
import numpy
import pytest
import torch
from oracles.samples import failing, row, sequence
from refusals import refused


class Pair(NamedTuple):
    left: numpy.ndarray
    right: int


def batches(fn, samples=7, *, dataset=None, **options):
    """The batches of samples that a function makes of numbers."""
    return list(bl.DataLoader(bl.MapDataset(range(samples), fn, **(dataset or {})), batch_size=4, **options))


def test_batches_have_the_structure_of_samples():
    (first, last) = batches(row)
    assert list(first) == ["x", "y"]
    assert first["x"].shape == (4, 2, 3)
    assert last["y"].tolist() == [4, 5, 6]
    assert isinstance(batches(lambda number: (number, 2.5))[0], tuple)
    assert batches(lambda number: numpy.float32(number))[1].tolist() == [4, 5, 6]
    nested = batches(lambda number: {"a": (numpy.arange(2), {"c": number}), "b": [1, number]})[0]
    assert nested["a"][1]["c"].tolist() == [0, 1, 2, 3]
    assert nested["b"].tolist() == [[1, 0], [1, 1], [1, 2], [1, 3]]
    pair = batches(lambda number: Pair(numpy.zeros(2), number))[0]
    assert type(pair) is Pair
    assert pair.right.tolist() == [0, 1, 2, 3]
    listed = batches(lambda number: [numpy.zeros(2), numpy.ones(1)])[0]
    assert type(listed) is list
    assert [part.shape for part in listed] == [(4, 2), (4, 1)]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (3, "int64"),
        (2.5, "float64"),
        (True, "bool"),
        (numpy.float16(1), "float16"),
        ([1, 2], "int64"),
        ([[1.0], [2.0]], "float64"),
        (numpy.zeros((2, 0), numpy.uint8), "uint8"),
        (numpy.arange(6).reshape(2, 3).T, "int64"),
        (numpy.arange(6)[::-2], "int64"),
    ],
)
def test_values_are_arrays(value, dtype):
    found = batches(lambda _: value)[0]
    assert str(found.dtype) == dtype
    assert found.tolist() == [numpy.asarray(value).tolist()] * 4


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(2, 3).t(), torch.ones(3, dtype=torch.bfloat16), torch.ones(2, requires_grad=True), torch.tensor(5)],
)
def test_tensors_of_torch_stay_of_torch(tensor):
    found, number = batches(lambda number: (tensor, number))[1]
    assert found.dtype == tensor.dtype
    assert found[0].equal(tensor.detach())
    assert number.equal(torch.tensor([4, 5, 6]))
    assert not found.requires_grad


def test_output_names_the_framework():
    assert isinstance(batches(row, output="torch")[0]["x"], torch.Tensor)


def test_a_dataset_of_torch_needs_no_function():
    class Squares(torch.utils.data.Dataset):
        def __len__(self):
            return 9

        def __getitem__(self, number):
            return torch.tensor([number, number**2]), number

    dataset = bl.MapDataset(Squares())
    assert dataset[-1][0].tolist() == [8, 64]
    x, y = next(iter(bl.DataLoader(dataset, batch_size=9, shuffle=True)))
    assert x[:, 1].equal(y**2)
    with refused(bl.ArgumentError, "Squares", "MapDataset"):
        bl.DataLoader(Squares())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, ["None", "array"]),
        ({}, ["empty", "dict"]),
        ((1, None), ["1", "None"]),
        ([[1], [2, 3]], ["not an array"]),
        (2**70, ["object"]),
        (torch.ones(2, device="meta"), ["meta"]),
    ],
)
def test_values_that_are_no_arrays(value, words):
    with refused(bl.SampleError, "0", *words) as caught:
        batches(lambda _: value)
    assert caught.value.sample == 0


@pytest.mark.parametrize(
    "other",
    [
        numpy.zeros(3, numpy.float64),
        numpy.zeros(4, numpy.float32),
        numpy.zeros((3, 1), numpy.float32),
        (numpy.zeros(3),),
    ],
)
@pytest.mark.parametrize("samples", [12, 40])
def test_samples_that_differ_from_the_first(other, samples):
    """In the first batch, which is read before it is laid out, and in a late one, which goes straight into slots."""
    odd = samples - 2

    def fn(number):
        return other if number == odd else numpy.zeros(3, numpy.float32)

    taken = []
    with refused(bl.DataError, str(odd), "0"):
        taken.extend(bl.DataLoader(bl.MapDataset(range(samples), fn), batch_size=samples // 4))


def test_an_error_comes_in_its_place_with_item_number_and_cause():
    dataset = bl.MapDataset([number + 3 for number in range(40)], failing)
    for threads in (1, 3):
        loader, taken = bl.DataLoader(dataset, batch_size=4, num_threads=threads), []
        with refused(bl.SampleError, "10", "13", "KeyError") as caught:
            taken.extend(loader)
        error = caught.value
        assert (error.sample, error.item, type(error.__cause__), len(taken)) in [
            (10, 13, KeyError, 0),
            (10, 13, KeyError, 2),
        ]
        assert error.__cause__.__traceback__.tb_next.tb_frame.f_code.co_name == "failing"
        assert loader.state_dict()["batches"] == 2
        del error, caught


def test_skipped_samples_weigh_nothing():
    loader = bl.DataLoader(bl.MapDataset(range(16), failing, on_error="skip"), batch_size=4, num_threads=2)
    for _ in range(2):
        found = [(x.tolist(), weight.tolist()) for x, weight in loader]
        assert found[3] == ([[12] * 3, [0] * 3, [14] * 3, [15] * 3], [1, 0, 1, 1])
        assert all(weight == [1] * 4 for _, weight in found[:3])
    assert [sample for sample, _ in loader.skipped] == [13, 13]
    assert loader.stats()["skipped"] == 2
    assert loader.stats()["samples"] == loader.plan().stats()["samples"]
    assert "thirteen" in loader.skipped[0][1]
    with refused(bl.SampleError, "13"):
        list(bl.DataLoader(bl.MapDataset([13], failing, on_error="skip")))


def test_sizes_that_are_no_lengths():
    with refused(bl.DataError, "field 0", "sample 1", "7", "9"):
        batches(sequence, 3, dataset={"sizes": [0, 9, 3]})
    with refused(bl.DataError, "2", "3"):
        bl.MapDataset(range(3), sequence, sizes=[1, 2])
    with refused(bl.DataError, "-1"):
        bl.MapDataset(range(3), sequence, sizes=[1, -1, 2])
    with refused(bl.ArgumentError, "sizes", "key"):
        bl.MapDataset(range(3), sequence, sizes=[1, 2, 3], key=len)
    with refused(bl.ArgumentError, "columns"):
        bl.MapDataset(range(3), sequence, columns=["x"])
    with refused(bl.ArgumentError, "columns", "nothing"):
        batches(sequence, 3, dataset={"sizes": [0, 7, 3], "columns": ["nothing"]})


def test_arguments_that_make_no_sense():
    with refused(bl.ArgumentError, "items", "generator"):
        bl.MapDataset(number for number in range(3))
    with refused(bl.ArgumentError, "fn", "int"):
        bl.MapDataset(range(3), 5)
    with refused(bl.ArgumentError, "on_error", "ignore"):
        bl.MapDataset(range(3), row, on_error="ignore")
    with refused(bl.ArgumentError, "workers", "fibres"):
        bl.MapDataset(range(3), row, workers="fibres")
    with refused(bl.DataError):
        bl.DataLoader(bl.MapDataset([], row))
    with refused(bl.RangeError, "3"):
        bl.MapDataset(range(3), row)[3]
    for resident in (True, 1000):
        with refused(bl.ArgumentError, f"resident={resident}", "on demand"):
            bl.DataLoader(bl.MapDataset(range(3), row), resident=resident)


def test_batches_on_a_device():
    loader = bl.DataLoader(bl.MapDataset(range(7), row), batch_size=4, output="torch", resident=False)
    assert loader.placement.mode == "streamed"
    for _ in range(2):
        assert [batch["y"].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6]]


def test_datasets_and_loaders_pickle():
    dataset = pickle.loads(pickle.dumps(bl.MapDataset(range(60), sequence, key=lambda_free, on_error="skip")))
    assert (len(dataset), dataset.sizes.tolist()) == (60, [sequence(number)[0].size for number in range(60)])
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(30), shuffle=True, seed=4)
    next(iter(loader))
    again = pickle.loads(pickle.dumps(loader))
    loader.load_state_dict(loader.state_dict())
    assert [batch[1].tolist() for batch in loader] == [batch[1].tolist() for batch in again]


def lambda_free(number):
    return len(sequence(number)[0])


def test_functions_run_in_threads_of_the_loader():
    seen = set()

    def fn(number):
        seen.add(threading.current_thread() is threading.main_thread())
        return number

    batches(fn)
    assert seen == {False}
