"""Work in a process of its own, and what a process has in memory, as Linux counts it, in bytes."""

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
    """What is in memory of this process now."""
    return _status("VmRSS")


def peak() -> int:
    """What was in memory of this process, at most, since ``reset_peak``."""
    return _status("VmHWM")


def reset_peak() -> int:
    """Forget the peak; return what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024
