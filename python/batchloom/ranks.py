"""The rank of this process and the world size: as given, from ``torch.distributed``, or from the environment."""

from __future__ import annotations

import os
import sys

from batchloom.arguments import U32, integer
from batchloom.errors import ArgumentError


def rank_and_world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return the rank and the world size.

    If they are not given, they come from ``torch.distributed`` if it is initialised, otherwise from RANK and WORLD_SIZE
    in the environment, and otherwise are 0 and 1.

    Raises:
        ArgumentError: Only one of the two is given, or the rank is not below the world size.
    """
    if (rank is None) != (world_size is None):
        raise ArgumentError(f"rank is {rank} and world_size is {world_size}; expected both or neither")
    if rank is None or world_size is None:
        rank, world_size = _from_torch() or _from_environment() or (0, 1)
    rank, world_size = integer("rank", rank, most=U32), integer("world_size", world_size, least=1, most=U32)
    if rank >= world_size:
        raise ArgumentError(f"rank is {rank} in a world of {world_size}; expected 0 <= rank < {world_size}")
    return rank, world_size


def _from_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _from_environment() -> tuple[int, int] | None:
    rank, world_size = os.environ.get("RANK") or None, os.environ.get("WORLD_SIZE") or None
    if rank is None and world_size is None:
        return None
    try:
        return int(rank or ""), int(world_size or "")
    except ValueError:
        raise ArgumentError(
            f"the environment has RANK={rank!r} and WORLD_SIZE={world_size!r}; expected two integers, or neither, "
            "or pass rank= and world_size="
        ) from None


def is_worker() -> bool:
    """Return whether this is a worker process of a torch ``DataLoader``: other workers then use the other cores."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None
