"""Files of items that a function makes samples of: lines, members, or whatever else is read one by one.

Promises:

- An item is read from its file by one call, when its batch is formed.
- A file that is written to, or that was replaced before it was first read, is an error: it has other places.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy
from batchloom.arguments import make_unknown_keyword_error
from batchloom.dataset.base import Dataset
from batchloom.dataset.map.map_dataset import MapDataset
from batchloom.errors import ArgumentError, DataError
from batchloom.formats.options import NAMES, OpenOptions

Array = numpy.ndarray[Any, Any]

# The keywords of a dataset of items that `bl.open` takes.
OF_ITEMS = ("sizes", "key", "workers")


# Files that stay open; of more, each is opened for every read.
MOST_OPEN = 256


class FileReader:
    """Reads pieces of files; it pickles by their paths, and each process opens the files that it reads.

    Args:
        files: The paths.
        stamps: The size, the time of the last change and the number of each file when its places were found; ``None``
            for what they are now.

    Raises:
        DataError: A file is not there.
    """

    def __init__(self, files: Sequence[str], stamps: Sequence[tuple[int, ...]] | None = None) -> None:
        self.files = tuple(files)
        self._stamps = tuple(map(find_stamp, self.files)) if stamps is None else tuple(stamps)
        self._opened: dict[tuple[int, int], int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.files, self._stamps)

    def read(self, file: int, start: int, count: int) -> bytes:
        """Return some bytes of a file.

        Raises:
            DataError: The file has changed, ends before, or cannot be read.
        """
        path = self.files[file]
        try:
            descriptor = self._descriptor(file)
            try:
                found, stamp = _read_bytes(descriptor, start, count), _read_stamp(os.fstat(descriptor))
            finally:
                if self._opened.get((os.getpid(), file)) != descriptor:
                    os.close(descriptor)
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error}") from None
        if stamp != self._stamps[file]:
            raise DataError(f"{path} has changed since it was opened; expected it as it was: open it again")
        if len(found) != count:
            raise DataError(f"{path} ends before byte {start + count}; expected it as it was when it was opened")
        return found

    def size(self, file: int) -> int:
        """Return the bytes of a file when its places were found."""
        return self._stamps[file][0]

    def _descriptor(self, file: int) -> int:
        """Return a descriptor of a file: one that is kept, or one for this call alone."""
        key = (os.getpid(), file)
        found = self._opened.get(key)
        if found is None:
            found = os.open(self.files[file], os.O_RDONLY)
            # Of threads that open a file at once, one keeps its descriptor. The rest close theirs once they have read.
            if len(self._opened) < MOST_OPEN:
                self._opened.setdefault(key, found)
        return found

    def __del__(self) -> None:
        for (process, _), descriptor in self._opened.items():
            if process == os.getpid():
                os.close(descriptor)


def _read_bytes(descriptor: int, start: int, count: int) -> bytes:
    """Return bytes of a file, up to its end; the system returns 2 GiB at most in a call."""
    found = os.pread(descriptor, count, start)
    while len(found) < count and (more := os.pread(descriptor, count - len(found), start + len(found))):
        found += more
    return found


def find_stamp(path: str) -> tuple[int, ...]:
    """Return the size, the time of the last change and the number of a file, which tell it from other files.

    Raises:
        DataError: It is not there.
    """
    try:
        return _read_stamp(os.stat(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None


def _read_stamp(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ino


class Lines:
    """The lines of files, each made into an item when it is read.

    Args:
        files: The paths.
        places: The first byte and the bytes of each line, ``[lines, 2]``, for each file.
        parse: Makes an item of the bytes of a line.
    """

    def __init__(self, files: Sequence[str], places: Sequence[Array], parse: Callable[[bytes], Any]) -> None:
        self._reader, self._places, self._parse = FileReader(files), list(places), parse
        self._ends = numpy.cumsum([len(each) for each in places])

    def __len__(self) -> int:
        """Return the number of lines."""
        return int(self._ends[-1])

    def __getitem__(self, number: int) -> Any:
        """Return the item of a line.

        Raises:
            DataError: The file has changed, or the line makes no item.
        """
        if not 0 <= number < len(self):
            raise IndexError(f"line {number} of {len(self)}")
        file = int(numpy.searchsorted(self._ends, number, side="right"))
        start, count = self._places[file][number - int(self._ends[file])]
        line = self._reader.read(file, int(start), int(count))
        try:
            return self._parse(line)
        except DataError as error:
            raise DataError(f"{self._reader.files[file]}, the line from byte {start} on: {error}") from error.__cause__


def open_items(items: Any, options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of the samples that ``fn`` makes of items, which may lie in chunks.

    Raises:
        ArgumentError: A kind is given for samples that a function makes.
        TypeError: Such a dataset has no keyword of this name.
    """
    if options.fn is not None and options.kind is not None:
        raise ArgumentError(f"kind is {options.kind!r}, and fn makes the samples; expected one of them")
    for name in options.more:
        if name not in OF_ITEMS:
            raise make_unknown_keyword_error("open", name, [*OF_ITEMS, *NAMES])
    sizes = options.more.get("sizes")
    if isinstance(sizes, str):
        raise ArgumentError(
            f"sizes is {sizes!r}; expected a number for each sample: key=lambda row: row[{sizes!r}] takes a column"
        )
    window = {name: getattr(options, name) for name in ("chunks_open", "memory") if name in options.given}
    return MapDataset(items, options.fn, on_error=options.on_error or "raise", **window, **options.more)
