"""The plan of one epoch: which samples each rank sees at each step. Integers only, no data."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

import batchloom._native as engine
import numpy
from batchloom.arguments import RUNS, U32, UNEVEN, choice, integer, renamed, shuffled
from batchloom.batching import Rule, rule
from batchloom.errors import ArgumentError, RangeError
from batchloom.sizes import Sizes, checked, read

Indices = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a sample comes: at which step, on which rank, at which index of the batch."""

    step: int
    rank: int
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step over all ranks.

    Attributes:
        index: Which step of the plan.
        samples: Samples over all ranks.
        tokens: Elements over all ranks, without padding: what to divide a summed loss by. Known on every rank
            without communication.
        batches: For each rank that takes part, the samples of its batch.
    """

    index: int
    samples: int
    tokens: int
    batches: tuple[Indices, ...]


@renamed(world="world_size")
class Plan:
    """The batches of one rank in one epoch, and what all ranks do.

    A sequence of int64 index arrays: ``len(plan)`` batches, ``plan[i]`` the samples of one. So it is a batch
    sampler for any map-style dataset: ``torch.utils.data.DataLoader(dataset, batch_sampler=plan)``.

    A plan is a pure function of its arguments. Without ``sizes`` it takes O(1) memory and time, whatever ``samples``
    is. With ``sizes`` a step costs the cut of its pool, and a rule that decides by size how many batches there are
    cuts every pool once, to count. Plans compare, hash and pickle by value.

    Args:
        samples: How many samples there are; at most 2**62. Not needed beside ``sizes``.
        batch_size: Samples in a batch.
        batching: A rule instead of ``batch_size``.
        sizes: The size of each sample: what rules sort, count and budget by. ``[samples]``, or its extents
            ``[samples, dimensions]`` where samples vary in several.
        shuffle: Whether each epoch has a random order of its own. ``"runs"`` keeps neighbours together: batches are
            runs of samples as stored, and come in random order (with ``FixedSize``).
        shard_size: Samples are shuffled within shards of so many neighbours, and shards among each other: for data that
            is larger than the memory of a device, or read from disk. One shard at a time then holds all that batches
            need. A multiple of the batch size, where there is one; a pool of other rules ends where its shard ends.
            ``None``: everything is shuffled at once.
        drop_last: Whether to leave out what does not fill a batch and a step.
        seed: What the random orders depend on, besides the epoch.
        uneven: What happens to batches that do not fill the last step, where none is dropped: ``"pad"`` repeats
            batches, so that every rank has as many steps; ``"short"`` gives some ranks one step less, so that
            every sample comes exactly once.
        balance: Whether batches of similar cost form a step, so that no rank waits for another.
        largest_first: Whether the largest batch comes first, so that memory is claimed once and its want shows at once.
        epoch: Which epoch.
        rank: Which of ``world_size`` processes this is.
        world_size: How many there are.

    Raises:
        ArgumentError: An argument makes no sense, or ``drop_last`` would leave no step.
        DataError: There are no samples, or too many; a size is wrong, or exceeds what the rule allows.
    """

    __slots__ = ("_batching", "_native")

    def __init__(
        self,
        samples: int | None = None,
        batch_size: int | None = None,
        *,
        batching: Rule | None = None,
        sizes: Any = None,
        shuffle: bool | str = False,
        shard_size: int | None = None,
        drop_last: bool = False,
        seed: int = 0,
        uneven: str = "pad",
        balance: bool = False,
        largest_first: bool = False,
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        known = None if sizes is None else checked(sizes, "sizes", most_dimensions=2)
        if samples is None:
            if known is None:
                raise ArgumentError("neither samples nor sizes is given; expected how many samples there are")
            samples = len(known)
        self._batching = rule(batch_size, batching)
        self._native = engine.Plan(
            integer("samples", samples),
            self._batching._native(),
            None if known is None else engine.borrow(known, "sizes"),
            shuffle=shuffled(shuffle),
            drop_last=bool(drop_last),
            seed=integer("seed", seed),
            uneven=choice("uneven", uneven, UNEVEN),
            balance=bool(balance),
            largest_first=bool(largest_first),
            epoch=integer("epoch", epoch),
            rank=integer("rank", rank, most=U32),
            world_size=integer("world_size", world_size, most=U32),
            shard_size=None if shard_size is None else integer("shard_size", shard_size, least=1),
        )

    @classmethod
    def _wrap(cls, native: engine.Plan, batching: Rule) -> Plan:
        plan = cls.__new__(cls)
        plan._native, plan._batching = native, batching
        return plan

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        return len(self._native)

    @overload
    def __getitem__(self, step: SupportsIndex) -> Indices: ...
    @overload
    def __getitem__(self, step: slice) -> list[Indices]: ...
    def __getitem__(self, step: SupportsIndex | slice) -> Indices | list[Indices]:
        """Return the samples of this rank's batch at ``step``: int64, shape ``[samples]``.

        Raises:
            RangeError: There is no such step.
        """
        if isinstance(step, slice):
            return [self[place] for place in range(*step.indices(len(self)))]
        return _array(self._native.indices(_within(step, len(self))))

    def __iter__(self) -> Iterator[Indices]:
        """Yield the samples of each batch."""
        return (self[step] for step in range(len(self)))

    def step(self, step: SupportsIndex) -> Step:
        """Return one step over all ranks.

        Raises:
            RangeError: There is no such step.
        """
        index = _within(step, self._native.steps())
        samples, tokens, batches = self._native.step(index)
        return Step(index, samples, tokens, tuple(_array(batch) for batch in batches))

    def shard(self, step: SupportsIndex) -> range | None:
        """Return the shard of this rank's batch at ``step``: samples as stored, all of the batch's among them.

        Shards hold ``shard_size`` samples, but the one that comes last may hold fewer, and is another stretch in each
        epoch. (Where nothing is shuffled, it is the last as stored. With ``shuffle="runs"`` the shard of the short run
        has fewer too.)

        ``None`` where the plan has no ``shard_size``.

        Raises:
            RangeError: There is no such step.
        """
        shard = self._native.shard(_within(step, len(self)))
        return None if shard is None else range(*shard)

    def where(self, sample: SupportsIndex) -> list[Place]:
        """Return where ``sample`` comes.

        Nowhere, if it is dropped or came in an earlier part of the epoch; several times, if its batch is
        repeated to fill the last step, or if it is split.

        Raises:
            RangeError: There is no such sample.
        """
        return [Place(*place) for place in self._native.places(_within(sample, self.samples))]

    def stats(self) -> dict[str, Any]:
        """Return what the plan costs over all ranks, before it is run.

        ``samples`` and ``tokens`` (elements) in the dataset; ``batches`` over all ranks, ``steps``, ``world_size``;
        elements delivered as data (``real``) and with padding (``padded``), and the share of ``padding``;
        ``efficiency``, how full batches are where the rule limits them (``None`` where not); how many distinct
        ``shapes`` batches have; samples ``dropped``, and their ``dropped_tokens``; samples ``truncated``, and the
        ``truncated_tokens`` that this cost; samples ``split`` in parts; ``repeated`` to fill the last step, and their
        ``repeated_tokens``; delivered ``earlier`` in the epoch, and their ``earlier_tokens``; elements of the
        ``largest`` batch; ``imbalance``, the share of all ranks' time spent waiting for the largest batch of a step.

        Nothing is lost: ``tokens + repeated_tokens == real + truncated_tokens + dropped_tokens + earlier_tokens``.
        """
        return self._native.stats()

    def at_epoch(self, epoch: int) -> Plan:
        """Return the plan of another epoch of the same run, from its start."""
        return self._wrap(self._native.at_epoch(integer("epoch", epoch)), self._batching)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a page that shows the plan: what it costs, its steps, and its order. HTML, self-contained."""
        from batchloom.report import write

        write(self._native, repr(self), path)

    @property
    def fingerprint(self) -> str:
        """A name for what stays the same over all epochs and worlds of a run, as 32 hexadecimal digits.

        Depends on the number of samples and their sizes, the rule, shuffle, seed, ``drop_last``, ``uneven``,
        ``balance``, ``largest_first``, ``shard_size`` and the version of the order. A state can only be loaded where
        the fingerprint is the same.
        """
        return self._native.fingerprint

    @property
    def samples(self) -> int:
        """How many samples the dataset has."""
        return self._native.samples

    @property
    def sizes(self) -> Sizes | None:
        """The size of each sample; ``None`` where they all count the same."""
        sizes = self._native.sizes()
        return None if sizes is None else read(sizes)

    @property
    def batching(self) -> Rule:
        """How samples share a batch."""
        return self._batching

    @property
    def balance(self) -> bool:
        """Whether batches of similar cost form a step."""
        return self._native.balance

    @property
    def largest_first(self) -> bool:
        """Whether the largest batch comes first."""
        return self._native.largest_first

    @property
    def shuffle(self) -> bool | str:
        """Whether the order is random: ``True``, ``False``, or ``"runs"`` where batches of neighbours are shuffled."""
        shuffle = self._native.shuffle
        return shuffle if shuffle == RUNS else shuffle == "samples"

    @property
    def shard_size(self) -> int | None:
        """Samples in a shard, where the order goes shard by shard."""
        return self._native.shard_size

    @property
    def drop_last(self) -> bool:
        """Whether what does not fill a batch and a step is left out."""
        return self._native.drop_last

    @property
    def uneven(self) -> str:
        """What happens to batches that do not fill the last step, unless they are dropped: "pad" or "short"."""
        return self._native.uneven

    @property
    def seed(self) -> int:
        """What the order depends on, besides the epoch."""
        return self._native.seed

    @property
    def epoch(self) -> int:
        """Which epoch this is."""
        return self._native.epoch

    @property
    def rank(self) -> int:
        """Which process this plan is for."""
        return self._native.rank

    @property
    def world_size(self) -> int:
        """How many processes there are."""
        return self._native.world_size

    def _value(self) -> tuple[Any, ...]:
        native = self._native
        options = {
            "shuffle": native.shuffle,
            "drop_last": native.drop_last,
            "seed": native.seed,
            "uneven": native.uneven,
            "balance": native.balance,
            "largest_first": native.largest_first,
            "epoch": native.epoch,
            "rank": native.rank,
            "world_size": native.world_size,
            "concatenated": native.concatenated,
            "content": native.content,
            "shard_size": native.shard_size,
        }
        return native.samples, self._batching, options, native.state(0)

    def __eq__(self, other: object) -> bool:
        # The fingerprint stands for the sizes.
        return isinstance(other, Plan) and (self.fingerprint, self._value()) == (other.fingerprint, other._value())

    def __hash__(self) -> int:
        return hash((self.fingerprint, self.epoch, self.rank, self.world_size, len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        extents = self._native.extents()
        return _rebuild, (*self._value(), None if extents is None else read(extents))

    def __repr__(self) -> str:
        return (
            f"Plan({self.samples} samples, {self.batching}, epoch {self.epoch}, rank {self.rank} of {self.world_size}: "
            f"{len(self)} batches)"
        )


def _rebuild(samples: int, batching: Rule, options: dict[str, Any], state: dict[str, Any], sizes: Sizes | None) -> Plan:
    known = None if sizes is None else engine.borrow(sizes, "sizes")
    plan = engine.Plan(samples, batching._native(), known, **options)
    return Plan._wrap(plan.resume(state) if state["batches"] else plan, batching)


def _array(numbers: engine.Tensor) -> Indices:
    return numpy.asarray(numpy.from_dlpack(numbers), dtype=numpy.int64)


def _within(index: SupportsIndex, length: int) -> int:
    """Return ``index`` as a number from 0, where a negative one counts from the end."""
    number = operator.index(index)
    if not -length <= number < length:
        raise RangeError(f"index {number} is out of range; expected 0 <= index < {length}")
    return number % length
