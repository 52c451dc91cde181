"""Options of a plan as one value: one definition of each, the way through the engine and back, and exclusions."""

from dataclasses import fields

import batchloom as bl
import numpy
import pytest
from batchloom.plan.options import PlanKeywords
from hypothesis import given
from hypothesis import strategies as st

SAMPLES = 60
CLASSES = numpy.arange(SAMPLES) % 3

OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "shuffle": st.sampled_from([True, False, "runs"]),
        "seed": st.integers(0, 2**64 - 1),
        "drop_last": st.booleans(),
        "uneven": st.sampled_from(["pad", "short", "mask"]),
        "shard_size": st.sampled_from([None, 4, 20]),
        "num_samples": st.sampled_from([None, 7, 100]),
        "weights": st.sampled_from([None, [1.0, 3.0] * 30]),
        "balanced_by": st.sampled_from([None, CLASSES]),
        "homogeneous_by": st.sampled_from([None, CLASSES]),
        "distinct_by": st.sampled_from(
            [
                None,
                numpy.arange(SAMPLES) // 2,
                {"a": numpy.arange(SAMPLES), "b": 40 + numpy.arange(SAMPLES)},
                bl.DistinctBy(CLASSES, surplus="drop"),
            ]
        ),
        "per_class": st.sampled_from([None, 1, 2, 3]),
        "chunks": st.sampled_from([None, [SAMPLES], [7, 0, 1, 22, SAMPLES - 30]]),
        "chunks_open": st.sampled_from([None, 1, 3]),
        "ban": st.sampled_from([None, [], [17, 3, 3]]),
        "accumulate": st.sampled_from([1, 3]),
    },
)
SIZED = st.fixed_dictionaries(
    {},
    optional={
        "balance": st.booleans() | st.just(bl.CostModel(3, 2, 1)),
        "balance_within": st.sampled_from(["window", "update", "update_sum"]),
        "largest_first": st.booleans(),
        "pad_to": st.sampled_from(["longest", 64, [16, 64]]),
        "truncate": st.sampled_from(["error", "left", "right"]),
    },
)


def test_keywords_are_the_attributes():
    assert {"shuffle", *PlanKeywords.__annotations__} == {field.name for field in fields(bl.PlanOptions)}


@given(options=OPTIONS, sized=SIZED, has_sizes=st.booleans())
def test_options_of_a_plan_make_the_same_plan(options, sized, has_sizes):
    """Options that a plan has taken make the same plan again."""
    sizes = {"sizes": 1 + numpy.arange(SAMPLES) % 50} if has_sizes else {}
    try:
        plan = bl.Plan(SAMPLES, 4, **options, **sized, **sizes)
    except bl.ArgumentError:
        return
    found = plan.options
    again = bl.Plan(SAMPLES, 4, **{field.name: getattr(found, field.name) for field in fields(found)}, **sizes)
    assert again == plan
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in plan]
    for name, value in options.items():
        if name in ("seed", "drop_last", "uneven", "shard_size", "shuffle"):
            assert getattr(found, name) == value, name


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"homogeneous_by": CLASSES, "balanced_by": CLASSES}, ("balanced_by", "homogeneous_by")),
        ({"weights": [1.0] * SAMPLES}, ("stored order", "weights")),
        ({"shuffle": "runs", "num_samples": 9}, ("an order of runs", "num_samples")),
        ({"shuffle": True, "shard_size": 4, "num_samples": 9}, ("shard_size", "num_samples")),
        ({"distinct_by": numpy.arange(SAMPLES)}, ("stored order", "distinct_by")),
        ({"shuffle": "runs", "homogeneous_by": CLASSES}, ("an order of runs", "homogeneous_by")),
        ({"homogeneous_by": CLASSES, "uneven": "short"}, ("uneven short", "homogeneous_by")),
        ({"batching": bl.Listed([[1, 2], [3]]), "shuffle": True}, ("shuffle", "a list of batches")),
        ({"batching": bl.Listed([[1, 2], [3]]), "shard_size": 4}, ("shard_size", "a list of batches")),
    ],
)
def test_options_that_exclude_each_other_are_named(options, named):
    with pytest.raises(bl.ArgumentError, match=f"^{named[0]} does not go with {named[1]}: "):
        bl.Plan(SAMPLES, **({} if "batching" in options else {"batch_size": 4}), **options)


@pytest.mark.parametrize("kind", [bl.Plan, bl.BatchSampler])
def test_an_unknown_option_is_named(kind):
    with pytest.raises(TypeError, match=rf"{kind.__name__}\(\) got an unexpected keyword argument 'sed'"):
        kind(10, 2, sed=3)


def test_samplers_have_no_bans():
    with pytest.raises(bl.ArgumentError, match="ban is given, and lists of samples hold no weights"):
        bl.BatchSampler(10, 2, ban=[3])
