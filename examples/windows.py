"""Trains DLinear on the windows of a real series without stacking them, and tests it on every window.

The series is ETTh1 if ../shared/data, or the folder that BATCHLOOM_DATA names, holds it: two years of a transformer's
load and oil temperature, hour by hour. Otherwise it is four years of Seattle's weather, day by day, from the package
vega_datasets. The same model is trained on windows that torch's loader stacks, on batchloom's in random order, and on
runs of neighbouring windows, which are views of the series. The output is the time and the error of each, the memory
that stacked windows would take, and how far the error moves if an evaluation drops its last batch. In the end it writes
a page, forecast.html in the folder for temporary files unless told otherwise: forecasts beside the truth, errors by
step of the horizon and by series, and those of two forecasts without a model.

    python examples/windows.py --page forecast.html
"""

import argparse
import csv
import os
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import batchloom as bl
import torch
from forecast_page import Errors, Shown, page
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

DATA = Path(os.environ.get("BATCHLOOM_DATA", Path(__file__).parents[2] / "shared" / "data"))
ETTH1 = DATA / "ETTh1.csv"
INPUT, HORIZON, BATCH, EPOCHS, SMOOTH = 336, 96, 32, 8, 25
LEARNING_RATE = 5e-3

Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass
class Series:
    """Columns over time, the step at which each part ends, and the steps of a season."""

    name: str
    values: Tensor
    ends: dict[str, int]
    columns: list[str]
    season: int
    reference: str

    def parts(self) -> dict[str, bl.WindowDataset]:
        """Return the windows of each part, scaled by the training part: mean 0 and deviation 1."""
        whole, ends = bl.WindowDataset(self.values, INPUT, HORIZON, short="error"), self.ends
        found = whole.split(train=ends["train"], val=ends["val"], test=ends["test"], scale="standard")
        return dict(zip(ends, found, strict=True))


def etth1() -> Series:
    """Return the series that papers compare on, split as they do: twelve, four and four months of thirty days."""
    with ETTH1.open() as file:
        (_, *columns), *rows = csv.reader(file)
    values = torch.tensor([[float(value) for value in row] for _, *row in rows])
    ends = {part: months * 30 * 24 for part, months in (("train", 12), ("val", 16), ("test", 20))}
    reference = "DLinear's paper reports 0.375 and 0.399"
    return Series("ETTh1", values, ends, columns, 24, reference)


