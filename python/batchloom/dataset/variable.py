"""Fields of samples that differ in size: lists of arrays, values with offsets, Arrow lists, nested tensors."""

from __future__ import annotations

from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any

import batchloom._native as _native
import numpy
from batchloom.arguments import U32
from batchloom.arrays.chunked import ChunkedArray, borrow_field, join_chunks, over, read_array
from batchloom.arrays.field import host
from batchloom.arrays.frames import is_frame
from batchloom.arrays.frameworks import framework_of, is_arrow, load
from batchloom.arrays.inputs import read_plain
from batchloom.errors import ArgumentError, DataError, DeviceError, DTypeError, many
from batchloom.samples.sizes import copy_offsets

if TYPE_CHECKING:
    from batchloom.device.collate import ragged
    from batchloom.device.resident import Resident


class Variable:
    """One variable field: flat storage, and the offsets of samples in it.

    Attributes:
        values: The storage.
        offsets: The first row of each sample, and the end of the last one.
        shapes: The shape of each sample, where they differ in more than the first dimension; else ``None``.
        sequences: The field as the engine sees it.

    Args:
        label: The name of the field.
        values: The storage.
        offsets: The first row of each sample, and the end of the last one.
        shapes: The shape of each sample instead.
        dim: The dimension in which samples vary; ``None`` for those in which shapes differ.
        is_guessed: ``True`` if all samples have one shape of several dimensions, and offsets are those of the first.
    """

    def __init__(
        self,
        label: str,
        values: Any,
        *,
        offsets: Any = None,
        shapes: Any = None,
        dim: int | None = None,
        is_guessed: bool = False,
    ) -> None:
        self.values = borrow_field(label, values)
        self.offsets, self.shapes = offsets, shapes
        tensor = self.values.tensor
        if shapes is not None and isinstance(values, ChunkedArray):
            raise DataError(
                f"field {label} has shapes, and its values lie in {len(values.chunks)} chunks; expected one array of "
                "values, as numpy.concatenate makes it"
            )
        if shapes is None:
            self.sequences = _native.Sequences.from_offsets(label, tensor, _native.borrow(offsets, label), is_guessed)
        else:
            self.sequences = _native.Sequences.from_shapes(label, tensor, _native.borrow(shapes, label), dim)
            ends = numpy.cumsum(numpy.prod(shapes, axis=1, dtype=numpy.int64))
            self.offsets = numpy.concatenate([numpy.zeros(1, numpy.int64), ends])

    @property
    def framework(self) -> str:
        """The framework of the values."""
        return self.values.framework

    @property
    def dtype(self) -> str:
        """The type of the elements."""
        return self.values.dtype

    @property
    def data(self) -> Any:
        """The field, in a form that a dataset takes."""
        return self.values.array, self.offsets if self.shapes is None else self.shapes

    @property
    def dim(self) -> int | None:
        """The dimension in which samples vary; ``None`` if they vary in several, or in the first of rows."""
        varying = self.sequences.varying
        return varying[0] if self.shapes is not None and len(varying) == 1 else None

    def part(self, first: int, end: int) -> Any:
        """Return some samples, in a form that a dataset takes and pickles without the rest."""
        start, stop = int(self.offsets[first]), int(self.offsets[end])
        places = self.offsets[first : end + 1] - start if self.shapes is None else self.shapes[first:end]
        return self.values.part(start, stop), places

    def row(self, sample: int) -> Any:
        """Return one sample."""
        start, end = int(self.offsets[sample]), int(self.offsets[sample + 1])
        part = self.values.slice(start, end)
        return part if self.shapes is None else part.reshape(tuple(map(int, self.shapes[sample])))

    def on(self, resident: Resident, padding: float) -> ragged.ResidentVariable:
        """Return the field for a collator on a device."""
        from batchloom.device.collate import ragged

        inner, frame = self.sequences.shape[1:], tuple(self.sequences.frame)
        part = partial(resident.rows_of, self.values)
        return ragged.ResidentVariable(
            part if self.shapes is None else partial(resident.reshape_rows, self.values, inner), frame, padding
        )

    def __repr__(self) -> str:
        return f"{self.values.label}: {self.dtype} sequences"


def is_variable(data: Any) -> bool:
    """Return whether samples of ``data`` differ in size."""
    if isinstance(data, list):
        return not data or not isinstance(data[0], Number)
    if isinstance(data, tuple) and len(data) == 2:
        return True
    if getattr(data, "is_nested", False):
        return True
    return is_arrow(data) and not is_frame(data) and not _native.are_numbers(data)


