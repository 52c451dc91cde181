"""torch tensors in and out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from numbers import Real
from typing import Any

import batchloom._native as _native
import numpy
import torch
from batchloom.errors import DataError, DeviceError, DTypeError
from torch.utils.dlpack import from_dlpack

TAKES_CAPSULES = True


def borrow(array: torch.Tensor, label: str) -> _native.Tensor:
    """Share the memory of a tensor; only describe one on another device than the CPU.

    Gradients are left behind; a lazy conjugate or negative is resolved.
    """
    if array.layout != torch.strided:
        raise DataError(f"field {label} has layout {array.layout}; expected a dense tensor: use .to_dense()")
    if device_of(array) is not None:
        return _native.Tensor.elsewhere(str(array.dtype).removeprefix("torch."), list(array.shape))
    tensor = _native.borrow(array.detach().resolve_conj().resolve_neg(), label)
    if f"torch.{tensor.dtype}" != str(array.dtype):
        raise DTypeError(f"field {label} is {array.dtype}, which would come out as {tensor.dtype}")
    return tensor


# The devices whose arrays have no values.
HOLLOW = frozenset({"meta"})


def device_of(array: torch.Tensor) -> torch.device | None:
    """Return the device of a tensor that is not in memory of the CPU."""
    return None if array.device.type == "cpu" else array.device


def on(array: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return an array on a device, as a new tensor: over the same memory where it is there already."""
    with torch.inference_mode(False):
        return array.detach().to(device)


def address(array: torch.Tensor, label: str) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the address and the layout of an array."""
    return array.data_ptr(), tuple(array.shape), array.stride()


def require(dtype: str, label: str) -> None:
    """Raise if torch has no such type, or does not take it from others."""
    if not _takes(dtype):
        raise DTypeError(
            f"field {label} is {dtype}, which torch {torch.__version__} does not take; expected another type, or a "
            "newer one"
        )


@cache
def _takes(dtype: str) -> bool:
    """Return whether torch has a type, and exchanges arrays of it by DLPack."""
    try:
        from_dlpack(torch.zeros(1, dtype=getattr(torch, dtype), device="cpu"))
    except (AttributeError, RuntimeError, TypeError):
        return False
    return True


def views(column: _native.Column) -> Sequence[torch.Tensor]:
    """Cut a column into batches that are tensors of their own.

    ``unsafe_split_with_sizes`` differs from ``split`` in two things. It takes two thirds of the time. And autograd
    takes its results for separate tensors, not for views of one. They are: batches do not overlap, so writing to one in
    place must not count as writing to all.
    """
    if torch.is_inference_mode_enabled():
        # The consumer asks for one batch; the others of the portion must not be marked by its mode.
        with torch.inference_mode(False):
            return views(column)
    joined = column.split()
    if joined is not None:
        samples, lengths = joined
        return from_dlpack(samples).unsafe_split_with_sizes(lengths)
    return [batch for run in column.runs for batch in cut(from_dlpack(run))]


def cut(array: torch.Tensor) -> Sequence[torch.Tensor]:
    """Cut ``[batches, samples, ...]`` into its batches, which are compact."""
    if array.is_contiguous():
        return array.flatten(0, 1).unsafe_split_with_sizes([array.shape[1]] * len(array))
    return [batch.squeeze(0) for batch in array.unsafe_split_with_sizes([1] * len(array))]


def view(capsule: Any) -> torch.Tensor:
    """Take a DLPack capsule as a tensor."""
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(False):
            return from_dlpack(capsule)
    return from_dlpack(capsule)


def windows(array: torch.Tensor, steps: int) -> torch.Tensor:
    """Return each run of ``steps`` rows, ``[runs, steps, ...]``, over the memory of ``array``."""
    return array.unfold(0, steps, 1).movedim(-1, 1)


def patches(array: torch.Tensor, length: int, stride: int) -> torch.Tensor:
    """Cut ``[batch, steps, ...]`` into ``[batch, ..., patches, length]``, over the same memory."""
    return array.unfold(1, length, stride).movedim(1, -2)


def pad_rows(array: torch.Tensor, before: int, after: int) -> torch.Tensor:
    """Put rows of zeros before an array, and after it."""
    zeros = array.new_zeros((before + after, *array.shape[1:]))
    return torch.cat([zeros[:before], array, zeros[before:]])


def repeated(row: torch.Tensor, samples: int) -> torch.Tensor:
    """Repeat a row in its own memory."""
    return row.expand(samples, *row.shape)


def ones(samples: int, steps: int, device: torch.device | None) -> torch.Tensor:
    """Return a tensor of True in the memory of one element."""
    # Not on torch's default device, which may be another one.
    return torch.ones(1, 1, dtype=torch.bool, device=device or "cpu").expand(samples, steps)


def weights(index: torch.Tensor) -> torch.Tensor:
    """Return 1 for each sample, 0 for each place of a batch that only fills up."""
    return (index >= 0).to(torch.float32)


def sparse_rows(width: int, is_matrix: bool) -> Callable[..., torch.Tensor]:
    """Return a function that makes a matrix of the bounds of rows, their columns, and the values."""

    def make(bounds: torch.Tensor, columns: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_csr_tensor(bounds, columns, values, (len(bounds) - 1, width), check_invariants=False)

    return make


def own(array: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    """Copy an array, to a device or where it is: compact, and fit for training whatever the consumer's mode."""
    with torch.inference_mode(False):
        return array.to(array.device if device is None else device, copy=True, memory_format=torch.contiguous_format)


