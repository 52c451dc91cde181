"""Rows with nulls, which `nulls="drop"` leaves out: of every format, with and without a function, in order."""

import pickle

import batchloom as bl
import numpy
import pyarrow
import pyarrow.parquet
import pytest
from oracles.arrow import plain, write
from refusals import refused

ROWS = 40
COLUMNS = {
    "number": [None if k % 7 == 3 else k for k in range(ROWS)],
    "flag": [None if k == 39 else k % 2 == 0 for k in range(ROWS)],
    "text": [None if k % 11 == 0 else f"text {k}" for k in range(ROWS)],
    "list": [None if k % 13 == 5 else [k, None] if k == 8 else [k] * (k % 4) for k in range(ROWS)],
    "other": list(range(ROWS)),
}
TABLE = pyarrow.table(
    COLUMNS
    | {"pair": pyarrow.array([[k, k] if k % 5 else None for k in range(ROWS)], pyarrow.list_(pyarrow.int16(), 2))}
)
CHOICES = [["number"], ["number", "flag"], ["text", "number"], ["list"], ["list", "text"], ["pair"], ["other"], None]
FORMS = ["arrow", "zstd", "parquet", "brotli", "no statistics", "datasets", "shuffled"]


def source(form, folder):
    """The table in two files, or as an object of datasets; and the numbers of its rows in order."""
    halves = [TABLE.slice(0, 25), TABLE.slice(25)]
    if form in ("datasets", "shuffled"):
        datasets = pytest.importorskip("datasets")
        held = datasets.Dataset(TABLE)
        order = numpy.random.default_rng(3).permutation(ROWS).tolist()
        return (held, list(range(ROWS))) if form == "datasets" else (held.select(order), order)
    for number, half in enumerate(halves):
        if form in ("arrow", "zstd"):
            write(folder / f"{number}.arrow", [half], compression=None if form == "arrow" else "zstd")
        else:
            options = {"compression": "brotli"} if form == "brotli" else {"write_statistics": form == "parquet"}
            pyarrow.parquet.write_table(half, folder / f"{number}.parquet", row_group_size=6, **options)
    return folder / "*.*", list(range(ROWS))


def is_whole(value):
    """Tell whether a value is no null, and has none inside."""
    return value is not None and not (isinstance(value, list) and None in value)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("columns", CHOICES, ids=str)
@pytest.mark.parametrize("fn", [None, dict])
def test_rows_with_nulls_are_left_out(form, columns, fn, tmp_path):
    files, order = source(form, tmp_path)
    rows = [TABLE.select(columns or TABLE.column_names).slice(number, 1).to_pylist()[0] for number in order]
    expected = [row for row in rows if all(map(is_whole, row.values()))]
    found = bl.open(files, columns=columns, nulls="drop", **({} if fn is None else {"fn": fn}))
    if fn is not None:
        assert [dict(found[k]) for k in range(len(found))] == expected
        return
    for dataset in (found, pickle.loads(pickle.dumps(found))):
        batches = bl.DataLoader(dataset, 1)
        samples = [{name: plain(batch[name][0]) for name in columns or TABLE.column_names} for batch in batches]
        assert samples == expected


@pytest.mark.parametrize("columns", [["number"], ["text", "number"], ["pair", "number"]])
def test_row_groups_in_a_window(columns, tmp_path):
    files, _ = source("parquet", tmp_path)
    found = bl.open(files, columns=columns, nulls="drop", chunks_open=2)
    expected = [row for row in TABLE.select(columns).to_pylist() if None not in row.values()]
    seen = [{name: plain(batch[name][0]) for name in columns} for batch in bl.DataLoader(found, 1, shuffle=True)]
    assert sorted(seen, key=lambda row: row["number"]) == expected


def test_rows_that_are_all_null(tmp_path):
    write(tmp_path / "a.arrow", [pyarrow.table({"x": pyarrow.array([None, None], pyarrow.int8())})])
    with refused(bl.DataError, "a.arrow", "every row"):
        bl.open(tmp_path / "a.arrow", nulls="drop")
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    with refused(bl.ArgumentError, "'drop'", "a.jsonl"):
        bl.open(tmp_path / "a.jsonl", nulls="drop")
    with refused(bl.ArgumentError, "'keep'", "'drop'"):
        bl.open(tmp_path / "a.arrow", nulls="keep")


def test_documents_without_nulls_are_tokens(tmp_path):
    write(tmp_path / "a.arrow", [pyarrow.table({"ids": [[1, 2], None, [3, 4]]})])
    tokens = bl.open(tmp_path / "a.arrow", kind="tokens", seq_len=2, nulls="drop")
    assert [plain(each[0]) for each in tokens][:1] == [[1, 2]]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_a_null_among_categories_is_a_null(tmp_path, compression):
    coded = {"c": pyarrow.array([1, None, 3]).dictionary_encode(null_encoding="encode"), "n": pyarrow.array([0, 1, 2])}
    table = pyarrow.table(coded)
    path = tmp_path / "a.arrow"
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table)
    assert [(int(row["c"]), int(row["n"])) for row in bl.open(path, nulls="drop")] == [(1, 0), (3, 2)]
    assert [int(row["c"]) for row in bl.open(path, nulls={"c": -1})] == [1, -1, 3]
    assert [row["n"] for row in bl.open(path, nulls="drop", fn=dict)] == [0, 2]
    with refused((bl.DataError, bl.SampleError), "'c'", "row 1", str(path)):
        list(bl.DataLoader(bl.open(path), 3))


def test_values_for_nulls_that_messages_name_stand_for_nulls(tmp_path):
    columns = {
        "False": pyarrow.array([True, None]),
        "0": pyarrow.array([1.5, None]),
        "[0] * 2": pyarrow.array([[1, 2], None], pyarrow.list_(pyarrow.int32(), 2)),
        "''": pyarrow.array(["a", None]),
        "b''": pyarrow.array([b"a", None]),
        "[]": pyarrow.array([[1], None]),
    }
    for value, column in columns.items():
        path = tmp_path / "a.arrow"
        table = pyarrow.table({"c": column})
        with pyarrow.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
        with refused(bl.DataError, f"nulls={{'c': {value}}}", "row 1"):
            bl.open(path)
        assert len(list(bl.open(path, nulls={"c": eval(value)}))) == 2
