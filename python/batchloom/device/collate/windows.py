"""Batches of windows in random order: one gather for each field of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import batchloom._native as _native
import torch
from batchloom.arrays.torch import windows
from batchloom.device.collate.gather import ResidentRows, integer_view, padded, split
from batchloom.device.collate.rows import Outline, samples, split_marks, table


@dataclass(frozen=True)
class StepRange:
    """The steps of each window that a field takes from an array.

    Attributes:
        fetch: Fetches the array ``[time, ...]``.
        start: The first of the steps, counted from the beginning of the window.
        steps: The number of steps.
    """

    fetch: Callable[[], ResidentRows]
    start: int
    steps: int


class Windows:
    """Gathers windows.

    Args:
        step_ranges: The steps of each field.
        masks: The first step of the window that each mask is about, and their number.
        short: If ``True``, windows may begin with zeros.
    """

    def __init__(self, step_ranges: list[StepRange], masks: list[tuple[int, int]], short: bool) -> None:
        self._step_ranges, self._masks, self._short = step_ranges, masks, short

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the index table of a block: the first row of each window, and its steps of zeros."""
        return table(block)

    def make(self, arrived: list[torch.Tensor], outline: Outline) -> list[Sequence[Any]]:
        """Gather the windows of each field, and cut them into batches."""
        sizes = samples(outline.runs)
        fields: list[Sequence[Any]] = [split(found, sizes) for found in self.fields(*arrived[0].unbind())]
        return fields + split_marks(arrived, outline)

    def fields(self, rows: torch.Tensor, missing: torch.Tensor) -> list[torch.Tensor]:
        """Return all fields of windows that begin with ``rows``, after ``missing`` steps of zeros."""
        take = self._with_zeros if self._short else _stored
        found = [take(step_range, rows, missing) for step_range in self._step_ranges]
        for start, steps in self._masks:
            found.append(torch.arange(start, start + steps, device=rows.device) >= missing.view(-1, 1))
        return found

    def _with_zeros(self, step_range: StepRange, rows: torch.Tensor, missing: torch.Tensor) -> torch.Tensor:
        source = step_range.fetch()
        steps = torch.arange(
            step_range.start, step_range.start + step_range.steps, dtype=rows.dtype, device=rows.device
        )
        exists = (steps >= missing.view(-1, 1)).flatten()
        found = padded(source, ((rows - missing).view(-1, 1) + steps).flatten(), exists)
        return found.view(len(rows), step_range.steps, *source.inner)


def _stored(step_range: StepRange, rows: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    source = step_range.fetch()
    if not step_range.steps:
        return source.empty(len(rows), 0, *source.inner)
    template = windows(integer_view(source.values), step_range.steps)
    return source.taken(template.index_select(0, source.places(rows + step_range.start)))
