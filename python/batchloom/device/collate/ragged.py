"""Batches of samples that differ in size, padded or concatenated, by a constant number of operations.

All elements of all batches of a block are numbered. For each element, :class:`Grid` finds its member and its
coordinates in that member, and so its row of values, or that it is padding. All contents of batches follow from these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import batchloom._native as _native
import torch
from batchloom.collate.schema import IGNORED, LONGEST, MARKS, CollateOptions
from batchloom.device.collate.gather import ResidentRows, gather, gather_padded, split, to_int64
from batchloom.device.collate.rows import Outline, Runs, marks, samples, table

Frame = tuple[int | None, ...]
"""The leading extents of a sample: a number if all samples share it, ``None`` if it varies."""


@dataclass(frozen=True)
class Fixed:
    """A field with one row for each sample."""

    fetch: Callable[[], ResidentRows]


@dataclass(frozen=True)
class ResidentVariable:
    """A field with samples of different sizes.

    Attributes:
        fetch: Fetches the array ``[rows, ...]``.
        frame: The leading extents.
        padding: The value of padding.
        order: Fetches the row at each place; ``None`` if rows are in the order of places.
    """

    fetch: Callable[[], ResidentRows]
    frame: Frame
    padding: float = 0
    order: Callable[[], ResidentRows] | None = None


class Members:
    """The table of a block: a column for each sample that a batch takes."""

    def __init__(self, table: torch.Tensor, dimensions: int) -> None:
        self.samples, self.elements, self.counts, self.ends, self.numbers = table[:5]
        self.taken = table[5 : 5 + dimensions]
        self.most = table[5 + dimensions : 5 + 2 * dimensions]
        self.starts = table[5 + 2 * dimensions :]


class Grid:
    """The elements of a block.

    Attributes:
        owners: The member of each element.
        places: The coordinate of each element along its first dimension that varies.
        exists: The mask of elements that are data; ``None`` if all are.
        steps: The row of each element, counted from the first row of its sample; any number at padding.
    """

    def __init__(self, members: Members, frame: Frame, total: int, packs: bool, left: bool) -> None:
        inner = prod(extent for extent in frame if extent is not None)
        self.owners = torch.repeat_interleave(members.counts * inner, output_size=total * inner)
        number = torch.arange(total * inner, dtype=self.owners.dtype, device=self.owners.device)
        rest = number - (members.elements * inner).index_select(0, self.owners)
        if packs:
            self.places = self.steps = rest
            self.exists: torch.Tensor | None = None
            return
        self.exists, self.steps = torch.ones_like(rest, dtype=torch.bool), torch.zeros_like(rest)
        scale: int | torch.Tensor = 1
        varying = sum(extent is None for extent in frame)
        for dimension, extent in reversed(list(enumerate(frame))):
            if extent is not None:
                place, rest = rest % extent, rest // extent
                self.steps, scale = self.steps + place * scale, scale * extent
                continue
            varying -= 1
            taken, most = (row[varying].index_select(0, self.owners) for row in (members.taken, members.most))
            place, rest = (rest % most, rest // most) if dimension else (rest, rest)
            place = place - (most - taken) if left else place
            self.exists &= (place >= 0) if left else (place < taken)
            self.steps, scale = self.steps + place * scale, scale * taken
            self.places = place


class Elements:
    """The elements of a block; each property is computed when it is first used."""

    def __init__(self, arrived: list[torch.Tensor], outline: Outline, collator: Ragged) -> None:
        self._collator = collator
        self.index = arrived[-1] if outline.marked else None
        self.members = Members(arrived[0], collator.dimensions)
        self._picks = arrived[1] if outline.picks else None
        self.sizes = [prod(space) for batches, _, space, _ in outline.runs for _ in range(batches)]
        self._grids: dict[Frame, Grid] = {}

    def grid(self, frame: Frame) -> Grid:
        """Return the grid of fields with this frame."""
        if frame not in self._grids:
            collator = self._collator
            self._grids[frame] = Grid(self.members, frame, sum(self.sizes), collator.packs, collator.left)
        return self._grids[frame]

    @cached_property
    def single(self) -> Grid:
        """The grid of fields with one number for each element."""
        return self.grid((None,) * self._collator.dimensions)

    def rows(self, field: ResidentVariable, column: int) -> tuple[Grid, torch.Tensor]:
        """Return the grid of a field, and the row of its values for each element."""
        grid = self.grid(field.frame)
        steps = grid.steps
        if self._picks is not None:
            places = self.members.elements.index_select(0, grid.owners) + steps
            places = places if grid.exists is None else torch.where(grid.exists, places, 0)
            steps = self._picks.index_select(0, places)
        rows = steps + self.members.starts[column].index_select(0, grid.owners)
        if field.order is None:
            return grid, rows
        order = field.order()
        return grid, gather(order, rows if grid.exists is None else torch.where(grid.exists, rows, 0))


class Ragged:
    """Pads or concatenates samples.

    Args:
        fields: The fields, by name.
        options: The options of collation.
        packs: If ``True``, samples are concatenated, otherwise padded.
    """

    def __init__(self, fields: dict[str, Fixed | ResidentVariable], options: CollateOptions, packs: bool) -> None:
        self._fields, self._names, self._labels = fields, options.names, options.labels
        self.packs, self.left = packs, options.left
        variable = {name: field for name, field in fields.items() if isinstance(field, ResidentVariable)}
        self._columns = {name: column for column, name in enumerate(variable)}
        frames = [field.frame for field in variable.values()]
        self.dimensions = frames[0].count(None) if frames else 1

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the index table of a block: the members of batches, and the elements that are taken of them."""
        return table(block)

    def make(self, arrived: list[torch.Tensor], outline: Outline) -> list[Sequence[Any]]:
        """Make each field for all batches of the block at once, and cut it."""
        elements = Elements(arrived, outline, self)
        columns: list[Sequence[Any]] = []
        for name in self._names:
            if name == LONGEST and name not in self._fields:
                columns.append([longest for *_, longest in outline.runs])
            else:
                columns.append(self._column(name, elements, outline.runs))
        return columns

    def _column(self, name: str, elements: Elements, runs: Runs) -> Sequence[torch.Tensor]:
        field = self._fields.get(name)
        if isinstance(field, ResidentVariable):
            return self._variable(name, field, elements, runs)
        if isinstance(field, Fixed):
            return self._each(gather(field.fetch(), elements.members.samples), runs)
        if name in ENDS:
            ends = elements.members.ends.to(ENDS[name], copy=True)
            return split(ends, samples(runs, 1))
        if elements.index is not None and name in MARKS:
            return self._each(marks(elements.index)[MARKS.index(name)], runs)
        if name in EACH:
            return self._each(EACH[name](elements.members), runs)
        spread = self._next(elements) if name == "labels" else SPREAD[name](elements)
        pieces = split(spread, elements.sizes)
        return [piece.view(space) for piece, space in zip(pieces, _spaces(runs), strict=True)]

    def _variable(self, name: str, field: ResidentVariable, elements: Elements, runs: Runs) -> Sequence[torch.Tensor]:
        grid, rows = elements.rows(field, self._columns[name])
        source = field.fetch()
        values = gather_padded(source, rows, grid.exists, field.padding)
        inner = prod(extent for extent in field.frame if extent is not None)
        pieces = split(values, [size * inner for size in elements.sizes])
        if self.packs:
            return pieces
        shapes = [(*_shape(space, field.frame), *source.inner) for space in _spaces(runs)]
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def _each(self, column: torch.Tensor, runs: Runs) -> Sequence[torch.Tensor]:
        """Cut a field with one row for each member; the first member of a concatenation is not a sample."""
        pieces = split(column, samples(runs, int(self.packs)))
        return [piece[1:] for piece in pieces] if self.packs else pieces

    def _next(self, elements: Elements) -> torch.Tensor:
        """Return the next token of each element, or -100 at the last token of a sample, at padding, and at fillers."""
        assert self._labels is not None
        field = self._fields[self._labels]
        assert isinstance(field, ResidentVariable)
        grid, rows = elements.rows(field, self._columns[self._labels])
        follows = grid.places + 1 < elements.members.taken[0].index_select(0, grid.owners)
        follows = follows if grid.exists is None else follows & grid.exists
        if elements.index is not None:
            follows &= (elements.index >= 0).index_select(0, grid.owners)
        tokens = to_int64(gather_padded(field.fetch(), rows + 1, follows))
        return tokens.masked_fill_(follows.logical_not(), IGNORED)


