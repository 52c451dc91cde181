"""Arrays that stay on a device, each moved there once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import batchloom._native as _native
import torch
from batchloom.arrays.field import BorrowedArray
from batchloom.device.collate.gather import ResidentRows


class Resident:
    """Arrays on a device, each moved there when it is first needed.

    Attributes:
        is_whole: ``True`` if all rows are on the device at once.
    """

    is_whole = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._arrays: dict[BorrowedArray, torch.Tensor] = {}
        self._streams: list[Any] = []

    def enter(self, block: _native.Block) -> None:
        """Prepare for the batches of a block."""

    def use(self, stream: Any) -> None:
        """Note that a stream reads the arrays, so that their memory is not reused before it is done."""
        if stream not in self._streams:
            self._streams.append(stream)
            for array in self._arrays.values():
                array.record_stream(stream)

    def rows_of(self, field: BorrowedArray) -> ResidentRows:
        """Return the rows of an array that are on the device."""
        if field not in self._arrays:
            array = self._arrays[field] = field.on(self._device)
            for stream in self._streams:
                array.record_stream(stream)
        return ResidentRows(self._arrays[field])

    def bring(self, fields: Iterable[BorrowedArray]) -> None:
        """Move arrays to the device now, while the memory that was found free is free."""
        for each in fields:
            self.rows_of(each)

    def reshape_rows(self, field: BorrowedArray, inner: Sequence[int]) -> ResidentRows:
        """Return the rows of a flat array, as rows of shape ``inner``."""
        part, size = self.rows_of(field), max(prod(inner), 1)
        return ResidentRows(
            part.values.reshape(len(part.values) // size if prod(inner) else 0, *inner), part.first // size
        )
