"""`DeviceData`: the questions that are asked of data where a device makes batches itself, of rows that are there.

Samples have no such object if only the host can form their batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

import batchloom._native as _native
from batchloom.arrays.field import BorrowedArray
from batchloom.collate.schema import CollateOptions

if TYPE_CHECKING:
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange


class DeviceData(Protocol):
    """The rows of a dataset, from which a device gathers batches."""

    @property
    def element_bytes(self) -> int | None:
        """The bytes of one element, where a device gathers element by element; ``None`` where row by row."""

    def collator(self, resident: Resident, options: CollateOptions) -> Collator:
        """Return the collator that makes batches of row numbers."""

    def row_ranges(self, first: int, end: int) -> list[RowRange]:
        """Return the rows that have to be on a device for batches of the samples ``first`` to ``end``."""

    def most_rows(self, samples: int) -> list[tuple[BorrowedArray, int]]:
        """Return the most rows of each array in :meth:`row_ranges` that ``samples`` neighbouring samples need."""

    def lies_together(self, documents: bool) -> bool:
        """Return whether the data of neighbouring samples is one range of rows in each array.

        Args:
            documents: ``True`` if documents are shuffled.
        """

    def why_not_gathered(self, conversions: Mapping[str, _native.Conversion]) -> str | None:
        """Return why a device cannot gather fields and convert them; ``None`` where it can."""


def why_not_converted(in_parts: frozenset[str], conversions: Mapping[str, _native.Conversion]) -> str | None:
    """Return why a device cannot convert fields whose samples it gathers ``in_parts``; ``None`` where it can."""
    for name, conversion in conversions.items():
        if conversion.is_first and name in in_parts:
            return f"means of field {name} are those of the first dimension, and samples are gathered in parts"
    return None
