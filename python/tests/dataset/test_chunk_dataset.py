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
    # The window, three for the blocks ahead, and a chunk for each thread, which is read early.
    assert counts.most_held <= 4 + 3 + 2
    assert counts.most_bytes <= counts.most_held * 50 * 4 * 8
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


PADDED = [
    {"batch_size": 3},
    {"batching": bl.FixedSize(4, multiple_of=4)},
    {"batching": bl.LengthBuckets(3)},
    {"batching": bl.TokenBudget(20, multiple_of=2)},
]
OPTIONS = [
    {},
    {"dtype": {"ids": "int64"}},
    {"dtype": {"ids": "float32", "label": "float64"}, "pad_value": {"ids": -1}},
    {"pad_value": {"ids": 7}},
    {"pad_value": {"ids": 7}, "pad_side": "left"},
]


def fields_of(options):
    """The options as a loader takes them: a type of each field by ``fields=``."""
    options = dict(options)
    dtypes = options.pop("dtype", {})
    pads = options.pop("pad_value", {})
    fields = {
        name: bl.Field(**{key: given[name] for key, given in (("dtype", dtypes), ("pad", pads)) if name in given})
        for name in {*dtypes, *pads}
    }
    return {**options, **({"fields": fields} if fields else {})}


class Lists:
    """Lists in chunks, and the same lists in memory."""

    def __init__(self, lengths, cuts, inner=(), equal=False):
        lengths = [4] * len(lengths) if equal else lengths
        # A pool of samples of which none has an element makes no pack.
        self.lengths = [max(lengths[0], 1), *lengths[1:]]
        ends = sorted({*(min(cut, len(lengths)) for cut in cuts), len(lengths)} - {0})
        self.sizes = numpy.diff([0, *ends]).tolist()
        generator = numpy.random.default_rng(len(lengths))
        self.lists = [generator.integers(0, 99, (length, *inner)).astype(numpy.int32) for length in self.lengths]
        self.labels, self.equal = numpy.arange(len(lengths)) % 5, equal

    def read(self, first, size):
        part = self.lists[first : first + size]
        # A chunk of lists of one length may be an array.
        ids = numpy.stack(part) if self.equal else (numpy.concatenate(part), numpy.cumsum([0, *map(len, part)]))
        return {"ids": ids, "label": self.labels[first : first + size]}

    def in_chunks(self):
        source = Source(self.sizes, self.read)
        return bl.ChunkDataset(self.sizes, source, lengths=self.lengths, columns=["ids"], chunks_open=2)

    def in_memory(self):
        offsets = numpy.cumsum([0, *self.lengths])
        return bl.SequenceDataset(ids=(numpy.concatenate(self.lists), offsets), label=self.labels)


lists = st.builds(
    Lists,
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.lists(st.integers(0, 40), max_size=6),
    st.sampled_from([(), (2,)]),
    st.booleans(),
)


@pytest.mark.law("L2", "L3")
@few
@given(data=lists, rule=st.sampled_from(PADDED), options=st.sampled_from(OPTIONS), shuffle=st.booleans())
def test_padded_lists_have_the_batches_of_a_sequence_dataset(data, rule, options, shuffle):
    whole, loaders = data.in_memory(), fields_of(options)
    multiple = getattr(rule.get("batching"), "multiple_of", 1)
    seen = []
    for batch in bl.DataLoader(data.in_chunks(), **rule, **loaders, shuffle=shuffle, num_threads=2):
        samples = batch["index"].tolist()
        rows = bl.FixedSize(len(samples), multiple_of=multiple)
        (expected,) = bl.DataLoader(whole.select(samples), batching=rows, **loaders)
        for name in expected.keys() - {"index"}:
            assert expected[name].dtype == batch[name].dtype, name
            numpy.testing.assert_array_equal(expected[name], batch[name], err_msg=name)
        seen += samples
    assert sorted(seen) == list(range(len(data.lists)))


