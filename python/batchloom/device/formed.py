"""Batches from blocks that the engine has formed: copied as a whole, then cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import batchloom._native as _native
import numpy
import torch
from batchloom.arrays.torch import cut
from batchloom.collate.objects import STORED_OBJECT, TICKET, find_stored
from batchloom.collate.schema import Schema
from batchloom.device.conversion import DeviceConversion
from numpy.lib.stride_tricks import as_strided


class Formed:
    """Cuts blocks, which have the same layout on the device as in memory.

    Args:
        schema: The fields of a batch.
        conversions: The conversions of fields that are copied as they are stored.
    """

    def __init__(self, schema: Schema, conversions: dict[str, _native.Conversion]) -> None:
        fields = [(column, conversions.get(column.name)) for column in schema.columns]
        self._dtypes = [getattr(torch, column.dtype if left is None else left.stored) for column, left in fields]
        self._conversions = [None if left is None else DeviceConversion(left) for _, left in fields]
        self._longest, self._objects = schema.longest, schema.objects
        frameworks = [column.framework for column in schema.columns]
        self._stored = [place for place, framework in enumerate(frameworks) if framework == STORED_OBJECT]

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the memory of a block, and the layout of its fields."""
        objects = self._take_objects(block) if self._objects.places or self._stored else {}
        return [block.memory], (block.layouts, [longest for *_, longest in block.runs], objects)

    def _take_objects(self, block: _native.Block) -> dict[int, list[Any]]:
        """Return the objects of the batches of a block, by the places of fields that hold objects."""
        memory = numpy.from_dlpack(block.memory)
        tickets = memory[: len(memory) // numpy.dtype(TICKET).itemsize * numpy.dtype(TICKET).itemsize].view(TICKET)
        objects: dict[int, list[Any]] = {place: [] for place in (*self._objects.places, *self._stored)}
        for run in block.layouts:
            for place, found in objects.items():
                shape, strides, offset = run[place]
                batches = as_strided(tickets[offset:], shape, [stride * tickets.itemsize for stride in strides])
                if place in self._stored:
                    found += map(find_stored, batches)
                else:
                    number = self._objects.places.index(place)
                    found += [self._objects.find(block.objects, number, numpy.asarray(batch)) for batch in batches]
        return objects

    def make(self, arrived: list[torch.Tensor], outline: Any) -> list[Sequence[Any]]:
        """Cut a block into batches.

        Each field of a run is split off before it is viewed as its type, so that autograd does not take a write to one
        batch for a write to the others.
        """
        layouts, longest, objects = outline
        arrays = [
            (offset * dtype.itemsize, shape[0] * strides[0] * dtype.itemsize)
            for run in layouts
            for (shape, strides, offset), dtype in zip(run, self._dtypes, strict=True)
        ]
        pieces = iter(_pieces(arrived[0], arrays))
        fields: list[list[Any]] = [[] for _ in self._dtypes]
        for run in layouts:
            for field, (shape, strides, _), dtype, convert in zip(
                fields, run, self._dtypes, self._conversions, strict=True
            ):
                piece = next(pieces).view(dtype)
                if convert is None:
                    field.extend(_cut(piece, shape, strides))
                else:
                    field.extend(cut(convert(piece.as_strided(shape, strides), before=2).contiguous()))
        columns: list[Sequence[Any]] = [*fields]
        for place, held in objects.items():
            columns[place] = held
        if self._longest is not None:
            columns.insert(self._longest, longest)
        return columns


def _pieces(memory: torch.Tensor, arrays: list[tuple[int, int]]) -> list[torch.Tensor]:
    """Split memory into arrays, each given by its start and its length, which follow each other in any order."""
    order = sorted(range(len(arrays)), key=arrays.__getitem__)
    in_order = memory.unsafe_split_with_sizes([arrays[place][1] for place in order])
    pieces = [memory] * len(arrays)
    for place, piece in zip(order, in_order, strict=True):
        pieces[place] = piece
    return pieces


def _cut(piece: torch.Tensor, shape: list[int], strides: list[int]) -> Sequence[torch.Tensor]:
    """Cut a field of a run, ``[batches, ...]``, into batches."""
    if shape[0] == 1:
        return [piece[: _elements(shape)].view(shape[1:])]
    return cut(piece.as_strided(shape, strides))


def _elements(shape: list[int]) -> int:
    return torch.Size(shape).numel()
