"""Measure rows that are read a chunk at a time, from files of NumPy, HDF5 and Zarr.

Each part sets a ``ChunkDataset`` beside pools of as many chunks by hand; HDF5 and Zarr also beside torch's loader, row
by row, and NumPy beside the map of the file, shuffled whole. Promises:

- Batches of batchloom were compared with the rows of the file before anything is timed.
- All candidates read the same file by the same function, chunk by chunk or row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
from torch.utils.data import DataLoader, Dataset

from bench.harness.claims import Claim
from bench.harness.measure import LOOM, Candidate, interleave
from bench.harness.report import report
from bench.storage.peers import BATCH, PER_BATCH, ROWS, SEED, WIDTH, epoch, peer

OPEN = 16
POOLS, WHOLE, BY_ROW = "pools by hand", "the map, shuffled whole", "torch DataLoader, two workers"


class Rows(Dataset[Any]):
    """The rows of a file, one by one, which each process opens for itself."""

    def __init__(self, open_file: Callable[[], Any], count: int) -> None:
        self.open_file, self.count, self.file = open_file, count, None

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.count

    def __getitem__(self, row: int) -> Any:
        """Return a row."""
        self.file = self.open_file() if self.file is None else self.file
        return self.file[row]


def rows_of(scale: float) -> Any:
    """Return the rows, a whole number of chunks."""
    count = max(round(ROWS * scale) // PER_BATCH, OPEN) * PER_BATCH
    return numpy.random.default_rng(SEED).random((count, WIDTH), numpy.float32)


def looms(table: Any, values: Any) -> tuple[bl.ChunkDataset, list[Candidate]]:
    """Return batchloom over the chunks of a table, and pools by hand."""

    def read(chunk: int) -> Any:
        return numpy.array(table[PER_BATCH * chunk : PER_BATCH * (chunk + 1)])

    def by_hand() -> None:
        order = numpy.random.default_rng(SEED)
        chunks = order.permutation(len(values) // PER_BATCH)
        for first in range(0, len(chunks), OPEN):
            pool = numpy.concatenate([read(chunk) for chunk in chunks[first : first + OPEN]])
            places = order.permutation(len(pool))
            for start in range(0, len(pool), BATCH):
                pool[places[start : start + BATCH]]

    dataset = bl.ChunkDataset([PER_BATCH] * (len(values) // PER_BATCH), read, chunks_open=OPEN)
    loader = bl.DataLoader(dataset, BATCH, shuffle=True)
    for step, batch in enumerate(loader):
        assert numpy.array_equal(batch, values[loader.plan(0)[step]])
    return dataset, [Candidate(LOOM, epoch(loader)), Candidate(POOLS, by_hand)]


def measure(part: str, table: Any, values: Any, others: list[Candidate], rounds: int, bar: str) -> dict[str, Any]:
    """Measure batchloom and pools beside others."""
    dataset, candidates = looms(table, values)
    timings = interleave(part, candidates + others, rounds)
    claims = [Claim.of_ratio(f"{part}: pools by hand, times batchloom's", timings[POOLS], timings[LOOM], ">=", 0.7)]
    if BY_ROW in timings:
        claims.append(Claim.of_ratio(f"{part}: torch, times batchloom's", timings[BY_ROW], timings[LOOM], ">=", 100))
    if WHOLE in timings:
        claims.append(Claim.of_ratio(f"{part}: the map, times batchloom's", timings[WHOLE], timings[LOOM], ">=", 0.6))
    counts = dataset.counts
    facts = {"part": part, "rows": len(values), "chunks_read": counts.read, "most_held": counts.most_held}
    return {**facts, "most_bytes": counts.most_bytes, **report(part, timings, claims, {}, bar=(bar, bar))}


def measure_npy(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure a file of NumPy."""
    values = rows_of(scale)
    numpy.save(folder / "x.npy", values)
    table = numpy.load(folder / "x.npy", mmap_mode="r")
    whole = Candidate(WHOLE, epoch(bl.DataLoader(bl.TensorDataset(table), BATCH, shuffle=True)))
    return measure("chunks", table, values, [whole], rounds, WHOLE)


def measure_hdf5(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure a compressed file of HDF5."""
    import h5py

    values = rows_of(scale / 4)
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(PER_BATCH, WIDTH), compression="gzip", compression_opts=1)

    def open_file() -> Any:
        return h5py.File(folder / "x.h5")["x"]

    by_row = DataLoader(Rows(open_file, len(values)), BATCH, shuffle=True, num_workers=2)
    others = [peer(BY_ROW, by_row, len(values) // BATCH, 10)]
    return measure("hdf5", open_file(), values, others, rounds, POOLS)


def measure_zarr(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure an array of Zarr."""
    import zarr

    values = rows_of(scale / 4)
    made = zarr.create_array(str(folder / "x.zarr"), shape=values.shape, chunks=(PER_BATCH, WIDTH), dtype=values.dtype)
    made[:] = values

    def open_file() -> Any:
        return zarr.open_array(str(folder / "x.zarr"), mode="r")

    # Zarr runs a thread of its own, which a fork would not have.
    rows = Rows(open_file, len(values))
    by_row = DataLoader(rows, BATCH, shuffle=True, num_workers=0)
    others = [peer("torch DataLoader, no worker", by_row, len(values) // BATCH, 5)]
    return measure("zarr", open_file(), values, others, rounds, POOLS)
