"""Tars of samples (`.tar`), as WebDataset groups them: members of one stem are a sample, `{extension: bytes}`.

Promises:

- Headers are read once, when the tars are opened; the bytes of a sample are read when its batch is formed.
- A tar that has changed since it was opened is an error in place of the batch that needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError, DataError
from batchloom.formats.columns import ChosenColumn, choose_columns, show_names
from batchloom.formats.items import FileReader, find_stamp, open_items
from batchloom.formats.options import OpenOptions
from batchloom.formats.progress import ShownProgress
from batchloom.formats.tar_headers import list_members

Array = numpy.ndarray[Any, Any]

# The stem of a path, with its folders and to the first dot of its name, and its extension, all that is behind this dot.
_SPLIT = re.compile(r"((?:.*/|)[^./]+)\.([^/]*)", re.DOTALL)

# Threads that read headers, each a tar.
MOST_THREADS = 8


class TarIndex(NamedTuple):
    """The samples of a tar.

    Attributes:
        path: The tar.
        stamp: The tar as it was before its headers were read.
        stems: The stem of each sample.
        firsts: The number of the first member of each sample, and the number of all members.
        extensions: The number of the extension of each member.
        starts: The first byte of each member.
        sizes: The bytes of each member.
        names: The extensions.
    """

    path: str
    stamp: tuple[int, ...]
    stems: list[str]
    firsts: Array
    extensions: Array
    starts: Array
    sizes: Array
    names: list[str]


class TarSample(dict[str, bytes]):
    """The members of a sample, by their extensions.

    Attributes:
        key: The stem of their names.
        path: The tar.
    """

    def __init__(self, key: str, path: str, members: Mapping[str, bytes]) -> None:
        super().__init__(members)
        self.key, self.path = key, path

    def __reduce__(self) -> tuple[Any, ...]:
        return TarSample, (self.key, self.path, dict(self))

    def __repr__(self) -> str:
        return f"{self.key} of {self.path}, with {', '.join(self)}"


class TarSamples:
    """The samples of tars by number, each read when it is asked for; it pickles by the paths of the tars.

    Args:
        indices: The samples of each tar.
        chosen: The extension of each field; ``None`` for all members, by their extensions.
    """

    def __init__(self, indices: Sequence[TarIndex], chosen: Mapping[str, ChosenColumn] | None) -> None:
        self._indices, self._chosen = list(indices), chosen
        self._reader = FileReader([each.path for each in indices], [each.stamp for each in indices])
        self._ends = numpy.cumsum([len(each.stems) for each in indices])

    def __len__(self) -> int:
        """Return the number of samples."""
        return int(self._ends[-1])

    def __getitem__(self, number: int) -> TarSample:
        """Return a sample.

        Raises:
            DataError: Its tar has changed, or cannot be read.
        """
        if not 0 <= number < len(self):
            raise IndexError(f"sample {number} of {len(self)}")
        file = int(numpy.searchsorted(self._ends, number, side="right"))
        index = self._indices[file]
        sample = number - int(self._ends[file]) + len(index.stems)
        first, end = int(index.firsts[sample]), int(index.firsts[sample + 1])
        places = {index.names[index.extensions[member]]: member for member in range(first, end)}
        if self._chosen is not None:
            places = {field: places[column.name] for field, column in self._chosen.items()}
        read = {
            name: self._reader.read(file, int(index.starts[member]), int(index.sizes[member]))
            for name, member in places.items()
        }
        return TarSample(index.stems[sample], index.path, read)


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of the samples of tars.

    Raises:
        ArgumentError: An extension does not exist, or extensions are joined.
        DataError: A tar is damaged, or holds no sample; or samples differ in extensions where all must have the same.
    """
    if options.kind is not None:
        raise ArgumentError(
            f"kind is {options.kind!r}, and {files[0]} holds samples for a function; expected kind=None"
        )
    indices = [each for each in read_indices(files) if each.stems]
    if not indices:
        if not any(True for file in files for _ in list_members(file)):
            raise DataError(f"{files[0]} has no members, nor has a tar beside it; expected samples")
        raise DataError(f"{files[0]} holds no file with a stem and an extension, as 0001.jpg; expected samples")
    available = list(dict.fromkeys(name for each in indices for name in each.names))
    chosen = None if options.columns is None else choose_columns(available, options.columns, files[0])
    joined = next((field for field, column in (chosen or {}).items() if column.joined), None)
    if joined is not None:
        raise ArgumentError(f"columns[{joined!r}] joins members of tars; expected one extension for a field")
    if chosen is not None:
        _require_extensions(indices, [column.name for column in chosen.values()])
    elif options.fn is None:
        _require_extensions(indices, available)
    return open_items(TarSamples(indices, chosen), options)


def read_indices(files: Sequence[str]) -> list[TarIndex]:
    """Return the samples of tars, several of which are read at a time.

    Raises:
        DataError: One is damaged.
    """
    found: list[TarIndex] = []
    with (
        ShownProgress(f"reading the headers of {files[0]}", "tars") as progress,
        ThreadPoolExecutor(min(MOST_THREADS, len(files)), "batchloom-tars") as pool,
    ):
        for index in pool.map(read_index, files):
            found.append(index)
            progress(len(found), len(files))
    return found


def read_index(path: str) -> TarIndex:
    """Return the samples of a tar, in the order of their first members.

    Raises:
        DataError: It is damaged, or a sample has an extension twice.
    """
    stamp = find_stamp(path)
    samples: dict[str, dict[int, tuple[int, int]]] = {}
    numbers: dict[str, int] = {}
    for stem, extension, start, size in _split_members(path):
        number = numbers.setdefault(extension, len(numbers))
        members = samples.setdefault(stem, {})
        if number in members:
            raise DataError(f"{path} has member {stem}.{extension} twice; expected every member once")
        members[number] = (start, size)
    counts = [len(members) for members in samples.values()]
    places = [place for members in samples.values() for place in members.values()]
    return TarIndex(
        path,
        stamp,
        list(samples),
        numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(counts, dtype=numpy.int64)]),
        numpy.array([number for members in samples.values() for number in members], numpy.int32),
        numpy.array([start for start, _ in places], numpy.int64),
        numpy.array([size for _, size in places], numpy.int64),
        list(numbers),
    )


def _split_members(path: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield the stem and the extension of each member that has both, and its place; names in ``__`` are notes."""
    for name, start, size in list_members(path):
        found = _SPLIT.fullmatch(name)
        is_note = name.startswith("__") and name.endswith("__")
        if found is not None and not is_note:
            yield found[1], found[2].lower(), start, size


def _require_extensions(indices: Sequence[TarIndex], names: Sequence[str]) -> None:
    """Refuse a sample without one of some extensions.

    Raises:
        DataError: There is one.
    """
    for index in indices:
        wanted = [index.names.index(name) if name in index.names else -1 for name in names]
        sample_of = numpy.repeat(numpy.arange(len(index.stems)), numpy.diff(index.firsts))
        for name, number in zip(names, wanted, strict=True):
            has = numpy.zeros(len(index.stems), bool)
            has[sample_of[index.extensions == number]] = True
            if not has.all():
                stem = index.stems[int((~has).argmax())]
                raise DataError(
                    f"sample {stem} of {index.path} has no member with extension {name!r}; expected every sample to "
                    f"have {show_names(names)}: columns= chooses extensions, and fn= takes any"
                )
