"""The base class of datasets: the questions that loaders ask a dataset, whatever its samples are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, SupportsIndex, TypeVar, overload

import batchloom._native as _native
import numpy
from batchloom.arguments import integer, resolve_index, shuffled
from batchloom.arrays.field import Field
from batchloom.arrays.pickling import kept, opened
from batchloom.batching.rules import FixedSize, Rule
from batchloom.collate.field_names import FieldNames, LateFieldNames
from batchloom.collate.schema import Columns, Schema
from batchloom.dataset.selection import restored, selected, split, written
from batchloom.errors import ArgumentError
from batchloom.samples.label_counts import LabelCounts
from batchloom.samples.sizes import HasSizes

if TYPE_CHECKING:
    from batchloom.collate.fields import Fields
    from batchloom.collate.schema import CollateOptions
    from batchloom.dataset.array_windows import ArrayWindows
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange


Memory = tuple[int, Callable[[int], Any]]
"""The least bytes of memory for blocks to ask for, and the function that allocates it."""


Tuples = tuple[Any, ...]
"""Batches of fields without names."""

Dicts = dict[str, Any]
"""Batches of named fields."""

# Annotations may leave out what batches are.
if TYPE_CHECKING:
    import typing_extensions

    Form = typing_extensions.TypeVar("Form", default=Any)
    Batch = typing_extensions.TypeVar("Batch", default=Any)
else:
    Form, Batch = TypeVar("Form"), TypeVar("Batch")


Made = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function, and the arguments with which it makes a dataset."""


