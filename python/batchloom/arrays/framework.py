"""The protocol of a framework of arrays: all facts and functions that a file such as ``arrays/torch.py`` has.

A framework is one module, which imports the package that it is named for. Every framework answers :class:`Arrays`. A
fact that begins with ``HAS_`` is true if it also has the functions of :class:`Views`, :class:`SparseRows`,
:class:`Devices` or :class:`Places`: callers ask for the fact before they call such a function. ``frameworks.py`` is the
registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import batchloom._native as _native
import numpy


class Arrays(Protocol):
    """The facts and functions that every framework has."""

    TAKES_CAPSULES: bool
    """``True`` if :meth:`view` takes a DLPack capsule instead of a tensor of the engine."""

    PICKLES_STORAGE: bool
    """``True`` if the pickle of a few rows of an array holds all rows of the array."""

    HAS_VIEWS: bool
    """``True`` if arrays can be strided views on the memory of other arrays."""

    HAS_BACKWARD_VIEWS: bool
    """``True`` if such views can run backwards in memory."""

    HAS_SPARSE_ROWS: bool
    """``True`` if there are sparse matrices whose rows lie together."""

    HAS_DEVICES: bool
    """``True`` if batches can be gathered and formed on the framework's devices."""

    HAS_PLACES: bool
    """``True`` if the framework itself takes batches to a device, or to several devices by a sharding."""

    def owns(self, array: Any) -> bool:
        """Return whether an object is an array of the framework."""

    def borrow(self, array: Any, label: str) -> _native.Tensor:
        """Share the memory of an array with the engine; only describe an array on a device.

        Raises:
            DataError: The layout of the array is not dense.
            DeviceError: The engine cannot read the memory of the array.
            DTypeError: The engine does not know the type of the array.
        """

    def address(self, array: Any, label: str) -> tuple[Any, ...]:
        """Return the address of an array, and its layout behind it.

        Raises:
            DataError: The array lies in a file that was truncated.
        """

    def was_shared(self, array: Any, address: tuple[Any, ...]) -> bool:
        """Return whether an array that had this address was moved to memory that processes share, as it was."""

    def require(self, dtype: str, label: str) -> None:
        """Check that the framework has an element type.

        Raises:
            DTypeError: It does not have the type.
        """

    def views(self, column: _native.Column) -> Sequence[Any]:
        """Cut a column of a block into one array for each batch."""

    def view(self, tensor: Any) -> Any:
        """Return a tensor of the engine, or a capsule of it, as one array over the same memory."""

    def element(self, dtype: str, value: Any) -> bytes:
        """Return the bytes of one value; a number that the type rounds is rounded.

        Raises:
            TypeError: The value is not a number that the type could hold.
            ValueError: The value is outside the range of the type.
        """

    def patches(self, array: Any, length: int, stride: int) -> Any:
        """Cut ``[batch, steps, ...]`` into ``[batch, ..., patches, length]``."""

    def pad_rows(self, array: Any, before: int, after: int) -> Any:
        """Put rows of zeros before an array, and after it."""

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        """Join arrays along their first dimension."""

    def take(self, array: Any, places: _native.Tensor) -> Any:
        """Return the rows of an array at places, in the order of the places."""

    def own(self, array: Any, device: Any) -> Any:
        """Copy an array for the consumer, to a device or where it is; an immutable array is returned as it is."""

    def copy(self, array: Any) -> Any:
        """Copy an array where it is, without its gradients; an immutable array is returned as it is."""

    def to_plain(self, array: Any) -> Any:
        """Return an array without its gradients, with all values computed and in memory."""

    def can_change(self, array: Any) -> bool:
        """Return whether an array may lose its memory, as by a resize, or where the file of a map is cut."""

    def device_of(self, array: Any) -> Any:
        """Return the device of an array; ``None`` for memory of the CPU."""

    def to_host(self, array: Any) -> Any:
        """Return an array in memory of the CPU: the array itself where it is there.

        Raises:
            NotImplementedError: The device has no values.
        """

    def values(self, array: Any) -> Iterator[tuple[str, numpy.ndarray[Any, Any]]]:
        """Yield the parts of an array as arrays of NumPy, each with a text that names the part."""

    def to_pickle(self, array: Any) -> Any:
        """Return the object that a pickle holds instead of an array; mostly the array itself."""


