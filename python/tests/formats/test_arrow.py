"""Files of Arrow: every type, in any number of batches and files, mapped and compressed."""

import itertools
import os
import pickle

import batchloom as bl
import numpy
import polars
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from batchloom.formats.arrow_memory import Memory
from hypothesis import given
from hypothesis import strategies as st
from oracles.arrow import assert_values, lists, plain, table, write
from oracles.files import assert_same_runs, damaged
from oracles.runs import few
from oracles.selections import torch_seen
from refusals import refused

ROWS = 23
TABLE, VALUES = table(ROWS)
LISTS, LISTED = lists(ROWS)
FORMS = {"file": False, "stream": True}
cuts = st.lists(st.integers(0, ROWS), max_size=3).map(sorted)


def write_parts(folder, whole, places, batch, stream, **options):
    """Write a table to several files, which may be empty, and return a pattern for them."""
    ends = [0, *places, len(whole)]
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        write(folder / f"part-{number}.arrow", [whole.slice(start, end - start)], batch, stream, **options)
    return folder / "*.arrow"


@pytest.mark.parametrize("form", FORMS)
@few
@given(places=cuts, batch=st.integers(1, 30))
def test_fields_are_the_values_of_columns(form, tmp_path_factory, places, batch):
    folder = tmp_path_factory.mktemp("arrow")
    assert_values(bl.open(write_parts(folder, TABLE, places, batch, FORMS[form])), VALUES)
    folder = tmp_path_factory.mktemp("lists")
    assert_values(bl.open(write_parts(folder, LISTS, places, batch, FORMS[form])), LISTED)


@pytest.mark.law("L1", "L2", "L4", "L9")
@few
@given(places=cuts, batch=st.integers(1, 30), stream=st.booleans(), seed=st.integers(0, 99))
def test_an_epoch_of_rows_is_the_epoch_in_memory(tmp_path_factory, places, batch, stream, seed):
    names = ["f", "u", "flag", "day", "image"]
    found = bl.open(write_parts(tmp_path_factory.mktemp("arrow"), TABLE, places, batch, stream), columns=names)
    arrays = {name: numpy.array(VALUES[name]) for name in names}
    arrays |= {"f": arrays["f"].astype("f4"), "u": arrays["u"].astype("u2"), "image": arrays["image"].astype("i2")}
    assert_same_runs(found, bl.TensorDataset(**arrays), batch_size=4, shuffle=True, seed=seed)


@pytest.mark.law("L1", "L2", "L4", "L6")
@few
@given(
    places=cuts,
    batch=st.integers(1, 30),
    rule=st.sampled_from([{"batching": bl.TokenBudget(16)}, {"batching": bl.Packing(12)}, {"batch_size": 4}]),
)
def test_an_epoch_of_lists_is_the_epoch_in_memory(tmp_path_factory, places, batch, rule):
    pattern = write_parts(tmp_path_factory.mktemp("arrow"), LISTS, places, batch, True)
    found = bl.open(pattern, columns=["ids", "label"])
    expected = bl.SequenceDataset(
        ids=[numpy.array(row, numpy.int32) for row in LISTED["ids"]], label=numpy.array(LISTED["label"])
    )
    assert_same_runs(found, expected, shuffle=True, **rule)


