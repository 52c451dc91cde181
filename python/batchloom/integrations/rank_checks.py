"""Checks of ranks: a loader deals batches to ranks itself, so it has to have the rank of the process that trains."""

from __future__ import annotations

from typing import Any

from batchloom.errors import ArgumentError
from batchloom.loader.interleave import Interleaved


def refuse_other_rank(loader: Any, trainer: str, rank: int, world_size: int, hint: str = "") -> None:
    """Refuse a loader with another rank than the process of a trainer.

    Args:
        loader: The loader.
        trainer: The name of the trainer.
        rank: The rank of the process.
        world_size: The number of processes.
        hint: A call that has to be made before, as the end of the message.

    Raises:
        ArgumentError: The loader has another rank, or another number of ranks.
    """
    if (loader.rank, loader.world_size) != (rank, world_size):
        raise ArgumentError(
            f"the loader is rank {loader.rank} of {loader.world_size}, and the {trainer} process {rank} of "
            f"{world_size}; expected the same: leave out rank=, world_size= and distributed={hint}"
        )


def refuse_short(loader: Any) -> None:
    """Refuse a loader with fewer steps on some processes: the other processes would wait in collectives.

    Raises:
        ArgumentError: Some processes take one step less.
    """
    parts = loader.loaders.values() if isinstance(loader, Interleaved) else [loader]
    if loader.world_size > 1 and any(part.plan().options.uneven == "short" for part in parts):
        raise ArgumentError(
            f'uneven is "short", so some of the {loader.world_size} processes take one step less, and others wait for '
            'them; expected "mask" or "pad"'
        )
