"""Attributes of torch's ``DataLoader``, for frameworks that read them of any loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from batchloom.errors import ArgumentError, many
from batchloom.plan.attributes import PlanAttributes


class TorchAttributes(PlanAttributes):
    """Attributes of torch's ``DataLoader`` as they are for a loader whose engine makes batches."""

    num_workers: int = 0
    """The number of worker processes: 0."""
    pin_memory: bool = False
    """``True`` if batches are copied to pinned memory: with ``device=``, whole blocks are."""
    pin_memory_device: str = ""
    """The device that memory is pinned for."""
    timeout: float = 0
    """The seconds to wait for a worker process."""
    worker_init_fn: Callable[[int], None] | None = None
    """The function that prepares a worker process."""
    multiprocessing_context: Any = None
    """The way in which worker processes start."""
    prefetch_factor: int | None = None
    """The number of batches that each worker process loads ahead."""
    persistent_workers: bool = False
    """``True`` if worker processes stay after an epoch."""
    generator: Any = None
    """The generator that the seed was drawn from, if one was given."""
    in_order: bool = True
    """``True``: batches are in order."""

    @property
    def sampler(self) -> EpochSamples:
        """The samples of this rank in the next epoch, in order. Its ``set_epoch`` calls the loader's."""
        return EpochSamples(self)

    @property
    def batch_sampler(self) -> EpochBatches:
        """The batches of this rank in the next epoch, as lists of samples. To read them takes nothing of the loader."""
        return EpochBatches(self)

    @property
    def collate_fn(self) -> Callable[[Any], Any]:
        """A function that refuses lists of samples: the engine makes batches, and no loader of torch's can."""
        return refuse_samples


class EpochSamples:
    """The samples of one rank in the next epoch of a loader."""

    def __init__(self, loader: TorchAttributes) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[int]:
        """Yield the samples, in order."""
        return (sample for batch in self._loader.plan() for sample in batch.tolist())

    def __len__(self) -> int:
        """Return the number of samples."""
        return sum(len(batch) for batch in self._loader.plan())

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one of the loader."""
        self._loader.set_epoch(epoch)


class EpochBatches:
    """The batches of one rank in the next epoch of a loader, as lists of samples."""

    def __init__(self, loader: TorchAttributes) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the samples of each batch."""
        return (batch.tolist() for batch in self._loader.plan())

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self._loader)

    @property
    def batch_size(self) -> int | None:
        """The number of samples in a batch; ``None`` for rules whose batches differ in number."""
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        """``True`` if samples that do not fill a batch are left out."""
        return self._loader.drop_last

    @property
    def sampler(self) -> EpochSamples:
        """The samples of this rank in the next epoch."""
        return self._loader.sampler

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one of the loader."""
        self._loader.set_epoch(epoch)


def refuse_samples(samples: Any) -> Any:
    """Refuse to make a batch of a list of samples.

    Raises:
        ArgumentError: Always.
    """
    raise ArgumentError(
        f"a batch is to be made of a list of {many(len(samples), 'sample')}, as by a loader of torch's that was "
        "made of the "
        "attributes of a batchloom loader; expected batches of the loader itself: to skip some, load a state"
    )
