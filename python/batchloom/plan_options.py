"""Options that decide the batches of an epoch, of a plan, a sampler or a loader, as the engine takes them."""

from __future__ import annotations

from typing import TypedDict

from batchloom.arguments import UNEVEN, Uneven, choice, integer


class PlanOptions(TypedDict):
    """Options of a plan whose meaning is the same for all data."""

    drop_last: bool
    seed: int
    uneven: str
    balance: bool
    largest_first: bool


def plan_options(drop_last: bool, seed: int, uneven: Uneven, balance: bool, largest_first: bool) -> PlanOptions:
    """Return the options of a plan.

    Raises:
        ArgumentError: The seed is no integer, or ``uneven`` is unknown.
    """
    return {
        "drop_last": bool(drop_last),
        "seed": integer("seed", seed),
        "uneven": choice("uneven", uneven, UNEVEN),
        "balance": bool(balance),
        "largest_first": bool(largest_first),
    }
