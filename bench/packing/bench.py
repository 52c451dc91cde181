"""Measure batches that concatenate samples: rows of one shape, and graphs.

    python -m bench packing [--only graphs] [--rounds 5] [--scale 0.02] [--output FILE]

A part a file, each with its promises: ``rows`` is rows of one shape, beside packs and a loader that cuts documents off;
``graphs`` is batches of graphs, beside PyG. Each part has a file of results.
"""

from __future__ import annotations

from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write
from bench.packing.graphs import measure_graphs
from bench.packing.rows import measure_rows

PARTS = {"rows": measure_rows, "graphs": measure_graphs}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    for name, part in wanted(chosen, PARTS).items():
        write(f"packing-{name}", chosen, part(chosen.rounds, chosen.scale), is_whole(chosen, [name]))


if __name__ == "__main__":
    main()
