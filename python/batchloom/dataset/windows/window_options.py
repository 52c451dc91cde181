"""The options of windows, for signatures that give the type of their batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict


class WindowOptions(TypedDict, total=False):
    """Keyword arguments of :class:`WindowDataset` that do not change whether batches are tuples or dicts."""

    label_len: int
    gap: int
    stride: int
    targets: Any
    marks: Any
    id: Any
    time: Any
    freq: Any
    fill: Any
    columns: Sequence[Any] | None
    anchor: str
    short: str
    sampled_by: str
    mask: bool
    labels_of: str | None
    patch_len: int | None
    patch_stride: int | None
    patch_pad: str | None
