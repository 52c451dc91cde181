"""Draw the cost of each rank at each step of a packed epoch, as packs come and balanced by true cost.

    python -m bench.balance.pictures

Promise: each cost is the cost of a batch of a plan. Both plans have the same samples and packs of one size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import batchloom as bl
import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from bench.balance.lengths import COST, cost_of, draw_lengths
from bench.harness.pictures import INK, QUIET, STYLE, picture
from bench.harness.record import results

NAME, SAMPLES, RANKS, STEPS = "1K-16K", 8000, 8, 32
BUSY, WAITING = "#2a8f88", "#e8c9b0"
TITLES = {False: "As packs come", True: "balance=cost"}

Array = numpy.ndarray[Any, Any]


def main() -> None:
    """Write the picture."""
    print(draw(results(whole=True) / "pictures"))


def draw(folder: Path) -> Path:
    """Write the picture; return where it is."""
    matplotlib.rcParams.update(STYLE)
    figure = picture(9.6, 4.4)
    axes = figure.subplots(1, 2, sharey=True)
    costs = {is_balanced: find_costs(is_balanced) for is_balanced in TITLES}
    unit = costs[False].mean()
    for axis, (is_balanced, found) in zip(axes, costs.items(), strict=True):
        draw_steps(axis, found / unit)
        waiting = 1 - found.sum() / (found.max(1).sum() * RANKS)
        axis.set_title(f"{TITLES[is_balanced]}: ranks wait {waiting:.1%} of the time", loc="left")
    axes[0].set_ylabel("cost of a rank's batch (mean = 1)")
    figure.supxlabel(f"step; {RANKS} ranks beside each other at each", fontsize="medium")
    bars = [Patch(color=BUSY), Patch(color=WAITING)]
    figure.legend(bars, ("a rank works", "a rank waits for the slowest"), loc="outside upper right", ncols=2)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rank-costs.svg"
    figure.savefig(path, metadata={"Date": None})
    return path


def find_costs(is_balanced: bool) -> Array:
    """Return the cost of the batch of each rank at each of the first steps: ``[steps, ranks]``."""
    lengths, tokens = draw_lengths(NAME, SAMPLES)
    costs = cost_of(lengths)
    plan = bl.Plan(
        sizes=lengths,
        batching=bl.Packing(tokens),
        shuffle=True,
        world_size=RANKS,
        rank=0,
        drop_last=True,
        balance=COST if is_balanced else False,
    )
    return numpy.array([[costs[batch].sum() for batch in plan.step(step).batches] for step in range(STEPS)])


def draw_steps(axis: Axes, costs: Array) -> None:
    """Draw each rank of each step: the time in which it works, and in which it waits."""
    places = numpy.arange(costs.size + 1) / RANKS
    for heights, colour in ((numpy.repeat(costs.max(1), RANKS), WAITING), (costs.ravel(), BUSY)):
        axis.fill_between(places, [*heights, heights[-1]], step="post", color=colour, linewidth=0)
    axis.set_xlim(0, len(costs))
    axis.set_ylim(0, None)
    axis.tick_params(colors=QUIET)
    axis.xaxis.label.set_color(INK)


if __name__ == "__main__":
    main()
