"""Samples that are read a chunk at a time: the batches of the same samples in memory, in the order of the plan."""

import itertools
import pickle
import threading
import time

import batchloom as bl
import numpy
import pyarrow
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.runs import few
from refusals import refused

chunk_sizes = st.lists(st.integers(0, 13), min_size=1, max_size=12).filter(any)


def rows(first, size):
    return numpy.arange(first, first + size)[:, None] * 10.0 + numpy.arange(3)


def numbered(first, size):
    return {"x": rows(first, size), "id": numpy.arange(first, first + size)}


class Source:
    """Chunks of rows, which notes the chunks that are read."""

    def __init__(self, sizes, make=numbered):
        self.firsts, self.sizes, self.make = numpy.concatenate([[0], numpy.cumsum(sizes)]), sizes, make
        self.read_chunks = []

    def __call__(self, chunk):
        self.read_chunks.append(chunk)
        return self.make(int(self.firsts[chunk]), self.sizes[chunk])


def ids(loader):
    return [batch["id"].tolist() for batch in loader]


def in_memory(total):
    return {"x": rows(0, total), "id": numpy.arange(total)}


@pytest.mark.law("L1", "L2", "L3")
@few
@given(
    sizes=chunk_sizes, opened=st.integers(1, 5), size=st.integers(1, 9), shuffle=st.booleans(), seed=st.integers(0, 9)
)
def test_batches_are_those_of_the_plan_over_the_samples_in_memory(sizes, opened, size, shuffle, seed):
    whole, total = in_memory(sum(sizes)), sum(sizes)
    dataset = bl.ChunkDataset(sizes, Source(sizes), chunks_open=opened)
    for threads in (1, 3):
        loader = bl.DataLoader(dataset, size, shuffle=shuffle, seed=seed, num_threads=threads)
        for epoch in range(2):
            plan = loader.plan()
            numbers = []
            for step, batch in enumerate(loader):
                expected = numpy.asarray(plan[step])
                assert batch["id"].tolist() == expected.tolist()
                numpy.testing.assert_array_equal(batch["x"], whole["x"][expected])
                numbers += expected.tolist()
            assert sorted(numbers) == list(range(total))
            assert plan.epoch == epoch


@pytest.mark.law("L4", "L5")
@few
@given(
    sizes=chunk_sizes,
    opened=st.integers(1, 4),
    size=st.integers(1, 5),
    worlds=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    data=st.data(),
)
def test_a_run_resumes_at_any_step_on_any_number_of_ranks(sizes, opened, size, worlds, data):
    first, second = worlds
    options = {"batch_size": size, "shuffle": True, "seed": 3, "uneven": "short"}

    def loaders(world):
        dataset = bl.ChunkDataset(sizes, Source(sizes), chunks_open=opened)
        return [bl.DataLoader(dataset, **options, rank=rank, world_size=world) for rank in range(world)]

    begun = loaders(first)
    steps = min(len(loader) for loader in begun)
    taken = data.draw(st.integers(0, steps))
    seen, states = [], []
    for loader in begun:
        seen += itertools.chain.from_iterable(ids(itertools.islice(loader, taken)))
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    resumed = loaders(second)
    for loader in resumed:
        loader.load_state_dict(states[0])
        if taken:
            seen += itertools.chain.from_iterable(ids(loader))
    assert not taken or states[0]["batches"] == 0 or sorted(seen) == list(range(sum(sizes)))


def test_a_chunk_is_read_once_in_an_epoch_and_few_are_held():
    sizes = [50] * 40
    source = Source(sizes)
    dataset = bl.ChunkDataset(sizes, source, chunks_open=4)
    loader = bl.DataLoader(dataset, 10, shuffle=True, num_threads=2)
    for epoch in range(1, 4):
        assert len(ids(loader)) == 200
        assert len(source.read_chunks) <= epoch * 40
    counts = dataset.counts
    assert counts.read == len(source.read_chunks)
    # The window, the slot that is next, and a chunk for each thread.
    assert counts.most_held <= 4 + 2 + 2
    assert loader.plan().stats()["chunks_read"] == 40


def test_ranks_read_chunks_of_their_own():
    sizes, world = [20] * 60, 3
    read = 0
    for rank in range(world):
        source = Source(sizes)
        loader = bl.DataLoader(
            bl.ChunkDataset(sizes, source, chunks_open=4), 10, shuffle=True, rank=rank, world_size=world, num_threads=2
        )
        assert len(list(loader)) == 40
        read += len(source.read_chunks)
    assert read <= 60 + (world - 1) * 4 + world


