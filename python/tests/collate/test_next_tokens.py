"""Labels that are next tokens are the same in arrays, in samples on demand, in chunks and in files."""

import itertools

import batchloom as bl
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

RULES = {
    "packing": bl.Packing(16, oversize="split"),
    "truncated": bl.Packing(5, oversize="truncate"),
    "rows": bl.Packing(8, rows=2, oversize="split"),
    "rests": bl.Packing(8, rows=2, rests="continue"),
    "budget": bl.TokenBudget(24, pool="all"),
    "buckets": bl.LengthBuckets(3, multiple_of=4),
    "fixed": bl.FixedSize(4),
}


def collect(dataset, **options):
    return [dict(batch) for batch in bl.DataLoader(dataset, labels="ids", output="torch", num_threads=2, **options)]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert list(ours) == list(theirs)
        for name, value in ours.items():
            if torch.is_tensor(value):
                assert value.dtype == theirs[name].dtype
                assert torch.equal(value, theirs[name]), name
            else:
                assert value == theirs[name]


def sequences(lists):
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
    return bl.SequenceDataset(ids=(torch.tensor(list(itertools.chain(*lists)), dtype=torch.int32), offsets))


def items(lists, **options):
    return bl.MapDataset([{"ids": torch.tensor(each, dtype=torch.int32)} for each in lists], key=_length, **options)


def _length(item):
    return len(item["ids"])


LISTS = st.lists(st.lists(st.integers(0, 99), max_size=12), min_size=1, max_size=25)


@pytest.mark.law("L2")
@given(LISTS, st.sampled_from(sorted(RULES)), st.booleans(), st.booleans(), st.booleans())
def test_samples_on_demand_have_the_labels_of_arrays(lists, rule, shuffle, left, has_loss):
    options = {"batching": RULES[rule], "shuffle": shuffle, "seed": 3}
    if left and rule in ("budget", "buckets", "fixed"):
        options["pad_side"] = "left"
    if has_loss:
        options["loss"] = "token-mean"
    assert_same(collect(items(lists), **options), collect(sequences(lists), **options))


@pytest.mark.law("L2")
@given(LISTS, st.sampled_from(sorted(RULES)), st.integers(1, 9))
def test_chunks_have_the_labels_of_arrays(lists, rule, in_chunk):
    starts = range(0, len(lists), in_chunk)
    sizes = [min(in_chunk, len(lists) - start) for start in starts]

    def read(chunk):
        return {"ids": [np.array(each, np.int32) for each in lists[starts[chunk] :][: sizes[chunk]]]}

    dataset = bl.ChunkDataset(sizes, read, lengths=[len(each) for each in lists])
    options = {"batching": RULES[rule]}
    assert_same(collect(dataset, **options), collect(sequences(lists), **options))


@pytest.mark.parametrize("rule", sorted(RULES))
def test_files_have_the_labels_of_arrays(rule, tmp_path):
    random = np.random.default_rng(0)
    lists = [random.integers(0, 99, random.integers(0, 12)).tolist() for _ in range(200)]
    table = pyarrow.table({"ids": pyarrow.array(lists, pyarrow.list_(pyarrow.int32()))})
    pyarrow.parquet.write_table(table, tmp_path / "lists.parquet", row_group_size=30)
    options = {"batching": RULES[rule], "loss": "sequence-mean"}
    assert_same(collect(bl.open(tmp_path / "lists.parquet"), **options), collect(sequences(lists), **options))
    shuffled = {"batching": RULES[rule], "shuffle": True, "output": "torch"}
    loader = bl.DataLoader(bl.open(tmp_path / "lists.parquet"), labels="ids", **shuffled)
    plan = loader.plan()
    for step, batch in enumerate(loader):
        assert int((batch["labels"] >= 0).sum()) == plan.step(step).labels
        if step == 1:
            state, rest = loader.state_dict(), []
        elif step > 1:
            rest.append(batch["labels"].clone())
    again = bl.DataLoader(bl.open(tmp_path / "lists.parquet"), labels="ids", **shuffled)
    again.load_state_dict(state)
    assert all(torch.equal(batch["labels"], labels) for batch, labels in zip(again, rest, strict=True))


