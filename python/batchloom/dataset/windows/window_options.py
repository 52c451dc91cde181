"""The options of windows: their types for signatures, and the attributes of a dataset that hold them."""

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


class WindowAttributes:
    """The options with which a dataset of windows was made; parts, selections and scaled copies have the same.

    Arguments that are data are among the ``fields`` and the ``times`` of a dataset.
    """

    input_len: int | tuple[int, int] | None
    """Steps of input, or the least and the most of them; ``None`` with ``offsets``."""
    horizon: int
    """Steps to predict."""
    label_len: int
    """Steps before the horizon with which ``y`` begins."""
    gap: int
    """Steps between input and horizon."""
    stride: int
    """Steps from one window to the next."""
    targets: Any
    """The columns that ``y`` takes; ``None`` for all."""
    labels_of: str | None
    """The unit that labels belong to, if it was given."""
    index: bool
    """``True`` if batches hold the place of each window."""
    id: Any
    """The column of the frame with the name of the series."""
    freq: Any
    """The step from each time to the next, if it was given."""
    fill: Any
    """The values of missing steps, if they were given."""
    columns: Sequence[Any] | None
    """The columns of the frame that were named as features; ``None`` for all that remained."""
    short: str
    """The treatment of series that are too short."""
    sampled_by: str
    """The unit that counts the same in an epoch."""
    mask: bool
    """``True`` if masks were asked for. Batches also hold them with ``short="pad"``."""
    patch_len: int | None
    """The length of patches; ``None`` where ``x`` is not cut."""
    patch_stride: int | None
    """Steps from one patch to the next, if they were given."""
    patch_pad: str | None
    """The end that is repeated before patches are cut, if one is."""
