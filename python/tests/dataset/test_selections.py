"""Selections and splits: a dataset of some samples is the dataset of a copy of those samples, for every kind."""

import io
import pickle
import tracemalloc

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.batching import flat
from oracles.devices import assert_as_on_the_host
from oracles.runs import few
from oracles.selections import (
    KINDS,
    LENGTHS,
    SAMPLES,
    assert_same,
    documents,
    groups,
    rows,
    sequences,
    sized,
    torch_seen,
    values,
)
from refusals import refused

every_kind = pytest.mark.parametrize("kind", KINDS)
# Samples in any order, some of them several times, of which two differ in all dimensions; and runs of neighbours.
lists = st.lists(st.integers(0, SAMPLES - 1), min_size=4, max_size=30).map(lambda found: [0, 1, *found])
runs = st.tuples(st.integers(0, 20), st.integers(25, SAMPLES)).map(lambda ends: list(range(*ends)))


def whole(kind):
    make, options = KINDS[kind]
    return make(list(range(SAMPLES))), options


@pytest.mark.law("L1")
@every_kind
@few
@given(numbers=st.one_of(lists, runs), data=st.data())
def test_a_selection_is_a_copy_of_its_samples(kind, numbers, data):
    (found, options), make = whole(kind), KINDS[kind][0]
    chosen = found.select(numbers)
    assert_same(chosen, make(numbers), options)
    assert chosen.indices.tolist() == numbers
    inner = [0, 1, *data.draw(st.lists(st.integers(0, len(numbers) - 1), min_size=2, max_size=9))]
    again = chosen.select(inner)
    assert again.indices.tolist() == [numbers[k] for k in inner]
    assert_same(again, make([numbers[k] for k in inner]), options)


@every_kind
@pytest.mark.parametrize(
    "numbers", [list(range(5, 31)), [30, 3, 3, 17, 5, 8, 21, 22, 23, 9, 11, 29, 2, 31, 13]], ids=["run", "list"]
)
def test_a_selection_pickles_and_keeps_its_fingerprint(kind, numbers):
    found, options = whole(kind)
    chosen = found.select(numbers)
    for dataset in (chosen, chosen.select(range(1, 9)), chosen.select([4, 2, 3, 8, 9, 10, 11])):
        again = pickle.loads(pickle.dumps(dataset))
        assert again.indices.tolist() == dataset.indices.tolist()
        loaders = [bl.DataLoader(each, **options) for each in (dataset, again)]
        assert loaders[0].plan().fingerprint == loaders[1].plan().fingerprint
        assert torch_seen(loaders[0]) == torch_seen(loaders[1])
        assert pickle.loads(pickle.dumps(again)).indices.tolist() == dataset.indices.tolist()
        inner = [0, 2, 1]
        assert again.select(inner).indices.tolist() == dataset.select(inner).indices.tolist()
        fingerprints = [bl.DataLoader(each.select([1, 2, 5, 6, 0]), **options).plan() for each in (dataset, again)]
        assert len({plan.fingerprint for plan in fingerprints}) == 1


@every_kind
def test_fingerprints_know_what_was_selected(kind):
    found, options = whole(kind)
    chosen = [
        found,
        found[:30],
        found[1:31],
        found.select([*range(1, 30), 0]),
        found.select([*range(1, 29), 0, 29]),
        found.select(numpy.arange(SAMPLES)[::-1]),
    ]
    known = {bl.DataLoader(each, **options).plan().fingerprint for each in chosen}
    assert len(known) == len(chosen)
    assert bl.DataLoader(found[:], **options).plan().fingerprint == bl.DataLoader(found, **options).plan().fingerprint


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind not in ("on demand", "sized", "own lengths", "shapes")]
)
@pytest.mark.parametrize("numbers", [list(range(5, 37)), [30, 3, 3, 17, 5, 8, 21, *range(22, 40)]], ids=["run", "list"])
def test_devices_make_batches_of_selections(kind, numbers):
    make, options = KINDS[kind]
    chosen = make(list(range(SAMPLES))).select(numbers)
    ways = ["resident", "streamed", "device", "device streamed"]
    assert_as_on_the_host(chosen, ways, **options)
    if numbers == list(range(5, 37)) and "tokens" not in chosen.__dict__ and not isinstance(chosen, bl.TokenDataset):
        assert_as_on_the_host(chosen, ["sharded"], **options)


