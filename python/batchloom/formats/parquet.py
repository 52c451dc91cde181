"""Parquet files: pages are decoded a chunk at a time, in the order of a plan, by threads of the loader.

Promises:

- Opening reads footers and the headers of pages, and of lists their levels; never a value. What it finds is kept as an
  index, which is made again when a file has changed.
- Where a file needs another reader, or the kind needs all rows in memory, its columns are read whole by pyarrow.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import batchloom._native as _native
from batchloom.arguments import caller
from batchloom.dataset.base import Dataset
from batchloom.dataset.map.chunk_dataset import window_size
from batchloom.dataset.map.file_dataset import FileDataset
from batchloom.dataset.tables import ATTENTION
from batchloom.errors import ArgumentError, DataError, DTypeError, UnsupportedFileError
from batchloom.formats.arrays import choose_for_kind
from batchloom.formats.arrow_tables import hold_table, open_tables, require_pyarrow
from batchloom.formats.cache import cache_folder
from batchloom.formats.columns import ChosenColumn
from batchloom.formats.kinds import ROWS, SEQUENCES, require_keywords
from batchloom.formats.options import NAMES, OpenOptions
from batchloom.formats.progress import ShownProgress

# Words for the samples of columns that are read by chunks.
NUMBER, FIXED, LIST = "number", "fixed", "list"


class ColumnOfFile(NamedTuple):
    """A column as the footer has it.

    Attributes:
        name: Its name.
        word: The word for its samples: ``"number"``, ``"fixed"``, ``"list"``, ``"text"``, ``"binary"`` or ``"other"``.
        dtype: The type of their elements; ``None`` for ``"other"``.
        extent: The number of elements of each sample of ``"fixed"``.
        reason: The contents of a column of ``"other"``.
    """

    name: str
    word: str
    dtype: str | None
    extent: int | None
    reason: str | None


class ChosenField(NamedTuple):
    """A field: its name, its columns, whether they are joined, and the number in place of a null."""

    name: str
    columns: list[str]
    joined: bool
    null: float | None


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of files.

    Raises:
        ArgumentError: A column does not exist, or options exclude each other.
        DataError: A file is damaged, differs from the first one, or holds nulls; or lists of one row differ in length.
        DTypeError: A column makes no tensor.
    """
    opened = _native.ParquetFiles(list(files))
    columns = {column[0]: ColumnOfFile(*column) for column in opened.columns()}
    chosen = choose_for_kind(list(columns), options, files[0])
    used = {name for column in chosen.values() for name in column.names}
    are_read_by_chunks = options.kind in (None, ROWS, SEQUENCES) and all(
        columns[name].word in (NUMBER, FIXED, LIST) for name in used
    )
    if not are_read_by_chunks:
        return read_whole(files, used, options, "its columns or its kind need all rows in memory")
    kind = options.kind or (SEQUENCES if any(columns[name].word == LIST for name in used) else ROWS)
    require_keywords(kind, options.more, NAMES)
    if options.more:
        raise ArgumentError(f"{next(iter(options.more))} is given, which data in memory has; expected no such keyword")
    fields = [
        _choose_field(name, column, columns, options)
        for name, column in _leave_out_attention(opened, columns, chosen, files[0]).items()
    ]
    are_lists = {field.name: columns[field.columns[0]].word == LIST for field in fields}
    window = window_size(options.chunks_open, options.memory)
    open_chunks = OpenParquet(tuple(files), tuple(fields), kind == ROWS)
    try:
        return FileDataset(files, open_chunks, are_lists, window, options.on_error or "raise")
    except UnsupportedFileError as error:
        return read_whole(files, used, options, str(error))


class OpenParquet:
    """Opens the chunks of Parquet files; it pickles, and other processes open them again.

    Args:
        files: The paths.
        fields: The fields.
        as_rows: ``True`` if lists have to have one length, and are rows then.
    """

    def __init__(self, files: tuple[str, ...], fields: tuple[ChosenField, ...], as_rows: bool) -> None:
        self._files, self._fields, self._as_rows = files, fields, as_rows

    def __call__(self) -> _native.FileChunks:
        """Return the chunks of the files."""
        with ShownProgress(f"looking at {self._files[0]}", "row groups") as progress:
            opened = _native.ParquetFiles(list(self._files))
            fields = [(each.name, each.columns, each.joined, each.null) for each in sorted(self._fields)]
            return opened.open(fields, self._as_rows, cache_folder(), progress)


def _choose_field(
    name: str, column: ChosenColumn, columns: Mapping[str, ColumnOfFile], options: OpenOptions
) -> ChosenField:
    nulls = options.nulls or {}
    given = {nulls[each] for each in column.names if each in nulls}
    if len(given) > 1:
        raise ArgumentError(f"nulls has {given} for columns of field {name}; expected one value for a field")
    null = given.pop() if given else None
    if null is not None and not isinstance(null, int | float):
        raise ArgumentError(f"nulls has {null!r} for field {name}; expected a number in place of its nulls")
    return ChosenField(name, list(column.names), column.joined, None if null is None else float(null))


def _leave_out_attention(
    opened: _native.ParquetFiles, columns: Mapping[str, ColumnOfFile], chosen: Mapping[str, ChosenColumn], where: str
) -> Mapping[str, ChosenColumn]:
    """Return fields without an attention mask of ones, which batches have anyway, with a warning.

    Raises:
        DataError: The mask marks padding, or the file does not say that it marks none.
    """
    mask = chosen.get(ATTENTION)
    if mask is None or mask.joined or columns[mask.name].word != LIST or len(chosen) == 1:
        return chosen
    if not opened.is_always(mask.name, 1):
        raise DataError(
            f"column {ATTENTION!r} of {where} is not all ones, as far as the footer says; expected columns= without "
            "it, for sequences without padding: bl.SequenceDataset takes padded ones with their mask"
        )
    warnings.warn(
        f"column {ATTENTION!r} of {where} is all ones and is left out, as batches have such a mask anyway; "
        "columns= without it says the same",
        stacklevel=caller(),
    )
    return {name: column for name, column in chosen.items() if name != ATTENTION}


def read_whole(files: Sequence[str], names: set[str], options: OpenOptions, reason: str) -> Dataset[Any]:
    """Return the dataset of some columns of files, read whole by pyarrow.

    Raises:
        ArgumentError: Options are for chunks alone.
        DataError: pyarrow is not installed, or cannot read a file.
        DTypeError: A column makes no tensor.
    """
    for name in ("memory", "chunks_open", "on_error"):
        if getattr(options, name) is not None:
            raise ArgumentError(f"{name} is given, and {files[0]} is read whole: {reason}; expected no {name}")
    require_pyarrow(files[0])
    from pyarrow import ArrowInvalid, parquet

    tables = []
    for file in files:
        try:
            tables.append(hold_table(file, parquet.read_table(file, columns=sorted(names), memory_map=True)))
        except (ArrowInvalid, OSError) as error:
            raise DataError(f"{file} cannot be read: {error}") from error
        except NotImplementedError as error:
            raise DTypeError(f"{file} cannot be read: {error}") from error
    return open_tables(tables, options)
