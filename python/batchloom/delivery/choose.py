"""Chooses how batches come to the consumer: formed by the engine, made on a device, or as views on the data."""

from __future__ import annotations

from typing import Any, Protocol

import batchloom._native as _native
from batchloom.batch import CollateOptions, Schema
from batchloom.batching import Rule
from batchloom.dataset.base import Dataset
from batchloom.delivery.blocks import BlockOptions
from batchloom.delivery.host import Host
from batchloom.delivery.on_device import OnDevice
from batchloom.delivery.placement import Placement, PlacementRequest
from batchloom.delivery.window_views import views


class Delivery(Protocol):
    """One way for batches to come to the consumer."""

    @property
    def placement(self) -> Placement:
        """The place where batches are made, how data comes there, and why."""

    @property
    def blocks(self) -> BlockOptions:
        """Options for the blocks of the engine."""

    def prepare(self, schema: Schema, options: CollateOptions) -> None:
        """Make ready for batches that hold this; raise if that cannot be."""

    def begin(self, loader: _native.Loader) -> Any:
        """Begin the next epoch."""


def choose(
    dataset: Dataset, rule: Rule, order: str, documents: bool, request: PlacementRequest, world_size: int
) -> Delivery:
    """Return the delivery that was asked for, as far as it can be.

    Args:
        dataset: What is batched.
        rule: How samples share a batch.
        order: How samples are shuffled.
        documents: Whether documents are, too.
        request: What the user asked for.
        world_size: How many processes there are.
    """
    found = views(dataset, rule, order, documents, request)
    if found is not None:
        return found
    unit = getattr(rule, "batch_size", 1) if dataset._lies_together(documents) else None
    placement = request.decide(dataset, unit)
    if placement.mode == "host":
        return Host(dataset, request, placement)
    return OnDevice(dataset, request, placement, world_size)
