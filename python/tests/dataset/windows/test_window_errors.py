"""Windows that make no sense: the class of the error, and the series and the step that it names."""

import datetime
import decimal

import batchloom as bl
import numpy
import pytest
import torch
from refusals import refused

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")

X = numpy.arange(40.0).reshape(20, 2)
X0 = torch.zeros(9)

SERIES = {
    "a number": (5, bl.DataError, ("series", "int")),
    "nothing": (None, bl.DataError, ("series", "NoneType")),
    "a text": ("abc", bl.DataError, ("series", "str")),
    "a scalar": (numpy.array(3.0), bl.DataError, ("scalar",)),
    "an empty list": ([], bl.DataError, ("empty",)),
    "no step": (numpy.zeros((0, 2)), bl.DataError, ("series 0", "0 steps", "1 of 1")),
    "no step in any": ([numpy.zeros((0, 2))] * 3, bl.DataError, ("series 0", "0 steps", "3 of 3")),
    "objects": (numpy.array([1, None]), bl.DTypeError, ("object",)),
    "texts": (numpy.array(["a", "b"]), bl.DTypeError, ("<U1",)),
    "dates": (numpy.arange(9).astype("M8[s]"), bl.DTypeError, ({"datetime64[s]", "datetime64"},)),
    "records": (numpy.zeros(9, [("a", "f4")]), bl.DTypeError, ("booleans",)),
    "long doubles": (numpy.arange(9).astype(numpy.longdouble), bl.DTypeError, ({"float128", "longdouble"},)),
    "another byte order": (X.astype(">f8"), bl.DTypeError, ("byte order", "'>'")),
    "a masked array": (numpy.ma.masked_array(X, X > 5), bl.DataError, ("masked",)),
    "masked arrays": ([numpy.ma.masked_array(X, X > 5)], bl.DataError, ("masked",)),
    "no step on another device": (torch.zeros(0, device="meta"), bl.DataError, ("series 0", "0 steps", "1 of 1")),
    "several on two devices": ([X0, X0.to("meta")], bl.DeviceError, ("sample 1", "meta", "sample 0", "cpu")),
    "a sparse tensor": (torch.eye(9).to_sparse(), bl.DataError, ("torch.sparse_coo", "to_dense")),
    "several sparse": ([torch.eye(9).to_sparse()] * 2, bl.DataError, ("torch.sparse_coo", "to_dense")),
    "two types": ([X, X.astype("f4")], bl.DTypeError, ("sample 1", "float32", "float64")),
    "two frameworks": ([X, torch.tensor(X)], bl.DTypeError, ("sample 1", "Tensor")),
    "two ranks": ([X, X[:, 0]], bl.DataError, ("sample 1", "1")),
    "two widths": ([X, X, X[:, :1]], bl.DataError, ("series 2", "[1]", "series 0", "[2]")),
    "a text in a list": ([X, "abc"], bl.DataError, ("sample 1", "str")),
    "nothing in a list": ([X, None], bl.DataError, ("sample 1", "NoneType")),
    "three in a tuple": ((X, X, X), bl.DataError, ("tuple",)),
    "two in a tuple": ((X, X), bl.DataError, ("offsets", "float64")),
    "offsets below 0": ((X, [-1, 5, 20]), bl.DataError, ("sample 0", "-1")),
    "offsets that decrease": ((X, [0, 6, 5, 20]), bl.DataError, ("sample 1", "5", "6")),
    "offsets past the end": ((X, [0, 6, 21]), bl.DataError, ("sample 1", "21", "20")),
    "huge offsets": ((X, [0, 2**62]), bl.DataError, ("sample 0", "4611686018427387904")),
    "offsets of 64 bits": ((X, numpy.array([0, 2**63], "u8")), bl.DataError, ("offset 1", str(2**63))),
    "no offsets": ((X, []), bl.DataError, ("offsets",)),
    "one offset": ((X[:0], [0]), bl.DataError, ("0 series",)),
    "one number as offsets": ((X, 5), bl.DataError, ("offsets", "int64", "shape")),
    "floats as offsets": ((X, [0.0, 20.0]), bl.DataError, ("offsets", "float64")),
    "shapes": ((numpy.arange(6.0), [[1, 2], [2, 2]]), bl.DataError, ("offsets",)),
    "lists with a null": (pyarrow.array([[1.0], None]), bl.DataError, ("sample 1", "null")),
    "a null in a list": (pyarrow.array([[1.0, None], [2.0]]), bl.DataError, ("sample 0", "null")),
    "lists of lists": (pyarrow.array([[[1.0]]]), bl.DTypeError, ("List",)),
    "a column with a null": (pyarrow.array([1, None, 3]), bl.DataError, ("null",)),
    "chunks with a null": (pyarrow.chunked_array([[1, None, 3]]), bl.DataError, ("null",)),
    "polars with a null": (polars.Series([1, None, 3]), bl.DataError, ("null",)),
    "a column of texts": (pyarrow.array(["a", "b"]), bl.DTypeError, ({"Utf8", "type"},)),
    "a column of dates": (polars.Series([datetime.date(2020, 1, 1)]), bl.DTypeError, ("Date32",)),
    "a column of decimals": (pyarrow.array([decimal.Decimal("1.5")]), bl.DTypeError, ("series",)),
    "a lazy frame": (polars.DataFrame({"a": [1.0]}).lazy(), bl.DataError, ("collect",)),
    "a frame without columns": (pandas.DataFrame(), (bl.ArgumentError, bl.DataError), ("column",)),
    "a dict without columns": ({}, (bl.ArgumentError, bl.DataError), ("column",)),
    "texts in a frame": (pandas.DataFrame({"a": ["x", "y"]}), bl.DTypeError, ("column 'a'", "numbers")),
    "complex columns": (pandas.DataFrame({"a": [1j]}), bl.DTypeError, ("column 'a'",)),
    "columns of two lengths": ({"a": [1.0, 2.0], "b": [1.0, 2.0, 3.0]}, bl.DataError, ("'b'", "3", "2")),
    "columns that are tables": ({"a": X}, bl.DataError, ("column 'a'", "shape")),
    "columns that are numbers": ({"a": 3}, bl.DataError, ("column 'a'", "shape")),
    "columns of one name": (pandas.DataFrame(X, columns=["a", "a"]), bl.DataError, ("'a'", "twice")),
    "a masked column": ({"a": numpy.ma.masked_array(X[:, 0], X[:, 0] > 5)}, bl.DataError, ("'a'", "masked")),
    "a column on another device": ({"a": torch.zeros(9, device="meta")}, bl.Error, ("'a'",)),
    "a brief column": ({"a": torch.zeros(9).bfloat16()}, bl.DTypeError, ("'a'",)),
    "nulls in a frame": (polars.DataFrame({"a": [1, None]}), (bl.DataError, bl.DTypeError), ("'a'", "nulls")),
    "nulls in truths": (pandas.DataFrame({"a": pandas.array([True, None], dtype="boolean")}), bl.Error, ("'a'",)),
}


