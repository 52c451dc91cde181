"""Arguments with one value for each sample: the same values are refused wherever such an argument is."""

import batchloom as bl
import numpy
import pytest
import torch
from refusals import refused

MASKED = numpy.ma.array(range(12), mask=[1] + [0] * 11)

ARGUMENTS = {
    "weights": lambda given: bl.Plan(12, 4, weights=given),
    "balanced_by": lambda given: bl.Plan(12, 4, balanced_by=given),
    "homogeneous_by": lambda given: bl.Plan(12, 4, homogeneous_by=given),
    "sizes": lambda given: bl.Plan(sizes=given, batching=bl.TokenBudget(64)),
    "label_counts": bl.LabelCounts,
    "indices": lambda given: bl.TensorDataset(numpy.arange(12)).select(given),
}


@pytest.fixture(params=ARGUMENTS)
def argument(request):
    """The name of an argument, and a function that takes it."""
    return request.param, ARGUMENTS[request.param]


def test_masked_arrays_are_refused(argument):
    name, take = argument
    with refused(bl.DataError, name, "masked"):
        take(MASKED)


def test_values_without_memory_are_refused(argument):
    name, take = argument
    with refused(bl.DeviceError, name, "meta"):
        take(torch.ones(12, device="meta"))


@pytest.mark.parametrize("name", ["weights", "balanced_by", "homogeneous_by"])
def test_another_number_of_values_is_refused(name):
    with refused(bl.DataError, name, "11", "12"):
        ARGUMENTS[name]([1] * 11)


@pytest.mark.parametrize("name", ["weights", "balanced_by", "homogeneous_by", "label_counts"])
def test_more_dimensions_are_refused(name):
    with refused(bl.DataError, name, "12", "2"):
        ARGUMENTS[name](numpy.ones((12, 2)))


@pytest.mark.parametrize(
    ("name", "kind"), [("weights", bl.DTypeError), ("sizes", bl.DTypeError), ("indices", bl.ArgumentError)]
)
def test_values_that_are_no_numbers_are_refused(name, kind):
    with refused(kind, name):
        ARGUMENTS[name](numpy.array(["a"] * 12))


@pytest.mark.parametrize(
    ("make", "number"),
    [
        (lambda: bl.TensorDataset(numpy.arange(5))[5], "5"),
        (lambda: bl.TensorDataset(numpy.arange(5)).select([-6]), "-6"),
        (lambda: bl.ConcatDataset([bl.TensorDataset(numpy.arange(5))] * 2).origin(10), "10"),
        (lambda: bl.Mixture({"a": bl.TensorDataset(numpy.arange(5))}).sample("a", 5), "5"),
        (lambda: bl.Plan(5, 2)[3], "3"),
        (lambda: bl.Plan(5, 2).where(5), "5"),
        (lambda: bl.Plan(5, 2, ban=[5]), "5"),
    ],
)
def test_numbers_out_of_range_are_named_in_the_same_words(make, number):
    with refused(bl.RangeError, number) as caught:
        make()
    assert "is out of range; expected 0 <= " in str(caught.value)
