"""A page that shows a plan: its costs, its steps, its order. HTML with inline SVG, nothing loaded from elsewhere."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from string import Template

import batchloom._native as _native

WIDTH, HEIGHT = 720, 240
MOST_STEPS = 120
MOST_DOTS = 3000

MEANINGS = {
    "samples": "samples in the dataset",
    "tokens": "elements in the dataset",
    "batches": "batches over all ranks, repeated ones included",
    "steps": "steps of the rank that has most",
    "world_size": "ranks",
    "real": "elements delivered that are data",
    "padded": "elements delivered, padding included",
    "padding": "share of padding",
    "efficiency": "how full batches are, where the rule limits them",
    "shapes": "distinct shapes of batches",
    "dropped": "samples left out by drop_last or for their size",
    "dropped_tokens": "their elements",
    "truncated": "samples cut short",
    "truncated_tokens": "elements that this cost",
    "split": "samples delivered in several parts",
    "repeated": "samples delivered again to fill the last step",
    "repeated_tokens": "their elements",
    "earlier": "samples delivered in earlier parts of the epoch",
    "earlier_tokens": "their elements",
    "largest": "elements of the largest batch",
    "imbalance": "share of all ranks' time spent waiting for the largest batch of a step",
}


def write(plan: _native.Plan, title: str, path: str | os.PathLike[str]) -> None:
    """Write the page for ``plan`` to ``path``."""
    template = Template(files("batchloom").joinpath("report.html").read_text(encoding="utf-8"))
    page = template.substitute(
        title=html.escape(title),
        fingerprint=plan.fingerprint,
        stats=_table(plan),
        steps=_steps(plan),
        order=_order(plan),
        width=WIDTH,
        height=HEIGHT,
    )
    Path(path).write_text(page, encoding="utf-8")


def _table(plan: _native.Plan) -> str:
    stats = plan.stats()
    rows = (f"<tr><th>{name}<td>{_number(stats[name])}<td>{meaning}" for name, meaning in MEANINGS.items())
    return "\n".join(rows)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2%}" if isinstance(value, float) else f"{value:,}"


def _spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` of the numbers below ``count``, evenly spread, the last one included."""
    if count <= most:
        return list(range(count))
    return sorted({place * (count - 1) // (most - 1) for place in range(most)})


def _steps(plan: _native.Plan) -> str:
    """Draw a column for each step and a cell for each rank, as dark as its batch is large."""
    columns = _spread(plan.stats()["steps"], MOST_STEPS)
    largest = max(plan.stats()["largest"], 1)
    width, height = WIDTH / max(len(columns), 1), HEIGHT / plan.world_size
    cells = []
    for place, step in enumerate(columns):
        for rank, size in enumerate(plan.elements(step)):
            shade = 0.15 + 0.85 * size / largest
            cells.append(
                f'<rect x="{place * width:.2f}" y="{rank * height:.2f}" width="{width * 0.9:.2f}" '
                f'height="{height * 0.9:.2f}" fill-opacity="{shade:.2f}">'
                f"<title>step {step}, rank {rank}: {size} elements</title></rect>"
            )
    return "\n".join(cells)


def _order(plan: _native.Plan) -> str:
    """Draw a dot for each of some samples: when it comes, and where it is stored."""
    steps = max(plan.stats()["steps"], 1)
    return "\n".join(
        f'<circle cx="{(step + 0.5) / steps * WIDTH:.1f}" cy="{sample / plan.samples * HEIGHT:.1f}" r="1.2"/>'
        for sample, step in _places(plan)
    )


def _places(plan: _native.Plan) -> Iterable[tuple[int, int]]:
    for sample in _spread(plan.samples, MOST_DOTS):
        for step, _, _ in plan.places(sample):
            yield sample, step