@pytest.mark.parametrize("name", SERIES)
def test_series_that_are_refused(name):
    series, kind, values = SERIES[name]
    with refused(kind, *values):
        bl.WindowDataset(series, 4)


LENGTHS = [
    ({"input_len": 0}, ("input_len", "0", "1")),
    ({"stride": 0}, ("stride", "0", "1")),
    ({"patch_len": 0}, ("patch_len", "0", "1")),
    ({"patch_len": 2, "patch_stride": 0}, ("patch_stride", "0")),
    ({"patch_len": 5}, ("patch_len", "5", "4")),
    ({"patch_stride": 2}, ("patch_stride", "2", "patch_len")),
    ({"patch_pad": "end"}, ("patch_pad", "end", "patch_len")),
    ({"patch_len": 2, "patch_pad": "start"}, ("patch_pad", "start", "end")),
    ({"patch_len": 2, "patch_pad": True}, ("patch_pad", "True", "end")),
    ({"label_len": 5}, ("label_len", "5", "input_len", "gap", "4")),
    ({"label_len": 2**40}, ("label_len", "1099511627776")),
    ({"horizon": 0, "gap": 1}, ("gap", "1", "horizon", "0")),
    ({"horizon": 0, "label_len": 1}, ("label_len", "1")),
    ({"horizon": 0, "future": {"f": X}}, ("future", "horizon", "0")),
    *(({name: -1}, (name, "-1")) for name in ("input_len", "horizon", "label_len", "gap", "stride")),
    *(({name: 2.0}, (name, "2.0", "integer")) for name in ("input_len", "horizon", "gap", "stride")),
    *(({name: True}, (name, "True", "integer")) for name in ("input_len", "horizon", "gap", "stride")),
    *(({name: 2**63}, (name, "9223372036854775808")) for name in ("input_len", "horizon", "label_len", "gap")),
    ({"input_len": "4"}, ("input_len", "'4'")),
    ({"input_len": None}, ("input_len", "None")),
    ({"anchor": "middle"}, ("anchor", "'middle'")),
    ({"short": None}, ("short", "None")),
    ({"sampled_by": [1.0]}, ("sampled_by", "1.0")),
    ({"past": {"y": X}}, ("y", "taken")),
    ({"past": {"a": X}, "future": {"a": X}}, ("a", "taken")),
    ({"past": X}, ("past", "ndarray")),
    ({"past": [X]}, ("past", "list")),
    ({"past": {1: X}}, ("past",)),
    ({"id": "a"}, ("id", "series", "frame")),
    ({"columns": ["a"]}, ("columns", "series", "frame")),
    *(
        ({"targets": targets}, ("targets",))
        for targets in (2, -3, [0, 2], True, [True, False], numpy.array([True, False]), [], slice(2, None), "a", 1.0)
    ),
    ({"targets": slice("a", "b")}, ("targets",)),
    ({"targets": slice(0, 2, 0)}, ("targets",)),
    ({"targets": [[0]]}, ("targets",)),
]


