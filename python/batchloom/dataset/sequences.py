"""Samples that differ in size: sequences of any length, arrays of any extents."""

from __future__ import annotations

import operator
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
import numpy
from batchloom.arguments import U32
from batchloom.arrays.field import Field, host
from batchloom.arrays.frameworks import framework_of
from batchloom.arrays.padding import pad_values
from batchloom.batch import BOUNDARIES, Column, Columns, Schema
from batchloom.dataset.base import Dataset
from batchloom.errors import ArgumentError, DataError, DeviceError, DTypeError, RangeError
from batchloom.sizes import Sizes, checked, longest, read

if TYPE_CHECKING:
    from batchloom.batch import CollateOptions
    from batchloom.device.collate import ragged
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident
    from batchloom.device.shards import RowRange

EXTRA = ("attention_mask", "lengths", "cu_seqlens", "max_seqlen", "position_ids", "segment_ids", "index")


class SequenceDataset(Dataset):
    """Sequences of any length, and whatever belongs to each.

    A variable field, one whose samples differ in size, is one of

    - a list of arrays (NumPy, torch or JAX, of one element type) or of lists of numbers: concatenated once, so that
      a million sequences are two arrays and not a million objects;
    - a tuple ``(values, offsets)``: sample ``k`` is ``values[offsets[k]:offsets[k + 1]]``;
    - a tuple ``(values, shapes)`` with flat values and shapes ``[samples, rank]``, for samples of any rank;
    - an Arrow array of lists: pyarrow, polars, pandas, or anything else with the Arrow PyCapsule interface;
    - a nested torch tensor.

    Lists are copied once, and so is what has no simple layout (Arrow arrays in several chunks or of booleans, nested
    tensors other than jagged ones); all else is borrowed. Samples may differ in any of their dimensions: a spectrogram
    ``[80, time]`` in the second, an image ``[height, width, 3]`` in two. The size of a sample is the product of its
    lengths in these. All variable fields (tokens, masks, labels of tokens) share their sizes, sample by sample.

    A fixed field is an array ``[samples, ...]``, as for :class:`batchloom.TensorDataset`.

    What a batch holds follows from the rule:

    - *padded* (all rules but ``Packing``): a dict of the fields, variable ones ``[samples, length, ...]``, plus
      ``attention_mask`` (bool, ``[samples, length]``: where there is data), ``lengths`` and ``index`` (int64,
      ``[samples]``).
    - *packed* (``Packing``): a dict of the fields, variable ones concatenated ``[elements, ...]``, plus
      ``cu_seqlens`` (int32, ``[samples + 1]``, begins with 0), ``max_seqlen`` (an int), ``position_ids`` (int64) and
      ``segment_ids`` (int32, from 0), both ``[elements]``, and ``index`` (int64, ``[samples]``).

    The samples of a batch come longest first, but in order with ``FixedSize``; ``index`` says which they are.

    Args:
        fields: The fields by name.
        sizes: Numbers to sort, count and budget by in place of the sizes, one for each sample.

    Raises:
        ArgumentError: A name that batches use themselves.
        DataError: Fields that disagree, the message names the sample; offsets that decrease or leave the values;
            nulls; no variable field.
        DTypeError: An element type that cannot be moved as bytes; lists of arrays of several types.
        DeviceError: An array on another device than the CPU that is not of torch.
    """

    def __init__(self, /, *, sizes: Any = None, **fields: Any) -> None:
        if not fields:
            raise DataError("the dataset has no fields; expected at least one sequence field, by name")
        for name in fields:
            if name in EXTRA:
                raise ArgumentError(f"a field is named {name}, which batches use themselves; expected another name")
        self._own = None if sizes is None else numpy.array(checked(sizes, "sizes"))
        self._fields: dict[str, Variable | Field] = {
            name: variable(name, data) if is_variable(data) else Field(name, _fixed(data))
            for name, data in fields.items()
        }
        native = [(name, field._native()) for name, field in self._fields.items()]
        own = None if self._own is None else _native.borrow(self._own, "sizes")
        self._engine = _native.Dataset.sequences(native, own)
        self._sizes = read(self._engine.sizes())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields."""
        return tuple(self._fields)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields: fixed ones as they were given, variable ones as ``(values, offsets)`` or ``(values, shapes)``."""
        return {name: field.data for name, field in self._fields.items()}

    @property
    def sizes(self) -> Sizes:
        """What plans sort, count and budget by: the size of each sample, or what was given as ``sizes``."""
        return self._sizes

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._engine)

    def __getitem__(self, sample: int) -> dict[str, Any]:
        """Return one sample: a dict of arrays, views of the fields."""
        sample = operator.index(sample)
        if not -len(self) <= sample < len(self):
            raise RangeError(f"sample {sample} is outside the dataset; expected 0 <= sample < {len(self)}")
        return {name: field.row(sample % len(self)) for name, field in self._fields.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields, self._own)

    def __repr__(self) -> str:
        fields = ", ".join(repr(field) for field in self._fields.values())
        return f"SequenceDataset({fields}; {len(self)} samples)"

    def _native_dataset(self) -> _native.Dataset:
        return self._engine

    def _pad_values(self, pad_value: Any) -> list[tuple[str, bytes]]:
        variable = {name: field.dtype for name, field in self._fields.items() if isinstance(field, Variable)}
        return pad_values(variable, pad_value)

    def _arrays(self) -> tuple[Field, ...]:
        return tuple(field.values if isinstance(field, Variable) else field for field in self._fields.values())

    def _labels(self, labels: str | None) -> str | None:
        if labels is not None and not isinstance(labels, str):
            raise ArgumentError(f"labels is {labels!r}; expected None or the name of a field")
        return labels

    def _element_bytes(self) -> int:
        return sum(field.values.row_bytes for field in self._fields.values() if isinstance(field, Variable))

    def _row_ranges(self, first: int, end: int) -> list[RowRange]:
        from batchloom.device.shards import RowRange

        def row_range(field: Variable | Field) -> RowRange:
            if isinstance(field, Field):
                return RowRange(field, first, end)
            return RowRange(field.values, int(field.offsets[first]), int(field.offsets[end]))

        return [row_range(field) for field in self._fields.values()]

    def _most_rows(self, samples: int) -> list[tuple[Field, int]]:
        def most(field: Variable | Field) -> tuple[Field, int]:
            if isinstance(field, Field):
                return field, samples
            return field.values, longest(field.offsets, samples)

        return [most(field) for field in self._fields.values()]

    def _schema(self, columns: Columns) -> Schema:
        first = next(field for field in self._fields.values() if isinstance(field, Variable))
        found = (Column(name, dtype, self._fields.get(name, first).framework) for name, dtype in columns)
        return Schema(tuple(found), named=True, ragged=True)

    def _collator(self, resident: Resident, options: CollateOptions) -> Collator:
        from batchloom.device.collate import ragged

        fields: dict[str, ragged.Fixed | ragged.Variable] = {}
        for name, field in self._fields.items():
            if isinstance(field, Variable):
                fields[name] = field._on(resident, ragged.padding(options, name, field.dtype))
            else:
                fields[name] = ragged.Fixed(partial(resident.rows_of, field))
        return ragged.Ragged(fields, options, BOUNDARIES in options.names)


