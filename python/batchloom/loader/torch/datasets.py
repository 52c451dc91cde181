"""Datasets of torch with rows of tensors, and bare arrays, as datasets of rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy
from batchloom.arrays.frameworks import framework_of
from batchloom.dataset.base import Dataset
from batchloom.dataset.mixture import Mixture
from batchloom.dataset.tensors import RowSamples, TensorDataset
from batchloom.dataset.tokens import TokenDataset
from batchloom.errors import ArgumentError


def as_dataset(dataset: Any) -> Dataset | Mixture:
    """Return a dataset of ours, or one over the arrays of what is not.

    torch's ``TensorDataset`` and bare arrays share their memory. A ``Subset`` or a ``ConcatDataset`` of them is
    gathered once; parts of datasets of ours are selections, without a copy.

    Raises:
        ArgumentError: The samples are no rows of arrays.
    """
    if isinstance(dataset, Dataset | Mixture):
        return dataset
    ours = _rows(dataset) or _parts(dataset)
    if ours is not None:
        return ours
    kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
    if _is_iterable_alone(dataset):
        raise ArgumentError(
            f"dataset is a {kind}, an iterable whose samples have no numbers; expected samples by number, as batches "
            "follow from the numbers of samples: a list of them, arrays, or an object with __len__ and __getitem__"
        )
    remedy = (
        "MapDataset(dataset) reads its samples on demand, and a TensorDataset of its arrays is faster"
        if hasattr(dataset, "__getitem__")
        else "make one of its arrays"
    )
    raise ArgumentError(
        f"dataset is a {kind}; expected a batchloom dataset (a TensorDataset, SequenceDataset, WindowDataset, "
        f"GroupDataset, TokenDataset or MapDataset), an array, or a TensorDataset of torch's: {remedy}"
    )


def _is_iterable_alone(dataset: Any) -> bool:
    """Return whether a dataset yields its samples, and has none by number."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and isinstance(dataset, data.IterableDataset):
        return True
    return hasattr(dataset, "__iter__") and not hasattr(dataset, "__getitem__")


def _rows(dataset: Any) -> TensorDataset | None:
    """Return the rows of arrays that a dataset of torch's holds; ``None`` where it holds something else."""
    if _is_array(dataset):
        return _BareRows(dataset)
    data = sys.modules.get("torch.utils.data")
    if data is None:
        return None
    if type(dataset) is data.TensorDataset:
        return TensorDataset(*dataset.tensors)
    if type(dataset) is data.Subset and (whole := _rows(dataset.dataset)) is not None:
        return _of_fields(whole, [_select_rows(field, dataset.indices) for field in whole.fields])
    if type(dataset) is data.ConcatDataset:
        return _concatenate([_rows(part) for part in dataset.datasets])
    return None


def _parts(dataset: Any) -> Dataset[Any] | None:
    """Return a ``Subset`` of our dataset as a selection, and a ``ConcatDataset`` of our datasets; else ``None``."""
    data = sys.modules.get("torch.utils.data")
    if isinstance(dataset, Dataset):
        return dataset
    if data is not None and type(dataset) is data.Subset:
        whole = _parts(dataset.dataset)
        # Torch numbers the pieces of a stream, of which documents are selected.
        return None if whole is None or isinstance(whole, TokenDataset) else whole.select(dataset.indices)
    if data is not None and type(dataset) is data.ConcatDataset:
        parts = [part for part in (_parts(part) or _rows(part) for part in dataset.datasets) if part is not None]
        return parts[0].concat(*parts[1:]) if len(parts) == len(dataset.datasets) else None
    return None


class _BareRows(TensorDataset):
    """Rows of one array; a batch is an array, too."""

    def __init__(self, array: Any) -> None:
        self._samples = RowSamples(None, (array,), is_bare=True)


def _is_array(data: Any) -> bool:
    if not (hasattr(data, "__dlpack__") or isinstance(data, numpy.ndarray)):
        return False
    framework_of("0", data)
    return True


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
