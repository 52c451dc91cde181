"""Where batches are wanted, and what of the data may be there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from batchloom import exchange
from batchloom.arguments import whole
from batchloom.errors import ArgumentError, DeviceError
from batchloom.windows import WindowDataset


class Placement:
    """The device of batches, and how data comes there.

    Attributes:
        device: A device of torch; ``None`` for the CPU.
        resident: ``True``, ``False`` or ``"auto"``.
        memory_limit: The bytes that data may take there, or ``None``.
        copy: Whether batches are owned.
        output: The framework of batches, or ``None`` for what each field came in.

    Raises:
        ArgumentError: Something that the dataset has no use for.
        DeviceError: There is no such device, or it is not for this dataset.
    """

    def __init__(
        self,
        dataset: Any,
        device: Any,
        resident: bool | str,
        memory_limit: int | None,
        copy: bool,
        output: str | None,
    ) -> None:
        windows = isinstance(dataset, WindowDataset)
        if not (isinstance(resident, bool) or resident == "auto"):
            raise ArgumentError(f'resident is {resident!r}; expected True, False or "auto"')
        if not windows and (resident != "auto" or memory_limit is not None):
            name = "resident" if resident != "auto" else "memory_limit"
            raise ArgumentError(f"{name} is given; expected that for windows only: rows are read where they are")
        self.device = _device(device, windows)
        self.resident = resident
        self.memory_limit = None if memory_limit is None else whole("memory_limit", memory_limit, least=1)
        self.copy = bool(copy)
        self.output = output
        if self.device is not None:
            if output not in (None, "torch"):
                raise ArgumentError(
                    f'output is {output!r} on device {self.device}; expected "torch", whose device it is'
                )
            self.output = "torch"

    def split(self, dataset: Any, names: Sequence[str]) -> exchange.Split:
        """Return what cuts blocks into batches, and moves them to the device."""
        if not isinstance(dataset, WindowDataset):
            cut: exchange.Split = dataset._split(self.output, names)
            return cut
        split = dataset._split(self.output, names, copies=self.copy)
        if self.device is None or not callable(split):
            return split
        return lambda runs: [self._move(batch) for batch in split(runs)]

    def _move(self, batch: Any) -> Any:
        if isinstance(batch, dict):
            return {name: array.to(self.device) for name, array in batch.items()}
        return tuple(array.to(self.device) for array in batch)


def _device(device: Any, windows: bool) -> Any:
    if device is None or str(device) in ("cpu", "cpu:0"):
        return None
    if not windows:
        raise DeviceError(f'device is {device}; expected None or "cpu", where batches are made')
    return exchange.require("torch", "bool", "x").accelerator(device)
