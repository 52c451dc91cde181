"""A soak: runs of every kind, one after the other, while memory, threads and descriptors are watched.

The first part of the time warms up: allocators and pools take what they keep. After that nothing may grow: the least of
the resident set in the last quarter is compared with that in the first quarter after warming up.
"""

import contextlib
import ctypes
import gc
import itertools
import json
import os
import random
import sys
import threading
import time
from pathlib import Path

import batchloom as bl
from campaign import faults
from campaign.tally import FindingError

# The growth of the resident set that counts as none, in bytes.
ALLOWED = 2**20
WARM_UP, EVERY = 1 / 12, 1.0


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


def used():
    """Return the resident set in bytes, the threads of this process and its open files."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    tasks = len(os.listdir("/proc/self/task"))
    return pages * os.sysconf("SC_PAGE_SIZE"), tasks, len(os.listdir("/proc/self/fd"))


def by_twelfth(watched):
    """Return the least resident set of each twelfth of the time."""
    edges = [len(watched) * part // 12 for part in range(13)]
    return [min(each[1] for each in watched[first:end]) for first, end in itertools.pairwise(edges) if first < end]


def judge(tally, watched):
    """Compare the last quarter with the first after warming up.

    Raises:
        FindingError: Something grew.
    """
    whole = tally.end - tally.start
    after = [each for each in watched if each[0] >= whole * WARM_UP]
    quarter = len(after) // 4
    if quarter < 2:
        tally.facts["growth"] = "too short to tell"
        return
    first, last = after[:quarter], after[-quarter:]
    names = ("resident", "threads", "descriptors")
    growth = {
        name: min(each[place] for each in last) - min(each[place] for each in first)
        for place, name in enumerate(names, start=1)
    }
    tally.facts |= {"growth": growth, "resident": by_twelfth(watched), "python_threads": threading.active_count()}
    if growth["resident"] > ALLOWED or growth["threads"] > 0 or growth["descriptors"] > 0:
        raise FindingError(f"in {whole:.0f} s after warming up, these grew: {growth}; batchloom {bl.__version__}")