@pytest.mark.law("L1", "L4")
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@few
@given(places=cuts, batch=st.integers(2, 30), stream=st.booleans())
def test_compressed_files_are_read_in_chunks(codec, tmp_path_factory, places, batch, stream):
    """Every sample comes once, in the order of a plan over chunks, and runs resume."""
    folder = tmp_path_factory.mktemp("arrow")
    names = ["f", "u", "flag", "day", "image"]
    # Categories of a stream may change from batch to batch.
    whole = TABLE.select([*names, "text"]) if stream else TABLE
    pattern = write_parts(folder, whole, places, batch, stream, compression=codec)
    found = bl.open(pattern, columns=names, chunks_open=2)
    assert isinstance(found, bl.ChunkDataset)
    seen = {}
    for part in bl.DataLoader(found, 4, shuffle=True):
        seen |= {int(row): {name: plain(part[name][k]) for name in names} for k, row in enumerate(part["u"])}
    assert seen == {k: {name: VALUES[name][k] for name in names} for k in range(ROWS)}
    half = bl.DataLoader(found, 4, shuffle=True)
    before = list(itertools.islice(half, 2))
    after = bl.DataLoader(bl.open(pattern, columns=names, chunks_open=2), 4, shuffle=True)
    after.load_state_dict(half.state_dict())
    assert torch_seen([*before, *after]) == torch_seen(bl.DataLoader(found, 4, shuffle=True))


@pytest.mark.parametrize("stream", [False, True])
def test_compressed_lists_have_their_lengths(tmp_path, stream):
    write(tmp_path / "a.arrow", [LISTS], stream=stream, compression="zstd")
    found = bl.open(tmp_path / "a.arrow", columns=["ids", "large", "label"], memory="1MB")
    assert found.lengths.tolist() == [len(row) for row in LISTED["ids"]]
    seen = {}
    for batch in bl.DataLoader(found, batching=bl.Packing(12), shuffle=True):
        bounds = batch["cu_seqlens"].tolist()
        for sample, (start, end) in zip(batch["label"].tolist(), itertools.pairwise(bounds), strict=True):
            seen[sample] = (batch["ids"][start:end].tolist(), batch["large"][start:end].tolist())
    assert seen == {k: (LISTED["ids"][k], LISTED["large"][k]) for k in range(ROWS)}
    found = bl.open(tmp_path / "a.arrow", columns=["ids", "text"])
    assert found.sizes.tolist() == [len(row) for row in LISTED["ids"]]
    assert [sample["text"] for sample in found] == LISTED["text"]
    for kind, more in (("tokens", {"seq_len": 3}), ("groups", {"id": "label"})):
        with refused(bl.ArgumentError, repr(kind), "compressed"):
            bl.open(tmp_path / "a.arrow", columns=["label"], kind=kind, **more)


def test_files_of_feather(tmp_path):
    chosen = TABLE.select(["f", "u"])
    pyarrow.feather.write_feather(chosen, str(tmp_path / "a.feather"), compression="lz4")
    pyarrow.feather.write_feather(chosen, str(tmp_path / "b.feather"), compression="uncompressed")
    assert isinstance(bl.open(tmp_path / "a.feather"), bl.ChunkDataset)
    assert isinstance(bl.open(tmp_path / "b.feather"), bl.TensorDataset)
    with refused(bl.ArgumentError, "chunks_open", "b.feather"):
        bl.open(tmp_path / "b.feather", chunks_open=3)


FRAME = polars.DataFrame(
    {
        "a": polars.Series(range(ROWS), dtype=polars.Int16),
        "text": [f"text {k}, which is too long for a view" if k % 2 else "" for k in range(ROWS)],
        "blob": [bytes([k]) * (k % 20) for k in range(ROWS)],
        "names": [["a"] * (k % 3) for k in range(ROWS)],
        "ids": [[k] * (k % 4) for k in range(ROWS)],
        "pair": polars.Series([[k, k + 1] for k in range(ROWS)], dtype=polars.Array(polars.Int32, 2)),
        "kind": polars.Series([f"kind {k % 3}" for k in range(ROWS)], dtype=polars.Categorical),
        "part": polars.Series([f"part {k % 2}" for k in range(ROWS)], dtype=polars.Enum(["part 0", "part 1"])),
    }
)


