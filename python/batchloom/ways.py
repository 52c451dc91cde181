"""How batches come to whoever takes them: formed by the engine, made on a device, or as views on the data."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from batchloom import _native, exchange
from batchloom.cut import Rule
from batchloom.dataset import Dataset
from batchloom.errors import LoaderError
from batchloom.placement import Placement, Wish
from batchloom.tokens import TokenDataset
from batchloom.views import views
from batchloom.windows import WindowDataset

if TYPE_CHECKING:
    from batchloom.device.lane import Lane
    from batchloom.device.relay import Maker, Relay
    from batchloom.device.store import Store, Wanted

# Bytes of blocks that are copied to a device, and of those that are gathered there; and the least of a table of rows.
STREAMED, GATHERED, TABLE = 16 << 20, 32 << 20, 64 << 10

# Bytes that a device needs to find the place of one element.
SOUGHT = 40


class Way(Protocol):
    """One way."""

    @property
    def placement(self) -> Placement:
        """Where batches are made, how data comes there, and why."""

    @property
    def blocks(self) -> dict[str, Any]:
        """How large blocks of the engine are, where, and whether they are addresses alone."""

    def prepare(self, schema: exchange.Schema, padding: dict[str, Any]) -> None:
        """Make ready for batches that hold this; raise if that cannot be."""

    def begin(self, loader: _native.Loader) -> Any:
        """Begin the next epoch."""


def way(dataset: Dataset, rule: Rule, order: str, documents: bool, wish: Wish, world: int) -> Way:
    """Return the way that is wished for, as far as it can be.

    Args:
        dataset: What is batched.
        rule: How samples share a batch.
        order: How samples are shuffled.
        documents: Whether documents are, too.
        wish: What the user asked for.
        world: How many processes there are.
    """
    found = views(dataset, rule, order, documents, wish)
    if found is not None:
        return found
    apart = isinstance(dataset, TokenDataset) and (documents or dataset.mode == "continuous")
    unit = None if apart else getattr(rule, "batch_size", 1)
    placement = wish.decide(dataset, unit, isinstance(dataset, WindowDataset))
    if placement.mode == "host":
        return Host(dataset, wish, placement)
    return OnDevice(dataset, wish, placement, world)


class Host:
    """Batches that the engine forms in memory, cut from its blocks."""

    def __init__(self, dataset: Dataset, wish: Wish, placement: Placement) -> None:
        self._dataset, self._wish, self.placement = dataset, wish, placement
        self.blocks: dict[str, Any] = {}

    def prepare(self, schema: exchange.Schema, padding: dict[str, Any]) -> None:
        """Make ready for batches that hold this; raise if a framework lacks it."""
        self.split = exchange.splitter(schema, self._wish.output, self._wish.copy)

    def begin(self, loader: _native.Loader) -> _native.Batches:
        """Begin the next epoch."""
        return loader.batches(self.split, self._dataset._check)


class OnDevice:
    """Batches that torch makes on a device, of blocks of the engine that are copied there."""

    def __init__(self, dataset: Dataset, wish: Wish, placement: Placement, world: int) -> None:
        from batchloom.device.lane import Lane

        self._dataset, self._wish, self.placement, self._world = dataset, wish, placement, world
        self._lane = Lane(exchange.require("torch", "bool", "x").accelerator(placement.device))

    @property
    def blocks(self) -> dict[str, Any]:
        """How large blocks of the engine are, where, and whether they are addresses alone."""
        if self.placement.mode == "streamed":
            return {"block_bytes": STREAMED, "memory": (STREAMED, self._lane.allocate)}
        element = self._dataset._element_bytes()
        gathered = GATHERED if element is None else max(GATHERED * element // (element + SOUGHT), 1)
        return {"block_bytes": gathered, "memory": (TABLE, self._lane.allocate), "addresses": True}

    def prepare(self, schema: exchange.Schema, padding: dict[str, Any]) -> None:
        """Make ready for batches that hold this: data that is to be resident moves."""
        from batchloom.device.static import Static
        from batchloom.device.store import Wanted

        wanted = Wanted([column.name for column in schema.columns], **padding)
        self._schema, self._static = schema, Static() if self._wish.static else None
        self._source = _source(self._dataset, self._lane, self.placement, schema, wanted, self._world)

    def relay(self) -> Relay:
        """Return what makes the batches of an iteration: several may be under way."""
        from batchloom.device.relay import Relay

        return Relay(self._lane, *self._source(), self._schema, self._wish.copy, self._static)

    def begin(self, loader: _native.Loader) -> _native.Batches:
        """Begin the next epoch."""
        batches = loader.batches(self.relay(), self._dataset._check)
        _under_way.add(batches)
        return batches


def _source(
    dataset: Dataset, lane: Lane, placement: Placement, schema: exchange.Schema, wanted: Wanted, world: int
) -> Callable[[], tuple[Store, Maker]]:
    """Return what begins an iteration: what is on the device then, and what makes batches of it."""
    from batchloom.device.formed import Formed
    from batchloom.device.store import Rooms, Shards, Store

    store, size = Store(lane.device), placement.shard_size
    if placement.mode == "streamed":
        return lambda: (store, Formed(schema))
    if placement.mode == "sharded" and size is not None:
        rooms = Rooms(type(lane)(lane.device), dataset._most_rows(min(size, len(dataset))))

        def begin() -> tuple[Store, Maker]:
            shards = Shards(rooms, dataset._stretches, world)
            return shards, dataset._maker(shards, wanted)

        return begin
    store.bring((*dataset._arrays(), *dataset._beside()))
    maker = dataset._maker(store, wanted)
    return lambda: (store, maker)


# Iterations whose workers may ask Python for memory.
_under_way: WeakSet[_native.Batches] = WeakSet()


@atexit.register
def _close() -> None:
    """End iterations before the interpreter ends: a worker that asks it for memory then would wait for ever."""
    for batches in list(_under_way):
        with suppress(LoaderError):
            batches.close()
    # One whose worker collected it as garbage is in no list.
    _native.settle()
