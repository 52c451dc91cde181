"""The processor's time of decoders of images and sounds, and the share of it in which they hold the interpreter.

Over the files of ``decoders``, in one thread, without a loader. Promises:

- Processes beside it change the figures little: of the processor's time the least of several tries counts, and the
  share is one of samples. A busy machine can tell which decoder is cheap, though not how fast a loader is.
- ``interpreter_held``: py-spy, a program that looks at a process from outside, notes 500 times a second whether the
  thread that decodes works, and then whether it holds the interpreter while it works. Without py-spy it is ``None``.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

from bench.harness.measure import progress
from bench.harness.report import print_not_measured, table
from bench.on_demand import decoders
from bench.on_demand.decoder_peers import ALONE, Decode
from bench.on_demand.decoders import CHECKED, FEW_FILES, Files, decode_all, find_here, processor_milliseconds

SAMPLES_A_SECOND, SECONDS = 500, 2


def held_share(decode: Decode, files: Files) -> float | None:
    """Return the share of its working time in which a function holds the interpreter; ``None`` without py-spy."""
    works, holds = count_samples(decode, files), count_samples(decode, files, "--gil")
    return holds / works if works and holds is not None else None


def count_samples(decode: Decode, files: Files, *options: str) -> int | None:
    """Return the number of samples in which this thread was seen while it decoded; ``None`` without py-spy."""
    program = which("py-spy")
    if program is None:
        return None
    with TemporaryDirectory() as folder:
        found = Path(folder) / "samples"
        rates = ["-r", str(SAMPLES_A_SECOND), "-d", str(SECONDS), "-f", "raw", "-o", str(found)]
        command = [program, "record", *rates, "-p", str(os.getpid()), *options]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as spy:
            while spy.poll() is None:
                decode_all(decode, files)
        if spy.returncode:
            return None
        lines = found.read_text().splitlines()
    return sum(int(line.rpartition(" ")[2]) for line in lines if decode_all.__name__ in line)


def measure_set(
    title: str, libraries: Mapping[str, Decode], files: Files, batch: int, check: Any, rounds: int
) -> dict[str, Any]:
    """Check all libraries, and count the processor's time over the files of one set, in rounds."""
    here, missing = find_here(libraries, files[0])
    for decode in here.values():
        for path in files[:CHECKED]:
            check(decode, path)
    tries: dict[str, list[float]] = {name: [] for name in here}
    for turn in range(rounds):
        progress(f"{title}: round {turn + 1} of {rounds}")
        for name, decode in here.items():
            tries[name].append(processor_milliseconds(decode, files))
    held = {name: held_share(decode, files[:FEW_FILES]) for name, decode in here.items()}
    candidates = [
        {
            "library": name,
            "way": ALONE,
            "processor_milliseconds": min(tries[name]),
            "interpreter_held": held[name],
            "rounds": tries[name],
        }
        for name in here
    ]
    shown = [
        (name, f"{min(tries[name]):.3f}", "-" if (share := held[name]) is None else f"{share:.0%}") for name in here
    ]
    table(f"{title}: a file", ("library", "processor ms", "interpreter held"), shown)
    print_not_measured(missing)
    size = sum(Path(path).stat().st_size for path in files)
    facts = {"workload": f"{title}: processor time", "files": len(files), "bytes_of_files": size}
    return {**facts, "candidates": candidates, "not_measured": missing, "claims": []}


def measure(scale: float, rounds: int) -> list[dict[str, Any]]:
    """Measure all sets."""
    return decoders.measure(scale, rounds, measure_set)
