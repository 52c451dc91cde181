"""Measure shuffling: the time to a first batch, indices a second, and memory over many epochs.

    python -m bench order [--rounds 5] [--scale 0.02] [--output FILE]

Promises:

- ``first batch``: the time from the start to the first 64 samples of a shuffled plan, and the memory that this
  took in a process of its own. torch and NumPy draw a permutation of 10**8: one of 10**9 would take 8 GB.
  grain's plan of 10**9 is lazy, as batchloom's is.
- ``indices``: how many samples a second a shuffled plan names, 65 536 to a call, for numbers of samples where
  a keyed permutation is easy and where it is hard. The same calls on a plan that is not shuffled show what
  calls alone cost: that limits tiny plans, so none is claimed below 1000 samples. Processor time beside wall
  time shows how many cores it took.
- ``memory``: resident memory after 5, 10, ... 50 epochs of a loader, finished or abandoned half-way, each in
  a process of its own.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from bench.harness.claims import Claim
from bench.harness.command import arguments, is_whole
from bench.harness.measure import LOOM, Candidate, Timing, interleave
from bench.harness.processes import elsewhere, peak, reset_peak
from bench.harness.record import write
from bench.harness.report import faster_than, print_disturbed, table
from bench.order.memory import measure_memory
from bench.order.peers import (
    BILLION,
    CALL,
    FIRST,
    GRAIN_INDICES,
    HUNDRED_MILLION,
    draw_permutations,
    name_indices,
    plan,
    shuffle_each,
)

SIZES = (10, 1000, 65_537, 2**20, 2**20 + 1, HUNDRED_MILLION, BILLION, 2**40)
INDICES, MOST_CALLS = 8_000_000, 100_000
# Below this many indices to a call, the call itself is what is measured: no claim is made.
LEAST_CLAIMED = 1000
MEBIBYTE = 2**20
FLOOR = "batchloom, not shuffled"


def measure_first_batch(rounds: int, scale: float) -> dict[str, Any]:
    """Measure time and memory to the first batch."""
    candidates = [first_candidate(name, scale) for name in FIRST]
    timings = interleave("first batch", candidates, rounds)
    rows = [first_row(timing) for timing in timings.values()]
    table("first batch of a shuffled plan", ("candidate", "samples", "median ms", "min ms", "peak MiB"), rows)
    print_disturbed("first batch", timings)
    loom = timings[LOOM]
    claims = [
        Claim("milliseconds to the first batch of a billion", loom.median * 1e3, "<", 10),
        Claim("MiB for it", loom.candidate.facts["peak_resident_mebibytes"], "<", 1),
    ]
    return case("first batch", timings, claims)


def first_candidate(name: str, scale: float) -> Candidate:
    """Measure the memory in another process; leave the time to the rounds."""
    first, samples = FIRST[name]
    samples = max(round(samples * scale), 1000)
    memory = elsewhere(memory_of_first, name, samples)
    facts = {"samples": samples, **memory}
    return Candidate(name, lambda: first(samples) is None or None, facts)


def first_row(timing: Timing) -> tuple[str, ...]:
    """Return one line of the table."""
    facts = timing.candidate.facts
    milliseconds = (f"{timing.median * 1e3:.3f}", f"{timing.minimum * 1e3:.3f}")
    return timing.name, f"{facts['samples']}", *milliseconds, f"{facts['peak_resident_mebibytes']:.2f}"


def memory_of_first(name: str, samples: int) -> dict[str, float]:
    """Return the peak memory of one first batch: of the process, and of Python's allocators."""
    first, _ = FIRST[name]
    first(1000)
    before = reset_peak()
    first(samples)
    grown = (peak() - before) / MEBIBYTE
    tracemalloc.start()
    first(samples)
    traced = tracemalloc.get_traced_memory()[1]
    return {"peak_resident_mebibytes": grown, "peak_traced_mebibytes": traced / MEBIBYTE}