@pytest.mark.parametrize(("options", "values"), LENGTHS, ids=lambda value: str(value)[:40])
def test_arguments_that_make_no_sense(options, values):
    with refused(bl.ArgumentError, *values):
        bl.WindowDataset(X, **({"input_len": 4, "horizon": 2} | options))


def test_targets_of_a_series_without_columns():
    with refused(bl.ArgumentError, "targets", "0", "[time]"):
        bl.WindowDataset(X[:, 0], 4, 2, targets=0)


BESIDE = {
    "too few": (X[:19], ("marks", "19 steps", "20")),
    "too many": (X[[*range(20), 0]], ("marks", "21 steps", "20")),
    "one of a list": ([X[:12], X[:9]], ("series 1", "9 steps", "8")),
    "one more": ([X[:12], X[:8], X[:1]], ("marks", "3 series", "2")),
    "other offsets": ((X, [0, 11, 20]), ("series 0", "11 steps", "12")),
    "fewer offsets": ((X, [0, 20]), ("marks", "1 series", "2")),
    "too few numbers": (list(range(19)), ("19 steps", "20")),
    "a number": (5, ("marks", "int")),
    "a masked array": (numpy.ma.masked_array(X, X > 5), ("masked",)),
}


@pytest.mark.parametrize("name", BESIDE)
def test_marks_that_belong_to_other_steps(name):
    marks, values = BESIDE[name]
    with refused(bl.DataError, *values):
        bl.WindowDataset((X, [0, 12, 20]), 4, 2, marks=marks)
    with refused(bl.DataError, *("load" if value == "marks" else value for value in values)):
        bl.WindowDataset((X, [0, 12, 20]), 4, 2, future={"load": marks})


