"""Objects beside arrays: texts, bytes, paths and anything else that no array holds."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy
from batchloom.arrays.frameworks import owner
from batchloom.arrays.inputs import is_array

# The kinds of NumPy's types that are moved as bytes; those that hold texts and dates of any kind; and any object.
NUMBERS, TEXTS, ANY = "biufc", "UST", "O"


def is_object(value: Any) -> bool:
    """Return whether a value is neither an array of numbers, nor a number, nor absent.

    An array of texts, or of any objects, is an object. A list counts as one: the caller looks into it.
    """
    if isinstance(value, numpy.ndarray):
        return value.dtype.kind in TEXTS + ANY
    if isinstance(value, str | bytes):
        return True
    if value is None or isinstance(value, Number | numpy.generic):
        return False
    return not is_array(value) and owner(value) is None