def test_lists_have_the_batches_of_sequences():
    sizes, lengths = [7, 0, 12, 5], [(5 * k) % 8 for k in range(24)]
    lists = [[100 * k + j for j in range(length)] for k, length in enumerate(lengths)]

    def make(first, size):
        part = lists[first : first + size]
        return {"ids": pyarrow.array(part, pyarrow.list_(pyarrow.int64())), "label": numpy.arange(first, first + size)}

    for rule in (bl.TokenBudget(20), bl.Packing(9), bl.LengthBuckets(3)):
        dataset = bl.ChunkDataset(sizes, Source(sizes, make), lengths=lengths, columns=["ids"], chunks_open=2)
        loader = bl.DataLoader(dataset, batching=rule, shuffle=True, num_threads=2)
        assert sum(plan.tokens for plan in map(loader.plan().step, range(len(loader)))) == sum(lengths)
        found = []
        for batch in loader:
            for place, sample in enumerate(batch["index"].tolist()):
                assert batch["label"][place] == sample
                if "lengths" in batch:
                    assert batch["ids"][place][: lengths[sample]].tolist() == lists[sample]
                else:
                    ends = batch["cu_seqlens"]
                    assert batch["ids"][ends[place] : ends[place + 1]].tolist() == lists[sample]
                found.append(sample)
        assert sorted(found) == list(range(24))


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (rows, lambda batch: batch),
        (lambda first, size: (rows(first, size), numpy.arange(size)), lambda batch: batch[0]),
        (lambda first, size: torch.from_numpy(rows(first, size)), lambda batch: batch.numpy()),
        (lambda first, size: pyarrow.table({"x": rows(first, size)[:, 0]}), lambda batch: batch["x"][:, None]),
    ],
    ids=["array", "tuple", "torch", "table"],
)
def test_chunks_are_what_datasets_take(make, read):
    sizes = [5, 8]
    dataset = bl.ChunkDataset(sizes, Source(sizes, make))
    (batch,) = bl.DataLoader(dataset, 13)
    expected = rows(0, 13)
    found = read(batch)
    numpy.testing.assert_array_equal(found, expected[:, : found.shape[1]])
    sample = dataset[6]
    assert type(sample) is (tuple if isinstance(batch, tuple) else dict if isinstance(batch, dict) else type(sample))


def test_selections_and_pickles():
    sizes = [6, 9, 4]
    dataset = bl.ChunkDataset(sizes, Source(sizes), chunks_open=2)
    part = dataset.select([1, 2, 7, 8, 15, 18])
    assert sorted(itertools.chain.from_iterable(ids(bl.DataLoader(part, 4, shuffle=True)))) == [1, 2, 7, 8, 15, 18]
    train, held_out = dataset.split(train=0.7, held_out=0.3)
    both = [ids(bl.DataLoader(each, 4, shuffle=True)) for each in (train, held_out)]
    assert sorted(itertools.chain.from_iterable(itertools.chain.from_iterable(both))) == list(range(19))
    again = pickle.loads(pickle.dumps(dataset))
    assert ids(bl.DataLoader(again, 4, shuffle=True)) == ids(bl.DataLoader(dataset, 4, shuffle=True))
    with refused(bl.ArgumentError, "sample 3", "sample 5", "order"):
        bl.DataLoader(dataset.select([5, 3]), 2)


def test_a_slow_chunk_holds_up_no_other():
    sizes = [10] * 8
    gate = threading.Event()

    def make(first, size):
        if first == 30:
            assert gate.wait(10)
        return {"x": rows(first, size), "id": numpy.arange(first, first + size)}

    batches = iter(bl.DataLoader(bl.ChunkDataset(sizes, Source(sizes, make)), 10, num_threads=3))
    assert [next(batches)["id"][0] for _ in range(2)] == [0, 10]
    gate.set()
    assert len(list(batches)) == 6


def test_a_chunk_that_fails_ends_the_epoch_and_the_run_goes_on():
    sizes, broken = [10] * 6, {3}

    def make(first, size):
        if first // 10 in broken:
            raise OSError("the disk is gone")
        return {"x": rows(first, size), "id": numpy.arange(first, first + size)}

    loader = bl.DataLoader(bl.ChunkDataset(sizes, Source(sizes, make)), 10)
    taken = []
    with refused(bl.SampleError, "the disk is gone"):
        for batch in loader:
            taken.append(batch["id"][0])
    assert taken == [0, 10, 20]
    state = loader.state_dict()
    broken.clear()
    loader.load_state_dict(state)
    assert [batch["id"][0] for batch in loader] == [30, 40, 50]


