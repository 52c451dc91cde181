"""A field of a window: some of its steps, of one array."""

from __future__ import annotations

from dataclasses import dataclass

from batchloom.arrays.field import Field
from batchloom.collate.window_steps import WindowSteps


@dataclass(frozen=True)
class Span:
    """One field of a window: some of its steps, of one array."""

    field: Field
    steps: WindowSteps
