"""Sequences of any length: every way in, every element type, and fields beside each other."""

import itertools
import pickle

import batchloom as bl
import jax
import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from oracles import batching
from oracles.elements import FOREIGN, INTEGERS, TYPES, arbitrary, raw, tensor
from oracles.sequences import SIZES, assert_padded, lines, padded, placed
from refusals import refused


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


@pytest.mark.parametrize("name", [name for name in TYPES if not name.endswith("fnuz")])
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
    values = arbitrary(name, (sum(SIZES),))
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


# Fields


@pytest.mark.law("L9")
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
