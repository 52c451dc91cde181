"""Series of every kind go in: arrays, lists, Arrow columns, frames; and what belongs to their steps."""

import datetime
import itertools

import batchloom as bl
import jax.numpy
import ml_dtypes
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.windows import Shape, equal, loader_of, shapes
from refusals import refused

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")


def contents(dataset, **options):
    """All windows, as one batch of lists."""
    loader = bl.DataLoader(dataset, batch_size=10_000, shuffle=True, **options)
    order = loader.plan(0)[0].argsort()
    batch = next(iter(loader))
    batch = batch.values() if isinstance(batch, dict) else batch
    return [numpy.asarray(array)[order].tolist() for array in batch]


# Series of every kind

LISTS = {
    "NumPy": lambda arrays: arrays,
    "torch": lambda arrays: list(map(torch.as_tensor, arrays)),
    "JAX": lambda arrays: list(map(jax.numpy.asarray, arrays)),
    "values and offsets": lambda arrays: (numpy.concatenate(arrays), offsets_of(arrays)),
    "tensor and offsets": lambda arrays: (torch.as_tensor(numpy.concatenate(arrays)), torch.tensor(offsets_of(arrays))),
    "small offsets": lambda arrays: (numpy.concatenate(arrays), offsets_of(arrays).astype(numpy.uint8)),
    "turned": lambda arrays: (numpy.asfortranarray(numpy.concatenate(arrays)), offsets_of(arrays).tolist()),
}
COLUMNS = {
    "lists": lambda arrays: [array.tolist() for array in arrays],
    "pyarrow": lambda arrays: pyarrow.array([array.tolist() for array in arrays], pyarrow.list_(pyarrow.int64())),
    "pyarrow large": lambda arrays: pyarrow.array(
        [array.tolist() for array in arrays], pyarrow.large_list(pyarrow.int64())
    ),
    "pyarrow chunks": lambda arrays: pyarrow.chunked_array(
        [[array.tolist()] for array in arrays], pyarrow.list_(pyarrow.int64())
    ),
    "pyarrow slice": lambda arrays: pyarrow.array(
        [[1, 2], *(array.tolist() for array in arrays), [3]], pyarrow.list_(pyarrow.int64())
    )[1:-1],
    "polars": lambda arrays: polars.Series([array.tolist() for array in arrays], dtype=polars.List(polars.Int64)),
    "pandas": lambda arrays: pandas.Series(
        [array.tolist() for array in arrays], dtype=pandas.ArrowDtype(pyarrow.list_(pyarrow.int64()))
    ),
    "nested": lambda arrays: torch.nested.nested_tensor(list(map(torch.as_tensor, arrays)), layout=torch.jagged),
}
WHOLE = {
    "NumPy": numpy.asarray,
    "torch": torch.as_tensor,
    "JAX": jax.numpy.asarray,
    "pyarrow": pyarrow.array,
    "pyarrow slice": lambda array: pyarrow.array(numpy.concatenate([[7], array, [8]]))[1:-1],
    "pyarrow chunks": lambda array: pyarrow.chunked_array([array[:9], array[9:]]),
    "polars": polars.Series,
    "pandas": pandas.Series,
    "pandas of Arrow": lambda array: pandas.Series(array, dtype="int64[pyarrow]"),
    "pandas with a place for nulls": lambda array: pandas.Series(array, dtype="Int64"),
}


def offsets_of(arrays):
    return numpy.cumsum([0, *map(len, arrays)])


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_series(kind):
    shape = Shape((20, 3, 0, 30), 5, 2, short="drop")
    arrays, marks = shape.arrays(), LISTS[kind]([a[:, 0] for a in shape.arrays()])
    dataset = bl.WindowDataset(LISTS[kind](arrays), 5, 2, mask=True, marks=marks, short="drop")
    for mode in ("views", "copy", "rows"):
        loader = loader_of(dataset, mode, 7)
        for samples, (x, y, x_mark, y_mark, *masks) in zip(loader.plan(0), loader, strict=True):
            assert equal((x, y, *masks), shape.stack(samples))
            assert equal((x_mark, y_mark), [shape.stack(samples)[k][..., 0] for k in (0, 1)])


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_series(kind):
    arrays = [numpy.arange(1, 21), numpy.arange(30, 33), numpy.arange(50, 80)]
    expected = contents(bl.WindowDataset(arrays, 5, 2, mask=True))
    dataset = bl.WindowDataset(COLUMNS[kind](arrays), 5, 2, mask=True, past={"more": COLUMNS[kind](arrays)})
    x, y, *rest = contents(dataset)
    assert [x, y] == expected[:2]
    assert sorted(map(str, rest)) == sorted(map(str, [expected[0], *expected[2:]]))


