"""Parquet: an epoch over files is the epoch over chunks of the same rows, however they were written."""

import itertools
import os
import pickle
import warnings

import batchloom as bl
import numpy
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.files import assert_same_runs
from oracles.runs import few
from oracles.selections import torch_seen
from refusals import refused

ROWS = 61
LENGTHS = numpy.arange(ROWS) * 5 % 9
ENDS = numpy.concatenate([[0], numpy.cumsum(LENGTHS)])


def columns():
    """The columns of a table, and the same as arrays and lists by row."""
    ids = numpy.arange(ENDS[-1], dtype=numpy.int32)
    lists = [ids[a:b] for a, b in itertools.pairwise(ENDS)]
    fixed = numpy.arange(3 * ROWS, dtype=numpy.float32).reshape(ROWS, 3)
    table = pa.table(
        {
            "input_ids": pa.array(lists, pa.list_(pa.int32())),
            "features": pa.FixedSizeListArray.from_arrays(fixed.ravel(), 3),
            "label": numpy.arange(ROWS) * 7 % 11,
            "score": numpy.arange(ROWS, dtype=numpy.float64) / 4,
            "flag": numpy.arange(ROWS) % 3 == 0,
            "small": numpy.arange(ROWS, dtype=numpy.int8),
        }
    )
    arrays = {name: table[name].to_numpy() for name in ("label", "score", "flag", "small")}
    return table, {"input_ids": lists, "features": fixed, **arrays}


TABLE, ARRAYS = columns()
DENSE = ["features", "label", "score", "flag", "small"]

writings = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "use_dictionary": st.booleans(),
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "row_group_size": st.integers(1, 30),
        "data_page_size": st.integers(16, 2000),
        "write_page_index": st.booleans(),
        "write_statistics": st.booleans(),
        "write_page_checksum": st.booleans(),
    }
)
cuts = st.lists(st.integers(0, ROWS), max_size=2).map(sorted)


def write(folder, places, table=TABLE, **how):
    """Write a table as files that begin at some rows; return their folder."""
    for number, (a, b) in enumerate(itertools.pairwise([0, *places, table.num_rows])):
        pq.write_table(table.slice(a, b - a), folder / f"part-{number}.parquet", **how)
    return str(folder)


def in_chunks(found, names, **options):
    """A dataset of the same rows in the same chunks, which a function reads."""
    ends = numpy.concatenate([[0], numpy.cumsum(found.chunks)]).astype(int)

    def read(chunk):
        part = slice(ends[chunk], ends[chunk + 1])
        return {name: ARRAYS[name][part] for name in names}

    lists = {"lengths": LENGTHS, "columns": ["input_ids"]} if "input_ids" in names else {}
    return bl.ChunkDataset(found.chunks, read, chunks_open=found.chunks_open, **lists, **options)


@pytest.mark.law("L1", "L2", "L3", "L4", "L5", "L9")
@few
@given(places=cuts, how=writings, chunks_open=st.integers(1, 20), order=st.booleans(), seed=st.integers(0, 99))
def test_an_epoch_over_files_is_the_epoch_over_chunks(tmp_path_factory, places, how, chunks_open, order, seed):
    if how["compression"] == "brotli":
        how = how | {"compression": "zstd"}
    folder = write(tmp_path_factory.mktemp("files"), places, **how)
    found = bl.open(folder, columns=DENSE, chunks_open=chunks_open)
    assert len(found) == ROWS
    assert_same_runs(found, in_chunks(found, DENSE), batch_size=5, shuffle=order, seed=seed)


rules = st.sampled_from([bl.TokenBudget(20), bl.Packing(12, oversize="truncate"), bl.LengthBuckets(4), bl.FixedSize(5)])


@pytest.mark.law("L1", "L2", "L3", "L4", "L5", "L6", "L9")
@few
@given(places=cuts, how=writings, chunks_open=st.integers(1, 20), rule=rules, seed=st.integers(0, 99))
def test_lists_are_batched_by_their_lengths(tmp_path_factory, places, how, chunks_open, rule, seed):
    how = how | {"compression": "zstd" if how["compression"] == "brotli" else how["compression"]}
    folder = write(tmp_path_factory.mktemp("files"), places, **how)
    names = ["input_ids", "label", "features"]
    found = bl.open(folder, columns=names, chunks_open=chunks_open)
    assert (found.lengths == LENGTHS).all()
    assert_same_runs(found, in_chunks(found, names), batching=rule, shuffle=True, seed=seed)


