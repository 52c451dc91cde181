"""`Location`: the place where samples lie, asked apart from what a sample is."""

from __future__ import annotations

import mmap
import operator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import batchloom._native as _native
from batchloom.arrays.chunked import BorrowedChunks
from batchloom.arrays.field import BorrowedArray
from batchloom.errors import DeviceError


@dataclass(frozen=True)
class Location:
    """The place where samples lie before batches are made of them: arrays in memory or on a device, or elsewhere.

    Attributes:
        arrays: The arrays that samples are taken from, each once; none where samples lie elsewhere.
        beside: Further arrays that a device needs.
        datasets: The number of datasets whose arrays these are.
        watched: Arrays that objects of samples lie in, which no batch holds.
        is_on_demand: ``True`` if samples are made or read when their batch is formed, so that fields are known with
            the first block.
    """

    arrays: tuple[BorrowedArray, ...] = ()
    beside: tuple[BorrowedArray, ...] = ()
    datasets: int = 1
    watched: tuple[BorrowedArray, ...] = ()
    is_on_demand: bool = False
    _pages: dict[int, _native.MappedPages] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def all_arrays(self) -> tuple[BorrowedArray, ...]:
        """The arrays that samples are taken from, and those beside them."""
        return (*self.arrays, *self.beside)

    @property
    def was_shared(self) -> bool:
        """``True`` if torch has moved an array to memory that processes share."""
        return any(map(operator.attrgetter("was_shared"), self.all_arrays))

    @cached_property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(each.tensor.nbytes for each in self.all_arrays)

    @cached_property
    def frameworks(self) -> frozenset[str]:
        """The frameworks of the arrays that samples are taken from."""
        return frozenset(each.framework for each in self.arrays)

    def check(self) -> None:
        """Raise if an array was resized or moved since it was borrowed."""
        for each in (*self.all_arrays, *self.watched):
            each.check()

    def check_chunks(self) -> None:
        """Raise if a chunk of an array was resized or moved since it was borrowed; ``check`` looks at some of many."""
        for each in self._chunked:
            each.check_whole()

    @cached_property
    def _chunked(self) -> tuple[BorrowedChunks, ...]:
        return tuple(each for each in self.all_arrays if isinstance(each, BorrowedChunks))

    def pages(self, memory: int) -> _native.MappedPages:
        """Return the pages of memory maps that arrays lie in; ``memory`` is the limit of bytes in memory."""
        if memory not in self._pages:
            held = [each.tensor for each in (*self.all_arrays, *self.watched) if each.device is None]
            self._pages[memory] = _native.MappedPages(held, memory, mmap.PAGESIZE)
        return self._pages[memory]

    def device(self) -> Any:
        """Return the device of all arrays; ``None`` for the CPU, and where samples lie elsewhere.

        Raises:
            DeviceError: Arrays are on several devices.
        """
        if not self.arrays:
            return None
        first = self.arrays[0]
        for each in self.arrays:
            if each.device != first.device:
                raise DeviceError(
                    f"field {each.label} is on {each.device or 'cpu'}, field {first.label} on "
                    f"{first.device or 'cpu'}; expected all on one device: move them with .to()"
                )
        return first.device


ON_DEMAND = Location(is_on_demand=True)