class Variable:
    """One variable field: flat storage, and where each sample lies in it.

    Attributes:
        values: The storage.
        offsets: Where each sample begins in it, and the last one ends.
        shapes: The shape of each sample, where they differ in more than the first dimension; else ``None``.
    """

    def __init__(self, label: str, values: Any, *, offsets: Any = None, shapes: Any = None) -> None:
        self.values = Field(label, values)
        self.offsets, self.shapes = offsets, shapes
        tensor = self.values.tensor
        if shapes is None:
            self._sequences = _native.Sequences.from_offsets(label, tensor, _native.borrow(offsets, label))
        else:
            self._sequences = _native.Sequences.from_shapes(label, tensor, _native.borrow(shapes, label))
            ends = numpy.cumsum(numpy.prod(shapes, axis=1, dtype=numpy.int64))
            self.offsets = numpy.concatenate([numpy.zeros(1, numpy.int64), ends])

    @property
    def framework(self) -> str:
        """What the values came in."""
        return self.values.framework

    @property
    def dtype(self) -> str:
        """The element's type."""
        return self.values.dtype

    @property
    def data(self) -> Any:
        """The field in a form that makes it again."""
        return self.values.array, self.offsets if self.shapes is None else self.shapes

    def row(self, sample: int) -> Any:
        """Return one sample."""
        start, end = int(self.offsets[sample]), int(self.offsets[sample + 1])
        part = self.values.slice(start, end)
        return part if self.shapes is None else part.reshape(tuple(map(int, self.shapes[sample])))

    def _native(self) -> _native.Sequences:
        return self._sequences

    def _on(self, resident: Resident, padding: float) -> ragged.Variable:
        """The field on a device."""
        from batchloom.device.collate import ragged

        inner, frame = self._sequences.shape[1:], tuple(self._sequences.frame)
        part = partial(resident.rows_of, self.values)
        return ragged.Variable(
            part if self.shapes is None else partial(resident.shaped, self.values, inner), frame, padding
        )

    def __repr__(self) -> str:
        return f"{self.values.label}: {self.dtype} sequences"


def is_variable(data: Any) -> bool:
    """Whether samples of ``data`` differ in size."""
    if isinstance(data, list) or (isinstance(data, tuple) and len(data) == 2):
        return True
    if getattr(data, "is_nested", False):
        return True
    return is_arrow(data) and not _native.are_numbers(data)


def _fixed(data: Any) -> Any:
    """Return the array of a fixed field; a column of numbers without DLPack, such as a pandas Series, by NumPy."""
    return numpy.asarray(data) if is_arrow(data) and not hasattr(data, "__dlpack__") else data


