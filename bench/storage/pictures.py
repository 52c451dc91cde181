"""Draw the window that slides over chunks: how many samples of each chunk are in each batch of an epoch.

Promise: the cells are counts of the batches of a plan, not a sketch.
"""

from __future__ import annotations

from pathlib import Path

import batchloom as bl
import matplotlib
import numpy

from bench.harness.pictures import GRID, INK, STYLE, picture

CHUNKS, ROWS, OPEN, BATCH, RANKS = 40, 128, 8, 64, 2


def draw(folder: Path) -> Path:
    """Write the picture of two ranks, beside the order as stored."""
    matplotlib.rcParams.update(STYLE)
    figure = picture(9.6, 4.6)
    axes = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2))
    stored = bl.Plan(CHUNKS * ROWS, BATCH, chunks=[ROWS] * CHUNKS)
    shuffled = bl.Plan(CHUNKS * ROWS, BATCH, chunks=[ROWS] * CHUNKS, chunks_open=OPEN, shuffle=True)
    for place, (axis, plan, title) in enumerate(
        [
            (axes[0], stored, "as stored"),
            (axes[1], shuffled, f"shuffled, {OPEN} chunks open; darker: more samples of the chunk in the batch"),
        ]
    ):
        counts = count(plan)
        # Chunks from top to bottom, as they are opened.
        first, last = (counts > 0).argmax(axis=0), (counts[::-1] > 0).argmax(axis=0)
        order = numpy.lexsort((-last, first))
        shown = counts.T[order]
        axis.imshow(
            numpy.ma.masked_equal(shown, 0), aspect="auto", cmap="GnBu", vmin=-2, vmax=shown.max(), interpolation="none"
        )
        axis.set_title(title, loc="left", color=INK, fontsize=11)
        axis.set_xlabel("batch of the epoch")
        axis.grid(False)
        for side in ("left", "bottom"):
            axis.spines[side].set_color(GRID)
        if place:
            border = len(counts) / RANKS - 0.5
            axis.axvline(border, color="#a5681c", linewidth=1.2)
            axis.text(border - 1, CHUNKS - 1, "rank 0", ha="right", color="#a5681c")
            axis.text(border + 1, 1.5, "rank 1", ha="left", color="#a5681c")
    axes[0].set_ylabel("chunk, in the order in which it is opened")
    path = folder / "chunk-window.svg"
    figure.savefig(path, metadata={"Date": None})
    return path


def count(plan: bl.Plan) -> numpy.ndarray:
    """Return the number of samples of each chunk in each batch."""
    counts = numpy.zeros((len(plan), CHUNKS), int)
    for step, samples in enumerate(plan):
        numpy.add.at(counts[step], numpy.asarray(samples) // ROWS, 1)
    return counts
