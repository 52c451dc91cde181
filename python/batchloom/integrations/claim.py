"""One trainer at a time: a loader has one place in one epoch, so two that take turns would each get half of it."""

from __future__ import annotations

import weakref
from typing import Any

from batchloom.errors import LoaderError

_OWNERS: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()


def claim(loader: Any, trainer: Any) -> None:
    """Note that ``trainer`` uses ``loader`` until :func:`release`.

    Raises:
        LoaderError: Another trainer uses it.
    """
    reference = _OWNERS.get(loader)
    owner = reference() if reference is not None else None
    if owner is not None and owner is not trainer:
        raise LoaderError(
            f"this loader is in use by another {type(owner).__name__}; expected one trainer at a time, since "
            "each would get a part of the batches: make a loader for each (of the same dataset, which they share)"
        )
    _OWNERS[loader] = weakref.ref(trainer)


def release(loader: Any, trainer: Any) -> None:
    """Note that ``trainer`` no longer uses ``loader``."""
    reference = _OWNERS.get(loader)
    if reference is not None and reference() is trainer:
        del _OWNERS[loader]