def test_chunks_that_fail_are_skipped_with_weight_0():
    sizes = [10] * 4

    def make(first, size):
        if first == 20:
            raise OSError("the disk is gone")
        return {"x": rows(first, size), "id": numpy.arange(first, first + size)}

    loader = bl.DataLoader(bl.ChunkDataset(sizes, Source(sizes, make), on_error="skip"), 8)
    for batch in loader:
        for place, weight in enumerate(batch["weight"].tolist()):
            assert (weight == 0) == (batch["id"][place] == 0 and batch["x"][place][1] == 0)
    assert [number for number, _ in loader.skipped] == list(range(20, 30))


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda first, size: rows(first, size + (first > 0)), ("chunk 1", "11", "10")),
        (lambda first, size: rows(first, size).astype("f4" if first else "f8"), ("float32", "float64")),
        (lambda first, size: {}, ("empty dict",)),
        (lambda first, size: {"x": ["a"] * size}, ("field x", "objects", "numbers")),
        (lambda first, size: None, ("NoneType",)),
    ],
    ids=["rows", "type", "empty", "texts", "nothing"],
)
def test_chunks_that_do_not_fit_are_named(make, parts):
    sizes = [10, 10]
    with refused((bl.SampleError, bl.DataError), *parts):
        list(bl.DataLoader(bl.ChunkDataset(sizes, Source(sizes, make)), 5))


def test_bad_input():
    with refused(bl.ArgumentError, "read", "list", "function"):
        bl.ChunkDataset([3], [1, 2, 3])
    with refused(bl.DataError, "no sample"):
        bl.ChunkDataset([0, 0], rows)
    with refused(bl.DataError, "chunk 1", "-1"):
        bl.ChunkDataset([2, -1], rows)
    with refused(bl.ArgumentError, "chunks_open", "0"):
        bl.ChunkDataset([2], rows, chunks_open=0)
    with refused(bl.DataError, "2", "3"):
        bl.ChunkDataset([3], rows, lengths=[1, 2])
    dataset = bl.ChunkDataset([5, 5], Source([5, 5]), lengths=range(10), columns=[])
    for options, names in [
        ({"weights": numpy.ones(10), "shuffle": True}, ("weights", "chunks")),
        ({"homogeneous_by": numpy.arange(10) % 2}, ("homogeneous_by", "chunks")),
        ({"balance": True, "batching": bl.LengthBuckets(2)}, ("balance", "chunks")),
        ({"shuffle": "runs"}, ("runs", "chunks")),
        ({"collate": lambda samples: samples}, ("collate", "chunks")),
        ({"fields": {"x": bl.Field(slot=bl.Slot((3,), lambda sample, slot: None))}}, ("slot of x", "chunks")),
    ]:
        with refused(bl.ArgumentError, *names):
            bl.DataLoader(dataset, **({"batch_size": 2} if "batching" not in options else {}), **options)


def test_an_iteration_that_is_left_stops_reading():
    sizes = [10] * 50

    def make(first, size):
        time.sleep(0.01)
        return {"x": rows(first, size), "id": numpy.arange(first, first + size)}

    source = Source(sizes, make)
    batches = iter(bl.DataLoader(bl.ChunkDataset(sizes, source), 10, num_threads=2))
    next(batches)
    del batches
    time.sleep(0.1)
    assert len(source.read_chunks) < 12


def test_a_forked_process_reads_chunks_of_its_own(script):
    script(
        """
        import os
        import threading
        import numpy
        import batchloom as bl

        parent, begun, go_on = os.getpid(), threading.Event(), threading.Event()

        def read(chunk):
            if chunk and os.getpid() == parent:
                begun.set()
                assert go_on.wait(20)
            return numpy.arange(10 * chunk, 10 * chunk + 10)

        dataset = bl.ChunkDataset([10] * 6, read)
        batches = iter(bl.DataLoader(dataset, 10, num_threads=2))
        assert next(batches)[0] == 0
        assert begun.wait(10)
        process = os.fork()
        if process == 0:
            # A thread of the parent was reading a chunk: it is not in this process.
            found = [batch[0] for batch in bl.DataLoader(dataset, 10, num_threads=2)]
            os._exit(0 if found == [0, 10, 20, 30, 40, 50] else 1)
        go_on.set()
        assert len(list(batches)) == 5
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        """
    )
