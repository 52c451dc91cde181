"""Corpora of Megatron: sequences and streams, several corpora, and indices that lie."""

import itertools
import struct

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.files import assert_same_runs, damaged
from oracles.runs import few
from refusals import refused

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}


def write(stem, sequences, dtype="uint16", documents=None, modes=b""):
    """Write a corpus as Megatron lays it out; a document is one sequence by default."""
    arrays = [numpy.array(sequence, dtype) for sequence in sequences]
    lengths = numpy.array([len(each) for each in arrays], numpy.int32)
    ends = numpy.cumsum(lengths, dtype=numpy.int64) * numpy.dtype(dtype).itemsize
    places = numpy.concatenate([[0], ends[:-1]]).astype(numpy.int64)[: len(arrays)]
    bounds = numpy.arange(len(arrays) + 1) if documents is None else numpy.array(documents)
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, CODES[dtype], len(arrays), len(bounds))
    parts = [lengths, places, bounds.astype(numpy.int64)]
    stem.with_suffix(".idx").write_bytes(header + b"".join(part.tobytes() for part in parts) + modes)
    stem.with_suffix(".bin").write_bytes(b"".join(each.tobytes() for each in arrays))
    return stem


SEQUENCES = [[100 * k + place for place in range((3 * k) % 5)] for k in range(20)]
corpora = st.lists(st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=8), min_size=1, max_size=3)


@pytest.mark.law("L1", "L2", "L4", "L6")
@few
@given(corpora=corpora, dtype=st.sampled_from(["uint8", "uint16", "int32"]))
def test_sequences_of_corpora_are_the_sequences_in_memory(tmp_path_factory, corpora, dtype):
    folder = tmp_path_factory.mktemp("corpora")
    for number, sequences in enumerate(corpora):
        write(folder / f"corpus-{number}", sequences, dtype)
    found = bl.open(folder)
    expected = bl.SequenceDataset(input_ids=[numpy.array(each, dtype) for sequences in corpora for each in sequences])
    assert_same_runs(found, expected, batching=bl.TokenBudget(12), shuffle=True)


@pytest.mark.law("L1", "L2", "L4")
@few
@given(corpora=corpora, bounds=st.lists(st.integers(0, 8), max_size=4).map(sorted))
def test_streams_of_corpora_know_their_documents(tmp_path_factory, corpora, bounds):
    folder = tmp_path_factory.mktemp("corpora")
    documents = []
    for number, sequences in enumerate(corpora):
        inner = [0, *(min(bound, len(sequences)) for bound in bounds), len(sequences)]
        write(folder / f"corpus-{number}", sequences, documents=inner)
        documents += [list(itertools.chain(*sequences[a:b])) for a, b in itertools.pairwise(inner)]
    tokens = [numpy.array(document, numpy.uint16) for document in documents]
    options = {"seq_len": 3, "separator": 7, "position_ids": True, "tail": "pad"}
    if sum(map(len, tokens)) + len(tokens) < 4:
        return
    found, expected = bl.open(folder / "*.bin", **options), bl.TokenDataset(tokens, **options)
    assert_same_runs(found, expected, batch_size=2, shuffle="documents")


def test_a_corpus_goes_by_any_of_its_names(tmp_path):
    stem = write(tmp_path / "corpus_text_document", SEQUENCES)
    for name in (stem, f"{stem}.bin", f"{stem}.idx", tmp_path, tmp_path / "corpus*"):
        found = bl.open(name)
        assert [found[k]["input_ids"].tolist() for k in range(20)] == SEQUENCES
    assert len(bl.open(f"{stem}.bin", format="tokens", dtype="uint16", kind="rows")) == sum(map(len, SEQUENCES))


def test_kinds_and_options_of_a_corpus(tmp_path):
    stem = write(tmp_path / "corpus", SEQUENCES)
    assert isinstance(bl.open(stem, kind="tokens", seq_len=4, documents=None), bl.TokenDataset)
    with refused(bl.ArgumentError, "'rows'", "corpus.idx", "'tokens'"):
        bl.open(stem, kind="rows")
    with refused(bl.ArgumentError, "columns", "corpus.idx"):
        bl.open(stem, columns=["input_ids"])
    with refused(bl.ArgumentError, "dtype", "Megatron"):
        bl.open(stem, dtype="uint16")


def test_corpora_of_several_types_are_refused(tmp_path):
    write(tmp_path / "a", SEQUENCES)
    write(tmp_path / "b", SEQUENCES, "int32")
    with refused(bl.DTypeError, "a.bin", "b.bin", "uint16", "int32"):
        bl.open(tmp_path)


def changed(contents, place, value):
    return contents[:place] + value + contents[place + len(value) :]


@pytest.mark.parametrize(
    ("change", "values"),
    [
        (lambda idx: idx[:20], ["20", "34"]),
        (lambda idx: idx[:-1], ["sequences"]),
        (lambda idx: changed(idx, 9, struct.pack("<Q", 2)), ["version 2"]),
        (lambda idx: changed(idx, 17, b"\x09"), ["code 9"]),
        (lambda idx: changed(idx, 18, struct.pack("<Q", 2**60)), [str(2**60)]),
        (lambda idx: changed(idx, 34, struct.pack("<i", -4)), ["sequence 0", "negative"]),
        (lambda idx: changed(idx, 34, struct.pack("<i", 4)), ["sequence 1"]),
        (lambda idx: changed(idx, 34 + 80 + 8, struct.pack("<q", 2)), ["sequence 1", "2"]),
        (lambda idx: changed(idx, len(idx) - 8, struct.pack("<q", 30)), ["documents", "20"]),
        (lambda idx: changed(idx, len(idx) - 16, struct.pack("<q", 30)), ["documents"]),
        (lambda idx: idx + b"\1" * 20, ["modes"]),
    ],
)
def test_indices_that_lie(tmp_path, change, values):
    stem = write(tmp_path / "corpus", SEQUENCES)
    index = stem.with_suffix(".idx")
    index.write_bytes(change(index.read_bytes()))
    with refused(bl.DataError, "corpus.idx", *values):
        bl.open(stem)


def test_files_that_do_not_belong_together(tmp_path):
    stem = write(tmp_path / "corpus", SEQUENCES)
    size = stem.with_suffix(".bin").stat().st_size
    with open(stem.with_suffix(".bin"), "ab") as file:
        file.write(b"\0\0")
    with refused(bl.DataError, "corpus.bin", "corpus.idx", str(size), str(size + 2)):
        bl.open(stem)
    stem.with_suffix(".bin").unlink()
    with refused(bl.DataError, "corpus.idx", "corpus.bin"):
        bl.open(stem)
    write(tmp_path / "floats", [[1.0]], "float32")
    with refused(bl.DTypeError, "floats.idx", "float32"):
        bl.open(tmp_path / "floats")


@given(place=st.floats(0, 1), byte=st.integers(0, 255), length=st.floats(0.5, 1) | st.just(1.0))
def test_a_damaged_index_opens_or_is_a_typed_error(tmp_path_factory, place, byte, length):
    stem = write(tmp_path_factory.mktemp("damaged") / "corpus", SEQUENCES)
    index = stem.with_suffix(".idx")
    index.write_bytes(damaged(index.read_bytes(), place, byte, length))
    try:
        found = str(len(list(bl.DataLoader(bl.open(stem), 4))))
    except bl.Error as error:
        found = str(error)
    assert found