def test_processes_and_samples_that_fail():
    lists = [list(range(start, start + 4)) for start in range(0, 40, 4)]
    options = {"batching": bl.Packing(12), "shuffle": True}
    processes = items(lists, workers="processes")
    assert_same(collect(processes, **options), collect(sequences(lists), **options))

    def fail(number):
        if number == 3:
            raise ValueError("no such sample")
        return {"ids": np.array(lists[number], np.int32)}

    dataset = bl.MapDataset(range(10), fail, sizes=[4] * 10, on_error="skip")
    for batch in collect(dataset, batching=bl.TokenBudget(16)):
        for place, sample in enumerate(batch["index"].tolist()):
            expected = [-100] * 4 if sample == 3 else [*lists[sample][1:], -100]
            assert batch["labels"][place].tolist() == expected


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        ({"x": np.arange(3)}, "labels are the next tokens of a field; the dataset has no field ids"),
        ({"ids": np.arange(3.0)}, "field ids holds float64; expected integers"),
        ({"ids": np.zeros((3, 2), int)}, "field ids holds several numbers for each token"),
        ({"ids": 3, "x": np.arange(3)}, "field ids does not vary in length; expected a sequence"),
    ],
)
def test_bad_input(sample, text):
    loader = bl.DataLoader(bl.MapDataset([sample] * 4, sizes=[3] * 4), 2, labels="ids")
    with pytest.raises(bl.ArgumentError, match=text):
        next(iter(loader))


def test_samples_without_sizes_have_no_next_tokens():
    with pytest.raises(bl.ArgumentError, match="SequenceDataset, or samples with sizes; this loader batches a Map"):
        bl.DataLoader(bl.MapDataset([{"ids": np.arange(3)}]), 1, labels="ids")
    slot = {"ids": bl.Field(slot=bl.Pad())}
    with pytest.raises(bl.ArgumentError, match="slot"):
        bl.DataLoader(bl.MapDataset([{"ids": np.arange(3)}], sizes=[3]), 1, labels="ids", fields=slot)


def chunks_of(lists, in_chunk=5):
    starts = range(0, len(lists), in_chunk)
    sizes = [min(in_chunk, len(lists) - start) for start in starts]

    def read(chunk):
        return {"ids": [np.array(each, np.int32) for each in lists[starts[chunk] :][: sizes[chunk]]]}

    return bl.ChunkDataset(sizes, read, lengths=[len(each) for each in lists], chunks_open=3)


def check_labels(batch, samples, banned):
    """Check the labels of a batch of whole samples, packed or padded, by definition. A place that is banned is -1."""
    ends = batch["cu_seqlens"].tolist() if "cu_seqlens" in batch else None
    for place, number in enumerate(batch["index"].tolist()):
        labels = batch["labels"][ends[place] : ends[place + 1]] if ends else batch["labels"][place]
        assert number not in banned
        if number < 0 or ("weight" in batch and not batch["weight"][place]):
            assert (labels == -100).all()
        else:
            expected = [*samples[number][1:], -100][: len(samples[number])]
            assert labels.tolist() == expected + [-100] * (len(labels) - len(expected))


@pytest.mark.law("L2", "L3", "L5")
@given(
    st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=6, max_size=30),
    st.sampled_from([bl.Packing(12), bl.TokenBudget(24), bl.FixedSize(3), bl.LengthBuckets(2)]),
    st.sampled_from(["chunks", "items", "selected", "concatenated"]),
    st.integers(1, 4),
    st.booleans(),
    st.data(),
)
def test_labels_of_shuffled_samples_by_definition(lists, rule, kind, world_size, shuffle, data):
    banned = data.draw(st.sets(st.integers(0, len(lists) - 1), max_size=2)) if kind != "concatenated" else set()
    numbers = list(range(len(lists)))
    dataset = {
        "chunks": lambda: chunks_of(lists),
        "items": lambda: items(lists),
        "selected": lambda: items(lists),
        "concatenated": lambda: items(lists).concat(items(lists)),
    }[kind]()
    if kind == "selected":
        dataset, numbers = dataset.select(numbers[::2]), numbers[::2]
        banned = {place for place in banned if place < len(numbers)}
    if kind == "concatenated":
        numbers = numbers * 2
    options = {"batching": rule, "shuffle": shuffle, "labels": "ids", "output": "torch", "ban": sorted(banned)}
    seen = []
    for rank in range(world_size):
        ranked = options | {"uneven": "mask", "rank": rank, "world_size": world_size}
        loader = bl.DataLoader(dataset, **ranked)
        batches, states = [], []
        for batch in loader:
            batches.append(batch)
            states.append(loader.state_dict())
            check_labels(batch, [lists[number] for number in numbers], banned)
            index = batch["index"].tolist()
            weights = batch["weight"].tolist() if "weight" in batch else [1] * len(index)
            seen += [number for number, weight in zip(index, weights, strict=True) if weight]
        if len(states) > 1:
            place = data.draw(st.integers(0, len(states) - 2))
            again = bl.DataLoader(dataset, **ranked)
            again.load_state_dict(states[place])
            assert_same([dict(batch) for batch in again], [dict(batch) for batch in batches[place + 1 :]])
    assert sorted(set(seen)) == [number for number in range(len(numbers)) if number not in banned]
