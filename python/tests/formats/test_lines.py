"""Lines: numbers of JSON are read by chunks, texts and what functions make of lines one by one."""

import itertools
import json
import os
import pickle

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.files import assert_same_runs
from oracles.runs import few
from oracles.selections import torch_seen
from refusals import refused

ROWS = 41
LENGTHS = numpy.arange(ROWS) * 5 % 9
SAMPLES = [
    {"input_ids": list(range(row, row + int(LENGTHS[row]))), "score": row / 4, "meta": {"label": row * 7 % 5}}
    for row in range(ROWS)
]


def write(path, samples=SAMPLES, **more):
    path.write_text("".join(json.dumps(sample | more) + "\n" for sample in samples))
    return str(path)


@pytest.mark.law("L1", "L2", "L3", "L4", "L5", "L9")
@few
@given(
    places=st.lists(st.integers(0, ROWS), max_size=2).map(sorted),
    rule=st.sampled_from([bl.TokenBudget(20), bl.Packing(12, oversize="truncate"), bl.FixedSize(5)]),
    chunks_open=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_an_epoch_over_lines_is_the_epoch_over_chunks(tmp_path_factory, places, rule, chunks_open, seed):
    folder = tmp_path_factory.mktemp("files")
    for number, (a, b) in enumerate(itertools.pairwise([0, *places, ROWS])):
        if a < b or number == 0:
            write(folder / f"part-{number}.jsonl", SAMPLES[a:b] or SAMPLES[:1], note='a "text" of {}, []')
    found = bl.open(
        str(folder), columns={"ids": "input_ids", "score": "score", "label": "meta.label"}, chunks_open=chunks_open
    )
    samples = [
        json.loads(line) for path in sorted(os.listdir(folder)) for line in (folder / path).read_text().splitlines()
    ]
    ends = numpy.concatenate([[0], numpy.cumsum(found.chunks)]).astype(int)

    def read(chunk):
        part = samples[ends[chunk] : ends[chunk + 1]]
        return {
            "ids": [numpy.array(sample["input_ids"], numpy.int64) for sample in part],
            "score": numpy.array([sample["score"] for sample in part]),
            "label": numpy.array([sample["meta"]["label"] for sample in part]),
        }

    lengths = [len(sample["input_ids"]) for sample in samples]
    expected = bl.ChunkDataset(found.chunks, read, lengths=lengths, columns=["ids"], chunks_open=chunks_open)
    assert_same_runs(found, expected, batching=rule, shuffle=True, seed=seed)


def test_numbers_lists_and_truth_values_have_their_types(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        [{"n": 1, "x": 1, "flag": True, "v": [1, 2]}, {"n": 2, "x": 2.5, "flag": False, "v": [3.5, 4]}],
    )
    found = bl.open(path, kind="rows")
    (batch,) = bl.DataLoader(found, batch_size=2)
    assert {name: (array.dtype.name, array.shape) for name, array in batch.items()} == {
        "n": ("int64", (2,)),
        "x": ("float64", (2,)),
        "flag": ("bool", (2,)),
        "v": ("float64", (2, 2)),
    }


def test_texts_are_read_line_by_line(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"prompt": f"say {row}", "id": row} for row in range(7)])
    found = bl.open(path)
    (batch,) = bl.DataLoader(found, batch_size=7)
    assert (batch["prompt"], batch["id"].tolist()) == ([f"say {row}" for row in range(7)], list(range(7)))
    chosen = bl.open(path, columns={"text": "prompt"})
    assert chosen[3] == {"text": "say 3"}
    loader = bl.DataLoader(chosen, batch_size=2, shuffle=True)
    assert sorted(text for batch in pickle.loads(pickle.dumps(loader)) for text in batch["text"]) == sorted(
        batch["prompt"]
    )


def _tokens(sample):
    return {"ids": numpy.frombuffer(sample["prompt"].encode(), numpy.uint8)}


def _count(sample):
    return len(sample["prompt"])


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_function_makes_samples_of_lines(tmp_path, workers):
    texts = ["a" * (row % 5 + 1) for row in range(23)]
    path = write(tmp_path / "a.jsonl", [{"prompt": text} for text in texts])
    found = bl.open(path, fn=_tokens, key=_count, workers=workers)
    assert found.sizes.tolist() == [*map(len, texts)]
    loader = bl.DataLoader(found, batching=bl.TokenBudget(10), shuffle=True)
    seen = sorted(length for batch in loader for length in batch["lengths"].tolist())
    assert seen == sorted(map(len, texts))


def test_lines_of_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\n\n  two words \nthree\r\n")
    assert [*bl.open(path)] == ["one", "two words", "three"]
    assert [*bl.open(path, fn=len)] == [3, 9, 5]
    (tmp_path / "b.txt").write_text("\n\n")
    with refused(bl.DataError, str(tmp_path / "b.txt")):
        bl.open(tmp_path / "b.txt")