@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "lz4"])
@pytest.mark.parametrize("level", ["newest", "oldest"])
@pytest.mark.parametrize("rows", [5, 100])
def test_files_of_polars(compression, level, rows, tmp_path):
    """Polars begins a file in another way than pyarrow. Texts are views, or have wide offsets."""
    path, level = tmp_path / "a.arrow", getattr(polars.CompatLevel, level)()
    FRAME.write_ipc(path, compression=compression, record_batch_size=rows, compat_level=level)
    assert pyarrow.ipc.open_file(str(path)).read_all().num_rows == ROWS
    for name in FRAME.columns:
        found = bl.open(path, columns=[name])
        values = [plain(batch[name][0]) for batch in bl.DataLoader(found, 1)]
        assert values == FRAME[name].to_list(), name
    found = bl.open(path, fn=dict)
    assert [found[k] for k in range(ROWS)] == FRAME.to_dicts()


@pytest.mark.parametrize("compression", ["uncompressed", "zstd"])
def test_values_for_nulls_of_polars(compression, tmp_path):
    frame = polars.DataFrame({"t": ["a", None, "b" * 20], "b": [b"a", b"", None]})
    frame.write_ipc(tmp_path / "a.arrow", compression=compression)
    found = bl.open(tmp_path / "a.arrow", nulls={"t": "none", "b": b"none"})
    assert [found[k]["t"] for k in range(3)] == ["a", "none", "b" * 20]
    assert [found[k]["b"] for k in range(3)] == [b"a", b"", b"none"]


