"""The program of the package: the same as the crate's, with tables that pyarrow reads."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import batchloom as bl
import numpy
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

LENGTHS = [3 + 7 * number % 50 for number in range(200)]


def run(folder: Path, arguments: str, code: int = 0) -> tuple[str, str]:
    """Return what the program writes to its outputs."""
    found = subprocess.run(
        [sys.executable, "-m", "batchloom", *arguments.split()], cwd=folder, capture_output=True, text=True, check=False
    )
    assert found.returncode == code, found.stderr
    return found.stdout, found.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    table = pyarrow.table({"ids": [[1] * length for length in LENGTHS], "n": LENGTHS, "text": ["ab"] * len(LENGTHS)})
    pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=64)
    pyarrow.feather.write_feather(table, folder / "rows.arrow", compression="uncompressed")
    with pyarrow.OSFile(str(folder / "stream.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    numpy.save(folder / "lengths.npy", numpy.array(LENGTHS))
    (folder / "fake.parquet").write_text("no table")
    (folder / "fake.arrow").write_text("no table")
    return folder


def test_tables_have_the_lengths_of_arrays(folder: Path) -> None:
    expected = run(folder, "lengths lengths.npy")
    for file in ("rows.parquet", "rows.arrow", "stream.arrow"):
        for column in ("ids", "n"):
            assert run(folder, f"lengths {file} --column {column}") == expected
    assert run(folder, "lengths rows.parquet --column text")[0].startswith("200 samples, 400 tokens")


def test_columns_are_listed(folder: Path) -> None:
    (found,) = json.loads(run(folder, "inspect rows.parquet --json")[0])
    assert (found["rows"], found["chunks"]) == (200, 4)
    assert [column["name"] for column in found["columns"]] == ["ids", "n", "text"]


def test_micro_batches_are_those_of_the_function(folder: Path) -> None:
    found = json.loads(run(folder, "microbatches lengths.npy --world-size 4 --max-tokens 300 --sync update --json")[0])
    planned = bl.microbatches(LENGTHS, world_size=4, max_tokens=300, sync="update")
    for name in ("count", "imbalance", "bound", "sequences"):
        assert found[name] == getattr(planned, name)
    for name in ("index", "offsets", "weight", "inverse", "left", "dropped"):
        assert found[name] == getattr(planned, name).tolist()
    assert found["tokens"] == planned.tokens.reshape(-1).tolist()


def test_bad_data_is_one_line(folder: Path) -> None:
    for arguments, message in {
        "lengths rows.parquet --column id": 'has no column "id"; did you mean "ids"?',
        "lengths rows.arrow": "there are 3 columns; expected --column, one of ids, n, text",
        "lengths fake.parquet": "fake.parquet: this is not a Parquet file",
        "lengths fake.arrow": "fake.arrow: this is not an Arrow file",
        "lengths missing.parquet --column n": "missing.parquet",
        "compare lengths.npy --rule packing:4": "sample",
        "microbatches lengths.npy --world-size 4 --max-tokens 40": "which exceeds max_tokens (40)",
    }.items():
        out, error = run(folder, arguments, 1)
        assert not out
        assert error.startswith("batchloom: ")
        assert error.count("\n") == 1, error
        assert message in error


def test_bad_usage_is_another_code(folder: Path) -> None:
    assert "expected fixed-size:N" in run(folder, "compare lengths.npy --rule many", 2)[1]


def test_the_console_script_is_the_program(folder: Path) -> None:
    script = Path(sys.executable).with_name("batchloom")
    found = subprocess.run([script, "--version"], cwd=folder, capture_output=True, text=True, check=True)
    assert found.stdout.startswith("batchloom ")


def test_a_terminal_of_80_columns_is_not_exceeded(folder: Path) -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        ["sh", "-c", f"stty cols 80 rows 24; exec {sys.executable} -m batchloom compare lengths.npy --world-size 2"],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            text += os.read(ours, 4096)
        except OSError:
            break
    assert child.wait() == 0
    table = text.decode().split("\r\n\r\n")[0].splitlines()
    # The samples; two lines for the head and each rule; and the note on packing.
    assert len(table) == 1 + 2 * 7 + 1
    assert max(map(len, table)) <= 80


def test_ctrl_c_ends_the_program_at_once_and_in_silence(folder: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", "batchloom", "lengths", "-"], cwd=folder, **pipes) as child:
        assert child.stdin is not None
        # More than a pipe holds: once all of it is written, the program is reading.
        child.stdin.write(b"12345\n" * 50_000)
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) == -signal.SIGINT
        assert child.communicate() == (b"", b"")