def is_repeated(array: torch.Tensor) -> bool:
    """Return whether rows share one memory, and may be written to."""
    return len(array) > 1 and array.stride(0) == 0


def bits(array: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each row, ``[rows, bytes]``: a view of an array that is compact, otherwise a copy."""
    rows = array.detach().contiguous().view(len(array), math.prod(array.shape[1:]))
    if rows.stride(-1) != 1:  # of a single element, torch takes any stride for compact
        rows = rows.clone(memory_format=torch.contiguous_format)
    return rows.view(torch.uint8)


def differences(found: torch.Tensor, expected: torch.Tensor) -> numpy.ndarray[Any, Any]:
    """Return the number of elements of each row that differ."""
    return (found != expected).sum(1).cpu().numpy()


def accelerator(device: Any) -> torch.device | None:
    """Return a device of torch, with its number.

    Raises:
        DeviceError: torch cannot make arrays on the device.
    """
    try:
        return torch.empty(0, device=torch.device(device)).device
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise DeviceError(f"device is {device!r}, on which torch cannot make arrays: {reason}") from None


def free_memory(device: torch.device) -> int | None:
    """Return the free bytes on a device; ``None`` where it cannot tell."""
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    if device.type not in ("cuda", "xpu"):
        return None
    module = torch.get_device_module(device)
    # Memory that torch holds in reserve, unused, is free too.
    reserve: int = module.memory_reserved(device) - module.memory_allocated(device)
    try:
        free: int = module.mem_get_info(device)[0]
    except RuntimeError:
        return None  # as some drivers of XPU cannot tell
    return free + reserve


def element(dtype: str, value: Any) -> bytes:
    """Return the bytes of one value of a type of floats; a number that the type rounds is rounded.

    Raises:
        TypeError: The value is not a number.
        ValueError: The value is outside the range of the type.
    """
    if not isinstance(value, Real):
        raise TypeError("expected a number")
    tensor = torch.tensor([float(value)], dtype=torch.float64, device="cpu").to(getattr(torch, dtype))
    if math.isfinite(value) and not math.isfinite(tensor.item()):
        raise ValueError(f"it would be {tensor.item()}")
    return bytes(tensor.view(torch.uint8).tolist())
