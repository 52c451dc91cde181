"""Sizes of samples that the user gives: checks, and conversion for the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arguments import U32
from batchloom.errors import ArgumentError, DataError
from batchloom.samples.per_sample import read_each

Sizes = numpy.ndarray[Any, numpy.dtype[numpy.uint32]]


class HasSizes:
    """The base class of datasets, as rules see them."""

    @property
    def sizes(self) -> Sizes | None:
        """The size of each sample; ``None`` if all count the same."""
        return None

    def named_sizes(self) -> NamedSizes | None:
        """Return the sizes of each sample with their names; ``None`` if all count the same."""
        return None if self.sizes is None else NamedSizes(self.sizes)


@dataclass(frozen=True)
class NamedSizes:
    """The sizes of samples, with names that budgets count by.

    Attributes:
        first: The sizes by which rules sort, one for each sample; or extents.
        columns: For each name the sizes, or ``None`` for the first ones, and whether batches pad what they count.
    """

    first: Sizes
    columns: dict[str, tuple[Sizes | None, bool]] = field(default_factory=dict)

    def borrow(self) -> tuple[_native.Tensor, list[tuple[str, _native.Tensor | None, bool]]]:
        """Return the sizes as the engine takes them."""
        columns = [
            (name, None if sizes is None else _native.borrow(sizes, name), is_padded)
            for name, (sizes, is_padded) in self.columns.items()
        ]
        return _native.borrow(self.first, "sizes"), columns

    def name_first(self, names: Iterable[Any]) -> NamedSizes:
        """Return these sizes with further names for the first ones: those of the fields that have these lengths."""
        added = {name: (None, True) for name in names if isinstance(name, str) and name not in self.columns}
        return NamedSizes(self.first, self.columns | added) if added else self

    def select(self, chosen: Any) -> NamedSizes:
        """Return the sizes of some samples."""
        return NamedSizes(
            self.first[chosen],
            {
                name: (None if sizes is None else sizes[chosen], padded)
                for name, (sizes, padded) in self.columns.items()
            },
        )

    @staticmethod
    def join(each: Sequence[NamedSizes]) -> NamedSizes:
        """Return the sizes of the samples of several datasets, under the names that all have."""
        columns: dict[str, tuple[Sizes | None, bool]] = {}
        for name in each[0].columns:
            found = [(sizes, *sizes.columns[name]) for sizes in each if name in sizes.columns]
            if len(found) < len(each):
                continue
            values = [sizes.first if column is None else column for sizes, column, _ in found]
            are_first = all(column is None for _, column, _ in found)
            columns[name] = (None if are_first else numpy.concatenate(values), all(padded for *_, padded in found))
        return NamedSizes(numpy.concatenate([sizes.first for sizes in each]), columns)


def read_named_sizes(
    given: Any, name: str = "sizes", samples: int | None = None, most_dimensions: int = 1
) -> NamedSizes | None:
    """Return sizes that a user gives: one for each sample, or a dict of several by name. Rules sort by the first.

    Raises:
        ArgumentError: The dict is empty, or a name is no text.
        DataError: The sizes are refused by :func:`check_sizes`.
        DTypeError: The sizes are not numbers.
    """
    if given is None or isinstance(given, NamedSizes):
        return given
    if not isinstance(given, Mapping):
        # A copy, so that nobody changes what a plan was made of.
        return NamedSizes(numpy.array(check_sizes(given, name, most_dimensions, samples)))
    named = check_named(given, name, samples)
    first, *_ = named
    columns: dict[str, tuple[Sizes | None, bool]] = {first: (None, True)}
    columns |= {each: (sizes, False) for each, sizes in named.items() if each != first}
    return NamedSizes(named[first], columns)


def check_named(given: Mapping[Any, Any], name: str, samples: int | None = None) -> dict[str, Sizes]:
    """Return sizes by name, each as :func:`check_sizes` returns them.

    Raises:
        ArgumentError: There are none, or a name is no text.
        DataError: The sizes are no sizes, or not one for each sample.
        DTypeError: The sizes are not numbers.
    """
    if not given or not all(isinstance(each, str) and each for each in given):
        raise ArgumentError(f"{name} has the names {list(given)}; expected texts, as {{'patches': [256, 0]}}")
    checked: dict[str, Sizes] = {}
    for each, sizes in given.items():
        checked[each] = numpy.array(check_sizes(sizes, f"{name}[{each!r}]", samples=samples))
        samples = len(checked[each]) if samples is None else samples
    return checked


def check_sizes(sizes: Any, name: str, most_dimensions: int = 1, samples: int | None = None) -> Sizes:
    """Return ``sizes`` as uint32, one for each of ``samples`` where their number is given.

    Raises:
        DataError: The number of dimensions or of sizes is wrong; or a size is negative, fractional, NaN or not below
            2**32. The message names the first such sample.
        DTypeError: The sizes are not numbers.
    """
    array = read_each(
        name, sizes, "iuf", samples, expected="integers, one for each sample", most_dimensions=most_dimensions
    )
    if array.dtype == numpy.uint32:
        return numpy.ascontiguousarray(array)
    if array.dtype.kind == "f":
        array = array.astype(numpy.float64)
    # All sizes are checked at once; the wrong one is searched only if there is one. NaN is not at least 0.
    whole = array.dtype.kind != "f" or (array == numpy.floor(array)).all()
    if array.size and not (whole and array.min() >= 0 and array.max() <= U32):
        wrong = ~((array >= 0) & (array <= U32) & (array == numpy.floor(array)))
        sample = int(wrong.reshape(len(array), -1).any(axis=1).argmax())
        label = "" if name == "sizes" else f"{name}: "
        raise DataError(
            f"{label}sample {sample} has size {array[sample]}; expected a whole number, at least 0 and below 2**32"
        )
    return numpy.ascontiguousarray(array, numpy.uint32)


def longest(offsets: numpy.ndarray[Any, Any], samples: int) -> int:
    """Return the most elements of ``samples`` neighbours, for samples that begin at ``offsets``."""
    return int((offsets[samples:] - offsets[: len(offsets) - samples]).max())


def read_columns(first: Sizes, columns: Sequence[tuple[str, Any, bool]]) -> NamedSizes:
    """Return sizes with names, as the engine returns them."""
    read = {name: (None if sizes is None else read_sizes(sizes), is_padded) for name, sizes, is_padded in columns}
    return NamedSizes(first, read)


def read_sizes(sizes: Any) -> Sizes:
    """Return sizes of the engine as an array of NumPy, without a copy."""
    return numpy.asarray(numpy.from_dlpack(sizes), dtype=numpy.uint32)


def copy_offsets(label: str, places: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Return a copy of offsets as int64.

    Raises:
        DataError: One is too large for any array.
    """
    copy = places.astype(numpy.int64)
    if places.dtype.kind == "u" and (copy < 0).any():
        at = int((copy < 0).argmax())
        raise DataError(f"{label}: offset {at} is {places[at]}; expected numbers of values, which are less than 2**63")
    return copy
