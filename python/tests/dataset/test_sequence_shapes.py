"""Sequences of several dimensions, and sizes that users give themselves."""

import itertools
import pickle

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import batching
from oracles.elements import raw
from oracles.sequences import SIZES, assert_padded, boxes, padded, varying

KINDS = [
    "vectors",
    "spectrograms",
    "middle",
    "maps",
    "images",
    "volumes",
    "first and last",
    "equal",
    "empty vectors",
    "no rows",
    "deep",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("multiple_of", [1, 4])
def test_samples_of_every_rank(kind, side, multiple_of):
    samples = boxes(kind)
    flat_values = numpy.concatenate([sample.reshape(-1) for sample in samples])
    ways = {
        "list": samples,
        "transposed": [numpy.asfortranarray(sample) for sample in samples],
        "tensors": [torch.from_numpy(sample) for sample in samples],
        "shapes": (flat_values, numpy.array([sample.shape for sample in samples])),
        "tensor and shapes": (torch.from_numpy(flat_values), torch.tensor([sample.shape for sample in samples])),
    }
    for data in ways.values():
        dataset = bl.SequenceDataset(x=data, label=numpy.arange(9))
        sizes = [numpy.prod([sample.shape[place] for place in varying(samples)]) for sample in samples]
        assert dataset.sizes.tolist() == sizes
        assert all(numpy.array_equal(numpy.asarray(dataset[place]["x"]), samples[place]) for place in range(9))
        for each in (dataset, pickle.loads(pickle.dumps(dataset))):
            loader = bl.DataLoader(
                each,
                batching=bl.LengthBuckets(4, multiple_of=multiple_of),
                shuffle=True,
                pad_side=side,
                pad_value=-7,
                output="numpy",
            )
            assert sorted(assert_padded(loader, samples, "x", -7, side, multiple_of)) == list(range(9))
            assert all(numpy.array_equal(batch["label"], batch["index"]) for batch in loader)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", ["vectors", "spectrograms", "maps", "images"])
def test_nested_tensors_of_every_rank(kind):
    samples = [torch.from_numpy(sample) for sample in boxes(kind)]
    nested = [torch.nested.nested_tensor(samples)]
    if kind == "vectors":
        nested.append(torch.nested.nested_tensor(samples, layout=torch.jagged))
        nested.append(
            torch.nested.nested_tensor([s.T.contiguous() for s in samples], layout=torch.jagged).transpose(1, 2)
        )
    for data in nested:
        dataset = bl.SequenceDataset(x=data)
        assert_padded(bl.DataLoader(dataset, batching=bl.LengthBuckets(4)), [sample.numpy() for sample in samples])


@pytest.mark.parametrize("layout", ["transposed", "columns", "backwards", "spread", "broadcast"])
def test_values_of_any_layout(layout):
    values = numpy.arange(40 * 6).reshape(40, 6)
    values = {
        "transposed": lambda: numpy.asfortranarray(values),
        "columns": lambda: values[:, 1:5:2],
        "backwards": lambda: values[::-1, ::-1],
        "spread": lambda: values.repeat(2, 0)[::2],
        "broadcast": lambda: numpy.broadcast_to(values[:1], (40, 6)),
    }[layout]()
    offsets = numpy.array([3, 3, 10, 11, 25, 40])
    samples = [values[start:end] for start, end in itertools.pairwise(offsets)]
    for data in (values, torch.from_numpy(values.copy()).T.contiguous().T):
        dataset = bl.SequenceDataset(x=(data, offsets))
        for side in ("right", "left"):
            loader = bl.DataLoader(dataset, batching=bl.LengthBuckets(2), pad_side=side, shuffle=True)
            assert sorted(assert_padded(loader, samples, side=side)) == list(range(5))


def greedy_boxes(rule, samples):
    """From the largest down, as many as fit the budget when padded to their union."""
    places = varying(samples)
    extents = [[sample.shape[place] for place in places] for sample in samples]

    def tokens(batch):
        if rule.count == "real":
            return sum(int(numpy.prod(extents[sample])) for sample in batch)
        union = [max(extents[sample][place] for sample in batch) for place in range(len(places))]
        return len(batch) * int(numpy.prod([batching.rounded(most, rule.multiple_of) for most in union]))

    sizes = [int(numpy.prod(extent)) for extent in extents]
    batches, single = [], False
    for sample in batching.descending(range(len(samples)), sizes):
        large = tokens([sample]) > rule.max_tokens
        if large and rule.oversize == "drop":
            continue
        last = batches[-1] if batches else []
        spread = rule.max_length_spread
        if (
            last
            and not large
            and not single
            and tokens([*last, sample]) <= rule.max_tokens
            and len(last) < (rule.max_samples or 99)
            and (spread is None or sizes[last[0]] - sizes[sample] <= spread)
        ):
            last.append(sample)
        else:
            batches.append([sample])
        single = large
    return batches, sum(tokens(batch) for batch in batches)


@pytest.mark.law("L6")
@given(
    shapes=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=25),
    rule=st.builds(
        bl.TokenBudget,
        st.integers(36, 150),
        count=st.sampled_from(["padded", "real"]),
        max_samples=st.none() | st.integers(1, 9),
        max_length_spread=st.none() | st.integers(0, 20),
        multiple_of=st.integers(1, 3),
    )
    | st.builds(
        bl.TokenBudget, st.integers(4, 30), multiple_of=st.integers(1, 3), oversize=st.sampled_from(["alone", "drop"])
    ),
)
def test_a_budget_holds_for_the_union_of_the_shapes(shapes, rule):
    samples = [numpy.zeros(shape, numpy.uint8) for shape in shapes]
    assume(len(varying(samples)) == 2)
    batches, tokens = greedy_boxes(rule, samples)
    assume(batches)
    loader = bl.DataLoader(bl.SequenceDataset(x=samples), batching=rule)
    assert batching.batches_of(loader.plan()) == batches
    if rule.count == "padded":
        stats = loader.plan().stats()
        assert stats["padded"] == tokens == sum(batch["attention_mask"].size for batch in loader)
        assert stats["real"] == sum(int(batch["attention_mask"].sum()) for batch in loader)
        assert stats["shapes"] == len({batch["x"].shape for batch in loader})
        if rule.oversize == "error":
            assert all(batch["x"].size <= rule.max_tokens for batch in loader)


