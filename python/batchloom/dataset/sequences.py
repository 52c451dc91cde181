"""Samples that differ in size: sequences of any length, arrays of any extents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
import numpy
from batchloom.arguments import U32, answer_unknown_keywords, choice, integer
from batchloom.arrays.field import BorrowedArray
from batchloom.collate.schema import Column, Columns, Schema
from batchloom.dataset.base import Dataset, Dicts
from batchloom.dataset.concat import StoredSamples
from batchloom.dataset.location import Location
from batchloom.dataset.object_field import ObjectField
from batchloom.dataset.on_device import SamplesOnDevice
from batchloom.dataset.own_lengths import OwnLengths, list_fields, read_own_lengths
from batchloom.dataset.samples import Recipe, override
from batchloom.dataset.tables import Fields, read_fields, read_table, use_attention_mask
from batchloom.dataset.variable import Variable
from batchloom.device.data import DeviceData
from batchloom.errors import ArgumentError, DataError, DTypeError, many
from batchloom.samples.sizes import Sizes, check_named, check_sizes, longest, read_sizes

if TYPE_CHECKING:
    from batchloom.collate.schema import CollateOptions
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange

EXTRA = ("attention_mask", "lengths", "cu_seqlens", "max_seqlen", "position_ids", "segment_ids", "index")


@answer_unknown_keywords
class SequenceDataset(Dataset[Dicts]):
    """Sequences of any length, with fixed arrays beside them.

    A variable field has samples that differ in size. It is one of

    - a list of arrays of one element type, each of them anything that :class:`batchloom.TensorDataset` takes as an
      array, or of lists of numbers: concatenated once, so that a million sequences are two arrays and not a million
      objects;
    - a tuple ``(values, offsets)`` of arrays: sample ``k`` is ``values[offsets[k]:offsets[k + 1]]``;
    - a tuple ``(values, shapes)`` with flat values and shapes ``[samples, rank]``, for samples of any rank;
    - an Arrow array of lists, in one chunk or in several: pyarrow, polars, pandas, or anything else with the Arrow
      PyCapsule interface (lists of one size are rows of a fixed field where another field has other lengths);
    - a nested torch tensor.

    Lists are copied once, and so are arrays without a simple layout (Arrow arrays of booleans, nested tensors other
    than jagged ones); all other data is borrowed, in however many chunks. Samples may differ in any of their
    dimensions: a spectrogram ``[80, time]`` in the second, an image ``[height, width, 3]`` in two. The size of a
    sample is the product of its lengths in these dimensions. All variable fields (tokens, masks, labels of tokens)
    have the same sizes, sample by sample.

    A fixed field is an array ``[samples, ...]``, as for :class:`batchloom.TensorDataset`, or a list of texts or other
    objects, which batches hold as lists.

    ``SequenceDataset(table)`` has a field for each column of a table: lists are variable fields, and all else is fixed,
    and so are lists of one length if sequences have other lengths. Rows are those that the table shows, whichever were
    selected or shuffled. Integers of a ``datasets.Dataset`` become int64, as its tensors are; frames keep their types.

    An ``attention_mask`` of 0 and 1 is no field: it marks the elements that are data. Samples then are without padding,
    and batches have the mask of these samples.

    The contents of a batch depend on the rule:

    - *padded* (all rules but ``Packing``): a dict of the fields, variable ones ``[samples, length, ...]``, plus
      ``attention_mask`` (bool, ``[samples, length]``, True at data), ``lengths`` and ``index`` (int64, ``[samples]``).
    - *packed* (``Packing``, and all rules with ``layout="concatenated"``): a dict of the fields, variable ones
      concatenated ``[elements, ...]``, plus ``cu_seqlens`` (int32, ``[samples + 1]``, begins with 0), ``max_seqlen``
      (an int), ``position_ids`` (int64) and ``segment_ids`` (int32, from 1), both ``[elements]``, and ``index`` (int64,
      ``[samples]``). Samples ``[80, time]``, which differ in their second dimension, are concatenated along it:
      ``[80, elements]``.
    - *in rows* (``Packing(..., rows=)``): the same entries, each with one shape for all batches: ``[rows, max_tokens]``
      for what is ``[elements]``, padded with zeros or ``pad_value`` (``labels`` with -100), ``index`` ``[rows,
      max_samples]`` with -1 for no sample, ``cu_seqlens`` ``[rows, max_samples + 1]``, which counts from the start of
      each row and repeats the last boundary, and ``max_seqlen``, which is ``max_tokens``. Segment 0 is padding.

    The entries beside the fields are the *extras* of a batch: ``extras=`` of a loader chooses among them.

    The samples of a batch are sorted, longest first (with ``FixedSize``, in order); ``index`` holds their numbers.

    Fields in ``own_lengths`` differ in size from the others, as the two sides of a translation do. Each is padded to
    its own longest, and batches also hold ``{field}_mask`` and ``{field}_lengths`` for it; ``attention_mask`` and
    ``lengths`` are those of the fields that share their sizes. In packed batches each is concatenated, and batches hold
    ``{field}_offsets`` for it (int64, ``[samples + 1]``, begins with 0), while ``cu_seqlens`` is of the fields that
    share their sizes. Fields that differ from the rest, but not from each other, are named together: the edges of
    graphs are ``own_lengths={"edges": ("edge_index", "edge_attr")}``, and batches hold one ``edges_offsets``. Samples
    with such fields stay whole: rules that truncate or split are refused.

    Indices of nodes, as ``edge_index`` has them, count the nodes of their own sample. ``bl.Field(offset_by="x")`` lets
    them count those of the batch.

    Args:
        table: A ``datasets.Dataset``, a frame of pandas, polars or Arrow, or a dict of columns. More fields may have
            names.
        fields: The fields by name.
        sizes: Numbers to sort, count and budget by instead of the sizes, one for each sample. Or a dict of further
            sizes by name, for rules with several budgets, as ``{"patches": patches}``: one number for each sample, or
            the name of the field that has these lengths. Fields that vary in length need none: a budget has the name of
            the field.
        own_lengths: The names of variable fields with other sizes than the rest; or a dict that names sizes, each of
            one field or of several fields that share them. A budget may have such a name, too.
        layout: ``"padded"``, or ``"concatenated"`` for batches of every rule without padding. ``Packing`` concatenates
            in any case.
        dim: The dimension in which samples of a field vary, by the name of the field: ``{"edge_index": 1}``. Without
            it, a field varies in the dimensions in which some samples differ, or in the first if all have one shape.
        of: The size of a sample whose fields have sizes of their own, by which rules sort, count and budget. ``"max"``
            is the largest of its fields: a budget bounds the padded elements of each field. ``"sum"`` is all of them
            together: a budget bounds the longest sum times the number of samples, and a batch may hold more, where one
            sample has the longest source and another the longest target. The name of a field, or of sizes that fields
            share, stands for its size: a budget bounds its padded elements, and no other. Of packed batches, a budget
            bounds the elements of each field, of all fields, or of one.

    Raises:
        ArgumentError: A name that batches use themselves, or an object that is no table.
        DataError: Fields that disagree (the message names the sample); offsets that decrease or leave the values;
            nulls; no variable field; an ``attention_mask`` with a gap.
        DTypeError: An element type that cannot be moved as bytes; lists of arrays of several types.
        DeviceError: An array that is neither on the CPU nor of torch.
    """

    _samples: SequenceSamples

    def __init__(
        self,
        table: Any = None,
        /,
        *,
        sizes: Any = None,
        own_lengths: Sequence[str] | Mapping[str, str | Sequence[str]] = (),
        of: str = "max",
        layout: str = "padded",
        dim: Mapping[str, int] | None = None,
        **fields: Any,
    ) -> None:
        if table is None and not fields:
            raise DataError("the dataset has no fields; expected at least one sequence field, by name, or a table")
        layout = choice("layout", layout, ("padded", "concatenated"))
        lengths, dims = read_own_lengths(own_lengths), _read_dims(dim)
        columns = {} if table is None else read_table(table, list_fields(lengths), dims)
        for name in (name for name in fields if name in columns):
            raise ArgumentError(f"field {name} is a column of the table, and is given by name; expected one of them")
        self._samples = _rebuild(fields, sizes, lengths, of, layout, dims, {}, columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(self._samples.fields)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields: fixed ones as they were given, variable ones as ``(values, offsets)`` or ``(values, shapes)``."""
        return self._samples.given

    @property
    def sizes(self) -> Sizes:
        """The size of each sample, or the numbers given as ``sizes``: plans sort, count and budget by them."""
        return self._samples.sizes()

    @property
    def own_lengths(self) -> tuple[str, ...]:
        """The names of the fields with other sizes than the rest."""
        return tuple(list_fields(self._samples.own_lengths))

    @property
    def layout(self) -> str:
        """``"padded"``, or ``"concatenated"`` if batches of every rule are."""
        return self._samples.layout

    @property
    def of(self) -> str:
        """The size of a sample with fields of other sizes: ``"max"``, ``"sum"`` or the name of a field."""
        return self._samples.of

    @property
    def dim(self) -> dict[str, int]:
        """The dimension in which samples of a field vary, for the fields for which it was given."""
        return dict(self._samples.dims)

    def __repr__(self) -> str:
        fields = ", ".join(repr(field) for field in self._samples.fields.values())
        return f"SequenceDataset({fields}; {many(len(self), 'sample')})"


