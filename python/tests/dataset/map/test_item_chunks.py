"""Items that are read a chunk at a time: the samples of a list of them, in the order of a plan over chunks."""

import itertools
import threading

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.runs import few
from refusals import refused

chunk_sizes = st.lists(st.integers(0, 9), min_size=1, max_size=10).filter(any)


class Texts:
    """Texts in chunks, which notes the chunks that are read."""

    def __init__(self, sizes, wrong=None):
        self.chunks, self.firsts, self.wrong = sizes, [0, *itertools.accumulate(sizes)], wrong
        self.read, self.lock = [], threading.Lock()

    def read_chunk(self, chunk):
        with self.lock:
            self.read.append(chunk)
        if chunk == self.wrong:
            raise OSError(f"no chunk {chunk} here")
        return [f"text {number}" for number in range(self.firsts[chunk], self.firsts[chunk + 1])]


def number(text):
    return {"number": int(text.split()[1]), "text": text}


@pytest.mark.law("L1", "L2", "L3")
@few
@given(sizes=chunk_sizes, opened=st.integers(1, 5), order=st.booleans(), threads=st.integers(1, 3))
def test_samples_are_those_of_the_items_in_the_order_of_a_plan_over_chunks(sizes, opened, order, threads):
    dataset = bl.MapDataset(Texts(sizes), number, chunks_open=opened)
    assert dataset.chunks.tolist() == sizes
    assert [sample["number"] for sample in dataset] == list(range(sum(sizes)))
    before = dataset.counts.read
    loader = bl.DataLoader(dataset, 3, shuffle=order, seed=1, num_threads=threads)
    plan = bl.Plan(sum(sizes), 3, shuffle=order, seed=1, chunks=sizes, chunks_open=opened)
    found = [(batch["number"].tolist(), batch["text"]) for batch in loader]
    assert [numbers for numbers, _ in found] == [numpy.asarray(batch).tolist() for batch in plan]
    assert all(texts == [f"text {each}" for each in numbers] for numbers, texts in found)
    assert dataset.counts.read - before == sum(size > 0 for size in sizes)


def test_chunks_that_are_held_serve_all_loaders():
    items = Texts([10] * 20)
    dataset = bl.MapDataset(items, number, chunks_open=20)
    loaders = [iter(bl.DataLoader(dataset, 4, shuffle=True, seed=seed)) for seed in range(3)]
    assert sum(len(batch["text"]) for batches in zip(*loaders, strict=True) for batch in batches) == 600
    assert len(items.read) < 60


def test_a_chunk_that_cannot_be_read_is_an_error_of_its_items():
    items = Texts([5] * 6, wrong=3)
    with refused(bl.SampleError, "no chunk 3 here", "OSError"):
        list(bl.DataLoader(bl.MapDataset(items, number), 4))
    items.read.clear()
    skips = bl.DataLoader(bl.MapDataset(items, number, on_error="skip"), 4, shuffle=True)
    weights = [int(batch["weight"].sum()) for batch in skips]
    assert sum(weights) == 25
    assert items.read.count(3) == 1  # once in an epoch, though it fails
    with refused(bl.SampleError, "4 item", "5"):
        short = Texts([5] * 6)
        short.read_chunk = lambda chunk: list(range(4))
        list(bl.DataLoader(bl.MapDataset(short), 4))


def test_what_items_in_chunks_do_not_take_is_refused():
    items = Texts([5] * 6)
    with refused(bl.SampleError, "nbytes", "memory"):
        bl.MapDataset(items, number, memory=100)
    with refused(bl.ArgumentError, "processes", "threads"):
        bl.MapDataset(items, number, workers="processes")
    with refused(bl.ArgumentError, "chunks_open", "list"):
        bl.MapDataset([1, 2], chunks_open=3)
    with refused(bl.ArgumentError, "memory", "range"):
        bl.MapDataset(range(3), memory="1MB")
    with refused(bl.DataError, "item"):
        bl.MapDataset(Texts([0]))
    with refused(bl.DataError, "-1"):
        bl.MapDataset(Texts([2, -1]))
    plain = bl.MapDataset([1, 2])
    assert (plain.chunks, plain.chunks_open, plain.memory, plain.counts) == (None, None, None, None)


def test_a_chunk_may_not_be_read_by_a_loop_over_itself():
    items = Texts([5] * 6)
    dataset = bl.MapDataset(items, number, chunks_open=1)
    read = items.read_chunk

    def read_chunk(chunk):
        next(iter(bl.DataLoader(dataset, 2)))
        return read(chunk)

    items.read_chunk = read_chunk
    with refused(bl.SampleError, "LoaderError"):
        list(bl.DataLoader(dataset, 2))


def test_a_list_of_dicts_as_a_chunk_says_what_a_chunk_is():
    dataset = bl.ChunkDataset([2, 2], lambda chunk: [{"x": numpy.arange(3)}, {"x": numpy.arange(3)}])
    with pytest.raises(bl.SampleError, match="a list of a dict for each sample; expected one array for each field"):
        next(iter(bl.DataLoader(dataset, 2)))


class Numbers:
    """A chunk of rows of numbers, with names of its own that the rows of tables have as well."""

    def __init__(self, chunk):
        self.chunk, self.columns = chunk, {"x": float, "label": int}

    def __len__(self):
        return 4

    def __getitem__(self, row):
        return {"x": 100.5 + 4 * self.chunk + row, "label": 7000 + 4 * self.chunk + row}


class ItemsOfNumbers:
    """Items in such chunks, with columns of their own."""

    chunks = (4,) * 6

    def __len__(self):
        return 24

    def __getitem__(self, number):
        return Numbers(number // 4)[number % 4]

    def read_chunk(self, chunk):
        return Numbers(chunk)

    def read_columns(self, names):
        return {"x": [0.0] * len(names), "label": [0] * len(names)}


class ItemsAlone(ItemsOfNumbers):
    """The same items, not in chunks."""

    chunks = read_chunk = None


@pytest.mark.parametrize("items", [ItemsOfNumbers(), ItemsAlone()])
def test_items_may_have_columns_of_their_own(items):
    for _ in range(2):
        batches = [*bl.DataLoader(bl.MapDataset(items), 4, num_threads=1)]
        assert [label for batch in batches for label in batch["label"].tolist()] == [*range(7000, 7024)]
        assert [x for batch in batches for x in batch["x"].tolist()] == [number + 100.5 for number in range(24)]
