"""Rows of an array that lies on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from batchloom.collate.schema import CollateOptions

# Types that few operations of torch support are gathered as integers of the same size.
INTEGERS = {
    name: integers
    for names, integers in (
        (("uint16",), torch.int16),
        (("uint32",), torch.int32),
        (("uint64",), torch.int64),
        (("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), torch.int8),
    )
    for name in names
}


def integer_view(values: torch.Tensor) -> torch.Tensor:
    """Return the same bytes as a type that every operation supports."""
    integers = INTEGERS.get(str(values.dtype).removeprefix("torch."))
    return values if integers is None else values.view(integers)


@dataclass(frozen=True)
class ResidentRows:
    """Rows of an array that are on a device, beginning with row ``first``.

    Attributes:
        convert: Converts rows that were taken; ``None`` where batches hold them as they are stored.
    """

    values: torch.Tensor
    first: int = 0
    convert: Callable[[torch.Tensor], torch.Tensor] | None = None

    @property
    def inner(self) -> tuple[int, ...]:
        """The shape of a row."""
        return tuple(self.values.shape[1:])

    def places(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the places of rows of the array in ``values``."""
        return rows - self.first if self.first else rows

    def convert_taken(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows that were taken in the type of :func:`integer_view`, as batches hold them."""
        stored = rows.view(self.values.dtype)
        return stored if self.convert is None else self.convert(stored)

    def empty(self, *shape: int) -> torch.Tensor:
        """Return an array without elements."""
        return self.convert_taken(integer_view(self.values).new_empty(shape))


def gather(source: ResidentRows, rows: torch.Tensor) -> torch.Tensor:
    """Return rows of an array as a new array, ``[len(rows), ...]``."""
    return source.convert_taken(integer_view(source.values).index_select(0, source.places(rows)))


def gather_padded(
    source: ResidentRows, rows: torch.Tensor, exists: torch.Tensor | None, padding: float = 0
) -> torch.Tensor:
    """Return rows of an array, and padding where ``exists`` is False.

    Args:
        source: The rows on the device.
        rows: The rows to take.
        exists: The mask of rows that are data; ``None`` if all are.
        padding: The value of padding, in the type of :func:`integer_view` for batches.
    """
    if exists is None:
        return gather(source, rows)
    if not prod(source.inner):
        return source.empty(len(rows), *source.inner)
    values = integer_view(source.values)
    if not len(values):
        values = values.new_zeros((1, *source.inner))  # All is padding, but index_select needs a row to read.
    taken = source.convert_taken(values.index_select(0, torch.where(exists, source.places(rows), 0)))
    absent = exists.logical_not().view(-1, *(1,) * len(source.inner))
    integer_view(taken).masked_fill_(absent, padding)
    return taken


def padding(options: CollateOptions, name: str, dtype: str) -> float:
    """Return the value that pads a field, in the type of :func:`integer_view`."""
    value = options.pad_values.get(name)
    if value is None:
        return 0
    element = torch.frombuffer(bytearray(value), dtype=torch.uint8).view(getattr(torch, dtype))
    number: float = integer_view(element).item()
    return number


def to_int64(tokens: torch.Tensor) -> torch.Tensor:
    """Return integers of any width as int64."""
    wide = integer_view(tokens).to(torch.int64)
    bits = 8 * tokens.dtype.itemsize
    unsigned = tokens.dtype in (torch.uint16, torch.uint32)
    return wide.bitwise_and_((1 << bits) - 1) if unsigned else wide


def split(array: torch.Tensor, sizes: list[int]) -> Sequence[torch.Tensor]:
    """Cut an array along the first dimension, into pieces that autograd treats as separate arrays, not as views."""
    return array.unsafe_split_with_sizes(sizes)
