"""Slots that draw random numbers: parts that a seed, an epoch and a sample decide, on every way."""

from functools import partial

import batchloom as bl
import batchloom._native as native
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

SEED, WIDTH = 5, 4
LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=16)


def piece(sample, slot, rng):
    """Fill a slot with a random part of a sample."""
    start = int(rng.integers(0, max(1, len(sample) - len(slot) + 1)))
    part = sample[start : start + len(slot)]
    slot[: len(part)] = part


def expected_piece(sample, slot, epoch, number):
    first, second = native.slot_key(SEED, epoch, number)
    rng = numpy.random.Generator(numpy.random.Philox(key=first | second << 64))
    piece(sample, slot, rng)


def expected_crop(sample, slot, epoch, number):
    drawn = native.slot_key(SEED, epoch, number)
    extents = [range(max(0, have - want) + 1) for have, want in zip(sample.shape, slot.shape, strict=True)]
    starts = [draw * len(spare) >> 64 for draw, spare in zip(drawn, extents, strict=False)]
    part = sample[tuple(slice(start, start + want) for start, want in zip(starts, slot.shape, strict=True))]
    slot[tuple(map(slice, part.shape))] = part


WAYS = {
    "crop": (bl.Crop(WIDTH, keep="random"), expected_crop),
    "function": (bl.Slot((WIDTH,), piece), expected_piece),
}


def lines(lengths):
    return [numpy.arange(number * 100, number * 100 + length) for number, length in enumerate(lengths)]


def make_dataset(kind, samples):
    if kind == "rows":
        return bl.TensorDataset(x=numpy.stack(samples))
    if kind == "in memory":
        return bl.SequenceDataset(x=samples)
    return bl.MapDataset(samples, named, workers=kind)


def named(sample):
    return {"x": sample}


def make_loader(kind, samples, slot, **options):
    dataset = make_dataset(kind, samples)
    return bl.DataLoader(dataset, 3, True, seed=SEED, fields={"x": bl.Field(slot=slot, pad=-1)}, **options)


def expected_epoch(samples, way, loader, epoch):
    batches = []
    for indices in loader.plan(epoch):
        slots = numpy.full((len(indices), WIDTH), -1)
        for sample, slot in zip(indices, slots, strict=True):
            WAYS[way][1](samples[sample], slot, epoch, int(sample))
        batches.append(slots.tolist())
    return batches


def epochs(loader, count=2):
    return [[batch["x"].tolist() for batch in loader] for _ in range(count)]


@pytest.mark.law("L3")
@given(LENGTHS, st.sampled_from([*WAYS]), st.sampled_from(["rows", "in memory", "threads"]), st.integers(1, 3))
def test_parts_are_functions_of_seed_epoch_and_sample(lengths, way, kind, threads):
    samples = lines([9] * len(lengths) if kind == "rows" else lengths)
    loader = make_loader(kind, samples, WAYS[way][0], num_threads=threads)
    assert epochs(loader) == [expected_epoch(samples, way, loader, epoch) for epoch in range(2)]


@pytest.mark.law("L3", "L5")
@pytest.mark.parametrize("kind", ["rows", "in memory", "threads", "processes"])
@pytest.mark.parametrize("way", [*WAYS])
def test_parts_are_the_same_after_a_resume_and_on_ranks(way, kind):
    samples = lines([9] * 20)
    whole = make_loader(kind, samples, WAYS[way][0])
    both = [expected_epoch(samples, way, whole, epoch) for epoch in range(2)]
    assert epochs(whole) == both, "what the definition gives"

    iterator = iter(whole)
    next(iterator), next(iterator)
    state = whole.state_dict()
    resumed = make_loader(kind, samples, WAYS[way][0])
    resumed.load_state_dict(state)
    rest, after = epochs(resumed)
    assert rest == expected_epoch(samples, way, whole, 2)[2:]
    assert after == expected_epoch(samples, way, whole, 3)

    parts = {}
    for rank in range(2):
        loader = make_loader(kind, samples, WAYS[way][0], rank=rank, world_size=2)
        for indices, batch in zip(loader.plan(0), loader, strict=True):
            parts |= dict(zip(indices.tolist(), batch["x"].tolist(), strict=True))
    of_one = {
        int(sample): row
        for indices, batch in zip(whole.plan(0), both[0], strict=True)
        for sample, row in zip(indices, batch, strict=True)
    }
    assert parts == of_one


