"""Mini-batches at memory speed, in an order that is a pure function of a few integers.

    import batchloom as bl

    loader = bl.DataLoader(bl.TensorDataset(X, y), batch_size=64, shuffle=True)
    for xb, yb in loader:
        ...

Importing this starts no thread and imports no framework but NumPy.
"""

from batchloom._native import __version__
from batchloom.calibrate import calibrate
from batchloom.cut import CostModel, CostOptimal, FixedSize, LengthBuckets, Packing, Rule, TokenBudget
from batchloom.errors import (
    ArgumentError,
    DataError,
    DeviceError,
    DTypeError,
    Error,
    LoaderError,
    RangeError,
    StateError,
)
from batchloom.groups import GroupDataset, GroupStats
from batchloom.loader import DataLoader
from batchloom.placement import Placement
from batchloom.plan import Place, Plan, Step
from batchloom.restore import restore_order
from batchloom.sequences import SequenceDataset
from batchloom.tensors import TensorDataset
from batchloom.tokens import TokenDataset, TokenStats
from batchloom.windows import WindowDataset, WindowPlace, WindowStats

__all__ = [
    "ArgumentError",
    "CostModel",
    "CostOptimal",
    "DTypeError",
    "DataError",
    "DataLoader",
    "DeviceError",
    "Error",
    "FixedSize",
    "GroupDataset",
    "GroupStats",
    "LengthBuckets",
    "LoaderError",
    "Packing",
    "Place",
    "Placement",
    "Plan",
    "RangeError",
    "Rule",
    "SequenceDataset",
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
    "restore_order",
]
