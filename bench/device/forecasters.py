"""Train five families of forecasters on windows: the published table of epochs with stacked and with viewed batches.

Promises:

- Models, windows and optimizer are the published ones (bench/windows/models.py): 100 features, 300 steps, a horizon of
  60, batches of 100, Adam. On the CPU the models are small.
- An epoch has the steps that the clock allows, at least 10, in place of 10 000. Its first steps are not timed, because
  workers start in them: among 10 000 steps they would not count.
- Stacking is torch's loader with four workers, pinned memory and workers that stay, as published, and the same without
  workers. ``BOUND`` trains on one batch again and again: no loading at all.
- The first losses of a mode must be stacking's, but for rounding: all modes start with the same weights and draws.
- ``saved`` is the share of the time of stacking with workers that a mode saves; ``possible`` is what no loading at all
  saves. Both are medians over rounds. The published shares were measured on four A100, whose models took longer.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from itertools import islice, repeat
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from bench.device.place import Found, Place, spread
from bench.harness.claims import Claim
from bench.harness.measure import Candidate, Timing
from bench.harness.report import print_disturbed, table
from bench.windows.models import BOUND, KINDS, PUBLISHED, ROUNDING, SMALL, WINDOWS, Kind, Loss, Width, train
from bench.windows.peers import MODES, PER_BATCH, PRELOADED, STACK, Slices, moved
from bench.windows.series import Batch, Epochs, Series, Sizes

STACK_WORKERS, WORKERS = "stacking, 4 workers", 4
VIEWED = (PRELOADED, PER_BATCH)
# The published shares of an epoch that views save, preloaded and per batch.
PUBLISHED_SAVED = {
    "DLinear": {PRELOADED: 0.9536, PER_BATCH: 0.1540},
    "Transformer": {PRELOADED: 0.3150, PER_BATCH: 0.2199},
    "Informer": {PRELOADED: 0.3801, PER_BATCH: 0.2186},
    "Autoformer": {PRELOADED: 0.3051, PER_BATCH: 0.1920},
    "PatchTST": {PRELOADED: 0.0848, PER_BATCH: 0.0697},
}
# The seconds of an epoch without loading, its steps, those of them that come before the clock starts, and the losses
# that are compared.
EPOCH_SECONDS, LEAST_STEPS, MOST_STEPS, LEAST_LEAD, LEAD, COMPARED, ROUNDS = 0.6, 10, 1500, 5, 12, 5, 3
CPU_STEPS, CPU_PART = 3, 1 / 10
LOADING, POSSIBLE_SHARE = 0.02, 0.9


def measure_family(name: str) -> Callable[[Place], Found]:
    """Return the measurement of one family."""
    (kind,) = (kind for kind in KINDS if kind.name == name)
    return partial(measure, kind)


def measure(kind: Kind, place: Place) -> Found:
    """Train in every mode; return the record for the JSON."""
    sizes, width = (WINDOWS, PUBLISHED) if place.is_gpu else (smaller(), SMALL)
    training = Training(place, kind, sizes, width)
    steps = training.afford()
    timings = place.interleave(kind.name, [training.candidate(name, steps) for name in training.modes(steps)], ROUNDS)
    print_timings(kind, timings, steps)
    records = [{**each.record({"no_loading": timings[BOUND]}), "spread": spread(each)} for each in timings.values()]
    body = {"model": kind.name, **asdict(sizes), "steps": steps, "lead": training.lead, "candidates": records}
    return Found({**body, "published_saved": PUBLISHED_SAVED[kind.name]}, claims(kind, timings), ratios(kind, timings))


def smaller() -> Sizes:
    """Return windows that a CPU trains on in moments."""
    return Sizes(**{name: max(round(count * CPU_PART), 1) for name, count in asdict(WINDOWS).items()})


class Training:
    """Epochs of one model in all modes."""

    def __init__(self, place: Place, kind: Kind, sizes: Sizes, width: Width) -> None:
        self.place, self.sizes = place, sizes
        self.lead = 1
        torch.manual_seed(0)
        self._model = Loss(kind.make(sizes, width), sizes.horizon).to(place.device)
        self._epochs: dict[str, Epochs] = {}

    def afford(self) -> int:
        """Choose the steps of an epoch that the clock allows; return how many are timed."""
        if not self.place.is_gpu:
            return CPU_STEPS
        series = Series.of_batches(self.sizes, 2)
        batch = next(iter(MODES[STACK].epochs(series, self.place.device)()))
        self.run(repeat(batch), 2)
        steps = round(EPOCH_SECONDS * 4 / self.run(repeat(batch), 4)[0])
        self.lead = min(max(steps, LEAST_LEAD), LEAD)
        return min(max(steps, LEAST_STEPS), MOST_STEPS)

    def modes(self, steps: int) -> Iterable[str]:
        """Prepare every mode; return their names."""
        series = Series.of_batches(self.sizes, self.lead + steps)
        self._epochs = {name: MODES[name].epochs(series, self.place.device) for name in (STACK, *VIEWED)}
        first = next(iter(self._epochs[STACK]()))
        self._epochs[BOUND] = lambda: repeat(first)
        if self.place.is_gpu:
            self._epochs[STACK_WORKERS] = stacking(series, self.place.device)
        return list(self._epochs)

    def candidate(self, name: str, steps: int) -> Candidate:
        """Make a mode ready to be timed, after a few steps that warm it up."""
        facts: dict[str, Any] = {"steps": steps}

        def epoch() -> float:
            seconds, losses = self.run(self._epochs[name](), steps)
            facts["losses"] = losses[:COMPARED]
            return seconds

        self.run(self._epochs[name](), 1)
        return Candidate(name, epoch, facts, slow=True)

    def run(self, epoch: Iterable[Batch], steps: int) -> tuple[float, list[float]]:
        """Train on the steps before the clock, then on ``steps``; return the seconds of these, and the first losses."""
        model = copy.deepcopy(self._model)
        optimizer = torch.optim.Adam(model.parameters())
        torch.manual_seed(0)
        batches = iter(epoch)
        losses: list[Tensor] = train(model, optimizer, islice(batches, self.lead))[0]
        self.place.wait()
        start = time.perf_counter()
        train(model, optimizer, islice(batches, steps))
        self.place.wait()
        return time.perf_counter() - start, torch.stack(losses).tolist()


def stacking(series: Series, device: torch.device) -> Epochs:
    """Use torch's ``DataLoader`` as the published run does: four workers that stay, pinned memory."""
    loader = DataLoader(
        Slices(series),
        batch_sampler=series.order(False),
        num_workers=WORKERS,
        persistent_workers=True,
        pin_memory=True,
        generator=torch.Generator(),
    )
    return lambda: moved(loader, device)


