"""Write the section about moved scripts of `docs/coming-from-torch.md` from the results of this chapter.

    python -m bench.migrations.table

A cell is the time of the script over batchloom's. Below 1 the script is faster, and the cell is bold. Without results
there is no section.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.harness.record import BENCH, results

PAGE = BENCH.parent / "docs" / "coming-from-torch.md"
START, END = "<!-- The section of python -m bench.migrations.table -->\n", "<!-- The end of the section -->\n"
TEXT = """## Scripts that moved

Public training scripts, loaded as they stand and with batchloom by these guides: lines removed and added, and the
time of the script over batchloom's. *Warm* is a pass of 200 batches or an epoch, on two cores. *First pass* includes
making everything, in a fresh process. The batches of both were compared before. In bold, the script is faster.
"""
SOURCE = "Results: [migrations](../bench/results/{file}) ([method](../bench/README.md))\n"
HEADS = ("script", "loads", "lines", "warm", "one core", "first pass")


def find_results() -> Path | None:
    """Return the file of results; ``None`` without one."""
    return next(iter(sorted(results(whole=True).glob("migrations-*.json"))), None)


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
        script = f"{source['repository']}{commit}, {source['file'].rpartition('/')[2]}"
        figures = [ratio(each["ratio"]) for each in (warm, alone, cold)]
        lines.append(f"| {' | '.join([script, case['title'], case['changed'], *figures])} |")
    return "\n".join(lines) + "\n"


def section(file: Path | None) -> str:
    """Return the section; nothing without results."""
    if file is None:
        return ""
    cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
    return "\n".join(["", TEXT, table(cases), SOURCE.format(file=file.name)])


def main() -> None:
    """Write the section to the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    PAGE.write_text(before + START + section(find_results()) + "\n" + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
