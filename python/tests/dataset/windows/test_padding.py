"""Steps that a series does not have: the nearest step, a number or zeros, on every way that makes windows."""

import itertools
import math

import batchloom as bl
import ml_dtypes
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import devices
from oracles.windows import shapes
from refusals import refused

FLOATS = ("float16", "bfloat16", "float32", "float64")
TYPES = (*FLOATS, "int8", "int64", "uint16", "uint64")
# The ways of batches: formed in memory, views and what is no view, of JAX, and those of a device.
HOST = {"host": {"buffers": "own"}, "views": {}, "jax": {"output": "jax"}}
WAYS = (*HOST, *devices.WAYS)


def loader_of(way, dataset, batch_size, shuffle, **options):
    """A loader whose batches are made in one of the ways that there are."""
    options |= {"batch_size": batch_size, "shuffle": shuffle}
    if way in HOST:
        return bl.DataLoader(dataset, **options, **HOST[way])
    loader, _ = devices.loader_on(way, dataset, size=200, **options)
    return loader


def as_type(values, dtype):
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def as_torch(values, dtype):
    """A tensor of the values in a type that NumPy may not have."""
    if dtype == "bfloat16":
        return torch.from_numpy(as_type(values, dtype).view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(as_type(values, dtype))


def wide(array):
    """The values of an array of any framework and type as float64."""
    if isinstance(array, torch.Tensor):
        return array.to(torch.float64).numpy()
    return numpy.asarray(array).astype(numpy.float64)


def rows_around(length, steps):
    """The rows of some steps of a series, by definition: a series padded with its ends, and where it has the steps."""
    before, after = max(0, -min(steps)), max(0, max(steps) + 1 - length)
    padded = numpy.pad(numpy.arange(length), (before, after), mode="edge")
    exists = numpy.pad(numpy.ones(length, bool), (before, after))
    places = numpy.asarray(steps) + before
    return padded[places], exists[places]


def padded(values, steps, pad):
    """Some steps of a series; ``pad`` stands where it has none."""
    rows, exists = rows_around(len(values), steps)
    found = values[rows].copy()
    if pad != "edge":
        found[~exists] = pad
    return found, exists


@st.composite
def episodes(draw):
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    steps = st.lists(st.integers(-7, 7), min_size=1, max_size=4)
    strided = st.builds(
        lambda first, count, every: [first + k * every for k in range(count)],
        st.integers(-5, 3),
        st.integers(1, 5),
        st.integers(1, 3),
    )
    return lengths, {"state": draw(steps | strided), "action": draw(steps | strided)}


pads = st.sampled_from(["edge", math.nan, 7, -1, 0])


def pad_for(pad, dtype):
    """A padding that a type holds."""
    if pad == "edge" or dtype in FLOATS:
        return pad
    return 7 if math.isnan(pad) or (pad < 0 and dtype.startswith("u")) else pad


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.law("L9")
@given(
    of=episodes(),
    dtypes=st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)),
    every=pads,
    own=st.none() | pads,
    shuffle=st.sampled_from([False, True, "runs"]),
    data=st.data(),
)
def test_steps_around_an_anchor_are_padded_as_asked(way, of, dtypes, every, own, shuffle, data):
    lengths, steps = of
    if way == "jax":
        dtypes = tuple("float32" if dtype in ("float64", "int64", "uint64") else dtype for dtype in dtypes)
    offsets = numpy.cumsum([0, *lengths])
    codes = numpy.arange(offsets[-1])[:, None] + numpy.array([1.0, 40.0])
    fields = dict(zip(steps, dtypes, strict=True))
    series = {name: as_torch(codes, dtype) for name, dtype in fields.items()}
    used = {
        name: pad_for(own if own is not None and name == "state" else every, dtype) for name, dtype in fields.items()
    }
    dataset = bl.WindowDataset(
        series | {"e": numpy.repeat(numpy.arange(len(lengths)), lengths)},
        offsets=steps,
        id="e",
        short="pad",
        index=True,
    )
    default = used["action"]
    given_fields = {} if repr(used["state"]) == repr(default) else {"state": bl.Field(pad=used["state"])}
    batch_size = data.draw(st.integers(1, 5))
    loader = loader_of(way, dataset, batch_size, shuffle, pad_value=default, fields=given_fields)
    rows = 0
    for batch in loader:
        for place, (e, anchor) in enumerate(zip(batch["series"].tolist(), batch["step"].tolist(), strict=True)):
            rows += 1
            for name, taken in steps.items():
                values = wide(series[name])[offsets[e] : offsets[e + 1]]
                expected, exists = padded(values, [anchor + step for step in taken], used[name])
                numpy.testing.assert_array_equal(wide(batch[name])[place], expected)
                numpy.testing.assert_array_equal(wide(batch[f"{name}_mask"])[place], exists)
    assert rows == len(dataset) == sum(lengths)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.law("W1")
