"""Frameworks: the arrays that datasets take and batches hold.

Each framework is one module beside this one with the same functions: ``borrow`` shares an array's memory with the
engine (or describes what torch has on another device), ``address`` says where that memory is, ``require`` raises where
the framework lacks an element type, ``views`` cuts a tensor of the engine ``[batches, samples, ...]`` into the
framework's own arrays, ``view`` takes a tensor as one array (or a DLPack capsule of it, where the module says
``TAKES_CAPSULES``), ``element`` gives the bytes of one value, ``patches`` cuts the second dimension into patches,
``pad_rows`` puts zeros before and after an array, ``own`` copies one. Those whose arrays can be strided views also have
``windows``, ``repeated``, ``is_repeated`` and ``ones``. A framework is imported when it is first needed.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from batchloom.errors import ArgumentError, DataError

OUTPUTS = ("torch", "numpy", "jax")


def require_known(framework: str) -> None:
    """Raise if there is no such framework."""
    if framework not in OUTPUTS:
        raise ArgumentError(f"output is {framework!r}; expected None or one of {', '.join(map(repr, OUTPUTS))}")


def require(framework: str, dtype: str, label: str) -> Any:
    """Import a framework that has an element type, and return the functions for its arrays.

    A loader asks before any work, so that a framework that is missing, or lacks a type, shows at once.

    Raises:
        ArgumentError: There is no such framework, or it is not installed.
        DTypeError: The framework has no such type.
    """
    require_known(framework)
    found = load(framework)
    found.require(dtype, label)
    return found


def framework_of(label: str, array: Any) -> str:
    """Return the framework of an array.

    Raises:
        DataError: It is not an array.
    """
    for framework, kind in (("torch", "Tensor"), ("numpy", "ndarray"), ("jax", "Array")):
        imported = sys.modules.get(framework)
        if imported is not None and isinstance(array, getattr(imported, kind)):
            return framework
    if hasattr(array, "__dlpack__"):
        return "numpy"
    raise DataError(
        f"field {label} is a {type(array).__name__}; expected an array: NumPy, torch, JAX, or anything with "
        "__dlpack__ (for a list, numpy.asarray makes one)"
    )


def load(framework: str) -> Any:
    """Import a framework, and return the functions for its arrays.

    Raises:
        ArgumentError: The framework is not installed.
    """
    try:
        return importlib.import_module(f"batchloom.arrays.{framework}")
    except ModuleNotFoundError as error:
        raise ArgumentError(f"output is {framework!r}, but {error.name} is not installed") from None


def is_arrow(data: Any) -> bool:
    """Return whether ``data`` has the Arrow PyCapsule interface."""
    return hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__")
