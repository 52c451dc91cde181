"""Masks and lengths describe the field that they stand beside: in the shape of its slots, whatever puts it there."""

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

lengths = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def sequences(sizes, **options):
    values = [numpy.arange(1, size + 1) + 100 * sample for sample, size in enumerate(sizes)]
    return bl.SequenceDataset(x=values, **options), values


def placed(sample, length, keep):
    """A sample in a slot of a length, and which elements are data, element by element."""
    taken = min(len(sample), length)
    cut, start = (
        {"start": 0, "center": spare // 2, "end": spare}[keep] for spare in (len(sample) - taken, length - taken)
    )
    slot, mask = numpy.full(length, -1), numpy.zeros(length, bool)
    slot[start : start + taken], mask[start : start + taken] = sample[cut : cut + taken], True
    return slot, mask


@given(
    sizes=lengths, length=st.integers(1, 12), keep=st.sampled_from(["start", "center", "end"]), size=st.integers(1, 4)
)
def test_a_crop_is_described_as_it_lies(sizes, length, keep, size):
    dataset, values = sequences(sizes)
    field = bl.Field(slot=bl.Crop(length, keep=keep), pad=-1)
    loader = bl.DataLoader(dataset, size, True, fields={"x": field})
    for samples, batch in zip(loader.plan(), loader, strict=True):
        expected = [placed(values[sample], length, keep) for sample in samples]
        numpy.testing.assert_array_equal(batch["x"], numpy.stack([slot for slot, _ in expected]))
        numpy.testing.assert_array_equal(batch["attention_mask"], numpy.stack([mask for _, mask in expected]))
        assert batch["lengths"].tolist() == [min(len(values[sample]), length) for sample in samples]


@given(
    sizes=lengths,
    to=st.sets(st.integers(1, 12), min_size=1, max_size=3).map(list),
    side=st.sampled_from(["right", "left"]),
    on_demand=st.booleans(),
)
def test_each_batch_takes_the_smallest_length_that_holds_its_samples(sizes, to, side, on_demand):
    sizes = [min(size, max(to)) for size in sizes]
    dataset, values = sequences(sizes)
    if on_demand:
        dataset = bl.MapDataset(range(len(sizes)), lambda sample: {"x": values[sample]})
    loader = bl.DataLoader(dataset, 3, fields={"x": bl.Field(pad_to=to, pad=-1)}, pad_side=side)
    for samples, batch in zip(loader.plan(), loader, strict=True):
        most = max(len(values[sample]) for sample in samples)
        length = min(each for each in to if each >= most)
        expected = [placed(values[sample], length, "start" if side == "right" else "end") for sample in samples]
        numpy.testing.assert_array_equal(batch["x"], numpy.stack([slot for slot, _ in expected]))
        if not on_demand:
            numpy.testing.assert_array_equal(batch["attention_mask"], numpy.stack([mask for _, mask in expected]))
            assert batch["lengths"].tolist() == [len(values[sample]) for sample in samples]


@pytest.mark.parametrize("on_demand", [False, True])
def test_a_sample_longer_than_every_length_is_an_error(on_demand):
    dataset, values = sequences([2, 7, 3])
    if on_demand:
        dataset = bl.MapDataset(range(3), lambda sample: {"x": values[sample]})
    loader = bl.DataLoader(dataset, 3, fields={"x": bl.Field(pad_to=[2, 5])})
    with refused(bl.DataError, "field x", "7", "5", "Crop"):
        next(iter(loader))


def test_several_dimensions_are_described_in_each():
    shapes = [(2, 3), (4, 1), (1, 5)]
    dataset = bl.SequenceDataset(image=[numpy.ones(shape) for shape in shapes])
    batch = next(iter(bl.DataLoader(dataset, 3, fields={"image": bl.Field(slot=bl.Crop(3, 4, keep="start"))})))
    mask = numpy.zeros((3, 3, 4), bool)
    for sample, (height, width) in enumerate(shapes):
        mask[sample, :height, :width] = True
    numpy.testing.assert_array_equal(batch["attention_mask"], mask)
    numpy.testing.assert_array_equal(batch["attention_mask"], batch["image"] == 1)
    assert batch["lengths"].tolist() == [[2, 3], [3, 1], [1, 4]]


def test_images_that_are_resized_have_no_padding():
    dataset = bl.SequenceDataset(image=[numpy.ones((height, 5, 3), numpy.uint8) for height in (2, 7)])
    batch = next(iter(bl.DataLoader(dataset, 2, fields={"image": bl.Field(slot=bl.Resize(4, 6, to="first"))})))
    assert batch["image"].shape == (2, 3, 4, 6)
    assert batch["attention_mask"].tolist() == [[True] * 4] * 2
    assert batch["lengths"].tolist() == [4, 4]


def test_a_mask_describes_fields_without_slots_first():
    sizes = [2, 5, 3]
    values = [numpy.arange(size) for size in sizes]
    dataset = bl.SequenceDataset(x=values, y=values)
    both, one = {"x": bl.Field(slot=bl.Crop(4)), "y": bl.Field(pad_to=8)}, {"x": bl.Field(slot=bl.Crop(4))}
    batch = next(iter(bl.DataLoader(dataset, 3, fields=both)))
    assert (batch["x"].shape, batch["y"].shape, batch["attention_mask"].shape) == ((3, 4), (3, 8), (3, 4))
    assert batch["lengths"].tolist() == [2, 4, 3]
    batch = next(iter(bl.DataLoader(dataset, 3, fields=one)))
    assert (batch["x"].shape, batch["y"].shape, batch["attention_mask"].shape) == ((3, 4), (3, 5), (3, 5))
    assert batch["lengths"].tolist() == sizes


def test_fields_with_lengths_of_their_own_are_described_by_themselves():
    source, target = ([numpy.arange(size) for size in sizes] for sizes in ((2, 5), (7, 1)))
    dataset = bl.SequenceDataset(source=source, target=target, own_lengths=("target",))
    batch = next(iter(bl.DataLoader(dataset, 2, fields={"target": bl.Field(pad_to=9)})))
    assert (batch["target"].shape, batch["target_mask"].shape) == ((2, 9), (2, 9))
    assert batch["target_mask"].sum(1).tolist() == batch["target_lengths"].tolist() == [7, 1]
    assert batch["attention_mask"].shape == batch["source"].shape == (2, 5)


def test_padded_groups_are_described_as_their_first_field():
    groups = bl.GroupDataset([0, 0, 1], x=numpy.ones((3, 2)), layout="padded")
    batch = next(iter(bl.DataLoader(groups, 2, fields={"x": bl.Field(pad_to=4)})))
    assert batch["x"].shape == (2, 4, 2)
    assert batch["mask"].tolist() == [[True, True, False, False], [True, False, False, False]]


def test_concatenated_datasets_are_described_alike():
    parts = [sequences(sizes)[0] for sizes in ([2, 5], [1, 3])]
    batch = next(iter(bl.DataLoader(parts[0].concat(parts[1]), 4, fields={"x": bl.Field(slot=bl.Crop(3))})))
    assert batch["attention_mask"].sum(1).tolist() == batch["lengths"].tolist() == [2, 3, 1, 3]


def test_functions_with_a_shape_of_their_own_hide_what_is_data():
    dataset, _ = sequences([2, 5])
    slot = bl.Slot((3,), lambda sample, slot: None)
    batch = next(iter(bl.DataLoader(dataset, 2, fields={"x": bl.Field(slot=slot)})))
    assert (batch["x"].shape, batch["attention_mask"].shape, batch["lengths"].tolist()) == ((2, 3), (2, 5), [2, 5])


def test_lengths_that_make_no_sense():
    for wrong in (0, -1, 2.5, [], "4", [3, 0]):
        with refused(bl.ArgumentError, "to"):
            bl.Field(pad_to=wrong)
    with refused(bl.ArgumentError, "slot", "pad_to", "bl.Pad(to=...)"):
        bl.Field(slot=bl.Crop(3), pad_to=4)
    dataset, _ = sequences([2, 5])
    with refused(bl.ArgumentError, "labels", "field x", "slot"):
        bl.DataLoader(dataset, 2, labels="x", fields={"x": bl.Field(pad_to=8)})
