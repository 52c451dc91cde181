"""The pipeline of batches of samples that are made on demand: their fields are known with the first block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import batchloom._native as _native
from batchloom.collate.schema import Columns, Schema
from batchloom.device.pipeline import Begun, Pipeline


class LatePipeline:
    """Makes the batches of one iteration on a device; called by the engine's iterator, which makes tuples of them.

    Args:
        schema_of: Returns the schema of batches, given the names and types of their fields and their nesting.
        pipeline_of: Returns the pipeline for a schema.
    """

    def __init__(self, schema_of: Callable[[Columns, str], Schema], pipeline_of: Callable[[Schema], Pipeline]) -> None:
        self._schema_of, self._pipeline_of = schema_of, pipeline_of
        self._pipeline: Pipeline | None = None

    def start(self, block: _native.Block) -> Begun:
        """Start copying a block to the device."""
        if self._pipeline is None:
            self._schema = self._schema_of(block.columns, block.nesting)
            self._pipeline = self._pipeline_of(self._schema)
        return self._pipeline.start(block)

    def finish(self, begun: Begun) -> list[Sequence[Any]]:
        """Return, for each field, the arrays of all batches of a block."""
        assert self._pipeline is not None
        return self._pipeline.finish(begun)

    def only(self, block: _native.Block) -> Any:
        """Return the only batch of a block in its structure."""
        return self.deliver(tuple(column[0] for column in self.finish(self.start(block))))

    def deliver(self, batch: tuple[Any, ...]) -> Any:
        """Return a batch in its structure, ready for the current stream."""
        assert self._pipeline is not None
        if self._pipeline.deliver is not None:
            batch = self._pipeline.deliver(batch)
        if self._schema.build is not None:
            return self._schema.build(batch)
        keys = self._schema.keys
        return batch if keys is None else dict(zip(keys, batch, strict=True))
