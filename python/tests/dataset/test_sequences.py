"""Sequences of any length: every way in, padded batches against a slow and obvious oracle."""

import gc
import itertools
import pickle
import sys
import threading
import weakref

import batchloom as bl
import jax
import ml_dtypes
import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import batching
from oracles.batching import flat, rules, sized
from oracles.runs import few
from refusals import refused

SHARED = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64", "complex64", "complex128"]
FOREIGN = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
INTEGERS = SHARED[1:]


def numpy_type(name):
    return numpy.dtype(getattr(ml_dtypes, name)) if name in FOREIGN else numpy.dtype(name)


def bits(name, shape, seed=0):
    """Arbitrary bits, NaNs among them."""
    random = numpy.random.default_rng(seed)
    if name == "bool":
        return random.integers(0, 2, shape).astype(bool)
    dtype = numpy_type(name)
    return random.integers(0, 256, (*shape, dtype.itemsize), numpy.uint8).view(dtype).reshape(shape)


def tensor(array):
    """A torch tensor of the same bits."""
    name = array.dtype.name
    if name not in FOREIGN:
        return torch.from_numpy(numpy.ascontiguousarray(array))
    return torch.from_numpy(array.view(f"uint{8 * array.itemsize}").copy()).view(getattr(torch, name))


def raw(array):
    """The bytes of an array in row-major order, and its shape and type."""
    if isinstance(array, torch.Tensor):
        kind = str(array.dtype).removeprefix("torch.")
        content = bytes(array.contiguous().reshape(-1).view(torch.uint8).numpy()) if array.numel() else b""
        return content, tuple(array.shape), kind
    return array.tobytes(), array.shape, array.dtype.name


# The oracle


def varying(samples):
    """The dimensions in which samples differ; the first where in none, or in that one only."""
    shapes = numpy.array([sample.shape for sample in samples])
    return [place for place in range(shapes.shape[1]) if len(set(shapes[:, place])) > 1] or [0]


def padded(samples, chosen, value=0, side="right", multiple_of=1):
    """One field of a batch, its mask and its lengths."""
    places = varying(samples)
    union = list(samples[0].shape)
    for place in places:
        union[place] = batching.rounded(max(samples[sample].shape[place] for sample in chosen), multiple_of)
    batch = numpy.full((len(chosen), *union), value, samples[0].dtype)
    mask = numpy.zeros((len(chosen), *[union[place] for place in places]), bool)
    for row, sample in enumerate(chosen):
        shape = samples[sample].shape
        corner = [
            slice(0, len) if side == "right" else slice(most - len, most)
            for len, most in zip(shape, union, strict=True)
        ]
        batch[row][tuple(corner)] = samples[sample]
        mask[row][tuple(corner[place] for place in places)] = True
    lengths = numpy.array([[samples[sample].shape[place] for place in places] for sample in chosen], numpy.int64)
    return batch, mask, lengths[:, 0] if len(places) == 1 else lengths


def shifted(samples, chosen, length, side="right"):
    """Next tokens."""
    labels = numpy.full((len(chosen), length), -100, numpy.int64)
    for row, sample in enumerate(chosen):
        start = 0 if side == "right" else length - len(samples[sample])
        for place in range(len(samples[sample]) - 1):
            labels[row, start + place] = samples[sample][place + 1].astype(numpy.int64)
    return labels


def assert_padded(loader, samples, name="x", value=0, side="right", multiple_of=1):
    """Every batch is what the oracle says of the samples that the plan names."""
    plan = loader.plan()
    delivered = []
    for chosen, batch in zip(plan, loader, strict=True):
        expected, mask, lengths = padded(samples, chosen, value, side, multiple_of)
        assert raw(batch[name]) == raw(expected)
        assert raw(batch["attention_mask"]) == raw(mask)
        assert raw(batch["lengths"]) == raw(lengths)
        assert raw(batch["index"]) == raw(chosen)
        delivered += chosen.tolist()
    return delivered


def lines(sizes, name="int64", inner=()):
    """Samples of these sizes along their first dimension, all of them different."""
    values = bits(name, (sum(sizes), *inner), seed=len(sizes))
    return numpy.split(values, numpy.cumsum(sizes)[:-1]) if len(sizes) else []


SIZES = [3, 0, 7, 1, 12, 5, 0, 2, 9, 4, 4, 11]


# Every way in


def placed(samples, before=0, after=0):
    """Samples one after the other between values that belong to none; where each starts."""
    margins = [numpy.full((count, *samples[0].shape[1:]), 77, samples[0].dtype) for count in (before, after)]
    offsets = numpy.cumsum([before, *map(len, samples)])
    return numpy.concatenate([margins[0], *samples, margins[1]]), offsets


def mapped(array, path):
    array.tofile(path)
    return numpy.memmap(path, dtype=array.dtype, mode="r", shape=array.shape)


class OnlyArray:
    """Speaks the Arrow interface and nothing else."""

    def __init__(self, array):
        self.array = array

    def __arrow_c_array__(self, requested_schema=None):
        return self.array.__arrow_c_array__(requested_schema)


class OnlyStream:
    """As above, in chunks."""

    def __init__(self, array):
        self.array = pyarrow.chunked_array([array[:2], array[2:2], array[2:]])

    def __arrow_c_stream__(self, requested_schema=None):
        return self.array.__arrow_c_stream__(requested_schema)


def arrow(samples, kind=pyarrow.list_):
    return pyarrow.array([sample.tolist() for sample in samples], kind(pyarrow.int64()))


def around(samples):
    """As Arrow, in the middle of other lists."""
    others = [numpy.arange(4), numpy.arange(0), numpy.arange(3)]
    return arrow([*others, *samples, *others])[3:-3]


