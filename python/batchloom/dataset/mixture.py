"""Mixtures: several datasets of one kind in one run, drawn in proportion to their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arguments import choice, integer, out_of_range, text, weight
from batchloom.dataset.base import Dataset
from batchloom.dataset.concat import require_same
from batchloom.errors import ArgumentError, many
from batchloom.samples.label_counts import LabelCounts
from batchloom.samples.sizes import read

BY = ("samples", "tokens", "labels")
WHEN_EXHAUSTED = ("stop", "repeat", "renormalise")


class Mixture:
    """Several datasets of one kind, from which a loader draws by weight.

        mixture = bl.Mixture({"web": web, "books": books}, weights={"web": 3, "books": 1}, by="tokens")
        loader = bl.DataLoader(mixture, batching=bl.Packing(8192), shuffle=True)

    Sources take turns in proportion to their weights, in every stretch of an epoch and not only on average. The samples
    of a source are permuted, pass after pass: all of them are drawn once before any is drawn again. Every rule works,
    and so do ranks and resume. Batches hold ``source``, the number of the source of each sample (int64), after the
    fields (last in tuples). Samples are numbered as in ``mixture.dataset``, which holds the samples of all sources, one
    source after the other.

    A batch may hold samples of several sources, so it is formed on the CPU, and then copied to a device.

    Args:
        sources: Datasets by name. Their fields have the same names, types and frameworks.
        weights: The weight of each source, by name: numbers from 0 on; their ratios count. A source of
            weight 0 is not drawn from. ``None`` for the size of each source (in samples, tokens or labels). After a
            state with other weights is loaded, these weights apply from the first pool without a batch taken.
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
        ArgumentError: There is no source; a weight is negative, no number, or of no source; or datasets differ in kind
            or in a field, which the message names.
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
        self._names = tuple(text("a name in sources", name) for name in sources)
        self._by, self._when_exhausted = choice("by", by, BY), choice("when_exhausted", when_exhausted, WHEN_EXHAUSTED)
        self._dataset = _joined(tuple(sources.values()))
        self._counts = [len(each) for each in sources.values()]
        self._schedule = self._changes(schedule)
        if self._schedule and self._schedule[0][0] == 0:
            if weights is not None:
                raise ArgumentError("weights are given, and the schedule has some from 0 on; expected one of them")
            self._weights: list[float] | None = self._schedule.pop(0)[1]
        else:
            self._weights = None if weights is None else self._given(weights)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sources, in order: ``source`` in a batch is the place in it."""
        return self._names

    @property
    def dataset(self) -> Dataset[Any]:
        """The samples of all sources, one source after the other."""
        return self._dataset

    @property
    def weights(self) -> dict[str, float] | None:
        """The weight of each source, as it was given; ``None`` if sources weigh what they have."""
        return None if self._weights is None else dict(zip(self._names, self._weights, strict=True))

    @property
    def schedule(self) -> list[tuple[int, dict[str, float]]]:
        """The weights that follow, and the amount from which each hold."""
        return [(amount, dict(zip(self._names, weights, strict=True))) for amount, weights in self._schedule]

    @property
    def by(self) -> str:
        """The measure of shares: samples, tokens or labels."""
        return self._by

    @property
    def when_exhausted(self) -> str:
        """The end of an epoch."""
        return self._when_exhausted

    def __len__(self) -> int:
        """Return the number of samples of all sources."""
        return sum(self._counts)

    def __repr__(self) -> str:
        weights = [1.0] * len(self._names) if self._weights is None else self._weights
        parts = ", ".join(
            f"{name}: {many(count, 'sample')}" + ("" if self._weights is None else f" at {weight:g}")
            for name, count, weight in zip(self._names, self._counts, weights, strict=True)
        )
        return f"Mixture({parts}; by {self._by})"

    def sample(self, source: str, sample: int) -> int:
        """Return the number, in ``dataset``, of a sample of a source.

        Raises:
            ArgumentError: There is no such source.
            RangeError: There is no such sample.
        """
        if source not in self._names:
            raise ArgumentError(f"source is {source!r}; expected one of {', '.join(map(repr, self._names))}")
        place = self._names.index(source)
        number, count = integer("sample", sample), self._counts[place]
        if number >= count:
            raise out_of_range("sample", number, count, f" of source {source!r}")
        return sum(self._counts[:place]) + number

    def _sources(self) -> numpy.ndarray[Any, Any]:
        """Return the number of the source of each sample."""
        return numpy.repeat(numpy.arange(len(self._counts)), self._counts)

    def _over(self, dataset: Dataset[Any]) -> Mixture:
        """Return the same mixture over the same samples in other memory."""
        found = Mixture.__new__(Mixture)
        found.__dict__.update(self.__dict__)
        found._dataset = dataset
        return found

    def _given(self, weights: Mapping[str, float]) -> list[float]:
        if not isinstance(weights, Mapping):
            raise ArgumentError(f"weights is {weights!r}; expected a weight for each source, by name")
        for name in weights:
            if name not in self._names:
                raise ArgumentError(
                    f"weights names {name!r}, which is no source; expected {', '.join(map(repr, self._names))}"
                )
        for name in self._names:
            if name not in weights:
                raise ArgumentError(f"weights has none for source {name!r}; expected one for each, 0 for none of it")
        return [float(weight(f"source {name}", weights[name])) for name in self._names]

    def _changes(self, schedule: Sequence[tuple[int, Mapping[str, float]]]) -> list[tuple[int, list[float]]]:
        """Return the changes of a schedule, checked."""
        found: list[tuple[int, list[float]]] = []
        if not isinstance(schedule, Sequence) or isinstance(schedule, str):
            raise ArgumentError(f"schedule is {schedule!r}; expected pairs of an amount and weights")
        for change in schedule:
            if not isinstance(change, Sequence) or isinstance(change, str) or len(change) != 2:
                raise ArgumentError(f"schedule has {change!r}; expected an amount and weights by name")
            amount = integer("an amount in schedule", change[0], most=2**62)
            if found and amount <= found[-1][0]:
                raise ArgumentError(f"schedule has {amount} after {found[-1][0]}; expected amounts that increase")
            found.append((amount, self._given(change[1])))
        return found

    def _draws(self, num_samples: int | None, labels: str | None, counts: LabelCounts | None) -> _native.Draws:
        """Return the draws of an epoch, given the labels that the loader knows."""
        measure = self._measure(labels, counts)
        weights = self._weights
        if weights is None:
            weights = [float(count) for count in self._counts]
            if measure is not None:
                parts = numpy.split(measure, numpy.cumsum(self._counts)[:-1])
                weights = [float(part.sum(dtype=numpy.float64)) for part in parts]
                for name, weight in zip(self._names, weights, strict=True):
                    if weight == 0:
                        raise ArgumentError(
                            f"source {name!r} has no {self._by}; expected some, or weights that leave it out"
                        )
        number = None if num_samples is None else integer("num_samples", num_samples, least=1, most=2**62)
        borrowed = None if measure is None else (self._by, _native.borrow(measure, self._by))
        schedule, exhausted = self._schedule, self._when_exhausted
        return _native.Draws.mixed(self._counts, weights, schedule, exhausted, number, borrowed, list(self._names))

    def _measure(self, labels: str | None, counts: LabelCounts | None) -> numpy.ndarray[Any, Any] | None:
        """Return what each sample has of the measure; ``None`` if samples count the same."""
        if self._by == "samples":
            return None
        if self._by == "tokens":
            sizes = self._dataset._native_dataset().sizes()
            if sizes is None:
                raise ArgumentError('by is "tokens", and samples have no sizes; expected by="samples"')
            return read(sizes)
        if counts is None and labels is not None:
            counts = self._dataset.count_labels(labels, next_tokens=True)
        if counts is None:
            raise ArgumentError(
                'by is "labels", and the loader knows of none; expected labels="name of a field of tokens", or '
                "label_counts=mixture.dataset.count_labels(...)"
            )
        return numpy.ascontiguousarray(counts.counts, numpy.uint32)


def _joined(sources: tuple[Dataset[Any], ...]) -> Dataset[Any]:
    require_same(sources)
    return sources[0]._joined(sources[1:], source=True)
