"""Datasets of torch with rows of tensors, and bare arrays, as datasets of rows.

Each kind of data has a reader in `READERS`. Arrays and torch's ``TensorDataset`` share their memory. A ``Subset`` or a
``ConcatDataset`` of them is gathered once; parts of datasets of ours are selections, without a copy.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy
from batchloom.arrays.frameworks import framework_of
from batchloom.dataset.base import Dataset
from batchloom.dataset.mixture import Mixture
from batchloom.dataset.tensors import RowSamples, TensorDataset
from batchloom.dataset.tokens import TokenDataset
from batchloom.errors import ArgumentError


def as_dataset(data: Any) -> Dataset[Any] | Mixture:
    """Return data as a dataset.

    Raises:
        ArgumentError: The samples are no rows of arrays.
    """
    return find_reader(data).read(data)


def find_reader(data: Any) -> DataReader:
    """Return the reader of the kind of data."""
    return next(reader for reader in READERS if reader.accepts(data))


class DataReader(ABC):
    """Reads one kind of data as a dataset."""

    @abstractmethod
    def accepts(self, data: Any) -> bool:
        """Return whether data is of this kind."""

    def rows(self, data: Any) -> TensorDataset | None:
        """Return the rows of arrays that data holds, gathered where it chooses or joins them; ``None`` without rows."""
        return None

    def part(self, data: Any) -> Dataset[Any] | None:
        """Return a selection or a concatenation of datasets of ours; ``None`` where data is made of something else."""
        return None

    def read(self, data: Any) -> Dataset[Any] | Mixture:
        """Return data as a dataset.

        Raises:
            ArgumentError: The samples are no rows of arrays.
        """
        rows = self.rows(data)
        dataset = self.part(data) if rows is None else rows
        if dataset is None:
            raise ArgumentError(_describe_expected(data))
        return dataset


class DatasetReader(DataReader):
    """Takes a dataset of ours as it is."""

    def accepts(self, data: Any) -> bool:
        """Return whether data is a dataset of ours."""
        return isinstance(data, Dataset)

    def part(self, data: Dataset[Any]) -> Dataset[Any]:
        """Return the dataset."""
        return data

    def read(self, data: Dataset[Any]) -> Dataset[Any]:
        """Return the dataset, even one without samples: later stages of the loader refuse that."""
        return data


class MixtureReader(DataReader):
    """Takes a mixture as it is. Torch's subsets and concatenations of mixtures are refused."""

    def accepts(self, data: Any) -> bool:
        """Return whether data is a mixture."""
        return isinstance(data, Mixture)

    def read(self, data: Mixture) -> Mixture:
        """Return the mixture."""
        return data


class ArrayReader(DataReader):
    """Reads the rows of one array; a batch is an array, too."""

    def accepts(self, data: Any) -> bool:
        """Return whether data is an array."""
        return hasattr(data, "__dlpack__") or isinstance(data, numpy.ndarray)

    def rows(self, data: Any) -> TensorDataset:
        """Return the rows of the array."""
        framework_of("0", data)  # refuses arrays of other libraries
        return _BareRows(data)


class TorchReader(DataReader):
    """Reads datasets of one class of torch's. Subclasses may have other samples, and are refused.

    Args:
        name: The name of the class.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def accepts(self, data: Any) -> bool:
        """Return whether data is of the class of torch's, if a program has imported that."""
        torch = sys.modules.get("torch.utils.data")
        return torch is not None and type(data) is getattr(torch, self._name)


class TensorsReader(TorchReader):
    """Reads a ``TensorDataset`` of torch's."""

    def rows(self, data: Any) -> TensorDataset:
        """Return the rows of the tensors."""
        return TensorDataset(*data.tensors)


class SubsetReader(TorchReader):
    """Reads a ``Subset``."""

    def rows(self, data: Any) -> TensorDataset | None:
        """Return the rows of the subset, gathered."""
        whole = find_reader(data.dataset).rows(data.dataset)
        if whole is None:
            return None
        return _of_fields(whole, [_select_rows(field, data.indices) for field in whole.fields])

    def part(self, data: Any) -> Dataset[Any] | None:
        """Return the subset as a selection."""
        whole = find_reader(data.dataset).part(data.dataset)
        # Torch numbers the pieces of a stream, of which documents are selected.
        return None if whole is None or isinstance(whole, TokenDataset) else whole.select(data.indices)


