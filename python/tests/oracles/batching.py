"""The batches of each rule, by definition: slow, obvious, and taken from the engine only in the order itself."""

import itertools
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


def in_pool(rule, samples, shuffle):
    if isinstance(rule, bl.FixedSize):
        return rule.batch_size
    if not shuffle:
        return samples
    return rule.batch_size * rule.pool if isinstance(rule, bl.LengthBuckets) else rule.pool


def kept(rule, order, drop_last):
    """The order less what fills no batch."""
    size = getattr(rule, "batch_size", None)
    return order[: len(order) - len(order) % size] if size and drop_last else order


def pools(rule, order, shuffle, drop_last):
    order = kept(rule, order, drop_last)
    size = min(in_pool(rule, len(order), shuffle), max(len(order), 1))
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


def cut(rule, pool, sizes):
    """The batches of a pool, of rules that leave no choice."""
    if isinstance(rule, bl.FixedSize):
        return pieces(pool, rule.batch_size)
    if isinstance(rule, bl.LengthBuckets):
        return pieces(descending(pool, sizes), rule.batch_size)
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
    if not too_large(rule, size) or rule.oversize == "truncate":
        return [taken(rule, size)]
    whole, rest = divmod(size, rule.max_tokens)
    return [rule.max_tokens] * whole + [rest] * (rest > 0)


def best_fit(rule, pool, sizes):
    """The load of each bin: the longest part first, into the fullest bin that takes it."""
    loads = []
    for part in sorted((part for sample in pool for part in parts(rule, sizes[sample])), reverse=True):
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


fixed = st.builds(bl.FixedSize, st.integers(1, 20))
buckets = st.builds(bl.LengthBuckets, st.integers(1, 9), pool=st.integers(1, 6), multiple_of=st.integers(1, 8))
budgets = multiples(
    lambda multiple_of: st.builds(
        bl.TokenBudget,
        st.integers(8, 90),
        count=st.sampled_from(["padded", "real"]),
        max_length_spread=st.none() | st.integers(0, 12),
        max_samples=maybe,
        multiple_of=multiple_of,
        oversize=oversizes,
        pool=st.integers(1, 70),
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
        pool=st.integers(1, 70),
    )
)
packings = st.builds(
    bl.Packing,
    st.integers(1, 60),
    max_samples=maybe,
    oversize=st.sampled_from(["error", "truncate", "split"]),
    pool=st.integers(1, 70),
)
rules = fixed | buckets | budgets | optimals | packings