WAYS = {
    "list": lambda samples, path: samples,
    "list of strided arrays": lambda samples, path: [numpy.repeat(sample, 3)[::3] for sample in samples],
    "list of backward arrays": lambda samples, path: [sample[::-1].copy()[::-1] for sample in samples],
    "list of maps": lambda samples, path: numpy.split(
        mapped(numpy.concatenate(samples), path / "values"), numpy.cumsum([len(sample) for sample in samples])[:-1]
    ),
    "list of lists": lambda samples, path: [sample.tolist() for sample in samples],
    "list of tuples": lambda samples, path: [tuple(sample.tolist()) for sample in samples],
    "list of tensors": lambda samples, path: [torch.from_numpy(sample) for sample in samples],
    "list of strided tensors": lambda samples, path: [
        torch.from_numpy(sample).repeat_interleave(2)[::2] for sample in samples
    ],
    "list of series": lambda samples, path: [pandas.Series(sample) for sample in samples],
    "offsets": lambda samples, path: placed(samples),
    "offsets in the middle": lambda samples, path: placed(samples, 5, 3),
    "offsets of int32": lambda samples, path: (placed(samples, 2)[0], placed(samples, 2)[1].astype(numpy.int32)),
    "offsets of uint8": lambda samples, path: (placed(samples, 2)[0], placed(samples, 2)[1].astype(numpy.uint8)),
    "offsets of uint32": lambda samples, path: (placed(samples)[0], placed(samples)[1].astype(numpy.uint32)),
    "offsets of uint64": lambda samples, path: (placed(samples)[0], placed(samples)[1].astype(numpy.uint64)),
    "offsets in big endian": lambda samples, path: (placed(samples)[0], placed(samples)[1].astype(">i4")),
    "offsets that are strided": lambda samples, path: (placed(samples)[0], numpy.repeat(placed(samples)[1], 2)[::2]),
    "offsets in a list": lambda samples, path: (placed(samples)[0], placed(samples)[1].tolist()),
    "offsets in a tensor": lambda samples, path: (placed(samples)[0], torch.from_numpy(placed(samples)[1])),
    "strided values": lambda samples, path: (numpy.repeat(placed(samples, 1)[0], 3)[::3], placed(samples, 1)[1]),
    "backward values": lambda samples, path: (placed(samples, 1)[0][::-1].copy()[::-1], placed(samples, 1)[1]),
    "values in a tensor": lambda samples, path: tuple(map(torch.from_numpy, placed(samples, 4))),
    "values in a strided tensor": lambda samples, path: (
        torch.from_numpy(placed(samples)[0])[:, None].repeat(1, 3)[:, 1],
        placed(samples)[1],
    ),
    "values in a map": lambda samples, path: (mapped(placed(samples, 3)[0], path / "values"), placed(samples, 3)[1]),
    "read-only values": lambda samples, path: (
        numpy.frombuffer(placed(samples)[0].tobytes(), numpy.int64),
        placed(samples)[1],
    ),
    "shapes": lambda samples, path: (placed(samples)[0], [[len(sample)] for sample in samples]),
    "arrow": lambda samples, path: arrow(samples),
    "arrow large": lambda samples, path: arrow(samples, pyarrow.large_list),
    "arrow slice": lambda samples, path: around(samples),
    "arrow chunks": lambda samples, path: pyarrow.chunked_array([arrow(samples[:4]), arrow([]), around(samples[4:])]),
    "arrow large chunk": lambda samples, path: pyarrow.chunked_array([arrow(samples, pyarrow.large_list)]),
    "arrow slice of chunks": lambda samples, path: pyarrow.chunked_array([arrow(samples), arrow(samples)])[
        : len(samples)
    ],
    "arrow array interface": lambda samples, path: OnlyArray(around(samples)),
    "arrow stream interface": lambda samples, path: OnlyStream(around(samples)),
    "polars": lambda samples, path: polars.Series([sample.tolist() for sample in samples]),
    "polars slice": lambda samples, path: polars.Series([[1, 2], *[sample.tolist() for sample in samples], [3]])[1:-1],
    "polars chunks": lambda samples, path: polars.concat(
        [
            polars.Series([sample.tolist() for sample in part], dtype=polars.List(polars.Int64))
            for part in (samples[:3], samples[3:])
        ],
        rechunk=False,
    ),
    "pandas": lambda samples, path: pandas.Series(
        [sample.tolist() for sample in samples], dtype=pandas.ArrowDtype(pyarrow.list_(pyarrow.int64()))
    ),
    "pandas slice": lambda samples, path: pandas.Series(
        [[9], *[sample.tolist() for sample in samples]], dtype=pandas.ArrowDtype(pyarrow.list_(pyarrow.int64()))
    )[1:],
    "nested": lambda samples, path: torch.nested.nested_tensor(list(map(torch.from_numpy, samples))),
    "jagged": lambda samples, path: torch.nested.nested_tensor(
        list(map(torch.from_numpy, samples)), layout=torch.jagged
    ),
    "jagged in the middle": lambda samples, path: torch.nested.nested_tensor_from_jagged(
        torch.from_numpy(placed(samples, 2, 2)[0]), torch.from_numpy(placed(samples, 2)[1])
    ),
    "jagged with holes": lambda samples, path: torch.nested.nested_tensor_from_jagged(
        torch.from_numpy(numpy.concatenate([numpy.append(sample, 5) for sample in samples])),
        torch.tensor([0, *itertools.accumulate(len(sample) + 1 for sample in samples)]),
        torch.tensor([len(sample) for sample in samples]),
    ),
    "jax values": lambda samples, path: (
        jax.numpy.asarray(placed(samples, 2)[0].astype(numpy.int32)),
        placed(samples, 2)[1],
    ),
    "jax": lambda samples, path: [jax.numpy.asarray(sample.astype(numpy.int32)) for sample in samples],
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_in_gives_the_same_batches(way, tmp_path):
    samples = [numpy.arange(size) * 10 + size for size in SIZES]
    dataset = bl.SequenceDataset(x=WAYS[way](samples, tmp_path), label=numpy.arange(12))
    kind = numpy.int32 if way.startswith("jax") else numpy.int64
    samples = [sample.astype(kind) for sample in samples]
    assert len(dataset) == 12
    assert dataset.sizes.tolist() == SIZES
    assert [numpy.asarray(dataset[place]["x"]).tolist() for place in range(12)] == [
        sample.tolist() for sample in samples
    ]
    travelled = pickle.loads(pickle.dumps(dataset))
    for each in (dataset, travelled):
        loader = bl.DataLoader(each, batching=bl.TokenBudget(30), shuffle=True, output="numpy", seed=3)
        assert sorted(assert_padded(loader, samples)) == list(range(12))
        assert all(numpy.array_equal(batch["label"], batch["index"]) for batch in loader)
        packed = bl.DataLoader(each, batching=bl.Packing(30), shuffle=True, output="numpy", labels="x")
        for chosen, batch in zip(packed.plan(), packed, strict=True):
            assert raw(batch["x"]) == raw(numpy.concatenate([samples[sample] for sample in chosen]))
            assert numpy.diff(batch["cu_seqlens"]).tolist() == [SIZES[sample] for sample in chosen]
    plans = [bl.DataLoader(each, batching=bl.TokenBudget(30)).plan() for each in (dataset, travelled)]
    assert plans[0] == plans[1] == bl.Plan(sizes=SIZES, batching=bl.TokenBudget(30))


@pytest.mark.parametrize("way", ["list of tensors", "values in a tensor", "jagged", "list", "polars", "jax"])
def test_batches_are_of_the_framework_that_came_in(way, tmp_path):
    samples = [numpy.arange(size) for size in SIZES]
    dataset = bl.SequenceDataset(x=WAYS[way](samples, tmp_path), y=torch.arange(12), z=numpy.arange(12))
    kind = {"list": numpy.ndarray, "polars": numpy.ndarray, "jax": jax.Array}.get(way, torch.Tensor)
    for rule in (bl.LengthBuckets(5), bl.Packing(20)):
        for batch in bl.DataLoader(dataset, batching=rule):
            made = {name: value for name, value in batch.items() if name not in ("y", "z", "max_seqlen")}
            assert all(isinstance(value, kind) for value in made.values())
            assert isinstance(batch["y"], torch.Tensor)
            assert isinstance(batch["z"], numpy.ndarray)
    for output, kind in (("torch", torch.Tensor), ("numpy", numpy.ndarray), ("jax", jax.Array)):
        for rule in (bl.LengthBuckets(5), bl.Packing(20)):
            for batch in bl.DataLoader(dataset, batching=rule, output=output):
                assert all(isinstance(value, kind) for name, value in batch.items() if name != "max_seqlen")


def test_what_a_batch_holds_and_in_which_order():
    dataset = bl.SequenceDataset(x=[[1, 2], [3]], y=numpy.zeros((2, 3)), z=[[0.5, 1.5], [2.5]])
    (batch,) = bl.DataLoader(dataset, 2)
    assert list(batch) == ["x", "y", "z", "attention_mask", "lengths", "index"]
    (batch,) = bl.DataLoader(dataset, 2, labels="x")
    assert list(batch) == ["x", "y", "z", "attention_mask", "lengths", "index", "labels"]
    assert {name: array.dtype.name for name, array in batch.items()} == {
        "x": "int64",
        "y": "float64",
        "z": "float64",
        "attention_mask": "bool",
        "lengths": "int64",
        "index": "int64",
        "labels": "int64",
    }
    assert {name: array.shape for name, array in batch.items()} == {
        "x": (2, 2),
        "y": (2, 3),
        "z": (2, 2),
        "attention_mask": (2, 2),
        "lengths": (2,),
        "index": (2,),
        "labels": (2, 2),
    }


def test_a_dataset_is_a_sequence_of_samples():
    samples = [numpy.arange(size) for size in SIZES]
    dataset = bl.SequenceDataset(x=samples, label=torch.arange(12))
    assert dataset.names == ("x", "label")
    assert dataset[-1]["label"] == 11
    assert dataset[-1]["x"].tolist() == list(range(11))
    assert dataset[numpy.int8(2)]["x"].tolist() == list(range(7))
    for place in (12, -13, 2**70):
        with refused(bl.RangeError, str(place), "12"):
            dataset[place]
    assert "x: int64" in repr(dataset)
    assert "12 samples" in repr(dataset)
    again = bl.SequenceDataset(**dataset.fields)
    assert [sample["x"].tolist() for sample in again] == [sample.tolist() for sample in samples]


def test_a_plan_is_a_batch_sampler_of_the_dataset():
    dataset = batching.dataset(SIZES)
    plan = bl.Plan(sizes=SIZES, batching=bl.TokenBudget(20), shuffle=True)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=plan, collate_fn=list)
    for chosen, batch in zip(plan, loader, strict=True):
        assert [len(sample["x"]) for sample in batch] == [SIZES[sample] for sample in chosen]


