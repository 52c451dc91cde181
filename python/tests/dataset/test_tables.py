"""Tables given whole: frames and dicts of columns, with an attention mask of their own or without one.

Texts are lists in batches.
"""

import pickle

import batchloom as bl
import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from oracles.devices import loader_on
from oracles.runs import assert_resumes
from oracles.tables import COLUMNS, LENGTHS
from refusals import refused

WAYS = ("host", "threads", "device", "streamed")


def loader(way, dataset, **options):
    if way in ("host", "threads"):
        return bl.DataLoader(dataset, output="torch", num_threads=1 if way == "host" else 2, **options)
    return loader_on(way, dataset, **options)[0]


@pytest.mark.parametrize("way", WAYS)
def test_texts_are_lists_in_batches(way):
    dataset = bl.SequenceDataset(COLUMNS)
    assert dataset[3]["sentence"] == "text 3"
    texts = [batch["sentence"] for batch in loader(way, dataset, batch_size=4)]
    assert texts == [COLUMNS["sentence"][start : start + 4] for start in (0, 4, 8)]
    sentences = bl.SequenceDataset(ids=COLUMNS["input_ids"], words=[["a", "b"]] * 9 + [["c"]])
    (batch,) = bl.DataLoader(sentences[7:], batch_size=3)
    assert batch["words"] == [["a", "b"], ["a", "b"], ["c"]]


def test_texts_are_packed_selected_joined_and_pickled():
    dataset = bl.SequenceDataset(COLUMNS)
    packed = bl.DataLoader(dataset.select([5, 0]).concat(dataset.select([1])), batching=bl.Packing(20), shuffle=False)
    (batch,) = packed
    assert batch["sentence"] == [COLUMNS["sentence"][[5, 0, 1][k]] for k in batch["index"]]
    again = pickle.loads(pickle.dumps(dataset[2:4]))
    assert [again[k]["sentence"] for k in range(2)] == ["text 2", "text 3"]
    assert [again[k]["input_ids"].tolist() for k in range(2)] == COLUMNS["input_ids"][2:4]
    (marked,) = bl.DataLoader(dataset[:3], batch_size=3, ban=[1], shuffle=False)
    assert marked["sentence"] == ["text 0", None, "text 2"]


@pytest.mark.law("L4")
def test_a_run_over_a_table_resumes():
    options = {"batch_size": 3, "shuffle": True}

    def listed(batches):
        return [
            {name: value if isinstance(value, list) else value.tolist() for name, value in batch.items()}
            for batch in batches
        ]

    made = bl.DataLoader(bl.SequenceDataset(COLUMNS), **options)
    expected = [listed(made) for _ in range(2)]
    fresh = bl.DataLoader(bl.SequenceDataset(COLUMNS), **options)
    assert_resumes(fresh, lambda: bl.DataLoader(bl.SequenceDataset(COLUMNS), **options), expected, listed)


@pytest.mark.parametrize(
    "make",
    [pandas.DataFrame, polars.DataFrame, pyarrow.table, dict],
    ids=["pandas", "polars", "pyarrow", "dict"],
)
def test_frames_have_a_field_for_each_column(make):
    dataset = bl.SequenceDataset(make(COLUMNS))
    assert dataset.names == ("sentence", "label", "input_ids", "token_type_ids", "vector")
    for sample in range(10):
        row = dataset[sample]
        for name in dataset.names:
            assert numpy.asarray(row[name]).tolist() == COLUMNS[name][sample], name


def test_types_are_those_of_the_frame():
    frame = pyarrow.table({"ids": pyarrow.array([[1], [2, 3]], pyarrow.list_(pyarrow.int16()))})
    assert bl.SequenceDataset(frame)[1]["ids"].dtype == numpy.int16


def test_fields_beside_a_table_have_names():
    weights = numpy.arange(10.0)
    dataset = bl.SequenceDataset(COLUMNS, weight=weights, sizes=range(10))
    assert dataset[4]["weight"] == 4
    assert dataset.sizes.tolist() == list(range(10))
    with refused(bl.ArgumentError, "label"):
        bl.SequenceDataset(COLUMNS, label=weights)


