"""Measure the memory that a mode takes to make batches, each in a process that has done nothing else.

Promises:

- On the CPU: by how much the process grew at most (the kernel's high-water mark, reset before the loader is made) while
  the epoch went by, each batch let go before the next was asked for. The series is there before, and so is the code:
  the mode has run on a tiny series.
- Memory that is let go goes back to the kernel at once: the C library would keep some of it, now more and now less, by
  what was let go before.
- On a CUDA device: the same of what torch's allocator gave out there. Nothing of the series is there before.
- ``python -m bench.windows.memory`` is a server: it has loaded the code, nothing else, and forks once for each task
  that it reads as a line of JSON. No allocator keeps memory from one measurement for the next.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict
from statistics import median
from typing import Any

import torch

from bench.harness.processes import peak, reset_peak
from bench.harness.record import BENCH
from bench.windows.peers import MODES
from bench.windows.series import Series, Sizes
from bench.windows.setting import take, wait

# An epoch of so many batches, of which stacking makes the first: it holds one at a time, however many there are.
EPOCH, STACKED, REPEATS = 20, 2, 3
TINY = Sizes(2, 2, 4, 1, 1)
# More bytes than this are mapped on their own, and so are given back on their own.
MAPPED = {"MALLOC_MMAP_THRESHOLD_": "65536"}


class Meter:
    """A server that measures; it ends with the context."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __enter__(self) -> Meter:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "bench.windows.memory"],
            cwd=BENCH.parent,
            env={**os.environ, **MAPPED},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._server.communicate()

    def growth(self, mode: str, sizes: Sizes) -> dict[str, Any]:
        """Return the growth of a process during the epoch, in bytes: the median of some processes."""
        stacked = MODES[mode].name.startswith("stacking")
        task = {"mode": mode, "sizes": asdict(sizes), "batches": STACKED if stacked else EPOCH}
        grown = [self._ask({**task, "device": str(self.device)}) for _ in range(REPEATS)]
        return {"peak_bytes": median(grown), "runs": grown, "batches": task["batches"]}

    def _ask(self, task: dict[str, Any]) -> int:
        self._server.stdin.write(json.dumps(task) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        if not answer.strip():
            raise SystemExit(f"the process that measured the memory of {task} died")
        return int(answer)


def serve() -> None:
    """Fork for each task on standard input; answer with a line each, an empty one where the process died."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            print(measure(**json.loads(line)), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            print(flush=True)


def measure(mode: str, sizes: dict[str, int], batches: int, device: str) -> int:
    """Return the growth of this process during an epoch, in bytes, at most."""
    place, epochs = torch.device(device), MODES[mode].epochs
    series = Series.of_batches(Sizes(**sizes), EPOCH)
    take(epochs(Series.of_batches(TINY, EPOCH), place)())
    gc.collect()
    before = restart(place)
    take(epochs(series, place)(), batches)
    wait(place)
    return highest(place) - before


def restart(device: torch.device) -> int:
    """Forget the high-water mark; return the bytes in use now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return torch.cuda.memory_allocated(device)
    return reset_peak()


def highest(device: torch.device) -> int:
    """Return the high-water mark."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else peak()


if __name__ == "__main__":
    serve()
