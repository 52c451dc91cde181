"""Options that decide the batches of an epoch, of a plan, a sampler or a loader, as the engine takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypedDict

from batchloom.arguments import TRUNCATE, U32, UNEVEN, PadTo, Truncate, Uneven, boolean, choice, integer
from batchloom.errors import ArgumentError


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
        ArgumentError: The seed is no integer, ``uneven`` is unknown, or another option is no boolean.
    """
    return {
        "drop_last": boolean("drop_last", drop_last),
        "seed": integer("seed", seed),
        "uneven": choice("uneven", uneven, UNEVEN),
        "balance": boolean("balance", balance),
        "largest_first": boolean("largest_first", largest_first),
    }


def padded_to(pad_to: PadTo, truncate: Truncate) -> tuple[list[int], str] | None:
    """Return the lengths that batches are padded to, and the treatment of longer samples; ``None`` for the longest.

    Raises:
        ArgumentError: A length is no integer from 1 to 2**32 - 1, or samples are truncated and no length is given.
    """
    choice("truncate", truncate, TRUNCATE)
    if isinstance(pad_to, str):
        choice("pad_to", pad_to, ("longest",))
        if truncate != "error":
            raise ArgumentError(
                f"truncate is {truncate!r}, and pad_to is 'longest'; expected a length, as in pad_to=512"
            )
        return None
    if isinstance(pad_to, Iterator):
        raise ArgumentError(f"pad_to is a {type(pad_to).__name__}; expected one length, or several in a list")
    lengths = list(pad_to) if isinstance(pad_to, Iterable) else [pad_to]
    if not lengths:
        raise ArgumentError("pad_to is empty; expected at least one length, as in pad_to=[64, 128, 256]")
    return [integer("pad_to", length, least=1, most=U32) for length in lengths], truncate
