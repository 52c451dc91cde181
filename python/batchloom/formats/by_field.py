"""Files by field, `bl.open({"x": "x-*.npy", "y": "y.npy"})`: arrays that lie in files apart, as the fields of a sample.

Promise: the files of a field are one array, and fields have as many rows as each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from batchloom.arguments import text
from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError, DataError, many
from batchloom.formats.arrays import ALONE, dataset_of, decode_times, require_rows
from batchloom.formats.files import find_files
from batchloom.formats.kinds import WINDOWS
from batchloom.formats.npy import map_file
from batchloom.formats.options import OpenOptions
from batchloom.formats.places import Places
from batchloom.formats.registry import find_format
from batchloom.formats.several import join_files

# The format of files that hold one array each.
FORMAT = "npy"


def open_fields(source: Mapping[Any, Any], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of arrays of NumPy in files, by field.

    Raises:
        ArgumentError: There is no field, columns are chosen, or files of a field hold no single array.
        DataError: Fields differ in their numbers of rows, or files of one differ.
    """
    if not source:
        raise ArgumentError("source is an empty dict; expected files by field")
    if options.columns is not None:
        raise ArgumentError("columns is given, and source has fields by name; expected columns=None")
    fields: dict[str, Any] = {}
    places: list[Places] = []
    for name, entry in source.items():
        label = text("a field in source", name)
        files, array = _read_field(label, entry, options)
        fields[label] = array
        places.append(files)
        first = next(iter(fields))
        if len(array) != len(fields[first]):
            raise DataError(
                f"field {label!r} has {many(len(array), 'row')} in {files.first}, and field {first!r} has "
                f"{len(fields[first])} in {places[0].first}; expected the same number"
            )
    return dataset_of(fields, options, places[0])


def _read_field(name: str, entry: Any, options: OpenOptions) -> tuple[Places, Any]:
    """Return the files of a field, and their array."""
    found = find_format(find_files(entry), options.format)
    if found.format.name != FORMAT:
        raise ArgumentError(
            f"field {name!r} is in {found.files[0]}, which holds {found.format.title}; expected .npy files: files with "
            "names for their arrays are a source themselves"
        )
    arrays = [map_file(file) for file in found.files]
    for file, held in zip(found.files, arrays, strict=True):
        if ALONE not in held:
            raise ArgumentError(f"field {name!r} is in {file}, which holds records; expected one array")
        require_rows(file, name, held[ALONE])
    if options.kind != WINDOWS:  # whose steps have times
        times = zip(found.files, arrays, strict=True)
        arrays = [{ALONE: decode_times(file, name, held[ALONE])} for file, held in times]
    joined = join_files(found.files, arrays)[ALONE]
    return Places(found.files, [len(held[ALONE]) for held in arrays]), joined
