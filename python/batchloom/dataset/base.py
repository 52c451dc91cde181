"""What loaders ask of a dataset, whatever its samples are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
from batchloom.arrays.field import Field
from batchloom.batch import Columns, Schema

if TYPE_CHECKING:
    from batchloom.batch import CollateOptions
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange


class Dataset(ABC):
    """Samples that batches are made of: on the host by the engine, on a device by what :meth:`_collator` returns."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of samples."""

    @abstractmethod
    def _native_dataset(self) -> _native.Dataset:
        """The dataset as the engine sees it."""

    @abstractmethod
    def _pad_values(self, pad_value: Any) -> list[tuple[str, bytes]]:
        """The bytes of one element of padding, for each field where that is not zeros."""

    @abstractmethod
    def _schema(self, columns: Columns) -> Schema:
        """What a batch holds, where the engine makes fields of these names and types."""

    @abstractmethod
    def _arrays(self) -> tuple[Field, ...]:
        """The arrays that say where data is: each once."""

    def _beside(self) -> tuple[Field, ...]:
        """What has to be on a device besides them, wherever it is now."""
        return ()

    def _element_bytes(self) -> int | None:
        """The bytes of one element, where a device finds the place of each by itself; ``None`` where of whole rows."""
        return None

    @abstractmethod
    def _collator(self, resident: Resident, options: CollateOptions) -> Collator:
        """What makes batches of addresses on a device."""

    @abstractmethod
    def _row_ranges(self, first: int, end: int) -> list[RowRange]:
        """What has to be on a device for batches of the samples ``first`` to ``end``."""

    @abstractmethod
    def _most_rows(self, samples: int) -> list[tuple[Field, int]]:
        """The most rows of each array in :meth:`_row_ranges` that so many neighbouring samples need."""

    def _check(self) -> None:
        """Raise if an array no longer is where it was borrowed."""
        for field in (*self._arrays(), *self._beside()):
            field.check()
