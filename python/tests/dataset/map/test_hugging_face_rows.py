"""Rows of a set of `datasets`, read on demand: a batch is read as columns, and has the values of its rows."""

import batchloom as bl
import numpy
import pytest
import torch
from oracles.runs import resume_after

datasets = pytest.importorskip("datasets")

ROWS = 50
FORMATS = (None, "numpy", "torch")


def make_rows(**more):
    random = numpy.random.default_rng(0)
    columns = {
        "x": random.standard_normal((ROWS, 3), dtype=numpy.float32),
        "text": [f"text {number}" for number in range(ROWS)],
        "tokens": random.integers(0, 100, (ROWS, 4)),
        "label": random.integers(0, 5, ROWS),
        "share": random.random(ROWS),
        "is_new": random.random(ROWS) < 0.5,
    }
    return datasets.Dataset.from_dict(columns | more)


class Rows:
    """The same rows, one by one, as torch's loader gets them."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows.__getitems__([number])[0]


def as_lists(batch):
    return {name: values.tolist() if hasattr(values, "tolist") else values for name, values in batch.items()}


def list_batches(items, epochs=2, **options):
    loader = bl.DataLoader(bl.MapDataset(items), batch_size=8, shuffle=True, seed=3, **options)
    return [as_lists(batch) for _ in range(epochs) for batch in loader]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("threads", [None, 1, 2])
def test_batches_are_those_of_rows_one_by_one(form, threads):
    rows = make_rows().with_format(form)
    assert list_batches(rows, num_threads=threads) == list_batches(Rows(rows))


@pytest.mark.parametrize("form", FORMATS)
def test_processes_read_the_same(form):
    rows = make_rows().with_format(form)
    dataset = bl.MapDataset(rows, workers="processes")
    loader = bl.DataLoader(dataset, batch_size=8, shuffle=True, seed=3, num_threads=2)
    assert [as_lists(batch) for batch in loader] == list_batches(Rows(rows), epochs=1)


def test_types_and_frameworks_are_those_of_rows():
    rows = make_rows().with_format("torch")
    ours, theirs = (next(iter(bl.DataLoader(bl.MapDataset(items), batch_size=8))) for items in (rows, Rows(rows)))
    assert list(ours) == list(theirs)
    for name, values in theirs.items():
        assert type(ours[name]) is type(values)
        assert getattr(ours[name], "dtype", None) == getattr(values, "dtype", None)
    assert isinstance(ours["x"], torch.Tensor)


def test_a_batch_is_read_once(monkeypatch):
    rows, asked = make_rows().with_format("torch"), []
    plain = datasets.Dataset.__getitem__

    def count(self, key):
        asked.append(key)
        return plain(self, key)

    monkeypatch.setattr(datasets.Dataset, "__getitem__", count)
    loader = bl.DataLoader(bl.MapDataset(rows), batch_size=10, drop_last=True)
    assert sum(1 for _ in loader) == 5
    together = [key for key in asked if isinstance(key, list) and len(key) == 10]
    assert len(together) >= 4  # the first batch shows what a sample is
    assert sum(len(key) if isinstance(key, list) else 1 for key in asked) <= ROWS + 11


def test_columns_that_differ_in_length_are_read_once_too(monkeypatch):
    rows = make_rows(words=[list(range(number % 4 + 1)) for number in range(ROWS)]).with_format("torch")
    sizes = [number % 4 + 1 for number in range(ROWS)]
    asked = []
    plain = datasets.Dataset.__getitem__

    def count(self, key):
        asked.append(key)
        return plain(self, key)

    def make(items):
        dataset = bl.MapDataset(items, sizes=sizes, columns=["words"])
        return [as_lists(batch) for batch in bl.DataLoader(dataset, batch_size=8, shuffle=True, seed=1)]

    monkeypatch.setattr(datasets.Dataset, "__getitem__", count)
    ours = make(rows)
    assert sum(len(key) if isinstance(key, list) else 1 for key in asked) <= ROWS + 9
    assert ours == make(Rows(rows))


def test_tables_have_no_columns_to_take():
    with pytest.raises(bl.SampleError, match=r"sample \d+ could not be read: field 0 is a Table"):
        list_batches(make_rows().with_format("arrow"))


def test_a_transform_gives_the_columns():
    rows = make_rows()
    rows.set_transform(lambda batch: {"double": [2 * value for value in batch["label"]]})
    batches = list_batches(rows)
    assert batches == list_batches(Rows(rows))
    assert sorted(value for batch in batches[: len(batches) // 2] for value in batch["double"]) == sorted(
        2 * value for value in make_rows()["label"]
    )


def test_a_transform_that_fails_names_the_row():
    rows = make_rows()

    def fail(batch):
        if "text 7" in batch["text"]:
            raise ValueError("no such text")
        return {"label": batch["label"]}

    rows.set_transform(fail)
    with pytest.raises(bl.SampleError, match=r"sample 7 .*no such text|sample 7 could not be read: ValueError"):
        list_batches(rows)


def test_a_resumed_run_reads_the_same():
    rows = make_rows().with_format("numpy")

    def make():
        return bl.DataLoader(bl.MapDataset(rows), batch_size=8, shuffle=True, seed=5)

    whole = [as_lists(batch) for batch in make()]
    for step in (0, 3, len(whole) - 1):
        assert [as_lists(batch) for batch in resume_after(make, step)] == whole[step:]


def test_one_thread_reads_plain_rows_and_several_decode():
    plain = bl.MapDataset(make_rows())
    nested = datasets.Features({"one": {"two": datasets.List(datasets.Image())}})
    images = datasets.Dataset.from_dict({"one": [{"two": []}] * 4}, features=nested)
    changed = make_rows()
    changed.set_transform(lambda batch: batch)
    assert plain._samples.holds_interpreter
    assert not bl.MapDataset(make_rows(), workers="processes")._samples.holds_interpreter
    assert not bl.MapDataset(make_rows(), lambda row: row["x"])._samples.holds_interpreter
    assert not bl.MapDataset(images)._samples.holds_interpreter
    assert not bl.MapDataset(changed)._samples.holds_interpreter


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_batch_of_one_row_has_the_types_of_larger_ones(workers):
    # `datasets` gives a float64 for one row, and an array of float32 for several.
    rows = make_rows().with_format("numpy").select(range(17))
    batches = list(bl.DataLoader(bl.MapDataset(rows, workers=workers), batch_size=8))
    assert [len(batch["share"]) for batch in batches] == [8, 8, 1]
    assert {batch["share"].dtype for batch in batches} == {numpy.dtype("float32")}


class Shifted(datasets.Dataset):
    """Rows that their class reads in its own way."""

    def __getitems__(self, numbers):
        return [{"label": 1000 + number} for number in numbers]


def test_a_class_that_reads_rows_in_its_own_way_is_followed():
    rows = make_rows()
    shifted = Shifted(rows.data, rows.info)
    batches = list(bl.DataLoader(bl.MapDataset(shifted), batch_size=8))
    assert numpy.concatenate([batch["label"] for batch in batches]).tolist() == list(range(1000, 1000 + ROWS))
