"""Conversions by the program: every row once, in an order that follows from the seed, resumed where they stopped."""

import decimal
import io
import json
import os
import signal
import struct
import subprocess
import sys
import tarfile
import time

import batchloom as bl
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

ROWS = 5000


def write(folder, files=3, rows=ROWS):
    """Write documents, rows and numbers; return the paths."""
    paths = []
    for file in range(files):
        numbers = numpy.arange(file * rows // files, (file + 1) * rows // files)
        table = pa.table(
            {
                "ids": [[int(number), *range(number % 7)] for number in numbers],
                "x": pa.FixedSizeListArray.from_arrays(numpy.repeat(numbers, 4).astype("float32"), 4),
                "n": numbers,
                "flag": numbers % 2 == 0,
            }
        )
        pq.write_table(table, folder / f"{file}.parquet", row_group_size=400)
        paths.append(str(folder / f"{file}.parquet"))
    return paths


def program(*arguments, **options):
    """Run the program."""
    command = [sys.executable, "-m", "batchloom", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def said(*arguments):
    """What the program says where it succeeds."""
    done = program(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.law("L1", "L2")
def test_rows_are_shuffled_once_each_in_an_order_of_the_seed(tmp_path):
    paths = write(tmp_path)
    orders = []
    for out, seed in (("a", 3), ("b", 3), ("c", 4)):
        said("convert", *paths, "--out", tmp_path / out, "--to", "arrow", "--shuffle", seed)
        found = bl.open(tmp_path / out, columns=["ids", "x", "n", "flag"])
        numbers = [int(sample["n"]) for sample in found]
        for number, sample in zip(numbers[:50], found, strict=False):
            assert sample["ids"].tolist() == [number, *range(number % 7)]
            assert sample["x"].tolist() == [number] * 4
            assert bool(sample["flag"]) == (number % 2 == 0)
        assert sorted(numbers) == list(range(ROWS))
        orders.append(numbers)
    assert orders[0] == orders[1] != orders[2]
    # A shuffle of all rows, and not of files: rows move by a third of all on average.
    assert 0.3 * ROWS < numpy.abs(numpy.array(orders[0]) - numpy.arange(ROWS)).mean() < 0.37 * ROWS
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert (manifest["rows"], manifest["shuffle"], manifest["columns"]) == (ROWS, 3, ["ids", "x", "n", "flag"])
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"manifest.json", "part-00000.arrow"}


def test_rows_stay_in_order_without_a_shuffle(tmp_path):
    paths = write(tmp_path)
    said("convert", *paths, "--out", tmp_path / "a", "--to", "safetensors", "--column", "x", "--column", "n")
    found = safetensors.numpy.load_file(tmp_path / "a" / "part-00000.safetensors")
    assert (found["n"] == numpy.arange(ROWS)).all()
    assert found["x"].shape == (ROWS, 4)
    assert (found["x"][:, 3] == numpy.arange(ROWS)).all()


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_columns_of_every_type_and_nulls_are_kept(tmp_path, compression):
    table = pa.table(
        {
            "n": numpy.arange(500),
            "text": [None if row % 7 == 0 else f"text {row}" for row in range(500)],
            "bytes": [str(row).encode() for row in range(500)],
            "price": pa.array([decimal.Decimal(row) / 4 for row in range(500)], pa.decimal128(10, 2)),
            "group": pa.array([["a", "b", "c"][row % 3] for row in range(500)]).dictionary_encode(),
            "nested": [[[row], [row, row]] for row in range(500)],
            "meta": [{"source": str(row), "rank": row} for row in range(500)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=90)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema, options=options) as file:
        file.write_table(table, max_chunksize=90)
    with pa.ipc.new_stream(tmp_path / "a.arrows", table.schema, options=options) as stream:
        stream.write_table(table, max_chunksize=90)
    for name in ("a.parquet", "a.arrow", "a.arrows"):
        out = tmp_path / f"from-{name}"
        said("convert", tmp_path / name, "--out", out, "--to", "arrow", "--shuffle", 3)
        with pa.memory_map(str(out / "part-00000.arrow")) as file:
            found = pa.ipc.open_file(file).read_all()
        assert found.column_names == table.column_names
        assert found["n"].to_pylist() != list(range(500))
        rows = {row["n"]: row for row in found.to_pylist()}
        assert [rows[number] for number in range(500)] == table.to_pylist()


def test_a_file_of_texts_alone_and_lines_of_json_are_converted(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "a.parquet")
    said("convert", tmp_path / "a.parquet", "--out", tmp_path / "a", "--to", "arrow")
    assert [sample["text"] for sample in bl.open(tmp_path / "a")] == ["a", "b"]
    (tmp_path / "b.jsonl").write_text('{"text": "x", "ids": [1, 2]}\n{"text": "y", "ids": []}\n')
    said("convert", tmp_path / "b.jsonl", "--out", tmp_path / "b", "--to", "arrow")
    assert [sample["text"] for sample in bl.open(tmp_path / "b", columns=["text"])] == ["x", "y"]


def test_tokens_of_documents(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"ids": [row, row + 1]}) + "\n" for row in range(100)))
    said("convert", tmp_path / "a.jsonl", "--out", tmp_path / "a", "--to", "bin", "--end", 50256)
    found = numpy.fromfile(tmp_path / "a" / "part-00000.bin", numpy.uint16).reshape(100, 3)
    assert (found == [[row, row + 1, 50256] for row in range(100)]).all()
    pieces = bl.open(tmp_path / "a" / "*.bin", dtype="uint16", seq_len=50)
    assert len(pieces) == 5  # the last token has no next one
    (tmp_path / "b.jsonl").write_text(json.dumps({"ids": [70_000]}) + "\n")
    done = program("convert", tmp_path / "b.jsonl", "--out", tmp_path / "b", "--to", "bin")
    assert (done.returncode, "--dtype uint32" in done.stderr) == (1, True)


