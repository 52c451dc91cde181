"""Mini-batches at memory speed, in an order that is a pure function of a few integers.

    import batchloom as bl

    loader = bl.DataLoader(bl.TensorDataset(X, y), batch_size=64, shuffle=True)
    for xb, yb in loader:
        ...

Importing the package starts no thread and imports no framework other than NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchloom._native import __version__
from batchloom.batching.calibrate import calibrate
from batchloom.batching.compare import Compared, Comparison, compare
from batchloom.batching.rules import (
    CostModel,
    CostOptimal,
    FixedSize,
    LengthBuckets,
    Listed,
    Packing,
    Rule,
    TokenBudget,
)
from batchloom.collate.field import Field, FieldOptions
from batchloom.collate.slots import Crop, Pad, Resize, Slot, Stack
from batchloom.dataset.concat import ConcatDataset, Origin
from batchloom.dataset.groups import GroupDataset, GroupStats
from batchloom.dataset.map.map_dataset import MapDataset
from batchloom.dataset.mixture import Mixture
from batchloom.dataset.sequences import SequenceDataset
from batchloom.dataset.sparse_rows import SparseRows
from batchloom.dataset.tensors import TensorDataset
from batchloom.dataset.tokens import TokenDataset, TokenStats
from batchloom.dataset.windows.backtest import Backtest
from batchloom.dataset.windows.scaler import Scaler
from batchloom.dataset.windows.slid import WindowPlace, WindowStats
from batchloom.dataset.windows.window_dataset import WindowDataset
from batchloom.delivery.options import DeliveryOptions
from batchloom.delivery.placement import Placement
from batchloom.errors import (
    ArgumentError,
    DataError,
    DeviceError,
    DTypeError,
    Error,
    LoaderError,
    OutOfMemoryError,
    RangeError,
    SampleError,
    StateError,
)
from batchloom.loader.digest import BatchDigest
from batchloom.loader.interleave import interleave
from batchloom.loader.loader import DataLoader
from batchloom.loader.metrics import Metrics
from batchloom.loader.sampler import BatchSampler
from batchloom.plan.options import PlanOptions
from batchloom.plan.plan import Place, Plan, Step
from batchloom.ranks.ranks import RankOptions
from batchloom.samples.label_counts import LabelCounts
from batchloom.samples.restore_order import restore_order

__all__ = [
    "ArgumentError",
    "Backtest",
    "BatchDigest",
    "BatchSampler",
    "Compared",
    "Comparison",
    "ConcatDataset",
    "CostModel",
    "CostOptimal",
    "Crop",
    "DTypeError",
    "DataError",
    "DataLoader",
    "DeliveryOptions",
    "DeviceError",
    "Error",
    "Field",
    "FieldOptions",
    "FixedSize",
    "GroupDataset",
    "GroupStats",
    "LabelCounts",
    "LengthBuckets",
    "Listed",
    "LoaderError",
    "MapDataset",
    "Metrics",
    "Mixture",
    "Origin",
    "OutOfMemoryError",
    "Packing",
    "Pad",
    "Place",
    "Placement",
    "Plan",
    "PlanOptions",
    "RangeError",
    "RankOptions",
    "Resize",
    "Rule",
    "SampleError",
    "Scaler",
    "SequenceDataset",
    "Slot",
    "SparseRows",
    "Stack",
    "StateError",
    "Step",
    "TensorDataset",
    "TokenBudget",
    "TokenDataset",
    "TokenStats",
    "WindowDataset",
    "WindowPlace",
    "WindowStats",
    "__version__",
    "calibrate",
    "compare",
    "interleave",
    "restore_order",
]


def __dir__() -> list[str]:
    """Return the public names: modules of the package are reached by their paths."""
    return [*__all__, "__doc__", "__file__", "__name__", "__path__"]


if TYPE_CHECKING:
    from batchloom import integrations as integrations
    from batchloom.integrations.ray import from_ray as from_ray
else:

    def __getattr__(name: str) -> Any:
        """Return what is imported only when it is used: the integrations, and the function that needs Ray."""
        if name == "integrations":
            return import_module("batchloom.integrations")
        if name == "from_ray":
            return import_module("batchloom.integrations.ray").from_ray
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
