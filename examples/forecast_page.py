"""A page that shows forecasts: some beside the truth, errors by step of the horizon, and a table by series.

The page is one HTML file with inline SVG and nothing to load: no scripts, fonts or images. It is light or dark, as the
reader's screen is, and as narrow as a phone. ``page`` writes it from forecasts of a few windows and from ``Errors``,
which count every window that they are given.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template

import torch
from torch import Tensor

# The size of a chart in its own units, and what its labels take of it.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 360, 210, 40, 8, 8, 24
# The classes of lines, by their place: the model, and the forecasts that it is compared with.
LINES = ("model", "first", "second")

PAGE = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<style>
  :root { --paper: #fff; --ink: #1d2330; --quiet: #5b6472; --panel: #f4f5f8; --grid: #dcdfe6;
    --model: #2457a8; --first: #a8541a; --second: #5f7d2a; }
  @media (prefers-color-scheme: dark) {
    :root { --paper: #14171d; --ink: #e4e7ee; --quiet: #9aa3b2; --panel: #1d2129; --grid: #333945;
      --model: #7fb0ff; --first: #f0a35e; --second: #a9c96b; }
  }
  * { box-sizing: border-box; }
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 800px; margin: 2rem auto; padding: 0 1rem;
    background: var(--paper); color: var(--ink); overflow-wrap: break-word; }
  h1 { font-size: 1.2rem; } h2 { font-size: 1rem; margin-top: 2rem; } p, figcaption, li { color: var(--quiet); }
  .charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: 1rem; }
  figure { margin: 0; min-width: 0; } figcaption { font-size: .9rem; }
  svg { display: block; width: 100%; height: auto; background: var(--panel); border-radius: 4px; fill: none; }
  text { font: 11px system-ui, sans-serif; fill: var(--quiet); }
  .grid { stroke: var(--grid); } .now { stroke: var(--quiet); stroke-dasharray: 2 3; }
  polyline { stroke-width: 1.6; stroke-linejoin: round; }
  .truth { stroke: var(--ink); } .model { stroke: var(--model); stroke-width: 2; }
  .first { stroke: var(--first); stroke-dasharray: 5 3; } .second { stroke: var(--second); stroke-dasharray: 1.5 2.5; }
  .key { display: flex; flex-wrap: wrap; gap: 0 1.2rem; list-style: none; padding: 0; margin: .5rem 0 1rem; }
  .key svg { display: inline-block; width: 1.8rem; background: none; vertical-align: middle; margin-right: .4rem; }
  .table { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
  caption { text-align: left; font-weight: 600; }
  th, td { padding: .15rem 0 .15rem .6rem; text-align: right; vertical-align: bottom;
    border-bottom: 1px solid var(--grid); }
  th { font-weight: 400; } thead th { color: var(--quiet); }
  th:first-child { text-align: left; padding-left: 0; } td.best { font-weight: 700; }
</style>
<h1>$title</h1>
<p>$summary</p>
<h2>Forecast and truth</h2>
<p>$windows</p>
$key_of_windows
<div class="charts">
$forecasts
</div>
<h2>Errors by step of the horizon</h2>
<p>$steps</p>
$key_of_errors
<div class="charts">
$errors
</div>
<h2>Errors by series</h2>
<p>The least of each row is bold.</p>
<div class="charts">
$tables
</div>
</html>
""")


@dataclass
class Errors:
    """Errors of forecasts, by step of the horizon and by series, over all windows that were added."""

    windows: int = 0
    squares: dict[str, Tensor] = field(default_factory=dict)
    distances: dict[str, Tensor] = field(default_factory=dict)

    def add(self, truth: Tensor, forecasts: Mapping[str, Tensor]) -> None:
        """Add a batch of windows, ``[batch, steps, series]``."""
        self.windows += len(truth)
        for name, forecast in forecasts.items():
            error = (forecast - truth).double()
            self.squares[name] = self.squares.get(name, torch.zeros(())) + error.square().sum(0)
            self.distances[name] = self.distances.get(name, torch.zeros(())) + error.abs().sum(0)

    def mse(self, name: str) -> Tensor:
        """Return the mean squared error of a forecast, ``[steps, series]``."""
        return self.squares[name] / self.windows

    def mae(self, name: str) -> Tensor:
        """Return the mean absolute error of a forecast, ``[steps, series]``."""
        return self.distances[name] / self.windows


