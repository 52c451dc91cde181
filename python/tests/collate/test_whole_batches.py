"""Batches that a function makes of a list of samples, as wholes: the laws, every kind, and failures."""

import pickle

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.samples import ragged_batch, sequence
from refusals import refused


def loaded(samples=60, workers="threads", *, threads=2, collate=ragged_batch, **options):
    dataset = {name: options.pop(name) for name in ("sizes", "on_error") if name in options}
    return bl.DataLoader(
        bl.MapDataset(range(samples), sequence, workers=workers, **dataset),
        num_threads=threads,
        collate=collate,
        **options,
    )


def plain(batch):
    return {name: part.tolist() for name, part in batch.items()}


def expected(indices):
    return plain(ragged_batch([sequence(int(number)) for number in indices]))


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 3), st.booleans(), st.integers(0, 3))
def test_batches_are_what_the_function_makes(samples, batch_size, threads, shuffle, seed):
    loader = loaded(samples, threads=threads, batch_size=batch_size, shuffle=shuffle, seed=seed)
    for epoch in range(2):
        assert [plain(batch) for batch in loader] == [expected(indices) for indices in loader.plan(epoch)]


@pytest.mark.parametrize("threads", [1, 2])
def test_processes_make_the_same(threads):
    ours = loaded(workers="processes", threads=threads, batch_size=7, shuffle=True)
    assert [plain(batch) for batch in ours] == [expected(indices) for indices in ours.plan(0)]


def test_rules_decide_which_samples_it_gets():
    sizes = [1 + number % 7 for number in range(30)]
    ours = bl.DataLoader(
        bl.MapDataset([numpy.ones(size) for size in sizes], sizes=sizes),
        batching=bl.Packing(16),
        collate=numpy.concatenate,
    )
    assert [len(batch) for batch in ours] == [sum(sizes[sample] for sample in batch) for batch in ours.plan(0)]
    assert all(len(batch) <= 16 for batch in ours)


def test_resume_ranks_and_devices():
    ours = loaded(batch_size=4, shuffle=True)
    batches = iter(ours)
    next(batches)
    state, rest = ours.state_dict(), [plain(batch) for batch in batches]
    again = pickle.loads(pickle.dumps(loaded(batch_size=4, shuffle=True)))
    again.load_state_dict(state)
    assert [plain(batch) for batch in again] == rest
    ranks = [loaded(batch_size=4, shuffle=True, rank=rank, world_size=2, uneven="mask") for rank in range(2)]
    seen = [number for loader in ranks for batch in loader for number in batch["index"].tolist() if number >= 0]
    assert sorted(seen) == list(range(60))
    streamed = loaded(batch_size=4, resident=False, output="torch")
    assert isinstance(next(iter(streamed))["x"], torch.Tensor)


@pytest.mark.parametrize(
    "dataset",
    [
        bl.TensorDataset(numpy.arange(10.0), torch.arange(10)),
        bl.SequenceDataset(x=[numpy.arange(length) for length in (3, 1, 2)]),
        bl.WindowDataset(numpy.arange(20.0).reshape(10, 2), 3, 1),
    ],
    ids=["rows", "sequences", "windows"],
)
def test_data_in_memory_comes_sample_by_sample(dataset):
    given = []

    def keep(samples):
        given.extend(samples)
        return numpy.arange(len(samples))

    assert next(iter(list(bl.DataLoader(dataset, 2, collate=keep, num_threads=1)))).tolist() == [0, 1]
    for found, number in zip(given, range(len(dataset)), strict=True):
        names = found if isinstance(found, dict) else range(len(found))
        for name in names:
            assert found[name].tolist() == dataset[number][name].tolist()
            assert type(found[name]) is type(dataset[number][name])


def test_structures_and_shapes_of_any_kind():
    def nested(samples):
        return {"a": (numpy.zeros((len(samples), 0)), [torch.ones(2, 3), 5]), "b": numpy.float32(samples[0])}

    for batch in bl.DataLoader(bl.MapDataset(range(5)), 2, collate=nested, uneven="short"):
        empty, (ones, five) = batch["a"]
        assert empty.shape[1] == 0
        assert ones.shape == (2, 3)
        assert five == 5
        assert batch["b"].dtype == numpy.float32


def broken(samples):
    if 13 in samples:
        raise KeyError("thirteen")
    return numpy.array(samples)


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_batch_that_cannot_be_made_is_an_error_in_its_place(workers):
    ours, taken = bl.DataLoader(bl.MapDataset(range(40), workers=workers), 4, collate=broken, num_threads=2), []
    with refused(bl.SampleError, "12, 13, 14, ...", "KeyError", "thirteen"):
        taken.extend(ours)
    assert len(taken) == 3


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda samples: None, ["0, 1", "None"]),
    ],
)
def test_what_is_no_batch(function, words):
    with pytest.raises((bl.SampleError, bl.DataError)) as caught:
        list(bl.DataLoader(bl.MapDataset(range(4)), 2, collate=function))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dtype": "float32"}, ["dtype", "whole batches"]),
        ({"fields": {"x": bl.Field(scale=2)}}, ["fields", "whole batches"]),
        ({"pad_to": 4, "sizes": [1] * 60}, ["pad_to", "whole batches"]),
        ({"pad_value": -1}, ["pad_value is -1", "collate", "whole batches"]),
        ({"pad_value": numpy.arange(2)}, ["pad_value", "collate", "whole batches"]),
        ({"pad_side": "left"}, ["pad_side is 'left'", "collate", "whole batches"]),
        ({"on_error": "skip"}, ["on_error", "skip"]),
        ({"batching": bl.Packing(8, oversize="split"), "sizes": [1] * 60}, ["split"]),
        ({"collate": [1]}, ["collate", "[1]", "function"]),
        ({"collate": bl.Pad}, ["collate", "function"]),
    ],
)
def test_options_that_leave_no_room(options, words):
    with refused(bl.ArgumentError, *words):
        loaded(**options)


def test_data_whose_batches_are_more_than_samples():
    with refused(bl.ArgumentError, "GroupDataset", "MapDataset"):
        bl.DataLoader(bl.GroupDataset([0, 1], x=numpy.zeros(2)), collate=len)
