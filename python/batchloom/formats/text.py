"""Lines of text: each is a `str`, or what a function makes of it.

Promise: a line is read when its batch is formed; blank lines hold no sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.dataset.base import Dataset
from batchloom.errors import DataError
from batchloom.formats.items import Lines, open_items
from batchloom.formats.options import OpenOptions


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of the lines of files.

    Raises:
        DataError: A file cannot be read, or no line holds text.
    """
    places = [numpy.from_dlpack(_native.line_places(file)) for file in files]
    if not sum(map(len, places)):
        raise DataError(f"{files[0]} has no line that is not blank; expected one for each sample")
    return open_items(Lines(files, places, _decode), options)


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"it is no UTF-8: {error}") from None
