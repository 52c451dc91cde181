"""Time what comes before the first window: a scale fitted to the training part, and marks made from the times.

Promises:

- The peer is what pipelines write by hand: scikit-learn's ``StandardScaler``, fitted to the first seven tenths and
  applied to all rows, and the parts of a pandas ``DatetimeIndex``, side by side.
- Both make the same numbers: marks equal, scaled values within rounding. That is checked before anything is timed.
- batchloom's time is that of making the dataset with marks and splitting it with a scale: splits and windows are there
  after it. Series and times are there before, for both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import batchloom
import numpy
import pandas
from sklearn.preprocessing import StandardScaler

from bench.harness.claims import Claim, stated
from bench.harness.measure import LOOM, Candidate, Timing, interleave
from bench.harness.report import faster_than, fastest_first, print_disturbed, table
from bench.windows.setting import Setting

Array = numpy.ndarray[Any, Any]

ROWS, LEAST_ROWS, TRAIN = 10_000_000, 100_000, 0.7
INPUT_LEN, HORIZON = 96, 24
HAND = "scikit-learn and pandas, by hand"
MARKS = ("hour", "weekday", "month")
MOST_SECONDS = 1.0


def measure_preparing(setting: Setting) -> dict[str, Any]:
    """Time a standard scale and three marks; return the record for the JSON."""
    rows = max(round(ROWS * setting.scale), LEAST_ROWS)
    values = numpy.random.default_rng(0).normal(20, 5, (rows, 1)).astype(numpy.float32)
    times = numpy.datetime64("2005-01-01T00:00") + numpy.arange(rows)
    runs = {LOOM: partial(ours, values, times), HAND: partial(by_hand, values, times)}
    for mine, other in zip(ours(values, times), by_hand(values, times), strict=True):
        numpy.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)
    candidates = [Candidate(name, letting_go(run), {"rows": rows}, slow=True) for name, run in runs.items()]
    timings = interleave("preparing", candidates, setting.rounds)
    print_preparing(rows, timings)
    text = f"preparing: seconds for a standard scale and {len(MARKS)} marks of {rows:,} rows"
    claims = [Claim(text, timings[LOOM].median, "<=", MOST_SECONDS)]
    return {
        "rows": rows,
        "marks": MARKS,
        "candidates": [timing.record({"by_hand": timings[HAND]}) for timing in timings.values()],
        "claims": stated(claims),
        "faster_than_batchloom": faster_than(LOOM, timings),
    }


def letting_go(run: Callable[[], Any]) -> Callable[[], None]:
    """Do the work and let go of what it made."""

    def done() -> None:
        run()

    return done


def ours(values: Array, times: Array) -> tuple[Array, Array]:
    """Return the scaled series and its marks, of batchloom."""
    dataset = batchloom.WindowDataset(values, INPUT_LEN, HORIZON, time=times, marks=list(MARKS))
    train, _ = dataset.split(train=TRAIN, test=None, scale="standard")
    return train.fields["x"], train.fields["x_mark"]


def by_hand(values: Array, times: Array) -> tuple[Array, Array]:
    """Return the scaled series and its marks, as pipelines make them."""
    scaler = StandardScaler().fit(values[: int(len(values) * TRAIN)])
    index = pandas.DatetimeIndex(times)
    marks = numpy.stack([index.hour, index.day_of_week, index.month], axis=1)
    return scaler.transform(values), marks


def print_preparing(rows: int, timings: dict[str, Timing]) -> None:
    """Print one line for each candidate, the fastest first."""
    lines = [
        (timing.name, f"{timing.median:.3f}", f"{timing.minimum:.3f}", f"{timing.ratio(timings[HAND]):.2f}")
        for timing in fastest_first(timings)
    ]
    table(f"a standard scale and three marks of {rows:,} rows", ("candidate", "median s", "min s", "x by hand"), lines)
    print_disturbed("preparing", timings)