def test_lengths_are_known_before_a_value_is_read(tmp_path):
    found = bl.open(write(tmp_path, [20], row_group_size=7), columns=["input_ids"])
    loader = bl.DataLoader(found, batching=bl.TokenBudget(20), shuffle=True)
    assert len(loader) == len(list(loader.plan()))
    assert found.counts.read == 0
    assert len(found.files) == 2
    assert "2 files" in repr(found)
    assert "61 samples" in repr(found)
    assert (found[11]["input_ids"] == ARRAYS["input_ids"][11]).all()


@pytest.mark.parametrize("writer", ["polars", "pyarrow"])
def test_columns_are_chosen_named_and_joined(tmp_path, writer):
    table = pa.table(
        {"f0": TABLE["score"], "f1": pa.array(ARRAYS["score"] * 2), "y": TABLE["label"], "name": ["a"] * ROWS}
    )
    if writer == "polars":
        polars.from_arrow(table).write_parquet(tmp_path / "a.parquet", row_group_size=10)
    else:
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    found = bl.open(tmp_path / "a.parquet", columns={"x": "f*", "target": "y"})
    batches = list(bl.DataLoader(found, batch_size=7))
    assert list(batches[0]) == ["x", "target"]
    x, y = (numpy.concatenate([batch[name] for batch in batches]) for name in ("x", "target"))
    assert (x == numpy.stack([ARRAYS["score"], ARRAYS["score"] * 2], 1)).all()
    assert (y == ARRAYS["label"]).all()


def test_lists_of_one_length_are_rows_where_rows_are_asked_for(tmp_path):
    table = pa.table({"x": pa.array([[1.0, 2.0]] * 9, pa.list_(pa.float32())), "y": range(9)})
    pq.write_table(table, tmp_path / "a.parquet")
    found = bl.open(tmp_path / "a.parquet", kind="rows")
    (batch,) = bl.DataLoader(found, batch_size=9)
    assert (batch["x"].shape, found.lengths) == ((9, 2), None)
    ragged = pa.table({"x": pa.array([[1.0, 2.0]] * 8 + [[1.0]], pa.list_(pa.float32()))})
    pq.write_table(ragged, tmp_path / "b.parquet")
    with refused(bl.DataError, str(tmp_path / "b.parquet"), "row 8", "1", "2"):
        bl.open(tmp_path / "b.parquet", kind="rows")


def test_an_attention_mask_of_ones_is_left_out_and_another_one_refused(tmp_path):
    ids = pa.array([[1, 2], [3], [4, 5, 6]])
    ones = pa.array([[1, 1], [1], [1, 1, 1]])
    pq.write_table(pa.table({"input_ids": ids, "attention_mask": ones}), tmp_path / "a.parquet")
    with pytest.warns(UserWarning, match="all ones and is left out"):
        found = bl.open(tmp_path / "a.parquet")
    assert list(found[0]) == ["input_ids"]
    zeros = pa.array([[1, 0], [1], [1, 1, 1]])
    pq.write_table(pa.table({"input_ids": ids, "attention_mask": zeros}), tmp_path / "b.parquet")
    with refused(bl.DataError, "attention_mask", str(tmp_path / "b.parquet")):
        bl.open(tmp_path / "b.parquet")
    assert list(bl.open(tmp_path / "b.parquet", columns=["input_ids"])[0]) == ["input_ids"]


def test_nulls_are_errors_before_the_first_batch_unless_they_have_a_value(tmp_path):
    path = str(tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([1.5, None, 2.5]), "ids": pa.array([[1], [None, 2], [3]])}), path)
    with refused(bl.DataError, path, "column x", "1"):
        bl.open(path, columns=["x"])
    with refused(bl.DataError, path, "column ids"):
        bl.open(path, columns=["ids"])
    found = bl.open(path, nulls={"x": -1, "ids": 7})
    assert found[1]["x"] == -1
    assert found[1]["ids"].tolist() == [7, 2]
    pq.write_table(pa.table({"ids": pa.array([[1], None, [3]])}), path)
    with refused(bl.DataError, path, "column ids", "row 1"):
        bl.open(path)


