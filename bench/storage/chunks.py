"""Measure rows that are read a chunk at a time, from files of NumPy, HDF5 and Zarr.

Each part sets a ``ChunkDataset`` beside pools of as many chunks by hand; HDF5 and Zarr also beside torch's loader, row
by row, and NumPy beside the map of the file, shuffled whole. Chunks of HDF5 and Zarr have 1000 rows and are read;
chunks of NumPy have 4000 (4 MB), and each is a map of its own, whose pages leave with it. Promises:

- Batches of batchloom were compared with the rows of the file before anything is timed.
- All candidates read the same file by the same function, chunk by chunk or row by row.
- The memory of an epoch is private and mapped memory together, in a process of its own, beyond what was there before.
"""

from __future__ import annotations

import subprocess
import sys
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

OPEN, MAPPED = 16, 4000
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
    count = max(round(ROWS * scale) // MAPPED, OPEN) * MAPPED
    return numpy.random.default_rng(SEED).random((count, WIDTH), numpy.float32)


def looms(read: Callable[[int], Any], values: Any, rows: int) -> tuple[bl.ChunkDataset, list[Candidate]]:
    """Return batchloom over chunks of ``rows`` rows that a function reads, and pools by hand."""

    def by_hand() -> None:
        order = numpy.random.default_rng(SEED)
        chunks = order.permutation(len(values) // rows)
        for first in range(0, len(chunks), OPEN):
            pool = numpy.concatenate([read(chunk) for chunk in chunks[first : first + OPEN]])
            places = order.permutation(len(pool))
            for start in range(0, len(pool), BATCH):
                pool[places[start : start + BATCH]]

    dataset = bl.ChunkDataset([rows] * (len(values) // rows), read, chunks_open=OPEN)
    loader = bl.DataLoader(dataset, BATCH, shuffle=True)
    for step, batch in enumerate(loader):
        assert numpy.array_equal(batch, values[loader.plan(0)[step]])
    return dataset, [Candidate(LOOM, epoch(loader)), Candidate(POOLS, by_hand)]


def read_from(table: Any) -> Callable[[int], Any]:
    """Return the function that reads a chunk of a table into memory."""
    return lambda chunk: numpy.array(table[PER_BATCH * chunk : PER_BATCH * (chunk + 1)])


def measure(
    part: str,
    read: Callable[[int], Any],
    values: Any,
    others: list[Candidate],
    rounds: int,
    bar: str,
    rows: int = PER_BATCH,
    more: tuple[Claim, ...] = (),
) -> dict[str, Any]:
    """Measure batchloom and pools beside others."""
    dataset, candidates = looms(read, values, rows)
    timings = interleave(part, candidates + others, rounds)
    claims = [Claim.of_ratio(f"{part}: pools by hand, times batchloom's", timings[POOLS], timings[LOOM], ">=", 0.7)]
    if BY_ROW in timings:
        claims.append(Claim.of_ratio(f"{part}: torch, times batchloom's", timings[BY_ROW], timings[LOOM], ">=", 100))
    if WHOLE in timings:
        claims.append(Claim.of_ratio(f"{part}: the map, times batchloom's", timings[WHOLE], timings[LOOM], ">=", 0.6))
    counts = dataset.counts
    facts = {"part": part, "rows": len(values), "chunks_read": counts.read, "most_held": counts.most_held}
    claims += more
    return {**facts, "most_bytes": counts.most_bytes, **report(part, timings, claims, {}, bar=(bar, bar))}


def mapper(path: str, offset: int) -> Callable[[int], Any]:
    """Return the function that maps a chunk of a file of NumPy, whose array begins at a byte."""
    size = MAPPED * WIDTH * 4
    return lambda chunk: numpy.memmap(path, numpy.float32, "r", offset + size * chunk, (MAPPED, WIDTH))


def print_held(path: str, offset: str, rows: str) -> None:
    """Print the most MiB of private and mapped memory that an epoch over chunks of a file adds."""

    def taken() -> int:
        text = Path("/proc/self/status").read_text()
        return sum(int(text.partition(f"{name}:")[2].split()[0]) for name in ("RssAnon", "RssFile"))

    bl.DataLoader(bl.TensorDataset(numpy.zeros((8, 1))), 2)
    chunks = [MAPPED] * (int(rows) // MAPPED)
    dataset = bl.ChunkDataset(chunks, mapper(path, int(offset)), chunks_open=OPEN)
    before, most = taken(), 0
    for step, _ in enumerate(bl.DataLoader(dataset, BATCH, shuffle=True)):
        if step % 16 == 0:
            most = max(most, taken())
    print((most - before) / 1024)


def measure_npy(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure a file of NumPy."""
    values = rows_of(scale)
    path = str(folder / "x.npy")
    numpy.save(path, values)
    table = numpy.load(path, mmap_mode="r")
    assert isinstance(table, numpy.memmap)
    whole = Candidate(WHOLE, epoch(bl.DataLoader(bl.TensorDataset(table), BATCH, shuffle=True)))
    command = [sys.executable, "-m", "bench.storage.chunks", path, str(table.offset), str(len(values))]
    held = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    memory = Claim("chunks: MiB of private and mapped memory", held, "<=", 100)
    return measure("chunks", mapper(path, table.offset), values, [whole], rounds, WHOLE, MAPPED, (memory,))


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
    return measure("hdf5", read_from(open_file()), values, others, rounds, POOLS)


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
    return measure("zarr", read_from(open_file()), values, others, rounds, POOLS)


if __name__ == "__main__":
    print_held(*sys.argv[1:])
