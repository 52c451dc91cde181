"""Measure what balance by true cost is worth, beside the planners of others.

    python -m bench balance [--only microbatches] [--rounds 5] [--scale 0.1] [--output FILE]

``microbatches``: rollouts in hand, divided among ranks and into micro-batches; its module says what is measured.
"""

from __future__ import annotations

from bench.balance.microbatches import measure_microbatches
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write

PARTS = {
    "microbatches": measure_microbatches,
}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    cases = [part(chosen.rounds, chosen.scale) for part in wanted(chosen, PARTS).values()]
    write("balance", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
