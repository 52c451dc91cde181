"""Metrics of an epoch: the work of a loader, and the time that a loop waited for it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

LOGGER = logging.getLogger("batchloom")
Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Metrics:
    """The work of a loader in its latest epoch so far, and the time that was spent waiting: ``loader.metrics()``.

    As text it is a verdict of one line: ``the loop waited 2.1 % of the epoch for batches; at most 12.0 MB were ready
    ahead``. Batches that are views of the data are cut from no block, and nothing waits for them.

    Attributes:
        batches: Batches that were handed over.
        blocks: Blocks that these were cut from.
        bytes: Bytes of those blocks.
        seconds: Seconds since the first batch was asked for, until the end of the epoch.
        waited_seconds: Seconds of it that the loop spent in the engine, waiting for a block or forming a part of it.
        idle_seconds: Seconds that worker threads spent without work, summed over all of them: the queue was full.
        queued: Blocks that are ready or in the making now.
        queued_bytes: Bytes of those blocks.
        most_queued_bytes: The most bytes that were ready or in the making at once.
        verdict: The line.
    """

    batches: int
    blocks: int
    bytes: int
    seconds: float
    waited_seconds: float
    idle_seconds: float
    queued: int
    queued_bytes: int
    most_queued_bytes: int
    verdict: str

    def __str__(self) -> str:
        return self.verdict


def logged(loader: Any, batches: Iterator[Batch]) -> Iterator[Batch]:
    """Yield batches; log the metrics of the epoch as it ends or is left."""
    epoch = None
    try:
        for batch in batches:
            epoch = loader.epoch if epoch is None else epoch
            yield batch
    finally:
        if epoch is not None:
            LOGGER.info("epoch %d: %s", epoch, loader.metrics())
