"""Measure samples by weight, and batches of two sources at equal shares.

    python -m bench mixtures [--rounds 5] [--scale 0.02] [--output FILE]

Promises:

- ``weights``: the time from an array of 10 million weights to the first 64 samples, and the memory that this took in a
  process of its own.
- ``two sources``: the time of 1000 batches of 64 rows from two arrays in memory, half of them of each. Slow peers make
  fewer, and their time is scaled; the JSON says how many.
- ``resume``: the rows lost and repeated by a run of two sources that is saved after 500 batches and goes on in a
  pipeline made anew, over 500 more batches, against the same run without a break. ``furthest_share`` is the share of
  one source through the first 1000 batches, at its furthest from a half after 10 batches and later.
- ``large runs``: the time to the first batch of a thousand sources of a billion rows each, from a loader that is there,
  and the bytes of its state as JSON; and the time in which a loader of 100 million samples makes the batch of any step
  again, once it knows the epoch. Peers have nothing of the kind.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from typing import Any

import batchloom
import numpy

from bench.harness.claims import Claim
from bench.harness.command import arguments, is_whole
from bench.harness.measure import LOOM, Candidate, Timing, interleave
from bench.harness.processes import elsewhere, peak, reset_peak
from bench.harness.record import write
from bench.harness.report import faster_than, print_disturbed, table
from bench.mixtures.peers import BATCH, FIRST, Sources, weights_of

WEIGHTS = 10_000_000
SAMPLES = 200_000
BATCHES, SLOW_BATCHES = 1000, 200
STOP = 500
SOURCES, ROWS, ROW = 1000, 1_000_000_000, 1024
REPLAYED, REPLAYS = 100_000_000, 50
MEBIBYTE = 2**20


def measure_weights(rounds: int, scale: float) -> dict[str, Any]:
    """Measure time and memory to the first batch of weighted samples."""
    samples = max(round(WEIGHTS * scale), 1000)
    weights = weights_of(samples)
    candidates = [
        Candidate(
            name,
            lambda first=first: first(weights) is None or None,  # type: ignore[misc]
            {"samples": samples, "peak_resident_mebibytes": elsewhere(memory_of_first, name, samples)},
        )
        for name, first in FIRST.items()
    ]
    timings = interleave("weights", candidates, rounds)
    rows = [
        (timing.name, f"{timing.median * 1e3:.1f}", f"{timing.candidate.facts['peak_resident_mebibytes']:.0f}")
        for timing in timings.values()
    ]
    table(f"first batch by {samples} weights", ("candidate", "median ms", "peak MiB"), rows)
    print_disturbed("weights", timings)
    return case("weights", timings)


def memory_of_first(name: str, samples: int) -> float:
    """Return the MiB by which the memory of the process grew while a first batch was made."""
    FIRST[name](weights_of(1000))
    weights = weights_of(samples)
    before = reset_peak()
    FIRST[name](weights)
    return (peak() - before) / MEBIBYTE


def measure_sources(sources: Sources, rounds: int) -> dict[str, Any]:
    """Measure batches of two sources."""
    candidates = []
    for name, batches in sources.peers.items():
        is_slow = name not in (LOOM, "numpy by hand")
        count = SLOW_BATCHES if is_slow else BATCHES
        facts = {"measured_batches": count}
        candidates.append(Candidate(name, lambda make=batches, n=count: seconds(make, n), facts, slow=is_slow))
    timings = interleave("two sources", candidates, rounds)
    loom = timings[LOOM]
    rows = [
        (timing.name, f"{timing.median * 1e3:.1f}", f"{timing.ratio(loom):.2f}", f"{BATCHES / timing.median:.0f}")
        for timing in timings.values()
    ]
    heads = ("candidate", "ms for 1000 batches", "x batchloom", "batches a second")
    table(f"batches of {BATCH} rows of two sources", heads, rows)
    print_disturbed("two sources", timings)
    return case("two sources", timings, unit="seconds for 1000 batches")


def seconds(make: Callable[[Any], tuple[Any, Any]], count: int) -> float:
    """Return the seconds for 1000 batches, the pipeline's start left out."""
    batches, _ = make(None)
    next(batches)
    start = time.perf_counter()
    found = sum(1 for _ in islice(batches, count))
    return (time.perf_counter() - start) / found * BATCHES


def count_resumes(sources: Sources) -> dict[str, Any]:
    """Count what is lost and repeated at a resume, and how far shares are from a half."""
    found = {name: resumed(make, len(sources.parts[0])) for name, make in sources.peers.items()}
    rows = [
        (name, *(str(each[key]) for key in ("lost", "repeated")), f"{each['furthest_share']:.3f}")
        for name, each in found.items()
    ]
    table("rows lost and repeated by a resume, of 32 000", ("candidate", "lost", "repeated", "share"), rows)
    loom = found[LOOM]
    claims = [Claim("rows lost and repeated by a resume", loom["lost"] + loom["repeated"], "<", 1)]
    return {"name": "resume", "candidates": found, "claims": [claim.record() for claim in claims]}


