"""Integrations with trainers and forecasting libraries, one a file. Nothing here is imported unless it is used."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

FRAMEWORKS = ("accelerate", "darts", "hf", "keras", "lightning", "neuralforecast", "pytorch_forecasting", "ray")

if TYPE_CHECKING:
    from batchloom.integrations import accelerate as accelerate
    from batchloom.integrations import darts as darts
    from batchloom.integrations import hf as hf
    from batchloom.integrations import keras as keras
    from batchloom.integrations import lightning as lightning
    from batchloom.integrations import neuralforecast as neuralforecast
    from batchloom.integrations import pytorch_forecasting as pytorch_forecasting
    from batchloom.integrations import ray as ray
else:

    def __getattr__(name: str) -> ModuleType:
        """Return the integration of a framework, which is imported now."""
        if name in FRAMEWORKS:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
