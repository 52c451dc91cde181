"""Batches at fixed places, for CUDA graphs: a graph that was captured reads the same memory at each replay."""

from __future__ import annotations

from typing import Any

import torch
from batchloom.errors import LoaderError

# Shapes that batches may have: as many as anyone captures graphs for.
MOST = 64


class StaticBuffers:
    """One set of arrays for each shape of batches. Each batch overwrites the one before of its shape.

    Of one loader: what its iterations hand over at the same time overwrites each other.
    """

    def __init__(self) -> None:
        self._sets: dict[tuple[Any, ...], Any] = {}

    def put(self, batch: Any) -> Any:
        """Write a batch to its place, and return what is there: the same objects each time."""
        with torch.inference_mode(False):
            return self._put(batch)

    def _put(self, batch: Any) -> Any:
        named = isinstance(batch, dict)
        values = list(batch.values()) if named else list(batch)
        shape = tuple(value.shape if isinstance(value, torch.Tensor) else value for value in values)
        found = self._sets.get(shape)
        if found is None and len(self._sets) == MOST:
            raise LoaderError(
                f"static_buffers keeps memory for each shape, and batches have had {MOST}; the next is {shape}; "
                "expected fewer: use drop_last=True, multiple_of, or static_buffers=False"
            )
        if found is None:
            own = [_place(value) for value in values]
            found = self._sets[shape] = (own, dict(zip(batch, own, strict=True)) if named else tuple(own))
            return found[1]
        for place, value in zip(found[0], values, strict=True):
            if isinstance(place, torch.Tensor):
                # Its consumer may want gradients of what is in it.
                (place.detach() if place.requires_grad else place).copy_(value, non_blocking=True)
        return found[1]


def _place(value: Any) -> Any:
    """A place of its own for an array, compact, with what is in it."""
    return value.clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value