def ratios(kind: Kind, timings: dict[str, Timing]) -> dict[str, float]:
    """Return what modes save, what loading takes, and what was published."""
    found = {}
    stack = timings.get(STACK_WORKERS, timings[STACK])
    found[f"{kind.name}: share of stacking's epoch that no loading saves"] = 1 - timings[BOUND].ratio(stack)
    for name in VIEWED:
        found[f"{kind.name}: share of stacking's epoch that {name} saves"] = 1 - timings[name].ratio(stack)
        found[f"{kind.name}: the published share, {name}"] = PUBLISHED_SAVED[kind.name][name]
    return found


def claims(kind: Kind, timings: dict[str, Timing]) -> list[Claim]:
    """Return the numbers to reach."""
    stack, bound = timings.get(STACK_WORKERS, timings[STACK]), timings[BOUND]
    first = timings[STACK].candidate.facts["losses"]
    found = []
    for name in VIEWED:
        losses = timings[name].candidate.facts["losses"]
        away = max(abs(one - other) for one, other in zip(losses, first, strict=True)) / max(map(abs, first))
        found.append(Claim(f"{kind.name}: first losses of {name} away from stacking's", away, "<=", ROUNDING * 10))
        share = 1 - bound.ratio(timings[name])
        found.append(Claim(f"{kind.name}: share of the epoch that loading takes, {name}", share, "<=", LOADING))
    possible = 1 - bound.ratio(stack)
    if possible > LOADING:
        text = f"{kind.name}: what {PRELOADED} saves of stacking's epoch, times what no loading saves"
        found.append(Claim(text, (1 - timings[PRELOADED].ratio(stack)) / possible, ">=", POSSIBLE_SHARE))
    return found


def print_timings(kind: Kind, timings: dict[str, Timing], steps: int) -> None:
    """Print one line for each mode."""
    stack, bound = timings.get(STACK_WORKERS, timings[STACK]), timings[BOUND]
    rows = [
        (
            name,
            f"{median(each.rounds) / steps * 1e3:.3f}",
            f"{1 - each.ratio(stack):.1%}",
            f"{each.ratio(bound):.3f}",
        )
        for name, each in timings.items()
    ]
    heads = ("mode", "ms a step", "saved of stacking's", "x no loading")
    table(f"{kind.name}, {steps} steps an epoch", heads, rows)
    print_disturbed(kind.name, timings)