def variable(label: str, data: Any) -> Variable:
    """Return the variable field that ``data`` stands for."""
    if isinstance(data, list):
        return _from_list(label, data)
    if getattr(data, "is_nested", False):
        return _from_nested(label, data)
    if not isinstance(data, tuple):
        values, offsets = _native.borrow_lists(data, label)
        return Variable(label, numpy.from_dlpack(values), offsets=numpy.from_dlpack(offsets))
    values, places = data
    try:
        places = numpy.asarray(host(f"field {label}", places))
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"field {label} has offsets that are no array: {error}") from None
    if places.dtype.kind not in "iu" or places.ndim not in (1, 2):
        raise DataError(
            f"field {label} has offsets of type {places.dtype} and shape {places.shape}; expected integers: offsets "
            "[samples + 1], or shapes [samples, rank]"
        )
    if places.ndim == 2:
        return _with_shapes(label, values, places)
    if len(places) < 1:
        raise DataError(f"field {label} has no offsets; expected one more than there are samples")
    return Variable(label, values, offsets=places.astype(numpy.int64))


def _with_shapes(label: str, values: Any, shapes: Any) -> Variable:
    wrong = (shapes < 0) | (shapes > U32)
    if wrong.any():
        sample = int(wrong.any(axis=1).argmax())
        raise DataError(
            f"field {label}: sample {sample} has shape {shapes[sample].tolist()}; expected lengths from 0 to 2**32 - 1"
        )
    return Variable(label, values, shapes=numpy.array(shapes, numpy.uint32, order="C"))


def _from_nested(label: str, data: Any) -> Variable:
    import torch

    if data.layout == torch.jagged and data.lengths() is None and getattr(data, "_ragged_idx", 1) == 1:
        offsets = host(f"field {label}", data.offsets()).numpy()
        return Variable(label, data.values().detach(), offsets=offsets.astype(numpy.int64))
    return _from_list(label, list(data.detach().unbind()))


def _from_list(label: str, samples: list[Any]) -> Variable:
    if not samples:
        raise DataError(f"field {label} is an empty list; expected at least one sample")
    arrays = [_array(label, place, sample) for place, sample in enumerate(samples)]
    first = next((array for array in arrays if array is not None), numpy.zeros(0, numpy.int64))
    if any(array is None for array in arrays):
        # A list without numbers is of whatever type and rank the others are.
        empty = numpy.zeros((0, *first.shape[1:]), first.dtype)
        arrays = [empty if array is None else array for array in arrays]
    framework = framework_of(label, first)
    for place, array in enumerate(arrays):
        same = type(array) is type(first) or framework_of(label, array) == framework
        if not same or array.dtype != first.dtype:
            raise DTypeError(
                f"field {label}: sample {place} is a {type(array).__name__} of {array.dtype}, sample 0 a "
                f"{type(first).__name__} of {first.dtype}; expected the same"
            )
        if array.ndim != first.ndim:
            raise DataError(
                f"field {label}: sample {place} has {array.ndim} dimensions, sample 0 has {first.ndim}; "
                "expected the same"
            )
    shapes = numpy.array([array.shape for array in arrays], dtype=numpy.int64)
    if (shapes[:, 1:] == shapes[0, 1:]).all():
        offsets = numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(shapes[:, 0])])
        return Variable(label, _concatenated(label, arrays), offsets=offsets)
    return _with_shapes(label, _concatenated(label, [array.reshape(-1) for array in arrays]), shapes)


def _array(label: str, place: int, sample: Any) -> Any:
    """Return a sample as an array of at least one dimension; ``None`` for an empty list."""
    if isinstance(sample, list | tuple):
        if not sample:
            return None
        try:
            sample = numpy.asarray(sample)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"field {label}: sample {place} is no array of numbers: {error}") from None
        if sample.dtype.kind not in "biufc":
            raise DTypeError(f"field {label}: sample {place} holds {sample.dtype}; expected numbers")
    if not hasattr(sample, "__dlpack__") and hasattr(sample, "__array__"):
        sample = numpy.asarray(sample)
    if not hasattr(sample, "dtype") or not hasattr(sample, "shape"):
        raise DataError(
            f"field {label}: sample {place} is a {type(sample).__name__}; expected an array or a list of numbers "
            "(for one number a sample, give an array: numpy.asarray makes one)"
        )
    if sample.ndim == 0:
        raise DataError(f"field {label}: sample {place} is a scalar; expected at least one dimension")
    return sample


def _concatenated(label: str, arrays: list[Any]) -> Any:
    """Return arrays of one framework as one of them."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(arrays[0], torch.Tensor):
        for place, array in enumerate(arrays):
            if array.device != arrays[0].device:
                raise DeviceError(
                    f"field {label}: sample {place} is on {array.device}, sample 0 on {arrays[0].device}; expected all "
                    "on one device: move them with .to()"
                )
        return torch.cat([array.detach() for array in arrays])
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(arrays[0], jax.Array):
        return jax.numpy.concatenate(arrays)
    return numpy.concatenate(arrays)


def is_arrow(data: Any) -> bool:
    """Whether ``data`` has the Arrow PyCapsule interface."""
    return hasattr(data, "__arrow_c_array__") or hasattr(data, "__arrow_c_stream__")


def _rebuild(kind: type[SequenceDataset], fields: dict[str, Any], sizes: Any) -> SequenceDataset:
    return kind(sizes=sizes, **fields)