# Element types


ARROW = {name: getattr(pyarrow, name)() for name in INTEGERS} | {
    "bool": pyarrow.bool_(),
    "float16": pyarrow.float16(),
    "float32": pyarrow.float32(),
    "float64": pyarrow.float64(),
}


@pytest.mark.parametrize("name", SHARED + FLOATS + FOREIGN)
@pytest.mark.parametrize("inner", [(), (3,)])
def test_every_element_type(name, inner):
    samples = lines(SIZES, name, inner)
    values = numpy.concatenate(samples)
    offsets = numpy.cumsum([0, *SIZES])
    ways = {
        "list": samples,
        "offsets": (values, offsets),
        "tensors": [tensor(sample) for sample in samples],
        "values": (tensor(values), offsets),
    }
    if name in ARROW and not inner:
        ways["arrow"] = pyarrow.chunked_array(
            [pyarrow.array([sample.tolist() for sample in samples], pyarrow.list_(ARROW[name]))]
        )
    for data in ways.values():
        dataset = bl.SequenceDataset(x=data)
        for rule in (bl.LengthBuckets(5), bl.Packing(25)):
            loader = bl.DataLoader(dataset, batching=rule, shuffle=True)
            for chosen, batch in zip(loader.plan(), loader, strict=True):
                if isinstance(rule, bl.Packing):
                    expected = numpy.concatenate([samples[sample] for sample in chosen])
                else:
                    expected = padded(
                        [sample.view(numpy.uint8) if name in FOREIGN and not inner else sample for sample in samples],
                        chosen,
                    )[0]
                    expected = expected.view(samples[0].dtype)
                assert same(batch["x"], expected, data is ways.get("arrow"))