@pytest.mark.law("L2", "L3")
@few
@given(data=lists, options=st.sampled_from(OPTIONS[:3]), splits=st.booleans())
def test_packed_lists_are_those_of_their_samples(data, options, splits):
    rule = bl.Packing(5, oversize="split") if splits else bl.Packing(9)
    seen = {sample: 0 for sample in range(len(data.lists))}
    for batch in bl.DataLoader(data.in_chunks(), batching=rule, **fields_of(options), shuffle=True, num_threads=2):
        ends, samples = batch["cu_seqlens"].tolist(), batch["index"].tolist()
        assert len(ends) == len(samples) + 1
        for sample, (first, end) in zip(samples, itertools.pairwise(ends), strict=True):
            found = batch["ids"][first:end]
            parts = range(0, max(len(data.lists[sample]), 1), 5 if splits else 10)
            possible = [data.lists[sample][start : start + (5 if splits else 10)] for start in parts]
            assert any(numpy.array_equal(found, part) for part in possible)
            seen[sample] += end - first
    assert seen == dict(enumerate(data.lengths))


@few
@given(sizes=chunk_sizes, opened=st.integers(1, 4), size=st.integers(1, 6), threads=st.integers(1, 4))
def test_two_loaders_read_chunks_side_by_side(sizes, opened, size, threads):
    dataset = bl.ChunkDataset(sizes, Source(sizes), chunks_open=opened)
    loaders = [bl.DataLoader(dataset, size, shuffle=True, seed=seed, num_threads=threads) for seed in range(2)]
    found = [[], []]
    for pair in itertools.zip_longest(*loaders):
        for numbers, batch in zip(found, pair, strict=True):
            numbers += batch["id"].tolist()
    assert all(sorted(numbers) == list(range(sum(sizes))) for numbers in found)


