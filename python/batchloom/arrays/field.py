"""Fields of datasets: arrays of the user, borrowed by the engine and lent to frameworks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy
from batchloom._native import Tensor
from batchloom.arrays.frameworks import DEVICE_FRAMEWORK, framework_of, load, owner
from batchloom.errors import DataError, DeviceError, DTypeError, Error

if TYPE_CHECKING:
    from batchloom.arrays.framework import Framework

MOST_DIMENSIONS = 62


class BorrowedArray:
    """One field of a dataset: the array of the user, and its memory as the engine sees it."""

    def __init__(self, label: str, array: Any) -> None:
        self.label = label
        self.array = array
        self.framework = framework_of(label, array)
        self._module = load(self.framework)
        self.device = self._module.device_of(array)
        self.tensor = _borrow(self._module, array, label)
        self.can_change = self._module.can_change(array)
        self._address = self._module.address(array, label)
        # Most fields never move: without such copies there is no dictionary of them.
        self._moved: WeakValueDictionary[Any, Any] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.tensor)

    def check(self) -> None:
        """Raise if the array was resized or moved since it was borrowed."""
        if not self.can_change:
            return
        address = self._module.address(self.array, self.label)
        if address == self._address:
            return
        if self.was_shared:
            raise DataError(
                f"field {self.label} was moved to memory that processes share, in the middle of an iteration, as torch "
                "does when it sends a tensor to one; expected to start such processes, or to call share_memory_(), "
                "before the iteration begins: the next one takes the field where it is"
            )
        raise DataError(
            f"field {self.label} was resized or moved: it had (address, shape, strides) {_plain(self._address)} when "
            f"the dataset was made and has {_plain(address)} now; make a new dataset after changing it"
        )

    @property
    def was_shared(self) -> bool:
        """``True`` if torch has moved the array to memory that processes share: the same values, elsewhere."""
        if self.device is not None or not self.can_change:
            return False
        return self._module.was_shared(self.array, self._address)

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
        """Return whether the array, or a copy of it that is in use, is on a device."""
        return self.device == device or (self._moved is not None and device in self._moved)

    def on(self, device: Any) -> Any:
        """Return the array on a device: the array itself where it is there, otherwise a copy.

        Callers share the copy: as long as one of them holds it, no other is made.
        """
        if self.device is not None:
            return self._module.to_plain(self.array)
        if self._moved is None:
            self._moved = WeakValueDictionary()
        copy = self._moved.get(device)
        if copy is None:
            copy = self._moved[device] = load(DEVICE_FRAMEWORK).on(self.tensors(slice(None)), device)
        return copy

    def tensors(self, rows: Any) -> Any:
        """Return some rows of the array as the framework of devices has them: a copy where it has no view.

        Args:
            rows: A slice, or an array of rows.
        """
        if not self.tensor.is_backward:
            return lend(self.tensor, DEVICE_FRAMEWORK)[rows]
        return lend_to_devices(self._make_indexable()[rows], self.label)

    def row(self, sample: int) -> Any:
        """Return one row of the array."""
        return self._make_indexable()[sample]

    def slice(self, start: int, end: int) -> Any:
        """Return some rows of the array."""
        return self._make_indexable()[start:end]

    def narrow(self, start: int, end: int) -> Any:
        """Return some rows as an array that a dataset takes, over the same memory."""
        return self.slice(start, end)

    def part(self, start: int, end: int) -> Any:
        """Return some rows of the array, for a pickle that holds no other rows."""
        rows = self.slice(start, end)
        return self._module.copy(rows) if self._module.PICKLES_STORAGE else rows

    def _make_indexable(self) -> Any:
        return self.array if hasattr(self.array, "__getitem__") else numpy.from_dlpack(self.array)

    def __repr__(self) -> str:
        return f"{self.label}: {self.tensor.dtype}{self.tensor.shape}"


def _plain(address: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an address as messages print it: frameworks have shapes of types of their own."""
    return tuple(tuple(part) if isinstance(part, tuple) else part for part in address)


def share(array: Any, label: str) -> Tensor:
    """Share the memory of an array with the engine.

    Raises:
        DataError: It is no array, or has too many dimensions.
        DTypeError: The engine does not know its type.
    """
    return _borrow(load(framework_of(label, array)), array, label)


def _borrow(framework: Framework, array: Any, label: str) -> Tensor:
    """Share the memory of an array; turn errors of a framework into errors of one line."""
    try:
        tensor = framework.borrow(array, label)
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
    """Return an array in memory of the CPU: the array itself, unless it is on a device.

    Raises:
        DeviceError: The device has no values that the CPU could read.
    """
    framework = owner(array)
    try:
        return array if framework is None else framework.to_host(array)
    except NotImplementedError as error:
        raise DeviceError(
            f"{label} must be read on the CPU, but is on {array.device}, which has no values to read: {error}"
        ) from None


def lend_to_devices(array: Any, label: str) -> Any:
    """Return an array as the framework of devices has it, which has no arrays that run backwards: a copy of those."""
    tensor = share(array, label)
    return lend(share(numpy.ascontiguousarray(array), label) if tensor.is_backward else tensor, DEVICE_FRAMEWORK)


def copy_array(array: Any, label: str) -> Any:
    """Return a copy of an array, in its framework."""
    return load(framework_of(label, array)).own(array, None)