def same(found, expected, numbers):
    """Equal to the last bit; Python's floats on the way to Arrow keep numbers only, not the bits of a NaN."""
    if numbers:
        return (
            numpy.array_equal(found, expected, equal_nan=expected.dtype.kind == "f") and found.dtype == expected.dtype
        )
    return raw(found) == raw(expected)


@pytest.mark.parametrize("name", ARROW)
def test_arrow_types_without_a_copy_of_python(name):
    """The very bits, from buffers; booleans are bits there."""
    values = bits(name, (sum(SIZES),))
    offsets = numpy.cumsum([0, *SIZES]).astype(numpy.int32)
    flat_values = (
        pyarrow.array(values)
        if name == "bool"
        else pyarrow.Array.from_buffers(ARROW[name], len(values), [None, pyarrow.py_buffer(values)])
    )
    lists = pyarrow.chunked_array([pyarrow.ListArray.from_arrays(pyarrow.array(offsets), flat_values)])
    dataset = bl.SequenceDataset(x=lists)
    samples = numpy.split(values, offsets[1:-1])
    loader = bl.DataLoader(dataset, batching=bl.LengthBuckets(5))
    for chosen, batch in zip(loader.plan(), loader, strict=True):
        assert raw(batch["x"]) == raw(padded(samples, chosen)[0])


def test_lists_of_vectors_from_arrow():
    rows = [[[1, 2], [3, 4]], [], [[5, 6]], [[7, 8], [9, 10], [11, 12]]]
    kind = pyarrow.list_(pyarrow.list_(pyarrow.int16(), 2))
    samples = [numpy.array(row, numpy.int16).reshape(-1, 2) for row in rows]
    for lists in (
        pyarrow.chunked_array([pyarrow.array(rows, kind)]),
        pyarrow.chunked_array([pyarrow.array([[[0, 0]], *rows, []], kind)[1:5]]),
        polars.Series(rows, dtype=polars.List(polars.Array(polars.Int16, 2))),
    ):
        dataset = bl.SequenceDataset(x=lists)
        assert sorted(assert_padded(bl.DataLoader(dataset, batching=bl.LengthBuckets(3)), samples)) == [0, 1, 2, 3]
    equal = pyarrow.chunked_array([pyarrow.array([[1, 2], [3, 4], [5, 6]], pyarrow.list_(pyarrow.uint16(), 2))[1:]])
    (batch,) = bl.DataLoader(bl.SequenceDataset(x=equal), 5)
    assert batch["x"].tolist() == [[3, 4], [5, 6]]


# Shapes


def boxes(kind, count=9, seed=0):
    """Samples of several dimensions, some without elements."""
    random = numpy.random.default_rng(seed)
    shapes = {
        "vectors": lambda: (random.integers(0, 9), 5),
        "spectrograms": lambda: (5, random.integers(0, 9)),
        "middle": lambda: (2, random.integers(0, 9), 3),
        "maps": lambda: (random.integers(0, 6), random.integers(0, 6)),
        "images": lambda: (random.integers(1, 6), random.integers(1, 6), 3),
        "volumes": lambda: tuple(random.integers(0, 4, 3)),
        "first and last": lambda: (random.integers(1, 5), 2, random.integers(1, 5)),
        "equal": lambda: (4, 3),
        "empty vectors": lambda: (random.integers(0, 9), 0),
        "no rows": lambda: (0, 3),
        "deep": lambda: (1, 2, random.integers(0, 4), 1, 2, 1),
    }[kind]
    samples = [random.integers(0, 2**15, shapes()).astype(numpy.int16) for _ in range(count)]
    return samples


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


