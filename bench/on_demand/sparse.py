"""Batches of a sparse matrix, made dense or left in compressed rows.

16 384 rows of 30 000 columns, 3 % of them filled with float32, 256 rows a batch, shuffled, on the CPU, loop body
``pass``. Promises:

- Peers are told the batches, and before anything is timed every value of an epoch was compared with batchloom's.
- batchloom runs with its defaults, and beside them with one thread. SciPy has one.
- The copy is torch's, on all its threads, of as many bytes as an epoch of batchloom's batches has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import batchloom
import numpy
import torch
from scipy import sparse

from bench.harness.claims import all_slower
from bench.harness.measure import COPY, LOOM, Candidate, exhaust, interleave
from bench.harness.report import report

ROWS, COLUMNS, DENSITY, BATCH = 16_384, 30_000, 0.03, 256
ONE_THREAD = "batchloom, one thread"
TO_ARRAY, ROWS_OF = "SciPy: X[rows].toarray()", "SciPy: X[rows]"
ADDED = "torch: to_dense of SciPy's rows"

Matrix = Any
Epoch = Callable[[], Iterable[Any]]


def loom(matrix: Matrix, layout: str, output: str, threads: int | None = None) -> Epoch:
    """Use batchloom: the same epoch again and again."""
    dataset = batchloom.TensorDataset(batchloom.SparseRows(matrix, layout=layout))
    loader = batchloom.DataLoader(dataset, BATCH, shuffle=True, output=output, num_threads=threads)

    def epoch() -> Iterable[Any]:
        loader.set_epoch(0)
        return (batch for (batch,) in loader)

    return epoch


def rows_of(matrix: Matrix, batches: list[Any]) -> Iterator[Any]:
    """Take the rows of each batch, by SciPy."""
    return (matrix[batch] for batch in batches)


def to_array(matrix: Matrix, batches: list[Any]) -> Iterator[Any]:
    """Take the rows of each batch, and make them dense, by SciPy."""
    return (rows.toarray() for rows in rows_of(matrix, batches))


def to_dense(matrix: Matrix, batches: list[Any]) -> Iterator[Any]:
    """Take the rows of each batch by SciPy, and make them dense by torch."""
    for rows in rows_of(matrix, batches):
        parts = (torch.from_numpy(part) for part in (rows.indptr, rows.indices, rows.data))
        yield torch.sparse_csr_tensor(*parts, rows.shape, check_invariants=False).to_dense()


def check(name: str, found: Iterable[Any], expected: Iterable[Any]) -> None:
    """Refuse a way that makes other batches.

    Raises:
        AssertionError: It does.
    """
    for batch, other in zip(found, expected, strict=True):
        same = (batch != other).nnz == 0 if sparse.issparse(batch) else numpy.array_equal(batch, other)
        assert same, f"{name} makes other batches"


def copying(size: int) -> Candidate:
    """Copy so many bytes, a batch of dense rows at a time, into memory that was written before."""
    source = torch.ones(BATCH * COLUMNS)
    target = source.clone()
    whole, rest = divmod(size // source.itemsize, len(source))

    def run() -> None:
        for _ in range(whole):
            target.copy_(source)
        target[:rest].copy_(source[:rest])

    return Candidate(COPY, run, {"torch_threads": torch.get_num_threads(), "bytes": size})


def measure(scale: float, rounds: int) -> list[dict[str, Any]]:
    """Run both layouts."""
    rows = max(round(ROWS * scale), BATCH)
    matrix = sparse.random_array(
        (rows, COLUMNS), density=DENSITY, format="csr", dtype=numpy.float32, rng=numpy.random.default_rng(0)
    )
    loader = batchloom.DataLoader(batchloom.TensorDataset(matrix), BATCH, shuffle=True)
    batches = [batch.astype(numpy.int64) for batch in loader.plan(0)]
    dense: dict[str, Epoch] = {
        LOOM: loom(matrix, "dense", "numpy"),
        ONE_THREAD: loom(matrix, "dense", "numpy", threads=1),
        TO_ARRAY: partial(to_array, matrix, batches),
        ADDED: partial(to_dense, matrix, batches),
    }
    compressed: dict[str, Epoch] = {
        LOOM: loom(matrix, "csr", "numpy"),
        ONE_THREAD: loom(matrix, "csr", "numpy", threads=1),
        ROWS_OF: partial(rows_of, matrix, batches),
    }
    entry = matrix.indices.itemsize + matrix.data.itemsize
    return [
        _case("sparse rows, made dense", dense, rows * COLUMNS * 4, {TO_ARRAY: 1.5}, rows, rounds),
        _case("sparse rows, compressed", compressed, matrix.nnz * entry, {}, rows, rounds),
    ]


def _case(
    name: str, ways: dict[str, Epoch], size: int, bounds: dict[str, float], rows: int, rounds: int
) -> dict[str, Any]:
    """Check and time the ways of one layout."""
    for way in ways.keys() - {LOOM}:
        check(way, ways[way](), ways[LOOM]())
    candidates = [Candidate(way, lambda epoch=epoch: exhaust(epoch())) for way, epoch in ways.items()]
    timings = interleave(name, [copying(size), *candidates], rounds)
    claims = all_slower(name, timings, bounds)
    facts = {"rows": rows, "columns": COLUMNS, "density": DENSITY, "batch_size": BATCH}
    return {"workload": name, **facts, **report(name, timings, claims, {"torch threads": "torch_threads"})}