class SequenceSamples(StoredSamples):
    """Sequences of any length, with fixed arrays beside them.

    Attributes:
        fields: The fields by name.
        own_lengths: The names of separate sizes, and the fields that share each of them.
        of: The size of a sample with such fields.
        layout: The layout of batches.
        dims: The dimensions in which samples of fields vary, where they were given.
    """

    are_items = True
    has_next_tokens = True

    def __init__(
        self, fields: Fields, sizes: Any, own_lengths: OwnLengths, of: str, layout: str, dims: dict[str, int]
    ) -> None:
        self.own_lengths, self.of, self.layout, self.dims = own_lengths, of, layout, dims
        self.fields = fields = use_attention_mask(fields, list_fields(own_lengths))
        self._require_free(fields)
        self._require_sequences()
        named = isinstance(sizes, Mapping)
        self._own = None if sizes is None or named else numpy.array(check_sizes(sizes, "sizes"))
        self._named = _read_named(sizes) if named else {}
        native = [
            (name, field.sequences if isinstance(field, Variable) else field.tensor)
            for name, field in self.fields.items()
        ]
        own = None if self._own is None else _native.borrow(self._own, "sizes")
        further = [
            (name, each if isinstance(each, str) else _native.borrow(each, name)) for name, each in self._named.items()
        ]
        concatenated = layout == "concatenated"
        self._engine = _native.Dataset.sequences(native, own, further, self.own_lengths, of, concatenated)
        self._sizes = read_sizes(self._engine.sizes())
        arrays = (field for field in self.fields.values() if not isinstance(field, ObjectField))
        watched = (each for field in self.fields.values() if isinstance(field, ObjectField) for each in field.maps)
        held = tuple(field.values if isinstance(field, Variable) else field for field in arrays)
        self.location = Location(held, watched=tuple(watched))

    def _require_free(self, fields: Mapping[str, Any]) -> None:
        """Refuse names that batches use themselves, and sizes of no field."""
        of = self.of
        if not isinstance(of, str):
            raise ArgumentError(f'of is {of!r}; expected "max", "sum" or the name of a field')
        if of != "max" and not self.own_lengths:
            raise ArgumentError(
                f"of is {of!r}, without fields in own_lengths: all have one size; expected both or none"
            )
        extra = (*EXTRA, *(f"{name}_{what}" for name, _ in self.own_lengths for what in ("mask", "lengths")))
        for name in fields:
            if name in extra or (self.own_lengths and name in ("max", "sum")):
                raise ArgumentError(f"a field is named {name}, which batches use themselves; expected another name")

    def _require_sequences(self) -> None:
        """Refuse objects without sequences beside them: they are mostly meant to be sequences."""
        objects = [field for field in self.fields.values() if isinstance(field, ObjectField)]
        if objects and not self.variable:
            raise DTypeError(
                f"field {objects[0].label} holds objects, as {objects[0].values[0]!r:.80}, and no other field "
                "sequences; expected arrays or lists of numbers: batches hold objects as they are"
            )

    @property
    def given(self) -> dict[str, Any]:
        """The fields, in a form that a dataset takes."""
        return {name: field.data for name, field in self.fields.items()}

    @property
    def variable(self) -> dict[str, Variable]:
        """The fields whose samples differ in size."""
        return {name: field for name, field in self.fields.items() if isinstance(field, Variable)}

    @property
    @override
    def lie_in_order(self) -> bool:
        return self.are_neighbours

    @override
    def whole_len(self) -> int:
        return len(self._engine)

    @override
    def sizes(self) -> Sizes:
        return self._sizes

    def sample(self, sample: int) -> dict[str, Any]:
        """Return a dict of arrays, views of the fields."""
        row = self.row(sample)
        return {name: self.as_in_batches(name, field.row(row)) for name, field in self.fields.items()}

    @override
    def narrow(self, selection: _native.Selection) -> None:
        self._engine = self._engine.select(selection)
        self._sizes = read_sizes(self._engine.sizes())

    @property
    def _options(self) -> tuple[OwnLengths, str, str, dict[str, int], dict[str, int]]:
        """The arguments of a recipe after fields and sizes."""
        # Some of the samples may agree where all of them differ.
        found = {name: field.dim for name, field in self.variable.items() if field.dim is not None}
        return self.own_lengths, self.of, self.layout, self.dims, found

    @override
    def recipe(self) -> Recipe:
        sizes = self._named or None if self._own is None else self._own
        return _rebuild, (self.given, sizes, *self._options)

    @override
    def narrow_recipe(self) -> tuple[Recipe, _native.Selection]:
        selection = self.locate_selected()
        if selection.range is None:
            return super().narrow_recipe()
        first, end = selection.range
        fields = {name: field.part(first, end) for name, field in self.fields.items()}
        named = {name: each if isinstance(each, str) else each[first:end] for name, each in self._named.items()}
        sizes = named or None if self._own is None else self._own[first:end]
        return (_rebuild, (fields, sizes, *self._options)), selection.cut(*selection.range)

    @property
    @override
    def object_fields(self) -> list[str]:
        return [name for name, field in self.fields.items() if isinstance(field, ObjectField)]

    @override
    def arrays_by_sample(self) -> tuple[BorrowedArray, ...]:
        return tuple(field for field in self.fields.values() if isinstance(field, BorrowedArray))

    @override
    def engine(self) -> _native.Dataset:
        return self._engine

    @override
    def padded_fields(self) -> Mapping[str, str]:
        return {name: field.dtype for name, field in self.variable.items()}

    @override
    def schema(self, columns: Columns) -> Schema:
        first = next(iter(self.variable.values()))
        with_frameworks = (Column(name, dtype, self.fields.get(name, first).framework) for name, dtype in columns)
        longest = self.extras.longest_after(len(self.fields))
        nested = self.extras.nested(columns)
        return Schema(tuple(with_frameworks), named=True, ragged=True, nested=nested, longest=longest)

    @override
    def device_data(self) -> DeviceData:
        return SequencesOnDevice(self)


