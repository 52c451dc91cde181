"""The libraries that functions and items of samples use: the server of processes imports them once for all processes.

A look at objects goes through their attributes, the first elements of lists, and the names that functions read. It
imports nothing. A library that it misses is imported by each process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

# Libraries that take long to import and start no thread then: a process with threads cannot fork.
LIBRARIES = ("torchvision", "torchaudio", "PIL", "pandas", "scipy", "transformers")

# The most objects to look at, and the most elements of each list.
MOST_OBJECTS, MOST_ELEMENTS = 300, 8


def find_libraries(*objects: Any) -> list[str]:
    """Return the libraries that objects use, of those that this process has imported."""
    found: set[str] = set()
    known: dict[int, Any] = {}
    waiting = list(objects)
    while waiting and len(known) < MOST_OBJECTS:
        each = waiting.pop(0)
        if id(each) in known:
            continue
        known[id(each)] = each
        found.add(_module(each).partition(".")[0])
        waiting += _parts(each)
    return [name for name in LIBRARIES if name in found and name in sys.modules]


def _module(value: Any) -> str:
    """Return the name of a module, or of the module of a class, a function or the class of an object."""
    if isinstance(value, ModuleType):
        return value.__name__
    owner = value if isinstance(value, type | FunctionType) else type(value)
    return str(owner.__module__)


def _parts(value: Any) -> Iterator[Any]:
    """Yield the objects that a look at a value goes on to."""
    if isinstance(value, FunctionType):
        yield from (value.__globals__[name] for name in _names(value.__code__) if name in value.__globals__)
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # it is empty yet
                yield cell.cell_contents
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, list | tuple):
        yield from value[:MOST_ELEMENTS]
    elif isinstance(value, dict):
        yield from [each for each, _ in zip(value.values(), range(MOST_ELEMENTS), strict=False)]
    elif not isinstance(value, type | ModuleType):
        yield from getattr(value, "__dict__", {}).values()
        kind = type(value)
        methods = (getattr(kind, name, None) for name in ("__getitem__", "__getitems__", "__call__"))
        yield from (method for method in methods if isinstance(method, FunctionType))


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function reads, with the functions inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
