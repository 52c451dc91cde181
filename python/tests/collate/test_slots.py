"""Slots of samples of several shapes, against a definition in NumPy; padding and types on the way."""

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

extents = st.tuples(st.integers(0, 6), st.integers(0, 5))


def placed(sample, shape, keep, value):
    """A slot of a shape, filled with a value, and the part of a sample that it keeps."""
    slot = numpy.full(shape, value, sample.dtype)
    into, source = [], []
    for wanted, found in zip(shape, sample.shape, strict=True):
        taken = min(wanted, found)
        shift = {"start": lambda spare: 0, "center": lambda spare: spare // 2, "end": lambda spare: spare}[keep]
        into.append(slice(shift(wanted - taken), shift(wanted - taken) + taken))
        source.append(slice(shift(found - taken), shift(found - taken) + taken))
    slot[tuple(into)] = sample[tuple(source)]
    return slot


def images(shapes, transposed):
    """Images of two extents and two channels."""

    def fn(number):
        height, width = shapes[number]
        values = (numpy.arange(height * width * 2, dtype=numpy.int16) + 1000 * number).reshape(height, width, 2)
        return values.transpose(1, 0, 2).copy().transpose(1, 0, 2) if transposed else values

    return fn


def first(fn, samples, slot, *, pad_value=0, **field):
    fields = {0: bl.Field(slot=slot, **field)}
    loader = bl.DataLoader(bl.MapDataset(range(samples), fn), samples, fields=fields, pad_value=pad_value)
    return next(iter(loader))


@given(
    shapes=st.lists(extents, min_size=1, max_size=6),
    multiple_of=st.integers(1, 4) | st.tuples(st.integers(1, 4), st.integers(1, 4)),
    side=st.sampled_from(["left", "right"]),
    value=st.integers(-3, 3),
    transposed=st.booleans(),
)
def test_padding_by_definition(shapes, multiple_of, side, value, transposed):
    fn = images(shapes, transposed)
    found = first(fn, len(shapes), bl.Pad(multiple_of, side), pad_value=value)
    grains = (*(multiple_of if isinstance(multiple_of, tuple) else (multiple_of,)), 1)
    most = [-(-max(shape[d] for shape in shapes) // grains[d]) * grains[d] for d in range(2)]
    keep = "end" if side == "left" else "start"
    # Channels are as many for all, and lie at the start of either.
    expected = numpy.stack([placed(fn(number), (*most, 2), keep, value) for number in range(len(shapes))])
    numpy.testing.assert_array_equal(found, expected)


@given(
    shapes=st.lists(extents, min_size=1, max_size=6),
    to=st.tuples(st.integers(1, 6), st.integers(1, 5)),
    keep=st.sampled_from(["start", "center", "end"]),
    whole=st.booleans(),
    transposed=st.booleans(),
)
def test_cropping_by_definition(shapes, to, keep, whole, transposed):
    fn = images(shapes, transposed)
    found = first(fn, len(shapes), bl.Crop(*to, *((2,) if whole else ()), keep=keep), pad=9)
    expected = numpy.stack([placed(fn(number), (*to, 2), keep, 9) for number in range(len(shapes))])
    numpy.testing.assert_array_equal(found, expected)


def test_types_are_converted_and_padding_is_not():
    fn = images([(2, 2), (1, 3)], False)
    found = first(fn, 2, bl.Pad(), dtype="float32", scale=0.5, pad=-1)
    expected = numpy.stack([placed(fn(n).astype(numpy.float32) / 2, (2, 3, 2), "start", -1) for n in range(2)])
    assert found.dtype == numpy.float32
    numpy.testing.assert_array_equal(found, expected)
    # Where all samples have one shape, too.
    loader = bl.DataLoader(
        bl.MapDataset(range(9), lambda number: numpy.uint16(number)), batch_size=2, fields={0: bl.Field(dtype="int64")}
    )
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


def test_sizes_that_are_only_to_sort_by():
    dataset = bl.MapDataset(range(4), lambda number: numpy.zeros(3), sizes=[4, 2, 9, 1])
    (batch,) = bl.DataLoader(dataset, batching=bl.LengthBuckets(4), fields={0: bl.Field(slot=bl.Stack())})
    assert batch[0].shape == (4, 3)
    assert batch[1].tolist() == [2, 0, 1, 3]


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("shapes", [[(2, 3), (2, 1)], [(2, 1), (2, 3)], [(2, 1), (2, 300_000)]], ids=str)
def test_what_a_crop_leaves_as_it_is_may_not_differ(shapes, batch_size):
    """Such samples were smeared over their slots, or cut, without a word."""
    dataset = bl.MapDataset(range(2), lambda number: numpy.full(shapes[number], number + 1.0))
    for threads in (1, 2):
        with refused(bl.DataError, "sample 1", str(list(shapes[1])), str(list(shapes[0]))):
            list(bl.DataLoader(dataset, batch_size, fields={0: bl.Field(slot=bl.Crop(2))}, num_threads=threads))
    values = [numpy.full(shape, 1.0) for shape in shapes]
    with refused(bl.ArgumentError, "field x", "dimension 1", "extent"):
        bl.DataLoader(bl.SequenceDataset(x=values), batch_size, fields={"x": bl.Field(slot=bl.Crop(2))})
    both = next(iter(bl.DataLoader(bl.SequenceDataset(x=values), 2, fields={"x": bl.Field(slot=bl.Crop(2, 2))})))
    assert both["x"].shape == (2, 2, 2)


def test_slots_that_make_no_sense():
    def loaded(fields, **options):
        return list(bl.DataLoader(bl.MapDataset(range(4), images([(2, 2)] * 4, False)), fields=fields, **options))

    with refused(bl.ArgumentError, "fields names 7", "0"):
        loaded({7: bl.Field(slot=bl.Pad())})
    for wrong in (5, {0: "pad"}, {0: bl.Pad()}, [bl.Field()]):
        with refused(bl.ArgumentError, "fields", "bl.Field"):
            loaded(wrong)
    for wrong in (5, "pad", bl.Pad):
        with refused(bl.ArgumentError, "slot", "bl.Pad()"):
            bl.Field(slot=wrong)
    for wrong in ({0: bl.Pad()}, bl.Pad()):
        with refused(bl.ArgumentError, "collate", "fields="):
            loaded({}, collate=wrong)
    with refused(bl.DataError, "3", "4"):
        loaded({0: bl.Field(slot=bl.Crop(2, 2, 2, 2))})
    with refused(bl.ArgumentError, "300000", "int16"):
        loaded({0: bl.Field(slot=bl.Pad(), pad=300_000)})
    with refused(bl.ArgumentError, "pad_value"):
        loaded({0: bl.Field(slot=bl.Pad())}, pad_value="zero")
    with refused(bl.ArgumentError, "pad of field 0", str(2**53 + 1), str(2**53)):
        loaded({0: bl.Field(slot=bl.Pad(), pad=2**53 + 1)})
    with refused(bl.ArgumentError, "pad_value", "too large"):
        loaded({0: bl.Field(slot=bl.Pad())}, pad_value=10**400)
    with refused(bl.ArgumentError, "field ids", "size", "slot"):
        named = bl.MapDataset(range(2), lambda number: {"ids": numpy.arange(3)}, sizes=[3, 3], columns=["ids"])
        bl.DataLoader(named, 2, fields={"ids": bl.Field(slot=bl.Pad())})
    for make in (
        lambda: bl.Pad(0),
        lambda: bl.Crop(),
        lambda: bl.Crop(0),
        lambda: bl.Pad(1, "up"),
        lambda: bl.Crop(1, keep="all"),
    ):
        with pytest.raises(bl.ArgumentError):
            make()
