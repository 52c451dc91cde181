"""The counts of a campaign, and the failures that it found."""

import json
import os
import platform
import time
from collections import Counter
from pathlib import Path

import batchloom as bl


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

    def add(self, name, count=1):
        """Count something."""
        self.counts[name] += count
        if time.monotonic() - self.shown > 10:
            self.shown = time.monotonic()
            print(self, flush=True)

    def record(self):
        """Return the record for the JSON."""
        return {"seconds": round(time.monotonic() - self.start, 1), "counts": dict(self.counts), **self.facts}

    def __str__(self):
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()))
        return f"{self.part}: {time.monotonic() - self.start:.0f} s: {counts or 'nothing yet'}"


def save(path, tallies, seed):
    """Add the records of a campaign to a file of JSON."""
    path = Path(path)
    found = json.loads(path.read_text()) if path.exists() else {"campaigns": []}
    found["campaigns"].append(
        {
            "seed": seed,
            "version": bl.__version__,
            "machine": {"cores": os.cpu_count(), "os": platform.platform(), "python": platform.python_version()},
            "ended": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "parts": {tally.part: tally.record() for tally in tallies},
        }
    )
    path.write_text(json.dumps(found, indent=1) + "\n")
