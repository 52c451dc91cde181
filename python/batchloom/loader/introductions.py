"""Introductions: frameworks that refuse data of unknown types, and the integration that makes loaders known to each.

A loader calls :func:`introduce_loaders` when it is made. A framework that a program has imported by then is told at
once, and another one as soon as a program imports it. Nothing here imports a framework, and loaders stay as they are:
an integration adds to what the framework accepts.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import NamedTuple


class Introduction(NamedTuple):
    """The place where a framework chooses by type.

    Attributes:
        chooser: The name of the function or class that chooses, in a module of the framework.
        integration: The module with the function ``introduce``, which takes the module of the framework.
    """

    chooser: str
    integration: str


INTRODUCTIONS = {
    "keras.src.trainers.data_adapters": Introduction("get_data_adapter", "batchloom.integrations.keras_adapter"),
    "lightning.fabric.fabric": Introduction("Fabric", "batchloom.integrations.fabric"),
    "lightning_fabric.fabric": Introduction("Fabric", "batchloom.integrations.fabric"),
}

_waiting = set(INTRODUCTIONS)


def introduce_loaders() -> None:
    """Make loaders known to frameworks: the imported ones now, and the rest as they are imported."""
    for name in sorted(_waiting & sys.modules.keys()):
        _introduce(sys.modules[name])
    if _waiting and FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)


class IntroducingFinder(MetaPathFinder):
    """Finds modules of frameworks as Python does, and makes loaders known to each once it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module of a framework is; ``None`` for any other module."""
        spec = PathFinder.find_spec(name, path, target) if name in _waiting else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_introduce(module: ModuleType) -> None:
            execute(module)
            _introduce(module)

        spec.loader.exec_module = execute_and_introduce  # type: ignore[method-assign]
        return spec


FINDER = IntroducingFinder()


def _introduce(module: ModuleType) -> None:
    """Make loaders known to a framework, unless its module is still being imported, or chooses elsewhere."""
    chooser, integration = INTRODUCTIONS[module.__name__]
    if hasattr(module, chooser):
        _waiting.discard(module.__name__)
        importlib.import_module(integration).introduce(module)