class Dataset(HasSizes, ABC, Generic[Form]):
    """Samples to batch: on the host by the engine, on a device by the collator that :meth:`_collator` returns.

    A dataset of some of its samples (:meth:`select`, :meth:`split`, :meth:`take`, ``dataset[a:b]``) is of the same
    class and shares its data: arrays are neither copied nor read. What it says of samples (``len(dataset)``,
    ``dataset[k]``, sizes, ``stats()``) is about those that were selected; its arrays stay those of the whole. It
    pickles with all of the data; where neighbours were selected, with theirs alone.
    """

    _selection: _native.Selection | None = None
    _unit = "sample"  # the word for what is selected
    _concatenated: ClassVar[Callable[..., Dataset[Any]]]  # set in concat.py, which stands on this file

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._whole_len() if self._selection is None else len(self._selection)

    @abstractmethod
    def _whole_len(self) -> int:
        """Return the number of samples of the data."""

    @overload
    def __getitem__(self, sample: slice) -> Self: ...
    @overload
    def __getitem__(self, sample: SupportsIndex) -> Any: ...
    def __getitem__(self, sample: Any) -> Any:
        """Return one sample; for a slice, a dataset of those samples, as :meth:`select` does."""
        if isinstance(sample, slice):
            return self.select(sample)
        return self._sample(resolve_index("sample", sample, len(self)))

    @abstractmethod
    def _sample(self, sample: int) -> Any:
        """Return one sample, given a number that is not negative."""

    def _run(self, first: int, end: int) -> tuple[int, int]:
        """Return the places in the data of the samples ``first`` to ``end``, which are neighbours there."""
        start = 0 if self._selection is None or self._selection.range is None else self._selection.range[0]
        return first + start, end + start

    def _row(self, sample: int) -> int:
        """Return the place of a sample in the data."""
        return sample if self._selection is None else self._selection.number(sample)

    @property
    def indices(self) -> numpy.ndarray[Any, Any]:
        """The numbers of the samples in the data that they were selected from; int64."""
        if self._selection is None:
            return numpy.arange(self._selectable)
        numbers: numpy.ndarray[Any, Any] = numpy.from_dlpack(self._selection.numbers())
        return numbers + self._selection.base

    @property
    def _selectable(self) -> int:
        """The number of samples to select from."""
        return len(self)

    def select(self, indices: Any) -> Self:
        """Return a dataset of some samples, in this order, over the same data.

            train = dataset.select(numpy.flatnonzero(years < 2024))

        Of a :class:`TokenDataset`, documents are selected, not pieces.

        Args:
            indices: The numbers of samples, which may repeat, and count from the end where they are negative; a range
                or a slice; or a mask, with a value for each sample.

        Raises:
            ArgumentError: They are neither integers nor a mask, or the data has no such selections.
            DataError: A mask of another length, or no sample.
            RangeError: There is no such sample.
        """
        selection = selected(indices, self._selectable, self._unit)
        return self if selection.range == (0, self._selectable) else self._with(selection)

    def take(self, samples: int) -> Self:
        """Return a dataset of the first samples: of all, if there are fewer."""
        return self.select(slice(integer("samples", samples, least=1)))

    def split(self, /, *, seed: int | None = 0, stratify: Any = None, **parts: Any) -> tuple[Self, ...]:
        """Split the samples in parts: ``train, val = dataset.split(train=0.8, val=0.2)``.

        Each sample is in one part at most, and whole: a group with all of its rows, a document with all of its tokens.
        A part holds its samples in the order of the data, and shares the data.

        Args:
            seed: The seed by which samples are drawn; ``None`` makes parts of neighbours.
            stratify: A class for each sample, or the field that holds it: every part has its share of each class, to
                one or two samples.
            parts: Parts by name. Floats are shares, and integers are numbers of samples. The last may be ``None``, for
                the rest. (``stratify`` and ``seed`` are no names of parts.)

        Returns:
            A dataset for each part, in the order of their names.

        Raises:
            ArgumentError: A part is neither a share nor a number, or parts are of both kinds.
            DataError: Parts hold more than all samples; a part holds none; classes are not one for each sample.
        """
        strata = self._classes("stratify", stratify) if isinstance(stratify, str | int) else stratify
        return tuple(self._with(part) for part in split(self._selectable, seed, strata, parts))

    def concat(self, *others: Dataset[Any]) -> Dataset[Any]:
        """Return a dataset of the samples of this one, then those of others, over the data of all.

        Args:
            others: Datasets of the same kind, whose fields have the same names, types and frameworks.

        Raises:
            ArgumentError: They differ in kind, or in a field, which the message names.
        """
        return self._joined(others, source=False)

    def _joined(self, others: Sequence[Dataset[Any]], *, source: bool) -> Dataset[Any]:
        """Return the samples of this dataset and of others; batches hold ``source`` if that is asked for."""
        return Dataset._concatenated((self, *others), source=source)

    def _classes(self, option: str, field: str | int) -> Any:
        """Return the class of each sample, which the field holds that is given as ``option``.

        Raises:
            ArgumentError: There is no such field with one number for each sample.
        """
        known = {field.label: field for field in self._arrays_by_sample()}
        rows = known[self._field_names().name(option, field, known, ", or an array of classes")].data
        return rows if self._selection is None else rows[self.indices - self._selection.base]

    def _field_names(self, rule: Rule | None = None) -> FieldNames | LateFieldNames:
        """Return the fields of batches of a rule, and the keys by which arguments name them."""
        columns = self._native_dataset().fields((FixedSize(1) if rule is None else rule)._native())
        schema = self._schema(columns)
        stored = {name: dtype for place, (name, dtype) in enumerate(columns) if not schema.is_compressed(place)}
        return FieldNames(stored, self._row_shapes(), {} if schema.named else dict(enumerate(schema.all_keys)))

    def _row_shapes(self) -> Mapping[str, Sequence[int]]:
        """Return the shapes of the rows that fields are taken from, by the names of fields, where they are known."""
        return {field.label: field.tensor.shape[1:] for field in (*self._arrays(), *self._beside())}

    def _arrays_by_sample(self) -> tuple[Field, ...]:
        """Return the arrays with a row for each sample of the data."""
        return ()

    def _with(self, selection: _native.Selection) -> Self:
        """Return the dataset of selected samples, which shares the data with this one."""
        found = self.__new__(type(self))
        # Attributes are shared, as a copy of the dataset would borrow all arrays again.
        found.__dict__.update(self.__dict__)
        found._selection = selection if self._selection is None else selection.within(self._selection)
        found._choose(selection)
        return found

    def _choose(self, selection: _native.Selection) -> None:
        """Choose from the samples that there were before; ``_selection`` says what is left of the data."""

    def __reduce__(self) -> tuple[Any, ...]:
        if self._selection is None:
            make, arguments = self._made()
            return _remade, (make, kept(arguments))
        (make, arguments), selection = self._narrowed()
        return _select, ((make, kept(arguments)), written(selection))

    @abstractmethod
    def _made(self) -> Made:
        """Return the function and the arguments that make the dataset again, with all samples of its data."""

    def _narrowed(self) -> tuple[Made, _native.Selection]:
        """Return the same for data that holds little more than the selected samples, and where they are in it."""
        return self._made(), self._held()

    def _held(self) -> _native.Selection:
        """Return the selected samples, as places in the data that the dataset holds."""
        assert self._selection is not None
        return self._selection

    @abstractmethod
    def _native_dataset(self) -> _native.Dataset:
        """Return the dataset as the engine sees it."""

    def _for_loader(self, threads: int | None, fields: Fields) -> tuple[_native.Dataset, Memory | None]:
        """Return the dataset for one loader, and where blocks have to lie, if that matters.

        Args:
            threads: The threads of the loader; ``None`` for as many as it takes by itself.
            fields: The treatment of each field.
        """
        return self._native_dataset(), None

    @property
    def _padded_fields(self) -> Mapping[str, str]:
        """The types of the fields that are padded, by name."""
        return {}

    def _late_schema(self, columns: Columns, nesting: str) -> Schema:
        """Return the schema of batches whose fields are known with the first block, which tells them.

        Args:
            columns: The names and types of its fields.
            nesting: The text of the structure of its samples.
        """
        return self._schema(columns)

    @abstractmethod
    def _schema(self, columns: Columns) -> Schema:
        """Return the schema of batches, given the names and types of the fields that the engine makes."""

    @abstractmethod
    def _arrays(self) -> tuple[Field, ...]:
        """Return the arrays of the dataset, each once: batches are made where they are."""

    def _ungathered(self, conversions: Mapping[str, _native.Conversion]) -> str | None:
        """Return why a device cannot gather fields and convert them; ``None`` where it can."""
        in_parts = self._in_parts()
        for name, conversion in conversions.items():
            if conversion.is_first and name in in_parts:
                return f"means of field {name} are those of the first dimension, and samples are gathered in parts"
        return None

    def _in_parts(self) -> frozenset[str]:
        """Return the fields whose samples a device gathers in parts, not whole."""
        return frozenset()

    def _beside(self) -> tuple[Field, ...]:
        """Return further arrays that a device needs, wherever they are now."""
        return ()

    def _element_bytes(self) -> int | None:
        """Return the bytes of one element, where a device gathers element by element; ``None`` where row by row."""
        return None

    def count_labels(self, field: str | int, *, batching: Rule | None = None, next_tokens: bool = False) -> LabelCounts:
        """Count the labels of each sample that losses do not ignore: those that are not -100. One pass over the field.

            counts = dataset.count_labels("labels")
            loader = bl.DataLoader(dataset, batching=rule, label_counts=counts)
            loss = loss_sum / loader.plan().step(k).labels

        Args:
            field: The name of a field of integers, or its place where fields have no names.
            batching: The rule, if it truncates or splits samples: what it takes of them is counted.
            next_tokens: If ``True``, count the labels that a loader with ``labels=field`` makes, for tokens that may be
                -100 themselves. (Without this, those labels follow from sizes.)

        Raises:
            ArgumentError: There is no such field, it does not hold integers, or batches take random rows of groups.
            DeviceError: The CPU cannot read the field.
        """
        rule = FixedSize(1) if batching is None else batching
        name = self._field_names(rule).name("count_labels", field)
        return LabelCounts._read(*self._native_dataset().count_labels(name, rule._native(), bool(next_tokens)))

    @abstractmethod
    def _collator(self, resident: Resident, options: CollateOptions) -> Collator:
        """Return the collator that makes batches of row numbers on a device."""

    def _row_ranges(self, first: int, end: int) -> list[RowRange]:
        """Return the rows that have to be on a device for batches of the samples ``first`` to ``end``."""
        from batchloom.device.shards import RowRange

        # An array that several fields are taken from is listed once; all of them take the same rows of it.
        rows = zip(self._arrays(), self._native_dataset().rows(first, end), strict=False)
        return [RowRange(array, start, stop) for array, (start, stop) in rows]

    def _most_rows(self, samples: int) -> list[tuple[Field, int]]:
        """Return the most rows of each array in :meth:`_row_ranges` that so many neighbouring samples need."""
        return list(zip(self._arrays(), self._native_dataset().most_rows(samples), strict=False))

    def _shuffled(self, shuffle: bool | str) -> tuple[str, bool]:
        """Return the random order as the engine names it, and whether documents are shuffled.

        Raises:
            ArgumentError: ``shuffle`` is an order that the dataset does not have.
        """
        return shuffled(shuffle), False

    def _labels(self, labels: str | None) -> str | None:
        """Return the field whose next tokens are labels.

        Raises:
            ArgumentError: A field is named, and samples have no tokens.
        """
        if labels is not None:
            raise ArgumentError(
                f"labels is {labels!r}; labels= needs a SequenceDataset, as tokens of sequences have a next one; this "
                f"loader batches a {type(self).__name__}"
            )
        return None

    def _sliceable(self, documents: bool) -> ArrayWindows | None:
        """Return the windows that samples are, if a batch of neighbours is one slice of a template; else ``None``.

        Args:
            documents: ``True`` if documents are shuffled.
        """
        return None

    def _lies_together(self, documents: bool) -> bool:
        """Return whether the data of neighbouring samples is one range of rows in each array.

        Args:
            documents: ``True`` if documents are shuffled.
        """
        return self._selection is None or self._selection.range is not None

    @property
    def _other_shapes(self) -> str | None:
        """The reason for which full batches differ in shape, where options of the dataset ask for that."""
        return None

    @property
    def _is_formed_without_torch(self) -> bool:
        """``True`` if the engine forms batches of other frameworks than torch when torch is asked for on the CPU."""
        return False

    @property
    def _is_bare(self) -> bool:
        """``True`` if a batch is one array, and not a tuple of one."""
        return False

    @property
    def _is_on_demand(self) -> bool:
        """``True`` if samples are made when their batch is formed, so that fields are known with the first block."""
        return False

    def _current(self) -> Dataset:
        """Return the dataset over its arrays where they are now: another one, if torch moved some to shared memory."""
        if not any(field.was_shared for field in (*self._arrays(), *self._beside())):
            return self
        make, arguments = self._made()
        found: Dataset = make(*arguments)
        return found if self._selection is None else found._with(self._held())

    def _check(self) -> None:
        """Raise if an array was resized or moved since it was borrowed."""
        for field in (*self._arrays(), *self._beside()):
            field.check()


def _select(made: Made, selection: tuple[Any, ...]) -> Dataset[Any]:
    """Return a dataset of some samples, which :meth:`Dataset.__reduce__` wrote down."""
    return _remade(*made)._with(restored(*selection))


def _remade(make: Callable[..., Dataset[Any]], arguments: tuple[Any, ...]) -> Dataset[Any]:
    """Return a dataset of all samples, which :meth:`Dataset.__reduce__` wrote down."""
    return make(*opened(arguments))
