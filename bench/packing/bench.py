"""Measure batches that concatenate more than tokens.

    python -m bench packing [--only graphs] [--rounds 5] [--scale 0.02] [--output FILE]

A part a file, each with its promises: ``graphs`` is batches of graphs beside PyG.
"""

from __future__ import annotations

from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write
from bench.packing.graphs import measure_graphs

PARTS = {"graphs": measure_graphs}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    parts = {name: measure(chosen.rounds, chosen.scale) for name, measure in wanted(chosen, PARTS).items()}
    name = "-".join(["packing", *(chosen.only or ())])
    write(name, chosen, {"parts": parts}, is_whole(chosen, chosen.only or ()))


if __name__ == "__main__":
    main()
