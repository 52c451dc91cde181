"""Loaders as the package holds them, beyond what users see: the one place that reads their private names.

Loaders that take turns and the integrations of trainers go through here, so that loaders show users no more methods.
"""

from __future__ import annotations

from typing import Any

import batchloom._native as _native
from batchloom.loader.loader import DataLoader


def go_on(loader: DataLoader[Any]) -> None:
    """Make the rest of an epoch that was left in the middle the next iteration."""
    loader._go_on()


def skip(loader: Any, batches: int) -> None:
    """Pass over batches of the next iteration of a loader, or of loaders that take turns."""
    loader._skip(batches)


def engine_loader(loader: DataLoader[Any]) -> _native.Loader:
    """Return a loader as the engine sees it."""
    return loader._native
