"""Padding: batches, masks and labels against a slow and obvious oracle; values of every element type."""

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import flat, sized
from oracles.elements import FOREIGN, INTEGERS, numpy_type, raw, tensor
from oracles.sequences import lines, placed, shifted
from refusals import refused


@pytest.mark.law("L8")
@settings(max_examples=settings.default.max_examples * 2)
@given(
    sizes=sized(least=2),
    rule=batching.fixed | batching.buckets | batching.budgets | batching.optimals,
    shuffle=st.booleans(),
    side=st.sampled_from(["right", "left"]),
    value=st.integers(-128, 127),
    inner=st.sampled_from([(), (3,), (2, 1), (0,)]),
    name=st.sampled_from(["int8", "int16", "int64", "float16", "float32"]),
    labels=st.booleans(),
    seed=st.integers(0, 99),
)
def test_padded_batches_are_what_the_oracle_says(sizes, rule, shuffle, side, value, inner, name, labels, seed):
    assume(batching.refused(rule, sizes) is None)
    assume(batching.policy(rule) != "drop" or not all(batching.too_large(rule, size) for size in sizes))
    whole = lines(sizes, name, inner)
    labels = labels and not inner and name.startswith("int")
    dataset = bl.SequenceDataset(x=placed(whole, 3), label=numpy.arange(len(sizes)))
    loader = bl.DataLoader(
        dataset,
        batching=rule,
        shuffle=shuffle,
        pad_side=side,
        pad_value=value,
        labels="x" if labels else None,
        seed=seed,
        num_threads=1,
    )
    samples = [sample[: batching.taken(rule, len(sample))] for sample in whole]
    plan = loader.plan()
    for chosen, batch in zip(plan, loader, strict=True):
        expected, mask, lengths = one_line(samples, chosen, value, side, batching.multiple(rule))
        assert raw(batch["x"]) == raw(expected)
        assert raw(batch["attention_mask"]) == raw(mask)
        assert raw(batch["lengths"]) == raw(lengths)
        assert raw(batch["index"]) == raw(batch["label"]) == raw(chosen)
        if labels:
            assert raw(batch["labels"]) == raw(shifted(samples, chosen, mask.shape[1], side))


def one_line(samples, chosen, value, side, multiple_of):
    """As :func:`padded`, where the first dimension varies even if no sample shows it."""
    length = batching.rounded(max(len(samples[sample]) for sample in chosen), multiple_of)
    batch = numpy.full((len(chosen), length, *samples[0].shape[1:]), value, samples[0].dtype)
    mask = numpy.zeros((len(chosen), length), bool)
    for row, sample in enumerate(chosen):
        taken = len(samples[sample])
        part = slice(0, taken) if side == "right" else slice(length - taken, length)
        batch[row, part], mask[row, part] = samples[sample], True
    return batch, mask, numpy.array([len(samples[sample]) for sample in chosen], numpy.int64)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_labels_of_every_integer_type(name, side):
    top = numpy.iinfo(name)
    most = min(top.max, 2**63 - 1)
    samples = [numpy.array(tokens, name) for tokens in ([1, 2, 3, most], [], [top.min, 5], [7])]
    dataset = bl.SequenceDataset(x=samples)
    (batch,) = bl.DataLoader(dataset, 4, labels="x", pad_side=side, pad_value=1)
    assert raw(batch["labels"]) == raw(shifted(samples, [0, 1, 2, 3], 4, side))
    (batch,) = bl.DataLoader(dataset, batching=bl.Packing(99), labels="x", pad_side=side)
    chosen = batch["index"].tolist()
    expected = [[*map(int, samples[sample][1:]), -100][: len(samples[sample])] for sample in chosen]
    assert batch["labels"].tolist() == flat(expected)


@pytest.mark.parametrize("output", ["torch", "numpy", "jax"])
def test_labels_in_every_framework(output):
    dataset = bl.SequenceDataset(x=[[5, 6, 7], [8]], other=[[1.0, 2.0, 3.0], [4.0]])
    (batch,) = bl.DataLoader(dataset, 2, labels="x", output=output)
    assert numpy.asarray(batch["labels"]).tolist() == [[6, 7, -100], [-100, -100, -100]]


def test_labels_of_a_truncated_sample_end_where_it_is_cut():
    dataset = bl.SequenceDataset(x=[numpy.arange(10)])
    (batch,) = bl.DataLoader(dataset, batching=bl.TokenBudget(4, oversize="truncate"), labels="x")
    assert batch["x"].tolist() == [[0, 1, 2, 3]]
    assert batch["labels"].tolist() == [[1, 2, 3, -100]]
    assert batch["lengths"].tolist() == [4]


def test_labels_of_strided_tokens():
    values = numpy.arange(60)[::-3]
    dataset = bl.SequenceDataset(x=(values, [2, 2, 9, 12]))
    (batch,) = bl.DataLoader(dataset, 3, labels="x")
    samples = [values[2:2], values[2:9], values[9:12]]
    assert raw(batch["labels"]) == raw(shifted(samples, [0, 1, 2], 7))


