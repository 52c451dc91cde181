"""Measure batches that are made when they are asked for, beside peers.

    python -m bench on_demand [--only sparse] [--rounds 5] [--scale 0.1] [--output FILE]

Each part is a module of this folder, which says what it measures; it is imported only if it is wanted, as it needs
packages that no other part needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bench.harness.command import arguments, is_whole, wanted
from bench.harness.record import write

PARTS = ("images", "functions", "resize", "cast", "sparse", "hugging_face", "decoders", "decoder_costs")


def measure(part: str, scale: float, rounds: int) -> list[dict[str, Any]]:
    """Run the cases of a part."""
    cases: list[dict[str, Any]] = import_module(f"bench.on_demand.{part}").measure(scale, rounds)
    return cases


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, PARTS)
    parts = wanted(chosen, dict.fromkeys(PARTS))
    cases = [case for part in parts for case in measure(part, chosen.scale, chosen.rounds)]
    write("on_demand", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