@pytest.mark.parametrize("names", [["x", "y"], ["x", "kind"], ["text"]])
@pytest.mark.parametrize("change", ["values", "batches", "zeros", "cut"])
def test_a_compressed_file_that_changes_ends_the_epoch(names, change, tmp_path):
    rows = 6000

    def make(path, seed, batch):
        values = numpy.random.default_rng(seed).random((rows, 8))
        columns = {"x": list(values), "y": numpy.arange(rows), "text": [f"{seed} {k}" for k in range(rows)]}
        kinds = pyarrow.array([f"kind {k % 7}" for k in range(rows)]).dictionary_encode()
        write(path, [pyarrow.table(columns | {"kind": kinds})], batch, compression="zstd")
        return path

    path = make(tmp_path / "a.arrow", 0, 500)
    found = bl.open(path, columns=names, chunks_open=2)
    again = pickle.loads(pickle.dumps(found))
    batches = iter(bl.DataLoader(found, 64, shuffle=True))
    next(batches)
    contents = make(tmp_path / "b.arrow", 9, 70 if change == "batches" else 500).read_bytes()
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size) if change == "zeros" else contents)
        if change == "cut":
            file.truncate(len(contents) // 3)
    for epoch in (batches, bl.DataLoader(again, 64)):
        with refused(bl.SampleError, "a.arrow", "changed"):
            for _ in epoch:
                pass


def test_a_compressed_file_that_is_replaced_is_read_to_its_end(tmp_path):
    whole = pyarrow.table({"x": numpy.arange(6000)})
    path = write(tmp_path / "a.arrow", [whole], 500, compression="zstd")
    batches = iter(bl.DataLoader(bl.open(path), 64))
    seen = [*next(batches)["x"].tolist()]
    write(tmp_path / "b.arrow", [pyarrow.table({"x": numpy.zeros(6000)})], 500, compression="zstd").rename(path)
    assert [*seen, *(value for batch in batches for value in batch["x"].tolist())] == list(range(6000))


def test_numbers_keep_their_memory(tmp_path):
    """A dataset of thousands of batches pickles as places in a file, and copies none of it."""
    whole = pyarrow.table({"x": numpy.arange(6000, dtype=numpy.float32), "y": numpy.arange(6000)})
    write(tmp_path / "a.arrow", [whole], batch=100)
    found = bl.open(tmp_path / "a.arrow")
    x, _ = found.fields
    assert len(x.chunks) == 60
    for chunk in x.chunks:
        base = chunk
        while not isinstance(base, numpy.memmap):
            base = base.base
        assert base.filename == str(tmp_path / "a.arrow")
        assert not chunk.flags.writeable
    pickled = pickle.dumps(found)
    assert len(pickled) < 60_000
    assert torch_seen(bl.DataLoader(pickle.loads(pickled), 64)) == torch_seen(bl.DataLoader(found, 64))


def test_texts_pickle_select_and_join(tmp_path):
    write(tmp_path / "a.arrow", [TABLE.select(["text", "u"])])
    found = bl.open(tmp_path / "a.arrow")
    again = pickle.loads(pickle.dumps(found.select(slice(5, 9))))
    assert [again[k]["text"] for k in range(4)] == VALUES["text"][5:9]
    joined = found.select([3, 1]).concat(found.take(2))
    assert [joined[k]["text"] for k in range(4)] == ["text 3", "text 1", "text 0", "text 1"]
    (batch,) = bl.DataLoader(joined, 4)
    assert batch["text"] == ["text 3", "text 1", "text 0", "text 1"]


def test_columns_are_joined_and_named(tmp_path):
    whole = pyarrow.table({f"f{k}": numpy.arange(9.0) + k for k in range(5)} | {"target": numpy.arange(9)})
    write(tmp_path / "a.arrow", [whole], batch=2)
    found = bl.open(tmp_path / "a.arrow", columns={"x": "f*", "y": "target"})
    assert found.fields[0].tolist() == [[row + k for k in range(5)] for row in range(9)]
    with refused(bl.DTypeError, "'x'", "double"[:0] + "float64", "int64", "'target'"):
        bl.open(tmp_path / "a.arrow", columns={"x": ["f0", "target"]})


def test_kinds_of_columns(tmp_path):
    write(tmp_path / "l.arrow", [LISTS])
    rows = pyarrow.table({"x": [[k, k + 1] for k in range(9)], "q": [k // 4 for k in range(9)]})
    write(tmp_path / "r.arrow", [rows], batch=4)
    found = bl.open(tmp_path / "r.arrow", kind="rows")
    assert [found[k]["x"].tolist() for k in range(9)] == rows["x"].to_pylist()
    assert isinstance(bl.open(tmp_path / "r.arrow"), bl.SequenceDataset)
    with refused(bl.DataError, "'ids'", "row 1", "l.arrow", "kind 'sequences'"):
        bl.open(tmp_path / "l.arrow", kind="rows", columns=["ids"])
    groups = bl.open(tmp_path / "r.arrow", kind="groups", id="q", columns=["x"])
    assert groups.sizes.tolist() == [4, 4, 1]
    documents = bl.open(tmp_path / "l.arrow", kind="tokens", columns="ids", seq_len=5)
    flat = [token for row in LISTED["ids"] for token in row]
    assert documents[2][0].tolist() == flat[10:15]
    series = pyarrow.table(
        {
            "id": ["a"] * 6 + ["b"] * 6,
            "ts": pyarrow.array([*range(6)] * 2, pyarrow.timestamp("s")),
            "v": range(12),
            "w": range(12),
        }
    )
    write(tmp_path / "w.arrow", [series], batch=5)
    options = {"kind": "windows", "input_len": 2, "horizon": 1, "id": "id", "time": "ts"}
    windows = bl.open(tmp_path / "w.arrow", columns=["v"], freq="s", **options)
    assert (len(windows), windows.ids, windows[0][0].tolist()) == (8, ["a", "b"], [[0], [1]])
    assert bl.open(tmp_path / "w.arrow", **options)[0][0].tolist() == [[0, 0], [1, 1]]


def test_lists_of_lists_are_samples_of_two_dimensions(tmp_path):
    values = [[[1, 2, 3], [4, 5, 6]], [[7]], [], [[8, 9]]]
    write(tmp_path / "a.arrow", [pyarrow.table({"x": values})], batch=3)
    found = bl.open(tmp_path / "a.arrow")
    assert [found[k]["x"].tolist() for k in range(4)] == values
    write(tmp_path / "b.arrow", [pyarrow.table({"x": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]})])
    assert bl.open(tmp_path / "b.arrow", kind="rows")[1]["x"].tolist() == [[5, 6], [7, 8]]
    with refused(bl.DataError, "'x'", "[2, 3]", "[1, 1]", "row 1"):
        bl.open(tmp_path / "a.arrow", kind="rows")
    write(tmp_path / "c.arrow", [pyarrow.table({"x": [[[1]], [[1, 2], [3]]]})])
    with refused(bl.DataError, "'x'", "row 1", "c.arrow"):
        bl.open(tmp_path / "c.arrow")
    write(tmp_path / "d.arrow", [pyarrow.table({"x": [[[[1]]]]})])
    with refused(bl.DTypeError, "'x'", "d.arrow", "two"):
        bl.open(tmp_path / "d.arrow")


def test_an_attention_mask_of_ones_is_left_out(tmp_path):
    ones = [[1] * len(row) for row in LISTED["ids"]]
    write(tmp_path / "a.arrow", [LISTS.select(["ids", "label"]).append_column("attention_mask", [ones])])
    with pytest.warns(UserWarning, match=r"'attention_mask' of .*a\.arrow is all ones") as caught:
        found = bl.open(tmp_path / "a.arrow")
    assert (len(caught), found.names) == (1, ("ids", "label"))
    assert caught[0].filename == __file__
    ones[9][-1] = 0
    write(tmp_path / "b.arrow", [LISTS.select(["ids"]).append_column("attention_mask", [ones])])
    with refused(bl.DataError, "'attention_mask'", "row 9", "b.arrow", "bl.SequenceDataset"):
        bl.open(tmp_path / "b.arrow")
    ones[9][-1] = 1
    write(tmp_path / "c.arrow", [LISTS.select(["ids"]).append_column("attention_mask", [ones])], compression="zstd")
    with pytest.warns(UserWarning, match=r"c\.arrow is all ones"):
        (first, *_) = bl.DataLoader(bl.open(tmp_path / "c.arrow"), 4)
    assert first["attention_mask"].dtype == bool


def nullable():
    return pyarrow.table(
        {
            "x": pyarrow.array([1, 2, None, 4]),
            "l": pyarrow.array([[1], [2, 3], [4, None], []]),
            "m": pyarrow.array([[1], None, [3], [4]]),
            "t": pyarrow.array(["a", None, "c", "d"]),
            "s": pyarrow.array([{"v": 1}, {"v": None}, None, {"v": 4}]),
            "r": pyarrow.array([[1, 2], [3, None], [5, 6], [7, 8]], pyarrow.list_(pyarrow.int64(), 2)),
        }
    )


@pytest.mark.parametrize(
    ("column", "row", "value", "filled"),
    [
        ("x", 2, 7, [1, 2, 7, 4]),
        ("l", 2, 7, [[1], [2, 3], [4, 7], []]),
        ("m", 1, [], [[1], [], [3], [4]]),
        ("t", 1, "b", ["a", "b", "c", "d"]),
        ("s.v", 1, 0, [1, 0, 0, 4]),
        ("r", 1, 9, [[1, 2], [3, 9], [5, 6], [7, 8]]),
    ],
)
@pytest.mark.parametrize("batch", [1, 3, 9])
def test_nulls_are_refused_by_name_or_filled(tmp_path, column, row, value, filled, batch):
    write(tmp_path / "a.arrow", [nullable().slice(0, 0)], batch)
    write(tmp_path / "b.arrow", [nullable()], batch)
    with refused(bl.DataError, repr(column), f"row {row}", "b.arrow", "nulls="):
        bl.open(tmp_path / "*.arrow", columns=[column])
    found = bl.open(tmp_path / "b.arrow", columns={"field": column}, nulls={column: value}, kind=None)
    assert [plain(found[k]["field"]) for k in range(4)] == [plain(each) for each in filled]


def test_values_for_nulls_that_make_no_sense(tmp_path):
    write(tmp_path / "a.arrow", [nullable()])
    with refused(bl.ArgumentError, "a.arrow", "'y'"):
        bl.open(tmp_path / "a.arrow", columns=["x"], nulls={"y": 0})
    with refused(bl.DTypeError, "'x'", "'none'", "int64"):
        bl.open(tmp_path / "a.arrow", columns=["x"], nulls={"x": "none"})
    with refused(bl.DataError, "'m'", "row 1"):
        bl.open(tmp_path / "a.arrow", columns=["m"], nulls={"m": 0})


def test_nulls_of_compressed_batches_are_found(tmp_path):
    write(tmp_path / "a.arrow", [nullable()], 2, compression="zstd")
    found = bl.open(tmp_path / "a.arrow", columns=["x"], nulls={"x": 7})
    assert sorted(value for batch in bl.DataLoader(found, 2) for value in batch["x"].tolist()) == [1, 2, 4, 7]
    with refused(bl.DataError, "'x'", "a.arrow", "batch 1", "row 0", "nulls="):
        bl.open(tmp_path / "a.arrow", columns=["x"])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pyarrow.decimal128(9, 2), [1, 2]),
        (pyarrow.map_(pyarrow.string(), pyarrow.int64()), [[("a", 1)], []]),
        (pyarrow.null(), [None, None]),
        (pyarrow.list_(pyarrow.struct([("role", pyarrow.string())])), [[{"role": "user"}], []]),
        (pyarrow.month_day_nano_interval(), [None, None]),
    ],
    ids=str,
)
def test_types_that_make_no_tensor_are_refused_by_name(tmp_path, kind, values):
    write(tmp_path / "a.arrow", [pyarrow.table({"x": pyarrow.array(values, kind), "y": [1, 2]})])
    with refused(bl.DTypeError, "'x'", "a.arrow", str(kind).partition("<")[0].partition("(")[0], "columns="):
        bl.open(tmp_path / "a.arrow")
    assert len(bl.open(tmp_path / "a.arrow", columns=["y"])) == 2


