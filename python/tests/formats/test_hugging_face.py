"""Folders and objects of `datasets`: their rows, their columns, their indices and formats, and what is refused."""

import json
import pickle

import batchloom as bl
import numpy
import pyarrow
import pytest
from batchloom.delivery import placement
from hypothesis import given
from hypothesis import strategies as st
from oracles.arrow import plain, write
from oracles.files import assert_same_runs
from oracles.runs import few
from oracles.selections import torch_seen
from refusals import refused

datasets = pytest.importorskip("datasets")

datasets.disable_progress_bars()
ROWS = 30
IDS = [[100 * k + place for place in range(k % 5 + 1)] for k in range(ROWS)]
FEATURES = datasets.Features(
    {
        "input_ids": datasets.List(datasets.Value("int32")),
        "label": datasets.ClassLabel(names=["a", "b", "c"]),
        "text": datasets.Value("string"),
    }
)
DATA = datasets.Dataset.from_dict(
    {"input_ids": IDS, "label": [k % 3 for k in range(ROWS)], "text": [f"text {k}" for k in range(ROWS)]}, FEATURES
)


def expected(data):
    """The samples of a dataset in memory, as `datasets` itself shows them."""
    shown = data.with_format("arrow")[:]
    ids = [numpy.array(row, numpy.int64) for row in shown["input_ids"].to_pylist()]
    texts = {"text": shown["text"].to_pylist()} if "text" in shown.column_names else {}
    return bl.SequenceDataset(input_ids=ids, label=numpy.array(shown["label"]), **texts)


def views(data):
    """Rows that were selected, shuffled and put together before."""
    return {
        "whole": data,
        "shuffled": data.shuffle(seed=3),
        "selected": data.select([5, 2, 2, 29]),
        "neighbours": data.select(range(7, 20)),
        "both": data.shuffle(seed=3).select(range(10)),
        "joined": datasets.concatenate_datasets([data, data.select([1, 0])]),
        "shard": data.shard(3, 1),
        "torch": data.with_format("torch").shuffle(seed=4),
    }


@pytest.mark.law("L1", "L2", "L4")
@pytest.mark.parametrize("view", views(DATA))
def test_rows_are_those_that_an_object_shows(view, tmp_path):
    DATA.save_to_disk(tmp_path / "saved", num_shards=3)
    for data in (DATA, datasets.load_from_disk(tmp_path / "saved")):
        found = bl.open(views(data)[view])
        wanted = expected(views(DATA)[view])
        assert len(found) == len(wanted)
        for k in range(len(found)):
            assert {name: plain(value) for name, value in found[k].items()} == {
                name: plain(value) for name, value in wanted[k].items()
            }
        chosen = bl.open(views(data)[view], columns=["input_ids", "label"])
        numbers = bl.SequenceDataset(**{name: wanted.fields[name] for name in ("input_ids", "label")})
        assert_same_runs(chosen, numbers, is_selection=True, batching=bl.TokenBudget(12), shuffle=True)


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("view", ["whole", "shuffled", "neighbours"])
def test_folders_have_the_rows_that_were_saved(tmp_path, shards, view):
    views(DATA)[view].save_to_disk(tmp_path / "saved", num_shards=shards)
    found, wanted = bl.open(tmp_path / "saved"), expected(views(DATA)[view])
    assert [plain(found[k]["input_ids"]) for k in range(len(found))] == [
        plain(wanted[k]["input_ids"]) for k in range(len(wanted))
    ]
    assert found[1]["text"] == wanted[1]["text"]
    # The index of a selection counts in the data that it was selected from: nothing was selected here.
    packed = next(iter(bl.DataLoader(found, batching=bl.Packing(8))))
    assert packed["input_ids"].dtype == numpy.int64
    twice = bl.open([tmp_path / "saved"], columns=["label"])
    assert len(twice) == len(wanted)


def save_with_indices(folder, indices):
    DATA.save_to_disk(folder, num_shards=2)
    write(folder / "indices.arrow", [pyarrow.table({"indices": indices})], stream=True)
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps(state | {"_indices_files": [{"filename": "indices.arrow"}]}))


@few
@given(indices=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=40))
def test_folders_of_early_versions_keep_their_indices(tmp_path_factory, indices):
    """A folder with a file of indices is a selection, and never all of its rows."""
    folder = tmp_path_factory.mktemp("folder") / "saved"
    save_with_indices(folder, pyarrow.array(indices, pyarrow.uint64()))
    found = bl.open(folder)
    assert [plain(found[k]["input_ids"]) for k in range(len(found))] == [IDS[row] for row in indices]


def test_columns_that_a_format_shows(tmp_path):
    shown = DATA.with_format("numpy", columns=["label"])
    assert bl.open(shown).names == ("label",)
    shown.save_to_disk(tmp_path / "saved")
    assert bl.open(tmp_path / "saved").names == ("label",)
    with refused(bl.ArgumentError, "'input_ids'", "'label'"):
        bl.open(shown, columns=["input_ids"])


