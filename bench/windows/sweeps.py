"""Measure memory and time of a batch over the published sweeps of features, batch and length.

Promises:

- Each point is measured at its full size or not at all: where a mode would hold more than a share of the memory at
  once, the JSON says why there is no figure. Views are measured everywhere.
- A figure of time is the seconds of an epoch, its start included, over its batches; stacking, whose batches all cost
  the same, makes the first ones only. Each batch is let go before the next is asked for.
- At the reference point two workers and views sliced by hand are timed as well, and epochs in which x is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch

from bench.harness.claims import Claim, stated
from bench.harness.measure import Candidate, Timing, interleave
from bench.harness.report import faster_than, print_disturbed, table
from bench.windows.memory import Meter
from bench.windows.peers import HAND, MODES, PRELOADED, RANDOM, RUNS, STACK, VIEWS, WORKERS, why_not
from bench.windows.series import Epochs, Series, Sizes
from bench.windows.setting import Setting, seconds

REFERENCE = Sizes(features=500, batch=500, length=1000)
SWEEPS = {
    "features": [replace(REFERENCE, features=count) for count in (10, 50, 100, 500, 1000, 3000, 5000)],
    "batch": [replace(REFERENCE, batch=count) for count in (100, 300, 500, 700, 1000)],
    "length": [replace(REFERENCE, batch=1000, length=count) for count in (100, 500, 1000, 3000, 5000)],
}
# Batches of an epoch; stacking makes so many of them as have about so many bytes.
BATCHES, WORKER_BATCHES, STACKED_BYTES = 20, 6, 1e9
SHARE = 0.01


def points_of(setting: Setting) -> dict[Sizes, list[str]]:
    """Return the sizes of all sweeps, and the sweeps that each is part of."""
    points: dict[Sizes, list[str]] = {}
    for sweep, several in SWEEPS.items():
        for sizes in several:
            points.setdefault(setting.sizes(sizes), []).append(sweep)
    return points


def measure_memory(setting: Setting) -> dict[str, Any]:
    """Measure the memory of each mode at every point; return its record for the JSON."""
    names, points = (STACK, *VIEWS, RANDOM), []
    with Meter(setting.device) as meter:
        for sizes, sweeps in points_of(setting).items():
            modes = {name: grown(meter, setting, name, sizes) for name in names}
            points.append({"sweeps": sweeps, **asdict(sizes), **computed(sizes), "modes": modes})
    print_memory(points, names)
    reference = setting.sizes(REFERENCE)
    grown_by = next(point["modes"] for point in points if is_at(point, reference))
    shares = {name: grown_by[name]["peak_bytes"] / grown_by[STACK]["peak_bytes"] for name in VIEWS}
    return {"points": points, "claims": claimed("memory", {name: (share, None) for name, share in shares.items()})}


def grown(meter: Meter, setting: Setting, name: str, sizes: Sizes) -> dict[str, Any]:
    """Return the memory of a mode, or the reason why it was not measured."""
    reason = why_not(setting, name, sizes)
    return {"not_measured": reason} if reason else meter.growth(name, sizes)


def computed(sizes: Sizes) -> dict[str, Any]:
    """Return the bytes of the series and of a batch, stacked and viewed, as batchloom computes them."""
    stats = Series.of_batches(sizes, BATCHES).loader().dataset.stats(batch_size=sizes.batch)
    names = ("series_bytes", "gathered_bytes", "viewed_bytes")
    return {name: getattr(stats, name) for name in names}


def print_memory(points: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Print a line for each point, in MB."""
    rows = []
    for point in points:
        peaks = [point["modes"][name].get("peak_bytes") for name in names]
        cells = ["-" if peak is None else f"{peak / 1e6:.2f}" for peak in peaks]
        rows.append((named(point), f"{point['gathered_bytes'] / 1e6:.1f}", *cells))
    table("memory: what an epoch takes at most, MB", ("", "a stacked batch", *names), rows)


def measure_time(setting: Setting) -> dict[str, Any]:
    """Time each mode at every point; return its record for the JSON."""
    timed = [(sizes, sweeps, timings_at(setting, sizes)) for sizes, sweeps in points_of(setting).items()]
    points = [point(setting, sizes, sweeps, timings) for sizes, sweeps, timings in timed]
    print_times(points)
    for sizes, _, timings in timed:
        print_disturbed(named(asdict(sizes)), timings)
    at_reference = next(timings for sizes, _, timings in timed if sizes == setting.sizes(REFERENCE))
    stack = at_reference[STACK]
    shares = {name: (at_reference[name].ratio(stack), at_reference[name].best_ratio(stack)) for name in VIEWS}
    return {"points": points, "claims": claimed("time", shares), "read": measure_read(setting)}


