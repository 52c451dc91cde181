"""`Samples`: what a dataset holds, as the other stages of the package ask about it.

A dataset that users see holds one object of this class, which :func:`batchloom.dataset.base.samples_of` returns. The
questions are grouped by who asks them: a plan, a loader, a delivery. A device asks one more object, the `DeviceData`
that :meth:`Samples.device_data` returns. Where samples lie is a value of its own, the `Location`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import nullcontext, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import batchloom._native as _native
import numpy
from batchloom.arguments import read_shuffle
from batchloom.arrays.chunked import reading_files
from batchloom.arrays.field import BorrowedArray
from batchloom.arrays.pickling import from_pickle, to_pickle
from batchloom.batching.rules import FixedSize, Rule, engine_rule
from batchloom.collate.extras import Extras, add_longest
from batchloom.collate.field_names import FieldNames, LateFieldNames
from batchloom.collate.schema import Columns, Schema
from batchloom.dataset.location import Location
from batchloom.dataset.selection import pickle_selection, restore_selection
from batchloom.device.data import DeviceData
from batchloom.errors import ArgumentError
from batchloom.samples.sizes import NamedSizes, Sizes, read_columns, read_sizes

if TYPE_CHECKING:
    from batchloom.collate.fields import Fields
    from batchloom.dataset.array_windows import ArrayWindows
    from typing_extensions import override as override
else:

    def override(method: Any) -> Any:
        """Return a method that answers a question, which is documented where it is asked."""
        return method


Memory = tuple[int, Callable[[int], Any]]
"""The least bytes of memory for blocks to ask for, and the function that allocates it."""

# The bytes of memory maps that may be in memory, where an epoch reads each page about once.
MEMORY = 256 << 20

MAPPED = "mapped files, as `batchloom convert FILES --out FOLDER --to arrow` writes them"
"""The way out of what samples that are read a chunk at a time cannot do, for messages."""

Recipe = tuple[Callable[..., "Samples"], tuple[Any, ...]]
"""A function, and the arguments with which it makes samples."""


# The bytes of a shard from which on an order leaves its pages behind: the system maps up to 2 MiB around a row.
LEAST_SHARD = 2 << 20


class PlanQuestions(Sized, Protocol):
    """The questions of a plan: which samples there are."""

    def sizes(self) -> Sizes | None:
        """Return the size of each sample; ``None`` if all count the same."""

    def named_sizes(self) -> NamedSizes | None:
        """Return the sizes of each sample with their names; ``None`` if all count the same."""

    def classes(self, option: str, field: str | int) -> Any:
        """Return the class of each sample, which the field holds that is given as ``option``.

        Raises:
            ArgumentError: There is no such field with one number for each sample.
        """

    def shuffle(self, shuffle: bool | str) -> tuple[str, bool]:
        """Return the random order as the engine names it, and whether documents are shuffled.

        Raises:
            ArgumentError: ``shuffle`` is an order that the samples do not have.
        """

    @property
    def has_next_tokens(self) -> bool:
        """``True`` if the next tokens of a field can be labels."""


class LoaderQuestions(Protocol):
    """The questions of a loader: what a sample is."""

    @property
    def is_on_demand(self) -> bool:
        """``True`` if samples are made when their batch is formed, so that fields are known with the first block."""

    @property
    def is_bare(self) -> bool:
        """``True`` if a batch is one array, and not a tuple of one."""

    @abstractmethod
    def engine(self) -> _native.Dataset:
        """Return the samples as the engine sees them."""

    def for_loader(self, threads: int | None, fields: Fields) -> tuple[_native.Dataset, Memory | None]:
        """Return the samples for one loader, and where blocks have to lie, if that matters.

        Args:
            threads: The threads of the loader; ``None`` for as many as it takes by itself.
            fields: The treatment of each field.
        """

    def one_by_one(self, dataset: Any, make: Callable[..., Any]) -> Any:
        """Return a dataset that makes these samples one by one, on demand, for a function that makes batches of them.

        Args:
            dataset: The dataset of these samples.
            make: Makes a dataset of samples on demand, given items and their sizes.

        Raises:
            ArgumentError: Batches are more than lists of samples.
        """

    def field_names(self, rule: Rule) -> FieldNames | LateFieldNames:
        """Return the fields of batches of a rule, and the keys that name them in arguments."""

    def list_extras(self, rule: Rule) -> list[str]:
        """Return the names of what batches of a rule hold beside the fields of samples, in order."""

    def with_extras(self, extras: Extras) -> Samples:
        """Return the samples for a loader whose batches have these extras."""

    def in_shards(self, shard_size: int | None) -> Samples:
        """Return the samples for an order in shards of ``shard_size`` samples; ``None`` for an order without shards."""

    def padded_fields(self) -> Mapping[str, str]:
        """Return the types of the fields that are padded, by name."""

    @abstractmethod
    def schema(self, columns: Columns) -> Schema:
        """Return the schema of batches, given the names and types of the fields that the engine makes."""


class DeliveryQuestions(Sized, Protocol):
    """The questions of a delivery: where samples lie, and which ways their batches can take."""

    location: Location
    """The place where samples lie."""

    @property
    def other_shapes(self) -> str | None:
        """The reason why full batches differ in shape, where options of the dataset have that effect."""

    @property
    def is_formed_without_torch(self) -> bool:
        """``True`` if the engine makes batches of other frameworks than torch when torch is asked for on the CPU."""

    def check(self) -> None:
        """Raise if an array was resized or moved since it was borrowed; unmap pages of files beyond their limit."""

    def release_pages(self) -> None:
        """Unmap the pages of memory maps that were read, if more of them are in memory than may be."""

    def late_schema(self, columns: Columns, nesting: str) -> Schema:
        """Return the schema of batches, given the fields of the first block.

        Args:
            columns: The names and types of its fields.
            nesting: The text of the structure of its samples.
        """

    def windows(self, documents: bool) -> ArrayWindows | None:
        """Return the windows that samples are, if a batch of neighbours is one slice of a template; else ``None``.

        Args:
            documents: ``True`` if documents are shuffled.
        """

    def device_data(self) -> DeviceData | None:
        """Return the rows for a device that makes batches itself; ``None`` where only the host can form them."""


class Samples(PlanQuestions, LoaderQuestions, DeliveryQuestions, ABC):
    """The samples of a dataset: all of its data, or a selection.

    Attributes:
        selection: The samples that were selected of the data; ``None`` for all.
        unit: The word for what is selected.
        extras: The extras of the batches of a loader: masks, lengths and all else beside the fields of samples.
        batch_types: The types of fields in samples and batches, by name, where they are not the types of the data.
        memory: The bytes of memory maps that may be in memory; ``None`` where no number was given.
        reads_files: ``True`` if batches read rows from the files of memory maps.
        reads_once: ``True`` if an epoch reads each page of a map about once: pages are unmapped then even where no
            number was given. Rows in random order read a page many times, and mapping it again takes longer than a row.
        are_items: ``True`` if single samples are all that a batch is made of: a function can make it of a list of them.
        is_in_chunks: ``True`` if the engine holds chunks of them, which are read as a whole.
        holds_interpreter: ``True`` if reading them holds the interpreter, so that one thread reads faster than several.
        is_watched: ``True`` if :meth:`warn_after` has to look at each epoch as it ends.
    """

    selection: _native.Selection | None = None
    unit: ClassVar[str] = "sample"
    extras: Extras = Extras()
    batch_types: Mapping[str, str] = MappingProxyType({})
    memory: int | None = None
    reads_files: bool = False
    reads_once: bool = False
    location: Location
    is_bare: bool = False
    are_items: ClassVar[bool] = False
    has_next_tokens: bool = False
    is_formed_without_torch: bool = False
    is_in_chunks: ClassVar[bool] = False
    holds_interpreter: bool = False
    is_watched: bool = False

    def warn_after(self, epoch: int) -> None:
        """Log a warning if reading in an epoch, which has ended, took longer than it has to."""

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.whole_len() if self.selection is None else len(self.selection)

    @abstractmethod
    def whole_len(self) -> int:
        """Return the number of samples of the data."""

    @abstractmethod
    def sample(self, sample: int) -> Any:
        """Return one sample, given a number that is not negative."""

    @abstractmethod
    def recipe(self) -> Recipe:
        """Return the function and the arguments that make the samples again, without the selection."""

    @property
    def selectable(self) -> int:
        """The number of units to select from."""
        return len(self)

    def select(self, selection: _native.Selection) -> Self:
        """Return selected samples, which share the data with these."""
        selected = self.__new__(type(self))
        # Attributes are shared, as a copy would borrow all arrays again.
        selected.__dict__.update(self.__dict__)
        selected.selection = selection if self.selection is None else selection.within(self.selection)
        selected.narrow(selection)
        return selected

    def narrow(self, selection: _native.Selection) -> None:
        """Choose from the samples that there were before; ``self.selection`` has what is left of the data."""

    def row(self, sample: int) -> int:
        """Return the place of a sample in the data."""
        return sample if self.selection is None else self.selection.number(sample)

    def locate_run(self, first: int, end: int) -> tuple[int, int]:
        """Return the places in the data of the samples ``first`` to ``end``, which are neighbours there."""
        start = 0 if self.selection is None or self.selection.range is None else self.selection.range[0]
        return first + start, end + start

    @property
    def are_neighbours(self) -> bool:
        """``True`` if the samples are neighbours in the data."""
        return self.selection is None or self.selection.range is not None

    @property
    def lie_in_order(self) -> bool:
        """``True`` if each sample lies behind the sample before it in the data."""
        return False

    def list_selected(self) -> numpy.ndarray[Any, Any] | None:
        """Return the numbers of the selected samples in the data that is held; ``None`` without a selection."""
        return None if self.selection is None else numpy.from_dlpack(self.selection.numbers())

    def require_alike(self, datasets: Sequence[Any], labels: Sequence[str]) -> None:
        """Refuse datasets that cannot be put together with these samples, as far as is known before a sample is read.

        Args:
            datasets: The datasets, in order.
            labels: Their names in messages.

        Raises:
            ArgumentError: They differ in a field or in an option.
        """

    @abstractmethod
    def join(self, datasets: Sequence[Any], *, source: bool) -> Any:
        """Return the dataset of the samples of several datasets, the first of which holds these.

        Args:
            datasets: The datasets, in order.
            source: ``True`` if batches hold the number of the dataset of each sample.

        Raises:
            ArgumentError: They differ in kind, or in a field.
        """

    @override
    def sizes(self) -> Sizes | None:
        sizes = self.engine().sizes()
        return None if sizes is None else read_sizes(sizes)

    @override
    def named_sizes(self) -> NamedSizes | None:
        sizes = self.sizes()
        return None if sizes is None else read_columns(sizes, self.engine().named_sizes())

    @override
    def classes(self, option: str, field: str | int) -> Any:
        known = {field.label: field for field in self.arrays_by_sample()}
        if not known:
            others = f", or {MAPPED}" if self.is_in_chunks else ""
            raise ArgumentError(
                f"{option} is {field!r}, but this dataset holds no field of samples in memory; expected an array with "
                f"a class for each sample{others}"
            )
        names = self.field_names(FixedSize(1))
        rows = known[names.name(option, field, known, ", or an array of classes")].data
        chosen = self.list_selected()
        return rows if chosen is None else rows[chosen]

    @override
    def shuffle(self, shuffle: bool | str) -> tuple[str, bool]:
        return read_shuffle(shuffle), False

    def arrays_by_sample(self) -> tuple[BorrowedArray, ...]:
        """Return the arrays with a row for each sample of the data."""
        return ()

    def row_shapes(self) -> Mapping[str, Sequence[int]]:
        """Return the shapes of the rows that fields are taken from, by the names of fields, where they are known."""
        return {field.label: field.tensor.shape[1:] for field in self.location.all_arrays}

    def as_in_batches(self, field: str, value: Any) -> Any:
        """Return the value of a field of one sample in the type that it has in batches."""
        kind = self.batch_types.get(field)
        return value if kind is None else value.astype(kind)

    @override
    def for_loader(self, threads: int | None, fields: Fields) -> tuple[_native.Dataset, Memory | None]:
        return self.engine(), None

    @property
    @override
    def is_on_demand(self) -> bool:
        return self.location.is_on_demand

    @override
    def one_by_one(self, dataset: Any, make: Callable[..., Any]) -> Any:
        if not self.are_items:
            raise ArgumentError(
                f"collate is a function of a list of samples, and {type(dataset).__name__} makes batches of its own; "
                "expected slots of single fields, as in fields={'x': bl.Field(slot=...)}, or a MapDataset"
            )
        return make(dataset, sizes=self.named_sizes())

    @override
    def field_names(self, rule: Rule) -> FieldNames | LateFieldNames:
        left_out = self.extras.left_out
        columns = [column for column in self.engine().fields(engine_rule(rule)) if column[0] not in left_out]
        schema = self.schema(columns)
        stored = {name: dtype for place, (name, dtype) in enumerate(columns) if not schema.is_compressed(place)}
        objects = self.object_fields
        stored = {name: dtype for name, dtype in stored.items() if name not in objects}
        places = {} if schema.named else dict(enumerate(schema.all_keys))
        return FieldNames(stored, self.row_shapes(), places, objects)

    @property
    def object_fields(self) -> Sequence[str]:
        """The names of the fields that hold objects."""
        return ()

    @override
    def list_extras(self, rule: Rule) -> list[str]:
        with suppress(ArgumentError):  # the loader refuses the rule, once it knows more
            return add_longest(self.engine().describing_fields(engine_rule(rule)))
        return []

    @override
    def with_extras(self, extras: Extras) -> Samples:
        held = self.__new__(type(self))
        held.__dict__.update(self.__dict__)
        held.extras = extras
        return held

    @override
    def padded_fields(self) -> Mapping[str, str]:
        return {}

    @override
    def late_schema(self, columns: Columns, nesting: str) -> Schema:
        return self.schema(columns)

    @property
    @override
    def other_shapes(self) -> str | None:
        return None

    @override
    def windows(self, documents: bool) -> ArrayWindows | None:
        return None

    @override
    def device_data(self) -> DeviceData | None:
        return None

    @override
    def check(self) -> None:
        self.location.check()
        if self.memory is not None or self.reads_once:
            self.release_pages()

    @override
    def release_pages(self) -> None:
        self.location.pages(MEMORY if self.memory is None else self.memory).release()

    def refresh(self) -> Samples:
        """Return the samples where their arrays are now: other ones, if torch moved some to shared memory."""
        return self.make_again(self.memory, self.reads_files) if self.location.was_shared else self

    def with_memory(self, memory: int) -> Samples:
        """Return the samples with a limit of bytes for memory maps.

        Rows are read from the files of maps that hold more: the pages of a map around a row are more than the row.
        """
        reads_files = self.location.pages(memory).mapped > memory
        if reads_files != self.reads_files:
            return self.make_again(memory, reads_files)
        limited = self.__new__(type(self))
        limited.__dict__.update(self.__dict__)
        limited.memory = memory
        return limited

    @override
    def in_shards(self, shard_size: int | None) -> Samples:
        # Where two shards lie within the limit, rows are copied from maps: the order leaves pages behind as it goes on.
        if shard_size is None or self.memory is None or not (self.reads_files and self.lie_in_order):
            return self
        of_shard = shard_size * self.location.nbytes // max(len(self), 1)
        is_passed = of_shard >= LEAST_SHARD and 2 * of_shard <= self.memory
        return self.make_again(self.memory, reads_files=False) if is_passed else self

    def make_again(self, memory: int | None, reads_files: bool) -> Samples:
        """Return the same samples, made of their arrays as they are now.

        Args:
            memory: The limit of bytes for memory maps.
            reads_files: ``True`` if rows are read from the files of maps.
        """
        make, arguments = self.recipe()
        with reading_files() if reads_files else nullcontext():
            samples = make(*arguments)
        samples.batch_types, samples.memory, samples.reads_files = self.batch_types, memory, reads_files
        return samples if self.selection is None else samples.select(self.locate_selected())

    def narrow_recipe(self) -> tuple[Recipe, _native.Selection]:
        """Return a recipe for little more data than the selected samples, and where they are in it."""
        return self.recipe(), self.locate_selected()

    def locate_selected(self) -> _native.Selection:
        """Return the selected samples, as places in the data that is held."""
        assert self.selection is not None
        return self.selection

    def to_pickle(self) -> tuple[Recipe, tuple[Any, ...] | None, dict[str, str], int | None]:
        """Return what :func:`restore_samples` takes, for a pickle."""
        selection = None
        if self.selection is None:
            make, arguments = self.recipe()
        else:
            (make, arguments), selection = self.narrow_recipe()
        chosen = None if selection is None else pickle_selection(selection)
        return (make, to_pickle(arguments)), chosen, dict(self.batch_types), self.memory


def restore_samples(
    recipe: Recipe, selection: tuple[Any, ...] | None, batch_types: Mapping[str, str], memory: int | None
) -> Samples:
    """Return samples from what :meth:`Samples.to_pickle` returned."""
    make, arguments = recipe
    samples = make(*from_pickle(arguments))
    samples.batch_types = batch_types
    if memory is not None:
        samples = samples.with_memory(memory)
    return samples if selection is None else samples.select(restore_selection(*selection))
