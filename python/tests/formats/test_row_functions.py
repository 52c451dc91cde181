"""Rows of Parquet and Arrow with texts and with a function, beside the rows that pyarrow itself reads.

Slow and obvious definitions: the rows of all files in order, and a `ChunkDataset` of the same rows in the same chunks.
"""

import itertools
import os
import pickle

import batchloom as bl
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batchloom.formats.table_rows import FieldRows
from hypothesis import given
from hypothesis import strategies as st
from oracles.files import assert_same_runs
from oracles.runs import few
from oracles.selections import torch_seen
from refusals import refused

ROWS = 47
WORDS = [" ".join(["word"] * (row % 5)) + f" {row}" for row in range(ROWS)]
LENGTHS = [row * 5 % 7 for row in range(ROWS)]
TABLE = pa.table(
    {
        "text": WORDS,
        "number": pa.array(range(ROWS), pa.int32()),
        "score": pa.array([row / 4 for row in range(ROWS)], pa.float32()),
        "ids": [list(range(length)) for length in LENGTHS],
        "meta": [{"name": f"n{row}", "rank": row % 3} for row in range(ROWS)],
        "raw": [bytes([row]) for row in range(ROWS)],
    }
)
EXPECTED = TABLE.to_pylist()

cuts = st.lists(st.integers(0, ROWS), max_size=2).map(sorted)
formats = st.sampled_from(["parquet", "arrow"])


def tokenize(row):
    """A tokenizer in small: words as numbers, cut and padded to a length."""
    ids = [len(word) for word in row["text"].split()][:6]
    return {"ids": numpy.array(ids + [0] * (6 - len(ids))), "number": row["number"], "text": row["text"].upper()}


def measure(row):
    """The numbers of a row, as a function of it."""
    return {"number": row["number"], "double": 2.0 * row["number"]}


def as_is(row):
    return row


def count_words(row):
    return len(row["text"].split())


def to_words(row):
    return {"ids": numpy.array([len(word) for word in row["text"].split()]), "number": row["number"]}


def draw(row, rng):
    return {"number": row["number"], "drawn": rng.random()}


def write(folder, kind, places=(), size=5, table=TABLE):
    """Write a table as files that begin at some rows, in row groups or compressed batches; return their paths."""
    paths = []
    for number, (a, b) in enumerate(itertools.pairwise([0, *places, table.num_rows])):
        path, part = folder / f"part-{number}.{kind}", table.slice(a, b - a)
        if kind == "parquet":
            pq.write_table(part, path, row_group_size=size)
        else:
            with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
                writer.write_table(part, max_chunksize=size)
        paths.append(path)
    return [str(path) for path in paths]


def sizes_of(places, size):
    """The rows of each chunk: files are cut in runs of so many."""
    parts = [b - a for a, b in itertools.pairwise([0, *places, ROWS])]
    return [min(size, part - start) for part in parts for start in range(0, part, size)]


def in_chunks(sizes, chunks_open):
    """The numbers of the same rows in the same chunks, which a function reads."""
    firsts = [0, *itertools.accumulate(sizes)]

    def read(chunk):
        numbers = numpy.arange(firsts[chunk], firsts[chunk + 1])
        return {"number": numbers, "double": 2.0 * numbers}

    return bl.ChunkDataset(sizes, read, chunks_open=chunks_open)


@pytest.mark.law("L1", "L2", "L3", "L4", "L5", "L9")
@few
@given(
    kind=formats,
    places=cuts,
    size=st.integers(1, 20),
    chunks_open=st.integers(1, 6),
    order=st.booleans(),
    seed=st.integers(0, 99),
)
def test_an_epoch_of_a_function_of_rows_is_the_epoch_over_chunks(
    tmp_path_factory, kind, places, size, chunks_open, order, seed
):
    files = write(tmp_path_factory.mktemp("files"), kind, places, size)
    found = bl.open(files, fn=measure, chunks_open=chunks_open)
    sizes = sizes_of(places, size)
    assert found.chunks.tolist() == sizes
    assert_same_runs(found, in_chunks(sizes, chunks_open), batch_size=4, shuffle=order, seed=seed)


