"""Draw padding against mates kept, a panel for each set of lengths and rule.

Promises:

- ``draw`` writes ``mates-kept.svg`` from the cases of the chapter: each line is one way to batch, from most random to
  least padded, and the default of batchloom is one large point.
- A way has one colour in all panels. The same cases give the same bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from bench.harness.pictures import GRID, STYLE, picture
from bench.randomness.peers import MEGA, NOISE, TF_BUCKETS

POOLS = "batchloom, pools"
COLOURS = {POOLS: "#2a8f88", NOISE: "#d9822b", MEGA: "#8c5a86", TF_BUCKETS: "#65727e"}
MARKERS = {POOLS: "o", NOISE: "s", MEGA: "^", TF_BUCKETS: "v"}
DEFAULT, DEFAULT_INK = "batchloom, default", "#0b3b4a"
MOST_KEPT = 0.75
Record = dict[str, Any]


def draw(cases: list[Record], folder: Path) -> Path:
    """Draw the frontiers of the smallest and the largest set; return the path of the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    frontiers = [case for case in cases if case["workload"] == "frontier"]
    kinds = list(dict.fromkeys(case["lengths"] for case in frontiers))
    rows = list(dict.fromkeys((case["samples"], case["rule"]) for case in frontiers))
    path = folder / "mates-kept.svg"
    with matplotlib.rc_context(STYLE):
        figure: Figure = picture(11.2, 2.7 * len(rows) + 0.6)
        grid = figure.subplots(len(rows), len(kinds), squeeze=False)
        for case in frontiers:
            axes = grid[rows.index((case["samples"], case["rule"]))][kinds.index(case["lengths"])]
            panel(axes, case)
        for row in grid:
            row[0].set_ylabel("padding")
        for axes in grid[-1]:
            axes.set_xlabel("batch mates kept in the next epoch")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
        figure.savefig(path, metadata={"Date": None})
    return path


def panel(axes: Axes, case: Record) -> None:
    """Draw one frontier: lower and further left is better."""
    for name, points in case["points"].items():
        ordered = sorted((each["mates_kept"], each["padding"]) for each in points if each["mates_kept"] <= MOST_KEPT)
        style = {"color": COLOURS[name], "marker": MARKERS[name], "markersize": 3.5, "linewidth": 1.2}
        axes.plot(*zip(*ordered, strict=True), label=name, **style)
    default = case["default"]
    style = {"color": DEFAULT_INK, "marker": "*", "markersize": 13, "linestyle": "none", "zorder": 5}
    axes.plot([default["mates_kept"]], [default["padding"]], label=DEFAULT, **style)
    axes.set_title(f"{case['rule']}, {case['samples']:,} {case['lengths']} lengths", fontsize=10.5)
    axes.set_xlim(0, MOST_KEPT)
    axes.set_ylim(0, None)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.grid(color=GRID)
