"""Write the table of `docs/coming-from-torch.md` from the results of this chapter.

    python -m bench.migrations.table

A cell is the time of the script over batchloom's. Below 1 the script is faster, and the cell is bold.
"""

from __future__ import annotations

import json
from typing import Any

from bench.harness.record import BENCH, results

PAGE = BENCH.parent / "docs" / "coming-from-torch.md"
START, END = "<!-- The table of python -m bench.migrations.table -->\n", "<!-- The end of the table -->\n"
HEADS = ("script", "loads", "lines", "warm", "one core", "first pass")


def cases() -> list[dict[str, Any]]:
    """Return the measured rows, in the order of their numbers."""
    (file,) = results(whole=True).glob("migrations-*.json")
    measured: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return measured


def ratio(measured: float) -> str:
    """Return a cell: two digits, bold where the script is faster."""
    shown = f"{measured:.0f}" if measured >= 9.95 else f"{measured:.1f}" if measured >= 1.095 else f"{measured:.2f}"
    return shown if measured >= 1 else f"**{shown}**"


def table(measured: list[dict[str, Any]]) -> str:
    """Return the table."""
    lines = [f"| {' | '.join(HEADS)} |", "|---|---|---|---:|---:|---:|"]
    for case in measured:
        source, warm, alone, cold = case["source"], case["warm"], case["one_core"], case["cold"]
        commit = f" {source['commit']}" if source["commit"] else ""
        script = f"{source['repository']}{commit}, `{source['file'].rpartition('/')[2]}`"
        figures = [ratio(each["ratio"]) for each in (warm, alone, cold)]
        lines.append(f"| {' | '.join([script, case['title'], case['changed'], *figures])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table to the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    PAGE.write_text(before + START + "\n" + table(cases()) + "\n" + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