@pytest.mark.parametrize("sampled_by", ["windows", "series"])
@pytest.mark.parametrize("way", ["resident", "streamed", "device"])
def test_windows(sampled_by, way):
    series = [torch.arange(30.0), torch.arange(100.0, 112.0), torch.arange(200.0, 203.0)]
    dataset = bl.WindowDataset(series, 4, 2, mask=True, sampled_by=sampled_by)
    loose = bl.DataLoader(dataset, 1)
    stacked = [[field[0].tolist() for field in batch] for batch in loose]
    for numbers in ([5, 2, 2, 9, 30, 31, 0, len(dataset) - 1], list(range(3, 20)), [*range(3, 20), 2]):
        chosen = dataset.select(numbers)
        expected = [stacked[k] for k in numbers]
        assert [values(chosen[k]) for k in range(len(chosen))] == expected
        assert [chosen.place(k) for k in range(len(chosen))] == [dataset.place(k) for k in numbers]
        for size in (1, 3, 8):
            for shuffle in (False, "runs"):
                batches = list(bl.DataLoader(chosen, size, shuffle=shuffle, seed=1))
                rows = [values(row) for batch in batches for row in zip(*batch, strict=True)]
                assert rows == expected if not shuffle else sorted(rows) == sorted(expected)
        assert_as_on_the_host(chosen, [way], batch_size=4, shuffle=True, seed=2)
        assert_as_on_the_host(chosen, [way], batch_size=4)
        again = pickle.loads(pickle.dumps(chosen))
        assert [values(again[k]) for k in range(len(again))] == expected
        assert chosen.stats().samples == len(numbers)
    # Neighbours are views on the series.
    batch = next(iter(bl.DataLoader(dataset[3:19], 8, output="torch")))
    assert (
        batch[0].untyped_storage().data_ptr() == next(iter(bl.DataLoader(dataset, 8)))[0].untyped_storage().data_ptr()
    )


def test_windows_of_a_part_of_the_time_are_selected_and_a_selection_is_not_split_in_time():
    dataset = bl.WindowDataset(numpy.arange(100), 5, 2)
    _, test = dataset.split(train=0.8, test=0.2)
    assert values(test[3:9][1]) == values(test[4])
    again = pickle.loads(pickle.dumps(test[3:9]))
    assert values(again[1]) == values(test[4])
    with refused(bl.ArgumentError, "selected", "split first"):
        dataset[3:9].split(train=0.5, test=0.5)


# Splits


@pytest.mark.law("L1")
@every_kind
@few
@given(shares=st.lists(st.floats(0.15, 0.4), min_size=1, max_size=2), seed=st.integers(0, 5))
def test_parts_are_disjoint_and_are_copies_of_their_samples(kind, shares, seed):
    (found, options), make = whole(kind), KINDS[kind][0]
    split = found.split(**{f"part{k}": share for k, share in enumerate(shares)}, rest=None, seed=seed)
    numbers = [part.indices.tolist() for part in split]
    assert sorted(flat(numbers)) == list(range(SAMPLES))
    for share, held in zip(shares, numbers, strict=False):
        assert abs(len(held) - share * SAMPLES) <= 1
    for part, held in zip(split, numbers, strict=True):
        assert held == sorted(held)
        assert_same(part, make(held), options)
    again = found.split(**{f"part{k}": share for k, share in enumerate(shares)}, rest=None, seed=seed)
    assert [part.indices.tolist() for part in again] == numbers
    inner = split[-1].split(a=3, b=None, seed=seed)
    assert sorted([*inner[0].indices, *inner[1].indices]) == numbers[-1]


def test_splits_without_a_seed_are_neighbours_and_counts_are_counts():
    dataset = rows(list(range(SAMPLES)))
    train, val = dataset.split(train=30, val=None, seed=None)
    assert (train.indices.tolist(), val.indices.tolist()) == (list(range(30)), list(range(30, 40)))
    parts = dataset.split(train=0.5, val=0.25)
    assert [len(part) for part in parts] == [20, 10]
    assert set(parts[0].indices).isdisjoint(parts[1].indices)
    assert dataset.split(a=7, b=9)[1].indices.tolist() != dataset.split(a=7, b=9, seed=1)[1].indices.tolist()


