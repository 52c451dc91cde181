"""A ``datasets.Dataset`` given whole: batches equal what the padding collator of transformers makes, field by field."""

import batchloom as bl
import numpy
import pytest
from oracles.devices import loader_on
from oracles.tables import COLUMNS
from refusals import refused

datasets = pytest.importorskip("datasets")

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
def test_texts_are_those_of_the_rows_that_are_shown(way):
    given = TABLES["shuffled"]
    dataset = bl.SequenceDataset(given)
    assert dataset[3]["sentence"] == given[3]["sentence"]
    made = (
        bl.DataLoader(dataset, batch_size=4, device="cpu") if way == "resident" else loader(way, dataset, batch_size=4)
    )
    assert [batch["sentence"] for batch in made] == [given["sentence"][start : start + 4] for start in (0, 4, 8)]


def test_integers_are_wide():
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


@pytest.mark.parametrize(
    ("given", "values"),
    [
        (datasets.DatasetDict({"train": table()}), ["DatasetDict", "'train'"]),
        (table().to_iterable_dataset(), ["IterableDataset", "datasets.Dataset"]),
        (table().rename_column("label", "index"), ["index"]),
    ],
    ids=["splits", "stream", "a name of batches"],
)
def test_what_is_no_table_is_refused(given, values):
    with refused(bl.ArgumentError, *values):
        bl.SequenceDataset(given)


@pytest.mark.parametrize("chosen", [None, [5, 0, 3]])
def test_columns_are_read_as_arrow_holds_them(tmp_path, chosen):
    features = datasets.Features(
        {
            "x": datasets.Sequence(datasets.Value("float32"), length=3),
            "ids": datasets.List(datasets.Value("int32")),
            "label": datasets.Value("int8"),
            "text": datasets.Value("string"),
        }
    )
    rows = {
        "x": [[k, k + 1, k + 2] for k in range(7)],
        "ids": [list(range(k)) for k in range(7)],
        "label": list(range(7)),
        "text": [f"text {k}" for k in range(7)],
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path)
    kept = datasets.load_from_disk(tmp_path)
    kept = kept if chosen is None else kept.select(chosen)
    numbers = list(range(7)) if chosen is None else chosen
    found = bl.TensorDataset(x=kept["x"], label=kept["label"], text=kept["text"])
    for place, number in enumerate(numbers):
        sample = found[place]
        assert sample["x"].tolist() == rows["x"][number]
        assert (sample["label"], sample["text"]) == (number, f"text {number}")
    assert (found[0]["x"].dtype, found[0]["label"].dtype) == (numpy.float32, numpy.int64)
    sequences = bl.SequenceDataset(ids=kept["ids"], label=kept["label"])
    assert [sequences[place]["ids"].tolist() for place in range(len(numbers))] == [rows["ids"][k] for k in numbers]
    assert sequences[0]["ids"].dtype == numpy.int64
