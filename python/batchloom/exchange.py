"""Arrays in and out, by framework.

Each framework is one module with the same four functions: ``borrow`` shares an array's memory with the engine,
``address`` says where that memory is, ``require`` raises where the framework lacks an element type, ``views`` cuts a
tensor of the engine ``[batches, samples, ...]`` into the framework's own arrays. A framework is imported when it is
first needed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy
from batchloom._native import Tensor
from batchloom.errors import ArgumentError, DataError, DTypeError, Error

OUTPUTS = ("torch", "numpy", "jax")

MOST_DIMENSIONS = 62

Split = Callable[[list[Tensor]], list[Any]]
"""Cuts one tensor a field, each ``[batches, samples, ...]``, into a list of batches."""


class Field:
    """One field of a dataset: the user's array, and its memory as the engine sees it."""

    def __init__(self, label: str, array: Any) -> None:
        self.label = label
        self.array = array
        self.framework = _framework_of(label, array)
        self._module = _module(self.framework)
        self.tensor = _borrow(self._module, array, label)
        self._address = self._module.address(array, label)

    def check(self) -> None:
        """Raise if the array no longer is where it was borrowed."""
        found = self._module.address(self.array, self.label)
        if found != self._address:
            raise DataError(
                f"field {self.label} was resized or moved: it had (address, shape, strides) {self._address} when the "
                f"dataset was made and has {found} now; make a new TensorDataset after changing it"
            )

    def row(self, sample: int) -> Any:
        """Return one row of the array."""
        array = self.array if hasattr(self.array, "__getitem__") else numpy.from_dlpack(self.array)
        return array[sample]

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


def splitter(fields: Sequence[Field], names: Sequence[str] | None, output: str | None) -> Split:
    """Return what cuts portions of a block into batches, for the framework of each field or for ``output``."""
    if output is not None and output not in OUTPUTS:
        raise ArgumentError(f"output is {output!r}; expected None or one of {', '.join(map(repr, OUTPUTS))}")
    # A loader asks before any work, so that a framework that is missing, or lacks a type, shows at once.
    views = []
    for field in fields:
        module = _module(output or field.framework)
        module.require(field.tensor.dtype, field.label)
        views.append(module.views)
    if names is None:
        return lambda tensors: list(zip(*_cut(views, tensors), strict=True))
    keys = tuple(names)
    return lambda tensors: [dict(zip(keys, batch, strict=True)) for batch in zip(*_cut(views, tensors), strict=True)]


def _cut(views: Sequence[Callable[[Tensor], Any]], tensors: Sequence[Tensor]) -> list[Any]:
    return [view(tensor) for view, tensor in zip(views, tensors, strict=True)]


def _framework_of(label: str, array: Any) -> str:
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
