"""Arguments that make no sense: an error before any batch, with the argument and what was found."""

import itertools

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


ROWS = bl.TensorDataset(x=numpy.zeros((20, 2), numpy.float32))
HUGE = 10**5000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: bl.DataLoader(ROWS, fields={"x": bl.Field(scale=10**400)}),
            "scale of field x is larger than any float",
        ),
        (lambda: bl.DataLoader(ROWS, fields={"x": bl.Field(mean=[10**400])}), "mean of field x"),
        (
            lambda: bl.DataLoader(ROWS, fields={"x": bl.Field(std=0)}),
            "std is .0.0.; expected finite numbers, and no std of 0",
        ),
        (
            lambda: bl.DataLoader(ROWS, buffers=True),
            "buffers is True; expected 'views' or 'own' or 'static' or 'checked'",
        ),
        (lambda: bl.DataLoader(ROWS, shuffle=2), "shuffle is 2; expected True, False or 'runs'"),
        (lambda: bl.DataLoader(ROWS, HUGE), "batch_size is an integer of 16610 bits"),
        (lambda: bl.DataLoader(ROWS, torch.tensor(True)), "batch_size is True; expected an integer"),
        (lambda: bl.DataLoader(ROWS, ban=torch.ones(20, dtype=torch.bool)), "ban is a mask"),
        (lambda: bl.DataLoader(ROWS, ban=torch.ones(2, dtype=torch.int64, device="meta")), "expected an integer"),
        (lambda: bl.DataLoader(ROWS, ban=itertools.cycle([3])), "ban gave 1048596 numbers of 20 samples"),
        (lambda: bl.DataLoader(ROWS, pad_to=iter([8])), "pad_to is a list_iterator; expected one length, or several"),
        (lambda: ROWS.take(HUGE), "samples is an integer of 16610 bits"),
        (lambda: ROWS.select(slice(None, None, 0)), "expected a slice of integers, with a step other than 0"),
        (lambda: ROWS.select(slice("a")), "expected a slice of integers"),
        (lambda: bl.Mixture({"a": ROWS, "b": ROWS}, {"a": 10**400, "b": 1}), "the weight of source a is 1000"),
        (lambda: bl.Mixture({1: ROWS}), "a name in sources is 1; expected a text"),
        (lambda: bl.Mixture({"\ud800": ROWS}), "expected a text that UTF-8 can write"),
        (
            lambda: bl.DataLoader(bl.MapDataset([1]), fields={"\ud800": bl.Field(slot=bl.Pad())}),
            "text that UTF-8 can write",
        ),
        (lambda: bl.ConcatDataset(5), "datasets is a int; expected a list of datasets"),
        (lambda: bl.ConcatDataset([ROWS, ROWS], source="no"), "source is 'no'; expected True or False"),
        (lambda: bl.ConcatDataset([ROWS, ROWS]).origin(1.5), "sample is 1.5; expected an integer"),
        (lambda: bl.MapDataset([1, 2], sizes=[1, 2], columns=2.5), "columns is 2.5; expected names of fields"),
        (lambda: bl.Slot(2.5, print), "shape is 2.5; expected an integer"),
        (lambda: bl.LabelCounts([1] * 20, piece="a"), "piece is 'a'; expected an integer"),
        (lambda: bl.LabelCounts([1] * 20, piece=2**70), "expected at most 4294967295"),
    ],
)
def test_what_is_found_and_expected_is_said(make, message):
    with pytest.raises(bl.ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: ROWS[HUGE], bl.RangeError, "sample an integer of 16610 bits is out of range"),
        (lambda: bl.Plan(20, 4)[HUGE], bl.RangeError, "step an integer of 16610 bits is out of range"),
        (lambda: ROWS.select(numpy.ma.array([1, 2], mask=[1, 0])), bl.DataError, "indices: found a masked array"),
    ],
)
def test_numbers_of_samples_that_make_no_sense(make, kind, message):
    with pytest.raises(kind, match=message):
        make()
    assert bl.Slot(numpy.int64(2), print).shape == (2,)


@pytest.mark.parametrize("name", ["weights", "shuffle", "num_samples", "balanced_by", "uneven", "pad_to"])
def test_options_of_the_plan_cannot_be_set_afterwards(name):
    """It was accepted, and had no effect."""
    loader = bl.DataLoader(bl.TensorDataset(numpy.zeros(8)), 2)
    with pytest.raises(AttributeError, match=f"{name} of a DataLoader is fixed.*load_state_dict"):
        setattr(loader, name, None)
    assert not hasattr(loader, name)


def test_options_that_belong_to_other_data_are_named():
    items = bl.MapDataset([{"x": numpy.zeros(2), "label": number % 2} for number in range(10)])
    for call in (
        lambda: bl.DataLoader(items, 2, balanced_by="label"),
        lambda: bl.DataLoader(items, 2, homogeneous_by="label"),
        lambda: items.split(train=0.5, val=0.5, stratify=1),
    ):
        with refused(bl.ArgumentError, "no field of samples in memory", "expected an array"):
            call()
    with refused(bl.DataError, "one document", "a slice of the tokens"):
        bl.TokenDataset(numpy.arange(1000), 10).split(train=0.9, val=0.1)
    with refused(bl.ArgumentError, "seed is given", "not divided at random"):
        bl.WindowDataset(numpy.zeros((50, 2)), 5, 1).split(train=0.7, val=None, seed=0)
    with refused(bl.ArgumentError, "column -1", "'a'", "by name"):
        bl.WindowDataset({"a": numpy.arange(50.0)}, 5, 1, targets=-1)
