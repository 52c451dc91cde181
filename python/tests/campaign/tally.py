"""The counts of a campaign, and the failures that it found."""

import contextlib
import itertools
import json
import os
import platform
import time
import traceback
from collections import Counter
from pathlib import Path

import batchloom as bl

ROOT = Path(__file__).parents[3]


class FindingError(Exception):
    """A finding: it says what was wrong, and how to repeat it."""


class Tally:
    """The counts of one part of a campaign, shown as it goes on.

    Args:
        part: The name of the part.
        seconds: The time that it may take.
    """

    def __init__(self, part, seconds):
        self.part, self.counts, self.start, self.shown = part, Counter(), time.monotonic(), 0.0
        self.end = self.start + seconds
        self.facts = {}

    @property
    def is_over(self):
        """True when its time is up."""
        return time.monotonic() >= self.end

    def numbers(self, first, most):
        """Yield the numbers of cases until time is up, or so many."""
        for number in itertools.count(first) if most is None else range(first, first + most):
            if self.is_over and most is None:
                return
            yield number

    def add(self, name, count=1):
        """Count something."""
        self.counts[name] += count
        if time.monotonic() - self.shown > 10:
            self.shown = time.monotonic()
            print(self, flush=True)

    def record(self):
        """Return the record for the JSON, with the time so far."""
        return {"seconds": round(time.monotonic() - self.start, 1), "counts": dict(self.counts), **self.facts}

    def __str__(self):
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()))
        return f"{self.part}: {time.monotonic() - self.start:.0f} s: {counts or 'nothing yet'}"


@contextlib.contextmanager
def reported(part, seed, number):
    """Turn whatever is raised into a finding; yield a list, whose last entry tells the case.

    Raises:
        FindingError: Something was raised, a panic of the engine or a failed assertion among them.
    """
    told = ["not drawn yet"]
    try:
        yield told
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of the engine is no Exception
        raise FindingError(
            f"{part} {number}: {told[-1]}\n{traceback.format_exc().replace(f'{ROOT}/', '')}\n"
            f"repeat it: scripts/campaign --only {part} --seed {seed} --first {number} --most 1"
        ) from error


def save(path, records, seed):
    """Add the records of the parts of a campaign, by name, to a file of JSON."""
    path = Path(path)
    found = json.loads(path.read_text()) if path.exists() else {"campaigns": []}
    found["campaigns"].append(
        {
            "seed": seed,
            "version": bl.__version__,
            "machine": {"cores": os.cpu_count(), "os": platform.platform(), "python": platform.python_version()},
            "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "parts": records,
        }
    )
    path.write_text(json.dumps(found, indent=1) + "\n")