@pytest.mark.law("L1", "L2", "L3")
@few
@given(
    kind=formats,
    places=cuts,
    size=st.integers(1, 20),
    chunks_open=st.integers(1, 6),
    order=st.booleans(),
    threads=st.integers(1, 3),
    prefetch=st.integers(0, 3),
)
def test_batches_hold_the_rows_of_the_plan(tmp_path_factory, kind, places, size, chunks_open, order, threads, prefetch):
    files = write(tmp_path_factory.mktemp("files"), kind, places, size)
    how = {"batch_size": 4, "shuffle": order, "seed": 3, "num_threads": threads, "prefetch": prefetch}
    made = bl.DataLoader(bl.open(files, fn=tokenize, chunks_open=chunks_open), **how)
    plain = bl.DataLoader(bl.open(files, columns=["text", "score", "raw"], chunks_open=chunks_open), **how)
    for _ in range(2):
        plan, numbers = made.plan(), []
        for step, (one, other) in enumerate(zip(made, plain, strict=True)):
            rows = numpy.asarray(plan[step]).tolist()
            samples = [tokenize(EXPECTED[row]) for row in rows]
            assert one["number"].tolist() == rows
            assert one["text"] == [sample["text"] for sample in samples]
            assert one["ids"].tolist() == [sample["ids"].tolist() for sample in samples]
            assert other["text"] == [WORDS[row] for row in rows]
            assert other["raw"] == [bytes([row]) for row in rows]
            assert other["score"].tolist() == [row / 4 for row in rows]
            assert other["score"].dtype == numpy.float32
            numbers += rows
        assert sorted(numbers) == list(range(ROWS))
        assert order or numbers == list(range(ROWS))


@pytest.mark.law("L4", "L5")
@few
@given(
    with_function=st.booleans(),
    size=st.integers(1, 20),
    chunks_open=st.integers(1, 4),
    worlds=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    data=st.data(),
)
def test_a_run_resumes_at_any_step_on_any_number_of_ranks(
    tmp_path_factory, with_function, size, chunks_open, worlds, data
):
    (path,) = write(tmp_path_factory.mktemp("files"), "parquet", (), size)
    first, second = worlds
    how = {"batch_size": 3, "shuffle": True, "seed": 3, "uneven": "short"}
    options = {"fn": tokenize} if with_function else {"columns": ["number", "text"]}

    def loaders(world):
        return [
            bl.DataLoader(bl.open(path, chunks_open=chunks_open, **options), **how, rank=rank, world_size=world)
            for rank in range(world)
        ]

    def rows(batches):
        return [number for batch in batches for number in batch["number"].tolist()]

    begun = loaders(first)
    taken = data.draw(st.integers(0, min(len(loader) for loader in begun)))
    seen = [row for loader in begun for row in rows(itertools.islice(loader, taken))]
    states = [loader.state_dict() for loader in begun]
    assert all(state == states[0] for state in states)
    if not taken or states[0]["batches"] == 0:
        return
    for loader in loaders(second):
        loader.load_state_dict(states[0])
        seen += rows(loader)
    assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("options", [{"fn": tokenize}, {"columns": ["text", "number"]}])
