"""The plan of one epoch: the samples of each rank at each step, as integers, without their data."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, SupportsIndex, Unpack, overload

import batchloom._native as engine
import numpy
from batchloom.arguments import U32, Shuffle, caller, integer, resolve_index
from batchloom.batching.cost_model import CostModel, coefficients
from batchloom.batching.rules import Rule, engine_rule, rule
from batchloom.errors import ArgumentError, many
from batchloom.plan.options import NumberedSamples, PlanKeywords, PlanOptions
from batchloom.samples.draws import pickle_draws, restore_draws
from batchloom.samples.label_counts import LabelCounts, as_label_counts, engine_counts, read_counts
from batchloom.samples.sizes import Sizes, read_columns, read_named_sizes, read_sizes

# Modules whose loaders read a batch sampler once an epoch.
READERS = ("torch.utils.data", "torchdata.", "accelerate.")

Numbered = Callable[[str, int], int]
"""The number of a sample of a source, given the name of the source and the number of the sample there."""

Indices = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place of a sample in an epoch.

    Attributes:
        step: The step.
        rank: The rank whose batch holds the sample.
        index: The index of the sample in that batch.
    """

    step: int
    rank: int
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One step over all ranks.

    Attributes:
        index: The number of the step in the plan.
        samples: Samples over all ranks: the divisor of a loss that is averaged over samples.
        tokens: Elements over all ranks, without padding. (Labels are fewer: a loss over them is divided by ``labels``.)
        counts: The samples of each batch that count, one number for each rank that takes part: all, unless some only
            fill up (``uneven="mask"``) or are banned.
        batches: The samples of each batch, one for each rank that takes part. Samples that only fill up are last.
    """

    index: int
    samples: int
    tokens: int
    counts: tuple[int, ...]
    batches: tuple[Indices, ...]
    _labels: int | None = field(repr=False)

    @property
    def labels(self) -> int:
        """The labels over all ranks that are not -100: the divisor of a summed loss, known without communication.

        Places that only fill up do not count.

        Raises:
            ArgumentError: The loader does not make the labels, and ``label_counts`` was not given.
        """
        return _known_labels("a step", self._labels)


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """One update of the optimizer, over all ranks and its steps: up to ``accumulate`` of them.

    Attributes:
        index: The number of the update in the plan.
        steps: The steps.
        samples: Samples over all steps and ranks.
        tokens: Elements over all steps and ranks, without padding.
        cost: The sum of the costs of all batches, by the model that ``plan.update`` is given, or of ``balance``;
            elements without one.
        imbalance: The share of the time of all ranks that is spent waiting at each step of the update, or once at its
            end with ``balance_within="update_sum"``.
    """

    index: int
    steps: range
    samples: int
    tokens: int
    cost: float
    imbalance: float
    _labels: int | None = field(repr=False)
    _sequences: int | None = field(repr=False)

    @property
    def labels(self) -> int:
        """The labels over all steps and ranks that are not -100: the divisor of a loss that is averaged over labels.

        Raises:
            ArgumentError: The loader does not make the labels, and ``label_counts`` was not given.
        """
        return _known_labels("an update", self._labels)

    @property
    def sequences(self) -> int:
        """The samples (or parts of split ones) with at least one label: the divisor of a loss averaged over samples.

        Raises:
            ArgumentError: The loader does not make the labels, and ``label_counts`` was not given.
        """
        return _known_labels("an update", self._sequences)


def _known_labels(whole: str, labels: int | None) -> int:
    if labels is None:
        raise ArgumentError(
            f"the labels of {whole} are not known: the loader does not make them, and label_counts is not given; "
            'expected labels="name of a field of tokens", or label_counts=dataset.count_labels("name of a field of '
            'labels")'
        )
    return labels


class Plan:
    """The batches of one rank in one epoch, and the steps of all ranks.

    A plan is a sequence of int64 index arrays: ``len(plan)`` batches, ``plan[i]`` the samples of one. It serves as the
    batch sampler of any map-style dataset: ``torch.utils.data.DataLoader(dataset, batch_sampler=plan)``.

    A plan is a pure function of its arguments. Without ``sizes`` it takes O(1) memory and time, whatever ``samples``
    is. With ``sizes``, a step costs the batching of its pool, and rules that make batches by size go through every
    pool once, to count the batches. Plans compare, hash and pickle by value.

    Args:
        samples: The number of samples, at most 2**62. Optional beside ``sizes``.
        batch_size: Samples in a batch; 64 if neither this nor ``batching`` is given.
        batching: A rule instead of ``batch_size``.
        sizes: The size of each sample, by which rules sort, count and budget: ``[samples]``, or extents
            ``[samples, dimensions]`` if samples vary in several dimensions. Or a dict of sizes by name, for rules with
            several budgets: rules sort by the first.
        shuffle: If ``True``, each epoch has another random order: see :class:`batchloom.PlanOptions`.
        label_counts: The labels of each sample that losses do not ignore, for ``plan.step(k).labels``: numbers, or the
            result of ``dataset.count_labels()``.
        epoch: The epoch, from 0.
        rank: The rank of this process, from 0 to ``world_size - 1``.
        world_size: The number of processes.
        **options: Keywords that :class:`batchloom.PlanOptions` documents: ``seed``, ``drop_last``, and more.

    Raises:
        ArgumentError: An argument makes no sense, or ``drop_last`` would leave no step.
        DataError: There are no samples, or too many; a size is wrong, or exceeds the limits of the rule.
    """

    __slots__ = ("_batching", "_native", "_number", "_read")

    def __init__(
        self,
        samples: int | None = None,
        batch_size: int | None = None,
        *,
        batching: Rule | None = None,
        sizes: Any = None,
        shuffle: Shuffle = False,
        label_counts: Any = None,
        epoch: int = 0,
        rank: int = 0,
        world_size: int = 1,
        **options: Unpack[PlanKeywords],
    ) -> None:
        known = read_named_sizes(sizes, most_dimensions=2)
        if samples is None:
            if known is None:
                raise ArgumentError("neither samples nor sizes is given; expected the number of samples")
            samples = len(known.first)
        self._batching, self._read, counts = rule(batch_size, batching), 0, as_label_counts(label_counts)
        self._number: Numbered | None = None
        samples = integer("samples", samples)
        given = PlanOptions.from_keywords("Plan", shuffle, options)
        native = given.native(self._batching, NumberedSamples(samples)) | {
            "sizes": None if known is None else known.borrow(),
            "labels": engine_counts(counts),
        }
        self._native = engine.Plan(
            samples,
            native,
            epoch=integer("epoch", epoch),
            rank=integer("rank", rank, most=U32),
            world_size=integer("world_size", world_size, most=U32),
        )
        warn_of_one_pool(self._native, self._batching)

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
        return _array(self._native.indices(resolve_index("step", step, len(self))))

    def __iter__(self) -> Iterator[Indices]:
        """Yield the samples of each batch.

        A loader of torch that reads a plan a second time warns once, as it repeats the same epoch.
        """
        return self._batches(sys._getframe(1).f_globals.get("__name__", ""))

    def _batches(self, reader: str) -> Iterator[Indices]:
        # Torch makes two iterators for its workers, and takes batches from one.
        self._warn_of_repetition(reader)
        yield from (self[step] for step in range(len(self)))

    def _warn_of_repetition(self, reader: str) -> None:
        if not reader.startswith(READERS):
            return
        if ban := list(self.options.ban or ()):
            raise ArgumentError(
                f"the plan bans {many(len(ban), 'sample')}, and a batch sampler cannot take their weight; "
                "expected DataLoader(..., ban=...), or a plan without ban"
            )
        self._read += 1
        if self._read == 2:
            warnings.warn(
                f"a loader of {reader.partition('.')[0]} reads this plan again, and gets epoch {self.epoch} in the "
                "same order: a plan is the batches of one epoch. BatchSampler goes on to the next one",
                stacklevel=caller(),
            )

    def step(self, step: SupportsIndex) -> Step:
        """Return one step over all ranks.

        Raises:
            RangeError: There is no such step.
        """
        index = resolve_index("step", step, self._native.steps())
        samples, tokens, labels, counts, batches = self._native.step(index)
        return Step(index, samples, tokens, tuple(counts), tuple(_array(batch) for batch in batches), labels)

    @property
    def updates(self) -> int:
        """The number of updates of the optimizer: the last one holds the steps that are left."""
        return self._native.updates()

    def update(self, update: SupportsIndex, *, cost: CostModel | None = None) -> Update:
        """Return one update of the optimizer over all ranks: up to ``accumulate`` steps.

        Every rank knows its counts before the first step, without communication. Updates are counted from the start of
        the epoch: where a state was loaded, the first update holds the steps that it still lacks, over the ranks that
        there are now.

        Args:
            update: The number of the update.
            cost: The cost of a batch; ``None`` for the model of ``balance``, or elements without one.

        Raises:
            ArgumentError: ``cost`` is no cost model.
            RangeError: There is no such update.
        """
        index = resolve_index("update", update, self._native.updates())
        steps, samples, tokens, labels, sequences, total, imbalance = self._native.update(index, coefficients(cost))
        return Update(index, range(*steps), samples, tokens, total, imbalance, labels, sequences)

    def shard(self, step: SupportsIndex) -> range | None:
        """Return the shard of this rank's batch at ``step``: a range of samples as stored that holds the batch.

        Shards hold ``shard_size`` samples. The shard that comes last may hold fewer, and is another range in each
        epoch. (Without ``shuffle``, it is the last one as stored. With ``shuffle="runs"``, the shard of the short run
        has fewer too.)

        Returns ``None`` if the plan has no ``shard_size``.

        Raises:
            RangeError: There is no such step.
        """
        shard = self._native.shard(resolve_index("step", step, len(self)))
        return None if shard is None else range(*shard)

    def where(self, sample: SupportsIndex | tuple[str, int]) -> list[Place]:
        """Return the places of ``sample`` in the epoch.

        The list is empty if the sample is dropped, not drawn, or came in an earlier part of the epoch. It has several
        places if the sample is drawn several times, if it is repeated so that all ranks have as many batches and
        samples, or if it is split. Places that only fill up (``uneven="mask"``) are left out, and those at
        which the sample is banned.

        Args:
            sample: The number of a sample; of a mixture also the name of a source and the number of a sample there.

        Raises:
            ArgumentError: There is no such source.
            RangeError: There is no such sample.
            TypeError: The plan is of no mixture, and the sample is no number.
        """
        if isinstance(sample, tuple):
            if self._number is None:
                raise TypeError(f"sample is {sample!r}, and the plan is of no mixture; expected a number")
            if len(sample) != 2:
                raise TypeError(f"sample is {sample!r}; expected the name of a source and the number of a sample there")
            sample = self._number(*sample)
        return [Place(*place) for place in self._native.places(resolve_index("sample", sample, self.samples))]

    def stats(self, *, cost: CostModel | None = None) -> dict[str, Any]:
        """Return the costs of the plan over all ranks, before it is run.

        The dict holds

        - ``samples`` and ``tokens`` (elements) of the epoch: all of the dataset, unless the epoch draws;
        - ``batches`` over all ranks, ``steps`` and ``world_size``;
        - elements delivered as data (``real``) and with padding (``padded``), and the share of ``padding``;
        - ``efficiency``, the filled share of the room that the rule gives its batches (``None`` if it has no limit);
        - ``shapes``, the number of distinct shapes of batches;
        - samples ``dropped`` by ``drop_last``, for their size or for their keys, and their ``dropped_tokens``;
        - samples that are ``banned``, whose places count as padding, and their ``banned_tokens``;
        - samples ``truncated``, and the ``truncated_tokens`` that were cut off;
        - samples ``split`` in parts;
        - samples ``repeated`` so that all ranks have as many, and their ``repeated_tokens``. (Places that only fill up,
          ``uneven="mask"``, count as padding.);
        - samples delivered ``earlier`` in the epoch, and their ``earlier_tokens``;
        - the ``tail`` of a stream: tokens that are in no sample, too few for one more piece, or for one more in every
          row of a stream that continues from batch to batch;
        - elements of the ``largest`` batch;
        - ``imbalance``, the share of the time of all ranks that is spent waiting for the costliest batch of a step:
          ``1 - busy / (world_size * longest)``, with the sum of the costs of all batches, and the sum over steps of the
          largest cost, or over updates of the largest cost of a rank with ``balance_within="update_sum"``;
          ``imbalance_cost``, the cost that is counted: ``"tokens"``, which leaves out attention, or the
          coefficients of a cost model;
        - ``step_spread``, the distance of the composition of steps from random: the variance of the mean logarithm of
          the sizes at a step, over the variance that steps of random samples have. About 1 if steps hold random
          samples, more if steps follow length (``None`` if all sizes are equal). Updates are counted in place of steps
          where ``balance_within`` is ``"update"`` or ``"update_sum"``;
        - ``mates_kept``, the share of the pairs of samples which share a batch that share one in the next epoch too:
          about what a pool holds of the samples, and 1 without ``shuffle``. (Where samples have no sizes, of 64
          neighbours in each of 1024 batches; ``None`` if batches hold one sample each.);
        - ``length_correlation``, the rank correlation of the mean size of batches with the steps at which they come:
          about 0 if shuffled, -1 if the longest come first (``None`` if all means are equal).

        and, where the rule has several budgets,

        - ``budgets``, for each name the ``sum`` of the sizes that are delivered (with padding where the budget counts
          it) and ``fill``, the share of the budgets of all batches that this is;
        - ``binding``, the name of the budget of which batches are fullest, and ``binding_fill``, which is the
          ``efficiency`` then;
        - ``lp_bound``, the number of batches that the same samples need at least, whatever shares a batch: the bound of
          linear programming, the largest sum of sizes divided by its budget.

        and, of samples that are read chunk by chunk,

        - ``chunks_open``, the number of chunks that are open at a time, over all sources of a mixture;
        - ``chunks_read``, the number of chunks that all ranks together read: a chunk counts for each rank that needs
          it, and again for each part that a rank takes after the number of ranks has changed;
        - ``pairs_of_one_chunk``, the share of the pairs of samples in a batch that are of one chunk: about
          ``1 / chunks_open`` in large chunks (counted as ``mates_kept`` is).

        All elements are accounted for:
        ``tokens + repeated_tokens == real + truncated_tokens + dropped_tokens + banned_tokens + earlier_tokens``.

        Args:
            cost: The cost of a batch by which ``imbalance`` counts; ``None`` for the model of ``balance``, or elements
                without one.

        Raises:
            ArgumentError: ``cost`` is no cost model.
        """
        return self._native.stats(coefficients(cost))

    def at_epoch(self, epoch: int) -> Plan:
        """Return the plan of another epoch of the same run, from its start."""
        return wrap_plan(self._native.at_epoch(integer("epoch", epoch)), self._batching, self._number)

    def report(self, path: str | os.PathLike[str], *, cost: CostModel | None = None) -> None:
        """Write a self-contained HTML page that shows the plan: its costs, its steps, and its order.

        Args:
            path: The file.
            cost: The cost of a batch; ``None`` for the model of ``balance``, or elements without one.

        Raises:
            ArgumentError: ``cost`` is no cost model.
        """
        by = coefficients(cost)
        with open(path, "w", encoding="utf-8") as page:
            page.write(self._native.report(repr(self), by))

    @property
    def fingerprint(self) -> str:
        """A name of the run, the same over all epochs and world sizes, as 32 hexadecimal digits.

        It depends on the number of samples and their sizes, the rule, shuffle, seed, ``drop_last``, ``uneven``,
        ``balance``, ``largest_first``, ``shard_size``, ``per_class``, ``homogeneous_by``, ``distinct_by`` (with its
        surplus), ``chunks``, ``chunks_open`` and the version of the order. A state can only be loaded if the
        fingerprint is the same.
        """
        return self._native.fingerprint

    @property
    def options(self) -> PlanOptions:
        """The options of the plan. Weights, classes and keys of samples are arrays of numbers that mean the same."""
        return PlanOptions.of(self._native)

    @property
    def samples(self) -> int:
        """The number of samples in the dataset."""
        return self._native.samples

    @property
    def sizes(self) -> Sizes | None:
        """The size of each sample; ``None`` if all count the same."""
        sizes = self._native.sizes()
        return None if sizes is None else read_sizes(sizes)

    @property
    def batching(self) -> Rule:
        """The rule that makes batches of samples."""
        return self._batching

    @property
    def shuffle(self) -> Shuffle:
        """``True`` if the order is random, or ``"runs"`` if batches of neighbours are shuffled."""
        return self.options.shuffle

    @property
    def drop_last(self) -> bool:
        """``True`` if samples that do not fill a batch, and batches that do not fill a step, are left out."""
        return self.options.drop_last

    @property
    def seed(self) -> int:
        """The seed of the random orders, which depend on the epoch too."""
        return self._native.seed

    @property
    def epoch(self) -> int:
        """The epoch, from 0."""
        return self._native.epoch

    @property
    def rank(self) -> int:
        """The rank that this plan is for."""
        return self._native.rank

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return self._native.world_size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return False
        return self._identity() == other._identity()

    def _identity(self) -> tuple[Any, ...]:
        """Return what equal plans have in common; the fingerprint stands for the sizes."""
        return self.fingerprint, self._place(), self._native.weights, self.options.ban

    def _place(self) -> tuple[int, int, int, dict[str, Any]]:
        """Return the epoch, the rank among the ranks, and the state before the first step."""
        return self.epoch, self.rank, self.world_size, self._native.state(0)

    def __hash__(self) -> int:
        return hash((self.fingerprint, self.epoch, self.rank, self.world_size, len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        options, extents = self._native.options, self._native.extents()
        labels, grouping = options["labels"], options["grouping"]
        plain = options | {
            "sizes": None if extents is None else read_columns(read_sizes(extents[0]), extents[1]),
            "labels": read_counts(*labels) if isinstance(labels, tuple) and len(labels) == 2 else labels,
            "draws": pickle_draws(options["draws"]),
            "chunks": None if options["chunks"] is None else numpy.from_dlpack(options["chunks"]),
            "grouping": None if grouping is None else (grouping[0], numpy.from_dlpack(grouping[1]), grouping[2]),
        }
        return _rebuild, (self.samples, self._batching, plain, *self._place())

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the plan and its costs."""
        return table(repr(self), self.stats())

    def __repr__(self) -> str:
        return (
            f"Plan({many(self.samples, 'sample')}, {self.batching}, epoch {self.epoch}, rank {self.rank} of "
            f"{self.world_size}: {many(len(self), 'batch')})"
        )


