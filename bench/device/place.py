"""Hold the device that is measured, its clock, its copies to compare with, and the sizes of data on it.

Promises:

- The device has done all it was told before the clock starts and before it stops; nothing waits in between.
- Bandwidth is bytes copied a second, each byte once: a copy on the device reads and writes as many.
- A candidate that is too slow for the clock makes the first batches of its epoch, and the time of each batch after
  the first counts as often as the epoch has batches. What precedes the first batch counts once.
- The CPU stands in where there is no GPU, so that every line has run. Sizes are smaller there by default, and
  ``Place.note`` stands beside the figures: no GPU was measured. No number to reach is held against them.
"""

from __future__ import annotations

import gc
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from batchloom.delivery import placement
from torch import Tensor

from bench.harness.claims import Claim
from bench.harness.measure import COPY, Candidate, Pace, Timing, exhaust, interleave
from bench.harness.report import fastest_first, print_disturbed, table

PINNED = "pinned memory to the device"
# The most that is copied at once: float32 of 1 GiB.
CHUNK = 2**28
# A GPU is lent for minutes, and nothing else runs there; the CPU that stands in times nothing.
LENT, STANDING_IN = Pace(seconds=0.15, tries=2), Pace(seconds=0.0, tries=1)


class Found(NamedTuple):
    """The findings of a part.

    Attributes:
        body: The body of its JSON.
        claims: The numbers to reach, and what was measured.
        ratios: Further figures, by name.
        ended: False where the clock ended before the part did: the next visit goes on.
        failure: Why the part counts as failed, although it has figures.
    """

    body: dict[str, Any]
    claims: Sequence[Claim] = ()
    ratios: Mapping[str, float] = {}
    ended: bool = True
    failure: str | None = None


