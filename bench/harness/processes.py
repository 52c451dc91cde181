"""Run work in a process of its own, and read the memory of this one, as Linux counts it, in bytes."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any


def elsewhere(work: Callable[..., Any], *arguments: Any) -> Any:
    """Do the work in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


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


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024
