"""Types of a loader's options beside those that say what arrays a batch is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from batchloom.arguments import PadSide, PadTo, Resident, Truncate, Uneven
from batchloom.batching.rules import Rule
from batchloom.collate.slots import SlotWay
from batchloom.loader.torch.options import TorchOptions


class LoaderOptions(TorchOptions, total=False):
    """Options that :class:`batchloom.DataLoader` takes by name, for signatures that tell the type of its batches."""

    batching: Rule | None
    shard_size: int | None
    drop_last: bool
    seed: Any
    uneven: Uneven
    balance: bool
    largest_first: bool
    weights: Any
    num_samples: int | None
    balanced_by: Any
    homogeneous_by: Any
    distinct_by: Any
    ban: Any
    rank: int | None
    world_size: int | None
    distributed: bool
    mesh: Any
    device: Any
    sharding: Any
    resident: Resident
    memory_limit: int | None
    copy: bool
    static_buffers: bool
    check: bool
    pad_value: Any
    pad_side: PadSide
    pad_to: PadTo
    truncate: Truncate
    collate: Mapping[Any, SlotWay | Callable[[Any, Any], None]] | Callable[[list[Any]], Any] | None
    labels: str | None
    label_counts: Any
    dtype: Any
    scale: Any
    mean: Any
    std: Any
    num_threads: int | None
    prefetch: int | None
    digest: bool