def test_a_chunk_is_decoded_once_in_an_epoch_and_few_are_held(tmp_path, kind, options):
    table = pa.concat_tables([TABLE] * 20).combine_chunks()
    files = write(tmp_path, kind, (), 20, table)
    dataset = bl.open(files, chunks_open=4, **options)
    loader = bl.DataLoader(dataset, 10, shuffle=True, num_threads=2)
    assert dataset.counts == (0, 0, 0, 0, 0)
    for epoch in range(1, 4):
        assert sum(len(batch["text"]) for batch in loader) == 20 * ROWS
        assert dataset.counts.read == epoch * len(dataset.chunks) == epoch * ROWS
    # The window, three for the blocks ahead, and a chunk for each thread, which is read early.
    assert dataset.counts.most_held <= 4 + 3 + 2
    assert loader.plan().stats()["chunks_read"] == ROWS


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_rows_without_a_function_are_read_by_fields(tmp_path, kind, monkeypatch):
    one_by_one = []
    find = FieldRows.__getitem__
    monkeypatch.setattr(FieldRows, "__getitem__", lambda rows, row: one_by_one.append(row) or find(rows, row))
    found = bl.open(write(tmp_path, kind), columns=["text", "number", "raw"], chunks_open=3)
    loader = bl.DataLoader(found, 4, shuffle=True)
    for _ in range(2):
        for samples, batch in zip(loader.plan(), loader, strict=True):
            assert batch["text"] == [WORDS[row] for row in samples]
            assert batch["raw"] == [bytes([row]) for row in samples]
            assert batch["number"].tolist() == samples.tolist()
    # The first batches, of each thread, show the types of the fields.
    assert len(one_by_one) < ROWS // 2


class Extension(pa.ExtensionType):
    """Texts of a type of the user."""

    def __init__(self):
        super().__init__(pa.string(), "batchloom.tests")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_function_gets_values_of_types_of_the_user(tmp_path, kind):
    pa.register_extension_type(Extension())
    try:
        texts = pa.ExtensionArray.from_storage(Extension(), pa.array(WORDS))
        files = write(tmp_path, kind, table=pa.table({"text": texts, "number": range(ROWS)}))
        (batch,) = bl.DataLoader(bl.open(files, fn=as_is, chunks_open=2), ROWS)
    finally:
        pa.unregister_extension_type("batchloom.tests")
    assert batch["text"] == WORDS


@pytest.mark.parametrize("kind", ["mapped", "compressed", "parquet"])
@pytest.mark.parametrize("damage", ["bytes", "offsets"])
def test_texts_that_are_damaged_name_row_file_and_column(tmp_path, kind, damage):
    data = b"abcd\xff\xfegh" if damage == "bytes" else b"abcdefgh"
    ends = pa.array([0, 2, 4, 6, 8] if damage == "bytes" else [0, 2, 7, 6, 8], pa.int32())
    texts = pa.Array.from_buffers(pa.string(), 4, [None, ends.buffers()[1], pa.py_buffer(data)])
    table = pa.table({"text": texts, "number": range(4)})
    path = tmp_path / f"a.{'parquet' if kind == 'parquet' else 'arrow'}"
    if kind == "parquet":
        if damage == "offsets":
            pytest.skip("Parquet has no offsets")
        pq.write_table(table, path)
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd" if kind == "compressed" else None)
        with pa.ipc.new_file(path, table.schema, options=options) as writer:
            writer.write_table(table)
    found = bl.open(path, **({} if kind == "mapped" else {"chunks_open": 1}))
    with refused(bl.DataError if kind == "mapped" else bl.SampleError, "row 2", str(path), "column text"):
        list(bl.DataLoader(found, 4))


def test_memory_bounds_the_chunks_that_are_held(tmp_path):
    table = pa.table({"text": ["x" * 1000] * 2000, "number": range(2000), "unused": ["y" * 9000] * 2000})
    (path,) = write(tmp_path, "parquet", (), 50, table)
    for options in ({"fn": as_is, "columns": ["text", "number"]}, {"columns": ["text", "number"]}):
        dataset = bl.open(path, memory="600KB", **options)
        # A chunk of these columns has 51 KB; with the third one it would have ten times as much.
        assert dataset.memory == 600_000
        assert 5 <= dataset.chunks_open <= 8
        numbers = [n for batch in bl.DataLoader(dataset, 16, shuffle=True) for n in batch["number"].tolist()]
        assert sorted(numbers) == list(range(2000))
        assert dataset.counts.read == 40
        assert 250_000 <= dataset.counts.most_bytes <= 600_000
    with refused(bl.ArgumentError, "memory", "60000"):
        bl.open(path, memory=60_000, fn=as_is)
    with refused(bl.ArgumentError, "memory", "chunks_open"):
        bl.open(path, memory=60_000, chunks_open=3, fn=as_is)


