"""How each way of making windows is asked for an epoch of the same batches: stacking, batchloom's modes, by hand.

What it promises:

- Stacking is what the field does: a map-style data set that slices each window out of tensors (x, y, and their calendar
  features), and torch's ``DataLoader`` with its default collation. Slices of tensors collate faster than slices of
  NumPy arrays, so tensors are what is measured.
- Modes of one ``shuffle`` make the same batches in the same order, epoch 0 of batchloom's plan. ``check`` compares
  every value.
- Batches lie on the device that the mode was given. What brings them there counts.
- What is made once for all epochs is made before them: the peers' lists of samples, worker processes, views by hand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import batchloom
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

Batch = tuple[Tensor, ...]
Epochs = Callable[[], Iterable[Batch]]
Shuffle = bool | str

STACK, WORKERS, HAND = "stacking", "stacking, 2 workers", "by hand: unfold, sliced"
PER_BATCH, PRELOADED, RUNS = "batchloom per batch", "batchloom preloaded", "batchloom runs"
RANDOM, STACK_RANDOM, WORKERS_RANDOM = "batchloom random", "stacking, random", "stacking, random, 2 workers"
GATHER, GATHER_REUSED = "by hand: index_select", "by hand: index_select, one buffer"
VIEWS = (PER_BATCH, PRELOADED, RUNS)
# How many batches a loader holds at once that works ahead.
AHEAD = 6
# Calendar features of a step, as many as the field's pipelines make of hours, and the bytes of a value.
MARKS, ITEM = 4, 4


@dataclass(frozen=True)
class Sizes:
    """What windows are like, and how many share a batch. Without a horizon they are x alone, without calendar."""

    features: int
    batch: int
    length: int
    label: int = 40
    horizon: int = 60
    stride: int = 1

    @property
    def stacked_bytes(self) -> int:
        """Bytes of a batch whose windows are copies."""
        if not self.horizon:
            return self.batch * self.length * self.features * ITEM
        return self.batch * (self.length + self.label + self.horizon) * (self.features + MARKS) * ITEM

    def steps(self, windows: int) -> int:
        """How long a series with so many windows is."""
        return (windows - 1) * self.stride + self.length + self.horizon


@dataclass(frozen=True)
class Series:
    """Random steps on the CPU, ``[steps, features]``, and their calendar features, ``[steps, MARKS]``."""

    sizes: Sizes
    values: Tensor
    marks: Tensor

    @classmethod
    def draw(cls, sizes: Sizes, windows: int) -> Series:
        """Draw a series that has so many windows."""
        generator, steps = torch.Generator().manual_seed(0), sizes.steps(windows)
        values = torch.randn(steps, sizes.features, generator=generator)
        return cls(sizes, values, torch.rand(steps, MARKS, generator=generator) - 0.5)

    @classmethod
    def of_batches(cls, sizes: Sizes, batches: int) -> Series:
        """Draw a series that has so many full batches."""
        return cls.draw(sizes, batches * sizes.batch)

    def loader(self, **options: Any) -> batchloom.DataLoader:
        """Return batchloom's loader of these windows."""
        sizes = self.sizes
        forecast = {"label_len": sizes.label, "marks": self.marks} if sizes.horizon else {}
        data = batchloom.WindowDataset(self.values, sizes.length, sizes.horizon, stride=sizes.stride, **forecast)
        return batchloom.DataLoader(data, batch_size=sizes.batch, **options)

    def order(self, shuffle: Shuffle) -> list[list[int]]:
        """Return the windows of each batch of epoch 0; of this rank, where there are several."""
        return [batch.tolist() for batch in self.loader(shuffle=shuffle).plan(0)]

    def views(self, device: torch.device) -> list[Tensor]:
        """Return views of all windows, one for each array of a batch."""
        sizes = self.sizes
        values, marks = self.values.to(device), self.marks.to(device)
        if not sizes.horizon:
            return [windows(values, sizes.length, sizes.stride)]
        begin, reach = sizes.length - sizes.label, sizes.label + sizes.horizon
        cut = ((0, sizes.length), (begin, reach))
        both = [windows(array[first:], length, sizes.stride) for array in (values, marks) for first, length in cut]
        return [each[: len(both[1])] for each in both]


@dataclass(frozen=True)
class Setting:
    """What the command line asks for."""

    device: torch.device
    rounds: int
    memory_share: float
    scale: float
    published: bool

    @property
    def memory(self) -> int:
        """Bytes of memory: the least of what batches pass through on their way to the device."""
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if self.device.type != "cuda":
            return machine
        return min(machine, torch.cuda.get_device_properties(self.device).total_memory)

    def sizes(self, sizes: Sizes) -> Sizes:
        """Return the sizes to measure: the same fraction in every direction."""
        if self.scale == 1:
            return sizes
        less = {name: self.scaled(count) if count else 0 for name, count in asdict(sizes).items()}
        return Sizes(**{**less, "stride": sizes.stride})

    def scaled(self, count: int) -> int:
        """Return so many, scaled: two at least."""
        return max(round(count * self.scale), 2)

    def fitting(self, sizes: Sizes) -> Sizes:
        """Return the sizes to measure with fewer windows in a batch, if need be, so that every mode can be measured."""
        sizes = self.sizes(sizes)
        while sizes.batch > 1 and AHEAD * sizes.stacked_bytes > self.memory_share * self.memory:
            sizes = replace(sizes, batch=sizes.batch // 2)
        return sizes

    def why_not(self, name: str, sizes: Sizes) -> str | None:
        """Return why a mode is not measured, if it is not."""
        held = 0 if name in (*VIEWS, HAND) else 1 if name == STACK else AHEAD
        needed = held * sizes.stacked_bytes
        if needed <= self.memory_share * self.memory:
            return None
        return f"it holds {needed / 1e9:.1f} GB at once, more than {self.memory_share:g} of {self.memory / 1e9:.1f} GB"


def windows(array: Tensor, length: int, stride: int) -> Tensor:
    """Return a view of all windows of an array, ``[windows, length, columns]``."""
    return array.unfold(0, length, stride).transpose(1, 2)


class Slices(Dataset[Batch]):
    """The data set as everybody writes it: one window at a time."""

    def __init__(self, series: Series) -> None:
        self.sizes, self.values, self.marks = series.sizes, series.values, series.marks

    def __len__(self) -> int:
        """How many windows there are."""
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
        name: What the tables call it.
        epochs: Makes what does not count; returns what makes an epoch.
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
    Mode(RANDOM, partial(loom, shuffle=True, resident=True), True),
    Mode(GATHER, gathered, True),
    Mode(GATHER_REUSED, partial(gathered, reused=True), True),
)
MODES = {mode.name: mode for mode in ALL_MODES}


def wait(device: torch.device) -> None:
    """Return when the device has done all it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def take(epoch: Iterable[Batch], most: int | None = None) -> int:
    """Go through an epoch, or its first batches, and let go of each before the next; return how many there were."""
    count = 0
    for batch in islice(epoch, most):
        del batch
        count += 1
    return count


CHECKED = (Sizes(7, 16, 50, 8, 12), Sizes(7, 16, 50, 8, 12, stride=3), Sizes(7, 16, 50, horizon=0))


def check(names: Sequence[str], device: torch.device) -> int:
    """Compare every value of small epochs of these modes with stacking's; return how many batches were compared.

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