def weather() -> Series:
    """Return a series that a package ships, split by shares."""
    try:
        from vega_datasets import data
    except ImportError:
        raise SystemExit(f"no series here: neither {ETTH1} nor the package vega_datasets") from None
    frame = data.seattle_weather().select_dtypes("number")
    values = torch.tensor(frame.to_numpy(), dtype=torch.float32)
    ends = {part: len(values) * tenths // 10 for part, tenths in (("train", 6), ("val", 8), ("test", 10))}
    return Series("Seattle's weather", values, ends, list(frame), 7, "no paper reports on it")


class Stacking(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Cuts each window when it is asked for, so that a loader can stack them: the usual way."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values) - INPUT - HORIZON + 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        now = index + INPUT
        return self.values[index:now], self.values[now : now + HORIZON]


class DLinear(nn.Module):
    """Forecasts the trend and the remainder of each column by two linear layers over time, shared by all columns."""

    def __init__(self) -> None:
        super().__init__()
        self.trend, self.remainder = nn.Linear(INPUT, HORIZON), nn.Linear(INPUT, HORIZON)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next steps ``[batch, HORIZON, columns]``."""
        series = x.mT
        around = functional.pad(series, (SMOOTH // 2, SMOOTH // 2), mode="replicate")
        trend = functional.avg_pool1d(around, SMOOTH, stride=1)
        forecast: Tensor = self.trend(trend) + self.remainder(series - trend)
        return forecast.mT


@torch.no_grad()
def errors(model: nn.Module, loader: Batches) -> tuple[float, float, int]:
    """Return MSE and MAE over all windows that the loader yields, and their number."""
    squares, distances, values, windows = 0.0, 0.0, 0, 0
    for x, y in loader:
        error = (model(x) - y).double()
        squares, distances = squares + error.square().sum().item(), distances + error.abs().sum().item()
        values, windows = values + error.numel(), windows + len(x)
    return squares / values, distances / values, windows


def train(name: str, loader: Batches, val: Batches) -> tuple[nn.Module, float]:
    """Return the model after the last epoch, and the seconds that an epoch took."""
    torch.manual_seed(0)
    model, seconds = DLinear(), []
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    halving = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    bar = tqdm(range(EPOCHS), desc=name, unit="epoch", leave=False, disable=None)
    for _ in bar:
        begun = time.perf_counter()
        for x, y in loader:
            optimizer.zero_grad()
            functional.mse_loss(model(x), y).backward()
            optimizer.step()
        seconds.append(time.perf_counter() - begun)
        halving.step()
        bar.set_postfix(val=f"{errors(model, val)[0]:.3f}")
    return model, statistics.median(seconds)


def loading_time(loader: Batches) -> float:
    """Return the seconds that an epoch takes without a model: the median of nine."""
    times = []
    for _ in range(9):
        begun = time.perf_counter()
        for _ in loader:
            pass
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def describe(series: Series, parts: dict[str, bl.WindowDataset]) -> None:
    """Print the size of the series, and the memory that its windows would take as arrays."""
    counts = ", ".join(f"{len(dataset)} to {part}" for part, dataset in parts.items())
    print(f"{series.name}: {len(series.values)} steps of {len(series.columns)} columns")
    print(f"windows of {INPUT} steps to see and {HORIZON} to forecast: {counts}")
    stats = parts["train"].stats(batch_size=BATCH)
    arrays, values = stats.stacked_bytes / 1e6, stats.series_bytes / 1e6
    print(f"the training windows take {arrays:.1f} MB as arrays, the series {values:.2f} MB")
    gathered, viewed = stats.gathered_bytes / 1e3, stats.viewed_bytes / 1e3
    print(f"{BATCH} windows take {gathered:.0f} KB in random order; neighbours are a view of {viewed:.0f} KB of it")


def compare(series: Series, parts: dict[str, bl.WindowDataset]) -> nn.Module:
    """Train with each loader and print errors and times; return the model of batchloom's random order."""
    val, test = (bl.DataLoader(parts[part], batch_size=256) for part in ("val", "test"))
    stacking = Stacking(parts["train"].fields["x"][: series.ends["train"]])
    loaders: dict[str, Batches] = {
        "torch DataLoader, random": torch.utils.data.DataLoader(stacking, BATCH, shuffle=True),
        "batchloom, random": bl.DataLoader(parts["train"], batch_size=BATCH, shuffle=True),
        "batchloom, runs": bl.DataLoader(parts["train"], batch_size=BATCH, shuffle="runs"),
    }
    print(f"\n{'':26} {'MSE':>6} {'MAE':>6} {'training, an epoch':>20} {'its loading alone':>19}")
    models, windows = {}, 0
    for name, loader in loaders.items():
        models[name], seconds = train(name, loader, val)
        mse, mae, windows = errors(models[name], test)
        print(f"{name:26} {mse:6.3f} {mae:6.3f} {seconds:18.2f} s {loading_time(loader) * 1e3:16.1f} ms")
    if windows != len(parts["test"]):
        raise SystemExit(f"the test part has {len(parts['test'])} windows, but {windows} were counted")
    print(f"errors over all {windows} windows of the test part, each counted once; {series.reference}")
    return models["batchloom, random"]


def show_dropped(model: nn.Module, test: bl.WindowDataset) -> None:
    """Print how far the errors move if the last batch counts only when it is full."""
    print("\nthe errors of the same model if an evaluation drops its last batch:")
    whole, distance, windows = errors(model, bl.DataLoader(test, batch_size=BATCH))
    for batch_size in (32, 128, 512):
        if batch_size > windows:
            continue
        mse, mae, counted = errors(model, bl.DataLoader(test, batch_size=batch_size, drop_last=True))
        hidden = f"hides {windows - counted} of {windows} windows"
        print(f"  batches of {batch_size:3}: MSE {mse - whole:+.4f}, MAE {mae - distance:+.4f}, {hidden}")


def forecasts(model: nn.Module, x: Tensor, season: int) -> dict[str, Tensor]:
    """Return the forecasts of the model, of the last value, and of the values one season before."""
    before = x[:, -season:].repeat(1, HORIZON // season + 1, 1)[:, :HORIZON]
    last = x[:, -1:].expand(-1, HORIZON, -1)
    return {"DLinear": model(x), "last value": last, f"{season} steps before": before}


@torch.no_grad()
def write_page(path: Path, model: nn.Module, test: bl.WindowDataset, series: Series) -> None:
    """Write a page of forecasts of the test part."""
    found = Errors()
    for x, y in bl.DataLoader(test, batch_size=256):
        found.add(y, forecasts(model, x, series.season))
    # The last column, which papers forecast, and the first.
    places = [(window, column) for column in (-1, 0) for window in (len(test) // 4, 3 * len(test) // 4)]
    shown = [draw(model, test, series, window, column) for window, column in places]
    unit = "deviations of the training part"
    path.write_text(page(f"Forecasts of {series.name}", series.columns, shown, found, unit), encoding="utf-8")
    print(f"\na page of forecasts, of their errors by step and by series: {path}")


def draw(model: nn.Module, test: bl.WindowDataset, series: Series, window: int, column: int) -> Shown:
    """Return one column of one window in its own units: twice as many steps seen as forecast."""
    x, y = test[window]
    lines = {"seen": x[None, -2 * HORIZON :], "truth": y[None], **forecasts(model, x[None], series.season)}
    seen, truth, *others = [torch.as_tensor(test.unscale(line))[0, :, column].tolist() for line in lines.values()]
    title = f"{series.columns[column]}, test window {window:,}"
    return Shown(title, seen, truth, dict(zip(list(lines)[2:], others, strict=True)))


def main() -> None:
    """Train three ways; test on every window; write a page of forecasts."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(tempfile.gettempdir()) / "forecast.html"
    parser.add_argument("--page", type=Path, default=default, help="where to write the page of forecasts")
    path = parser.parse_args().page
    # A model this small gains little from a second core, and loses much if something else runs there.
    torch.set_num_threads(1)
    series = etth1() if ETTH1.exists() else weather()
    parts = series.parts()
    describe(series, parts)
    model = compare(series, parts)
    show_dropped(model, parts["test"])
    write_page(path, model, parts["test"], series)


if __name__ == "__main__":
    main()
