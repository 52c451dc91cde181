"""Files of NumPy (`.npy`): one array each, mapped; several files are one array.

Promise: nothing but headers is read before a batch is formed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import DataError, DTypeError
from batchloom.formats.arrays import ALONE, open_arrays
from batchloom.formats.options import OpenOptions


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of files; an array of records has a column for each of their fields."""
    return open_arrays(files, [map_file(file) for file in files], options)


def map_file(path: str) -> Mapping[str, Any]:
    """Return the array of a file, mapped, or its fields if it is an array of records.

    Raises:
        DataError: The file is damaged, or shorter than its header has it.
        DTypeError: It holds objects of Python.
    """
    try:
        array = numpy.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # whatever NumPy raises for a header that is none
        if "Python objects" in str(error):
            raise DTypeError(f"{path} holds objects of Python; expected numbers or texts") from None
        raise DataError(f"{path} cannot be mapped: {error}; expected a whole file of numpy.save") from error
    return split_records(array)


def split_records(array: Any) -> Mapping[str, Any]:
    """Return an array by name: the fields of records, or the array alone."""
    names = array.dtype.names
    return {ALONE: array} if names is None else {name: array[name] for name in names}
