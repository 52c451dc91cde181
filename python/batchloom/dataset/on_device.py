"""`SamplesOnDevice`: the answers to the questions of a device that the kinds of data have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import batchloom._native as _native
from batchloom.arrays.field import BorrowedArray
from batchloom.collate.schema import CollateOptions
from batchloom.dataset.samples import Samples, override
from batchloom.device.data import DeviceData, why_not_converted

if TYPE_CHECKING:
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange

Kind = TypeVar("Kind", bound=Samples)


class SamplesOnDevice(DeviceData, Generic[Kind]):
    """The rows of samples, from which a device gathers batches: of one range of rows of each array, row by row.

    Attributes:
        samples: The samples.
    """

    element_bytes: int | None = None

    def __init__(self, samples: Kind) -> None:
        self.samples = samples

    @abstractmethod
    def collator(self, resident: Resident, options: CollateOptions) -> Collator:
        """Return the collator that makes batches of row numbers."""

    @property
    def in_parts(self) -> frozenset[str]:
        """The fields whose samples are gathered in parts, not whole."""
        return frozenset()

    @override
    def row_ranges(self, first: int, end: int) -> list[RowRange]:
        from batchloom.device.shards import RowRange

        # An array that several fields are taken from is listed once; all of them take the same rows of it.
        rows = zip(self.samples.location.arrays, self.samples.engine().rows(first, end), strict=False)
        return [RowRange(array, start, stop) for array, (start, stop) in rows]

    @override
    def most_rows(self, samples: int) -> list[tuple[BorrowedArray, int]]:
        return list(zip(self.samples.location.arrays, self.samples.engine().most_rows(samples), strict=False))

    @override
    def lies_together(self, documents: bool) -> bool:
        return self.samples.are_neighbours

    @override
    def why_not_gathered(self, conversions: Mapping[str, _native.Conversion]) -> str | None:
        return why_not_converted(self.in_parts, conversions)
