"""Draw the evaluation of windows from its JSON.

    python -m bench.windows.pictures bench/results/windows-....json [FOLDER]

Promises:

- ``draw`` writes an SVG for each part that was measured: ``windows-memory``, ``windows-time`` (over features, batch and
  length, both axes logarithmic), ``windows-epoch``, ``windows-random`` and ``windows-models``.
- A mode has one colour in all of them. What was not measured but computed is drawn hollow and says so.
- The same JSON gives the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from bench.harness.pictures import INK, QUIET, STYLE, picture
from bench.windows.peers import (
    GATHER,
    GATHER_REUSED,
    PER_BATCH,
    PRELOADED,
    RANDOM,
    RUNS,
    STACK,
    STACK_RANDOM,
    VIEWS,
    WORKERS,
    WORKERS_RANDOM,
)

Record = dict[str, Any]
COLOURS = {
    STACK: "#d9822b",
    WORKERS: "#eec391",
    STACK_RANDOM: "#a5681c",
    WORKERS_RANDOM: "#d3b591",
    PER_BATCH: "#8c5a86",
    PRELOADED: "#2a8f88",
    RUNS: "#0b3b4a",
    RANDOM: "#55a7a2",
    GATHER: "#b9c1c8",
    GATHER_REUSED: "#b9c1c8",
}
MARKERS = {STACK: "o", PER_BATCH: "s", PRELOADED: "^", RUNS: "v", RANDOM: "D"}
PANELS = {"features": "features", "batch": "windows in a batch", "length": "steps in a window"}
# The kernel counts memory in portions; less than this is none.
LEAST_MB = 0.1


def draw(parts: Record, folder: Path) -> list[Path]:
    """Draw all parts that were measured; return the paths of the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, Callable[[Record], Figure]] = {
        "memory": memory,
        "time": times,
        "epoch": epoch,
        "random": random_order,
        "models": models,
    }
    with matplotlib.rc_context(STYLE):
        return [save(drawn(parts[name]), folder, name) for name, drawn in pictures.items() if name in parts]


def save(figure: Figure, folder: Path, name: str) -> Path:
    """Write one picture."""
    path = folder / f"windows-{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    return path


def memory(part: Record) -> Figure:
    """Draw the most memory of an epoch."""

    def megabytes(point: Record, mode: str) -> float | None:
        peak = point["modes"][mode].get("peak_bytes")
        return None if peak is None else max(peak / 1e6, LEAST_MB)

    title = "Memory that an epoch takes at most, beside the series"
    figure, panels = sweeps(
        part["points"], title, f"MB (what is below {LEAST_MB} is drawn there)", (*VIEWS, RANDOM), megabytes
    )
    for sweep, axes in panels.items():
        computed(axes, sweep, at(part["points"], sweep))
    entries(figure, panels["features"])
    return figure


def computed(axes: Axes, sweep: str, points: Sequence[Record]) -> None:
    """Draw the size of the series, and of the stacked batches that were not measured."""
    here = [point[sweep] for point in points]
    axes.plot(here, [point["series_bytes"] / 1e6 for point in points], ":", color=QUIET, label="the series itself")
    absent = [point for point in points if "peak_bytes" not in point["modes"][STACK]]
    if not absent:
        return
    sizes = [point["gathered_bytes"] / 1e6 for point in absent]
    style = {"marker": MARKERS[STACK], "markerfacecolor": "white", "linestyle": "none", "color": COLOURS[STACK]}
    axes.plot([point[sweep] for point in absent], sizes, label="stacking, computed: too large to measure", **style)


def times(part: Record) -> Figure:
    """Draw the time of a batch."""

    def milliseconds(point: Record, mode: str) -> float | None:
        found = [each for each in point["candidates"] if each["name"] == mode]
        return found[0]["median_seconds"] * 1e3 if found else None

    figure, panels = sweeps(part["points"], "Time to make a batch", "milliseconds a batch", VIEWS, milliseconds)
    entries(figure, panels["features"])
    return figure


def sweeps(
    points: Sequence[Record],
    title: str,
    unit: str,
    modes: Sequence[str],
    value: Callable[[Record, str], float | None],
) -> tuple[Figure, dict[str, Axes]]:
    """Draw a line for each mode over each of the sweeps, next to each other."""
    figure = picture(12, 4.9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold")
    panels = dict(zip(PANELS, figure.subplots(1, len(PANELS), sharey=True), strict=True))
    for sweep, axes in panels.items():
        here = at(points, sweep)
        for mode in (STACK, *modes):
            known = [(point[sweep], value(point, mode)) for point in here if value(point, mode) is not None]
            axes.plot(*zip(*known, strict=True), **line(mode))
        others = [f"{PANELS[name]} {here[0][name]}" for name in PANELS if name != sweep]
        axes.set_title(", ".join(others), fontsize=10.5, color=QUIET)
        across(axes, [point[sweep] for point in here])
        axes.set_xlabel(PANELS[sweep])
        upwards(axes)
    panels["features"].set_ylabel(unit)
    return figure, panels


def line(mode: str) -> dict[str, Any]:
    """Return the style of the line of a mode. Preloaded and runs often coincide: the one has large hollow marks."""
    hollow = {"markersize": 9, "markerfacecolor": "white"} if mode == PRELOADED else {"markersize": 4.5}
    return {"marker": MARKERS[mode], "color": COLOURS[mode], "label": mode, **hollow}


def at(points: Sequence[Record], sweep: str) -> list[Record]:
    """Return the points of one sweep, in ascending order."""
    return sorted((point for point in points if sweep in point["sweeps"]), key=lambda point: point[sweep])


def across(axes: Axes, values: Sequence[int]) -> None:
    """Name the values of a sweep on a logarithmic axis."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(values, [f"{value // 1000}k" if value % 1000 == 0 and value else f"{value}" for value in values])


def upwards(axes: Axes) -> None:
    """Make the upward axis logarithmic, with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}".replace(",", "\u00a0")))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y")


