"""A field of batches that are tuples is named by its place in the batch, the same for every option."""

from typing import NamedTuple

import batchloom as bl
import jax
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

QUERY = numpy.repeat(numpy.arange(5), [3, 1, 2, 4, 2])
X, Y = numpy.arange(48.0).reshape(12, 4), numpy.arange(12.0) + 1


def pair(item):
    return numpy.arange(2.0) + item, numpy.float64(item)


def growing(item):
    return numpy.arange(item + 1.0), numpy.float64(item)


# Values of options that take no number.
VALUES = {"dtype": "float32", "slot": bl.Pad()}

ATTRIBUTES = ("dtype", "scale", "mean", "std", "pad", "slot")

# Datasets whose batches are tuples, and the places of their fields of floats.
DATASETS = {
    "rows": (lambda: bl.TensorDataset(X, Y), (0, 1)),
    "groups": (lambda: bl.GroupDataset(QUERY, X, Y), (1, 2)),
    "padded groups": (lambda: bl.GroupDataset(QUERY, X, Y, layout="padded"), (1, 2)),
    "selected groups": (lambda: bl.GroupDataset(QUERY, X, Y).select([3, 1]), (1, 2)),
    "groups in two datasets": (lambda: bl.GroupDataset(QUERY, X, Y).concat(bl.GroupDataset(QUERY, X, Y)), (1, 2)),
    "windows": (lambda: bl.WindowDataset(X, 3, 2, marks=Y), (0, 1, 2, 3)),
    "samples on demand": (lambda: bl.MapDataset(range(1, 6), pair), (0, 1)),
}


def fields_of(option, value, *keys):
    """The argument `fields` with one attribute of the fields that keys name."""
    return {key: bl.Field(**{option: value}) for key in keys}


def first(dataset, **options):
    return [numpy.asarray(part) for part in next(iter(bl.DataLoader(dataset, 3, **options)))]


@pytest.mark.parametrize("name", DATASETS)
@given(data=st.data())
def test_an_option_changes_the_field_at_the_place(name, data):
    make, places = DATASETS[name]
    place = data.draw(st.sampled_from(places))
    key = data.draw(st.sampled_from([int, numpy.int64]))(place)
    plain = first(make())
    options = {
        "dtype": ("float32", plain[place].astype("float32")),
        "scale": (2.0, plain[place] * 2),
        "mean": (1.0, plain[place] - 1),
        "std": (2.0, plain[place] / 2),
    }
    option = data.draw(st.sampled_from(list(options)))
    value, changed = options[option]
    if name == "padded groups":  # padding is not scaled
        changed = numpy.where(plain[-1].reshape(*plain[-1].shape, *(1,) * (plain[place].ndim - 2)), changed, 0)
    found = first(make(), fields=fields_of(option, value, key))
    for other, (before, after) in enumerate(zip(plain, found, strict=True)):
        expected = changed if other == place else before
        assert after.dtype == expected.dtype
        assert numpy.array_equal(after, expected)


@pytest.mark.parametrize("option", ATTRIBUTES)
@pytest.mark.parametrize("name", ["padded groups", "groups in two datasets"])
def test_the_digits_of_a_place_are_refused(name, option):
    make, _ = DATASETS[name]
    value = VALUES.get(option, 2.0)
    with refused(bl.ArgumentError, "fields names '1'", "1 (float64[..., 4])", "2 (float64[...])"):
        bl.DataLoader(make(), 3, fields=fields_of(option, value, "1"))


class Point(NamedTuple):
    x: float
    y: float


# Functions that make samples; keys that name a field, and keys that name none; the fields that messages list.
SAMPLES = {
    "tuples": (pair, (0, 1), ("0", "1", 2, "x", "0.0"), "0 (float64[...]) or 1 (float64[...])"),
    "arrays": (numpy.float64, (0,), ("0", 1, "x"), "0 (float64[...])"),
    "dicts": (
        lambda item: {"y": item, "x": float(item)},
        ("x", "y"),
        (0, "0", "z"),
        "'x' (float64[...]) or 'y' (int64[...])",
    ),
    "digits": (lambda item: {"1": item, "0": item}, ("0", "1"), (0, 1, "2"), "'0' (int64[...]) or '1' (int64[...])"),
    "integers": (lambda item: {5: item, "x": item}, (5, "x"), ("5", 0), "5 (int64[...]) or 'x' (int64[...])"),
    "named tuples": (lambda item: Point(item, item), ("x", "y"), (0, "0"), "'x' (int64[...]) or 'y' (int64[...])"),
    "lists": (
        lambda item: [{"q": item, "r": item}, item],
        (1, "0.q"),
        (0, 2, "1"),
        "'0.r' (int64[...]) or 1 (int64[...])",
    ),
}


