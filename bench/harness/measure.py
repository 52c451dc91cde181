"""Time named candidates in interleaved rounds and compare them by ratios inside a round.

Promises:

- Candidates that are compared run in the same rounds, one after the other, and each round begins with another
  candidate: what disturbs the machine for a while disturbs all of them.
- A figure is a median over rounds. A ratio is the median of the ratios inside each round, never a ratio of
  medians.
- A round in which other processes took part of the machine is run again, and the quietest try counts, whatever
  its time; a candidate that stays disturbed is marked as such.

Progress goes to standard error.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import Any

import torch

from bench.harness.quiet import Watch

# The names of batchloom with its defaults, and of the machine's copy, in every table.
LOOM, COPY = "batchloom", "copy of the same bytes"
# A candidate runs at most nine times in a round.
MOST_RUNS = 9
# A try is disturbed when other processes kept more cores busy than this. It is repeated if it is short enough.
QUIET_CORES = 0.15
REPEATED_SECONDS = 3.0


@dataclass(frozen=True)
class Pace:
    """The time that a round gives to each candidate.

    Attributes:
        seconds: A candidate runs as often as fits into these seconds, at least once. The median of the runs is the
            figure of the round.
        tries: The number of tries that a disturbed candidate gets in a round.
    """

    seconds: float = 0.5
    tries: int = 4


USUAL = Pace()


@dataclass(frozen=True)
class Candidate:
    """A way to do the work.

    Attributes:
        name: Its name in the tables.
        run: Does the work once. May return the seconds that it measured itself; else its whole time counts.
        facts: Further entries of its record in the JSON.
        slow: True to leave out the warm-up and to run it once in a round.
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
        """Return the candidate's name."""
        return self.candidate.name

    @property
    def rounds(self) -> list[float]:
        """Return one figure for each round."""
        return [median(runs) for runs in self.runs]

    @property
    def median(self) -> float:
        """Return the figure to quote."""
        return median(self.rounds)

    @property
    def minimum(self) -> float:
        """Return the shortest run of all."""
        return min(seconds for runs in self.runs for seconds in runs)

    def ratio(self, other: Timing) -> float:
        """Return the ratio of its seconds to those of ``other``: the median over rounds."""
        return median(mine / theirs for mine, theirs in zip(self.rounds, other.rounds, strict=True))

    def best_ratio(self, other: Timing) -> float:
        """Return the ratio of its shortest run to that of ``other``."""
        return self.minimum / other.minimum

    @property
    def disturbed(self) -> int:
        """Return the number of rounds in which others kept the machine busy."""
        return sum(cores > QUIET_CORES for cores in self.others)

    def take(self, repeats: int, most_tries: int) -> None:
        """Run one round; try again while others disturb it. The quietest try counts."""
        tries: list[tuple[float, list[float]]] = []
        for _ in range(most_tries):
            tries.append(_try(self.candidate, repeats))
            cores, runs = tries[-1]
            if cores <= QUIET_CORES or sum(runs) > REPEATED_SECONDS:
                break
        cores, runs = min(tries)
        self.others.append(cores)
        self.runs.append(runs)

    def record(self, against: dict[str, Timing]) -> dict[str, Any]:
        """Return the JSON's record; ``against`` names the candidates to give ratios to."""
        ratios = {f"ratio_to_{name}": self.ratio(other) for name, other in against.items()}
        ratios |= {f"best_ratio_to_{name}": self.best_ratio(other) for name, other in against.items()}
        figures = {"median_seconds": self.median, "minimum_seconds": self.minimum, **ratios}
        runs = {"rounds": self.rounds, "runs": self.runs, "cores_of_others": self.others}
        return {"name": self.name, **figures, **self.candidate.facts, **runs}


def interleave(title: str, candidates: Sequence[Candidate], rounds: int, pace: Pace = USUAL) -> dict[str, Timing]:
    """Run all candidates in each of ``rounds`` rounds; return their timings by name."""
    timings = [Timing(candidate) for candidate in candidates]
    repeats = {candidate.name: _warm_up(title, candidate, pace) for candidate in candidates}
    for round_number in range(rounds):
        first = round_number % len(timings)
        for timing in timings[first:] + timings[:first]:
            timing.take(repeats[timing.name], pace.tries)
            progress(f"{title}: round {round_number + 1} of {rounds}: {timing.name}: {timing.rounds[-1]:.4g} s")
    return {timing.name: timing for timing in timings}


def _warm_up(title: str, candidate: Candidate, pace: Pace) -> int:
    """Run twice without counting; return the number of runs in each round."""
    if candidate.slow:
        return 1
    progress(f"{title}: warming up {candidate.name}")
    seconds = min(_seconds(candidate) for _ in range(2))
    return min(max(int(pace.seconds / max(seconds, 1e-9)), 1), MOST_RUNS)


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


def progress(line: str) -> None:
    """Print progress: on a terminal in one line that is written over."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def exhaust(epoch: Iterable[Any]) -> None:
    """Run the loop that is timed."""
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
    """Return the faster number of torch's threads for an epoch, or its first batches: one, or all of them."""
    choices = (1, torch.get_num_threads())
    return min(choices, key=lambda threads: min(with_threads(threads, epochs, batches) for _ in range(3)))
