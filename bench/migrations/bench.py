"""Measure public training scripts beside the same scripts with batchloom: the table of 21 migrations.

    BENCH_PEERS=FOLDER python -m bench migrations [--only 10] [--rounds 5] [--scale 0.02] [--output FILE]

``FOLDER`` has a checkout of each repository, under its name. A row is the loading of a script as it stands, by its own
functions and classes where it has some, and the same with batchloom by the guides. Raw data is made here, of the sizes
that the script has. Loop body ``pass``. Promises:

- Before anything is timed, the batches of both sides were compared: every value where the order is fixed, and samples as
  multisets where it is random, with shapes, types, names and padding.
- ``warm``: a pass of at most 200 batches, or an epoch, with two of torch's threads on all cores, and once more with all of
  the process on one core. Interleaved rounds, each row in a process of its own.
- ``cold``: making everything from the raw data and the first pass, each time in a fresh process that has imported what
  it needs. The script and batchloom take turns.
- Scripts run without worker processes, which are slower on short passes, but for images and where a row says so.
- A row without its checkout or package is not measured, and the reason is printed.
"""

from __future__ import annotations

import os
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.harness.checkouts import NotHere, find_checkout, read_commit
from bench.harness.claims import Claim, stated
from bench.harness.command import arguments, is_whole
from bench.harness.measure import LOOM, Candidate, Pace, Timing, exhaust, interleave, progress
from bench.harness.processes import elsewhere
from bench.harness.record import write
from bench.harness.report import print_not_measured, table
from bench.migrations.rows import Row

SCRIPT = "script"
PACE, TUNED_THREADS = Pace(seconds=0.4), 2


def all_rows() -> dict[str, Row]:
    """Return the rows by name, in the order of their numbers."""
    from bench.migrations.images import ROWS_OF_IMAGES
    from bench.migrations.ranking import ROWS_OF_RANKING
    from bench.migrations.series import ROWS_OF_SERIES
    from bench.migrations.sound import ROWS_OF_SOUND
    from bench.migrations.streams import ROWS_OF_STREAMS
    from bench.migrations.tables import ROWS_OF_TABLES
    from bench.migrations.texts import ROWS_OF_TEXTS

    rows = [*ROWS_OF_STREAMS, *ROWS_OF_TABLES, *ROWS_OF_SERIES, *ROWS_OF_IMAGES, *ROWS_OF_TEXTS, *ROWS_OF_RANKING]
    rows += ROWS_OF_SOUND
    return {row.name: row for row in sorted(rows, key=lambda row: row.number)}


def check(name: str, folder: Path, scale: float) -> int:
    """Compare both sides of a row; return the number of compared batches. Runs in a fresh process."""
    row = all_rows()[name]
    return row.check(row, row.prepare(folder, scale))


def warm(name: str, folder: Path, scale: float, rounds: int, one_core: bool) -> dict[str, Timing]:
    """Time passes of both sides in the same rounds. Runs in a fresh process."""
    if one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1 if one_core else TUNED_THREADS)
    row = all_rows()[name]
    data = row.prepare(folder, scale)
    candidates = []
    for title, side in ((SCRIPT, row.script), (LOOM, row.loom)):
        epoch = side(data, True)
        candidates.append(Candidate(title, lambda epoch=epoch: exhaust(islice(epoch(), row.batches))))
    timings = interleave(f"{name}, {'one core' if one_core else 'all cores'}", candidates, rounds, PACE)
    for title, timing in timings.items():
        timings[title] = Timing(Candidate(title, float), timing.runs, timing.others)  # what can leave the process
    return timings


def cold(name: str, title: str, folder: Path, scale: float) -> float:
    """Return the seconds of making one side and of its first pass. Runs in a fresh process."""
    row = all_rows()[name]
    torch.set_num_threads(TUNED_THREADS)
    data = row.prepare(folder, scale)
    side = row.script if title == SCRIPT else row.loom
    start = time.perf_counter()
    exhaust(islice(side(data, True)(), row.batches))
    return time.perf_counter() - start


def measure_cold(name: str, folder: Path, scale: float, rounds: int) -> dict[str, Any]:
    """Time the first pass of both sides, by turns."""
    found: dict[str, list[float]] = {SCRIPT: [], LOOM: []}
    for turn in range(rounds):
        for title in (SCRIPT, LOOM) if turn % 2 == 0 else (LOOM, SCRIPT):
            found[title].append(elsewhere(cold, name, title, folder, scale))
            progress(f"{name}, cold: round {turn + 1} of {rounds}: {title}: {found[title][-1]:.4g} s")
    ratios = [script / loom for script, loom in zip(found[SCRIPT], found[LOOM], strict=True)]
    medians = {title: median(seconds) for title, seconds in found.items()}
    return {"seconds": medians, "ratio": median(ratios), "rounds": found}


def measure(row: Row, folder: Path, scale: float, rounds: int, cold_rounds: int) -> tuple[dict[str, Any], Claim]:
    """Compare and measure one row."""
    checked = elsewhere(check, row.name, folder, scale)
    progress(f"{row.name}: {checked} batches compared")
    case: dict[str, Any] = {"name": row.name, "number": row.number, "form": row.form, "title": row.title}
    case |= {"source": vars(row.source), "changed": row.changed, "checked_batches": checked}
    folder_of = find_checkout(row.source.checkout)
    case["checkout"] = None if folder_of is None else read_commit(folder_of)
    timings = elsewhere(warm, row.name, folder, scale, rounds, False)
    script, loom = timings[SCRIPT], timings[LOOM]
    case["warm"] = warm_record(script, loom)
    alone = elsewhere(warm, row.name, folder, scale, rounds, True)
    case["one_core"] = warm_record(alone[SCRIPT], alone[LOOM])
    case["cold"] = measure_cold(row.name, folder, scale, cold_rounds)
    text = f"row {row.name}, {row.title}: warm time of the script, times batchloom's"
    claim = Claim(text, case["warm"]["ratio"], ">=", 1, script.best_ratio(loom))
    return {**case, "claim": claim.record()}, claim


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


def main() -> None:
    """Run the chapter."""
    rows = all_rows()
    names = sorted({*rows, *(row.number for row in rows.values())})
    more = {"cold_rounds": {"type": int, "default": 3, "help": "how many fresh processes for each side of a row"}}
    chosen = arguments(__doc__, names, **more)
    cases, claims, missing = [], [], {}
    for name, row in rows.items():
        if chosen.only and not {name, row.number} & set(chosen.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                case, claim = measure(row, Path(folder), chosen.scale, chosen.rounds, chosen.cold_rounds)
            except NotHere as reason:
                missing[name] = str(reason)
                continue
        cases.append(case)
        claims.append(claim)
    show(cases)
    print_not_measured(missing)
    body = {"cases": cases, "not_measured": missing, "claims": stated(claims)}
    body["cold_below_one"] = [case["name"] for case in cases if case["cold"]["ratio"] < 1]
    write("migrations", chosen, body, is_whole(chosen))


if __name__ == "__main__":
    main()