def test_unions_are_refused(tmp_path):
    union = pyarrow.UnionArray.from_sparse(
        pyarrow.array([0, 1], pyarrow.int8()), [pyarrow.array([1, 2]), pyarrow.array([1.0, 2.0])]
    )
    write(tmp_path / "a.arrow", [pyarrow.table({"x": union})])
    with refused(bl.DTypeError, "'x'", "sparse_union"):
        bl.open(tmp_path / "a.arrow")


def test_files_that_differ_are_named(tmp_path):
    write(tmp_path / "a.arrow", [pyarrow.table({"x": [1, 2], "t": ["a", "b"]})])
    write(tmp_path / "b.arrow", [pyarrow.table({"x": [1.0, 2.0], "t": ["a", "b"]})])
    write(tmp_path / "c.arrow", [pyarrow.table({"x": [3, 4], "t": ["a", "b"], "more": [1, 2]})])
    large = pyarrow.table({"t": pyarrow.array(["c", "d"], pyarrow.large_string()), "x": [5, 6]})
    write(tmp_path / "d.arrow", [large])
    with refused(bl.DTypeError, "'x'", "a.arrow", "b.arrow", "int64", "double"):
        bl.open([tmp_path / "a.arrow", tmp_path / "b.arrow"])
    with refused(bl.DataError, "'more'", "a.arrow", "c.arrow"):
        bl.open([tmp_path / "a.arrow", tmp_path / "c.arrow"])
    chosen = bl.open([tmp_path / "a.arrow", tmp_path / "c.arrow"], columns=["x"])
    assert [chosen[k]["x"] for k in range(4)] == [1, 2, 3, 4]
    # By names, in any order, with offsets of any width.
    both = bl.open([tmp_path / "a.arrow", tmp_path / "d.arrow"])
    assert [both[k] for k in range(4)] == [{"x": x, "t": t} for x, t in ((1, "a"), (2, "b"), (5, "c"), (6, "d"))]


