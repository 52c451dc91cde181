"""Rules that make batches of samples, for ``DataLoader(batching=...)``.

With ``shuffle``, rules that sort by size do so pool by pool. A pool is a run of the random order of the epoch: the
smaller it is, the more random are the batches; the larger it is, the less padding they need. The batches of a pool come
in random order. Without ``shuffle``, the whole dataset is one pool, and batches come from the longest samples to the
shortest.

By default, ``pool=None``, batches are new in every epoch: at most about a quarter of the pairs of samples that share a
batch share one again in the next epoch (``plan.stats()["mates_kept"]``). ``pool="all"`` makes one pool of all samples,
for the least padding, and batches that are much the same in every epoch. Where samples are read in chunks, a pool holds
by default at most the samples of a quarter of the open chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from typing import Any, Literal, Protocol, SupportsIndex

import batchloom._native as _native
import numpy
from batchloom.arguments import U32, answer_unknown_keywords, choice, integer
from batchloom.batching.budgets import Budgets
from batchloom.batching.cost_model import COEFFICIENTS, CostModel
from batchloom.errors import ArgumentError, many

Count = Literal["padded", "real"]
Oversize = Literal["error", "alone", "drop", "truncate"]
PackedOversize = Literal["error", "drop", "truncate", "split"]
PackingOrder = Literal["random", "decreasing"]
Rests = Literal["none", "continue"]
Pool = int | Literal["all"] | None
MaxTokens = int | Mapping[str, int]

COUNT = ("padded", "real")
OVERSIZE = ("error", "alone", "drop", "truncate")
PACKED_OVERSIZE = ("error", "drop", "truncate", "split")
PACKING_ORDER = ("random", "decreasing")
RESTS = ("none", "continue")


class Rule(Protocol):
    """The type of ``batching=``: one of the rules of this module."""

    def _native(self) -> _native.Rule: ...


def engine_rule(rule: Rule) -> _native.Rule:
    """Return a rule as the engine takes it."""
    return rule._native()


@answer_unknown_keywords
@dataclass(frozen=True)
class FixedSize:
    """Batches of ``batch_size`` samples, in order; the last one holds what is left.

    ``DataLoader(dataset, batch_size=64)`` is short for ``batching=FixedSize(64)``.

    Args:
        batch_size: Samples in a batch.
        multiple_of: The number that padded lengths are a multiple of, so that compilers see few distinct shapes.

    Raises:
        ArgumentError: A number is below 1.
    """

    batch_size: int
    multiple_of: int = 1

    def __post_init__(self) -> None:
        _integers(self, "batch_size")
        _integers(self, "multiple_of", most=U32)

    def __repr__(self) -> str:
        rounding = "" if self.multiple_of == 1 else f", multiple_of={self.multiple_of}"
        return f"FixedSize(batch_size={self.batch_size}{rounding})"

    def _native(self) -> _native.Rule:
        return _make_native("fixed-size", "batch_size", vars(self))


@answer_unknown_keywords
@dataclass(frozen=True)
class LengthBuckets:
    """Batches of ``batch_size`` samples of similar size: each pool is sorted, then divided.

    Args:
        batch_size: Samples in a batch.
        pool: The number of batches that a pool makes, when shuffled; ``"all"`` for one pool. ``None`` takes up to
            16 384 samples, and mixes samples of similar size so that batches are new in every epoch.
        multiple_of: The number that padded lengths are a multiple of, so that compilers see few distinct shapes.

    Raises:
        ArgumentError: A number is below 1.
    """

    batch_size: int
    pool: Pool = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        _integers(self, "batch_size")
        _pool(self)
        _integers(self, "multiple_of", most=U32)

    def _native(self) -> _native.Rule:
        return _make_native("length-buckets", "batch_size", vars(self))


@answer_unknown_keywords
@dataclass(frozen=True)
class TokenBudget:
    """Batches of samples of similar size that fill a budget: each pool is sorted, then divided greedily.

    Args:
        max_tokens: The most elements in a batch; or several budgets by the names of sizes, as ``{"nodes": 300, "edges":
            2000}``, of which a batch exceeds none. (Names are those of fields that vary in length, and of the
            ``sizes`` of a dataset.)
        count: ``"padded"`` counts padding too, as memory does; ``"real"`` counts elements of samples alone. Of several
            budgets, one for a field that batches pad counts samples times its longest, and every other one the sum.
        max_length_spread: The most that the longest sample of a batch may exceed the shortest by.
        max_samples: The most samples in a batch.
        multiple_of: The number that padded lengths are a multiple of, so that compilers see few distinct shapes
            (``plan.stats()`` counts them as ``shapes``).
        oversize: Treatment of a sample that alone exceeds the budget: ``"error"``; ``"alone"``, a batch of its own
            that exceeds the budget; ``"drop"``; or ``"truncate"``. ``plan.stats()`` counts the losses. What is
            truncated are elements: a sample that exceeds a budget of something else is an error then.
        pool: Samples in a pool, when shuffled; ``"all"`` for one pool. ``None`` takes a quarter of the samples, at most
            16 384 and at least two batches.

    Raises:
        ArgumentError: A number is too small, or a name is unknown.
    """

    max_tokens: MaxTokens
    count: Count = "padded"
    max_length_spread: int | None = None
    max_samples: int | None = None
    multiple_of: int = 1
    oversize: Oversize = "error"
    pool: Pool = None

    def __post_init__(self) -> None:
        _max_tokens(self)
        _integers(self, "max_samples")
        _pool(self)
        _integers(self, "multiple_of", most=U32)
        _integers(self, "max_length_spread", least=0, most=U32)
        choice("count", self.count, COUNT)
        choice("oversize", self.oversize, OVERSIZE)
        self._native()

    def _native(self) -> _native.Rule:
        return _make_native("token-budget", "max_tokens", vars(self))


@answer_unknown_keywords
@dataclass(frozen=True)
class CostOptimal:
    """Batches of samples of similar size, of the least total cost: each pool is sorted, then divided optimally.

    Args:
        cost: The cost of a batch.
        max_tokens: The most elements in a batch, including padding; ``None`` for any number.
        max_samples: The most samples in a batch; ``None`` for any number.
        multiple_of: The number that padded lengths are a multiple of.
        oversize: Treatment of a sample that alone exceeds ``max_tokens``, as for :class:`TokenBudget`.
        pool: Samples in a pool, when shuffled; ``"all"`` for one pool. ``None`` takes a quarter of the samples, at most
            16 384 and at least two batches.

    Raises:
        ArgumentError: A number is too small, a name is unknown, or ``cost`` is not a :class:`CostModel`.
    """

    cost: CostModel
    max_tokens: int | None = None
    max_samples: int | None = None
    multiple_of: int = 1
    oversize: Oversize = "error"
    pool: Pool = None

    def __post_init__(self) -> None:
        if not isinstance(self.cost, CostModel):
            raise ArgumentError(f"cost is {self.cost!r}; expected a CostModel")
        _integers(self, "max_tokens", "max_samples")
        _pool(self)
        _integers(self, "multiple_of", most=U32)
        choice("oversize", self.oversize, OVERSIZE)
        self._native()

    def _native(self) -> _native.Rule:
        cost = {name: getattr(self.cost, name) for name in COEFFICIENTS}
        options = {name: value for name, value in vars(self).items() if name != "cost"}
        return _make_native("cost-optimal", "max_tokens", cost | options)


@answer_unknown_keywords
@dataclass(frozen=True)
class Packing:
    """Batches of concatenated samples, without padding, as full as possible; with ``rows``, batches of one shape.

    Each pool is packed by best fit, anew in every epoch when shuffled.

    Args:
        max_tokens: The most elements in a batch, or in a row, at most 2**28; or several budgets by the names of sizes,
            as ``{"text": 8192, "patches": 16384, "images": 48}``. A batch exceeds none of them. (Names are those of
            fields that vary in length, and of the ``sizes`` of a dataset.)
        max_samples: The most samples in a batch, or in a row. ``None`` takes any number in a batch. In a row it takes a
            sixteenth of ``max_tokens``: at least 64. A row has places for no more than ``max_tokens``.
        oversize: Treatment of a sample longer than ``max_tokens``: ``"error"``, ``"drop"``, ``"truncate"``, or
            ``"split"``, which divides it in parts and loses no element. ``plan.stats()`` counts samples left out and
            split, and elements cut off. ``None`` is ``"error"``, or ``"split"`` where rests are continued. What is cut
            are elements: a sample that exceeds a budget of something else is an error then, and the other sizes of a
            sample count for each of its parts.
        pool: Samples in a pool, when shuffled; ``"all"`` for one pool. ``None`` takes 16 384, or with ``rows`` the
            samples of about 256 batches if these are more, and at most 2**20.
        order: Order in which shuffled samples are put into bins. ``"random"`` begins with samples above a quarter of
            ``max_tokens``, the longest first; the others come in the random order of the epoch, so that batches are new
            in every epoch. ``"decreasing"`` takes all from the longest to the shortest, for the fewest bins; samples of
            one pool then share batches with much the same others in every epoch.
        rows: Rows in a batch. Every batch then has one shape, for compilers and graphs of kernels: fields of samples
            ``[rows, max_tokens, ...]``, and ``[rows, max_samples, ...]`` what there is once for each sample. Where the
            samples of a pool run out, the last rows of its last batch hold padding alone. ``None`` makes batches of one
            pack each, which differ in length.
        rests: Treatment of what a row, or a batch, has no room for. ``"continue"`` delivers the rest of a sample in a
            later row of the same epoch: rows are full, but for one batch of an epoch (the last one, unless ``balance``
            moves it; with ``shard_size`` one of each shard), which ``drop_last=True`` leaves out. Every row begins with
            a sample or with a rest. ``position_ids`` of a rest go on from the sample, and the label of the last token
            of a part is the first token of the rest.

    Raises:
        ArgumentError: A number is out of range, or a name is unknown.
    """

    max_tokens: MaxTokens
    max_samples: int | None = None
    oversize: PackedOversize | None = None
    pool: Pool = None
    order: PackingOrder = "random"
    rows: int | None = None
    rests: Rests = "none"

    def __post_init__(self) -> None:
        _max_tokens(self)
        _pool(self)
        _integers(self, "max_samples", "rows", most=U32)
        if self.oversize is not None:
            choice("oversize", self.oversize, PACKED_OVERSIZE)
        choice("order", self.order, PACKING_ORDER)
        choice("rests", self.rests, RESTS)
        self._native()

    @property
    def is_formed_in_memory(self) -> bool:
        """``True`` for batches that a device does not gather from resident data: rows of one shape, and rests."""
        return self.rows is not None or self.rests == "continue"

    def _native(self) -> _native.Rule:
        return _make_native("packing", "max_tokens", vars(self))


@answer_unknown_keywords
@dataclass(frozen=True, init=False, repr=False)
class Listed:
    """Batches that are given as lists of samples, in the order in which ranks take them.

    Nothing else decides then: ``shuffle``, ``shard_size``, ``balance`` and ``largest_first`` have to be left out. Lists
    may name a sample several times, or never; ``plan.stats()`` counts both. Every rank gives the same lists, of which
    it takes its share.

    Args:
        batches: The samples of each batch: any iterable of lists or arrays of integers, from 0. At most 2**32 - 1
            samples, in all lists together and in the dataset.

    Raises:
        ArgumentError: There are no lists, or one is empty or holds something else than integers from 0.
    """

    samples: bytes
    ends: bytes

    def __init__(self, batches: Iterable[Iterable[SupportsIndex]]) -> None:
        lists = [_samples(place, batch) for place, batch in enumerate(batches)]
        if not lists:
            raise ArgumentError("there are 0 lists; expected at least one batch")
        ends = numpy.cumsum([len(samples) for samples in lists], dtype=numpy.int64)
        if ends[-1] > U32:
            raise ArgumentError(f"the lists hold {many(ends[-1], 'sample')}; expected at most {U32}")
        object.__setattr__(self, "samples", numpy.concatenate(lists).tobytes())
        object.__setattr__(self, "ends", ends.astype(numpy.uint32).tobytes())
        self._native()

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.ends) // numpy.dtype(numpy.uint32).itemsize

    @property
    def batch_size(self) -> int | None:
        """The number of samples in each batch; the last one may hold fewer. ``None`` for batches that differ in number.

        Batches of a step are then filled up as with :class:`FixedSize`.
        """
        return self._native().listed_facts()[1]

    @property
    def digest(self) -> str:
        """A name for the lists, of 32 hexadecimal digits."""
        return self._native().listed_facts()[0]

    def __repr__(self) -> str:
        return f"Listed({many(len(self), 'batch')})"

    def _native(self) -> _native.Rule:
        samples, ends = (numpy.frombuffer(data, numpy.uint32) for data in (self.samples, self.ends))
        return _native.Rule.listed(_native.borrow(samples, "samples"), _native.borrow(ends, "ends"))


RULES = (FixedSize, LengthBuckets, TokenBudget, CostOptimal, Packing, Listed)


def rule(batch_size: int | None, batching: Rule | None) -> Rule:
    """Return the rule for ``batch_size`` or ``batching``; 64 samples a batch if neither is given.

    Raises:
        ArgumentError: Both are given, or ``batching`` is not a rule.
    """
    if batching is None:
        return FixedSize(64 if batch_size is None else batch_size)
    if batch_size is not None:
        raise ArgumentError(f"batch_size is {batch_size} and batching is {batching}; expected one of them")
    if not isinstance(batching, RULES):
        raise ArgumentError(f"batching is {batching!r:.200}; expected {_describe_meant(batching)}")
    return batching


def _describe_meant(batching: Any) -> str:
    """Return the rule that is meant by another value: a class of rules, its options, a number or lists of samples."""
    if isinstance(batching, type) and issubclass(batching, RULES):
        return f"a rule with its numbers, as {batching.__name__}(64)"
    if isinstance(batching, Mapping):
        known = (each for each in RULES if batching and set(batching) <= {*signature(each).parameters})
        given = ", ".join(f"{name}={value!r}" for name, value in batching.items())
        return next((f"a rule: {each.__name__}({given})" for each in known), "a rule such as FixedSize(64)")
    if isinstance(batching, Iterable) and not isinstance(batching, str):
        return "a rule: Listed(batches) stands for lists of samples"
    if isinstance(batching, int) and not isinstance(batching, bool):
        return f"a rule such as FixedSize({batching}), or batch_size={batching}"
    return f"a rule: {', '.join(each.__name__ for each in RULES)}"


def _make_native(name: str, number: str, options: Mapping[str, object]) -> _native.Rule:
    """Return the rule of the engine with this name and these options; the option ``number`` stands behind the name.

    An option that is ``None`` is left out, and so has its default.

    Raises:
        ArgumentError: A value is out of range.
    """
    given = {option: value for option, value in options.items() if value is not None}
    head = f"{name}:{given.pop(number)}" if number in given else name
    return _parse_rule(",".join([head, *(f"{option}={value}" for option, value in given.items())]))


@lru_cache(maxsize=64)
def _parse_rule(text: str) -> _native.Rule:
    """Return the rule of the engine that a text stands for. Rules do not change, so that loaders share them."""
    return _native.Rule.of_text(text)


def _max_tokens(instance: object) -> None:
    """Replace the field ``max_tokens`` by an integer, or by budgets."""
    limits = getattr(instance, "max_tokens", None)
    if isinstance(limits, Mapping):
        object.__setattr__(instance, "max_tokens", Budgets(limits))
    else:
        _integers(instance, "max_tokens")


def _pool(instance: object) -> None:
    """Replace the field ``pool`` by an integer, unless it is ``None`` or ``"all"``."""
    pool = getattr(instance, "pool", None)
    if isinstance(pool, str) and pool != "all":
        raise ArgumentError(f"pool is {pool!r}; expected a number, 'all', or None for the default")
    if pool is not None and pool != "all":
        _integers(instance, "pool")


def _samples(place: int, batch: Iterable[SupportsIndex]) -> numpy.ndarray[Any, numpy.dtype[numpy.uint32]]:
    """Return one list of samples as uint32."""
    try:
        samples = numpy.asarray(batch if hasattr(batch, "__array__") else list(batch))
    except (TypeError, ValueError, RuntimeError):
        samples = numpy.empty(0, object)
    if not samples.size:
        raise ArgumentError(f"batch {place} is {batch!r}; expected a list of samples, with at least one")
    if samples.ndim != 1 or samples.dtype.kind not in "iu" or samples.min() < 0 or samples.max() > U32:
        raise ArgumentError(f"batch {place} is {batch!r}; expected a list of integers, at least 0 and below 2**32")
    return samples.astype(numpy.uint32)


def _integers(instance: object, *names: str, least: int = 1, most: int | None = None) -> None:
    """Replace the fields ``names`` by integers; ``None`` stays if it is the default of the field."""
    for name in names:
        value = getattr(instance, name)
        if value is None and getattr(type(instance), name, 0) is None:
            continue
        limits = {} if most is None else {"most": most}
        object.__setattr__(instance, name, integer(name, value, least=least, **limits))