class SequencesOnDevice(SamplesOnDevice[SequenceSamples]):
    """Sequences on a device, which are gathered element by element, and fixed arrays beside them."""

    def __init__(self, samples: SequenceSamples) -> None:
        super().__init__(samples)
        self.element_bytes = sum(field.values.row_bytes for field in samples.variable.values())

    @property
    @override
    def in_parts(self) -> frozenset[str]:
        return frozenset(self.samples.variable)

    @override
    def row_ranges(self, first: int, end: int) -> list[RowRange]:
        # Values of samples of any rank are flat here, where the engine counts rows of the dimensions that all share.
        from batchloom.device.shards import RowRange

        first, end = self.samples.locate_run(first, end)

        def row_range(field: Variable | BorrowedArray) -> RowRange:
            if isinstance(field, BorrowedArray):
                return RowRange(field, first, end)
            return RowRange(field.values, int(field.offsets[first]), int(field.offsets[end]))

        return [row_range(field) for field in self.samples.fields.values()]

    @override
    def most_rows(self, samples: int) -> list[tuple[BorrowedArray, int]]:
        def most(field: Variable | BorrowedArray) -> tuple[BorrowedArray, int]:
            if isinstance(field, BorrowedArray):
                return field, samples
            return field.values, longest(field.offsets, samples)

        return [most(field) for field in self.samples.fields.values()]

    @override
    def why_not_gathered(self, conversions: Mapping[str, _native.Conversion]) -> str | None:
        own, objects = list_fields(self.samples.own_lengths), self.samples.object_fields
        if objects:
            return f"field {objects[0]} holds objects, which stay in memory"
        if own:
            return f"field {own[0]} has lengths of its own"
        for name, field in self.samples.variable.items():
            if self.samples.extras.is_packed and field.sequences.varying != [0]:
                return f"field {name} is concatenated along dimension {field.sequences.varying[0]}"
        return super().why_not_gathered(conversions)

    @override
    def collator(self, resident: Resident, options: CollateOptions) -> Collator:
        from batchloom.device.collate import ragged
        from batchloom.device.collate.gather import padding
        from batchloom.device.conversion import add_conversion

        fields: dict[str, ragged.Fixed | ragged.ResidentVariable] = {}
        for name, field in self.samples.fields.items():
            if isinstance(field, Variable):
                on_device = field.on(resident, padding(options, name, options.dtype(name, field.dtype)))
                fields[name] = replace(on_device, fetch=add_conversion(options, name, on_device.fetch))
            else:
                fields[name] = ragged.Fixed(add_conversion(options, name, partial(resident.rows_of, field)))
        return ragged.Ragged(fields, options, self.samples.extras.is_packed)