def timings_at(setting: Setting, sizes: Sizes) -> dict[str, Timing]:
    """Time the modes that can be measured at one point."""
    names = names_at(setting, sizes)
    measured = [name for name in names if not why_not(setting, name, sizes)]
    series = Series.of_batches(sizes, BATCHES)
    candidates = [candidate(setting, name, series) for name in measured]
    return interleave(f"time: {named(asdict(sizes))}", candidates, setting.rounds)


def names_at(setting: Setting, sizes: Sizes) -> tuple[str, ...]:
    """Return the modes that are wanted at one point."""
    return (STACK, *VIEWS, *((WORKERS, HAND) if sizes == setting.sizes(REFERENCE) else ()))


def candidate(setting: Setting, name: str, series: Series) -> Candidate:
    """Make a mode ready to be timed."""
    size, batches, most = series.sizes.stacked_bytes, BATCHES, None
    if name == STACK:
        batches = most = min(max(int(STACKED_BYTES / size), 2), BATCHES)
    if name == WORKERS:
        series, batches = Series.of_batches(series.sizes, WORKER_BATCHES), WORKER_BATCHES
    epochs = MODES[name].epochs(series, setting.device)
    slow = name in (STACK, WORKERS) and batches * size > STACKED_BYTES / 2
    return Candidate(name, partial(seconds, epochs, setting.device, most), {"batches": batches}, slow)


def point(setting: Setting, sizes: Sizes, sweeps: list[str], timings: dict[str, Timing]) -> dict[str, Any]:
    """Return the record of one point for the JSON."""
    reasons = {name: why_not(setting, name, sizes) for name in names_at(setting, sizes)}
    not_measured = {name: reason for name, reason in reasons.items() if reason}
    against = {"stacking": timings[STACK]} if STACK in timings else {}
    candidates = [timing.record(against) for timing in timings.values()]
    return {
        "sweeps": sweeps,
        **asdict(sizes),
        "candidates": candidates,
        "not_measured": not_measured,
        "faster_than_batchloom": [name for name in faster_than(PRELOADED, timings) if name not in VIEWS],
    }


def print_times(points: Iterable[dict[str, Any]]) -> None:
    """Print a line for each mode at each point."""
    rows = []
    for each in points:
        for mode in each["candidates"]:
            ratio = mode.get("ratio_to_stacking")
            share = "-" if ratio is None else f"{ratio:.3%}"
            times = (f"{mode['median_seconds'] * 1e3:.4f}", f"{mode['minimum_seconds'] * 1e3:.4f}")
            rows.append((f"{named(each)}: {mode['name']}", *times, share))
    table("time of a batch", ("", "median ms", "min ms", "of stacking's"), rows)


def measure_read(setting: Setting) -> dict[str, Any]:
    """Time epochs at the reference point in which every value of x is read; return its record for the JSON."""
    sizes = setting.sizes(REFERENCE)
    series = Series.of_batches(sizes, BATCHES)
    candidates = []
    for name in (STACK, PRELOADED, RUNS):
        whole = candidate(setting, name, series)
        epochs = partial(read, MODES[name].epochs(series, setting.device))
        run = partial(seconds, epochs, setting.device, whole.facts["batches"])
        candidates.append(replace(whole, name=f"{name}, x read", run=run))
    timings = interleave("time: x read", candidates, setting.rounds)
    stack = timings[f"{STACK}, x read"]
    rows = [(name, f"{each.median * 1e3:.3f}", f"{each.ratio(stack):.3%}") for name, each in timings.items()]
    table(f"time of a batch whose x is read: {named(asdict(sizes))}", ("", "median ms", "of stacking's"), rows)
    print_disturbed("x read", timings)
    return {**asdict(sizes), "candidates": [each.record({"stacking": stack}) for each in timings.values()]}


def read(epochs: Epochs) -> Iterable[torch.Tensor]:
    """Go through an epoch and add up each x."""
    return (batch[0].sum() for batch in epochs())


def is_at(record: dict[str, Any], sizes: Sizes) -> bool:
    """Tell whether a record of the JSON has these sizes."""
    return all(record[name] == count for name, count in asdict(sizes).items())


def named(sizes: dict[str, Any]) -> str:
    """Return the sizes of a record in words."""
    return f"features {sizes['features']}, batch {sizes['batch']}, length {sizes['length']}"


def claimed(what: str, shares: dict[str, tuple[float, float | None]]) -> list[dict[str, Any]]:
    """Claim that views take at most a hundredth at the reference point; return it for the JSON."""
    claims = [
        Claim(f"{what} of a batch: {name}, times that of stacking", share, "<=", SHARE, best)
        for name, (share, best) in shares.items()
    ]
    return stated(claims)