def test_lines_that_make_no_samples_are_errors_that_name_them(tmp_path):
    path = tmp_path / "a.jsonl"
    for text, *named in [
        ('{"a": 1}\n{"b": 2}\n', "column a", "sample 1"),
        ('{"a": 1}\n{"a": "x"}\n', "sample 1"),
        ('{"a": 1}\n{"a": null}\n', "column a", "nulls="),
        ("[1, 2]\n", "JSON"),
        ("\n", "no lines"),
    ]:
        path.write_text(text)
        with refused(bl.DataError, str(path), *named):
            bl.open(path)
    path.write_text('{"a": 1}\n{"a": null}\n')
    assert [sample["a"] for sample in bl.open(path, nulls={"a": 9})] == [1, 9]
    for nulls in ({"a": []}, {"a": "x"}, {"a": 2**60}, {"b": 1}):
        with refused(bl.ArgumentError, next(iter(nulls))):
            bl.open(path, nulls=nulls)
    path.write_text('{"a": null}\n{"a": 1}\n')
    with refused(bl.DataError, "'a'", str(path), "first line"):
        bl.open(path, nulls={"a": 0})
    path.write_text('{"a": {"b": 1}, "a.b": 2}\n')
    with refused(bl.DataError, "'a.b'", str(path), "twice"):
        bl.open(path)
    path.write_text('{"a": 1}\n')
    with refused(bl.ArgumentError, "b", str(path)):
        bl.open(path, columns=["b"])


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"a": 1}\n{"a": 2}\n{"a": null}\n', ("null", "nulls=")),
        ('{"a": 1}\n{"a": 2}\n{"a": [3]}\n', ("list", "single")),
        ('{"a": 1}\n{"a": 2}\n{"a": true}\n', ("truth values",)),
    ],
    ids=["null", "list", "truth"],
)
def test_a_value_of_another_type_is_named_by_its_file_and_place(tmp_path, text, named):
    first, second = tmp_path / "a-0.jsonl", tmp_path / "a-1.jsonl"
    first.write_text('{"a": 1}\n' * 10)
    second.write_text(text)
    with refused(bl.DataError, f"{second}: column a: sample 2: ", *named):
        bl.open(tmp_path / "a-*.jsonl")


def test_lists_of_another_length_are_named_by_their_file_and_place(tmp_path):
    (tmp_path / "a-0.jsonl").write_text('{"a": [1, 2]}\n' * 10)
    (tmp_path / "a-1.jsonl").write_text('{"a": [1, 2]}\n' * 4 + '{"a": [1]}\n')
    with refused(bl.DataError, f"{tmp_path / 'a-1.jsonl'}: sample 4: ", "1 elements", "2"):
        bl.open(tmp_path / "a-*.jsonl", kind="rows")


def test_lines_with_texts_that_make_no_samples_are_named_by_their_file_and_place(tmp_path):
    first, second = tmp_path / "a-0.jsonl", tmp_path / "a-1.jsonl"
    first.write_text('{"t": "x"}\n' * 3)
    for text, *named in [('{"t": "y"\n', "JSON"), ('{"s": "y"}\n', "'t'"), ("\xff\n", "JSON")]:
        second.write_text('{"t": "x"}\n' + text)
        found = bl.open(tmp_path / "a-*.jsonl")
        with refused(bl.SampleError, f"{second}, the line from byte 11 on", *named):
            list(bl.DataLoader(found, batch_size=2))


def test_a_function_gets_the_columns_that_are_chosen(tmp_path):
    path = write(tmp_path / "a.jsonl")
    found = bl.open(path, columns={"score": "score", "label": "meta.label"}, fn=_identity)
    assert list(found)[7] == {"score": 1.75, "label": 4}
    with refused(bl.ArgumentError, "nulls", "fn"):
        bl.open(path, fn=_identity, nulls={"score": 0})


def test_an_attention_mask_of_ones_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"input_ids": [1] * length, "attention_mask": [1] * length} for length in (3, 1, 2)]
    write(path, rows)
    with pytest.warns(UserWarning, match="attention_mask.*all ones"):
        found = bl.open(path)
    (batch,) = bl.DataLoader(found, batch_size=3)
    assert batch["attention_mask"].sum() == 6
    rows[1]["attention_mask"] = [0]
    write(path, rows)
    with refused(bl.DataError, "attention_mask", "sample 1", str(path), "SequenceDataset"):
        bl.open(path)
    assert len(bl.open(path, columns=["input_ids"])) == 3


def test_a_line_that_changes_is_an_error(tmp_path):
    path = tmp_path / "a.jsonl"
    found = bl.open(write(path, [{"a": row} for row in range(9)]))
    texts = bl.open(path, fn=_identity)
    path.write_text('{"a": 1}\n')
    with refused(bl.DataError, str(path), "expected the"):
        list(bl.DataLoader(found, batch_size=3))
    with refused(bl.SampleError, str(path)):
        list(bl.DataLoader(texts, batch_size=3))


def _identity(sample):
    return sample


def test_an_index_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHLOOM_CACHE", str(tmp_path / "cache"))
    path = write(tmp_path / "a.jsonl")
    seen = [
        torch_seen(bl.DataLoader(bl.open(path, columns=["input_ids"]), batching=bl.TokenBudget(20))) for _ in range(2)
    ]
    assert seen[0] == seen[1]
    assert len(list((tmp_path / "cache").iterdir())) == 1
