"""Arrays in and out, by framework.

Each framework is one module with the same functions: ``borrow`` shares an array's memory with the engine (or describes
what torch has on another device), ``address`` says where that memory is, ``require`` raises where the framework lacks
an element type, ``views`` cuts a tensor of the engine ``[batches, samples, ...]`` into the framework's own arrays,
``view`` takes a tensor as one array (or a DLPack capsule of it, where the module says ``TAKES_CAPSULES``), ``element``
gives the bytes of one value, ``patches`` cuts the second dimension into patches, ``pad_front`` puts zeros before an
array, ``own`` copies one. Those whose arrays can be strided views also have ``windows`` and ``ones``. A framework is
imported when it is first needed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy
from batchloom._native import Tensor
from batchloom.errors import ArgumentError, DataError, DeviceError, DTypeError, Error

OUTPUTS = ("torch", "numpy", "jax")

# The field that says where samples of a packed batch begin, and what follows it: the size of the longest.
BOUNDARIES, LONGEST = "cu_seqlens", "max_seqlen"

MOST_DIMENSIONS = 62

Run = tuple[list[Tensor], int]
"""Batches of one shape: a tensor a field, each ``[batches, ...]``, and the size of the longest sample."""

Keys = list[tuple[str | None, Callable[[Any], Any] | None, bool]]
"""Of each key of a batch its name (``None`` in tuples), what takes its tensor, and whether that takes a DLPack capsule
instead."""

Columns = Sequence[tuple[str, str]]
"""The name and element type of each field that the engine makes."""

Split = Callable[[list[Run]], list[Any]] | Keys
"""Cuts runs into a list of batches, or says how the engine makes a dict of each."""


class Field:
    """One field of a dataset: the user's array, and its memory as the engine sees it."""

    def __init__(self, label: str, array: Any) -> None:
        self.label = label
        self.array = array
        self.framework = framework_of(label, array)
        self._module = _module(self.framework)
        self.device = _module("torch").device_of(array) if self.framework == "torch" else None
        self.tensor = _borrow(self._module, array, label)
        self._address = self._module.address(array, label)
        self._moved: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self.mapped: int | None = None

    def check(self) -> None:
        """Raise if the array no longer is where it was borrowed."""
        found = self._module.address(self.array, self.label)
        if found != self._address:
            raise DataError(
                f"field {self.label} was resized or moved: it had (address, shape, strides) {self._address} when the "
                f"dataset was made and has {found} now; make a new dataset after changing it"
            )

    @property
    def dtype(self) -> str:
        """The element's type."""
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
        """Whether the array, or a copy of it that somebody holds, is on a device of torch."""
        return self.device == device or device in self._moved

    def on(self, device: Any) -> Any:
        """Return the array on a device of torch: itself where it is there, else a copy.

        One for all who ask: as long as any of them holds it, no other is made.
        """
        if self.device is not None:
            return self.array.detach().resolve_conj().resolve_neg()
        found = self._moved.get(device)
        if found is None:
            found = self._moved[device] = _module("torch").on(self.tensors(slice(None)), device)
        return found

    def tensors(self, rows: Any) -> Any:
        """Return some rows of the array, a slice or an array of them, as torch has them: a copy where it must be."""
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

    def _indexable(self) -> Any:
        return self.array if hasattr(self.array, "__getitem__") else numpy.from_dlpack(self.array)

    def _native(self) -> Tensor:
        return self.tensor

    def __repr__(self) -> str:
        return f"{self.label}: {self.tensor.dtype}{self.tensor.shape}"


def _borrow(module: Any, array: Any, label: str) -> Tensor:
    """Share an array's memory; what a framework refuses becomes an error of ours, in one line."""
    try:
        tensor: Tensor = module.borrow(array, label)
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


@dataclass(frozen=True)
class Column:
    """One field of a batch: its name, the type of its elements, and the framework that its array is of."""

    name: str
    dtype: str
    framework: str


