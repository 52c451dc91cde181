"""JAX arrays in and out, on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import batchloom._native as _native
import jax
from batchloom.arrays import numpy
from batchloom.errors import DeviceError

TAKES_CAPSULES = False


def borrow(array: Any, label: str) -> _native.Tensor:
    """Share the memory of a CPU array."""
    platforms = {device.platform for device in array.devices()}
    if platforms != {"cpu"}:
        raise DeviceError(f"field {label} is on {sorted(platforms)}; expected an array on the CPU: use jax.device_get")
    return _native.borrow(array, label)


def address(array: Any, label: str) -> tuple[Any, ...]:
    """Return the identity and the shape of an array: JAX arrays never move."""
    return id(array), tuple(array.shape)


def require(dtype: str, label: str) -> None:
    """Accept every type: JAX narrows 64-bit ones unless ``jax_enable_x64`` is set, as it does everywhere."""


def views(tensor: _native.Tensor) -> Sequence[Any]:
    """Cut ``[batches, samples, ...]`` into batches, each an import of its own: JAX has no views.

    A batch is compact and 64-byte aligned, so JAX takes it without a copy and keeps its block alive.
    """
    return [jax.dlpack.from_dlpack(tensor.index(place)) for place in range(len(tensor))]


def view(tensor: _native.Tensor) -> Any:
    """Take a tensor of the engine as an array."""
    return jax.dlpack.from_dlpack(tensor)


def patches(array: Any, length: int, stride: int) -> Any:
    """Cut ``[batch, steps, ...]`` into ``[batch, ..., patches, length]``: a copy, as JAX has no views."""
    starts = jax.numpy.arange(0, array.shape[1] - length + 1, stride)
    cut = array[:, starts[:, None] + jax.numpy.arange(length)]
    return jax.numpy.moveaxis(jax.numpy.moveaxis(cut, 2, -1), 1, -2)


def pad_front(array: Any, rows: int) -> Any:
    """Put rows of zeros before an array."""
    return jax.numpy.concatenate([jax.numpy.zeros((rows, *array.shape[1:]), array.dtype), array])


def own(array: Any, device: None) -> Any:
    """Return the array itself: JAX arrays are immutable."""
    return array


def element(dtype: str, value: Any) -> bytes:
    """Return the bytes of one value, as NumPy has it."""
    return numpy.element(dtype, value)
