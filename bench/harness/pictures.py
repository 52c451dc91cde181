"""Give all charts one look: colours of ink, type, and margins."""

from __future__ import annotations

from matplotlib.figure import Figure

INK, QUIET, GRID = "#1f2a33", "#65727e", "#dfe4e8"
STYLE = {
    "font.size": 10.5,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "batchloom",
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
}


def picture(width: float, height: float) -> Figure:
    """Return an empty picture, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    return figure
