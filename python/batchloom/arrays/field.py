"""Fields of datasets: arrays of the user, borrowed by the engine and lent to frameworks."""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakValueDictionary

import numpy
from batchloom._native import Tensor
from batchloom.arrays.frameworks import framework_of, load
from batchloom.errors import DataError, DeviceError, DTypeError, Error

MOST_DIMENSIONS = 62


class Field:
    """One field of a dataset: the array of the user, and its memory as the engine sees it."""

    def __init__(self, label: str, array: Any) -> None:
        self.label = label
        self.array = array
        self.framework = framework_of(label, array)
        self._module = load(self.framework)
        self.device = load("torch").device_of(array) if self.framework == "torch" else None
        self.tensor = _borrow(self._module, array, label)
        self._address = self._module.address(array, label)
        self._moved: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self.mapped: int | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.tensor)

    def check(self) -> None:
        """Raise if the array was resized or moved since it was borrowed."""
        found = self._module.address(self.array, self.label)
        if self.was_shared:
            raise DataError(
                f"field {self.label} was moved to memory that processes share, in the middle of an iteration, as torch "
                "does when it sends a tensor to one; expected to start such processes, or to call share_memory_(), "
                "before the iteration begins: the next one takes the field where it is"
            )
        if found != self._address:
            raise DataError(
                f"field {self.label} was resized or moved: it had (address, shape, strides) {self._address} when the "
                f"dataset was made and has {found} now; make a new dataset after changing it"
            )

    @property
    def was_shared(self) -> bool:
        """``True`` if torch has moved the array to memory that processes share: the same values, elsewhere."""
        if self.framework != "torch" or self.device is not None or self.array.data_ptr() == self._address[0]:
            return False
        found = self._module.address(self.array, self.label)
        return found != self._address and found[1:] == self._address[1:] and bool(self.array.is_shared())

    @property
    def dtype(self) -> str:
        """The type of the elements."""
        return self.tensor.dtype

    @property
    def data(self) -> Any:
        """The array, as it was given."""
        return self.array

    @property
    def row_bytes(self) -> int:
        """The bytes of one row."""
        return self.tensor.nbytes // max(len(self.tensor), 1)

    def is_on(self, device: Any) -> bool:
        """Return whether the array, or a copy of it that is in use, is on a device of torch."""
        return self.device == device or device in self._moved

    def on(self, device: Any) -> Any:
        """Return the array on a device of torch: the array itself where it is there, otherwise a copy.

        Callers share the copy: as long as one of them holds it, no other is made.
        """
        if self.device is not None:
            return self.array.detach().resolve_conj().resolve_neg()
        found = self._moved.get(device)
        if found is None:
            found = self._moved[device] = load("torch").on(self.tensors(slice(None)), device)
        return found

    def tensors(self, rows: Any) -> Any:
        """Return some rows of the array as a tensor of torch: a copy where torch has no view.

        Args:
            rows: A slice, or an array of rows.
        """
        if not self.tensor.is_backward:
            return lend(self.tensor, "torch")[rows]
        # torch has no arrays that run backwards in memory.
        found = _borrow(self._module, numpy.ascontiguousarray(self._indexable()[rows]), self.label)
        return lend(found, "torch")

    def row(self, sample: int) -> Any:
        """Return one row of the array."""
        return self._indexable()[sample]

    def slice(self, start: int, end: int) -> Any:
        """Return some rows of the array."""
        return self._indexable()[start:end]

    def part(self, start: int, end: int) -> Any:
        """Return some rows of the array, for a pickle without others: tensors of torch pickle with their storage."""
        rows = self.slice(start, end)
        return rows.detach().clone() if self.framework == "torch" else rows

    def _indexable(self) -> Any:
        return self.array if hasattr(self.array, "__getitem__") else numpy.from_dlpack(self.array)

    def _native(self) -> Tensor:
        return self.tensor

    def __repr__(self) -> str:
        return f"{self.label}: {self.tensor.dtype}{self.tensor.shape}"


def share(array: Any, label: str) -> Tensor:
    """Share the memory of an array with the engine.

    Raises:
        DataError: It is no array, or has too many dimensions.
        DTypeError: The engine does not know its type.
    """
    return _borrow(load(framework_of(label, array)), array, label)


def _borrow(framework: Any, array: Any, label: str) -> Tensor:
    """Share the memory of an array; turn errors of a framework into errors of one line."""
    try:
        tensor: Tensor = framework.borrow(array, label)
    except Error:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        kind = f"{type(array).__name__} of type {getattr(array, 'dtype', None)}"
        refused = DataError if isinstance(error, ValueError | OverflowError) else DTypeError
        raise refused(f"field {label}, a {kind}, cannot be shared: {reason}") from error
    if len(tensor.shape) > MOST_DIMENSIONS:
        raise DataError(
            f"field {label} has {len(tensor.shape)} dimensions; expected at most {MOST_DIMENSIONS}, so that a block of "
            "batches has no more than the 64 that frameworks know"
        )
    return tensor


def lend(tensor: Tensor, framework: str) -> Any:
    """Return a tensor of the engine as one array of a framework, over the same memory."""
    functions = load(framework)
    return functions.view(tensor.__dlpack__() if functions.TAKES_CAPSULES else tensor)


def host(label: str, array: Any) -> Any:
    """Return an array in memory of the CPU: the array itself, unless it is a tensor of torch on another device.

    Raises:
        DeviceError: The device has no values that the CPU could read.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return array
    try:
        return array.cpu()
    except NotImplementedError as error:
        raise DeviceError(
            f"{label} must be read on the CPU, but is on {array.device}, which has no values to read: {error}"
        ) from None


def release(field: Field) -> None:
    """Unmap the pages that a memory map has read, once they are many; they stay in the cache of the system."""
    if field.framework == "numpy":
        field.mapped = load("numpy").release(field.array, field.mapped)


def owned(array: Any, label: str) -> Any:
    """Return a copy of an array, in its framework."""
    return load(framework_of(label, array)).own(array, None)
