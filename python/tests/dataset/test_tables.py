"""Tables given whole: a ``datasets.Dataset``, frames and dicts of columns, with a mask of their own or without one.

Batches are those of the collator of transformers that pads, field by field.
"""

import pickle

import batchloom as bl
import datasets
import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from oracles.devices import loader_on
from oracles.runs import assert_resumes
from refusals import refused

LENGTHS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
COLUMNS = {
    "sentence": [f"text {place}" for place in range(10)],
    "label": [place % 3 for place in range(10)],
    "input_ids": [list(range(1, 1 + length)) for length in LENGTHS],
    "token_type_ids": [[place % 2] * length for place, length in enumerate(LENGTHS)],
    "attention_mask": [[1] * length for length in LENGTHS],
    "vector": [[place / 2, -1.0, 3.0] for place in range(10)],
}
# As `datasets` stores what tokenizers return.
NARROW = {
    "input_ids": datasets.List(datasets.Value("int32")),
    "token_type_ids": datasets.List(datasets.Value("int8")),
    "attention_mask": datasets.List(datasets.Value("int8")),
    "label": datasets.ClassLabel(names=["no", "yes", "maybe"]),
}


def table(columns=COLUMNS):
    whole = datasets.Dataset.from_dict(columns)
    types = {name: kind for name, kind in NARROW.items() if name in columns}
    return whole.cast(datasets.Features(dict(whole.features) | types))


TABLES = {
    "whole": table(),
    "selected": table().select([7, 2, 2, 9, 0]),
    "shuffled": table().shuffle(seed=4),
    "split": table().train_test_split(0.4, seed=2)["train"],
    "joined": datasets.concatenate_datasets([table().select(range(4)), table().select([9, 1])]),
    "formatted": table().with_format("torch"),
}
WAYS = ("host", "threads", "resident", "streamed")


def loader(way, dataset, **options):
    if way in ("host", "threads"):
        return bl.DataLoader(dataset, output="torch", num_threads=1 if way == "host" else 2, **options)
    return loader_on(way, dataset, **options)[0]


def collated(rows, pad=0):
    """The batch that `transformers.DataCollatorWithPadding` makes of rows: lists padded to the longest, as tensors."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": pad, "[UNK]": 99}, unk_token="[UNK]"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")
    collate = transformers.DataCollatorWithPadding(tokenizer)
    return dict(collate([{name: value for name, value in row.items() if name != "sentence"} for row in rows]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", TABLES)
def test_batches_are_those_of_a_padding_collator(kind, way):
    given = TABLES[kind].remove_columns("sentence")
    rows = given.with_format(None).to_list()
    dataset = bl.SequenceDataset(given)
    assert dataset.names == ("label", "input_ids", "token_type_ids", "vector")
    seen = []
    for batch in loader(way, dataset, batch_size=3, shuffle=True, extras=("attention_mask", "index")):
        index = batch.pop("index").tolist()
        expected = collated([rows[sample] for sample in index])
        batch["labels"] = batch.pop("label")
        batch["attention_mask"] = batch["attention_mask"].long()
        batch["vector"] = batch["vector"].float()  # Python's floats become float32 there
        assert batch.keys() == expected.keys()
        for name, value in batch.items():
            assert value.dtype == expected[name].dtype, name
            assert value.equal(expected[name]), name
        seen += index
    assert sorted(seen) == list(range(len(given)))


@pytest.mark.parametrize("way", WAYS)
def test_texts_are_lists_in_batches(way):
    given = TABLES["shuffled"]
    dataset = bl.SequenceDataset(given)
    assert dataset[3]["sentence"] == given[3]["sentence"]
    resident = {} if way != "resident" else {"device": "cpu"}
    made = bl.DataLoader(dataset, batch_size=4, **resident) if way == "resident" else loader(way, dataset, batch_size=4)
    texts = [batch["sentence"] for batch in made]
    assert texts == [given["sentence"][start : start + 4] for start in (0, 4, 8)]
    sentences = bl.SequenceDataset(ids=COLUMNS["input_ids"], words=[["a", "b"]] * 9 + [["c"]])
    (batch,) = bl.DataLoader(sentences[7:], batch_size=3)
    assert batch["words"] == [["a", "b"], ["a", "b"], ["c"]]


def test_texts_are_packed_selected_joined_and_pickled():
    dataset = bl.SequenceDataset(table())
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

    made = bl.DataLoader(bl.SequenceDataset(table()), **options)
    expected = [listed(made) for _ in range(2)]
    fresh = bl.DataLoader(bl.SequenceDataset(table()), **options)
    assert_resumes(fresh, lambda: bl.DataLoader(bl.SequenceDataset(table()), **options), expected, listed)


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


def test_types_are_those_of_the_frame_and_integers_of_datasets_are_wide():
    frame = pyarrow.table({"ids": pyarrow.array([[1], [2, 3]], pyarrow.list_(pyarrow.int16()))})
    assert bl.SequenceDataset(frame)[1]["ids"].dtype == numpy.int16
    row = bl.SequenceDataset(table())[1]
    assert {name: row[name].dtype for name in ("label", "input_ids", "token_type_ids")} == {
        "label": numpy.int64,
        "input_ids": numpy.int64,
        "token_type_ids": numpy.int64,
    }
    assert row["vector"].dtype == numpy.float64


def test_only_shown_columns_are_fields():
    shown = table().with_format("numpy", columns=["input_ids", "label"])
    assert bl.SequenceDataset(shown).names == ("label", "input_ids")


def test_fields_beside_a_table_have_names():
    weights = numpy.arange(10.0)
    dataset = bl.SequenceDataset(table(), weight=weights, sizes=range(10))
    assert dataset[4]["weight"] == 4
    assert dataset.sizes.tolist() == list(range(10))
    with refused(bl.ArgumentError, "label"):
        bl.SequenceDataset(table(), label=weights)


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
        lambda rows, masks: bl.SequenceDataset(table({"input_ids": rows, "attention_mask": masks})),
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
        (datasets.DatasetDict({"train": table()}), ["DatasetDict", "'train'"]),
        (table().to_iterable_dataset(), ["IterableDataset", "datasets.Dataset"]),
        ([[1, 2], [3]], ["list", "input_ids"]),
        (numpy.arange(3), ["ndarray", "input_ids"]),
        (pandas.DataFrame({0: [1, 2]}), ["0"]),
        (table().rename_column("label", "index"), ["index"]),
    ],
    ids=["splits", "stream", "list", "array", "numbers for names", "a name of batches"],
)
def test_what_is_no_table_is_refused(given, values):
    with refused(bl.ArgumentError, *values):
        bl.SequenceDataset(given)


def test_lists_of_other_lengths_are_told():
    columns = {"ids": [[1], [1, 2]], "other": [[1, 2], [1]]}
    with refused(bl.DataError, "other", "sample 0"):
        bl.SequenceDataset(table(columns))
    own = bl.SequenceDataset(table(columns), own_lengths=["other"])
    assert own[0]["other"].tolist() == [1, 2]
