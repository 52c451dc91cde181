"""Counts of windows and of their bytes."""

from __future__ import annotations

from dataclasses import dataclass

from batchloom.dataset.array_windows import ArrayWindows


@dataclass(frozen=True)
class WindowStats:
    """Counts of windows and series, and their bytes."""

    windows: int
    """Different windows."""
    samples: int
    """Samples of an epoch: more than windows if shorter series repeat theirs."""
    series: int
    """Series."""
    padded_series: int
    """Series that are shorter than a window, and make one that begins with zeros."""
    series_without_windows: int
    """Series without a window: those that ``short="drop"`` leaves out, and those without any step."""
    series_bytes: int
    """Bytes of the arrays themselves."""
    stacked_bytes: int
    """Bytes of the windows of an epoch, each copied to separate arrays."""
    gathered_bytes: int
    """Bytes of a batch of windows that owns its memory, as with ``shuffle=True``."""
    viewed_bytes: int
    """Bytes of the rows that a batch of neighbours covers: a batch of views needs these alone, all in the series."""
    materialised_bytes: int
    """Bytes that a batch of neighbours writes on the CPU: 0 for views, ``gathered_bytes`` where they are not."""
    patched_bytes: int
    """Bytes of the patches of a batch, if each were stored: they are a view, of the series or of what was written."""


def count(windows: ArrayWindows, batch_size: int) -> WindowStats:
    """Return the counts of windows and series, and the bytes of an epoch and of a batch of ``batch_size``."""
    samples, different, series, padded, without = windows.native.counts()
    shape = windows.shape
    arrays = windows.cut_arrays
    covered = (batch_size - 1) * shape.stride + shape.span
    found = [each.field for each in windows.found.values()]
    window = windows.cut_bytes + windows.found_bytes
    row = sum(field.row_bytes for field in arrays)
    return WindowStats(
        windows=different,
        samples=samples,
        series=series,
        padded_series=padded,
        series_without_windows=without,
        series_bytes=sum(len(field.tensor) * field.row_bytes for field in (*arrays, *found)),
        stacked_bytes=samples * window,
        gathered_bytes=batch_size * window,
        viewed_bytes=covered * row,
        materialised_bytes=batch_size * (windows.found_bytes if windows.are_views else window),
        patched_bytes=batch_size * _count_patch_bytes(windows),
    )


def _count_patch_bytes(windows: ArrayWindows) -> int:
    """Return the bytes of the patches of a window, if each were stored."""
    if windows.shape.patches is None:
        return 0
    (length, stride), x = windows.shape.patches, windows.spans["x"]
    return ((x.steps.count - length) // stride + 1) * length * x.field.row_bytes
