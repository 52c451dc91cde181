"""Chooses how batches come to the consumer: formed by the engine, made on a device, or as views on the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import batchloom._native as _native
from batchloom.batching.rules import Rule
from batchloom.collate.block_options import BlockOptions
from batchloom.collate.schema import CollateOptions, Schema
from batchloom.collate.slots import Collate
from batchloom.dataset.base import Dataset
from batchloom.delivery.host import Host
from batchloom.delivery.on_device import LateOnDevice, OnDevice
from batchloom.delivery.on_jax import OnJax
from batchloom.delivery.placement import Placement, PlacementRequest
from batchloom.delivery.view_check import CheckedWindowViews
from batchloom.delivery.window_views import WindowViews, views


class Delivery(Protocol):
    """One way for batches to come to the consumer."""

    @property
    def placement(self) -> Placement:
        """The place where batches are made, how data comes there, and why."""

    @property
    def blocks(self) -> BlockOptions:
        """Options for the blocks of the engine."""

    def prepare(self, schema: Schema, options: CollateOptions) -> None:
        """Prepare for batches of a schema; raise if they cannot be made.

        The schema is empty if samples are made on demand: their first block tells it.
        """

    def begin(self, loader: _native.Loader, begin: Callable[[], None]) -> Any:
        """Return the batches of the next epoch, which calls ``begin`` before it begins."""

    def form(self, loader: _native.Loader, plan: _native.Plan, step: int) -> Any:
        """Return the batch at ``step`` of a plan of the loader. The run stays where it is."""

    def copies(self) -> tuple[int, int]:
        """Return the number of copies to a device that are under way, and their bytes."""


def choose(
    dataset: Dataset,
    rule: Rule,
    order: str,
    documents: bool,
    request: PlacementRequest,
    conversions: Mapping[str, _native.Conversion],
    collation: Collate,
    bans: bool,
    check: bool,
) -> Delivery:
    """Return the delivery that suits a dataset, a rule and the request of the user.

    Args:
        dataset: The dataset to batch.
        rule: The rule by which samples share a batch.
        order: The random order of samples, as the engine names it.
        documents: ``True`` if documents are shuffled.
        request: The arguments of the user.
        conversions: The conversions of fields. Views are none of the data in another type.
        collation: The slots of fields, which are filled in memory.
        bans: ``True`` if samples are banned, whose places are cleared in memory.
        check: ``True`` if batches that are views are checked for writes.
    """
    if request.target is not None:
        return OnJax(dataset, request, request.target)
    if dataset._is_on_demand:
        placement = request.on_demand()
        if placement.mode == "host":
            return Host(dataset, request, placement)
        return LateOnDevice(dataset, request, placement)
    # Places of banned samples are cleared in memory, not on a device.
    if not (conversions or collation.slots or (bans and request.device is not None)):
        kind = CheckedWindowViews if check else WindowViews
        found = views(dataset, rule, order, documents, request, kind)
        if found is not None:
            return found
    unit = getattr(rule, "batch_size", 1) if dataset._lies_together(documents) else None
    placement = request.decide(dataset, unit)
    reason = _ungathered(dataset, placement, conversions, collation, bans)
    if reason is not None:
        placement = request.streamed(placement, reason)
    if placement.mode == "host":
        return Host(dataset, request, placement)
    return OnDevice(dataset, request, placement)


def _ungathered(
    dataset: Dataset,
    placement: Placement,
    conversions: Mapping[str, _native.Conversion],
    collation: Collate,
    bans: bool,
) -> str | None:
    """Return why a device cannot gather batches of its data and convert them; ``None`` where it can, or need not."""
    if bans and placement.mode in ("resident", "sharded"):
        return "places of banned samples are cleared in memory"
    if collation.slots and placement.mode in ("resident", "sharded"):
        return f"slots of field {collation.slots[0][0]} are filled in memory"
    if placement.mode == "sharded":
        for name, conversion in conversions.items():
            if not conversion.is_total:
                return f"field {name} may hold values that are no {conversion.dtype}, which are looked for on the host"
    return dataset._ungathered(conversions) if placement.mode in ("resident", "sharded") else None
