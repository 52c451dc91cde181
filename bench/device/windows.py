"""Measure windows on a device: the published evaluation of views, by memory and by time.

Three modes make the same batches: windows that are stacked, views of the rows that each batch moves to the device, and
views of series that lie there. The published sweeps go over features (batches of 500, 1000 steps), over the batch (500
features, 1000 steps) and over the length (500 features, batches of 1000). ``measure_windows`` has the points in which
the sweeps meet, the time of each batch of an epoch, and windows in random order; each sweep is a part of its own.

Promises:

- Every value of small epochs was compared with stacking's before anything is timed.
- Time is an epoch's over its batches, loop body ``pass``; stacking, whose batches all cost the same, makes the first
  batches. A first epoch warms up: resident series move to the device in it.
- Memory of a batch is the most that torch gives out on the device while an epoch goes by, each batch dropped before
  the next, less the series where they stay there. On the CPU: the bytes of the storages of a batch that are not the
  series'.
- The claim of one hundredth is checked at every point. A batch of B windows of S steps with a horizon of H has
  B + S + H - 1 rows: where they alone are more than a hundredth of the stacked batch, the mode that moves them must
  stay within ``SLACK`` of them.
- The time of each batch begins with a loader that was just made: the series lie in the CPU's memory.
- Windows in random order begin 25 steps apart, so that a few batches have a series larger than any cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import torch

from bench.device.place import PINNED, Found, Place, spread
from bench.harness.claims import Claim
from bench.harness.measure import COPY, Candidate, Timing
from bench.harness.report import fastest_first, print_disturbed, table
from bench.windows.peers import CHECKED, MODES, PER_BATCH, PRELOADED, RANDOM, STACK, STACK_RANDOM, Mode, loom, stacking
from bench.windows.series import Epochs, Series, Sizes
from bench.windows.setting import take
from bench.windows.sweeps import REFERENCE, SHARE, SLACK, SWEEPS

RANDOM_STREAMED = "batchloom random, streamed"
# The points in which the sweeps meet: one by features and by batch, another by length.
IN_COMMON = (REFERENCE, replace(REFERENCE, batch=1000))
# Windows at random are x alone.
AT_RANDOM = replace(REFERENCE, label=0, horizon=0, stride=25)
# The share of each size that the CPU takes, and that it takes of the sweeps.
CPU_SIDE, CPU_SWEEP_SIDE = 1 / 10, 1 / 20
IN_ORDER_BATCHES, RANDOM_BATCHES, STACKED, ROUNDS = 24, 8, 2, 3
# Stacked batches of more bytes are made once in each round.
LARGE = 4e9
STREAMED = Mode(RANDOM_STREAMED, partial(loom, shuffle=True, resident=False), True)
IN_ORDER = (MODES[STACK], MODES[PRELOADED], MODES[PER_BATCH])
SHUFFLED = (MODES[STACK_RANDOM], MODES[RANDOM], STREAMED)
VIEWED = (PRELOADED, PER_BATCH)
# In these the series stay on the device.
RESIDENT = (PRELOADED, RANDOM)


@dataclass(frozen=True)
class Case:
    """Modes that make the same batches of the same series."""

    name: str
    modes: Sequence[Mode]
    sizes: Sizes
    batches: int

    def most(self, mode: Mode) -> int:
        """Return the number of batches of an epoch that a mode makes."""
        if mode.name not in (STACK, STACK_RANDOM):
            return self.batches
        return 1 if self.sizes.stacked_bytes > LARGE else STACKED


def measure_windows(place: Place) -> Found:
    """Measure the points in which the sweeps meet, each batch of an epoch, and random order."""
    for mode in (*IN_ORDER, *SHUFFLED):
        check(mode, place.device)
    cases = [in_order(place, sizes, CPU_SIDE) for sizes in IN_COMMON]
    cases.append(Case("windows in random order", SHUFFLED, scaled(place, AT_RANDOM, CPU_SIDE), RANDOM_BATCHES))
    found = [measure_case(place, case, ROUNDS) for case in cases]
    each = each_batch(place, cases[0])
    claims = [claim for _, claims, _ in found for claim in claims]
    ratios = {name: ratio for *_, ratios in found for name, ratio in ratios.items()}
    return Found({"cases": [body for body, *_ in found], "each_batch": each}, claims, ratios)


def measure_sweep(name: str) -> Callable[[Place], Found]:
    """Return the measurement of all points of a sweep."""

    def measure(place: Place) -> Found:
        cases = [in_order(place, sizes, CPU_SWEEP_SIDE) for sizes in SWEEPS[name]]
        found = [measure_case(place, case, ROUNDS) for case in cases]
        claims = [claim for _, claims, _ in found for claim in claims]
        ratios = {text: ratio for *_, ratios in found for text, ratio in ratios.items()}
        if name != "features":
            peaks = [peak for body, *_ in found for peak in [body["peak_bytes"][PRELOADED]]]
            ratios[f"windows by {name}: largest over smallest memory of a batch, {PRELOADED}"] = (
                max(peaks) / max(min(peaks), 1) if max(peaks) else 1.0
            )
        return Found({"sweep": name, "cases": [body for body, *_ in found]}, claims, ratios)

    return measure


def in_order(place: Place, sizes: Sizes, on_cpu: float) -> Case:
    """Return the case of windows in order at one point."""
    sizes = scaled(place, sizes, on_cpu)
    text = f"windows of {sizes.length} x {sizes.features}, batches of {sizes.batch}"
    return Case(text, IN_ORDER, sizes, IN_ORDER_BATCHES)


def scaled(place: Place, sizes: Sizes, on_cpu: float) -> Sizes:
    """Return the sizes to measure: the same fraction in every direction."""
    part = place.scale * (1 if place.is_gpu else on_cpu)
    less = {name: max(round(count * part), 2) if count else 0 for name, count in asdict(sizes).items()}
    return Sizes(**{**less, "stride": sizes.stride})


def check(mode: Mode, device: torch.device) -> None:
    """Compare every value of small epochs with stacking's.

    Raises:
        AssertionError: One differs.
    """
    for sizes in CHECKED:
        series = Series.draw(sizes, 10 * sizes.batch + 5)
        for theirs, mine in zip(stacking(series, device, mode.shuffle)(), mode.epochs(series, device)(), strict=True):
            assert all(array.device == device for array in mine), f"{mode.name}: batches are elsewhere"
            assert len(theirs) == len(mine), f"{mode.name}: other fields"
            assert all(map(torch.equal, theirs, mine)), f"{mode.name}: other values, {sizes}"


def measure_case(place: Place, case: Case, rounds: int) -> tuple[dict[str, Any], list[Claim], dict[str, float]]:
    """Measure memory, then time; return the record, the claims and further ratios."""
    series = Series.of_batches(case.sizes, case.batches)
    memory = {mode.name: beside(place, mode, series, case.most(mode)) for mode in case.modes}
    size = case.sizes.stacked_bytes
    candidates = [place.copying(size), place.sending(size)]
    for mode in case.modes:
        epochs, most = mode.epochs(series, place.device), case.most(mode)
        run = partial(batch_seconds, place, epochs, most)
        facts = {"batches": most, "peak_bytes": memory[mode.name]}
        candidates.append(Candidate(mode.name, run, facts, slow=most <= STACKED))
    timings = place.interleave(case.name, candidates, rounds)
    body = {**report(case, timings), "peak_bytes": memory}
    return body, claims_of(case, timings, memory), ratios_of(case, timings)


def batch_seconds(place: Place, epochs: Epochs, most: int) -> float:
    """Return the seconds of a batch."""
    return place.seconds(lambda: take(epochs(), most)) / most


def beside(place: Place, mode: Mode, series: Series, most: int) -> int:
    """Return the bytes that batches take on the device beside the series, at most."""
    if not place.is_gpu:
        return max(stored(batch, series) for batch in islice(mode.epochs(series, place.device)(), most))
    place.clear()
    place.wait()
    before = torch.cuda.memory_allocated(place.device)
    torch.cuda.reset_peak_memory_stats(place.device)
    epochs = mode.epochs(series, place.device)
    take(epochs(), most)
    place.wait()
    grown = torch.cuda.max_memory_allocated(place.device) - before
    return max(grown - (series.values.nbytes + series.marks.nbytes if mode.name in RESIDENT else 0), 0)


def stored(batch: Sequence[torch.Tensor], series: Series) -> int:
    """Return the bytes of the storages that a batch holds, the series' own aside."""
    own = {array.untyped_storage().data_ptr() for array in (series.values, series.marks)}
    storages = {storage.data_ptr(): storage.nbytes() for storage in (array.untyped_storage() for array in batch)}
    return sum(size for address, size in storages.items() if address not in own)