class ConcatReader(TorchReader):
    """Reads a ``ConcatDataset``."""

    def rows(self, data: Any) -> TensorDataset | None:
        """Return the rows of all datasets, gathered."""
        return _concatenate([find_reader(part).rows(part) for part in data.datasets])

    def part(self, data: Any) -> Dataset[Any] | None:
        """Return the datasets as one dataset of ours."""
        readers = [(find_reader(part), part) for part in data.datasets]
        parts = [
            reader.rows(part) if ours is None else ours for reader, part in readers for ours in [reader.part(part)]
        ]
        known = [part for part in parts if part is not None]
        return known[0].concat(*known[1:]) if len(known) == len(parts) else None


class OtherReader(DataReader):
    """Refuses data of all other kinds."""

    def accepts(self, data: Any) -> bool:
        """Return ``True``: this reader is the last one."""
        return True


READERS: tuple[DataReader, ...] = (
    DatasetReader(),
    MixtureReader(),
    ArrayReader(),
    TensorsReader("TensorDataset"),
    SubsetReader("Subset"),
    ConcatReader("ConcatDataset"),
    OtherReader(),
)


def _describe_expected(data: Any) -> str:
    """Return the message that refuses data, with what to give a loader instead."""
    kind = f"{type(data).__module__}.{type(data).__qualname__}"
    if _is_iterable_alone(data):
        return (
            f"dataset is a {kind}, an iterable whose samples have no numbers; expected samples by number, as batches "
            "follow from the numbers of samples: a list of them, arrays, or an object with __len__ and __getitem__"
        )
    if hasattr(type(data), "with_format"):
        remedy = "bl.open(dataset) takes a dataset of datasets as it is stored"
    elif hasattr(data, "__getitem__"):
        remedy = "MapDataset(dataset) reads its samples on demand, and a TensorDataset of its arrays is faster"
    else:
        remedy = "make one of its arrays"
    return (
        f"dataset is a {kind}; expected a batchloom dataset (a TensorDataset, SequenceDataset, WindowDataset, "
        f"GroupDataset, TokenDataset or MapDataset), an array, or a TensorDataset of torch's: {remedy}"
    )


def _is_iterable_alone(data: Any) -> bool:
    """Return whether data yields its samples, and has none by number."""
    torch = sys.modules.get("torch.utils.data")
    if torch is not None and isinstance(data, torch.IterableDataset):
        return True
    return hasattr(data, "__iter__") and not hasattr(data, "__getitem__")


class _BareRows(TensorDataset):
    """Rows of one array; a batch is an array, too."""

    def __init__(self, array: Any) -> None:
        self._samples = RowSamples(None, (array,), is_bare=True)


def _of_fields(like: TensorDataset, fields: Sequence[Any]) -> TensorDataset:
    kind = type(like)
    return kind(*fields) if like.names is None else kind(**dict(zip(like.names, fields, strict=True)))


def _select_rows(field: Any, indices: Any) -> Any:
    places = numpy.asarray(indices, dtype=numpy.int64)
    if framework_of("0", field) == "torch":
        import torch

        return field[torch.from_numpy(places).to(field.device)]
    return field[places]


def _concatenate(parts: Sequence[TensorDataset | None]) -> TensorDataset | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or not known:
        return None
    first = known[0]
    if len({(type(part), part.names, len(part.fields)) for part in known}) > 1:
        return None
    columns = list(zip(*(part.fields for part in known), strict=True))
    frameworks = {framework_of("0", field) for column in columns for field in column}
    if frameworks == {"torch"}:
        import torch

        return _of_fields(first, [torch.cat(column) for column in columns])
    if frameworks == {"numpy"}:
        return _of_fields(first, [numpy.concatenate(column) for column in columns])
    return None
