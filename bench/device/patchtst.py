"""Train PatchTST/42 on ETTh1: the published table of errors, from stacked and from batchloom's batches.

Each horizon is trained twice, on windows at random that torch's loader stacks and on the same windows from batchloom.
All trainings run at the same time, each in a process of its own: nothing is timed, and one alone leaves the GPU idle.

Promises:

- Settings are the published ones (bench/windows/accuracy.py): 100 epochs, the test errors at the epoch with the least
  error on the validation part. Both ways start with the same weights and draw the same numbers.
- A training that the clock ends keeps its state in ``patchtst.tar`` of ``Place.kept``; the next visit goes on there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench.device.place import Found, Place
from bench.harness.claims import Claim
from bench.harness.record import BENCH
from bench.harness.report import table
from bench.windows.accuracy import HORIZONS, NEAR, PATCH_ERRORS, PATCH_HOURS, Training, Way
from bench.windows.forecast_sets import found
from bench.windows.peers import RANDOM, STACK_RANDOM

SET = "ETTh1"
WAYS = (RANDOM, STACK_RANDOM)
# A process ends its last epoch and writes its state in so many seconds.
SLACK, CPU_EPOCHS, CPU_HORIZONS, CPU_STEPS = 12.0, 1, HORIZONS[:1], 1500


def measure_patchtst(place: Place) -> Found:
    """Train all horizons in both ways until the clock ends; return the record for the JSON."""
    sets = [each for each in found() if each.name == SET]
    if not sets:
        print(f"{SET}.csv is not here: BATCHLOOM_DATA names its folder")
        return Found({"skipped": f"{SET}.csv is not here"}, ended=False)
    horizons = HORIZONS if place.is_gpu else CPU_HORIZONS
    cells = [(horizon, way) for horizon in horizons for way in WAYS]
    archive = (place.kept or Path.cwd()) / "patchtst.tar"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if archive.exists():
            with tarfile.open(archive) as known:
                known.extractall(folder, filter="data")
        failures = train_all(place, folder, cells)
        if failures:
            return Found({"output": failures}, failure=failures[0].strip().splitlines()[-1])
        records = [json.loads(path(folder, *cell).with_suffix(".json").read_text()) for cell in cells]
        with tarfile.open(archive, "w") as kept:
            kept.add(folder, arcname=".")
    print_records(records)
    return Found({"cells": records}, claims(records), ratios(records), all(each["ended"] for each in records))


def train_all(place: Place, folder: Path, cells: list[tuple[int, str]]) -> list[str]:
    """Train all cells at the same time; return the output of those that failed."""
    seconds = place.until - time.monotonic() - SLACK
    processes = [start(place, folder, horizon, way, seconds) for horizon, way in cells]
    outputs = [process.communicate()[0] for process in processes]
    return [output for process, output in zip(processes, outputs, strict=True) if process.returncode != 0]


def start(place: Place, folder: Path, horizon: int, way: str, seconds: float) -> subprocess.Popen[str]:
    """Start the training of one cell."""
    options = {"device": place.device, "horizon": horizon, "way": way, "seconds": seconds, "folder": folder}
    if not place.is_gpu:
        options |= {"epochs": CPU_EPOCHS, "steps": CPU_STEPS}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "bench.device.patchtst", *words]
    return subprocess.Popen(command, cwd=BENCH.parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def path(folder: Path, horizon: int, way: str) -> Path:
    """Return the file of a cell's state."""
    return folder / f"patchtst-{horizon}-{WAYS.index(way)}.pt"


def ratios(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return the errors beside those published."""
    figures = {}
    for each in records:
        if each["way"] == RANDOM:
            text = f"PatchTST/42, {SET}, horizon {each['horizon']}"
            figures[f"{text}: MSE after {each['epochs']} epochs, times the published"] = each["mse"] / each["published"]
    return figures


def claims(records: list[dict[str, Any]]) -> list[Claim]:
    """Return the numbers to reach: errors of both ways are equal, and near those published once all epochs are over."""
    made = []
    for each in records:
        if each["way"] != RANDOM:
            continue
        text = f"PatchTST/42, {SET}, horizon {each['horizon']}"
        (stacked,) = (other for other in records if other["way"] != RANDOM and other["horizon"] == each["horizon"])
        both = min(each["epochs"], stacked["epochs"])
        if both:
            first = abs(each["losses"][0] - stacked["losses"][0])
            made.append(Claim(f"{text}: loss of the first epoch away from stacking's", first, "<=", 1e-3))
        if each["ended"] and each["epochs"] == PATCH_HOURS.epochs:
            away = each["mse"] - each["published"]
            made.append(Claim(f"{text}: MSE less the published", away, "<=", NEAR))
    return made


def print_records(records: list[dict[str, Any]]) -> None:
    """Print a line for each cell."""
    rows = [
        (f"horizon {each['horizon']}: {each['way']}", str(each["epochs"]), f"{each['mse']:.4f}", f"{each['mae']:.4f}",
         f"{each['published']:.3f}")
        for each in records
    ]  # fmt: skip
    table(f"PatchTST/42 on {SET}", ("", "epochs", "MSE", "MAE", "published MSE"), rows)


def main() -> None:
    """Train one cell until the clock ends or its epochs are over, from the state of the last visit on."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, kind in {"device": str, "horizon": int, "way": str, "seconds": float, "folder": Path}.items():
        parser.add_argument(f"--{name}", type=kind, required=True)
    parser.add_argument("--epochs", type=int, default=PATCH_HOURS.epochs)
    parser.add_argument("--steps", type=int, help="the first steps of the series alone, without the published borders")
    chosen = parser.parse_args()
    until = time.monotonic() + chosen.seconds
    torch.set_num_threads(1)
    (series,) = (each for each in found() if each.name == SET)
    if chosen.steps:
        series = replace(series, values=series.values[: chosen.steps], borders=None)
    device = torch.device(chosen.device)
    way = Way(chosen.way, series.parts(chosen.horizon), chosen.horizon, PATCH_HOURS.batch, device)
    training = Training(PATCH_HOURS, way)
    file = path(chosen.folder, chosen.horizon, chosen.way)
    if file.exists():
        training.load(torch.load(file, map_location=device, weights_only=True))
    while len(training.losses) < chosen.epochs and time.monotonic() < until:
        training.advance()
    torch.save(training.state(), file)
    mse, mae = training.best
    ended = len(training.losses) >= chosen.epochs
    record = {"horizon": chosen.horizon, "mse": mse, "mae": mae, "ended": ended, **training.record()}
    record["published"] = PATCH_ERRORS[SET][chosen.horizon][0]
    file.with_suffix(".json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()
