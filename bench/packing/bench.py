"""Measure batches that concatenate samples: rows of one shape, several budgets, masks of attention, and graphs.

    python -m bench packing [--only rows|budgets|masks|graphs] [--rounds 5] [--scale 0.02] [--output FILE]

A part a file, each with its promises: ``rows`` is rows of one shape, beside packs and a loader that cuts documents off;
``budgets`` is batches with several budgets, beside the bound of linear programming; ``masks`` is block masks for
FlexAttention, beside those that torch makes; ``graphs`` is batches of graphs, beside PyG. Each part has a file of
results.
"""

from __future__ import annotations

from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write
from bench.packing.budgets import measure_budgets
from bench.packing.graphs import measure_graphs
from bench.packing.masks import measure_masks
from bench.packing.rows import measure_rows

PARTS = {"rows": measure_rows, "budgets": measure_budgets, "masks": measure_masks, "graphs": measure_graphs}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    for name, part in wanted(chosen, PARTS).items():
        write(f"packing-{name}", chosen, part(chosen.rounds, chosen.scale), is_whole(chosen, [name]))


if __name__ == "__main__":
    main()
