"""Balance by definition, slow and obvious: the cost of steps, even packs, and windows of pools."""

import math

import batchloom as bl
from oracles import batching

POOLS_IN_WINDOW = 64
RANKS_OF_WINDOW = 512


def cost_of(model, rule, batch, sizes):
    """The cost of a batch by a model; its elements without one."""
    lengths = [batching.taken(rule, sizes[sample]) for sample in batch]
    if isinstance(rule, bl.Packing):
        return sum(lengths) if model is None else model.packed_cost(sum(lengths), sum(size**2 for size in lengths))
    length = batching.rounded(max(lengths), batching.multiple(rule))
    return len(batch) * length if model is None else model.cost(len(batch), length)


def waiting(costs, world_size):
    """The share of the time of all ranks that is spent waiting for the costliest batch of each step."""
    longest = sum(max(step) for step in costs) * world_size
    return 1 - sum(map(sum, costs)) / longest if longest else 0.0


def even_sums(costs, world_size):
    """The costs of the batches of each rank, the costliest first, where ranks wait once an update."""
    left = sorted(costs, reverse=True)
    lacked = [len(left) // world_size + (rank < len(left) % world_size) for rank in range(world_size)]
    of_ranks = [[] for _ in range(world_size)]
    while left:
        cost, *left = left
        mean = sum(left) / len(left) if left else 0.0
        expected = {rank: sum(of_ranks[rank]) + lacked[rank] * mean for rank in range(world_size) if lacked[rank]}
        rank = min(expected, key=lambda rank: (expected[rank], rank))
        of_ranks[rank].append(cost)
        lacked[rank] -= 1
    return of_ranks


def spread(steps, rule, sizes):
    """The variance of the means of the logarithms of steps over its expectation, by its definition."""
    logs = [[math.log(max(batching.taken(rule, sizes[sample]), 1)) for sample in step] for step in steps]
    every = batching.flat(logs)
    if len(set(every)) < 2:
        return None
    mean = sum(every) / len(every)
    variance = sum((number - mean) ** 2 for number in every) / len(every)
    return sum(len(step) * (sum(step) / len(step) - mean) ** 2 / variance for step in logs) / len(logs)


def even_packs(rule, pool, sizes, shuffle):
    """The loads of the bins, and for each large sample that found a bin by squares the number of this bin.

    Large samples are those above an eighth of a bin. Where bins are not as full as by best fit, best fit it is.
    """
    parts = [part for sample in pool for part in batching.parts(rule, sizes[sample])]
    usual = batching.best_fit(rule, pool, sizes, shuffle)
    total, capacity = sum(parts), rule.max_tokens
    if total <= capacity:
        return usual, None
    count = -(-total * 1000 // (capacity * 999))
    large = sorted((part for part in parts if part > capacity // 8), reverse=True)
    small = [part for part in parts if part <= capacity // 8]
    if not shuffle or rule.order == "decreasing":
        small.sort(reverse=True)
    share = sum(part**2 for part in small) // sum(small) if sum(small) else 0
    bins, closed, waits, chosen = [[] for _ in range(count)], set(), [], []
    for part in large:
        tried, found = 0, None
        for number in sorted(
            set(range(count)) - closed,
            key=lambda number: (sum(held**2 for held in bins[number]) - share * sum(bins[number]), number),
        ):
            free = capacity - sum(bins[number])
            if free >= part:
                found = number
                break
            tried += free > capacity // 8
            closed |= set() if free > capacity // 8 else {number}
            if tried == 4:
                break
        if found is None:
            waits.append(part)
        else:
            bins[found].append(part)
        chosen.append(found)
    for part in [*waits, *small]:
        taking = [held for held in bins if sum(held) + part <= capacity]
        if taking:
            max(taking, key=sum).append(part)
        else:
            bins.append([part])
    used = [held for held in bins if held]
    if len(used) * 1000 > count * 1004 or (count <= 128 and len(used) > len(usual)):
        return usual, None
    return sorted(map(sum, used)), chosen


def windows(pools, world_size):
    """The pools whose batches are dealt together, in an epoch that begins with this many ranks."""
    count = POOLS_IN_WINDOW * -(-world_size // RANKS_OF_WINDOW)
    return [batching.flat(pools[start : start + count]) for start in range(0, len(pools), count)]
