"""Arguments of torch's ``DataLoader``: which of them a loader follows, which it has no need of, and what replaces them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict

from batchloom.errors import ArgumentError

PACKAGE = os.path.dirname(__file__) + os.sep

# The value that torch takes for granted, and the reason why a loader has no need of another.
UNNEEDED: dict[str, tuple[object, str]] = {
    "num_workers": (0, "threads of the engine form batches: num_threads= says how many"),
    "pin_memory": (False, "with device= blocks are formed in pinned memory"),
    "pin_memory_device": ("", "device= says where batches go"),
    "persistent_workers": (False, "the loader keeps its threads from epoch to epoch"),
    "prefetch_factor": (None, "prefetch= says how many blocks of batches are formed ahead"),
    "worker_init_fn": (None, "there is no worker process to prepare"),
    "multiprocessing_context": (None, "there is no worker process to start"),
    "timeout": (0, "there is no worker process to wait for"),
    "in_order": (True, "batches always come in the order of the plan"),
}


class TorchOptions(TypedDict, total=False):
    """Arguments of torch's ``DataLoader`` that :class:`batchloom.DataLoader` takes beside its own.

    ``sampler`` and ``batch_sampler`` give the order and the batches, ``generator`` the seed. ``collate_fn`` has no
    counterpart, and is refused with what to use. The others are accepted and have no effect, with one warning for those
    that ask for something.
    """

    sampler: Iterable[Any] | None
    batch_sampler: Iterable[Any] | None
    generator: Any
    collate_fn: Any
    num_workers: int
    pin_memory: bool
    pin_memory_device: str
    persistent_workers: bool
    prefetch_factor: int | None
    worker_init_fn: Any
    multiprocessing_context: Any
    timeout: float
    in_order: bool


@dataclass(frozen=True)
class TorchRequest:
    """The arguments of torch's ``DataLoader`` that a loader follows.

    Attributes:
        sampler: The samples in the order of an epoch, or ``None``.
        batch_sampler: The samples of each batch of an epoch, or ``None``.
        generator: The source of the seed, or ``None``.
    """

    sampler: Iterable[Any] | None
    batch_sampler: Iterable[Any] | None
    generator: Any


def accepted(options: TorchOptions) -> TorchRequest:
    """Return the arguments that a loader follows; warn once of those that it has no need of.

    Raises:
        ArgumentError: ``collate_fn`` is a function other than torch's own.
        TypeError: torch's ``DataLoader`` has no such argument either.
    """
    given: dict[str, Any] = dict(options)
    for name in given.keys() - TorchOptions.__annotations__.keys():
        raise TypeError(f"DataLoader() got an unexpected keyword argument {name!r}")
    refuse_collate(given.get("collate_fn"))
    asked = [name for name, (usual, _) in UNNEEDED.items() if name in given and not _equal(given[name], usual)]
    if asked:
        reasons = "; ".join(f"{name}={given[name]!r}: {UNNEEDED[name][1]}" for name in asked)
        warnings.warn(f"DataLoader() has no need of some arguments and ignores them ({reasons})", stacklevel=_outside())
    return TorchRequest(given.get("sampler"), given.get("batch_sampler"), given.get("generator"))


def refuse_collate(function: Any) -> None:
    """Refuse a function that makes a batch of a list of samples, unless it is the one that torch uses by itself."""
    if function is None or getattr(function, "__module__", "") == "torch.utils.data._utils.collate":
        return
    name = getattr(function, "__qualname__", type(function).__qualname__)
    raise ArgumentError(
        f"collate_fn is {name}, which makes a batch of a list of samples; expected None, as the dataset and the rule say "
        "how samples become a batch: a SequenceDataset pads, batching=Packing(...) concatenates, a GroupDataset keeps "
        "groups whole. For a function of the finished batch, use map(function, loader); for one of single samples, "
        "torch's DataLoader with batch_sampler=BatchSampler(...)"
    )


def _equal(given: object, usual: object) -> bool:
    return given is usual or (type(given) in (int, float, bool, str) and given == usual)


def _outside() -> int:
    """Return the level of the first caller outside of the package, for a warning that points there."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
