"""Print measurements as tables on standard output, and return them for the JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.harness.claims import Claim, stated
from bench.harness.measure import COPY, LOOM, Timing, progress

# A candidate that others are compared with: a short name for heads and the JSON, and its name.
Bar = tuple[str, str]
COPYING: Bar = ("copy", COPY)


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column flush left, the others flush right."""
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    progress("")
    print(f"\n{title}", flush=True)
    for cells in (heads, ["-" * width for width in widths], *rows):
        first, *others = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print("  ".join([first, *(cell.strip().rjust(len(cell)) for cell in others)]))


def print_disturbed(title: str, timings: dict[str, Timing]) -> None:
    """Print the candidates that were disturbed, if any."""
    for timing in timings.values():
        if timing.disturbed:
            share = f"in {timing.disturbed} of {len(timing.others)} rounds"
            most = f"others kept up to {max(timing.others):.2f} cores busy"
            print(f"  DISTURBED  {title}: {timing.name}: {share} {most}")


def print_not_measured(reasons: Mapping[str, str]) -> None:
    """Print the reasons why some peers were not measured."""
    for name, reason in reasons.items():
        print(f"not measured: {name}: {reason}")


def print_timings(title: str, timings: dict[str, Timing], facts: Mapping[str, str], bar: Bar = COPYING) -> None:
    """Print one line for each candidate, the fastest first; ``facts``: further columns, head and name of the fact."""
    short, name = bar
    rows = [
        (
            timing.name,
            f"{timing.median:.4f}",
            f"{timing.minimum:.4f}",
            f"{timing.ratio(timings[name]):.2f}",
            f"{timing.ratio(timings[LOOM]):.2f}",
            *(str(timing.candidate.facts.get(fact, "-")) for fact in facts.values()),
        )
        for timing in fastest_first(timings)
    ]
    table(title, ("candidate", "median s", "min s", f"x {short}", "x batchloom", *facts), rows)
    print_disturbed(title, timings)


def fastest_first(timings: dict[str, Timing]) -> list[Timing]:
    """Return the timings in the order of their medians."""
    return sorted(timings.values(), key=lambda timing: timing.median)


def faster_than(name: str, timings: dict[str, Timing]) -> list[str]:
    """Return the candidates that take less time than the one so named."""
    return [timing.name for timing in timings.values() if timing.ratio(timings[name]) < 1]


def report(
    title: str,
    timings: dict[str, Timing],
    claims: Sequence[Claim],
    facts: Mapping[str, str],
    not_measured: Mapping[str, str] | None = None,
    bar: Bar = COPYING,
) -> dict[str, Any]:
    """Print timings beside a bar and batchloom; return them for the JSON.

    Args:
        title: The work that was timed.
        timings: The timings of all candidates.
        claims: The numbers to reach.
        facts: Further columns of the table: head and name of the fact.
        not_measured: The peers that were not measured, and why.
        bar: The candidate that others are compared with, besides batchloom.
    """
    print_timings(title, timings, facts, bar)
    print_not_measured(not_measured or {})
    short, name = bar
    against = {short: timings[name], "batchloom": timings[LOOM]}
    return {
        "candidates": [timing.record(against) for timing in timings.values()],
        "not_measured": not_measured or {},
        "claims": stated(claims),
        "faster_than_batchloom": faster_than(LOOM, timings),
    }
