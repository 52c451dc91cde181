"""`OnDemandSamples`: samples of a source that are read when their batch is formed, and what each of them is."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import batchloom._native as _native
from batchloom.batching.rules import Packing, Rule
from batchloom.collate.field_names import LateFieldNames
from batchloom.collate.schema import BOUNDARIES, LONGEST, MARKS, Column, Columns, Schema
from batchloom.dataset.location import ON_DEMAND
from batchloom.dataset.map.chunk_reads import ChunkCounts, ReadWatch
from batchloom.dataset.map.reader import SampleReader
from batchloom.dataset.map.source import SampleSource
from batchloom.dataset.samples import Memory, Recipe, Samples, override
from batchloom.errors import ArgumentError
from batchloom.samples.sizes import NamedSizes, Sizes, read_named_sizes

if TYPE_CHECKING:
    from batchloom.collate.fields import Fields

# Least bytes of a block that processes write to, and the most processes that a loader starts by itself.
LEAST, MOST = 1 << 16, 8

# What batches of samples with sizes hold beside their fields: with rules that pad, and with rules that pack.
PADDED = ("attention_mask", "lengths", "index")
PACKED = (BOUNDARIES, LONGEST, "position_ids", "segment_ids", "index")

SomeSource = TypeVar("SomeSource", bound=SampleSource)


@dataclass(frozen=True)
class ReadOptions:
    """The options by which samples are read.

    Attributes:
        columns: The fields that are as long as the size of their sample; ``None`` for all with a dimension.
        on_error: The treatment of a sample that cannot be read: ``"raise"`` or ``"skip"``.
        workers: ``"threads"``, ``"processes"`` or ``"fork"``.
    """

    columns: tuple[str | int, ...] | None = None
    on_error: str = "raise"
    workers: str = "threads"


class OnDemandSamples(Samples, Generic[SomeSource]):
    """Samples of a source, which are read when their batch is formed, and never before.

    Attributes:
        source: The source.
        own_sizes: The sizes of all samples of the source, with their names; ``None`` if all count the same.
        options: The options by which samples are read.

    Raises:
        ArgumentError: Columns are named, and there are no sizes; or the source does not pickle for processes.
        DataError: Sizes are not one for each sample, or no numbers from 0 to 2**32 - 1.
    """

    location = ON_DEMAND
    sizes_name = "sizes"
    # The chunks of items that all loaders share, where samples are made of such items.
    _item_chunks: _native.ItemChunks | None = None
    # The watch over the chunks that are read, where samples are in chunks.
    _reads: ReadWatch | None = None

    def __init__(self, source: SomeSource, sizes: Any = None, options: ReadOptions | None = None) -> None:
        self.source, self.options = source, options or ReadOptions()
        workers = self.options.workers
        self.holds_interpreter = workers == "threads" and getattr(source, "holds_interpreter", False)
        self._variable = self._name_variable(LateFieldNames())
        self.own_sizes = read_named_sizes(sizes, self.sizes_name, len(source))
        if self.own_sizes is not None:
            self.own_sizes = self.own_sizes.name_first(self.options.columns or ())
        elif self.options.columns is not None:
            name = self.sizes_name
            raise ArgumentError(f"columns names fields that are as long as {name} say, but there are no {name}")
        self._reader = SampleReader(source)
        if workers != "threads":
            from batchloom.dataset.map.processes import require_picklable

            require_picklable(self._reader, workers)

    def _name_variable(self, names: LateFieldNames) -> list[str]:
        """Return the names of the fields that are as long as the size of their sample."""
        return [names.name("columns", field) for field in self.options.columns or ()]

    @override
    def whole_len(self) -> int:
        return len(self.source)

    @property
    def is_watched(self) -> bool:  # type: ignore[override]
        """``True`` if memory for chunks has a limit, which may be too small for each to be read once."""
        return self._reads is not None and self._reads.memory is not None

    @override
    def warn_after(self, epoch: int) -> None:
        if self._reads is not None:
            self._reads.warn_after(epoch)

    @property
    def counts(self) -> ChunkCounts | None:
        """The counts of the chunks that were read so far; ``None`` if samples are in no chunks."""
        return None if self._reads is None else self._reads.counts

    @property
    def has_next_tokens(self) -> bool:  # type: ignore[override]
        """``True`` if samples have sizes: a field may then be as long as its sample."""
        return self.own_sizes is not None

    @override
    def sizes(self) -> Sizes | None:
        named = self.named_sizes()
        return None if named is None else named.first

    @override
    def named_sizes(self) -> NamedSizes | None:
        chosen = self.list_selected()
        return self.own_sizes if self.own_sizes is None or chosen is None else self.own_sizes.select(chosen)

    def sample(self, sample: int) -> Any:
        """Return one sample, which is read now: with the random numbers of epoch 0 of seed 0."""
        return self._reader.sample(self.row(sample), 0, 0)

    @override
    def recipe(self) -> Recipe:
        return type(self), (self.source, self.own_sizes, self.options)

    @override
    def join(self, datasets: Sequence[Any], *, source: bool) -> Any:
        raise ArgumentError("samples of sources are not put together; expected one source of all samples")

    @override
    def one_by_one(self, dataset: Any, make: Callable[..., Any]) -> Any:
        return dataset  # samples are made one by one already

    @override
    def field_names(self, rule: Rule) -> LateFieldNames:
        names = LateFieldNames()
        self._name_variable(names)
        return names

    @override
    def schema(self, columns: Columns) -> Schema:
        return Schema((), named=False)  # no sample was read yet

    @override
    def late_schema(self, columns: Columns, nesting: str) -> Schema:
        structure = self._reader.structures.of_text(nesting)
        own = len(structure.names)
        frameworks = [*structure.frameworks, *[structure.framework] * (len(columns) - own)]
        with_frameworks = tuple(
            Column(*column, framework) for column, framework in zip(columns, frameworks, strict=True)
        )
        further, nested = [name for name, _ in columns[own:]], self.extras.nested(columns)
        if nested is not None:
            place = nested.place - own
            further[place : place + len(nested.keys)] = [nested.name]
        # Samples of which no field varies are not packed.
        are_packed = BOUNDARIES in further or not self.extras.holds(BOUNDARIES)
        longest = self.extras.longest_after(own) if are_packed else None
        if longest is not None:
            further.insert(longest - own, LONGEST)
        build = None if structure.is_flat and structure.is_sorted else structure.builder(further)
        ragged = self.own_sizes is not None
        return Schema(
            with_frameworks, named=structure.is_named, ragged=ragged, nested=nested, build=build, longest=longest
        )

    @override
    def list_extras(self, rule: Rule) -> list[str]:
        described: Sequence[str] = () if self.own_sizes is None else PACKED if isinstance(rule, Packing) else PADDED
        return [*described, *([MARKS[1]] if self.options.on_error == "skip" else [])]

    @override
    def engine(self) -> _native.Dataset:
        return self._make_engine(self._reader)

    @override
    def for_loader(self, threads: int | None, fields: Fields) -> tuple[_native.Dataset, Memory | None]:
        assert isinstance(fields.namer.names, LateFieldNames)
        whole = fields.whole is not None
        reader = self._reader.with_functions(fields.slot_functions, fields.whole, fields.namer.names, fields.floats)
        if whole and self.options.on_error == "skip":
            raise ArgumentError(
                'on_error is "skip", and collate is a function of whole batches, which have no places for samples; '
                'expected on_error="raise", or slots of single fields'
            )
        if self.options.workers == "threads":
            return self._make_engine(reader, whole=whole), None
        from batchloom.dataset.map.processes import SampleProcesses, require_picklable

        # As many as the loader has threads: each waits for one.
        require_picklable(reader, self.options.workers)
        processes = SampleProcesses(reader, threads or min(_cores(), MOST), self.options.workers)
        return self._make_engine(processes, processes.lines, whole=whole), (LEAST, processes.allocate)

    def _make_engine(
        self, reader: Any, processes: _native.Processes | None = None, *, whole: bool = False
    ) -> _native.Dataset:
        """Return the samples as the engine sees them, which ``reader`` reads, here or in processes."""
        sizes = None if self.own_sizes is None else self.own_sizes.borrow()
        fields = None if self.options.columns is None else self._variable
        skips = self.options.on_error == "skip"
        count, chunks, together = self.whole_len(), self._item_chunks, getattr(self.source, "takes_many", False)
        dataset = _native.Dataset.on_demand(reader, processes, whole, together, count, sizes, fields, skips, chunks)
        return dataset if self.selection is None else dataset.select(self.selection)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