# Padding


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
            (batch,) = bl.DataLoader(
                dataset, 3, pad_value=given_value if isinstance(given_value, dict) else {"x": value}
            )
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
        *[("int64", value) for value in ([1], [1, 2], object(), None, {1})],
        *[("bfloat16", value) for value in ("5", None, [1])],
    ],
    ids=str,
)
def test_padding_that_a_type_cannot_hold(name, value):
    dataset = bl.SequenceDataset(field=[tensor(sample) for sample in lines([2, 5], name)])
    for wrong in (value, {"field": value}):
        with refused(bl.ArgumentError, "pad_value", "field field", name):
            bl.DataLoader(dataset, pad_value=wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int64", float("nan")),
        ("uint8", float("nan")),
        ("bool", float("nan")),
        ("int64", "5"),
        ("float32", "5"),
        ("int64", b"5"),
        ("float32", None),
        ("bool", None),
        ("bool", object()),
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


# Fields


def test_fields_that_share_lengths_and_fields_beside_them():
    sizes = SIZES
    numbers = [numpy.arange(size) + 100 * place for place, size in enumerate(sizes)]
    fields = {
        "tokens": numbers,
        "half": placed([number.astype(numpy.float16) % 97 for number in numbers], 4),
        "marks": [torch.from_numpy(number % 3 == 0) for number in numbers],
        "wide": [numpy.stack([number, -number], 1).astype(numpy.int32) for number in numbers],
        "lists": pyarrow.chunked_array(
            [pyarrow.array([(number % 256).tolist() for number in numbers], pyarrow.list_(pyarrow.uint8()))]
        ),
        "label": numpy.arange(12),
        "weight": torch.arange(12, dtype=torch.bfloat16)[:, None].expand(12, 2),
        "backwards": numpy.arange(24).reshape(12, 2)[::-1],
        "truth": numpy.arange(12) % 2 == 0,
        "nothing": numpy.zeros((12, 0)),
    }
    dataset = bl.SequenceDataset(**fields)
    for rule in (bl.FixedSize(5), bl.TokenBudget(40), bl.Packing(30), bl.Packing(5, oversize="split")):
        for world_size in (1, 3):
            for rank in range(world_size):
                loader = bl.DataLoader(dataset, batching=rule, shuffle=True, rank=rank, world_size=world_size)
                for chosen, batch in zip(loader.plan(), loader, strict=True):
                    tokens = numpy.asarray(batch["tokens"])
                    real = (
                        numpy.asarray(batch["attention_mask"])
                        if "attention_mask" in batch
                        else numpy.ones(len(tokens), bool)
                    )
                    assert (numpy.asarray(batch["half"]).astype(int) * real == (tokens % 97) * real).all()
                    assert (numpy.asarray(batch["marks"]) * real == (tokens % 3 == 0) * real).all()
                    assert (
                        numpy.asarray(batch["wide"]) * real[..., None]
                        == numpy.stack([tokens, -tokens], -1) * real[..., None]
                    ).all()
                    assert (batch["lists"] * real == tokens % 256 * real).all()
                    assert chosen.tolist() == batch["index"].tolist() == batch["label"].tolist()
                    assert batch["weight"].float().tolist() == [[float(sample)] * 2 for sample in chosen]
                    assert batch["backwards"].tolist() == [[22 - 2 * sample, 23 - 2 * sample] for sample in chosen]
                    assert batch["truth"].tolist() == [sample % 2 == 0 for sample in chosen]
                    assert batch["nothing"].shape == (len(chosen), 0)


def test_fields_of_different_ranks_share_the_dimension_that_varies():
    frames = [numpy.arange(2 * size).reshape(2, size) for size in SIZES]
    marks = [numpy.arange(size) for size in SIZES]
    loader = bl.DataLoader(bl.SequenceDataset(frames=frames, marks=marks), batching=bl.LengthBuckets(4), shuffle=True)
    for chosen, batch in zip(loader.plan(), loader, strict=True):
        assert raw(batch["frames"]) == raw(padded(frames, chosen)[0])
        assert raw(batch["marks"]) == raw(padded(marks, chosen)[0])


@given(
    sizes=sized(samples=40),
    rule=rules,
    shuffle=st.booleans(),
    block_bytes=st.integers(1, 3000),
    threads=st.integers(1, 4),
    prefetch=st.integers(1, 3),
    labels=st.booleans(),
    side=st.sampled_from(["right", "left"]),
)
@few
def test_blocks_of_any_size_and_any_threads_give_the_same_bytes(
    sizes, rule, shuffle, block_bytes, threads, prefetch, labels, side
):
    """The size of blocks never shows. The interface has no word for it, so the engine is asked itself."""
    assume(batching.refused(rule, sizes) is None)
    assume(batching.policy(rule) != "drop" or not all(batching.too_large(rule, size) for size in sizes))
    dataset = batching.dataset(sizes, y=numpy.arange(len(sizes)))
    loader = bl.DataLoader(
        dataset, batching=rule, shuffle=shuffle, labels="x" if labels else None, pad_side=side, num_threads=1
    )
    other = bl.DataLoader(dataset, batching=rule, shuffle=shuffle, labels="x" if labels else None, pad_side=side)
    other._native = type(loader._native)(
        dataset._native_dataset(),
        rule._native(),
        shuffle="samples" if shuffle else "nothing",
        drop_last=False,
        seed=0,
        uneven="pad",
        balance=False,
        largest_first=False,
        rank=0,
        world_size=1,
        pad_values=[],
        pad_side=side,
        labels="x" if labels else None,
        num_threads=threads,
        prefetch=prefetch,
        block_bytes=block_bytes,
        poison=True,
    )
    for _ in range(2):
        held = list(other)
        for expected, found in zip(loader, held, strict=True):
            assert list(found) == list(expected)
            assert all(
                found[name] == value if name == "max_seqlen" else raw(found[name]) == raw(value)
                for name, value in expected.items()
            )


def test_loaders_side_by_side_do_not_disturb_each_other():
    sizes = [place * 37 % 101 for place in range(3000)]
    dataset = batching.dataset(sizes)

    def held(threads):
        return [
            batching.held(batch)
            for batch in bl.DataLoader(dataset, batching=bl.TokenBudget(2000), shuffle=True, num_threads=threads)
        ]

    expected, found = held(1), {}
    threads = [
        threading.Thread(target=lambda place=place: found.update({place: held(place)})) for place in (1, 2, 3, 7)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[place] == expected for place in (1, 2, 3, 7))


# Batches belong to who holds them


@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize(
    "rule", [bl.LengthBuckets(5), bl.TokenBudget(100), bl.Packing(64)], ids=lambda rule: type(rule).__name__
)
def test_arrays_are_aligned_compact_writable_and_apart(output, rule):
    sizes = [place * 7 % 23 for place in range(200)]
    dataset = batching.dataset(
        sizes, y=numpy.arange(200, dtype=numpy.uint8), z=numpy.arange(600, dtype=numpy.float32).reshape(200, 3)
    )
    batches = list(bl.DataLoader(dataset, batching=rule, shuffle=True, output=output, labels="x"))
    arrays = [
        (number, value) for number, batch in enumerate(batches) for name, value in batch.items() if name != "max_seqlen"
    ]
    for number, array in arrays:
        address = array.data_ptr() if output == "torch" else array.__array_interface__["data"][0]
        assert address % 64 == 0 or not len(array.reshape(-1))
        assert array.is_contiguous() if output == "torch" else array.flags.c_contiguous
        array[...] = number % 2 if "bool" in str(array.dtype) else number % 100
    assert all(
        (array == (number % 2 if "bool" in str(array.dtype) else number % 100)).all() for number, array in arrays
    )
    again = [batching.held(batch) for batch in bl.DataLoader(dataset, batching=rule)]
    assert sorted(len(row) - 1 for batch in again for row in batch) == sorted(sizes)


def test_writing_to_one_batch_leaves_the_graph_of_another_alone():
    dataset = bl.SequenceDataset(x=[torch.ones(size) for size in SIZES])
    first, second = itertools.islice(bl.DataLoader(dataset, batching=bl.LengthBuckets(6)), 2)
    weight = torch.ones((), requires_grad=True)
    loss = (first["x"] * weight).sum()
    second["x"].zero_()
    loss.backward()
    assert weight.grad == first["x"].sum()
    with torch.inference_mode():
        batch = next(iter(bl.DataLoader(dataset, batching=bl.LengthBuckets(6))))
    assert not batch["x"].is_inference()


KEEP = """
    import sys
    import numpy
    import batchloom as bl

    output = sys.argv[1]
    random = numpy.random.default_rng(0)
    sizes = random.integers(0, 900, 2500)
    offsets = numpy.concatenate([[0], numpy.cumsum(sizes)])
    values = numpy.arange(offsets[-1], dtype=numpy.int32)
    dataset = bl.SequenceDataset(x=(values, offsets), y=numpy.arange(2500))

    def check(batch):
        x, index = numpy.asarray(batch["x"]), numpy.asarray(batch["index"])
        assert (numpy.asarray(batch["y"]) == index).all()
        if "cu_seqlens" in batch:
            ends = numpy.asarray(batch["cu_seqlens"])
            rows = [x[start:end] for start, end in zip(ends, ends[1:])]
        else:
            rows = [row[mask] for row, mask in zip(x, numpy.asarray(batch["attention_mask"]))]
            assert x.sum() == sum(int(row.sum()) for row in rows)
        for row, sample in zip(rows, index):
            assert (row == values[offsets[sample] : offsets[sample + 1]]).all()

    for rule in (bl.TokenBudget(20000), bl.Packing(16384)):
        loader = bl.DataLoader(dataset, batching=rule, shuffle=True, output=output, num_threads=3, labels="x")
        held, count = [], 0
        for epoch in range(2):
            for batch in loader:
                count += 1
                check(batch)
                if count % 3 == 0:
                    held.append(batch)
                del batch
        list(loader)
        for batch in held:
            check(batch)
        del loader
        for batch in held:
            check(batch)
        assert len(held) > 30
"""


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_kept_batches_never_change(script, output):
    script(KEEP, output, BATCHLOOM_POISON=1)


def test_batches_outlive_loader_dataset_and_values():
    batches = list(bl.DataLoader(batching.dataset(SIZES), batching=bl.TokenBudget(20)))
    gc.collect()
    starts = numpy.cumsum([0, *SIZES])
    for batch in batches:
        for sample, *row in batching.held(batch):
            assert row == list(range(starts[sample], starts[sample + 1]))


# Memory: values are borrowed, and read late


def test_values_are_borrowed_and_read_when_blocks_are_formed():
    values = numpy.zeros(sum(SIZES))
    for data in (values, torch.from_numpy(values)):
        dataset = bl.SequenceDataset(x=(data, numpy.cumsum([0, *SIZES])))
        for rule in (bl.TokenBudget(1000), bl.Packing(1000)):
            loader = bl.DataLoader(dataset, batching=rule)
            for number in (7, 8):
                values[:] = number
                (batch,) = loader
                assert float(batch["x"].sum()) == number * sum(SIZES)


def test_arrow_and_jagged_values_are_borrowed():
    values = numpy.zeros(sum(SIZES))
    offsets = numpy.cumsum([0, *SIZES])
    lists = pyarrow.LargeListArray.from_arrays(
        pyarrow.array(offsets),
        pyarrow.Array.from_buffers(pyarrow.float64(), len(values), [None, pyarrow.py_buffer(values)]),
    )
    jagged = torch.nested.nested_tensor_from_jagged(torch.from_numpy(values), torch.from_numpy(offsets))
    for data in (pyarrow.chunked_array([lists]), jagged):
        loader = bl.DataLoader(bl.SequenceDataset(x=data), batching=bl.Packing(1000))
        values[:] = 7
        (batch,) = loader
        assert float(batch["x"].sum()) == 7 * sum(SIZES)
        values[:] = 0


def test_offsets_and_sizes_may_change_afterwards():
    offsets, sizes = numpy.cumsum([0, *SIZES]), numpy.array(SIZES)
    dataset = bl.SequenceDataset(x=(numpy.arange(offsets[-1]), offsets), sizes=sizes)
    offsets[:], sizes[:] = 0, 1
    assert dataset.sizes.tolist() == SIZES
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(20))
    assert sorted(len(row) - 1 for batch in loader for row in batching.held(batch)) == sorted(SIZES)
    assert len(dataset[4]["x"]) == 12
    dataset.sizes[:] = 5
    assert loader.plan(0) == bl.DataLoader(dataset, batching=bl.TokenBudget(20)).plan(0)


