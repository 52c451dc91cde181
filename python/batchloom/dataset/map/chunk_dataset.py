"""Samples that are read a chunk at a time: HDF5, Zarr, row groups, a database, or whatever else has cheap runs of rows.

Promises:

- A chunk is read by one call, and once as long as the engine holds it; threads read several chunks at a time.
- Which samples share a batch is decided from sizes, before any chunk is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import batchloom._native as _native
import numpy
from batchloom.arguments import answer_unknown_keywords, choice
from batchloom.arrays.frames import is_frame, names_of
from batchloom.dataset.map.chunk_samples import ChunkedDataset, ChunkSamples
from batchloom.dataset.map.chunk_window import window_size
from batchloom.dataset.map.map_dataset import ON_ERROR
from batchloom.dataset.map.on_demand import ReadOptions
from batchloom.dataset.map.source import Refused, describe_error, make_sample_error
from batchloom.dataset.map.structure import Structure, Structures
from batchloom.dataset.object_field import ObjectField
from batchloom.dataset.tables import read_field
from batchloom.dataset.variable import Variable
from batchloom.errors import ArgumentError, DataError, DTypeError, SampleError, many
from batchloom.samples.chunks import check_chunks

Array = numpy.ndarray[Any, Any]


@answer_unknown_keywords
class ChunkDataset(ChunkedDataset):
    """Samples that are read a chunk at a time: one call for many samples, in place of one for each.

        rows = h5py.File("train.h5")["x"]
        sizes = [1000] * (len(rows) // 1000)
        dataset = bl.ChunkDataset(sizes, lambda chunk: rows[1000 * chunk : 1000 * (chunk + 1)])
        loader = bl.DataLoader(dataset, batch_size=64, shuffle=True)

    Samples are shuffled in a window over chunks, which come in random order: each batch mixes the samples of
    ``chunks_open`` chunks. Every sample comes once in an epoch, runs resume exactly, and each rank reads chunks of its
    own. Without ``shuffle``, chunks are read as stored.

    Threads of the loader call ``read``, for several chunks at a time, in the order in which batches need them. The
    chunks that batches need are held: ``chunks_open`` of them, three for the batches ahead, and one for each thread,
    which is read early. Between epochs none is held.

    Args:
        sizes: The number of samples in each chunk.
        read: A function that returns the samples of a chunk by its number: an array with a row for each sample, or a
            tuple or a dict of arrays, or of whatever a :class:`SequenceDataset` takes as a field (Arrow lists, lists of
            arrays, values with offsets). An Arrow record batch, a table or a frame stands for a dict of its columns.
            The arrays have memory of their own.
        lengths: The size of each sample, where samples differ in size: numbers to sort, count and budget by. Or a dict
            of sizes by name, for rules with several budgets: rules sort by the first, which is the length of arrays.
        columns: The names of the fields that are as long as the size of their sample; places, for samples that are
            tuples. ``None`` for all with at least one dimension.
        chunks_open: The number of chunks whose samples are mixed at a time; 16 unless ``memory`` decides it.
        memory: The memory for chunks, in bytes or as a text such as ``"256MB"``, in place of ``chunks_open``: four
            fifths of the chunks that it holds are mixed (all but four of a few), and the rest are for the batches
            ahead. The largest chunk, by ``lengths`` or by its number of samples, is read once to learn its bytes.
            Iterations that run side by side have as much each. Batches that need more chunks at a time take more.
        on_error: ``"raise"`` makes a batch with samples of a chunk that cannot be read an error. ``"skip"`` puts zeros
            in their places, and every batch then holds a ``weight`` (float32), which is 0 there and 1 elsewhere.

    Raises:
        ArgumentError: ``read`` is no function, an option is unknown, ``memory`` and ``chunks_open`` are both given, or
            memory holds neither five chunks nor all of them.
        DataError: Sizes are no numbers from 0 on, there is no sample, or lengths are not one for each sample.
    """

    def __init__(
        self,
        sizes: Any,
        read: Callable[[int], Any],
        *,
        lengths: Any = None,
        columns: Sequence[str | int] | None = None,
        chunks_open: int | None = None,
        memory: int | str | None = None,
        on_error: str = "raise",
    ) -> None:
        if not callable(read):
            raise ArgumentError(f"read is a {type(read).__name__}; expected a function of the number of a chunk")
        columns = [columns] if isinstance(columns, str | int) else columns
        options = ReadOptions(None if columns is None else tuple(columns), choice("on_error", on_error, ON_ERROR))
        source = ChunkSource(numpy.array(check_chunks(sizes, "sizes")), read)
        self._samples = ChunkSamples(source, lengths, options, window_size(chunks_open, memory))

    @property
    def read(self) -> Callable[[int], Any]:
        """The function that returns the samples of a chunk."""
        source = self._samples.source
        assert isinstance(source, ChunkSource)
        return source.read

    def __repr__(self) -> str:
        return f"ChunkDataset({many(len(self.chunks), 'chunk')}; {many(len(self), 'sample')})"


class ChunkSource:
    """Chunks by number, and the samples in them.

    Attributes:
        sizes: The number of samples in each chunk; int64.
        read: The function that returns the samples of a chunk.
    """

    def __init__(self, sizes: Array, read: Callable[[int], Any]) -> None:
        self.sizes, self.read = sizes, read
        self._ends = numpy.cumsum(sizes)

    def __reduce__(self) -> tuple[Any, ...]:
        return ChunkSource, (self.sizes, self.read)

    @property
    def structures(self) -> Structures:
        """The structures of samples."""
        return self._reader.structures

    @property
    def types(self) -> Mapping[str, str] | None:
        """The type of each field in words, if the function has them as ``types``: nobody else knows before it reads."""
        return getattr(self.read, "types", None)

    @cached_property
    def _reader(self) -> ChunkReader:
        return ChunkReader(self)

    def engine(self, *options: Any) -> _native.Dataset:
        """Return the samples as the engine sees them, with the options of chunks."""
        return _native.Dataset.in_chunks(self._reader, *options)

    def __len__(self) -> int:
        """Return the number of samples of all chunks."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def first(self, chunk: int) -> int:
        """Return the number of the first sample of a chunk."""
        return int(self._ends[chunk]) - int(self.sizes[chunk])

    def samples(self, numbers: Iterable[int], seed: int, epoch: int, stop: Any = False) -> Iterator[Any]:
        """Yield samples, each from a chunk that is read for it: for a look at single samples."""
        for number in numbers:
            if stop:
                break
            chunk = int(numpy.searchsorted(self._ends, number, side="right"))
            try:
                fields = read_chunk(self.read(chunk))
                sample = fields.sample(number - self.first(chunk))
            except Exception as error:
                sample = Refused(make_sample_error(number, None, describe_error(error)), error)
            yield sample

    def item(self, number: int) -> Any:
        """Return nothing: an error shows no item."""
        return None


class ChunkFields(NamedTuple):
    """The samples of a chunk, field by field."""

    kind: type[Any]
    """``dict``, ``tuple``, or ``list`` for a single array."""
    fields: dict[Any, Any]

    def sample(self, row: int) -> Any:
        """Return one sample."""
        values = {key: field.row(row) for key, field in self.fields.items()}
        if self.kind is dict:
            return values
        return tuple(values.values()) if self.kind is tuple else values[0]


def read_chunk(chunk: Any) -> ChunkFields:
    """Return the fields of numbers of what a function returned for a chunk.

    Raises:
        DataError: It holds no field, or a field is no array.
        DTypeError: A field holds objects.
    """
    found = read_fields(chunk)
    for key, field in found.fields.items():
        if isinstance(field, ObjectField):
            if found.kind is list and isinstance(field.values[0], Mapping | tuple):
                raise DTypeError(
                    f"it is a list of a {type(field.values[0]).__name__} for each sample; expected one array for each "
                    'field, with all samples of the chunk: {"x": array, "y": array}, or a tuple of arrays'
                )
            raise DTypeError(f"field {key} holds objects, as {field.values[0]!r:.80}; expected numbers in chunks")
    return found


def read_fields(chunk: Any) -> ChunkFields:
    """Return the fields of a chunk, of numbers or of objects.

    Raises:
        DataError: It holds no field, or a field is no array.
        DTypeError: A type is neither moved as bytes nor an object.
    """
    kind: type[Any] = dict
    parts: dict[Any, Any]
    if isinstance(chunk, Mapping):
        parts = dict(chunk)
    elif is_frame(chunk) or hasattr(chunk, "schema"):  # record batches of Arrow have fields in place of columns
        parts = {name: chunk[name] for name in names_of(chunk)}
    elif isinstance(chunk, tuple):
        kind, parts = tuple, dict(enumerate(chunk))
    else:
        kind, parts = list, {0: chunk}
    if not parts:
        raise DataError(f"it is an empty {type(chunk).__name__}; expected an array, or a tuple or a dict of arrays")
    return ChunkFields(kind, {key: read_field(str(key), part) for key, part in parts.items()})


class ChunkReader:
    """Reads chunks for the engine, and finds out the structure of samples."""

    def __init__(self, source: ChunkSource) -> None:
        self._source, self.structures = source, Structures()

    def read_chunk(self, chunk: int) -> tuple[Structure, list[Any]]:
        """Return the structure of the samples of a chunk, and each field as the engine has it.

        Raises:
            SampleError: The chunk cannot be read, or holds no arrays of numbers.
        """
        try:
            found = read_chunk(self._source.read(chunk))
            wrong = self._find_wrong_count(chunk, found)
            if wrong is None:
                return self._take_apart(found)
        except Exception as error:
            first = self._source.first(chunk)
            raise SampleError(f"chunk {chunk} could not be read: {describe_error(error)}", first) from error
        raise SampleError(f"chunk {chunk} has {wrong}", self._source.first(chunk))

    def _take_apart(self, found: ChunkFields) -> tuple[Structure, list[Any]]:
        structure, _ = self.structures.take_apart(found.sample(0), 1, {})
        by_name = {str(key): field for key, field in found.fields.items()}
        ordered = [by_name[name] for name in structure.names]
        return structure, [field.sequences if isinstance(field, Variable) else field.tensor for field in ordered]

    def _find_wrong_count(self, chunk: int, found: ChunkFields) -> str | None:
        """Return what is wrong if a field has another number of samples than its chunk."""
        expected = int(self._source.sizes[chunk])
        for key, field in found.fields.items():
            try:
                count = len(field.offsets) - 1 if isinstance(field, Variable) else len(field.array)
            except TypeError:  # a scalar
                return f"one value in field {key}; expected {expected} samples, as its size says"
            if count != expected:
                return f"{many(count, 'sample')} in field {key}; expected {expected}, as its size says"
        return None
