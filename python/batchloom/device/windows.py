"""Makes batches of windows that are no neighbours: one gather for each field of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from batchloom import _native
from batchloom.device.gather import Part, padded, plain, split
from batchloom.device.rows import Runs, samples, table
from batchloom.torch import windows


@dataclass(frozen=True)
class Stretch:
    """Some steps of each window, of one array.

    Attributes:
        part: Fetches the array ``[time, ...]``.
        start: The first step of the window,
        steps: and how many.
    """

    part: Callable[[], Part]
    start: int
    steps: int


class Windows:
    """Gathers windows.

    Args:
        stretches: The fields.
        mask: The steps of the mask, if there is one.
        short: Whether windows may begin with zeros.
    """

    def __init__(self, stretches: list[Stretch], mask: int | None, short: bool) -> None:
        self._stretches, self._mask, self._short = stretches, mask, short

    def parts(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the rows that windows begin with."""
        return table(block)

    def make(self, arrived: list[torch.Tensor], outline: Runs) -> list[Sequence[Any]]:
        """Gather them."""
        sizes = samples(outline)
        return [split(found, sizes) for found in self.fields(*arrived[0].unbind())]

    def fields(self, rows: torch.Tensor, missing: torch.Tensor) -> list[torch.Tensor]:
        """Return all fields of windows that begin with ``rows``, after ``missing`` steps of zeros."""
        take = self._with_zeros if self._short else _stored
        found = [take(stretch, rows, missing) for stretch in self._stretches]
        if self._mask is not None:
            steps = torch.arange(self._mask, device=rows.device)
            found.append(steps >= missing.view(-1, 1))
        return found

    def _with_zeros(self, stretch: Stretch, rows: torch.Tensor, missing: torch.Tensor) -> torch.Tensor:
        part = stretch.part()
        steps = torch.arange(stretch.start, stretch.start + stretch.steps, dtype=rows.dtype, device=rows.device)
        exists = (steps >= missing.view(-1, 1)).flatten()
        found = padded(part, ((rows - missing).view(-1, 1) + steps).flatten(), exists)
        return found.view(len(rows), stretch.steps, *part.inner)


def _stored(stretch: Stretch, rows: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    part = stretch.part()
    if not stretch.steps:
        return part.values.new_empty((len(rows), 0, *part.inner))
    template = windows(plain(part.values), stretch.steps)
    return template.index_select(0, part.places(rows + stretch.start)).view(part.values.dtype)
