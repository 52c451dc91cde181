"""Several datasets of one kind as one dataset: the samples of the first, then those of the second, and so on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import batchloom._native as _native
import numpy
from batchloom.arguments import U64, boolean, integer, resolve_index
from batchloom.arrays.field import Field, host
from batchloom.batching.rules import FixedSize
from batchloom.collate.schema import Columns, Schema
from batchloom.dataset.base import Dataset, Made
from batchloom.errors import ArgumentError, many
from batchloom.samples.sizes import Sizes, read

if TYPE_CHECKING:
    from batchloom.collate.schema import CollateOptions
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident


class Origin(NamedTuple):
    """The place of a sample in one of several datasets."""

    source: int
    """The number of the dataset."""
    sample: int
    """The number of the sample in that dataset."""


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

    def __init__(self, datasets: Sequence[Dataset[Any]], *, source: bool = False) -> None:
        self._says_source = boolean("source", source)
        if not isinstance(datasets, Iterable):
            raise ArgumentError(f"datasets is a {type(datasets).__name__}; expected a list of datasets")
        found: list[Dataset[Any]] = []
        for each in datasets:
            # Datasets that were put together before are sources of their own only where samples say their source.
            if isinstance(each, ConcatDataset) and each._selection is None and not (source or each._says_source):
                found += each.datasets
            else:
                found.append(each)
        self._datasets = tuple(found)
        require_same(self._datasets)
        self._whole = _native.Dataset.concat([each._native_dataset() for each in found], self._says_source)
        self._ends = list(accumulate(len(each) for each in found))
        columns = self._whole.fields(FixedSize(1)._native())
        schemas = [each._schema(columns) for each in found]
        for number, schema in enumerate(schemas[1:], 1):
            for first, other in zip(schemas[0].columns, schema.columns, strict=True):
                if first.framework != other.framework:
                    raise ArgumentError(
                        f"field {first.name} is of {first.framework} in dataset 0 and of {other.framework} in dataset "
                        f"{number}; expected one framework"
                    )

    @property
    def datasets(self) -> tuple[Dataset[Any], ...]:
        """The datasets, in order."""
        return self._datasets

    @property
    def sizes(self) -> Sizes | None:
        """The size of each sample; ``None`` if all count the same."""
        found = self._native_dataset().sizes()
        return None if found is None else read(found)

    def origin(self, sample: int) -> Origin:
        """Return the dataset that a sample is of, and its number there.

        Raises:
            RangeError: There is no such sample.
        """
        row = self._row(resolve_index("sample", integer("sample", sample, least=-U64), len(self)))
        source = bisect_right(self._ends, row)
        return Origin(source, row - (self._ends[source - 1] if source else 0))

    def _whole_len(self) -> int:
        return self._ends[-1]

    def _sample(self, sample: int) -> Any:
        source, number = self.origin(sample)
        return self._datasets[source][number]

    def _made(self) -> Made:
        return _rebuild, (type(self), self._datasets, self._says_source)

    def __repr__(self) -> str:
        return f"ConcatDataset({', '.join(map(repr, self._datasets))}; {many(len(self), 'sample')})"

    def _native_dataset(self) -> _native.Dataset:
        return self._whole if self._selection is None else self._whole.select(self._selection)

    def _classes(self, option: str, field: str | int) -> Any:
        found = numpy.concatenate(
            [numpy.asarray(host(option, each._classes(option, field))) for each in self._datasets]
        )
        return found if self._selection is None else found[numpy.from_dlpack(self._selection.numbers())]

    @property
    def _padded_fields(self) -> Mapping[str, str]:
        return self._datasets[0]._padded_fields

    def _row_shapes(self) -> Mapping[str, Sequence[int]]:
        return self._datasets[0]._row_shapes()

    def _schema(self, columns: Columns) -> Schema:
        return self._datasets[0]._schema(columns)

    def _arrays(self) -> tuple[Field, ...]:
        return tuple({id(field): field for each in self._datasets for field in each._arrays()}.values())

    def _beside(self) -> tuple[Field, ...]:
        return tuple(field for each in self._datasets for field in each._beside())

    def _current(self) -> Dataset[Any]:
        datasets = [each._current() for each in self._datasets]
        if all(now is before for now, before in zip(datasets, self._datasets, strict=True)):
            return self
        found = ConcatDataset(datasets, source=self._says_source)
        return found if self._selection is None else found._with(self._selection)

    def _check(self) -> None:
        for each in self._datasets:
            each._check()

    def _element_bytes(self) -> int | None:
        return self._datasets[0]._element_bytes()

    def _ungathered(self, conversions: Mapping[str, _native.Conversion]) -> str | None:
        return f"samples are those of {len(self._datasets)} datasets"

    def _most_rows(self, samples: int) -> list[tuple[Field, int]]:
        return [pair for each in self._datasets for pair in each._most_rows(min(samples, len(each)))]

    def _shuffled(self, shuffle: bool | str) -> tuple[str, bool]:
        return self._datasets[0]._shuffled(shuffle)

    def _labels(self, labels: str | None) -> str | None:
        return self._datasets[0]._labels(labels)

    def _lies_together(self, documents: bool) -> bool:
        return False

    @property
    def _is_formed_without_torch(self) -> bool:
        return self._datasets[0]._is_formed_without_torch

    @property
    def _is_bare(self) -> bool:
        return self._datasets[0]._is_bare

    def _collator(self, resident: Resident, options: CollateOptions) -> Collator:
        raise ArgumentError("samples are those of several datasets; expected resident=False")


Dataset._concatenated = ConcatDataset


class JoinedItems:
    """The items of several datasets whose samples are made on demand, each with the number of its dataset.

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
    """Makes samples of items of several datasets, each with the function of its dataset."""

    def __init__(self, functions: list[tuple[Callable[..., Any] | None, bool]], says_source: bool) -> None:
        self._functions, self._says_source = functions, says_source

    def __call__(self, item: tuple[int, Any], rng: Any) -> Any:
        """Return a sample, with its source if that is asked for; ``rng`` goes to the functions that take it."""
        source, given = item
        function, draws = self._functions[source]
        if function is not None:
            given = function(given, rng=rng) if draws else function(given)
        return _with_source(given, source) if self._says_source else given


def _with_source(sample: Any, source: int) -> Any:
    """Return a sample with the number of its source: in a dict by name, and last in a tuple."""
    if isinstance(sample, Mapping):
        if "source" in sample:
            raise ArgumentError("a field is named source, which names the dataset of a sample; expected another name")
        return {**sample, "source": source}
    return (*sample, source) if isinstance(sample, tuple | list) else (sample, source)


def require_same(datasets: Sequence[Dataset[Any]]) -> None:
    """Refuse datasets of several kinds."""
    if not datasets:
        raise ArgumentError("there are no datasets; expected at least one")
    for number, each in enumerate(datasets):
        if not isinstance(each, Dataset):
            raise ArgumentError(f"dataset {number} is a {type(each).__name__}; expected a dataset of batchloom")
        kinds = [type(each._datasets[0] if isinstance(each, ConcatDataset) else each) for each in (datasets[0], each)]
        if kinds[0] is not kinds[1]:
            raise ArgumentError(
                f"dataset 0 is a {kinds[0].__name__} and dataset {number} a {kinds[1].__name__}; expected one kind"
            )


def _rebuild(kind: type[ConcatDataset], datasets: tuple[Dataset[Any], ...], source: bool) -> ConcatDataset:
    return kind(datasets, source=source)
