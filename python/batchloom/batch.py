"""What a batch holds, and how blocks of the engine become batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchloom._native import Tensor
from batchloom.arrays.frameworks import require

# The field that says where samples of a packed batch begin, and what follows it: the size of the longest.
BOUNDARIES, LONGEST = "cu_seqlens", "max_seqlen"

Run = tuple[list[Tensor], int]
"""Batches of one shape: a tensor a field, each ``[batches, ...]``, and the size of the longest sample."""

Keys = list[tuple[str | None, Callable[[Any], Any] | None, bool]]
"""Of each key of a batch its name (``None`` in tuples), what takes its tensor, and whether that takes a DLPack capsule
instead."""

Columns = Sequence[tuple[str, str]]
"""The name and element type of each field that the engine makes."""

Split = Callable[[list[Run]], list[Any]] | Keys
"""Cuts runs into a list of batches, or says how the engine makes a dict of each."""


@dataclass(frozen=True)
class Column:
    """One field of a batch: its name, the type of its elements, and the framework that its array is of."""

    name: str
    dtype: str
    framework: str


@dataclass(frozen=True)
class Schema:
    """What a batch holds.

    Attributes:
        columns: The fields, in order.
        named: Whether batches are dicts.
        ragged: Whether samples differ in size, so that every run is one batch.
        patches: The length of the patches that ``x`` is cut into, and the steps from one to the next, if it is.
    """

    columns: tuple[Column, ...]
    named: bool
    ragged: bool = False
    patches: tuple[int, int] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of a batch that is a dict: where there are boundaries, the longest sample follows them."""
        keys = [column.name for column in self.columns]
        if BOUNDARIES in keys and self.ragged:
            keys.insert(keys.index(BOUNDARIES) + 1, LONGEST)
        return tuple(keys)

    def modules(self, output: str | None) -> list[Any]:
        """The functions of the framework of each field, or of ``output`` for all.

        Raises:
            ArgumentError: There is no such framework, or it is not installed.
            DTypeError: It lacks the type of a field.
        """
        return [require(output or column.framework, column.dtype, column.name) for column in self.columns]


def splitter(schema: Schema, output: str | None, copies: bool = False) -> Split:
    """Return what cuts runs into batches.

    Args:
        schema: What a batch holds.
        output: A framework for all fields, or ``None`` for that of each.
        copies: Whether patches are copies, which do not overlap.
    """
    modules = schema.modules(output)
    if schema.ragged:
        return _single(schema, modules)
    finish = finisher(schema, output, copies)

    def split(runs: list[Run]) -> list[Any]:
        found: list[Any] = []
        for tensors, _ in runs:
            found += finish([module.views(tensor) for module, tensor in zip(modules, tensors, strict=True)])
        return found

    return split


def finisher(schema: Schema, output: str | None, copies: bool) -> Callable[[list[Sequence[Any]]], list[Any]]:
    """Return what makes batches of the arrays of each field, one for each batch."""
    keys, place = schema.keys, schema.keys.index("x") if schema.patches else None
    modules = schema.modules(output)
    module: Any = None if place is None else modules[place]

    def finish(columns: list[Sequence[Any]]) -> list[Any]:
        if place is not None and schema.patches is not None:
            found = [module.patches(batch, *schema.patches) for batch in columns[place]]
            columns[place] = [module.own(patches, None) for patches in found] if copies else found
        batches = zip(*columns, strict=True)
        return [dict(zip(keys, batch, strict=True)) for batch in batches] if schema.named else list(batches)

    return finish


def _single(schema: Schema, modules: list[Any]) -> Keys:
    """Return what makes a batch of each run of one batch."""
    keys: Keys = []
    for column, module in zip(schema.columns, modules, strict=True):
        keys.append((column.name if schema.named else None, module.view, module.TAKES_CAPSULES))
        if column.name == BOUNDARIES:
            keys.append((LONGEST, None, False))
    return keys


@dataclass(frozen=True)
class CollateOptions:
    """What batches of samples that differ in size are to be like.

    Attributes:
        names: The names of what they hold, in order.
        pad_values: The bytes of one element of padding, for fields where that is not zeros.
        left: Whether padding goes before the data.
        labels: The field whose next tokens are labels, if any.
    """

    names: Sequence[str]
    pad_values: dict[str, bytes] = field(default_factory=dict)
    left: bool = False
    labels: str | None = None
