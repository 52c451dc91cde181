"""Arrays that files hold by name or alone: from arrays to fields, and from fields to a dataset.

Promise: a column that is chosen keeps its memory; a matrix of several columns is one copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from batchloom.arrays.chunked import ChunkedArray
from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError, DataError, DTypeError
from batchloom.formats.columns import ChosenColumn, choose_columns
from batchloom.formats.kinds import (
    GROUPS,
    ID,
    WINDOWS,
    list_frame_columns,
    make_dataset,
    natural_kind,
    require_keywords,
)
from batchloom.formats.options import NAMES, OpenOptions
from batchloom.formats.places import Places
from batchloom.formats.several import join_files

# The name of an array that has none.
ALONE = ""


def open_arrays(
    files: Sequence[str], arrays: Sequence[Mapping[str, Any]], options: OpenOptions, usual: str | None = None
) -> Dataset[Any]:
    """Return the dataset of the arrays of files.

    Args:
        files: The files.
        arrays: The arrays of each file by name: ``ALONE`` for an array without one.
        options: The options.
        usual: The kind where none is given; ``None`` for the kind of the fields.

    Raises:
        ArgumentError: A column does not exist, or the kind takes other fields or keywords.
        DataError: Files or arrays differ, or an array has no rows.
        DTypeError: An array makes no tensor.
    """
    available = [*arrays[0]]
    is_alone = available == [ALONE]
    if is_alone and options.columns is not None:
        raise ArgumentError(f"columns is given, and {files[0]} holds one array; expected columns=None")
    columns = {} if is_alone else choose_for_kind(available, options, files[0])
    wanted = {name for column in columns.values() for name in column.names} or {ALONE}
    takes_all = options.columns is None
    held = [{name: found[name] for name in found if takes_all or name in wanted} for found in arrays]
    for file, found in zip(files, held, strict=True):
        for name, array in found.items():
            require_rows(file, name, array)
    if options.kind != WINDOWS:  # whose steps have times
        held = [
            {name: decode_times(file, name, array) for name, array in found.items()}
            for file, found in zip(files, held, strict=True)
        ]
    joined = join_files(files, held)
    data = joined[ALONE] if is_alone else {name: gather(column, joined, name) for name, column in columns.items()}
    places = Places(files, [len(next(iter(found.values()))) for found in held])
    return dataset_of(data, options, places, usual)


def choose_for_kind(available: Sequence[str], options: OpenOptions, where: str) -> dict[str, ChosenColumn]:
    """Return the columns of each field, with those that the kind needs beside them."""
    if options.kind == WINDOWS:
        names = list_frame_columns(options.columns, options.more, list(available), where)
        return {name: ChosenColumn((name,)) for name in names}
    chosen = choose_columns(available, options.columns, where)
    if options.kind == GROUPS and options.more.get(ID) not in chosen:
        chosen |= choose_columns(available, [options.more[ID]], where)
    return chosen


def dataset_of(data: Any, options: OpenOptions, places: Places, usual: str | None = None) -> Dataset[Any]:
    """Return the dataset of fields, of the kind that was given, is usual, or follows from the fields.

    Raises:
        ArgumentError: The kind takes other fields or keywords, or there is a limit of memory and no field is mapped.
    """
    kind = options.kind or usual or natural_kind(data)
    more = dict(options.more)
    require_keywords(kind, more, NAMES)
    if kind == WINDOWS and options.columns is not None:
        more["columns"] = [*choose_columns(list(data), options.columns, places.first)]
    dataset = make_dataset(data, kind, more, places)
    return dataset if options.memory is None else dataset.with_memory(options.memory)


def gather(column: ChosenColumn, arrays: Mapping[str, Any], field: str) -> Any:
    """Return the array of a field: of one column, or a matrix ``[samples, columns]`` of several.

    Raises:
        DataError: A column that is joined has more than one number for a sample, or another number of samples.
        DTypeError: Columns that are joined have several types.
    """
    if not column.joined:
        return arrays[column.name]
    first = arrays[column.name]
    for name in column.names:
        array = arrays[name]
        if not hasattr(array, "dtype"):
            raise DTypeError(f"column {name!r} holds no numbers; expected numbers in the columns of field {field!r}")
        if array.dtype != first.dtype:
            raise DTypeError(
                f"field {field!r} joins column {column.name!r} of {first.dtype} and column {name!r} of {array.dtype}; "
                "expected columns of one type"
            )
        if array.shape != (len(first),):
            raise DataError(
                f"field {field!r} joins column {name!r} of shape {list(array.shape)}; expected [{len(first)}], one "
                "number for each sample"
            )
    matrix = numpy.empty((len(first), len(column.names)), first.dtype)
    for place, name in enumerate(column.names):
        fill_column(matrix[:, place], arrays[name])
    return matrix


def fill_column(column: Any, array: Any) -> None:
    """Write an array, in one piece or in several, to a column of a matrix."""
    start = 0
    for chunk in array.chunks if isinstance(array, ChunkedArray) else (array,):
        column[start : start + len(chunk)] = chunk
        start += len(chunk)


def decode_times(file: str, name: str, array: Any) -> Any:
    """Return datetimes and durations as int64 in nanoseconds: a view where they are stored so.

    Times of other units are read for it. Of those in nanoseconds nothing is read, and NaT is the least int64.

    Raises:
        DataError: A time that was read is NaT.
    """
    if array.dtype.kind not in "mM":
        return array
    found = array.astype(f"{array.dtype.kind}8[ns]", copy=False)
    if found is not array and (absent := numpy.isnat(found)).any():
        row = int(numpy.argwhere(absent)[0][0])
        raise DataError(f"{_label(name)} of {file} is NaT in row {row}; expected a time everywhere: fill or drop nulls")
    return found.view(numpy.int64)


def _label(name: str) -> str:
    return f"array {name!r}" if name else "the array"


def require_rows(file: str, name: str, array: Any) -> None:
    """Refuse an array that has no rows of numbers or texts.

    Raises:
        DataError: It is a scalar.
        DTypeError: It holds objects.
    """
    label = _label(name)
    if not array.ndim:
        raise DataError(f"{label} of {file} is a scalar; expected an array whose first dimension counts the samples")
    if array.dtype.kind == "O":
        raise DTypeError(f"{label} of {file} holds objects of Python; expected numbers or texts")
