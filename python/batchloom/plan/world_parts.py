"""The parts of an epoch that was run on several numbers of ranks, one after the other."""

from __future__ import annotations

import operator
from typing import SupportsIndex

import batchloom._native as _native
from batchloom.errors import RangeError


def find_step(plan: _native.Plan, step: SupportsIndex) -> tuple[_native.Plan, int]:
    """Return the part of an epoch in which a step was taken, for the ranks of then, and its number in that part.

    Args:
        plan: The plan of the whole epoch.
        step: The number of the step in the epoch; negative ones count from its end.

    Raises:
        RangeError: There is no such step, or the rank of the plan took no part in it.
    """
    parts = plan.by_world()
    number, whole = operator.index(step), sum(steps for _, steps in parts)
    if not -whole <= number < whole:
        raise RangeError(f"step {number} is not in epoch {plan.epoch}; expected 0 <= step < {whole}")
    left, place = number % whole, 0
    while left >= parts[place][1]:
        left, place = left - parts[place][1], place + 1
    part = parts[place][0]
    if part.rank >= part.world_size:
        raise RangeError(
            f"step {number % whole} of epoch {plan.epoch} was taken by {part.world_size} ranks, and this is rank "
            f"{part.rank}; expected a rank below {part.world_size}"
        )
    return part, left
