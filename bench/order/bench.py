"""What batchloom claims for shuffling: a first batch at once, indices at speed, memory that does not grow.

    python -m bench order [--rounds 5] [--scale 0.02] [--output FILE]

Promises:

- ``first batch``: the time from nothing to the first 64 samples of a shuffled plan, and the memory that this
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

import logging
import time
import tracemalloc
from collections.abc import Callable
from itertools import islice
from typing import Any

import batchloom
import numpy
import torch

from bench.harness.claims import Claim
from bench.harness.command import arguments, is_whole
from bench.harness.measure import LOOM, Candidate, Timing, interleave
from bench.harness.processes import elsewhere, peak, reset_peak, resident
from bench.harness.record import write
from bench.harness.report import faster_than, print_disturbed, table

BATCH = 64
BILLION, HUNDRED_MILLION = 10**9, 10**8
CALL = 1 << 16
SIZES = (10, 1000, 65_537, 2**20, 2**20 + 1, HUNDRED_MILLION, BILLION, 2**40)
INDICES, MOST_CALLS, GRAIN_INDICES = 8_000_000, 100_000, 100_000
# Below this many indices to a call, the call itself is what is measured: no claim is made.
LEAST_CLAIMED = 1000
MEBIBYTE = 2**20
EPOCHS, EVERY = 50, 5
ROWS, WIDTH = 100_000, 256
# What a block of a loader takes. Resident memory is flat when it moves by no more. In flight are the blocks formed
# ahead and the one in use; the loop variable holds the last batch of the one before while it asks for the next.
# Stacks of threads and lists of numbers are resident, too.
BLOCK_MEBIBYTES, PREFETCH, HELD, OTHER_MEBIBYTES = 4, 2, 1, 1
FLOOR = "batchloom, not shuffled"


def first_of_plan(samples: int) -> Any:
    """Return the first batch of a shuffled plan."""
    return batchloom.Plan(samples, batch_size=BATCH, shuffle=True)[0]


def first_of_torch(samples: int) -> Any:
    """Return the first batch of torch's permutation."""
    return torch.randperm(samples)[:BATCH]


def first_of_numpy(samples: int) -> Any:
    """Return the first batch of NumPy's permutation."""
    return numpy.random.default_rng(0).permutation(samples)[:BATCH]


def first_of_grain(samples: int) -> Any:
    """Return the first batch of grain's lazy shuffle."""
    return grain().MapDataset.range(samples).shuffle(seed=0).batch(BATCH)[0]


def grain() -> Any:
    """Import grain without its warning that there is no JAX."""
    logging.getLogger("absl").setLevel(logging.ERROR)
    import grain

    return grain


FIRST: dict[str, tuple[Callable[[int], Any], int]] = {
    LOOM: (first_of_plan, BILLION),
    "grain": (first_of_grain, BILLION),
    "torch.randperm": (first_of_torch, HUNDRED_MILLION),
    "numpy permutation": (first_of_numpy, HUNDRED_MILLION),
}


def measure_first_batch(rounds: int, scale: float) -> dict[str, Any]:
    """Time and memory to the first batch."""
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
    """One line of the table."""
    facts = timing.candidate.facts
    milliseconds = (f"{timing.median * 1e3:.3f}", f"{timing.minimum * 1e3:.3f}")
    return timing.name, f"{facts['samples']}", *milliseconds, f"{facts['peak_resident_mebibytes']:.2f}"


def memory_of_first(name: str, samples: int) -> dict[str, float]:
    """Peak memory of one first batch over what was resident before it, and what Python's allocators gave."""
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
    """How fast a plan of so many samples names them."""
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


def plan(samples: int, shuffle: bool) -> batchloom.Plan:
    """Return a plan whose batches are what one call names."""
    return batchloom.Plan(samples, batch_size=min(samples, CALL), shuffle=shuffle)


