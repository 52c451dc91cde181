"""Measure what balance by true cost is worth, beside the planners of others.

    python -m bench balance [--only plans|microbatches|epochs] [--rounds 5] [--scale 0.1] [--output FILE]

``plans``: packed epochs as batches come, and balanced by true cost (plans.py). ``microbatches``: rollouts in hand,
divided among ranks and into micro-batches (microbatches.py). ``epochs``: epochs of eight ranks of a small attention
model, which really run (epochs.py). Each part has a file of results.
"""

from __future__ import annotations

from bench.balance.epochs import measure_epochs
from bench.balance.microbatches import measure_microbatches
from bench.balance.plans import measure
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write

PARTS = {
    "plans": measure,
    "microbatches": measure_microbatches,
    "epochs": measure_epochs,
}


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    for name, part in wanted(chosen, PARTS).items():
        measured = part(chosen.rounds, chosen.scale)
        write(f"balance-{name}", chosen, {"cases": [measured]}, is_whole(chosen, [name]))


if __name__ == "__main__":
    main()
