"""Rules that make no sense, or do not go with the data or the options beside them."""

import contextlib

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import NOT_INTEGERS, plain_values, refused


def dataset(samples=100):
    return bl.TensorDataset(numpy.arange(samples))


# Sequences


def sequences(**fields):
    return bl.SequenceDataset(**fields)


LONG = {"x": [[1], [2] * 7, [3] * 9]}


@pytest.mark.parametrize(
    "rule",
    [
        bl.TokenBudget(6),
        bl.TokenBudget(6, count="real"),
        bl.CostOptimal(bl.CostModel(1), max_tokens=6),
        bl.Packing(6),
    ],
    ids=str,
)
def test_a_sample_longer_than_the_budget_is_named(rule):
    with refused(bl.DataError, "sample 1", "size 7", "max_tokens", "6", "oversize"):
        bl.DataLoader(sequences(**LONG), batching=rule)
    with refused(bl.DataError, "sample 0", "size 8", "max_tokens", "6"):
        bl.DataLoader(sequences(**LONG, sizes=[8, 1, 1]), batching=rule)


def test_a_sample_whose_padded_length_exceeds_the_budget_is_named():
    with refused(bl.DataError, "sample 2", "size 9", "8", "max_tokens", "12"):
        bl.DataLoader(sequences(**LONG), batching=bl.TokenBudget(12, multiple_of=8))
    boxes = [numpy.ones((2, 2)), numpy.ones((3, 3))]
    with refused(bl.DataError, "sample 1", "size 9", "2", "max_tokens", "12"):
        bl.DataLoader(sequences(x=boxes), batching=bl.TokenBudget(12, multiple_of=2))


@pytest.mark.parametrize(
    ("fields", "rule", "parts"),
    [
        ({"x": [[1] * 7]}, bl.TokenBudget(3, oversize="drop"), ("oversize", "1 sample", "max_tokens", "3")),
        (LONG | {"sizes": [1, 1, 1]}, bl.TokenBudget(3, oversize="truncate"), ("TokenBudget", "sizes")),
        (LONG | {"sizes": [1, 1, 1]}, bl.Packing(3, oversize="split"), ("Packing", "sizes")),
        (LONG | {"sizes": [1, 1, 1]}, bl.Packing(3, oversize="truncate"), ("Packing", "sizes")),
        ({"x": [numpy.ones((2, 3)), numpy.ones((1, 4))]}, bl.Packing(30), ("Packing", "2")),
        (
            {"x": [numpy.ones((2, 3)), numpy.ones((1, 4))]},
            bl.CostOptimal(bl.CostModel(1)),
            ("CostOptimal", "2"),
        ),
        (
            {"x": [numpy.ones((2, 3)), numpy.ones((1, 4))]},
            bl.TokenBudget(3, oversize="truncate"),
            ("TokenBudget", "2", "truncation"),
        ),
    ],
    ids=str,
)
def test_rules_that_do_not_go_with_the_data(fields, rule, parts):
    with refused(bl.ArgumentError, *parts):
        bl.DataLoader(sequences(**fields), batching=rule)


@pytest.mark.parametrize(
    "rule",
    [bl.LengthBuckets(2), bl.TokenBudget(9), bl.CostOptimal(bl.CostModel(1)), bl.Packing(9)],
    ids=lambda rule: type(rule).__name__,
)
def test_rules_by_size_of_rows_of_one_shape(rule):
    with refused(bl.ArgumentError, type(rule).__name__, "size", "FixedSize"):
        bl.DataLoader(dataset(), batching=rule)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"labels": "z"}, ("labels", {"field z", "'z'"})),
        ({"labels": "f"}, ("field f", "float64", "integers")),
        ({"labels": "b"}, ("field b", "bool", "integers")),
        ({"labels": "w"}, ("field w", "number")),
        ({"labels": "y"}, ("labels", "field y")),
        ({"pad_side": "up"}, ("pad_side", "'up'", "right", "left")),
        ({"pad_side": None}, ("pad_side", "None")),
        ({"pad_side": True}, ("pad_side", "True")),
        ({"pad_side": ["right"]}, ("pad_side", "['right']")),
        ({"pad_value": {"z": 1}}, ("pad_value", "fields={'z': bl.Field(pad=1)}")),
        ({"fields": {"z": bl.Field(pad=1)}}, ("fields names 'z'", "'x'", "'f'", "'b'", "'w'")),
        ({"fields": {"y": bl.Field(pad=1)}}, ("fields pads 'y'", "'x'", "'f'", "'b'", "'w'")),
        ({"fields": {1: bl.Field(pad=1)}}, ("fields names 1",)),
        ({"fields": {"x": bl.Field(pad=0.5)}}, ("pad", "0.5", "field x", "int64")),
        ({"pad_value": 0.5}, ("pad_value", "0.5", "field x", "int64")),
        ({"output": "tensorflow"}, ("output", "tensorflow")),
    ],
    ids=str,
)
def test_options_that_do_not_go_with_sequences(options, parts):
    data = sequences(
        x=[[1, 2], [3]],
        f=[[1.0, 2.0], [3.0]],
        b=[[True, False], [True]],
        w=[numpy.ones((2, 3), int), numpy.ones((1, 3), int)],
        y=numpy.ones(2, int),
    )
    for rule in (bl.FixedSize(2), bl.Packing(5)):
        with refused(bl.ArgumentError, *parts):
            bl.DataLoader(data, batching=rule, **options)


