"""Compare the rules on one million and on ten million lengths, as the program does.

    python -m bench compare [--rounds 5] [--scale 0.02] [--output FILE]

Promises:

- Each run is ``python -m batchloom compare FILE --world-size 8 --max-tokens 16384`` in a process of its own: the start
  of the interpreter, reading and all six rules are in its time. Lengths are drawn from a lognormal distribution.
- Memory is the peak of that process less that of the same command on a hundred lengths, for each length. The file is
  read in parts, and none of it stays in memory.
- Nothing else compares rules. Beside it stands what people write by hand for two of the six: the padding of batches of
  equal numbers, in random order and sorted, in NumPy; it shows no steps, no shapes and no waiting.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy

from bench.harness.claims import Claim, stated
from bench.harness.command import arguments, is_whole
from bench.harness.measure import LOOM, Candidate, interleave
from bench.harness.record import write
from bench.harness.report import faster_than, print_disturbed, table

SIZES = (1_000_000, 10_000_000)
LIMITS = {1_000_000: 1.5, 10_000_000: 12.0}
BYTES = 24
FEW = 100
MAX_TOKENS = 16_384
HAND = "NumPy by hand, two rules"


def lengths_of(samples: int) -> numpy.ndarray[Any, Any]:
    """Return lengths as texts have them: most are short, some are long."""
    drawn = numpy.random.default_rng(0).lognormal(5, 0.8, samples)
    return numpy.clip(drawn, 1, 4000).astype(numpy.uint32)


# The peak of a process counts that of the one that started it until it runs its own program: so a small one starts it.
STARTER = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def program(path: Path) -> tuple[float, int]:
    """Compare the rules in a process of its own; return the seconds and the peak of its memory."""
    command = [sys.executable, "-m", "batchloom", "compare", str(path), "--world-size", "8"]
    command = [sys.executable, "-S", "-c", STARTER, *command, "--max-tokens", str(MAX_TOKENS)]
    seconds, peak = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    return float(seconds), int(peak)


def by_hand(path: Path) -> None:
    """Compute the share of padding of batches of equal numbers of samples, in random order and sorted."""
    lengths = numpy.load(path)
    batch = int(MAX_TOKENS / lengths.mean())
    whole = len(lengths) // batch * batch

    def padding(order: numpy.ndarray[Any, Any]) -> float:
        batches = order[:whole].reshape(-1, batch)
        return 1 - float(batches.sum() / (batches.max(1).astype(numpy.int64) * batch).sum())

    assert padding(numpy.random.default_rng(0).permutation(lengths)) > padding(numpy.sort(lengths))


def measure(samples: int, limit: float, rounds: int, folder: Path) -> dict[str, Any]:
    """Measure one number of lengths."""
    path, few = folder / f"{samples}.npy", folder / "few.npy"
    numpy.save(path, lengths_of(samples))
    numpy.save(few, lengths_of(FEW))
    peaks: list[int] = []

    def run() -> float:
        seconds, peak = program(path)
        peaks.append(peak)
        return seconds

    candidates = [Candidate(LOOM, run, slow=True), Candidate(HAND, partial(by_hand, path), slow=True)]
    timings = interleave(f"{samples} lengths", candidates, rounds)
    loom = timings[LOOM]
    each = (max(peaks) - program(few)[1]) / samples
    rows = [(name, f"{timing.median:.2f}", f"{timing.ratio(loom):.2f}") for name, timing in timings.items()]
    table(f"{samples} lengths, six rules; {each:.1f} bytes a length", ("candidate", "median s", "x batchloom"), rows)
    print_disturbed(f"{samples} lengths", timings)
    claims = [
        Claim(f"{samples} lengths: seconds of the program", loom.median, "<=", limit),
        Claim(f"{samples} lengths: bytes a length", each, "<=", BYTES),
    ]
    return {
        "samples": samples,
        "bytes_a_length": each,
        "candidates": [timing.record({"batchloom": loom}) for timing in timings.values()],
        "faster_than_batchloom": faster_than(LOOM, timings),
        "claims": stated(claims),
    }


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as folder:
        sizes = {max(round(size * chosen.scale), FEW): limit for size, limit in LIMITS.items()}
        cases = [measure(size, limit, chosen.rounds, Path(folder)) for size, limit in sizes.items()]
    write("compare", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