@few
@given(
    size=st.integers(1, 30),
    count=st.integers(4, 40),
    room=st.integers(5, 12),
    batch=st.integers(1, 9),
    threads=st.integers(1, 4),
)
def test_memory_decides_how_many_chunks_are_mixed_and_is_never_exceeded(size, count, room, batch, threads):
    sizes, memory = [size] * count, room * size * 4 * 8 + 7
    source = Source(sizes)
    dataset = bl.ChunkDataset(sizes, source, memory=memory)
    assert dataset.memory == memory
    assert dataset.chunks_open == (count if room >= count else room - max(room // 5, 4))
    given = bl.ChunkDataset(sizes, Source(sizes), chunks_open=dataset.chunks_open)
    options = {"batch_size": batch, "shuffle": True, "num_threads": threads}
    loader = bl.DataLoader(dataset, **options)
    again = bl.DataLoader(given, **options)
    assert loader.plan().fingerprint == again.plan().fingerprint
    assert ids(loader) == ids(again)
    if batch <= size:
        # Batches that reach further may need more chunks at a time.
        assert dataset.counts.most_bytes <= memory
        assert dataset.counts.most_held <= room
        assert len(source.read_chunks) == count + 1  # and the one that was measured


def test_iterations_side_by_side_have_as_much_memory_each():
    sizes = [100] * 60
    source = Source(sizes)
    dataset = bl.ChunkDataset(sizes, source, memory=12 * 100 * 4 * 8)
    loaders = [iter(bl.DataLoader(dataset, 50, shuffle=True, seed=seed, num_threads=3)) for seed in range(3)]
    assert all(len(each) == 3 for each in zip(*loaders, strict=True))
    # Chunks that several iterations need are shared.
    assert 60 < len(source.read_chunks) <= 3 * 60 + 1
    assert dataset.counts.most_bytes <= 3 * dataset.memory


def test_memory_that_holds_all_chunks_mixes_all():
    assert bl.ChunkDataset([5, 0, 7], Source([5, 0, 7]), memory=1000).chunks_open == 2


def test_a_chunk_that_fails_is_read_once_in_an_iteration():
    sizes, calls = [10] * 12, []

    def make(first, size):
        calls.append(first)
        if first == 50:
            raise OSError("the disk is gone")
        return numbered(first, size)

    dataset = bl.ChunkDataset(sizes, Source(sizes, make), on_error="skip", memory="1MB")
    assert calls == [0]  # the one that was measured
    loader = bl.DataLoader(dataset, 4, shuffle=True, num_threads=3)
    for epoch in range(1, 3):
        assert sum(int(batch["weight"].sum()) for batch in loader) == 110
        assert calls.count(50) == epoch


def test_a_chunk_that_fails_is_not_the_one_that_is_measured():
    def make(first, size):
        return numbered(first, size) if first else _gone(0)

    sizes = [10] * 8
    assert bl.ChunkDataset(sizes, Source(sizes, make), on_error="skip", memory=5 * 320).chunks_open == 1
    with refused(bl.SampleError, "the disk is gone"):
        bl.ChunkDataset(sizes, _gone, on_error="skip", memory=5 * 320)


def test_batches_that_need_more_than_memory_holds_are_formed_nevertheless():
    dataset = bl.ChunkDataset([2] * 60, Source([2] * 60), memory=6 * 2 * 4 * 8)
    found = ids(bl.DataLoader(dataset, 40, shuffle=True, num_threads=3))
    assert sorted(itertools.chain.from_iterable(found)) == list(range(120))


def test_memory_is_bytes_or_a_text():
    def make(memory, **options):
        return bl.ChunkDataset([1000] * 20, lambda chunk: numpy.zeros((1000, 100)), memory=memory, **options)

    assert make("8MB").memory == 8_000_000
    assert make("8 MiB").memory == 8 << 20
    assert make("0.01GB").chunks_open == 12 - 4
    again = pickle.loads(pickle.dumps(bl.ChunkDataset([3, 3, 3, 3], Source([3] * 4), memory="1KB", lengths=range(12))))
    assert (again.memory, again.chunks_open) == (1000, 4)
    with refused(bl.ArgumentError, "memory", "8 parsecs", "256MB"):
        make("8 parsecs")
    with refused(bl.ArgumentError, "memory"):
        make("9" * 400 + "GB")
    with refused(bl.ArgumentError, "memory", "0"):
        make(0)
    with refused(bl.ArgumentError, "memory", "chunks_open", "one of them"):
        make("8MB", chunks_open=3)
    with refused(bl.ArgumentError, "1000000", "800000", "5 chunks", "4000000"):
        make("1MB")
    with refused(bl.SampleError, "the disk is gone"):
        bl.ChunkDataset([3], _gone, memory=100)


def _gone(chunk):
    raise OSError("the disk is gone")


def test_chunks_that_batches_need_next_are_read_early():
    sizes, begun, gate = [10] * 12, threading.Event(), threading.Event()

    def make(first, size):
        if first == 40:
            begun.set()
            assert gate.wait(10)
        return numbered(first, size)

    batches = iter(bl.DataLoader(bl.ChunkDataset(sizes, Source(sizes, make)), 10, num_threads=2))
    # Chunk 4 is begun while batches of the chunks before are handed over; it holds up none of them.
    assert [next(batches)["id"][0] for _ in range(4)] == [0, 10, 20, 30]
    assert begun.wait(10)
    gate.set()
    assert len(list(batches)) == 8


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"output": "torch"},
        {"output": "torch", "buffers": "own"},
        {"output": "torch", "buffers": "static"},
        {"output": "torch", "device": "meta"},
        {"output": "torch", "device": "meta", "resident": False},
    ],
    ids=["numpy", "torch", "own", "static", "meta", "streamed"],
)
@pytest.mark.parametrize("seed", range(4))
def test_batches_before_one_that_fails_are_handed_over(options, seed):
    sizes = [10] * 12

    def make(first, size):
        return numbered(first, size) if first != 70 else _gone(7)

    dataset = bl.ChunkDataset(sizes, Source(sizes, make), chunks_open=3)
    loader = bl.DataLoader(dataset, 3, shuffle=True, seed=seed, **options)
    plan = [numpy.asarray(batch) for batch in loader.plan()]
    first = next(step for step, batch in enumerate(plan) if ((batch >= 70) & (batch < 80)).any())
    taken = 0
    with refused(bl.SampleError, "the disk is gone"):
        for batch in loader:
            if "device" not in options:
                assert batch["id"].tolist() == plan[taken].tolist()
                numpy.testing.assert_array_equal(batch["x"], rows(0, 120)[plan[taken]])
            taken += 1
    assert taken == first
    assert sum(steps for _, steps in loader.state_dict()["worlds"]) == taken


