"""Watchers: the integrations that know where a trainer stands in its epoch, and refuse a loader that stands elsewhere.

A loader asks them before it loads a state, and as an epoch begins. It knows none of them. Each is named here beside the
framework that it watches, and imported once a program has imported that framework.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, cast

# The module that watches a framework.
WATCHERS = {
    "lightning.pytorch": "batchloom.integrations.lightning_counters",
    "pytorch_lightning": "batchloom.integrations.lightning_counters",
}


class Watcher(Protocol):
    """The functions of a module that watches a framework."""

    def check_place(self, place: Callable[[], tuple[int, int]]) -> None:
        """Refuse the place of a state that is about to be loaded.

        Args:
            place: Returns the number of batches of its whole epoch, and how many of them are left.

        Raises:
            StateError: A trainer that is loading the state would leave out batches, or repeat some.
        """

    def check_length(self, length: Callable[[], int]) -> None:
        """Refuse the epoch that is about to begin.

        Args:
            length: Returns the number of batches of the whole epoch.

        Raises:
            LoaderError: A trainer that begins the epoch would leave out batches.
        """


def watchers() -> Iterator[Watcher]:
    """Return the watchers of the frameworks that are imported."""
    for name in dict.fromkeys(module for framework, module in WATCHERS.items() if framework in sys.modules):
        yield cast(Watcher, importlib.import_module(name))
