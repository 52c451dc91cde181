"""Measure the memory that a way takes to make batches of windows, in processes that have done nothing else.

The growth of the process at most (the kernel's high-water mark, reset before the loader is made) while its first
batches go by, each let go before the next is asked for. The code is there before (the way has run on a tiny panel), and
so is the dataset of the library; memory that making it left free was given back. Whatever a loader copies counts.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
from itertools import islice
from multiprocessing.connection import Connection

from bench.forecasting_libraries.peers import LIBRARIES, Library, quiet
from bench.harness.processes import elsewhere, peak, reset_peak

BATCHES, SLOW_BATCHES, TINY = 30, 3, (40, 200)


def growths(library: str, way: int, series: int, steps: int, runs: int) -> list[int]:
    """Return the bytes by which each of some processes grew."""
    found: list[int] = elsewhere(_growths, library, way, series, steps, runs)
    return found


def _growths(name: str, way: int, series: int, steps: int, runs: int) -> list[int]:
    """Load the library, and fork for each run."""
    quiet()
    library = next(each for each in LIBRARIES if each.name == name)
    library.load()
    context = multiprocessing.get_context("fork")
    found = []
    for _ in range(runs):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_measure, args=(library, way, series, steps, sender))
        process.start()
        sender.close()
        found.append(receiver.recv())
        process.join()
    return found


def _measure(library: Library, number: int, series: int, steps: int, sender: Connection) -> None:
    way = library.ways[number]
    for _ in islice(way.batches(library.dataset(*TINY)), 3):
        pass
    dataset = library.dataset(series, steps)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = reset_peak()
    for _ in islice(way.batches(dataset), SLOW_BATCHES if way.slow else BATCHES):
        pass
    sender.send(peak() - before)
