"""Datasets of one kind put together: the dataset of the samples of all, for every kind of data."""

import pickle

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.devices import seen
from oracles.runs import assert_resumes, few
from oracles.selections import KINDS, SAMPLES, SHUFFLED, assert_same, documents, rows, sequences, torch_seen, values
from refusals import refused

JOINED = [kind for kind in KINDS if kind not in ("pieces", "shuffled documents")]
every_kind = pytest.mark.parametrize("kind", JOINED)
# The numbers of the samples of some datasets. The first two samples of each differ in all dimensions.
parts = st.lists(
    st.lists(st.integers(0, SAMPLES - 1), max_size=12).map(lambda found: [0, 1, *found]), min_size=2, max_size=4
)


@pytest.mark.law("L1")
@every_kind
@few
@given(parts=parts, data=st.data())
def test_datasets_put_together_are_one_of_all_their_samples(kind, parts, data):
    make, options = KINDS[kind]
    numbers = [number for part in parts for number in part]
    first, *others = map(make, parts)
    whole = first.concat(*others)
    assert_same(whole, make(numbers), options)
    chosen = [0, 1, *data.draw(st.lists(st.integers(0, len(numbers) - 1), max_size=9))]
    expected = make([numbers[k] for k in chosen])
    assert_same(whole.select(chosen), expected, options)
    # Selections of datasets, and datasets that were put together before, are put together as well.
    mixed = whole.select(chosen).concat(make(parts[0]).concat(make(parts[1])), whole[: len(parts[0])])
    assert_same(mixed, make([*(numbers[k] for k in chosen), *parts[0], *parts[1], *parts[0]]), options)


@every_kind
def test_batches_resume_and_are_pickled(kind):
    make, options = KINDS[kind]
    whole = make(range(15)).concat(make(range(20, 33)), make(range(15, 20)))
    again = pickle.loads(pickle.dumps(whole))
    loader, other = (bl.DataLoader(each, **options) for each in (whole, again))
    assert loader.plan().fingerprint == other.plan().fingerprint
    expected = [torch_seen(loader) for _ in range(2)]
    assert [torch_seen(other) for _ in range(2)] == expected
    assert_resumes(
        bl.DataLoader(whole, **options),
        lambda: bl.DataLoader(again, **options),
        expected,
        lambda found: torch_seen(found),
    )
    assert bl.DataLoader(whole[1:], **options).plan().fingerprint != bl.DataLoader(whole, **options).plan().fingerprint
    parts = bl.DataLoader(make(range(14)).concat(make([14, *range(20, 33)]), make(range(15, 20))), **options)
    # Of samples made on demand, nothing but their number and their sizes is known.
    assert (parts.plan().fingerprint != loader.plan().fingerprint) == (type(whole) is bl.ConcatDataset)


def test_datasets_are_put_together_whatever_was_imported(script):
    """Modules are imported by the names that a program uses, and a dataset is one name."""
    script(
        """
        import batchloom as bl, numpy

        rows = bl.TensorDataset(numpy.arange(5))
        assert len(rows.concat(rows)) == 10
        """
    )


def test_parts_of_a_split_are_disjoint_and_strata_are_those_of_all():
    whole = rows(range(20)).concat(rows(range(20, 40)))
    train, val = whole.split(train=0.8, val=0.2, stratify=whole.indices % 2)
    assert sorted([*train.indices, *val.indices]) == list(range(SAMPLES))
    assert [whole[k][1] for k in val.indices] == [sample[1] for sample in val]
    y = numpy.arange(40) % 4
    named = [bl.TensorDataset(x=numpy.arange(20), y=y[:20]), bl.TensorDataset(x=numpy.arange(20), y=y[20:])]
    by_field = named[0].concat(named[1]).split(a=0.5, b=None, stratify="y")
    assert numpy.bincount(y[by_field[0].indices]).tolist() == [5] * 4
    again = by_field[0].split(a=0.5, b=None, stratify="y")
    assert len(set(again[0].indices) & set(again[1].indices)) == 0


@pytest.mark.law("L8")
@pytest.mark.parametrize("documented", [True, False])
def test_pieces_of_streams_never_hold_tokens_of_two(documented):
    options = {"separator": 7, "jitter": True} if documented else {}
    parts = [documents(range(20), **options), documents(range(20, 40), **options)]
    whole = parts[0].concat(parts[1])
    shuffle = "documents" if documented else False
    loaders = [bl.DataLoader(each, 1, shuffle=shuffle, seed=4) for each in (*parts, whole)]
    for _ in range(2):
        first, second, both = (torch_seen(loader) for loader in loaders)
        assert both == first + second
    assert values(whole[len(parts[0])]) == values(parts[1][0])


