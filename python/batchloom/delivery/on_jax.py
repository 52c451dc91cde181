"""Batches that JAX takes to a device, or makes global arrays of: blocks are formed in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from batchloom.arrays.frameworks import PLACE_FRAMEWORK, load
from batchloom.collate.objects import OBJECTS
from batchloom.collate.schema import FieldViews, Schema
from batchloom.dataset.samples import DeliveryQuestions
from batchloom.delivery.host import Host
from batchloom.delivery.placement import JaxTarget, Placement, PlacementRequest
from batchloom.errors import ArgumentError


class OnJax(Host):
    """Batches on a device of JAX, or global arrays over a sharding.

    JAX copies a batch without waiting, from memory that stays as it is until the copy is over.
    """

    def __init__(self, samples: DeliveryQuestions, request: PlacementRequest, target: JaxTarget) -> None:
        reason = "the engine makes batches in memory, and JAX takes them there"
        placement = Placement("streamed", str(target), request.needed, None, reason, request.shard_size)
        super().__init__(samples, request, placement)
        self._target = target

    def _field_views(self, schema: Schema, copies: bool) -> list[FieldViews]:
        views = super()._field_views(schema, copies)
        takers = [
            None if column.framework in OBJECTS else self._taker(column.name, schema) for column in schema.columns
        ]
        if schema.columns:  # those of samples on demand are known with the first block
            self._refuse_unknown(schema)
        placed = zip(views, takers, strict=True)
        return [each if taker is None else _place_views(each, taker) for each, taker in placed]

    def _refuse_unknown(self, schema: Schema) -> None:
        """Refuse shardings by field that are of no field.

        Raises:
            ArgumentError: There is one.
        """
        sharding, fields = self._target.sharding, _fields(schema)
        unknown = [key for key in sharding if key not in fields.values()] if isinstance(sharding, Mapping) else []
        if unknown:
            raise ArgumentError(
                f"device has a sharding for {unknown[0]!r}, and batches hold no such field; expected one for each of "
                f"{', '.join(map(repr, fields.values()))}"
            )

    def _taker(self, name: str, schema: Schema) -> Callable[[Any], Any]:
        """Return the function that takes the arrays of a field to their place.

        Raises:
            ArgumentError: The field has no sharding, or batches of several processes differ in shape.
        """
        jax, sharding = load(PLACE_FRAMEWORK), self._target.sharding
        if sharding is None:
            return jax.mover(self._target.device)
        if isinstance(sharding, Mapping):
            keys = _fields(schema)
            if keys[name] not in sharding:
                expected = ", ".join(map(repr, keys.values()))
                raise ArgumentError(
                    f"device has no sharding for field {keys[name]!r}, only for {', '.join(map(repr, sharding))}; "
                    f"expected one for each of {expected}"
                )
            sharding = sharding[keys[name]]
        sharding = jax.require_sharding(sharding, name)
        if schema.ragged and jax.processes(sharding) > 1:
            raise ArgumentError(
                f"the sharding of field {name} spans {jax.processes(sharding)} processes, whose batches differ in "
                "shape because samples differ in size; expected samples of one size"
            )
        return jax.sharder(sharding, name)


def _fields(schema: Schema) -> dict[str, Any]:
    """Return the keys of the fields of batches, by the names of their columns: names, or places in a tuple."""
    return {column.name: column.name if schema.named else place for place, column in enumerate(schema.columns)}


def _place_views(views: FieldViews, take: Callable[[Any], Any]) -> FieldViews:
    """Return views whose arrays are taken to their place."""
    many, one = views.many, views.one
    return views._replace(
        many=lambda tensor: [take(array) for array in many(tensor)], one=lambda tensor: take(one(tensor))
    )