@dataclass
class Shown:
    """One series in one window, to be drawn: its title, the steps seen, the truth, and each forecast of it."""

    title: str
    seen: Sequence[float]
    truth: Sequence[float]
    forecasts: Mapping[str, Sequence[float]]


def page(title: str, ids: Sequence[str], shown: Sequence[Shown], errors: Errors, unit: str) -> str:
    """Return the page.

    Args:
        title: Its title.
        ids: The name of each series.
        shown: The windows to draw.
        errors: Errors of the model, which comes first, and of those that it is compared with.
        unit: The unit of the errors.
    """
    names = list(errors.squares)
    model, steps = names[0], len(errors.mse(names[0]))
    kinds = {kind: {name: of(name) for name in names} for kind, of in (("MSE", errors.mse), ("MAE", errors.mae))}
    whole = f"MSE {errors.mse(model).mean():.3f} and MAE {errors.mae(model).mean():.3f}"
    return PAGE.substitute(
        title=html.escape(title),
        summary=html.escape(
            f"{model} forecasts {steps} steps of {len(ids)} series: {whole} over {errors.windows:,} windows, each "
            f"counted once. Errors are in {unit}."
        ),
        windows="Steps are counted from the moment of the forecast. Units are those of the series.",
        key_of_windows=key({"truth": "truth"} | dict(zip(LINES, names, strict=False))),
        forecasts="\n".join(forecast_chart(each) for each in shown),
        steps="The mean over all windows and series, for each step ahead.",
        key_of_errors=key(dict(zip(LINES, names, strict=False))),
        errors="\n".join(
            error_chart(kind, {name: found.mean(1).tolist() for name, found in of.items()})
            for kind, of in kinds.items()
        ),
        tables="\n".join(table(kind, ids, of) for kind, of in kinds.items()),
    )


def key(names: Mapping[str, str]) -> str:
    """Return a list of lines and their names."""
    entries = (
        f'<li><svg viewBox="0 0 28 8" aria-hidden="true"><polyline class="{line}" points="0,4 28,4"/></svg>'
        f"{html.escape(name)}</li>"
        for line, name in names.items()
    )
    return f'<ul class="key">{"".join(entries)}</ul>'


def forecast_chart(shown: Shown) -> str:
    """Draw what was seen, the truth after it, and the forecasts of it."""
    begin, end = -len(shown.seen), len(shown.truth)
    known = [*shown.seen, *shown.truth]
    values = [known, *shown.forecasts.values()]
    chart = Chart.around((begin, end - 1), [value for line in values for value in line])
    drawn = [chart.mark(0)]
    for line, forecast in reversed(list(zip(LINES, shown.forecasts.values(), strict=False))):
        drawn.append(chart.line(line, 0, forecast))
    drawn.insert(1, chart.line("truth", begin, known))
    return chart.figure(shown.title, "\n".join(drawn))


def error_chart(kind: str, errors: Mapping[str, Sequence[float]]) -> str:
    """Draw the errors of each forecast over the steps of the horizon, from zero on."""
    steps = max(map(len, errors.values()))
    chart = Chart.around((1, max(steps, 2)), [0.0, *(value for line in errors.values() for value in line)])
    pairs = reversed(list(zip(LINES, errors.values(), strict=False)))
    return chart.figure(f"{kind}, by steps ahead", "\n".join(chart.line(line, 1, values) for line, values in pairs))


