"""The questions of a loader to any dataset, whatever its samples are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
from batchloom.arguments import shuffled
from batchloom.arrays.field import Field
from batchloom.batch import Columns, Schema
from batchloom.errors import ArgumentError

if TYPE_CHECKING:
    from batchloom.batch import CollateOptions
    from batchloom.device.collate.windows import Windows
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange


@dataclass(frozen=True)
class Span:
    """One field of a window: ``steps`` steps from ``start`` on, of one array."""

    field: Field
    start: int
    steps: int
    target: bool


@dataclass(frozen=True)
class Sliceable:
    """Samples that are windows on arrays, so that a batch of neighbours is one slice of a template.

    Attributes:
        windows: The windows of the engine.
        spans: The fields of a window, by name.
        stride: The steps from one window to the next.
        span: The steps that a window takes.
        mask: The steps of the mask that batches hold after the fields; ``None`` where they hold none.
        patches: The length of the patches of ``x``, and the steps from one to the next, if it is cut.
        keys: The keys of batches that are dicts; ``None`` for tuples.
        collator: Returns the collator of windows that are not neighbours, given the arrays on a device.
    """

    windows: _native.Windows
    spans: dict[str, Span]
    stride: int
    span: int
    mask: int | None
    patches: tuple[int, int] | None
    keys: list[str] | None
    collator: Callable[[Resident], Windows]


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

    def _shuffled(self, shuffle: bool | str) -> tuple[str, bool]:
        """Return the random order as the engine names it, and whether documents are shuffled.

        Raises:
            ArgumentError: ``shuffle`` is an order that the dataset does not have.
        """
        return shuffled(shuffle), False

    def _labels(self, labels: str | None) -> str | None:
        """Return the field whose next tokens are labels.

        Raises:
            ArgumentError: A field is named, and samples have no tokens.
        """
        if labels is not None:
            raise ArgumentError(
                f"labels is {labels!r}; labels= needs a SequenceDataset, as tokens of sequences have a next one; this "
                f"loader batches a {type(self).__name__}"
            )
        return None

    def _sliceable(self, documents: bool) -> Sliceable | None:
        """Return the windows that samples are; ``None`` where they are something else.

        Args:
            documents: Whether documents are shuffled.
        """
        return None

    def _lies_together(self, documents: bool) -> bool:
        """Whether the data of neighbouring samples is one range of rows in each array.

        Args:
            documents: Whether documents are shuffled.
        """
        return True

    @property
    def _is_formed_without_torch(self) -> bool:
        """Whether the engine forms batches on the CPU where torch was asked to, and the arrays are not torch's."""
        return False

    def _check(self) -> None:
        """Raise if an array no longer is where it was borrowed."""
        for field in (*self._arrays(), *self._beside()):
            field.check()
