"""Print the table of decoders of the guide to samples on demand from a result of this chapter.

    python -m bench.on_demand.decoder_table bench/results/on_demand-decoders-....json

Files a second of each library, and the processor's milliseconds for a file. In bold: the fastest way with a library.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.on_demand.decoder_peers import ALONE, PAIR, PROCESSES, THREADS, TORCH

WORDS = {
    "photographs": "JPEG, 500 x 375",
    "large photographs": "JPEG, 1600 x 1200",
    "WAV": "WAV, two seconds",
    "FLAC": "FLAC, two seconds",
}
HEADS = ("files", "library", "processor, ms", "one thread", "two threads", "threads", "processes", "torch, 2 workers")


def rows_of(case: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each library of a set of files."""
    found = {(each["library"], each["way"]): each for each in case["candidates"]}
    for name in dict.fromkeys(each["library"] for each in case["candidates"]):
        best = max((THREADS, PROCESSES, TORCH), key=lambda way: found[name, way]["files_a_second"])
        cells = {way: str(found[name, way]["files_a_second"]) for way in (ALONE, PAIR, THREADS, PROCESSES, TORCH)}
        cells[best] = f"**{cells[best]}**"
        yield WORDS[case["workload"]], name, f"{found[name, ALONE]['processor_milliseconds']:.2g}", *cells.values()


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("result", type=Path, help="the JSON file")
    cases = json.loads(parser.parse_args().result.read_text())["cases"]
    rows = [HEADS, ("---", "---", *["---:"] * (len(HEADS) - 2)), *(row for case in cases for row in rows_of(case))]
    for row in rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
