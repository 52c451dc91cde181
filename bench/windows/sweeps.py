"""Measure memory and time of a batch over the published sweeps of features, batch and length.

Promises:

- Each point is measured at its full size or not at all: where a mode would hold more than a share of the memory at
  once, the JSON says why there is no figure. Views are measured everywhere.
- A figure of time is the seconds of an epoch, its start included, over its batches; stacking, whose batches all cost
  the same, makes the first ones only. Each batch is let go before the next is asked for.
- The claim of one hundredth is checked at every point, for every mode of views. The rows of a batch are B + S + H - 1,
  where B windows of S steps have a horizon of H: where they alone are more than a hundredth of the stacked batch, the
  mode that moves them cannot reach it, and must stay within ``SLACK`` of them.
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
from bench.windows.peers import ASKED, HAND, MODES, PER_BATCH, PRELOADED, RANDOM, RUNS, STACK, VIEWS, WORKERS, why_not
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
SHARE, SLACK = 0.01, 1.1
# Windows at random, x alone: batches in memory at most, of a loop that lets go of each before it asks for the next.
ALONE, HELD = replace(REFERENCE, label=0, horizon=0), {RANDOM: 2.1, ASKED: 1.1}


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
        alone = setting.sizes(ALONE)
        at_random = {name: grown(meter, setting, name, alone) for name in HELD}
    print_memory(points, names)
    print_bounds(points)
    is_there = setting.device.type == "cpu"
    claims = stated([memory_claim(each, name, is_there) for each in points for name in VIEWS])
    claims += held(alone, at_random)
    return {"points": points, "random": {**asdict(alone), "modes": at_random}, "claims": claims}


def held(sizes: Sizes, modes: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Claim how many batches of windows at random are in memory; return it for the JSON."""
    text = f"memory of windows at random, x alone, {sizes.stacked_bytes / 1e6:.0f} MB a batch"
    found = {name: mode["peak_bytes"] / sizes.stacked_bytes for name, mode in modes.items() if "peak_bytes" in mode}
    return stated([Claim(f"{text}, in batches: {name}", found[name], "<=", HELD[name]) for name in found])


def grown(meter: Meter, setting: Setting, name: str, sizes: Sizes) -> dict[str, Any]:
    """Return the memory of a mode, or the reason why it was not measured."""
    reason = why_not(setting, name, sizes)
    return {"not_measured": reason} if reason else meter.growth(name, sizes)


def computed(sizes: Sizes) -> dict[str, Any]:
    """Return the bytes of the series and of a batch, stacked and viewed, as batchloom computes them."""
    stats = Series.of_batches(sizes, BATCHES).loader().dataset.stats(batch_size=sizes.batch)
    names = ("series_bytes", "gathered_bytes", "viewed_bytes")
    return {name: getattr(stats, name) for name in names}


def memory_claim(point: dict[str, Any], name: str, is_there: bool) -> Claim:
    """Claim that a mode takes at most a hundredth of stacking's memory, or little more than the rows that it moves."""
    text = f"memory of a batch, {named(point)}: {name}, times that of stacking"
    least = least_share(point, name, is_there)
    share = point["modes"][name]["peak_bytes"] / stacked_bytes(point)
    if least <= SHARE:
        return Claim(text, share, "<=", SHARE)
    return Claim(f"{text} (what it moves is {least:.2%} of it)", share, "<=", least * SLACK)


def least_share(point: dict[str, Any], name: str, is_there: bool) -> float:
    """Return the memory of the rows that a mode moves, times that of the stacked batch; ``is_there``: the series is."""
    if name == PER_BATCH:
        return point["viewed_bytes"] / point["gathered_bytes"]
    return 0.0 if is_there else point["series_bytes"] / point["gathered_bytes"]


def stacked_bytes(point: dict[str, Any]) -> int:
    """Return the memory of stacking: as measured, or where it was too large that of the batch, as computed."""
    return point["modes"][STACK].get("peak_bytes", point["gathered_bytes"])


def print_bounds(points: Sequence[dict[str, Any]]) -> None:
    """Print a line for each point: the rows of a batch, and their share of the stacked one beside the measured."""
    rows = []
    for each in points:
        count = each["batch"] + each["length"] + each["horizon"] - 1
        measured = each["modes"][PER_BATCH]["peak_bytes"] / stacked_bytes(each)
        rows.append((named(each), f"{count}", f"{least_share(each, PER_BATCH, True):.3%}", f"{measured:.3%}"))
    heads = ("", "rows: B + S + H - 1", "of the stacked batch", f"{PER_BATCH}, of stacking's memory")
    table("memory: what arithmetic leaves of stacking, and what was measured", heads, rows)


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
    claims = [
        Claim.of_ratio(
            f"time of a batch, {named(asdict(sizes))}: {name}, times that of stacking", mine, stack, "<=", SHARE
        )
        for sizes, _, timings in timed
        if (stack := timings.get(STACK))
        for name, mine in timings.items()
        if name in VIEWS
    ]
    return {"points": points, "claims": stated(claims), "read": measure_read(setting)}


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


def named(sizes: dict[str, Any]) -> str:
    """Return the sizes of a record in words."""
    return f"features {sizes['features']}, batch {sizes['batch']}, length {sizes['length']}"
