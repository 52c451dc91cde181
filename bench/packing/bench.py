"""Measure batches that concatenate samples: rows of one shape.

    python -m bench packing [--only rows] [--rounds 5] [--scale 0.02] [--output FILE]

A part a file, each with its promises: ``rows`` is rows of one shape, beside packs and a loader that cuts documents off.
Each part has a file of results.
"""

from __future__ import annotations

from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write
from bench.packing.rows import measure_rows

PARTS = {"rows": measure_rows}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    for name, part in wanted(chosen, PARTS).items():
        write(f"packing-{name}", chosen, part(chosen.rounds, chosen.scale), is_whole(chosen, [name]))


if __name__ == "__main__":
    main()
