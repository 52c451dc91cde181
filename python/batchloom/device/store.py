"""The data of a loader on a device: all of it, or the shards that batches are made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple
from weakref import finalize

import torch
from batchloom import _native, exchange
from batchloom.device.gather import Part, plain
from batchloom.device.lane import Copy, Lane

Shard = tuple[int, int]
"""The first sample of a shard, and the one after its last."""


class Stretch(NamedTuple):
    """Rows of one array that a shard needs: ``first`` to ``end``, or those that ``order`` has there."""

    field: exchange.Field
    first: int
    end: int
    order: Any = None


class Store:
    """Arrays on a device, each moved there when it is first needed.

    Attributes:
        is_whole: Whether all rows are there at once.
    """

    is_whole = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._arrays: dict[exchange.Field, torch.Tensor] = {}
        self._streams: list[Any] = []

    def enter(self, block: _native.Block) -> None:
        """Make ready for the batches of a block."""

    def use(self, stream: Any) -> None:
        """Note that a stream reads from here: memory that it reads from is not given to others before it is done."""
        if stream not in self._streams:
            self._streams.append(stream)
            for array in self._arrays.values():
                array.record_stream(stream)

    def part(self, field: exchange.Field) -> Part:
        """Return what is there of an array."""
        if field not in self._arrays:
            array = self._arrays[field] = field.on(self._device)
            for stream in self._streams:
                array.record_stream(stream)
        return Part(self._arrays[field])

    def bring(self, fields: Iterable[exchange.Field]) -> None:
        """Move arrays now, while what was found free is free."""
        for each in fields:
            self.part(each)

    def shaped(self, field: exchange.Field, inner: Sequence[int]) -> Part:
        """Return what is there of an array that is stored flat, in rows of shape ``inner``."""
        part, size = self.part(field), max(prod(inner), 1)
        return Part(part.values.reshape(len(part.values) // size if prod(inner) else 0, *inner), part.first // size)


class Shards(Store):
    """The shard that batches are made of, and the next one, which moves meanwhile.

    With each block goes as large a share of the next shard as the block has of its own, so that computation never waits
    long.

    Args:
        rooms: Where shards go.
        stretches: What a shard needs of each array.
        world: How many ranks share a shard.
    """

    is_whole = False

    def __init__(self, rooms: Rooms, stretches: Callable[[int, int], list[Stretch]], world: int) -> None:
        super().__init__(rooms.lane.device)
        self._rooms, self._stretches, self._world = rooms, stretches, world
        self._held: dict[Shard, Moving] = {}
        self._shard: Shard = (0, 0)
        finalize(self, _leave, self._held, os.getpid())

    def enter(self, block: _native.Block) -> None:
        """Let what the block needs be there, and more of what the next shard needs be on its way."""
        assert block.shards is not None
        shard, following = block.shards
        for known in set(self._held) - {shard, following}:
            self._held.pop(known).leave()
        self._shard = shard
        self._moving(shard).go_on(1.0)
        if following is not None:
            samples = sum(batches * count for batches, count, *_ in block.runs)
            self._moving(following).go_on(1.1 * samples * self._world / (shard[1] - shard[0]))

    def part(self, field: exchange.Field) -> Part:
        """Return what is there of an array."""
        return self._held[self._shard].part(field)

    def _moving(self, shard: Shard) -> Moving:
        if shard not in self._held:
            self._held[shard] = Moving(self._rooms, self._stretches(*shard))
        return self._held[shard]


def _leave(held: dict[Shard, Moving], process: int) -> None:
    """Let the shards of the next epoch have the room; a forked child has none."""
    while held and process == os.getpid():
        held.popitem()[1].leave()


class Rooms:
    """Memory on a device for the shards of a loader: for two, however far the CPU runs ahead.

    Attributes:
        lane: The way there. Copies go one after the other, also to the same room.

    Args:
        most: Of each array that shards need, the most rows of a shard.
    """

    def __init__(self, lane: Lane, most: list[tuple[exchange.Field, int]]) -> None:
        self.lane, self._most = lane, most
        self._free: list[Room] = []

    def take(self) -> Room:
        """Return the room that was given back last, or another."""
        if self._free:
            return self._free.pop()
        return Room([self.lane.room(field.tensors(slice(0, 0)), rows) for field, rows in self._most], [])

    def give(self, room: Room) -> None:
        """Take a room back."""
        if len(self._free) < 2:
            self._free.append(room)


@dataclass(frozen=True)
class Room:
    """Memory on a device for one shard.

    Attributes:
        arrays: Of each array that a shard needs, the most rows.
        readers: When those streams have done so that read the shard before.
    """

    arrays: list[torch.Tensor]
    readers: list[Any]


class Moving:
    """A shard on its way to the device, some rows of each array at a time."""

    def __init__(self, rooms: Rooms, stretches: list[Stretch]) -> None:
        self._rooms, self._lane, self._stretches = rooms, rooms.lane, stretches
        self._room = rooms.take()
        self._arrays = [
            room[: stretch.end - stretch.first] for room, stretch in zip(self._room.arrays, stretches, strict=True)
        ]
        pairs = zip(stretches, self._arrays, strict=True)
        self._parts = {stretch.field: Part(array, stretch.first) for stretch, array in pairs}
        self._share = 0.0
        self._gone = [0] * len(stretches)
        self._sent: list[Copy] = []
        self._readers: list[Any] = []

    def go_on(self, share: float) -> None:
        """Let a share of all rows go, or what is left of them: also what an interrupt kept from going before."""
        self._share = min(self._share + share, 1.0)
        for place, (array, stretch) in enumerate(zip(self._arrays, self._stretches, strict=True)):
            start, stop = self._gone[place], len(array) if self._share == 1.0 else int(len(array) * self._share)
            if start < stop:
                after = () if self._sent else self._room.readers
                self._sent.append(self._lane.carry(_rows(stretch, start, stop), array[start:stop], after))
                self._gone[place] = stop

    def part(self, field: exchange.Field) -> Part:
        """Return the rows of an array, for work that is given to the present stream from now on."""
        current = self._lane.current()
        if current not in self._readers:
            for copy in self._sent:
                copy.arrive()
            self._readers.append(current)
        return self._parts[field]

    def leave(self) -> None:
        """Give the room back: to be used when all that was given to the streams of readers is done."""
        self._rooms.give(Room(self._room.arrays, self._lane.passed(self._readers)))


def _rows(stretch: Stretch, start: int, stop: int) -> torch.Tensor:
    """Rows ``start`` to ``stop`` of what a shard needs of an array."""
    places = slice(stretch.first + start, stretch.first + stop)
    found: torch.Tensor = stretch.field.tensors(places if stretch.order is None else stretch.order[places].copy())
    return found


@dataclass(frozen=True)
class Wanted:
    """What batches of samples that differ in size are to be like.

    Attributes:
        names: The names of what they hold, in order.
        pad_values: The bytes of one element of padding, for fields where that is not zeros.
        left: Whether padding goes before the data.
        labels: The field whose next tokens are labels, if any.
    """

    names: Sequence[str]
    pad_values: dict[str, bytes] = field(default_factory=dict)
    left: bool = False
    labels: str | None = None

    def padding(self, name: str, dtype: str) -> float:
        """Return what a field is padded with, as the type that gathers it has it."""
        value = self.pad_values.get(name)
        if value is None:
            return 0
        element = torch.frombuffer(bytearray(value), dtype=torch.uint8).view(getattr(torch, dtype))
        number: float = plain(element).item()
        return number
