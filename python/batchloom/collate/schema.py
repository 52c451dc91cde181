"""The schema of batches, and the functions that take blocks of the engine as arrays of a framework."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import batchloom._native as _native
from batchloom.arrays.frameworks import DEFAULT_FRAMEWORK, load, require
from batchloom.collate.objects import OBJECT, OBJECTS, STORED_OBJECT, ObjectViews, find_objects, find_stored
from batchloom.errors import ArgumentError

if TYPE_CHECKING:
    from batchloom.arrays.framework import Framework

# The marks of the places of a batch that only fill up, in this order: -1 instead of the sample, and 0 instead of 1.
MARKS = ("index", "weight")

# The extras of batches with a loss: the weight of each label, and the number that the loss is divided by.
LOSS_EXTRAS = ("loss_weight", "loss_denominator")

# The extras of packed batches with indices that are offset: each element's sample, and where samples begin.
OWNERS = ("batch", "ptr")

# The label that losses ignore.
IGNORED = -100

# The field with the boundaries of samples in a packed batch, and the key after it: the size of the longest sample.
BOUNDARIES, LONGEST = "cu_seqlens", "max_seqlen"

Columns = Sequence[tuple[str, str]]
"""The name and the element type of each field that the engine makes."""


class Column(NamedTuple):
    """One field of a batch: its name, the type of its elements, and the framework that its array is of."""

    name: str
    dtype: str
    framework: str


@dataclass(frozen=True)
class Compressed:
    """Columns of the engine that are one sparse matrix in a batch: the bounds of rows, their columns, the values.

    Attributes:
        name: The name of the field.
        place: The place of the first of its columns.
        width: The number of columns of the matrix.
        framework: The framework of its values.
        is_matrix: ``True`` if the matrix is of SciPy's older class, ``csr_matrix``.
    """

    COLUMNS: ClassVar[int] = 3

    name: str
    place: int
    width: int
    framework: str
    is_matrix: bool


@dataclass(frozen=True)
class Nested:
    """Columns of the engine that are one dict in a batch.

    Attributes:
        name: The name of the dict.
        place: The place of the first of its columns.
        keys: The key of each column.
        beside: Further entries of the dict, the same in every batch.
    """

    name: str
    place: int
    keys: tuple[str, ...]
    beside: Mapping[str, Any]

    def make(self, *arrays: Any) -> dict[str, Any]:
        """Return the dict of the arrays of its columns."""
        return {**dict(zip(self.keys, arrays, strict=True)), **self.beside}


@dataclass(frozen=True)
class Join:
    """A function that makes one array of several neighbouring fields of a batch.

    Attributes:
        place: The place of the first field, counted after earlier fields are joined.
        fields: The number of fields.
        make: The function.
    """

    place: int
    fields: int
    make: Callable[..., Any]


@dataclass(frozen=True)
class Schema:
    """The fields of a batch.

    Attributes:
        columns: The fields, in order.
        named: ``True`` if batches are dicts.
        ragged: ``True`` if samples differ in size.
        patches: The length of the patches that ``x`` is cut into, and the steps from one to the next, if it is.
        compressed: The columns that are sparse matrices in a batch.
        nested: The columns that are one dict in a batch, after the sparse matrices; or ``None``.
        build: Makes a batch of a tuple of its arrays, if batches are neither plain dicts nor plain tuples.
        longest: The place of the size of the longest sample among the keys; ``None`` where batches do not hold it.
    """

    columns: tuple[Column, ...]
    named: bool
    ragged: bool = False
    patches: tuple[int, int] | None = None
    compressed: tuple[Compressed, ...] = ()
    nested: Nested | None = None
    build: Callable[[tuple[Any, ...]], Any] | None = None
    longest: int | None = None

    @cached_property
    def keys(self) -> list[str] | None:
        """The keys of batches that are dicts; ``None`` for tuples."""
        return self.all_keys if self.named and self.build is None else None

    def is_compressed(self, place: int) -> bool:
        """Return whether the column at a place is a part of a sparse matrix."""
        return any(held.place <= place < held.place + held.COLUMNS for held in self.compressed)

    @property
    def all_keys(self) -> list[str]:
        """The name of each part of a batch, whether batches are dicts or tuples."""
        keys = [column.name for column in self.columns]
        for held in reversed(self.compressed):
            keys[held.place : held.place + held.COLUMNS] = [held.name]
        if self.nested is not None:
            place = self.nested.place
            keys[place : place + len(self.nested.keys)] = [self.nested.name]
        if self.longest is not None:
            keys.insert(self.longest, LONGEST)
        return keys

    def modules(self, output: str | None) -> list[Framework]:
        """Return the functions for the framework of each field, or for ``output``.

        Raises:
            ArgumentError: There is no such framework, or it is not installed.
            DTypeError: The framework lacks the type of a field.
        """
        return [
            load(DEFAULT_FRAMEWORK) if framework in OBJECTS else require(output or framework, dtype, name)
            for name, dtype, framework in self.columns
        ]

    @cached_property
    def objects(self) -> ObjectViews:
        """The fields that hold objects."""
        places = [place for place, column in enumerate(self.columns) if column.framework == OBJECT]
        return ObjectViews(places, find_objects)

    def joins(self, output: str | None) -> list[Join]:
        """Return the functions that make one entry of a batch of several columns.

        Raises:
            ArgumentError: The framework has no sparse matrices, or needs a package that is not installed.
        """
        joins = []
        for number, held in enumerate(self.compressed):
            module = load(framework := output or held.framework)
            if not module.HAS_SPARSE_ROWS:
                raise ArgumentError(
                    f'field {held.name} has layout "csr", which batches of {framework} do not have; expected '
                    'SparseRows(..., layout="dense"), or another output'
                )
            place = held.place - number * (held.COLUMNS - 1)
            joins.append(Join(place, held.COLUMNS, module.sparse_rows(held.width, held.is_matrix)))
        if self.nested is not None:
            joins.append(Join(self.nested.place, len(self.nested.keys), self.nested.make))
        return joins


class FieldViews(NamedTuple):
    """The functions that take one field of the engine's blocks as arrays of a framework.

    Attributes:
        many: Cuts a column into one array for each batch. The column has ``runs``, a tensor of the engine ``[batches,
            ...]`` for each run of batches of one shape, and ``split()``: a DLPack capsule of all samples, one after the
            other, and the number of samples of each batch; ``None`` if there is space between them.
        one: Takes the tensor of a single batch.
        takes_capsules: ``True`` if ``one`` takes a DLPack capsule of the tensor instead.
    """

    many: Callable[[Any], Sequence[Any]]
    one: Callable[[Any], Any]
    takes_capsules: bool


@dataclass(frozen=True)
class Patches:
    """The cut of one field of batches into patches.

    Attributes:
        place: The place of the field in a batch.
        cut: Cuts the array of one batch.
    """

    place: int
    cut: Callable[[Any], Any]

    def each(self, arrays: Sequence[Any]) -> list[Any]:
        """Cut the arrays of several batches."""
        return [self.cut(array) for array in arrays]


def field_views(schema: Schema, output: str | None, copies: bool) -> list[FieldViews]:
    """Return the functions that take each field of a block.

    Args:
        schema: The fields of a batch.
        output: A framework for all fields, or ``None`` for the framework of each field.
        copies: If ``True``, patches are copies, which do not overlap.

    Raises:
        ArgumentError: A framework is unknown, or not installed.
        DTypeError: A framework lacks the type of a field.
    """
    views = [FieldViews(module.views, module.view, module.TAKES_CAPSULES) for module in schema.modules(output)]
    for place, column in enumerate(schema.columns):
        if column.framework == STORED_OBJECT:
            views[place] = _find_in(views[place])
    patches = patches_of(schema, output, copies)
    if patches is not None:
        cut, whole = patches, views[patches.place]
        views[cut.place] = FieldViews(
            lambda column: cut.each(whole.many(column)), lambda tensor: cut.cut(whole.one(tensor)), whole.takes_capsules
        )
    return views


def _find_in(views: FieldViews) -> FieldViews:
    """Return views that are the objects of the tickets in other views."""
    many, one = views.many, views.one
    return views._replace(
        many=lambda column: [find_stored(tickets) for tickets in many(column)],
        one=lambda tensor: find_stored(one(tensor)),
    )


def patches_of(schema: Schema, output: str | None, copies: bool) -> Patches | None:
    """Return the cut of ``x`` into patches; ``None`` where batches hold no patches."""
    if schema.patches is None:
        return None
    length, stride = schema.patches
    place = [column.name for column in schema.columns].index("x")
    module = schema.modules(output)[place]

    def cut(array: Any) -> Any:
        patches = module.patches(array, length, stride)
        return module.own(patches, None) if copies else patches

    return Patches(place, cut)


@dataclass(frozen=True)
class CollateOptions:
    """The options of a loader for batches of samples that differ in size.

    Attributes:
        names: The names of all that batches hold, in order.
        pad_values: The bytes of one element of padding, for fields where that is not zeros.
        left: ``True`` if padding goes before the data.
        labels: The field whose next tokens are labels, if any.
        conversions: The conversions that are left to a device, by field.
        edges: The fields that repeat the nearest step of a series where a window leaves it.
    """

    names: Sequence[str]
    pad_values: dict[str, bytes]
    left: bool
    labels: str | None
    conversions: dict[str, _native.Conversion] = dataclasses.field(default_factory=dict)
    edges: frozenset[str] = frozenset()

    @property
    def marks(self) -> list[str]:
        """The marks of places that batches hold."""
        return [name for name in MARKS if name in self.names]

    def dtype(self, name: str, stored: str) -> str:
        """Return the type of a field in batches, given the type of the data."""
        return self.conversions[name].dtype if name in self.conversions else stored
