"""Measure public training scripts beside the same scripts with batchloom: the table of 21 migrations.

    BENCH_PEERS=FOLDER python -m bench migrations [--only 10] [--rounds 5] [--scale 0.02] [--output FILE]
    python -m bench migrations --join FILE FILE ...

``FOLDER`` has a checkout of each repository, under its name. A row is the loading of a script as it stands, by its own
functions and classes where it has some, and the same with batchloom by the guides. Raw data is made here, of the sizes
that the script has. Loop body ``pass``. Promises:

- Before anything is timed, the batches of both sides were compared: every value where the order is fixed, and samples
  as multisets where it is random, with shapes, types, names and padding.
- ``warm``: a pass of at most 200 batches, or an epoch, with two of torch's threads on all cores, and once more with
  one thread of torch and all threads on one core. Interleaved rounds, each row in a process of its own.
- ``cold``: making everything from the raw data and the first pass, each time in a fresh process that has imported what
  its modules name. Modules of batchloom that it imports on first use count; they are compiled, as an installed package
  is. The script and batchloom take turns.
- Scripts run without worker processes, which are slower on short passes, but for images and where a row says so.
- A row without its checkout or package is not measured, and the reason is printed. Rows may be run on their own, one
  after the other on one machine; ``--join`` makes one result of them.
"""

from __future__ import annotations

import compileall
import json
import os
import tempfile
import time
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import batchloom
import torch

from bench.harness.checkouts import NotHereError, find_checkout, read_commit
from bench.harness.claims import Claim, stated
from bench.harness.command import arguments, is_whole
from bench.harness.measure import LOOM, Candidate, Pace, Timing, exhaust, interleave, progress
from bench.harness.processes import elsewhere
from bench.harness.quiet import family
from bench.harness.record import write
from bench.harness.report import print_not_measured, table
from bench.migrations.rows import Pass, Row, Side

SCRIPT = "script"
Timings = tuple[Timing, Timing]
MODULES = ("streams", "series", "tables", "ranking", "images", "texts", "sound")
PACE, THREADS, COLD_ROUNDS = Pace(seconds=0.15, tries=3), 2, 3


def all_rows() -> dict[str, Row]:
    """Return the rows by name, in the order of their numbers."""
    rows = [row for module in MODULES for row in import_module(f"bench.migrations.{module}").ROWS]
    return {row.name: row for row in sorted(rows, key=lambda row: row.number)}


def row_of(name: str, module: str) -> Row:
    """Return a row of a module: a process of one row imports what that row needs."""
    (found,) = (row for row in import_module(module).ROWS if row.name == name)
    return found


def measure(row: Row, folder: Path, scale: float, rounds: int) -> dict[str, Any]:
    """Compare and measure one row."""
    case: dict[str, Any] = {"name": row.name, "number": row.number, "form": row.form, "title": row.title}
    case |= {"source": vars(row.source), "changed": row.changed}
    checkout = find_checkout(row.source.checkout)
    case["checkout"] = None if checkout is None else read_commit(checkout)
    place = (row.name, row.prepare.__module__)
    checked, all_cores, one_core = elsewhere(measure_here, *place, folder, scale, rounds)
    case |= {"checked_batches": checked, "warm": warm_record(*all_cores), "one_core": warm_record(*one_core)}
    case["cold"] = measure_cold(*place, folder, scale, min(rounds, COLD_ROUNDS))
    text = f"row {row.name}, {row.title}: warm time of the script, times batchloom's"
    claim = Claim(text, case["warm"]["ratio"], ">=", 1, case["warm"]["best_ratio"])
    return {**case, "claim": claim.record()}


def measure_here(name: str, module: str, folder: Path, scale: float, rounds: int) -> tuple[int, Timings, Timings]:
    """Compare both sides, and time passes on all cores and on one. Runs in a fresh process."""
    torch.set_num_threads(THREADS)
    row = row_of(name, module)
    data = row.prepare(folder, scale)
    checked = row.check(row, data)
    progress(f"{name}: {checked} batches compared")
    all_cores = warm(row, data, rounds, "all cores")
    core = min(os.sched_getaffinity(0))
    for process in family(os.getpid()):  # what they start from now on, too
        os.sched_setaffinity(process, {core})
    torch.set_num_threads(1)
    return checked, all_cores, warm(row, data, rounds, "one core")


def warm(row: Row, data: Any, rounds: int, where: str) -> Timings:
    """Time passes of both sides in the same rounds."""
    candidates = [Candidate(title, partial(take_pass, row, side(data, True))) for title, side in sides(row)]
    timings = interleave(f"{row.name}, {where}", candidates, rounds, PACE)
    script, loom = (Timing(Candidate(title, float), *_figures(timings[title])) for title, _ in sides(row))
    return script, loom


def _figures(timing: Timing) -> tuple[list[list[float]], list[float]]:
    """Return what can leave the process: figures without what was timed."""
    return timing.runs, timing.others


