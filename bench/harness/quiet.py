"""Count the share of the machine that other processes took during a measurement.

A candidate that runs on all cores and waits for its slowest thread suffers far more from a busy neighbour than one
that does not wait, so a disturbed round says nothing about either. ``Watch`` promises to count the
processor time of everything that is not this process or a descendant of it, time stolen by the hypervisor
included, in cores; its grain is the kernel's tick (10 ms), so it needs some tenths of a second to be exact.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Watch:
    """A counter that begins when it is made."""

    def __init__(self) -> None:
        self._start, self._others = time.perf_counter(), _others()

    def cores(self) -> float:
        """Return the cores that others kept busy since the start, on average."""
        seconds = time.perf_counter() - self._start
        return max((_others() - self._others) / TICKS / max(seconds, 1 / TICKS), 0.0)


def _others() -> int:
    """Return the ticks that went to others since the machine started."""
    return _busy() - sum(_ticks(process) for process in family(os.getpid()))


def _busy() -> int:
    """Return the ticks that the machine worked, or would have if the hypervisor had let it."""
    user, nice, system, _idle, _wait, irq, softirq, stolen = map(int, _read("/proc/stat").split()[1:9])
    return user + nice + system + irq + softirq + stolen


def _ticks(process: int) -> int:
    """Return the ticks of a process and of the children that it has waited for."""
    fields = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def family(process: int) -> list[int]:
    """Return a process and its living descendants."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    children = [int(child) for task in tasks for child in _read(str(task)).split()]
    return [process, *(member for child in children for member in family(child))]


def _read(path: str) -> str:
    """Return the text of a file, empty if the process has just ended."""
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
