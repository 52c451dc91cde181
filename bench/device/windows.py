"""Measure windows on a device: 500 windows of 1000 steps of 500 features a batch, stacked, as views, and gathered.

Promises:

- Every value of small epochs was compared with stacking's before anything is timed.
- Time is that of an epoch over its batches, loop body ``pass``; stacking, whose batches all cost the same, makes the
  first ones. The first epoch, in which resident series move to the device, warms up.
- Memory of a batch is what the device gives out at most while an epoch goes by, each batch let go before the next,
  less the series where they stay there. On the CPU: the bytes of the storages of a batch that are not the series'.
- Windows in random order begin 25 steps apart, so that a few batches come from a series larger than any cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch

from bench.device.place import PINNED, Found, Place, spread
from bench.harness.claims import Claim
from bench.harness.measure import COPY, Candidate, Timing, interleave
from bench.harness.report import fastest_first, print_disturbed, table
from bench.windows.peers import CHECKED, MODES, PER_BATCH, PRELOADED, RANDOM, STACK, STACK_RANDOM, Mode, loom, stacking
from bench.windows.series import Epochs, Series, Sizes
from bench.windows.setting import take

RANDOM_STREAMED = "batchloom random, streamed"
SIZES, RANDOM_STRIDE = Sizes(features=500, batch=500, length=1000), 25
# The CPU takes so much of each of them.
CPU_SIDE = 1 / 5
IN_ORDER_BATCHES, RANDOM_BATCHES, STACKED = 24, 8, 2
MEMORY_SHARE, TIME_SHARE = 0.01, 0.01
STREAMED = Mode(RANDOM_STREAMED, partial(loom, shuffle=True, resident=False), True)
IN_ORDER = (MODES[STACK], MODES[PRELOADED], MODES[PER_BATCH])
SHUFFLED = (MODES[STACK_RANDOM], MODES[RANDOM], STREAMED)
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
        return STACKED if mode.name in (STACK, STACK_RANDOM) else self.batches


def measure_windows(place: Place) -> Found:
    """Measure memory and time in order and in random order; return its record for the JSON."""
    for mode in (*IN_ORDER, *SHUFFLED):
        check(mode, place.device)
    part = 1 if place.is_gpu else CPU_SIDE
    sizes = Sizes(**{name: max(round(count * place.scale * part), 2) for name, count in asdict(SIZES).items()})
    ordered = Sizes(**{**asdict(sizes), "stride": 1})
    shuffled = Sizes(**{**asdict(sizes), "stride": RANDOM_STRIDE})
    cases = (
        Case("windows in order", IN_ORDER, ordered, IN_ORDER_BATCHES),
        Case("windows in random order", SHUFFLED, shuffled, RANDOM_BATCHES),
    )
    found = [measure_case(place, case) for case in cases]
    return Found({"cases": [body for body, _ in found]}, [claim for _, claims in found for claim in claims])


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


def measure_case(place: Place, case: Case) -> tuple[dict[str, Any], list[Claim]]:
    """Measure memory, then time."""
    series = Series.of_batches(case.sizes, case.batches)
    memory = {mode.name: beside(place, mode, series, case.most(mode)) for mode in case.modes}
    size = case.sizes.stacked_bytes
    candidates = [place.copying(size), place.sending(size)]
    for mode in case.modes:
        epochs, most = mode.epochs(series, place.device), case.most(mode)
        run = partial(batch_seconds, place, epochs, most)
        candidates.append(Candidate(mode.name, run, {"batches": most, "peak_bytes": memory[mode.name]}))
    timings = interleave(case.name, candidates, place.rounds)
    return report(case, timings), claims_of(case, timings, memory)


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
    return grown - (series.values.nbytes + series.marks.nbytes if mode.name in RESIDENT else 0)


def stored(batch: Sequence[torch.Tensor], series: Series) -> int:
    """Return the bytes of the storages that a batch holds, the series' own aside."""
    own = {array.untyped_storage().data_ptr() for array in (series.values, series.marks)}
    storages = {storage.data_ptr(): storage.nbytes() for storage in (array.untyped_storage() for array in batch)}
    return sum(size for address, size in storages.items() if address not in own)


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
    sizes = ", ".join(f"{name} {count}" for name, count in asdict(case.sizes).items())
    size = case.sizes.stacked_bytes
    table(f"{case.name}, a batch: {sizes}; {size / 1e6:.0f} MB stacked", heads, rows)
    print_disturbed(case.name, timings)
    candidates = [{**timing.record(against), "spread": spread(timing)} for timing in timings.values()]
    return {"order": case.name, **asdict(case.sizes), "stacked_bytes": size, "candidates": candidates}


def claims_of(case: Case, timings: dict[str, Timing], memory: dict[str, int]) -> list[Claim]:
    """Return the numbers to reach: of views."""
    views = [name for name in (PRELOADED, PER_BATCH) if name in timings]
    stack = case.modes[0].name
    text = "{}: {} of a batch, times stacking's, {}"
    shares = [
        Claim(text.format(case.name, "memory", name), memory[name] / memory[stack], "<=", MEMORY_SHARE)
        for name in views
    ]
    times = [
        Claim.of_ratio(text.format(case.name, "time", name), timings[name], timings[stack], "<=", TIME_SHARE)
        for name in views
    ]
    return shares + times