@few
@given(labels=st.lists(st.integers(0, 3), min_size=20, max_size=60), share=st.floats(0.2, 0.8))
def test_strata_have_their_shares_in_every_part(labels, share):
    y = numpy.array(labels)
    dataset = bl.TensorDataset(x=numpy.arange(len(y)), y=y)
    by_array, by_name = dataset.split(a=share, b=None, stratify=y), dataset.split(a=share, b=None, stratify="y")
    assert [part.indices.tolist() for part in by_array] == [part.indices.tolist() for part in by_name]
    for label in set(labels):
        held = (y[by_array[0].indices] == label).sum()
        assert abs(held - len(by_array[0]) / len(y) * (y == label).sum()) <= 2
    # A part is split by the same field.
    again = by_name[0].split(a=0.5, b=None, stratify="y")
    expected = by_name[0].split(a=0.5, b=None, stratify=y[by_name[0].indices])
    assert [part.indices.tolist() for part in again] == [part.indices.tolist() for part in expected]


def test_strata_may_be_texts():
    dataset = rows(list(range(SAMPLES)))
    names = numpy.array(["cat", "dog"])[numpy.arange(SAMPLES) % 2]
    train, _ = dataset.split(train=0.5, val=0.5, stratify=names)
    assert sorted(names[train.indices].tolist()) == ["cat"] * 10 + ["dog"] * 10


# What is selected


def test_words_of_selections():
    dataset = bl.TensorDataset(numpy.arange(SAMPLES))
    assert dataset[3:7].indices.tolist() == [3, 4, 5, 6]
    assert dataset[::-7].indices.tolist() == list(range(SAMPLES))[::-7]
    assert dataset[-3:].indices.tolist() == [37, 38, 39]
    assert dataset.take(4).indices.tolist() == [0, 1, 2, 3]
    assert dataset.take(400).indices.tolist() == list(range(SAMPLES))
    assert dataset.select([-1, 0, True + 1]).indices.tolist() == [39, 0, 2]
    assert dataset.select(torch.tensor([5, 6])).indices.tolist() == [5, 6]
    mask = numpy.arange(SAMPLES) % 3 == 0
    for given_mask in (mask, torch.from_numpy(mask), mask.tolist()):
        assert dataset.select(given_mask).indices.tolist() == list(range(0, SAMPLES, 3))
    assert dataset.indices.tolist() == list(range(SAMPLES))
    assert dataset[3:7][-1][0] == 6
    assert type(dataset[2:]) is bl.TensorDataset
    assert dataset.select(numpy.array([3, 4], numpy.uint8)).indices.tolist() == [3, 4]


def test_sizes_and_counts_are_those_of_the_selection():
    numbers = [8, 3, 3, 20]
    assert sequences(range(SAMPLES)).select(numbers).sizes.tolist() == [LENGTHS[k] for k in numbers]
    assert sized(range(SAMPLES)).select(numbers).sizes.tolist() == [LENGTHS[k] for k in numbers]
    chosen = groups(range(SAMPLES)).select(numbers)
    assert chosen.sizes.tolist() == [1 + LENGTHS[k] for k in numbers]
    assert (chosen.stats().groups, chosen.stats().rows) == (4, sum(1 + LENGTHS[k] for k in numbers))
    stats = documents(range(SAMPLES), separator=1).select(numbers).stats()
    assert (stats.documents, stats.tokens, stats.separators) == (4, sum(LENGTHS[k] for k in numbers), 3)


def test_labels_are_counted_of_the_selection():
    chosen = sequences(range(SAMPLES)).select([8, 3, 3, 20])
    counts = chosen.count_labels("ids", next_tokens=True)
    loader = bl.DataLoader(chosen, 2, labels="ids", label_counts=counts)
    expected = [int((batch["labels"] != -100).sum()) for batch in bl.DataLoader(chosen, 2, labels="ids")]
    assert [loader.plan().step(k).labels for k in range(2)] == expected