def _lengths(members: Members) -> torch.Tensor:
    taken = members.taken[0] if len(members.taken) == 1 else members.taken.T.contiguous()
    return taken.to(torch.int64, copy=True)


def _mask(elements: Elements) -> torch.Tensor:
    assert elements.single.exists is not None
    return elements.single.exists


def _segments(elements: Elements) -> torch.Tensor:
    numbers: torch.Tensor = elements.members.numbers.to(torch.int32) + 1
    return numbers.index_select(0, elements.single.owners)


# The arrays of batches besides fields: one number for each boundary, each member or each element.
ENDS = {"cu_seqlens": torch.int32, "offsets": torch.int64}
EACH: dict[str, Callable[[Members], torch.Tensor]] = {
    "lengths": _lengths,
    "index": lambda members: members.samples.to(torch.int64, copy=True),
}
SPREAD: dict[str, Callable[[Elements], torch.Tensor]] = {
    "attention_mask": _mask,
    "mask": _mask,
    "position_ids": lambda elements: elements.single.places.to(torch.int64, copy=True),
    "segment_ids": _segments,
}


def _spaces(runs: Runs) -> list[list[int]]:
    return [space for batches, _, space, _ in runs for _ in range(batches)]


def _shape(space: Sequence[int], frame: Frame) -> list[int]:
    """Return the shape of a padded field: varying extents from ``space``, fixed ones from ``frame``."""
    varying = iter(space[1:])
    return [space[0], *(next(varying) if extent is None else extent for extent in frame)]