@pytest.mark.parametrize("what", ["shapes", "sizes"])
def test_shapes_and_sizes_of_the_very_type_may_change_afterwards(what):
    shapes, sizes = numpy.array([[2, 3], [1, 4]], numpy.uint32), numpy.array([7, 8], numpy.uint32)
    dataset = bl.SequenceDataset(x=(numpy.arange(10), shapes), sizes=sizes)
    {"shapes": shapes, "sizes": sizes}[what][:] = 1
    travelled = pickle.loads(pickle.dumps(dataset))
    assert travelled.sizes.tolist() == [7, 8]
    assert dataset[0]["x"].tolist() == travelled[0]["x"].tolist() == [[0, 1, 2], [3, 4, 5]]


MAPPED = """
    import sys
    import numpy
    import batchloom as bl

    def resident(path):
        pages, here = 0, False
        for line in open("/proc/self/smaps"):
            if "-" in line.split(" ")[0]:
                here = line.rstrip().endswith(path)
            elif here and line.startswith("Rss:"):
                pages += int(line.split()[1])
        return pages * 1024

    path, rule = sys.argv[1], eval(sys.argv[2], vars(bl))
    values = numpy.memmap(path, dtype=numpy.uint8, mode="r", shape=(2**28,))
    offsets = numpy.arange(0, 2**28 + 1, 2**12) - numpy.arange(2**16 + 1) % 7
    offsets[0] = 0
    dataset = bl.SequenceDataset(x=(values, offsets))
    loader = bl.DataLoader(dataset, batching=rule, shuffle=True)
    len(loader), loader.plan().stats(), loader.state_dict(), loader.plan(3)[7]
    dataset.sizes, repr(dataset), repr(loader)
    loader.load_state_dict(loader.state_dict())
    assert resident(path) == 0, resident(path)
    batches = iter(loader)
    next(batches)
    assert 0 < resident(path) < 2**27, resident(path)
"""


