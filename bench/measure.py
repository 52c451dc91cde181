"""How every script here measures: named candidates in interleaved rounds, on a machine that is recorded.

What it promises:

- Candidates that are compared run in the same rounds, one after the other, and each round begins with another
  candidate: what disturbs the machine for a while disturbs all of them.
- A figure is a median over rounds. A ratio is the median of the ratios inside each round, never a ratio of
  medians.
- A round in which other processes took part of the machine is run again, and the quietest try counts, whatever
  its time; what stays disturbed is said.
- Every single run that counts is in the JSON, beside the machine, the versions and the commit that it was taken on.

Progress goes to standard error, the tables and the verdicts to standard output.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from quiet import Watch

FOLDER = Path(__file__).parent
PACKAGES = (
    *("batchloom", "torch", "numpy", "batch-iter", "grain"),
    *("transformers", "tokenizers", "trl", "datasets", "pyarrow", "lhotse", "numba"),
)
# In each round a candidate runs as often as fits into so many seconds, at least once, at most so many times.
# The median of these runs is the round's figure.
ROUND_SECONDS = 0.5
MOST_RUNS = 9
# A try is disturbed when others kept more cores busy than this. It is repeated if it is short enough.
QUIET_CORES = 0.15
TRIES = 4
REPEATED_SECONDS = 3.0


@dataclass(frozen=True)
class Candidate:
    """One way to do the work.

    Attributes:
        name: What the tables call it.
        run: Does the work once. May return the seconds that it measured itself; else its whole time counts.
        facts: What else the JSON is to say of it.
        slow: Whether to leave out the warm-up and to run it once in a round.
    """

    name: str
    run: Callable[[], float | None]
    facts: dict[str, Any] = field(default_factory=dict)
    slow: bool = False


@dataclass
class Timing:
    """The seconds of one candidate: for each round its runs, and the cores that others kept busy."""

    candidate: Candidate
    runs: list[list[float]] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The candidate's name."""
        return self.candidate.name

    @property
    def rounds(self) -> list[float]:
        """One figure for each round."""
        return [median(runs) for runs in self.runs]

    @property
    def median(self) -> float:
        """The figure to quote."""
        return median(self.rounds)

    @property
    def minimum(self) -> float:
        """The shortest run of all."""
        return min(seconds for runs in self.runs for seconds in runs)

    def ratio(self, other: Timing) -> float:
        """How many times the seconds of ``other`` this takes: the median over rounds."""
        return median(mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=True))

    def best_ratio(self, other: Timing) -> float:
        """How many times the shortest run of ``other`` the shortest run of this takes."""
        return self.minimum / other.minimum

    @property
    def disturbed(self) -> int:
        """In how many rounds others kept the machine busy."""
        return sum(cores > QUIET_CORES for cores in self.others)

    def take(self, repeats: int) -> None:
        """Run one round; try again while others disturb it. The quietest try counts."""
        tries: list[tuple[float, list[float]]] = []
        for _ in range(TRIES):
            tries.append(_try(self.candidate, repeats))
            cores, runs = tries[-1]
            if cores <= QUIET_CORES or sum(runs) > REPEATED_SECONDS:
                break
        cores, runs = min(tries)
        self.others.append(cores)
        self.runs.append(runs)

    def record(self, against: dict[str, Timing]) -> dict[str, Any]:
        """What the JSON says; ``against`` names the candidates to give ratios to."""
        ratios = {f"ratio_to_{name}": self.ratio(other) for name, other in against.items()}
        ratios |= {f"best_ratio_to_{name}": self.best_ratio(other) for name, other in against.items()}
        figures = {"median_seconds": self.median, "minimum_seconds": self.minimum, **ratios}
        runs = {"rounds": self.rounds, "runs": self.runs, "cores_of_others": self.others}
        return {"name": self.name, **figures, **self.candidate.facts, **runs}


def interleave(title: str, candidates: Sequence[Candidate], rounds: int) -> dict[str, Timing]:
    """Run all candidates in each of ``rounds`` rounds; return their timings by name."""
    timings = [Timing(candidate) for candidate in candidates]
    repeats = {candidate.name: _warm_up(title, candidate) for candidate in candidates}
    for round_number in range(rounds):
        first = round_number % len(timings)
        for timing in timings[first:] + timings[:first]:
            timing.take(repeats[timing.name])
            _show(f"{title}: round {round_number + 1} of {rounds}: {timing.name}: {timing.rounds[-1]:.4g} s")
    return {timing.name: timing for timing in timings}


def _warm_up(title: str, candidate: Candidate) -> int:
    """Run twice without counting; return how often to run in each round."""
    if candidate.slow:
        return 1
    _show(f"{title}: warming up {candidate.name}")
    seconds = min(_seconds(candidate) for _ in range(2))
    return min(max(int(ROUND_SECONDS / max(seconds, 1e-9)), 1), MOST_RUNS)


