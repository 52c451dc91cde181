"""Folders that `datasets` has saved, and its objects: as their Arrow tables, with the rows and columns that they show.

Promises:

- Indices of an object or of a folder are a selection, and never ignored; tables keep their memory.
- Integers are int64 in batches, as tensors of `datasets` are, and stay in the width in which they are stored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from batchloom.dataset.base import Dataset, with_batch_types
from batchloom.dataset.sequences import SequenceDataset
from batchloom.dataset.tensors import TensorDataset
from batchloom.errors import ArgumentError, DataError
from batchloom.formats.arrow_selections import open_some
from batchloom.formats.arrow_tables import (
    MappedTable,
    hold_table,
    map_whole,
    read_stored,
    read_table,
    refuse_chunk_options,
    require_pyarrow,
)
from batchloom.formats.options import OpenOptions

Array = numpy.ndarray[Any, Any]

STATE, FILES = "state.json", "_data_files"
# The indices of folders that early versions saved, and the columns that the saved object showed.
INDICES, SHOWN = ("_indices_files", "_indices_data_files"), "_format_columns"

# The name of an object in messages.
OBJECT = "the dataset"

INDEX_TYPES = ("uint64", "int64")


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of folders, one after the other."""
    require_pyarrow(files[0])
    if options.fn is None:
        refuse_chunk_options(options, files[0], ("on_error",))
    tables: list[MappedTable] = []
    chosen_of: list[tuple[int, int, Array | None]] = []
    rows = 0
    for folder in files:
        state = _read_state(folder)
        found = [_read_shown(path, state) for path in _list_paths(folder, state)]
        count = sum(each.table.num_rows for each in found)
        chosen = _read_indices(folder, state)
        chosen_of.append((rows, count, None if chosen is None else _require_inside(folder, chosen, count)))
        tables += found
        rows += count
    indices = None
    if any(chosen is not None for _, _, chosen in chosen_of):
        parts = [first + (numpy.arange(count) if chosen is None else chosen) for first, count, chosen in chosen_of]
        indices = numpy.concatenate(parts)
    if options.fn is not None:
        from batchloom.formats.arrow_rows import open_table_rows

        return open_table_rows(OpenFolders(files), indices, options)
    return open_some(tables, indices, options, _widen)


class OpenFolders:
    """Opens the tables of folders; it pickles, and other processes open them again.

    Args:
        folders: The paths.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = tuple(folders)

    def __call__(self) -> list[tuple[str, Any]]:
        """Return the path and the table of each file, with the columns that the saved objects showed."""
        named = []
        for folder in self._folders:
            state = _read_state(folder)
            for path in _list_paths(folder, state):
                named.append((path, _select_shown(read_stored(path, map_whole(path)), state)))
        return named


class OpenObject:
    """Returns the table of an object of `datasets`, by which it pickles.

    Args:
        source: The object.
    """

    def __init__(self, source: Any) -> None:
        self._source = source

    def __call__(self) -> list[tuple[str, Any]]:
        """Return the table, with the columns that the object shows."""
        return [(OBJECT, self._source.data.table.select(self._source.format["columns"]))]


def open_object(source: Any, options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of an object of `datasets`, over its table.

    Raises:
        ArgumentError: It is a dict of splits, a stream, or has a transform.
    """
    if isinstance(source, Mapping):
        raise ArgumentError(
            f"source is a {type(source).__name__} of {', '.join(map(repr, source))}; expected one of its splits, as "
            f"source[{next(iter(source), 'train')!r}]"
        )
    if not hasattr(source, "__len__") or not hasattr(source, "data"):
        raise ArgumentError(
            f"source is a {type(source).__name__}, whose rows have no numbers; expected a datasets.Dataset, as "
            "load_dataset(..., streaming=False) returns"
        )
    if source.format["type"] == "custom":
        raise ArgumentError(
            "source has a transform, which makes rows when they are read; expected a dataset without one: "
            "bl.MapDataset(source) calls it"
        )
    shown = source.format["columns"]
    indices = getattr(source, "_indices", None)
    chosen = None if indices is None else indices.column(0).to_numpy().astype(numpy.int64)
    if options.fn is not None:
        from batchloom.formats.arrow_rows import open_table_rows

        return open_table_rows(OpenObject(source), chosen, options)
    refuse_chunk_options(options, OBJECT, ("on_error",))
    return open_some([hold_table(OBJECT, source.data.table.select(shown))], chosen, options, _widen)