def wrap_plan(native: engine.Plan, batching: Rule, number: Numbered | None = None) -> Plan:
    """Return the plan that the engine made.

    Args:
        native: The plan of the engine.
        batching: The rule that makes batches of samples.
        number: The function that returns the number of a sample of a source; ``None`` where there is one source.
    """
    plan = Plan.__new__(Plan)
    plan._native, plan._batching, plan._number, plan._read = native, batching, number, 0
    return plan


def engine_plan(plan: Plan) -> engine.Plan:
    """Return a plan as the engine sees it."""
    return plan._native


def _rebuild(
    samples: int,
    batching: Rule,
    options: dict[str, Any],
    epoch: int,
    rank: int,
    world_size: int,
    state: dict[str, Any],
) -> Plan:
    sizes, labels, keys, chunks = (options[name] for name in ("sizes", "labels", "grouping", "chunks"))
    native = options | {
        "rule": engine_rule(batching),
        "sizes": None if sizes is None else sizes.borrow(),
        "labels": engine_counts(labels) if isinstance(labels, LabelCounts) else labels,
        "draws": restore_draws(options["draws"]),
        "grouping": None if keys is None else (keys[0], engine.borrow(keys[1], keys[0]), keys[2]),
        "chunks": None if chunks is None else engine.borrow(chunks, "chunks"),
    }
    plan = engine.Plan(samples, native, epoch=epoch, rank=rank, world_size=world_size)
    return wrap_plan(plan.resume(state) if state["batches"] or "bans" in state else plan, batching)


def warn_of_one_pool(plan: engine.Plan, batching: Rule) -> None:
    """Warn if a pool that was given as a number makes the same batches in every epoch."""
    if plan.has_one_pool:
        warnings.warn(
            f"one pool of {batching} holds all samples that are shuffled together, so epochs have much the same "
            "batches (mates_kept in stats()); expected a smaller pool, or none for the default; "
            'pool="all" says that it is meant',
            stacklevel=caller(),
        )


def table(title: str, rows: Mapping[str, Any]) -> str:
    """Return a table of names and numbers as HTML."""
    import html

    def text(value: Any) -> str:
        return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))

    cells = "".join(f"<tr><th>{text(name)}</th><td>{text(value)}</td></tr>" for name, value in rows.items())
    return f"<table><caption>{text(title)}</caption>{cells}</table>"


def _array(numbers: engine.Tensor) -> Indices:
    return numpy.asarray(numpy.from_dlpack(numbers), dtype=numpy.int64)
