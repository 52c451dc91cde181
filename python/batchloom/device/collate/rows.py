"""Batches of rows: slices of one gather for each field of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import batchloom._native as _native
import torch
from batchloom.arrays.torch import weights
from batchloom.collate.schema import MARKS
from batchloom.device.collate.gather import ResidentRows, gather, split

Runs = list[tuple[int, int, list[int], int]]
"""For each run: its batches, the samples of each batch, the shape of the padded batch, and the longest sample."""


class Outline:
    """The batches of a block, and the arrays of its index table that move to the device.

    Attributes:
        runs: The runs of the block.
        picks: ``True`` if the table is followed by the elements that are taken of samples.
        marked: ``True`` if the last field holds the samples, -1 at places that only fill up.
    """

    def __init__(self, block: _native.Block) -> None:
        index_table, index = block.index_table, block.index
        assert index_table is not None
        assert index is not None
        self.runs = block.runs
        parts = [*index_table, index]
        _, self.picks, self.marked = (bool(len(part)) for part in parts)
        self.inputs = [part for place, part in enumerate(parts) if place == 0 or len(part)]


def table(block: _native.Block) -> tuple[list[_native.Tensor], Outline]:
    """Return the index table of a block, and its outline."""
    outline = Outline(block)
    return outline.inputs, outline


def marks(index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index and the weight of each place, from samples that are -1 where a place only fills up."""
    return index.to(torch.int64, copy=True), weights(index)


def split_marks(arrived: list[torch.Tensor], outline: Outline, names: Sequence[str]) -> list[Sequence[Any]]:
    """Return the marks of all batches that they hold, by their names."""
    if not names:
        return []
    made = zip(MARKS, marks(arrived[-1]), strict=True)
    return [split(mark, samples(outline.runs)) for name, mark in made if name in names]


def samples(runs: Runs, more: int = 0) -> list[int]:
    """Return the number of members of each batch: its samples, and ``more``."""
    return [count + more for batches, count, _, _ in runs for _ in range(batches)]


class Rows:
    """Gathers rows of arrays ``[samples, ...]``, which are fetched on use.

    Args:
        fetch: Fetches the arrays.
        marks: The marks that batches hold.
    """

    def __init__(self, fetch: Callable[[], list[ResidentRows]], marks: Sequence[str]) -> None:
        self._fetch, self._marks = fetch, marks

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the index table of a block: the row of each sample."""
        return table(block)

    def make(self, arrived: list[torch.Tensor], outline: Outline) -> list[Sequence[Any]]:
        """Gather the rows of each field, and cut them into batches."""
        rows, sizes = arrived[0][0], samples(outline.runs)
        fields: list[Sequence[Any]] = [split(gather(source, rows), sizes) for source in self._fetch()]
        return fields + split_marks(arrived, outline, self._marks)
