"""Metrics of an epoch: the work of a loader, and the time that a loop waited for it."""

from __future__ import annotations

import logging
import os
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
        reading_seconds: Seconds that threads spent on samples of a ``MapDataset``, summed over all of them; 0 for
            ``workers="processes"``.
        interpreter_seconds: Seconds of it that they waited for the interpreter, which runs one thread at a time: the
            time until each call, and for a thread that had to wait there, an estimate of its waits inside the call.
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
    reading_seconds: float
    interpreter_seconds: float
    verdict: str

    def __str__(self) -> str:
        return self.verdict


# A share of the time of threads that is worth a word, and the least time that shows one.
WORTH_SAYING, LEAST_SECONDS = 0.1, 0.01


def make_metrics(measured: tuple[int, int, int, list[float], int, int, int, str], copies: tuple[int, int]) -> Metrics:
    """Return the metrics of an epoch.

    Args:
        measured: The metrics of the engine.
        copies: The number of copies to the device that are under way, and their bytes.
    """
    batches, blocks, size, times, *queue, verdict = measured
    seconds, waited, idle, reading, blocked = times
    queued, queued_bytes, most = queue
    verdict += _describe_turns(seconds, reading, blocked)
    return Metrics(
        batches, blocks, size, seconds, waited, idle, queued, queued_bytes, most, *copies, reading, blocked, verdict
    )


def _describe_turns(seconds: float, reading: float, blocked: float) -> str:
    """Return what to change where threads wait for the interpreter; nothing where they do not, or no core is free."""
    computing = reading - blocked
    if reading < LEAST_SECONDS or blocked < WORTH_SAYING * reading or computing <= 0:
        return ""
    times = min(reading, count_cores() * seconds) / computing
    if times < 1 + WORTH_SAYING:
        return ""
    return (
        f"; threads waited {100 * blocked / reading:.0f} % of their time for the interpreter: "
        f'workers="processes" would read up to {times:.1f} times as fast'
    )


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