def padded(lengths, to, side):
    """Rows of tokens and their masks, padded to one length."""
    rows, masks = [], []
    for length in lengths:
        row, gap = list(range(1, 1 + length)), [0] * (to - length)
        rows.append(row + gap if side == "right" else gap + row)
        masks.append([1] * length + gap if side == "right" else gap + [1] * length)
    return rows, masks


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    "make",
    [
        lambda rows, masks: bl.SequenceDataset(pyarrow.table({"input_ids": rows, "attention_mask": masks})),
        lambda rows, masks: bl.SequenceDataset(input_ids=rows, attention_mask=masks),
        lambda rows, masks: bl.SequenceDataset(
            {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}
        ),
        lambda rows, masks: bl.SequenceDataset(
            input_ids=numpy.array(rows), attention_mask=numpy.array(masks, numpy.bool_)
        ),
    ],
    ids=["table", "lists", "tensors", "arrays"],
)
def test_a_mask_marks_the_elements_of_samples(make, side):
    dataset = make(*padded(LENGTHS, 9, side))
    assert dataset.names == ("input_ids",)
    assert dataset.sizes.tolist() == LENGTHS
    assert [dataset[k]["input_ids"].tolist() for k in range(10)] == COLUMNS["input_ids"]
    batch = next(iter(bl.DataLoader(dataset, batch_size=3, pad_side=side)))
    rows, masks = padded(LENGTHS[:3], 4, side)
    assert batch["input_ids"].tolist() == rows
    assert batch["attention_mask"].tolist() == [list(map(bool, mask)) for mask in masks]


def test_a_mask_leaves_fields_of_other_lengths_alone():
    rows, masks = padded([2, 1], 3, "right")
    dataset = bl.SequenceDataset(ids=rows, to=[[7], [8, 9]], attention_mask=masks, own_lengths=["to"])
    assert [dataset[k]["to"].tolist() for k in range(2)] == [[7], [8, 9]]
    assert dataset[1]["ids"].tolist() == [1]
    # A sample without an element that is marked is empty.
    empty = bl.SequenceDataset(ids=[[5, 6], [7]], attention_mask=[[0, 0], [1]])
    assert [empty[k]["ids"].tolist() for k in range(2)] == [[], [7]]


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"ids": [[1, 2, 3]], "attention_mask": [[1, 0, 1]]}, ["attention_mask", "sample 0"]),
        ({"ids": [[1], [1, 2, 3]], "attention_mask": [[1], [1, 0, 1]]}, ["attention_mask", "sample 1"]),
        ({"ids": [[1, 2]], "attention_mask": [[1, 2]]}, ["attention_mask", "2"]),
        ({"ids": [[1, 2]], "attention_mask": [[1]]}, ["attention_mask"]),
        ({"ids": [[1, 2]], "attention_mask": numpy.ones(1)}, ["attention_mask"]),
        ({"ids": [[1, 2]], "attention_mask": ["1"]}, ["attention_mask"]),
    ],
    ids=str,
)
def test_masks_that_are_no_padding_are_refused(fields, values):
    with refused(bl.DataError, *values):
        bl.SequenceDataset(**fields)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([[1, 2], [3]], ["list", "input_ids"]),
        (numpy.arange(3), ["ndarray", "input_ids"]),
        (pandas.DataFrame({0: [1, 2]}), ["0"]),
        ({"ids": [[1]], "index": [1]}, ["index"]),
    ],
    ids=["list", "array", "numbers for names", "a name of batches"],
)
def test_what_is_no_table_is_refused(given, values):
    with refused(bl.ArgumentError, *values):
        bl.SequenceDataset(given)


def test_lists_of_other_lengths_are_told():
    columns = {"ids": [[1], [1, 2]], "other": [[1, 2], [1]]}
    with refused(bl.DataError, "other", "sample 0"):
        bl.SequenceDataset(pyarrow.table(columns))
    own = bl.SequenceDataset(pyarrow.table(columns), own_lengths=["other"])
    assert own[0]["other"].tolist() == [1, 2]
