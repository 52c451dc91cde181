"""Watchers: the integrations that know where a trainer stands in its epoch, and refuse a loader that stands elsewhere.

A loader calls them before it loads a state, and as an epoch begins. It knows no integration. Each is named here beside
the framework that it watches, and imported once a program has imported that framework.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, cast

# The module that watches a framework.
WATCHERS = {
    "lightning.pytorch": "batchloom.integrations.lightning_counters",
    "pytorch_lightning": "batchloom.integrations.lightning_counters",
}


class Standing(NamedTuple):
    """The place of a loader in its epoch.

    Attributes:
        length: The number of batches of the whole epoch.
        remaining: The number of them that are left.
        is_resized: ``True`` if another number of ranks took batches of the epoch.
    """

    length: int
    remaining: int
    is_resized: bool


class Watcher(Protocol):
    """The functions of a module that watches a framework."""

    def check_place(self, loader: Any, place: Callable[[], Standing]) -> None:
        """Refuse the place of a state that is about to be loaded.

        Args:
            loader: The loader.
            place: Returns where it would stand.

        Raises:
            StateError: A trainer that is loading the state would leave out batches, or repeat some.
        """

    def is_over(self, loader: Any, place: Callable[[], Standing]) -> bool:
        """Return whether a loader, whose state was loaded, has no more batches in the epoch of a trainer.

        Args:
            loader: The loader.
            place: Returns where it stands.
        """

    def restore(self, loader: Any) -> None:
        """Load the state that a trainer has of a loader, and did not load.

        Args:
            loader: The loader, which the trainer tells an epoch.
        """

    def check_length(self, loader: Any, length: Callable[[], int]) -> None:
        """Refuse the epoch that is about to begin.

        Args:
            loader: The loader.
            length: Returns the number of batches of the whole epoch.

        Raises:
            LoaderError: A trainer that begins the epoch would leave out batches.
        """


def watchers() -> Iterator[Watcher]:
    """Return the watchers of the frameworks that are imported."""
    for name in dict.fromkeys(module for framework, module in WATCHERS.items() if framework in sys.modules):
        yield cast(Watcher, importlib.import_module(name))
