"""Files of safetensors: a column for each tensor, mapped.

Promise: a header is checked whole before a tensor is mapped: lengths, types, and bytes that overlap or leave the file.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import DataError, DTypeError
from batchloom.formats.arrays import open_arrays
from batchloom.formats.mapped import map_bytes
from batchloom.formats.options import OpenOptions

# Types by their names in headers; those that NumPy has only with a package beside it, by their integers and names.
DTYPES = {
    "BOOL": "bool",
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "C64": "complex64",
}
FOREIGN = {
    "BF16": ("uint16", "bfloat16"),
    "F8_E4M3": ("uint8", "float8_e4m3fn"),
    "F8_E5M2": ("uint8", "float8_e5m2"),
}

# The bytes of the length of a header, and of the longest header.
PREFIX, LONGEST_HEADER = 8, 100_000_000
METADATA = "__metadata__"


class TensorPlace(NamedTuple):
    """A tensor of a file: its type and shape, and its bytes after the header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Tensors(Mapping[str, Any]):
    """The tensors of one file, each mapped when it is first asked for.

    Args:
        path: The file.

    Raises:
        DataError: Its header is damaged, or tensors overlap or leave the file.
    """

    def __init__(self, path: str) -> None:
        self._path, self._arrays = path, dict[str, Any]()
        self._begin, self._places = read_header(path)

    def __getitem__(self, name: str) -> Any:
        """Return one tensor.

        Raises:
            DTypeError: Its type needs a package that is not installed, or does not exist.
        """
        if name not in self._arrays:
            self._arrays[name] = self._map(name, self._places[name])
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _map(self, name: str, place: TensorPlace) -> Any:
        label, foreign = f"tensor {name!r}", FOREIGN.get(place.dtype)
        stored = DTYPES.get(place.dtype) if foreign is None else foreign[0]
        if stored is None:
            raise DTypeError(
                f"{label} of {self._path} has type {place.dtype}; expected {', '.join((*DTYPES, *FOREIGN))}"
            )
        size = math.prod(place.shape) * numpy.dtype(stored).itemsize
        if size != place.end - place.start:
            raise DataError(
                f"{label} of {self._path} has {place.end - place.start} bytes; expected {size}, for {place.dtype} of "
                f"shape {list(place.shape)}"
            )
        begin, end = self._begin + place.start, self._begin + place.end
        array = map_bytes(self._path, begin, end, stored, place.shape, label)
        return array if foreign is None else array.view(_foreign_dtype(foreign[1], f"{label} of {self._path}"))


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of files, with a field for each tensor."""
    return open_arrays(files, [Tensors(file) for file in files], options)


def read_header(path: str) -> tuple[int, dict[str, TensorPlace]]:
    """Return the place where tensors begin, and the place of each by name, in the order of the file.

    Raises:
        DataError: The header is damaged, or tensors overlap or leave the file.
    """
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(PREFIX), "little")
        if size < PREFIX or length > min(size - PREFIX, LONGEST_HEADER):
            raise DataError(f"{path} has {size} bytes and a header of {length}; expected a whole file of safetensors")
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=_refuse_repeated)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} has a header that is damaged: {error}; expected JSON") from None
    if not isinstance(header, dict):
        raise DataError(f"{path} has a header that is a {type(header).__name__}; expected tensors by name")
    header.pop(METADATA, None)
    begin = PREFIX + length
    places = {name: _read_place(path, name, entry, size - begin) for name, entry in header.items()}
    if not places:
        raise DataError(f"{path} holds no tensor; expected at least one")
    ordered = sorted(places.items(), key=lambda each: (each[1].start, each[1].end))
    for (name, before), (other, after) in itertools.pairwise(ordered):
        if after.start < before.end:
            raise DataError(f"{path} has tensors {name!r} and {other!r} that overlap; expected a whole file")
    return begin, dict(ordered)


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _read_place(path: str, name: str, entry: Any, size: int) -> TensorPlace:
    """Return the place of a tensor that a header describes.

    Raises:
        DataError: The header does not describe one, or the tensor leaves the file.
    """
    try:
        shape, (start, end) = tuple(entry["shape"]), entry["data_offsets"]
        dtype = entry["dtype"]
        is_whole = all(type(number) is int and number >= 0 for number in (*shape, start, end))
    except (TypeError, KeyError, ValueError):
        is_whole = False
    if not is_whole or not isinstance(dtype, str):
        raise DataError(f"{path} describes tensor {name!r} as {entry!r:.200}; expected dtype, shape and data_offsets")
    if not start <= end <= size:
        raise DataError(
            f"tensor {name!r} of {path} takes bytes {start} to {end} after the header, and the file has {size}; "
            "expected a whole file"
        )
    return TensorPlace(dtype, shape, start, end)


def _foreign_dtype(name: str, label: str) -> Any:
    try:
        import ml_dtypes
    except ModuleNotFoundError:
        raise DTypeError(f"{label} is {name}, which NumPy has only with the package ml_dtypes; install it") from None
    return numpy.dtype(getattr(ml_dtypes, name))
