"""Micro-batches for samples in hand: every promise, against oracles that are slow and obvious."""

import pickle
import subprocess
import sys

import batchloom as bl
import numpy
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import micro_batches as oracle
from refusals import refused

costs = st.sampled_from(
    [
        bl.CostModel.default(),
        bl.CostModel(per_token=1),
        bl.CostModel(per_pair=1),
        bl.CostModel(fixed=7),
        bl.CostModel(fixed=100, per_token=1, per_pair=1 / 8),
        bl.CostModel(per_token=1e-300, per_pair=1e300),
        bl.CostModel(fixed=5e-324),
    ]
)


@st.composite
def calls(draw):
    """Lengths, the largest sum in a micro-batch, and options that go together."""
    lengths = draw(st.lists(st.integers(0, 40), max_size=40))
    samples = len(lengths)
    options = {
        "world_size": draw(st.integers(1, 7)),
        "cost": draw(costs),
        "sync": draw(st.sampled_from(["micro_batch", "update"])),
        "multiple_of": draw(st.sampled_from([1, 1, 4])),
        "order": draw(st.sampled_from(["largest_first", "ends"])),
        "oversize": draw(st.sampled_from(["alone", "drop"])),
        "max_samples": draw(st.none() | st.integers(1, 6)),
    }
    each = st.lists(st.integers(0, 4), min_size=samples, max_size=samples)
    options["labels"] = draw(st.none() | each)
    options["classes"] = draw(st.none() | each)
    if draw(st.booleans()):
        options["groups"], options["whole"] = draw(each), draw(st.sampled_from(["rank", "micro_batch"]))
        if options["whole"] == "micro_batch" and options["classes"]:
            options["classes"] = [group % 2 for group in options["groups"]]
    elif samples % options["world_size"] == 0 and options["oversize"] == "alone":
        options["equal_samples"] = draw(st.booleans())
    options["count_multiple_of"] = draw(st.sampled_from([1, 1, 2, 3]))
    if draw(st.booleans()):
        options["least"] = draw(st.integers(1, 5))
    return lengths, draw(st.integers(4, 80)), options


@pytest.mark.law("L1", "L6", "L8")
@settings(max_examples=settings.default.max_examples * 4)
@given(call=calls())
@example(call=([], 8, {"world_size": 3}))
@example(call=([0, 0, 0], 8, {"world_size": 2}))
@example(call=([5], 8, {"world_size": 4, "least": 3}))
@example(call=([8] * 12, 8, {"world_size": 4}))
def test_plans_keep_every_promise(call):
    lengths, max_tokens, options = call
    planned = bl.microbatches(lengths, max_tokens=max_tokens, **options)
    oracle.require_valid(planned, lengths, max_tokens, options)


@given(call=calls())
def test_what_a_plan_says_of_itself_is_true(call):
    lengths, max_tokens, options = call
    planned = bl.microbatches(lengths, max_tokens=max_tokens, **options)
    cost = options.pop("cost")
    tokens, padded, expected, labels, waited = oracle.describe(planned, lengths, cost, options)
    if not planned.count:
        return
    assert planned.tokens.tolist() == tokens
    assert planned.padded_tokens.tolist() == padded
    numpy.testing.assert_allclose(planned.cost, expected, rtol=1e-12)
    assert planned.imbalance == pytest.approx(waited, abs=1e-9)
    assert 0 <= planned.bound <= planned.imbalance + 1e-12
    if options["labels"] is None:
        assert planned.labels is None
        assert planned.total_labels is None
        assert planned.sequences == int(planned.weight.sum())
    else:
        assert planned.labels.tolist() == labels
        assert planned.total_labels == sum(map(sum, labels))
        planned_samples = planned.index[planned.weight > 0].tolist()
        assert planned.sequences == sum(options["labels"][sample] > 0 for sample in planned_samples)


@pytest.mark.law("L2")
@given(call=calls(), rank=st.integers(0, 6))
def test_plans_are_equal_by_value_and_survive_pickling(call, rank):
    lengths, max_tokens, options = call
    planned = bl.microbatches(lengths, max_tokens=max_tokens, **options)
    again = bl.microbatches(numpy.array(lengths, numpy.int64), max_tokens=max_tokens, **options)
    assert planned == again == pickle.loads(pickle.dumps(planned))
    assert planned != bl.microbatches([*lengths, 1], max_tokens=100, world_size=1)
    number = rank % options["world_size"]
    assert [each.tolist() for each in planned[number]] == [
        [sample for sample, _ in each] for each in oracle.by_rank(planned)[number]
    ]


