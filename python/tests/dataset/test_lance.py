"""Datasets of Lance: fragments or runs of rows as chunks, and whole batches by row numbers, read by Lance itself."""

import batchloom as bl
import numpy
import pyarrow
import pytest

lance = pytest.importorskip("lance", reason="scripts/setup --integrations installs pylance")

WIDTH, FRAGMENT, ROWS, RUN = 8, 300, 1000, 90
X = numpy.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(numpy.float32)
LENGTHS = numpy.arange(ROWS) % 7 + 1
LISTS = [numpy.arange(length, dtype=numpy.int32) + 10 * row for row, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    table = pyarrow.table(
        {
            "x": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(X.reshape(-1)), WIDTH),
            "ids": pyarrow.array(LISTS, pyarrow.list_(pyarrow.int32())),
            "row": numpy.arange(ROWS),
        }
    )
    path = tmp_path_factory.mktemp("lance") / "rows.lance"
    return lance.write_dataset(table, str(path), max_rows_per_file=FRAGMENT, max_rows_per_group=64)


def of_fragments(rows, **options):
    fragments = rows.get_fragments()
    sizes = [fragment.count_rows() for fragment in fragments]
    return bl.ChunkDataset(sizes, lambda chunk: fragments[chunk].to_table(columns=["x", "row"]), **options)


def of_runs(rows, **options):
    sizes = [min(RUN, ROWS - first) for first in range(0, ROWS, RUN)]

    def read(chunk):
        return rows.to_table(columns=["x", "row"], offset=RUN * chunk, limit=RUN)

    return bl.ChunkDataset(sizes, read, **options)


def of_arrays(rows, **options):
    fragments = rows.get_fragments()

    def read(chunk):
        table = fragments[chunk].to_table(columns=["x", "row"])
        flat = table["x"].combine_chunks().flatten().to_numpy()
        return {"x": flat.reshape(-1, WIDTH), "row": table["row"].to_numpy()}

    return bl.ChunkDataset([fragment.count_rows() for fragment in fragments], read, **options)


def require_rows(batches, plan):
    seen = []
    for batch, numbers in zip(batches, plan, strict=True):
        numbers = numpy.asarray(numbers)
        assert batch["row"].tolist() == numbers.tolist()
        assert batch["x"].dtype == numpy.float32
        numpy.testing.assert_array_equal(batch["x"], X[numbers])
        seen += numbers.tolist()
    assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize("make", [of_fragments, of_runs, of_arrays])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_batches_are_the_rows_of_the_plan(rows, make, shuffle, threads):
    dataset = make(rows, chunks_open=2)
    loader = bl.DataLoader(dataset, 64, shuffle=shuffle, num_threads=threads)
    for epoch in range(2):
        plan = loader.plan(epoch)
        require_rows(loader, plan)
    assert dataset.counts.read <= 2 * len(dataset.chunks)


def test_lists_have_the_batches_of_sequences(rows):
    fragments = rows.get_fragments()
    dataset = bl.ChunkDataset(
        [fragment.count_rows() for fragment in fragments],
        lambda chunk: fragments[chunk].to_table(columns=["ids", "row"]),
        lengths=LENGTHS,
        columns=["ids"],
        chunks_open=2,
    )
    seen = []
    for batch in bl.DataLoader(dataset, batching=bl.Packing(64), shuffle=True, num_threads=2):
        ends = batch["cu_seqlens"]
        for place, row in enumerate(batch["row"].tolist()):
            assert batch["ids"][ends[place] : ends[place + 1]].tolist() == LISTS[row].tolist()
            seen.append(row)
    assert sorted(seen) == list(range(ROWS))


def test_a_run_resumes_on_another_number_of_ranks(rows):
    options = {"batch_size": 50, "shuffle": True, "seed": 3, "uneven": "short"}

    def loaders(world):
        return [
            bl.DataLoader(of_fragments(rows, chunks_open=2), **options, rank=rank, world_size=world)
            for rank in range(world)
        ]

    begun, seen = loaders(2), []
    for loader in begun:
        batches = iter(loader)
        seen += [row for _ in range(4) for row in next(batches)["row"].tolist()]
    state = begun[0].state_dict()
    for loader in loaders(3):
        loader.load_state_dict(state)
        seen += [row for batch in loader for row in batch["row"].tolist()]
    assert sorted(seen) == list(range(ROWS))


def test_a_fragment_that_cannot_be_read_is_named(rows):
    fragments = rows.get_fragments()
    dataset = bl.ChunkDataset([FRAGMENT, FRAGMENT], lambda chunk: fragments[chunk + 3].to_table(columns=["x", "row"]))
    with pytest.raises(bl.Error, match="chunk"):
        list(bl.DataLoader(dataset, 64, num_threads=1))


def test_whole_batches_by_row_numbers(rows):
    def read(numbers):
        found = rows.take(numbers, columns=["x", "row"])
        return {
            "x": found["x"].combine_chunks().flatten().to_numpy().reshape(-1, WIDTH),
            "row": found["row"].to_numpy(),
        }

    loader = bl.DataLoader(bl.MapDataset(range(ROWS)), 64, shuffle=True, collate=read, num_threads=2)
    plan = loader.plan(0)
    require_rows(loader, plan)
