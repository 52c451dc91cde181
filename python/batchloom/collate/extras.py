"""`Extras`: what batches hold beside the fields of samples, such as masks, lengths and boundaries.

Promises:

- An extra that a loader was not asked for is in no batch, wherever batches are made, and the engine does not form it.
- Extras keep their order, and fields their places before them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from batchloom.collate.document_mask import BLOCK_MASK, PARTS, DocumentMask
from batchloom.collate.schema import BOUNDARIES, LONGEST, Columns, Nested
from batchloom.errors import ArgumentError


def read_extras(extras: Any) -> frozenset[str] | None:
    """Return the names that the argument ``extras`` holds; ``None`` for all that there are.

    Raises:
        ArgumentError: It is no collection of names.
    """
    if extras is None:
        return None
    if isinstance(extras, str):
        raise ArgumentError(f"extras is {extras!r}; expected names in a tuple, as in extras=({extras!r},)")
    if isinstance(extras, Iterable) and not isinstance(extras, Mapping | bytes):
        names = list(extras)
        if all(isinstance(name, str) for name in names):
            return frozenset(names)
    raise ArgumentError(f"extras is {extras!r}; expected names in a tuple, () for none, or None for all")


@dataclass(frozen=True)
class Extras:
    """The extras of the batches of a loader.

    Attributes:
        names: The names of all extras that the batches of its dataset and its rule may hold, in order.
        wanted: The names of those that they are to hold; ``None`` for all.
        block_mask: The mask of attention, if batches hold its blocks. It has no name in ``names``.

    Raises:
        ArgumentError: A name is no extra of these batches.
    """

    names: tuple[str, ...] = ()
    wanted: Collection[str] | None = None
    block_mask: DocumentMask | None = None

    def __post_init__(self) -> None:
        unknown = sorted(set(self.wanted or ()) - set(self.names))
        if unknown:
            known = " or ".join(map(repr, self.names))
            expected = f"names of extras that these batches have, {known}" if known else "(): these batches have none"
            raise ArgumentError(f"extras names {unknown[0]!r}; expected {expected}")

    @property
    def left_out(self) -> list[str]:
        """The names of those that batches do not hold."""
        return [] if self.wanted is None else [name for name in self.names if name not in self.wanted]

    def holds(self, name: str) -> bool:
        """Return whether batches hold an extra."""
        return name in self.names and (self.wanted is None or name in self.wanted)

    @property
    def is_packed(self) -> bool:
        """``True`` if batches are packed, whether they hold the boundaries of samples or not."""
        return BOUNDARIES in self.names

    def nested(self, columns: Columns) -> Nested | None:
        """Return the columns of the engine that are one dict in a batch: the arrays of a block mask.

        ``None`` stands for batches without one.
        """
        first = f"{BLOCK_MASK}_{PARTS[0]}"
        place = next((place for place, (name, _) in enumerate(columns) if name == first), None)
        if self.block_mask is None or place is None:
            return None
        return Nested(BLOCK_MASK, place, self.block_mask.parts, {"block_size": self.block_mask.block_size})

    def longest_after(self, fields: int) -> int | None:
        """Return the place of the size of the longest sample in batches that begin with ``fields`` fields.

        ``None`` stands for batches that do not hold it.
        """
        return fields + self.holds(BOUNDARIES) if self.holds(LONGEST) else None


def add_longest(names: Iterable[str]) -> list[str]:
    """Return names of extras with the size of the longest sample after the boundaries of samples."""
    return [each for name in names for each in ([name, LONGEST] if name == BOUNDARIES else [name])]
