"""Whole batches by row numbers: a function that gets all row numbers of a batch reads the rows by one call.

Rows lie in a table that takes rising numbers alone, as h5py does, in a file of h5py itself, and in a database.
"""

import itertools
import sqlite3

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.runs import few, resume_after

ROWS = numpy.random.default_rng(0).normal(size=(200, 4)).astype(numpy.float32)


class Rising:
    """A table that reads many rows at once, in rising order and each once."""

    def __init__(self, rows=ROWS):
        self.rows, self.calls = rows, 0

    def __getitem__(self, numbers):
        assert (numpy.diff(numbers) > 0).all(), "rows are read in rising order"
        self.calls += 1
        return self.rows[numbers]


class ReadRows:
    """A function that gets all row numbers of a batch, as the guide writes it."""

    def __init__(self, table):
        self.table = table

    def __call__(self, numbers):
        rows, places = numpy.unique(numbers, return_inverse=True)
        return {"x": self.table[rows][places], "row": numpy.array(numbers)}


def open_rows(table, samples=200, *, batch_size=16, workers="threads", **options):
    index = bl.MapDataset(range(samples), workers=workers)
    return bl.DataLoader(index, batch_size, collate=ReadRows(table), **options)


def require_rows(batches, plan, rows=ROWS):
    for batch, numbers in zip(batches, plan, strict=True):
        assert batch["row"].tolist() == numpy.asarray(numbers).tolist()
        numpy.testing.assert_array_equal(batch["x"], rows[numpy.asarray(numbers)])


@pytest.mark.law("L1", "L2")
@few
@given(
    samples=st.integers(1, 60),
    batch_size=st.integers(1, 9),
    shuffle=st.booleans(),
    seed=st.integers(0, 9),
    threads=st.integers(1, 3),
)
def test_batches_are_the_rows_of_the_plan_in_its_order(samples, batch_size, shuffle, seed, threads):
    options = {"batch_size": batch_size, "shuffle": shuffle, "seed": seed, "num_threads": threads}
    loader = open_rows(Rising(), samples, **options)
    for epoch in range(2):
        plan = loader.plan(epoch)
        require_rows(loader, plan)
        assert sorted(itertools.chain.from_iterable(plan)) == list(range(samples))


def test_a_batch_is_one_call():
    table = Rising()
    assert len(list(open_rows(table, shuffle=True, num_threads=3))) == table.calls == 13


def test_rows_that_a_batch_holds_twice_are_read_once():
    weights = numpy.where(numpy.arange(len(ROWS)) < 5, 100.0, 0.01)
    loader = open_rows(Rising(), weights=weights, shuffle=True, seed=1)
    batches = list(loader)
    assert any(len(set(batch["row"].tolist())) < len(batch["row"]) for batch in batches)
    require_rows(batches, loader.plan(0))


@pytest.mark.law("L4")
def test_runs_resume_and_ranks_share_an_epoch():
    whole = list(open_rows(Rising(), shuffle=True))
    for step in range(len(whole)):
        rest = resume_after(lambda: open_rows(Rising(), shuffle=True), step)
        assert [batch["row"].tolist() for batch in rest] == [batch["row"].tolist() for batch in whole[step:]]
    ranks = [open_rows(Rising(), shuffle=True, uneven="short", rank=rank, world_size=3) for rank in range(3)]
    seen = [row for loader in ranks for batch in loader for row in batch["row"].tolist()]
    assert sorted(seen) == list(range(len(ROWS)))


def test_rules_by_size_choose_the_rows():
    sizes = 1 + numpy.arange(len(ROWS)) % 7
    index = bl.MapDataset(range(len(ROWS)), sizes=sizes)
    loader = bl.DataLoader(index, batching=bl.TokenBudget(40), shuffle=True, collate=ReadRows(Rising()))
    plan = loader.plan(0)
    require_rows(loader, plan)
    assert all(len(numbers) * sizes[numpy.asarray(numbers)].max() <= 40 for numbers in plan)


def test_a_file_of_h5py(tmp_path):
    h5py = pytest.importorskip("h5py", reason="scripts/setup --integrations installs it")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("x", data=ROWS, chunks=(50, 4))
    with h5py.File(tmp_path / "rows.h5") as file:
        loader = open_rows(file["x"], shuffle=True, num_threads=2)
        plan = loader.plan(0)
        require_rows(loader, plan)


class Database:
    """The rows of a database; it pickles by its path, and each call has a connection."""

    def __init__(self, path):
        self.path = path

    def __getitem__(self, numbers):
        query = f"SELECT a, b, c, d FROM rows WHERE id IN ({','.join('?' * len(numbers))}) ORDER BY id"
        with sqlite3.connect(self.path) as database:
            return numpy.array(database.execute(query, numbers.tolist()).fetchall(), numpy.float32)


@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_a_database(tmp_path, workers):
    with sqlite3.connect(tmp_path / "rows.db") as database:
        database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, a REAL, b REAL, c REAL, d REAL)")
        database.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, ?, ?)", ((number, *row.tolist()) for number, row in enumerate(ROWS))
        )
    loader = open_rows(Database(tmp_path / "rows.db"), shuffle=True, workers=workers, num_threads=2)
    plan = loader.plan(0)
    require_rows(loader, plan)
