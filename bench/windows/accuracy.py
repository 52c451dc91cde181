"""Train the published forecasters on the published series, from stacked and from viewed batches with one seed.

Promises:

- A training runs in two orders, and in each from batches that torch's ``DataLoader`` stacks and from batchloom's:
  windows at random are gathered, runs are views of the series. Both sides have the same windows in the same order, the
  same weights to begin with and the same random numbers, so their errors must be equal: to the last bit, except that
  DLinear's may differ by rounding on views, because sums follow strides.
- Errors are those of every window of the test part, at the epoch with the least error on the validation part. The last
  batch counts, unlike in the published code, which drops it.
- Settings are those of the published scripts. DLinear trains its ten epochs. PatchTST trains all hundred with
  ``--published``; else it trains in runs alone, for as many epochs as ``--minutes`` allow, the same number each way.
  The JSON says how many. Sets that are not of table 3 have no published errors here, and the settings of the longer
  of its sets.
- The JSON is written after each epoch. A run keeps the cells that its file has, if they were trained to their end with
  the same settings and versions, and goes on with the next one. DLinear and PatchTST have a file each,
  ``windows-dlinear-<machine>.json`` and ``windows-patchtst-<machine>.json``.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import batchloom
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR
from torch.utils.data import DataLoader, Dataset

from bench.harness.claims import Claim, stated
from bench.harness.measure import progress
from bench.harness.record import commit, versions
from bench.harness.report import table
from bench.windows.forecast_sets import INPUT, ForecastSet, Parts, found
from bench.windows.linear import DLinear
from bench.windows.patch_tst import HOURS, MINUTES, PatchTST
from bench.windows.peers import RANDOM, RUNS, STACK_RANDOM
from bench.windows.series import Batch, Shuffle
from bench.windows.setting import Setting

HORIZONS = (96, 192, 336, 720)
STACK_RUNS = "stacking, runs"
# Each way to the batches of an epoch: their order, and batchloom's counterpart in it.
ORDERS: dict[str, Shuffle] = {STACK_RANDOM: True, RANDOM: True, STACK_RUNS: "runs", RUNS: "runs"}
COUNTERPART = {RANDOM: STACK_RANDOM, RUNS: STACK_RUNS}
STACKED = tuple(COUNTERPART.values())
SEED, NEAR, ROUNDING = 2021, 0.01, 1e-4
LINEAR_SET = "ETTh1"
# The two published rates. With the larger, the errors at the longest horizon differ by 0.05 from epoch to epoch, and
# validation does not tell which are the small ones.
LINEAR_RATES = {96: 0.005, 192: 0.005, 336: 0.005, 720: 0.001}
# MSE and MAE, from the papers of the two models.
LINEAR_ERRORS = {96: (0.375, 0.399), 192: (0.405, 0.416), 336: (0.439, 0.443), 720: (0.472, 0.490)}
PATCH_ERRORS = {
    "ETTh1": {96: (0.378, 0.403), 192: (0.414, 0.422), 336: (0.425, 0.430), 720: (0.437, 0.457)},
    "ETTh2": {96: (0.276, 0.337), 192: (0.343, 0.380), 336: (0.332, 0.384), 720: (0.379, 0.419)},
    "ETTm1": {96: (0.295, 0.349), 192: (0.340, 0.377), 336: (0.371, 0.397), 720: (0.415, 0.421)},
    "ETTm2": {96: (0.167, 0.258), 192: (0.226, 0.297), 336: (0.281, 0.332), 720: (0.372, 0.385)},
}
Schedule = Callable[[torch.optim.Optimizer, int], LRScheduler]


def by_epoch(factor: Callable[[int], float]) -> Schedule:
    """Multiply the rate by a factor that changes from epoch to epoch."""
    return lambda optimizer, steps: LambdaLR(optimizer, lambda step: factor(step // steps))


@dataclass(frozen=True)
class Recipe:
    """A model and the settings that it was published with."""

    name: str
    make: Callable[[int], nn.Module]
    batch: int
    rate: float
    epochs: int
    patience: int
    schedule: Schedule


LINEAR = Recipe(
    "DLinear",
    lambda horizon: DLinear(INPUT, horizon),
    32,
    0.005,
    10,
    3,
    by_epoch(lambda epoch: 0.5 ** max(epoch - 1, 0)),
)
PATCH_HOURS = Recipe(
    "PatchTST/42",
    lambda horizon: PatchTST(INPUT, horizon, HOURS),
    128,
    1e-4,
    100,
    100,
    by_epoch(lambda epoch: 0.9 ** max(epoch - 3, 0)),
)
PATCH_MINUTES = Recipe(
    "PatchTST/42",
    lambda horizon: PatchTST(INPUT, horizon, MINUTES),
    128,
    1e-4,
    100,
    20,
    lambda optimizer, steps: OneCycleLR(optimizer, 1e-4, epochs=100, steps_per_epoch=steps, pct_start=0.4),
)


@dataclass(frozen=True)
class Stretch(Dataset[Batch]):
    """Windows of a part, each cut when it is asked for: the data set as it is usually written."""

    values: Tensor
    first: int
    horizon: int

    @classmethod
    def of(cls, part: batchloom.WindowDataset, horizon: int) -> Stretch:
        """Cut the windows that a part has."""
        return cls(torch.as_tensor(part.fields["x"]), part.place(0).start, horizon)

    def __getitem__(self, window: int) -> Batch:
        """Return input and target of one window."""
        now = self.first + window + INPUT
        return self.values[now - INPUT : now], self.values[now : now + self.horizon]


@dataclass
class Way:
    """A way to batches: the training part in an order, and the other parts in theirs."""

    name: str
    parts: Parts
    horizon: int
    batch: int
    device: torch.device

    def __post_init__(self) -> None:
        self.train = self._loader("train", shuffle=ORDERS[self.name], seed=SEED)
        self.held = {part: self._loader(part) for part in ("val", "test")}

    def _loader(self, part: str, **options: Any) -> batchloom.DataLoader:
        moved = {} if self.device.type == "cpu" else {"device": self.device, "resident": True}
        return batchloom.DataLoader(self.parts[part], batch_size=self.batch, **moved, **options)

    def epoch(self, number: int) -> Iterable[Batch]:
        """Return the batches to train on."""
        self.train.set_epoch(number)
        return self._stacked("train", self.train.plan(number)) if self.name in STACKED else self.train

    def evaluated(self, part: str) -> Iterable[Batch]:
        """Return the batches of a part in order."""
        loader = self.held[part]
        loader.set_epoch(0)
        return self._stacked(part, loader.plan(0)) if self.name in STACKED else loader

    def _stacked(self, part: str, plan: Iterable[Any]) -> Iterable[Batch]:
        order = [batch.tolist() for batch in plan]
        # A generator of its own: else each epoch draws a seed from the one that models draw from.
        loader = DataLoader(
            Stretch.of(self.parts[part], self.horizon), batch_sampler=order, generator=torch.Generator()
        )
        return ((x.to(self.device), y.to(self.device)) for x, y in loader)


@dataclass
class Training:
    """The training of one model in one way, epoch by epoch."""

    recipe: Recipe
    way: Way
    losses: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best: tuple[float, float] = (math.inf, math.inf)

    def __post_init__(self) -> None:
        torch.manual_seed(SEED)
        self.model = self.recipe.make(self.way.horizon).to(self.way.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), self.recipe.rate)
        self.schedule = self.recipe.schedule(self.optimizer, len(self.way.train))

    @property
    def ended(self) -> bool:
        """Tell whether it has had its epochs, or so many without a better one that it gives up."""
        count = len(self.validation)
        best = min(range(count), key=self.validation.__getitem__) if count else 0
        return count == self.recipe.epochs or count - 1 - best >= self.recipe.patience

    def advance(self) -> None:
        """Train for an epoch; test if it was the best so far."""
        number, start = len(self.losses), time.perf_counter()
        torch.manual_seed(SEED + number)
        self.model.train()
        losses = []
        for x, y in self.way.epoch(number):
            self.optimizer.zero_grad()
            loss = mse_loss(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            losses.append(loss.detach())
        self.losses.append(torch.stack(losses).mean().item())
        self.seconds.append(time.perf_counter() - start)
        self.validation.append(self.errors("val")[0])
        if self.validation[-1] == min(self.validation):
            self.best = self.errors("test")

    def state(self) -> dict[str, Any]:
        """Return everything that another process needs to go on after the last epoch."""
        kept = {name: getattr(self, name) for name in ("losses", "validation", "seconds", "best")}
        parts = {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "schedule")}
        return {**kept, **parts}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from the state of another process."""
        for name in ("model", "optimizer", "schedule"):
            getattr(self, name).load_state_dict(state[name])
        self.losses, self.validation, self.seconds = (state[name] for name in ("losses", "validation", "seconds"))
        self.best = tuple(state["best"])

    @torch.no_grad()
    def errors(self, part: str) -> tuple[float, float]:
        """Return MSE and MAE over all windows of a part."""
        self.model.eval()
        squares, distances, values = 0.0, 0.0, 0
        for x, y in self.way.evaluated(part):
            error = (self.model(x) - y).double()
            squares, distances = squares + error.square().sum().item(), distances + error.abs().sum().item()
            values += error.numel()
        return squares / values, distances / values

    def record(self) -> dict[str, Any]:
        """Return the JSON's record."""
        mse, mae = self.best
        curves = {"losses": self.losses, "validation": self.validation, "epoch_seconds": self.seconds}
        return {"way": self.way.name, "mse": mse, "mae": mae, "epochs": len(self.losses), **curves}


