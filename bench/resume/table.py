"""Write the tables of `docs/trainers/README.md` from the results of this chapter.

    python -m bench.resume.table

A cell is samples lost/repeated, in all epochs; "=" is the order of the run that nobody killed, "≠" another one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from bench.harness.record import BENCH, results
from bench.resume.run import EVENTS

PAGE = BENCH.parent / "docs" / "trainers" / "README.md"
START, END = "<!-- The tables of python -m bench.resume.table -->\n", "<!-- The end of the tables -->\n"
TRAINERS = {
    "loop": "loop",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
    "hf": "HF Trainer",
    "ray": "Ray",
    "jax": "JAX",
}
LOADERS = {
    "batchloom": "**batchloom**",
    "torch": "torch `DataLoader`",
    "stateful": "`StatefulDataLoader`",
    "litdata": "litData",
    "grain": "grain",
}
RULES = {
    "rows": "Rows",
    "budget": "Batches by a token budget",
    "packing": "Packed sequences",
    "beside": "Two loaders side by side",
    "turns": "Two loaders that take turns",
}
COLUMNS = ("whole", *(name for name, _, _ in EVENTS))
HEADS = ("not killed", "mid-epoch", "half", "twice", "last batch", "half", "twice")
FAILED = " (the run ended with an error)"
FOUND = re.compile(r"(\d+) lost, (\d+) repeated(?:, (same|another) order)?")


def cases() -> list[dict[str, Any]]:
    """Return what was found, of every trainer, loader and rule."""
    files = sorted(results(whole=True).glob("resume-*.json"))
    return [case for file in files for case in json.loads(file.read_text())["cases"]]


def cell(said: str) -> str:
    """Return a cell of a table."""
    if said.removesuffix(FAILED) == "fails":
        return "error"
    found = FOUND.fullmatch(said.removesuffix(FAILED))
    if found is None:
        raise ValueError(f"found {said!r}, expected samples lost and repeated")
    order = {None: "", "same": " =", "another": " ≠"}[found[3]]
    return f"{found[1]}/{found[2]}{order}" + (", error" if said.endswith(FAILED) else "")


def tables(measured: list[dict[str, Any]]) -> str:
    """Return a table for each rule, with a row for each loader and the trainers in which it does the same."""
    rules = [rule for rule in RULES if any(case["rule"] == rule for case in measured)]
    return "\n".join(line for rule in rules for line in _table(rule, measured)) + "\n"


def _table(rule: str, measured: list[dict[str, Any]]) -> Iterator[str]:
    yield from (f"### {RULES[rule]}", "", f"| trainers | loader | {' | '.join(HEADS)} |", "|---" * 9 + "|")
    found = {(case["trainer"], case["loader"]): case["found"] for case in measured if case["rule"] == rule}
    rows: dict[tuple[str, ...], list[str]] = {}
    for trainer in TRAINERS:
        for loader, label in LOADERS.items():
            if (trainer, loader) in found:
                cells = [cell(found[trainer, loader][column]) for column in COLUMNS]
                rows.setdefault((label, *cells), []).append(trainer)
    for (label, *cells), same in rows.items():
        names = "all" if len(same) == len(TRAINERS) else "; ".join(TRAINERS[trainer] for trainer in same)
        yield f"| {names} | {label} | {' | '.join(cells)} |"
    yield ""


def main() -> None:
    """Write the tables to the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    PAGE.write_text(before + START + "\n" + tables(cases()) + end + after, encoding="utf-8")


if __name__ == "__main__":
    main()
