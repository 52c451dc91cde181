"""The registry of frameworks, and questions about them by name.

A new framework is a module beside this one that fulfils :class:`~batchloom.arrays.framework.Framework`, and its name in
:data:`Output`: the name of the package which it imports. A framework is imported when it is first needed.
"""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy
from batchloom.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from batchloom.arrays.framework import Framework

Output = Literal["torch", "numpy", "jax"]
"""The names of frameworks. Of an array that several could own, the first one is the framework."""

OUTPUTS: tuple[str, ...] = get_args(Output)

DEVICE_FRAMEWORK: Output = "torch"
"""The framework that gathers and makes batches on devices."""

PLACE_FRAMEWORK: Output = "jax"
"""The framework that itself takes batches from memory to its devices."""

DEFAULT_FRAMEWORK: Output = "numpy"
"""The framework of numbers, lists, and arrays that no framework owns."""

INPUTS = (
    "an array of NumPy, torch or JAX, or anything with __dlpack__, with __arrow_c_array__ or __arrow_c_stream__, with "
    "__array__, or with shape, dtype and []"
)
"""The objects that are arrays, for messages."""


def require_known(framework: str) -> None:
    """Check that there is such a framework.

    Raises:
        ArgumentError: There is no such framework.
    """
    if framework not in OUTPUTS:
        raise ArgumentError(f"output is {framework!r}; expected None or one of {', '.join(map(repr, OUTPUTS))}")


def require(framework: str, dtype: str, label: str) -> Framework:
    """Import a framework that has an element type, and return its functions.

    A loader asks before any work, so that a framework that is missing, or lacks a type, shows at once.

    Raises:
        ArgumentError: There is no such framework, or it is not installed.
        DTypeError: The framework has no such type.
    """
    functions = load(framework)
    functions.require(dtype, label)
    return functions


@cache
def load(framework: str) -> Framework:
    """Import a framework, and return its functions.

    Raises:
        ArgumentError: There is no such framework, or it is not installed.
    """
    require_known(framework)
    try:
        return cast("Framework", importlib.import_module(f"batchloom.arrays.{framework}"))
    except ModuleNotFoundError as error:
        raise ArgumentError(f"output is {framework!r}, but {error.name} is not installed") from None


def find_loaded(framework: str) -> Framework | None:
    """Return the functions of a framework if the program has imported it; ``None`` otherwise."""
    return None if sys.modules.get(framework) is None else load(framework)


def list_loaded() -> list[Framework]:
    """Return the functions of each framework that the program has imported."""
    return [functions for functions in map(find_loaded, OUTPUTS) if functions is not None]


def owner_name(array: Any) -> str | None:
    """Return the name of the framework that owns an array; ``None`` for an object that is of no framework."""
    if type(array) is numpy.ndarray:
        return DEFAULT_FRAMEWORK  # without a look at other frameworks: most samples are such arrays
    for framework in OUTPUTS:
        functions = find_loaded(framework)
        if functions is not None and functions.owns(array):
            return framework
    return None


def owner(array: Any) -> Framework | None:
    """Return the functions of the framework that owns an array; ``None`` for an object that is of no framework."""
    framework = owner_name(array)
    return None if framework is None else load(framework)


def framework_of(label: str, array: Any) -> str:
    """Return the name of the framework of an array: the default one for other arrays with DLPack.

    Raises:
        DataError: It is not an array.
    """
    framework = owner_name(array)
    if framework is not None:
        return framework
    if hasattr(array, "__dlpack__"):
        return DEFAULT_FRAMEWORK
    raise make_no_array_error(label, array)


def make_no_array_error(label: str, data: Any) -> DataError:
    """Return the error for an argument that is no array."""
    return DataError(f"field {label} is a {type(data).__name__}; expected {INPUTS}")


def is_sparse(value: Any) -> bool:
    """Return whether an object is a sparse matrix of some framework, in any format."""
    framework = owner(value)
    if framework is not None:
        return framework.HAS_SPARSE_ROWS and framework.is_sparse(value)
    return any(framework.is_sparse(value) for framework in list_loaded() if framework.HAS_SPARSE_ROWS)


def is_arrow(data: Any) -> bool:
    """Return whether ``data`` has the Arrow PyCapsule interface."""
    return hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__")
