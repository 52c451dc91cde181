"""Measurement of the cost of batches, for rules that make batches by cost."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import batchloom._native as _native
from batchloom.arguments import integer
from batchloom.batching.cost_model import CostModel, Fit
from batchloom.errors import ArgumentError

# A fit with a larger median error is unreliable, and a warning says so.
POOR = 0.2


def calibrate(
    step: Callable[[int, int], Any], shapes: Iterable[tuple[int, int]] | None = None, device: Any = None
) -> CostModel:
    """Time ``step`` on batches of several shapes and return the cost model that fits best, in seconds.

        def step(samples, length):
            model(torch.zeros(samples, length, dtype=torch.long))

        rule = bl.CostOptimal(bl.calibrate(step))

    The coefficients have the least squares of the relative errors, and are at least 0. Print ``model.fit`` to see the
    errors. Shapes take turns, and the least time of each counts: at least 5 runs after one that warms up, more of short
    ones.

    Args:
        step: Runs the model, forward or a whole training step, on a batch of ``samples`` samples of
            ``length`` elements.
        shapes: (samples, length) of the batches; at least 3, differing in both. ``None`` for a spread up to 16 384
            elements. Choose shapes near those of your batches: a model is accurate near its measurements. For packs,
            take as many elements as a pack has, in many short samples to one long one.
        device: The torch device that ``step`` works on, so that the clock waits for it; ``None`` for the CPU.

    Returns:
        The model, with its ``fit``.

    Raises:
        ArgumentError: Too few shapes, or values that are not shapes.

    Warns:
        UserWarning: The median of the relative errors is above 20 %: the model does not describe the cost of ``step``.
    """
    if not callable(step):
        raise ArgumentError(f"step is {step!r}; expected a function of (samples, length)")
    tried = _shapes(_native.calibration_shapes() if shapes is None else shapes)
    seconds = tuple(_native.measure(tried, _timed(step, _wait(device))))
    (fixed, per_token, per_pair), error, worst = _native.fit_cost(tried, seconds)
    plain = CostModel(fixed, per_token, per_pair)
    predicted = tuple(plain.cost(samples, length) for samples, length in tried)
    fit = Fit(tried, seconds, predicted, error, worst)
    if fit.error > POOR:
        warnings.warn(
            f"the cost model fits poorly: its median error is {fit.error:.0%}, the largest {fit.worst:.0%}; "
            "print(model.fit) shows where; measure shapes nearer to those of your batches, on a quiet machine",
            stacklevel=2,
        )
    return CostModel(fixed, per_token, per_pair, fit)


def _shapes(shapes: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    try:
        pairs = [(samples, length) for samples, length in shapes]
    except (TypeError, ValueError):
        raise ArgumentError(f"shapes is {shapes!r}; expected pairs (samples, length)") from None
    tried = tuple(
        (integer("samples", samples, least=1), integer("length", length, least=1)) for samples, length in pairs
    )
    _native.check_shapes(tried)
    return tried


def _wait(device: Any) -> Callable[[], None]:
    """Return a function that waits until the device has finished its work."""
    if device is None or str(device).partition(":")[0] == "cpu":
        return lambda: None
    torch = sys.modules.get("torch")
    if torch is None:
        raise ArgumentError(f"device is {device}, but torch is not imported; expected None or a torch device")
    try:
        known = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(f"device is {device!r}, which torch does not know: {error}") from None
    return lambda: torch.accelerator.synchronize(known)


def _timed(step: Callable[[int, int], Any], wait: Callable[[], None]) -> Callable[[int, int], float]:
    """Return a function that runs ``step`` once and returns the seconds."""

    def time_step(samples: int, length: int) -> float:
        start = time.perf_counter()
        step(samples, length)
        wait()
        return time.perf_counter() - start

    return time_step