CLOCKS = {
    "the same": ([0, 1, 2, 0, 1, 1], ("step 2", "series 1", "'b'", "the same", "1 after 1")),
    "backwards": ([0, 1, 2, 0, 2, 1], ("step 2", "series 1", "'b'", "earlier", "1 after 2")),
    "in the first": ([0, 2, 1, 0, 1, 2], ("step 2", "series 0", "'a'")),
    "not a number": ([0, 1, 2, float("nan"), 1, 2], ("step 0", "series 1", "'b'", "no time")),
    "infinite": ([0, 1, 2, 0, numpy.inf, numpy.inf], ("step 2", "series 1")),
    "not a time": (
        pandas.to_datetime(["2020", "2021", None, "2020", "2021", "2022"]),
        ("step 2", "series 0", "no time"),
    ),
    "unsigned": (numpy.array([0, 1, 2, 5, 4, 6], numpy.uint8), ("step 1", "series 1", "4 after 5")),
    "texts": (["2020-01-01", "2020-01-02", "2020-01-02", "2019", "2020", "2021"], ("step 2", "series 0", "the same")),
}


@pytest.mark.parametrize("name", CLOCKS)
def test_times_that_do_not_grow(name):
    times, values = CLOCKS[name]
    with refused(bl.DataError, *values):
        bl.WindowDataset({"i": list("aaabbb"), "t": times, "v": numpy.arange(6.0)}, 2, id="i", time="t")


@pytest.mark.parametrize(
    ("times", "kind", "values"),
    [
        (numpy.arange(19), bl.DataError, ("19 steps", "20")),
        (5, bl.DTypeError, ("time",)),
        ("date", bl.DTypeError, ("time",)),
        (["01/02/2020"] * 20, bl.DTypeError, ("time",)),
        ([True] * 20, bl.DTypeError, ("bool",)),
        (numpy.arange(20).astype("m8[s]"), bl.DTypeError, ({"timedelta64[s]", "timedelta64"},)),
        (numpy.zeros((20, 1)), bl.DTypeError, ("(20, 1)",)),
        ([numpy.arange(19)], bl.DataError, ("19",)),
        ([numpy.arange(10), numpy.arange(10)], bl.DataError, ("10",)),
        ((numpy.arange(20), [0, 10, 20]), bl.DataError, ("offsets",)),
        ([[1], [2, 3], 4], bl.Error, ("time",)),
        (torch.zeros(20, device="meta"), bl.Error, ("time",)),
        (numpy.ma.masked_array(numpy.arange(20), numpy.arange(20) > 5), bl.DataError, ("masked",)),
        (X[:, 0] * 1j, bl.DTypeError, ("complex128",)),
    ],
    ids=lambda value: str(value)[:20],
)
def test_times_that_are_none(times, kind, values):
    with refused(kind, *values):
        bl.WindowDataset(X, 4, time=times)


NAMES = [
    ({"id": "q"}, bl.ArgumentError, ("id", "column 'q'", "'i', 'v', 'w'")),
    ({"time": "q"}, bl.ArgumentError, ("time", "column 'q'")),
    ({"columns": ["q"]}, bl.ArgumentError, ("columns", "column 'q'")),
    ({"columns": []}, bl.ArgumentError, ("columns", "column")),
    ({"targets": "q"}, bl.ArgumentError, ("targets", "column 'q'")),
    ({"targets": 1}, bl.ArgumentError, ("targets", "column 1")),
    ({"targets": slice(1)}, bl.ArgumentError, ("targets", "slice")),
    ({"targets": []}, bl.ArgumentError, ("targets", "no column")),
    ({"targets": True}, bl.ArgumentError, ("targets",)),
    ({"marks": "q"}, bl.ArgumentError, ("marks", "column 'q'")),
    ({"id": ["i"]}, bl.ArgumentError, ("id", "'i', 'v', 'w'")),
    ({"id": numpy.zeros(5)}, bl.ArgumentError, ("id", "'i', 'v', 'w'")),
    ({"past": {"p": "v"}}, bl.DataError, ("p", "str")),
    ({"id": "i"}, bl.DataError, ("series 1", "row 0", "row 4")),
]


