"""Slots that functions fill, and slots for data in memory: against slow definitions, on every way."""

import gc
import pickle

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.samples import SLOT, fill_reversed
from refusals import refused

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=20)


def lines(lengths):
    return [numpy.arange(number * 100, number * 100 + length) for number, length in enumerate(lengths)]


def expected(sample, way, width):
    """A sample in its slot, by definition."""
    slot = numpy.full(width, -1)
    if way == "function":
        fill_reversed(sample, slot)
    elif way == "left":
        slot[len(slot) - len(sample) :] = sample
    else:
        kept = sample[: len(slot)]
        slot[: len(kept)] = kept
    return slot.tolist()


SLOTS = {
    "function": (fill_reversed, lambda most: most),
    "left": (bl.Pad(multiple_of=4, side="left"), lambda most: -(-most // 4) * 4),
    "start": (bl.Crop(5, keep="start"), lambda most: 5),
}


@given(LENGTHS, st.sampled_from([*SLOTS]), st.sampled_from(["host", "streamed", "on demand", "rows"]), st.booleans())
def test_samples_lie_in_their_slots(lengths, way, where, shuffle):
    slot, width_of = SLOTS[way]
    if where == "rows":
        lengths = [3] * len(lengths)
    samples = lines(lengths)
    if where == "on demand":
        dataset = bl.MapDataset(samples, lambda sample: {"x": sample})
    elif where == "rows":
        dataset = bl.TensorDataset(x=numpy.stack(samples))
    else:
        dataset = bl.SequenceDataset(x=samples)
    options = {"output": "torch", "resident": False} if where == "streamed" else {}
    loader = bl.DataLoader(
        dataset, 3, shuffle, seed=2, fields={"x": bl.Field(slot=slot, pad=-1, dtype="float64")}, **options
    )
    for batch, indices in zip(loader, loader.plan(0), strict=True):
        width = width_of(max(lengths[sample] for sample in indices))
        assert batch["x"].tolist() == [expected(samples[sample], way, width) for sample in indices]
        if where in ("host", "streamed"):
            assert batch["lengths"].tolist() == [min(lengths[sample], width) for sample in indices]
            assert batch["attention_mask"].shape == batch["x"].shape


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_functions_give_shapes_and_types(workers):
    samples = lines([3, 1, 4, 1, 5])
    dataset = bl.MapDataset(samples, workers=workers)
    loader = bl.DataLoader(dataset, 2, fields={0: bl.Field(slot=SLOT, scale=2.0)}, num_threads=2)
    batches = list(loader)
    assert [batch.dtype for batch in batches] == [numpy.float32] * 3
    sums = [[sample.sum() * 2, len(sample) * 2] for sample in samples]
    assert [row for batch in batches for row in batch.tolist()] == sums
    assert [batch.tolist() for batch in pickle.loads(pickle.dumps(loader))] == [batch.tolist() for batch in batches]


@pytest.mark.parametrize(
    ("dataset", "field"),
    [
        (bl.TensorDataset(numpy.arange(24.0).reshape(4, 6)), 0),
        (bl.TensorDataset(x=torch.arange(24.0).reshape(4, 6)), "x"),
        (bl.GroupDataset([0, 0, 1, 1], x=numpy.arange(24.0).reshape(4, 6), layout="padded"), "x"),
        (bl.WindowDataset(numpy.arange(24.0).reshape(4, 6), 2, 1), 0),
    ],
    ids=["rows", "named", "groups", "windows"],
)
def test_every_kind_of_data_has_slots(dataset, field):
    plain = next(iter(bl.DataLoader(dataset, 2)))[field]

    def double(sample, slot):
        slot[...] = sample * 2

    doubled = next(iter(bl.DataLoader(dataset, 2, fields={field: bl.Field(slot=double)})))[field]
    assert doubled.tolist() == (plain * 2).tolist()
    cut = next(iter(bl.DataLoader(dataset, 2, fields={field: bl.Field(slot=bl.Crop(1, keep="end"))})))[field]
    assert cut.tolist() == plain[:, -1:].tolist()


def test_images_in_memory_are_resized():
    images = numpy.arange(2 * 8 * 6 * 3, dtype=numpy.uint8).reshape(2, 8, 6, 3)
    ours, other = (
        next(
            iter(bl.DataLoader(dataset, 2, fields={"image": bl.Field(slot=bl.Resize(4, 5, to="first"), scale=1 / 255)}))
        )
        for dataset in (bl.TensorDataset(image=images), bl.MapDataset([{"image": image} for image in images]))
    )
    assert ours["image"].shape == (2, 3, 4, 5)
    assert numpy.array_equal(ours["image"], other["image"])
    varying = bl.SequenceDataset(image=[image[: 4 + number] for number, image in enumerate(images)])
    assert next(iter(bl.DataLoader(varying, 2, fields={"image": bl.Field(slot=bl.Resize(4, 5))})))["image"].shape == (
        2,
        4,
        5,
        3,
    )


def test_slots_that_a_function_keeps_never_change():
    kept = []

    def keep(sample, slot):
        slot[...] = sample
        kept.append((slot, sample))

    x = numpy.arange(40_000.0).reshape(400, 100)
    batches = list(bl.DataLoader(bl.TensorDataset(x), 8, fields={0: bl.Field(slot=keep)}, num_threads=2))
    gc.collect()
    for slot, sample in kept:
        assert numpy.array_equal(slot, sample)
        slot[...] = -1
    assert numpy.array_equal(numpy.concatenate([batch[0] for batch in batches]), x)


@pytest.mark.parametrize("workers", ["arrays", "threads", "processes"])
def test_a_function_that_fails_names_the_sample(workers):
    samples = numpy.arange(12).reshape(6, 2)
    dataset = bl.TensorDataset(samples) if workers == "arrays" else bl.MapDataset(list(samples), workers=workers)
    loader, taken = bl.DataLoader(dataset, 2, fields={0: bl.Field(slot=failing_slot)}, num_threads=2), []
    with refused(bl.SampleError, "field 0", "sample 3", "KeyError", "six") as caught:
        taken.extend(loader)
    assert len(taken) <= 1
    assert caught.value.sample == 3
    text = "".join(getattr(caught.value, "__notes__", [])) or repr(caught.value.__cause__)
    assert "six" in text


def failing_slot(sample, slot):
    if sample[0] == 6:
        raise KeyError("six")
    slot[...] = sample


def too_far(sample, slot):
    slot[: len(slot) + 5] = numpy.zeros(len(slot) + 5)


def returning(sample, slot):
    return sample


@pytest.mark.parametrize(("function", "words"), [(too_far, ["ValueError"]), (returning, ["ndarray", "slot[...]"])])
def test_functions_that_do_not_fill_their_slot(function, words):
    with refused(bl.SampleError, "field x", "sample 0", *words):
        list(bl.DataLoader(bl.TensorDataset(x=numpy.zeros((3, 2))), 2, fields={"x": bl.Field(slot=function)}))


@pytest.mark.parametrize(
    ("dataset", "options", "words"),
    [
        (bl.TensorDataset(x=numpy.zeros((3, 2))), {"fields": {"y": bl.Field(slot=bl.Pad())}}, ["fields", "y", "x"]),
        (bl.TensorDataset(x=numpy.zeros((3, 2))), {"fields": {"x": bl.Field(slot=bl.Crop(1, 2, 3))}}, ["x", "3"]),
        (bl.TensorDataset(x=numpy.zeros((3, 2))), {"fields": {"x": bl.Field(slot=bl.Resize(2, 2))}}, ["x", "image"]),
        (bl.SequenceDataset(x=lines([3, 2])), {"fields": {"x": bl.Field(slot=bl.Stack())}}, ["x", "differ in shape"]),
        (bl.SequenceDataset(x=lines([3, 2])), {"fields": {"index": bl.Field(slot=bl.Pad())}}, ["fields", "index"]),
        (
            bl.SequenceDataset(x=lines([3, 2])),
            {"fields": {"x": bl.Field(slot=bl.Pad())}, "batching": bl.Packing(4)},
            ["x", "concatenated"],
        ),
        (
            bl.SequenceDataset(x=lines([3, 2])),
            {"fields": {"x": bl.Field(slot=bl.Pad())}, "resident": True, "output": "torch"},
            ["x", "memory", "resident=False"],
        ),
    ],
)
def test_slots_that_make_no_sense(dataset, options, words):
    with pytest.raises((bl.ArgumentError, bl.SampleError, bl.DataError)) as caught:
        bl.DataLoader(dataset, **options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((2,), "f"), ["function", "str"]),
        (((-1,), failing_slot), ["shape", "-1"]),
        (((2,), failing_slot, "floaty"), ["dtype", "floaty"]),
    ],
)
def test_arguments_of_slots(arguments, words):
    with refused(bl.ArgumentError, *words):
        bl.Slot(*arguments)


def test_functions_that_do_not_pickle():
    dataset = bl.MapDataset(lines([2, 2]), workers="processes")
    with refused(bl.ArgumentError, "pickle", "threads"):
        bl.DataLoader(dataset, 2, fields={0: bl.Field(slot=lambda sample, slot: None)})
