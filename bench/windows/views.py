"""Time a batch of views beside the loop that slices an unfolded series by hand.

Promises:

- The bar is ``a = u[i:i+B]; x, y = a[:, :S], a[:, S:]``, where ``u`` was unfolded before the clock: three slices a
  batch, and nothing else. It has no plan, no resume, no ranks and no second series.
- batchloom hands over the same x and y, in order and in runs. Before anything is timed, every value of its batches in
  order was compared with the bar's.
- A figure is the seconds of an epoch, its start included, over its batches; loop body ``pass``. Views copy nothing, so
  the size of a window matters to no candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import batchloom
import torch

from bench.harness.claims import Claim, stated
from bench.harness.measure import LOOM, Candidate, Timing, interleave
from bench.harness.report import faster_than, fastest_first, print_disturbed, table
from bench.windows.series import Batch, Epochs, Sizes, windows
from bench.windows.setting import Setting, seconds

# Windows of the size that papers on forecasting use; many batches, so that the start of an epoch is a small part.
SIZES, BATCHES, LEAST_BATCHES = Sizes(features=7, batch=64, length=96, label=0, horizon=96), 4000, 20
IN_RUNS, BAR = "batchloom, runs", "three slices of an unfolded series, by hand"
LONGEST = 1.2


def measure_views(setting: Setting) -> dict[str, Any]:
    """Time batches of views; return its record for the JSON."""
    batches = max(round(BATCHES * setting.scale), LEAST_BATCHES)
    values = torch.randn(SIZES.steps(batches * SIZES.batch), SIZES.features).to(setting.device)
    candidates = {LOOM: loom(values, False), IN_RUNS: loom(values, "runs"), BAR: sliced(values)}
    check(candidates[LOOM], candidates[BAR])
    runs = {name: partial(seconds, epochs, setting.device) for name, epochs in candidates.items()}
    timings = interleave(
        "views", [Candidate(name, run, {"batches": batches}) for name, run in runs.items()], setting.rounds
    )
    print_views(timings)
    text = "views: time of a batch, times that of three slices by hand"
    claims = [Claim.of_ratio(text, timings[LOOM], timings[BAR], "<=", LONGEST)]
    return {
        **vars(SIZES),
        "batches": batches,
        "candidates": [timing.record({"by_hand": timings[BAR]}) for timing in timings.values()],
        "claims": stated(claims),
        "faster_than_batchloom": faster_than(LOOM, timings),
    }


def loom(values: torch.Tensor, shuffle: bool | str) -> Epochs:
    """Use batchloom with its defaults."""
    data = batchloom.WindowDataset(values, SIZES.length, SIZES.horizon)
    loader = batchloom.DataLoader(data, batch_size=SIZES.batch, shuffle=shuffle)
    return lambda: loader


def sliced(values: torch.Tensor) -> Epochs:
    """Slice an unfolded series by hand."""
    unfolded = windows(values, SIZES.length + SIZES.horizon, 1)

    def epoch() -> Iterator[Batch]:
        for start in range(0, len(unfolded), SIZES.batch):
            both = unfolded[start : start + SIZES.batch]
            yield both[:, : SIZES.length], both[:, SIZES.length :]

    return epoch


def check(ours: Epochs, bar: Epochs) -> None:
    """Compare every value of an epoch with the bar's.

    Raises:
        AssertionError: One differs, or the batches are no views.
    """
    for mine, other in zip(ours(), bar(), strict=True):
        assert len(mine) == len(other), "other fields than by hand"
        assert all(map(torch.equal, mine, other)), "other values than by hand"
        assert all(one.data_ptr() == two.data_ptr() for one, two in zip(mine, other, strict=True)), "copies, not views"


def print_views(timings: dict[str, Timing]) -> None:
    """Print one line for each candidate, the fastest first."""
    rows = [
        (
            timing.name,
            f"{timing.median * 1e6:.3f}",
            f"{timing.minimum * 1e6:.3f}",
            f"{timing.ratio(timings[BAR]):.2f}",
        )
        for timing in fastest_first(timings)
    ]
    table(f"views: time of a batch of {SIZES.batch}", ("candidate", "median us", "min us", "x by hand"), rows)
    print_disturbed("views", timings)