@pytest.mark.law("L3")
@pytest.mark.parametrize("kind", ["rows", "in memory", "threads"])
@pytest.mark.parametrize("way", [*WAYS])
def test_other_epochs_and_other_seeds_draw_other_parts(way, kind):
    dataset = make_dataset(kind, lines([200] * 50))

    def parts(seed):
        fields = {"x": bl.Field(slot=WAYS[way][0])}
        loader = bl.DataLoader(dataset, 50, seed=seed, fields=fields)
        return [tuple(next(iter(loader))["x"][:, 0].tolist()) for _ in range(2)]

    drawn = [*parts(1), *parts(2)]
    for number, part in enumerate(drawn):
        for other in drawn[:number]:
            assert sum(map(int.__eq__, part, other)) < 10


def test_every_part_is_drawn_as_often():
    samples = lines([WIDTH + 3] * 4000)
    loader = make_loader("rows", samples, WAYS["crop"][0])
    starts = numpy.concatenate([batch["x"][:, 0] % 100 for batch in loader])
    counts = numpy.bincount(starts, minlength=4)
    assert len(counts) == 4
    assert counts.min() > 900
    assert counts.max() < 1100


@pytest.mark.parametrize("kind", ["rows", "threads"])
def test_fields_of_a_sample_are_cut_alike(kind):
    heights = numpy.arange(30 * 9 * 7).reshape(30, 9, 7)
    images, masks = numpy.stack([heights, heights], -1), heights
    if kind == "rows":
        dataset = bl.TensorDataset(image=images, mask=masks)
    else:
        dataset = bl.MapDataset(range(30), lambda k: {"image": images[k], "mask": masks[k]})
    crop = bl.Field(slot=bl.Crop(4, 4, keep="random"))
    batches = list(bl.DataLoader(dataset, 8, shuffle=True, fields={"image": crop, "mask": crop}))
    for batch in batches:
        assert batch["image"].shape[1:] == (4, 4, 2)
        assert numpy.array_equal(batch["image"][..., 0], batch["mask"])
    assert len({tuple(cut % 63) for batch in batches for cut in batch["mask"][:, 0, :1]}) > 10

    def keep(sample, slot, rng, draws):
        draws.append(rng.integers(1 << 60))
        slot[...] = sample

    drawn = {"image": [], "mask": []}
    fields = {name: bl.Field(slot=partial(keep, draws=numbers)) for name, numbers in drawn.items()}
    list(bl.DataLoader(dataset, 8, fields=fields, num_threads=1))
    assert sorted(drawn["image"]) == sorted(drawn["mask"])
    assert len(set(drawn["image"])) == 30


def test_slots_draw_other_numbers_than_samples():
    drawn = []

    def read(item, rng):
        drawn.append(rng.integers(1 << 60))
        return numpy.zeros(2)

    def fill(sample, slot, rng):
        drawn.append(rng.integers(1 << 60))

    list(bl.DataLoader(bl.MapDataset(range(10), read), 2, fields={0: bl.Field(slot=fill)}))
    assert len(drawn) == len(set(drawn)) == 20


def test_lengths_and_masks_follow_what_is_kept():
    samples = lines([2, 9, 4, 0, 7])
    batch = next(iter(bl.DataLoader(bl.SequenceDataset(x=samples), 5, fields={"x": bl.Field(slot=WAYS["crop"][0])})))
    assert batch["lengths"].tolist() == [2, 4, 4, 0, 4]
    assert batch["attention_mask"].sum(1).tolist() == [2, 4, 4, 0, 4]
    assert batch["x"][0].tolist() == [0, 1, 0, 0], "a smaller sample lies at the start"


FUNCTIONS = {
    "slot": (lambda sample, rng: None, lambda fn: bl.Slot((3,), fn), "(sample, slot, rng)"),
    "field": (lambda sample, rng: None, lambda fn: bl.DataLoader(
        bl.TensorDataset(numpy.zeros((3, 3))), 2, fields={0: bl.Field(slot=fn)}), "(sample, slot, rng)"),
    "fn": (lambda a, b, rng: None, lambda fn: bl.MapDataset(range(3), fn), "(item, rng)"),
    "collate": (lambda rng: None, lambda fn: bl.DataLoader(
        bl.TensorDataset(numpy.zeros((3, 3))), 2, collate=fn), "(samples, rng)"),
}  # fmt: skip


@pytest.mark.parametrize(("function", "construct", "expected"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_with_rng_and_other_parameters_are_refused(function, construct, expected):
    with refused(bl.ArgumentError, "a function (", expected):
        construct(function)
