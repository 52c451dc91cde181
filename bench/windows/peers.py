"""Ask stacking, batchloom's modes and loops by hand for an epoch of the same batches of windows.

Promises:

- Stacking is what the field does: a map-style data set that slices each window out of tensors (x, y, and their calendar
  features), and torch's ``DataLoader`` with its default collation. Slices of tensors collate faster than slices of
  NumPy arrays, so tensors are what is measured.
- Modes of one ``shuffle`` make the same batches in the same order, epoch 0 of batchloom's plan. ``check`` compares
  every value.
- Batches lie on the device that the mode was given. What brings them there counts.
- What is made once for all epochs is made before them: the peers' lists of samples, worker processes, views by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from bench.windows.series import Batch, Epochs, Series, Shuffle, Sizes
from bench.windows.setting import Setting

STACK, WORKERS, HAND = "stacking", "stacking, 2 workers", "by hand: unfold, sliced"
PER_BATCH, PRELOADED, RUNS = "batchloom per batch", "batchloom preloaded", "batchloom runs"
RANDOM, STACK_RANDOM, WORKERS_RANDOM = "batchloom random", "stacking, random", "stacking, random, 2 workers"
ASKED = "batchloom random, nothing ahead"
GATHER, GATHER_REUSED = "by hand: index_select", "by hand: index_select, one buffer"
VIEWS = (PER_BATCH, PRELOADED, RUNS)
# How many batches a loader holds at once that works ahead.
AHEAD = 6


class Slices(Dataset[Batch]):
    """The data set as it is usually written: one window at a time."""

    def __init__(self, series: Series) -> None:
        self.sizes, self.values, self.marks = series.sizes, series.values, series.marks

    def __len__(self) -> int:
        """Return the number of windows."""
        return (len(self.values) - self.sizes.length - self.sizes.horizon) // self.sizes.stride + 1

    def __getitem__(self, window: int) -> Batch:
        """Return the slices of one window."""
        start = window * self.sizes.stride
        end = start + self.sizes.length
        if not self.sizes.horizon:
            return (self.values[start:end],)
        first, last = end - self.sizes.label, end + self.sizes.horizon
        return self.values[start:end], self.values[first:last], self.marks[start:end], self.marks[first:last]


@dataclass(frozen=True)
class Mode:
    """A way to an epoch of batches.

    Attributes:
        name: Its name in the tables.
        epochs: Prepares outside the clock; returns a maker of epochs.
        shuffle: The order of the batches, in batchloom's words.
    """

    name: str
    epochs: Callable[[Series, torch.device], Epochs]
    shuffle: Shuffle = False


def stacking(series: Series, device: torch.device, shuffle: Shuffle = False, workers: int = 0) -> Epochs:
    """Use torch's ``DataLoader`` with its default collation."""
    loader = DataLoader(
        Slices(series),
        batch_sampler=series.order(shuffle),
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
        generator=torch.Generator(),  # else each epoch draws a seed from the generator that models draw from
    )
    return lambda: loader if device.type == "cpu" else moved(loader, device)


def moved(loader: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """Bring each batch to the device."""
    return (tuple(array.to(device, non_blocking=True) for array in batch) for batch in loader)


def loom(series: Series, device: torch.device, **options: Any) -> Epochs:
    """Use batchloom: the first epoch of a plan, again each time."""
    loader = series.loader(device=device, **options)

    def epoch() -> Iterable[Batch]:
        loader.set_epoch(0)
        return loader

    return epoch


def sliced(series: Series, device: torch.device) -> Epochs:
    """Slice views of all windows by hand: no plan, no resume, no ranks, no random order."""
    views, step = series.views(device), series.sizes.batch
    return lambda: (tuple(view[at : at + step] for view in views) for at in range(0, len(views[0]), step))


def gathered(series: Series, device: torch.device, reused: bool = False) -> Epochs:
    """Gather windows by hand; where ``reused``, each batch overwrites the one before it."""
    views = series.views(device)
    index = [torch.tensor(batch, device=device) for batch in series.order(True)]
    if not reused:
        return lambda: (tuple(view.index_select(0, rows) for view in views) for rows in index)
    buffers = [view[index[0]] for view in views]
    return lambda: (
        tuple(
            torch.index_select(view, 0, rows, out=buffer[: len(rows)])
            for view, buffer in zip(views, buffers, strict=True)
        )
        for rows in index
    )


ALL_MODES = (
    Mode(STACK, stacking),
    Mode(WORKERS, partial(stacking, workers=2)),
    Mode(PER_BATCH, partial(loom, resident=False)),
    Mode(PRELOADED, partial(loom, resident=True)),
    Mode(HAND, sliced),
    Mode(RUNS, partial(loom, shuffle="runs", resident=True), "runs"),
    Mode(STACK_RANDOM, partial(stacking, shuffle=True), True),
    Mode(WORKERS_RANDOM, partial(stacking, shuffle=True, workers=2), True),
    Mode(RANDOM, partial(loom, shuffle=True), True),
    Mode(ASKED, partial(loom, shuffle=True, prefetch=0), True),
    Mode(GATHER, gathered, True),
    Mode(GATHER_REUSED, partial(gathered, reused=True), True),
)
MODES = {mode.name: mode for mode in ALL_MODES}


def why_not(setting: Setting, name: str, sizes: Sizes) -> str | None:
    """Return why a mode is not measured, if it is not."""
    held = 0 if name in (*VIEWS, HAND) else 1 if name == STACK else AHEAD
    return setting.too_large(held * sizes.stacked_bytes)


def fitting(setting: Setting, sizes: Sizes) -> Sizes:
    """Return the sizes to measure with fewer windows in a batch, if need be, so that every mode can be measured."""
    sizes = setting.sizes(sizes)
    while sizes.batch > 1 and setting.too_large(AHEAD * sizes.stacked_bytes):
        sizes = replace(sizes, batch=sizes.batch // 2)
    return sizes


CHECKED = (Sizes(7, 16, 50, 8, 12), Sizes(7, 16, 50, 8, 12, stride=3), Sizes(7, 16, 50, horizon=0))


def check(names: Sequence[str], device: torch.device) -> int:
    """Compare every value of small epochs of these modes with stacking's; return the number of compared batches.

    Raises:
        SystemExit: One differs.
    """
    return sum(_check(MODES[name], sizes, device) for name in names for sizes in CHECKED)


def _check(mode: Mode, sizes: Sizes, device: torch.device) -> int:
    series = Series.draw(sizes, 10 * sizes.batch + 5)
    compared = 0
    for theirs, mine in zip(stacking(series, device, mode.shuffle)(), mode.epochs(series, device)(), strict=True):
        compared += 1
        if len(theirs) != len(mine) or not all(map(torch.equal, theirs, mine)):
            raise SystemExit(f"{mode.name}: batch {compared - 1} of {sizes} differs from stacking's")
    return compared
