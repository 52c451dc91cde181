"""The types of the interface, as a user with a strict checker meets them. This file is checked, and it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
import numpy.typing


def test_a_strict_checker_accepts_this_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), __file__]
    environment = os.environ | {"MYPYPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def train(loader: bl.DataLoader, epochs: int, step: Callable[[Any], float]) -> float:
    loss = 0.0
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            loss += step(batch)
    return loss


def test_a_loop() -> None:
    X: numpy.typing.NDArray[numpy.float32] = numpy.ones((10, 2), numpy.float32)
    dataset = bl.TensorDataset(x=X)
    names: tuple[str, ...] | None = dataset.names
    rule: bl.FixedSize = bl.FixedSize(4)
    loader = bl.DataLoader(dataset, batching=rule, shuffle=True, drop_last=False, seed=3, uneven="short", prefetch=1)
    count: int = len(loader)
    total = train(loader, 2, lambda batch: float(batch["x"].sum()))
    state: dict[str, Any] = loader.state_dict()
    loader.load_state_dict(state)
    assert (names, count, total) == (("x",), 3, 40.0)


def test_a_plan() -> None:
    plan: bl.Plan = bl.Plan(10, 4, shuffle=True, rank=0, world=1)
    first: numpy.typing.NDArray[numpy.int64] = plan[0]
    some: list[numpy.typing.NDArray[numpy.int64]] = plan[0:2]
    step: bl.Step = plan.step(0)
    places: list[bl.Place] = plan.where(int(first[0]))
    stats: dict[str, Any] = plan.stats()
    fingerprint: str = plan.fingerprint
    tokens: int = step.tokens
    samplers: list[list[int]] = [batch.tolist() for batch in plan]
    assert (len(some), tokens, places[0].step, stats["steps"], len(fingerprint)) == (2, 4, 0, 3, 32)
    assert samplers[0] == first.tolist()


def test_errors() -> None:
    try:
        bl.FixedSize(0)
    except bl.ArgumentError as error:
        caught: ValueError = error
    assert "0" in str(caught)
