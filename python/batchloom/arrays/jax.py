"""JAX arrays in, from the CPU, and out, to the CPU, another device, or a sharding."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import batchloom._native as _native
import jax
import numpy as np
from batchloom.arrays import numpy
from batchloom.errors import ArgumentError, DataError, DeviceError

TAKES_CAPSULES = False
PICKLES_STORAGE = False
HAS_VIEWS = HAS_BACKWARD_VIEWS = HAS_SPARSE_ROWS = HAS_DEVICES = False
HAS_PLACES = True

# The types that JAX lacks unless jax_enable_x64 is set.
WIDE = ("int64", "uint64", "float64", "complex128")

_warned: set[str] = set()


def owns(array: Any) -> bool:
    """Return whether an object is an array of JAX."""
    return isinstance(array, jax.Array)


def borrow(array: Any, label: str) -> _native.Tensor:
    """Share the memory of an array on the CPU."""
    devices = sorted(map(str, array.devices()))
    if len(devices) > 1:
        raise DeviceError(
            f"field {label} is sharded over {len(devices)} devices; expected one array: use jax.device_get"
        )
    if devices != [str(jax.local_devices(backend="cpu")[0])]:
        raise DeviceError(
            f"field {label} is on {devices[0]}; expected an array on the first device of the CPU: use jax.device_get"
        )
    return _native.borrow(array, label)


def address(array: Any, label: str) -> tuple[Any, ...]:
    """Return the identity and the shape of an array: JAX arrays never move."""
    return id(array), tuple(array.shape)


def was_shared(array: Any, address: tuple[Any, ...]) -> bool:
    """Return ``False``: JAX keeps its arrays to its process."""
    return False


def can_change(array: Any) -> bool:
    """Return that arrays of JAX keep their memory."""
    return False


def require(dtype: str, label: str) -> None:
    """Accept every type, and warn once in a process where JAX narrows one."""
    narrowed = _find_narrower_type(dtype)
    if narrowed is None or _warned:
        return
    _warned.add(label)
    warnings.warn(
        f"field {label} is {dtype}, of which JAX makes {narrowed}; a number that does not fit is an error. Set "
        "jax_enable_x64 to keep types of 64 bits. (This is said once.)",
        UserWarning,
        stacklevel=2,
    )


def views(column: _native.Column) -> Sequence[Any]:
    """Cut a column into batches, each an import of its own: JAX has no views.

    A batch is compact and 64-byte aligned, so JAX takes it without a copy and keeps its block alive.
    """
    return [batch for run in column.runs for batch in _batches(run)]


def _batches(run: _native.Tensor) -> Sequence[Any]:
    narrowed = _find_narrower_type(run.dtype)
    if narrowed is not None:
        return [jax.numpy.asarray(batch) for batch in _narrow(run, narrowed)]
    return [jax.dlpack.from_dlpack(run.index(place)) for place in range(len(run))]


def view(tensor: _native.Tensor) -> Any:
    """Take a tensor of the engine as an array."""
    narrowed = _find_narrower_type(tensor.dtype)
    return jax.dlpack.from_dlpack(tensor) if narrowed is None else jax.numpy.asarray(_narrow(tensor, narrowed))


def _find_narrower_type(dtype: str) -> str | None:
    """Return the type that JAX takes instead of ``dtype``; ``None`` if it has that type."""
    narrower = str(jax.dtypes.canonicalize_dtype(dtype)) if dtype in WIDE else dtype
    return None if narrower == dtype else narrower


def _narrow(tensor: _native.Tensor, dtype: str) -> np.ndarray[Any, Any]:
    """Return the numbers of a tensor in a narrower type.

    Raises:
        DataError: A number does not fit.
    """
    wide = np.from_dlpack(tensor)
    with np.errstate(over="ignore"):
        narrow = wide.astype(dtype)
    # Integers wrap round, and finite numbers become infinite.
    differs = narrow != wide if wide.dtype.kind in "iu" else np.isfinite(wide) & ~np.isfinite(narrow)
    if differs.any():
        value = wide[differs].flat[0]
        raise DataError(
            f"a batch holds {value} of type {tensor.dtype}, which {dtype} does not hold; expected numbers that fit "
            "what JAX has without jax_enable_x64: set it, or change the data"
        )
    return narrow


def patches(array: Any, length: int, stride: int) -> Any:
    """Cut ``[batch, steps, ...]`` into ``[batch, ..., patches, length]``: a copy, as JAX has no views."""
    starts = jax.numpy.arange(0, array.shape[1] - length + 1, stride)
    cut = array[:, starts[:, None] + jax.numpy.arange(length)]
    return jax.numpy.moveaxis(jax.numpy.moveaxis(cut, 2, -1), 1, -2)


def pad_rows(array: Any, before: int, after: int) -> Any:
    """Put rows of zeros before an array, and after it."""
    zeros = jax.numpy.zeros((before + after, *array.shape[1:]), array.dtype)
    return jax.numpy.concatenate([zeros[:before], array, zeros[before:]])


def own(array: Any, device: None) -> Any:
    """Return the array itself: JAX arrays are immutable."""
    return array


def copy(array: Any) -> Any:
    """Return the array itself: JAX arrays are immutable."""
    return array


def to_plain(array: Any) -> Any:
    """Return the array itself."""
    return array


def device_of(array: Any) -> None:
    """Return ``None``: only arrays on the CPU are borrowed."""


def to_host(array: Any) -> Any:
    """Return the array itself, which NumPy reads wherever it is."""
    return array


def values(array: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the values of an array."""
    yield "", np.asarray(array)


def concatenate(arrays: Sequence[Any]) -> Any:
    """Join arrays along their first dimension."""
    return jax.numpy.concatenate(arrays)


def take(array: Any, places: _native.Tensor) -> Any:
    """Return the rows of an array at places."""
    return array[np.from_dlpack(places)]


def to_pickle(array: Any) -> Any:
    """Return the array itself."""
    return array


def element(dtype: str, value: Any) -> bytes:
    """Return the bytes of one value, as NumPy has it."""
    return numpy.element(dtype, value)


def is_device(device: Any) -> bool:
    """Return whether ``device`` is a device of JAX."""
    return isinstance(device, jax.Device)


def is_sharding(place: Any) -> bool:
    """Return whether a place is a sharding of JAX."""
    return isinstance(place, jax.sharding.Sharding)


def require_sharding(sharding: Any, name: str) -> Any:
    """Return a sharding.

    Raises:
        ArgumentError: It is something else.
    """
    if isinstance(sharding, jax.sharding.Sharding):
        return sharding
    raise ArgumentError(f"the sharding of field {name} is {sharding!r}; expected a jax.sharding.Sharding")


def processes(sharding: Any) -> int:
    """Return the number of processes that a sharding spans."""
    return len({device.process_index for device in sharding.device_set})


def mover(device: Any) -> Callable[[Any], Any]:
    """Return a function that takes arrays of the CPU to a device, beside what that computes."""
    return lambda array: jax.device_put(array, device)


def sharder(sharding: Any, name: str) -> Callable[[Any], Any]:
    """Return a function that makes a global array of the batches of all processes, sharded.

    Batches of all processes lie one after the other along the first dimension of the global array.
    """
    make: Callable[[Any, Any], Any] = jax.make_array_from_process_local_data

    def shard(array: Any) -> Any:
        try:
            return make(sharding, np.asarray(array))
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise ArgumentError(
                f"field {name} of a batch has shape {tuple(array.shape)}, which {sharding} does not divide ({reason}); "
                "use a batch_size that it divides, and drop_last=True"
            ) from None

    return shard