def each_batch(place: Place, case: Case) -> dict[str, list[float]]:
    """Return the seconds of each batch of an epoch, by mode; making the loader belongs to the first batch."""
    series, found = Series.of_batches(case.sizes, case.batches), {}
    for mode in case.modes:
        place.clear()
        place.wait()
        times, start = [], time.perf_counter()
        for batch in islice(mode.epochs(series, place.device)(), case.most(mode) if mode.name == STACK else None):
            del batch
            place.wait()
            times.append(time.perf_counter() - start)
            start = time.perf_counter()
        found[mode.name] = times
    rows = [
        (name, f"{times[0] * 1e3:.3f}", f"{sorted(times[1:])[len(times[1:]) // 2] * 1e3:.4f}")
        for name, times in found.items()
    ]
    table(f"each batch of an epoch: {case.name}", ("mode", "first ms", "median of the rest ms"), rows)
    return found


def report(case: Case, timings: dict[str, Timing]) -> dict[str, Any]:
    """Print the measurements; return them for the JSON."""
    stack = timings[case.modes[0].name]
    against = {"copy": timings[COPY], "pinned": timings[PINNED], "stacking": stack}
    rows = [
        (
            timing.name,
            f"{timing.median * 1e3:.4f}",
            f"{timing.minimum * 1e3:.4f}",
            f"{spread(timing):.1%}",
            *(f"{timing.ratio(other):.5f}" for other in against.values()),
            f"{timing.candidate.facts['peak_bytes'] / 1e6:.3f}" if "peak_bytes" in timing.candidate.facts else "-",
        )
        for timing in fastest_first(timings)
    ]
    heads = ("mode", "median ms", "min ms", "spread", *(f"x {short}" for short in against), "MB beside the series")
    size = case.sizes.stacked_bytes
    table(f"{case.name}; a stacked batch has {size / 1e6:.0f} MB", heads, rows)
    print_disturbed(case.name, timings)
    candidates = [{**timing.record(against), "spread": spread(timing)} for timing in timings.values()]
    return {"order": case.name, **asdict(case.sizes), "stacked_bytes": size, "candidates": candidates}