def test_windows_are_formed_and_tell_where_they_come_from():
    series = torch.arange(60.0)
    parts = bl.WindowDataset(series, 5, 2).split(train=0.5, val=0.5)
    whole = parts[1].concat(parts[0])
    batches = list(bl.DataLoader(whole, 8))
    found = [values(row) for batch in batches for row in zip(*batch, strict=True)]
    assert found == [values(part[k]) for part in (parts[1], parts[0]) for k in range(len(part))]
    assert whole.origin(len(parts[1]) + 2) == bl.Origin(1, 2)
    assert whole[3:].origin(0) == (0, 3)
    source, sample = whole.origin(-1)
    assert whole.datasets[source].place(sample) == parts[0].place(len(parts[0]) - 1)


def test_batches_come_to_devices_from_the_cpu():
    whole = rows(range(20)).concat(rows(range(20, 40)))
    plain = rows(range(40))
    for options in ({"device": "cpu"}, {"output": "torch", "resident": False}):
        assert seen(bl.DataLoader(whole, 7, **SHUFFLED, **options)) == seen(
            bl.DataLoader(plain, 7, **SHUFFLED, **options)
        )
    assert bl.DataLoader(whole, 7, device="meta").placement.mode == "streamed"
    with refused(bl.ArgumentError, "2 datasets", "resident=False"):
        bl.DataLoader(whole, 7, device="meta", resident=True)


def test_labels_are_those_of_each_sample():
    whole = sequences(range(20)).concat(sequences(range(20, 40)))
    counts = whole.count_labels("ids", next_tokens=True)
    loader = bl.DataLoader(whole, 4, labels="ids")
    found = [int((batch["labels"] != -100).sum()) for batch in loader]
    counted = bl.DataLoader(whole, 4, labels="ids", label_counts=counts)
    assert (
        [loader.plan().step(k).labels for k in range(10)] == [counted.plan().step(k).labels for k in range(10)] == found
    )


def test_torch_puts_datasets_of_ours_together_and_takes_parts_of_them():
    first, second = rows(range(20)), rows(range(20, 40))
    both = torch.utils.data.ConcatDataset([first, second])
    part = torch.utils.data.Subset(both, [3, 30, 21])
    (batch,) = bl.DataLoader(part, 3)
    assert batch[1].tolist() == [3, 30, 21]
    train, val = torch.utils.data.random_split(rows(range(40)), [30, 10])
    found = [bl.DataLoader(each, 64) for each in (train, val)]
    assert [next(iter(loader))[1].tolist() for loader in found] == [list(train.indices), list(val.indices)]
    with refused(bl.ArgumentError, "Subset"):
        bl.DataLoader(torch.utils.data.Subset(documents(range(40)), [0]), 1)


def drawn(item, rng):
    return {"x": item + rng.random()}


def plain(item):
    return {"x": float(item)}


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_functions_of_samples_stay_with_their_items(workers):
    whole = bl.MapDataset(range(5), drawn, workers=workers).concat(
        bl.MapDataset(range(10, 20), plain, workers=workers)[4:]
    )
    found = numpy.concatenate([batch["x"] for batch in bl.DataLoader(whole, 4, output="numpy")])
    assert found.astype(int).tolist() == [*range(5), *range(14, 20)]
    assert (found[5:] == numpy.arange(14, 20)).all()
    assert len(set(found[:5] - numpy.arange(5))) == 5


@pytest.mark.parametrize(
    ("datasets", "named"),
    [
        ((rows([1]), sequences([0, 1])), ("TensorDataset", "SequenceDataset", "dataset 1")),
        ((rows([1]), [1, 2]), ("dataset 1", "list")),
        ((bl.TensorDataset(x=numpy.arange(2)), bl.TensorDataset(y=numpy.arange(2))), ("x", "y", "dataset 1")),
        ((bl.TensorDataset(x=numpy.arange(2)), bl.TensorDataset(x=numpy.ones(2))), ("field x", "int64", "float64")),
        ((bl.TensorDataset(x=numpy.arange(2)), bl.TensorDataset(x=numpy.ones((2, 3), int))), ("field x", "[3]")),
        ((bl.TensorDataset(x=numpy.arange(2)), bl.TensorDataset(x=torch.arange(2))), ("field x", "numpy", "torch")),
        ((bl.MapDataset([1]), bl.MapDataset([2], workers="processes")), ("workers", "'threads'", "'processes'")),
        ((bl.MapDataset([1]), bl.MapDataset([2], sizes=[3])), ("dataset 1", "sizes")),
        ((bl.MapDataset([1]), rows([1])), ("MapDataset", "TensorDataset")),
    ],
)
def test_datasets_that_do_not_fit_together(datasets, named):
    first, *others = datasets
    with refused(bl.ArgumentError, *named):
        first.concat(*others)


def test_no_dataset():
    with refused(bl.ArgumentError, "no datasets"):
        bl.ConcatDataset([])