@dataclass(frozen=True)
class Schema:
    """What a batch holds.

    Attributes:
        columns: The fields, in order.
        named: Whether batches are dicts.
        ragged: Whether samples differ in size, so that every run is one batch.
        patches: The length of the patches that ``x`` is cut into, and the steps from one to the next, if it is.
    """

    columns: tuple[Column, ...]
    named: bool
    ragged: bool = False
    patches: tuple[int, int] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a batch that is a dict: where there are boundaries, the longest sample follows them."""
        keys = [column.name for column in self.columns]
        if BOUNDARIES in keys and self.ragged:
            keys.insert(keys.index(BOUNDARIES) + 1, LONGEST)
        return tuple(keys)

    def modules(self, output: str | None) -> list[Any]:
        """The functions of the framework of each field, or of ``output`` for all.

        Raises:
            ArgumentError: There is no such framework, or it is not installed.
            DTypeError: It lacks the type of a field.
        """
        return [require(output or column.framework, column.dtype, column.name) for column in self.columns]


def splitter(schema: Schema, output: str | None, copies: bool = False) -> Split:
    """Return what cuts runs into batches.

    Args:
        schema: What a batch holds.
        output: A framework for all fields, or ``None`` for that of each.
        copies: Whether patches are copies, which do not overlap.
    """
    modules = schema.modules(output)
    if schema.ragged:
        return _single(schema, modules)
    finish = finisher(schema, output, copies)

    def split(runs: list[Run]) -> list[Any]:
        found: list[Any] = []
        for tensors, _ in runs:
            found += finish([module.views(tensor) for module, tensor in zip(modules, tensors, strict=True)])
        return found

    return split


def finisher(schema: Schema, output: str | None, copies: bool) -> Callable[[list[Sequence[Any]]], list[Any]]:
    """Return what makes batches of the arrays of each field, one for each batch."""
    keys, place = schema.keys, schema.keys.index("x") if schema.patches else None
    modules = schema.modules(output)
    module: Any = None if place is None else modules[place]

    def finish(columns: list[Sequence[Any]]) -> list[Any]:
        if place is not None and schema.patches is not None:
            found = [module.patches(batch, *schema.patches) for batch in columns[place]]
            columns[place] = [module.own(patches, None) for patches in found] if copies else found
        batches = zip(*columns, strict=True)
        return [dict(zip(keys, batch, strict=True)) for batch in batches] if schema.named else list(batches)

    return finish


def lend(tensor: Tensor, framework: str) -> Any:
    """Return a tensor of the engine as one array of a framework, over the same memory."""
    module = _module(framework)
    return module.view(tensor.__dlpack__() if module.TAKES_CAPSULES else tensor)


def host(label: str, array: Any) -> Any:
    """Return an array in memory of the CPU: itself, unless it is a tensor of torch on another device.

    Raises:
        DeviceError: The device has no values that could be read.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(array, torch.Tensor):
        return array
    try:
        return array.cpu()
    except NotImplementedError as error:
        raise DeviceError(
            f"{label} has numbers on {array.device} that are needed on the CPU, which cannot read them: {error}"
        ) from None


def release(field: Field) -> None:
    """Let go of what a memory map has read into this process, once it is much; it stays in the system's cache."""
    if field.framework == "numpy":
        field.mapped = _module("numpy").release(field.array, field.mapped)


def owned(array: Any, label: str) -> Any:
    """Return a copy of an array, in its framework."""
    return _module(framework_of(label, array)).own(array, None)


def _single(schema: Schema, modules: list[Any]) -> Keys:
    """Return what makes a batch of each run of one batch."""
    keys: Keys = []
    for column, module in zip(schema.columns, modules, strict=True):
        keys.append((column.name if schema.named else None, module.view, module.TAKES_CAPSULES))
        if column.name == BOUNDARIES:
            keys.append((LONGEST, None, False))
    return keys


def known(framework: str) -> None:
    """Raise if there is no such framework."""
    if framework not in OUTPUTS:
        raise ArgumentError(f"output is {framework!r}; expected None or one of {', '.join(map(repr, OUTPUTS))}")


def require(framework: str, dtype: str, label: str) -> Any:
    """Return the module of a framework.

    A loader asks before any work, so that a framework that is missing, or lacks a type, shows at once.

    Raises:
        ArgumentError: There is no such framework, or it is not installed.
        DTypeError: It has no such type.
    """
    known(framework)
    module = _module(framework)
    module.require(dtype, label)
    return module


def pad_values(fields: dict[str, str], pad_value: Any) -> list[tuple[str, bytes]]:
    """Return the bytes of one element of padding, for each field where that is not zeros.

    Args:
        fields: The types of fields that are padded, by name.
        pad_value: One value for all, or values by name.

    Raises:
        ArgumentError: There is no such field, or its type does not have the value.
    """
    if not isinstance(pad_value, dict):
        if type(pad_value) is int and pad_value == 0:
            return []  # what every type has, and what the engine pads with
        pad_value = dict.fromkeys(fields, pad_value)
    for name in pad_value:
        if name not in fields:
            known = ", ".join(map(repr, fields))
            raise ArgumentError(f"pad_value names {name!r}; expected fields that are padded: {known}")
    return [(name, element(name, fields[name], value)) for name, value in pad_value.items()]


def element(label: str, dtype: str, value: Any) -> bytes:
    """Return the bytes of ``value`` as one element of type ``dtype``.

    Raises:
        ArgumentError: The type does not have that value.
    """
    try:
        return _element(dtype, value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ArgumentError(f"pad_value is {value!r}, which field {label} of {dtype} cannot hold: {error}") from None


def _element(dtype: str, value: Any) -> bytes:
    try:
        found: bytes = _module("numpy").element(dtype, value)
    except ModuleNotFoundError:
        # A type that NumPy has only through a package, which is not there; then it came from torch.
        found = _module("torch").element(dtype, value)
    return found


def framework_of(label: str, array: Any) -> str:
    """Return what an array came in.

    Raises:
        DataError: It is none.
    """
    for framework, kind in (("torch", "Tensor"), ("numpy", "ndarray"), ("jax", "Array")):
        module = sys.modules.get(framework)
        if module is not None and isinstance(array, getattr(module, kind)):
            return framework
    if hasattr(array, "__dlpack__"):
        return "numpy"
    raise DataError(
        f"field {label} is a {type(array).__name__}; expected an array: NumPy, torch, JAX, or anything with "
        "__dlpack__ (for a list, numpy.asarray makes one)"
    )


def _module(framework: str) -> Any:
    try:
        return importlib.import_module(f"batchloom.{framework}")
    except ModuleNotFoundError as error:
        raise ArgumentError(f"output is {framework!r}, but {error.name} is not installed") from None