def _widen(dataset: Dataset[Any]) -> Dataset[Any]:
    """Return a dataset with integers as int64 in batches: as they are stored where other kinds decide it."""
    if isinstance(dataset, SequenceDataset):
        named = {name: field[0] if isinstance(field, tuple) else field for name, field in dataset.fields.items()}
    elif isinstance(dataset, TensorDataset) and dataset.names is not None:
        named = dict(zip(dataset.names, dataset.fields, strict=True))
    else:
        return dataset
    narrow = [name for name, array in named.items() if _is_narrow(getattr(array, "dtype", None))]
    return with_batch_types(dataset, dict.fromkeys(narrow, "int64"))


def _is_narrow(dtype: Any) -> bool:
    """Return whether a type is one of integers of less than 64 bits."""
    return dtype is not None and dtype.kind in "iu" and dtype.itemsize < 8


def _read_state(folder: str) -> dict[str, Any]:
    """Return what a folder has about its files.

    Raises:
        DataError: It is damaged.
    """
    path = os.path.join(folder, STATE)
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}; expected a folder that datasets has saved") from None
    if not isinstance(state, dict):
        raise DataError(f"{path} holds a {type(state).__name__}; expected a folder that datasets has saved")
    return state


def _list_data(folder: str, state: Mapping[str, Any], key: str = FILES) -> list[str]:
    """Return the names of the files of a folder.

    Raises:
        DataError: There is none, or one is not in the folder.
    """
    try:
        names = [entry["filename"] for entry in state[key]]
    except (KeyError, TypeError):
        names = []
    if not names or not all(isinstance(name, str) and name == os.path.basename(name) for name in names):
        raise DataError(f"{os.path.join(folder, STATE)} names no files in {key}; expected those of the folder")
    for name in names:
        if not os.path.isfile(os.path.join(folder, name)):
            raise DataError(
                f"{os.path.join(folder, name)} does not exist, and {STATE} names it; expected a whole folder"
            )
    return names


def _read_shown(path: str, state: Mapping[str, Any]) -> MappedTable:
    """Return the table of a file, with the columns that the saved object showed."""
    found = read_table(path, map_whole(path))
    return MappedTable(path, found.memory, _select_shown(found.table, state))


def _select_shown(table: Any, state: Mapping[str, Any]) -> Any:
    """Return a table with the columns that the saved object showed."""
    shown = state.get(SHOWN)
    if not isinstance(shown, list):
        return table
    return table.select([name for name in table.column_names if name in shown or name.partition(".")[0] in shown])


def _list_paths(folder: str, state: Mapping[str, Any]) -> list[str]:
    """Return the paths of the files of a folder."""
    return [os.path.join(folder, name) for name in _list_data(folder, state)]


def _read_indices(folder: str, state: Mapping[str, Any]) -> Array | None:
    """Return the rows that a folder of an early version shows; ``None`` for all.

    Raises:
        DataError: Its indices are damaged.
    """
    key = next((each for each in INDICES if state.get(each)), None)
    if key is None:
        return None
    found = []
    for name in _list_data(folder, state, key):
        path = os.path.join(folder, name)
        table = read_table(path, map_whole(path)).table
        if table.num_columns != 1 or str(table.schema.types[0]) not in INDEX_TYPES or table.column(0).null_count:
            raise DataError(f"{path} holds no indices; expected a column of integers")
        found.append(table.column(0).to_numpy().astype(numpy.int64))
    return numpy.concatenate(found)


def _require_inside(folder: str, indices: Array, rows: int) -> Array:
    if len(indices) and not 0 <= indices.min() <= indices.max() < rows:
        raise DataError(
            f"indices of {folder} reach from {indices.min()} to {indices.max()}, and it has {rows} rows; expected a "
            "whole folder"
        )
    return indices
