"""Batches of rows: slices of one gather for each field of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import batchloom._native as _native
import torch
from batchloom.device.collate.gather import ResidentRows, gather, split

Runs = list[tuple[int, int, list[int], int]]
"""For each run: its batches, the samples of each batch, the shape of the padded batch, and the longest sample."""


def table(block: _native.Block) -> tuple[list[_native.Tensor], Runs]:
    """Return the index table of a block, and its runs."""
    index_table = block.index_table
    assert index_table is not None
    found, picks = index_table
    return [found, picks] if len(picks) else [found], block.runs


def samples(runs: Runs, more: int = 0) -> list[int]:
    """Return the number of members of each batch: its samples, and ``more``."""
    return [count + more for batches, count, _, _ in runs for _ in range(batches)]


class Rows:
    """Gathers rows of arrays ``[samples, ...]``, which are fetched on use."""

    def __init__(self, fetch: Callable[[], list[ResidentRows]]) -> None:
        self._fetch = fetch

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the index table of a block: the row of each sample."""
        return table(block)

    def make(self, arrived: list[torch.Tensor], outline: Runs) -> list[Sequence[Any]]:
        """Gather the rows of each field, and cut them into batches."""
        rows, sizes = arrived[0][0], samples(outline)
        return [split(gather(source, rows), sizes) for source in self._fetch()]
