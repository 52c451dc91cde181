"""`FileDataset`: samples of files that the engine reads a chunk at a time, in the order of a plan.

Promises:

- No value is read before its batch is formed. Lengths are known before, so that rules that count decide by them.
- Chunks are runs of rows that are cheap to read alone; threads of the loader read and decode them without Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import batchloom._native as _native
import numpy
from batchloom.dataset.map.chunk_dataset import ChunkSource
from batchloom.dataset.map.chunk_samples import ChunkedDataset, ChunkSamples
from batchloom.dataset.map.chunk_window import WindowSize
from batchloom.dataset.map.on_demand import ReadOptions
from batchloom.dataset.map.source import Refused, describe_error, make_sample_error
from batchloom.dataset.map.structure import Structures
from batchloom.errors import ArgumentError, DataError, many

Array = numpy.ndarray[Any, Any]


class OpenChunks(Protocol):
    """A function that opens files, and pickles: other processes call it again."""

    def __call__(self) -> _native.FileChunks:
        """Return the chunks of the files."""


class FileDataset(ChunkedDataset):
    """Samples of files that are read a chunk at a time; :func:`batchloom.open` makes it.

    A sample is a dict with each field of a row. Samples are shuffled in a window over chunks, as in a
    :class:`batchloom.ChunkDataset`: an epoch has every sample once, runs resume exactly, and ranks read different
    chunks.
    """

    def __init__(
        self,
        files: Sequence[str],
        open_chunks: OpenChunks,
        fields: Mapping[str, bool],
        window: WindowSize,
        on_error: str = "raise",
        sizes: Mapping[str, Any] | None = None,
    ) -> None:
        """Open the chunks of files.

        Args:
            files: The paths of the files.
            open_chunks: Opens their chunks.
            fields: ``True`` for each field with lists that differ in length.
            window: The size of the window over chunks.
            on_error: ``"raise"`` or ``"skip"``.
            sizes: Sizes by name beside the lengths of lists, for rules with several budgets.

        Raises:
            ArgumentError: There are sizes, and no lists; or they have the name of a field with lists.
        """
        source = FileSource(tuple(files), open_chunks, tuple(fields))
        # Fields of one shape are not as long as the lists beside them.
        lists = tuple(name for name, is_list in fields.items() if is_list)
        options = ReadOptions(None if source.lengths is None else lists, on_error)
        self._samples = ChunkSamples(source, add_sizes(source.lengths, lists, sizes), options, window)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files."""
        source = self._samples.source
        assert isinstance(source, FileSource)
        return source.files

    def __repr__(self) -> str:
        counts = (many(len(self.files), "file"), many(len(self.chunks), "chunk"), many(len(self), "sample"))
        return f"FileDataset({'; '.join(counts)})"


def add_sizes(lengths: Array | None, lists: Sequence[str], sizes: Mapping[str, Any] | None) -> Any:
    """Return the lengths of lists, with further sizes by name.

    Raises:
        ArgumentError: There are sizes, and no lists; or they have the name of a field with lists.
    """
    if not sizes:
        return lengths
    if lengths is None:
        raise ArgumentError("sizes is given, and no field has lists that differ in length; expected no sizes")
    taken = [name for name in lists if name in sizes]
    if taken:
        raise ArgumentError(
            f"sizes names {taken[0]}, a field with lists, which has its lengths; expected other names than "
            f"{', '.join(lists)}"
        )
    return {lists[0]: lengths, **sizes}


def _open_again(files: tuple[str, ...], open_chunks: OpenChunks, names: tuple[str, ...]) -> FileSource:
    """Return chunks that were pickled.

    Raises:
        DataError: A file is not there.
    """
    try:
        return FileSource(files, open_chunks, names)
    except OSError as error:
        raise DataError(f"{error}; expected the files where they were when their dataset was pickled") from None


class FileSource(ChunkSource):
    """The chunks of files, and the samples in them.

    Attributes:
        files: The paths of the files.
        names: The names of the fields, in the order in which samples have them.
        lengths: The length of the lists of each sample; ``None`` if no field has lists that differ in length.
    """

    def __init__(self, files: tuple[str, ...], open_chunks: OpenChunks, names: tuple[str, ...]) -> None:
        self.files, self.names, self._open, self._chunks = files, names, open_chunks, open_chunks()
        lengths = self._chunks.lengths()
        self.lengths: Array | None = None if lengths is None else numpy.from_dlpack(lengths)
        self._types = dict(self._chunks.types())
        super().__init__(numpy.from_dlpack(self._chunks.sizes()), self._read)
        self._structures = Structures()
        example = {name: numpy.zeros(0) for name in names}
        structure, _ = self._structures.take_apart(example, 1, {})
        self._chunks = self._chunks.nested(structure.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return _open_again, (self.files, self._open, self.names)

    @property
    def structures(self) -> Structures:
        """The structures of samples."""
        return self._structures

    @property
    def types(self) -> Mapping[str, str]:
        """The type of each field in words."""
        return self._types

    def engine(self, *options: Any) -> _native.Dataset:
        """Return the samples as the engine sees them."""
        return _native.Dataset.in_chunks(self._chunks, *options)

    def samples(self, numbers: Iterable[int], seed: int, epoch: int, stop: Any = False) -> Iterator[Any]:
        """Yield samples, each from a chunk that is read for it: for a look at single samples."""
        for number in numbers:
            if stop:
                break
            try:
                yield self._sample(number)
            except Exception as error:
                yield Refused(make_sample_error(number, None, describe_error(error)), error)

    def _sample(self, number: int) -> dict[str, Array]:
        sizes = _native.borrow(self.sizes, "sizes")
        engine = self.engine(sizes, None, None, False, 1, None)
        found = {name: numpy.from_dlpack(tensor) for name, tensor in engine.sample(number)}
        return {name: found[name] for name in self.names}

    def _read(self, chunk: int) -> list[dict[str, Array]]:
        first = self.first(chunk)
        return [self._sample(number) for number in range(first, first + int(self.sizes[chunk]))]