def entries(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Draw the key to the lines below a picture."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def epoch(part: Record) -> Figure:
    """Draw the time of each batch of an epoch."""
    figure = picture(9, 5)
    axes = figure.subplots()
    for each in part["candidates"]:
        mode, values = each["name"], [seconds * 1e3 for seconds in each["batch_seconds"]]
        axes.plot(range(1, len(values) + 1), values, **line(mode))
    upwards(axes)
    axes.set_title("Time of each batch of an epoch", loc="left", fontsize=14, fontweight="bold", pad=26)
    axes.text(0, 1.03, sizes_of(part), transform=axes.transAxes, color=QUIET)
    axes.set(xlabel="batch", ylabel="milliseconds")
    entries(figure, axes, 3)
    return figure


def sizes_of(record: Record) -> str:
    """Return the sizes of a record in words."""
    return f"{record['features']} features, {record['batch']} windows in a batch, {record['length']} steps in a window"


def random_order(part: Record) -> Figure:
    """Draw the share of the copy's bandwidth that each mode reaches in random order."""
    figure = picture(9, 6.2)
    figure.suptitle(
        "Windows in random order: bandwidth, as a share of torch's copy",
        x=0.01,
        ha="left",
        fontsize=14,
        fontweight="bold",
    )
    panels = figure.subplots(len(part["cases"]), 1, sharex=True)
    for axes, case in zip(panels, part["cases"], strict=True):
        modes = [each for each in case["candidates"] if each["name"] in COLOURS]
        modes.sort(key=lambda each: -each["median_seconds"])
        shares = [1 / each["ratio_to_copy"] for each in modes]
        bars = axes.barh([each["name"] for each in modes], shares, color=[COLOURS[each["name"]] for each in modes])
        axes.bar_label(bars, [f"{share:.2f}" for share in shares], padding=4)
        axes.axvline(1, color=INK, linewidth=1)
        axes.margins(x=0.1)
        megabytes = case["candidates"][0]["bytes"] / 1e6
        axes.set_title(f"{sizes_of(case)}, x alone: {megabytes:.0f} MB", fontsize=10.5, color=QUIET, loc="left")
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
    panels[-1].set_xlabel("times the copy's bandwidth")
    return figure


def models(part: Record) -> Figure:
    """Draw the time of an epoch of each model as bars, stacking's in the same order being 100 %."""
    figure = picture(12, 5.4)
    axes = figure.subplots()
    names = [each["name"] for each in part["cases"][0]["candidates"] if each["name"] in COLOURS]
    width = 0.86 / len(names)
    for place, name in enumerate(names):
        shares = [100 * mode_of(case, name)["ratio_to_stacking"] for case in part["cases"]]
        where = [number + (place - (len(names) - 1) / 2) * width for number in range(len(shares))]
        bars = axes.bar(where, shares, width * 0.92, color=COLOURS[name], label=name)
        labels = [f"{share:.0f}" for share in shares]
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        axes.bar_label(bars, labels, padding=2, fontsize=8.5, color=QUIET, bbox=behind, zorder=3)
    for number, case in enumerate(part["cases"]):
        bound = 100 * next(each for each in case["candidates"] if each["name"] not in COLOURS)["ratio_to_stacking"]
        label = None if number else "no loading at all"
        axes.hlines(bound, number - 0.45, number + 0.45, colors=INK, linewidth=1.2, linestyles="--", label=label)
    axes.set_xticks(range(len(part["cases"])), [model_of(case) for case in part["cases"]])
    axes.tick_params(axis="x", length=0, labelcolor=INK)
    axes.set_ylabel("time of an epoch, % of stacking's in order")
    axes.set_title("Training for an epoch", loc="left", fontsize=14, fontweight="bold")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    entries(figure, axes)
    return figure


def mode_of(case: Record, name: str) -> Record:
    """Return the record of one mode."""
    return next(each for each in case["candidates"] if each["name"] == name)


def model_of(case: Record) -> str:
    """Return the name of a model, its size and the time of a step."""
    stack = mode_of(case, STACK)
    step = stack["median_seconds"] / stack["steps"] * 1e3
    return f"{case['model']}\n{spaced(case['parameters'])} parameters\nstacking: {spaced(step)} ms a step"


def spaced(number: float) -> str:
    """Write a number without a fraction, its thousands apart."""
    return f"{number:,.0f}".replace(",", "\u00a0")


def main() -> None:
    """Draw from a file again."""
    source = Path(sys.argv[1])
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else source.parent / "pictures"
    for path in draw(json.loads(source.read_text()), folder):
        print(f"drawn: {path}")


if __name__ == "__main__":
    main()
