"""Mixtures: several datasets of one kind in one run, drawn in proportion to their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arguments import answer_unknown_keywords, choice, integer, out_of_range, text, weight
from batchloom.dataset.base import Dataset, join_datasets, samples_of
from batchloom.dataset.concat import require_datasets
from batchloom.errors import ArgumentError, many
from batchloom.samples.label_counts import LabelCounts

# The least weight of a source that is drawn from, as a part of the largest: the engine has weights as whole numbers
# below 2^32.
LEAST_WEIGHT = 1e-9

BY = ("samples", "tokens", "labels")
WHEN_EXHAUSTED = ("stop", "repeat", "renormalise")


@answer_unknown_keywords
class Mixture:
    """Several datasets of one kind, from which a loader draws by weight.

        mixture = bl.Mixture({"web": web, "books": books}, weights={"web": 3, "books": 1}, by="tokens")
        loader = bl.DataLoader(mixture, batching=bl.Packing(8192), shuffle=True)

    Sources take turns in proportion to their weights, in every stretch of an epoch and not only on average. The samples
    of a source are permuted, pass after pass: all of them are drawn once before any is drawn again. Every rule works,
    and so do ranks and resume. Batches hold ``source``, the number of the source of each sample (int64), after the
    fields (last in tuples). Samples are numbered as in ``mixture.dataset``, which holds the samples of all sources, one
    source after the other.

    Sources that are read a chunk at a time have a window over their own chunks each, and a new order of chunks for each
    pass. The bytes that ``memory=`` allows to the sources add up to what an iteration may hold.

    A batch may hold samples of several sources, so it is formed on the CPU, and then copied to a device.

    Args:
        sources: Datasets by name. Their fields have the same names, types and frameworks.
        weights: The weight of each source, by name: numbers from 0 on; their ratios count. A source of weight 0 is not
            drawn from, and any other weight is at least 1e-9 of the largest. ``None`` for the size of each source (in
            samples, tokens or labels). After a state with other weights is loaded, these weights apply from the first
            pool without a batch taken.
        schedule: Weights that replace ``weights`` in the course of the run, as pairs of an amount and weights: the
            weights apply from that amount on, over all epochs. Amounts are in the unit of ``by``: samples, tokens or
            labels, so they mean the same for any batch size and any number of ranks. They increase; the first may be 0,
            in place of ``weights``.
        by: The unit of shares: ``"samples"``; ``"tokens"``, the sizes of samples; or ``"labels"``, the labels that
            losses count, which the loader has to know (``labels=`` or ``label_counts=``). By tokens and labels, the
            draws of an epoch are listed when it begins: four bytes each.
        when_exhausted: The end of an epoch. ``"stop"``: after the last sample of any source; the next epoch continues
            the passes of the other sources. ``"repeat"``: after every source was drawn completely at least once.
            ``"renormalise"``: after every sample was drawn once; the remaining sources share the weight of a source
            that is exhausted. With ``num_samples=`` of the loader, an epoch draws that number, and the next epoch
            continues where it stopped.

    Raises:
        ArgumentError: There is no source; a weight is negative, no number, too small, or of no source; datasets differ
            in kind or in a field, which the message names; or of sources that are read a chunk at a time, some have
            ``memory=`` and some have none.
    """

    def __init__(
        self,
        sources: Mapping[str, Dataset[Any]],
        weights: Mapping[str, float] | None = None,
        *,
        schedule: Sequence[tuple[int, Mapping[str, float]]] = (),
        by: str = "samples",
        when_exhausted: str = "stop",
    ) -> None:
        if not isinstance(sources, Mapping) or not sources:
            raise ArgumentError(f"sources is {sources!r}; expected datasets by name")
        names = tuple(text("a name in sources", name) for name in sources)
        choice("by", by, BY)
        choice("when_exhausted", when_exhausted, WHEN_EXHAUSTED)
        datasets = tuple(sources.values())
        require_datasets(datasets)
        dataset = join_datasets(datasets, source=True, labels=[f"source {name!r}" for name in names])
        counts = [len(each) for each in datasets]
        changes, shares = _changes(schedule, names), None
        if changes and changes[0][0] == 0:
            if weights is not None:
                raise ArgumentError("weights are given, and the schedule has some from 0 on; expected one of them")
            shares = changes.pop(0)[1]
        elif weights is not None:
            shares = _read_weights(weights, names)
        self._mixed = MixedSamples(names, dataset, counts, shares, changes, by, when_exhausted)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sources, in order: ``source`` in a batch is the place in it."""
        return self._mixed.names

    @property
    def dataset(self) -> Dataset[Any]:
        """The samples of all sources, one source after the other."""
        return self._mixed.dataset

    @property
    def weights(self) -> dict[str, float] | None:
        """The weight of each source, as it was given; ``None`` if sources weigh what they have."""
        return None if self._mixed.weights is None else dict(zip(self._mixed.names, self._mixed.weights, strict=True))

    @property
    def schedule(self) -> list[tuple[int, dict[str, float]]]:
        """The weights that follow, and the amount from which each hold."""
        return [
            (amount, dict(zip(self._mixed.names, weights, strict=True))) for amount, weights in self._mixed.schedule
        ]

    @property
    def by(self) -> str:
        """The measure of shares: samples, tokens or labels."""
        return self._mixed.by

    @property
    def when_exhausted(self) -> str:
        """The end of an epoch."""
        return self._mixed.when_exhausted

    def __len__(self) -> int:
        """Return the number of samples of all sources."""
        return sum(self._mixed.counts)

    def __repr__(self) -> str:
        weights = [1.0] * len(self._mixed.names) if self._mixed.weights is None else self._mixed.weights
        parts = ", ".join(
            f"{name}: {many(count, 'sample')}" + ("" if self._mixed.weights is None else f" at {weight:g}")
            for name, count, weight in zip(self._mixed.names, self._mixed.counts, weights, strict=True)
        )
        return f"Mixture({parts}; by {self._mixed.by})"

    def sample(self, source: str, sample: int) -> int:
        """Return the number, in ``dataset``, of a sample of a source.

        Raises:
            ArgumentError: There is no such source.
            RangeError: There is no such sample.
        """
        if source not in self._mixed.names:
            raise ArgumentError(f"source is {source!r}; expected one of {', '.join(map(repr, self._mixed.names))}")
        place = self._mixed.names.index(source)
        number, count = integer("sample", sample), self._mixed.counts[place]
        if number >= count:
            raise out_of_range("sample", number, count, f" of source {source!r}")
        return sum(self._mixed.counts[:place]) + number