def test_files_that_differ_are_refused_with_both_types(tmp_path):
    pq.write_table(pa.table({"x": pa.array([1, 2], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([1, 2], pa.int64())}), tmp_path / "b.parquet")
    with refused(bl.DataError, str(tmp_path / "b.parquet"), str(tmp_path / "a.parquet"), "column x"):
        bl.open(tmp_path)
    pq.write_table(pa.table({"y": pa.array([1, 2], pa.int32())}), tmp_path / "b.parquet")
    with refused(bl.DataError, str(tmp_path / "b.parquet"), '"x"', "lacks"):
        bl.open(tmp_path)
    with refused(bl.DataError, str(tmp_path / "b.parquet"), "column x", "missing"):
        bl.open(tmp_path, columns=["x"])


def test_lists_of_one_row_agree_in_length(tmp_path):
    pq.write_table(pa.table({"a": [[1], [2, 3]], "b": [[1], [2]]}), tmp_path / "a.parquet")
    with refused(bl.DataError, "column b", "row 1", "1", "2", "column a"):
        bl.open(tmp_path / "a.parquet")


@pytest.mark.law("L8")
def test_a_chunk_that_cannot_be_read_is_an_error_that_names_the_file(tmp_path):
    folder = write(tmp_path, [], row_group_size=7, compression="none", use_dictionary=False, write_page_checksum=True)
    path = tmp_path / "part-0.parquet"
    found = bl.open(folder, columns=["label"], chunks_open=2)
    loader = bl.DataLoader(found, batch_size=5, shuffle=True)
    whole = torch_seen(loader)
    contents = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(3).column(2)
    assert column.path_in_schema == "label"
    start = column.data_page_offset + column.total_compressed_size - 8
    contents[start] ^= 1
    times = os.stat(path)
    path.write_bytes(contents)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with refused(bl.DataError, str(path), "column label", "rows 21 to 27", "damaged"):
        list(loader)
    # Skipped samples have no weight, and no other sample moves.
    skips = bl.DataLoader(
        bl.open(folder, columns=["label"], chunks_open=2, on_error="skip"), batch_size=5, shuffle=True, output="torch"
    )
    weights = [batch["weight"] for batch in skips]
    assert sum(int(weight.sum()) for weight in weights) == ROWS - 7
    contents[start] ^= 1
    path.write_bytes(contents)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert torch_seen(bl.DataLoader(found, batch_size=5, shuffle=True)) == whole


def test_a_file_that_changes_is_an_error(tmp_path):
    folder = write(tmp_path, [], row_group_size=7)
    found = bl.open(folder, columns=["label"])
    path = tmp_path / "part-0.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with refused(bl.DataError, str(path), "column label", "bytes"):
        list(bl.DataLoader(found, batch_size=5))


def test_an_index_is_kept_and_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHLOOM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "part-0.parquet"
    for lengths in ([3, 1, 2], [1, 1, 5, 2]):
        pq.write_table(pa.table({"ids": [list(range(length)) for length in lengths]}), path)
        for _ in range(2):
            assert bl.open(folder).lengths.tolist() == lengths
        assert len(list((tmp_path / "cache").iterdir())) == 1
    monkeypatch.setenv("BATCHLOOM_CACHE", "")
    assert bl.open(folder).lengths.tolist() == [1, 1, 5, 2]


def test_datasets_and_loaders_pickle(tmp_path):
    found = bl.open(write(tmp_path, [9], row_group_size=7), columns=["input_ids", "label"])
    loader = bl.DataLoader(found, batching=bl.TokenBudget(20), shuffle=True)
    assert torch_seen(pickle.loads(pickle.dumps(loader))) == torch_seen(loader)


def test_what_needs_all_rows_is_read_whole(tmp_path):
    table = pa.table({"text": ["a", "bc", "def"], "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet")
    found = bl.open(tmp_path / "a.parquet")
    (batch,) = bl.DataLoader(found, batch_size=3)
    assert batch["text"] == ["a", "bc", "def"]
    with refused(bl.ArgumentError, "on_error", str(tmp_path / "a.parquet")):
        bl.open(tmp_path / "a.parquet", on_error="skip")
    assert [sample["text"] for sample in bl.open(tmp_path / "a.parquet", memory="1MB")] == ["a", "bc", "def"]
    with refused(bl.ArgumentError, "memory", "whole"):
        bl.open(tmp_path / "a.parquet", kind="groups", id="n", memory="1MB")
    pq.write_table(table.select(["n"]), tmp_path / "b.parquet", compression="brotli")
    for options in ({}, {"memory": "1MB"}):
        assert [sample["n"] for sample in bl.open(tmp_path / "b.parquet", **options)] == [1, 2, 3]


@pytest.mark.parametrize("head", [b"", b"PAR1", b"PAR1 and no more of it"])
def test_files_of_another_kind_are_refused(tmp_path, head):
    path = tmp_path / "a.parquet"
    path.write_bytes(head)
    with refused(bl.DataError, str(path)):
        bl.open(path)


def test_options_of_data_in_memory_are_refused(tmp_path):
    folder = write(tmp_path, [])
    with refused(bl.ArgumentError, "header", "Parquet"):
        bl.open(folder, header=3)
    with pytest.raises(TypeError, match=r"chunk_open.*did you mean chunks_open"):
        bl.open(folder, chunk_open=3)
    with refused(bl.ArgumentError, "memory", "chunks_open"):
        bl.open(folder, columns=["label"], memory="1MB", chunks_open=3)


def test_windows_and_groups_of_columns(tmp_path):
    frame = pa.table(
        {"series": [0] * 30 + [1] * 30, "time": [*range(30)] * 2, "value": numpy.arange(60, dtype="float32")}
    )
    pq.write_table(frame, tmp_path / "a.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        windows = bl.open(tmp_path / "a.parquet", kind="windows", input_len=5, horizon=2, id="series", time="time")
        groups = bl.open(tmp_path / "a.parquet", kind="groups", id="series")
    assert (len(windows), len(groups)) == (2 * 24, 2)


def test_ten_thousand_files_need_no_more_open_files_than_a_process_may_have(tmp_path):
    for number in range(300):
        pq.write_table(pa.table({"x": [number, number]}), tmp_path / f"part-{number}.parquet")
    found = bl.open(tmp_path)
    assert len(os.listdir("/proc/self/fd")) < 200 or not os.path.isdir("/proc/self/fd")
    seen = numpy.concatenate([batch["x"] for batch in bl.DataLoader(found, batch_size=50, shuffle=True)])
    assert sorted(seen.tolist()) == sorted([*range(300)] * 2)


def test_files_have_their_columns_in_any_order(tmp_path):
    pq.write_table(pa.table({"x": [1, 2], "ids": [[1], [2, 3]], "y": [10.5, 20.5]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": [30.5], "x": [3], "ids": [[4, 5]]}), tmp_path / "b.parquet")
    found = [*bl.open(tmp_path)]
    assert [(int(s["x"]), float(s["y"]), s["ids"].tolist()) for s in found] == [
        (1, 10.5, [1]),
        (2, 20.5, [2, 3]),
        (3, 30.5, [4, 5]),
    ]
    pq.write_table(pa.table({"z": [7], "y": [30.5], "x": [3], "ids": [[4]]}), tmp_path / "b.parquet")
    with refused(bl.DataError, str(tmp_path / "b.parquet"), "z", str(tmp_path / "a.parquet")):
        bl.open(tmp_path)
    assert [int(sample["x"]) for sample in bl.open(tmp_path, columns=["x"])] == [1, 2, 3]


TIMES = [
    pa.array([19_723, -1], pa.date32()),
    pa.array([86_400_000, 0], pa.date64()),
    *[pa.array([10**6, -5], pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")],
    *[pa.array([10**6, -5], pa.duration(unit)) for unit in ("s", "ms", "us", "ns")],
    pa.array([1000, 5], pa.time32("s")),
    pa.array([1000, 5], pa.time32("ms")),
    pa.array([1000, 5], pa.time64("us")),
    pa.array([1000, 5], pa.time64("ns")),
    pa.array([[19_723], [1, 2]], pa.list_(pa.date32())),
    pa.array([[3], [1, 2]], pa.list_(pa.duration("ms"))),
]


@pytest.mark.parametrize("times", TIMES, ids=lambda times: str(times.type))
def test_times_are_nanoseconds_as_in_files_of_arrow(tmp_path, times):
    table = pa.table({"t": times})
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    found, expected = ([sample["t"] for sample in bl.open(tmp_path / name)] for name in ("a.parquet", "a.arrow"))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == numpy.int64
        assert numpy.array_equal(one, numpy.asarray(other))


def test_times_that_nanoseconds_do_not_count_are_errors(tmp_path):
    pq.write_table(pa.table({"t": pa.array([10**15], pa.timestamp("ms"))}), tmp_path / "a.parquet")
    with refused(bl.DataError, str(tmp_path / "a.parquet"), "column t", str(10**15)):
        list(bl.DataLoader(bl.open(tmp_path / "a.parquet"), batch_size=1))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 300), ("uint8", -1), ("int64", float("nan")), ("int64", 0.5), ("bool", 2), ("int64", 2**63),
        ("int64", "0"), ("int64", []), ("int64", None), ("int64", [1]),
    ],
)  # fmt: skip
def test_values_in_place_of_nulls_are_of_the_type_of_the_column(tmp_path, kind, value):
    array = pa.array([None, True]) if kind == "bool" else pa.array([None, 1], kind)
    pq.write_table(pa.table({"a": array}), tmp_path / "a.parquet")
    with refused(bl.ArgumentError, "'a'", kind):
        bl.open(tmp_path / "a.parquet", nulls={"a": value})


def test_nulls_of_every_type_have_values(tmp_path):
    columns = {
        "half": (pa.array([1.5, None], pa.float16()), 2.5),
        "single": (pa.array([1.5, None], pa.float32()), 0.1),
        "whole": (pa.array([1, None], pa.int64()), 2**53 + 1),
        "small": (pa.array([1, None], pa.int8()), -7),
        "byte": (pa.array([1, None], pa.uint8()), 255),
        "flag": (pa.array([True, None]), False),
        "date": (pa.array([1, None], pa.date32()), 86_400_000_000_000),
        "fixed": (pa.array([[1, 2], [None, 3]], pa.list_(pa.int16(), 2)), 9),
    }
    pq.write_table(pa.table({name: array for name, (array, _) in columns.items()}), tmp_path / "a.parquet")
    found = bl.open(tmp_path / "a.parquet", nulls={name: null for name, (_, null) in columns.items()})[1]
    assert found["half"] == 2.5
    assert found["single"] == numpy.float32(0.1)
    assert (found["whole"], found["small"], found["byte"]) == (2**53 + 1, -7, 255)
    assert (bool(found["flag"]), found["date"], found["fixed"].tolist()) == (False, 86_400_000_000_000, [9, 3])
    with refused(bl.ArgumentError, "'halve'", "half"):
        bl.open(tmp_path / "a.parquet", nulls={"halve": 1})


def test_lists_that_are_null_are_empty_where_that_is_said(tmp_path):
    pq.write_table(pa.table({"ids": pa.array([[1], None, [], [2, 3]])}), tmp_path / "a.parquet", data_page_size=1)
    with refused(bl.DataError, str(tmp_path / "a.parquet"), "column ids", "row 1", "[]"):
        bl.open(tmp_path / "a.parquet")
    found = bl.open(tmp_path / "a.parquet", nulls={"ids": []})
    assert [sample["ids"].tolist() for sample in found] == [[1], [], [], [2, 3]]
    assert found.lengths.tolist() == [1, 0, 0, 2]


def test_names_that_collide_are_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    with refused(bl.DataError, str(tmp_path / "a.parquet"), "'a'", "twice"):
        bl.open(tmp_path / "a.parquet")


def test_columns_of_structs_have_dotted_names_also_where_files_are_read_whole(tmp_path):
    meta = pa.array([{"score": 1.5, "n": 1}, {"score": 2.5, "n": 2}])
    pq.write_table(pa.table({"meta": meta, "text": ["a", "b"]}), tmp_path / "a.parquet")
    assert list(bl.open(tmp_path / "a.parquet")[0]) == ["meta.score", "meta.n", "text"]
    found = bl.open(tmp_path / "a.parquet", columns={"score": "meta.score", "text": "text"})
    assert [(float(sample["score"]), sample["text"]) for sample in found] == [(1.5, "a"), (2.5, "b")]
    assert list(bl.open(tmp_path / "a.parquet", columns=["meta.n"])[1]) == ["meta.n"]


def test_maps_and_files_without_rows_are_refused_by_name(tmp_path):
    maps = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"m": maps, "n": [1]}), tmp_path / "a.parquet")
    with refused(bl.DTypeError, "'m'", str(tmp_path / "a.parquet"), "columns="):
        bl.open(tmp_path / "a.parquet", columns=["m"])
    assert [int(sample["n"]) for sample in bl.open(tmp_path / "a.parquet", columns=["n"])] == [1]
    pq.write_table(pa.table({"n": pa.array([], pa.int64())}), tmp_path / "b.parquet")
    with refused(bl.DataError, str(tmp_path / "b.parquet"), "no row"):
        bl.open(tmp_path / "b.parquet")


def test_several_budgets_count_sizes_beside_the_lengths_of_lists(tmp_path):
    lists = [list(range(length % 7 + 1)) for length in range(60)]
    images = numpy.arange(60) % 4
    path = tmp_path / "lists.parquet"
    pq.write_table(pa.table({"ids": lists, "y": numpy.arange(60)}), path, row_group_size=12)
    dataset = bl.open(path, sizes={"images": images})
    rule = bl.Packing({"ids": 30, "images": 9})
    for world_size in (1, 2):
        seen = []
        for rank in range(world_size):
            for batch in bl.DataLoader(dataset, batching=rule, shuffle=True, rank=rank, world_size=world_size):
                assert len(batch["ids"]) <= 30
                assert images[batch["index"]].sum() <= 9
                seen += batch["index"].tolist()
        assert sorted(set(seen)) == list(range(60))
    assert pickle.loads(pickle.dumps(dataset)).lengths.tolist() == dataset.lengths.tolist()
    plan = bl.DataLoader(dataset, batching=rule).plan()
    assert set(plan.stats()["budgets"]) == {"ids", "images"}
    with pytest.raises(bl.ArgumentError, match="sizes names ids"):
        bl.open(path, sizes={"ids": images})
    # Sizes in place of lengths, and lengths of their own, need all rows: they are read into memory.
    assert numpy.array_equal(bl.open(path, sizes=images).sizes, images)
    with pytest.raises(bl.ArgumentError, match="read whole: sizes needs all rows in memory; expected no memory"):
        bl.open(path, sizes=images, memory="1MB")
    with pytest.raises(bl.DataError, match="images"):
        bl.open(path, sizes={"images": images[:9]})


def test_graphs_of_files_have_edges_with_an_offset(tmp_path):
    nodes = [[float(graph)] * (graph % 4 + 1) for graph in range(12)]
    edges = [[node % len(own) for node in range(2 * len(own))] for own in nodes]
    path = tmp_path / "graphs.parquet"
    pq.write_table(pa.table({"nodes": nodes, "edges": edges}), path)
    opened = bl.open(path, own_lengths=["edges"], of="nodes")
    held = bl.SequenceDataset(nodes=nodes, edges=edges, own_lengths=["edges"], of="nodes")
    options = {"batching": bl.Packing(9), "fields": {"edges": bl.Field(offset_by="nodes")}, "output": "numpy"}
    for batch, other in zip(bl.DataLoader(opened, **options), bl.DataLoader(held, **options), strict=True):
        assert batch.keys() == other.keys()
        assert all(numpy.array_equal(batch[name], other[name]) for name in other)


def test_a_mask_of_ones_without_statistics(tmp_path):
    table = pa.table({"ids": [[1, 2], [3]], "attention_mask": [[1, 1], [1]]})
    pq.write_table(table, tmp_path / "a.parquet", write_statistics=False)
    with refused(bl.DataError, "'attention_mask'", "a.parquet", "no statistics", "columns="):
        bl.open(tmp_path / "a.parquet")
    pq.write_table(table.set_column(1, "attention_mask", [[[1, 0], [1]]]), tmp_path / "b.parquet")
    with refused(bl.DataError, "'attention_mask'", "b.parquet", "not all ones"):
        bl.open(tmp_path / "b.parquet")


@pytest.mark.parametrize("window", [{}, {"chunks_open": 2}])
def test_columns_of_nulls_beside_texts_are_refused_as_they_are_opened(window, tmp_path):
    pq.write_table(pa.table({"z": pa.nulls(2), "t": ["a", "b"]}), tmp_path / "a.parquet")
    with refused(bl.DTypeError, "'z'", "a.parquet", "null", "columns="):
        bl.open(tmp_path / "a.parquet", **window)


def test_a_pickled_dataset_whose_file_is_gone(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    pickled = pickle.dumps(bl.open(tmp_path / "a.parquet"))
    (tmp_path / "a.parquet").unlink()
    with refused(bl.DataError, str(tmp_path / "a.parquet"), "No such file"):
        pickle.loads(pickled)


def test_what_is_mapped_and_what_is_read_in_chunks_are_not_joined(tmp_path):
    """The error names a way out that works: both are mapped."""
    table = pa.table({"x": [1, 2]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(str(tmp_path / "b.arrow"), table.schema) as file:
        file.write_table(table)
    both = [bl.open(tmp_path / "a.parquet"), bl.open(tmp_path / "b.arrow")]
    with refused(bl.ArgumentError, "dataset 1", "TensorDataset", "batchloom convert", "--to arrow"):
        both[0].concat(both[1])
