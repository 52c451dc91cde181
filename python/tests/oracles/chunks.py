"""Plans over chunks, by definition: the parts of the batches of an epoch that ranks take."""

import itertools

from hypothesis import strategies as st

sizes_of_chunks = st.one_of(
    st.lists(st.one_of(st.just(0), st.just(1), st.integers(2, 7), st.integers(8, 60)), min_size=1, max_size=20),
    st.builds(lambda size, count: [size] * count, st.integers(1, 30), st.integers(1, 20)),
).filter(any)


def parts(left, world_size):
    """Equal parts of the batches that are left, one more for the first ranks where they differ."""
    each, more = divmod(len(left), world_size)
    ends = [rank * each + min(rank, more) for rank in range(world_size + 1)]
    return [left[start:end] for start, end in itertools.pairwise(ends)]


def dealt(left, world_size, drop_last, uneven):
    """The batches of each rank, filled up or dropped as the options want it."""
    found, most = parts(left, world_size), -(-len(left) // world_size)
    if drop_last:
        return [part[: len(left) // world_size] for part in found]
    if uneven == "short":
        return found
    return [part + (part or left)[-1:] * (most - len(part)) for part in found]


def chunk_of(sizes):
    """The chunk of each sample."""
    return [chunk for chunk, size in enumerate(sizes) for _ in range(size)]


def most_open(order, sizes):
    """The most chunks that are begun and not finished at any position of an order."""
    chunks, last = chunk_of(sizes), {}
    for position, sample in enumerate(order):
        last[chunks[sample]] = position
    begun, most = set(), 0
    for position, sample in enumerate(order):
        begun.add(chunks[sample])
        most = max(most, len(begun))
        begun -= {chunk for chunk in begun if last[chunk] == position}
    return most
