"""Files of tokens: shards are one stream, behind headers, of any type of integers."""

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.files import assert_same_runs
from oracles.runs import few
from refusals import refused

TOKENS = numpy.arange(400) * 7 % 251
ends = st.lists(st.integers(0, 400), max_size=5).map(sorted)


def write(folder, places, dtype, header=0):
    for number, tokens in enumerate(numpy.split(TOKENS, places)):
        with open(folder / f"shard-{number}.bin", "wb") as file:
            file.write(b"\7" * header)
            file.write(tokens.astype(dtype).tobytes())
    return folder


@pytest.mark.law("L1", "L2", "L4")
@few
@given(
    places=ends,
    dtype=st.sampled_from(["uint8", "uint16", "int32", "int64"]),
    header=st.sampled_from([0, 3, 1024]),
    mode=st.sampled_from(["chunk", "continuous"]),
)
def test_shards_are_one_stream(tmp_path_factory, places, dtype, header, mode):
    folder = write(tmp_path_factory.mktemp("shards"), places, dtype, header)
    found = bl.open(folder / "*.bin", dtype=dtype, header=header, seq_len=7, mode=mode)
    expected = bl.TokenDataset(TOKENS.astype(dtype), 7, mode=mode)
    if mode == "continuous":
        assert [[part.tolist() for part in batch] for batch in bl.DataLoader(found, 3)] == [
            [part.tolist() for part in batch] for batch in bl.DataLoader(expected, 3)
        ]
    else:
        assert_same_runs(found, expected, batch_size=3, shuffle=True)


def test_documents_are_found_in_shards(tmp_path):
    folder = write(tmp_path, [100, 101, 300], "uint16")
    options = {"seq_len": 9, "documents": 0, "separator": 5, "position_ids": True}
    found, expected = bl.open(folder, dtype="uint16", **options), bl.TokenDataset(TOKENS, **options)
    assert_same_runs(found, expected, batch_size=2, shuffle="documents")


def test_other_kinds_of_tokens(tmp_path):
    """A file of numbers of one type is an array, whatever they stand for."""
    folder = write(tmp_path, [], "uint16")
    rows = bl.open(folder, dtype="uint16", kind="rows")
    assert len(rows) == 400
    named = folder / "shard-0"
    (folder / "shard-0.bin").rename(named)
    assert len(bl.open(named, format="tokens", dtype="uint16", seq_len=100)) == 3


def test_what_tells_no_tokens_is_refused(tmp_path):
    folder = write(tmp_path, [], "uint16")
    path = folder / "shard-0.bin"
    with refused(bl.ArgumentError, "shard-0.bin", "dtype"):
        bl.open(path, seq_len=4)
    with refused(bl.ArgumentError, "seq_len"):
        bl.open(path, dtype="uint16")
    for dtype in ("float32", "nothing", "bool"):
        with refused(bl.DTypeError, "dtype", dtype):
            bl.open(path, dtype=dtype, seq_len=4)
    with refused(bl.DataError, "shard-0.bin", "799", "uint16"):
        bl.open(path, dtype="uint16", seq_len=4, header=1)
    with refused(bl.DataError, "shard-0.bin", "800", "1024"):
        bl.open(path, dtype="uint16", seq_len=4, header=1024)
    with refused(bl.ArgumentError, "header", "-1"):
        bl.open(path, dtype="uint16", seq_len=4, header=-1)


@pytest.mark.parametrize("magic", [20240520, 20240801])
def test_a_header_that_nobody_mentioned(magic, tmp_path):
    header = numpy.zeros(256, numpy.int32)
    header[0] = magic
    path = tmp_path / "a.bin"
    path.write_bytes(header.tobytes() + TOKENS.astype(numpy.uint16).tobytes())
    with refused(bl.ArgumentError, "a.bin", str(magic), "header=1024", "header=0"):
        bl.open(path, dtype="uint16", seq_len=4)
    assert bl.open(path, dtype="uint16", seq_len=4, header=1024)[0][0].tolist() == TOKENS[:4].tolist()
    assert len(bl.open(path, dtype="uint16", seq_len=4, header=0)) == (400 + 512 - 1) // 4