def resumed(make: Callable[[Any], tuple[Any, Any]], samples: int) -> dict[str, Any]:
    """Return what a resume of a peer loses and repeats; all of the rest is lost without a state."""
    whole, _ = make(None)
    expected = list(islice(whole, 2 * STOP))
    rows = numpy.concatenate(expected)
    share = numpy.cumsum(rows < samples) / numpy.arange(1, len(rows) + 1)
    furthest = float(abs(share[10 * BATCH :] - 0.5).max() + 0.5)
    broken, state = make(None)
    for _ in islice(broken, STOP):
        pass
    saved = state()
    again = list(islice(make(saved)[0], STOP))
    wanted = Counter(numpy.concatenate(expected[STOP:]).tolist())
    got = Counter(numpy.concatenate(again).tolist())
    return {
        "state": saved is not None,
        "lost": sum((wanted - got).values()),
        "repeated": sum((got - wanted).values()),
        "furthest_share": furthest,
    }


def measure_large(scale: float) -> dict[str, Any]:
    """Measure first batches of many sources, and batches that are formed again."""
    first, state_bytes = first_of_sources(max(round(SOURCES * scale), 2))
    samples = max(round(REPLAYED * scale), 1000)
    replays = {name: median_replay(name, samples) for name in ("rows", "length buckets", "token budget")}
    rows = [("first batch of the sources", f"{first:.2f}", f"{state_bytes}")]
    rows += [(f"replay, {name}", f"{milliseconds:.2f}", "") for name, milliseconds in replays.items()]
    table("large runs", ("", "median ms", "state bytes"), rows)
    claims = [
        Claim("first batch of 1000 sources of a billion rows, ms", first, "<=", 10),
        Claim("state of 1000 sources, bytes", state_bytes, "<=", 16 * 1024),
        *(Claim(f"replay among 100 million samples, {name}, ms", each, "<=", 10) for name, each in replays.items()),
    ]
    for claim in claims:
        claim.print()
    return {"name": "large runs", "samples": samples, "claims": [claim.record() for claim in claims]}


def first_of_sources(count: int) -> tuple[float, int]:
    """Return the median ms to a first batch of so many sources, and the bytes of the state."""
    row = numpy.zeros((1, ROW), numpy.float32)
    rows = numpy.broadcast_to(row, (ROWS, ROW))  # one row in memory stands for all
    sources = {str(source): batchloom.TensorDataset(x=rows) for source in range(count)}
    mixture = batchloom.Mixture(sources, {name: 1 + place for place, name in enumerate(sources)})
    found, size = [], 0
    for seed in range(9):
        loader = batchloom.DataLoader(mixture, BATCH, shuffle=True, seed=seed, output="numpy")
        start = time.perf_counter()
        next(iter(loader))
        found.append((time.perf_counter() - start) * 1e3)
        size = len(json.dumps(loader.state_dict()))
    return float(numpy.median(found)), size


def median_replay(rule: str, samples: int) -> float:
    """Return the median ms in which a batch is formed again."""
    rng = numpy.random.default_rng(0)
    if rule == "rows":
        data = batchloom.TensorDataset(x=numpy.zeros((samples, 4), numpy.uint8))
        loader: Any = batchloom.DataLoader(data, BATCH, shuffle=True)
    else:
        ends = numpy.concatenate([[0], numpy.cumsum(rng.integers(1, 3, samples))])
        words = batchloom.SequenceDataset(x=(numpy.zeros(ends[-1], numpy.uint8), ends))
        batching: Any = batchloom.LengthBuckets(BATCH) if rule == "length buckets" else batchloom.TokenBudget(4096)
        loader = batchloom.DataLoader(words, batching=batching, shuffle=True)
    steps = len(loader)
    loader.replay(0, 0)
    found = []
    for step in rng.integers(0, steps, REPLAYS).tolist():
        start = time.perf_counter()
        loader.replay(0, step)
        found.append((time.perf_counter() - start) * 1e3)
    return float(numpy.median(found))


def case(name: str, timings: dict[str, Timing], unit: str = "seconds") -> dict[str, Any]:
    """Return the JSON's record of one comparison."""
    candidates = [timing.record({"batchloom": timings[LOOM]}) for timing in timings.values()]
    return {"name": name, "unit": unit, "candidates": candidates, "faster_than_batchloom": faster_than(LOOM, timings)}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__)
    sources = Sources(max(round(SAMPLES * chosen.scale), 2 * STOP * BATCH))
    cases = [
        measure_weights(chosen.rounds, chosen.scale),
        measure_sources(sources, chosen.rounds),
        count_resumes(sources),
        measure_large(chosen.scale),
    ]
    write("mixtures", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
