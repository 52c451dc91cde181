"""Hold the series and the sizes of windows that all candidates of this chapter share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import batchloom
import torch
from torch import Tensor

Batch = tuple[Tensor, ...]
Epochs = Callable[[], Iterable[Batch]]
Shuffle = bool | str
# Calendar features of a step, as many as the field's pipelines make of hours, and the bytes of a value.
MARKS, ITEM = 4, 4


@dataclass(frozen=True)
class Sizes:
    """The sizes of windows and of a batch. Without a horizon, windows are x alone, without calendar."""

    features: int
    batch: int
    length: int
    label: int = 40
    horizon: int = 60
    stride: int = 1

    @property
    def stacked_bytes(self) -> int:
        """Return the bytes of a batch whose windows are copies."""
        if not self.horizon:
            return self.batch * self.length * self.features * ITEM
        return self.batch * (self.length + self.label + self.horizon) * (self.features + MARKS) * ITEM

    def steps(self, windows: int) -> int:
        """Return the length of a series with so many windows."""
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


def windows(array: Tensor, length: int, stride: int) -> Tensor:
    """Return a view of all windows of an array, ``[windows, length, columns]``."""
    return array.unfold(0, length, stride).transpose(1, 2)