def variable(label: str, data: Any, dim: int | None = None) -> Variable:
    """Return the variable field that ``data`` stands for.

    Args:
        label: The name of the field.
        data: The samples.
        dim: The dimension in which they vary; ``None`` for those in which they differ.
    """
    if isinstance(data, list):
        return _from_list(label, data, dim)
    if dim is not None and not (isinstance(data, tuple) and len(getattr(data[1], "shape", ())) == 2):
        if dim == 0:
            return variable(label, data)
        raise ArgumentError(
            f"dim is {dim} for field {label}, whose samples are rows of one array; expected a list of arrays, or "
            "(values, shapes)"
        )
    if getattr(data, "is_nested", False):
        return _from_nested(label, data)
    if not isinstance(data, tuple):
        values, offsets = _native.borrow_lists(data, label)
        return Variable(label, over(values), offsets=numpy.from_dlpack(offsets))
    values, places = read_array(label, data[0]), data[1]
    places = join_chunks(read_array(label, places)) if is_arrow(places) else places
    places = read_plain(f"field {label}", places, "offsets that are an array", DataError)
    if places.dtype.kind not in "iu" or places.ndim not in (1, 2):
        raise DataError(
            f"field {label} has offsets of type {places.dtype} and shape {places.shape}; expected integers: offsets "
            "[samples + 1], or shapes [samples, rank]"
        )
    if places.ndim == 2:
        return _with_shapes(label, values, places, dim)
    if len(places) < 1:
        raise DataError(f"field {label} has no offsets; expected one more than there are samples")
    return Variable(label, values, offsets=copy_offsets(f"field {label}", places))


def _with_shapes(label: str, values: Any, shapes: Any, dim: int | None = None) -> Variable:
    wrong = (shapes < 0) | (shapes > U32)
    if wrong.any():
        sample = int(wrong.any(axis=1).argmax())
        raise DataError(
            f"field {label}: sample {sample} has shape {shapes[sample].tolist()}; expected lengths from 0 to 2**32 - 1"
        )
    rank = shapes.shape[1]
    if dim is not None and not -rank <= dim < rank:
        raise ArgumentError(
            f"dim is {dim} for field {label}, and its samples have {many(rank, 'dimension')}; expected -{rank} to "
            f"{rank - 1}"
        )
    dim = None if dim is None else dim % rank
    return Variable(label, values, shapes=numpy.array(shapes, numpy.uint32, order="C"), dim=dim)


def _from_nested(label: str, data: Any) -> Variable:
    import torch

    if data.layout == torch.jagged and data.lengths() is None and getattr(data, "_ragged_idx", 1) == 1:
        offsets = host(f"field {label}", data.offsets()).numpy()
        return Variable(label, data.values().detach(), offsets=offsets.astype(numpy.int64))
    return _from_list(label, list(data.detach().unbind()))


def _from_list(label: str, samples: list[Any], dim: int | None = None) -> Variable:
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
    if dim in (None, 0, -first.ndim) and (shapes[:, 1:] == shapes[0, 1:]).all():
        offsets = numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(shapes[:, 0])])
        is_guessed = dim is None and first.ndim > 1 and bool((shapes[:, 0] == shapes[0, 0]).all())
        return Variable(label, _concatenate(label, arrays), offsets=offsets, is_guessed=is_guessed)
    return _with_shapes(label, _concatenate(label, [array.reshape(-1) for array in arrays]), shapes, dim)


def _array(label: str, place: int, sample: Any) -> Any:
    """Return a sample as an array of at least one dimension; ``None`` for an empty list."""
    if isinstance(sample, list | tuple):
        if not sample:
            return None
        try:
            sample = numpy.asarray(sample)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(f"field {label}: sample {place} is not an array of numbers: {error}") from None
        if sample.dtype.kind not in "biufc":
            raise DTypeError(f"field {label}: sample {place} holds {sample.dtype}; expected numbers")
    if not (hasattr(sample, "__dlpack__") and hasattr(sample, "dtype") and hasattr(sample, "shape")):
        if sample is None or (isinstance(sample, Number) and not isinstance(sample, numpy.generic)):
            raise DataError(
                f"field {label}: sample {place} is a {type(sample).__name__}; expected an array or a list of numbers "
                "(for one number a sample, give an array: numpy.asarray makes one)"
            )
        sample = join_chunks(read_array(f"{label}: sample {place}", sample))
    if sample.ndim == 0:
        raise DataError(f"field {label}: sample {place} is a scalar; expected at least one dimension")
    return sample


def _concatenate(label: str, arrays: list[Any]) -> Any:
    """Concatenate arrays of one framework."""
    framework = load(framework_of(label, arrays[0]))
    first = framework.device_of(arrays[0])
    for place, array in enumerate(arrays):
        device = framework.device_of(array)
        if device != first:
            raise DeviceError(
                f"field {label}: sample {place} is on {device or 'cpu'}, sample 0 on {first or 'cpu'}; expected all on "
                "one device: move them with .to()"
            )
    return framework.concatenate([framework.to_plain(array) for array in arrays])
