"""The pipeline from blocks of the engine to batches on a device.

The engine's iterator calls :meth:`Pipeline.start` with a block as soon as it is formed, while batches of the previous
block are in use, and :meth:`Pipeline.finish` when the batches of the block are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import batchloom._native as _native
import torch
from batchloom.collate.schema import Schema, patches_of
from batchloom.device.resident import Resident
from batchloom.device.static_buffers import StaticBuffers
from batchloom.device.transfer import Copy, Transfer
from torch.utils.dlpack import from_dlpack

Begun = tuple[list[Copy], Any]


class Collator(Protocol):
    """Makes the fields of batches from blocks."""

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the arrays of a block to copy to the device, and an outline for :meth:`make`."""

    def make(self, arrived: list[torch.Tensor], outline: Any) -> list[Sequence[Any]]:
        """Return, for each field, the arrays of all batches in order."""


class Pipeline:
    """Makes the batches of one iteration on a device; called by the engine's iterator."""

    def __init__(
        self,
        transfer: Transfer,
        resident: Resident,
        collator: Collator,
        schema: Schema,
        copies: bool,
        static_buffers: StaticBuffers | None,
    ) -> None:
        self._transfer, self._resident, self._collator = transfer, resident, collator
        self._patches = patches_of(schema, "torch", copies)
        # A collator returns the size of the longest sample too, as the column in front of these.
        self._joins = [
            replace(join, place=join.place + int(schema.longest is not None and schema.longest <= join.place))
            for join in schema.joins("torch")
        ]
        self._static = static_buffers
        self._stream_key = transfer.stream_key()
        self._stream: Any = None
        self._key: Any = None

    @property
    def deliver(self) -> Callable[[Any], Any] | None:
        """The function that each batch passes as it is handed over; ``None`` if batches are handed over as they are."""
        return self._hand_over if self._transfer.has_streams or self._static is not None else None

    def start(self, block: _native.Block) -> Begun:
        """Start copying a block to the device."""
        with torch.inference_mode(False):
            self._resident.enter(block)
            inputs, outline = self._collator.inputs(block)
            return [self._transfer.copy(from_dlpack(array.__dlpack__())) for array in inputs], outline

    def finish(self, begun: Begun) -> list[Sequence[Any]]:
        """Return, for each field, the arrays of all batches of a block. They belong to the current stream."""
        copies, outline = begun
        with torch.inference_mode(False):
            if self._transfer.has_streams:
                self._stream, self._key = self._transfer.current_stream(), self._stream_key()
                self._resident.use(self._stream)
            columns = self._collator.make([copy.arrive() for copy in copies], outline)
            if self._patches is not None:
                columns[self._patches.place] = self._patches.each(columns[self._patches.place])
            for join in self._joins:
                parts = columns[join.place : join.place + join.fields]
                columns[join.place : join.place + join.fields] = [list(map(join.make, *parts))]
            return columns

    def only(self, block: _native.Block, keys: list[str] | None) -> Any:
        """Return the only batch of a block: a dict with these keys, or a tuple. It belongs to the current stream."""
        arrays = tuple(column[0] for column in self.finish(self.start(block)))
        if self._stream is not None and not self._resident.is_whole:
            self._stream.synchronize()  # the memory of its shard is let go of
        return arrays if keys is None else dict(zip(keys, arrays, strict=True))

    def _hand_over(self, batch: Any) -> Any:
        """Make the current stream wait for a batch of another stream; copy the batch to its static buffers, if any."""
        if self._stream is not None and self._stream_key() != self._key:
            current = self._transfer.current_stream()
            current.wait_stream(self._stream)
            for array in batch.values() if isinstance(batch, dict) else batch:
                for part in _list_tensors(array):
                    part.record_stream(current)
        return batch if self._static is None else self._static.put(batch)


def _list_tensors(array: Any) -> tuple[torch.Tensor, ...]:
    """Return the tensors with memory that an entry of a batch consists of."""
    if isinstance(array, dict):
        return tuple(tensor for part in array.values() for tensor in _list_tensors(part))
    if not isinstance(array, torch.Tensor):
        return ()
    if array.layout == torch.sparse_csr:
        return array.crow_indices(), array.col_indices(), array.values()
    return (array,)
