"""torch tensors in and out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from numbers import Real
from typing import Any

import batchloom._native as _native
import numpy
import torch
from batchloom.arrays.pickling import Bits
from batchloom.errors import DataError, DeviceError, DTypeError
from torch.utils.dlpack import from_dlpack

TAKES_CAPSULES = True
PICKLES_STORAGE = True
HAS_VIEWS, HAS_BACKWARD_VIEWS = True, False
HAS_SPARSE_ROWS = True
HAS_DEVICES, HAS_PLACES = True, False

# The types that torch pickles by a class of storage that it does not have, and integers as wide.
UNPICKLED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}

SPARSE_LAYOUTS = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_coo)


def owns(array: Any) -> bool:
    """Return whether an object is a tensor of torch."""
    return isinstance(array, torch.Tensor)


def borrow(array: torch.Tensor, label: str) -> _native.Tensor:
    """Share the memory of a tensor; only describe one on another device than the CPU.

    Gradients are left behind; a lazy conjugate or negative is resolved.
    """
    if array.layout != torch.strided:
        raise DataError(f"field {label} has layout {array.layout}; expected a dense tensor: use .to_dense()")
    if device_of(array) is not None:
        return _native.Tensor.elsewhere(_name(array.dtype), list(array.shape))
    tensor = _native.borrow(to_plain(array), label)
    if tensor.dtype != _name(array.dtype):
        raise DTypeError(f"field {label} is {array.dtype}, which would come out as {tensor.dtype}")
    return tensor


@cache
def _name(dtype: torch.dtype) -> str:
    """Return the name of a type as the engine has it."""
    return str(dtype).removeprefix("torch.")


# The devices whose arrays have no values.
HOLLOW = frozenset({"meta"})


def device_of(array: torch.Tensor) -> torch.device | None:
    """Return the device of a tensor that is not in memory of the CPU."""
    return None if array.device.type == "cpu" else array.device


def on(array: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return an array on a device, as a new tensor: over the same memory where it is there already."""
    with torch.inference_mode(False):
        return array.detach().to(device)


def to_plain(array: torch.Tensor) -> torch.Tensor:
    """Return a tensor without its gradients; a lazy conjugate or negative is resolved."""
    return array.detach().resolve_conj().resolve_neg()


def to_host(array: torch.Tensor) -> torch.Tensor:
    """Return a tensor in memory of the CPU: the tensor itself where it is there.

    Raises:
        NotImplementedError: The device has no values.
    """
    return array.cpu()


def was_shared(array: torch.Tensor, address: tuple[Any, ...]) -> bool:
    """Return whether a tensor that had this address was moved to memory that processes share, as it was."""
    # Most tensors are where they were: without a look at their layout.
    return array.data_ptr() != address[0] and (array.shape, array.stride()) == address[1:] and array.is_shared()


def can_change(array: torch.Tensor) -> bool:
    """Return that any tensor may be given other memory: resized, set, or moved to where processes share it."""
    return True


def address(array: torch.Tensor, label: str) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the address and the layout of an array."""
    # A torch.Size is a tuple. To make another one takes longer than all else here, and each epoch asks several times.
    return array.data_ptr(), array.shape, array.stride()


def require(dtype: str, label: str) -> None:
    """Raise if torch has no such type, or cannot import it."""
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
    """Cut a column into batches, each an own tensor.

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


def view(tensor: Any) -> torch.Tensor:
    """Take a DLPack capsule of a tensor of the engine as a tensor of torch."""
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(False):
            return from_dlpack(tensor)
    return from_dlpack(tensor)


def windows(array: torch.Tensor, steps: int) -> torch.Tensor:
    """Return each run of ``steps`` rows, ``[runs, steps, ...]``, over the memory of ``array``."""
    return array.unfold(0, steps, 1).movedim(-1, 1)


def slices(array: torch.Tensor, places: tuple[int, int, int, int, int]) -> Sequence[torch.Tensor]:
    """Return slices of an array, which ``places`` names: views, cut at once, in about half the time of slicing."""
    if torch.is_inference_mode_enabled():
        # The consumer asks for one slice; the others must not be marked by its mode.
        with torch.inference_mode(False):
            return slices(array, places)
    first, rows, every, distance, count = places
    size, (step, *strides) = array.shape[1:], array.stride()
    together = (distance * step, every * step, *strides)
    return array.as_strided((count, rows, *size), together, array.storage_offset() + first * step).unbind(0)


def patches(array: torch.Tensor, length: int, stride: int) -> torch.Tensor:
    """Cut ``[batch, steps, ...]`` into ``[batch, ..., patches, length]``, over the same memory."""
    return array.unfold(1, length, stride).movedim(1, -2)


def pad_rows(array: torch.Tensor, before: int, after: int) -> torch.Tensor:
    """Put rows of zeros before an array, and after it."""
    zeros = array.new_zeros((before + after, *array.shape[1:]))
    return torch.cat([zeros[:before], array, zeros[before:]])