def test_masks_come_from_positions_and_not_from_values():
    dataset = bl.SequenceDataset(x=[[0, 0, 0], [0], [9, 0, 9, 0]])
    (batch,) = bl.DataLoader(dataset, 3, pad_value=9, labels="x")
    assert batch["attention_mask"].sum(1).tolist() == [3, 1, 4]
    assert batch["x"].tolist() == [[0, 0, 0, 9], [0, 9, 9, 9], [9, 0, 9, 0]]
    assert batch["labels"].tolist() == [[0, 0, -100, -100], [-100] * 4, [0, 9, 0, -100]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in INTEGERS for value in (0, 1, 127, numpy.iinfo(name).max, numpy.iinfo(name).min)],
        *[("bool", value) for value in (False, True, 0, 1, numpy.True_)],
        *[
            (name, value)
            for name in ("float16", "float32", "float64")
            for value in (0.5, -2, float("nan"), float("inf"), -float("inf"))
        ],
        ("float32", -1e9),
        ("float64", 0.1),
        ("float16", -65504),
        ("float32", float(numpy.finfo("float32").min)),
        ("float64", numpy.finfo("float64").min),
        ("int64", numpy.int8(-3)),
        ("int64", torch.tensor(4)),
        ("uint8", numpy.array(5)),
        ("float32", numpy.float16(0.25)),
        ("complex64", 1 + 2j),
        ("complex128", 3.5),
        *[("bfloat16", value) for value in (0.5, -2, float("nan"), float("-inf"), 256)],
        ("float8_e5m2", 1.5),
        ("float8_e4m3fn", float("nan")),
    ],
    ids=str,
)
def test_padding_of_every_type(name, value):
    samples = lines([2, 5, 0], name)
    number = float(value) if name in FOREIGN else numpy.asarray(value)
    for kind in (lambda array: array, tensor):
        dataset = bl.SequenceDataset(x=[kind(sample) for sample in samples], y=[[1, 1], [1] * 5, []])
        for given_value in (value, {"x": value}, {"x": value, "y": 3}):
            pads = given_value if isinstance(given_value, dict) else {"x": value}
            (batch,) = bl.DataLoader(dataset, 3, fields={name: bl.Field(pad=pad) for name, pad in pads.items()})
            if name in FOREIGN:
                expected = numpy.full((3, 5), number).astype(numpy_type(name))
            else:
                expected = numpy.full((3, 5), number.astype(name))
            for row, sample in enumerate(samples):
                expected[row, : len(sample)] = sample
            assert raw(batch["x"]) == raw(expected)
            pad = 3 if isinstance(given_value, dict) and "y" in given_value else 0
            assert batch["y"].tolist() == [[1, 1, pad, pad, pad], [1] * 5, [pad] * 5]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("uint8", value) for value in (-1, 256, 0.5)],
        *[("int8", value) for value in (128, -129)],
        *[("int64", value) for value in (2**63, -(2**63) - 1, 2**70, 0.5)],
        ("uint64", -1),
        ("uint64", 2**64),
        ("bool", 2),
        ("bool", -1),
        ("bool", 0.5),
        ("bfloat16", 1e300),
        *[("int64", value) for value in ([1], [1, 2], object, None, {1})],
        *[("bfloat16", value) for value in (None, [1])],
    ],
    ids=str,
)
def test_padding_that_a_type_cannot_hold(name, value):
    dataset = bl.SequenceDataset(field=[tensor(sample) for sample in lines([2, 5], name)])
    with refused(bl.ArgumentError, "pad_value", "field field", name):
        bl.DataLoader(dataset, pad_value=value)
    if value is not None:
        with refused(bl.ArgumentError, "pad", "field field", name):
            bl.DataLoader(dataset, fields={"field": bl.Field(pad=value)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int64", float("nan")),
        ("uint8", float("nan")),
        ("bool", float("nan")),
        ("int64", b"5"),
        ("float32", None),
        ("bool", None),
        ("bool", object),
        ("bool", 2**70),
        ("float16", 2**70),
        ("int64", 1j),
        ("float32", 1j),
        ("int64", numpy.datetime64(3, "s")),
    ],
    ids=str,
)
def test_padding_that_slips_through(name, value):
    dataset = bl.SequenceDataset(field=lines([2, 5], name))
    with refused(bl.ArgumentError, "pad_value", "field field", name):
        bl.DataLoader(dataset, pad_value=value)


@pytest.mark.parametrize("value", ["5", "", "edges", "nearest"])
def test_texts_that_are_no_padding(value):
    with refused(bl.ArgumentError, "pad_value", repr(value), "edge"):
        bl.DataLoader(bl.SequenceDataset(field=lines([2, 5], "int64")), pad_value=value)
    with refused(bl.ArgumentError, "pad", repr(value), "edge"):
        bl.Field(pad=value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("int64", float("inf")), ("int64", 2.0**63), ("uint8", 1e20), ("float16", 1e6), ("float32", 1e300)],
    ids=str,
)
def test_padding_that_is_refused_without_a_warning(name, value):
    dataset = bl.SequenceDataset(field=lines([2, 5], name))
    with refused(bl.ArgumentError, "pad_value", "field field", name):
        bl.DataLoader(dataset, pad_value=value)


@pytest.mark.parametrize(("name", "value"), [("float32", 0.1), ("float16", 0.1), ("bfloat16", -1e9), ("bfloat16", 0.1)])
def test_padding_may_be_rounded(name, value):
    dataset = bl.SequenceDataset(x=[tensor(sample) for sample in lines([2, 5], name)])
    (batch,) = bl.DataLoader(dataset, 2, pad_value=value)
    assert batch["x"][0, 4] == torch.tensor(value, dtype=getattr(torch, name))


def test_types_of_a_package_are_padded_without_torch(script):
    script(
        """
        import sys
        sys.modules["torch"] = sys.modules["jax"] = None
        import ml_dtypes
        import numpy
        import batchloom as bl

        dataset = bl.SequenceDataset(x=[numpy.ones(size, ml_dtypes.bfloat16) for size in (3, 0, 2)])
        for rule in (bl.FixedSize(3), bl.Packing(9)):
            (batch,) = bl.DataLoader(dataset, batching=rule)
            assert batch["x"].astype(float).sum() == 5
        (batch,) = bl.DataLoader(dataset, pad_value=0.5)
        assert batch["x"].astype(float).sum() == 7
        """
    )