def test_ranks_decode_chunks_of_their_own(tmp_path):
    (path,) = write(tmp_path, "parquet", (), 2, pa.concat_tables([TABLE] * 4))
    read = 0
    for rank in range(3):
        dataset = bl.open(path, fn=tokenize, chunks_open=3)
        assert sum(1 for _ in bl.DataLoader(dataset, 4, shuffle=True, rank=rank, world_size=3))
        read += dataset.counts.read
    assert read <= 94 + 2 * 3


@pytest.mark.law("L1", "L2", "L4", "L9")
@few
@given(places=cuts, order=st.booleans(), fn=st.sampled_from([tokenize, measure, draw]))
def test_rows_of_mapped_files_are_shuffled_over_all(tmp_path_factory, places, order, fn):
    folder = tmp_path_factory.mktemp("files")
    for number, (a, b) in enumerate(itertools.pairwise([0, *places, ROWS])):
        with pa.ipc.new_file(folder / f"part-{number}.arrow", TABLE.schema) as writer:
            writer.write_table(TABLE.slice(a, b - a), max_chunksize=4)
    found = bl.open(str(folder), fn=fn)
    assert found.chunks is None
    assert_same_runs(found, bl.MapDataset(EXPECTED, fn), batch_size=4, shuffle=order, seed=5)


def test_rows_are_what_datasets_gives(tmp_path):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    data = datasets.Dataset(TABLE)
    for view in (data, data.shuffle(seed=3).select(range(20)), data.select([5, 5, 1]), data.select_columns("text")):
        shown = [*view]
        assert [*bl.open(view, fn=as_is)] == shown
        folder = tmp_path / f"{view._fingerprint}"
        view.save_to_disk(str(folder))
        opened = bl.open(str(folder), fn=as_is)
        assert [*opened] == shown
        assert [*pickle.loads(pickle.dumps(opened))] == shown
        assert [*pickle.loads(pickle.dumps(bl.open(view, fn=as_is)))] == shown
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=7)
    assert [*bl.open(tmp_path / "a.parquet", fn=as_is)] == [*data]
    assert_same_runs(bl.open(data, fn=tokenize), bl.MapDataset(data, tokenize), batch_size=5, shuffle=True, seed=1)
    with refused(bl.ArgumentError, "memory"):
        bl.open(data, fn=as_is, memory="1MB")
    with refused(bl.ArgumentError, "on_error", "mapped"):
        bl.open(data, on_error="skip")


def test_rows_that_are_mapped_have_no_limit_of_memory(tmp_path):
    path = tmp_path / "mapped.arrow"
    with pa.ipc.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
    for options, values in (
        ({"memory": "1MB"}, ("memory", "'1MB'", "fn", "one by one", "expected no memory, or no fn")),
        ({"chunks_open": 3}, ("chunks_open", "mapped", "without chunks")),
    ):
        with refused(bl.ArgumentError, *values):
            bl.open(path, fn=as_is, **options)
    with refused(bl.ArgumentError, "memory", "1000", "map of a file"):
        bl.open(path, fn=as_is).with_memory(1000)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_row_that_is_a_sample_itself_makes_batches(tmp_path, kind):
    found = bl.open(write(tmp_path, kind), fn=as_is, columns=["text", "number"])
    (batch,) = bl.DataLoader(found, ROWS)
    assert batch["text"] == WORDS
    assert batch["number"].tolist() == list(range(ROWS))
    named = bl.open(write(tmp_path, kind), fn=as_is, columns={"a": "text", "b": "text"})
    assert named[3] == {"a": WORDS[3], "b": WORDS[3]}
    assert named[-1]["a"] == WORDS[-1]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("rule", [bl.TokenBudget(9), bl.Packing(9), bl.LengthBuckets(4)])