@pytest.mark.parametrize("workers", ["threads", "processes"])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_the_first_sample_tells_the_digits_of_a_place_from_a_key(workers, on_error):
    loader = bl.DataLoader(
        bl.MapDataset(range(1, 6), pair, workers=workers, on_error=on_error),
        3,
        num_threads=1,
        fields={"1": bl.Field(dtype="float32")},
    )
    for _ in range(2):
        with refused(bl.ArgumentError, "fields names '1'", "0 (float64[...]) or 1 (float64[...])"):
            next(iter(loader))


@pytest.mark.parametrize("option", ATTRIBUTES)
@pytest.mark.parametrize("name", SAMPLES)
def test_keys_of_samples_on_demand_are_those_of_the_first_sample(name, option):
    make, right, wrong, listed = SAMPLES[name]
    value = VALUES.get(option, 2.0)
    dataset = bl.MapDataset(range(1, 6), make)
    for key in right:
        beside = {"slot": bl.Pad()} if option == "pad" else {}
        next(iter(bl.DataLoader(dataset, 3, fields={key: bl.Field(**{option: value}, **beside)})))
    for key in wrong:
        # A type of floats makes floats of the integers of its field, whether or not there is a field of that key.
        named = [field.split()[0] for field in listed.split(" or ")] if option == "dtype" else [listed]
        with refused(bl.ArgumentError, f"fields names {key!r}", *named):
            next(iter(bl.DataLoader(dataset, 3, fields=fields_of(option, value, key))))


def test_a_text_of_digits_is_a_key_of_dicts():
    dataset = bl.MapDataset(range(1, 6), lambda item: {"1": float(item), "0": float(item)})
    batch = next(iter(bl.DataLoader(dataset, 3, fields={"0": bl.Field(scale=100.0)})))
    assert {key: part.tolist() for key, part in batch.items()} == {"1": [1, 2, 3], "0": [100, 200, 300]}


@pytest.mark.parametrize("option", ATTRIBUTES)
def test_two_keys_of_one_field_are_refused(option):
    value = VALUES.get(option, 2.0)
    if option not in ("pad", "slot"):
        windows = bl.WindowDataset(numpy.ones((20, 2)), 4, 2)
        with refused(bl.ArgumentError, "fields", "0", "'x'", "one field"):
            bl.DataLoader(windows, fields=fields_of(option, value, 0, "x"))
    with refused(bl.ArgumentError, "fields", "1", "'1'", "one field"):
        bl.DataLoader(bl.MapDataset(range(1, 6), pair), 3, fields=fields_of(option, value, 1, "1"))


def test_messages_list_the_shapes_of_rows_of_windows():
    windows = bl.WindowDataset(X, 3, 2, marks=Y)
    with refused(bl.ArgumentError, "0 (float64[..., 4]) or 1 (float64[..., 4]) or 2 (float64[...])"):
        bl.DataLoader(windows, fields={9: bl.Field(dtype="float32")})
    for dataset in (bl.WindowDataset([X, X], 3, 2, index=True), bl.WindowDataset(X, 3, 2, index=True)):
        batch = next(iter(bl.DataLoader(dataset, 3)))
        assert batch["series"].shape == (3,)
        with refused(bl.ArgumentError, "'y' (float64[..., 4]) or 'series' (int64[...]) or 'start' (int64[...])"):
            bl.DataLoader(dataset, fields={9: bl.Field(dtype="float32")})
    patched = bl.WindowDataset(X, 4, 2, patch_len=2)
    with refused(bl.ArgumentError, "0 (float64[...]) or 1 (float64[..., 4])"):
        bl.DataLoader(patched, fields={9: bl.Field(dtype="float32")})


