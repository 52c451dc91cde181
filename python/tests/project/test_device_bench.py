"""The bench of devices, with the CPU in place of a GPU: every part runs, visits end, go on, and are joined."""

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from visits import BENCH, ROOT, Visits, kill

PARTS = ("limits", "windows_batch", "groups")


@pytest.fixture(scope="module")
def visits():
    """The process that visits are forked from: only a command line that cannot run starts an interpreter."""
    server = Visits()
    yield server
    server.close()


@pytest.fixture
def visit(visits, tmp_path):
    """Run a visit; return its exit code, what it printed, and its parts."""
    printed, file = tmp_path / "printed", tmp_path / "device-cpu.json"

    def run(*options, minutes=4, code=BENCH):
        visits.start(words(tmp_path, *options, minutes=minutes), printed, code)
        status = visits.wait()
        parts = json.loads(file.read_text())["parts"] if file.exists() else {}
        return status, printed.read_text(), parts

    return run


def words(folder, *options, minutes=4):
    return ["--device", "cpu", "--minutes", str(minutes), "--out", str(folder), *options]


def only(*names):
    return [word for name in names for word in ("--only", name)]


@pytest.fixture
def merge(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    yield importlib.import_module("bench.device.merge")
    for name in [name for name in sys.modules if name.partition(".")[0] == "bench"]:
        del sys.modules[name]


@pytest.mark.timeout(300)
def test_every_part_runs_where_the_cpu_stands_in(visit):
    code, output, parts = visit()
    left = {name for name, part in parts.items() if part["status"] != "done"}
    # The published series is not a part of the repository.
    assert code == 0, output[-3000:]
    assert left <= {"errors"}, output[-3000:]
    assert not left or "ETTh1.csv is not here" in output
    assert len(parts) == 20
    assert parts["rows"]["ratios"]
    assert all(claim.keys() == {"text", "measured", "best"} for claim in parts["rows"]["claims"])
    for part in parts.values():
        assert part["seconds"] >= 0
        assert part["taken"]
        assert part["commit"]["id"]


@pytest.mark.timeout(200)
def test_a_visit_that_is_killed_keeps_what_was_done_and_the_next_goes_on(visit, visits, tmp_path):
    file = tmp_path / "device-cpu.json"
    process = visits.start(words(tmp_path, *only(*PARTS)), tmp_path / "killed")
    end = time.monotonic() + 150
    while time.monotonic() < end and not (file.exists() and json.loads(file.read_text())["parts"]):
        time.sleep(0.02)
    kill(process)
    visits.wait()
    known = json.loads(file.read_text())["parts"]
    assert known
    first = [name for name, part in known.items() if part["status"] == "done"]
    code, output, parts = visit(*only(*PARTS))
    assert code == 0, output
    assert {part["status"] for part in parts.values()} == {"done"}
    for name in first:
        assert f"{name}: done at this commit" in output
        assert parts[name]["taken"] == known[name]["taken"]
    assert set(parts) == set(PARTS)


def test_what_does_not_fit_into_the_clock_is_left(visit):
    code, output, parts = visit(*only("limits", "documents"), minutes=5.5 / 60)
    assert code == 0, output
    assert parts["documents"]["status"] == "left"
    assert "documents: left" in output


def test_a_failure_is_recorded_and_the_next_part_runs(visit):
    broken = (
        "from bench.device import bench\n"
        "def measure(place): raise ValueError('broken on purpose')\n"
        "bench.PARTS['groups'] = bench.Part(measure, 1, 1)\n"
        "bench.PARTS['rows'] = bench.Part(measure, 1, 1, ('no_such_package',))\n"
        "bench.main()\n"
    )
    code, output, parts = visit(*only("rows", "groups", "limits"), code=broken)
    assert code == 1, output
    assert parts["groups"]["failure"] == "ValueError: broken on purpose"
    assert parts["groups"]["traceback"][-1] == "ValueError: broken on purpose"
    assert "no_such_package" in parts["rows"]["failure"]
    assert parts["limits"]["status"] == "done"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--device", "cuda"], "finds none"),
        (["--device", "cpu", "--minutes", "0.001"], "the clock is 0 s"),
        (["--device", "meta"], "the device is meta"),
    ],
)
def test_what_cannot_run_is_one_line(words, named, visits, tmp_path):
    visits.start([*words, "--out", str(tmp_path)], tmp_path / "printed")
    assert visits.wait() == 2
    printed = (tmp_path / "printed").read_text()
    assert named in printed
    assert len(printed.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["printed"]


def test_the_chapter_runs_from_the_command_line(tmp_path):
    asked = [sys.executable, "-m", "bench", "device", *words(tmp_path, minutes=0.001)]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "the clock is 0 s" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [[], ["pack it"], ["merge", "/nowhere"]])
