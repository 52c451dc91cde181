"""Samples that lie elsewhere: a source outside of the package, and batches as those of the same data in memory.

A source answers `SampleSource` alone: it is told numbers of samples, and nothing of batches, rules, ranks or resume.
"""

import pickle
import threading
from collections import OrderedDict

import batchloom as bl
import numpy
import pytest
from batchloom.dataset.base import dataset_of, samples_of
from batchloom.dataset.map.on_demand import OnDemandSamples, ReadOptions
from batchloom.dataset.map.source import Refused
from refusals import refused

SAMPLES, CHUNK = 61, 8
X = numpy.random.default_rng(0).normal(size=(SAMPLES, 3)).astype(numpy.float32)
Y = numpy.arange(SAMPLES)
LENGTHS = numpy.random.default_rng(1).integers(1, 9, SAMPLES)


class Chunks:
    """Rows in chunks that a function reads; the latest chunks are kept, and each is read under a lock."""

    def __init__(self, read, samples, chunk, kept=2):
        self.read, self.count, self.chunk, self.kept = read, samples, chunk, kept
        self.reads, self._chunks, self._lock = 0, OrderedDict(), threading.Lock()

    def __len__(self):
        return self.count

    def samples(self, numbers, seed, epoch, stop=False):
        for number in numbers:
            if stop:
                return
            try:
                yield self._sample(number)
            except OSError as error:
                yield Refused(bl.SampleError(f"sample {number} could not be read: {error}", number, None), error)

    def item(self, number):
        return None

    def _sample(self, number):
        place, row = divmod(number, self.chunk)
        with self._lock:
            if place not in self._chunks:
                self.reads += 1
                self._chunks[place] = self.read(place)
            self._chunks.move_to_end(place)
            while len(self._chunks) > self.kept:
                self._chunks.popitem(last=False)
            return self._chunks[place][row]

    def __getstate__(self):
        return self.read, self.count, self.chunk, self.kept

    def __setstate__(self, state):
        self.__init__(*state)


def places(chunk):
    """The samples of a chunk."""
    return range(chunk * CHUNK, min((chunk + 1) * CHUNK, SAMPLES))


def rows(chunk):
    """One chunk of rows, in memory of its own, as a file would give it."""
    return [(X[sample].copy(), Y[sample].copy()) for sample in places(chunk)]


def sequences(chunk):
    """One chunk of sequences, whose lengths differ."""
    return [{"x": X[sample, :1].repeat(LENGTHS[sample])} for sample in places(chunk)]


def chunked(**options):
    """The rows as a dataset that a loader takes."""
    return dataset_of(OnDemandSamples(Chunks(rows, SAMPLES, CHUNK), options=ReadOptions(**options)))


def seen(batches):
    """Batches as lists of arrays."""
    return [[numpy.asarray(array).tolist() for array in batch] for batch in batches]


def epochs(dataset, count=2, **options):
    """The batches of some epochs of each of two ranks."""
    loaders = [bl.DataLoader(dataset, **options, rank=rank, world_size=2) for rank in range(2)]
    return [seen(loader) for loader in loaders for _ in range(count)]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 7},
        {"batch_size": 7, "shuffle": True},
        {"batch_size": 7, "shuffle": "runs", "drop_last": True},
        {"batch_size": 5, "shuffle": True, "uneven": "mask"},
        {"batch_size": 6, "shuffle": True, "weights": LENGTHS, "num_samples": 50},
        {"batch_size": 6, "shuffle": True, "shard_size": 24},
        {"batch_size": 5, "shuffle": True, "num_threads": 3, "output": "torch"},
    ],
    ids=str,
)
def test_chunks_make_the_batches_of_arrays(options):
    assert epochs(chunked(), **options) == epochs(bl.TensorDataset(X, Y), **options)