def test_integers_are_int64_in_batches_and_stay_narrow_in_memory():
    found = bl.open(DATA)
    assert found.fields["input_ids"][0].dtype == numpy.int32
    again = pickle.loads(pickle.dumps(found))
    for dataset in (found, again, found.select([3, 4, 5]), found.concat(found)):
        assert dataset[0]["input_ids"].dtype == numpy.int64
        batch = next(iter(bl.DataLoader(dataset, 3, labels="input_ids")))
        assert (batch["input_ids"].dtype, batch["labels"].dtype) == (numpy.int64, numpy.int64)
    narrow = next(iter(bl.DataLoader(found, 3, dtype="int32")))
    assert narrow["input_ids"].dtype == numpy.int32
    chosen = next(iter(bl.DataLoader(found, 3, fields={"input_ids": bl.Field(dtype="int16")})))
    assert chosen["input_ids"].dtype == numpy.int16
    rows = bl.open(datasets.Dataset.from_dict({"x": [1, 2, 3]}, datasets.Features({"x": datasets.Value("int8")})))
    assert next(iter(bl.DataLoader(rows, 2)))["x"].dtype == numpy.int64
    whole = bl.DataLoader(rows, 2, collate=lambda samples: [sample["x"].dtype.name for sample in samples])
    assert next(iter(whole)) == ["int64", "int64"]
    both = torch_seen(
        bl.DataLoader(
            bl.Mixture({"a": found.select([0, 1]), "b": found.select([2])}, weights={"a": 1, "b": 1}), 2, num_samples=4
        )
    )
    assert both


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("rule", [{"batch_size": 4}, {"batching": bl.Packing(16)}], ids=str)
def test_integers_are_int64_on_devices(resident, rule, monkeypatch):
    monkeypatch.setattr(placement, "cpu_stands_in", True)
    found = bl.open(DATA, columns=["input_ids", "label"])
    options = {"shuffle": True, "output": "torch", **rule}
    on_device = bl.DataLoader(found, device="cpu", resident=resident, **options)
    assert torch_seen(on_device) == torch_seen(
        bl.DataLoader(expected(DATA.select_columns(["input_ids", "label"])), **options)
    )


def test_arrays_of_features_have_their_shape(interpreter, tmp_path):
    images = numpy.arange(2 * 3 * 4 * 5, dtype=numpy.uint8).reshape(5, 2, 3, 4)
    flat = numpy.arange(6.0).reshape(1, 2, 3).repeat(5, 0)
    features = datasets.Features(
        {"image": datasets.Array3D((2, 3, 4), "uint8"), "x": datasets.Array2D((2, 3), "float64")}
    )
    data = datasets.Dataset.from_dict({"image": images.tolist(), "x": flat.tolist()}, features)
    data.save_to_disk(tmp_path / "saved")
    for found in (bl.open(data), bl.open(tmp_path / "saved")):
        assert isinstance(found, bl.TensorDataset)
        assert [found[k]["image"].tolist() for k in range(5)] == images.tolist()
        assert found[4]["x"].tolist() == flat[4].tolist()
    interpreter(
        """
        import sys
        import batchloom as bl

        found = bl.open(sys.argv[1])
        assert found[4]["image"].shape == (2, 3, 4), found
        assert found[4]["x"].shape == (2, 3)
        assert "datasets" not in sys.modules
        """,
        tmp_path / "saved",
    )


