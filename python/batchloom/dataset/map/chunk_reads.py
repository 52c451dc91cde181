"""The chunks that loaders have read: their counts, and a warning where many are read again.

Chunks are read again if a limit of memory holds fewer than batches need at a time: chunks that are larger than the one
that was measured, or the pools of a rule that sorts.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

LOGGER = logging.getLogger("batchloom")

# The share of the reads of an epoch from which on reading chunks again is worth a warning.
WORTH_A_WARNING = 0.1

# The chunks beside the window that memory holds at the least, and the share of memory that holds such chunks.
LEAST_BESIDE, SHARE_BESIDE = 4, 5


class ChunkCounts(NamedTuple):
    """The counts of the chunks that all loaders of a dataset have read so far."""

    read: int
    """The chunks that were read, each time that they were."""
    most_held: int
    """The most chunks that were held, or were being read, at once."""
    most_bytes: int
    """The most bytes of chunks that were held at once, as their arrays count them."""
    largest: int
    """The bytes of the largest chunk that was read."""
    left_early: int
    """The chunks that left while batches needed them, as ``memory`` was full: they are read again."""


class ReadWatch:
    """Watches the chunks that loaders of a dataset read, in epochs that have ended.

    Attributes:
        memory: The bytes of memory for chunks; ``None`` without a limit.
    """

    def __init__(self, memory: int | None, engine: Any) -> None:
        """Watch an ``engine`` whose chunks lie in ``memory`` bytes, or in any number of them for ``None``."""
        self.memory, self._engine = memory, engine
        self._seen = self.counts

    @property
    def counts(self) -> ChunkCounts:
        """The counts so far."""
        return ChunkCounts(*self._engine.chunk_counts())

    def warn_after(self, epoch: int) -> None:
        """Log a warning if a tenth of the chunks that were read since the last call, or more, are to be read again."""
        before, now = self._seen, self.counts
        self._seen = now
        read, left = now.read - before.read, now.left_early - before.left_early
        if self.memory is None or left < WORTH_A_WARNING * read or not left:
            return
        held = self.memory // max(now.largest, 1)
        mixed = self._engine.chunks_open()
        LOGGER.warning(
            "epoch %d read %d chunks, of which %d left before all batches had what they need, to be read again: "
            "memory=%d holds %d chunks of %d bytes, as the largest has, and %d are mixed at a time. Expected more "
            "memory, or chunks_open=%d or fewer in its place",
            *(epoch, read, left, self.memory, held, now.largest, mixed),
            max(min(held - max(held // SHARE_BESIDE, LEAST_BESIDE), mixed // 2), 1),
        )
