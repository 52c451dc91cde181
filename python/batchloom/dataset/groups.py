"""Groups of rows that belong together, such as the results of one query: each group is one sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, overload

import batchloom._native as _native
import numpy
from batchloom.arguments import U32, answer_unknown_keywords, boolean, choice, integer
from batchloom.arrays import frames
from batchloom.arrays.chunked import borrow_field
from batchloom.arrays.field import BorrowedArray, copy_array, host
from batchloom.arrays.frameworks import owner_name
from batchloom.arrays.numpy import is_masked
from batchloom.collate.schema import Column, Columns, Schema
from batchloom.dataset.base import Dataset, Dicts, Form, Tuples
from batchloom.dataset.concat import StoredSamples
from batchloom.dataset.location import Location
from batchloom.dataset.on_device import SamplesOnDevice
from batchloom.dataset.samples import Recipe, override
from batchloom.device.data import DeviceData
from batchloom.errors import ArgumentError, DataError, DTypeError, many
from batchloom.samples.sizes import Sizes, longest, read_sizes

if TYPE_CHECKING:
    from batchloom.batching.rules import Rule
    from batchloom.collate.schema import CollateOptions
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange

Array = numpy.ndarray[Any, Any]

IDS, OFFSETS, MASK = "group_ids", "offsets", "mask"


@dataclass(frozen=True)
class GroupStats:
    """Counts of groups, and of the rows that an epoch leaves out."""

    groups: int
    """Groups."""
    rows: int
    """Rows of all groups."""
    longest: int
    """Rows of the longest group."""
    longer_groups: int
    """Groups of more than ``max_rows`` rows, which are truncated or subsampled."""
    rows_left_out: int
    """Rows of longer groups that an epoch leaves out."""


@answer_unknown_keywords
class GroupDataset(Dataset[Form]):
    """Groups of rows that belong together: a sample is a whole group, which is never divided between batches.

    ``GroupDataset(group_ids, X, y)`` makes batches that are tuples: ``for group_ids, xb, yb in loader``. A group is all
    rows of one id, adjacent or not, in their order; groups are numbered as they first appear. A batch of
    ``batch_size`` groups is

    - *concatenated*: ``group_ids``, ``[rows]``, and the arrays, ``[rows, ...]``, one group after the other;
    - *padded* (``layout="padded"``): ``group_ids``, ``[groups]``, the arrays, ``[groups, rows, ...]``, with padding
      after the rows of each group, and last a boolean ``mask``, ``[groups, rows]``, True at rows and False at padding.

    With named arrays a batch is a dict, and a concatenated one also holds ``offsets`` (int64, ``[groups + 1]``): group
    ``k`` of the batch is the rows ``offsets[k]`` to ``offsets[k + 1]``. The extras of batches (``extras=`` of a loader)
    are ``mask``, and in dicts ``group_ids`` and ``offsets``.

    Rules count rows: ``TokenBudget(500)`` makes batches of at most 500 rows (including padding),
    ``Packing`` fills them, ``LengthBuckets`` brings groups of similar size together, and ``CostOptimal`` finds padded
    batches of the least cost.

    Arrays are anything that :class:`batchloom.TensorDataset` takes, and borrowed as there; sparse arrays of scipy are
    made dense once.

    Args:
        group_ids: The id of each row: integers of any width, or texts; NumPy, torch, JAX, Arrow, a pandas Series, a
            list. For texts, batches hold the numbers of their groups as int64; ``ids`` holds the text of each number.
        arrays: Arrays with as many rows.
        layout: ``"concatenated"`` or ``"padded"``.
        max_rows: The most rows of a group that a batch holds; ``None`` for all.
        oversize: Treatment of groups longer than ``max_rows``: ``"error"``; ``"truncate"`` takes their first rows;
            ``"subsample"`` takes random rows, in order, others in each epoch: a function of seed, epoch and group.
        shuffle_rows: If ``True``, the rows of a group are in another order in each epoch: a function of seed, epoch and
            group. The order of groups is up to the loader. With ``"truncate"``, the first rows are shuffled.
        named: Arrays by name.

    Raises:
        ArgumentError: Arrays with and without names are mixed, or a name is one that batches use themselves.
        DataError: Ids and arrays of different lengths; an id that is missing; a group longer than ``max_rows``.
        DTypeError: Ids that are neither integers nor texts; an element type that cannot be moved as bytes.
        DeviceError: An array that is neither on the CPU nor of torch.
    """

    _samples: GroupSamples

    @overload
    def __init__(
        self: GroupDataset[Tuples],
        group_ids: Any,
        /,
        *arrays: Any,
        layout: str = "concatenated",
        max_rows: int | None = None,
        oversize: str = "error",
        shuffle_rows: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: GroupDataset[Dicts],
        group_ids: Any,
        /,
        *,
        layout: str = "concatenated",
        max_rows: int | None = None,
        oversize: str = "error",
        shuffle_rows: bool = False,
        **named: Any,
    ) -> None: ...
    def __init__(
        self,
        group_ids: Any,
        /,
        *arrays: Any,
        layout: str = "concatenated",
        max_rows: int | None = None,
        oversize: str = "error",
        shuffle_rows: bool = False,
        **named: Any,
    ) -> None:
        if arrays and named:
            raise ArgumentError("arrays with and without names are mixed; expected all of one kind")
        for name in named:
            if name in (IDS, OFFSETS, MASK):
                raise ArgumentError(f"an array is named {name}, which batches use themselves; expected another name")
        options: dict[str, Any] = {
            "layout": choice("layout", layout, ("concatenated", "padded")),
            "max_rows": None if max_rows is None else integer("max_rows", max_rows, least=1, most=U32),
            "oversize": choice("oversize", oversize, ("error", "truncate", "subsample")),
            "shuffle_rows": boolean("shuffle_rows", shuffle_rows),
        }
        self._samples = GroupSamples(group_ids, named or list(arrays), options)

    @property
    def sizes(self) -> Sizes:
        """The rows that batches take of each group: plans sort, count and budget by them."""
        return self._samples.sizes()

    @property
    def offsets(self) -> Array:
        """The beginning of each group when rows are in the order of groups, and the end of the last one; int64."""
        return self._samples.offsets

    @property
    def ids(self) -> list[Any] | None:
        """The text of each group; ``None`` if ids are integers."""
        return self._samples.names

    @property
    def layout(self) -> str:
        """``"concatenated"`` or ``"padded"``."""
        return str(self._samples.options["layout"])

    @property
    def max_rows(self) -> int | None:
        """The most rows of a group that a batch holds; ``None`` for all."""
        most: int | None = self._samples.options["max_rows"]
        return most

    @property
    def oversize(self) -> str:
        """The treatment of longer groups: ``"error"``, ``"truncate"`` or ``"subsample"``."""
        return str(self._samples.options["oversize"])

    @property
    def shuffle_rows(self) -> bool:
        """``True`` if the rows of a group are in another order in each epoch."""
        return bool(self._samples.options["shuffle_rows"])

    @property
    def fields(self) -> tuple[Any, ...]:
        """The arrays, as they were given."""
        return tuple(field.array for field in self._samples.fields)

    def stats(self) -> GroupStats:
        """Return the counts of groups, and of the rows that ``max_rows`` leaves out."""
        return self._samples.stats()

    def __repr__(self) -> str:
        fields = ", ".join(map(repr, self._samples.fields))
        return f"GroupDataset({fields}; {many(self.stats().rows, 'row')} in {len(self)} groups)"


class GroupSamples(StoredSamples):
    """Groups of rows that belong together.

    Attributes:
        names: The text of each group; ``None`` if ids are integers.
        fields: The arrays.
        ids: The id of each row; of each group, where batches are padded.
        offsets: The beginning of each group when rows are in the order of groups, and the end of the last one; int64.
        order: The rows in the order of groups; ``None`` where they are in that order.
        places: The same as a field, which may move to a device.
        options: The layout of batches, and the treatment of long groups, by name.
        is_padded: ``True`` if batches are padded, ``False`` if they are concatenated.

    Args:
        group_ids: The id of each row.
        arrays: Arrays with as many rows: by name, or in order.
        options: The layout of batches, and the treatment of long groups.
    """

    def __init__(self, group_ids: Any, arrays: dict[str, Any] | list[Any], options: dict[str, Any]) -> None:
        self.options, self._named = options, isinstance(arrays, dict)
        ids, self.names = _ids(group_ids)
        self._group_ids = ids if self.names is None else numpy.array(self.names, object)[ids]
        # In a tuple, the ids come first.
        labelled = arrays if isinstance(arrays, dict) else {str(place): each for place, each in enumerate(arrays, 1)}
        self.fields = tuple(borrow_field(label, _to_dense(label, array)) for label, array in labelled.items())
        self._set_up(ids)

    def _set_up(self, ids: Any) -> None:
        """Find the groups, and set up the fields of batches, ids first."""
        codes = numpy.ascontiguousarray(_to_numpy(ids), numpy.int64)
        self._groups = groups = _native.Groups(_native.borrow(codes, IDS))
        self.offsets = _read_only(groups.offsets())
        order = groups.order()
        self.order = None if order is None else _read_only(order)
        self.places = None if self.order is None else BorrowedArray("order", self.order)
        self.is_padded = padded = self.options["layout"] == "padded"
        if padded and not self.fields:
            raise DataError('the dataset has no arrays, and layout is "padded"; expected at least one array to pad')
        if padded:
            firsts = self.offsets[:-1]
            ids = _rows(ids, firsts if self.order is None else self.order[firsts])
        self.ids = BorrowedArray(IDS, ids)
        fields = [(IDS, self.ids.tensor, padded), *((field.label, field.tensor, False) for field in self.fields)]
        given = self.options
        options = (given["layout"], given["max_rows"], given["oversize"], given["shuffle_rows"])
        self._engine = groups.dataset(fields, *options, self._named)
        beside = (self.ids,) if self.fields else ()
        beside = beside if self.places is None else (*beside, self.places)
        self.location = Location(self.fields or (self.ids,), beside)

    @override
    def whole_len(self) -> int:
        return len(self.offsets) - 1

    @override
    def sizes(self) -> Sizes:
        return read_sizes(self._engine.sizes())

    def sample(self, sample: int) -> Any:
        """Return all rows of one group: its id and the arrays as a tuple, or as a dict if they are named."""
        group = self.row(sample)
        places = slice(*self.offsets[group : group + 2].tolist())
        rows = places if self.order is None else self.order[places]
        arrays = [self.ids.row(group) if self.is_padded else _rows(self.ids.array, rows)]
        arrays += [_rows(field.array, rows) for field in self.fields]
        return (
            dict(zip((IDS, *(field.label for field in self.fields)), arrays, strict=True))
            if self._named
            else tuple(arrays)
        )

    def stats(self) -> GroupStats:
        """Return the counts of groups, and of the rows that an epoch leaves out."""
        return GroupStats(*self._groups.counts(self.options["max_rows"], self.selection))

    @override
    def narrow(self, selection: _native.Selection) -> None:
        self._engine = self._engine.select(selection)

    @override
    def recipe(self) -> Recipe:
        arrays = {field.label: field.array for field in self.fields}
        return _rebuild, (self._group_ids, arrays, self._named, self.options)

    @override
    def engine(self) -> _native.Dataset:
        return self._engine

    @override
    def list_extras(self, rule: Rule) -> list[str]:
        # In a dict, ids are an array that no name was given for; in a tuple, other fields have their places by them.
        return [*([IDS] if self._named else []), *super().list_extras(rule)]

    @override
    def padded_fields(self) -> Mapping[str, str]:
        return {field.label: field.dtype for field in self.fields}

    @override
    def schema(self, columns: Columns) -> Schema:
        known = {field.label: field for field in (self.ids, *self.fields)}
        first = self.location.arrays[0]
        with_frameworks = (Column(name, dtype, known.get(name, first).framework) for name, dtype in columns)
        nested = self.extras.nested(columns)
        return Schema(tuple(with_frameworks), named=self._named, ragged=True, nested=nested)

    @override
    def device_data(self) -> DeviceData:
        return GroupsOnDevice(self)


class GroupsOnDevice(SamplesOnDevice[GroupSamples]):
    """Groups of rows on a device, which are gathered row by row."""

    def __init__(self, samples: GroupSamples) -> None:
        super().__init__(samples)
        self.element_bytes = sum(field.row_bytes for field in samples.location.arrays)

    @property
    @override
    def in_parts(self) -> frozenset[str]:
        return frozenset((IDS, *(field.label for field in self.samples.fields)))

    @override
    def row_ranges(self, first: int, end: int) -> list[RowRange]:
        from batchloom.device.shards import RowRange

        samples = self.samples
        first, end = samples.locate_run(first, end)
        start, stop = samples.offsets[[first, end]].tolist()
        ranges = [RowRange(field, start, stop, samples.order) for field in samples.fields]
        padded = RowRange(samples.ids, first, end)
        return [padded if samples.is_padded else RowRange(samples.ids, start, stop, samples.order), *ranges]

    @override
    def most_rows(self, samples: int) -> list[tuple[BorrowedArray, int]]:
        groups, rows = self.samples, longest(self.samples.offsets, samples)
        return [(groups.ids, samples if groups.is_padded else rows), *((field, rows) for field in groups.fields)]

    @override
    def collator(self, resident: Resident, options: CollateOptions) -> Collator:
        from batchloom.device.collate.gather import padding
        from batchloom.device.collate.ragged import Fixed, Ragged, ResidentVariable
        from batchloom.device.conversion import add_conversion

        samples = self.samples
        # Shards are moved in the order of their groups, so that only whole data needs the order.
        places = partial(resident.rows_of, samples.places) if samples.places is not None and resident.is_whole else None
        fields: dict[str, Fixed | ResidentVariable] = {
            field.label: ResidentVariable(
                add_conversion(options, field.label, partial(resident.rows_of, field)),
                (None,),
                padding(options, field.label, options.dtype(field.label, field.dtype)),
                places,
            )
            for field in samples.fields
        }
        ids = add_conversion(options, IDS, partial(resident.rows_of, samples.ids))
        fields = {IDS: Fixed(ids) if samples.is_padded else ResidentVariable(ids, (None,), 0, places)} | fields
        return Ragged(fields, options, not samples.is_padded)


def _ids(group_ids: Any) -> tuple[Any, list[Any] | None]:
    """Return ids as an array of integers, and the texts that they number, or ``None``."""
    group_ids = host(IDS, group_ids)
    if isinstance(group_ids, list | tuple):
        # An array of objects: in a list that mixes both, NumPy would turn numbers into texts.
        group_ids = numpy.fromiter(group_ids, object, len(group_ids))
    elif owner_name(group_ids) is None or is_masked(group_ids):
        group_ids = frames.to_numpy(group_ids, IDS)
    array = _to_numpy(group_ids)
    if array.ndim != 1:
        raise DataError(f"{IDS} have shape {array.shape}; expected one id for each row")
    if not len(array):
        raise DataError(f"{IDS} are empty; expected at least one row")
    if array.dtype.kind in "biu":
        return group_ids, None
    if array.dtype.kind in "US" and array.dtype.itemsize:
        codes, firsts = _text_ids(array.tobytes(), numpy.arange(len(array) + 1) * array.dtype.itemsize)
        return codes, array[firsts].tolist()
    array = array.astype(object) if array.dtype.kind in "UST" else array
    if array.dtype.kind == "O" and all(issubclass(kind, str) for kind in set(map(type, array))):
        return _number_texts(array)
    absent = frames.find_missing(array)
    if absent.any():
        raise DataError(f"row {int(absent.argmax())} has no id; expected one in every row")
    if array.dtype.kind == "O":
        are_numbers = all(isinstance(name, Real | numpy.bool) for name in array)
        return (_to_integers(array), None) if are_numbers else _number_texts(array)
    return _integers(array), None


def _to_integers(numbers: Array) -> Array:
    """Return whole numbers of any types as int64, or as uint64 if int64 is too small.

    Raises:
        DTypeError: A number is not whole, or too large.
    """
    for number in numbers:
        if number != number // 1:
            raise DTypeError(f"{IDS} hold {number!r}; expected integers or texts")
    for kind in (numpy.int64, numpy.uint64):
        try:
            return numpy.fromiter(map(int, numbers), kind, len(numbers))
        except OverflowError:
            continue
    raise DTypeError(f"{IDS} hold integers that neither int64 nor uint64 holds: {max(numbers, key=abs)!r}")


def _integers(numbers: Array) -> Array:
    """Return whole floats as int64.

    Raises:
        DTypeError: A number is not whole, or too large; or the values are not numbers.
    """
    if numbers.dtype.kind == "f" and (numbers == numpy.floor(numbers)).all():
        wide = numbers.astype(numpy.result_type(numbers, numpy.float64))
        if (abs(wide) < 2**63).all():
            return wide.astype(numpy.int64)
    raise DTypeError(f"{IDS} have type {numbers.dtype}; expected integers or texts")


def _number_texts(names: Array) -> tuple[Array, list[Any]]:
    """Return the numbers of texts in order of appearance, and the texts."""
    kinds = set(map(type, names))
    if not all(issubclass(kind, str | bytes) for kind in kinds):
        text = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise DTypeError(f"{IDS} hold {text}; expected integers alone, or texts alone")
    values, lengths = _join_texts(names, kinds)
    codes, firsts = _text_ids(values, numpy.concatenate([[0], numpy.cumsum(lengths)]))
    return codes, names[firsts].tolist()


def _join_texts(names: Array, kinds: set[type]) -> tuple[bytes, Array]:
    """Return the concatenated bytes of texts, and the number of bytes of each."""
    if all(issubclass(kind, str) for kind in kinds):
        # UTF-32 takes four bytes for every character.
        return "".join(names).encode("utf-32-le", "surrogatepass"), 4 * _lengths(names)
    if not all(issubclass(kind, bytes) for kind in kinds):
        # A first byte tells texts from bytes, so that a text never equals the bytes that encode it.
        texts = [
            b"b" + name if isinstance(name, bytes) else b"t" + name.encode("utf-8", "surrogatepass") for name in names
        ]
        return b"".join(texts), _lengths(texts)
    return b"".join(names), _lengths(names)


def _lengths(names: Sequence[Any] | Array) -> Array:
    return numpy.fromiter(map(len, names), numpy.int64, len(names))


def _text_ids(values: bytes, offsets: Array) -> tuple[Array, Array]:
    """Return the number of each text, in order of appearance, and the first place of each number."""
    codes, firsts = _native.text_ids(values, _native.borrow(offsets.astype(numpy.int64), IDS))
    return numpy.from_dlpack(codes), numpy.from_dlpack(firsts)


def _to_numpy(array: Any) -> Array:
    """Return an array of any framework as an array of NumPy, over the same memory if possible."""
    if isinstance(array, numpy.ndarray):
        return array
    tensor = BorrowedArray(IDS, array).tensor
    if "float8" in tensor.dtype or tensor.dtype == "bfloat16":
        raise DTypeError(f"{IDS} have type {tensor.dtype}; expected integers or texts")
    return numpy.from_dlpack(tensor)


def _to_dense(label: str, array: Any) -> Any:
    """Return the array of a field: a dense one for a sparse array of scipy."""
    if hasattr(array, "toarray") and hasattr(array, "nnz"):
        return array.toarray()
    return frames.as_array(label, array)


def _read_only(tensor: _native.Tensor) -> Array:
    array: Array = numpy.from_dlpack(tensor)
    array.setflags(write=False)
    return array


def _rows(array: Any, rows: Any) -> Any:
    """Return a copy of some rows of an array."""
    if isinstance(rows, numpy.ndarray) and hasattr(array, "index_select"):
        import torch

        places = torch.from_numpy(numpy.array(rows)).to(array.device)
        if array.dtype not in (torch.uint16, torch.uint32, torch.uint64):
            return array[places]
        # Older versions of torch index signed integers alone.
        signed = getattr(torch, str(array.dtype).removeprefix("torch.u"))
        return array.view(signed)[places].view(array.dtype)
    taken = array[rows]
    return taken if isinstance(rows, numpy.ndarray) else copy_array(taken, IDS)


def _rebuild(group_ids: Any, arrays: dict[str, Any], named: bool, options: dict[str, Any]) -> GroupSamples:
    return GroupSamples(group_ids, arrays if named else list(arrays.values()), options)
