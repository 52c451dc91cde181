"""Streams of tokens that make no sense: errors of ours, with the number or the name that is wrong."""

import batchloom as bl
import numpy
import polars
import pyarrow
import pytest
import torch
from named import named
from refusals import refused

X = numpy.arange(20, dtype=numpy.uint16)
TOKENS = {
    "uint64": (X.astype("u8"), bl.DataError, ("uint64",)),
    "float32": (X.astype("f4"), bl.DataError, ("float32",)),
    "bool": (X > 3, bl.DataError, ("bool",)),
    "complex": (X * 1j, bl.DataError, ("complex128",)),
    "datetime": (X.astype("M8[s]"), bl.Error, ("datetime64[s]",)),
    "big-endian": (X.astype(">u2"), bl.DTypeError, ("byte order",)),
    "objects": (X.astype(object), bl.Error, ("object",)),
    "2-D": (X.reshape(4, 5), bl.DataError, ("[4, 5]",)),
    "0-D": (numpy.array(5), bl.DataError, ("[]",)),
    "masked": (numpy.ma.masked_array(X), bl.DataError, ("masked",)),
    "floats on a device": (torch.arange(5.0, device="meta"), bl.DataError, ("float32",)),
    "lists on two devices": (
        [torch.arange(5), torch.arange(5, device="meta")],
        bl.DeviceError,
        ("sample 1", "meta", "sample 0", "cpu"),
    ),
    "float lists": ([[0.5], [1.5]], bl.DataError, ("float64",)),
    "lists of lists": ([[[1, 2]], [[3, 4]]], bl.DataError, ("dimension",)),
    "lists of two types": ([X, X.astype("u4")], bl.DTypeError, ("sample 1", "uint32")),
    "no documents": ([], bl.DataError, ("empty",)),
    "one document": ([1, 2, 3], bl.DataError, ("sample 0", "int")),
    "text": ("text", bl.DataError, ("str",)),
    "None": (None, bl.DataError, ("NoneType",)),
    "dict": ({"tokens": X}, bl.DataError, ("dict",)),
    "arrow nulls": (pyarrow.array([1, None, 3]), bl.DataError, ("null",)),
    "arrow null documents": (pyarrow.array([[1], None]), bl.DataError, ("sample 1", "null")),
    "arrow floats": (pyarrow.array([[0.5], [1.5]]), bl.DataError, ("float64",)),
    "arrow uint64": (pyarrow.array([[5]], pyarrow.list_(pyarrow.uint64())), bl.DataError, ("uint64",)),
    "frame": (polars.DataFrame({"tokens": [1, 2]}), bl.DTypeError, ("tokens",)),
    "offsets past the end": ((X, [0, 21]), bl.DataError, ("21",)),
    "offsets of floats": ((X, [0.0, 20.0]), bl.DataError, ("float64",)),
    "shapes": ((X, [[4, 5]]), bl.DataError, ("dimension",)),
}


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_that_are_refused(name):
    tokens, kind, values = TOKENS[name]
    with refused(kind, *values):
        bl.TokenDataset(tokens, 2)


OFFSETS = {
    "not from 0": ([1, 20], ("1", "20")),
    "not to the end": ([0, 19], ("19", "20")),
    "past the end": ([0, 21], ("21", "20")),
    "decreasing": ([0, 9, 5, 20], ("document 1", "9", "5")),
    "negative": ([0, -3, 20], ("document 0", "-3")),
    "NaN": ([0, float("nan"), 20], ("float64",)),
    "floats": ([0.0, 20.0], ("float64",)),
    "none": ([], ("shape",)),
    "2-D": ([[0, 20]], ("(1, 2)",)),
    "bools": ([False, True], ("bool",)),
    "null": ([0, None, 20], ("object",)),
    "text": ("words", ("<U5",)),
    "too large": (numpy.array([0, 2**63 + 5, 20], numpy.uint64), ("offset 1", str(2**63 + 5))),
}


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_that_are_refused(name):
    documents, values = OFFSETS[name]
    with refused(bl.DataError, *values):
        bl.TokenDataset(X, 2, documents=documents)


