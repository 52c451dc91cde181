"""Batches of rows with sparse fields: gathered entry by entry, and put into zeros for dense batches.

The host knows how many entries each row has, so the device never has to be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import batchloom._native as _native
import numpy
import torch
from batchloom.device.collate.gather import ResidentRows, gather, integer_view, split
from batchloom.device.collate.rows import Outline, samples, split_marks, table


@dataclass(frozen=True)
class EntryCounts:
    """The entries of the rows of a block.

    Attributes:
        inputs: The first entry of each row, the number of its entries, and the bounds of the rows of each batch.
        batches: The number of entries of each batch.
    """

    inputs: list[_native.Tensor]
    batches: list[int]


@dataclass(frozen=True)
class ResidentSparse:
    """A sparse field.

    Attributes:
        columns: Fetches the columns of entries.
        values: Fetches the values of entries.
        offsets: The first entry of each row, and the end of the last one, in memory of the host.
        width: The number of columns.
        dense: ``True`` if batches hold all columns.
        repeats: ``True`` if a row may hold a column twice.
    """

    columns: Callable[[], ResidentRows]
    values: Callable[[], ResidentRows]
    offsets: numpy.ndarray[Any, Any]
    width: int
    dense: bool
    repeats: bool

    def count(self, rows: numpy.ndarray[Any, Any], sizes: list[int]) -> EntryCounts:
        """Count the entries of the rows of batches of the given sizes."""
        starts = self.offsets[rows].astype(numpy.int64)
        lengths = self.offsets[rows + 1] - starts
        bounds, batches, first = [], [], 0
        for size in sizes:
            ends = numpy.zeros(size + 1, self.offsets.dtype)
            numpy.cumsum(lengths[first : first + size], out=ends[1:])
            bounds.append(ends)
            batches.append(int(ends[-1]))
            first += size
        arrays = (starts, lengths, numpy.concatenate(bounds))
        return EntryCounts([_native.borrow(array, "entries") for array in arrays], batches)

    def make(self, arrived: list[torch.Tensor], batches: list[int], sizes: list[int]) -> list[Sequence[Any]]:
        """Return the columns of batches: one of dense arrays, or the three of compressed rows."""
        starts, lengths, bounds = arrived
        total = sum(batches)
        owners = torch.repeat_interleave(lengths, output_size=total)
        before = torch.cumsum(lengths, 0) - lengths
        entries = torch.arange(total, device=lengths.device) + (starts - before).index_select(0, owners)
        columns, values = gather(self.columns(), entries), gather(self.values(), entries)
        if self.dense:
            return [split(self._spread(columns, values, owners, sum(sizes)), sizes)]
        bounds = bounds.to(columns.dtype)
        return [split(bounds, [size + 1 for size in sizes]), split(columns, batches), split(values, batches)]

    def _spread(self, columns: torch.Tensor, values: torch.Tensor, owners: torch.Tensor, rows: int) -> torch.Tensor:
        """Put values at their columns, among zeros."""
        numbers = integer_view(values)
        dense = numbers.new_zeros(rows * self.width)
        places = owners * self.width + columns
        dense.index_put_((places,), numbers, accumulate=self.repeats)
        return dense.view(values.dtype).view(rows, self.width)


class SparseAndDense:
    """Gathers rows of fields, some of them sparse.

    Args:
        fields: The fields.
        marks: The marks that batches hold.
    """

    def __init__(self, fields: Sequence[ResidentSparse | Callable[[], ResidentRows]], marks: Sequence[str]) -> None:
        self._fields, self._marks = fields, marks

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the index table of a block, and the entries of its rows in each sparse field."""
        inputs, outline = table(block)
        rows, sizes = numpy.from_dlpack(inputs[0])[0], samples(outline.runs)
        counts = [field.count(rows, sizes) for field in self._fields if isinstance(field, ResidentSparse)]
        return inputs + [array for count in counts for array in count.inputs], (outline, counts)

    def make(self, arrived: list[torch.Tensor], outline: Any) -> list[Sequence[Any]]:
        """Make the columns of each field, and cut them into batches."""
        rows: Outline
        rows, counts = outline
        sizes, remaining = samples(rows.runs), iter(counts)
        listed, entries = arrived[: len(rows.inputs)], iter(arrived[len(rows.inputs) :])
        columns: list[Sequence[Any]] = []
        for field in self._fields:
            if isinstance(field, ResidentSparse):
                count = next(remaining)
                columns += field.make([next(entries) for _ in count.inputs], count.batches, sizes)
            else:
                columns.append(split(gather(field(), listed[0][0]), sizes))
        return columns + split_marks(listed, rows, self._marks)