class Views(Protocol):
    """The functions of frameworks with ``HAS_VIEWS``, whose arrays can be strided views."""

    def windows(self, array: Any, steps: int) -> Any:
        """Return each run of ``steps`` rows, ``[runs, steps, ...]``, over the memory of ``array``."""

    def slices(self, array: Any, places: tuple[int, int, int, int, int]) -> Sequence[Any]:
        """Return slices of an array along its first dimension: views.

        ``places`` has the first row, the rows of a slice, the rows from one of them to the next, the rows from a slice
        to the next, and the number of slices.
        """

    def repeat(self, row: Any, samples: int) -> Any:
        """Repeat a row in its own memory."""

    def is_repeated(self, array: Any) -> bool:
        """Return whether rows share one memory, and may be written to."""

    def ones(self, samples: int, steps: int, device: Any) -> Any:
        """Return an array of ``True`` in the memory of one element."""

    def weights(self, index: Any) -> Any:
        """Return 1 for each sample, 0 for each place of a batch that only fills up."""

    def bits(self, array: Any) -> Any:
        """Return the bytes of each row, ``[rows, bytes]``: a view of an array that is compact, otherwise a copy."""

    def differences(self, array: Any, expected: Any) -> numpy.ndarray[Any, Any]:
        """Return the number of elements of each row that differ."""


class SparseRows(Protocol):
    """The functions of frameworks with ``HAS_SPARSE_ROWS``."""

    def is_sparse(self, value: Any) -> bool:
        """Return whether an object is a sparse matrix, in any format."""

    def sparse_parts(self, matrix: Any, label: str) -> tuple[Any, Any, Any, tuple[int, ...]]:
        """Return the values, the columns, the bounds of rows and the shape of a matrix.

        Raises:
            DataError: The matrix is in another format than CSR.
            DeviceError: The matrix is not in memory of the CPU.
        """

    def sparse_rows(self, width: int, is_matrix: bool) -> Callable[..., Any]:
        """Return a function that makes a matrix of the bounds of rows, their columns, and the values.

        Raises:
            ArgumentError: The package with the matrices is not installed.
        """


class Devices(Protocol):
    """The functions of a framework with ``HAS_DEVICES``."""

    HOLLOW: frozenset[str]
    """The kinds of devices where arrays have no values."""

    def accelerator(self, device: Any) -> Any:
        """Return a device, with its number.

        Raises:
            DeviceError: The framework cannot make arrays on the device.
        """

    def free_memory(self, device: Any) -> int | None:
        """Return the free bytes on a device; ``None`` where the device does not report them."""

    def on(self, array: Any, device: Any) -> Any:
        """Return an array on a device, as a new array: over the same memory where it is there already."""


class Places(Protocol):
    """The functions of a framework with ``HAS_PLACES``."""

    def is_device(self, device: Any) -> bool:
        """Return whether an object is a device of the framework."""

    def is_sharding(self, place: Any) -> bool:
        """Return whether an object is a sharding of the framework."""

    def require_sharding(self, sharding: Any, name: str) -> Any:
        """Return the sharding of a field.

        Raises:
            ArgumentError: It is something else.
        """

    def processes(self, sharding: Any) -> int:
        """Return the number of processes that a sharding spans."""

    def mover(self, device: Any) -> Callable[[Any], Any]:
        """Return a function that takes arrays of the CPU to a device, beside what that computes."""

    def sharder(self, sharding: Any, name: str) -> Callable[[Any], Any]:
        """Return a function that makes a global array of the batches of all processes, sharded.

        Batches of all processes lie one after the other along the first dimension of the global array.
        """


class Framework(Arrays, Views, SparseRows, Devices, Places, Protocol):
    """All that a framework may answer: the functions of a group beside :class:`Arrays` only where its fact says so."""