def test_padding_is_named_by_place():
    groups = bl.GroupDataset(QUERY, X, Y, layout="padded")
    _, x, y, mask = first(groups, fields={2: bl.Field(pad=-1)})
    assert (y[~mask] == -1).all()
    assert (x[~mask] == 0).all()
    _, x, y, mask = first(groups, fields={1: bl.Field(pad=-1, scale=2.0), 2: bl.Field(pad=-2, dtype="float32")})
    assert (x[~mask] == -1).all()
    assert (y[~mask] == -2).all()
    for key in (0, 3, -1, 9, "mask", 1.0, True, None):
        with refused(bl.ArgumentError, f"{key!r}", "1 (float64[..., 4]) or 2 (float64[...])"):
            bl.DataLoader(groups, 3, fields={key: bl.Field(pad=-1)})
    # Padded by the function of a slot, or by the engine, a place is a place.
    demand = bl.MapDataset(range(1, 4), growing, sizes=[2, 3, 4], columns=[0])
    slotted = bl.MapDataset(range(1, 4), growing)
    for dataset, options in ((demand, {}), (slotted, {"slot": bl.Pad()})):
        x, *_ = next(iter(bl.DataLoader(dataset, 3, fields={0: bl.Field(pad=-1.0, **options)})))
        assert x[0].tolist() == [0, 1, -1, -1]
    with refused(bl.ArgumentError, "columns names '0'", "0 (float64[...]) or 1 (float64[...])"):
        next(iter(bl.DataLoader(bl.MapDataset(range(1, 4), growing, sizes=[2, 3, 4], columns=["0"]), 3)))


def test_slots_are_named_by_place():
    demand = bl.MapDataset(range(1, 4), growing)
    ((x, *_),) = bl.DataLoader(demand, 3, fields={0: bl.Field(slot=bl.Pad(multiple_of=8))})
    assert x.shape == (3, 8)
    with refused(bl.ArgumentError, "fields names '0'", "0 (float64[...]) or 1 (float64[...])"):
        next(iter(bl.DataLoader(demand, 3, fields={"0": bl.Field(slot=bl.Pad())})))


@pytest.mark.parametrize("option", ["balanced_by", "homogeneous_by", "distinct_by"])
def test_keys_are_those_of_the_field_at_a_place(option):
    kinds = numpy.arange(60) % 3
    dataset = bl.TensorDataset(numpy.arange(60), kinds)
    by_place, by_array = (
        [batch[0].tolist() for batch in bl.DataLoader(dataset, 3, True, **{option: keys})] for keys in (1, kinds)
    )
    assert by_place == by_array
    for key in ("1", 2):
        with refused(bl.ArgumentError, option, f"{key!r}", "0 (int64[...]) or 1 (int64[...])", "array"):
            bl.DataLoader(dataset, 3, True, **{option: key})


def test_parts_and_counts_are_those_of_the_field_at_a_place():
    labels = numpy.array([1, -100, 2, 3, -100, 4])
    dataset = bl.TensorDataset(numpy.arange(6), labels)
    assert dataset.count_labels(1).counts.tolist() == [1, 0, 1, 1, 0, 1]
    groups = bl.GroupDataset(QUERY, X, numpy.where(Y > 6, Y, -100).astype(int))
    assert groups.count_labels(2).counts.tolist() == [0, 0, 0, 4, 2]
    with refused(bl.ArgumentError, "count_labels", "'1'", "0 (int64[...])"):
        dataset.count_labels("1")
    by_place, by_array = (dataset.split(a=0.5, b=None, stratify=field) for field in (1, labels))
    assert [part.indices.tolist() for part in by_place] == [part.indices.tolist() for part in by_array]
    with refused(bl.ArgumentError, "stratify", "'1'"):
        dataset.split(a=0.5, b=None, stratify="1")


def test_shardings_are_named_by_place():
    alone = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with refused(bl.ArgumentError, "field 0", "'0', '1'", "0, 1"):
        bl.DataLoader(bl.TensorDataset(X, Y), 4, output="jax", device={"0": alone, "1": alone})


def test_names_name_the_fields_of_dicts():
    named = bl.TensorDataset(**{"1": X, "y": Y})
    batch = next(iter(bl.DataLoader(named, 3, fields={"1": bl.Field(dtype="float32")})))
    assert (batch["1"].dtype, batch["y"].dtype) == (numpy.float32, numpy.float64)
    with refused(bl.ArgumentError, "fields names 1", "'1' (float64[..., 4]) or 'y' (float64[...])"):
        bl.DataLoader(named, 3, fields={1: bl.Field(dtype="float32")})
    windows = bl.WindowDataset(X, 3, 2)
    assert [part.dtype.name for part in first(windows, fields={"y": bl.Field(dtype="float32")})] == [
        "float64",
        "float32",
    ]
