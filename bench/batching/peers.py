"""Ask batchloom and each peer which samples share a batch, given only lengths.

Promises:

- A planner is prepared outside the clock: lists and data sets that a user holds anyway are made there. Timed is the
  work of an epoch, from the lengths to all batches.
- ``Cut`` brings every answer to one form, and ``account`` recounts it: every sample exactly once, the padding, the
  batches over the budget. No figure of a planner's own is believed.
- A peer that does not install raises ``ImportError`` when it is prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import batchloom
import numpy
import torch

from bench.harness.measure import LOOM

Array = numpy.ndarray
MAX_TOKENS, CAPACITY, BATCH = 65_536, 8192, 64
BATCHES_IN_POOL, POOL = 100, 16_384
# Seconds a step, roughly, of training a transformer of 100 million parameters, 12 layers of width 768, on a device that
# reaches 100 teraflops: 5 ms however small the batch, 6 operations a parameter and token, and the attention.
FIXED, PER_TOKEN, PER_PAIR = 5e-3, 6e-6, 1e-9
RULES = {
    "token budget": batchloom.TokenBudget(MAX_TOKENS),
    "cost-optimal": batchloom.CostOptimal(
        batchloom.CostModel(fixed=FIXED, per_token=PER_TOKEN, per_pair=PER_PAIR), max_tokens=MAX_TOKENS
    ),
    "packing": batchloom.Packing(CAPACITY, order="decreasing"),
    "length buckets": batchloom.LengthBuckets(BATCH, pool=BATCHES_IN_POOL),
}


@dataclass(frozen=True)
class Work:
    """Lengths to plan, in random order with the rule's pools or as one pool."""

    rule: str
    lengths: Array
    shuffle: bool

    def first(self, samples: int) -> Work:
        """Return the same work for the first samples only."""
        return Work(self.rule, self.lengths[:samples], self.shuffle)


@dataclass(frozen=True)
class Cut:
    """Samples, batch after batch, the end of each batch, and the order of the batches, if it is another one."""

    order: Array
    ends: Array
    sequence: Array | None = None

    @classmethod
    def of(cls, batches: Iterable[Any]) -> Cut:
        """Put the batches one after the other."""
        found = [numpy.asarray(batch) for batch in batches]
        return cls(numpy.concatenate(found), numpy.cumsum([len(batch) for batch in found]))


@dataclass(frozen=True)
class Planner:
    """A way to plan.

    Attributes:
        name: Its name in the tables.
        prepare: Does the work that does not count; returns the work that does.
        cut: Brings the answer to batches, given the work.
        samples: The number of samples that it is measured on; all, if ``None``.
        orders: The values of ``shuffle`` that it has an answer for.
    """

    name: str
    prepare: Callable[[Work], Callable[[], Any]]
    cut: Callable[[Any, Work], Cut]
    samples: int | None = None
    orders: tuple[bool, ...] = (True, False)


def account(cut: Cut, work: Work) -> dict[str, float]:
    """Recount a cut.

    Raises:
        AssertionError: Not every sample is in it exactly once, or a batch is empty.
    """
    assert cut.ends[-1] == len(cut.order), "the batches do not end where the samples do"
    assert (numpy.bincount(cut.order, minlength=len(work.lengths)) == 1).all(), "not every sample exactly once"
    starts = numpy.concatenate([[0], cut.ends[:-1]])
    sizes, lengths = cut.ends - starts, work.lengths[cut.order]
    assert (sizes > 0).all(), "an empty batch"
    real = int(lengths.sum())
    if work.rule == "packing":
        over = numpy.add.reduceat(lengths, starts) > CAPACITY
        efficiency = real / (len(sizes) * CAPACITY)
        return {"batches": len(sizes), "efficiency": efficiency, "over_budget": int(over.sum())}
    longest = numpy.maximum.reduceat(lengths, starts)
    padded = sizes * longest
    over = int((padded > MAX_TOKENS).sum()) if work.rule != "length buckets" else 0
    cost = FIXED * len(sizes) + float((padded * (PER_TOKEN + PER_PAIR * longest)).sum())
    return {"batches": len(sizes), "efficiency": real / padded.sum(), "over_budget": over, "modelled_seconds": cost}