@given(
    shape=shapes(most=12, short="pad"),
    pad=pads,
    shuffle=st.sampled_from([False, True, "runs"]),
    batch_size=st.integers(1, 5),
)
def test_inputs_and_targets_are_padded_as_asked(way, shape, pad, shuffle, batch_size):
    dataset = shape.dataset(lambda values: torch.from_numpy(values.astype(numpy.float32)), index=True)
    series = [values.astype(numpy.float64) for values in shape.arrays()]
    target = shape.context - shape.label_len
    for batch in loader_of(way, dataset, batch_size, shuffle, pad_value=pad):
        for place, (k, start) in enumerate(zip(batch["series"].tolist(), batch["start"].tolist(), strict=True)):
            parts = {"x": range(start, start + shape.input_len)}
            if shape.horizon:
                parts["y"] = range(start + target, start + shape.span)
            for name, steps in parts.items():
                expected, exists = padded(series[k], list(steps), pad)
                mask = batch["mask" if name == "x" else "target_mask"]
                numpy.testing.assert_array_equal(wide(batch[name])[place], expected)
                numpy.testing.assert_array_equal(wide(mask)[place], exists)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pad", ["edge", math.nan, 7.0])
@pytest.mark.law("L4")
def test_a_resumed_epoch_is_padded_like_the_whole(way, pad):
    dataset = bl.WindowDataset(
        {"x": torch.arange(12.0), "e": [0] * 5 + [1] * 7}, offsets={"x": [-2, 0, 3]}, id="e", short="pad"
    )
    for shuffle, step in itertools.product([False, True], range(4)):

        def new(shuffle=shuffle):
            return loader_of(way, dataset, 3, shuffle, pad_value=pad)

        whole = [wide(batch["x"]) for batch in new()]
        loader, resumed = new(), new()
        batches = iter(loader)
        for _ in range(step):
            next(batches)
        resumed.load_state_dict(loader.state_dict())
        rest = [wide(batch["x"]) for batch in resumed]
        assert len(rest) == len(whole) - step
        for found, expected in zip(rest, whole[step:], strict=True):
            numpy.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("way", WAYS)
@given(
    dtype=st.sampled_from(["float16", "float32", "float64"]),
    stored=st.sampled_from(["int16", "float32", "uint8"]),
    pad=st.sampled_from(["edge", math.nan, 9, 0]),
    scaled=st.booleans(),
)
def test_an_edge_is_scaled_and_a_number_is_not(way, dtype, stored, pad, scaled):
    values = numpy.arange(1, 6)
    options = {"scale": 0.5, "mean": 1.0, "std": 2.0} if scaled else {}
    dtype = "float32" if way == "jax" else dtype
    dataset = bl.WindowDataset({"x": as_torch(values, stored)}, offsets={"x": range(-2, 3)}, short="pad", index=True)
    field = bl.Field(dtype=dtype, pad=pad, **options)
    for batch in loader_of(way, dataset, 2, False, fields={"x": field}):
        for place, anchor in enumerate(batch["step"].tolist()):
            data = (values * 0.5 - 1) / 2 if scaled else values.astype(float)
            expected, _ = padded(data, [anchor + step for step in range(-2, 3)], pad)
            numpy.testing.assert_array_equal(wide(batch["x"])[place], expected)


def test_scaled_series_repeat_their_scaled_step():
    dataset = bl.WindowDataset(numpy.arange(1.0, 9.0), (1, 4)).scale("standard")
    for pad in ("edge", 7.0):
        (x,) = next(iter(bl.DataLoader(dataset, 1, pad_value=pad)))
        first = dataset.fields["x"][0]
        numpy.testing.assert_array_equal(x[0], [first if pad == "edge" else pad] * 3 + [first])


def test_a_part_of_a_split_repeats_its_own_step():
    dataset = bl.WindowDataset({"x": numpy.arange(10.0)}, offsets={"x": [-1, 0, 1]}, short="pad")
    first, second = dataset.split(a=0.5, b=0.5)
    for part, ends in ((first, (0, 4)), (second, (5, 9))):
        found = numpy.concatenate([batch["x"] for batch in bl.DataLoader(part, 2, pad_value="edge")])
        steps = numpy.arange(ends[0], ends[1] + 1)[:, None] + numpy.arange(-1, 2)
        numpy.testing.assert_array_equal(found, steps.clip(*ends))