@settings(max_examples=settings.default.max_examples // 2)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    world_size=st.integers(1, 2),
    cost=costs,
    sync=st.sampled_from(["micro_batch", "update"]),
)
def test_tiny_plans_are_near_the_least_time(lengths, world_size, cost, sync):
    options = {"world_size": world_size, "max_tokens": 14, "cost": cost, "sync": sync}
    planned = bl.microbatches(lengths, **options)
    if world_size * planned.count > len(lengths) or planned.count > 3:
        return
    least = oracle.least_duration(lengths, world_size, planned.count, 14, cost, sync)
    found = oracle.duration(planned.cost.tolist(), sync)
    assert least is not None
    assert found <= least * 1.34 + 1e-9
    bound = planned.cost.sum() / world_size / (1 - planned.bound) if planned.bound < 1 else 0
    assert bound <= least * (1 + 1e-9)
    if planned.count > 1:
        fewer = oracle.least_duration(lengths, world_size, planned.count - 1, 14, cost, sync)
        tight = sum(lengths) > 0.9 * 14 * world_size * (planned.count - 1)
        assert fewer is None or tight


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=40), world_size=st.integers(1, 5), count=st.integers(1, 4)
)
def test_an_exact_count_leaves_the_latest_samples(lengths, world_size, count):
    planned = bl.microbatches(lengths, world_size=world_size, max_tokens=64, count=count)
    oracle.require_valid(planned, lengths, 64, {"count": count})
    left = planned.left.tolist()
    assert left == list(range(len(lengths) - len(left), len(lengths)))
    if left:
        taken = lengths[: left[0] + 1]
        assert bl.microbatches(taken, world_size=world_size, max_tokens=64).count > count


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=24),
    world_size=st.integers(1, 4),
    groups=st.integers(1, 5),
    whole=st.sampled_from(["rank", "micro_batch"]),
)
def test_an_exact_count_leaves_groups_whole(lengths, world_size, groups, whole):
    options = {"groups": [sample % groups for sample in range(len(lengths))], "whole": whole}
    longest = max(sum(lengths[first::groups]) for first in range(groups))
    planned = bl.microbatches(lengths, world_size=world_size, max_tokens=longest, count=1, **options)
    oracle.require_valid(planned, lengths, longest, {**options, "count": 1})
    assert not {group % groups for group in planned.left} & {sample % groups for sample in planned.index.tolist()}


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12), size=st.integers(1, 4), world=st.integers(1, 4))
def test_groups_of_one_size_give_ranks_equal_numbers(lengths, size, world):
    lengths = lengths * world * size
    groups = [sample // size for sample in range(len(lengths))]
    for whole in ("rank", "micro_batch"):
        options = {"groups": groups, "whole": whole, "equal_samples": True}
        planned = bl.microbatches(lengths, world_size=world, max_tokens=160, **options)
        oracle.require_valid(planned, lengths, 160, options)


@given(zeros=st.integers(1, 30), world_size=st.integers(1, 4))
def test_samples_of_length_0_go_where_samples_are_fewest(zeros, world_size):
    planned = bl.microbatches([9] * world_size + [0] * zeros, world_size=world_size, max_tokens=10)
    counts = [len(planned[rank][0]) for rank in range(world_size)]
    assert planned.count == 1
    assert max(counts) - min(counts) <= 1


def test_order_puts_the_cheapest_at_both_ends():
    lengths = [9, 8, 7, 6, 5]
    found = {
        order: bl.microbatches(lengths, world_size=1, max_tokens=9, order=order).tokens[0].tolist()
        for order in ("largest_first", "ends")
    }
    assert found == {"largest_first": [9, 8, 7, 6, 5], "ends": [5, 7, 9, 8, 6]}


def test_one_enormous_sample_bounds_the_wait():
    planned = bl.microbatches([1000, *[1] * 99], world_size=10, max_tokens=1000, cost=bl.CostModel(per_pair=1e30))
    assert planned.count == 1
    assert planned.imbalance == pytest.approx(0.9, abs=1e-3)
    assert planned.bound == pytest.approx(planned.imbalance, abs=1e-12)


@pytest.mark.parametrize("kind", [numpy.int8, numpy.uint16, numpy.int32, numpy.uint64])
def test_lengths_of_any_integer_type(kind):
    expected = bl.microbatches([3, 4, 5], world_size=2, max_tokens=9)
    assert bl.microbatches(numpy.array([3, 4, 5], kind), world_size=2, max_tokens=9) == expected


def test_groups_and_classes_may_be_texts():
    options = {"groups": ["b", "a", "b"], "whole": "rank", "classes": ["image", "text", "image"]}
    planned = bl.microbatches([3, 4, 5], world_size=2, max_tokens=9, **options)
    oracle.require_valid(planned, [3, 4, 5], 9, options)


def test_results_come_back_in_the_order_of_lengths():
    lengths = numpy.random.default_rng(0).integers(1, 500, 64)
    planned = bl.microbatches(lengths, world_size=4, max_tokens=2048)
    gathered = numpy.concatenate([lengths[samples] for rank in planned for samples in rank])
    assert (gathered[planned.inverse] == lengths).all()


def test_nothing_is_imported_but_numpy():
    code = (
        "import sys, batchloom as bl\n"
        "bl.microbatches([1, 2, 3], world_size=2, max_tokens=4)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'jax', 'pandas', 'pyarrow', 'scipy'}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


GOOD = {"lengths": [3, 4, 5, 6], "world_size": 2, "max_tokens": 9}


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"lengths": [3, -4]}, bl.DataError, ["sample 1", "-4"]),
        ({"lengths": [3, 2**32]}, bl.DataError, ["sample 1", "4294967296"]),
        ({"lengths": [3.0, float("nan")]}, bl.DTypeError, ["lengths", "float64"]),
        ({"lengths": [3, 10, 11]}, bl.DataError, ["sample 1", "length 10", "max_tokens (9)"]),
        ({"lengths": [3, 7], "multiple_of": 8}, bl.DataError, []),
        ({"world_size": 0}, bl.ArgumentError, ["world_size", "0"]),
        ({"world_size": 2**21}, bl.ArgumentError, ["world_size", "2097152"]),
        ({"max_tokens": 0}, bl.ArgumentError, ["max_tokens"]),
        ({"max_tokens": 9.0}, bl.ArgumentError, ["max_tokens", "9.0"]),
        ({"multiple_of": 10}, bl.ArgumentError, ["multiple_of", "10", "max_tokens (9)"]),
        ({"cost": 3}, bl.ArgumentError, ["cost", "CostModel"]),
        ({"labels": [1, 2]}, bl.DataError, ["labels", "2", "4"]),
        ({"labels": [1, 2, 3, -1]}, bl.DataError, ["labels", "-1", "sample 3"]),
        ({"groups": [0, 0, 1], "whole": "rank"}, bl.DataError, ["groups", "3", "4"]),
        ({"groups": [0, 0, 1, 1]}, bl.ArgumentError, ["groups", "whole", "rank", "micro_batch"]),
        ({"whole": "rank"}, bl.ArgumentError, ["whole", "groups"]),
        ({"whole": "world"}, bl.ArgumentError, ["whole", "'world'"]),
        ({"groups": [0, 0, 1, 1], "whole": "micro_batch"}, bl.DataError, ["sample 2", "11 tokens", "2 samples"]),
        (
            {"groups": [0, 0, 1, 1], "whole": "micro_batch", "classes": [0, 1, 0, 0], "max_tokens": 99},
            bl.DataError,
            ["sample 0", "classes"],
        ),
        ({"classes": [0]}, bl.DataError, ["classes", "1", "4"]),
        ({"least": 0}, bl.ArgumentError, ["least"]),
        ({"least": 2**31}, bl.ArgumentError, ["2147483648", "16777216"]),
        ({"count": 0}, bl.ArgumentError, ["count"]),
        ({"count": 1, "least": 2}, bl.ArgumentError, ["count", "1", "least", "2"]),
        ({"count": 3, "count_multiple_of": 2}, bl.ArgumentError, ["count", "3", "2"]),
        ({"count": 1, "groups": [0] * 4, "whole": "rank"}, bl.ArgumentError, ["count", "1", "2", "sample 0"]),
        ({"lengths": [3, 4, 5], "equal_samples": True}, bl.DataError, ["equal_samples", "3", "2"]),
        ({"lengths": [3], "equal_samples": True, "count": 1}, bl.DataError, ["equal_samples", "1 samples", "2 ranks"]),
        (
            {"equal_samples": True, "groups": [0, 0, 0, 1], "whole": "rank"},
            bl.DataError,
            ["equal_samples", "sample 3", "1", "3"],
        ),
        (
            {"equal_samples": True, "groups": [0, 0, 0, 0], "whole": "rank"},
            bl.DataError,
            ["equal_samples", "1 groups", "2"],
        ),
        ({"sync": "step"}, bl.ArgumentError, ["sync", "'step'", "update"]),
        ({"oversize": "truncate"}, bl.ArgumentError, ["oversize", "alone"]),
        ({"order": "random"}, bl.ArgumentError, ["order", "ends"]),
    ],
)
def test_bad_input_is_refused_with_values(change, kind, words):
    arguments = {**GOOD, **change}
    lengths = arguments.pop("lengths")
    if not words:
        # Lengths are rounded before they count, and 8 fits.
        assert bl.microbatches(lengths, **arguments).count == 1
        return
    with refused(kind, *words):
        bl.microbatches(lengths, **arguments)


def test_a_rank_that_does_not_exist_is_refused():
    planned = bl.microbatches(GOOD["lengths"], world_size=2, max_tokens=9)
    assert len(planned) == 2
    with refused(bl.RangeError, "rank", "2"):
        planned[2]
