"""Sizes that make no sense, and plans without a step."""

import contextlib

import batchloom as bl
import numpy
import pytest
import torch
from oracles.plans import OTHERS
from refusals import refused


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([3, -1, 2], ("sample 1", "-1")),
        ([3, 2, -(2**63)], ("sample 2",)),
        ([3, 2, 2**32], ("sample 2", str(2**32))),
        ([3, 2**63 - 1], ("sample 1", str(2**63 - 1))),
        (numpy.array([1, 2**64 - 1], numpy.uint64), ("sample 1", str(2**64 - 1))),
        ([1, float("nan"), 2], ("sample 1", "nan")),
        ([1, 2, float("inf")], ("sample 2", "inf")),
        ([float("-inf"), 2], ("sample 0", "-inf")),
        ([1, 2.5], ("sample 1", "2.5")),
        ([1, -0.5], ("sample 1", "-0.5")),
        (torch.tensor([1, -7]), ("sample 1", "-7")),
        (numpy.array([1, 2**40], float), ("sample 1",)),
        (5, ("()",)),
        (numpy.ones((2, 3, 4), int), ("(2, 3, 4)",)),
        ("abc", ("()",)),
    ],
    ids=str,
)
def test_sizes_that_are_none(sizes, parts):
    for rule in (bl.TokenBudget(5), bl.FixedSize(2)):
        with refused(bl.DataError, "sizes" if "sample" not in parts[0] else "size", *parts):
            bl.Plan(sizes=sizes, batching=rule)


@pytest.mark.parametrize(
    "sizes",
    [[None], ["1", "2"], [True], [1j], [2**70], numpy.array([1], "M8[s]"), numpy.array([{}])],
    ids=str,
)
def test_sizes_that_are_no_numbers(sizes):
    with refused(bl.DTypeError, "sizes", "integers"):
        bl.Plan(sizes=sizes, batching=bl.TokenBudget(5))


@pytest.mark.parametrize(
    "dtype",
    [
        numpy.float32,
        numpy.float64,
    ],
)
def test_floats_just_beyond_sizes(dtype):
    with refused(bl.DataError, "sample 1", {"4294967296", "4294967296.0"}):
        bl.Plan(sizes=numpy.array([3, 2**32], dtype), batching=bl.LengthBuckets(2))


def test_infinite_half_floats():
    with refused(bl.DataError, "sample 1", "inf"):
        bl.Plan(sizes=numpy.array([3, numpy.inf], numpy.float16), batching=bl.LengthBuckets(2))


@pytest.mark.parametrize("sizes", [[], numpy.zeros(0, numpy.uint32), numpy.zeros(0)], ids=str)
def test_no_sizes(sizes):
    for rule in (bl.TokenBudget(5), bl.FixedSize(2)):
        with refused(bl.DataError, "no samples"):
            bl.Plan(sizes=sizes, batching=rule)


@pytest.mark.parametrize(
    "sizes",
    [
        [[1], [1, 2]],
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, requires_grad=True),
        torch.ones(3, device="meta"),
    ],
    ids=["ragged", "brain floats", "gradient", "device"],
)
def test_sizes_that_numpy_cannot_read(sizes):
    with contextlib.suppress(bl.Error):
        assert bl.Plan(sizes=sizes, batching=bl.TokenBudget(5)).sizes.tolist() == [1, 1, 1]


def test_a_rule_that_needs_sizes_says_so():
    for rule in OTHERS[2:]:
        with refused(bl.ArgumentError, type(rule).__name__, "size"):
            bl.Plan(10, batching=rule)
    with refused(bl.DataError, "3 sizes", "4 samples"):
        bl.Plan(4, sizes=[1, 2, 3], batching=bl.TokenBudget(5))
    with refused(bl.ArgumentError, "samples", "sizes"):
        bl.Plan(batching=bl.TokenBudget(5))


def test_nothing_is_left():
    with refused(bl.ArgumentError, "oversize", "3 samples", "max_tokens", "5"):
        bl.Plan(sizes=[6, 7, 8], batching=bl.TokenBudget(5, oversize="drop"))
    with refused(bl.ArgumentError, "drop_last", "3 samples", "1", "4 ranks"):
        bl.Plan(sizes=[6, 7, 8], batching=bl.TokenBudget(50), drop_last=True, world_size=4)
    with refused(bl.ArgumentError, "drop_last", "3 samples", "4"):
        bl.Plan(sizes=[6, 7, 8], batching=bl.LengthBuckets(4), drop_last=True)


def test_more_parts_than_memory_is_an_error_and_no_abort(script):
    script(
        """
        import resource
        import batchloom as bl

        make = lambda: bl.Plan(sizes=[2**32 - 1], batching=bl.Packing(1, oversize="split"))
        bl.Plan, bl.Packing  # imported when they are first used
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
        try:
            len(make())
        except (bl.Error, MemoryError) as error:
            print(error)
        """
    )


def test_an_epoch_without_a_step_is_an_error_and_not_an_empty_loop():
    lengths = numpy.random.default_rng(0).integers(1, 50, 40)
    rule = bl.TokenBudget(100, pool=8)
    values = (numpy.zeros(int(lengths.sum())), numpy.concatenate([[0], numpy.cumsum(lengths)]))
    options = {"batching": rule, "shuffle": True, "drop_last": True, "rank": 0, "world_size": 17}
    loader = bl.DataLoader(bl.SequenceDataset(x=values), **options)
    for epoch in range(10):
        loader.set_epoch(epoch)
        if len(loader.plan(epoch)):
            assert len(list(loader)) == len(loader.plan(epoch))
        else:
            with refused(bl.ArgumentError, "drop_last"):
                next(iter(loader))