def test_sizes_are_counted_in_one_pass(tmp_path, kind, rule):
    files = write(tmp_path, kind, (11,), 4)
    found = bl.open(files, fn=to_words, key=count_words, chunks_open=3)
    expected = [count_words(row) for row in EXPECTED]
    assert found.sizes.tolist() == expected
    by_sizes = bl.open(files, fn=to_words, sizes=expected, chunks_open=3)
    loaders = [bl.DataLoader(each, batching=rule, shuffle=True) for each in (found, by_sizes)]
    assert torch_seen(loaders[0]) == torch_seen(loaders[1])
    by_column = bl.open(files, fn=to_words, key=lambda row: row["number"], chunks_open=3)
    assert by_column.sizes.tolist() == list(range(ROWS))
    with refused(bl.ArgumentError, "sizes", "'number'", "key=lambda row: row['number']"):
        bl.open(files, fn=to_words, sizes="number")


@pytest.mark.law("L1", "L6")
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_texts_stand_beside_lists(tmp_path, kind):
    files = write(tmp_path, kind, (20,), 6)
    found = bl.open(files, columns=["text", "ids", "number"], chunks_open=3)
    assert found.sizes.tolist() == LENGTHS
    seen = {}
    for batch in bl.DataLoader(found, batching=bl.TokenBudget(12), shuffle=True):
        for place, row in enumerate(batch["number"].tolist()):
            seen[row] = (batch["text"][place], batch["ids"][place, : batch["lengths"][place]].tolist())
    assert seen == {row: (WORDS[row], list(range(LENGTHS[row]))) for row in range(ROWS)}
    (batch,) = bl.DataLoader(bl.open(files, columns={"name": "meta.name", "x": ["score"]}, chunks_open=2), ROWS)
    assert batch["name"] == [f"n{row}" for row in range(ROWS)]
    assert batch["x"].tolist() == [[row / 4] for row in range(ROWS)]


def test_random_numbers_of_a_row_are_its_own(tmp_path):
    (path,) = write(tmp_path, "parquet")

    def drawn(loader):
        return {
            int(n): float(x)
            for batch in loader
            for n, x in zip(batch["number"].tolist(), batch["drawn"].tolist(), strict=True)
        }

    one = bl.DataLoader(bl.open(path, fn=draw, chunks_open=2), 4, shuffle=True, seed=2)
    other = bl.DataLoader(bl.open(path, fn=draw, chunks_open=9), 7, shuffle=True, seed=2, num_threads=3)
    memory = bl.DataLoader(bl.MapDataset(EXPECTED, draw), 7, shuffle=True, seed=2)
    first = drawn(one)
    assert first == drawn(other) == drawn(memory)
    assert first != drawn(one)


