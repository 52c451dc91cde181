"""Banned samples in chunks: the batches of the same samples in memory, under every rule, however many threads read."""

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.runs import few

RULES = (
    bl.Packing(24),
    bl.Packing(24, rows=2),
    bl.Packing(24, rows=2, rests="continue"),
    bl.TokenBudget(40, pool=64),
    bl.LengthBuckets(3, pool=60),
    bl.Packing({"x": 24, "images": 5}),
)


def draw_documents(lengths):
    """Return documents, each with tokens that are its own."""
    return [numpy.arange(length) + 100 * number for number, length in enumerate(lengths)]


def chunked(documents, images, size):
    """Return the documents in chunks of a size."""
    parts = [documents[start : start + size] for start in range(0, len(documents), size)]
    lengths = [len(document) for document in documents]
    return bl.ChunkDataset(
        [len(part) for part in parts],
        lambda chunk: {"x": parts[chunk]},
        lengths=lengths if images is None else {"x": lengths, "images": images},
        chunks_open=len(parts),
    )


def as_lists(batches):
    """Return batches as numbers alone."""
    return [
        {name: value.tolist() if hasattr(value, "tolist") else value for name, value in batch.items()}
        for batch in batches
    ]


@pytest.mark.law("L1", "L2", "L3", "L4")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{type(rule).__name__}-{getattr(rule, 'rests', None)}")
@few
@given(lengths=st.lists(st.integers(1, 9), min_size=8, max_size=50), size=st.integers(2, 9), data=st.data())
def test_batches_with_banned_samples_are_those_in_memory(rule, lengths, size, data):
    documents, several = draw_documents(lengths), rule is RULES[-1]
    images = [number % 3 for number in range(len(documents))] if several else None
    sizes = {"sizes": {"images": images}} if several else {}
    ban = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=6))
    options = {"batching": rule, "ban": ban, "output": "numpy"}
    expected = as_lists(bl.DataLoader(bl.SequenceDataset(x=documents, **sizes), **options))
    for threads in (1, 3):
        loader = bl.DataLoader(chunked(documents, images, size), num_threads=threads, **options)
        assert as_lists(loader) == expected
    step = data.draw(st.integers(0, len(expected)))
    loader.set_epoch(0)
    left = iter(loader)
    for _ in range(step):
        next(left)
    resumed = bl.DataLoader(chunked(documents, images, size), num_threads=2, **options)
    resumed.load_state_dict(loader.state_dict())
    if step < len(expected):
        assert as_lists(resumed) == expected[step:]
