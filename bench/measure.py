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

import argparse
import gc
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import torch
from quiet import Watch

FOLDER = Path(__file__).parent
# What every table calls batchloom with its defaults, and the machine's copy.
LOOM, COPY = "batchloom", "copy of the same bytes"
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
Part = TypeVar("Part")
# An option of scripts that draw.
PICTURES = {"help": "the folder to draw to; by default pictures/ in results or results/local"}
# With fewer rounds no figure is to be quoted.
LEAST_ROUNDS = 5


def arguments(
    document: str, parts: Iterable[str] = (), rounds: int = LEAST_ROUNDS, **more: Mapping[str, Any]
) -> argparse.Namespace:
    """Read the command line: what every script takes, ``--only`` where it has parts, and options of its own.

    Args:
        document: The script's own docstring.
        parts: What ``--only`` can choose from.
        rounds: How many there are unless the command line says otherwise.
        **more: Options of this script alone, as ``argparse`` wants them.
    """
    parser = argparse.ArgumentParser(description=document.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the published size, for a quick run")
    least = f"at least {LEAST_ROUNDS} to quote a figure"
    parser.add_argument("--rounds", type=int, default=rounds, help=f"how many rounds; {least}")
    if parts := list(parts):
        parser.add_argument("--only", choices=parts, action="append", help="one part, or some: give it again")
    for name, option in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **option)
    parser.add_argument("--output", help="the JSON file to write")
    return parser.parse_args()


def wanted(chosen: argparse.Namespace, parts: Mapping[str, Part]) -> dict[str, Part]:
    """Return the parts that ``--only`` chose, or all."""
    return {name: part for name, part in parts.items() if name in (chosen.only or parts)}


def is_whole(chosen: argparse.Namespace) -> bool:
    """Whether none of the options that every script takes shrank the run."""
    return chosen.scale == 1 and chosen.rounds >= LEAST_ROUNDS and not vars(chosen).get("only")


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


def exhaust(epoch: Iterable[Any]) -> None:
    """The loop that is timed."""
    for _ in epoch:
        pass


def with_threads(threads: int, epochs: Callable[[], Iterable[Any]], batches: int | None = None) -> float:
    """Time an epoch, or its first batches, with so many of torch's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        start = time.perf_counter()
        exhaust(epochs() if batches is None else islice(epochs(), batches))
        return time.perf_counter() - start
    finally:
        torch.set_num_threads(before)


def fastest_threads(epochs: Callable[[], Iterable[Any]], batches: int | None = None) -> int:
    """Whether an epoch, or its first batches, is faster with one of torch's threads or with all of them."""
    choices = (1, torch.get_num_threads())
    return min(choices, key=lambda threads: min(with_threads(threads, epochs, batches) for _ in range(3)))


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


def print_not_measured(reasons: Mapping[str, str]) -> None:
    """Say why some peers were not measured."""
    for name, reason in reasons.items():
        print(f"not measured: {name}: {reason}")


def print_timings(title: str, timings: dict[str, Timing], facts: Mapping[str, str]) -> None:
    """Print one line for each candidate, the fastest first; ``facts``: further columns, head and name of the fact."""
    rows = [
        (
            timing.name,
            f"{timing.median:.4f}",
            f"{timing.minimum:.4f}",
            f"{timing.ratio(timings[COPY]):.2f}",
            f"{timing.ratio(timings[LOOM]):.2f}",
            *(str(timing.candidate.facts.get(fact, "-")) for fact in facts.values()),
        )
        for timing in fastest_first(timings)
    ]
    table(title, ("candidate", "median s", "min s", "x copy", "x batchloom", *facts), rows)
    print_disturbed(title, timings)


def fastest_first(timings: dict[str, Timing]) -> list[Timing]:
    """Return the timings in the order of their medians."""
    return sorted(timings.values(), key=lambda timing: timing.median)


def faster_than(name: str, timings: dict[str, Timing]) -> list[str]:
    """Return who takes less time than the one so named."""
    return [timing.name for timing in timings.values() if timing.ratio(timings[name]) < 1]


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

    @classmethod
    def of_ratio(cls, text: str, timing: Timing, other: Timing, relation: str, bound: float) -> Claim:
        """Claim how many times the seconds of ``other`` the first takes."""
        return cls(text, timing.ratio(other), relation, bound, timing.best_ratio(other))

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


def slower(title: str, peer: Timing, loom: Timing, bound: float) -> Claim:
    """Claim that a peer takes so many times batchloom's time at least."""
    return Claim.of_ratio(f"{title}: time of {peer.name}, times batchloom's", peer, loom, ">=", bound)


def all_slower(title: str, timings: dict[str, Timing], bounds: Mapping[str, float]) -> list[Claim]:
    """Claim it of every peer that has a bound and was measured."""
    measured = [name for name in bounds if name in timings]
    return [slower(title, timings[name], timings[LOOM], bounds[name]) for name in measured]


def stated(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Say what is claimed, reached or not; return it for the JSON."""
    for claim in claims:
        claim.print()
    return [claim.record() for claim in claims]


def report(
    title: str,
    timings: dict[str, Timing],
    claims: Sequence[Claim],
    facts: Mapping[str, str],
    not_measured: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Print what was measured beside the copy and batchloom; return it for the JSON.

    Args:
        title: What was done.
        timings: Of whom.
        claims: What is claimed of them.
        facts: Further columns of the table: head and name of the fact.
        not_measured: For some peers, why they were not.
    """
    print_timings(title, timings, facts)
    print_not_measured(not_measured or {})
    against = {"copy": timings[COPY], "batchloom": timings[LOOM]}
    return {
        "candidates": [timing.record(against) for timing in timings.values()],
        "not_measured": not_measured or {},
        "claims": stated(claims),
        "faster_than_batchloom": faster_than(LOOM, timings),
    }


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
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", "-C", str(FOLDER.parent), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def write(name: str, chosen: argparse.Namespace, body: dict[str, Any], whole: bool) -> None:
    """Write what was measured to the file that ``--output`` names, or to ``results/<name>-<machine>.json``.

    A run that is not ``whole`` goes to ``results/local/``, which git ignores.
    """
    head = {"name": name, "taken": datetime.now(UTC).isoformat(timespec="seconds"), "whole": whole}
    where = {"machine": machine(), "versions": versions(), "commit": commit(), "arguments": vars(chosen)}
    body = {"torch_threads": torch.get_num_threads(), **body}
    path = Path(chosen.output or results(whole) / _file_name(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**head, **where, **body}, indent=1) + "\n")
    print(f"\nwritten: {path}")


def results(whole: bool) -> Path:
    """Return the folder of what is measured."""
    return FOLDER / "results" if whole else FOLDER / "results" / "local"


def pictures_folder(chosen: argparse.Namespace, whole: bool) -> Path:
    """Return the folder that ``--pictures`` names, or the one beside the results."""
    return Path(chosen.pictures or results(whole) / "pictures")


def _file_name(name: str) -> str:
    model = re.sub(r"[^a-z0-9]+", "-", _cpu_model().lower()).strip("-")
    return f"{name}-{model}-{len(os.sched_getaffinity(0))}-cores.json"
