"""Micro-batches for samples in hand, such as the rollouts of one update: a pure function of their lengths.

Every rank calls :func:`microbatches` with the lengths of all samples and finds the same answer, or the same error,
without communication. Nothing is imported but NumPy.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from typing import Any, Literal, SupportsIndex

import batchloom._native as _native
import numpy
from batchloom.arguments import U32, U64, boolean, choice, integer, resolve_index
from batchloom.batching.cost_model import COEFFICIENTS, CostModel
from batchloom.errors import ArgumentError, DataError, DTypeError
from batchloom.samples.keys import classes_of
from batchloom.samples.per_sample import read_each

Array = numpy.ndarray[Any, Any]
Whole = Literal["rank", "micro_batch"]
Sync = Literal["micro_batch", "update"]
OversizeSample = Literal["error", "alone", "drop"]
MicroBatchOrder = Literal["largest_first", "ends"]

WHOLE = ("rank", "micro_batch")
SYNC = ("micro_batch", "update")
OVERSIZE = ("error", "alone", "drop")
ORDER = ("largest_first", "ends")


@dataclass(frozen=True, eq=False)
class MicroBatches:
    """The micro-batches of all ranks, the same on every rank.

    ``planned[rank]`` is a list with the samples of each micro-batch of a rank. Two plans are equal if all values are.

    Attributes:
        world_size: The number of ranks.
        count: The micro-batches of each rank.
        index: The samples of all micro-batches of rank 0, then those of rank 1, and so on.
        offsets: The place in ``index`` where each micro-batch begins, and the end: ``world_size * count + 1`` numbers.
            Micro-batch ``k`` of rank ``r`` is number ``r * count + k``.
        weight: The weight of each sample in ``index``: 1, or 0 where a rank that lacks a sample takes the cheapest one
            again, so that no micro-batch is empty.
        inverse: For each sample given, its place in ``index``: ``results[inverse]`` is in the order of ``lengths``, for
            results in the order of ``index``. -1 for a sample that was dropped or left.
        tokens: The tokens of each micro-batch: ``[world_size, count]``.
        padded_tokens: The same with each length rounded up to ``multiple_of``, as ``max_tokens`` counts them.
        cost: The cost of each micro-batch by the cost model, samples of weight 0 counted.
        labels: The labels of each micro-batch, samples of weight 0 left out; ``None`` if labels were not given.
        total_labels: The labels of all micro-batches, the divisor of a mean over tokens; ``None`` likewise.
        sequences: The samples that have a label, or without labels all that are planned: the divisor of a mean over
            sequences.
        imbalance: The share of all ranks' time that is spent waiting, by the cost model.
        bound: A share that no plan with as many micro-batches is below.
        dropped: The samples that exceed a micro-batch and were dropped.
        left: The samples that an exact ``count`` left over: the latest ones.
    """

    world_size: int
    count: int
    index: Array
    offsets: Array
    weight: Array
    inverse: Array
    tokens: Array
    padded_tokens: Array
    cost: Array
    labels: Array | None
    total_labels: int | None
    sequences: int
    imbalance: float
    bound: float
    dropped: Array
    left: Array

    def __getitem__(self, rank: SupportsIndex) -> list[Array]:
        """Return the samples of each micro-batch of a rank.

        Raises:
            RangeError: There is no such rank.
        """
        return self._cut(self.index, rank)

    def __len__(self) -> int:
        return self.world_size

    def weights(self, rank: SupportsIndex) -> list[Array]:
        """Return the weight of each sample of each micro-batch of a rank.

        Raises:
            RangeError: There is no such rank.
        """
        return self._cut(self.weight, rank)

    def _cut(self, values: Array, rank: SupportsIndex) -> list[Array]:
        first = resolve_index("rank", rank, self.world_size) * self.count
        ends = self.offsets[first : first + self.count + 1].tolist()
        return [values[start:end] for start, end in itertools.pairwise(ends)]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MicroBatches):
            return NotImplemented
        names = [field.name for field in dataclasses.fields(self)]
        return all(_are_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"<MicroBatches: {self.count} on each of {self.world_size} ranks, {int(self.weight.sum())} samples, "
            f"waiting {self.imbalance:.2%} (at least {self.bound:.2%})>"
        )


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, numpy.ndarray) and isinstance(other, numpy.ndarray):
        return numpy.array_equal(one, other)
    return bool(one == other)


def microbatches(
    lengths: Any,
    *,
    world_size: int,
    max_tokens: int,
    cost: CostModel | None = None,
    labels: Any = None,
    groups: Any = None,
    whole: Whole | None = None,
    classes: Any = None,
    max_samples: int | None = None,
    multiple_of: int = 1,
    least: int = 1,
    count: int | None = None,
    count_multiple_of: int = 1,
    equal_samples: bool = False,
    sync: Sync = "micro_batch",
    oversize: OversizeSample = "error",
    order: MicroBatchOrder = "largest_first",
) -> MicroBatches:
    """Divide samples in hand among ranks, and into micro-batches that no rank waits for.

        planned = bl.microbatches(lengths, world_size=64, max_tokens=16_384, labels=answer_lengths)
        for samples in planned[rank]:
            loss = token_losses(samples).sum() / planned.total_labels
            loss.backward()

    All ranks have as many micro-batches, as few as the samples fit into. No micro-batch exceeds ``max_tokens``, none is
    empty, and every sample is in one of them, or in ``dropped`` or ``left``. Costs are compared as integers, ties by
    number: the answer is the same on every rank and platform.

    Args:
        lengths: The length of each sample, on all ranks together: integers.
        world_size: The number of ranks that take samples of their own.
        max_tokens: The most tokens in a micro-batch.
        cost: The cost of a micro-batch, ``fixed + per_token * sum(L) + per_pair * sum(L**2)``. ``None`` for
            :meth:`CostModel.default`.
        labels: The number of labels of each sample that the loss counts, for ``total_labels`` and ``sequences``.
        groups: The group of each sample, numbers or texts. Samples of a group need not be neighbours. Needs ``whole``.
        whole: The place that holds all samples of a group: a ``"rank"``, in one micro-batch or several, or a
            ``"micro_batch"``.
        classes: The class of each sample, such as its modality or the version of its policy. A micro-batch holds
            samples of one class, which is the same on all ranks.
        max_samples: The most samples in a micro-batch.
        multiple_of: The number that each length is rounded up to a multiple of before it counts.
        least: The least number of micro-batches of a rank.
        count: The number of micro-batches of a rank. The oldest samples that fit are planned, and the others are
            ``left``.
        count_multiple_of: The number that the micro-batches of a rank are a multiple of, as stages of an interleaved
            pipeline want it.
        equal_samples: Give each rank as many samples.
        sync: The place where ranks wait for each other: at every ``"micro_batch"``, or once in an ``"update"``.
        oversize: Treatment of a sample, or a group that a micro-batch takes whole, that exceeds a micro-batch:
            ``"error"``; ``"alone"``, a micro-batch alone; or ``"drop"``.
        order: The order of micro-batches: ``"largest_first"``, so that a lack of memory shows at once, or ``"ends"``,
            the cheapest at both ends, where a pipeline fills and drains.

    Raises:
        ArgumentError: A number is out of range, a name is unknown, options exclude each other, or ``count`` does not
            suffice for the oldest sample or group.
        DataError: A length is negative or a sample exceeds a micro-batch, with its number; values are not one for each
            sample; a group has several classes; or ``equal_samples`` does not divide.
        DTypeError: Lengths or labels are no integers.
    """
    if cost is not None and not isinstance(cost, CostModel):
        raise ArgumentError(f"cost is {cost!r}; expected a CostModel")
    model = CostModel.default() if cost is None else cost
    numbers = _read_counts("lengths", lengths)
    names = (
        None if whole is None else choice("whole", whole, WHOLE),
        choice("sync", sync, SYNC),
        choice("oversize", oversize, OVERSIZE),
        choice("order", order, ORDER),
    )
    planned = _native.micro_batches(
        _native.borrow(numbers, "lengths"),
        None if groups is None else _native.borrow(classes_of(groups, "groups"), "groups"),
        None if classes is None else _native.borrow(classes_of(classes, "classes"), "classes"),
        None if labels is None else _native.borrow(_read_counts("labels", labels), "labels"),
        integer("world_size", world_size, least=1, most=U32),
        integer("max_tokens", max_tokens, least=1, most=U64),
        tuple(getattr(model, name) for name in COEFFICIENTS),
        None if max_samples is None else integer("max_samples", max_samples, least=1, most=U32),
        integer("multiple_of", multiple_of, least=1, most=U32),
        (
            integer("least", least, least=1, most=U32),
            None if count is None else integer("count", count, least=1, most=U32),
            integer("count_multiple_of", count_multiple_of, least=1, most=U32),
        ),
        boolean("equal_samples", equal_samples),
        names,
    )
    return _assemble(world_size, planned)


def _read_counts(name: str, given: Any) -> Array:
    """Return lengths or labels as uint32.

    Raises:
        DataError: A number is negative, or not below 2**32. The message names the first.
        DTypeError: They are no integers.
    """
    array = read_each(name, given, None, expected="an integer for each sample")
    if array.size == 0:
        return numpy.zeros(0, numpy.uint32)
    if array.dtype.kind not in "iu":
        raise DTypeError(f"{name}: found values of type {array.dtype}; expected an integer for each sample")
    if array.dtype != numpy.uint32 and (array.min() < 0 or array.max() > U32):
        sample = int(((array < 0) | (array > U32)).argmax())
        raise DataError(f"{name} is {array[sample]} for sample {sample}; expected at least 0 and below 2**32")
    return numpy.ascontiguousarray(array, numpy.uint32)


def _assemble(world_size: int, planned: Any) -> MicroBatches:
    """Return the answer of the engine as arrays of NumPy."""
    count, arrays, weight, cost, (labels, total_labels, sequences), (imbalance, bound) = planned
    index, offsets, tokens, padded_tokens, dropped, left, inverse = map(numpy.from_dlpack, arrays)
    shape = (int(world_size), count)
    return MicroBatches(
        world_size=int(world_size),
        count=count,
        index=index,
        offsets=offsets,
        weight=numpy.from_dlpack(weight),
        inverse=inverse,
        tokens=tokens.reshape(shape),
        padded_tokens=padded_tokens.reshape(shape),
        cost=numpy.from_dlpack(cost).reshape(shape),
        labels=None if labels is None else numpy.from_dlpack(labels).reshape(shape),
        total_labels=total_labels,
        sequences=sequences,
        imbalance=imbalance,
        bound=bound,
        dropped=dropped,
        left=left,
    )
