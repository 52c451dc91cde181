"""Groups of rows that make no sense: a clear error of the right class, with the numbers in question."""

import batchloom as bl
import jax
import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from refusals import refused

IDS = [5, 5, 3, 5, -7, -7, 3]
TEXTS = list("bbabccz")
ROWS = len(IDS)
NULLABLE = numpy.dtypes.StringDType(na_object=None)
VALUES = numpy.arange(ROWS * 3.0).reshape(ROWS, 3)


@pytest.mark.parametrize(
    ("names", "kind", "parts"),
    [
        (IDS[:6], bl.DataError, ("7 rows", "6")),
        ([*IDS, 1], bl.DataError, ("7 rows", "8")),
        ([], bl.DataError, ("empty",)),
        (numpy.zeros(0, "U3"), bl.DataError, ("empty",)),
        (torch.zeros(0, dtype=torch.long), bl.DataError, ("empty",)),
        (numpy.zeros((ROWS, 1), int), bl.DataError, ("(7, 1)",)),
        (torch.zeros(ROWS, 2), bl.DataError, ("(7, 2)",)),
        (pandas.DataFrame({"a": IDS}), bl.DataError, ("(7, 1)",)),
        (numpy.array(5), bl.DataError, ("()",)),
        (5, bl.DataError, ()),
        (None, bl.DataError, ()),
        ("abcdefg", bl.DataError, ()),
        ([1, 2, float("nan"), 3, 3, 3, 3], bl.DataError, ("row 2", "no id")),
        (numpy.array([1, 2, numpy.nan, 3, 3, 3, 3]), bl.DataError, ("row 2",)),
        (torch.tensor([1, 2, torch.nan, 3, 3, 3, 3]), bl.DataError, ("row 2",)),
        (["a", None, *TEXTS[:5]], bl.DataError, ("row 1",)),
        (["a", float("nan"), *TEXTS[:5]], bl.DataError, ("row 1",)),
        (("a", float("nan"), *TEXTS[:5]), bl.DataError, ("row 1",)),
        (numpy.array(["NaT"] * ROWS, "M8[s]"), bl.DataError, ("row 0",)),
        (pandas.Series([1, None, 3, 4, 5, 6, 7], dtype="Int64"), bl.DataError, ("row 1",)),
        (pandas.Series(["a", None, *TEXTS[:5]]), bl.DataError, ("row 1",)),
        (pandas.Series(["a", None, *TEXTS[:5]], dtype="string"), bl.DataError, ("row 1",)),
        (pandas.Series(pandas.Categorical(["a", None, *TEXTS[:5]])), bl.DataError, ("row 1",)),
        (polars.Series([1, None, 3, 4, 5, 6, 7]), bl.DataError, ("nulls",)),
        (pyarrow.array([1, None, 3, 4, 5, 6, 7]), bl.DataError, ("nulls",)),
        (pyarrow.chunked_array([["a", None], TEXTS[:5]]), bl.DataError, ("nulls",)),
        (numpy.ma.array(IDS, mask=[0, 0, 0, 1, 0, 0, 0]), bl.DataError, ("masked",)),
        (numpy.ma.array(TEXTS, mask=[0, 0, 0, 1, 0, 0, 0]), bl.DataError, ("masked",)),
        (numpy.array(["a", None, *TEXTS[:5]], NULLABLE), bl.DataError, ("row 1",)),
        (numpy.array(IDS) + 0.5, bl.DTypeError, ("float64",)),
        (numpy.array([numpy.inf] * ROWS), bl.DTypeError, ("float64",)),
        (numpy.array([2.0**63] * ROWS), bl.DTypeError, ("float64",)),
        ([2**70, *IDS[:6]], bl.DTypeError, ("int64", "uint64", str(2**70))),
        (numpy.array(IDS, complex), bl.DTypeError, ("complex128",)),
        (numpy.array(IDS, "M8[s]"), bl.DTypeError, ("datetime64[s]",)),
        (numpy.array(IDS, ">i8"), bl.DTypeError, ("byte order",)),
        (numpy.zeros(ROWS, [("a", "i4")]), bl.DTypeError, ()),
        ([[1], [1, 2], *[[1]] * 5], bl.DTypeError, ()),
        (pandas.Series([(1, 2)] * ROWS), bl.DTypeError, ("integers", "texts")),
        (torch.tensor(IDS, dtype=torch.bfloat16), bl.DTypeError, ("bfloat16",)),
        (jax.numpy.asarray(IDS, "bfloat16"), bl.DTypeError, ("bfloat16",)),
        (torch.zeros(ROWS, dtype=torch.long, device="meta"), bl.DeviceError, ("meta",)),
        (torch.tensor(IDS).to_sparse(), bl.DataError, ("torch.sparse_coo", "to_dense")),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type | tuple) else "",
)
def test_ids_that_are_none(names, kind, parts):
    for layout in ("concatenated", "padded"):
        with refused(kind, *parts):
            bl.GroupDataset(names, VALUES, layout=layout)


