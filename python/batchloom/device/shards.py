"""Shards of arrays on a device: the current one, from which batches are made, and the next one, on its way."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import finalize

import batchloom._native as _native
import torch
from batchloom.arrays.field import BorrowedArray
from batchloom.device.collate.gather import ResidentRows
from batchloom.device.resident import Resident
from batchloom.device.transfer import Copy, Transfer

Shard = tuple[int, int]
"""The first sample of a shard, and the one after its last."""


class RowRange(NamedTuple):
    """Rows ``first`` to ``end`` of one array that a shard needs; with ``order``, the rows that it lists there."""

    field: BorrowedArray
    first: int
    end: int
    order: Any = None


class Shards(Resident):
    """The current shard, from which batches are made, and the next one, on its way.

    Each block moves as large a share of the next shard as it uses of its own, so that computation never waits long.

    Args:
        buffers: The memory for shards.
        row_ranges: Returns the rows of each array that a shard needs, given its first sample and its end.
        world_size: Returns the number of ranks that share a shard.
    """

    is_whole = False

    def __init__(
        self,
        buffers: ShardBuffers,
        row_ranges: Callable[[int, int], list[RowRange]],
        world_size: Callable[[], int],
    ) -> None:
        super().__init__(buffers.transfer.device)
        self._buffers, self._row_ranges, self._world_size = buffers, row_ranges, world_size
        self._held: dict[Shard, MovingShard] = {}
        self._shard: Shard = (0, 0)
        finalize(self, _leave, self._held, os.getpid())

    def enter(self, block: _native.Block) -> None:
        """Move the rest of the shard of a block, and a share of the next shard."""
        assert block.shards is not None
        shard, following = block.shards
        for known in set(self._held) - {shard, following}:
            self._held.pop(known).leave()
        self._shard = shard
        self._moving(shard).go_on(1.0)
        if following is not None:
            samples = sum(batches * count for batches, count, *_ in block.runs)
            self._moving(following).go_on(1.1 * samples * self._world_size() / (shard[1] - shard[0]))

    def rows_of(self, field: BorrowedArray) -> ResidentRows:
        """Return the rows of an array that are on the device."""
        return self._held[self._shard].rows_of(field)

    def _moving(self, shard: Shard) -> MovingShard:
        if shard not in self._held:
            self._held[shard] = MovingShard(self._buffers, self._row_ranges(*shard))
        return self._held[shard]


def _leave(held: dict[Shard, MovingShard], process: int) -> None:
    """Give buffers back for the shards of the next epoch; a forked child has no buffers."""
    while held and process == os.getpid():
        held.popitem()[1].leave()


class ShardBuffers:
    """Memory on a device for the shards of a loader: for two, however far the CPU runs ahead.

    Attributes:
        transfer: The transfer for all copies, which follow each other, also to the same buffer.

    Args:
        most: For each array that shards need, the most rows of a shard.
    """

    def __init__(self, transfer: Transfer, most: list[tuple[BorrowedArray, int]]) -> None:
        self.transfer, self._most = transfer, most
        self._free: list[ShardBuffer] = []

    def take(self) -> ShardBuffer:
        """Return the buffer that was given back last, or a new one."""
        if self._free:
            return self._free.pop()
        return ShardBuffer([self.transfer.empty(field.tensors(slice(0, 0)), rows) for field, rows in self._most], [])

    def give(self, buffer: ShardBuffer) -> None:
        """Take a buffer back."""
        if len(self._free) < 2:
            self._free.append(buffer)


@dataclass(frozen=True)
class ShardBuffer:
    """Memory on a device for one shard.

    Attributes:
        arrays: For each array that a shard needs, memory for the most rows.
        readers: Events that mark the end of all reads of the previous shard.
    """

    arrays: list[torch.Tensor]
    readers: list[Any]


class MovingShard:
    """A shard on its way to the device, some rows of each array at a time."""

    def __init__(self, buffers: ShardBuffers, row_ranges: list[RowRange]) -> None:
        self._buffers, self._transfer, self._row_ranges = buffers, buffers.transfer, row_ranges
        self._buffer = buffers.take()
        self._arrays = [
            buffer[: row_range.end - row_range.first]
            for buffer, row_range in zip(self._buffer.arrays, row_ranges, strict=True)
        ]
        pairs = zip(row_ranges, self._arrays, strict=True)
        self._parts = {row_range.field: ResidentRows(array, row_range.first) for row_range, array in pairs}
        self._share = 0.0
        self._gone = [0] * len(row_ranges)
        self._sent: list[Copy] = []
        self._readers: list[Any] = []

    def go_on(self, share: float) -> None:
        """Start copying a further share of the rows, and rows that an interrupt left behind."""
        self._share = min(self._share + share, 1.0)
        for place, (array, row_range) in enumerate(zip(self._arrays, self._row_ranges, strict=True)):
            start, stop = self._gone[place], len(array) if self._share == 1.0 else int(len(array) * self._share)
            if start < stop:
                after = () if self._sent else self._buffer.readers
                self._sent.append(self._transfer.carry(_rows(row_range, start, stop), array[start:stop], after))
                self._gone[place] = stop

    def rows_of(self, field: BorrowedArray) -> ResidentRows:
        """Return the rows of an array, for later work on the current stream."""
        current = self._transfer.current_stream()
        if current not in self._readers:
            for copy in self._sent:
                copy.arrive()
            self._readers.append(current)
        return self._parts[field]

    def leave(self) -> None:
        """Give the buffer back, to be used again when the streams that read it have done their work."""
        self._buffers.give(ShardBuffer(self._buffer.arrays, self._transfer.record_events(self._readers)))


def _rows(row_range: RowRange, start: int, stop: int) -> torch.Tensor:
    """Return rows ``start`` to ``stop`` of those that a shard needs of an array."""
    places = slice(row_range.first + start, row_range.first + stop)
    rows: torch.Tensor = row_range.field.tensors(places if row_range.order is None else row_range.order[places].copy())
    return rows
