"""The batches of each rule, by definition: slow, obvious, and taken from the engine only in the order itself."""

import itertools
import math
from fractions import Fraction
from functools import cache

import batchloom as bl
import numpy
from hypothesis import strategies as st


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def rounded(size, multiple_of):
    return -(-size // multiple_of) * multiple_of


def multiple(rule):
    return getattr(rule, "multiple_of", 1)


def counts_real(rule):
    return getattr(rule, "count", "padded") == "real"


def policy(rule):
    """The policy for samples that do not fit, where the rule has a budget."""
    if isinstance(rule, bl.Packing) and rule.oversize is None:
        return "split" if rule.rests == "continue" else "error"
    return getattr(rule, "oversize", None)


def most(rule):
    """The size of the largest sample that fits alone, or ``None`` where all do."""
    budget = getattr(rule, "max_tokens", None)
    if budget is None or isinstance(rule, bl.Packing) or counts_real(rule):
        return budget
    return budget - budget % rule.multiple_of


def too_large(rule, size):
    return most(rule) is not None and size > most(rule)


def taken(rule, size):
    """The number of elements of a sample that are delivered."""
    return most(rule) if too_large(rule, size) and policy(rule) == "truncate" else size


def in_pool(rule, samples, shuffle, sizes):
    if isinstance(rule, bl.FixedSize):
        return rule.batch_size
    if not shuffle or rule.pool == "all":
        return samples
    if isinstance(rule, bl.LengthBuckets):
        return (
            rule.batch_size * rule.pool
            if rule.pool
            else max(16_384, rule.batch_size) // rule.batch_size * rule.batch_size
        )
    if rule.pool:
        return rule.pool
    return 16_384 if isinstance(rule, bl.Packing) else max(min(samples // 4, 16_384), 2 * in_batch(rule, sizes))


def in_batch(rule, sizes):
    """The samples of mean size that fill a batch."""
    fill = [] if rule.max_tokens is None else [-(-rule.max_tokens * len(sizes) // max(sum(sizes), 1))]
    return min([*fill, *([rule.max_samples] if rule.max_samples else [])], default=1)


def kept(rule, order, drop_last):
    """The order less what fills no batch."""
    size = getattr(rule, "batch_size", None)
    return order[: len(order) - len(order) % size] if size and drop_last else order


def pools(rule, order, shuffle, drop_last, sizes):
    order = kept(rule, order, drop_last)
    size = min(in_pool(rule, len(order), shuffle, sizes), max(len(order), 1))
    return [order[start : start + size] for start in range(0, len(order), size)]


def descending(samples, sizes):
    return sorted(samples, key=lambda sample: -sizes[sample])


def pieces(samples, size):
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def padded(rule, batch, sizes):
    """The elements of a batch with padding."""
    lengths = [taken(rule, sizes[sample]) for sample in batch]
    return len(batch) * rounded(max(lengths), multiple(rule))


def fits(rule, batch, sizes):
    """Tells whether a batch of a budget respects every limit."""
    lengths = [taken(rule, sizes[sample]) for sample in batch]
    tokens = sum(lengths) if counts_real(rule) else padded(rule, batch, sizes)
    spread = getattr(rule, "max_length_spread", None)
    return (
        (rule.max_tokens is None or tokens <= rule.max_tokens)
        and (rule.max_samples is None or len(batch) <= rule.max_samples)
        and (spread is None or max(lengths) - min(lengths) <= spread)
    )


def greedy(rule, pool, sizes):
    """From the longest sample down, as many as fit."""
    batches, open_batch = [], []
    for sample in descending(pool, sizes):
        if too_large(rule, sizes[sample]) and rule.oversize == "drop":
            continue
        if too_large(rule, sizes[sample]) and rule.oversize == "alone":
            batches.append([sample])
        elif open_batch and fits(rule, [*open_batch, sample], sizes):
            open_batch.append(sample)
        else:
            open_batch = [sample]
            batches.append(open_batch)
    return batches


def mixed(pool, sizes, batch_size, together):
    """A sorted pool, each sample moved on an axis on which each batch takes the square root of its range."""
    ordered, starts, end = descending(pool, sizes), {}, 0
    for start in range(0, len(ordered), batch_size):
        batch = ordered[start : start + batch_size]
        least = sizes[ordered[min(start + batch_size, len(ordered) - 1)]]
        root = math.isqrt((sizes[batch[0]] - least) << 32)
        starts |= {sample: end + root * place // len(batch) for place, sample in enumerate(batch)}
        end += root
    step = (3 * end << 32) // (-(-len(ordered) // batch_size) * together)
    moves = {sample: step * place >> 32 for place, sample in enumerate(pool)}
    moved = sorted(ordered, key=lambda sample: starts[sample] + moves[sample])
    return flat(sorted(batch, key=ordered.index) for batch in pieces(moved, batch_size))


def cut(rule, pool, sizes, together=None):
    """The batches of a pool, of rules that leave no choice, where ``together`` samples are shuffled."""
    if isinstance(rule, bl.FixedSize):
        return pieces(pool, rule.batch_size)
    if isinstance(rule, bl.LengthBuckets):
        mixes = together is not None and rule.pool is None and together < 4 * len(pool)
        ordered = mixed(pool, sizes, rule.batch_size, together) if mixes else descending(pool, sizes)
        return pieces(ordered, rule.batch_size)
    return greedy(rule, pool, sizes)


def price(model, samples, length):
    exact = [Fraction(number) for number in (model.fixed, model.per_token, model.per_pair)]
    return exact[0] + samples * length * (exact[1] + exact[2] * length)


def cost(rule, batches, sizes):
    """The cost of batches by the model of the rule, exactly."""
    return sum(
        price(rule.cost, len(batch), rounded(max(taken(rule, sizes[sample]) for sample in batch), rule.multiple_of))
        for batch in batches
    )


def least_cost(rule, pool, sizes):
    """The cost of the best way to divide the sorted samples, all ways tried."""
    samples = [sample for sample in descending(pool, sizes) if not too_large(rule, sizes[sample])]
    large = [sample for sample in pool if too_large(rule, sizes[sample])]
    if rule.oversize == "truncate":
        samples, large = descending(pool, sizes), []
    alone = cost(rule, [[sample] for sample in large], sizes) if rule.oversize == "alone" else 0

    @cache
    def best(start):
        if start == len(samples):
            return Fraction(0)
        batches = (samples[start:end] for end in range(start + 1, len(samples) + 1))
        return min(
            cost(rule, [batch], sizes) + best(start + len(batch)) for batch in batches if fits(rule, batch, sizes)
        )

    return alone + best(0)


def every_division(samples):
    """All ways to cut a list in pieces."""
    if not samples:
        yield []
    for end in range(1, len(samples) + 1):
        for rest in every_division(samples[end:]):
            yield [samples[:end], *rest]


def parts(rule, size):
    """The lengths of the parts in which a sample is packed."""
    if too_large(rule, size) and rule.oversize == "drop":
        return []
    if not too_large(rule, size) or rule.oversize == "truncate":
        return [taken(rule, size)]
    whole, rest = divmod(size, rule.max_tokens)
    return [rule.max_tokens] * whole + [rest] * (rest > 0)


def best_fit(rule, pool, sizes, shuffle=False):
    """The load of each bin: each part goes into the fullest bin that takes it.

    The longest comes first; where samples are shuffled, in random order, only those above a quarter of a bin do.
    """
    loads, first = [], rule.max_tokens // 4 if shuffle and rule.order == "random" else -1
    every = [part for sample in pool for part in parts(rule, sizes[sample])]
    large = sorted((part for part in every if part > first), reverse=True)
    for part in [*large, *(part for part in every if part <= first)]:
        taking = [bin for bin, load in enumerate(loads) if load + part <= rule.max_tokens]
        if taking:
            loads[max(taking, key=loads.__getitem__)] += part
        else:
            loads.append(part)
    return sorted(loads)


def refused(rule, sizes):
    """The sample that an error has to name, if any."""
    wrong = [sample for sample, size in enumerate(sizes) if too_large(rule, size)]
    return wrong[0] if wrong and policy(rule) == "error" else None


def order(samples, shuffle, seed, epoch):
    """All samples as one batch of one rank."""
    if not shuffle:
        return list(range(samples))
    return bl.Plan(samples, samples, shuffle=True, seed=seed, epoch=epoch)[0].tolist()


def batches_of(plan):
    return [batch.tolist() for batch in plan]


def dataset(sizes, **more):
    """Sequences of these sizes whose values are all different, so that a batch tells what it holds."""
    offsets = numpy.concatenate([[0], numpy.cumsum(sizes, dtype=numpy.int64)])
    return bl.SequenceDataset(x=(numpy.arange(offsets[-1]), offsets), **more)


def held(batch):
    """The samples of a batch of such a dataset: for each its number, and which of its elements."""
    if "cu_seqlens" in batch:
        rows = [batch["x"][start:end].tolist() for start, end in itertools.pairwise(batch["cu_seqlens"].tolist())]
    else:
        rows = [row[:length].tolist() for row, length in zip(batch["x"], batch["lengths"].tolist(), strict=True)]
    return tuple((sample, *row) for sample, row in zip(batch["index"].tolist(), rows, strict=True))


def seen(batches):
    """The samples of each batch of such a dataset."""
    return [held(batch) for batch in batches]


def sized(samples=60, size=40, least=1):
    """Lists of sizes: any, equal ones, none at all, those on the edges of budgets, a few that dwarf the rest."""
    number = st.integers(0, size)
    count = st.integers(least, samples)
    return st.one_of(
        st.lists(number, min_size=least, max_size=samples),
        st.builds(lambda size, count: [size] * count, number, count),
        st.builds(lambda count: [0] * count, count),
        st.lists(st.sampled_from([0, 1, 7, 8, 9, 15, 16, 17, size]), min_size=least, max_size=samples),
        st.builds(lambda count: [size >> place % 7 for place in range(count)], count),
        st.builds(lambda count: list(range(count)), count),
    )


maybe = st.none() | st.integers(1, 9)
oversizes = st.sampled_from(["error", "alone", "drop", "truncate"])


def multiples(build):
    """Rules with every kind of multiple; one that exceeds the budget makes no rule."""
    return build(multiple_of=st.just(1)) | build(multiple_of=st.integers(1, 8))


pool_sizes = st.sampled_from([None, "all"])
fixed = multiples(lambda multiple_of: st.builds(bl.FixedSize, st.integers(1, 20), multiple_of=multiple_of))
buckets = st.builds(
    bl.LengthBuckets, st.integers(1, 9), pool=pool_sizes | st.integers(1, 6), multiple_of=st.integers(1, 8)
)
budgets = multiples(
    lambda multiple_of: st.builds(
        bl.TokenBudget,
        st.integers(8, 90),
        count=st.sampled_from(["padded", "real"]),
        max_length_spread=st.none() | st.integers(0, 12),
        max_samples=maybe,
        multiple_of=multiple_of,
        oversize=oversizes,
        pool=pool_sizes | st.integers(1, 70),
    )
)
costs = st.builds(bl.CostModel, st.integers(0, 300), st.integers(0, 9), st.integers(1, 3)) | st.builds(
    bl.CostModel, st.integers(1, 300), st.integers(0, 9), st.just(0)
)
optimals = multiples(
    lambda multiple_of: st.builds(
        bl.CostOptimal,
        costs,
        max_tokens=st.none() | st.integers(8, 200),
        max_samples=maybe,
        multiple_of=multiple_of,
        oversize=oversizes,
        pool=pool_sizes | st.integers(1, 70),
    )
)
packings = st.builds(
    bl.Packing,
    st.integers(1, 60),
    max_samples=maybe,
    oversize=st.sampled_from(["error", "drop", "truncate", "split"]),
    order=st.sampled_from(["random", "decreasing"]),
    pool=pool_sizes | st.integers(1, 70),
)
rules = fixed | buckets | budgets | optimals | packings
