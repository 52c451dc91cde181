"""The data of a loader on a device, and what its batches are to be like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from batchloom import exchange
from batchloom.device.gather import plain


class Store:
    """Arrays on a device: each is moved there when it is first needed."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._arrays: dict[exchange.Field, torch.Tensor] = {}

    def array(self, field: exchange.Field) -> torch.Tensor:
        """Return an array."""
        if field not in self._arrays:
            self._arrays[field] = field.on(self._device)
        return self._arrays[field]


@dataclass(frozen=True)
class Wanted:
    """What batches of samples that differ in size are to be like.

    Attributes:
        names: The names of what they hold, in order.
        pad_values: The bytes of one element of padding, for fields where that is not zeros.
        left: Whether padding goes before the data.
        labels: The field whose next tokens are labels, if any.
    """

    names: Sequence[str]
    pad_values: dict[str, bytes] = field(default_factory=dict)
    left: bool = False
    labels: str | None = None

    def padding(self, name: str, dtype: str) -> float:
        """Return what a field is padded with, as the type that gathers it has it."""
        value = self.pad_values.get(name)
        if value is None:
            return 0
        element = torch.frombuffer(bytearray(value), dtype=torch.uint8).view(getattr(torch, dtype))
        number: float = plain(element).item()
        return number
