"""The pipeline of batches of samples that are made on demand: their fields are known with each block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import batchloom._native as _native
from batchloom.collate.schema import Columns, Schema
from batchloom.device.pipeline import Begun, Pipeline


class Part(NamedTuple):
    """The pipeline for blocks with the same fields.

    Attributes:
        columns: The names and types of the fields.
        nesting: Their nesting.
        schema: The schema of batches.
        pipeline: The pipeline for the schema.
    """

    columns: Columns
    nesting: str
    schema: Schema
    pipeline: Pipeline


class LatePipeline:
    """Makes the batches of one iteration on a device; called by the engine's iterator, which makes tuples of them.

    Args:
        schema_of: Returns the schema of batches, given the names and types of their fields and their nesting.
        pipeline_of: Returns the pipeline for a schema.
    """

    def __init__(self, schema_of: Callable[[Columns, str], Schema], pipeline_of: Callable[[Schema], Pipeline]) -> None:
        self._schema_of, self._pipeline_of = schema_of, pipeline_of
        self._last: Part | None = None
        self._finished: Part | None = None

    def start(self, block: _native.Block) -> tuple[Part, Begun]:
        """Start copying a block to the device."""
        part = self._last
        if part is None or (part.columns, part.nesting) != (block.columns, block.nesting):
            schema = self._schema_of(block.columns, block.nesting)
            part = self._last = Part(block.columns, block.nesting, schema, self._pipeline_of(schema))
        return part, part.pipeline.start(block)

    def finish(self, begun: tuple[Part, Begun]) -> list[Sequence[Any]]:
        """Return, for each field, the arrays of all batches of a block."""
        self._finished, inner = begun
        return self._finished.pipeline.finish(inner)

    def only(self, block: _native.Block) -> Any:
        """Return the only batch of a block in its structure."""
        return self.deliver(tuple(column[0] for column in self.finish(self.start(block))))

    def deliver(self, batch: tuple[Any, ...]) -> Any:
        """Return a batch of the block that was finished last in its structure, ready for the current stream."""
        assert self._finished is not None
        schema, pipeline = self._finished.schema, self._finished.pipeline
        if pipeline.deliver is not None:
            batch = pipeline.deliver(batch)
        if schema.build is not None:
            return schema.build(batch)
        return batch if schema.keys is None else dict(zip(schema.keys, batch, strict=True))
