"""Arguments of torch's ``DataLoader``: which a loader follows, ignores with a warning, or refuses."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypedDict

import numpy
from batchloom.arguments import caller, integer
from batchloom.batching.rules import Rule
from batchloom.errors import ArgumentError
from batchloom.loader.torch.lists import EpochLists

# The value that torch takes for granted, and the reason why a loader has no need of another.
UNNEEDED: dict[str, tuple[object, str]] = {
    "num_workers": (0, "threads of the engine make batches: num_threads= says how many"),
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

    def lists(
        self, samples: int, batch_size: int | None, batching: Rule | None, shuffle: object, drop_last: object
    ) -> EpochLists | None:
        """Return the lists of batches that a sampler gives; ``None`` without a sampler.

        Raises:
            ArgumentError: Another argument decides the same.
        """
        sampler = self.batch_sampler if self.sampler is None else self.sampler
        if sampler is None:
            return None
        name = "batch_sampler" if self.sampler is None else "sampler"
        other = {
            "batch_sampler": self.batch_sampler if name == "sampler" else None,
            "batch_size": batch_size if name == "batch_sampler" else None,
            "batching": batching,
            "shuffle": shuffle or None,
            "generator": self.generator,
        }
        for option, value in other.items():
            if value is not None:
                raise ArgumentError(f"{name} and {option}={value!r} are both given; expected one of them")
        if self.sampler is None:
            return EpochLists(name, sampler, samples, None, drop_last=False)
        size = integer("batch_size", 64 if batch_size is None else batch_size, least=1)
        return EpochLists(name, sampler, samples, size, drop_last=bool(drop_last))

    def with_seed(self, seed: Any) -> tuple[TorchRequest, Any]:
        """Return the request and the seed, where a generator that was given as the seed is the source of it.

        Raises:
            ArgumentError: There is another generator.
        """
        if seed is None or type(seed) is int:
            return self, seed
        torch = sys.modules.get("torch")
        kinds = (numpy.random.Generator,) if torch is None else (numpy.random.Generator, torch.Generator)
        if not isinstance(seed, kinds):
            return self, seed
        if self.generator is not None:
            raise ArgumentError("seed and generator are both generators; expected one of them")
        return replace(self, generator=seed), 0

    def seed_source(self, seed: int) -> Callable[[], int] | None:
        """Return the function that draws the seed from a generator; ``None`` without one.

        Raises:
            ArgumentError: A seed is given too, or the generator is neither of torch nor of NumPy.
        """
        if self.generator is None:
            return None
        if seed != 0:
            raise ArgumentError(f"seed={seed} and a generator are both given; expected one of them")
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(self.generator, torch.Generator):
            # As torch's loaders draw theirs: the generator then stands where a script of torch's expects it.
            empty = partial(torch.empty, (), dtype=torch.int64, device=self.generator.device)
            return lambda: int(empty().random_(generator=self.generator).item())
        if isinstance(self.generator, numpy.random.Generator):
            return lambda: int(self.generator.integers(2**63))
        kind = type(self.generator).__name__
        raise ArgumentError(f"generator is a {kind}; expected a torch.Generator or a numpy.random.Generator, or seed=")


NOTHING = TorchRequest(None, None, None)


def read_torch_options(options: TorchOptions) -> TorchRequest:
    """Return the arguments that a loader follows; warn once of those that it has no need of.

    Raises:
        ArgumentError: ``collate_fn`` is a function other than torch's own.
        TypeError: torch's ``DataLoader`` has no such argument either.
    """
    if not options:
        return NOTHING
    given: dict[str, Any] = dict(options)
    for name in given.keys() - TorchOptions.__annotations__.keys():
        raise TypeError(f"DataLoader() got an unexpected keyword argument {name!r}")
    refuse_collate(given.get("collate_fn"))
    asked = [name for name, (usual, _) in UNNEEDED.items() if name in given and not _are_equal(given[name], usual)]
    if asked:
        reasons = "; ".join(f"{name}={given[name]!r}: {UNNEEDED[name][1]}" for name in asked)
        warnings.warn(f"DataLoader() has no need of some arguments and ignores them ({reasons})", stacklevel=caller())
    return TorchRequest(given.get("sampler"), given.get("batch_sampler"), given.get("generator"))


def refuse_collate(function: Any) -> None:
    """Refuse a function that makes a batch of a list of samples, unless it is torch's default."""
    if function is None or getattr(function, "__module__", "") == "torch.utils.data._utils.collate":
        return
    name = getattr(function, "__qualname__", type(function).__qualname__)
    raise ArgumentError(
        f"collate_fn is {name}, which makes a batch of a list of samples; expected None, as the dataset and the rule "
        "say how samples become a batch: a SequenceDataset pads, batching=Packing(...) concatenates, a GroupDataset "
        f"keeps groups whole, fields= gives samples slots. If nothing else will do, collate={name} has threads of the "
        "loader call it. For one of the finished batch, use map(function, loader); for one of single samples, a "
        "MapDataset"
    )


def _are_equal(given: object, usual: object) -> bool:
    return given is usual or (type(given) in (int, float, bool, str) and given == usual)