def indices_a_call(samples: int) -> float:
    """How many indices a call names, on average."""
    return samples / -(-samples // CALL)


def calls_for(samples: int, indices: int) -> int:
    """How many calls name about so many indices: whole epochs of a short plan, a part of a long one."""
    calls = min(max(round(indices / indices_a_call(samples)), 1), MOST_CALLS)
    epoch = -(-samples // CALL)
    return max(calls // epoch, 1) * min(epoch, calls)


def name_indices(plan: batchloom.Plan, calls: int) -> float:
    """Iterate over a plan, again and again if it is short; return the seconds for a million indices."""
    named, epoch = 0, min(len(plan), calls)
    start = time.perf_counter()
    for _ in range(calls // epoch):
        for batch in islice(plan, epoch):
            named += batch.size
    return (time.perf_counter() - start) / named * 1e6


def draw_permutations(samples: int, calls: int) -> float:
    """Draw whole permutations with torch; return the seconds for a million indices."""
    start = time.perf_counter()
    for _ in range(calls):
        torch.randperm(samples)
    return (time.perf_counter() - start) / (calls * samples) * 1e6


def shuffle_each(samples: int) -> float:
    """Ask grain's C++ permutation for each index; return the seconds for a million."""
    index_shuffle = grain().experimental.index_shuffle
    start = time.perf_counter()
    for index in range(GRAIN_INDICES):
        index_shuffle(index, samples - 1, 7, 4)
    return (time.perf_counter() - start) / GRAIN_INDICES * 1e6


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


def measure_memory(scale: float) -> list[dict[str, Any]]:
    """Run resident memory over many epochs, finished and abandoned half-way."""
    rows = max(round(ROWS * scale), 16 * BATCH)
    cases = [elsewhere(memory_of_epochs, rows, abandon) for abandon in (False, True)]
    heads = ("MiB over the start, after epoch", *(str(epoch) for epoch in cases[0]["epochs"]), "peak")
    grown = [[*each["grown_mebibytes"], each["peak_mebibytes"]] for each in cases]
    lines = [(each["iteration"], *(f"{size:.1f}" for size in sizes)) for each, sizes in zip(cases, grown, strict=True)]
    table(f"resident memory, {rows} rows of {WIDTH} float32", heads, lines)
    return cases


def memory_of_epochs(rows: int, abandon: bool) -> dict[str, Any]:
    """Iterate for 50 epochs; return how much more is resident after every fifth than before the first."""
    dataset = batchloom.TensorDataset(torch.rand(rows, WIDTH), torch.rand(rows))
    loader = batchloom.DataLoader(dataset, batch_size=BATCH, shuffle=True, prefetch=PREFETCH)
    steps = len(loader) // 2 if abandon else len(loader)
    before, grown = reset_peak(), []
    for epoch in range(1, EPOCHS + 1):
        run_steps(loader, steps)
        if epoch % EVERY == 0:
            grown.append((resident() - before) / MEBIBYTE)
    iteration = "abandoned half-way" if abandon else "finished"
    most, moved = (peak() - before) / MEBIBYTE, max(grown) - min(grown)
    bound = (PREFETCH + 1 + HELD) * BLOCK_MEBIBYTES + OTHER_MEBIBYTES
    claims = [
        Claim(f"MiB between least and most resident, {iteration}", moved, "<=", BLOCK_MEBIBYTES),
        Claim(f"MiB at most over the start, {iteration}", most, "<=", bound),
    ]
    epochs = list(range(EVERY, EPOCHS + 1, EVERY))
    facts = {"name": "memory", "iteration": iteration, "rows": rows, "row_floats": WIDTH, "epochs": epochs}
    figures = {"grown_mebibytes": grown, "peak_mebibytes": most}
    return {**facts, **figures, "claims": [claim.record() for claim in claims]}


def run_steps(loader: batchloom.DataLoader, steps: int) -> None:
    """Take some steps of an epoch and leave the rest."""
    for _ in islice(loader, steps):
        pass


def case(name: str, timings: dict[str, Timing], claims: list[Claim], unit: str = "seconds") -> dict[str, Any]:
    """Return what the JSON says of one comparison."""
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
    """Say what was claimed, reached or not."""
    print()
    for record in (claim for each in cases for claim in each["claims"]):
        Claim(**{key: value for key, value in record.items() if key != "reached"}).print()


def main() -> None:
    """Run the script."""
    chosen = arguments(__doc__)
    first = measure_first_batch(chosen.rounds, chosen.scale)
    indices = [measure_indices(samples, chosen.rounds, chosen.scale) for samples in SIZES]
    print_indices(indices)
    cases = [first, *indices, *measure_memory(chosen.scale)]
    print_claims(cases)
    write("order", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
