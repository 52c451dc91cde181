"""Conversion of fields on a device, by the operations of torch, in the order in which the engine does them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import prod

import batchloom._native as _native
import torch
from batchloom.collate.schema import CollateOptions
from batchloom.device.collate.gather import ResidentRows, integer_view, to_int64
from batchloom.errors import DataError

# Elements that are looked at together.
LOOKED_AT = 1 << 24


class DeviceConversion:
    """The conversion of one field: ``(x * scale - mean) / std`` in another type, each step rounded as in the engine."""

    def __init__(self, conversion: _native.Conversion) -> None:
        self._conversion = conversion
        self.dtype: torch.dtype = getattr(torch, conversion.dtype)
        self._real = torch.float64 if self.dtype == torch.float64 else torch.float32
        self._device: torch.device | None = None

    def __call__(self, values: torch.Tensor, before: int = 1) -> torch.Tensor:
        """Return values in the type of batches.

        Args:
            values: The values as they are stored.
            before: The number of dimensions before the dimensions of a sample.
        """
        wide = to_int64(values) if values.dtype in (torch.uint16, torch.uint32) else values
        if self._conversion.scale is None:
            return wide.to(self.dtype)
        scale, mean, std = self._constants(values, before)
        # Tensors, not numbers: a device may divide by a number by multiplying with its inverse.
        return ((wide.to(self._real) * scale - mean) / std).to(self.dtype)

    def require(self, values: torch.Tensor) -> None:
        """Raise if the type of batches cannot hold a value of an array: one look at all values, in parts.

        Raises:
            DataError: A value is refused; the message names its row.
        """
        if self._conversion.is_total:
            return
        row = prod(values.shape[1:])
        for first, rows in _parts(values, row):
            refused = self._find_refused(rows)
            if bool(refused.any()):
                place = int(refused.flatten().to(torch.uint8).argmax())
                value, conversion = rows.flatten()[place].item(), self._conversion
                raise DataError(
                    f"field {conversion.field}, row {first + place // row}, holds {value}, which is no "
                    f"{conversion.dtype} when it is converted from {conversion.stored}; expected values in its "
                    "range, or another dtype"
                )

    def _find_refused(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the mask of values that the type of batches cannot hold."""
        converted = self(rows)
        if self.dtype.is_floating_point:
            return converted.isfinite().logical_not_() & (rows.isfinite() if rows.is_floating_point() else True)
        if rows.is_floating_point():
            low, high = _range(self.dtype)
            rows = rows.to(torch.float64)
            # The largest integer itself may be no float; the one after it is.
            within = (rows >= float(low)) & (rows < float(high) + 1) & (rows == rows.trunc())
            return within.logical_not_()
        low, high = _range(self.dtype)
        if rows.dtype == torch.uint64:
            low = 0  # what int64 takes for negative is larger than any other type holds
        numbers = to_int64(rows) if rows.dtype != torch.uint64 else integer_view(rows)
        return (numbers < low) | (numbers > min(high, 2**63 - 1))

    def _constants(self, values: torch.Tensor, before: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the scale, the means and the deviations, shaped for values."""
        if self._device != values.device:
            conversion, constant = self._conversion, partial(torch.tensor, dtype=self._real, device=values.device)
            self._scale = constant(conversion.scale)
            self._mean, self._std = constant(conversion.mean or [0.0]), constant(conversion.std or [1.0])
            self._device = values.device
        after = values.dim() - before - 1 if self._conversion.is_first else 0

        def reshape(numbers: torch.Tensor) -> torch.Tensor:
            return numbers.view(-1, *(1,) * after) if len(numbers) > 1 else numbers.view(())

        return self._scale, reshape(self._mean), reshape(self._std)


def add_conversion(options: CollateOptions, name: str, fetch: Callable[[], ResidentRows]) -> Callable[[], ResidentRows]:
    """Return a function that fetches the rows of a field, to be converted as they are taken if batches are.

    Raises:
        DataError: The rows hold a value that is refused.
    """
    conversion = options.conversions.get(name)
    if conversion is None:
        return fetch
    convert = DeviceConversion(conversion)
    if not conversion.is_total:
        convert.require(fetch().values)
    return lambda: replace(fetch(), convert=convert)


def _parts(values: torch.Tensor, row: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the number of a first row, and some rows from there on."""
    step = max(LOOKED_AT // max(row, 1), 1)
    for first in range(0, len(values) if row else 0, step):
        yield first, values[first : first + step]


def _range(dtype: torch.dtype) -> tuple[int, int]:
    """Return the least and the largest value of a type of integers."""
    if dtype == torch.bool:
        return 0, 1
    bounds = torch.iinfo(dtype)
    return bounds.min, bounds.max