def measure_indices(samples: int, rounds: int, scale: float) -> dict[str, Any]:
    """Measure the speed at which a plan of so many samples names them."""
    candidates = index_candidates(samples, round(INDICES * scale))
    timings = interleave(f"indices of {samples}", candidates, rounds)
    print_disturbed(f"indices of {samples}", timings)
    loom, floor = timings[LOOM], timings[FLOOR]
    claims = []
    if samples >= LEAST_CLAIMED:
        rate = 1 / loom.median
        claims = [Claim(f"million indices a second a core, of {samples}", rate, ">=", 50)]
    figures = {
        "samples": samples,
        "million_indices_a_second": {name: 1 / timing.median for name, timing in timings.items()},
        "microseconds_a_call": loom.median * indices_a_call(samples),
        "microseconds_a_call_not_shuffled": floor.median * indices_a_call(samples),
        "cores_busy": cores_busy(loom.candidate.run),
    }
    return {**case("indices", timings, claims, unit="seconds for a million indices"), **figures}


def index_candidates(samples: int, indices: int) -> list[Candidate]:
    """Return the shuffled plan, the same calls without a shuffle, and the peers that can do this size."""
    shuffled, in_order = (plan(samples, shuffle) for shuffle in (True, False))
    calls = calls_for(samples, indices)
    facts = {"calls": calls, "indices": round(calls * indices_a_call(samples))}
    found = [
        Candidate(LOOM, lambda: name_indices(shuffled, calls), facts),
        Candidate(FLOOR, lambda: name_indices(in_order, calls), facts),
    ]
    if samples <= 2**21:
        found.append(permutation_candidate(samples, indices))
    if samples in (HUNDRED_MILLION, BILLION):
        facts = {"calls": GRAIN_INDICES, "indices": GRAIN_INDICES}
        found.append(Candidate("grain index_shuffle", lambda: shuffle_each(samples), facts, slow=True))
    return found


def permutation_candidate(samples: int, indices: int) -> Candidate:
    """Return torch drawing whole permutations."""
    calls = min(max(indices // samples, 1), MOST_CALLS)
    facts = {"calls": calls, "indices": calls * samples}
    return Candidate("torch.randperm", lambda: draw_permutations(samples, calls), facts)


def indices_a_call(samples: int) -> float:
    """Return the number of indices that a call names, on average."""
    return samples / -(-samples // CALL)


def calls_for(samples: int, indices: int) -> int:
    """Return the number of calls for about so many indices: whole epochs of a short plan, a part of a long one."""
    calls = min(max(round(indices / indices_a_call(samples)), 1), MOST_CALLS)
    epoch = -(-samples // CALL)
    return max(calls // epoch, 1) * min(epoch, calls)


def cores_busy(run: Callable[[], Any]) -> float:
    """Return the processor time of all threads over the wall time: at most 1 for one core."""
    wall, processor = time.perf_counter(), time.process_time()
    run()
    return (time.process_time() - processor) / (time.perf_counter() - wall)


def print_indices(cases: list[dict[str, Any]]) -> None:
    """Print one line for each number of samples, millions of indices a second."""
    peers = (LOOM, FLOOR, "torch.randperm", "grain index_shuffle")
    heads = ("samples", *peers, "us a call", "us, not shuffled", "cores busy")
    rows = []
    for each in cases:
        rates = [each["million_indices_a_second"].get(name) for name in peers]
        calls = (each["microseconds_a_call"], each["microseconds_a_call_not_shuffled"], each["cores_busy"])
        cells = [f"{rate:.3g}" if rate else "-" for rate in rates]
        rows.append((str(each["samples"]), *cells, *(f"{number:.2f}" for number in calls)))
    table("million indices a second, 65 536 to a call", heads, rows)


def case(name: str, timings: dict[str, Timing], claims: list[Claim], unit: str = "seconds") -> dict[str, Any]:
    """Return the JSON's record of one comparison."""
    against = {"batchloom": timings[LOOM]}
    candidates = [timing.record(against) for timing in timings.values()]
    return {
        "name": name,
        "unit": unit,
        "candidates": candidates,
        "claims": [claim.record() for claim in claims],
        "faster_than_batchloom": [peer for peer in faster_than(LOOM, timings) if peer != FLOOR],
    }


def print_claims(cases: list[dict[str, Any]]) -> None:
    """Print the claims, reached or not."""
    print()
    for record in (claim for each in cases for claim in each["claims"]):
        Claim(**{key: value for key, value in record.items() if key != "reached"}).print()


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__)
    first = measure_first_batch(chosen.rounds, chosen.scale)
    indices = [measure_indices(samples, chosen.rounds, chosen.scale) for samples in SIZES]
    print_indices(indices)
    cases = [first, *indices, *measure_memory(chosen.scale)]
    print_claims(cases)
    write("order", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