@dataclass
class Chart:
    """A frame to draw lines in: the range of its steps, and that of its values."""

    steps: tuple[float, float]
    values: tuple[float, float]

    @classmethod
    def around(cls, steps: tuple[float, float], values: Sequence[float]) -> "Chart":
        """Make a frame that holds all values, from one round number to another."""
        finite = [value for value in values if math.isfinite(value)] or [0.0]
        low, high = min(finite), max(finite)
        gap = rounded((high - low) / 4 or abs(high) or 1.0)
        return cls(steps, (gap * math.floor(low / gap), gap * math.ceil(high / gap) if high > low else low + gap))

    def x(self, step: float) -> float:
        """Return the place of a step."""
        first, last = self.steps
        return LEFT + (WIDTH - LEFT - RIGHT) * (step - first) / (last - first)

    def y(self, value: float) -> float:
        """Return the place of a value."""
        low, high = self.values
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low)

    def line(self, name: str, first: int, values: Iterable[float]) -> str:
        """Draw values from a step on; those that are missing are left out."""
        pairs = ((first + step, value) for step, value in enumerate(values) if math.isfinite(value))
        points = " ".join(f"{self.x(step):.1f},{self.y(value):.1f}" for step, value in pairs)
        return f'<polyline class="{name}" points="{points}"/>'

    def mark(self, step: int) -> str:
        """Draw the moment of the forecast."""
        return f'<path class="now" d="M{self.x(step):.1f} {TOP}V{HEIGHT - BOTTOM}"/>'

    def figure(self, title: str, drawn: str) -> str:
        """Return the chart with its grid, its labels and its title."""
        name = html.escape(title)
        frame = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}">'
        return f"<figure>{frame}\n{self.grid()}\n{drawn}\n</svg><figcaption>{name}</figcaption></figure>"

    def grid(self) -> str:
        """Draw a line and a label for each round value, and a label for each round step."""
        parts = []
        for value in ticks(*self.values):
            at = self.y(value)
            parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
            parts.append(f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{label(value)}</text>')
        for step in ticks(*self.steps):
            # A label in the middle of its step would leave the frame at the last one.
            side = "end" if self.x(step) > WIDTH - 20 else "middle"
            place = f'x="{self.x(step):.1f}" y="{HEIGHT - 8}" text-anchor="{side}"'
            parts.append(f"<text {place}>{label(step)}</text>")
        return "\n".join(parts)


def rounded(gap: float) -> float:
    """Return the least of 1, 2 and 5 times a power of ten that is no less than a gap."""
    power: float = 10.0 ** math.floor(math.log10(gap))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= gap * (1 - 1e-9))


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers from ``low`` to ``high``, about six of them."""
    gap = rounded((high - low) / 6)
    return [gap * number for number in range(math.ceil(low / gap - 1e-9), math.floor(high / gap + 1e-9) + 1)]


def label(value: float) -> str:
    """Write a number briefly."""
    return f"{value:.6g}".replace("-", "\u2212")


def table(kind: str, ids: Sequence[str], errors: Mapping[str, Tensor]) -> str:
    """Return a table of one kind of error: a row for each series and one for all, a column for each forecast."""
    columns = [found.mean(0).tolist() for found in errors.values()]
    rows = [row(name, values) for name, *values in zip(ids, *columns, strict=True)]
    rows.append(row("all", [sum(column) / len(ids) for column in columns]))
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in errors)
    head = f"<caption>{kind}</caption><thead><tr><th>id</th>{heads}</tr></thead>"
    return "\n".join(['<div class="table"><table>', head, "<tbody>", *rows, "</tbody></table></div>"])


def row(name: str, values: Sequence[float]) -> str:
    """Return a row of a table, its least value bold."""
    best = {True: ' class="best"', False: ""}
    cells = "".join(f"<td{best[value == min(values)]}>{value:.3f}</td>" for value in values)
    return f"<tr><th>{html.escape(name)}</th>{cells}</tr>"