def test_times_out_of_range_are_refused(tmp_path):
    write(tmp_path / "a.arrow", [pyarrow.table({"x": pyarrow.array([10**15], pyarrow.timestamp("s"))})])
    with refused(bl.DataError, "'x'", "a.arrow", "nanoseconds"):
        bl.open(tmp_path / "a.arrow")


def test_empty_tables_are_refused(tmp_path):
    write(tmp_path / "a.arrow", [TABLE.slice(0, 0)])
    with refused(bl.DataError, "'f'", "a.arrow", "no rows"):
        bl.open(tmp_path / "a.arrow")


def test_a_file_that_shrinks_ends_the_epoch(tmp_path):
    whole = pyarrow.table({"x": numpy.zeros(2_000_000), "y": numpy.zeros(2_000_000)})
    path = write(tmp_path / "a.arrow", [whole], 1000)
    loader = bl.DataLoader(bl.open(path), 256, num_threads=1, prefetch=0)
    batches = iter(loader)
    next(batches)
    os.truncate(path, 4096)
    with refused(bl.DataError, "a.arrow", "4096", "truncated"):
        for _ in batches:
            pass


@pytest.mark.parametrize("columns", [["text"], ["text", "ids"]])
def test_texts_of_a_file_that_shrinks_end_the_epoch(tmp_path, columns):
    rows = 50_000
    whole = pyarrow.table({"text": ["text"] * rows, "ids": [[k] for k in range(rows)]})
    path = write(tmp_path / "a.arrow", [whole], 1000)
    found = bl.open(path, columns=columns)
    for dataset in (found, found.select([4, 2, 40_000]), found.take(9).concat(found)):
        next(iter(bl.DataLoader(dataset, 2)))
    os.truncate(path, 4096)
    for dataset in (found, found.select([4, 2, 40_000]), found.take(9).concat(found)):
        with refused(bl.DataError, "a.arrow", "4096", "truncated"):
            next(iter(bl.DataLoader(dataset, 2)))