def sides(row: Row) -> tuple[tuple[str, Side], tuple[str, Side]]:
    """Return both sides of a row by name."""
    return (SCRIPT, row.script), (LOOM, row.loom)


def take_pass(row: Row, epoch: Pass) -> None:
    """Take the batches of a pass that are timed."""
    exhaust(islice(epoch(), row.batches))


def measure_cold(name: str, module: str, folder: Path, scale: float, rounds: int) -> dict[str, Any]:
    """Time making each side and its first pass, by turns."""
    found: dict[str, list[float]] = {SCRIPT: [], LOOM: []}
    for turn in range(rounds):
        for title in (SCRIPT, LOOM) if turn % 2 == 0 else (LOOM, SCRIPT):
            found[title].append(elsewhere(cold, name, module, title, folder, scale))
            progress(f"{name}, cold: round {turn + 1} of {rounds}: {title}: {found[title][-1]:.4g} s")
    ratios = [script / loom for script, loom in zip(found[SCRIPT], found[LOOM], strict=True)]
    medians = {title: median(seconds) for title, seconds in found.items()}
    return {"seconds": medians, "ratio": median(ratios), "rounds": found}


def cold(name: str, module: str, title: str, folder: Path, scale: float) -> float:
    """Return the seconds of making one side and of its first pass. Runs in a fresh process."""
    torch.set_num_threads(THREADS)
    row = row_of(name, module)
    data, side = row.prepare(folder, scale), dict(sides(row))[title]
    start = time.perf_counter()
    take_pass(row, side(data, True))
    return time.perf_counter() - start


def warm_record(script: Timing, loom: Timing) -> dict[str, Any]:
    """Return the JSON's record of warm passes."""
    figures = {"ratio": script.ratio(loom), "best_ratio": script.best_ratio(loom)}
    return {**figures, "script": script.record({}), "batchloom": loom.record({})}


def show(cases: list[dict[str, Any]]) -> None:
    """Print the table, and the rows whose first pass is slower."""
    heads = ("row", "kind", "script s", "batchloom s", "warm", "one core", "cold")
    lines = [
        (
            case["name"],
            case["title"],
            f"{case['warm']['script']['median_seconds']:.4g}",
            f"{case['warm']['batchloom']['median_seconds']:.4g}",
            f"{case['warm']['ratio']:.2f}",
            f"{case['one_core']['ratio']:.2f}",
            f"{case['cold']['ratio']:.2f}",
        )
        for case in cases
    ]
    table("time of the script over batchloom's", heads, lines)
    for case in cases:
        if case["cold"]["ratio"] < 1:
            seconds = " and ".join(f"{each:.4g} s" for each in case["cold"]["seconds"].values())
            print(f"  COLD BELOW 1  {case['name']}: script and batchloom take {seconds}")


def joined(files: list[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the cases of several files, each beside the commit and the time of its run, and what is not measured.

    Raises:
        SystemExit: They are of several machines, hold a row twice, or one that is not known.
    """
    parts = [json.loads(Path(file).read_text()) for file in files]
    if len(machines := {(part["machine"]["cpu"], part["machine"]["cores"]) for part in parts}) > 1:
        raise SystemExit(f"found parts of {len(machines)} machines, expected one")
    cases = [
        {**case, "taken": part["taken"], "commit": part["commit"], "load": part["machine"]["load_average_at_end"]}
        for part in parts
        for case in part["cases"]
    ]
    missing = {name: reason for part in parts for name, reason in part["not_measured"].items()}
    names, rows = [*(case["name"] for case in cases), *missing], all_rows()
    if len({*names}) < len(names) or not {*names} <= {*rows}:
        raise SystemExit(f"found the rows {sorted(names)}, expected each of {sorted(rows)} once at most")
    missing |= {name: "no file has it" for name in rows if name not in names}
    return sorted(cases, key=lambda case: [*rows].index(case["name"])), missing


def main() -> None:
    """Run the chapter."""
    rows = all_rows()
    names = sorted({*rows, *(row.number for row in rows.values())})
    join = {"nargs": "+", "metavar": "FILE", "help": "write the result that is in the files of parts, and run nothing"}
    chosen = arguments(__doc__, names, join=join)
    cases: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    if chosen.join:
        cases, missing = joined(chosen.join)
        chosen.join = [Path(file).name for file in chosen.join]
    else:
        compileall.compile_dir(Path(batchloom.__file__).parent, quiet=1)
    for name, row in () if chosen.join else rows.items():
        if chosen.only and not {name, row.number} & set(chosen.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                cases.append(measure(row, Path(folder), chosen.scale, chosen.rounds))
            except NotHereError as reason:
                missing[name] = str(reason)
    show(cases)
    print_not_measured(missing)
    claims = [Claim(**{name: case["claim"][name] for name in Claim.__annotations__}) for case in cases]
    body = {"cases": cases, "not_measured": missing, "claims": stated(claims)}
    body["cold_below_one"] = [case["name"] for case in cases if case["cold"]["ratio"] < 1]
    write("migrations", chosen, body, is_whole(chosen))


if __name__ == "__main__":
    main()