@pytest.mark.law("L3")
def test_a_conversion_that_is_killed_goes_on_and_gives_the_same_files(tmp_path, monkeypatch):
    rows = 60_000
    table = pa.table(
        {"n": numpy.arange(rows), "x": pa.FixedSizeListArray.from_arrays(numpy.zeros(rows * 1000, "float32"), 1000)}
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=5000, compression="zstd")
    arguments = ["convert", tmp_path / "a.parquet", "--to", "arrow", "--shuffle", "1", "--out"]
    said(*arguments, tmp_path / "whole")
    expected = json.loads((tmp_path / "whole" / "manifest.json").read_text())
    assert len(expected["files"]) >= 3
    for wanted in (0, 1, 2):
        out = tmp_path / f"killed-{wanted}"
        child = subprocess.Popen([sys.executable, "-m", "batchloom", *map(str, arguments), str(out)])
        while child.poll() is None:
            manifest = out / "manifest.json"
            if manifest.exists() and len(json.loads(manifest.read_text())["files"]) >= wanted:
                child.send_signal(signal.SIGKILL)
                break
            time.sleep(0.005)
        child.wait()
        said(*arguments, out)
        assert json.loads((out / "manifest.json").read_text()) == expected
        assert {path.name for path in out.iterdir()} == {path.name for path in (tmp_path / "whole").iterdir()}
    # One file of several that is gone is made again, and the others stay.
    stamp = (out / "part-00000.arrow").stat().st_mtime_ns
    (out / "part-00001.arrow").unlink()
    said(*arguments, out)
    assert json.loads((out / "manifest.json").read_text()) == expected
    assert (out / "part-00000.arrow").stat().st_mtime_ns == stamp


def test_a_second_conversion_at_a_time_is_refused(tmp_path):
    fcntl = pytest.importorskip("fcntl")
    out = tmp_path / "out"
    out.mkdir()
    arguments = ["convert", *write(tmp_path), "--out", out, "--to", "arrow"]
    with (out / ".lock").open("w") as lock:  # as another process holds it
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("12345")
        lock.flush()
        second = program(*arguments)
    assert (second.returncode, "process 12345 is converting" in second.stderr) == (1, True), second.stderr
    said(*arguments)
    assert not (out / ".lock").exists()


def test_another_conversion_in_the_folder_is_refused(tmp_path):
    paths = write(tmp_path)
    out = tmp_path / "out"
    said("convert", *paths, "--out", out, "--to", "arrow", "--shuffle", 3)
    again = program("convert", *paths, "--out", out, "--to", "arrow", "--shuffle", 4)
    assert (again.returncode, "another conversion" in again.stderr) == (1, True)


def test_a_file_that_is_gone_or_damaged_is_made_again(tmp_path):
    paths = write(tmp_path)
    out = tmp_path / "out"
    arguments = ["convert", *paths, "--out", out, "--to", "arrow", "--shuffle", 3]
    said(*arguments)
    path = out / "part-00000.arrow"
    whole, manifest = path.read_bytes(), (out / "manifest.json").read_bytes()
    for damaged in (whole[:-1], whole[:5000] + b"\xff" + whole[5001:], None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        said(*arguments)
        assert (path.read_bytes(), (out / "manifest.json").read_bytes()) == (whole, manifest)
        assert {each.name for each in out.iterdir()} == {"manifest.json", "part-00000.arrow"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--to", "safetensors"], "column ids holds lists"),
        (["--to", "safetensors"], "--to arrow, which keeps every column, or --column x --column n --column flag"),
        (["--to", "bin"], "expected one of them"),
        (["--to", "bin", "--column", "x"], "expected whole numbers"),
        (["--to", "arrow", "--column", "y"], "no column"),
        (["--to", "bin", "--column", "flag"], "column flag holds"),
        (["--to", "arrow", "--end", "3"], "--to bin alone"),
        (["--to", "bin", "--column", "ids", "--end", "70000"], "--dtype uint32"),
    ],
)
def test_what_cannot_be_converted_is_refused(tmp_path, arguments, named):
    done = program("convert", *write(tmp_path, files=1, rows=20), "--out", tmp_path / "out", *arguments)
    assert (done.returncode, named in done.stderr) == (1, True), done.stderr


