"""Makes batches of rows: one gather for each field of a block, of which batches are slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import batchloom._native as _native
import torch
from batchloom.device.collate.gather import ResidentRows, gather, split

Runs = list[tuple[int, int, list[int], int]]
"""Of each run its batches, the samples of each, the shape of what is addressed in each, and the longest sample."""


def table(block: _native.Block) -> tuple[list[_native.Tensor], Runs]:
    """Return the addresses of a block, and what it consists of."""
    index_table = block.index_table
    assert index_table is not None
    found, picks = index_table
    return [found, picks] if len(picks) else [found], block.runs


def samples(runs: Runs, more: int = 0) -> list[int]:
    """Return how many members each batch has: its samples, and ``more``."""
    return [count + more for batches, count, _, _ in runs for _ in range(batches)]


class Rows:
    """Gathers rows of arrays ``[samples, ...]``, which are fetched when they are needed."""

    def __init__(self, fetch: Callable[[], list[ResidentRows]]) -> None:
        self._fetch = fetch

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return which rows."""
        return table(block)

    def make(self, arrived: list[torch.Tensor], outline: Runs) -> list[Sequence[Any]]:
        """Gather them."""
        rows, sizes = arrived[0][0], samples(outline)
        return [split(gather(source, rows), sizes) for source in self._fetch()]