def repeat(row: torch.Tensor, samples: int) -> torch.Tensor:
    """Repeat a row in its own memory."""
    return row.expand(samples, *row.shape)


def ones(samples: int, steps: int, device: torch.device | None) -> torch.Tensor:
    """Return a tensor of True in the memory of one element."""
    # Not on torch's default device, which may be another one.
    return torch.ones(1, 1, dtype=torch.bool, device=device or "cpu").expand(samples, steps)


def weights(index: torch.Tensor) -> torch.Tensor:
    """Return 1 for each sample, 0 for each place of a batch that only fills up."""
    return (index >= 0).to(torch.float32)


def is_sparse(value: Any) -> bool:
    """Return whether an object is a sparse tensor, in any format."""
    return isinstance(value, torch.Tensor) and value.layout in SPARSE_LAYOUTS


def sparse_parts(matrix: torch.Tensor, label: str) -> tuple[Any, Any, Any, tuple[int, ...]]:
    """Return the values, the columns, the bounds of rows and the shape of a sparse tensor.

    Raises:
        DataError: The layout is another one than ``torch.sparse_csr``, or the tensor is no matrix of numbers.
        DeviceError: The tensor is not in memory of the CPU.
    """
    if matrix.layout != torch.sparse_csr:
        raise DataError(
            f"field {label} has layout {matrix.layout}; expected torch.sparse_csr: use .to_sparse_csr(), or .to_dense()"
        )
    if device_of(matrix) is not None:
        raise DeviceError(
            f"field {label} is a sparse matrix on {matrix.device}; expected it in memory of the CPU: use .cpu(), and "
            "device= moves its rows"
        )
    matrix = matrix.detach()
    if matrix.ndim != 2 or matrix.values().ndim != 1:
        raise DataError(
            f"field {label} has shape {tuple(matrix.shape)} and values of shape {tuple(matrix.values().shape)}; "
            "expected one matrix of numbers"
        )
    return matrix.values(), matrix.col_indices(), matrix.crow_indices(), tuple(matrix.shape)


def sparse_rows(width: int, is_matrix: bool) -> Callable[..., torch.Tensor]:
    """Return a function that makes a matrix of the bounds of rows, their columns, and the values."""

    def make(bounds: torch.Tensor, columns: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_csr_tensor(bounds, columns, values, (len(bounds) - 1, width), check_invariants=False)

    return make


def own(array: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    """Copy an array, to a device or where it is: compact, and fit for training whatever the consumer's mode."""
    with torch.inference_mode(False):
        return array.to(array.device if device is None else device, copy=True, memory_format=torch.contiguous_format)


def copy(array: torch.Tensor) -> torch.Tensor:
    """Copy a tensor where it is, without its gradients."""
    return array.detach().clone()


def concatenate(arrays: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join tensors along their first dimension."""
    return torch.cat(list(arrays))


def take(array: torch.Tensor, places: _native.Tensor) -> torch.Tensor:
    """Return the rows of a tensor at places."""
    return array[from_dlpack(places).to(array.device)]


def values(array: torch.Tensor) -> Iterator[tuple[str, numpy.ndarray[Any, Any]]]:
    """Yield the values of a tensor; of a sparse one, the bounds of its rows, the columns, and the values.

    A type that NumPy lacks is yielded as bytes, beside its name and the shape.
    """
    array = array.detach()
    if array.layout == torch.sparse_csr:
        for name in ("crow_indices", "col_indices", "values"):
            for text, part in values(getattr(array, name)()):
                yield f"/{name}{text}", part
        return
    array = array.cpu()
    try:
        plain_values, text = array.numpy(), ""
    except TypeError:
        plain_values = array.contiguous().reshape(-1).view(torch.uint8).numpy()
        text = f":{array.dtype}:{tuple(array.shape)}"
    yield text, plain_values


def to_pickle(array: torch.Tensor) -> Any:
    """Return the bits of a tensor as integers, where torch cannot pickle its type; otherwise the tensor itself."""
    name = str(array.dtype).removeprefix("torch.")
    integers = "int8" if name.startswith("float8") else UNPICKLED.get(name)
    return array if integers is None else Bits(array.detach().view(getattr(torch, integers)), name)


def is_repeated(array: torch.Tensor) -> bool:
    """Return whether rows share one memory, and may be written to."""
    return len(array) > 1 and array.stride(0) == 0


def bits(array: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each row, ``[rows, bytes]``: a view of an array that is compact, otherwise a copy."""
    rows = array.detach().contiguous().view(len(array), math.prod(array.shape[1:]))
    if rows.stride(-1) != 1:  # of a single element, torch takes any stride for compact
        rows = rows.clone(memory_format=torch.contiguous_format)
    return rows.view(torch.uint8)


def differences(array: torch.Tensor, expected: torch.Tensor) -> numpy.ndarray[Any, Any]:
    """Return the number of elements of each row that differ."""
    return (array != expected).sum(1).cpu().numpy()


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
    """Return the free bytes on a device; ``None`` where the device does not report them."""
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