def test_a_selection_copies_no_data(tmp_path):
    numpy.save(tmp_path / "x.npy", numpy.arange(4_000_000, dtype=numpy.int64).reshape(-1, 4))
    x = numpy.load(tmp_path / "x.npy", mmap_mode="r")
    dataset = bl.TensorDataset(x)
    tracemalloc.start()
    chosen = dataset.select(numpy.arange(0, 1_000_000, 10_000))
    train, val = dataset[:900_000], dataset[900_000:]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
    for part in (chosen, train, val):
        assert part.fields[0] is x
        assert isinstance(part.fields[0], numpy.memmap)
    assert next(iter(bl.DataLoader(val, 2, output="numpy")))[0][0].tolist() == x[900_000].tolist()


def test_pickles_of_neighbours_hold_their_rows_alone():
    for like in (torch.from_numpy, numpy.array):
        for dataset in (
            bl.TensorDataset(like(numpy.arange(200_000))),
            bl.SequenceDataset(
                ids=(like(numpy.arange(200_000)), numpy.arange(0, 200_001, 100)), label=like(numpy.arange(2_000))
            ),
        ):
            tenth = dataset[len(dataset) // 2 : len(dataset) // 2 + len(dataset) // 10]
            assert len(pickle.dumps(tenth)) < len(pickle.dumps(dataset)) / 8
    dataset = documents(range(SAMPLES))
    assert len(pickle.dumps(dataset[3:5])) < len(pickle.dumps(dataset))
    # Parts that are drawn share the data, which is written once.
    dataset = bl.TensorDataset(numpy.arange(200_000))
    both = io.BytesIO()
    pickle.dump(dataset.split(train=0.8, val=0.2), both)
    assert both.tell() < 1.8 * len(pickle.dumps(dataset))


def test_a_torch_loader_with_workers_reads_a_selection():
    chosen = rows(list(range(SAMPLES))).select([7, 3, 30, 30])
    found = torch.utils.data.DataLoader(chosen, 4, num_workers=1, multiprocessing_context="spawn")
    assert next(iter(found))[1].tolist() == [7, 3, 30, 30]


def test_randomness_of_samples_made_on_demand_is_that_of_their_place_in_the_data():
    dataset = bl.MapDataset(range(SAMPLES), drawn)
    expected = dict(enumerate(numpy.concatenate(list(bl.DataLoader(dataset, 8, seed=5, output="numpy")))))
    chosen = dataset.select([9, 30, 2])
    found = numpy.concatenate(list(bl.DataLoader(chosen, 2, seed=5, output="numpy")))
    assert found.tolist() == [expected[9], expected[30], expected[2]]


def drawn(item, rng):
    return rng.integers(2**40)


# Refusals


@pytest.mark.parametrize(
    ("which", "kind", "values_named"),
    [
        ([40], bl.RangeError, ("sample 40", "40")),
        ([0, -41], bl.RangeError, ("-41",)),
        ([], bl.DataError, ("40",)),
        (slice(5, 5), bl.DataError, ("40",)),
        (numpy.zeros(SAMPLES, bool), bl.DataError, ("40",)),
        (numpy.ones(3, bool), bl.DataError, ("3", "40")),
        ([1.5], bl.ArgumentError, ("float64", "integers")),
        ("abc", bl.ArgumentError, ("integers",)),
        ([[1, 2]], bl.ArgumentError, ("(1, 2)",)),
        (None, bl.ArgumentError, ("integers",)),
        (3, bl.ArgumentError, ("integers",)),
        ([2**70], bl.ArgumentError, ("integers",)),
    ],
)
def test_selections_that_make_no_sense(which, kind, values_named):
    dataset = bl.TensorDataset(numpy.arange(SAMPLES))
    with refused(kind, *values_named):
        dataset.select(which)


@pytest.mark.parametrize(
    ("unnamed", "values"),
    [
        (([0.5, 0.5],), ("[0.5, 0.5]", "split(train=0.5, val=0.5)")),
        (([30, 5, 5],), ("split(train=30, val=5, test=5)",)),
        ((0.8, 0.2), ("split(0.8, 0.2)", "split(train=0.8, val=0.2)")),
        ((0.8,), ("split(train=0.8)",)),
        (((10, 10, 10, 10),), ("split(part0=10, part1=10, part2=10, part3=10)",)),
    ],
    ids=str,
)
def test_parts_without_names_are_told_how_to_name_them(unnamed, values):
    series = bl.WindowDataset(numpy.arange(80.0), input_len=3, horizon=1)
    for dataset in (bl.TensorDataset(numpy.arange(SAMPLES)), documents(range(SAMPLES)), series):
        with refused(bl.ArgumentError, *values):
            dataset.split(*unnamed)


@pytest.mark.parametrize(
    ("options", "kind", "values_named"),
    [
        ({}, bl.ArgumentError, ("no part",)),
        ({"a": 0.5, "b": 3}, bl.ArgumentError, ("a by share", "b by number")),
        ({"a": None, "b": 0.5}, bl.ArgumentError, ("part a", "None")),
        ({"a": 0.7, "b": 0.4}, bl.ArgumentError, ("part b", "1.1")),
        ({"a": 30, "b": 11}, bl.DataError, ("part b", "41", "40")),
        ({"a": 0.001, "b": 0.5}, bl.DataError, ("part a",)),
        ({"a": 40, "b": None}, bl.DataError, ("part b",)),
        ({"a": -3}, bl.ArgumentError, ("part a", "-3")),
        ({"a": 0}, bl.ArgumentError, ("part a", "0")),
        ({"a": "half"}, bl.ArgumentError, ("part a", "'half'")),
        ({"a": 0.5, "seed": -1}, bl.ArgumentError, ("seed", "-1")),
        ({"a": 0.5, "seed": "x"}, bl.ArgumentError, ("seed", "'x'")),
        ({"a": 0.5, "stratify": [1, 2]}, bl.DataError, ("2", "40")),
        ({"a": 0.5, "stratify": numpy.zeros((40, 2))}, bl.DataError, ("(40, 2)",)),
        ({"a": 0.5, "stratify": "y"}, bl.ArgumentError, ("'y'", "0")),
        ({"a": 0.5, "stratify": [0] * 40, "seed": None}, bl.ArgumentError, ("seed",)),
    ],
)
def test_splits_that_make_no_sense(options, kind, values_named):
    dataset = bl.TensorDataset(numpy.arange(SAMPLES))
    with refused((kind, bl.ArgumentError, bl.DataError), *values_named):
        dataset.split(**options)


def test_documents_are_selected():
    stream = documents(range(SAMPLES))
    assert len(stream[5:9].indices) == 4
    with refused(bl.RangeError, "document 40", "40"):
        stream.select([40])
    with refused(bl.ArgumentError, "one document", "offsets"):
        bl.TokenDataset(numpy.arange(100), 4).select([0, 0])
    continuous = documents(range(SAMPLES), mode="continuous")
    train, val = continuous.split(train=0.8, val=0.2, seed=None)
    assert train.indices.tolist() == list(range(32))
    batches = list(bl.DataLoader(val, 2))
    assert batches[1][0][:, 0].tolist() == [batches[0][1][row][-1] for row in range(2)]
    with refused(bl.ArgumentError, "neighbours", "seed"):
        continuous.split(train=0.8, val=0.2)


def test_parts_of_torch_s_are_parts_of_selections():
    """Selections stay selections, below torch's subsets and concatenations, and nothing is copied."""
    whole = bl.TensorDataset(numpy.arange(20))
    train, rest = whole.split(train=0.5, val=None, seed=0)

    def held(dataset):
        return [int(value) for (batch,) in bl.DataLoader(dataset, 4) for value in batch]

    data = torch.utils.data
    assert held(data.ConcatDataset([train])) == held(train)
    assert held(data.ConcatDataset([whole, whole[:3]])) == [*range(20), 0, 1, 2]
    assert held(data.Subset(whole[5:8], [0, 2])) == [5, 7]
    assert held(data.Subset(train, [0, 1])) == held(train)[:2]
    mixed = data.ConcatDataset([data.TensorDataset(torch.arange(4)), bl.TensorDataset(torch.arange(5))[3:]])
    assert held(mixed) == [0, 1, 2, 3, 3, 4]
    parts = data.random_split(rest, [4, 6])
    assert sorted(held(parts[0]) + held(parts[1])) == sorted(held(rest))