@pytest.mark.parametrize("rule", ["TokenBudget(2**18)", "Packing(2**18)", "LengthBuckets(64)"])
def test_nothing_is_read_before_its_block_is_formed(script, tmp_path, rule):
    path = tmp_path / "values.bin"
    with path.open("wb") as file:
        file.truncate(2**28)
    script(MAPPED, path, rule)


def test_a_map_whose_file_was_cut(script, tmp_path):
    path = tmp_path / "values.bin"
    numpy.zeros(4_000_000, numpy.uint8).tofile(path)
    script(
        """
        import os
        import sys
        import numpy
        import batchloom as bl

        values = numpy.memmap(sys.argv[1], dtype=numpy.uint8, mode="r")
        dataset = bl.SequenceDataset(x=(values[100:], numpy.arange(0, 3_000_001, 1000)))
        loader = bl.DataLoader(dataset, batching=bl.TokenBudget(5000), shuffle=True)
        os.truncate(sys.argv[1], 4096)
        for attempt in (lambda: list(loader), lambda: bl.SequenceDataset(x=(values, [0, 5]))):
            try:
                attempt()
            except bl.DataError as error:
                assert "field x" in str(error) and "4096" in str(error), error
            else:
                raise AssertionError("read past the end of a file")
        """,
        path,
    )


def test_values_that_were_resized():
    values = torch.zeros(1000)
    loader = bl.DataLoader(bl.SequenceDataset(tokens=(values, [0, 500, 1000])), 2)
    values.resize_(10_000_000)
    with refused(bl.DataError, "field tokens", "resized"):
        iter(loader)


def blocks():
    gc.collect()
    return sys.getallocatedblocks()


MANY = 50_000


@pytest.mark.parametrize("way", ["list", "offsets", "arrow", "tensors"])
def test_many_sequences_are_not_many_objects(way):
    count = MANY if way != "tensors" else 10_000
    random = numpy.random.default_rng(0)
    offsets = numpy.concatenate([[0], numpy.cumsum(random.integers(0, 9, count))])
    values = numpy.arange(offsets[-1], dtype=numpy.int32)
    data = {
        "list": lambda: numpy.split(values, offsets[1:-1]),
        "offsets": lambda: (values, offsets),
        "arrow": lambda: pyarrow.chunked_array([pyarrow.LargeListArray.from_arrays(offsets, values)]),
        "tensors": lambda: list(torch.from_numpy(values).split(numpy.diff(offsets).tolist())),
    }[way]()
    early = blocks()
    dataset = bl.SequenceDataset(x=data)
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(4096), shuffle=True)
    next(iter(loader))
    if way in ("list", "tensors"):
        early -= count
        del data
    assert blocks() - early < 2000
    assert len(dataset) == count


def test_a_million_sequences_take_the_memory_of_their_numbers(script):
    script(
        """
        import gc
        import numpy
        import batchloom as bl

        def resident():
            gc.collect()
            return int(open("/proc/self/statm").read().split()[1]) * 4096

        offsets = numpy.arange(0, 8_000_001, 8)
        values = numpy.zeros(8_000_000, numpy.int64)
        values[:] = 1
        early = resident()
        dataset = bl.SequenceDataset(x=(values, offsets))
        loader = bl.DataLoader(dataset, batching=bl.TokenBudget(8192), shuffle=True)
        count = sum(len(batch["index"]) for batch in loader)
        assert count == 1_000_000
        # Eight bytes for a start, four for a size, a few times over, and the blocks in flight.
        assert resident() - early < 120 << 20, resident() - early
        """
    )


BOUNDED = """
    import gc
    import sys
    import time
    import numpy
    import batchloom as bl

    def resident():
        gc.collect()
        return int(open("/proc/self/statm").read().split()[1]) * 4096

    rule = eval(sys.argv[1], vars(bl))
    sizes = numpy.random.default_rng(0).lognormal(6, 1, 60_000).astype(int).clip(0, 8192)
    offsets = numpy.concatenate([[0], numpy.cumsum(sizes)])
    values = numpy.broadcast_to(numpy.float32(1), (offsets[-1],))
    loader = bl.DataLoader(bl.SequenceDataset(x=(values, offsets)), batching=rule, shuffle=True, num_threads=2)
    len(loader)
    early, most = resident(), 0
    for number, batch in enumerate(loader):
        del batch
        if number % 100 == 0:
            time.sleep(0.02)
            most = max(most, resident() - early)
    print(most)
"""


@pytest.mark.parametrize("rule", ["TokenBudget(65536)", "Packing(65536)"])
def test_bytes_in_flight_are_bounded(script, rule):
    # Blocks of 4 MiB and a batch, two ahead and one in use; and the pools of the plan.
    assert int(script(BOUNDED, rule)) < 26 << 20