@pytest.mark.parametrize(("options", "kind", "values"), NAMES, ids=lambda value: str(value)[:30])
def test_names_that_make_no_sense(options, kind, values):
    frame = {"i": [1, 1, 2, 2, 1], "v": numpy.arange(5.0), "w": numpy.arange(5)}
    with refused(kind, *values):
        bl.WindowDataset(frame, 2, 1, **options)


@pytest.mark.parametrize(
    "ids",
    [
        pandas.array(["a", "a", None, "b"], dtype="string"),
        pandas.array(["a", "a", None, "b"], dtype="str"),
        pandas.array([1, 1, None, 2], dtype="Int64"),
        pandas.Categorical(["a", "a", None, "b"]),
        polars.Series(["a", "a", None, "b"]),
        polars.Series([1, 1, None, 2]),
        pyarrow.array(["a", "a", None, "b"]),
        numpy.array([1, 1, numpy.nan, 2]),
        numpy.array(["2020", "2020", "NaT", "2021"], "M8[D]"),
        numpy.array(["a", "a", numpy.nan, "b"], dtype=numpy.dtypes.StringDType(na_object=numpy.nan)),
    ],
    ids=lambda ids: f"{type(ids).__module__.partition('.')[0]} {getattr(ids, 'dtype', getattr(ids, 'type', None))}",
)
def test_ids_that_are_missing(ids):
    with refused(bl.DataError, {"row 2", "nulls"}):
        bl.WindowDataset({"id": ids, "v": numpy.arange(4.0)}, 2, id="id")


@pytest.mark.parametrize("ids", [polars.Series([[1], [1]]), pandas.Series([[1], [1]]), pandas.Series([{}, {}])])
def test_ids_that_are_lists(ids):
    with refused(bl.Error, "id"):
        bl.WindowDataset({"id": ids, "v": numpy.arange(2.0)}, 2, id="id")