def test_labels_and_padding_of_rows_of_one_shape():
    with refused(bl.ArgumentError, "labels", "'x'", "sequences"):
        bl.DataLoader(dataset(), labels="x")
    for value in (1, -1, 0.5, float("nan"), None):
        with refused(bl.ArgumentError, "pad_value", repr(value), "padded"):
            bl.DataLoader(dataset(), pad_value=value)


@pytest.mark.parametrize("labels", [3, True, ["x"], b"x", 1.5])
def test_labels_that_are_no_names(labels):
    with refused(bl.ArgumentError, "labels", str(labels)):
        bl.DataLoader(sequences(x=[[1, 2], [3]]), labels=labels)


def test_padding_of_rows_by_an_array():
    with refused(bl.ArgumentError, "pad_value", "padded"):
        bl.DataLoader(dataset(), pad_value=numpy.zeros(2))


# Rules

WRONG = [*NOT_INTEGERS, 0, -1, -(2**63), -(2**70), 2**64, 2**70, object(), b"1", {}, numpy.array([1])]
MODEL = bl.CostModel(1, 1, 1)
ARGUMENTS = [
    (bl.LengthBuckets, {"batch_size": 4}, "pool", ()),
    (bl.LengthBuckets, {"batch_size": 4}, "batch_size", ()),
    (bl.LengthBuckets, {"batch_size": 4}, "multiple_of", (2**32,)),
    (bl.TokenBudget, {"max_tokens": 9}, "max_tokens", ()),
    (bl.TokenBudget, {"max_tokens": 9}, "max_samples", ()),
    (bl.TokenBudget, {"max_tokens": 9}, "pool", ()),
    (bl.TokenBudget, {"max_tokens": 9}, "multiple_of", (2**32,)),
    (bl.TokenBudget, {"max_tokens": 9}, "max_length_spread", (2**32,)),
    (bl.CostOptimal, {"cost": MODEL}, "max_tokens", ()),
    (bl.CostOptimal, {"cost": MODEL}, "max_samples", ()),
    (bl.CostOptimal, {"cost": MODEL}, "pool", ()),
    (bl.CostOptimal, {"cost": MODEL}, "multiple_of", (2**32,)),
    (bl.Packing, {"max_tokens": 9}, "max_tokens", (2**28 + 1, 2**32, 2**63)),
    (bl.Packing, {"max_tokens": 9}, "max_samples", (2**32, 2**63)),
    (bl.Packing, {"max_tokens": 9}, "rows", (2**32, 2**63)),
    (bl.Packing, {"max_tokens": 9}, "pool", ()),
]
OPTIONAL = ("max_samples", "max_length_spread", "pool", "rows")


