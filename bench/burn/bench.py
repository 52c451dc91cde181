"""Measure epochs of rows for Burn beside Burn's own loader, in one program of Rust.

    python -m bench burn [--only 4kb|64b|256b] [--rounds 5] [--scale 0.1] [--output FILE]

The program is ``examples/epochs.rs`` of ``crates/batchloom-burn``, built for release; the first build of Burn takes
minutes. Promises:

- Both make tensors of the backend flex, of rows and of labels, in shuffled batches of 64. The first value of each batch
  and all labels are read, and the sum of labels must be the same for every candidate.
- Burn's rows are arrays in memory (``InMemDataset``), which its batcher puts together in one allocation for each batch:
  the fastest way that its documentation shows. Its loader runs with no workers and with two.
- batchloom has two threads, as many as the machine has cores, and else the defaults. Loaders are kept for all epochs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import partial
from types import TracebackType
from typing import Any, Self

from bench.harness.claims import all_slower, stated
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.measure import LOOM, Candidate, interleave
from bench.harness.record import BENCH, write
from bench.harness.report import faster_than, fastest_first, print_disturbed, table

CRATE = BENCH.parent / "crates" / "batchloom-burn"
ALONE, WORKERS = "burn, no workers", "burn, 2 workers"
CANDIDATES = {LOOM: "batchloom 2", ALONE: "burn 0", WORKERS: "burn 2"}
# Rows and floats in each, and how many times batchloom's time Burn's loader is to take.
WORKLOADS = {"4kb": (100_000, 1024, 1.0), "256b": (400_000, 64, 1.0), "64b": (1_000_000, 16, 2.0)}


class Epochs:
    """The program, which holds rows of one width and runs an epoch when it is told to."""

    def __init__(self, rows: int, width: int) -> None:
        build = ["cargo", "build", "--release", "--locked", "--quiet", "--example", "epochs"]
        subprocess.run(build, cwd=CRATE, check=True)
        program = CRATE / "target" / "release" / "examples" / "epochs"
        self._process = subprocess.Popen(
            [program, str(rows), str(width)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._labels: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.communicate()

    def run(self, candidate: str) -> float:
        """Run one epoch; return its seconds.

        Raises:
            RuntimeError: The program ended, or an epoch had other labels.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(candidate, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program ended with status {self._process.wait()}")
        found = json.loads(line)
        self._labels.add(found["labels"])
        if len(self._labels) > 1:
            raise RuntimeError(f"{candidate}: the labels of epochs have sums {sorted(self._labels)}; expected one")
        return float(found["seconds"])


def measure(name: str, scale: float, rounds: int) -> dict[str, Any]:
    """Measure rows of one width."""
    all_rows, width, bound = WORKLOADS[name]
    rows = max(round(all_rows * scale), 1000)
    with Epochs(rows, width) as epochs:
        candidates = [
            Candidate(candidate, partial(epochs.run, command), {"rows": rows})
            for candidate, command in CANDIDATES.items()
        ]
        timings = interleave(name, candidates, rounds)
    lines = [
        (each.name, f"{each.median * 1e3:.1f}", f"{each.ratio(timings[LOOM]):.2f}") for each in fastest_first(timings)
    ]
    table(f"an epoch of {rows} rows of {4 * width} bytes", ("candidate", "median ms", "x batchloom"), lines)
    print_disturbed(name, timings)
    return {
        "rows": rows,
        "row_bytes": 4 * width,
        "candidates": [timing.record({"batchloom": timings[LOOM]}) for timing in timings.values()],
        "claims": stated(all_slower(name, timings, {ALONE: bound, WORKERS: bound})),
        "faster_than_batchloom": faster_than(LOOM, timings),
    }


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, WORKLOADS)
    if shutil.which("cargo") is None:
        raise SystemExit("not measured: cargo is not installed")
    cases = {name: measure(name, chosen.scale, chosen.rounds) for name in wanted(chosen, WORKLOADS)}
    write("burn", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