@pytest.mark.parametrize("kind", ["pyarrow", "polars", "offsets"])
@pytest.mark.parametrize("cut", [slice(0, 2), slice(1, 3), slice(1, 2)])
def test_some_of_the_series_of_a_column(kind, cut):
    """Steps outside of the cut are still in memory, before and after."""
    arrays = [numpy.arange(1, 21), numpy.arange(30, 33), numpy.arange(50, 80)]
    column = {
        "pyarrow": COLUMNS["pyarrow"](arrays)[cut],
        "polars": COLUMNS["polars"](arrays)[cut],
        "offsets": (numpy.concatenate(arrays), offsets_of(arrays)[cut.start : cut.stop + 1]),
    }[kind]
    times = [numpy.arange(len(array)) for array in arrays[cut]]
    marks = [array * 2 for array in arrays[cut]]
    assert contents(bl.WindowDataset(column, 5, 2, marks=marks, time=times)) == contents(
        bl.WindowDataset(arrays[cut], 5, 2, marks=marks)
    )
    assert contents(bl.WindowDataset(arrays[cut], 5, 2, marks=column)) == contents(
        bl.WindowDataset(arrays[cut], 5, 2, marks=arrays[cut])
    )


@pytest.mark.parametrize("kind", WHOLE)
def test_one_series(kind):
    values = numpy.arange(1, 21)
    expected = contents(bl.WindowDataset(values, 5, 2, mask=True, marks=values * 2))
    dataset = bl.WindowDataset(WHOLE[kind](values), 5, 2, mask=True, marks=WHOLE[kind](values * 2))
    assert contents(dataset) == expected
    assert contents(dataset, output="torch") == expected
    for sample, window in enumerate(zip(*expected, strict=True)):
        assert equal(dataset[sample], list(map(numpy.array, window)))
    padded = bl.WindowDataset(WHOLE[kind](values[:3]), 4, 1, patch_len=2)
    assert [numpy.asarray(part).tolist() for part in padded[0]] == [[[0, 0], [1, 2]], [3]]


@given(shape=shapes(series=3), kinds=st.tuples(*[st.sampled_from(["flat", "list", "offsets"])] * 3))
def test_what_belongs_to_each_step_comes_in_any_form(shape, kinds):
    assume(shape.horizon and len(shape.lengths) > 1)
    arrays = shape.arrays()
    forms = {
        "flat": numpy.concatenate,
        "list": lambda parts: parts,
        "offsets": lambda parts: (torch.as_tensor(numpy.concatenate(parts)), shape.offsets()),
    }
    marks, past, future = (forms[kind]([a[:, k] for a in arrays]) for k, kind in enumerate(kinds))
    dataset = bl.WindowDataset(arrays, **shape.options(), marks=marks, past={"p": past}, future={"f": future})
    for samples, batch in zip((loader := bl.DataLoader(dataset, batch_size=5)).plan(0), loader, strict=True):
        x, y, *masks = shape.data(samples)
        names = ["x", "y", "x_mark", "y_mark", "p", "f", "mask", "target_mask"]
        assert list(batch) == names[: 6 + len(masks)]
        assert equal(batch, [x, y, x[..., 0], y[..., 0], x[..., 1], y[..., 2], *masks])


# Frames


def table():
    """Three series of 9, 4 and 12 days, their columns of many types."""
    lengths, rows = (9, 4, 12), 25
    return {
        "name": list(itertools.chain(*([name] * length for name, length in zip("bca", lengths, strict=True)))),
        "day": numpy.concatenate([numpy.datetime64("2020-01-01") + numpy.arange(length) for length in lengths]),
        "load": numpy.arange(1, rows + 1) * 1.5,
        "count": numpy.arange(1, rows + 1),
        "holiday": numpy.arange(rows) % 7 == 0,
        "hour": numpy.arange(rows) % 24,
    }


