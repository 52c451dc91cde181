"""Columns that are no plain arrays: lists of numbers that differ in length, or in two dimensions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

Array = numpy.ndarray[Any, Any]


class Lists(NamedTuple):
    """Lists that differ in length: sample ``k`` is ``values[offsets[k]:offsets[k + 1]]``."""

    values: Any
    offsets: Array


class Shaped(NamedTuple):
    """Lists of lists: the values of one sample after the other, and the two lengths of each sample."""

    values: Array
    shapes: Array


class Lengths(NamedTuple):
    """The lengths of lists in rows that hold texts as well.

    Attributes:
        fields: The fields of lists.
        each: The length of the lists of each row.
    """

    fields: list[str]
    each: Any
