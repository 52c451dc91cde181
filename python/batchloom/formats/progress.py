"""`ShownProgress`: one line of a terminal for work that takes longer than a moment."""

from __future__ import annotations

import sys
import time

# Work that takes less time shows nothing.
SHOWN_AFTER = 1.0
# The time between two changes of the line.
PAUSE = 0.2


class ShownProgress:
    """Shows how much of some work is done, on a terminal alone; called with what is done, and all that will be.

    Args:
        what: The work.
        units: The units that are counted.
    """

    def __init__(self, what: str, units: str) -> None:
        self._what, self._units = what, units
        self._next = time.monotonic() + SHOWN_AFTER
        self._is_shown = False

    def __call__(self, done: int, total: int) -> None:
        """Show what is done."""
        now = time.monotonic()
        if now < self._next or not sys.stderr.isatty():
            return
        self._next, self._is_shown = now + PAUSE, True
        sys.stderr.write(f"\r{self._what}: {done} of {total} {self._units}\x1b[K")
        sys.stderr.flush()

    def __enter__(self) -> ShownProgress:
        """Return the progress."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the line."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