def test_the_script_refuses_what_it_does_not_know(words):
    done = subprocess.run([ROOT / "scripts" / "device", *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("device: ")
    assert "expected" in done.stderr


def record(status, taken, text="a ratio", measured=2.0):
    claim = {"text": text, "measured": measured, "relation": ">=", "bound": 1.5, "best": None}
    claim["reached"] = measured >= 1.5
    return {"status": status, "taken": taken, "claims": [claim], "ratios": {text: measured}, "body": {"of": taken}}


def test_visits_are_joined_part_by_part(merge, tmp_path):
    device = {"name": "A GPU", "slug": "a-gpu", "is_gpu": True}
    first = {"laws": record("done", "1"), "rows": record("failed", "1"), "groups": {"status": "left"}}
    second = {"laws": record("left", "2"), "rows": record("done", "2"), "jax": record("done", "2")}
    home = tmp_path / "home"
    for found in (first, second):
        file = merge.join(Path("device-a-gpu.json"), {"device": device, "parts": found}, home)
    parts = json.loads(file.read_text())["parts"]
    assert {name: (part["status"], part.get("taken")) for name, part in parts.items()} == {
        "laws": ("done", "1"), "rows": ("done", "2"), "groups": ("left", None), "jax": ("done", "2"),
    }  # fmt: skip
    again = merge.join(Path("device-a-gpu.json"), {"device": device, "parts": {"rows": record("failed", "3")}}, home)
    assert json.loads(again.read_text())["parts"]["rows"]["taken"] == "2"


def test_tables_have_a_column_for_each_device_and_mark_misses(merge):
    figures = [
        merge.Figure("A", "rows", "first", 2.0, ">=", 1.5, True),
        merge.Figure("B", "rows", "first", 1.0, ">=", 1.5, False),
        merge.Figure("B", "rows", "second", 1234.5, "<=", 2000.0, True),
    ]
    assert merge.long_table(figures).splitlines() == [
        "| | to reach | A | B |",
        "|---|---:|---:|---:|",
        "| first | >= 1.5 | 2 | *1* |",
        "| second | <= 2000 |  | 1234 |",
    ]
    cases = [("rows of 64", 3.0, True), ("rows of 1024", 1.0, False), ("groups", 5.0, True)]
    figures = [merge.Figure("A", "rows", f"{case}: time", value, ">=", 2.0, hit) for case, value, hit in cases]
    assert merge.long_table(figures[:2]).splitlines()[2] == "| rows of ...: time | >= 2 | 64: 3; 1024: *1* |"
    assert merge.long_table(figures).splitlines()[2:] == [
        "| time | >= 2 | rows of 64: 3; rows of 1024: *1*; groups: 5 |"
    ]
    assert merge.long_table([]) == "Nothing is measured on a GPU yet.\n"


def test_pages_have_the_tables_of_the_results(merge):
    for page, text in merge.tables().items():
        found = page.read_text(encoding="utf-8")
        assert merge.with_table(found, text) == found, "write them with scripts/device merge"