@dataclass(frozen=True)
class Place:
    """A device, and the sizes that the command line asks for.

    Attributes:
        device: The device of batches: CUDA's, or the CPU.
        rounds: The number of rounds.
        scale: The fraction of the published sizes; on the CPU, of the smaller sizes there.
        until: The time of ``time.monotonic`` at which the part has to end.
        kept: The folder that outlives the part, for those that go on in the next visit.
    """

    device: torch.device
    rounds: int
    scale: float
    until: float = float("inf")
    kept: Path | None = None

    @classmethod
    def named(
        cls, name: str, rounds: int, scale: float, until: float = float("inf"), kept: Path | None = None
    ) -> Place:
        """Take the device of this name."""
        device = torch.device(name)
        if device.type not in ("cuda", "cpu"):
            raise SystemExit(f"the device is {name}; expected cuda, or cpu to see that everything runs")
        if device.type == "cuda":
            if not torch.cuda.is_available():
                raise SystemExit(f"the device is {name}, and this torch finds none; expected cpu, or none given")
            device = torch.empty(0, device=device).device  # with its number
            torch.cuda.set_device(device)
        placement.cpu_stands_in = device.type == "cpu"
        return cls(device, rounds, scale, until, kept)

    @property
    def is_gpu(self) -> bool:
        """Tell whether this is a GPU, so that figures are to be believed."""
        return self.device.type == "cuda"

    @property
    def name(self) -> str:
        """Return the name of the device."""
        return torch.cuda.get_device_name(self.device) if self.is_gpu else "cpu"

    @property
    def slug(self) -> str:
        """Return the same, for the name of a file."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def note(self) -> str:
        """Return the line that stands before any figure."""
        if self.is_gpu:
            return f"measured on {self.name}"
        return "NO GPU FIGURES: the CPU stood in for the device, with smaller data; this shows that everything runs"

    def facts(self) -> dict[str, Any]:
        """Return the JSON's record of it."""
        known = {"type": self.device.type, "name": self.name, "is_gpu": self.is_gpu, "note": self.note}
        if not self.is_gpu:
            return known
        properties = torch.cuda.get_device_properties(self.device)
        return {
            **known,
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "driver": driver(),
            "cuda": torch.version.cuda,
            "fp32_precision": torch.get_float32_matmul_precision(),
        }

    def scaled(self, count: int, on_cpu: float, least: int = 1) -> int:
        """Return the share to take of a published number, a smaller one on the CPU."""
        return max(round(count * self.scale * (1 if self.is_gpu else on_cpu)), least)

    def wait(self) -> None:
        """Wait until the device has done all it was told."""
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], object]) -> float:
        """Return the seconds of the work, on the device too."""
        self.wait()
        start = time.perf_counter()
        work()
        self.wait()
        return time.perf_counter() - start

    def clear(self) -> None:
        """Give unused memory back."""
        gc.collect()
        if self.is_gpu:
            torch.cuda.empty_cache()

    @property
    def pace(self) -> Pace:
        """Return the time that a round gives to each candidate."""
        if not self.is_gpu:
            return STANDING_IN
        return LENT

    def interleave(self, title: str, candidates: Sequence[Candidate], rounds: int | None = None) -> dict[str, Timing]:
        """Time candidates in the same rounds."""
        return interleave(title, candidates, min(rounds or self.rounds, self.rounds), self.pace)

    def rand(self, *shape: int) -> Tensor:
        """Draw float32 on the device."""
        return torch.rand(*shape, device=self.device)

    def epochs(self, name: str, epochs: Callable[[], Iterable[Any]], slow: bool = False, **facts: Any) -> Candidate:
        """Make a candidate of epochs, loop body ``pass``."""
        return Candidate(name, lambda: self.seconds(lambda: exhaust(epochs())), facts, slow)

    def first_batches(
        self, name: str, epochs: Callable[[], Iterable[Any]], batches: int, most: int, **facts: Any
    ) -> Candidate:
        """Make a candidate of epochs, loop body ``pass``, that makes at most ``most`` of its ``batches``."""
        most = max(min(most, batches), 2)

        def run() -> float:
            self.wait()
            start = time.perf_counter()
            epoch = iter(epochs())
            next(epoch)
            self.wait()
            first = time.perf_counter()
            exhaust(islice(epoch, most - 1))
            self.wait()
            return first - start + (time.perf_counter() - first) * (batches - 1) / (most - 1)

        return Candidate(name, run, {**facts, "measured_batches": most}, slow=True)

    def copying(self, size: int) -> Candidate:
        """Copy so many bytes on the device, into memory that was written before."""
        return self._copying(COPY, size, self.rand(min(size // 4, CHUNK)))

    def sending(self, size: int) -> Candidate:
        """Copy so many bytes to the device from pinned memory, asynchronously, on a stream of their own."""
        pinned = torch.empty(min(size // 4, CHUNK), pin_memory=self.is_gpu)
        pinned.copy_(self.rand(len(pinned)))
        candidate = self._copying(PINNED, size, pinned)
        if not self.is_gpu:
            return candidate
        stream = torch.cuda.Stream(self.device)

        def run() -> float | None:
            with torch.cuda.stream(stream):
                return candidate.run()

        return Candidate(candidate.name, run, candidate.facts)

    def _copying(self, name: str, size: int, source: Tensor) -> Candidate:
        """Copy an array to another one on the device, as often as makes so many bytes, and the rest."""
        target = torch.ones_like(source, device=self.device)
        whole, rest = divmod(size // 4, len(source))

        def copy() -> None:
            for _ in range(whole):
                target.copy_(source, non_blocking=True)
            target[:rest].copy_(source[:rest], non_blocking=True)

        return Candidate(name, lambda: self.seconds(copy), {"bytes": size})


def driver() -> str | None:
    """Return the version of NVIDIA's driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    asked = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(asked, capture_output=True, text=True)
    return done.stdout.partition("\n")[0].strip() or None


def spread(timing: Timing) -> float:
    """Return the distance between the rounds, over their median."""
    return (max(timing.rounds) - min(timing.rounds)) / timing.median


def report(
    title: str, timings: dict[str, Timing], size: int, batches: int, against: Mapping[str, str]
) -> dict[str, Any]:
    """Print the timings of epochs, and return them for the JSON.

    Args:
        title: The work that was timed.
        timings: The timings of all candidates.
        size: The bytes of an epoch's batches.
        batches: The number of these batches.
        against: The candidates to compare with, by their short names in the table and the JSON.
    """
    others = {short: timings[name] for short, name in against.items() if name in timings}
    rows = [
        (
            timing.name,
            f"{timing.median:.4f}",
            f"{timing.minimum:.4f}",
            f"{spread(timing):.1%}",
            f"{size / timing.median / 1e9:.2f}",
            "-" if timing.name in (COPY, PINNED) else f"{batches / timing.median:.0f}",
            *(f"{timing.ratio(other):.2f}" for other in others.values()),
        )
        for timing in fastest_first(timings)
    ]
    heads = ("candidate", "median s", "min s", "spread", "GB/s", "batches/s", *(f"x {short}" for short in others))
    table(title, heads, rows)
    print_disturbed(title, timings)
    candidates = [
        {**timing.record(others), "spread": spread(timing), "bytes_per_second": size / timing.median}
        for timing in timings.values()
    ]
    return {"bytes": size, "batches": batches, "candidates": candidates}