@pytest.mark.parametrize("steps", range(7))
def test_chunks_resume_at_every_step(steps):
    options = {"batch_size": 6, "shuffle": True, "seed": 3, "world_size": 2}
    for rank in range(2):
        whole = seen(bl.DataLoader(bl.TensorDataset(X, Y), **options, rank=rank))
        begun = bl.DataLoader(chunked(), **options, rank=rank)
        batches = iter(begun)
        head = seen(next(batches) for _ in range(steps))
        resumed = bl.DataLoader(chunked(), **options, rank=rank)
        resumed.load_state_dict(begun.state_dict())
        rest = seen(resumed)
        assert (head + rest if steps < len(whole) else head) == whole
        # The same state, for the arrays: where samples lie is no part of it.
        arrays = bl.DataLoader(bl.TensorDataset(X, Y), **options, rank=rank)
        arrays.load_state_dict(begun.state_dict())
        assert seen(arrays) == rest


def test_chunks_of_sequences_take_rules_of_sizes():
    source = Chunks(sequences, SAMPLES, CHUNK)
    dataset = dataset_of(OnDemandSamples(source, LENGTHS))
    stored = bl.SequenceDataset(x=[X[sample, :1].repeat(LENGTHS[sample]) for sample in range(SAMPLES)])
    for rule in (bl.TokenBudget(24), bl.LengthBuckets(5), bl.Packing(30)):
        found, expected = (
            [{name: numpy.asarray(array).tolist() for name, array in batch.items()} for batch in loader]
            for loader in (bl.DataLoader(each, batching=rule, shuffle=True) for each in (dataset, stored))
        )
        assert found == expected
    assert samples_of(dataset).sizes().tolist() == LENGTHS.tolist()


def test_chunks_are_selected_split_and_pickled():
    dataset, stored = chunked(), bl.TensorDataset(X, Y)
    assert len(dataset) == SAMPLES
    assert dataset[17][1] == 17
    for train, expected in zip(dataset.split(train=0.8, val=0.2), stored.split(train=0.8, val=0.2), strict=True):
        assert train.indices.tolist() == expected.indices.tolist()
        again = pickle.loads(pickle.dumps(train))
        assert epochs(again, 1, batch_size=4, shuffle=True) == epochs(expected, 1, batch_size=4, shuffle=True)


def test_chunks_are_read_in_the_order_of_the_plan():
    dataset = chunked()
    assert len(seen(bl.DataLoader(dataset, 4, num_threads=1))) == 16
    assert samples_of(dataset).source.reads == 8  # each chunk once


def test_chunks_come_to_devices():
    options = {"batch_size": 7, "shuffle": True, "output": "torch"}
    host = seen(bl.DataLoader(bl.TensorDataset(X, Y), **options))
    assert seen(bl.DataLoader(chunked(), **options, buffers="static")) == host


def test_samples_say_where_they_lie_apart_from_what_they_are():
    chunks, arrays = samples_of(chunked()), samples_of(bl.TensorDataset(X, Y))
    assert chunks.location.is_on_demand
    assert not arrays.location.is_on_demand
    assert chunks.location.arrays == ()
    assert [field.array is array for field, array in zip(arrays.location.arrays, (X, Y), strict=True)] == [True, True]
    assert chunks.location.device() is arrays.location.device() is None
    assert chunks.device_data() is None
    assert arrays.device_data().lies_together(False)
    with refused(bl.ArgumentError, "resident=True"):
        bl.DataLoader(chunked(), 4, output="torch", resident=True)


def test_a_chunk_that_cannot_be_read_names_its_sample():
    def broken(place):
        if place == 3:
            raise OSError("no such chunk")
        return rows(place)

    dataset = dataset_of(OnDemandSamples(Chunks(broken, SAMPLES, CHUNK)))
    with refused(bl.SampleError, "sample 24", "no such chunk"):
        list(bl.DataLoader(dataset, 4))
    skipping = dataset_of(OnDemandSamples(Chunks(broken, SAMPLES, CHUNK), options=ReadOptions(on_error="skip")))
    loader = bl.DataLoader(skipping, 4)
    assert sum(int((batch[-1] == 0).sum()) for batch in loader) == 8
    assert [sample for sample, _ in loader.skipped] == list(range(24, 32))


def test_the_sources_of_a_concatenation_are_one_source():
    with refused(bl.ArgumentError, "one source"):
        chunked().concat(chunked())
