"""Chooses how batches reach the consumer: formed by the engine, made on a device, or as views on the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import batchloom._native as _native
from batchloom.batching.rules import Packing, Rule
from batchloom.collate.block_options import BlockOptions
from batchloom.collate.fields import Fields
from batchloom.collate.schema import CollateOptions, Schema
from batchloom.dataset.samples import DeliveryQuestions
from batchloom.delivery.host import Host
from batchloom.delivery.on_device import LateOnDevice, OnDevice
from batchloom.delivery.on_jax import OnJax
from batchloom.delivery.placement import Placement, PlacementRequest
from batchloom.device.data import DeviceData


class Delivery(Protocol):
    """One way for batches to reach the consumer."""

    @property
    def placement(self) -> Placement:
        """The place where batches are made, how data gets there, and why."""

    @property
    def blocks(self) -> BlockOptions:
        """Options for the blocks of the engine."""

    def prepare(self, schema: Schema, options: CollateOptions) -> None:
        """Prepare for batches of a schema; raise if they cannot be made.

        The schema is empty if samples are made on demand: the first block has it.
        """

    def begin(self, loader: _native.Loader, begin: Callable[[], None]) -> Any:
        """Return the batches of the next epoch, which calls ``begin`` before it begins."""

    def form(self, loader: _native.Loader, plan: _native.Plan, step: int) -> Any:
        """Return the batch at ``step`` of a plan of the loader. The run stays where it is."""

    def copies(self) -> tuple[int, int]:
        """Return the number of copies to a device that are under way, and their bytes."""


class OrderOfBatches(Protocol):
    """The facts about the order of batches that decide a delivery."""

    @property
    def rule(self) -> Rule:
        """The rule that decides which samples share a batch."""

    @property
    def neighbours(self) -> str:
        """The random order of samples, as the engine names it, as far as batches are runs of neighbours."""

    @property
    def shuffles_documents(self) -> bool:
        """``True`` if documents are shuffled."""

    @property
    def clears_places(self) -> bool:
        """``True`` if samples are banned: their places are cleared in memory, not on a device."""


def choose(samples: DeliveryQuestions, order: OrderOfBatches, fields: Fields, request: PlacementRequest) -> Delivery:
    """Return the delivery that suits a dataset, its plan and its fields, and the request of the user.

    Args:
        samples: The samples to batch.
        order: The rule and the order of batches.
        fields: The treatment of each field. Views are views on data in the type and shape that it has.
        request: The request of the user.
    """
    if request.target is not None:
        return OnJax(samples, request, request.target)
    if samples.location.is_on_demand:
        placement = request.on_demand()
        if placement.mode == "host":
            return Host(samples, request, placement)
        return LateOnDevice(samples, request, placement)
    is_changed = fields.conversions or fields.slots or fields.loss is not None or fields.block_mask is not None
    if not (is_changed or (order.clears_places and request.device is not None)):
        delivery = _views(samples, order, request)
        if delivery is not None:
            return delivery
    data = None if request.on_device() is None else samples.device_data()
    lies_together = data is not None and data.lies_together(order.shuffles_documents)
    placement = request.decide(samples, data, getattr(order.rule, "batch_size", 1) if lies_together else None)
    reason = _why_not_gathered(samples, data, placement, fields, order)
    if reason is not None:
        placement = request.place_streamed(placement, reason)
    if placement.mode == "host":
        return Host(samples, request, placement)
    return OnDevice(samples, data, request, placement)


def _views(samples: DeliveryQuestions, order: OrderOfBatches, request: PlacementRequest) -> Delivery | None:
    """Return the delivery of views; ``None`` where batches cannot be views."""
    source = samples.windows(order.shuffles_documents)
    if source is None:
        return None
    # Loaders of other samples do without the modules of windows, and most windows without the one of checks.
    from batchloom.delivery.window_views import WindowViews, views

    kind = WindowViews
    if request.checks_views:
        from batchloom.delivery.view_check import CheckedWindowViews

        kind = CheckedWindowViews
    return views(source, order.rule, order.neighbours, request, kind, samples.release_pages)


def _why_not_gathered(
    samples: DeliveryQuestions,
    data: DeviceData | None,
    placement: Placement,
    fields: Fields,
    order: OrderOfBatches,
) -> str | None:
    """Return why a device cannot gather batches of its data and convert them; ``None`` where it can, or need not."""
    if placement.mode not in ("resident", "sharded"):
        return None
    if data is None:
        return f"samples are those of {samples.location.datasets} datasets"
    if fields.loss is not None:
        return "weights of labels are computed in memory"
    if fields.block_mask is not None:
        return "blocks of a mask are made in memory"
    if isinstance(order.rule, Packing) and order.rule.is_formed_in_memory:
        return "rows of one shape, and rests of samples, are laid out in memory"
    if order.clears_places:
        return "places of banned samples are cleared in memory"
    if fields.slots:
        return f"slots of field {fields.slots[0][0]} are filled in memory"
    if fields.offset_by:
        return f"indices of field {fields.offset_by[0][0]} are offset in memory"
    if placement.mode == "sharded":
        for name, conversion in fields.conversions.items():
            if not conversion.is_total:
                return f"field {name} may hold values that are no {conversion.dtype}, which are looked for on the host"
    return data.why_not_gathered(fields.conversions)