def _read_dims(dim: Any) -> dict[str, int]:
    """Return the dimensions in which samples of fields vary, by the names of fields."""
    if dim is None:
        return {}
    if not isinstance(dim, Mapping) or not all(isinstance(name, str) for name in dim):
        raise ArgumentError(f"dim is {dim!r}; expected dimensions by the names of fields, as {{'edge_index': 1}}")
    return {name: integer(f"dim of field {name}", each, least=-U32) for name, each in dim.items()}


def _read_named(given: Mapping[Any, Any]) -> dict[str, Sizes | str]:
    """Return further sizes by name: numbers, or the names of fields that have these lengths."""
    numbers = {name: each for name, each in given.items() if not isinstance(each, str)}
    checked = check_named(numbers, "sizes") if numbers or not given else {}
    return {name: checked.get(name, each) for name, each in given.items()}


def _rebuild(
    fields: dict[str, Any],
    sizes: Any,
    own_lengths: OwnLengths,
    of: Any,
    layout: str,
    dims: dict[str, int],
    found: dict[str, int],
    columns: Fields | None = None,
) -> SequenceSamples:
    """Return the samples of fields, and of columns that were read.

    Args:
        fields: The fields.
        sizes: Numbers instead of sizes.
        own_lengths: The names of separate sizes.
        of: The size of a sample with such fields.
        layout: The layout of batches.
        dims: The dimensions that were given.
        found: The dimensions that were found where these samples were some of more.
        columns: The columns.
    """
    read = read_fields(fields, columns or {}, list_fields(own_lengths), {**found, **dims})
    for name in dims:
        if not isinstance(read.get(name), Variable):
            differing = [name for name, field in read.items() if isinstance(field, Variable)]
            raise ArgumentError(
                f"dim names {name!r}; expected fields of samples that differ in size, some of {differing}"
            )
    return SequenceSamples(read, sizes, own_lengths, of, layout, dims)