FRAMES = {
    "dict": dict,
    "pandas": pandas.DataFrame,
    "pandas with an index": lambda data: pandas.DataFrame(data, index=numpy.arange(25) % 3),
    "pandas of Arrow": lambda data: pandas.DataFrame(data).convert_dtypes(dtype_backend="pyarrow"),
    "pandas with places for nulls": lambda data: pandas.DataFrame(data).convert_dtypes(),
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.table,
    "pyarrow in chunks": lambda data: pyarrow.concat_tables([pyarrow.table(data)[:7], pyarrow.table(data)[7:]]),
    "record batch": pyarrow.RecordBatch.from_pydict,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames(kind):
    data = table()
    values = numpy.stack([data["load"], data["count"], data["holiday"]], 1)
    marks, offsets = data["hour"][:, None], [0, 9, 13, 25]
    expected = bl.WindowDataset((values, offsets), 4, 2, targets=[1], marks=marks, mask=True)
    dataset = bl.WindowDataset(
        FRAMES[kind](data), 4, 2, id="name", time="day", targets="count", marks=["column.hour"], mask=True
    )
    assert contents(dataset) == contents(expected)
    assert dataset.ids == ["b", "c", "a"]
    assert dataset.offsets.tolist() == offsets
    early, late = dataset.split(early="2020-01-06", late=None)
    places = [early.place(k) for k in range(len(early))]
    assert [(series, start + missing) for series, start, missing in places] == [(0, 0), (1, 0), (2, 0)]
    assert {late.place(k).series for k in range(len(late))} == {0, 2}


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_that_are_chosen(kind):
    data = FRAMES[kind](table())
    x, y = contents(bl.WindowDataset(data, 20, 1, columns=["count", "load"], targets=["load"]))
    assert (x[0][0], y[0][0]) == ([1, 1.5], [31.5])
    x, y = contents(bl.WindowDataset(data, 20, 1, columns=("count",), targets="load"))
    assert (x[0][0], y[0][0]) == ([1], [31.5])
    x, y = contents(bl.WindowDataset(data, 20, 1, columns="count", targets=["load", "count"]))
    assert (x[0][0], y[0][0]) == ([1], [31.5, 21])


@pytest.mark.parametrize("names", [pandas.Index, numpy.array, tuple, list, lambda names: dict.fromkeys(names).keys()])
def test_names_in_any_container(names):
    data = pandas.DataFrame({"u": numpy.arange(9.0), "v": numpy.arange(9.0) * 10, "w": numpy.arange(9.0) * 100})
    columns, targets, marks = map(names, (["w", "u"], ["v", "u"], ["v", "w"]))
    dataset = bl.WindowDataset(data, 2, 1, columns=columns, targets=targets, marks=marks)
    x, y, x_mark, _ = dataset[0]
    assert (x.tolist(), y.tolist(), x_mark.tolist()) == ([[0, 0], [100, 1]], [[20, 2]], [[0, 0], [10, 100]])


IDS = {
    "integers": [3, 3, 1, 1, 2],
    "large": [2**62, 2**62, 2**62 + 1, 2**62 + 1, 5],
    "texts": list("ccaab"),
    "truths": [True, True, False, False, False],
    "dates": [datetime.date(2020, 1, day) for day in (3, 3, 1, 1, 2)],
    "floats": [0.5, 0.5, 1.5, 1.5, -1.0],
}


@pytest.mark.parametrize("frame", [dict, pandas.DataFrame, polars.DataFrame, pyarrow.table])
@pytest.mark.parametrize("kind", IDS)
def test_ids_of_every_kind(frame, kind):
    dataset = bl.WindowDataset(frame({"id": IDS[kind], "v": numpy.arange(5.0)}), (2, 2), id="id", short="drop")
    ids = [key for key, _ in itertools.groupby(IDS[kind])]
    found = [name.date() if isinstance(name, datetime.datetime) else name for name in dataset.ids]
    assert found == ids
    assert [dataset.place(k).series for k in range(len(dataset))] == ([0, 1, 1] if kind == "truths" else [0, 1])


@pytest.mark.parametrize(
    "frame",
    [
        pandas.DataFrame({"id": pandas.Categorical(list("ccaab")), "v": numpy.arange(5.0)}),
        pandas.DataFrame({"id": pandas.array(list("ccaab"), dtype="string"), "v": numpy.arange(5.0)}),
        polars.DataFrame({"id": polars.Series(list("ccaab"), dtype=polars.Categorical), "v": numpy.arange(5.0)}),
        polars.DataFrame({"id": polars.Series(list("ccaab"), dtype=polars.Enum(list("abc"))), "v": numpy.arange(5.0)}),
        pyarrow.table({"id": pyarrow.array(list("ccaab")).dictionary_encode(), "v": numpy.arange(5.0)}),
        {"id": numpy.array(list("ccaab"), dtype=numpy.dtypes.StringDType()), "v": numpy.arange(5.0)},
    ],
    ids=["pandas", "pandas string", "polars", "polars Enum", "pyarrow", "NumPy"],
)
def test_ids_that_are_categories_or_texts(frame):
    assert bl.WindowDataset(frame, 1, id="id").ids == ["c", "a", "b"]


ZONED = pandas.date_range("2020-01-01", periods=20, freq="h", tz="Europe/Berlin")


@pytest.mark.parametrize(
    "frame",
    [
        pandas.DataFrame({"t": ZONED, "v": numpy.arange(20.0)}),
        polars.DataFrame({"t": polars.Series(ZONED.to_pydatetime().tolist()), "v": numpy.arange(20.0)}),
        pyarrow.table({"t": pyarrow.array(ZONED), "v": numpy.arange(20.0)}),
        {"t": ZONED, "v": numpy.arange(20.0)},
        {"t": ZONED.to_pydatetime(), "v": numpy.arange(20.0)},
        {"t": [when.isoformat() for when in ZONED], "v": numpy.arange(20.0)},
    ],
    ids=["pandas", "polars", "pyarrow", "index", "datetimes", "texts"],
)
@pytest.mark.parametrize(
    "end",
    [
        ZONED[12],
        ZONED[12].to_pydatetime(),
        ZONED[12].isoformat(),
        ZONED[12].tz_convert("Asia/Tokyo"),
        "2020-01-01T11:00Z",
    ],
    ids=["pandas", "Python", "text", "Tokyo", "UTC"],
)
def test_times_of_a_zone_are_instants(frame, end):
    early, late = bl.WindowDataset(frame, 4, 2, time="t").split(early=end, late=None)
    assert (early[-1][1].tolist(), late[0][1].tolist()) == ([[10], [11]], [[12], [13]])


@pytest.mark.parametrize("end", [ZONED[12].tz_localize(None), "2020-01-01T12:00", numpy.datetime64("2020-01-01T12")])
def test_a_time_without_a_zone_is_not_one_with_a_zone(end):
    dataset = bl.WindowDataset(pandas.DataFrame({"t": ZONED, "v": numpy.arange(20.0)}), 4, 2, time="t")
    with refused(bl.ArgumentError, "part early", "time zone"):
        dataset.split(early=end, late=None)


@pytest.mark.parametrize("aware", ["times", "end", "some times"])
def test_a_list_of_times_has_a_zone_or_none(aware):
    times = [when if aware == "times" else when.tz_localize(None) for when in ZONED]
    times[3:5] = ZONED[3:5] if aware == "some times" else times[3:5]
    end = ZONED[12] if aware == "end" else ZONED[12].tz_localize(None)
    with refused(bl.Error, "time zone"):
        bl.WindowDataset(numpy.arange(20.0), 4, 2, time=times).split(early=end, late=None)


def test_brief_times_are_compared_as_numpy_does():
    times = numpy.arange(20, dtype=numpy.float32) / 10
    early, _ = bl.WindowDataset(numpy.arange(20), 4, 1, time=times).split(by="time", early=0.7, late=None)
    assert early[-1][1].tolist() == [int((times < 0.7).sum()) - 1] == [6]


def test_times_in_pandas_are_as_fine_as_they_are():
    times = numpy.arange(100).astype("datetime64[ns]")
    dataset = bl.WindowDataset(numpy.arange(100), 5, 2, time=times)
    assert [len(part) for part in dataset.split(a=pandas.Timestamp(50), b=None)] == [44, 49]


TIMES = {
    "array": lambda parts: numpy.concatenate(parts),
    "list": lambda parts: parts,
    "offsets": lambda parts: (numpy.concatenate(parts), offsets_of(parts)),
    "tensor": lambda parts: torch.as_tensor(numpy.concatenate(parts)),
    "pandas": lambda parts: pandas.Series(numpy.concatenate(parts)),
    "pyarrow": lambda parts: pyarrow.array(numpy.concatenate(parts)),
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_of_several_series_in_any_form(kind):
    parts = [numpy.arange(20), numpy.arange(7) + 10]
    dataset = bl.WindowDataset([numpy.arange(20), numpy.arange(7)], 3, 1, time=TIMES[kind](parts))
    early, late = dataset.split(by="time", early=13, late=None)
    assert [early.place(k).series for k in range(len(early))] == [0] * 10 + [1]
    assert [late.place(k).series for k in range(len(late))] == [0] * 7 + [1] * 4


def test_times_beside_a_frame():
    dataset = bl.WindowDataset({"v": numpy.arange(9.0)}, 2, 1, time=numpy.arange(9))
    assert [len(part) for part in dataset.split(by="time", a=5, b=None)] == [3, 4]


@pytest.mark.parametrize("kind", [numpy.asarray, torch.as_tensor, lambda a: jax.numpy.asarray(a, "f4")])
@pytest.mark.parametrize("stride", [100, 2**62, 2**63])
def test_patches_farther_apart_than_the_input(kind, stride):
    values = kind(numpy.arange(40.0).reshape(20, 2))
    dataset = bl.WindowDataset(values, 4, 2, patch_len=3, patch_stride=stride)
    for mode in ("views", "copy"):
        assert next(iter(loader_of(dataset, mode)))[0].shape == (15, 2, 1, 3)
    assert dataset[0][0].shape == (2, 1, 3)


def test_brief_types_of_numpy():
    values = numpy.arange(20).astype(ml_dtypes.bfloat16)
    dataset = bl.WindowDataset(values, 4, 30, short="pad")
    assert dataset[0][1].dtype == values.dtype
    assert next(iter(bl.DataLoader(dataset)))[1].dtype == values.dtype
