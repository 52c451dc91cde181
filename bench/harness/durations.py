"""Write the seconds that tests in Python take, by file, from a report of pytest.

    python -m pytest ... --junitxml=report.xml      # in python/
    python -m bench.harness.durations LABEL report.xml

They go to ``bench/results/tests-<machine>.json``, which keeps the figures of each label: the commit, and what else ran.
Files that take less than a second are counted together.
"""

from __future__ import annotations

import argparse
import json
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

from bench.harness.record import file_of, machine

LEAST = 1.0


def main() -> None:
    """Add the figures of one report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("label", help="what was measured: the commit, and what else ran")
    parser.add_argument("report", type=Path, help="what --junitxml wrote")
    parser.add_argument("--output", help="the JSON file to write")
    chosen = parser.parse_args()
    file = file_of("tests", chosen, whole=True)
    known = json.loads(file.read_text()) if file.exists() else {"name": "tests", "labels": {}}
    labels = known["labels"] | {chosen.label: summed(ElementTree.parse(chosen.report))}
    file.write_text(json.dumps({**known, "machine": machine(), "labels": labels}, indent=1) + "\n")


def summed(report: ElementTree.ElementTree[Any]) -> dict[str, Any]:
    """Return the number of tests, their seconds together, and the seconds of each file."""
    seconds: Counter[str] = Counter()
    cases = list(report.iter("testcase"))
    for case in cases:
        seconds[case.get("classname", "").removeprefix("tests.")] += float(case.get("time", 0))
    (suite,) = report.iter("testsuite")
    long = {name: round(each, 1) for name, each in seconds.most_common() if each >= LEAST}
    rest = sum(each for each in seconds.values() if each < LEAST)
    totals = {"wall": float(suite.get("time", 0)), "together": round(seconds.total(), 1), "tests": len(cases)}
    return {**totals, "files": long, "other_files": round(rest, 1)}


if __name__ == "__main__":
    main()
