"""Mini-batches at memory speed, in an order that is a pure function of a few integers.

    import batchloom as bl

    loader = bl.DataLoader(bl.TensorDataset(X, y), batch_size=64, shuffle=True)
    for xb, yb in loader:
        ...

Importing the package starts no thread and imports no framework other than NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batchloom._native import __version__ as __version__

if TYPE_CHECKING:
    from batchloom import integrations as integrations
    from batchloom.arrays.chunked import ChunkedArray as ChunkedArray
    from batchloom.batching.calibrate import calibrate as calibrate
    from batchloom.batching.compare import Compared as Compared
    from batchloom.batching.compare import Comparison as Comparison
    from batchloom.batching.compare import compare as compare
    from batchloom.batching.cost_model import CostModel as CostModel
    from batchloom.batching.micro_batches import MicroBatches as MicroBatches
    from batchloom.batching.micro_batches import microbatches as microbatches
    from batchloom.batching.rules import CostOptimal as CostOptimal
    from batchloom.batching.rules import FixedSize as FixedSize
    from batchloom.batching.rules import LengthBuckets as LengthBuckets
    from batchloom.batching.rules import Listed as Listed
    from batchloom.batching.rules import Packing as Packing
    from batchloom.batching.rules import Rule as Rule
    from batchloom.batching.rules import TokenBudget as TokenBudget
    from batchloom.collate.document_mask import DocumentMask as DocumentMask
    from batchloom.collate.field import Field as Field
    from batchloom.collate.field import FieldOptions as FieldOptions
    from batchloom.collate.flex_attention import as_block_mask as as_block_mask
    from batchloom.collate.slots import Crop as Crop
    from batchloom.collate.slots import Pad as Pad
    from batchloom.collate.slots import Resize as Resize
    from batchloom.collate.slots import Slot as Slot
    from batchloom.collate.slots import Stack as Stack
    from batchloom.dataset.concat import ConcatDataset as ConcatDataset
    from batchloom.dataset.concat import Origin as Origin
    from batchloom.dataset.groups import GroupDataset as GroupDataset
    from batchloom.dataset.groups import GroupStats as GroupStats
    from batchloom.dataset.map.chunk_dataset import ChunkDataset as ChunkDataset
    from batchloom.dataset.map.chunk_reads import ChunkCounts as ChunkCounts
    from batchloom.dataset.map.map_dataset import MapDataset as MapDataset
    from batchloom.dataset.mixture import Mixture as Mixture
    from batchloom.dataset.sequences import SequenceDataset as SequenceDataset
    from batchloom.dataset.sparse_rows import SparseRows as SparseRows
    from batchloom.dataset.tensors import TensorDataset as TensorDataset
    from batchloom.dataset.tokens import TokenDataset as TokenDataset
    from batchloom.dataset.tokens import TokenStats as TokenStats
    from batchloom.dataset.windows.backtest import Backtest as Backtest
    from batchloom.dataset.windows.places import WindowPlace as WindowPlace
    from batchloom.dataset.windows.scaler import Scaler as Scaler
    from batchloom.dataset.windows.stats import WindowStats as WindowStats
    from batchloom.dataset.windows.timed import Timed as Timed
    from batchloom.dataset.windows.window_dataset import WindowDataset as WindowDataset
    from batchloom.delivery.options import DeliveryOptions as DeliveryOptions
    from batchloom.delivery.placement import Placement as Placement
    from batchloom.errors import ArgumentError as ArgumentError
    from batchloom.errors import DataError as DataError
    from batchloom.errors import DeviceError as DeviceError
    from batchloom.errors import DTypeError as DTypeError
    from batchloom.errors import Error as Error
    from batchloom.errors import LoaderError as LoaderError
    from batchloom.errors import OutOfMemoryError as OutOfMemoryError
    from batchloom.errors import RangeError as RangeError
    from batchloom.errors import SampleError as SampleError
    from batchloom.errors import StateError as StateError
    from batchloom.formats.open import open as open
    from batchloom.integrations.ray import from_ray as from_ray
    from batchloom.loader.digest import BatchDigest as BatchDigest
    from batchloom.loader.interleave import interleave as interleave
    from batchloom.loader.loader import DataLoader as DataLoader
    from batchloom.loader.metrics import Metrics as Metrics
    from batchloom.loader.sampler import BatchSampler as BatchSampler
    from batchloom.plan.options import PlanOptions as PlanOptions
    from batchloom.plan.plan import Place as Place
    from batchloom.plan.plan import Plan as Plan
    from batchloom.plan.plan import Step as Step
    from batchloom.plan.plan import Update as Update
    from batchloom.ranks.ranks import RankOptions as RankOptions
    from batchloom.samples.distinct_by import DistinctBy as DistinctBy
    from batchloom.samples.label_counts import LabelCounts as LabelCounts
    from batchloom.samples.restore_order import restore_order as restore_order

# The public names, by the modules that have them: each module is imported when one of its names is first used.
_NAMES = {
    "batchloom.arrays.chunked": ("ChunkedArray",),
    "batchloom.batching.calibrate": ("calibrate",),
    "batchloom.batching.compare": (
        "Compared",
        "Comparison",
        "compare",
    ),
    "batchloom.batching.cost_model": ("CostModel",),
    "batchloom.batching.micro_batches": (
        "MicroBatches",
        "microbatches",
    ),
    "batchloom.batching.rules": (
        "CostOptimal",
        "FixedSize",
        "LengthBuckets",
        "Listed",
        "Packing",
        "Rule",
        "TokenBudget",
    ),
    "batchloom.collate.document_mask": ("DocumentMask",),
    "batchloom.collate.field": (
        "Field",
        "FieldOptions",
    ),
    "batchloom.collate.flex_attention": ("as_block_mask",),
    "batchloom.collate.slots": (
        "Crop",
        "Pad",
        "Resize",
        "Slot",
        "Stack",
    ),
    "batchloom.dataset.concat": (
        "ConcatDataset",
        "Origin",
    ),
    "batchloom.dataset.groups": (
        "GroupDataset",
        "GroupStats",
    ),
    "batchloom.dataset.map.chunk_dataset": ("ChunkDataset",),
    "batchloom.dataset.map.chunk_reads": ("ChunkCounts",),
    "batchloom.dataset.map.map_dataset": ("MapDataset",),
    "batchloom.dataset.mixture": ("Mixture",),
    "batchloom.dataset.sequences": ("SequenceDataset",),
    "batchloom.dataset.sparse_rows": ("SparseRows",),
    "batchloom.dataset.tensors": ("TensorDataset",),
    "batchloom.dataset.tokens": (
        "TokenDataset",
        "TokenStats",
    ),
    "batchloom.dataset.windows.backtest": ("Backtest",),
    "batchloom.dataset.windows.places": ("WindowPlace",),
    "batchloom.dataset.windows.scaler": ("Scaler",),
    "batchloom.dataset.windows.stats": ("WindowStats",),
    "batchloom.dataset.windows.timed": ("Timed",),
    "batchloom.dataset.windows.window_dataset": ("WindowDataset",),
    "batchloom.delivery.options": ("DeliveryOptions",),
    "batchloom.delivery.placement": ("Placement",),
    "batchloom.errors": (
        "ArgumentError",
        "DTypeError",
        "DataError",
        "DeviceError",
        "Error",
        "LoaderError",
        "OutOfMemoryError",
        "RangeError",
        "SampleError",
        "StateError",
    ),
    "batchloom.formats.open": ("open",),
    "batchloom.loader.digest": ("BatchDigest",),
    "batchloom.loader.interleave": ("interleave",),
    "batchloom.loader.loader": ("DataLoader",),
    "batchloom.loader.metrics": ("Metrics",),
    "batchloom.loader.sampler": ("BatchSampler",),
    "batchloom.plan.options": ("PlanOptions",),
    "batchloom.plan.plan": (
        "Place",
        "Plan",
        "Step",
        "Update",
    ),
    "batchloom.ranks.ranks": ("RankOptions",),
    "batchloom.samples.distinct_by": ("DistinctBy",),
    "batchloom.samples.label_counts": ("LabelCounts",),
    "batchloom.samples.restore_order": ("restore_order",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

if not TYPE_CHECKING:
    # Checkers read the names from the imports above. A star import keeps the function open of Python.
    __all__ = [*sorted(_HOMES.keys() - {"open"}), "__version__"]


def __dir__() -> list[str]:
    """Return the public names: modules of the package are reached by their paths."""
    return [*sorted(_HOMES), "__version__", "__doc__", "__file__", "__name__", "__path__"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used: a name of the package, an integration, or Ray's function."""
        if name == "integrations":
            return import_module("batchloom.integrations")
        if name == "from_ray":
            return import_module("batchloom.integrations.ray").from_ray
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value
