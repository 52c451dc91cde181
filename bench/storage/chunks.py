"""Measure rows that are read a chunk at a time, from files of NumPy, HDF5 and Zarr.

Each part sets a ``ChunkDataset`` beside pools of as many chunks by hand; HDF5 and Zarr also beside torch's loader, row
by row, and NumPy beside the map of the file, shuffled whole. Chunks of HDF5 and Zarr have 1000 rows and are read;
chunks of NumPy have 4000 (4 MB), and each is a map of its own, whose pages leave with it. Promises:

- Batches of batchloom were compared with the rows of the file before anything is timed.
- All candidates read the same file by the same function, chunk by chunk or row by row.
- torch's workers are spawned, as Zarr runs a thread that a fork would not have. The clock starts after the batches
  that they make ahead, so that their start is not measured.
- The memory of an epoch is the peak of private and mapped memory, as the system counts it, in a process of its own,
  beyond what was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
from torch.utils.data import DataLoader, Dataset

from bench.harness.claims import Claim
from bench.harness.measure import LOOM, Candidate, exhaust, interleave
from bench.harness.processes import elsewhere, peak, reset_peak
from bench.harness.report import report
from bench.storage.peers import BATCH, PER_BATCH, ROWS, SEED, WIDTH, epoch, peer

OPEN, PER_MAP = 16, 4000
POOLS, WHOLE, BY_ROW = "pools by hand", "the map, shuffled whole", "torch DataLoader, two workers"
# Two workers make two batches each ahead of the clock, and two that they are making.
AHEAD = 6

Read = Callable[[int], Any]


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


def open_numpy(path: Path) -> Any:
    """Return the array of a file of NumPy, mapped."""
    return numpy.load(path, mmap_mode="r")


def open_hdf5(path: Path) -> Any:
    """Return the array of a file of HDF5."""
    import h5py

    return h5py.File(path)["x"]


def open_zarr(path: Path) -> Any:
    """Return an array of Zarr."""
    import zarr

    return zarr.open_array(str(path), mode="r")


OPENERS: dict[str, Callable[[Path], Any]] = {"chunks": open_numpy, "hdf5": open_hdf5, "zarr": open_zarr}


def rows_of(scale: float) -> Any:
    """Return the rows, a whole number of chunks."""
    count = max(round(ROWS * scale) // PER_MAP, OPEN) * PER_MAP
    return numpy.random.default_rng(SEED).random((count, WIDTH), numpy.float32)


def chunks_of(part: str, path: Path) -> tuple[Read, int, int]:
    """Return the function that reads a chunk of a part's file, the number of chunks and their rows."""
    table = OPENERS[part](path)

    def read_chunk(chunk: int) -> Any:
        return numpy.array(table[PER_BATCH * chunk : PER_BATCH * (chunk + 1)])

    def map_chunk(chunk: int) -> Any:
        size = PER_MAP * WIDTH * 4
        return numpy.memmap(str(path), numpy.float32, "r", table.offset + size * chunk, (PER_MAP, WIDTH))

    if part == "chunks":
        return map_chunk, table.shape[0] // PER_MAP, PER_MAP
    return read_chunk, table.shape[0] // PER_BATCH, PER_BATCH


def windows(read: Read, chunks: int, rows: int) -> tuple[bl.ChunkDataset, bl.DataLoader[Any]]:
    """Return batchloom's loader over chunks, mixed in windows."""
    dataset = bl.ChunkDataset([rows] * chunks, read, chunks_open=OPEN)
    return dataset, bl.DataLoader(dataset, BATCH, shuffle=True)


def pools(read: Read, chunks: int, rows: int) -> Iterator[Any]:
    """Yield batches of pools of chunks, shuffled, as a user writes it."""
    order = numpy.random.default_rng(SEED)
    permuted = order.permutation(chunks)
    for first in range(0, chunks, OPEN):
        pool = numpy.concatenate([read(chunk) for chunk in permuted[first : first + OPEN]])
        places = order.permutation(len(pool))
        for start in range(0, len(pool), BATCH):
            yield pool[places[start : start + BATCH]]


def held(way: str, part: str, path: Path) -> float:
    """Return the most MiB of private and mapped memory that an epoch adds to this process, which should be new."""
    exhaust(bl.DataLoader(bl.TensorDataset(numpy.zeros((8, 1))), 2))
    chunks = chunks_of(part, path)
    chunks[0](0)
    before = reset_peak()
    exhaust(pools(*chunks) if way == POOLS else windows(*chunks)[1])
    return (peak() - before) / 2**20


def measure(part: str, path: Path, values: Any, others: list[Candidate], rounds: int, bar: str) -> dict[str, Any]:
    """Measure batchloom and pools beside others."""
    chunks = chunks_of(part, path)
    dataset, loader = windows(*chunks)
    for step, batch in enumerate(loader):
        assert numpy.array_equal(batch, values[loader.plan(0)[step]])
    memory = {way: elsewhere(held, way, part, path) for way in (LOOM, POOLS)}
    candidates = [Candidate(LOOM, epoch(loader)), Candidate(POOLS, lambda: exhaust(pools(*chunks)))]
    timings = interleave(part, candidates + others, rounds)
    claims = [Claim.of_ratio(f"{part}: pools by hand, times batchloom's", timings[POOLS], timings[LOOM], ">=", 0.7)]
    if BY_ROW in timings:
        claims.append(Claim.of_ratio(f"{part}: torch, times batchloom's", timings[BY_ROW], timings[LOOM], ">=", 100))
    if WHOLE in timings:
        claims.append(Claim.of_ratio(f"{part}: the map, times batchloom's", timings[WHOLE], timings[LOOM], ">=", 0.6))
    claims.append(Claim(f"{part}: MiB of private and mapped memory", memory[LOOM], "<=", 100))
    counts = dataset.counts
    facts = {"part": part, "rows": len(values), "chunks_read": counts.read, "most_held": counts.most_held}
    facts |= {"most_bytes": counts.most_bytes, "mebibytes_held": memory}
    return {**facts, **report(part, timings, claims, {}, bar=(bar, bar))}


def by_row(part: str, path: Path, values: Any, measured: int) -> Candidate:
    """Return torch's loader, row by row, with two workers."""
    rows = Rows(partial(OPENERS[part], path), len(values))
    loader = DataLoader(rows, BATCH, shuffle=True, num_workers=2, multiprocessing_context="spawn")
    return peer(BY_ROW, loader, len(values) // BATCH, measured, AHEAD)


def measure_numpy(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure a file of NumPy."""
    values = rows_of(scale)
    path = folder / "x.npy"
    numpy.save(path, values)
    whole = bl.DataLoader(bl.TensorDataset(open_numpy(path)), BATCH, shuffle=True)
    return measure("chunks", path, values, [Candidate(WHOLE, epoch(whole))], rounds, WHOLE)


def measure_hdf5(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure a compressed file of HDF5."""
    import h5py

    values, path = rows_of(scale / 4), folder / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(PER_BATCH, WIDTH), compression="gzip", compression_opts=1)
    return measure("hdf5", path, values, [by_row("hdf5", path, values, 10)], rounds, POOLS)


def measure_zarr(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure an array of Zarr."""
    import zarr

    values, path = rows_of(scale / 4), folder / "x.zarr"
    made = zarr.create_array(str(path), shape=values.shape, chunks=(PER_BATCH, WIDTH), dtype=values.dtype)
    made[:] = values
    return measure("zarr", path, values, [by_row("zarr", path, values, 20)], rounds, POOLS)
