"""Samples made on demand: read, decoded or computed when their batch is formed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
import numpy
from batchloom.arguments import caller, choice
from batchloom.collate.field_names import LateFieldNames
from batchloom.collate.schema import BOUNDARIES, Column, Columns, Schema
from batchloom.dataset.base import Dataset, Made, Memory
from batchloom.dataset.concat import JoinedFunction, JoinedItems, require_same
from batchloom.dataset.map.reader import SampleReader, described, short, takes_rng
from batchloom.dataset.map.shared_generators import shared_draw
from batchloom.dataset.sequences import SequenceDataset
from batchloom.dataset.tensors import TensorDataset
from batchloom.errors import ArgumentError, SampleError, many
from batchloom.samples.sizes import Sizes, checked

if TYPE_CHECKING:
    from batchloom.arrays.field import Field
    from batchloom.batching.rules import Rule
    from batchloom.collate.fields import Fields
    from batchloom.collate.schema import CollateOptions
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident

ON_ERROR = ("raise", "skip")
WORKERS = ("threads", "processes")

# Least bytes of a block that processes write to, and the most processes that a loader starts by itself.
LEAST, MOST = 1 << 16, 8


class MapDataset(Dataset[Any]):
    """Samples that a function makes when their batch is formed, and never before.

        dataset = bl.MapDataset(paths, read)  # read(path) returns an array, a tuple or a dict
        loader = bl.DataLoader(dataset, batch_size=64, shuffle=True)

    A sample is an array or a number, or a tuple, dict or list of them, nested at will; a batch has the same structure,
    with a first dimension that counts samples. (A list of numbers is an array.) Arrays are of NumPy, torch or JAX, and
    so are those of a batch; numbers are of the framework of the first array.

    All samples have the same structure, types and shapes, unless

    - ``sizes`` or ``key`` gives sizes: arrays with at least one dimension are then as long as the size of their sample,
      and every rule works as for :class:`batchloom.SequenceDataset`. Batches hold the same further fields:
      ``attention_mask``, ``lengths`` and ``index``, or ``cu_seqlens``, ``max_seqlen``, ``position_ids``,
      ``segment_ids`` and ``index``; or
    - the loader gives a field a slot: ``collate={"image": bl.Pad()}``.

    Threads of the loader call the function, several at a time. A block is one batch: ``prefetch=2`` reads at most two
    batches ahead of the one in use, ``prefetch=0`` reads a batch when it is asked for, and nothing is read after the
    iterator is gone. If the function has a parameter
    ``rng``, it gets a ``numpy.random.Generator`` whose numbers follow from the seed, the epoch and the sample: so
    augmentation is the same after a resume, and for any number of threads and ranks. What it draws from generators that
    threads share (``random``, ``numpy.random``, ``torch.rand``) is not.

    Args:
        items: Anything with ``len()`` and ``[]``: a list of paths, a dataset of torch, a table of h5py, zarr or
            ``datasets``.
        fn: Makes a sample of an item; ``None`` if items are samples. Its result must have memory of its own, as it is
            kept until its batch is formed.
        sizes: The size of each sample: numbers to sort, count and budget by.
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
            so under ``if __name__ == "__main__":``. There, generators of ``random``, ``numpy.random`` and torch are
            seeded for each sample, by what ``rng`` is made of.

    Raises:
        ArgumentError: ``items`` have no length, ``sizes`` and ``key`` are both given, or an option is unknown.
        DataError: ``sizes`` and items differ in number, or a size is no number from 0 to 2**32 - 1.
    """

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
    ) -> None:
        if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise ArgumentError(
                f"items is a {type(items).__name__}; expected something with len() and []: make a list of it"
            )
        if fn is not None and not callable(fn):
            raise ArgumentError(f"fn is a {type(fn).__name__}; expected a function of an item, or None")
        if sizes is not None and key is not None:
            raise ArgumentError("sizes and key are both given; expected one of them")
        self._items, self._fn = items, fn
        self._on_error = choice("on_error", on_error, ON_ERROR)
        self._workers = choice("workers", workers, WORKERS)
        columns = [columns] if isinstance(columns, str | int) else columns
        if columns is not None and not isinstance(columns, Iterable):
            raise ArgumentError(f"columns is {columns!r}; expected names of fields, or places in samples")
        self._columns = None if columns is None else tuple(columns)
        self._variable = self._named_variable(LateFieldNames())
        if key is not None:
            sizes = [_size(key, number, items[number]) for number in range(len(items))]
        self._own = None if sizes is None else numpy.array(checked(sizes, "sizes", samples=len(items)))
        if self._own is None and self._columns is not None:
            raise ArgumentError("columns names fields that are as long as sizes say, but there are no sizes")
        self._reader = SampleReader(items, fn)
        if self._workers == "processes":
            from batchloom.dataset.map.processes import require_picklable

            require_picklable(self._reader)
        elif (drawing := shared_draw(fn, items)) is not None:
            warnings.warn(
                f"{drawing} draws from a generator that threads share, so its numbers depend on timing and do not "
                'resume; use the parameter rng of fn, or workers="processes", where they are seeded for each sample',
                stacklevel=caller(),
            )

    @property
    def items(self) -> Any:
        """The items, as they were given."""
        return self._items

    @property
    def sizes(self) -> Sizes | None:
        """The size of each sample; ``None`` if all count the same."""
        if self._own is None or self._selection is None:
            return self._own
        chosen: Sizes = self._own[numpy.from_dlpack(self._selection.numbers())]
        return chosen

    def _named_variable(self, names: LateFieldNames) -> list[str]:
        """Return the names of the fields that are as long as the size of their sample."""
        return [names.name("columns", field) for field in self._columns or ()]

    def _field_names(self, rule: Rule | None = None) -> LateFieldNames:
        names = LateFieldNames()
        self._named_variable(names)
        return names

    def _whole_len(self) -> int:
        return len(self._items)

    def _sample(self, sample: int) -> Any:
        """Return one sample, which is made now: with the random numbers of epoch 0 of seed 0."""
        return self._reader.sample(self._row(sample), 0, 0)

    def _made(self) -> Made:
        options = {"sizes": self._own, "columns": self._columns, "on_error": self._on_error, "workers": self._workers}
        return _rebuild, (type(self), self._items, self._fn, options)

    def __repr__(self) -> str:
        named = "" if self._fn is None else f", {getattr(self._fn, '__name__', self._fn)}"
        return f"MapDataset({type(self._items).__name__}{named}; {many(len(self), 'sample')})"

    def _joined(self, others: Sequence[Dataset[Any]], *, source: bool) -> MapDataset:
        # Its items are pairs: the number of a dataset, and an item of that. Each sample is made by its own function.
        parts = [self, *(other for other in others if isinstance(other, MapDataset))]
        require_same((self, *others))
        for number, part in enumerate(parts):
            for name in ("workers", "on_error", "columns"):
                found, expected = getattr(part, f"_{name}"), getattr(self, f"_{name}")
                if found != expected:
                    raise ArgumentError(
                        f"{name} is {expected!r} in dataset 0 and {found!r} in dataset {number}; expected the same"
                    )
            if (part._own is None) != (self._own is None):
                raise ArgumentError(f"of dataset 0 and dataset {number}, only one has sizes; expected both or none")
        chosen = [None if part._selection is None else numpy.from_dlpack(part._selection.numbers()) for part in parts]
        return MapDataset(
            JoinedItems([(part._items, numbers) for part, numbers in zip(parts, chosen, strict=True)]),
            JoinedFunction([(part._fn, part._fn is not None and takes_rng(part._fn)) for part in parts], source),
            sizes=None if self._own is None else numpy.concatenate([part.sizes for part in parts]),
            columns=self._columns,
            on_error=self._on_error,
            workers=self._workers,
        )

    def _native_dataset(self) -> _native.Dataset:
        return self._engine(self._reader)

    @property
    def _is_on_demand(self) -> bool:
        return True

    def _for_loader(self, threads: int | None, fields: Fields) -> tuple[_native.Dataset, Memory | None]:
        assert isinstance(fields.namer.names, LateFieldNames)
        whole = fields.whole is not None
        reader = self._reader.beside(fields.slot_functions, fields.whole, fields.namer.names)
        if whole and self._on_error == "skip":
            raise ArgumentError(
                'on_error is "skip", and collate is a function of whole batches, which have no places for samples; '
                'expected on_error="raise", or slots of single fields'
            )
        if self._workers == "threads":
            return self._engine(reader, whole=whole), None
        from batchloom.dataset.map.processes import SampleProcesses, require_picklable

        # As many as the loader has threads: each waits for one.
        require_picklable(reader)
        processes = SampleProcesses(reader, threads or min(_cores(), MOST))
        return self._engine(processes, processes.lines, whole=whole), (LEAST, processes.allocate)

    def _engine(
        self, reader: Any, processes: _native.Processes | None = None, *, whole: bool = False
    ) -> _native.Dataset:
        """Return the dataset as the engine sees it: ``reader`` reads its samples, here or in processes."""
        sizes = None if self._own is None else _native.borrow(self._own, "sizes")
        fields = None if self._columns is None else self._variable
        found = _native.Dataset.on_demand(
            reader, processes, whole, self._whole_len(), sizes, fields, self._on_error == "skip"
        )
        return found if self._selection is None else found.select(self._selection)

    def _schema(self, columns: Columns) -> Schema:
        return Schema((), named=False)  # no sample was read yet

    def _late_schema(self, columns: Columns, nesting: str) -> Schema:
        structure = self._reader.structures.of_text(nesting)
        own = len(structure.names)
        frameworks = [*structure.frameworks, *structure.frameworks[:1] * (len(columns) - own)]
        found = tuple(Column(*column, framework) for column, framework in zip(columns, frameworks, strict=True))
        further = [name for name, _ in columns[own:]]
        if BOUNDARIES in further:
            further.insert(further.index(BOUNDARIES) + 1, "max_seqlen")
        build = None if structure.is_flat and structure.is_sorted else structure.builder(further)
        return Schema(found, named=structure.is_named, ragged=self._own is not None, build=build)

    def _arrays(self) -> tuple[Field, ...]:
        return ()

    def _collator(self, resident: Resident, options: CollateOptions) -> Collator:
        raise ArgumentError("samples are made on demand; expected resident=False")


def samples_of(dataset: Dataset[Any]) -> MapDataset:
    """Return the samples of a dataset in memory one by one, for functions that make batches of them.

    Raises:
        ArgumentError: Batches of the dataset are more than lists of its samples.
    """
    from batchloom.dataset.windows.window_dataset import WindowDataset

    if not isinstance(dataset, TensorDataset | SequenceDataset | WindowDataset):
        raise ArgumentError(
            f"collate is a function of a list of samples, and {type(dataset).__name__} makes batches of its own; "
            "expected slots of single fields, as in fields={'x': bl.Field(slot=...)}, or a MapDataset"
        )
    sizes = dataset.sizes if isinstance(dataset, SequenceDataset) else None
    return MapDataset(dataset, sizes=sizes)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _size(key: Callable[[Any], int], number: int, item: Any) -> int:
    """Return the size of an item by ``key``."""
    try:
        return key(item)
    except Exception as error:
        raise SampleError(
            f"the size of item {number} ({short(item)}) could not be had: {described(error)}", number, item
        ) from error


def _rebuild(kind: type[MapDataset], items: Any, fn: Any, options: dict[str, Any]) -> MapDataset:
    return kind(items, fn, **options)
