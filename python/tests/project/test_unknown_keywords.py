"""Keywords that do not exist: a type error that names them, and the keyword that is meant."""

import pickle

import batchloom as bl
import numpy
import pytest

DATASET = bl.TensorDataset(numpy.arange(8))
SERIES = numpy.arange(20.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bl.DataLoader(DATASET, 2, wrld=1),
        lambda: bl.Plan(8, 2, wrld=1),
        lambda: bl.Packing(8, wrld=1),
        lambda: bl.WindowDataset(SERIES, 4, wrld=1),
    ],
    ids=["DataLoader", "Plan", "Packing", "WindowDataset"],
)
def test_an_unknown_keyword_is_a_type_error(make):
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'wrld'$"):
        make()


@pytest.mark.parametrize(
    ("make", "given", "meant"),
    [
        (lambda **names: bl.WindowDataset(SERIES, **names), "seq_len", "input_len"),
        (lambda **names: bl.WindowDataset(SERIES, 4, **names), "pred_len", "horizon"),
        (lambda **names: bl.WindowDataset(SERIES, 4, **names), "horizn", "horizon"),
        (lambda **names: bl.WindowDataset(SERIES, 4, **names), "target", "targets"),
        (lambda **names: bl.TokenDataset(numpy.arange(9), **names), "block_size", "seq_len"),
        (lambda **names: bl.MapDataset([1], **names), "transform", "fn"),
        (lambda **names: bl.Packing(**names), "max_seq_length", "max_tokens"),
        (lambda **names: bl.TokenBudget(9, **names), "batch_size", "max_samples"),
        (lambda **names: bl.CostOptimal(bl.CostModel(1, 1, 1), **names), "max_token", "max_tokens"),
        (lambda **names: bl.DataLoader(DATASET, **names), "shufle", "shuffle"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_names_of_other_libraries_and_misspelled_ones_are_answered(make, given, meant):
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{given}'; did you mean {meant}\?"):
        make(**{given: 3})


def test_other_errors_of_types_are_as_they_were():
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        bl.Packing()
    rule = bl.Packing(max_tokens=9)
    assert pickle.loads(pickle.dumps(rule)) == rule


@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: bl.TensorDataset({"x": SERIES}), r"TensorDataset\(\*\*fields\)"),
        (lambda: bl.TensorDataset([SERIES, SERIES]), r"TensorDataset\(\*arrays\)"),
    ],
    ids=["dict", "list"],
)
def test_fields_in_a_container_are_answered(make, remedy):
    with pytest.raises(bl.DataError, match=remedy):
        make()
