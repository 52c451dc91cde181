"""Takes blocks from the engine and hands over batches that are on a device.

The engine's iterator calls :meth:`Pipeline.start` with a block as soon as it is formed, while batches of the one before
are in use, and :meth:`Pipeline.finish` when its batches are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import batchloom._native as _native
import torch
from batchloom.batch import Schema, patches_of
from batchloom.device.resident import Resident
from batchloom.device.static_buffers import StaticBuffers
from batchloom.device.transfer import Copy, Transfer
from torch.utils.dlpack import from_dlpack

Begun = tuple[list[Copy], Any]


class Collator(Protocol):
    """Makes batches of what arrives of a block."""

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return what has to travel of a block, and what has to be known of it then."""

    def make(self, arrived: list[torch.Tensor], outline: Any) -> list[Sequence[Any]]:
        """Return of each field the batches, in order."""


class Pipeline:
    """What the engine's iterator calls: one for each iteration."""

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
        self._static = static_buffers
        self._teller = transfer.teller()
        self._stream: Any = None
        self._told: Any = None

    @property
    def deliver(self) -> Callable[[Any], Any] | None:
        """What is done with each batch as it is handed over, if anything is."""
        return self._delivered if self._transfer.has_streams or self._static is not None else None

    def start(self, block: _native.Block) -> Begun:
        """Let what has to travel of a block go on its way."""
        with torch.inference_mode(False):
            self._resident.enter(block)
            inputs, outline = self._collator.inputs(block)
            return [self._transfer.copy(from_dlpack(array.__dlpack__())) for array in inputs], outline

    def finish(self, begun: Begun) -> list[Sequence[Any]]:
        """Return of each field the arrays of a block. They belong to the stream that is the present one now."""
        copies, outline = begun
        with torch.inference_mode(False):
            if self._transfer.has_streams:
                self._stream, self._told = self._transfer.current(), self._teller()
                self._resident.use(self._stream)
            columns = self._collator.make([copy.arrive() for copy in copies], outline)
            if self._patches is not None:
                columns[self._patches.place] = self._patches.each(columns[self._patches.place])
            return columns

    def _delivered(self, batch: Any) -> Any:
        """Let the consumer's stream wait for a batch that was made for another, or put it where all batches go."""
        if self._stream is not None and self._teller() != self._told:
            current = self._transfer.current()
            current.wait_stream(self._stream)
            for array in batch.values() if isinstance(batch, dict) else batch:
                if isinstance(array, torch.Tensor):
                    array.record_stream(current)
        return batch if self._static is None else self._static.put(batch)