def test_extents_make_a_plan_and_not_their_products_alone():
    def fingerprint(shapes):
        dataset = bl.SequenceDataset(x=[numpy.zeros(shape) for shape in shapes])
        return bl.DataLoader(dataset, batching=bl.TokenBudget(99)).plan().fingerprint

    shapes = [((2, 6), (3, 4)), ((6, 2), (3, 4)), ((2, 6), (4, 3)), ((1, 12), (3, 4)), ((12, 2), (12, 3))]
    prints = [fingerprint(each) for each in shapes]
    assert len(set(prints)) == len(prints)
    assert prints == [fingerprint(each) for each in shapes]


def test_plans_of_several_dimensions_pickle():
    samples = [numpy.zeros(shape) for shape in ((2, 6), (3, 4), (6, 2), (1, 1))]
    plan = bl.DataLoader(bl.SequenceDataset(x=samples), batching=bl.TokenBudget(24)).plan()
    travelled = pickle.loads(pickle.dumps(plan))
    assert batching.batches_of(travelled) == batching.batches_of(plan) == [[0], [1], [2, 3]]
    assert travelled == plan


def test_one_dimension_that_differs_counts_alone():
    samples = boxes("spectrograms", 30, seed=3)
    sizes = [sample.shape[1] for sample in samples]
    loader = bl.DataLoader(bl.SequenceDataset(x=samples), batching=bl.TokenBudget(20), shuffle=True)
    assert loader.plan() == bl.Plan(sizes=sizes, batching=bl.TokenBudget(20), shuffle=True)
    assert max(batch["x"].shape[0] * batch["x"].shape[2] for batch in loader) <= 20


def test_a_truncated_spectrogram():
    samples = [numpy.arange(10).reshape(2, 5), numpy.arange(6).reshape(2, 3), numpy.zeros((2, 0), int)]
    for side in ("right", "left"):
        loader = bl.DataLoader(
            bl.SequenceDataset(x=samples), batching=bl.TokenBudget(4, oversize="truncate"), pad_side=side
        )
        first, second, third = loader
        assert first["x"].tolist() == [[[0, 1, 2, 3], [5, 6, 7, 8]]]
        assert second["x"].tolist() == [[[0, 1, 2], [3, 4, 5]]]
        assert third["x"].shape == (1, 2, 0)
        assert loader.plan().stats()["truncated_tokens"] == 1


# The user's own sizes


def test_sizes_of_the_user_decide_and_lengths_stay_what_they_are():
    samples = [numpy.arange(size) for size in SIZES]
    own = [100 - size for size in SIZES]
    dataset = bl.SequenceDataset(x=samples, sizes=own)
    assert dataset.sizes.tolist() == own
    for rule in (
        bl.LengthBuckets(4, pool=2),
        bl.TokenBudget(300),
        bl.TokenBudget(250, count="real"),
        bl.TokenBudget(98, oversize="drop"),
        bl.TokenBudget(98, oversize="alone"),
        bl.CostOptimal(bl.CostModel(5, 1, 0), max_tokens=400),
        bl.Packing(250),
    ):
        for shuffle in (False, True):
            loader = bl.DataLoader(dataset, batching=rule, shuffle=shuffle, seed=4)
            assert loader.plan() == bl.Plan(sizes=own, batching=rule, shuffle=shuffle, seed=4)
            for chosen, batch in zip(loader.plan(), loader, strict=True):
                if isinstance(rule, bl.Packing):
                    assert numpy.diff(batch["cu_seqlens"]).tolist() == [SIZES[sample] for sample in chosen]
                    assert batch["max_seqlen"] == max(SIZES[sample] for sample in chosen)
                else:
                    assert raw(batch["x"]) == raw(padded(samples, chosen)[0])
                    assert batch["lengths"].tolist() == [SIZES[sample] for sample in chosen]
    loader = bl.DataLoader(dataset, batching=bl.LengthBuckets(4, multiple_of=4))
    assert sorted(assert_padded(loader, samples, multiple_of=4)) == list(range(12))
    travelled = pickle.loads(pickle.dumps(dataset))
    assert travelled.sizes.tolist() == own
    assert bl.DataLoader(travelled, batching=rule).plan() == bl.DataLoader(dataset, batching=rule).plan()


def test_sizes_of_the_user_let_several_dimensions_be_sorted():
    samples = boxes("maps")
    dataset = bl.SequenceDataset(x=samples, sizes=[sample.shape[0] + sample.shape[1] for sample in samples])
    for rule in (bl.CostOptimal(bl.CostModel(1, 1, 0)), bl.LengthBuckets(4), bl.TokenBudget(30)):
        assert sorted(assert_padded(bl.DataLoader(dataset, batching=rule), samples)) == list(range(9))