@pytest.mark.law("L8")
@pytest.mark.parametrize("with_function", [True, False])
def test_a_row_group_that_cannot_be_read_is_an_error_that_names_it(tmp_path, with_function):
    path = tmp_path / "a.parquet"
    how = {"row_group_size": 7, "compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
    pq.write_table(TABLE, path, **how)
    options = {"fn": measure, "columns": ["number"]} if with_function else {"columns": ["number", "text"]}
    found = bl.open(path, chunks_open=2, **options)
    loader = bl.DataLoader(found, 5, shuffle=True)
    whole = [batch["number"].tolist() for batch in loader]
    contents = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(3).column(1)
    assert column.path_in_schema == "number"
    start = column.data_page_offset + 2
    times = os.stat(path)

    def exchange():
        contents[start] ^= 255
        path.write_bytes(contents)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    exchange()
    with refused(bl.SampleError, "row group 3", str(path)):
        list(loader)
    loader.load_state_dict(loader.state_dict())
    skips = bl.DataLoader(bl.open(path, chunks_open=2, on_error="skip", **options), 5, shuffle=True)
    lost = [n for batch in skips for n, weight in zip(batch["number"].tolist(), batch["weight"], strict=True) if weight]
    assert sorted(lost) == [row for row in range(ROWS) if row // 7 != 3]
    if with_function:
        small = bl.open(path, memory="1MB", on_error="skip", **options)
        assert small.chunks_open == 7
    exchange()
    again = bl.DataLoader(found, 5, shuffle=True)
    assert [batch["number"].tolist() for batch in again] == whole


def test_a_file_that_changes_is_an_error(tmp_path):
    (path,) = write(tmp_path, "parquet")
    found = bl.open(path, fn=tokenize)
    pq.write_table(TABLE.slice(1), path, row_group_size=5)
    with refused(bl.SampleError, "changed", path):
        list(bl.DataLoader(found, 5))


@pytest.mark.law("L8")
def test_samples_that_fail_are_skipped_and_banned(tmp_path):
    def fails(row):
        if row["number"] % 10 == 3:
            raise ValueError(f"bad {row['number']}")
        return measure(row)

    (path,) = write(tmp_path, "parquet")
    skips = bl.DataLoader(bl.open(path, fn=fails, on_error="skip", chunks_open=2), 6, shuffle=True, ban=[0, 8])
    kept = [n for batch in skips for n, w in zip(batch["number"].tolist(), batch["weight"].tolist(), strict=True) if w]
    assert sorted(kept) == [row for row in range(ROWS) if row % 10 != 3 and row not in (0, 8)]
    assert sorted(sample for sample, *_ in skips.skipped) == [3, 13, 23, 33, 43]


def test_what_a_function_does_wrong_names_the_file_and_the_row(tmp_path):
    def fails(row):
        raise ValueError("no such word")

    parquet, other = write(tmp_path, "parquet", (20,))
    for source, name, row in ((parquet, parquet, 0), (other, other, 0), ([parquet, other], parquet, 0)):
        with refused(bl.SampleError, f"row {row} of {name}", "ValueError", "no such word"):
            list(bl.DataLoader(bl.open(source, fn=fails), 4))
    with refused(bl.SampleError, f"row 2 of {other}", "ValueError"):
        bl.open([parquet, other], fn=fails)[22]
    with refused(bl.SampleError, f"row 0 of {parquet}", "None"):
        list(bl.DataLoader(bl.open(parquet, fn=lambda row: None), 4))
    arrow = tmp_path / "a.arrow"
    with pa.ipc.new_file(arrow, TABLE.schema) as writer:
        writer.write_table(TABLE)
    with refused(bl.SampleError, f"row 3 of {arrow}", "ValueError"):
        bl.open(arrow, fn=fails)[3]


def test_nulls_are_none_or_what_stands_for_them(tmp_path):
    table = pa.table(
        {
            "text": ["a", None, "c"],
            "ids": [[1, None], None, [3]],
            "number": pa.array([0, 1, None], pa.int64()),
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=2)
    assert [*bl.open(path, fn=as_is)] == table.to_pylist()
    filled = bl.open(path, fn=as_is, nulls={"text": "?", "ids": 0, "number": -1})
    assert [row["text"] for row in filled] == ["a", "?", "c"]
    assert [row["ids"] for row in filled] == [[1, 0], 0, [3]]
    assert [row["ids"] for row in bl.open(path, fn=as_is, nulls={"ids": []})] == [[1, None], [], [3]]
    for column, row in (("text", "row 1 of row group 0"), ("number", "row 0 of row group 1")):
        with refused(bl.DataError, repr(column), row, str(path)):
            bl.open(
                path,
                columns=[column, "text"] if column == "number" else ["text"],
                chunks_open=2,
                nulls={"text": ""} if column == "number" else None,
            )
    texts = bl.open(path, columns=["text", "number"], nulls={"text": "", "number": 7}, chunks_open=2)
    assert [row["text"] for row in texts] == ["a", "", "c"]
    with refused(bl.ArgumentError, "'nope'", str(path)):
        bl.open(path, fn=as_is, nulls={"nope": 1})


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_options_that_make_no_sense_are_refused(tmp_path, kind):
    first, other = write(tmp_path, kind, (20,))
    with refused(bl.ArgumentError, "'nope'", first, "'text'"):
        bl.open(first, fn=tokenize, columns=["nope"])
    with refused(bl.ArgumentError, "kind", "'rows'", "fn"):
        bl.open(first, fn=tokenize, kind="rows")
    with refused(bl.ArgumentError, "'both'", "fn"):
        bl.open(first, fn=tokenize, columns={"both": ["text", "number"]})
    with refused(bl.ArgumentError, "processes", "threads", "chunk"):
        bl.open(first, fn=tokenize, workers="processes")
    with refused(TypeError, "seq_len"):
        bl.open(first, fn=tokenize, seq_len=3)
    with refused(bl.ArgumentError, "order"):
        bl.DataLoader(bl.open(first, fn=tokenize).select([5, 3]))
    assert len(bl.open(first, fn=tokenize).concat(bl.open(other, fn=tokenize))) == ROWS
    (tmp_path / "other").mkdir()
    (changed,) = write(tmp_path / "other", kind, (), 5, TABLE.set_column(1, "number", pa.array([0.5] * ROWS)))
    with refused(bl.DTypeError, "'number'", first, changed):
        bl.open([first, changed], fn=tokenize)
    assert len(bl.open([first, changed], fn=as_is, columns=["text"])) == 20 + ROWS


def test_a_selection_keeps_its_chunks(tmp_path):
    (path,) = write(tmp_path, "parquet", (), 5)
    train, val = bl.open(path, fn=measure, chunks_open=2).split(train=0.8, val=None)
    for part in (train, val):
        numbers = [n for batch in bl.DataLoader(part, 4, shuffle=True) for n in batch["number"].tolist()]
        assert sorted(numbers) == part.indices.tolist()
    assert sorted([*train.indices, *val.indices]) == list(range(ROWS))


@pytest.mark.parametrize("mapped", [True, False])
def test_a_dataset_pickles_by_its_files(tmp_path, mapped):
    path = tmp_path / ("a.arrow" if mapped else "a.parquet")
    if mapped:
        with pa.ipc.new_file(path, TABLE.schema) as writer:
            writer.write_table(TABLE)
    else:
        pq.write_table(TABLE, path, row_group_size=5)
    found = bl.open(path, fn=tokenize, **({} if mapped else {"chunks_open": 3}))
    kept = pickle.dumps(found)
    assert len(kept) < 2000
    again = pickle.loads(kept)
    assert again.chunks_open == found.chunks_open
    assert torch_seen(bl.DataLoader(again, 4, shuffle=True)) == torch_seen(bl.DataLoader(found, 4, shuffle=True))


def test_processes_make_samples_of_mapped_rows(tmp_path):
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, TABLE.schema) as writer:
        writer.write_table(TABLE)
    threads, processes = (bl.open(path, fn=tokenize, workers=workers) for workers in ("threads", "processes"))
    assert torch_seen(bl.DataLoader(processes, 6, shuffle=True)) == torch_seen(bl.DataLoader(threads, 6, shuffle=True))


def test_a_function_of_whole_batches_gets_rows(tmp_path):
    (path,) = write(tmp_path, "parquet", (), 5)

    def collate(rows):
        return {"length": max(len(row["text"]) for row in rows), "number": numpy.array([row["number"] for row in rows])}

    loader = bl.DataLoader(bl.open(path, fn=as_is, chunks_open=3), 4, shuffle=True, collate=collate)
    numbers = [n for batch in loader for n in batch["number"].tolist()]
    assert sorted(numbers) == list(range(ROWS))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_value_that_python_has_none_for_names_its_row(tmp_path, kind):
    times = pa.array([0, 1, 2**48, 3], pa.timestamp("ms"))
    path = str(tmp_path / f"times.{kind}")
    if kind == "parquet":
        pq.write_table(pa.table({"time": times}), path, row_group_size=3)
    else:
        with pa.ipc.new_file(path, pa.schema({"time": times.type})) as file:
            file.write_table(pa.table({"time": times}))
    loader = bl.DataLoader(bl.open(path, fn=lambda row: str(row["time"])), 4)
    with refused(bl.SampleError, "sample 2 could not be read", f"row 2 of {path}", "field time", "OverflowError"):
        list(loader)