def loom(work: Work) -> Callable[[], batchloom.Plan]:
    """Use batchloom: the plan, its length and its first batch, as a loader needs them to begin."""
    lengths, rule, shuffle = work.lengths, RULES[work.rule], work.shuffle

    def plan() -> batchloom.Plan:
        found = batchloom.Plan(sizes=lengths, batching=rule, shuffle=shuffle)
        assert len(found)
        assert len(found[0])
        return found

    return plan


def loom_named(work: Work) -> Callable[[], batchloom.Plan]:
    """Use batchloom, and ask for every batch as an array."""
    plan = loom(work)

    def named() -> batchloom.Plan:
        found = plan()
        for _batch in found:
            pass
        return found

    return named


def fairseq(work: Work) -> Callable[[], list[Array]]:
    """Use fairseq: its language pairs' order (ties at random), its ``batch_by_size``, its shuffle of the batches."""
    from bench.batching.fairseq import load

    batch_by_size, lengths, samples = load(), work.lengths.astype(numpy.int64), len(work.lengths)
    random = numpy.random.default_rng(0)

    def plan() -> list[Array]:
        order = random.permutation(samples) if work.shuffle else numpy.arange(samples)
        order = order[numpy.argsort(lengths[order], kind="mergesort")]
        batches = batch_by_size(order, lengths[order], MAX_TOKENS, -1, 1)
        if work.shuffle:
            random.shuffle(batches)
        return batches

    return plan


def lhotse(work: Work) -> Callable[[], list[Any]]:
    """Use lhotse's dynamic buckets with its limit on padded tokens; its examples hold no tokens, only their number."""
    from lhotse.cut.text import TextExample
    from lhotse.dataset.sampling.base import TokenConstraint
    from lhotse.dataset.sampling.dynamic_bucketing import DynamicBucketingSampler

    examples = [
        TextExample(text="", tokens=range(length), custom={"sample": sample})
        for sample, length in enumerate(work.lengths.tolist())
    ]

    def plan() -> list[Any]:
        limit = TokenConstraint(max_tokens=MAX_TOKENS)
        sampler = DynamicBucketingSampler(examples, constraint=limit, shuffle=work.shuffle, world_size=1, rank=0)
        return list(sampler)

    return plan


def length_groups(work: Work) -> Callable[[], list[int]]:
    """Use the function behind transformers' ``LengthGroupedSampler``, on its own list of numbers."""
    from transformers.trainer_pt_utils import get_length_grouped_indices

    lengths = work.lengths.tolist()
    return lambda: get_length_grouped_indices(lengths, BATCH, mega_batch_mult=BATCHES_IN_POOL)


def trl(work: Work, rows: int | None) -> Callable[[], Any]:
    """Use TRL's best fit, so many rows at a time. It moves the tokens, too: one byte each, to cost it little."""
    import datasets
    import pyarrow
    from trl import pack_dataset

    datasets.disable_progress_bars()
    offsets = numpy.concatenate([[0], numpy.cumsum(work.lengths)]).astype(numpy.int32)
    tokens = pyarrow.array(numpy.zeros(offsets[-1], numpy.int8))
    column = pyarrow.ListArray.from_arrays(pyarrow.array(offsets), tokens)
    data = datasets.Dataset(pyarrow.table({"input_ids": column}))
    settings = {"batch_size": rows, "keep_in_memory": True}
    return lambda: pack_dataset(data, CAPACITY, "bfd", map_kwargs=settings)


