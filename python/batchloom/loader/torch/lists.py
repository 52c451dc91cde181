"""The batches of each epoch as lists, read from a sampler of the user's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from operator import length_hint
from typing import Any

from batchloom.batching.rules import Listed
from batchloom.errors import ArgumentError, many
from batchloom.plan.plan import Plan

# The most samples of one epoch, in epochs of the dataset, of a sampler that does not say its length: it may repeat some
# on purpose. And the fewest that any may give.
MOST_EPOCHS, FEW = 16, 1 << 20


class EpochSampler(ABC):
    """A batch sampler that knows the batches of every epoch."""

    @abstractmethod
    def _plan_all_ranks(self, epoch: int) -> Plan:
        """Return the batches of all ranks in an epoch.

        Raises:
            ArgumentError: The sampler is one of several ranks.
        """


class EpochLists:
    """The batches of each epoch, as a sampler gives them: it is read once as an epoch begins.

    A sampler with ``set_epoch`` is told the epoch. Without, each reading is the next epoch. A list, or a plan, is the
    same in each.

    Args:
        name: The argument that gave the sampler.
        sampler: Lists of samples; or samples, if ``batch_size`` is given.
        samples: The number of samples of the dataset.
        batch_size: Samples in a batch, if the sampler gives samples.
        drop_last: If ``True``, samples that do not fill a batch are left out.

    Raises:
        ArgumentError: The sampler gives no lists, or the lists of one rank among several.
    """

    def __init__(
        self, name: str, sampler: Iterable[Any], samples: int, batch_size: int | None, drop_last: bool
    ) -> None:
        if not isinstance(sampler, Iterable):
            kind = type(sampler).__name__
            raise ArgumentError(f"{name} is a {kind}; expected an iterable that can be read each epoch")
        refuse_share(name, sampler)
        self.name, self.sampler, self._most = name, sampler, max(MOST_EPOCHS * samples, FEW)
        if isinstance(sampler, Iterator):
            self.sampler = list(self._read_samples())
        self._batch_size, self._drop_last = batch_size, drop_last
        self._epoch: int | None = None
        self._lists: Listed | None = None

    def at(self, epoch: int) -> Listed:
        """Return the lists of an epoch.

        Raises:
            ArgumentError: The sampler, which has no ``set_epoch``, is past that epoch.
        """
        if self._lists is None or (self._epoch != epoch and not self._is_constant):
            self._lists = self._read(epoch)
        self._epoch = epoch
        return self._lists

    @property
    def epoch(self) -> int | None:
        """The epoch of the lists that were read last."""
        return self._epoch

    @property
    def foresees(self) -> bool:
        """``True`` if the lists of any epoch can be read before it begins."""
        return self._is_constant or isinstance(self.sampler, EpochSampler) or _set_epoch(self.sampler) is not None

    @property
    def _is_constant(self) -> bool:
        return isinstance(self.sampler, Sequence | Plan)

    def _read(self, epoch: int) -> Listed:
        if isinstance(self.sampler, EpochSampler):
            return Listed(self.sampler._plan_all_ranks(epoch))
        if (set_epoch := _set_epoch(self.sampler)) is not None:
            set_epoch(epoch)
        elif not self._is_constant:
            begun = -1 if self._epoch is None else self._epoch
            if epoch <= begun:
                raise ArgumentError(
                    f"epoch {epoch} is asked of {self.name}, a {type(self.sampler).__name__} that was read up to epoch "
                    f"{begun} and has no set_epoch; expected a later epoch, or a sampler with set_epoch"
                )
            # As in the run that reads it once an epoch: a generator of its own is then as far.
            for _ in range(epoch - begun - 1):
                for _ in self._read_samples():
                    pass
        return Listed(self._read_samples() if self._batch_size is None else self._batches(self._batch_size))

    def _read_samples(self) -> Iterator[Any]:
        """Yield what the sampler gives.

        Raises:
            ArgumentError: It gives so much that it seems to have no end.
        """
        said, given = length_hint(self.sampler), 0
        for place, item in enumerate(self.sampler):
            given += _count(item)
            if given > self._most and place >= said:
                raise ArgumentError(
                    f"{self.name}, a {type(self.sampler).__name__}, gave {many(given, 'sample')} and does not "
                    "end; expected "
                    f"those of one epoch, at most {self._most} or as many as its len() says. For training without an "
                    "end, use shuffle=True, where each iteration is the next epoch, or cut it by itertools.islice"
                )
            yield item

    def _batches(self, batch_size: int) -> Iterator[list[Any]]:
        samples = self._read_samples()
        while batch := list(islice(samples, batch_size)):
            if len(batch) == batch_size or not self._drop_last:
                yield batch


def _count(item: Any) -> int:
    """Return the number of samples in a list; 1 for a sample, which may be an array without dimensions."""
    return len(item) if isinstance(item, Sized) and getattr(item, "ndim", 1) != 0 else 1


def refuse_share(name: str, sampler: Any) -> None:
    """Refuse a sampler of one rank among several: the loader deals batches to ranks itself."""
    for each in (sampler, getattr(sampler, "sampler", None), getattr(sampler, "batch_sampler", None)):
        ranks = getattr(each, "num_replicas", None) or getattr(each, "num_processes", None)
        place: tuple[Any, Any] = getattr(each, "rank", getattr(each, "process_index", None)), ranks
        if isinstance(each, Plan):
            place = each.rank, each.world_size
        if isinstance(place[1], int) and place[1] > 1:
            raise ArgumentError(
                f"{name} is a {type(sampler).__name__} with the batches of rank {place[0]} of {place[1]}, and the "
                "loader deals batches to ranks itself; expected one over all samples: leave a DistributedSampler out "
                "and use shuffle=True with its seed, or give a plan or a sampler of rank 0 in a world of 1"
            )


def _set_epoch(sampler: Any) -> Any:
    """Return the ``set_epoch`` of a sampler, or of the sampler inside it."""
    for each in (sampler, getattr(sampler, "sampler", None)):
        method = getattr(each, "set_epoch", None)
        if callable(method):
            return method
    return None
