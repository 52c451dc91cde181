"""Measure the loaders of forecasting libraries beside batchloom's for the same windows: time and memory.

    python -m bench forecasting_libraries [--only neuralforecast|darts|pytorch_forecasting] [--rounds 5] [--scale 0.1]

1000 series of 1000 steps, float32; windows of 96 steps and 24 to predict, at random, on the CPU; batches are as large
as each library makes them unless told. Libraries that are not installed are left out, with a line. Promises:

- Time is that of 100 000 windows, of which each candidate makes a part (``windows`` in the JSON), after the dataset was
  made. Making a loader, and reading its first batch, are in none of the times.
- neuralforecast's windows are those that ``training_step`` trains on. It draws them from the series of a batch, 32
  unless told; a batch that may hold windows of every series, as batchloom's does, takes all of them.
- Memory is by how much a fresh process grew: see ``memory.py``. It is the median of as many processes as rounds. A
  number to reach is set where a library holds the windows of all series at once, as its batches need.
- Before, both have shown on a small panel that they make the same windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from statistics import median
from time import perf_counter
from typing import Any

from bench.forecasting_libraries.memory import growths
from bench.forecasting_libraries.peers import LIBRARIES, Library, Way, quiet
from bench.harness.claims import Claim, all_slower, stated
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.measure import LOOM, Candidate, interleave, progress
from bench.harness.record import write
from bench.harness.report import fastest_first, print_disturbed, table

SERIES, STEPS = 1000, 1000
SMALL = 5, 300
UNIT = 100_000
FASTER, LESS_MEMORY = 10.0, 0.1


def candidate(way: Way, dataset: Any, scale: float) -> Candidate:
    """Return the way to make so many windows."""
    batches = way.batches(dataset)
    windows = max(round(way.windows * scale), 1)
    next(batches)

    def run() -> float:
        return timed(batches, windows)

    return Candidate(way.name, run, {"windows": windows, **way.facts}, slow=True)


def timed(batches: Iterator[int], windows: int) -> float:
    """Return the seconds of :data:`UNIT` windows, of which at least so many are made."""
    made, start = 0, perf_counter()
    while made < windows:
        made += next(batches)
    return (perf_counter() - start) / made * UNIT


def measure(library: Library, scale: float, rounds: int) -> dict[str, Any]:
    """Measure one library."""
    library.check(library.dataset(*SMALL))
    series = max(round(SERIES * scale), 2)
    dataset = library.dataset(series, STEPS)
    timings = interleave(library.name, [candidate(way, dataset, scale) for way in library.ways], rounds)
    del dataset
    claims = all_slower(library.name, timings, {way.name: FASTER for way in library.ways[:-1]})
    rows = [(each.name, f"{each.median:.3f}", f"{each.ratio(timings[LOOM]):.1f}") for each in fastest_first(timings)]
    table(f"{library.name}: {UNIT} windows", ("candidate", "median s", "x batchloom"), rows)
    print_disturbed(library.name, timings)
    grown = memory(library, series, rounds)
    for name in (way.name for way in library.ways if way.holds_all):
        share = grown[LOOM]["median_bytes"] / max(grown[name]["median_bytes"], 1)
        claims.append(Claim(f"{library.name}: memory of batchloom, times that of {name}", share, "<=", LESS_MEMORY))
    return {
        "library": library.name,
        "series": series,
        "steps": STEPS,
        "candidates": [timing.record({"batchloom": timings[LOOM]}) for timing in timings.values()],
        "memory": grown,
        "claims": stated(claims),
    }


def memory(library: Library, series: int, rounds: int) -> dict[str, dict[str, Any]]:
    """Measure the memory of each way, and print it."""
    found = {}
    for number, way in enumerate(library.ways):
        progress(f"{library.name}: memory of {way.name}")
        grown = growths(library.name, number, series, STEPS, rounds)
        found[way.name] = {"median_bytes": median(grown), "runs": grown}
    least = max(found[LOOM]["median_bytes"], 1)
    sizes = {name: each["median_bytes"] for name, each in found.items()}
    rows = [(name, f"{size / 2**20:.1f}", f"{size / least:.2f}") for name, size in sizes.items()]
    table(f"{library.name}: growth of the process", ("candidate", "MiB", "x batchloom"), rows)
    return found


def main() -> None:
    """Run the chapter."""
    quiet()
    parts = {library.name: library for library in LIBRARIES}
    chosen = arguments(__doc__, parts)
    cases, missing = [], []
    for name, library in wanted(chosen, parts).items():
        if find_spec(name) is None:
            print(f"not measured: {name} is not installed")
            missing.append(name)
            continue
        cases.append(measure(library, chosen.scale, chosen.rounds))
    write("forecasting_libraries", chosen, {"cases": cases, "not_measured": missing}, is_whole(chosen) and not missing)


if __name__ == "__main__":
    main()