def sort_and_step(work: Work) -> Callable[[], Cut]:
    """By hand: NumPy's radix sort of 16-bit lengths, then one step of Python for each batch."""

    def plan() -> Cut:
        order, sizes = _order(work), work.lengths.astype(numpy.uint16)
        ends = []
        for start in _longest_first(order, sizes, len(order) if not work.shuffle else POOL):
            end = min(start + POOL, len(order)) if work.shuffle else len(order)
            while start < end:
                start = min(start + MAX_TOKENS // int(sizes[order[start]]), end)
                ends.append(start)
        return _in_random_order(Cut(order, numpy.array(ends)), work)

    return plan


def sort_and_slice(work: Work) -> Callable[[], Cut]:
    """By hand: NumPy's radix sort of 16-bit lengths; the batches are its slices."""

    def plan() -> Cut:
        order, sizes = _order(work), work.lengths.astype(numpy.uint16)
        _longest_first(order, sizes, len(order) if not work.shuffle else BATCH * BATCHES_IN_POOL)
        ends = numpy.append(numpy.arange(BATCH, len(order), BATCH), len(order))
        return _in_random_order(Cut(order, ends), work)

    return plan


def best_fit(work: Work) -> Callable[[], Cut]:
    """By hand, compiled: best fit, longest first."""
    from bench.batching.compiled import best_fit_decreasing

    pool = POOL if work.shuffle else len(work.lengths)

    def plan(work: Work) -> Cut:
        return _in_random_order(Cut(*best_fit_decreasing(_order(work), work.lengths, CAPACITY, pool)), work)

    plan(work.first(1))  # compiles it
    return partial(plan, work)


def cheapest(work: Work) -> Callable[[], Cut]:
    """By hand, compiled: every cut of the sorted lengths that keeps to the budget, and the cheapest of them."""
    from bench.batching.compiled import cheapest_cut

    longest, prices = int(work.lengths.max()), (FIXED, PER_TOKEN, PER_PAIR)
    pool = POOL if work.shuffle else len(work.lengths)

    def plan(work: Work) -> Cut:
        found = cheapest_cut(_order(work), work.lengths, longest, prices, MAX_TOKENS, pool)
        return _in_random_order(Cut(*found), work)

    plan(work.first(1))  # compiles it
    return partial(plan, work)


def _order(work: Work) -> Array:
    """Return the order of the samples, from the fastest generator at hand."""
    draw = torch.randperm if work.shuffle else torch.arange
    return draw(len(work.lengths), dtype=torch.int32).numpy()


def _longest_first(order: Array, sizes: Array, pool: int) -> range:
    """Sort each pool in place; return where the pools start."""
    starts = range(0, len(order), pool)
    for start in starts:
        samples = order[start : start + pool]
        samples[:] = samples[numpy.argsort(sizes[samples], kind="stable")[::-1]]
    return starts


def _in_random_order(cut: Cut, work: Work) -> Cut:
    """Draw the order of the batches, too."""
    return Cut(cut.order, cut.ends, torch.randperm(len(cut.ends)).numpy() if work.shuffle else None)


def _listed(batches: Any, work: Work) -> Cut:
    return Cut.of(batches)


def _same(cut: Cut, work: Work) -> Cut:
    return cut


def _sliced(order: list[int], work: Work) -> Cut:
    return Cut(numpy.array(order), numpy.append(numpy.arange(BATCH, len(order), BATCH), len(order)))


def _examples(batches: Any, work: Work) -> Cut:
    return Cut.of([example.custom["sample"] for example in batch] for batch in batches)


def _rows(packed: Any, work: Work) -> Cut:
    """TRL says lengths, not samples: give each length a sample of that length."""
    table = packed.with_format("arrow")[:]["seq_lengths"].combine_chunks()
    found, ends = table.values.to_numpy(), table.offsets.to_numpy()[1:]
    order = numpy.empty(len(found), numpy.int64)
    order[numpy.argsort(found, kind="stable")] = numpy.argsort(work.lengths, kind="stable")
    assert (work.lengths[order] == found).all(), "other lengths than were given"
    return Cut(order, ends)


NAMED = "batchloom, and every batch named"
CHEAPEST = "numba exact cut, by hand"
OURS = (Planner(LOOM, loom, _listed), Planner(NAMED, loom_named, _listed))
STEPS = Planner("NumPy sort and steps, by hand", sort_and_step, _same)
PLANNERS: dict[str, tuple[Planner, ...]] = {
    "token budget": (
        *OURS,
        STEPS,
        Planner("fairseq", fairseq, _listed),
        Planner("lhotse", lhotse, _examples, 100_000),
    ),
    "cost-optimal": (*OURS, Planner(CHEAPEST, cheapest, _same, 1_000_000), STEPS),
    "packing": (
        *OURS,
        Planner("numba best fit, by hand", best_fit, _same),
        Planner("TRL, 1000 rows a time", lambda work: trl(work, 1000), _rows, 100_000, (False,)),
        Planner("TRL, all rows at once", lambda work: trl(work, None), _rows, 100_000, (False,)),
    ),
    "length buckets": (
        *OURS,
        Planner("NumPy sort and slices, by hand", sort_and_slice, _same),
        Planner("transformers length groups", length_groups, _sliced, 2_000_000, (True,)),
    ),
}