@pytest.mark.parametrize(
    ("kind", "given", "name", "more"), ARGUMENTS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_numbers_of_rules_that_make_no_sense(kind, given, name, more):
    for found in [*WRONG, *more]:
        optional = name in OPTIONAL or (kind is bl.CostOptimal and name == "max_tokens")
        if (found is None and optional) or (name == "max_length_spread" and type(found) is int and found == 0):
            continue
        with refused(bl.ArgumentError, name, {str(found).strip("[]"), repr(found)}):
            kind(**given | {name: found})


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: bl.TokenBudget(9, count="paded"), ("count", "'paded'", "padded", "real")),
        (lambda: bl.TokenBudget(9, count=None), ("count", "None")),
        (lambda: bl.TokenBudget(9, count=True), ("count", "True")),
        (
            lambda: bl.TokenBudget(9, oversize="keep"),
            ("oversize", "'keep'", "'error'", "'alone'", "'drop'", "'truncate'"),
        ),
        (lambda: bl.TokenBudget(9, oversize=None), ("oversize", "None")),
        (lambda: bl.CostOptimal(MODEL, oversize="split"), ("oversize", "'split'")),
        (lambda: bl.Packing(9, oversize="alone"), ("'alone'", "'error'", "'drop'", "'truncate'", "'split'")),
        (lambda: bl.Packing(9, rests="later"), ("rests", "'later'", "'none'", "'continue'")),
        (lambda: bl.Packing(9, order="increasing"), ("order", "'increasing'", "'random'", "'decreasing'")),
        (lambda: bl.TokenBudget(9, pool="ALL"), ("pool", "'ALL'", "number", "'all'", "None")),
        (lambda: bl.TokenBudget(9, multiple_of=10), ("multiple_of", "10", "max_tokens", "9")),
        (lambda: bl.CostOptimal(MODEL, max_tokens=9, multiple_of=10), ("multiple_of", "10", "max_tokens", "9")),
        (lambda: bl.CostOptimal(None), ("cost", "None", "CostModel")),
        (lambda: bl.CostOptimal(5), ("cost", "5", "CostModel")),
        (lambda: bl.CostOptimal((1, 1, 1)), ("cost", "(1, 1, 1)", "CostModel")),
        (lambda: bl.CostOptimal(bl.CostModel), ("cost", "CostModel")),
        (lambda: bl.DataLoader(dataset(), batching=bl.TokenBudget), ("batching", "TokenBudget")),
        (lambda: bl.DataLoader(dataset(), batching=MODEL), ("batching", "CostModel")),
        (lambda: bl.DataLoader(dataset(), 3, batching=bl.TokenBudget(9)), ("batch_size", "3", "batching")),
        (lambda: bl.Plan(3, 3, batching=bl.Packing(9)), ("batch_size", "3", "batching")),
    ],
)
def test_rules_that_make_no_sense(make, parts):
    with refused(bl.ArgumentError, *parts):
        make()


def test_misspelled_parameters_are_type_errors_as_everywhere():
    for make in (
        lambda: bl.TokenBudget(9, max_token=3),
        lambda: bl.Packing(),
        lambda: bl.CostModel(1, 2, 3, None, 5),
        lambda: bl.LengthBuckets(4, size=3),
        lambda: bl.restore_order([1]),
        lambda: bl.calibrate(),
        lambda: bl.Plan(sizes=[1], rule=bl.Packing(3)),
    ):
        with pytest.raises(TypeError, match="argument"):
            make()


anything = plain_values | st.sampled_from([0, 1, 2**32, 2**64, float("nan"), numpy.int8(3), numpy.float32(1), b"", ()])
KEYWORDS = {
    bl.LengthBuckets: ["batch_size", "pool", "multiple_of"],
    bl.TokenBudget: ["max_tokens", "count", "max_length_spread", "max_samples", "multiple_of", "oversize", "pool"],
    bl.CostModel: ["fixed", "per_token", "per_pair"],
    bl.CostOptimal: ["cost", "max_tokens", "max_samples", "multiple_of", "oversize", "pool"],
    bl.Packing: ["max_tokens", "max_samples", "oversize", "pool", "order"],
}
SOUND = {"batch_size": 2, "max_tokens": 9, "fixed": 1, "cost": MODEL}


@given(data=st.data(), kind=st.sampled_from(sorted(KEYWORDS, key=str)))
def test_any_arguments_make_a_rule_or_an_argument_error(data, kind):
    names = KEYWORDS[kind]
    chosen = data.draw(st.dictionaries(st.sampled_from(names), anything, max_size=2))
    arguments = {name: value for name, value in SOUND.items() if name in names} | chosen
    try:
        rule = kind(**arguments)
    except bl.ArgumentError:
        return
    rule = bl.CostOptimal(rule) if kind is bl.CostModel else rule
    for shuffle in (False, True):
        with contextlib.suppress(bl.DataError):
            plan = bl.Plan(sizes=[3, 0, 5, 1], batching=rule, shuffle=shuffle)
            assert sum(map(len, plan)) >= 1
