"""Measure batches that concatenate more than tokens.

    python -m bench packing [--only masks] [--rounds 5] [--scale 0.02] [--output FILE]

A part a file, each with its promises: ``masks`` is block masks for FlexAttention beside torch's own.
"""

from __future__ import annotations

from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write
from bench.packing.masks import measure_masks

PARTS = {"masks": measure_masks}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    for name, part in wanted(chosen, PARTS).items():
        write(f"packing-{name}", chosen, part(chosen.rounds, chosen.scale), is_whole(chosen, [name]))


if __name__ == "__main__":
    main()
