"""Placement: the device that makes batches, and the way that data takes there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import batchloom._native as _native
from batchloom.arguments import U64, integer
from batchloom.arrays.frameworks import DEVICE_FRAMEWORK, PLACE_FRAMEWORK, find_loaded, load
from batchloom.dataset.samples import DeliveryQuestions
from batchloom.delivery.options import DeliveryOptions
from batchloom.device.data import DeviceData
from batchloom.errors import ArgumentError, DeviceError

OF_DEVICES = frozenset((DEVICE_FRAMEWORK,))

# True where the CPU stands in for a device: in checks of the ways that batches take to one.
cpu_stands_in = False

_log = logging.getLogger("batchloom")


@dataclass(frozen=True)
class Placement:
    """The device that makes batches, the way that data takes there, and the reason: the decision of a loader.

    Attributes:
        mode: ``"host"``: the engine's threads make batches in memory. ``"views"``: batches are views on data, which is
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
class JaxTarget:
    """The place of batches of JAX.

    Attributes:
        device: A device of JAX, or ``None``.
        sharding: A sharding of all fields, one for each field, or ``None``.
    """

    device: Any
    sharding: Any

    def __str__(self) -> str:
        return str(self.device if self.sharding is None else self.sharding)


class PlacementRequest:
    """The request of a user for the placement of batches.

    Attributes:
        device: A torch device; ``None`` for the CPU, where the engine makes batches.
        target: The place of batches of JAX; ``None`` for the CPU.
        resident: ``True``, ``False``, ``"auto"``, or the bytes that data may take on the device; ``"auto"`` where the
            request names the CPU.
        copies: ``True`` if batches own their memory.
        is_static: ``True`` if batches are written into the same tensors.
        shard_size: Samples of a shard, or ``None``.
        output: The framework of batches, or ``None`` for the framework of each field.
        frameworks: The frameworks of batches.
        needed: The bytes of the data.
        is_there: ``True`` if the data is on the device already.

    Raises:
        ArgumentError: Arguments that contradict each other, or the dataset.
        DeviceError: The device does not exist, or data is on other devices.
    """

    def __init__(self, samples: DeliveryQuestions, options: DeliveryOptions, shard_size: int | None) -> None:
        device, output = options.device, options.output
        self.resident, self.output = options.resident, output
        self.copies, self.is_static, self._options = options.copies, options.is_static, options
        self.shard_size = None if shard_size is None else integer("shard_size", shard_size, least=1)
        # Samples that are made on demand tell theirs later.
        location = samples.location
        self.frameworks = frozenset((output,)) if output is not None else location.frameworks or OF_DEVICES
        self._fields = location.all_arrays
        self.needed = location.nbytes
        there = location.device()
        self.is_there = there is not None
        self.target = self._jax_target(device)
        self.device = there if device is None or self.target is not None else _device(device)
        if device is not None and self.device is None and self.target is None and not cpu_stands_in:
            # The device of a script is the CPU today: its data is there, and the engine makes batches fastest.
            self.resident = "auto"
        if self.is_there:
            self._require_there(there)
        if self.device is not None and output not in (None, DEVICE_FRAMEWORK):
            raise ArgumentError(
                f'output is {output!r} on device {self.device}; expected "{DEVICE_FRAMEWORK}", whose device it is'
            )
        if self.is_static and self.device is None and self.frameworks != OF_DEVICES:
            raise self._of_others()
        if self.is_there and there.type in load(DEVICE_FRAMEWORK).HOLLOW:
            raise DeviceError(
                f"the data is on {there}, whose arrays have no values; expected data on the CPU, or on a device that "
                f"holds them. A loader of data on the CPU makes batches of their shapes with device={str(there)!r}"
            )

    @property
    def checks_views(self) -> bool:
        """``True`` if batches that are views are compared for writes."""
        return self._options.checks_views

    @property
    def limits_memory(self) -> bool:
        """``True`` if the request has a number of bytes for data on the device."""
        return self.resident != "auto" and not isinstance(self.resident, bool)

    @property
    def keeps_data(self) -> bool:
        """``True`` if data must be on the device, whole or in shards."""
        return self.resident is True or self.limits_memory

    @property
    def makes_jax(self) -> bool:
        """``True`` if batches are of JAX, in memory or where JAX takes them."""
        return self.device is None and PLACE_FRAMEWORK in self.frameworks

    def _jax_target(self, device: Any) -> JaxTarget | None:
        """Return the place of batches of JAX; ``None`` if the request names no such place."""
        if device is None:
            return None
        # A device of JAX shows that JAX was imported; this does not import it.
        framework = find_loaded(PLACE_FRAMEWORK)
        is_sharding = isinstance(device, Mapping) or (framework is not None and framework.is_sharding(device))
        if not is_sharding and (framework is None or not framework.is_device(device)):
            return None
        named = "device is a sharding" if is_sharding else f"device is {device}"
        if self.frameworks != {PLACE_FRAMEWORK}:
            other = min(self.frameworks - {PLACE_FRAMEWORK})
            raise ArgumentError(f'{named}, of JAX, but batches are of {other}; expected output="{PLACE_FRAMEWORK}"')
        if self._asks_torch:
            raise ArgumentError(
                f"{named}, of JAX, with {' and '.join(self._list_torch_options())}, which only torch has"
            )
        return JaxTarget(None, device) if is_sharding else JaxTarget(device, None)

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
        if self.device is not None or not self._asks_torch:
            return self.device
        return load(DEVICE_FRAMEWORK).accelerator("cpu")

    @property
    def _asks_torch(self) -> bool:
        """``True`` if the request has an option that only batches made by torch have."""
        return self.resident != "auto" or self.is_static

    def _list_torch_options(self) -> list[str]:
        """Return the options that only batches made by torch have, as they were given."""
        asked = {
            f"resident={self.resident!r}": self.resident != "auto",
            'buffers="static"': self.is_static,
        }
        return [name for name, is_asked in asked.items() if is_asked]

    def _facts(self, device: Any, needed: int) -> _native.PlacementRequest:
        """Return the facts from which the engine decides about data of ``needed`` bytes."""
        free: int | None = None
        if self.device is not None and not self.is_there:
            free = load(DEVICE_FRAMEWORK).free_memory(self.device)
        # Arrays that another loader moved to the device are shared, and need no more memory.
        present = 0 if free is None else sum(field.tensor.nbytes for field in self._fields if field.is_on(self.device))
        return _native.PlacementRequest(
            device=None if device is None else str(device),
            is_there=self.is_there,
            needed=needed,
            present=present,
            free=free,
            resident=None if self.resident == "auto" else self.resident,
            shard_size=self.shard_size,
        )

    def on_demand(self) -> Placement:
        """Return the placement of batches of samples that are made on demand.

        Raises:
            ArgumentError: An option needs data that is there.
        """
        if self.keeps_data:
            raise ArgumentError(
                f"resident={self.resident} is for data in memory, and samples of this dataset are made on demand"
            )
        device = self.on_device()
        if device is None:
            reason = "samples are made on demand, and the engine makes batches in memory"
            return Placement("host", "cpu", 0, None, reason, self.shard_size)
        reason = "samples are made on demand, and their batches are formed in memory and copied"
        return Placement("streamed", str(device), 0, None, reason, self.shard_size)

    def limit(self) -> int | None:
        """Return the bytes that data may take on the device; ``None`` for no limit."""
        return self._facts(self.device, self.needed).limit()

    def rows_at_once(self, needed: int, batch_size: int, batch_bytes: int, row_bytes: int) -> int | None:
        """Return the most rows of views to move at once; ``None`` for all rows, 0 for the rows of one batch.

        Args:
            needed: The bytes of all rows.
            batch_size: Windows in a batch.
            batch_bytes: The bytes of the rows of a batch.
            row_bytes: The bytes of a row.

        Raises:
            ArgumentError: Two batches exceed the bytes that ``resident`` allows.
            DeviceError: The device has too little memory.
        """
        return self._facts(self.device, needed).rows_at_once(batch_size, min(batch_bytes, U64), row_bytes)

    def decide(self, samples: DeliveryQuestions, data: DeviceData | None, unit: int | None) -> Placement:
        """Decide about the placement of batches.

        Args:
            samples: The samples to batch.
            data: Their data as a device gathers it; ``None`` where only the host makes batches.
            unit: The number of samples that shards hold a multiple of; ``None`` if the data of neighbouring samples is
                not one range of rows.

        Raises:
            ArgumentError: A shard exceeds the bytes that ``resident`` allows, or the data is not of torch on the CPU.
            DeviceError: The data must be resident, and the device has too little memory.
        """
        device = self.on_device()
        if device is not None and self.device is None and self.frameworks != OF_DEVICES:
            if samples.is_formed_without_torch:
                reason = "batches are not views, and not of torch"
                return Placement("host", "cpu", self.needed, None, reason, self.shard_size)
            raise self._of_others()
        facts = self._facts(device, self.needed)
        mode, reason, limit, shard_size = facts.decide(len(samples), unit, partial(_shard_bytes, data))
        if device is None:
            return Placement(mode, "cpu", self.needed, limit, reason, shard_size)
        placement = Placement(mode, str(device), self.needed, limit, reason, shard_size)
        _log.info("batches on %s: %s, %s", placement.device, placement.mode, placement.reason)
        return placement

    def place_streamed(self, placement: Placement, reason: str) -> Placement:
        """Return the placement of data that a device cannot gather, whatever its size.

        Raises:
            ArgumentError: The data is on the device, or must be.
        """
        if self.is_there or self.resident is True:
            remedy = "data on the CPU" if self.is_there else "resident=False"
            raise ArgumentError(f"batches cannot be gathered on {placement.device}: {reason}; expected {remedy}")
        return replace(placement, mode="streamed", reason=reason, shard_size=self.shard_size)

    def _of_others(self) -> ArgumentError:
        """Return the error for options that only torch has, if batches are of another framework."""
        other = min(self.frameworks - OF_DEVICES)
        return ArgumentError(
            f"{' and '.join(self._list_torch_options())} needs batches made by torch, but this loader makes batches of "
            f'{other} on the CPU; expected output="{DEVICE_FRAMEWORK}"'
        )


def _shard_bytes(data: DeviceData | None, samples: int) -> int:
    """Return the most bytes that a shard of ``samples`` samples takes; 0 where there are no shards."""
    return 0 if data is None else sum(rows * field.row_bytes for field, rows in data.most_rows(samples))


def _device(device: Any) -> Any:
    """Return a torch device; ``None`` for the CPU.

    Raises:
        DeviceError: There is no such device.
    """
    kind, _, number = str(device).partition(":")
    if kind == "cpu" and (number.isdigit() or str(device) == kind):
        return None
    return load(DEVICE_FRAMEWORK).accelerator(device)
