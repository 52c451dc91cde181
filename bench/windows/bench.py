"""Run the published evaluation of windows: views beside stacking, in memory, in time, and in training.

    python -m bench windows [--only memory] [--device cuda] [--rounds 5] [--scale 0.1] [--published]

- ``memory`` and ``time`` of a batch, over features, batch and length (sweeps.py).
- ``epoch``: the time of each batch of an epoch. ``random``: windows in random order, gathered, one batch ahead or none,
  and in the first epoch of a loader: x alone, beside loops by hand and torch's copy of as many bytes into memory that
  was written before.
- ``views``: the time of a batch of views beside the loop that slices an unfolded series by hand (views.py).
- ``patches``: patches as views, beside a PatchTST that unfolds stacked windows itself (patches.py).
- ``preparing``: a scale and marks, beside scikit-learn and pandas by hand (preparing.py).
- ``timed``: fields with separate times, beside searches for each sample and for each batch (timed.py).
- ``models``: epochs of training five models (models.py). ``ranks``: one of them in two processes (ranks.py).
- ``dlinear`` and ``patchtst``: errors of two forecasters on the series that they were published with, beside the
  published ones (accuracy.py). They come last, and each goes to a file of its own (of ``--output FILE``, to
  ``FILE-dlinear``). A run that names all other parts with ``--only`` is whole.

On two cores of a CPU all of it takes less than an hour: the parts but the last half of it, ``dlinear`` a few minutes,
``patchtst`` the ``--minutes`` that it is given, and its tests.

Promises:

- Before anything is timed, every value of small epochs was compared with stacking's, mode by mode. Models that train on
  the same windows in the same order must have the same losses, but for rounding.
- Series lie in the CPU's memory. On the CPU preloading therefore loads nothing; on a CUDA device the way of batches or
  of the series to it counts, in every mode.
- The pictures are drawn from the JSON (pictures.py).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench.harness.claims import Claim, slower, stated
from bench.harness.command import PICTURES, arguments, is_whole, wanted
from bench.harness.measure import Candidate, Timing, interleave
from bench.harness.record import file_of, pictures_folder, write
from bench.harness.report import faster_than, fastest_first, print_disturbed, table
from bench.windows import pictures
from bench.windows.accuracy import Kept, measure_dlinear, measure_patchtst
from bench.windows.models import measure_models
from bench.windows.patches import measure_patches
from bench.windows.peers import (
    ASKED,
    GATHER,
    GATHER_REUSED,
    MODES,
    PER_BATCH,
    PRELOADED,
    RANDOM,
    RUNS,
    STACK,
    STACK_RANDOM,
    WORKERS_RANDOM,
    check,
    fitting,
    why_not,
)
from bench.windows.preparing import measure_preparing
from bench.windows.ranks import measure_ranks
from bench.windows.series import ITEM, Epochs, Series, Sizes
from bench.windows.setting import Setting, seconds, wait
from bench.windows.sweeps import REFERENCE, measure_memory, measure_time, named
from bench.windows.timed import measure_timed
from bench.windows.views import measure_views

EPOCH_BATCHES, MOST_ROUNDS = 24, 3
EPOCH_MODES = (STACK, PER_BATCH, PRELOADED, RUNS, RANDOM)
# Every fifth window, so that the few batches of an epoch come from all over a series that is larger than the caches.
X_ALONE = replace(REFERENCE, label=0, horizon=0, stride=5)
RANDOM_CASES = ((X_ALONE, 8), (replace(X_ALONE, features=100, batch=100, length=300), 100))
RANDOM_MODES = (RANDOM, ASKED, STACK_RANDOM, WORKERS_RANDOM, GATHER, GATHER_REUSED)
FIRST = "batchloom random, first epoch"
# Modes whose batches all cost the same make the first part of the epoch only, where batches are large.
SAME_COST, FIRST_PART = (STACK_RANDOM, GATHER), 3
COPY = "copy of as many bytes"
STACKING_RATIO, COPY_SHARE, REUSED_SHARE, MEMORY_SHARE = 2.5, 0.85, 0.8, 0.3
# The time that PatchTST may take for its errors on a CPU.
MINUTES = 15.0
# Modes whose batches are larger than this run once in a round, without a warm-up; others are in the cache, where rounds
# are short and noise is large, in so many times the rounds.
LARGE, MORE_ROUNDS = 2.5e8, 4


def measure_epoch(setting: Setting) -> dict[str, Any]:
    """Time each batch of an epoch in each mode; return its record for the JSON."""
    sizes = setting.sizes(REFERENCE)
    series = Series.of_batches(sizes, EPOCH_BATCHES)
    times: dict[str, list[list[float]]] = {name: [] for name in EPOCH_MODES if not why_not(setting, name, sizes)}
    candidates = []
    for name, runs in times.items():
        epochs = MODES[name].epochs(series, setting.device)
        candidates.append(Candidate(name, partial(note, epochs, setting.device, runs), slow=True))
    timings = interleave("epoch", candidates, min(setting.rounds, MOST_ROUNDS))
    batches = {name: [median(each) for each in zip(*runs, strict=True)] for name, runs in times.items()}
    rows = [
        (name, f"{timings[name].median:.4f}", *(f"{each * 1e3:.3f}" for each in (of[0], median(of[1:]), max(of[1:]))))
        for name, of in batches.items()
    ]
    heads = ("mode", "epoch s", "first batch ms", "median of others ms", "longest of others ms")
    table(f"time of each batch of {EPOCH_BATCHES}: {named(asdict(sizes))}", heads, rows)
    print_disturbed("epoch", timings)
    against = {"stacking": timings[STACK]}
    records = [{**timing.record(against), "batch_seconds": batches[name]} for name, timing in timings.items()]
    return {**asdict(sizes), "candidates": records}


def note(epochs: Epochs, device: torch.device, runs: list[list[float]]) -> float:
    """Time an epoch and note the seconds of each batch; the start of the epoch belongs to the first."""
    start = asked = time.perf_counter()
    times = []
    for batch in epochs():
        del batch
        wait(device)
        now = time.perf_counter()
        times.append(now - asked)
        asked = now
    runs.append(times)
    return asked - start


def measure_random(setting: Setting) -> dict[str, Any]:
    """Time windows in random order; return its record for the JSON."""
    cases = [random_case(setting, fitting(setting, sizes), batches) for sizes, batches in RANDOM_CASES]
    (_, large), (_, small) = cases
    claims = [slower("random order", large[STACK_RANDOM], large[RANDOM], STACKING_RATIO)]
    for name in (RANDOM, ASKED):
        text = f"random order: bandwidth of {name}, times the copy's"
        claims.append(Claim.of_ratio(text, large[COPY], large[name], ">=", COPY_SHARE))
    text = "random order: first epoch, times stacking's"
    claims.append(Claim.of_ratio(text, large[FIRST], large[STACK_RANDOM], "<=", 1))
    # index_select writes into one buffer, and nothing is ahead of it: a batch ahead takes as much of the cache again.
    text = f"random order in the cache: bandwidth of {ASKED}, times that of index_select into one buffer"
    claims.append(Claim.of_ratio(text, small[GATHER_REUSED], small[ASKED], ">=", REUSED_SHARE))
    return {"cases": [case for case, _ in cases], "claims": stated(claims)}


def random_case(setting: Setting, sizes: Sizes, batches: int) -> tuple[dict[str, Any], dict[str, Timing]]:
    """Time all modes of random order at one size."""
    series, device = Series.of_batches(sizes, batches), setting.device
    size, large = sizes.stacked_bytes, sizes.stacked_bytes > LARGE
    candidates = [Candidate(COPY, copying(size, device), {"bytes": size})]
    for name in RANDOM_MODES:
        most = FIRST_PART if large and name in SAME_COST else None
        run = partial(seconds, MODES[name].epochs(series, device), device, most)
        candidates.append(Candidate(name, run, {"batches": most or batches}, slow=large))
    first = partial(first_epoch, series, device)
    candidates.append(Candidate(FIRST, first, {"batches": batches}, slow=large))
    rounds = setting.rounds if large else setting.rounds * MORE_ROUNDS
    timings = interleave(f"random: {named(asdict(sizes))}", candidates, rounds)
    print_random(sizes, timings)
    against = {"copy": timings[COPY], "batchloom": timings[RANDOM]}
    return {
        **asdict(sizes),
        "series_bytes": series.values.nbytes,
        "candidates": [timing.record(against) for timing in timings.values()],
        "faster_than_batchloom": faster_than(RANDOM, timings),
    }, timings


def first_epoch(series: Series, device: torch.device) -> float:
    """Time the first epoch of a loader, whose memory is fresh; return the seconds of a batch."""
    return seconds(MODES[RANDOM].epochs(series, device), device)


def copying(size: int, device: torch.device) -> Callable[[], None]:
    """Copy so many bytes into memory that was written before."""
    source = torch.ones(size // ITEM, device=device)
    target = source.clone()

    def copy() -> None:
        target.copy_(source)
        wait(device)

    return copy


def print_random(sizes: Sizes, timings: dict[str, Timing]) -> None:
    """Print one line for each mode, the fastest first."""
    rows = [
        (
            timing.name,
            f"{timing.median * 1e3:.3f}",
            f"{timing.minimum * 1e3:.3f}",
            f"{timing.ratio(timings[COPY]):.2f}",
            f"{timing.ratio(timings[RANDOM]):.2f}",
        )
        for timing in fastest_first(timings)
    ]
    size = f"{sizes.stacked_bytes / 1e6:.0f} MB a batch"
    heads = ("mode", "median ms", "min ms", "x copy", "x batchloom")
    table(f"random order, time of a batch: {named(asdict(sizes))}, x alone, {size}", heads, rows)
    print_disturbed("random", timings)


PARTS: dict[str, Callable[[Setting], dict[str, Any]]] = {
    "memory": measure_memory,
    "time": measure_time,
    "views": measure_views,
    "preparing": measure_preparing,
    "timed": measure_timed,
    "patches": measure_patches,
    "epoch": measure_epoch,
    "random": measure_random,
    "models": measure_models,
    "ranks": measure_ranks,
}
# Parts that come last and have files of their own, which are written as they go on.
LAST: dict[str, Callable[[Setting, Kept], dict[str, Any]]] = {
    "dlinear": measure_dlinear,
    "patchtst": measure_patchtst,
}

OPTIONS: dict[str, dict[str, Any]] = {
    "device": {"default": "cpu", "help": "where batches are to be, and models are trained"},
    "memory_share": {
        "type": float,
        "default": MEMORY_SHARE,
        "help": "the share of the device's memory that the batches of a mode may take to be measured",
    },
    "published": {"action": "store_true", "help": "models and steps of the published sizes (for a GPU)"},
    "minutes": {
        "type": float,
        "default": MINUTES,
        "help": "how long PatchTST trains for its errors; published: to its end",
    },
    "pictures": PICTURES,
}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, (*PARTS, *LAST), **OPTIONS)
    device = torch.device(chosen.device)
    setting = Setting(device, chosen.rounds, chosen.memory_share, chosen.scale, chosen.published, chosen.minutes)
    print(f"compared with stacking: {check(list(MODES), setting.device)} batches of all modes")
    suffix = "" if setting.device.type == "cpu" else f"-{setting.device.type}"
    if wanted(chosen, PARTS):
        run(setting, chosen, f"windows{suffix}")
    for part, measure in wanted(chosen, LAST).items():
        name, whole = f"windows-{part}{suffix}", chosen.scale == 1
        own = own_file(chosen, part)
        save = partial(write, name, own, whole=whole)
        save(measure(setting, Kept(file_of(name, own, whole), save)))


def own_file(chosen: argparse.Namespace, part: str) -> argparse.Namespace:
    """Return the arguments with an output of this part's own: the file that is asked for is that of the others."""
    if chosen.output is None:
        return chosen
    asked = Path(chosen.output)
    return argparse.Namespace(**{**vars(chosen), "output": str(asked.with_stem(f"{asked.stem}-{part}"))})


def run(setting: Setting, chosen: argparse.Namespace, name: str) -> None:
    """Measure all parts but the errors; draw and write them."""
    if reason := why_not(setting, STACK, setting.sizes(REFERENCE)):
        raise SystemExit(f"stacking cannot be measured at the reference point: {reason}; raise --memory-share")
    parts = {part: measure(setting) for part, measure in wanted(chosen, PARTS).items()}
    whole = is_whole(chosen, PARTS) and chosen.memory_share >= MEMORY_SHARE
    for path in pictures.draw(parts, pictures_folder(chosen, whole)):
        print(f"drawn: {path}")
    write(name, chosen, parts, whole)


if __name__ == "__main__":
    main()
