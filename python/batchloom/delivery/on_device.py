"""Batches that torch makes on a device, of blocks of the engine that are copied there."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import batchloom._native as _native
from batchloom.arrays.frameworks import DEVICE_FRAMEWORK, load
from batchloom.collate.block_options import BlockOptions
from batchloom.collate.schema import CollateOptions, Schema
from batchloom.dataset.samples import DeliveryQuestions
from batchloom.delivery.placement import Placement, PlacementRequest
from batchloom.device.data import DeviceData
from batchloom.errors import ArgumentError, LoaderError

if TYPE_CHECKING:
    from batchloom.device.pipeline import Collator, Pipeline
    from batchloom.device.resident import Resident
    from batchloom.device.static_buffers import StaticBuffers

# Bytes of a block that is copied to a device, least bytes of a block that is gathered there, and of an index table.
STREAMED, GATHERED, TABLE = 16 << 20, 32 << 20, 64 << 10

# A block of resident data takes this share of the device's memory, up to these bytes, unless a limit is given: between
# blocks a fast device waits for Python, and fast devices have much memory.
SHARE, MOST_GATHERED = 1 / 256, 512 << 20

# Bytes that a device needs to find the row of one element.
SOUGHT = 40


class OnDevice:
    """Batches that torch makes on a device, of blocks of the engine that are copied there."""

    def __init__(
        self, samples: DeliveryQuestions, data: DeviceData | None, request: PlacementRequest, placement: Placement
    ) -> None:
        from batchloom.device.transfer import Transfer

        self._samples, self._data, self._request, self.placement = samples, data, request, placement
        self._transfer = Transfer(load(DEVICE_FRAMEWORK).accelerator(placement.device))

    @property
    def blocks(self) -> BlockOptions:
        """Options for the blocks of the engine: bytes to copy, or numbers of rows to gather."""
        allocate = self._transfer.allocate
        if self.placement.mode == "streamed":
            return BlockOptions(STREAMED, (STREAMED, allocate), converts=True)
        gathered, element = GATHERED, None if self._data is None else self._data.element_bytes
        if self.placement.mode == "resident" and not self._request.limits_memory:
            gathered = min(max(int(self._transfer.memory() * SHARE), GATHERED), MOST_GATHERED)
        if element is not None:
            gathered = max(gathered * element // (element + SOUGHT), 1)
        return BlockOptions(gathered, (TABLE, allocate), index_table=True)

    def prepare(self, schema: Schema, options: CollateOptions) -> None:
        """Prepare for batches of a schema: move data that is to be resident.

        Raises:
            ArgumentError: Batches have no shape, or no single one, to keep static buffers for.
            DTypeError: torch lacks the type of a field.
        """
        schema.modules(DEVICE_FRAMEWORK)  # raises where torch lacks a type, before anything moves
        if self._request.is_static and schema.compressed:
            raise ArgumentError(
                f'buffers is "static", but batches of field {schema.compressed[0].name} differ in their number of '
                'entries; expected SparseRows(..., layout="dense"), or other buffers'
            )
        if self._request.is_static and self._samples.other_shapes:
            raise ArgumentError(
                f'buffers is "static", and {self._samples.other_shapes}; expected tail="pad" or "drop", whose '
                "batches have one shape, or other buffers"
            )
        self._schema, self._static = schema, _make_static_buffers(self._request)
        self._options = options
        self._source = self._source_of(schema, options)

    def pipeline(self, loader: _native.Loader) -> Pipeline:
        """Return the pipeline of one iteration: several may be under way."""
        from batchloom.device.pipeline import Pipeline

        return Pipeline(self._transfer, *self._source(loader), self._schema, self._request.copies, self._static)

    def form(self, loader: _native.Loader, plan: _native.Plan, step: int) -> Any:
        """Return the batch at ``step`` of a plan of the loader, in memory of its own."""
        from batchloom.device.pipeline import Pipeline

        self._samples.check()
        source = self._source
        if self.placement.mode == "sharded":
            # Memory for the shards of this batch alone: iterations under way have theirs.
            source = self._source_of(self._schema, self._options)
        pipeline = Pipeline(self._transfer, *source(loader), self._schema, self._request.copies, None)
        return pipeline.only(loader.form(plan, step), self._schema.keys)

    def begin(self, loader: _native.Loader, begin: Callable[[], None]) -> _native.Batches:
        """Return the batches of the next epoch, which calls ``begin`` before it begins."""
        batches = loader.device_batches(self.pipeline(loader), self._schema.keys, begin, self._samples.check)
        _under_way.add(batches)
        return batches

    def _source_of(
        self, schema: Schema, options: CollateOptions
    ) -> Callable[[_native.Loader], tuple[Resident, Collator]]:
        """Return a function for the beginning of an iteration of a loader.

        It returns the arrays on the device, and a collator for them.
        """
        from batchloom.device.formed import Formed
        from batchloom.device.resident import Resident
        from batchloom.device.shards import ShardBuffers, Shards

        transfer, data, size = self._transfer, self._data, self.placement.shard_size
        resident = Resident(transfer.device)
        if self.placement.mode == "streamed":
            return lambda loader: (resident, Formed(schema, options.conversions))
        assert data is not None
        if self.placement.mode == "sharded" and size is not None:
            buffers = ShardBuffers(transfer.with_new_stream(), data.most_rows(min(size, len(self._samples))))

            def begin(loader: _native.Loader) -> tuple[Resident, Collator]:
                shards = Shards(buffers, data.row_ranges, lambda: loader.ranks[1])
                return shards, data.collator(shards, options)

            return begin
        resident.bring(self._samples.location.all_arrays)
        collator = data.collator(resident, options)
        return lambda loader: (resident, collator)

    def copies(self) -> tuple[int, int]:
        """Return the number of copies to the device that are under way, and their bytes."""
        return self._transfer.under_way()


class LateOnDevice(OnDevice):
    """Batches on a device of samples that are made on demand: their fields are known with the first block."""

    def __init__(self, samples: DeliveryQuestions, request: PlacementRequest, placement: Placement) -> None:
        super().__init__(samples, None, request, placement)
        self._static = _make_static_buffers(request)

    def prepare(self, schema: Schema, options: CollateOptions) -> None:
        """Prepare for batches with the schema of the first block."""

    @property
    def blocks(self) -> BlockOptions:
        """Options for the blocks of the engine: each is one batch."""
        return BlockOptions(memory=(TABLE, self._transfer.allocate))

    def begin(self, loader: _native.Loader, begin: Callable[[], None]) -> _native.Batches:
        """Return the batches of the next epoch, which calls ``begin`` before it begins."""
        from batchloom.device.late_pipeline import LatePipeline

        pipeline = LatePipeline(self._samples.late_schema, self._pipeline_of)
        batches = loader.device_batches(pipeline, None, begin, self._samples.check)
        _under_way.add(batches)
        return batches

    def form(self, loader: _native.Loader, plan: _native.Plan, step: int) -> Any:
        """Return the batch at ``step`` of a plan of the loader, in memory of its own."""
        from batchloom.device.late_pipeline import LatePipeline

        self._samples.check()
        return LatePipeline(self._samples.late_schema, self._pipeline_of).only(loader.form(plan, step))

    def _pipeline_of(self, schema: Schema) -> Pipeline:
        """Return the pipeline for batches of a schema."""
        from batchloom.device.formed import Formed
        from batchloom.device.pipeline import Pipeline
        from batchloom.device.resident import Resident

        schema.modules(DEVICE_FRAMEWORK)  # raises where torch lacks a type
        if self._request.is_static and schema.objects.places:
            name = schema.columns[schema.objects.places[0]].name
            raise ArgumentError(
                f'buffers is "static", and field {name} holds objects, which are no memory to copy to; expected other '
                "buffers"
            )
        resident = Resident(self._transfer.device)
        return Pipeline(self._transfer, resident, Formed(schema, {}), schema, self._request.copies, self._static)


def _make_static_buffers(request: PlacementRequest) -> StaticBuffers | None:
    """Return the buffers of all iterations of a loader; ``None`` if each batch has memory of its own."""
    from batchloom.device.static_buffers import StaticBuffers

    return StaticBuffers() if request.is_static else None


# Iterations whose workers may ask Python for memory.
_under_way: WeakSet[_native.Batches] = WeakSet()


@atexit.register
def _close() -> None:
    """End iterations before the interpreter ends: a worker that asked it for memory later would wait for ever."""
    for batches in list(_under_way):
        with suppress(LoaderError):
            batches.close()
    # An iteration that its worker collected as garbage is in no list; and workers let go of memory.
    _native.settle()