def test_values_are_let_go_with_loader_and_dataset():
    class Owner(numpy.ndarray):
        pass

    values = numpy.arange(float(sum(SIZES))).view(Owner)
    alive = weakref.ref(values)
    loader = bl.DataLoader(bl.SequenceDataset(x=(values, numpy.cumsum([0, *SIZES]))), batching=bl.TokenBudget(20))
    batches = iter(loader)
    held = next(batches)
    del values, loader
    gc.collect()
    assert alive() is not None
    del batches
    gc.collect()
    assert alive() is None
    assert held["lengths"].sum() > 0


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


# Epochs and states, on data


@pytest.mark.parametrize(
    "rule",
    [bl.TokenBudget(60), bl.CostOptimal(bl.CostModel(9, 1, 1)), bl.Packing(60)],
    ids=lambda rule: type(rule).__name__,
)
def test_each_iteration_is_the_next_epoch(rule):
    sizes = [place * 7 % 41 for place in range(80)]
    loader = bl.DataLoader(batching.dataset(sizes), batching=rule, shuffle=True)
    epochs = [[batching.held(batch) for batch in loader] for _ in range(3)]
    assert len(set(map(str, epochs))) == 3
    assert [sorted(flat(epoch)) for epoch in epochs] == [sorted(flat(epochs[0]))] * 3
    for number, epoch in enumerate(epochs):
        loader.set_epoch(number)
        assert len(loader) == len(epoch)
        assert [batching.held(batch) for batch in loader] == epoch


@pytest.mark.parametrize(
    "rule",
    [bl.TokenBudget(60), bl.TokenBudget(30, oversize="truncate"), bl.Packing(60), bl.Packing(16, oversize="split")],
    ids=str,
)
def test_every_rank_knows_the_tokens_of_every_step(rule):
    sizes = [place * 7 % 41 for place in range(80)]
    loaders = [
        bl.DataLoader(batching.dataset(sizes), batching=rule, shuffle=True, rank=rank, world_size=3)
        for rank in range(3)
    ]
    plans = [loader.plan() for loader in loaders]
    for number, batches in enumerate(zip(*loaders, strict=True)):
        tokens = [len(row) - 1 for batch in batches for row in batching.held(batch)]
        assert {(plan.step(number).tokens, plan.step(number).samples) for plan in plans} == {(sum(tokens), len(tokens))}


def test_an_epoch_that_is_interrupted_by_an_exception_goes_on():
    sizes = [place * 7 % 41 for place in range(80)]
    loader = bl.DataLoader(batching.dataset(sizes), batching=bl.TokenBudget(60), shuffle=True)
    whole = [batching.held(batch) for batch in loader]
    loader.set_epoch(0)
    taken = []

    def consume():
        for batch in loader:
            taken.append(batching.held(batch))
            if len(taken) == 5:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        consume()
    resumed = bl.DataLoader(batching.dataset(sizes), batching=bl.TokenBudget(60), shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert taken + [batching.held(batch) for batch in resumed] == whole


def test_interrupted_cuts_lose_nothing():
    sizes = [place * 7 % 41 for place in range(300)]
    loader = bl.DataLoader(batching.dataset(sizes), batching=bl.Packing(60), shuffle=True)
    whole = [batching.held(batch) for batch in loader]
    loader.set_epoch(0)
    (name, take, capsule), *others = loader._delivery.split
    calls, received = [], []

    def interrupted(lent):
        calls.append(name)
        if len(calls) in (1, 4, 40):
            raise KeyboardInterrupt
        return take(lent)

    loader._delivery.split = [(name, interrupted, capsule), *others]
    batches = iter(loader)
    while True:
        try:
            received.append(batching.held(next(batches)))
        except KeyboardInterrupt:
            continue
        except StopIteration:
            break
    assert received == whole
    assert len(calls) > 40


def test_datasets_and_plans_go_to_other_processes(script, tmp_path):
    dataset = bl.SequenceDataset(
        x=polars.Series([list(range(size)) for size in SIZES]),
        y=[numpy.ones(size, numpy.float16) for size in SIZES],
        label=numpy.arange(12),
    )
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(20), shuffle=True)
    batches = iter(loader)
    next(batches), next(batches)
    path = tmp_path / "state"
    path.write_bytes(
        pickle.dumps((dataset, loader.plan(0), loader.state_dict(), [batch["index"].tolist() for batch in batches]))
    )
    script(
        """
        import pickle
        import sys
        import batchloom as bl

        dataset, plan, state, expected = pickle.load(open(sys.argv[1], "rb"))
        loader = bl.DataLoader(dataset, batching=plan.batching, shuffle=True)
        assert loader.plan(0) == plan
        loader.load_state_dict(state)
        assert [batch["index"].tolist() for batch in loader] == expected
        """,
        path,
    )


def test_a_forked_child_sees_the_dataset(script):
    script(
        """
        import os
        import numpy
        import batchloom as bl

        dataset = bl.SequenceDataset(x=[numpy.arange(size) for size in (3, 0, 7, 1)])
        loader = bl.DataLoader(dataset, batching=bl.TokenBudget(9))
        assert sum(len(batch["index"]) for batch in loader) == 4
        child = os.fork()
        if child == 0:
            count = sum(len(batch["index"]) for batch in bl.DataLoader(dataset, batching=bl.Packing(9)))
            os._exit(count)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
        """
    )


@pytest.mark.parametrize("samples", [[[0.5], []], [[], [0.5]], [[True], []], [[], [[1, 2]]]], ids=str)
def test_empty_lists_beside_lists_of_other_numbers(samples):
    dataset = bl.SequenceDataset(x=samples)
    assert dataset.sizes.tolist() == [len(sample) for sample in samples]


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame])
def test_columns_of_a_frame(frame):
    table = frame({"tokens": [[0, 1], [2], []], "label": [3, 4, 5]})
    dataset = bl.SequenceDataset(tokens=table["tokens"], label=table["label"])
    (batch,) = bl.DataLoader(dataset, batch_size=3)
    assert batch["tokens"].tolist() == [[0, 1], [2, 0], [0, 0]]
    assert batch["label"].tolist() == [3, 4, 5]
