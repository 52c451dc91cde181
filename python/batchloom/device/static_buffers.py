"""Static buffers for batches, as CUDA graphs need: a captured graph reads the same memory at each replay."""

from __future__ import annotations

from typing import Any

import torch
from batchloom.errors import LoaderError

# Most shapes of batches: more than anyone captures graphs for.
MOST = 64


class StaticBuffers:
    """One set of arrays for each shape, type and name of fields. Each batch overwrites the previous one that has them.

    All iterations of a loader share them: batches of iterations at the same time overwrite each other.
    """

    def __init__(self) -> None:
        self._sets: dict[tuple[Any, ...], Any] = {}

    def put(self, batch: Any) -> Any:
        """Copy a batch to its buffers and return these: the same objects each time."""
        with torch.inference_mode(False):
            return self._put(batch)

    def _put(self, batch: Any) -> Any:
        named = isinstance(batch, dict)
        values = list(batch.values()) if named else list(batch)
        # Functions of samples may return other fields, or other types, in a later epoch.
        shape = (*batch, *map(_shape, values)) if named else tuple(map(_shape, values))
        buffers = self._sets.get(shape)
        if buffers is None and len(self._sets) == MOST:
            raise LoaderError(
                f'buffers is "static", which keeps memory for each shape, and batches have had {MOST}; the next is '
                f"{shape}; expected fewer: use drop_last=True, multiple_of, or other buffers"
            )
        if buffers is None:
            own = [_place(value) for value in values]
            buffers = self._sets[shape] = (own, dict(zip(batch, own, strict=True)) if named else tuple(own))
            return buffers[1]
        for place, value in zip(buffers[0], values, strict=True):
            _copy(place, value)
        return buffers[1]


def _shape(value: Any) -> Any:
    """Return what the buffers of an entry of a batch depend on: its shape, or the value of what is no array."""
    if isinstance(value, dict):
        return tuple((name, _shape(part)) for name, part in value.items())
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else value


def _copy(place: Any, value: Any) -> None:
    """Copy an entry of a batch to its buffer."""
    if isinstance(place, dict):
        for name, part in place.items():
            _copy(part, value[name])
    elif isinstance(place, torch.Tensor):
        # The consumer may have asked for gradients of the buffer.
        (place.detach() if place.requires_grad else place).copy_(value, non_blocking=True)


def _place(value: Any) -> Any:
    """Return a compact copy of an array, as a buffer for later ones."""
    if isinstance(value, dict):
        return {name: _place(part) for name, part in value.items()}
    return value.clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value
