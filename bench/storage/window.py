"""Measure the window over chunks itself: its order, how it mixes, what ranks read, the memory held, and a resume.

``order``: 100 000 chunks of 1000, 8192 and 10 000 samples: the time in which a plan is made, names samples, 65 536
to a call, and finds the place of one, and the bytes of the heap that it takes. ``mixing``: the share of pairs in a
batch of 64 that are of one chunk, beside pools of as many chunks by hand and a shuffle buffer of as many rows.
``held``: the most MiB of arrays that are alive at once in windows and in pools, as ``tracemalloc`` counts them.
``ranks``: the chunks that all ranks of a world read, counted by the function that reads them. ``memory``: the most
bytes of chunks that were held under a limit. ``resume``: an epoch of rows of 1 KB in a file, saved in its middle: from
the state to the first batch of a new loader.
Promises:

- What is counted is counted by the reading function or the store of chunks, not computed from the plan.
- The batches after the resume were compared with those that the first loader had left.
"""

from __future__ import annotations

import copy
import statistics
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy

from bench.harness.claims import Claim, stated
from bench.harness.measure import exhaust
from bench.harness.processes import heap
from bench.harness.report import table
from bench.storage.chunks import pools, windows
from bench.storage.peers import BATCH, PER_BATCH, ROWS, SEED, WIDTH

CHUNKS, OPEN, CALL, CALLS = 100_000, 16, 1 << 16, 200
MIXED, IN_CHUNK = 100, 1024
WORLDS = (2, 3, 4, 8)
LIMIT = 64 << 20