@dataclass(frozen=True, eq=False)
class MixedSamples:
    """The samples of several sources, and how a loader draws from them.

    Attributes:
        names: The names of the sources.
        dataset: The samples of all sources, one source after the other.
        counts: The number of samples of each source.
        weights: The weight of each source; ``None`` if sources weigh what they have.
        schedule: The weights that follow, and the amount from which each hold.
        by: The measure by which shares hold.
        when_exhausted: The end of an epoch.
    """

    names: tuple[str, ...]
    dataset: Dataset[Any]
    counts: list[int]
    weights: list[float] | None
    schedule: list[tuple[int, list[float]]]
    by: str
    when_exhausted: str

    def sources(self) -> numpy.ndarray[Any, Any]:
        """Return the number of the source of each sample."""
        return numpy.repeat(numpy.arange(len(self.counts)), self.counts)

    def draws(self, num_samples: int | None, labels: str | None, counts: LabelCounts | None) -> _native.Draws:
        """Return the draws of an epoch, given the labels that the loader knows."""
        measure = self._measure(labels, counts)
        weights = self.weights
        if weights is None:
            weights = [float(count) for count in self.counts]
            if measure is not None:
                parts = numpy.split(measure, numpy.cumsum(self.counts)[:-1])
                weights = [float(part.sum(dtype=numpy.float64)) for part in parts]
                for name, weight in zip(self.names, weights, strict=True):
                    if weight == 0:
                        raise ArgumentError(
                            f"source {name!r} has no {self.by}; expected some, or weights that leave it out"
                        )
        number = None if num_samples is None else integer("num_samples", num_samples, least=1, most=2**62)
        borrowed = None if measure is None else (self.by, _native.borrow(measure, self.by))
        schedule, exhausted = self.schedule, self.when_exhausted
        return _native.Draws.mixed(self.counts, weights, schedule, exhausted, number, borrowed, list(self.names))

    def _measure(self, labels: str | None, counts: LabelCounts | None) -> numpy.ndarray[Any, Any] | None:
        """Return what each sample has of the measure; ``None`` if samples count the same."""
        if self.by == "samples":
            return None
        if self.by == "tokens":
            sizes = samples_of(self.dataset).sizes()
            if sizes is None:
                raise ArgumentError('by is "tokens", and samples have no sizes; expected by="samples"')
            return sizes
        if counts is None and labels is not None:
            held = samples_of(self.dataset)
            sizes = held.sizes() if held.is_on_demand else None
            if sizes is not None:
                # What is read on demand has a label for each token but the last.
                return numpy.maximum(sizes, 1) - 1
            counts = self.dataset.count_labels(labels, next_tokens=True)
        if counts is None:
            raise ArgumentError(
                'by is "labels", and the loader knows of none; expected labels="name of a field of tokens", or '
                "label_counts=mixture.dataset.count_labels(...)"
            )
        return numpy.ascontiguousarray(counts.counts, numpy.uint32)


