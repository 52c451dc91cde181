"""Measure what a limit of memory for mapped rows costs: epochs with it and without, and the bytes in memory.

Rows of 1 KB and of 64 KB are shuffled whole. They lie in two files of the same bytes: one was written 4 KB at a time,
so that the system maps 64 KB around a row, and the other one in large pieces, of which it maps up to 2 MB.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy

from bench.harness.claims import Claim
from bench.harness.measure import LOOM, Candidate, interleave
from bench.harness.report import report
from bench.storage.peers import SEED, epoch

BYTES, LIMIT = 400 << 20, 64 << 20
SMALL, LARGE = 4 << 10, 64 << 20
WIDTHS = {"1 KB": 1 << 10, "64 KB": 64 << 10}
SAMPLED = 64 << 10  # bytes of a batch


def measure_limits(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure epochs with a limit and without."""
    size = round(BYTES * scale) // LARGE * LARGE
    content = numpy.random.default_rng(SEED).integers(0, 256, size, numpy.uint8)
    for name, piece in (("small", SMALL), ("large", LARGE)):
        with open(folder / name, "wb", buffering=0) as file:
            for start in range(0, size, piece):
                file.write(content[start : start + piece].data)
    del content
    loaders = {}
    for file in ("small", "large"):
        for width, row in WIDTHS.items():
            rows = bl.TensorDataset(numpy.memmap(folder / file, numpy.uint8, "r").reshape(-1, row))
            title = f"rows of {width} in {file} pieces"
            loaders[title] = loader_of(rows, row)
            loaders[f"{title}, 64 MiB"] = loader_of(rows.with_memory(LIMIT), row)
    first = next(iter(loaders))
    resident = {name: most_resident(epoch(loader)) >> 20 for name, loader in loaders.items() if "MiB" in name}
    names = {name: LOOM if name == first else name for name in loaders}
    timings = interleave("limits", [Candidate(names[name], epoch(each)) for name, each in loaders.items()], rounds)
    costs = {name: timings[name].ratio(timings[names[name.removesuffix(", 64 MiB")]]) for name in resident}
    for name, cost in costs.items():
        print(f"{name}: {cost:.2f} times the epoch without a limit, {resident[name]} MiB in memory")
    wide = "rows of 64 KB in small pieces, 64 MiB"
    claims = [
        Claim("limits: rows of 64 KB in small pieces, times no limit", costs[wide], "<=", 1.5),
        Claim("limits: rows of 64 KB in small pieces, MiB in memory", resident[wide], "<=", 96),
    ]
    more = {"mebibytes_in_memory": resident, "times_no_limit": costs}
    bar = ("rows of 1 KB in small pieces", LOOM)
    return {"part": "limits", "bytes": size, **more, **report("limits", timings, claims, {}, bar=bar)}


def loader_of(rows: bl.TensorDataset[Any], row: int) -> bl.DataLoader[Any]:
    """Return a loader of batches of the same bytes, whatever the rows."""
    return bl.DataLoader(rows, SAMPLED // row, shuffle=True)


def most_resident(run: Callable[[], None]) -> int:
    """Return the most bytes of mapped files that come into memory while something runs, beyond those before."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[2]) * 4096

    before, most, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            most[0] = max(most[0], resident() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    done.set()
    watcher.join()
    return most[0]