@pytest.mark.parametrize("frame", [dict, pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_a_frame_without_rows(frame):
    for options in ({}, {"id": "id"}, {"time": "id"}):
        with refused(bl.DataError, {"no rows", "0 series", "1 series"}):
            bl.WindowDataset(frame({"id": numpy.array([], int), "v": numpy.array([], float)}), 2, **options)


@pytest.mark.parametrize("lengths", [{"input_len": 2**40}, {"input_len": 2, "horizon": 2**47}, {"input_len": 2**48}])
def test_windows_that_fit_in_no_memory(lengths):
    dataset = bl.WindowDataset(X, **lengths, short="pad")
    assert len(dataset) == 1
    formed = [{}, {"resident": False}, {"device": "meta", "resident": False}]
    formed += [{"output": "torch", "resident": False}]
    for options in (*formed, *({"shuffle": True, **options} for options in formed)):
        with refused(bl.OutOfMemoryError, "allocate", "smaller batches"):
            next(iter(bl.DataLoader(dataset, **options)))
    # What is gathered on a device is what torch has no memory for; without values none is needed.
    with pytest.raises(RuntimeError, match="allocate"):
        next(iter(bl.DataLoader(dataset, shuffle=True, resident=True, output="torch")))
    x, *_ = next(iter(bl.DataLoader(dataset, device="meta")))
    assert x.shape == (1, lengths["input_len"], 2)


@pytest.mark.parametrize("sample", [17, -18, 2**63, -(2**63), 2**70])
def test_windows_outside_the_dataset(sample):
    dataset = bl.WindowDataset(X, 4)
    for ask in (dataset.place, dataset.__getitem__):
        with refused(bl.RangeError, f"sample {sample}", "17"):
            ask(sample)


# Options of a loader


@pytest.mark.parametrize(
    ("options", "kind", "values"),
    [
        ({"resident": "yes"}, bl.ArgumentError, ("resident", "'yes'")),
        ({"resident": None}, bl.ArgumentError, ("resident", "None")),
        ({"resident": 0}, bl.ArgumentError, ("resident", "0")),
        ({"resident": -5}, bl.ArgumentError, ("resident", "-5")),
        ({"resident": 1e6}, bl.ArgumentError, ("resident", "1000000.0")),
        ({"resident": "1GB"}, bl.ArgumentError, ("resident", "'1GB'")),
        ({"output": "jax", "device": "meta"}, bl.ArgumentError, ("output", "'jax'", "meta")),
        ({"output": "numpy", "device": "meta"}, bl.ArgumentError, ("output", "'numpy'", "meta")),
        ({"output": "tensorflow"}, bl.ArgumentError, ("output", "'tensorflow'")),
        ({"device": "gpu"}, bl.DeviceError, ("'gpu'",)),
        ({"device": 3.5}, bl.DeviceError, ("3.5",)),
        ({"batching": bl.TokenBudget(100)}, bl.ArgumentError, ("TokenBudget", "FixedSize")),
        ({"batching": bl.Packing(100)}, bl.ArgumentError, ("Packing", "FixedSize")),
        ({"batching": bl.LengthBuckets(10)}, bl.ArgumentError, ("LengthBuckets", "FixedSize")),
        ({"batch_size": 0}, bl.ArgumentError, ("batch_size", "0")),
        ({"batch_size": 97, "drop_last": True}, bl.ArgumentError, ("drop_last", "96 samples", "97")),
        ({"rank": 2, "world_size": 2}, bl.ArgumentError, ("rank", "2")),
        ({"pad_value": "reflect"}, bl.ArgumentError, ("pad_value", "'reflect'", "edge")),
        ({"labels": "x"}, bl.ArgumentError, ("labels", "'x'")),
        ({"shuffle": "run"}, bl.ArgumentError, ("shuffle", "'run'")),
    ],
)
def test_options_that_make_no_sense(options, kind, values):
    with refused(kind, *values):
        bl.DataLoader(bl.WindowDataset(numpy.zeros((100, 2)), 5), **options)


@pytest.mark.parametrize("options", [{"resident": True}, {"resident": False}, {"resident": 160}, {"buffers": "static"}])
def test_without_a_device_only_torch_has_the_ways_of_one(options):
    for fields in ([numpy.zeros(10)], [torch.zeros(10), numpy.zeros(10)]):
        with refused(bl.ArgumentError, "numpy", 'output="torch"'):
            bl.DataLoader(bl.TensorDataset(*fields), **options)
        loader = bl.DataLoader(bl.TensorDataset(*fields), output="torch", **options)
        assert torch.equal(torch.cat([batch[0] for batch in loader]), torch.zeros(10))


@pytest.mark.parametrize("frame", [pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_a_series_of_a_frame_that_is_too_short_is_named_by_its_id(frame):
    lengths = {"a": 30, "b": 4, "c": 1}
    columns = {
        "id": [name for name, length in lengths.items() for _ in range(length)],
        "x": list(map(float, range(35))),
    }
    with refused(bl.DataError, "series 1 ('b')", "4 steps", "2 of 3"):
        bl.WindowDataset(frame(columns), 6, 5, id="id")
    with refused(bl.DataError, "series 2 ('c')", "1 step", "1 of 3"):
        bl.WindowDataset(frame(columns), 3, 2, id="id")
    with refused(bl.DataError, "series 1 ('b')", "4 steps", "2 of 3"):
        bl.WindowDataset(frame(columns), id="id", offsets={"x": range(5)})
    with refused(bl.DataError, "series 1 has", "4 steps"):
        bl.WindowDataset([numpy.zeros(30), numpy.zeros(4)], 6, 5)
