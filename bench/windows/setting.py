"""Hold the options of this chapter, and its clock."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice

import torch

from bench.windows.series import Batch, Epochs, Sizes


@dataclass(frozen=True)
class Setting:
    """The device, the rounds and the sizes that the command line asks for."""

    device: torch.device
    rounds: int
    memory_share: float
    scale: float
    published: bool
    minutes: float

    @property
    def memory(self) -> int:
        """Return the bytes of memory: the least that batches pass through on their way to the device."""
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

    def too_large(self, size: int) -> str | None:
        """Return why so many bytes held at once are not measured, if they are not."""
        if size <= self.memory_share * self.memory:
            return None
        return f"it holds {size / 1e9:.1f} GB at once, more than {self.memory_share:g} of {self.memory / 1e9:.1f} GB"


def wait(device: torch.device) -> None:
    """Wait until the device has done all it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def take(epoch: Iterable[Batch], most: int | None = None) -> int:
    """Go through an epoch, or its first batches, and let go of each before the next; return their number."""
    count = 0
    for batch in islice(epoch, most):
        del batch
        count += 1
    return count


def seconds(epochs: Epochs, device: torch.device, most: int | None = None) -> float:
    """Time an epoch, or its first batches; return the seconds of a batch."""
    start = time.perf_counter()
    count = take(epochs(), most)
    wait(device)
    return (time.perf_counter() - start) / count
