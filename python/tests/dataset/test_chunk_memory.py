"""The memory for chunks that differ in bytes: its limit holds, and a loader warns where chunks are read again."""

import logging

import batchloom as bl
import numpy
import pytest
from refusals import refused


def pictures(heights):
    """Chunks of pictures of these heights, 32 elements wide."""
    return lambda chunk: {"x": [numpy.zeros((height, 32)) for height in heights[chunk]]}


def epoch(dataset, height, caplog):
    loader = bl.DataLoader(dataset, batch_size=32, shuffle=True, fields={"x": bl.Field(slot=bl.Pad((height, 32)))})
    with caplog.at_level(logging.WARNING, "batchloom"):
        for _ in loader:
            pass
    return [record.getMessage() for record in caplog.records]


def test_chunks_that_are_read_again_are_warned_of(caplog):
    heights = numpy.random.default_rng(0).integers(20, 61, (60, 50))
    heights[0] = 20
    dataset = bl.ChunkDataset([50] * 60, pictures(heights), memory="4MB")
    (message,) = epoch(dataset, 60, caplog)
    counts = dataset.counts
    assert counts.left_early > 30
    assert counts.most_bytes <= dataset.memory
    for part in ("epoch 0", "memory=4000000", str(counts.largest), str(counts.left_early), "chunks_open="):
        assert part in message
    caplog.clear()
    smaller = int(message.split("chunks_open=")[1].split()[0])
    dataset = bl.ChunkDataset([50] * 60, pictures(heights), chunks_open=smaller)
    assert not epoch(dataset, 60, caplog)
    assert dataset.counts.read == 60


@pytest.mark.parametrize("rows", [20, 22])
def test_chunks_of_about_one_size_are_not_warned_of(rows, caplog):
    heights = numpy.full((60, 50), 20)
    heights[1::2] = rows
    dataset = bl.ChunkDataset([50] * 60, pictures(heights), memory="8MB")
    assert not epoch(dataset, 60, caplog)


def test_a_chunk_that_memory_does_not_hold_is_refused():
    heights = numpy.full((40, 50), 20)
    heights[5] = 1000
    dataset = bl.ChunkDataset([50] * 40, pictures(heights), memory="3MB")
    loader = bl.DataLoader(dataset, 32, shuffle=True, fields={"x": bl.Field(slot=bl.Pad((1000, 32)))})
    with refused(bl.DataError, "chunk 5", "3000000", "12800600", "5 such chunks"):
        for _ in loader:
            pass
    assert dataset.counts.most_bytes <= dataset.memory


def test_bytes_of_rows_and_of_lists_are_told_apart():
    # The chunk with the longest samples has few rows; the others hold ten times the bytes, beside their lists.
    sizes, lengths = [10] + [500] * 39, [200] * 10 + [1] * 500 * 39
    read = []

    def make(chunk):
        read.append(chunk)
        return {
            "ids": [numpy.zeros(200 if chunk == 0 else 1, int)] * sizes[chunk],
            "x": numpy.zeros((sizes[chunk], 64)),
        }

    dataset = bl.ChunkDataset(sizes, make, lengths=lengths, columns=["ids"], memory="4MB")
    assert read == [0]
    assert 500 * 64 * 8 <= dataset.memory / dataset.chunks_open <= 2 * 500 * 64 * 8
    loader = bl.DataLoader(dataset, batching=bl.TokenBudget(400), shuffle=True)
    assert sum(batch["x"].shape[0] for batch in loader) == sum(sizes)
    assert dataset.counts.most_bytes <= dataset.memory
    assert len(read) == 1 + len(sizes)


@pytest.mark.parametrize("join", ["concat", "mixture"])
def test_a_function_that_iterates_over_a_dataset_with_its_own_chunks_is_refused(join):
    sizes = [10] * 6

    def rows(chunk):
        return numpy.arange(10) + 10 * chunk

    def read(chunk):
        if chunk == 3:
            list(bl.DataLoader(joined(), batch_size=5))
        return rows(chunk)

    dataset, other = bl.ChunkDataset(sizes, read), bl.ChunkDataset(sizes, rows)

    def joined():
        return dataset.concat(other) if join == "concat" else bl.Mixture({"a": other, "b": dataset})

    with refused(bl.SampleError, "chunk 3", "the same chunks"):
        list(bl.DataLoader(dataset, batch_size=5))
    with refused(bl.SampleError, "chunk 3", "the same chunks"):
        list(bl.DataLoader(joined(), batch_size=5))
    # A function may iterate over what it is put together with.
    inner = bl.ChunkDataset(sizes, lambda chunk: rows(chunk) + len(list(bl.DataLoader(other, 10))))
    assert len(list(bl.DataLoader(inner.concat(other), batch_size=10))) == 12