def measure_window(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure each of the parts."""
    parts = {
        "order": measure_order(rounds, scale),
        "mixing": measure_mixing(),
        "held": measure_held(),
        "ranks": measure_ranks(),
        **measure_rows(folder, scale),
    }
    return {"part": "window", **parts}


def measure_order(rounds: int, scale: float) -> dict[str, Any]:
    """Measure plans of many chunks."""
    cases = {size: order_of(size, round(CHUNKS * scale), rounds) for size in (1000, 8192, 10_000)}
    rows = [(f"{size}", *(f"{value:.4g}" for value in case.values())) for size, case in cases.items()]
    table(
        "window: order of 100 000 chunks",
        ("samples a chunk", "ms to make", "ns a sample", "us to find", "bytes a chunk"),
        rows,
    )
    claims = []
    for size, case in cases.items():
        title = f"window: 100 000 chunks of {size}"
        claims += [
            Claim(f"{title}: milliseconds to make", case["milliseconds_to_make"], "<=", 20),
            Claim(f"{title}: nanoseconds a sample", case["nanoseconds_a_sample"], "<=", 20),
            Claim(f"{title}: microseconds to find a sample", case["microseconds_to_find"], "<=", 5),
            Claim(f"{title}: bytes of the heap a chunk", case["bytes_a_chunk"], "<=", 16.1),
        ]
    return {"cases": cases, "claims": stated(claims)}


def order_of(size: int, chunks: int, rounds: int) -> dict[str, float]:
    """Return the times of one plan, medians of rounds, and its memory."""
    sizes = numpy.full(chunks, size)
    made, named, found = [], [], []
    for round_ in range(rounds):
        start = time.perf_counter()
        plan = bl.Plan(chunks * size, CALL, chunks=sizes, chunks_open=OPEN, shuffle=True, seed=round_)
        made.append(time.perf_counter() - start)
        steps = numpy.random.default_rng(round_).integers(0, len(plan) - 1, CALLS).tolist()
        start = time.perf_counter()
        for step in steps:
            plan[step]
        named.append((time.perf_counter() - start) / (CALLS * CALL))
        start = time.perf_counter()
        for step in steps:
            plan.where(step * size)
        found.append((time.perf_counter() - start) / CALLS)
    del plan
    before = heap()
    kept = [bl.Plan(chunks * size, CALL, chunks=sizes, chunks_open=OPEN, shuffle=True, seed=rounds)]
    taken = heap() - before
    kept.clear()
    return {
        "milliseconds_to_make": statistics.median(made) * 1e3,
        "nanoseconds_a_sample": statistics.median(named) * 1e9,
        "microseconds_to_find": statistics.median(found) * 1e6,
        "bytes_a_chunk": taken / chunks,
    }


def measure_mixing() -> dict[str, Any]:
    """Measure the pairs of one chunk."""
    samples = MIXED * IN_CHUNK
    plan = bl.Plan(samples, BATCH, chunks=[IN_CHUNK] * MIXED, chunks_open=OPEN, shuffle=True, seed=SEED)
    shares = {
        "batchloom": pairs(numpy.concatenate([plan[step] for step in range(len(plan))])),
        "pools": pairs(pooled(samples)),
        "buffer": pairs(numpy.fromiter(buffered(samples), numpy.int64, samples)),
        "all samples": pairs(numpy.random.default_rng(SEED).permutation(samples)),
    }
    # The window is full but at its two edges, where it has one to all of its chunks.
    edge = 2 * (2 * OPEN + 1) / (3 * OPEN * (OPEN + 1))
    promised = ((MIXED - OPEN - 1) / OPEN + (OPEN + 1) * edge) / MIXED
    table("window: pairs of one chunk", ("order", "share"), [(name, f"{each:.4f}") for name, each in shares.items()])
    claims = [Claim("window: pairs of one chunk, off the promise", abs(shares["batchloom"] / promised - 1), "<=", 0.05)]
    return {"shares": shares, "promised": promised, "claims": stated(claims)}


def pairs(order: Any) -> float:
    """Return the share of pairs in a batch that are of one chunk."""
    chunks = order[: len(order) // BATCH * BATCH].reshape(-1, BATCH) // IN_CHUNK
    same = (chunks[:, :, None] == chunks[:, None, :]).sum() - chunks.size
    return float(same / (len(chunks) * BATCH * (BATCH - 1)))


def pooled(samples: int) -> Any:
    """Return the order of pools of chunks: each pool is shuffled by itself."""
    order = numpy.random.default_rng(SEED)
    chunks = order.permutation(samples // IN_CHUNK)
    pools = [chunks[first : first + OPEN] for first in range(0, len(chunks), OPEN)]
    rows = [(pool[:, None] * IN_CHUNK + numpy.arange(IN_CHUNK)).reshape(-1) for pool in pools]
    return numpy.concatenate([order.permutation(each) for each in rows])


def buffered(samples: int) -> Iterator[int]:
    """Yield the order of a shuffle buffer over shuffled chunks, as libraries that stream have it."""
    order = numpy.random.default_rng(SEED)
    chunks = order.permutation(samples // IN_CHUNK)
    buffer: list[int] = []
    for row in (chunks[:, None] * IN_CHUNK + numpy.arange(IN_CHUNK)).reshape(-1).tolist():
        if len(buffer) < OPEN * IN_CHUNK:
            buffer.append(row)
            continue
        place = int(order.integers(len(buffer)))
        yield buffer[place]
        buffer[place] = row
    yield from order.permutation(buffer).tolist()


def measure_held() -> dict[str, Any]:
    """Measure the arrays that are alive at once while chunks of 1 MB are mixed: in windows, and in pools by hand."""

    def read_chunk(chunk: int) -> Any:
        return numpy.full((PER_BATCH, WIDTH), chunk, numpy.float32)

    peaks = {}
    ways = {
        "windows": lambda: windows(read_chunk, MIXED, PER_BATCH)[1],
        "pools": lambda: pools(read_chunk, MIXED, PER_BATCH),
    }
    for name, make in ways.items():
        tracemalloc.start()
        exhaust(make())
        peaks[name] = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    share = peaks["windows"] / peaks["pools"]
    return {
        "mebibytes": peaks,
        "claims": stated([Claim("window: arrays held, times those of pools", share, "<=", 0.6)]),
    }


def measure_ranks() -> dict[str, Any]:
    """Count the chunks that the ranks of a world read."""
    read, claims = {}, []
    for world in WORLDS:
        counted: Counter[int] = Counter()

        def read_chunk(chunk: int, counted: Counter[int] = counted) -> Any:
            counted[chunk] += 1
            return numpy.arange(chunk * IN_CHUNK, (chunk + 1) * IN_CHUNK)

        dataset = bl.ChunkDataset([IN_CHUNK] * MIXED, read_chunk, chunks_open=OPEN)
        for rank in range(world):
            for _ in bl.DataLoader(dataset, BATCH, shuffle=True, rank=rank, world_size=world):
                pass
        read[world] = counted.total()
        most = MIXED + (world - 1) * OPEN
        claims.append(Claim(f"window: chunks read by {world} ranks", read[world], "<=", most))
    return {"chunks": MIXED, "chunks_open": OPEN, "chunks_read": read, "claims": stated(claims)}


def measure_rows(folder: Path, scale: float) -> dict[str, Any]:
    """Measure rows in a file: the memory of chunks under a limit, and a resume."""
    count = max(round(ROWS * scale) // PER_BATCH, OPEN) * PER_BATCH
    numpy.save(folder / "x.npy", numpy.random.default_rng(SEED).random((count, WIDTH), numpy.float32))
    read: list[int] = []

    def read_chunk(chunk: int) -> Any:
        read.append(chunk)
        rows = numpy.load(folder / "x.npy", mmap_mode="r")[PER_BATCH * chunk : PER_BATCH * (chunk + 1)]
        return {"x": numpy.array(rows), "number": numpy.arange(PER_BATCH * chunk, PER_BATCH * (chunk + 1))}

    def make() -> Any:
        dataset = bl.ChunkDataset([PER_BATCH] * (count // PER_BATCH), read_chunk, memory=LIMIT)
        return dataset, bl.DataLoader(dataset, BATCH, shuffle=True, seed=SEED)

    dataset, loader = make()
    batches = iter(loader)
    delivered = numpy.concatenate([next(batches)["number"] for _ in range(count // BATCH // 2)])
    state = copy.deepcopy(loader.state_dict())
    expected = numpy.concatenate([batch["number"] for batch in batches])
    held = dataset.counts
    read.clear()

    start = time.perf_counter()
    _, loader = make()
    loader.load_state_dict(state)
    batches = iter(loader)
    first = numpy.array(next(batches)["number"])
    resumed = time.perf_counter() - start
    found = numpy.concatenate([first, *(batch["number"] for batch in batches)])
    assert numpy.array_equal(found, expected), "a resume changed what is left of the epoch"
    again = len(set((delivered // PER_BATCH).tolist()) & set(read))
    chunks_open = loader.plan(0).stats()["chunks_open"]
    memory = [Claim("window: bytes of chunks held under 64 MiB", held.most_bytes, "<=", LIMIT)]
    resume = [
        Claim("window: seconds from a state to the first batch", resumed, "<=", 0.3),
        Claim("window: chunks of samples before it that it reads again", again, "<=", chunks_open),
    ]
    return {
        "memory": {"limit": LIMIT, "most_bytes": held.most_bytes, "claims": stated(memory)},
        "resume": {
            "seconds": resumed,
            "chunks_open": chunks_open,
            "chunks_read_again": again,
            "claims": stated(resume),
        },
    }
