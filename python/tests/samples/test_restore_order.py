"""Results of an inference run, back in the order of the dataset."""

import itertools
import random

import batchloom as bl
import jax
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import rules, sized
from refusals import refused

ORDER = [4, 0, 3, 1, 2]
PIECES = [slice(0, 2), slice(2, 2), slice(2, 5)]
KINDS = {"numpy": numpy.asarray, "torch": torch.tensor, "jax": jax.numpy.asarray}


def in_pieces(values):
    """In batches, one of them without samples."""
    return [values[piece] for piece in PIECES]


def numbers_in_pieces(samples):
    """As above; but an empty list has no type."""
    return [piece for piece in in_pieces(samples) if len(piece) or not isinstance(piece, list | tuple)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("index", [list, tuple, *KINDS.values()], ids=lambda make: getattr(make, "__name__", "list"))
def test_arrays_and_batches_of_arrays(kind, shape, index):
    expected = numpy.arange(5 * int(numpy.prod(shape)), dtype=numpy.float32).reshape(5, *shape)
    outputs, samples = KINDS[kind](expected[ORDER]), index(ORDER)
    for found in (
        bl.restore_order(outputs, samples),
        bl.restore_order(in_pieces(outputs), samples),
        bl.restore_order(outputs, numbers_in_pieces(samples)),
        bl.restore_order(in_pieces(outputs), numbers_in_pieces(samples)),
        bl.restore_order(tuple(in_pieces(outputs)), tuple(numbers_in_pieces(samples))),
        bl.restore_order(iter(in_pieces(outputs)), numbers_in_pieces(samples)),
    ):
        assert type(found) is type(outputs)
        assert found.dtype == outputs.dtype
        assert numpy.array_equal(numpy.asarray(found), expected)


def test_lists_and_batches_of_lists():
    results = ["four", {"zero": 0}, None, (1, 1), numpy.arange(2)]
    expected = [{"zero": 0}, (1, 1), results[4], None, "four"]
    for index in (
        ORDER,
        numpy.array(ORDER),
        torch.tensor(ORDER),
        numbers_in_pieces(ORDER),
        in_pieces(torch.tensor(ORDER)),
    ):
        assert bl.restore_order(results, index) == expected
        assert bl.restore_order(iter(results), index) == expected
    index = in_pieces(numpy.array(ORDER))
    assert bl.restore_order(in_pieces(results), index) == expected
    assert bl.restore_order([tuple(piece) for piece in in_pieces(results)], index) == expected


def test_an_empty_batch_as_lists():
    assert bl.restore_order([[10], [], [11]], [[1], [], [0]]) == [11, 10]


def test_results_of_any_length_each():
    """The tokens of each sample, as arrays: a list of them for each batch."""
    results = [numpy.arange(sample) for sample in ORDER]
    found = bl.restore_order(in_pieces(results), in_pieces(numpy.array(ORDER)))
    assert [len(result) for result in found] == [0, 1, 2, 3, 4]
    tensors = [[torch.arange(sample) for sample in piece] for piece in in_pieces(ORDER)]
    found = bl.restore_order(tensors, in_pieces(torch.tensor(ORDER)))
    assert [len(result) for result in found] == [0, 1, 2, 3, 4]


def test_one_batch():
    assert bl.restore_order([torch.tensor([7, 8])], [torch.tensor([1, 0])]).tolist() == [8, 7]
    assert bl.restore_order([["a", "b"]], [torch.tensor([1, 0])]) == ["b", "a"]
    assert bl.restore_order(["a"], torch.tensor([0])) == ["a"]
    assert bl.restore_order([torch.tensor(7), torch.tensor(8)], [1, 0]) == [8, 7]


def test_nothing():
    assert bl.restore_order([], []) == []
    assert bl.restore_order([], numpy.zeros(0, int)) == []
    assert bl.restore_order(numpy.zeros((0, 3)), []).shape == (0, 3)
    assert bl.restore_order(torch.zeros(0, 3), [torch.zeros(0, dtype=torch.long)]).shape == (0, 3)


def test_gradients_and_types_pass():
    outputs = torch.ones(5, 2, dtype=torch.bfloat16, requires_grad=True)
    found = bl.restore_order(outputs, ORDER)
    assert found.dtype == torch.bfloat16
    found[4].sum().backward()
    assert outputs.grad.float().sum(1).tolist() == [2, 0, 0, 0, 0]
    with torch.inference_mode():
        found = bl.restore_order([torch.ones(2), torch.ones(3)], in_pieces(torch.tensor(ORDER))[::2])
    assert found.is_inference()


def test_results_are_new_memory():
    outputs = torch.arange(5)
    found = bl.restore_order(outputs, range(5))
    found.zero_()
    assert outputs.tolist() == [0, 1, 2, 3, 4]


def test_a_sample_that_came_twice_has_its_last_result():
    assert bl.restore_order([10, 11, 12], [1, 0, 1]) == [11, 12]
    assert bl.restore_order([torch.tensor([10, 11]), torch.tensor([12])], [[1, 0], [1]]).tolist() == [11, 12]


@given(st.permutations(list(range(12))), st.lists(st.integers(0, 12), max_size=4))
def test_any_order_in_any_batches(order, ends):
    ends = [0, *sorted(ends), 12]
    pieces = [order[start:end] for start, end in itertools.pairwise(ends)]
    index = [numpy.array(piece, int) for piece in pieces]
    expected = [sample * 10 for sample in range(12)]
    assert bl.restore_order([[sample * 10 for sample in piece] for piece in pieces], index) == expected
    assert (
        bl.restore_order([torch.tensor(piece, dtype=torch.long) * 10 for piece in pieces], index).tolist() == expected
    )
    assert bl.restore_order([10 * sample for sample in order], index) == expected


RULES = [
    bl.FixedSize(7),
    bl.LengthBuckets(7),
    bl.TokenBudget(90),
    bl.TokenBudget(60, max_length_spread=5, max_samples=4, multiple_of=4),
    bl.CostOptimal(bl.CostModel(50, 1, 0.1), max_tokens=300),
    bl.Packing(100),
]
SIZES = [size * 7 % 41 for size in range(101)]


def last_tokens(batch):
    """One result for each sample, told from its elements alone: their sum."""
    return torch.tensor([sum(row) for _, *row in batching.held(batch)])


def expected_sums():
    ends = numpy.cumsum([0, *SIZES])
    return [int(sum(range(start, end))) for start, end in itertools.pairwise(ends)]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("shuffle", [False, True])
def test_results_of_a_run_over_a_whole_set(rule, shuffle):
    loader = bl.DataLoader(batching.dataset(SIZES), batching=rule, shuffle=shuffle)
    batches = list(loader)
    index = [batch["index"] for batch in batches]
    assert bl.restore_order([last_tokens(batch) for batch in batches], index).tolist() == expected_sums()
    assert bl.restore_order([last_tokens(batch).tolist() for batch in batches], index) == expected_sums()
    assert (
        bl.restore_order(torch.cat([last_tokens(batch) for batch in batches]), list(loader.plan(0))).tolist()
        == expected_sums()
    )


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("uneven", ["pad", "short"])
@pytest.mark.parametrize("balance", [False, True])
def test_results_of_a_run_on_several_ranks(rule, uneven, balance):
    """Gathered rank by rank; a batch that pads the last step gives the same results again."""
    outputs, index = [], []
    for rank in range(4):
        loader = bl.DataLoader(
            batching.dataset(SIZES), batching=rule, rank=rank, world_size=4, uneven=uneven, balance=balance
        )
        for batch in loader:
            outputs.append(last_tokens(batch))
            index.append(batch["index"])
    assert bl.restore_order(outputs, index).tolist() == expected_sums()
    assert (sum(map(len, index)) == 101) or uneven == "pad"


@given(sizes=sized(), rule=rules, shuffle=st.booleans())
def test_results_of_any_plan(sizes, rule, shuffle):
    assume(batching.refused(rule, sizes) is None and batching.policy(rule) not in ("drop", "split"))
    plan = bl.Plan(sizes=sizes, batching=rule, shuffle=shuffle)
    index = list(plan)
    assert bl.restore_order([batch * 3 for batch in index], index).tolist() == [3 * k for k in range(len(sizes))]


# What does not fit


@pytest.mark.parametrize(
    ("outputs", "index", "values"),
    [
        ([10, 11], [0, 2], ("sample 1",)),
        ([10, 11], [1, 2], ("sample 0",)),
        (torch.ones(2), torch.tensor([0, 5]), ("sample 1",)),
        ([torch.ones(1), torch.ones(1)], [[0], [3]], ("sample 1",)),
        ([["a"], ["b"]], [[0], [3]], ("sample 1",)),
        ([10, 11, 12], [0, 1], ("3 results", "2 samples")),
        ([10], [0, 1], ("1", "2 samples")),
        (numpy.ones((3, 2)), [0, 1], ("3 results", "2 samples")),
        ([numpy.ones(2), numpy.ones(2)], [[0, 1], [2]], ("4 results", "3 samples")),
        ([], [0], ("0 results", "1")),
        ([["a", "b"], ["c"]], [[0, 1], [2, 3]], ("3 results", "4 samples")),
    ],
    ids=str,
)
def test_results_that_are_missing_or_too_many(outputs, index, values):
    with refused(bl.DataError, *values):
        bl.restore_order(outputs, index)


@pytest.mark.parametrize(
    ("outputs", "index"),
    [
        ([10, 11], [1.0, 0.0]),
        ([10, 11], [True, False]),
        ([10, 11], [0, 2**62]),
        ([10, 11], numpy.array([0, 2**64 - 1], numpy.uint64)),
        ([10, 11], torch.tensor([1.0, 0.0], requires_grad=True)),
        (None, [0]),
        (5, [0]),
        (numpy.array(5), [0]),
        ([torch.ones(1, 3), torch.ones(1, 2)], [[0], [1]]),
        ([numpy.ones((1, 3)), numpy.ones((1, 2))], [[0], [1]]),
    ],
    ids=str,
)
def test_what_cannot_be_put_in_order_is_an_error_of_ours(outputs, index):
    with pytest.raises(bl.Error):
        bl.restore_order(outputs, index)


def test_samples_that_are_negative():
    with refused(bl.DataError, "-2"):
        bl.restore_order([10, 11], [-2, 0])


def test_results_that_are_lists_themselves():
    assert bl.restore_order([["a"], ["b"]], [1, 0]) == [["b"], ["a"]]


def test_a_long_run_is_not_slow_in_python():
    order = list(range(200_000))
    random.Random(0).shuffle(order)
    index = [numpy.array(order[start : start + 100]) for start in range(0, len(order), 100)]
    outputs = [torch.from_numpy(piece) * 2 for piece in index]
    assert torch.equal(bl.restore_order(outputs, index), torch.arange(200_000) * 2)
