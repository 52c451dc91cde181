"""Options for the blocks of a loader, which follow from the delivery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class BlockOptions:
    """Options for the blocks of a loader.

    Attributes:
        block_bytes: The bytes of a block; ``None`` for the engine's own choice.
        memory: The least bytes to ask for, and a function that allocates memory; ``None`` for the engine's own memory.
        index_table: If ``True``, blocks hold row numbers instead of samples.
        converts: If ``True``, blocks may hold fields as they are stored, which the delivery converts.
    """

    block_bytes: int | None = None
    memory: tuple[int, Callable[[int], Any]] | None = None
    index_table: bool = False
    converts: bool = False
