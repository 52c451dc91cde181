"""A soak: runs of every kind, one after the other, while memory, threads and descriptors are watched.

The first part of the time warms up: allocators and pools take what they keep. The time after that is cut into parts,
and the least that was in use in each part is compared with the part before. A leak grows in most parts, so the growth
is the median of the differences, times their number: a table of Python that is made larger once (4 MB for its interned
names) is in one difference only. The blocks of Python tell a leak of one object in fifty runs, the bytes that the
allocator has given out one of eight bytes a run, and the address space one of maps. The resident set holds free pages
between those in use as well, and goes on to grow by a few MB for five minutes, so of it only a large growth counts.
"""

import contextlib
import ctypes
import gc
import itertools
import json
import os
import random
import statistics
import sys
import threading
import time
from pathlib import Path

import batchloom as bl
from campaign import faults
from campaign.tally import FindingError

# The steady growth that counts as none: blocks of Python's allocator, bytes of the heap, bytes of the address space.
ALLOWED = {"blocks": 1_000, "heap": 2**18, "space": 2**20}
# The growth of the resident set that counts as none, in bytes.
MOST = 2**24
WARM_UP, PARTS, EVERY = 1 / 6, 12, 1.0
NAMES = ("blocks", "heap", "space", "resident", "threads", "descriptors")


def campaign(tally, seed, first=0, most=None):
    """Run until time is up.

    Raises:
        FindingError: Memory, threads or descriptors grew.
    """
    draw, watched, last = random.Random(f"soak/{seed}"), [], 0.0
    while not tally.is_over:
        turn(draw, tally)
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            settle()
            watched.append((last - tally.start, *used()))
    judge(tally, watched)


def turn(draw, tally):
    """Run a loader for a while: to its end, or not; resumed, copied, or left."""
    if draw.random() < 0.2:
        loader, _ = faults.large(draw)
    else:
        _, loader = faults.loader_of(draw)
    batches = iter(loader)
    for _ in itertools.islice(batches, draw.choice([0, 1, 5, None])):
        tally.add("batches")
    state = json.loads(json.dumps(loader.state_dict()))
    draw.choice([batches.close, lambda: None])()
    loader.load_state_dict(state)
    for _ in itertools.islice(loader, 3):
        tally.add("batches")
    tally.add("runs")


def settle():
    """Free what is free: what the allocator keeps is no leak."""
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


class Heap(ctypes.Structure):
    """The record that ``mallinfo2`` of glibc returns. Bytes given out lie in arenas, or are mapped one by one."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (*"abcd", "mapped", *"ef", "given", *"gh"))


def heap():
    """Return the bytes that the allocator has given out, 0 where it does not tell."""
    with contextlib.suppress(OSError, AttributeError):
        tell = ctypes.CDLL(None).mallinfo2
        tell.restype = Heap
        told = tell()
        return told.given + told.mapped
    return 0


def used():
    """Return the blocks of Python, the bytes of heap, addresses and resident set, the threads and the open files."""
    space, resident, *_ = (
        int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in Path("/proc/self/statm").read_text().split()
    )
    tasks, files = (len(os.listdir(f"/proc/self/{folder}")) for folder in ("task", "fd"))
    return sys.getallocatedblocks(), heap(), space, resident, tasks, files


def least(watched, count):
    """Return the least of each measure in each of some parts of the time, one row a measure."""
    edges = [len(watched) * part // count for part in range(count + 1)]
    parts = [watched[first:end] for first, end in itertools.pairwise(edges)]
    return [[min(each[place] for each in part) for part in parts] for place in range(1, len(NAMES) + 1)]


def steady_growth(values):
    """Return the median of the differences between neighbours, times their number: one step does not count."""
    differences = [after - before for before, after in itertools.pairwise(values)]
    return statistics.median(differences) * len(differences)


def judge(tally, watched):
    """Look for growth after warming up.

    Raises:
        FindingError: Something grew.
    """
    whole = tally.end - tally.start
    after = [each for each in watched if each[0] >= whole * WARM_UP]
    if len(after) < 2 * PARTS:
        tally.facts["growth"] = "too short to tell"
        return
    steady = {name: steady_growth(values) for name, values in zip(NAMES, least(after, PARTS), strict=True)}
    growth = {name: last - first for name, (first, *_, last) in zip(NAMES, least(after, 4), strict=True)}
    tally.facts |= {
        "steady_growth": steady,
        "growth": growth,
        "resident": least(watched, PARTS)[NAMES.index("resident")],
        "python_threads": threading.active_count(),
    }
    grew = any(steady[name] > most for name, most in ALLOWED.items()) or growth["resident"] > MOST
    if grew or growth["threads"] > 0 or growth["descriptors"] > 0:
        raise FindingError(
            f"in {whole:.0f} s after warming up, these grew: {growth}, steadily {steady}; batchloom {bl.__version__}"
        )
