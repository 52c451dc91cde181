"""The chapter of migrated scripts runs in small without their checkouts, and the page has the table of its results."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Rows whose script is here in our words, and the packages that they need.
INLINE = {
    "05-groups": "batch_iter",
    "05-rows": "batch_iter",
    "08": "torchvision",
    "09-read": "torchvision",
    "12": None,
    "12-orders": None,
    "16-anew": None,
    "16-kept": None,
    "18-bags": None,
}


@pytest.fixture
def bench(monkeypatch):
    """A function that imports a module of the benchmarks, where there are no checkouts."""
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delenv("BENCH_PEERS", raising=False)
    yield lambda name: importlib.import_module(f"bench.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]


# Scripts fork workers of torch's loader; JAX warns of that where another test of the process imported it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", INLINE)
def test_a_script_in_our_words_and_its_migration_make_the_same_batches(bench, name, tmp_path):
    for package in filter(None, [INLINE[name]]):
        pytest.importorskip(package)
    row = bench("migrations.bench").all_rows()[name]
    assert row.check(row, row.prepare(tmp_path, 0.01)) > 0


def test_rows_are_of_21_scripts_and_have_names_of_their_own(bench):
    rows = bench("migrations.bench").all_rows()
    assert {row.number for row in rows.values()} == {f"{number:02}" for number in range(1, 22)}
    assert all(name == row.name for name, row in rows.items())


def test_a_batch_that_differs_is_found(bench):
    rows, torch = bench("migrations.rows"), pytest.importorskip("torch")
    batch = {"x": torch.arange(6).view(2, 3), "y": torch.ones(2)}
    rows.expect_equal("00", 1, batch, dict(batch))
    changed = [
        batch | {"x": batch["x"] + 1},
        batch | {"x": batch["x"].int()},
        batch | {"x": batch["x"].view(3, 2)},
        {"x": batch["x"]},
    ]
    for other in changed:
        with pytest.raises(SystemExit, match="row 00, batch 1"):
            rows.expect_equal("00", 1, batch, other)
    source = rows.Source("nobody/nothing", "0", "none.py")
    passes = [lambda *_: lambda: [batch], lambda *_: lambda: [batch | {"y": torch.tensor([1.0, 2.0])}]]
    row = rows.Row("00", "rows", source, lambda *_: None, *passes, rows.same)
    with pytest.raises(SystemExit, match="samples differ"):
        rows.same_samples(row, None)


def test_functions_of_a_script_are_taken_from_it_alone(bench, tmp_path):
    checkouts = bench("harness.checkouts")
    script = tmp_path / "train.py"
    script.write_text("import nothing_of_this_name\ndef outer():\n    def inner(x):\n        return x + one\n")
    assert checkouts.take(script, ["inner"], {"one": 1})["inner"](2) == 3
    for name, file in (("other", script), ("inner", tmp_path / "absent.py")):
        with pytest.raises(checkouts.NotHereError):
            checkouts.take(file, [name], {})


@pytest.mark.timeout(200)
def test_the_chapter_measures_what_is_here_and_names_what_is_not(tmp_path):
    output = tmp_path / "found.json"
    options = ["--only", "16-kept", "--only", "10", "--scale", "0.02", "--rounds", "1", "--output", str(output)]
    environment = {name: value for name, value in os.environ.items() if name != "BENCH_PEERS"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), *sys.path])
    command = [sys.executable, "-m", "bench", "migrations", *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(output.read_text(encoding="utf-8"))
    (case,) = found["cases"]
    assert case["name"] == "16-kept"
    assert case["checked_batches"] > 0
    assert all(case[part]["ratio"] > 0 for part in ("warm", "one_core", "cold"))
    assert [claim["bound"] for claim in found["claims"]] == [1]
    assert found["not_measured"].keys() == {"10", "10-time-first"}
    assert "not measured: 10: no checkout examples" in done.stdout


def test_the_page_has_the_section_of_the_results(bench):
    table = bench("migrations.table")
    page = table.PAGE.read_text(encoding="utf-8")
    found = page.partition(table.START)[2].partition(table.END)[0]
    assert found == table.section(table.find_results()) + "\n", "write it with python -m bench.migrations.table"


def test_a_cell_is_bold_where_the_script_is_faster(bench):
    table = bench("migrations.table")
    assert [table.ratio(each) for each in (0.994, 1.0, 1.04, 1.14, 9.94, 63.7)] == [
        "**0.99**",
        "1.00",
        "1.04",
        "1.1",
        "9.9",
        "64",
    ]
    source = {"repository": "nobody/nothing", "commit": "0a1b2c3", "file": "some/train.py"}
    figures = {"warm": {"ratio": 3.21}, "one_core": {"ratio": 2.5}, "cold": {"ratio": 0.4}}
    lines = table.table([{"source": source, "title": "rows", "changed": "3 / 4", **figures}]).splitlines()
    assert lines[-1] == "| nobody/nothing 0a1b2c3, train.py | rows | 3 / 4 | 3.2 | 2.5 | **0.40** |"