@dataclass(frozen=True)
class Cell:
    """A cell of a table: a model, a set and a horizon, beside the published errors."""

    recipe: Recipe
    chosen: ForecastSet
    horizon: int
    published: tuple[float, float] | None
    ways: tuple[str, ...] = tuple(ORDERS)

    @property
    def text(self) -> str:
        """Return the cell in words."""
        return f"{self.recipe.name}, {self.chosen.name}, horizon {self.horizon}"

    def train(self, device: torch.device, until: float, note: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Train all ways in turn, an epoch each, until the clock says so or all have ended."""
        parts = self.chosen.parts(self.horizon)
        ways = [Way(name, parts, self.horizon, self.recipe.batch, device) for name in self.ways]
        trainings = [Training(self.recipe, way) for way in ways]
        while (going := [each for each in trainings if not each.ended]) and time.monotonic() < until:
            for training in going:
                training.advance()
                count, mse = len(training.losses), training.best[0]
                progress(f"{self.text}: epoch {count}, {training.way.name}: MSE {mse:.4f}")
            note(self.record(trainings))
        return self.record(trainings)

    def record(self, trainings: list[Training]) -> dict[str, Any]:
        """Return the JSON's record."""
        recipe, known = self.recipe, versions()
        return {
            "model": recipe.name,
            "set": self.chosen.name,
            "horizon": self.horizon,
            "published_mse": None if self.published is None else self.published[0],
            "published_mae": None if self.published is None else self.published[1],
            "settings": {name: getattr(recipe, name) for name in ("batch", "rate", "epochs", "patience")},
            "versions": {name: known[name] for name in ("batchloom", "torch")},
            "commit": commit(),
            "ended": all(each.ended for each in trainings),
            "ways": [each.record() for each in trainings],
        }


def measure_dlinear(setting: Setting, kept: Kept) -> dict[str, Any]:
    """Train DLinear at every horizon; return its record for the JSON."""
    recipes = {horizon: replace(LINEAR, rate=LINEAR_RATES[horizon]) for horizon in HORIZONS}
    sets = [chosen for chosen in found() if chosen.name == LINEAR_SET]
    return measure(
        setting,
        [Cell(recipes[horizon], each, horizon, LINEAR_ERRORS[horizon]) for each in sets for horizon in HORIZONS],
        math.inf,
        kept,
    )


def measure_patchtst(setting: Setting, kept: Kept) -> dict[str, Any]:
    """Train PatchTST/42 on all sets: with --published at every horizon, else at the first; return its record."""
    recipes = {"ett-hour": PATCH_HOURS, "ett-minute": PATCH_MINUTES, None: PATCH_MINUTES}
    horizons, ways = (HORIZONS, tuple(ORDERS)) if setting.published else (HORIZONS[:1], (STACK_RUNS, RUNS))
    cells = [
        Cell(recipes[each.borders], each, horizon, PATCH_ERRORS.get(each.name, {}).get(horizon), ways)
        for each in found()
        for horizon in horizons
    ]
    seconds = math.inf if setting.published else setting.minutes * 60 / max(len(cells), 1)
    return measure(setting, cells, seconds, kept)


def measure(setting: Setting, cells: list[Cell], most_seconds: float, kept: Kept) -> dict[str, Any]:
    """Train every cell that is not known, and save after each epoch; return the record for the JSON."""
    done: list[dict[str, Any]] = []
    for cell in cells:
        recipe = replace(cell.recipe, epochs=setting.scaled(cell.recipe.epochs))
        known = kept.cell(replace(cell, recipe=recipe))
        until, note = time.monotonic() + most_seconds, partial(kept.note, list(done))
        done.append(known or replace(cell, recipe=recipe).train(setting.device, until, note))
    print_cells(done)
    return {"cells": done, "claims": stated([claim for record in done for claim in claims_of(record)])}


@dataclass(frozen=True)
class Kept:
    """The results of earlier runs in a file, to which new ones are added."""

    path: Path
    save: Callable[[dict[str, Any]], None]

    def cell(self, cell: Cell) -> dict[str, Any] | None:
        """Return the record of a cell that was trained to its end in the same way, if there is one."""
        known = json.loads(self.path.read_text()) if self.path.exists() else {"cells": []}
        names = ("model", "set", "horizon", "settings", "versions")
        wanted = cell.record([])
        same = [each for each in known["cells"] if all(each.get(name) == wanted[name] for name in names)]
        found = [each for each in same if each["ended"] and [way["way"] for way in each["ways"]] == list(cell.ways)]
        return found[0] if found else None

    def note(self, done: list[dict[str, Any]], record: dict[str, Any]) -> None:
        """Save the cells that are done, and the one that is not."""
        cells = [*done, record]
        self.save({"cells": cells, "claims": [claim.record() for each in cells for claim in claims_of(each)]})


def claims_of(record: dict[str, Any]) -> list[Claim]:
    """Return the numbers to reach in one cell."""
    ways = {way["way"]: way for way in record["ways"]}
    text = f"{record['model']}, {record['set']}, horizon {record['horizon']}"
    claims = []
    if record["model"] == LINEAR.name:
        away = abs(ways[RANDOM]["mse"] - record["published_mse"])
        claims.append(Claim(f"{text}: MSE away from the published", away, "<=", NEAR))
    for mine, theirs in COUNTERPART.items():
        if mine not in ways:
            continue
        most = max(abs(ways[mine][error] - ways[theirs][error]) for error in ("mse", "mae"))
        bound = ROUNDING if mine == RUNS else 0
        claims.append(Claim(f"{text}: errors of {mine} away from {theirs}", most, "<=", bound))
    return claims


def print_cells(done: list[dict[str, Any]]) -> None:
    """Print a line for each way of each cell."""
    rows = [
        (
            f"{each['model']}, {each['set']}, {each['horizon']}: {way['way']}",
            str(way["epochs"]),
            *(f"{way[error]:.6f}" for error in ("mse", "mae")),
            *("-" if each[name] is None else f"{each[name]:.3f}" for name in ("published_mse", "published_mae")),
        )
        for each in done
        for way in each["ways"]
    ]
    table("errors over every window of the test part", ("", "epochs", "MSE", "MAE", "published MSE", "MAE"), rows)
