"""`Places`: the files that samples lie in, so that a message names a row of a file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy


class Places:
    """Files one after the other, and the number of samples in each.

    Args:
        files: The files.
        counts: The samples of each.
    """

    def __init__(self, files: Sequence[str], counts: Sequence[int]) -> None:
        self.files, self.counts = list(files), list(counts)
        self._ends = numpy.cumsum(self.counts)

    @property
    def first(self) -> str:
        """The first file."""
        return self.files[0]

    def file(self, row: int) -> str:
        """Return the file of a row."""
        return self.files[min(int(numpy.searchsorted(self._ends, row, side="right")), len(self.files) - 1)]

    def name(self, row: int) -> str:
        """Return the name of a row: its number in its file, and the file."""
        file = int(numpy.searchsorted(self._ends, row, side="right"))
        if file == len(self.files):
            return f"row {row}"
        return f"row {row - int(self._ends[file]) + self.counts[file]} of {self.files[file]}"