CONTINUOUS = {"mode": "continuous"}
ARGUMENTS = [
    *(
        ({"seq_len": value}, {}, ("seq_len", repr(value)))
        for value in (0, -1, 2.0, 2**63, True, None, "4", float("nan"))
    ),
    *(({"separator": value}, {}, ("separator", repr(value))) for value in (1.0, "a", True, 2**63, -(2**63) - 1, [1])),
    *(({"documents": value}, {}, ("documents",)) for value in (3.0, True, 2**63, iter([0, 20]))),
    ({"tokens": [[1], [2]], "documents": [0, 1, 2]}, {}, ("documents",)),
    ({"mode": "bptt"}, {}, ("'bptt'",)),
    ({"mode": None}, {}, ("None",)),
    *(({}, {"shuffle": value}, ("shuffle", repr(value))) for value in ("nonsense", "", "samples", "document")),
    *((CONTINUOUS, {"shuffle": value}, ("shuffle", "continuous")) for value in (True, 1, "chunks", "runs", "nonsense")),
    ({}, {"batching": bl.TokenBudget(100)}, ("TokenBudget",)),
    *((CONTINUOUS, {"batching": rule}, ("FixedSize",)) for rule in (bl.TokenBudget(100), bl.LengthBuckets(2))),
    ({}, {"labels": "tokens"}, ("labels",)),
    *(({}, {name: value}, ("numpy", 'output="torch"')) for name, value in (("resident", True), ("resident", 9))),
    ({}, {"output": "torch", "resident": 1}, ("resident", "1", "bytes")),
    ({}, {"device": "meta:x"}, ("meta:x",)),
    ({}, {"device": "meta", "output": "numpy"}, ("numpy", "meta")),
    ({"tokens": torch.arange(20, device="meta")}, {"device": "cpu"}, ("data", "meta", "device", "cpu")),
    ({"tokens": torch.arange(20, device="meta")}, {"resident": False}, ("data", "meta")),
    ({}, {"pad_value": 1}, ("pad_value", "1")),
    ({}, {"output": "tf"}, ("output", "'tf'")),
    (CONTINUOUS, {"batch_size": 10}, ("20 tokens", "10 rows", "2")),
    (CONTINUOUS, {"batch_size": 2**63}, ("20 tokens",)),
    (CONTINUOUS, {"batch_size": 5, "rank": 1, "world_size": 2}, ("10 rows",)),
]


@pytest.mark.parametrize(("dataset", "loader", "values"), ARGUMENTS, ids=named)
def test_arguments_that_make_no_sense(dataset, loader, values):
    with refused((bl.ArgumentError, bl.DeviceError), *values):
        bl.DataLoader(
            bl.TokenDataset(**({"tokens": X, "seq_len": 2} | dataset)),
            **({} if "batching" in loader else {"batch_size": 2}) | loader,
        )


@pytest.mark.parametrize("rows", [0, -1, 1.5, True])
def test_stats_of_rows_that_make_no_sense(rows):
    with refused(bl.ArgumentError, "rows", str(rows)):
        bl.TokenDataset(X, 2, mode="continuous").stats(rows)


def test_streams_alone_shuffle_documents():
    for shuffle in ("documents", "chunks"):
        with refused(bl.ArgumentError, shuffle):
            bl.DataLoader(bl.TensorDataset(X), 2, shuffle=shuffle)


WRONG = {
    "three documents": {"tokens": ([1, 2], [3], [4, 5])},
    "one document": {"tokens": ([1, 2, 3],)},
    "no integer": {"separator": numpy.array(1.5)},
    "two integers": {"separator": numpy.array([1, 2])},
    "ragged": {"documents": [[1], [2, 3]]},
    "gradient": {"documents": torch.tensor([0.0, 20.0], requires_grad=True)},
    "bfloat16": {"documents": torch.tensor([0, 20], dtype=torch.bfloat16)},
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_ours(name):
    with pytest.raises(bl.Error):
        bl.TokenDataset(**({"tokens": X, "seq_len": 2} | WRONG[name]))


def test_offsets_are_named_plainly():
    with refused(bl.DataError, "1", "20"):
        bl.TokenDataset(X, 2, documents=[1, 20])