def mixed_samples_of(mixture: Mixture) -> MixedSamples:
    """Return what a mixture holds: the object that a loader asks."""
    return mixture._mixed


def with_dataset(mixture: Mixture, dataset: Dataset[Any]) -> Mixture:
    """Return the same mixture over the same samples in other memory."""
    copy = mixture.__new__(type(mixture))
    copy.__dict__.update(mixture.__dict__)
    copy._mixed = replace(mixture._mixed, dataset=dataset)
    return copy


def _read_weights(weights: Mapping[str, float], names: tuple[str, ...]) -> list[float]:
    """Return the weight of each source, checked."""
    if not isinstance(weights, Mapping):
        raise ArgumentError(f"weights is {weights!r}; expected a weight for each source, by name")
    for name in weights:
        if name not in names:
            raise ArgumentError(f"weights names {name!r}, which is no source; expected {', '.join(map(repr, names))}")
    for name in names:
        if name not in weights:
            raise ArgumentError(f"weights has none for source {name!r}; expected one for each, 0 for none of it")
    found = {name: float(weight(f"source {name}", weights[name])) for name in names}
    largest = max(found.values())
    for name, each in found.items():
        if 0 < each < LEAST_WEIGHT * largest:
            raise ArgumentError(
                f"the weight of source {name} is {each:g}, and the largest is {largest:g}; expected at least "
                f"{LEAST_WEIGHT * largest:g}, a part of {LEAST_WEIGHT:g} of it, or 0 for none of the source"
            )
    return list(found.values())


def _changes(
    schedule: Sequence[tuple[int, Mapping[str, float]]], names: tuple[str, ...]
) -> list[tuple[int, list[float]]]:
    """Return the changes of a schedule, checked."""
    changes: list[tuple[int, list[float]]] = []
    if not isinstance(schedule, Sequence) or isinstance(schedule, str):
        raise ArgumentError(f"schedule is {schedule!r}; expected pairs of an amount and weights")
    for change in schedule:
        if not isinstance(change, Sequence) or isinstance(change, str) or len(change) != 2:
            raise ArgumentError(f"schedule has {change!r}; expected an amount and weights by name")
        amount = integer("an amount in schedule", change[0], most=2**62)
        if changes and amount <= changes[-1][0]:
            raise ArgumentError(f"schedule has {amount} after {changes[-1][0]}; expected amounts that increase")
        changes.append((amount, _read_weights(change[1], names)))
    return changes
