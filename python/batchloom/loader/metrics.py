"""Metrics of an epoch: the work of a loader, and the time that a loop waited for it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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
        queued_bytes: Bytes of the queued blocks. With a ``MapDataset``, only blocks that have been read count.
        most_queued_bytes: The most bytes that were ready or in the making at once.
        copying: Copies to the device that are under way now: of blocks that are no longer queued, and of shards. Those
            that JAX makes are not counted.
        copying_bytes: Bytes of those copies.
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
    copying: int
    copying_bytes: int
    verdict: str

    def __str__(self) -> str:
        return self.verdict


class PassedOn(map):  # type: ignore[type-arg]
    """The batches of an iterator, each passed through a function: as fast as ``map``, and closed as what it reads."""

    def __init__(self, function: Any, batches: Any) -> None:
        self._batches = batches

    def close(self) -> None:
        """End the iteration."""
        self._batches.close()


class LoggedBatches(Generic[Batch]):
    """The batches of an epoch, which its loader logs as it ends or is left.

    It is an iterator as the one that it watches is: an exception ends no epoch, and threads that share it are told.
    """

    def __init__(self, loader: Any, batches: Any, log: Callable[[int], None]) -> None:
        self._loader, self._batches, self._log_epoch = loader, batches, log
        self._epoch: int | None = None

    def __iter__(self) -> Iterator[Batch]:
        """Return itself."""
        return self

    def __next__(self) -> Batch:
        """Return the next batch."""
        try:
            batch: Batch = next(self._batches)
        except StopIteration:
            self._log()
            raise
        if self._epoch is None:
            self._epoch = self._loader.epoch
        return batch

    def close(self) -> None:
        """End the iteration."""
        self._batches.close()
        self._log()

    def __reduce__(self) -> Any:
        return self._batches.__reduce__()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._log()

    def _log(self) -> None:
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            self._log_epoch(epoch)
