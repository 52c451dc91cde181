"""Measure batches that concatenate samples: rows of one shape, and masks of attention.

    python -m bench packing [--only rows|masks] [--rounds 5] [--scale 0.02] [--output FILE]

A part a file, each with its promises: ``rows`` is rows of one shape, beside packs and a loader that cuts documents off;
``masks`` is block masks for FlexAttention, beside those that torch makes. Each part has a file of results.
"""

from __future__ import annotations

from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write
from bench.packing.masks import measure_masks
from bench.packing.rows import measure_rows

PARTS = {"rows": measure_rows, "masks": measure_masks}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    for name, part in wanted(chosen, PARTS).items():
        write(f"packing-{name}", chosen, part(chosen.rounds, chosen.scale), is_whole(chosen, [name]))


if __name__ == "__main__":
    main()