def _try(candidate: Candidate, repeats: int) -> tuple[float, list[float]]:
    """Return the cores that others kept busy, and the seconds of so many runs."""
    gc.collect()
    if repeats > 1:
        _seconds(candidate)  # its memory lay idle while others ran: not counted
    watch = Watch()
    runs = [_seconds(candidate) for _ in range(repeats)]
    return watch.cores(), runs


def _seconds(candidate: Candidate) -> float:
    start = time.perf_counter()
    own = candidate.run()
    return time.perf_counter() - start if own is None else own


def _show(line: str) -> None:
    """Say how far it is: on a terminal in one line that is written over."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column flush left, the others flush right."""
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    _show("")
    print(f"\n{title}", flush=True)
    for cells in (heads, ["-" * width for width in widths], *rows):
        first, *others = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print("  ".join([first, *(cell.strip().rjust(len(cell)) for cell in others)]))


def print_disturbed(title: str, timings: dict[str, Timing]) -> None:
    """Say which candidates were disturbed, if any."""
    for timing in timings.values():
        if timing.disturbed:
            share = f"in {timing.disturbed} of {len(timing.others)} rounds"
            most = f"others kept up to {max(timing.others):.2f} cores busy"
            print(f"  DISTURBED  {title}: {timing.name}: {share} {most}")


@dataclass(frozen=True)
class Claim:
    """A number to reach (DESIGN.md, section 6) and what was measured.

    Attributes:
        text: What is claimed.
        measured: The figure: a median.
        relation: How it must stand to ``bound``: ">=", "<=" or "<".
        bound: The number to reach.
        best: For a ratio: that of the shortest runs, where a process may be lucky once.
    """

    text: str
    measured: float
    relation: str
    bound: float
    best: float | None = None

    @property
    def reached(self) -> bool:
        """Whether it holds."""
        holds = {">=": self.measured >= self.bound, "<=": self.measured <= self.bound}
        return {**holds, "<": self.measured < self.bound}[self.relation]

    def record(self) -> dict[str, Any]:
        """What the JSON says."""
        return {**vars(self), "reached": self.reached}

    def print(self) -> None:
        """Say it, reached or not."""
        verdict = "reached" if self.reached else "NOT REACHED"
        best = "" if self.best is None else f", shortest runs {self.best:.4g}"
        print(f"{verdict:>11}  {self.text}: {self.measured:.4g}{best} (to reach: {self.relation} {self.bound:g})")


def machine() -> dict[str, Any]:
    """What this was measured on."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "caches": _caches(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_average_at_end": os.getloadavg(),
    }


def _cpu_model() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def _caches() -> dict[str, str]:
    """The size of each cache of the first core."""
    folders = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    names = ("level", "type", "size")
    levels = [[(folder / name).read_text().strip() for name in names] for folder in folders]
    return {f"L{level} {kind}": size for level, kind, size in levels}


def versions() -> dict[str, str | None]:
    """The version of everything that is compared; ``None`` for what is not installed."""
    found: dict[str, str | None] = {name: _version(name) for name in PACKAGES}
    lock = (FOLDER / "dataloader_rs" / "Cargo.lock").read_text()
    crate = re.search(r'name = "dataloader-rs"\nversion = "(.*)"', lock)
    return {**found, "dataloader-rs": crate[1] if crate else None}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> dict[str, Any]:
    """The commit that was measured, and whether tracked files outside the results differ from it."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":!bench/results")
    return {"id": _git("rev-parse", "HEAD"), "changed": bool(changed)}


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", "-C", str(FOLDER.parent), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def write(name: str, arguments: dict[str, Any], body: dict[str, Any], whole: bool) -> None:
    """Write what was measured to the file that ``--output`` names, or to ``results/<name>-<machine>.json``.

    A run that is not ``whole`` goes to ``results/local/``, which git ignores.
    """
    head = {"name": name, "taken": datetime.now(UTC).isoformat(timespec="seconds"), "whole": whole}
    where = {"machine": machine(), "versions": versions(), "commit": commit(), "arguments": arguments}
    path = Path(arguments["output"] or _default_path(name, whole))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**head, **where, **body}, indent=1) + "\n")
    print(f"\nwritten: {path}")


def _default_path(name: str, whole: bool) -> Path:
    model = re.sub(r"[^a-z0-9]+", "-", _cpu_model().lower()).strip("-")
    folder = FOLDER / "results" if whole else FOLDER / "results" / "local"
    return folder / f"{name}-{model}-{len(os.sched_getaffinity(0))}-cores.json"