def claims_of(case: Case, timings: dict[str, Timing], memory: dict[str, int]) -> list[Claim]:
    """Return the numbers to reach: of views."""
    views, stack = [name for name in VIEWED if name in timings], case.modes[0].name
    text = "{}: {} of a batch, times stacking's, {}"
    shares = []
    for name in views:
        share, least = memory[name] / memory[stack], moved_share(case.sizes) if name == PER_BATCH else 0.0
        bound = SHARE if least <= SHARE else least * SLACK
        shares.append(Claim(text.format(case.name, "memory", name), share, "<=", bound))
    times = [
        Claim.of_ratio(text.format(case.name, "time", name), timings[name], timings[stack], "<=", SHARE)
        for name in views
    ]
    return shares + times


def moved_share(sizes: Sizes) -> float:
    """Return the rows that a batch moves, times the rows of the stacked batch."""
    rows = sizes.batch + sizes.length + sizes.horizon - 1
    return rows / (sizes.batch * (sizes.length + sizes.label + sizes.horizon))


def ratios_of(case: Case, timings: dict[str, Timing]) -> dict[str, float]:
    """Return the figures without a number to reach: random order beside copies and stacking."""
    if RANDOM not in timings:
        return {}
    text, stack = f"{case.name}: time of stacking, times batchloom's", timings[STACK_RANDOM]
    return {
        f"{text}, resident": stack.ratio(timings[RANDOM]),
        f"{text}, streamed": stack.ratio(timings[RANDOM_STREAMED]),
        f"{case.name}: bandwidth, times the device's copy's": timings[COPY].ratio(timings[RANDOM]),
    }
