"""`join_files`: the arrays of several files as one array each, without a copy.

Promise: files that differ in their names, types or shapes of rows are an error that names both files and what differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from batchloom.arrays.chunked import ChunkedArray
from batchloom.errors import DataError, DTypeError
from batchloom.formats.columns import show_names

# Kinds of types in NumPy: texts, bytes and times.
COPIED = "USMm"


def join_files(files: Sequence[str], arrays: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arrays by name, each over all files.

    Args:
        files: The files.
        arrays: The arrays of each file by name, with a first dimension.

    Raises:
        DataError: A file lacks a name that another one has, or shapes of rows differ.
        DTypeError: Types differ.
    """
    first = arrays[0]
    for file, found in zip(files[1:], arrays[1:], strict=True):
        require_same_names(files[0], list(first), file, list(found))
        for name, array in found.items():
            require_same_rows(name, files[0], first[name], file, array)
    return {name: join_arrays([found[name] for found in arrays]) for name in first}


def join_arrays(arrays: Sequence[Any]) -> Any:
    """Return arrays of one type one after the other: the array itself where there is one, and no array without rows.

    Texts and times, which the engine does not move, are joined by a copy.
    """
    held = [array for array in arrays if len(array)] or list(arrays[:1])
    if len(held) == 1:
        return held[0]
    return numpy.concatenate(held) if held[0].dtype.kind in COPIED else ChunkedArray(held)


def require_same_names(first: str, expected: Sequence[str], file: str, found: Sequence[str]) -> None:
    """Refuse a file that lacks a column of the first file, or has one more.

    Raises:
        DataError: There is one.
    """
    lacking = [name for name in expected if name not in found]
    more = [name for name in found if name not in expected]
    if lacking or more:
        has, without = (first, file) if lacking else (file, first)
        raise DataError(
            f"{has} has {show_names(lacking or more)}, and {without} has not; expected the same in all files: columns="
            " chooses among them"
        )


def require_same_rows(name: str, first: str, expected: Any, file: str, found: Any) -> None:
    """Refuse an array that differs from the array of this name in the first file.

    Raises:
        DataError: Shapes of rows differ.
        DTypeError: Types differ.
    """
    label = f"array {name!r}" if name else "the array"
    is_copied = found.dtype.kind == expected.dtype.kind and found.dtype.kind in COPIED
    if found.dtype != expected.dtype and not is_copied:
        raise DTypeError(
            f"{label} is {found.dtype} in {file} and {expected.dtype} in {first}; expected one type in all files"
        )
    if found.shape[1:] != expected.shape[1:]:
        raise DataError(
            f"{label} has rows of shape {list(found.shape[1:])} in {file} and {list(expected.shape[1:])} in {first}; "
            "expected one shape in all files"
        )


def require_rows(count: int, where: str) -> None:
    """Refuse files without a row.

    Raises:
        DataError: The files hold no row.
    """
    if not count:
        raise DataError(f"{where} holds no row, nor does a file beside it; expected at least one")
