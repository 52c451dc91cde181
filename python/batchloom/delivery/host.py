"""Batches that the engine forms in memory of the host."""

from __future__ import annotations

from typing import Any

import batchloom._native as _native
from batchloom.batch import Schema, splitter
from batchloom.dataset.base import Dataset
from batchloom.delivery.placement import Placement, PlacementRequest


class Host:
    """Batches that the engine forms in memory, cut from its blocks."""

    def __init__(self, dataset: Dataset, request: PlacementRequest, placement: Placement) -> None:
        self._dataset, self._request, self.placement = dataset, request, placement
        self.blocks: dict[str, Any] = {}

    def prepare(self, schema: Schema, padding: dict[str, Any]) -> None:
        """Make ready for batches that hold this; raise if a framework lacks it."""
        self.split = splitter(schema, self._request.output, self._request.copy)

    def begin(self, loader: _native.Loader) -> _native.Batches:
        """Begin the next epoch."""
        return loader.batches(self.split, self._dataset._check)