def test_known_futures_marks_and_labels_of_steps_are_padded_and_rows_are_not():
    values = numpy.arange(6.0) + 1
    dataset = bl.WindowDataset(
        values,
        4,
        4,
        marks=values + 10,
        past={"p": values + 20},
        future={"f": values + 30},
        labels=values + 40,
        labels_of="steps",
        static=numpy.array([5.0]),
        short="pad",
    )
    for pad in ("edge", math.nan):
        batch = next(iter(bl.DataLoader(dataset, 1, pad_value=pad)))
        for name, base in {"x": 0, "x_mark": 10, "p": 20, "labels": 40}.items():
            first = base + 1 if pad == "edge" else pad
            numpy.testing.assert_array_equal(numpy.ravel(batch[name]), [first, first, base + 1, base + 2])
        numpy.testing.assert_array_equal(numpy.ravel(batch["f"]), [33, 34, 35, 36])
        assert batch["static"].tolist() in ([5.0], [[5.0]])


def test_concatenated_windows_are_padded():
    parts = [bl.WindowDataset(numpy.arange(1.0, n), (1, 3)) for n in (4, 3)]
    (x,) = next(iter(bl.DataLoader(bl.ConcatDataset(parts), 8, pad_value="edge")))
    numpy.testing.assert_array_equal(x, [[1, 1, 1], [1, 1, 2], [1, 2, 3], [1, 1, 1], [1, 1, 2]])


def test_padding_that_a_field_cannot_hold_is_refused_before_any_work():
    whole = bl.WindowDataset(
        {"x": numpy.arange(5.0), "n": numpy.arange(5)}, offsets={"x": [-1, 0], "n": [0]}, short="pad"
    )
    for pad, found in ((math.nan, "nan"), (0.5, "0.5"), (2**70, str(2**70))):
        with refused(bl.ArgumentError, "pad_value", found, "field n", "int64"):
            bl.DataLoader(whole, 2, pad_value=pad)
        with refused(bl.ArgumentError, "pad", found, "field n", "int64"):
            bl.DataLoader(whole, 2, fields={"n": bl.Field(pad=pad)})
    half = bl.WindowDataset(numpy.zeros(5, numpy.float16), (1, 3))
    with refused(bl.ArgumentError, "pad_value", "1000000.0", "float16"):
        bl.DataLoader(half, 2, pad_value=1e6)
    for words in ({"pad_value": "nearest"}, {"fields": {"x": bl.Field(pad=1)}, "pad_value": "hold"}):
        with refused(bl.ArgumentError, "pad_value", "edge"):
            bl.DataLoader(whole, 2, **words)
    with refused(bl.ArgumentError, "pad is 'wrap'", "edge"):
        bl.Field(pad="wrap")


def test_only_windows_have_an_edge():
    sequences = bl.SequenceDataset(x=[numpy.zeros(2), numpy.zeros(3)])
    groups = bl.GroupDataset(numpy.array([0, 0, 1]), numpy.zeros(3), layout="padded")
    for dataset, options in (
        (sequences, {"pad_value": "edge"}),
        (sequences, {"fields": {"x": bl.Field(pad="edge")}}),
        (groups, {"pad_value": "edge"}),
    ):
        with refused(bl.ArgumentError, '"edge"', "field", "expected a number"):
            bl.DataLoader(dataset, 2, **options)
    with refused(bl.ArgumentError, "'edge'", "pad_value"):
        bl.DataLoader(bl.TensorDataset(numpy.zeros(3)), 2, pad_value="edge")
    with refused(bl.ArgumentError, "'edge'", "expected a number"):
        bl.DataLoader(bl.MapDataset(range(3), float), 2, pad_value="edge")
    windows = bl.WindowDataset(numpy.zeros((5, 2)), (1, 3))
    with refused(bl.ArgumentError, "'edge'", "expected a number"):
        bl.DataLoader(windows, 2, fields={0: bl.Field(slot=bl.Pad(to=8), pad="edge")})


def test_windows_inside_their_series_stay_views():
    series = numpy.arange(20.0)
    (x,) = next(iter(bl.DataLoader(bl.WindowDataset(series, 4), 5, pad_value="edge")))
    assert numpy.shares_memory(x, series)
