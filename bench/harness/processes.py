"""Run work in a process of its own, and read the memory of this one and of its descendants, in bytes, from Linux."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench.harness.quiet import family

# The time between two looks at the memory of processes, in seconds.
LOOK = 0.01
# The batches between two looks at the memory of an epoch.
LOOK_BATCHES = 16


def elsewhere(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do the work in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=_forget_start_method) as pool:
        return pool.submit(work, *arguments).result()


def _forget_start_method() -> None:
    """Let processes of this one start as those of a script do: else they would start as it was started itself."""
    multiprocessing.set_start_method(None, force=True)


def resident() -> int:
    """Return the bytes in memory of this process now."""
    return _status("VmRSS")


def peak() -> int:
    """Return the most bytes that were in memory of this process since ``reset_peak``."""
    return _status("VmHWM")


def reset_peak() -> int:
    """Forget the peak; return the bytes in memory now."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def most_private(epoch: Callable[[], Iterable[Any]]) -> int:
    """Return the most bytes of private memory that an epoch adds, looking every ``LOOK_BATCHES`` batches."""
    before = most = _status("RssAnon")
    for step, _ in enumerate(epoch()):
        if step % LOOK_BATCHES == 0:
            most = max(most, _status("RssAnon"))
    return most - before


class Heap(ctypes.Structure):
    """The counts of glibc's ``mallinfo2``."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "free_chunks", "fast_chunks", "maps", "mapped")),
        *((name, ctypes.c_size_t) for name in ("unused", "fast_bytes", "given", "free_bytes", "top")),
    )


def heap() -> int:
    """Return the bytes that ``malloc`` has given out, after a collection of garbage."""
    gc.collect()
    count = ctypes.CDLL(None).mallinfo2
    count.restype = Heap
    counted = count()
    return int(counted.given + counted.mapped)


class FamilyWatch:
    """A watch over the memory of this process and its descendants, while it is entered.

    What they share counts once. It differs from the kernel's proportional shares (PSS) in two ways. The share of a
    library would depend on processes that are none of theirs, so the process that maps most of them counts. And memory
    in ``/dev/shm`` on its way from one process to another would be in no share, so all that the machine has counts.

    Attributes:
        before: The bytes when it was entered.
        peak: The most bytes since.
    """

    def __init__(self) -> None:
        self.before = self.peak = family_memory()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> FamilyWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._left.wait(LOOK):
            self.peak = max(self.peak, family_memory())


def family_memory() -> int:
    """Return the bytes of this process and its descendants now, what they share counted once."""
    private, files = 0, 0
    for process in family(os.getpid()):
        try:
            shares, status = (Path(f"/proc/{process}/{name}").read_text() for name in ("smaps_rollup", "status"))
            own, mapped = _field(shares, "Pss_Anon"), _field(status, "RssFile")
        except (OSError, LookupError):
            continue  # it has just ended
        private, files = private + own, max(files, mapped)
    return private + files + _field(Path("/proc/meminfo").read_text(), "Shmem")


def _status(name: str) -> int:
    return _field(Path("/proc/self/status").read_text(), name)


def _field(text: str, name: str) -> int:
    """Return a size from a file of the kernel.

    Raises:
        LookupError: It is not there.
    """
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise LookupError(name)
    return int(found[1]) * 1024