def test_a_function_that_iterates_over_its_own_chunks_is_refused():
    sizes = [10] * 4

    def make(first, size):
        if first == 10:
            list(bl.DataLoader(dataset, 10))
        return numbered(first, size)

    dataset = bl.ChunkDataset(sizes, Source(sizes, make))
    with refused(bl.SampleError, "chunk 1", "the same chunks", "another dataset"):
        list(bl.DataLoader(dataset, 10))
    # Another dataset is fine.
    inner = bl.ChunkDataset(sizes, Source(sizes))

    def read(first, size):
        return {**numbered(first, size), "inner": numpy.full(size, len(list(bl.DataLoader(inner, 10))))}

    assert [batch["inner"][0] for batch in bl.DataLoader(bl.ChunkDataset(sizes, Source(sizes, read)), 10)] == [4] * 4


def test_an_interrupt_ends_a_loop_that_waits_for_a_chunk(script):
    script(
        """
        import os
        import signal
        import threading
        import time
        import numpy
        import batchloom as bl

        def read(chunk):
            if chunk == 2:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                time.sleep(1)
            return numpy.arange(10 * chunk, 10 * chunk + 10)

        taken = []
        begun = time.monotonic()
        try:
            for batch in bl.DataLoader(bl.ChunkDataset([10] * 8, read), 10, num_threads=1):
                taken.append(int(batch[0]))
        except KeyboardInterrupt:
            assert taken == [0, 10], taken
            assert time.monotonic() - begun < 8
        else:
            raise AssertionError("no interrupt")
        """
    )


def test_no_chunk_is_held_between_epochs():
    import gc
    import weakref

    held = []

    def make(first, size):
        array = rows(first, size)
        held.append(weakref.ref(array))
        return {"x": array, "id": numpy.arange(first, first + size)}

    sizes = [10] * 6
    loader = bl.DataLoader(bl.ChunkDataset(sizes, Source(sizes, make)), 10, shuffle=True)
    assert len(list(loader)) == 6
    gc.collect()
    assert not any(reference() is not None for reference in held)


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (rows, lambda batch: batch),
        (lambda first, size: (rows(first, size), numpy.arange(size)), lambda batch: batch[0]),
        (lambda first, size: torch.from_numpy(rows(first, size)), lambda batch: batch.numpy()),
        (lambda first, size: pyarrow.table({"x": rows(first, size)[:, 0]}), lambda batch: batch["x"][:, None]),
        (lambda first, size: pyarrow.record_batch({"x": rows(first, size)[:, 0]}), lambda batch: batch["x"][:, None]),
    ],
    ids=["array", "tuple", "torch", "table", "record batch"],
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


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_chunk_is_a_frame(package):
    frames, sizes = pytest.importorskip(package), [5, 8]

    def make(first, size):
        return frames.DataFrame({"x": rows(first, size)[:, 0], "y": numpy.arange(size, dtype="f4")})

    (batch,) = bl.DataLoader(bl.ChunkDataset(sizes, Source(sizes, make)), 13)
    assert batch["x"].tolist() == rows(0, 13)[:, 0].tolist()
    assert batch["y"].tolist() == [*range(5), *range(8)]


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
        (lambda first, size: rows(first, 0 if first else size), ("chunk 1", "0 samples", "10")),
        (lambda first, size: numpy.array(1.0) if first else numpy.zeros(size), ("chunk 1", "one value", "10")),
        (lambda first, size: rows(first, size).astype("f4" if first else "f8"), ("float32", "float64")),
        (lambda first, size: {}, ("empty dict",)),
        (lambda first, size: {"x": ["a"] * size}, ("field x", "objects", "numbers")),
        (lambda first, size: None, ("NoneType",)),
    ],
    ids=["rows", "no row", "one value", "type", "empty", "texts", "nothing"],
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
    with refused(bl.DataError, "2 chunks", str(2**63)):
        bl.ChunkDataset([2**62, 2**62], rows)
    with refused(bl.DataError, "chunk 1", "-1"):
        bl.ChunkDataset([2, -1], rows)
    with refused(bl.ArgumentError, "chunks_open", "0"):
        bl.ChunkDataset([2], rows, chunks_open=0)
    with refused(bl.DataError, "lengths", "2", "3"):
        bl.ChunkDataset([3], rows, lengths=[1, 2])
    with refused((bl.DataError, bl.DTypeError), "sizes"):
        bl.ChunkDataset(5, rows)
    with refused(bl.ArgumentError, "columns", "no lengths"):
        bl.ChunkDataset([3], rows, columns=["x"])
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


