"""`ChunkSamples`: samples that are read a chunk at a time, of one dataset, or of several that were put together.

Promises:

- The engine holds the chunks, those of several datasets in the memory that all have together.
- Each chunk is read by the reader of its dataset. Batches may hold samples of several datasets, and the number of the
  dataset of each where that is asked for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import batchloom._native as _native
import numpy
from batchloom.batching.rules import Rule
from batchloom.dataset.base import Dataset, samples_of
from batchloom.dataset.concat import SOURCE, Origin, require_datasets
from batchloom.dataset.map.chunk_reads import ChunkCounts, ReadWatch
from batchloom.dataset.map.chunk_window import WindowSize, require_same_limits, window_size
from batchloom.dataset.map.on_demand import OnDemandSamples, ReadOptions
from batchloom.dataset.map.source import Refused, SampleSource
from batchloom.dataset.map.structure import Structure
from batchloom.dataset.samples import MAPPED, Memory, Recipe, override
from batchloom.errors import ArgumentError, DataError, SampleError, many
from batchloom.samples.sizes import NamedSizes, Sizes

if TYPE_CHECKING:
    from batchloom.collate.fields import Fields

Array = numpy.ndarray[Any, Any]


class SourceOfChunks(SampleSource, Protocol):
    """Chunks by number, and the samples in them."""

    sizes: Array
    """The number of samples in each chunk."""

    @property
    def structures(self) -> Any:
        """The structures of samples."""

    @property
    def types(self) -> Mapping[str, str] | None:
        """The type of each field in words, as far as it is known before a chunk is read; ``None`` without any names."""

    def engine(self, *options: Any) -> _native.Dataset:
        """Return the samples as the engine sees them, with the options of chunks."""


class ChunkedDataset(Dataset[Any]):
    """Samples that are read a chunk at a time, whoever reads them."""

    _samples: ChunkSamples[Any]

    @property
    def chunks(self) -> Array:
        """The number of samples in each chunk."""
        sizes: Array = self._samples.source.sizes
        return sizes

    @property
    def lengths(self) -> Sizes | None:
        """The size of each sample; ``None`` if all count the same."""
        return self._samples.sizes()

    @property
    def columns(self) -> tuple[str | int, ...] | None:
        """The fields that are as long as the size of their sample; ``None`` for all with at least one dimension."""
        return self._samples.options.columns

    @property
    def chunks_open(self) -> int:
        """The number of chunks whose samples are mixed at a time."""
        return self._samples.chunks_open

    @property
    def memory(self) -> int | None:
        """The bytes of memory for chunks; ``None`` for as many as batches need."""
        return self._samples.window.memory

    @property
    def on_error(self) -> str:
        """``"raise"`` or ``"skip"``."""
        return self._samples.options.on_error

    @property
    def counts(self) -> ChunkCounts:
        """The chunks that loaders of this dataset have read, and how memory was used."""
        counts = self._samples.counts
        assert counts is not None, "samples are in chunks"
        return counts


Chunks = TypeVar("Chunks", bound=SourceOfChunks)


class ChunkSamples(OnDemandSamples[Chunks]):
    """Samples that are read a chunk at a time.

    Attributes:
        window: The size of the window over chunks, as it was given.
    """

    is_in_chunks = True
    sizes_name = "lengths"

    def __init__(
        self,
        source: Chunks,
        lengths: Any = None,
        options: ReadOptions | None = None,
        window: WindowSize | None = None,
    ) -> None:
        if not len(source):
            raise DataError("sizes hold no sample; expected at least one sample in a chunk")
        super().__init__(source, lengths, options)
        self.window = window_size(None, None) if window is None else window
        # Chunks that are held serve all loaders.
        self._whole = self._make_chunk_engine()
        self._reads = ReadWatch(self.window.memory, self._whole)

    @property
    def chunks_open(self) -> int:
        """The number of chunks whose samples are mixed at a time."""
        found = self._whole.chunks_open()
        assert found is not None, "the window has a size"
        return found

    @override
    def require_alike(self, datasets: Sequence[Any], labels: Sequence[str]) -> None:
        pairs = zip(labels, datasets, strict=True)
        parts = [(label, chunk_samples_of(each)) for label, each in pairs if isinstance(each, ChunkedDataset)]
        require_same_limits((label, part.window) for label, part in parts)
        require_same_fields([(label, part.source.types) for label, part in parts])

    @override
    def join(self, datasets: Sequence[Any], *, source: bool) -> Any:
        return JoinedChunkDataset(datasets, source=source)

    @override
    def recipe(self) -> Recipe:
        return ChunkSamples, (self.source, self.own_sizes, self.options, self.window)

    @override
    def engine(self) -> _native.Dataset:
        return self._whole if self.selection is None else self._whole.select(self.selection)

    @override
    def for_loader(self, threads: int | None, fields: Fields) -> tuple[_native.Dataset, Memory | None]:
        if fields.whole is not None:
            raise ArgumentError(
                "collate is a function of whole batches, and samples are read in chunks; expected slots of single "
                "fields, as in fields={'x': bl.Field(slot=...)}, a function that read() calls for a whole chunk, or "
                f"{MAPPED}"
            )
        if fields.slot_functions:
            name = next(iter(fields.slot_functions))
            raise ArgumentError(
                f"fields has a function for the slot of {name}, and samples are read in chunks; expected bl.Pad, "
                f"bl.Crop or bl.Resize, a function that read() calls for a whole chunk, or {MAPPED}"
            )
        return self.engine(), None

    @override
    def late_schema(self, columns: Any, nesting: str) -> Any:
        self._reader.structures.add(self.source.structures.of_text(nesting))
        return super().late_schema(columns, nesting)

    def _make_chunk_engine(self) -> _native.Dataset:
        lengths = None if self.own_sizes is None else self.own_sizes.borrow()
        fields = None if self.options.columns is None else self._variable
        sizes = _native.borrow(self.source.sizes, "sizes")
        skips = self.options.on_error == "skip"
        return self.source.engine(sizes, lengths, fields, skips, *self.window)


class JoinedChunkDataset(ChunkedDataset):
    """The samples of several datasets that are read a chunk at a time: ``first.concat(second, third)``.

    Their chunks are mixed in one window, or in one for each source of a mixture. Memory adds up: an iteration holds at
    most the bytes that all datasets together may hold.
    """

    _samples: JoinedChunkSamples

    def __init__(self, datasets: Sequence[Dataset[Any]], *, source: bool) -> None:
        """Put datasets together; with ``source``, batches hold the number of the dataset of each sample.

        Raises:
            ArgumentError: A dataset is not read a chunk at a time, or datasets differ in their fields or options.
        """
        require_datasets(datasets)
        parts: list[ChunkedDataset] = []
        for number, each in enumerate(datasets):
            if isinstance(each, JoinedChunkDataset) and not source and samples_of(each).selection is None:
                parts += each.datasets
            elif isinstance(each, ChunkedDataset):
                parts.append(each)
            else:
                first = next(each for each in datasets if isinstance(each, ChunkedDataset))
                raise ArgumentError(
                    f"dataset {number} is a {type(each).__name__}, and a {type(first).__name__} is read a chunk at a "
                    f"time; expected datasets that are all read so, or none: {MAPPED}; of arrays in memory, "
                    "bl.ChunkDataset([len(x)], lambda chunk: {'x': x})"
                )
        self._samples = JoinedChunkSamples(tuple(parts), source)

    @property
    def datasets(self) -> tuple[ChunkedDataset, ...]:
        """The datasets, in order."""
        datasets: tuple[ChunkedDataset, ...] = self._samples.source.datasets
        return datasets

    def origin(self, sample: int) -> Origin:
        """Return the dataset that a sample is of, and its number there."""
        return self._samples.source.origin(self._samples.row(sample))

    def __repr__(self) -> str:
        return f"JoinedChunkDataset({', '.join(map(repr, self.datasets))}; {many(len(self), 'sample')})"


def chunk_samples_of(dataset: ChunkedDataset) -> ChunkSamples[Any]:
    """Return what a dataset in chunks holds."""
    return dataset._samples


def require_same_fields(found: Sequence[tuple[str, Mapping[str, str] | None]]) -> None:
    """Refuse datasets that differ in the names or the types of fields, as far as these are known.

    Args:
        found: The name of each dataset in messages, and the type of each of its fields in words.

    Raises:
        ArgumentError: Two differ.
    """
    known = [(label, types) for label, types in found if types is not None]
    for label, types in known[1:]:
        first, expected = known[0]
        if types.keys() != expected.keys():
            raise ArgumentError(
                f"{first} has fields {', '.join(expected)}, and {label} has {', '.join(types)}; expected the same, by "
                "columns="
            )
        other = next((name for name in expected if types[name] != expected[name]), None)
        if other is not None:
            raise ArgumentError(
                f"field {other!r} has {expected[other]} in {first} and {types[other]} in {label}; expected one type, "
                "or columns= without it"
            )


class JoinedChunkSource:
    """The chunks of several datasets, and the samples in them.

    Attributes:
        datasets: The datasets, in order.
        sizes: The number of samples in each chunk.
    """

    def __init__(self, datasets: tuple[ChunkedDataset, ...]) -> None:
        self.datasets = datasets
        self.sizes: Array = numpy.concatenate([each.chunks for each in datasets])
        self._ends = list(accumulate(map(len, datasets)))

    @property
    def structures(self) -> JoinedChunkSource:
        """The structures of samples of all datasets."""
        return self

    @property
    def types(self) -> Mapping[str, str] | None:
        """The type of each field, of the first dataset in which they are known."""
        found = (chunk_samples_of(each).source.types for each in self.datasets)
        return next((types for types in found if types is not None), None)

    def of_text(self, text: str) -> Structure:
        """Return the structure with a text, which some dataset has seen."""
        error: KeyError | None = None
        for each in self.datasets:
            try:
                known: Structure = chunk_samples_of(each).source.structures.of_text(text)
                return known
            except KeyError as missing:
                error = missing
        assert error is not None, "there is a dataset"
        raise error

    def __len__(self) -> int:
        """Return the number of samples of all datasets."""
        return self._ends[-1]

    def origin(self, number: int) -> Origin:
        """Return the dataset that a sample is of, and its number there."""
        source = bisect_right(self._ends, number)
        return Origin(source, number - (self._ends[source - 1] if source else 0))

    def samples(self, numbers: Iterable[int], seed: int, epoch: int, stop: Any = False) -> Iterator[Any]:
        """Yield samples, each from a chunk that is read for it: for a look at single samples."""
        for number in numbers:
            if stop:
                break
            source, own = self.origin(number)
            try:
                yield self.datasets[source][own]
            except SampleError as error:
                yield Refused(error, error)

    def item(self, number: int) -> Any:
        """Return nothing: an error shows no item."""
        return None

    def engine(self, *options: Any) -> _native.Dataset:
        """Return the samples of all datasets as the engine sees them."""
        return _native.Dataset.concat([samples_of(each).engine() for each in self.datasets], *options)


class JoinedChunkSamples(ChunkSamples[JoinedChunkSource]):
    """The samples of several datasets that are read a chunk at a time.

    Attributes:
        says_source: ``True`` if batches hold the number of the dataset of each sample.
    """

    def __init__(self, datasets: tuple[ChunkedDataset, ...], says_source: bool) -> None:
        self.says_source = says_source
        self._parts = [chunk_samples_of(each) for each in datasets]
        first = self._parts[0]
        named = [sizes for part in self._parts if (sizes := part.named_sizes()) is not None]
        memory = [part.window.memory for part in self._parts]
        whole = None if None in memory else sum(each for each in memory if each is not None)
        sizes = NamedSizes.join(named) if len(named) == len(self._parts) else None
        super().__init__(JoinedChunkSource(datasets), sizes, first.options, WindowSize(None, whole))

    @override
    def recipe(self) -> Recipe:
        return JoinedChunkSamples, (self.source.datasets, self.says_source)

    @override
    def list_extras(self, rule: Rule) -> list[str]:
        return [*super().list_extras(rule), *([SOURCE] if self.says_source else [])]

    def _make_chunk_engine(self) -> _native.Dataset:
        return self.source.engine(self.says_source)
