"""Files of nothing but tokens (`.bin`): integers of one type behind a header, mapped; several files are one stream.

Promise: pieces of the stream cross from one file to the next, and nothing is read before its batch is formed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError, DataError, DTypeError
from batchloom.formats.arrays import ALONE, open_arrays
from batchloom.formats.kinds import TOKENS
from batchloom.formats.mapped import map_bytes
from batchloom.formats.options import OpenOptions

# The first number of headers that programs in the style of llm.c write, and the bytes of such a header.
MAGIC, MAGIC_HEADER = (20240520, 20240801), 1024


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the stream of tokens in files."""
    dtype = _read_dtype(files[0], options.dtype)
    arrays = [{ALONE: map_tokens(file, dtype, options.header)} for file in files]
    return open_arrays(files, arrays, options, TOKENS)


def map_tokens(path: str, dtype: Any, header: int | None) -> Any:
    """Return the tokens of a file, mapped.

    Args:
        path: The file.
        dtype: Their type.
        header: The bytes before them; ``None`` for none.

    Raises:
        ArgumentError: The file begins with a header that nobody mentioned.
        DataError: The file is shorter than the header, or ends within a token.
    """
    size, before = os.stat(path).st_size, 0 if header is None else header
    if size < before:
        raise DataError(f"{path} has {size} bytes; expected at least the {before} of its header")
    if header is None and _read_magic(path) in MAGIC:
        raise ArgumentError(
            f"{path} begins with {_read_magic(path)}, as a header of {MAGIC_HEADER} bytes does; expected "
            f"header={MAGIC_HEADER}, or header=0 if it begins with tokens"
        )
    tokens, rest = divmod(size - before, dtype.itemsize)
    if rest:
        raise DataError(
            f"{path} has {size - before} bytes after its header; expected a multiple of {dtype.itemsize}, for {dtype}"
        )
    return map_bytes(path, before, size, dtype, (tokens,), "the tokens")


def _read_magic(path: str) -> int:
    with open(path, "rb") as file:
        return int.from_bytes(file.read(4), "little")


def _read_dtype(path: str, dtype: Any) -> numpy.dtype[Any]:
    """Return the type of tokens.

    Raises:
        ArgumentError: None is given.
        DTypeError: It is no type of integers.
    """
    if dtype is None:
        raise ArgumentError(f'{path} holds tokens of a type that no header names; expected dtype=, as dtype="uint16"')
    try:
        found: numpy.dtype[Any] = numpy.dtype(dtype)
    except TypeError as error:
        raise DTypeError(f"dtype is {dtype!r}; expected a type of integers: {error}") from None
    if found.kind not in "iu":
        raise DTypeError(f"dtype is {found}; expected a type of integers, as tokens are")
    return found
