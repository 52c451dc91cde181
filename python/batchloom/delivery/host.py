"""Batches that the engine forms in memory of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import batchloom._native as _native
from batchloom.collate.block_options import BlockOptions
from batchloom.collate.schema import CollateOptions, Columns, FieldViews, Schema, field_views
from batchloom.dataset.samples import DeliveryQuestions
from batchloom.delivery.placement import Placement, PlacementRequest


class Host:
    """Batches that the engine forms in memory: frameworks view its blocks."""

    def __init__(self, samples: DeliveryQuestions, request: PlacementRequest, placement: Placement) -> None:
        self._samples, self._request, self.placement = samples, request, placement
        self.blocks = BlockOptions()

    def prepare(self, schema: Schema, options: CollateOptions) -> None:
        """Prepare for batches of a schema; raise if a framework lacks a type."""
        self._views = None if self._samples.location.is_on_demand else self._views_of(schema)

    def _views_of(self, schema: Schema) -> _native.HostViews:
        """Return the functions that make batches of blocks."""
        views = self._field_views(schema, self._request.copies)
        return _native.HostViews(
            views, schema.keys, schema.joins(self._request.output), schema.longest, schema.objects, schema.build
        )

    def _late_views(self, columns: Columns, nesting: str) -> _native.HostViews:
        """Return the functions that make batches of blocks, given the fields of the first block."""
        return self._views_of(self._samples.late_schema(columns, nesting))

    def _field_views(self, schema: Schema, copies: bool) -> list[FieldViews]:
        """Return the functions that take each field of a block as arrays."""
        return field_views(schema, self._request.output, copies)

    def begin(self, loader: _native.Loader, begin: Callable[[], None]) -> _native.Batches:
        """Return the batches of the next epoch, which calls ``begin`` before it begins."""
        if self._views is None:
            return loader.late_batches(self._late_views, begin, self._samples.check)
        return loader.batches(self._views, begin, self._samples.check)

    def form(self, loader: _native.Loader, plan: _native.Plan, step: int) -> Any:
        """Return the batch at ``step`` of a plan of the loader."""
        self._samples.check()
        block = loader.form(plan, step)
        views = self._late_views(block.columns, block.nesting) if self._views is None else self._views
        return views.batch(block)

    def copies(self) -> tuple[int, int]:
        """Return no copies: batches stay in memory, or JAX copies them without reporting it."""
        return 0, 0
