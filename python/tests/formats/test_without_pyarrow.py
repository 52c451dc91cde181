"""Files that the engine reads by itself open where pyarrow is not installed, and where it is they do not import it."""

import subprocess
import sys
from pathlib import Path

import numpy
import pyarrow
import pytest
from pyarrow import parquet

# What a process does: the files are opened and read, and the modules of pyarrow that are there are printed.
SCRIPT = """
import sys
{before}
import batchloom as bl
for batch in bl.DataLoader(bl.open(sys.argv[1], {options}), 2):
    pass
print([name for name in sys.modules if name.partition(".")[0] == "pyarrow" and sys.modules[name] is not None])
"""
ABSENT = "sys.modules['pyarrow'] = None"


def run(path: Path, options: str, before: str) -> subprocess.CompletedProcess[str]:
    """Open a file in a process of its own, and read it."""
    script = SCRIPT.format(before=before, options=options)
    return subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Return a file of each format."""
    paths = {name: tmp_path / f"rows.{name}" for name in ("parquet", "npy", "jsonl", "bin", "arrow", "folder")}
    paths["folder"].mkdir()
    for name in ("state.json", "dataset_info.json"):
        (paths["folder"] / name).write_text("{}")
    table = pyarrow.table({"x": [[1, 2], [3], [4]], "y": [1.0, 2.0, 3.0], "text": ["a", "b", "c"]})
    parquet.write_table(table, paths["parquet"])
    with pyarrow.ipc.new_file(paths["arrow"], table.schema) as writer:
        writer.write_table(table)
    numpy.save(paths["npy"], numpy.arange(6.0))
    paths["jsonl"].write_text('{"x": 1}\n{"x": 2}\n')
    numpy.arange(64, dtype="uint16").tofile(paths["bin"])
    return paths


@pytest.mark.parametrize("before", ["", ABSENT])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("parquet", "columns=['x', 'y']"),
        ("parquet", "columns=['y']"),
        ("npy", ""),
        ("jsonl", ""),
        ("jsonl", "fn=lambda row: {'x': row['x']}"),
        ("bin", "kind='tokens', dtype='uint16', seq_len=8"),
    ],
)
def test_files_of_numbers_need_no_pyarrow(files: dict[str, Path], name: str, options: str, before: str) -> None:
    done = run(files[name], options, before)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("parquet", ""),
        ("parquet", "columns=['x', 'text'], chunks_open=2"),
        ("parquet", "columns=['y'], fn=lambda row: row"),
        ("arrow", "columns=['y']"),
        ("folder", ""),
        ("folder", "fn=lambda row: row"),
    ],
)
def test_other_files_tell_that_they_need_it(files: dict[str, Path], name: str, options: str) -> None:
    done = run(files[name], options, ABSENT)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"batchloom.errors.ArgumentError: {files[name]} is read by pyarrow")
    assert last.endswith("; pyarrow is not installed: pip install pyarrow")
    assert (", as column 'text' holds no numbers" in last) == ((name, options) == ("parquet", ""))