def test_arrays_are_cut_from_the_map_that_holds_them(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    for number, path in enumerate(paths):
        (numpy.arange(50) + 100 * number).tofile(path)
    maps = [numpy.memmap(path, numpy.uint8, "r") for path in paths]
    memory = Memory([*maps, maps[0][:0]])
    for number, mapped in enumerate(maps):
        column = pyarrow.Array.from_buffers(pyarrow.int64(), 30, [None, pyarrow.py_buffer(mapped)], offset=7)
        found = memory.cut(column.buffers()[1], numpy.int64, column.offset, len(column))
        assert found.tolist() == column.to_pylist()
        assert found.base is maps[number]
    elsewhere = pyarrow.array(range(9)).slice(2, 4)
    assert memory.cut(elsewhere.buffers()[1], numpy.int64, elsewhere.offset, 4).tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("offsets", [[0, 5, 2, 6], [0, 2, 6, 5], [2, 9, 3, 6]])
def test_offsets_that_decrease_are_named(tmp_path, offsets):
    values = pyarrow.array(range(9))
    buffers = [None, pyarrow.array(offsets, pyarrow.int32()).buffers()[1]]
    damaged_lists = pyarrow.Array.from_buffers(pyarrow.list_(values.type), 3, buffers, children=[values])
    write(tmp_path / "a.arrow", [pyarrow.table({"x": damaged_lists})])
    with refused(bl.DataError, "a.arrow"):
        bl.open(tmp_path / "a.arrow")


CONTENTS = {}


@pytest.mark.parametrize("codec", [None, "zstd"])
@pytest.mark.parametrize("form", FORMS)
@given(place=st.floats(0, 1), byte=st.integers(0, 255), length=st.floats(0.5, 1) | st.just(1.0))
def test_a_damaged_file_opens_or_is_a_typed_error(form, codec, tmp_path_factory, place, byte, length):
    folder = tmp_path_factory.mktemp("damaged")
    if (form, codec) not in CONTENTS:
        chosen = pyarrow.table({"ids": LISTS["ids"], "label": LISTS["label"], "flags": LISTS["flags"]})
        write(folder / "whole.arrow", [chosen], stream=FORMS[form], compression=codec)
        CONTENTS[form, codec] = (folder / "whole.arrow").read_bytes()
    path = folder / "a.arrow"
    path.write_bytes(damaged(CONTENTS[form, codec], place, byte, length))
    try:
        batches = sum(1 for _ in bl.DataLoader(bl.open(path), 4))
    except bl.Error as error:
        batches = str(error)
    assert batches


VIEWS = {
    "x": pyarrow.ListViewArray.from_arrays([2, 0, 1, 1], [2, 2, 0, 1], pyarrow.array([1, 2, 3, 4])),
    "nested": pyarrow.array(
        [[[1, 2]], [], [[3], [4]], [[5]]], pyarrow.large_list_view(pyarrow.list_view(pyarrow.int16()))
    ),
    "absent": pyarrow.array([[7, 8], None, [], [9]], pyarrow.list_view(pyarrow.int64())),
    "text": ["a", "b", "c", "d"],
    "texts": pyarrow.array([["a"], [], ["b", "c"], []], pyarrow.list_view(pyarrow.string())),
}


@pytest.mark.parametrize("columns", [["x"], ["nested"], ["x", "text"], ["texts"]])
@pytest.mark.parametrize("form", ["a.arrow", "zstd.arrow", "a.parquet", "brotli.parquet"])
def test_views_of_lists_are_lists(form, columns, tmp_path):
    whole, path = pyarrow.table(VIEWS), tmp_path / form
    if form.endswith("parquet"):
        pyarrow.parquet.write_table(whole, path, compression="brotli" if form.startswith("brotli") else "snappy")
    else:
        write(path, [whole], compression="zstd" if form.startswith("zstd") else None)
    expected = whole.select(columns).slice(1).to_pylist()
    if form == "zstd.arrow" and columns == ["nested"]:
        with refused(bl.DTypeError, "'nested'", "lists of lists"):
            bl.open(path, columns=columns)
        return
    loaded = bl.DataLoader(bl.open(path, columns=columns).select([1, 2, 3]), 1)
    assert [{name: plain(batch[name][0]) for name in columns} for batch in loaded] == expected
    (row,) = bl.open(path, columns=["absent"], nulls={"absent": []}, kind="sequences").select([0])
    assert row["absent"].tolist() == [7, 8]


@pytest.mark.parametrize("beside", [["k"], ["k", "text"], ["k", "lists"], ["k", "codes"]])
@pytest.mark.parametrize("form", ["a.arrow", "zstd.arrow", "a.parquet", "brotli.parquet"])
def test_bytes_of_one_size_are_rows(form, beside, tmp_path):
    """They are rows of uint8, whichever columns are beside them; a function gets bytes."""
    values = [b"abcd", b"efgh", b"ijkl"]
    column = pyarrow.array(values, pyarrow.binary(4))
    kinds = {"k": column, "text": ["a", "b", "c"], "lists": [[1], [2, 3], []], "codes": column.dictionary_encode()}
    whole, path = pyarrow.table(kinds).slice(1), tmp_path / form
    if form.endswith("parquet"):
        pyarrow.parquet.write_table(whole, path, compression="brotli" if form.startswith("brotli") else "snappy")
    else:
        write(path, [whole], compression="zstd" if form.startswith("zstd") else None)
    for window in [{}] if form in ("a.arrow", "brotli.parquet") else [{}, {"chunks_open": 2}]:
        found = bl.open(path, columns=beside, **window)
        rows = [numpy.asarray(batch["k"]) for batch in bl.DataLoader(found, 1)]
        assert [(row.dtype, row.tobytes()) for row in rows] == [(numpy.uint8, value) for value in values[1:]]
    assert [row["k"] for row in bl.open(path, fn=dict, columns=beside)] == values[1:]
