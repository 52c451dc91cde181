"""Arrays in and out, by framework.

Each framework is one module with the same functions: ``borrow`` shares an array's memory with the engine, ``address``
says where that memory is, ``require`` raises where the framework lacks an element type, ``views`` cuts a tensor of the
engine ``[batches, samples, ...]`` into the framework's own arrays, ``view`` takes a tensor as one array (or a DLPack
capsule of it, where the module says ``TAKES_CAPSULES``), ``element`` gives the bytes of one value, ``patches`` cuts the
second dimension into patches, ``pad_front`` puts zeros before an array, ``own`` copies one. Those whose arrays can be
strided views also have ``windows`` and ``ones``. A framework is imported when it is first needed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy
from batchloom._native import Tensor
from batchloom.errors import ArgumentError, DataError, DTypeError, Error

OUTPUTS = ("torch", "numpy", "jax")

MOST_DIMENSIONS = 62

Run = tuple[list[Tensor], int]
"""Batches of one shape: a tensor a field, each ``[batches, ...]``, and the size of the longest sample."""

Keys = list[tuple[str | None, Callable[[Any], Any] | None, bool]]
"""Of each key of a batch its name (``None`` in tuples), what takes its tensor, and whether that takes a DLPack capsule
instead."""

Split = Callable[[list[Run]], list[Any]] | Keys
"""Cuts runs into a list of batches, or says how the engine makes a dict of each."""


class Field:
    """One field of a dataset: the user's array, and its memory as the engine sees it."""

    def __init__(self, label: str, array: Any) -> None:
        self.label = label
        self.array = array
        self.framework = framework_of(label, array)
        self._module = _module(self.framework)
        self.tensor = _borrow(self._module, array, label)
        self._address = self._module.address(array, label)
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


def splitter(
    columns: Sequence[tuple[str, str, str]],
    names: Sequence[str] | None,
    output: str | None,
    patches: dict[str, tuple[int, int]] | None = None,
    copies: bool = False,
) -> Split:
    """Return what cuts runs into batches.

    Args:
        columns: The label, element type and framework of each field.
        names: The keys of a batch that is a dict.
        output: Another framework for all of them.
        patches: Fields that are cut into patches, by label: the length of a patch, and steps from one to the next.
        copies: Whether patches are copies, which do not overlap.
    """
    views = []
    for label, dtype, framework in columns:
        module = require(output or framework, dtype, label)
        patch = (patches or {}).get(label)
        views.append(_patched(module, *patch, copies) if patch else module.views)
    if names is None:
        return lambda runs: [batch for run, _ in runs for batch in _cut(views, run)]
    keys = tuple(names)
    return lambda runs: [dict(zip(keys, batch, strict=True)) for run, _ in runs for batch in _cut(views, run)]


def _patched(module: Any, length: int, stride: int, copies: bool) -> Callable[[Tensor], list[Any]]:
    def cut(tensor: Tensor) -> list[Any]:
        found = [module.patches(batch, length, stride) for batch in module.views(tensor)]
        return [module.own(patches, None) for patches in found] if copies else found

    return cut


def lend(tensor: Tensor, framework: str) -> Any:
    """Return a tensor of the engine as one array of a framework, over the same memory."""
    module = _module(framework)
    return module.view(tensor.__dlpack__() if module.TAKES_CAPSULES else tensor)


def release(field: Field) -> None:
    """Let go of what a memory map has read into this process, once it is much; it stays in the system's cache."""
    if field.framework == "numpy":
        field.mapped = _module("numpy").release(field.array, field.mapped)


def owned(array: Any, label: str) -> Any:
    """Return a copy of an array, in its framework."""
    return _module(framework_of(label, array)).own(array, None)


def single(names: Sequence[str | None], frameworks: Sequence[str]) -> Keys:
    """Return what makes a dict of each run of one batch, or a tuple without names, for the framework of each field.

    Where there are boundaries, the size of the longest sample follows them.
    """
    keys: Keys = []
    for name, framework in zip(names, frameworks, strict=True):
        module = _module(framework)
        keys.append((name, module.view, module.TAKES_CAPSULES))
        if name == "cu_seqlens":
            keys.append(("max_seqlen", None, False))
    return keys


def require(framework: str, dtype: str, label: str) -> Any:
    """Return the module of a framework.

    A loader asks before any work, so that a framework that is missing, or lacks a type, shows at once.

    Raises:
        ArgumentError: There is no such framework, or it is not installed.
        DTypeError: It has no such type.
    """
    if framework not in OUTPUTS:
        raise ArgumentError(f"output is {framework!r}; expected None or one of {', '.join(map(repr, OUTPUTS))}")
    module = _module(framework)
    module.require(dtype, label)
    return module


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


def _cut(views: Sequence[Callable[[Tensor], Any]], tensors: Sequence[Tensor]) -> Iterator[tuple[Any, ...]]:
    return zip(*(view(tensor) for view, tensor in zip(views, tensors, strict=True)), strict=True)


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
