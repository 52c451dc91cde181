"""The options of a plan, as one value: the order of an epoch, and how samples share batches and batches share steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

import batchloom._native as _native
import numpy
from batchloom.arguments import (
    RUNS,
    TRUNCATE,
    U32,
    UNEVEN,
    PadTo,
    PerSample,
    SampleKeys,
    Shuffle,
    Truncate,
    Uneven,
    boolean,
    choice,
    integer,
    read_shuffle,
    require_known,
)
from batchloom.batching.cost_model import CostModel, coefficients
from batchloom.batching.rules import Rule, engine_rule
from batchloom.errors import ArgumentError
from batchloom.samples.bans import read_ban
from batchloom.samples.chunks import PerChunk, check_chunks
from batchloom.samples.distinct_by import DistinctBy
from batchloom.samples.draws import MOST, describe_draws, draws_of, grouping_of

BalanceWithin = Literal["window", "update", "update_sum"]
BALANCE_WITHIN = ("window", "update", "update_sum")


class OrderKeywords(TypedDict, total=False):
    """Keywords of plans, samplers and loaders: attributes of :class:`PlanOptions`.

    ``shuffle``, ``seed``, ``chunks`` and ``chunks_open`` are apart: a loader has a seed of its own, and no chunks.
    """

    shard_size: int | None
    drop_last: bool
    uneven: Uneven
    balance: bool | CostModel
    largest_first: bool
    pad_to: PadTo
    truncate: Truncate
    weights: PerSample | None
    num_samples: int | None
    balanced_by: SampleKeys | None
    homogeneous_by: SampleKeys | None
    distinct_by: SampleKeys | Mapping[str, SampleKeys] | DistinctBy | None
    per_class: int | None
    ban: Iterable[Any] | None
    accumulate: int
    balance_within: BalanceWithin


class PlanKeywords(OrderKeywords, total=False):
    """Keywords of plans and samplers: the attributes of :class:`PlanOptions` but ``shuffle``, an argument by place."""

    seed: int
    chunks: PerChunk | None
    chunks_open: int | None


class PlanSamples(Protocol):
    """The facts about samples that `PlanOptions` needs."""

    @property
    def samples(self) -> int:
        """The number of samples."""

    @property
    def number(self) -> Callable[[str, int], int] | None:
        """The function that returns the number of a sample of a source; ``None`` where there is one source."""

    def shuffle(self, shuffle: Shuffle) -> tuple[str, bool]:
        """Return the random order as the engine names it, and whether documents are shuffled."""

    def draws(self, options: PlanOptions) -> _native.Draws | None:
        """Return the draws of an epoch; ``None`` if it is every sample once."""

    def keys(self, option: str, keys: Any) -> Any:
        """Return the key of each sample."""


@dataclass(frozen=True)
class NumberedSamples:
    """Samples that a plan knows by number alone."""

    samples: int
    number: Callable[[str, int], int] | None = None

    def shuffle(self, shuffle: Shuffle) -> tuple[str, bool]:
        """Return the random order as the engine names it."""
        return read_shuffle(shuffle), False

    def draws(self, options: PlanOptions) -> _native.Draws | None:
        """Return the draws of an epoch; ``None`` if it is every sample once."""
        return draws_of(self.samples, options.weights, options.num_samples, options.balanced_by, options.per_class)

    def keys(self, option: str, keys: Any) -> Any:
        """Return the key of each sample, as it was given."""
        return keys


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanOptions:
    """Options that decide the batches of each epoch; plans, samplers and loaders take them as keywords.

    ``plan.options`` has the options of a plan. The engine checks which options exclude each other. A loader, which
    knows the data, takes the name of a field, or its place in a tuple, for the classes and keys that the field holds.

    Attributes:
        shuffle: If ``True``, each epoch has another random order. ``"runs"`` keeps neighbours together: batches
            are runs of samples as stored, in random order (with ``FixedSize``); each epoch cuts the runs at other
            samples, so that there may be one more short run. For streams of tokens, ``"documents"`` shuffles documents
            alone, and ``"chunks"`` shuffles pieces alone.
        shard_size: Samples in a shard, for data that is larger than the memory of a device, or read from disk. Samples
            are shuffled within shards, and shards among each other, so that one shard at a time holds all that batches
            need. A multiple of the batch size, for rules that have one; pools of other rules end where their shard
            ends. ``None`` shuffles all samples at once.
        drop_last: If ``True``, leave out samples that do not fill a batch, and batches that do not fill a step.
        seed: The seed of the random orders, which depend on the epoch too. A loader also takes ``None``, which draws a
            seed when the run begins: the first of several processes of ``torch.distributed`` or JAX draws it, the state
            of the run has it, and a loader without a seed takes the seed of a state that it loads. A
            ``torch.Generator`` or a ``numpy.random.Generator`` draws the seed as ``generator`` does.
        uneven: Treatment of batches that do not fill a step, unless they are dropped. ``"pad"`` repeats samples, so
            that all ranks have the same number of steps and, with ``FixedSize`` and ``LengthBuckets``, as many samples
            at each. ``"short"`` gives some ranks one step less, so that every sample is used exactly once. ``"mask"``
            gives the steps of ``"pad"``, and every sample counts exactly once: places that only fill up repeat samples
            of the step and are the last of their batch. A loader marks them by an ``index`` of -1 and a ``weight`` of
            0, which all batches then hold (int64 and float32 a sample; last in tuples); labels that the loader makes
            are -100 there.
        balance: If ``True``, batches of similar cost form a step, so that ranks do not wait for each other.
            :meth:`CostModel.default` counts the cost, or a model that is given in place of ``True``. ``Packing`` then
            makes batches of as many elements that cost the same, whatever the price of a pair of elements is; neither
            the cost nor the number of ranks decides which samples share a batch. Batches of 64 pools are compared, and
            of 64 more for every 512 ranks. ``plan.stats()`` has the share of time that ranks wait (``imbalance``), and
            how much steps follow length for it (``step_spread``).
        largest_first: If ``True``, the largest batch that the rule makes is the first, so that memory is allocated
            once, and an out-of-memory error occurs in the first step.
        pad_to: The length that samples which differ in length are padded to, or several, of which each batch takes the
            smallest that holds its samples. Rules sort, count and budget by these lengths. ``"longest"`` pads to the
            longest sample of the batch (as the rule rounds it up).
        truncate: The treatment of samples that are longer than every length of ``pad_to``: ``"error"`` names the first
            one, ``"left"`` takes off their first elements, and ``"right"`` their last. ``plan.stats()`` counts what
            that costs.
        weights: The weight of each sample: an epoch draws samples with replacement, in proportion to their weights,
            instead of every sample once. Needs ``shuffle=True``. The expected number of draws of a sample is exactly
            its share, and the actual number differs by less than 2. Weights may change from epoch to epoch: they are no
            part of the fingerprint.
        num_samples: The number of samples that an epoch draws; ``None`` for the size of the dataset. Without weights,
            each epoch continues where the last one stopped, so every sample is used once before any repeats.
        balanced_by: The class of each sample, as numbers or texts: batches of a fixed size hold as many samples of each
            class, to one (rules that sort by size balance each pool), and each class goes through permutations of its
            samples.
        homogeneous_by: The class of each sample, as numbers or texts: a batch holds samples of one class, and all
            batches of a step have the same class. A step that the batches of its class do not fill is left out with
            ``drop_last=True``; otherwise batches of the class are repeated in it, or it has places of weight 0 with
            ``uneven="mask"``. ``"source"`` stands for the sources of a mixture.
        distinct_by: The key of each sample, as numbers or texts: a batch holds no two samples of one key. Needs
            ``shuffle=True`` and batches of a fixed size. A dict of columns gives each sample several keys: a batch
            holds no two samples that share one, in any columns. A :class:`DistinctBy` also has the treatment of samples
            that no batch has room for, which is otherwise an error.
        per_class: The number of samples of each class in a batch, which then holds ``batch_size / per_class`` classes
            of ``balanced_by``: for contrastive and triplet losses. The classes of a batch differ, and so do the samples
            of a class, where there are enough; otherwise they repeat as evenly as they can. Every class has its samples
            in a batch before any has more, and gives all its samples before it repeats one, across epochs. An epoch has
            whole batches: ``num_samples`` is a multiple of ``batch_size``, and by default the size of the dataset,
            rounded up to one.
        chunks: The number of samples in each chunk, as stored, for samples that are read chunk by chunk. With
            ``shuffle=True``, samples are mixed in a window that slides over chunks in random order; otherwise, chunks
            are read as stored. Pools of rules end where the window moves on. Each rank takes one contiguous part of
            the batches of an epoch, so that it reads chunks that no other rank reads, but for those at the borders of
            its part; a rank that lacks a batch at the last step takes its own last one again. Plans and samplers take
            this option and the next one.
        chunks_open: The number of chunks whose samples are mixed at a time: about ``1 / chunks_open`` of the pairs of
            samples in a batch are of one chunk. ``None`` for 16, if samples are read chunk by chunk.
        ban: Samples that are left without weight, by number: each keeps its place in its batch, so that no other sample
            moves. The list may change when a state is loaded: the new list holds from there on. A state with bans needs
            a list here: the same, another, or an empty one. In batches of a loader, places of banned samples hold zeros
            (labels that the loader makes are -100), an ``index`` of -1 and a ``weight`` of 0, which all batches then
            hold (last in tuples). Samples on demand are not read. Samples of a mixture are named as ``("web", 17)``.
            Where documents of a stream are shuffled, a number names other tokens in each epoch: ban pieces in the epoch
            that they spoil, or shuffle pieces alone.
        accumulate: The number of steps of an update of the optimizer, which accumulates their gradients:
            ``plan.update`` counts the samples and the labels of one.
        balance_within: The batches among which ``balance`` chooses those of a step. ``"window"`` takes the batches of a
            window of pools, so that ranks wait least, and steps follow length more or less. ``"update"`` takes the
            batches of an update of ``accumulate`` steps, which are random, so that ranks wait little at each step.
            ``"update_sum"`` evens the sums of the ranks over an update, for ranks that wait once an update.
    """

    shuffle: Shuffle = False
    shard_size: int | None = None
    drop_last: bool = False
    seed: int = 0
    uneven: Uneven = "pad"
    balance: bool | CostModel = False
    largest_first: bool = False
    pad_to: PadTo = "longest"
    truncate: Truncate = "error"
    weights: PerSample | None = None
    num_samples: int | None = None
    balanced_by: SampleKeys | None = None
    homogeneous_by: SampleKeys | None = None
    distinct_by: SampleKeys | Mapping[str, SampleKeys] | DistinctBy | None = None
    per_class: int | None = None
    chunks: PerChunk | None = None
    chunks_open: int | None = None
    ban: Iterable[Any] | None = None
    accumulate: int = 1
    balance_within: BalanceWithin = "window"

    @classmethod
    def from_keywords(cls, owner: str, shuffle: Shuffle, keywords: PlanKeywords) -> PlanOptions:
        """Return the options that arguments of ``owner`` give.

        Raises:
            TypeError: A keyword is no option.
        """
        require_known(owner, keywords, PlanKeywords)
        return cls(shuffle=shuffle, **keywords)

    def native(self, rule: Rule, source: PlanSamples) -> dict[str, Any]:
        """Return the options as the engine takes them.

        Args:
            rule: The rule that makes batches of samples.
            source: The samples.

        Raises:
            ArgumentError: An option has the wrong type, or is no known choice.
            DataError: There is not one weight, class or key for each sample.
            RangeError: A banned sample does not exist.
        """
        samples = source.samples
        distinct = None if self.distinct_by is None else DistinctBy.of(self.distinct_by)
        grouping = grouping_of(
            samples,
            None if self.homogeneous_by is None else source.keys("homogeneous_by", self.homogeneous_by),
            None if distinct is None else (distinct.read(samples, source.keys), distinct.surplus),
        )
        return {
            "rule": engine_rule(rule),
            "shuffle": source.shuffle(self.shuffle)[0],
            "drop_last": boolean("drop_last", self.drop_last),
            "seed": integer("seed", self.seed),
            "uneven": choice("uneven", self.uneven, UNEVEN),
            "balance": read_balance(self.balance),
            "cost": coefficients(self.balance) if isinstance(self.balance, CostModel) else None,
            "largest_first": boolean("largest_first", self.largest_first),
            "shard_size": None if self.shard_size is None else integer("shard_size", self.shard_size, least=1),
            "pad_to": read_pad_to(self.pad_to, self.truncate),
            "draws": source.draws(self),
            "ban": None if self.ban is None else read_ban(self.ban, samples, source.number),
            "grouping": grouping,
            "per_class": None if self.per_class is None else integer("per_class", self.per_class, least=1, most=MOST),
            "chunks": None if self.chunks is None else _native.borrow(check_chunks(self.chunks), "chunks"),
            "chunks_open": None if self.chunks_open is None else integer("chunks_open", self.chunks_open, least=1),
            "accumulate": integer("accumulate", self.accumulate, least=1),
            "balance_within": choice("balance_within", self.balance_within, BALANCE_WITHIN),
        }

    @property
    def pads_to_longest(self) -> bool:
        """``True`` if samples are padded to the longest sample of their batch."""
        return isinstance(self.pad_to, str) and self.pad_to == "longest"

    @property
    def keeps_neighbours(self) -> bool:
        """``True`` if no option draws samples or chooses which samples share a batch."""
        chosen = (self.weights, self.num_samples, self.balanced_by, self.homogeneous_by, self.distinct_by)
        return all(option is None for option in chosen)

    @classmethod
    def of(cls, plan: _native.Plan) -> PlanOptions:
        """Return the options of a plan. Weights, classes and keys are arrays of numbers that mean the same."""
        options = plan.options
        weights, num_samples, classes = describe_draws(options["draws"])
        name, keys, surplus = options["grouping"] or (None, None, "error")
        numbers = None if keys is None else numpy.from_dlpack(keys)
        padded = {} if options["pad_to"] is None else dict(zip(("pad_to", "truncate"), options["pad_to"], strict=True))
        same = (
            "shard_size",
            "drop_last",
            "seed",
            "uneven",
            "largest_first",
            "ban",
            "per_class",
            "chunks_open",
            "balance_within",
        )
        model = None if options["cost"] is None else CostModel(*options["cost"])
        return cls(
            balance=options["balance"] and (True if model in (None, CostModel.default()) else model),
            accumulate=options["accumulate"] or 1,
            shuffle=options["shuffle"] if options["shuffle"] == RUNS else options["shuffle"] == "samples",
            weights=weights,
            num_samples=num_samples,
            balanced_by=classes,
            homogeneous_by=numbers if name == "homogeneous_by" else None,
            distinct_by=DistinctBy.from_numbers(numbers, surplus) if name == "distinct_by" else None,
            chunks=None if options["chunks"] is None else numpy.from_dlpack(options["chunks"]),
            **padded,
            **{option: options[option] for option in same},
        )


def read_balance(balance: bool | CostModel) -> bool:
    """Return whether batches are balanced.

    Raises:
        ArgumentError: ``balance`` is neither a boolean nor a cost model.
    """
    if isinstance(balance, CostModel):
        return True
    try:
        return boolean("balance", balance)
    except ArgumentError:
        raise ArgumentError(f"balance is {balance!r}; expected True, False or a CostModel") from None


def read_pad_to(pad_to: PadTo, truncate: Truncate) -> tuple[list[int], str] | None:
    """Return the lengths that batches are padded to, and the treatment of longer samples; ``None`` for the longest.

    Raises:
        ArgumentError: A length is no integer from 1 to 2**32 - 1, or samples are truncated and no length is given.
    """
    choice("truncate", truncate, TRUNCATE)
    if isinstance(pad_to, str):
        choice("pad_to", pad_to, ("longest",))
        if truncate != "error":
            raise ArgumentError(
                f"truncate is {truncate!r}, and pad_to is 'longest'; expected a length, as in pad_to=512"
            )
        return None
    if isinstance(pad_to, Iterator | Mapping):
        raise ArgumentError(f"pad_to is a {type(pad_to).__name__}; expected one length, or several in a list")
    lengths = list(pad_to) if isinstance(pad_to, Iterable) else [pad_to]
    if not lengths:
        raise ArgumentError("pad_to is empty; expected at least one length, as in pad_to=[64, 128, 256]")
    return [integer("pad_to", length, least=1, most=U32) for length in lengths], truncate
