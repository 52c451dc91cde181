"""Several datasets of one kind as one dataset: the samples of the first, then those of the second, and so on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import batchloom._native as _native
import numpy
from batchloom.arguments import U64, answer_unknown_keywords, boolean, integer, resolve_index
from batchloom.arrays.field import host
from batchloom.batching.rules import FixedSize, Rule, engine_rule
from batchloom.collate.extras import Extras
from batchloom.collate.schema import Columns, Schema
from batchloom.dataset.base import Dataset, refresh, samples_of, with_samples
from batchloom.dataset.location import Location
from batchloom.dataset.samples import Recipe, Samples, override
from batchloom.errors import ArgumentError, many
from batchloom.samples.sizes import Sizes

# The extra with the number of the dataset of each sample.
SOURCE = "source"


class Origin(NamedTuple):
    """The place of a sample in one of several datasets."""

    source: int
    """The number of the dataset."""
    sample: int
    """The number of the sample in that dataset."""


@answer_unknown_keywords
class ConcatDataset(Dataset[Any]):
    """The samples of several datasets of one kind, one dataset after the other: ``first.concat(second, third)``.

    Data is not copied. A batch may hold samples of several datasets, and is formed on the CPU: views on series, and
    batches that a device gathers, are those of a single dataset. Every rule works, and so do selections and splits.
    Streams of tokens are put together piece by piece: no piece holds tokens of two datasets.

    Args:
        datasets: At least one. Their fields have the same names, types and frameworks, and samples the same shapes,
            but for the dimensions in which samples differ.
        source: If ``True``, batches hold ``source``, the number of the dataset that each sample is of (int64): after
            the fields, and last in a tuple.

    Raises:
        ArgumentError: There is no dataset, or they differ in kind, or in a field, which the message names.
    """

    _samples: JoinedSamples

    def __init__(self, datasets: Sequence[Dataset[Any]], *, source: bool = False) -> None:
        says_source = boolean("source", source)
        if not isinstance(datasets, Iterable):
            raise ArgumentError(f"datasets is a {type(datasets).__name__}; expected a list of datasets")
        parts: list[Dataset[Any]] = []
        for each in datasets:
            held = samples_of(each) if isinstance(each, Dataset) else None
            # Datasets that were put together before are sources of their own only where samples say their source.
            if isinstance(held, JoinedSamples) and held.selection is None and not (source or held.says_source):
                parts += held.datasets
            else:
                parts.append(each)
        require_same(parts)
        self._samples = JoinedSamples(tuple(parts), says_source)

    @property
    def datasets(self) -> tuple[Dataset[Any], ...]:
        """The datasets, in order."""
        return self._samples.datasets

    @property
    def source(self) -> bool:
        """``True`` if batches hold the number of the dataset that each sample is of."""
        return self._samples.says_source

    @property
    def sizes(self) -> Sizes | None:
        """The size of each sample; ``None`` if all count the same."""
        return self._samples.sizes()

    def origin(self, sample: int) -> Origin:
        """Return the dataset that a sample is of, and its number there.

        Raises:
            RangeError: There is no such sample.
        """
        return self._samples.origin(resolve_index("sample", integer("sample", sample, least=-U64), len(self)))

    def __repr__(self) -> str:
        return f"ConcatDataset({', '.join(map(repr, self.datasets))}; {many(len(self), 'sample')})"


class StoredSamples(Samples):
    """Samples that are stored in arrays; a concatenation copies nothing."""

    @override
    def join(self, datasets: Sequence[Dataset[Any]], *, source: bool) -> ConcatDataset:
        return ConcatDataset(datasets, source=source)


class JoinedSamples(StoredSamples):
    """The samples of several datasets of one kind; the host alone forms their batches.

    Attributes:
        datasets: The datasets, in order.
        parts: Their samples.
        says_source: ``True`` if batches hold the number of the dataset that each sample is of.
    """

    def __init__(self, datasets: tuple[Dataset[Any], ...], says_source: bool) -> None:
        self.datasets, self.says_source = datasets, says_source
        self.parts = parts = tuple(samples_of(each) for each in datasets)
        self._whole = self._engine = _native.Dataset.concat([each.engine() for each in parts], says_source)
        self._ends = list(accumulate(len(each) for each in parts))
        self._require_same_frameworks()
        first = parts[0]
        self.batch_types = {name: kind for each in parts for name, kind in each.batch_types.items()}
        self.is_bare, self.has_next_tokens = first.is_bare, first.has_next_tokens
        self.is_formed_without_torch = first.is_formed_without_torch
        arrays = {id(field): field for each in parts for field in each.location.arrays}
        beside = tuple(field for each in parts for field in each.location.beside)
        watched = tuple(field for each in parts for field in each.location.watched)
        self.location = Location(tuple(arrays.values()), beside, len(parts), watched)
        given = [each.memory for each in parts if each.memory is not None]
        self.memory, self.reads_once = sum(given) if given else None, first.reads_once

    def _require_same_frameworks(self) -> None:
        columns = self._whole.fields(engine_rule(FixedSize(1)))
        schemas = [each.schema(columns) for each in self.parts]
        for number, schema in enumerate(schemas[1:], 1):
            for first, other in zip(schemas[0].columns, schema.columns, strict=True):
                if first.framework != other.framework:
                    raise ArgumentError(
                        f"field {first.name} is of {first.framework} in dataset 0 and of {other.framework} in dataset "
                        f"{number}; expected one framework"
                    )

    def origin(self, sample: int) -> Origin:
        """Return the dataset that a sample is of, and its number there."""
        row = self.row(sample)
        source = bisect_right(self._ends, row)
        return Origin(source, row - (self._ends[source - 1] if source else 0))

    @override
    def whole_len(self) -> int:
        return self._ends[-1]

    @override
    def sample(self, sample: int) -> Any:
        source, number = self.origin(sample)
        return self.datasets[source][number]

    @override
    def narrow(self, selection: _native.Selection) -> None:
        assert self.selection is not None
        self._engine = self._whole.select(self.selection)

    @override
    def recipe(self) -> Recipe:
        return JoinedSamples, (self.datasets, self.says_source)

    @override
    def engine(self) -> _native.Dataset:
        return self._engine

    @override
    def classes(self, option: str, field: str | int) -> Any:
        classes = numpy.concatenate([numpy.asarray(host(option, each.classes(option, field))) for each in self.parts])
        chosen = self.list_selected()
        return classes if chosen is None else classes[chosen]

    @override
    def list_extras(self, rule: Rule) -> list[str]:
        names = self.parts[0].list_extras(rule)
        return [*names, *(name for name in super().list_extras(rule) if name not in names)]

    @override
    def with_extras(self, extras: Extras) -> Samples:
        held = super().with_extras(extras)
        assert isinstance(held, JoinedSamples)
        held.parts = tuple(part.with_extras(extras) for part in self.parts)
        return held

    @override
    def padded_fields(self) -> Mapping[str, str]:
        return self.parts[0].padded_fields()

    @override
    def row_shapes(self) -> Mapping[str, Sequence[int]]:
        return self.parts[0].row_shapes()

    @property
    @override
    def object_fields(self) -> Sequence[str]:
        return self.parts[0].object_fields

    @override
    def schema(self, columns: Columns) -> Schema:
        return self.parts[0].schema(columns)

    @override
    def shuffle(self, shuffle: bool | str) -> tuple[str, bool]:
        return self.parts[0].shuffle(shuffle)

    @property
    @override
    def lie_in_order(self) -> bool:
        return self.are_neighbours and all(part.lie_in_order for part in self.parts)

    @override
    def refresh(self) -> Samples:
        datasets = tuple(refresh(each) for each in self.datasets)
        if all(now is before for now, before in zip(datasets, self.datasets, strict=True)):
            return self
        return self._joined(datasets, self.memory, self.reads_files)

    @override
    def make_again(self, memory: int | None, reads_files: bool) -> Samples:
        parts = zip(self.datasets, self.parts, strict=True)
        datasets = tuple(with_samples(each, samples.make_again(memory, reads_files)) for each, samples in parts)
        return self._joined(datasets, memory, reads_files)

    def _joined(self, datasets: tuple[Dataset[Any], ...], memory: int | None, reads_files: bool) -> Samples:
        samples = JoinedSamples(datasets, self.says_source)
        samples.memory, samples.reads_files = memory, reads_files
        return samples if self.selection is None else samples.select(self.selection)


class JoinedItems:
    """The items of several datasets of samples on demand, each with the number of its dataset.

    Args:
        parts: The items of each dataset, and the numbers of those that were selected, or ``None`` for all.
    """

    def __init__(self, parts: list[tuple[Any, Any]]) -> None:
        self._parts = parts
        self._ends = list(accumulate(len(items if numbers is None else numbers) for items, numbers in parts))

    def __len__(self) -> int:
        """Return the number of items of all datasets."""
        return self._ends[-1]

    def __getitem__(self, number: int) -> tuple[int, Any]:
        """Return the number of a dataset, and an item of it."""
        source = bisect_right(self._ends, number)
        place = number - (self._ends[source - 1] if source else 0)
        items, numbers = self._parts[source]
        return source, items[place if numbers is None else int(numbers[place])]


class JoinedFunction:
    """Makes samples of items of several datasets, each with the function of its dataset.

    Attributes:
        says_source: ``True`` if samples hold the number of their dataset.
    """

    def __init__(self, functions: list[tuple[Callable[..., Any] | None, bool]], says_source: bool) -> None:
        self._functions, self.says_source = functions, says_source

    def without_source(self) -> JoinedFunction:
        """Return the same function without the number of a dataset in each sample."""
        return JoinedFunction(self._functions, False)

    def __call__(self, item: tuple[int, Any], rng: Any) -> Any:
        """Return a sample, with its source if that is asked for; ``rng`` goes to the functions that take it."""
        source, given = item
        function, draws = self._functions[source]
        if function is not None:
            given = function(given, rng=rng) if draws else function(given)
        return _with_source(given, source) if self.says_source else given


def _with_source(sample: Any, source: int) -> Any:
    """Return a sample with the number of its source: in a dict by name, and last in a tuple."""
    if isinstance(sample, Mapping):
        if SOURCE in sample:
            raise ArgumentError("a field is named source, which names the dataset of a sample; expected another name")
        return {**sample, SOURCE: source}
    return (*sample, source) if isinstance(sample, tuple | list) else (sample, source)


def require_datasets(datasets: Sequence[Any]) -> None:
    """Refuse anything but datasets, and no dataset."""
    if not datasets:
        raise ArgumentError("there are no datasets; expected at least one")
    for number, each in enumerate(datasets):
        if not isinstance(each, Dataset):
            raise ArgumentError(f"dataset {number} is a {type(each).__name__}; expected a dataset of batchloom")


def require_same(datasets: Sequence[Dataset[Any]]) -> None:
    """Refuse datasets of several kinds."""
    require_datasets(datasets)
    for number, each in enumerate(datasets):
        kinds = [type(each.datasets[0] if isinstance(each, ConcatDataset) else each) for each in (datasets[0], each)]
        if kinds[0] is not kinds[1]:
            raise ArgumentError(
                f"dataset 0 is a {kinds[0].__name__} and dataset {number} a {kinds[1].__name__}; expected one kind"
            )