def test_indices_beside_files_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHLOOM_CACHE", str(tmp_path / "cache"))
    paths = write(tmp_path)
    said("index", *paths, "--column", "ids")
    assert len(list((tmp_path / ".batchloom").iterdir())) == len(paths)
    found = bl.open(tmp_path / "*.parquet", columns=["ids"])
    assert found.lengths.sum() == ROWS + (numpy.arange(ROWS) % 7).sum()
    assert not os.path.exists(tmp_path / "cache")


@pytest.mark.parametrize("command", ["convert", "index", "lengths", "inspect"])
def test_a_file_that_is_given_twice_is_refused(tmp_path, command):
    path = write(tmp_path, files=1, rows=20)[0]
    more = ["--out", tmp_path / "out", "--to", "arrow"] if command == "convert" else []
    done = program(command, path, os.path.relpath(path), *more)
    assert (done.returncode, "is given twice" in done.stderr) == (1, True), done.stderr


def write_lengths(folder, lengths):
    """Write files of several formats that have the same lengths; return their arguments."""
    rows = numpy.zeros((len(lengths), 3), "float32")
    numpy.savez(folder / "stored.npz", lengths=lengths, x=rows)
    numpy.savez_compressed(folder / "packed.npz", lengths=lengths, x=rows)
    safetensors.numpy.save_file({"lengths": lengths, "x": rows}, folder / "a.safetensors")
    table = pa.table({"lengths": [[0] * int(length) for length in lengths]})
    for compression in (None, "zstd"):
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.ipc.new_file(folder / f"{compression}.arrow", table.schema, options=options) as file:
            file.write_table(table, max_chunksize=30)
        with pa.ipc.new_stream(folder / f"{compression}.arrows", table.schema, options=options) as stream:
            stream.write_table(table, max_chunksize=30)
    numpy.zeros(lengths.sum(), "uint16").tofile(folder / "corpus.bin")
    bounds = numpy.concatenate([[0], numpy.cumsum(lengths)])
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
    index += lengths.astype("<i4").tobytes() + (bounds[:-1] * 2).astype("<i8").tobytes()
    (folder / "corpus.idx").write_bytes(index + numpy.arange(len(bounds)).astype("<i8").tobytes())
    names = ["stored.npz", "packed.npz", "a.safetensors", "None.arrow", "None.arrows", "zstd.arrow", "zstd.arrows"]
    return [*([folder / name, "--column", "lengths"] for name in names), [folder / "corpus.bin"]]


def test_lengths_are_the_same_from_files_of_every_format(tmp_path):
    lengths = numpy.arange(1, 101)
    for arguments in write_lengths(tmp_path, lengths):
        said("lengths", *arguments, "-o", tmp_path / "found.npy")
        assert (numpy.load(tmp_path / "found.npy") == lengths).all(), arguments
        inspected = json.loads(said("inspect", arguments[0], "--json"))
        assert inspected[0]["rows"] == len(lengths), arguments
    assert said("lengths", tmp_path / "*.npz", "--column", "lengths").startswith("200 samples")


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_members_of_tars_are_inspected(tmp_path, form):
    with tarfile.open(tmp_path / "a.tar", "w", format=form) as tar:
        for sample in range(20):
            for extension in ("jpg", "seg.png"):
                stem = "long" * (5 if form == tarfile.USTAR_FORMAT else 40)
                member = tarfile.TarInfo(f"folder/{stem}{sample}.{extension}")
                member.size = sample
                tar.addfile(member, io.BytesIO(bytes(sample)))
    (found,) = json.loads(said("inspect", tmp_path / "a.tar", "--json"))
    assert (found["rows"], [column["name"] for column in found["columns"]]) == (20, ["jpg", "seg.png"])
    assert found["columns"][0]["kind"] == "20 members of 0 to 19 bytes"
    done = program("lengths", tmp_path / "a.tar")
    assert (done.returncode, "before a function decodes them" in done.stderr) == (1, True)
