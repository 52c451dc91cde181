"""Read the command line of a chapter: the options that every chapter takes, and its own."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

# With fewer rounds no figure is to be quoted.
LEAST_ROUNDS = 5
# An option of chapters that draw.
PICTURES = {"help": "the folder to draw to; by default pictures/ in results or results/local"}
Part = TypeVar("Part")


def arguments(
    document: str, parts: Iterable[str] = (), rounds: int = LEAST_ROUNDS, **more: Mapping[str, Any]
) -> argparse.Namespace:
    """Read the command line: the options of every chapter, ``--only`` where it has parts, and its own.

    Args:
        document: The docstring of the chapter.
        parts: The parts that ``--only`` chooses from.
        rounds: The number of rounds unless the command line gives another.
        **more: Options of this chapter alone, as ``argparse`` wants them.
    """
    parser = argparse.ArgumentParser(description=document.partition("\n")[0])
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the published size, for a quick run")
    least = f"at least {LEAST_ROUNDS} to quote a figure"
    parser.add_argument("--rounds", type=int, default=rounds, help=f"how many rounds; {least}")
    if parts := list(parts):
        parser.add_argument("--only", choices=parts, action="append", help="one part, or some: give it again")
    for name, option in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **option)
    parser.add_argument("--output", help="the JSON file to write")
    return parser.parse_args()


def wanted(chosen: argparse.Namespace, parts: Mapping[str, Part]) -> dict[str, Part]:
    """Return the parts that ``--only`` chose, or all."""
    return {name: part for name, part in parts.items() if name in (chosen.only or parts)}


def is_whole(chosen: argparse.Namespace, parts: Iterable[str] = ()) -> bool:
    """Tell whether the run has its full size: no option that every chapter takes made it smaller.

    Args:
        chosen: The command line.
        parts: The parts that a whole run has, where ``--only`` may choose from more.
    """
    only = vars(chosen).get("only")
    has_all = not only or (bool(parts) and set(parts) <= set(only))
    return chosen.scale == 1 and chosen.rounds >= LEAST_ROUNDS and has_all
