"""Placement: the device that makes batches, and the way that data takes there."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from batchloom.arguments import integer
from batchloom.arrays.field import Field
from batchloom.arrays.frameworks import load, require_known
from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError, DeviceError, Error

_log = logging.getLogger("batchloom")


@dataclass(frozen=True)
class Placement:
    """The device that makes batches, the way that data takes there, and the reason: the decision of a loader.

    Attributes:
        mode: ``"host"``: the engine's threads form batches in memory. ``"views"``: batches are views on data, which is
            on the device or moves there in parts. ``"resident"``: all data is on the device, and batches are gathered
            there. ``"streamed"``: blocks are formed in memory and copied to the device. ``"sharded"``: as resident, but
            with one shard at a time, while the next one moves.
        device: The device of batches.
        needed: The bytes of the data.
        free: The bytes that the data may take on the device; ``None`` if they are unknown.
        reason: The reason for the mode.
        shard_size: Samples of a shard; ``None`` without shards.
    """

    mode: str
    device: str
    needed: int
    free: int | None
    reason: str
    shard_size: int | None = None


@dataclass(frozen=True)
class Limit:
    """The bytes that data may take on a device.

    Attributes:
        size: How many.
        free: How many are free there, where that is the reason.
        what: What they are.
    """

    size: int
    free: int | None
    what: str


class PlacementRequest:
    """The request of a user for the placement of batches.

    Attributes:
        device: A torch device; ``None`` for the CPU, where the engine forms batches.
        resident: ``True``, ``False`` or ``"auto"``.
        memory_limit: The bytes that data may take on the device, or ``None``.
        copy: ``True`` if batches own their memory.
        static_buffers: ``True`` if batches are written into the same tensors.
        shard_size: Samples of a shard, or ``None``.
        output: The framework of batches, or ``None`` for the framework of each field.
        frameworks: The frameworks of batches.
        needed: The bytes of the data.
        is_there: ``True`` if the data is on the device already.

    Raises:
        ArgumentError: Arguments that contradict each other, or the dataset.
        DeviceError: The device does not exist, or data is on other devices.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        device: Any,
        resident: bool | str,
        memory_limit: int | None,
        copy: bool,
        static_buffers: bool,
        output: str | None,
        shard_size: int | None,
    ) -> None:
        if not (isinstance(resident, bool) or resident == "auto"):
            raise ArgumentError(f'resident is {resident!r}; expected True, False or "auto"')
        if output is not None:
            require_known(output)
        self.resident, self.copy, self.static_buffers, self.output = resident, bool(copy), bool(static_buffers), output
        self.shard_size = None if shard_size is None else integer("shard_size", shard_size, least=1)
        self.memory_limit = None if memory_limit is None else integer("memory_limit", memory_limit, least=1)
        self.frameworks = {output or field.framework for field in dataset._arrays()}
        self._fields = (*dataset._arrays(), *dataset._beside())
        self.needed = sum(field.tensor.nbytes for field in self._fields)
        there = _there(dataset._arrays())
        self.is_there = there is not None
        self.device = there if device is None else _device(device)
        if self.is_there:
            self._require_there(there)
        if self.device is not None and output not in (None, "torch"):
            raise ArgumentError(f'output is {output!r} on device {self.device}; expected "torch", whose device it is')
        if self.static_buffers and self.device is None and self.frameworks != {"torch"}:
            raise self._of_others()

    def _require_there(self, there: Any) -> None:
        if self.device != there:
            raise DeviceError(
                f"the data is on {there}, but device is {self.device or 'cpu'}; expected the device of the data, or "
                "data on the CPU, which can move to any device"
            )
        if self.resident is False:
            raise ArgumentError(f'resident is False, but the data is on {there} already; expected True or "auto"')

    def on_device(self) -> Any:
        """Return the device on which torch makes batches: the CPU too, if an option needs torch; otherwise ``None``."""
        if self.device is not None or not self._asked():
            return self.device
        return load("torch").accelerator("cpu")

    def _asked(self) -> list[str]:
        """Return the options that only batches made by torch have, as they were given."""
        asked = {
            f"resident={self.resident!r}": self.resident != "auto",
            f"memory_limit={self.memory_limit}": self.memory_limit is not None,
            "static_buffers=True": self.static_buffers,
        }
        return [name for name, is_asked in asked.items() if is_asked]

    def limit(self) -> Limit | None:
        """Return what data may take on the device; ``None`` where nothing limits it."""
        if self.is_there:
            return None
        given = None if self.memory_limit is None else Limit(self.memory_limit, None, "memory_limit")
        free: int | None = None
        if self.device is not None:
            free = load("torch").free_memory(self.device)
        if free is None:
            return given
        # What another loader moved there is shared.
        there = sum(field.tensor.nbytes for field in self._fields if field.is_on(self.device))
        if given is None and self.resident == "auto":
            return Limit(free // 2 + there, free, "half of what is free there")
        found = Limit(free + there, free, "what is free there")
        return found if given is None or found.size < given.size else given

    def decide(self, dataset: Dataset, unit: int | None) -> Placement:
        """Decide how batches come to the device.

        Args:
            dataset: The dataset to batch.
            unit: The number of samples that shards hold a multiple of; ``None`` if the data of neighbouring samples is
                not one range of rows.

        Raises:
            ArgumentError: The data must be resident and exceeds ``memory_limit``, or is not of torch on the CPU.
            DeviceError: The data must be resident, and the device has too little memory.
        """
        device = self.on_device()
        if device is None:
            return Placement("host", "cpu", self.needed, None, "no device is given", self.shard_size)
        if self.device is None and self.frameworks != {"torch"}:
            if dataset._is_formed_without_torch:
                reason = "batches are not views, and not of torch"
                return Placement("host", "cpu", self.needed, None, reason, self.shard_size)
            raise self._of_others()
        limit = self.limit()
        mode, reason, shard_size = self._mode(limit, dataset, unit)
        size = None if limit is None else limit.size
        placement = Placement(mode, str(device), self.needed, size, reason, shard_size)
        _log.info("batches on %s: %s, %s", placement.device, placement.mode, placement.reason)
        return placement

    def _of_others(self) -> ArgumentError:
        """Return the error for options that only torch has, if batches are of another framework."""
        other = min(self.frameworks - {"torch"})
        return ArgumentError(
            f"{' and '.join(self._asked())} needs batches made by torch, but this loader makes batches of {other} on "
            'the CPU; expected output="torch"'
        )

    def _mode(self, limit: Limit | None, dataset: Dataset, unit: int | None) -> tuple[str, str, int | None]:
        given = self.shard_size
        if self.is_there:
            return "resident", "the data is on the device already", given
        if self.resident is False:
            return "streamed", "resident is False", given
        if limit is None:
            reason = "the device does not say how much memory is free, and no memory_limit is given"
            return "resident", reason, given
        if self.needed <= limit.size:
            return "resident", f"its {self.needed} bytes fit into {limit.size}, {limit.what}", given
        if self.resident is True:
            raise self.too_large(self.needed, limit)
        reason = f"its {self.needed} bytes do not fit into {limit.size}, {limit.what}"
        if unit is None:
            return "streamed", f"{reason}, and what a shard would need does not lie together", given
        if given is None and self.memory_limit is None:
            return "streamed", f"{reason}, and neither memory_limit nor shard_size says how large shards may be", None
        if given is not None and limit.free is not None and 2 * _shard_bytes(dataset, given) > limit.size:
            return "streamed", f"{reason}, nor do two shards of {given} samples", given
        return "sharded", reason, self._fitting(dataset, unit, limit)

    def _fitting(self, dataset: Dataset, unit: int, limit: Limit) -> int:
        """The samples of a shard that fits twice: as many as was asked for, or as can be."""
        if self.shard_size is None and limit.free is not None:
            # What happens to be free is no reason for an order.
            raise DeviceError(
                f"memory_limit is {self.memory_limit}, but {limit.free} bytes are free on {self.device}; expected at "
                "most that, shard_size, or resident=False, which copies blocks as they are needed"
            )
        size, most = (unit, len(dataset) // unit) if self.shard_size is None else (self.shard_size, 1)
        room = limit.size // 2
        takes = _shard_bytes(dataset, size)
        if takes > room:
            raise ArgumentError(
                f"a shard of {min(size, len(dataset))} samples takes {takes} bytes, and two of them have to fit into "
                f"{limit.size}, memory_limit; expected a higher one, a smaller shard_size, smaller batches, or "
                "resident=False"
            )
        fits, beyond = 1, max(most, 1) + 1
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            fits, beyond = (middle, beyond) if _shard_bytes(dataset, middle * size) <= room else (fits, middle)
        return fits * size

    def too_large(self, needed: int, limit: Limit) -> Error:
        """Return the error for data that is to be resident and does not fit."""
        instead = 'expected resident=False, which copies blocks as they are needed, or resident="auto"'
        if limit.free is None:
            return ArgumentError(
                f"resident is True, and the data takes {needed} bytes of a memory_limit of {limit.size}; {instead}"
            )
        shared = f" (and {limit.size - limit.free} of it are there already)" if limit.size > limit.free else ""
        return DeviceError(
            f"resident is True, and the data takes {needed} bytes, but {limit.free} are free on {self.device}{shared}; "
            f"{instead}"
        )


def _shard_bytes(dataset: Dataset, samples: int) -> int:
    """The most bytes that a shard of so many samples takes."""
    return sum(rows * field.row_bytes for field, rows in dataset._most_rows(min(samples, len(dataset))))


def _there(fields: tuple[Field, ...]) -> Any:
    """Return the device of all fields; ``None`` for the CPU.

    Raises:
        DeviceError: Fields are on several devices.
    """
    first = fields[0]
    for field in fields:
        if field.device != first.device:
            raise DeviceError(
                f"field {field.label} is on {field.device or 'cpu'}, field {first.label} on {first.device or 'cpu'}; "
                "expected all on one device: move them with .to()"
            )
    return first.device


def _device(device: Any) -> Any:
    """Return a torch device; ``None`` for the CPU.

    Raises:
        DeviceError: There is no such device.
    """
    kind, _, number = str(device).partition(":")
    if kind == "cpu" and (number.isdigit() or str(device) == kind):
        return None
    return load("torch").accelerator(device)
