"""The data of a loader on a device: all of it, or the shards that batches are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

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

    def shaped(self, field: exchange.Field, inner: Sequence[int]) -> Part:
        """Return what is there of an array that is stored flat, in rows of shape ``inner``."""
        part, size = self.part(field), max(prod(inner), 1)
        return Part(part.values.reshape(len(part.values) // size if prod(inner) else 0, *inner), part.first // size)


class Shards(Store):
    """The shard that batches are made of, and the next one, which moves meanwhile.

    With each block goes as large a share of the next shard as the block has of its own, so that computation never waits
    long.

    Args:
        lane: The way to the device.
        stretches: What a shard needs of each array.
        world: How many ranks share a shard.
    """

    is_whole = False

    def __init__(self, lane: Lane, stretches: Callable[[int, int], list[Stretch]], world: int) -> None:
        super().__init__(lane.device)
        self._lane, self._stretches, self._world = lane, stretches, world
        self._held: dict[Shard, Moving] = {}
        self._shard: Shard = (0, 0)

    def enter(self, block: _native.Block) -> None:
        """Let what the block needs be there, and more of what the next shard needs be on its way."""
        assert block.shards is not None
        shard, following = block.shards
        wanted = (shard, following) if following is not None else (shard,)
        self._held = {known: moving for known, moving in self._held.items() if known in wanted}
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
            self._held[shard] = Moving(self._lane, self._stretches(*shard))
        return self._held[shard]


class Moving:
    """A shard on its way to the device, some rows of each array at a time."""

    def __init__(self, lane: Lane, stretches: list[Stretch]) -> None:
        self._lane, self._stretches = lane, stretches
        self._room = [
            lane.room(stretch.field.tensors(slice(0, 0)), stretch.end - stretch.first) for stretch in stretches
        ]
        self._share = 0.0
        self._gone = [0] * len(stretches)
        self._last: list[Copy] = []
        self._parts: dict[exchange.Field, Part] = {}
        self._reader: Any = None

    def go_on(self, share: float) -> None:
        """Let a share of all rows go, or what is left of them: also what an interrupt kept from going before."""
        self._share = min(self._share + share, 1.0)
        for place, (room, stretch) in enumerate(zip(self._room, self._stretches, strict=True)):
            rows, start = stretch.end - stretch.first, self._gone[place]
            stop = rows if self._share == 1.0 else int(rows * self._share)
            if start < stop:
                self._last.append(self._lane.carry(_rows(stretch, start, stop), room[start:stop]))
                self._gone[place] = stop

    def part(self, field: exchange.Field) -> Part:
        """Return the rows of an array, for work that is given to the present stream from now on."""
        current = self._lane.current()
        if not self._parts or current != self._reader:
            for copy in self._last:
                copy.arrive()
            self._reader = current
            rooms = zip(self._stretches, self._room, strict=True)
            self._parts = {stretch.field: Part(room, stretch.first) for stretch, room in rooms}
        return self._parts[field]


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
