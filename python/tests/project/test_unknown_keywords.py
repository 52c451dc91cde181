"""Keywords that do not exist: a type error that names them, and the keyword that is meant."""

import inspect
import pickle
import re

import batchloom as bl
import numpy
import pytest
from batchloom.arguments import MEANINGS
from batchloom.formats.options import NAMES
from batchloom.loader.keywords import LoaderKeywords
from refusals import refused

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


def loaders(**names):
    return bl.DataLoader(DATASET, **names)


def windows(**names):
    return bl.WindowDataset(SERIES, 4, **names)


def tokens(**names):
    return bl.TokenDataset(numpy.arange(9), **names)


def sequences(**names):
    return bl.SequenceDataset(ids=[[1], [2, 3]], **names)


def groups(**names):
    return bl.GroupDataset([0, 0, 1], **names)


def items(**names):
    return bl.MapDataset([1], **names)


@pytest.mark.parametrize(
    ("make", "given", "meant"),
    [
        (lambda **names: bl.WindowDataset(SERIES, **names), "seq_len", "input_len"),
        (lambda **names: bl.WindowDataset(SERIES, **names), "lookback", "input_len"),
        (lambda **names: bl.WindowDataset(SERIES, **names), "context_length", "input_len"),
        (windows, "pred_len", "horizon"),
        (windows, "prediction_length", "horizon"),
        (windows, "horizn", "horizon"),
        (windows, "target", "targets"),
        (windows, "batch_size", "batch_size of the DataLoader"),
        (tokens, "block_size", "seq_len"),
        (tokens, "max_length", "seq_len"),
        (tokens, "eos_token_id", "separator"),
        (items, "transform", "fn"),
        (items, "group_by_length", "batching=bl.LengthBuckets(64) of the DataLoader"),
        (sequences, "max_length", "pad_to and truncate of the DataLoader"),
        (sequences, "group_by_length", "batching=bl.LengthBuckets(64) of the DataLoader"),
        (sequences, "max_tokens", "batching=bl.TokenBudget(...) of the DataLoader"),
        (sequences, "own_length", "own_lengths"),
        (groups, "max_length", "max_rows"),
        (groups, "layot", "layout"),
        (groups, "drop_last", "drop_last of the DataLoader"),
        (lambda **names: bl.TensorDataset(x=SERIES, **names), "batch_size", "batch_size of the DataLoader"),
        (lambda **names: bl.Mixture({"a": DATASET}, **names), "probabilities", "weights"),
        (lambda **names: bl.ConcatDataset([DATASET], **names), "shuffle", "shuffle of the DataLoader"),
        (lambda **names: bl.Packing(**names), "max_seq_length", "max_tokens"),
        (lambda **names: bl.Packing(8, **names), "drop_last", "drop_last of the DataLoader"),
        (lambda **names: bl.FixedSize(8, **names), "drop_last", "drop_last of the DataLoader"),
        (lambda **names: bl.FixedSize(8, **names), "pad_to_multiple_of", "multiple_of"),
        (lambda **names: bl.FixedSize(8, **names), "max_tokens", "bl.TokenBudget(...)"),
        (lambda **names: bl.LengthBuckets(8, **names), "num_buckets", "pool"),
        (lambda **names: bl.LengthBuckets(8, **names), "max_length", "pad_to and truncate of the DataLoader"),
        (lambda **names: bl.TokenBudget(9, **names), "batch_size", "max_samples"),
        (lambda **names: bl.TokenBudget(9, **names), "shuffle", "shuffle of the DataLoader"),
        (lambda **names: bl.CostOptimal(bl.CostModel(1, 1, 1), **names), "max_token", "max_tokens"),
        (lambda **names: bl.Listed(**names), "batch_sampler", "batches"),
        (loaders, "shufle", "shuffle"),
        (loaders, "max_length", "pad_to and truncate"),
        (loaders, "group_by_length", "batching=bl.LengthBuckets(64)"),
        (loaders, "pad_to_multiple_of", "batching=bl.FixedSize(64, multiple_of=8)"),
        (loaders, "max_rows", "max_rows of a GroupDataset"),
        (loaders, "block_size", "seq_len of a TokenDataset"),
        (lambda **names: bl.Plan(8, 2, **names), "max_tokens", "batching=bl.TokenBudget(...)"),
        (lambda **names: bl.BatchSampler(8, 2, **names), "num_replicas", "world_size"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_names_of_other_libraries_and_misspelled_ones_are_answered(make, given, meant):
    with pytest.raises(TypeError, match=re.escape(f"unexpected keyword argument '{given}'; did you mean {meant}?")):
        make(**{given: 3})


def test_a_field_may_have_the_name_of_an_option():
    scores = numpy.arange(8)
    dataset = bl.TensorDataset(max_length=scores, batch_size=scores)
    assert dataset.names == ("max_length", "batch_size")
    assert bl.GroupDataset([0, 0, 1], max_length=scores[:3])[0]["max_length"].tolist() == [0, 1]


@pytest.mark.parametrize(("owner", "names"), MEANINGS.items(), ids=MEANINGS)
def test_no_name_of_other_libraries_is_one_of_ours_and_what_is_meant_exists(owner, names):
    kind = getattr(bl, owner)
    ours = keywords_of(kind)
    assert not ours & names.keys()
    for meaning in {*names.values()}:
        assert all(hasattr(bl, name) for name in re.findall(r"bl\.(\w+)", meaning)), meaning
        if re.fullmatch(r"\w+", meaning):
            assert meaning in ours, meaning
        for name, other in re.findall(r"^(\w+) of (?:the|a) ([A-Z]\w+)", meaning):
            assert name in keywords_of(getattr(bl, other)), meaning


def keywords_of(kind):
    """The keywords that a class takes."""
    if kind in (bl.DataLoader, bl.Plan, bl.BatchSampler):
        return {*LoaderKeywords.__annotations__, "batch_size", "shuffle", "samples", "epoch"}
    if kind is bl.open:
        return {"source", *NAMES}
    return {name for name, each in inspect.signature(kind).parameters.items() if each.kind is not each.VAR_KEYWORD}


def test_an_argument_that_goes_by_its_place_is_told():
    with pytest.raises(TypeError, match=r"GroupDataset\(\) takes group_ids by its place"):
        bl.GroupDataset(group_ids=[0, 1], x=SERIES[:2])


@pytest.mark.parametrize(
    ("batching", "expected"),
    [
        ({"max_tokens": 9}, "TokenBudget(max_tokens=9)"),
        ({"batch_size": 9}, "FixedSize(batch_size=9)"),
        ({"batch_size": 9, "pool": 4}, "LengthBuckets(batch_size=9, pool=4)"),
        ({"size": 9}, "FixedSize(64)"),
        ({}, "FixedSize(64)"),
        ([[0, 1], [2]], "Listed(batches)"),
        (bl.Packing, "Packing(64)"),
        (8, "batch_size=8"),
        ("packing", "Packing"),
        (True, "Packing"),
    ],
    ids=str,
)
def test_what_is_no_rule_is_answered_with_one(batching, expected):
    for make in (lambda: bl.DataLoader(DATASET, batching=batching), lambda: bl.Plan(8, batching=batching)):
        with refused(bl.ArgumentError, "batching", expected):
            make()


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
