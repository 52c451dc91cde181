"""A digest of batches: two runs that have the same one delivered the same bytes, in the same order.

Promise: it depends on names, types, shapes and values, and on nothing else: neither on the framework, nor on the memory
that a batch lies in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy
from batchloom.arrays.frameworks import owner


class BatchDigest:
    """The digest of batches: names, types, shapes and values, in order, whatever the framework.

        digest = bl.BatchDigest()
        for batch in map(digest.add, loader):
            ...
        print(digest.hex())

    Two runs with the same digest handed over the same batches. Each batch is read once more, and copied from a device.
    What determines a run is hashed in its state, at no cost: ``loader.state_dict()["digest"]``, the same on every rank
    once a step was taken.
    """

    def __init__(self) -> None:
        import hashlib

        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, batch: Any) -> Any:
        """Take in a batch, and return it."""
        for path, part in _parts("", batch):
            self._hash.update(f"{path}:{part.dtype}:{part.shape};".encode())
            self._hash.update(numpy.ascontiguousarray(part).view(numpy.uint8).data if part.size else b"")
        self._hash.update(b"|")
        return batch

    def hex(self) -> str:
        """Return 32 hexadecimal digits."""
        return self._hash.hexdigest()


def _parts(path: str, value: Any) -> Iterator[tuple[str, numpy.ndarray[Any, Any]]]:
    """Yield the arrays of a batch, with their places in it."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _parts(f"{path}/{name}", part)
    elif isinstance(value, (tuple, list)):
        for place, part in enumerate(value):
            yield from _parts(f"{path}/{place}", part)
    elif (framework := owner(value)) is not None:
        for text, part in framework.values(value):
            yield from _flatten(f"{path}{text}", value, part)
    elif all(hasattr(value, name) for name in ("data", "indices", "indptr")):
        for name in ("indptr", "indices", "data"):
            yield from _parts(f"{path}/{name}", getattr(value, name))
    else:
        yield from _flatten(path, value, numpy.asarray(value))


def _flatten(path: str, value: Any, array: numpy.ndarray[Any, Any]) -> Iterator[tuple[str, numpy.ndarray[Any, Any]]]:
    """Yield the array of a value with at least one dimension; the bytes of its text where the array holds objects."""
    if array.dtype.hasobject:
        array = numpy.frombuffer(repr(value).encode(), numpy.uint8)
    yield path, array.reshape(-1) if array.ndim == 0 else array
