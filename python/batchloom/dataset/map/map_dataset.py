"""Samples made on demand: read, decoded or computed when their batch is formed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arguments import answer_unknown_keywords, caller, choice
from batchloom.batching.rules import Rule
from batchloom.collate.extras import Extras
from batchloom.dataset.base import Dataset, samples_of
from batchloom.dataset.concat import SOURCE, JoinedFunction, JoinedItems, require_same
from batchloom.dataset.map.chunk_reads import ChunkCounts, ReadWatch
from batchloom.dataset.map.chunk_window import WindowSize, require_same_limits, window_size
from batchloom.dataset.map.item_chunks import ItemChunks, JoinedChunkItems, are_in_chunks
from batchloom.dataset.map.on_demand import OnDemandSamples, ReadOptions
from batchloom.dataset.map.shared_generators import find_shared_draw
from batchloom.dataset.map.source import ItemSource, describe_error, shorten
from batchloom.dataset.samples import MAPPED, Recipe, Samples, override
from batchloom.errors import ArgumentError, DataError, SampleError, many
from batchloom.samples.sizes import NamedSizes, Sizes

ON_ERROR = ("raise", "skip")
WORKERS = ("threads", "processes", *(("fork",) if hasattr(os, "fork") else ()))


@answer_unknown_keywords
class MapDataset(Dataset[Any]):
    """Samples that a function makes when their batch is formed, and never before.

        dataset = bl.MapDataset(paths, read)  # read(path) returns an array, a tuple or a dict
        loader = bl.DataLoader(dataset, batch_size=64, shuffle=True)

    A sample is an array or a number, or a tuple, dict or list of them, nested at will; a batch has the same structure,
    with a first dimension that counts samples. (A list of numbers is an array.) Arrays are of NumPy, torch or JAX, and
    so are those of a batch; numbers are of the framework of the first array. Texts, paths and other objects may stand
    beside them: a batch holds a list of them, on any device.

    All samples have the same structure, types and shapes, unless

    - ``sizes`` or ``key`` gives sizes: arrays with at least one dimension are then as long as the size of their sample,
      and every rule works as for :class:`batchloom.SequenceDataset`. Batches hold the same further fields:
      ``attention_mask``, ``lengths`` and ``index``, or ``cu_seqlens``, ``max_seqlen``, ``position_ids``,
      ``segment_ids`` and ``index``; or
    - the loader gives a field a slot: ``fields={"image": bl.Field(slot=bl.Pad())}``.

    Threads of the loader call the function, several at a time. A block is one batch: ``prefetch=2`` reads at most two
    batches ahead of the one in use, ``prefetch=0`` reads a batch when it is asked for, and nothing is read after the
    iterator is gone. If the function has a parameter ``rng``, it gets a ``numpy.random.Generator`` whose numbers follow
    from the seed, the epoch and the sample: so augmentation is the same after a resume, and for any number of threads
    and ranks. What it draws from generators that threads share (``random``, ``numpy.random``, ``torch.rand``) is not.

    Args:
        items: Anything with ``len()`` and ``[]``: a list of paths, a dataset of torch, a table of h5py, zarr or
            ``datasets``. Where it also has ``__getitems__(numbers)``, a thread reads a batch by one call, or its part
            of one, where there are more threads than batches that are made ahead. Or items that are read a chunk at a
            time: an object with ``chunks``, the number of items in each, and ``read_chunk(chunk)``, which returns
            them, with ``len()`` and ``[]``.
        fn: Makes a sample of an item; ``None`` if items are samples. Its result must have memory of its own, as it is
            kept until its batch is formed.
        sizes: The size of each sample: numbers to sort, count and budget by. Or a dict of sizes by name, for rules with
            several budgets: rules sort by the first, which is the length of arrays.
        key: A function that returns the size of an item, instead of ``sizes``. It is called for each item once, when
            the dataset is made.
        columns: The names of the fields that are as long as the size of their sample; places, for samples that are
            tuples. ``None`` for all with at least one dimension.
        on_error: ``"raise"`` makes the batch of a sample that cannot be read an error. ``"skip"`` puts zeros in its
            place, and every batch then holds a ``weight`` (float32), which is 0 there and 1 elsewhere: no other sample
            moves. ``loader.skipped`` lists such samples, and ``loader.stats()`` counts them.
        workers: ``"threads"``, which suit functions that let go of the interpreter, as decoders and NumPy do. Or
            ``"processes"``, for functions that are bound by the interpreter: they start with the first batch and end
            with the loader, and write arrays straight into the memory of batches. ``items`` and ``fn`` are pickled once
            for each process, so the function stands at the top level of a module, and a script that makes loaders does
            so under ``if __name__ == "__main__":``. On Linux, a server that all loaders share starts with the first
            loader and forks each of them, which sees environment variables as they were then. There, generators of
            ``random``, ``numpy.random`` and torch are seeded for each sample, by what ``rng`` is made of. Or
            ``"fork"`` (not on Windows), for processes that this process forks, as torch's workers start: they have what
            is imported here and begin at once. They keep the memory of this process as it was, and stop for ever if
            another thread held a lock at that moment which ``fn`` needs.
        chunks_open: The number of chunks of items that are mixed at a time; 16 unless ``memory`` decides it. Items in
            chunks are shuffled, read early and held as a :class:`ChunkDataset` does it, and threads make the samples.
        memory: The memory for chunks of items, in place of ``chunks_open``, as for a :class:`ChunkDataset`. What
            ``read_chunk`` returns then has ``nbytes``.

    Raises:
        ArgumentError: ``items`` have no length, ``sizes`` and ``key`` are both given, an option is unknown, or options
            of chunks are given for items without chunks.
        DataError: ``sizes`` and items differ in number, or a size is no number from 0 to 2**32 - 1.
    """

    _samples: ItemSamples

    def __init__(
        self,
        items: Any,
        fn: Callable[..., Any] | None = None,
        *,
        sizes: Any = None,
        key: Callable[[Any], int] | None = None,
        columns: Sequence[str | int] | None = None,
        on_error: str = "raise",
        workers: str = "threads",
        chunks_open: int | None = None,
        memory: int | str | None = None,
    ) -> None:
        workers = choice("workers", workers, WORKERS)
        window = _window_of(items, chunks_open, memory, workers)
        if window is not None:
            items = ItemChunks(items)
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise ArgumentError(
                f"items is a {type(items).__name__}; expected something with len() and []: make a list of it"
            )
        if fn is not None and not callable(fn):
            raise ArgumentError(f"fn is a {type(fn).__name__}; expected a function of an item, or None")
        if sizes is not None and key is not None:
            raise ArgumentError("sizes and key are both given; expected one of them")
        columns = [columns] if isinstance(columns, str | int) else columns
        if columns is not None and not isinstance(columns, Iterable):
            raise ArgumentError(f"columns is {columns!r}; expected names of fields, or places in samples")
        source = ItemSource(items, fn)
        options = ReadOptions(
            None if columns is None else tuple(columns),
            choice("on_error", on_error, ON_ERROR),
            workers,
        )
        if key is not None:
            each = items if window is not None else (items[number] for number in range(len(items)))
            sizes = [_size(key, number, item) for number, item in enumerate(each)]
        self._samples = ItemSamples(source, sizes, options, window)
        if options.workers == "threads" and (drawing := find_shared_draw(fn, items)) is not None:
            warnings.warn(
                f"{drawing} draws from a generator that threads share, so its numbers depend on timing and do not "
                'resume; use the parameter rng of fn, or workers="processes", where they are seeded for each sample',
                stacklevel=caller(),
            )

    @property
    def items(self) -> Any:
        """The items, as they were given."""
        items = self._samples.source.items
        return items.items if isinstance(items, ItemChunks) else items

    @property
    def sizes(self) -> Sizes | None:
        """The size of each sample; ``None`` if all count the same."""
        return self._samples.sizes()

    @property
    def fn(self) -> Callable[..., Any] | None:
        """The function that makes a sample of an item; ``None`` if items are samples."""
        return self._samples.source.fn

    @property
    def columns(self) -> tuple[str | int, ...] | None:
        """The fields that are as long as the size of their sample; ``None`` for all with at least one dimension."""
        return self._samples.options.columns

    @property
    def on_error(self) -> str:
        """``"raise"`` or ``"skip"``."""
        return self._samples.options.on_error

    @property
    def workers(self) -> str:
        """``"threads"``, ``"processes"`` or ``"fork"``."""
        return self._samples.options.workers

    @property
    def chunks(self) -> Any:
        """The number of items in each chunk; ``None`` if items have no chunks."""
        items = self._samples.source.items
        return items.sizes if isinstance(items, ItemChunks) else None

    @property
    def chunks_open(self) -> int | None:
        """The number of chunks whose samples are mixed at a time; ``None`` if items have no chunks."""
        chunks = self._samples.item_chunks
        return None if chunks is None else chunks.chunks_open()

    @property
    def memory(self) -> int | None:
        """The bytes of memory for chunks; ``None`` for as many as batches need."""
        window = self._samples.window
        return None if window is None else window.memory

    @property
    def counts(self) -> ChunkCounts | None:
        """The chunks that loaders of this dataset have read, and how memory was used; ``None`` without chunks."""
        return self._samples.counts

    def __repr__(self) -> str:
        items, fn = self.items, self._samples.source.fn
        named = "" if fn is None else f", {getattr(fn, '__name__', fn)}"
        return f"MapDataset({type(items).__name__}{named}; {many(len(self), 'sample')})"


class ItemSamples(OnDemandSamples[ItemSource]):
    """Samples that a function makes of items.

    Attributes:
        window: The size of the window over chunks of items; ``None`` if items have no chunks.
    """

    # The datasets, where items in chunks were put together.
    _parts: list[Dataset[Any]] | None = None

    def __init__(self, source: ItemSource, sizes: Any, options: ReadOptions, window: WindowSize | None = None) -> None:
        super().__init__(source, sizes, options)
        self.window = window
        if window is not None:
            if not len(source):
                raise DataError("chunks hold no item; expected at least one item in a chunk")
            sizes = _native.borrow(source.items.sizes, "chunks")
            self._item_chunks = _native.ItemChunks(source.items, sizes, *window, options.on_error == "skip")
            self._reads = ReadWatch(window.memory, self._item_chunks)

    @classmethod
    def of_joined_chunks(
        cls, source: ItemSource, sizes: Any, options: ReadOptions, datasets: Sequence[Dataset[Any]]
    ) -> ItemSamples:
        """Return samples of the items of several datasets, all in chunks."""
        parts = [held for held in map(samples_of, datasets) if isinstance(held, ItemSamples)]
        memory = [None if part.window is None else part.window.memory for part in parts]
        samples = cls(source, sizes, options)
        samples.window = WindowSize(None, None if None in memory else sum(filter(None, memory)))
        samples._parts = list(datasets)
        samples._item_chunks = _native.ItemChunks.joined(
            source.items, [part.item_chunks for part in parts if part.item_chunks is not None]
        )
        samples._reads = ReadWatch(samples.window.memory, samples._item_chunks)
        return samples

    @property
    def item_chunks(self) -> _native.ItemChunks | None:
        """The chunks of items, which all loaders share; ``None`` if items have no chunks."""
        return self._item_chunks

    @override
    def recipe(self) -> Recipe:
        window = self.window if self._parts is None else self._parts
        return _rebuild, (self.source.items, self.source.fn, self.own_sizes, self.options, window)

    @override
    def list_extras(self, rule: Rule) -> list[str]:
        fn = self.source.fn
        says_source = isinstance(fn, JoinedFunction) and fn.says_source
        return [*super().list_extras(rule), *([SOURCE] if says_source else [])]

    @override
    def with_extras(self, extras: Extras) -> Samples:
        held, fn = self, self.source.fn
        if SOURCE in extras.left_out and isinstance(fn, JoinedFunction):
            recipe = (self.source.items, fn.without_source(), self.own_sizes, self.options)
            held = _rebuild(*recipe, self.window if self._parts is None else self._parts)
            held = held if self.selection is None else held.select(self.selection)
        return super(ItemSamples, held).with_extras(extras)

    @override
    def require_alike(self, datasets: Sequence[Any], labels: Sequence[str]) -> None:
        pairs = [(label, each) for label, each in zip(labels, datasets, strict=True) if isinstance(each, MapDataset)]
        windows = [(label, each._samples.window) for label, each in pairs]
        require_same_limits((label, window) for label, window in windows if window is not None)

    @override
    def join(self, datasets: Sequence[Dataset[Any]], *, source: bool) -> MapDataset:
        # Its items are pairs: the number of a dataset, and an item of that. Each sample is made by its own function.
        require_same(datasets)
        parts = [held for held in map(samples_of, datasets) if isinstance(held, ItemSamples)]
        options = self.options
        in_chunks = [part.window is not None for part in parts]
        if any(in_chunks) and not all(in_chunks):
            raise ArgumentError(
                f"the items of dataset {in_chunks.index(True)} are read a chunk at a time, and those of dataset "
                f"{in_chunks.index(False)} one by one; expected the same of all"
            )
        for number, part in enumerate(parts):
            for name in ("workers", "on_error", "columns"):
                theirs, ours = getattr(part.options, name), getattr(options, name)
                if theirs != ours:
                    raise ArgumentError(
                        f"{name} is {ours!r} in dataset 0 and {theirs!r} in dataset {number}; expected the same"
                    )
            if (part.own_sizes is None) != (self.own_sizes is None):
                raise ArgumentError(f"of dataset 0 and dataset {number}, only one has sizes; expected both or none")
        sources = [part.source for part in parts]
        if all(in_chunks):
            return _join_in_chunks(datasets, parts, options, source)
        sizes = [named for part in parts if (named := part.named_sizes()) is not None]
        return MapDataset(
            JoinedItems([(part.source.items, part.list_selected()) for part in parts]),
            JoinedFunction([(each.fn, each.takes_rng) for each in sources], source),
            sizes=NamedSizes.join(sizes) if sizes else None,
            columns=options.columns,
            on_error=options.on_error,
            workers=options.workers,
        )


def _size(key: Callable[[Any], int], number: int, item: Any) -> int:
    """Return the size of an item by ``key``."""
    try:
        return key(item)
    except Exception as error:
        raise SampleError(
            f"the size of item {number} ({shorten(item)}) could not be had: {describe_error(error)}", number, item
        ) from error


def _window_of(items: Any, chunks_open: int | None, memory: int | str | None, workers: str) -> WindowSize | None:
    """Return the size of the window over the chunks of items; ``None`` if items have no chunks.

    Raises:
        ArgumentError: An option is for items in chunks alone, or processes are to read chunks.
    """
    if are_in_chunks(items):
        if workers != "threads":
            raise ArgumentError(
                f'workers is "{workers}", and items are read a chunk at a time, which each process would hold for '
                'itself; expected workers="threads", or items that are read one by one, as rows of folders of datasets '
                f"are, or rows of {MAPPED}"
            )
        return window_size(chunks_open, memory)
    for name, value in (("chunks_open", chunks_open), ("memory", memory)):
        if value is not None:
            raise ArgumentError(
                f"{name} is given, and items is a {type(items).__name__} without chunks; expected chunks and "
                f"read_chunk() there, or no {name}"
            )
    return None


def _join_in_chunks(
    datasets: Sequence[Dataset[Any]], parts: Sequence[ItemSamples], options: ReadOptions, says_source: bool
) -> MapDataset:
    """Return the dataset of the items of several datasets, all in chunks: of all items, or of those selected."""
    function = JoinedFunction([(part.source.fn, part.source.takes_rng) for part in parts], says_source)
    items = ItemChunks(JoinedChunkItems([part.source.items for part in parts]))
    sizes = [part.own_sizes for part in parts if part.own_sizes is not None]
    joined = ItemSamples.of_joined_chunks(
        ItemSource(items, function), NamedSizes.join(sizes) if sizes else None, options, datasets
    )
    dataset: MapDataset = MapDataset.__new__(MapDataset)
    dataset._samples = joined
    if all(part.selection is None for part in parts):
        return dataset
    starts = [0, *accumulate(part.whole_len() for part in parts)]
    own = [numpy.arange(part.whole_len()) if (it := part.list_selected()) is None else it for part in parts]
    return dataset.select(numpy.concatenate([start + each for start, each in zip(starts, own, strict=False)]))


def _rebuild(
    items: Any,
    fn: Any,
    sizes: Any,
    options: ReadOptions,
    window: WindowSize | list[Dataset[Any]] | None = None,
) -> ItemSamples:
    if isinstance(window, list):
        return ItemSamples.of_joined_chunks(ItemSource(items, fn), sizes, options, window)
    return ItemSamples(ItemSource(items, fn), sizes, options, window)