@pytest.mark.parametrize(
    ("values", "kind", "parts"),
    [
        ([1] * (ROWS - 1), bl.DataError, ("6 rows", "7")),
        ([VALUES] * ROWS, bl.DataError, ("list",)),
        (None, bl.DataError, ("NoneType",)),
        (numpy.array(3.0), bl.DataError, ("scalar",)),
        (VALUES[:6], bl.DataError, ("6 rows", "7")),
        (VALUES.astype(">f8"), bl.DTypeError, ("byte order",)),
        (numpy.array(TEXTS), bl.DTypeError, ("<U1",)),
        (numpy.array(TEXTS, object), bl.DTypeError, ("object",)),
        (numpy.ma.array(VALUES, mask=VALUES > 3), bl.DataError, ("masked",)),
        (torch.zeros(ROWS - 1, 2, device="meta"), bl.DataError, ("6 rows", "7")),
        (torch.eye(ROWS).to_sparse(), bl.DataError, ("torch.sparse_coo", "to_dense")),
        (pyarrow.chunked_array([[1, None, 3], [4, 5, 6, 7]]), bl.DataError, ("null", "sample 1")),
        (polars.Series([1, None, 3, 4, 5, 6, 7]), bl.DataError, ("nulls",)),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type | tuple) else "",
)
def test_arrays_that_are_none(values, kind, parts):
    with refused(kind, "x" if "nulls" not in parts else "", *parts):
        bl.GroupDataset(IDS, x=values)


@pytest.mark.parametrize(
    ("options", "kind", "parts"),
    [
        ({"max_rows": 0}, bl.ArgumentError, ("max_rows", "0", "at least 1")),
        ({"max_rows": -3}, bl.ArgumentError, ("max_rows", "-3")),
        ({"max_rows": 2.0}, bl.ArgumentError, ("max_rows", "2.0")),
        ({"max_rows": True}, bl.ArgumentError, ("max_rows", "True")),
        ({"max_rows": "3"}, bl.ArgumentError, ("max_rows", "3")),
        ({"max_rows": 2**32}, bl.ArgumentError, ("max_rows", str(2**32))),
        ({"max_rows": 2}, bl.DataError, ("group 0", "3 rows", "max_rows is 2")),
        ({"oversize": "drop"}, bl.ArgumentError, ("oversize", "drop", "error", "truncate", "subsample")),
        ({"oversize": None}, bl.ArgumentError, ("oversize", "None")),
        ({"layout": "ragged"}, bl.ArgumentError, ("layout", "ragged", "concatenated", "padded")),
        ({"layout": None}, bl.ArgumentError, ("layout", "None")),
        *(({name: VALUES}, bl.ArgumentError, (name,)) for name in ("group_ids", "offsets", "mask")),
    ],
    ids=str,
)
def test_options_that_make_no_sense(options, kind, parts):
    with refused(kind, *parts):
        bl.GroupDataset(IDS, **{"x": VALUES} | options)


def test_arrays_with_and_without_names():
    with refused(bl.ArgumentError, "mixed"):
        bl.GroupDataset(IDS, VALUES, x=VALUES)


@pytest.mark.parametrize(
    ("layout", "options", "kind", "parts"),
    [
        ("concatenated", {"batching": bl.Packing(9, oversize="split")}, bl.ArgumentError, ("split",)),
        ("padded", {"batching": bl.Packing(9)}, bl.ArgumentError, ("Packing", "concatenated")),
        ("concatenated", {"batching": bl.Packing(2)}, bl.DataError, ("sample 0", "3", "2")),
        ("concatenated", {"batching": bl.TokenBudget(2)}, bl.DataError, ("sample 0", "3", "2")),
        ("padded", {"batching": bl.TokenBudget(2)}, bl.DataError, ("sample 0", "3", "2")),
        ("concatenated", {"labels": "x"}, bl.ArgumentError, ("labels", "x")),
        ("concatenated", {"labels": "x"}, bl.ArgumentError, ("sequence",)),
        ("concatenated", {"resident": True}, bl.ArgumentError, ("resident",)),
        ("padded", {"resident": False}, bl.ArgumentError, ("resident",)),
        ("padded", {"resident": 9}, bl.ArgumentError, ("resident",)),
        ("padded", {"device": "cuda"}, bl.DeviceError, ("cuda",)),
        ("padded", {"fields": {"y": bl.Field(pad=0)}}, bl.ArgumentError, ("'y'", "'x'")),
        ("padded", {"pad_value": "a"}, bl.ArgumentError, ("pad_value", "'a'", "edge")),
        ("padded", {"pad_side": "top"}, bl.ArgumentError, ("top", "left")),
        ("padded", {"output": "tensorflow"}, bl.ArgumentError, ("tensorflow",)),
        ("padded", {"shuffle": "runs"}, bl.ArgumentError, ("runs",)),
        ("padded", {"batch_size": 4, "drop_last": True}, bl.ArgumentError, ("3 samples", "4")),
    ],
    ids=str,
)
def test_loaders_that_make_no_sense(layout, options, kind, parts):
    dataset = bl.GroupDataset(IDS, x=VALUES, layout=layout)
    with refused(kind, *parts):
        bl.DataLoader(dataset, **options)


def test_padded_groups_without_arrays():
    with refused(bl.DataError, "array", "padded"):
        bl.GroupDataset(IDS, layout="padded")


@pytest.mark.parametrize("place", [3, -4, 2**70])
def test_groups_that_are_not_there(place):
    with refused(bl.RangeError, str(place), "3"):
        bl.GroupDataset(IDS, VALUES)[place]


def test_another_plan_is_not_gone_on_with():
    state = bl.DataLoader(bl.GroupDataset(IDS, VALUES), batching=bl.TokenBudget(5)).state_dict()
    for other in (bl.GroupDataset(IDS[::-1], VALUES), bl.GroupDataset(IDS, VALUES, max_rows=1, oversize="truncate")):
        loader = bl.DataLoader(other, batching=bl.TokenBudget(5))
        if other.sizes.tolist() != [3, 2, 2]:
            with refused(bl.StateError, "fingerprint"):
                loader.load_state_dict(state)