def test_kinds_of_other_samples_take_the_rows_that_are_shown():
    data = datasets.Dataset.from_dict({"query": [k // 3 for k in range(9)], "x": [float(k) for k in range(9)]})
    groups = bl.open(data.select([0, 1, 8, 2]), kind="groups", id="query")
    assert (groups.sizes.tolist(), [groups[0][name].tolist() for name in ("x",)]) == ([3, 1], [[0.0, 1.0, 2.0]])
    windows = bl.open(data.select(range(8, 0, -1)), kind="windows", input_len=2, columns=["x"])
    assert windows[0][0].tolist() == [[8.0], [7.0]]
    tokens = bl.open(DATA.select([3, 1]), kind="tokens", columns="input_ids", seq_len=3)
    assert tokens[0][0].tolist() == [300, 301, 302]


def test_splits_streams_and_transforms_are_refused(tmp_path):
    splits = datasets.DatasetDict(train=DATA, test=DATA.select([0]))
    with refused(bl.ArgumentError, "DatasetDict", "'train'", "'test'", "source['train']"):
        bl.open(splits)
    splits.save_to_disk(tmp_path / "splits")
    with refused(bl.DataError, "splits", "train", "test"):
        bl.open(tmp_path / "splits")
    with refused(bl.ArgumentError, "IterableDataset", "streaming=False"):
        bl.open(DATA.to_iterable_dataset())
    with refused(bl.ArgumentError, "transform", "bl.MapDataset"):
        bl.open(DATA.with_transform(lambda rows: rows))
    with refused(bl.ArgumentError, "dtype", "datasets"):
        bl.open(DATA, dtype="int8")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{", ["state.json"]),
        ("[]", ["state.json", "list"]),
        ("{}", ["state.json", "_data_files"]),
        ('{"_data_files": [{"filename": "none.arrow"}]}', ["none.arrow"]),
        ('{"_data_files": [{"filename": "../other.arrow"}]}', ["state.json"]),
        ('{"_data_files": [7]}', ["state.json"]),
    ],
)
def test_damaged_folders_are_named(tmp_path, text, values):
    DATA.save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text(text)
    with refused(bl.DataError, *values):
        bl.open(tmp_path / "saved")


@pytest.mark.parametrize("indices", [pyarrow.array([0, 30]), pyarrow.array([0.5]), pyarrow.array([0, None])], ids=str)
def test_indices_that_leave_the_rows(tmp_path, indices):
    save_with_indices(tmp_path / "saved", indices)
    with refused(bl.DataError, "saved"):
        bl.open(tmp_path / "saved")


def test_columns_of_datasets_are_parts_of_one_array():
    """Chunks of a column, and columns of several datasets, without a copy; integers become int64."""
    parts = [datasets.Dataset.from_dict({"x": [1, 2, 3], "v": [[1.0, 2.0]] * 3}), None]
    parts[1] = datasets.concatenate_datasets([parts[0], datasets.Dataset.from_dict({"x": [7], "v": [[3.0, 4.0]]})])
    array = bl.ChunkedArray([part["x"] for part in parts])
    assert (array.tensor.dtype, numpy.asarray(array).tolist()) == ("int64", [1, 2, 3, 1, 2, 3, 7])
    samples = [sample["x"] for sample in bl.TensorDataset(x=array)]
    assert samples == numpy.asarray(array).tolist()
    tokens = bl.TokenDataset(bl.ChunkedArray([part["x"] for part in parts]), 3)
    assert len(tokens) == 2


def test_rows_that_are_hidden_may_be_null():
    """Rows that a filter leaves out may be null: numbers, lists, lists of one shape, texts and categories."""
    values = {
        "number": ([1, None, 2, 3], datasets.Value("int32")),
        "flag": ([True, None, False, True], datasets.Value("bool")),
        "text": (["a", None, "b", "c"], datasets.Value("string")),
        "list": ([[1], None, [2, 3], []], datasets.Sequence(datasets.Value("int64"))),
        "inner": ([[1], [None, 5], [2, 3], []], datasets.Sequence(datasets.Value("int64"))),
        "pair": ([[1, 2], None, [3, 4], [5, 6]], datasets.Sequence(datasets.Value("float32"), length=2)),
        "half": ([[1, 2], [9, None], [3, 4], [5, 6]], datasets.Sequence(datasets.Value("float32"), length=2)),
        "shape": ([[[1, 2]], None, [[3, 4]], [[5, 6]]], datasets.Array2D((1, 2), "int64")),
        "kind": ([0, None, 1, 0], datasets.ClassLabel(names=["x", "y"])),
    }
    whole = datasets.Dataset.from_dict(
        {name: column for name, (column, _) in values.items()},
        features=datasets.Features({name: feature for name, (_, feature) in values.items()}),
    )
    filtered = whole.filter(lambda row: row["number"] is not None)
    for name, (column, _) in values.items():
        found = bl.open(filtered, columns=[name])
        assert [plain(found[k][name]) for k in range(3)] == [column[0], *column[2:]], name
        with refused(bl.DataError, repr(name), "row 1"):
            bl.open(whole.select([3, 1]), columns=[name])


@pytest.mark.parametrize("form", ["object", "folder", "arrow", "zstd", "parquet"])
def test_images_are_their_bytes(form, tmp_path):
    """An image is the bytes that are stored, or the file at its path, as a column and for a function."""
    (tmp_path / "b.png").write_bytes(b"second")
    rows = [{"bytes": b"first", "path": None}, {"bytes": None, "path": str(tmp_path / "b.png")}]
    features = datasets.Features({"image": datasets.Image(decode=False), "label": datasets.Value("int64")})
    data = datasets.Dataset.from_dict({"image": rows, "label": [4, 5]}, features)
    source = tmp_path / "a.parquet"
    if form == "object":
        source = data
    elif form == "folder":
        source = tmp_path / "saved"
        data.save_to_disk(source)
    elif form == "parquet":
        data.to_parquet(source)
    else:
        source = tmp_path / "a.arrow"
        write(source, [data.data.table], compression="zstd" if form == "zstd" else None)
    for options in ({}, {"columns": ["image", "label"]}, {"fn": dict}):
        found = bl.open(source, **options)
        assert [found[k] for k in range(2)] == [
            {"image": b"first", "label": 4},
            {"image": b"second", "label": 5},
        ]
        assert next(iter(bl.DataLoader(found, 2)))["image"] == [b"first", b"second"]
    with refused(bl.ArgumentError, "'image.path'", "'image'"):
        bl.open(source, columns=["image.path"])
    (tmp_path / "b.png").unlink()
    if form != "folder":  # which datasets saves with the bytes of all files
        with refused((bl.DataError, bl.SampleError), "b.png", "image", "row 1"):
            list(bl.DataLoader(bl.open(source), 1))
    assert bl.open(source, columns=["label"])[1]["label"] == 5