RULES_OF_POOLS = (
    bl.LengthBuckets(32),
    bl.TokenBudget(4096),
    bl.CostOptimal(bl.CostModel(1, 1), max_tokens=4096),
    bl.Packing(4096),
    bl.Packing(1024, rows=4),
    bl.Packing(1024, rows=4, rests="continue"),
)


@pytest.mark.law("L2")
@pytest.mark.parametrize("rule", RULES_OF_POOLS, ids=lambda rule: f"{type(rule).__name__}-{getattr(rule, 'rests', '')}")
@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("window", [{"memory": "3MB"}, {"chunks_open": 7}, {}])
def test_rules_that_sort_read_each_chunk_about_once_within_memory(rule, window, threads):
    lengths = numpy.random.default_rng(0).integers(1, 200, 15_000)

    def read(chunk):
        return {"ids": [numpy.zeros(length, numpy.int64) for length in lengths[250 * chunk : 250 * chunk + 250]]}

    dataset = bl.ChunkDataset([250] * 60, read, lengths=lengths, **window)
    loader = bl.DataLoader(dataset, batching=rule, shuffle=True, num_threads=threads)
    samples = sorted(sample for batch in loader for sample in batch["index"].flatten().tolist() if sample >= 0)
    assert sorted(set(samples)) == list(range(15_000))
    assert dataset.counts.read <= 63  # a thread that waits for its turn may find that a chunk has left
    assert dataset.counts.most_held <= 60 * (not window) + 30
    if dataset.memory is not None:
        assert dataset.counts.most_bytes <= dataset.memory


@pytest.mark.law("L2")
@few
@given(count=st.integers(8, 40), opened=st.integers(4, 12), slots=st.integers(1, 3), threads=st.integers(1, 4))
def test_rules_that_sort_hold_the_chunks_of_two_pools(count, opened, slots, threads):
    size, lengths = 8, numpy.random.default_rng(count).integers(1, 9, 8 * count)
    source = Source([size] * count, lambda first, size: {"ids": [numpy.zeros(each) for each in lengths[first:][:size]]})
    dataset = bl.ChunkDataset([size] * count, source, lengths=lengths, chunks_open=opened)
    rule = bl.LengthBuckets(4, pool=slots * size // 4)
    for _ in bl.DataLoader(dataset, batching=rule, shuffle=True, num_threads=threads):
        pass
    # A pool has some slots of the window, and the last one up to twice as many.
    assert dataset.counts.most_held <= opened - 1 + slots + 2 * slots - 1 + threads
    assert len(source.read_chunks) <= count + 2


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_slow_chunk_holds_up_no_batch_before_it(threads, prefetch):
    """The reader of a later chunk waits until the first batch was delivered."""
    delivered, sizes = threading.Event(), [8] * 8

    def read(chunk):
        assert chunk != 3 or delivered.wait(20), "the first batch waits for a chunk that it does not need"
        return numbered(8 * chunk, 8)

    loader = bl.DataLoader(bl.ChunkDataset(sizes, read), 2, num_threads=threads, prefetch=prefetch)
    batches = iter(loader)
    first = next(batches)
    delivered.set()
    found = [first["id"].tolist(), *(batch["id"].tolist() for batch in batches)]
    assert found == [[first, first + 1] for first in range(0, 64, 2)]
