"""Arguments that make no sense: an error before any batch, with the argument and what was found."""

import batchloom as bl
import numpy
import pytest
import torch
from oracles.runs import Run
from refusals import NOT_INTEGERS, refused


def dataset(samples=100):
    return bl.TensorDataset(numpy.arange(samples))


def without(*left_out):
    return [value for value in NOT_INTEGERS if not any(value is other for other in left_out)]


def spelled(value):
    return repr(value)


@pytest.mark.parametrize("found", [0, -1, -(2**63), -(2**70)])
def test_batch_sizes_below_one(found):
    for make in (
        lambda: bl.DataLoader(dataset(), found),
        lambda: bl.DataLoader(dataset(), batch_size=found),
        lambda: bl.FixedSize(found),
        lambda: bl.Plan(10, found),
    ):
        with refused(bl.ArgumentError, "batch_size", str(found), "1"):
            make()


@pytest.mark.parametrize("found", without(None), ids=spelled)
def test_batch_sizes_that_are_no_integers(found):
    for make in (lambda: bl.DataLoader(dataset(), found), lambda: bl.FixedSize(found), lambda: bl.Plan(10, found)):
        with refused(bl.ArgumentError, "batch_size", {str(found), repr(found)}):
            make()


def test_batch_sizes_too_large():
    with refused(bl.ArgumentError, str(2**64)):
        bl.DataLoader(dataset(), 2**64)


@pytest.mark.parametrize("name", ["seed", "rank", "world_size", "num_threads", "prefetch"])
@pytest.mark.parametrize("found", without(None), ids=spelled)
def test_options_that_are_no_integers(name, found):
    options = {"rank": 0, "world_size": 1} | {name: found} if name in ("rank", "world_size") else {name: found}
    with refused(bl.ArgumentError, name, {str(found), repr(found)}):
        bl.DataLoader(dataset(), **options)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"seed": -1}, ("seed", "-1")),
        ({"seed": 2**64}, ("seed", str(2**64))),
        ({"num_threads": 0}, ("num_threads", "0", "1")),
        ({"num_threads": -3}, ("num_threads", "-3")),
        ({"prefetch": -2}, ("prefetch", "-2", "0")),
        ({"rank": 0, "world_size": 0}, ("world_size", "0", "1")),
        ({"rank": 0, "world_size": -1}, ("world_size", "-1")),
        ({"rank": 4, "world_size": 4}, ("rank", "4", "world")),
        ({"rank": 7, "world_size": 4}, ("rank", "7", "world", "4")),
        ({"rank": -1, "world_size": 4}, ("rank", "-1")),
        ({"rank": 0, "world_size": 2**32}, ("world_size", str(2**32))),
        ({"rank": 1}, ("rank", "1", "both", "neither")),
        ({"world_size": 2}, ("world_size", "2", "both", "neither")),
        ({"uneven": "repeat"}, ("uneven", "repeat", "pad", "short")),
        ({"uneven": ""}, ("uneven", "pad", "short")),
        ({"uneven": None}, ("uneven", "None", "pad", "short")),
        ({"uneven": 3}, ("uneven", "3", "pad", "short")),
        ({"output": "tensorflow"}, ("output", "tensorflow", "torch", "numpy", "jax")),
        ({"output": torch}, ("output", "torch", "numpy", "jax")),
        ({"batch_size": 3, "batching": bl.FixedSize(4)}, ("batch_size", "3", "4")),
        ({"batching": 64}, ("batching", "64", "FixedSize")),
        ({"batching": "fixed"}, ("batching", "fixed")),
        (
            {"batch_size": 60, "drop_last": True, "rank": 0, "world_size": 2},
            ("drop_last", "100 samples", "60", "2 ranks"),
        ),
        ({"batch_size": 101, "drop_last": True}, ("drop_last", "100 samples", "101")),
    ],
    ids=str,
)
def test_options_that_make_no_sense(options, parts):
    with refused(bl.ArgumentError, *parts):
        bl.DataLoader(dataset(), **options)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"samples": -1}, ("samples", "-1")),
        ({"samples": 10.0}, ("samples", "10.0")),
        ({"world_size": 0}, ("world_size", "0")),
        ({"rank": 2, "world_size": 2}, ("rank", "2", "world")),
        ({"rank": 1}, ("rank", "1", "world")),
        ({"epoch": -1}, ("epoch", "-1")),
        ({"epoch": 1.5}, ("epoch", "1.5")),
        ({"seed": 0.5}, ("seed", "0.5")),
        ({"uneven": "no"}, ("uneven", "no")),
        ({"uneven": None}, ("uneven", "None")),
        ({"batch_size": 11, "drop_last": True}, ("drop_last", "10 samples", "11")),
    ],
    ids=str,
)
def test_plans_that_make_no_sense(options, parts):
    with refused(bl.ArgumentError, *parts):
        bl.Plan(**{"samples": 10, "batch_size": 2} | options)


@pytest.mark.parametrize("epoch", [-1, 2**64, 1.5, "3", True])
def test_epochs_that_make_no_sense(epoch):
    loader = Run(10, 3).loader()
    before = loader.state_dict()
    for ask in (loader.set_epoch, loader.plan, loader.plan().at_epoch):
        with refused(bl.ArgumentError, "epoch", str(epoch)):
            ask(epoch)
    with pytest.raises(bl.ArgumentError):
        loader.set_epoch(None)
    assert loader.state_dict() == before


@pytest.mark.parametrize(
    "found", [None, (numpy.zeros(3),), [1], torch.utils.data.StackDataset(torch.zeros(3)), bl.Plan(3)]
)
def test_datasets_that_are_none(found):
    with refused(bl.ArgumentError, "dataset", type(found).__name__, "TensorDataset"):
        bl.DataLoader(found, 2)


def test_misspelled_options_are_type_errors_as_everywhere():
    with pytest.raises(TypeError, match="bach_size"):
        bl.DataLoader(dataset(), bach_size=3)


# Types and frameworks that are not there


def test_a_framework_that_is_not_installed(script):
    script(
        """
        import sys
        sys.modules["torch"] = sys.modules["jax"] = None
        import numpy
        import batchloom as bl

        dataset = bl.TensorDataset(numpy.arange(3))
        for output in ("torch", "jax"):
            try:
                bl.DataLoader(dataset, output=output)
            except bl.ArgumentError as error:
                assert output in str(error) and "installed" in str(error), error
            else:
                raise AssertionError(output)
        assert len(list(bl.DataLoader(dataset, 2))) == 2
        """
    )


def test_types_that_numpy_has_only_with_a_package(script):
    script(
        """
        import sys
        sys.modules["ml_dtypes"] = None
        import torch
        import batchloom as bl

        dataset = bl.TensorDataset(weights=torch.zeros(3, dtype=torch.bfloat16))
        assert len(list(bl.DataLoader(dataset, 2))) == 2
        try:
            bl.DataLoader(dataset, output="numpy")
        except bl.DTypeError as error:
            assert "weights" in str(error) and "bfloat16" in str(error) and "ml_dtypes" in str(error), error
        else:
            raise AssertionError
        """
    )
