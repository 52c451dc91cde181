"""Find the series of table 3 on this machine, and cut them as publications do.

Promises:

- A set of table 3 is a CSV file of ETDataset, in the folder that ``BATCHLOOM_DATA`` names or in ``../shared/data``
  beside the repository. ``found`` prints a line for each that is absent, which says where to get it.
- Any other CSV file in the folder that ``BATCHLOOM_DATA`` names is a set too: a header, a first column of times, and
  numbers in the others. ``found`` prints a line for a file that is not like that.
- Borders of the sets of table 3 are those that every paper on them uses, and others are cut by 0.7, 0.1 and 0.2 as the
  Time-Series-Library counts. Scales are fitted to the training part. Before anything is trained, the scaled series was
  compared with the one that is scaled by hand.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

import batchloom
import torch
from torch import Tensor

from bench.harness.record import BENCH

Parts = dict[str, batchloom.WindowDataset]
INPUT = 336
HOME = "https://github.com/zhouhaoyi/ETDataset"
# Names of the sets, and the steps of their training parts: twelve months of thirty days.
BORDERS = {"ETTh1": "ett-hour", "ETTh2": "ett-hour", "ETTm1": "ett-minute", "ETTm2": "ett-minute"}
TRAINING = {"ett-hour": 12 * 30 * 24, "ett-minute": 12 * 30 * 24 * 4}


@dataclass(frozen=True)
class ForecastSet:
    """A series, ``[steps, columns]``, and the name of its borders, if papers agree on them."""

    name: str
    values: Tensor
    borders: str | None

    def parts(self, horizon: int) -> Parts:
        """Cut windows; return those of the training, validation and test part, scaled."""
        whole = batchloom.WindowDataset(self.values, INPUT, horizon)
        if self.borders is not None:
            found = whole.split(self.borders, scale="standard")
        else:
            found = whole.split(train=0.7, val=0.1, test=0.2, rounding="tslib", scale="standard")
        return dict(zip(("train", "val", "test"), found, strict=True))

    @property
    def training(self) -> int:
        """Return the steps of the training part."""
        return int(len(self.values) * 0.7) if self.borders is None else TRAINING[self.borders]


def found() -> list[ForecastSet]:
    """Read the sets that are here; print a line for each of table 3 that is not."""
    sets = []
    for name, borders in BORDERS.items():
        path = next((folder / f"{name}.csv" for folder in folders() if (folder / f"{name}.csv").exists()), None)
        if path is None:
            print(f"skipped: {name}: get {name}.csv from {HOME} and let BATCHLOOM_DATA name its folder")
            continue
        sets.append(ForecastSet(name, read(path), borders))
        check(sets[-1])
    return [*sets, *others()]


def others() -> list[ForecastSet]:
    """Read the sets that are not of table 3; print a line for each file that is none."""
    named = os.environ.get("BATCHLOOM_DATA")
    sets = []
    for path in sorted(Path(named).glob("*.csv")) if named else []:
        if path.stem in BORDERS:
            continue
        try:
            sets.append(ForecastSet(path.stem, read(path), None))
        except (ValueError, IndexError) as error:
            print(f"skipped: {path}: {error}")
            continue
        check(sets[-1])
    return sets


def folders() -> list[Path]:
    """Return the folders that may hold sets."""
    named = os.environ.get("BATCHLOOM_DATA")
    return [*([Path(named)] if named else []), BENCH.parents[1] / "shared" / "data"]


def read(path: Path) -> Tensor:
    """Read the columns after the first, which is the time.

    Raises:
        ValueError: The file holds no rows, rows of several lengths, or something else than numbers.
    """
    with path.open(newline="") as file:
        _, *rows = csv.reader(file)
    return torch.tensor([[float(value) for value in row[1:]] for row in rows], dtype=torch.float32)


def check(chosen: ForecastSet) -> None:
    """Compare the scaled series with the one that is scaled by hand.

    Raises:
        AssertionError: They differ by more than rounding.
    """
    known = chosen.values[: chosen.training].double()
    by_hand = (chosen.values.double() - known.mean(0)) / known.std(0, correction=0)
    scaled = torch.as_tensor(chosen.parts(1)["train"].fields["x"])
    torch.testing.assert_close(scaled[: len(by_hand)], by_hand.float(), rtol=1e-4, atol=1e-5)
