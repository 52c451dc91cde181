"""Slots: the way from a sample of any shape to its place in a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy
from batchloom.arguments import PAD_SIDE, PadSide, choice, integer
from batchloom.arrays.dtypes import dtype_name
from batchloom.collate.generators import make_slot_generator, takes_rng
from batchloom.errors import ArgumentError, SampleError

Keep = Literal["start", "center", "end", "random"]
KEEP = ("start", "center", "end", "random")
Filter = Literal["nearest", "bilinear", "bicubic"]
FILTER = ("nearest", "bilinear", "bicubic")
Channels = Literal["first", "last"]
CHANNELS = ("first", "last")


class SlotWay(ABC):
    """The way from a sample to its slot in a batch, the ``slot`` of a :class:`batchloom.Field`."""

    def for_engine(self, field: str) -> FieldSlot:
        """Return the slot of a field as the engine takes it."""
        return field, self._text(field), self._function(field)

    @abstractmethod
    def _text(self, field: str) -> str:
        """Return the slot of a field as the engine reads it."""

    def _function(self, field: str) -> SlotFunction | None:
        """Return the function that fills the slots of a field; ``None`` if the engine does."""
        return None


@dataclass(frozen=True)
class Pad(SlotWay):
    """Pads samples to the largest extent of the batch, in each dimension; or their first dimension to given lengths.

        loader = bl.DataLoader(dataset, batch_size=8, fields={"audio": bl.Field(slot=bl.Pad(multiple_of=160))})

    Attributes:
        multiple_of: The number that the first padded extent is a multiple of; several for the first dimensions.
        side: ``"right"`` for padding after the data, ``"left"`` for padding before it.
        to: The length that the first dimension is padded to, or several lengths: each batch takes the smallest that
            holds its samples; a longer sample is an error. ``None`` for the largest extent of the batch.

    Raises:
        ArgumentError: A number is not at least 1, or there is no such side.
    """

    multiple_of: int | Sequence[int] = 1
    side: PadSide = "right"
    to: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        _numbers("multiple_of", self.multiple_of)
        choice("side", self.side, PAD_SIDE)
        if self.to is not None and not _numbers("to", self.to):
            raise ArgumentError("to is empty; expected at least one length, as in to=[64, 128]")

    def _text(self, field: str) -> str:
        to = [] if self.to is None else _numbers("to", self.to)
        options = {"multiple_of": _numbers("multiple_of", self.multiple_of), "side": self.side.capitalize()}
        return _as_json({"Pad": options | ({"to": to} if to else {})})


def _numbers(name: str, given: int | Sequence[int]) -> list[int]:
    """Return one number or several as a list."""
    numbers = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return [integer(name, number, least=1, most=2**62) for number in numbers]


class Crop(SlotWay):
    """Cuts samples to a shape, and pads those that are smaller.

        loader = bl.DataLoader(dataset, batch_size=8, fields={"image": bl.Field(slot=bl.Crop(224, 224))})

    Args:
        shape: The extents of the first dimensions; further ones stay as they are, and samples may not differ in them.
        keep: The part that is kept of a sample that is larger: ``"start"``, ``"center"``, ``"end"``, or ``"random"``
            for a part that the seed, the epoch and the sample decide: another one in each epoch, and the same part of
            all fields of a sample that have its extents, as of an image and its mask. A smaller sample lies at the same
            place of its slot, with ``"random"`` at the start.

    Raises:
        ArgumentError: There are no extents, one is not at least 1, or there is no such part.
    """

    def __init__(self, *shape: int, keep: Keep = "center") -> None:
        if not shape:
            raise ArgumentError("Crop() has no extents; expected at least one, as in Crop(224, 224)")
        self.shape = tuple(integer("shape", extent, least=1, most=2**62) for extent in shape)
        self.keep = choice("keep", keep, KEEP)

    def __repr__(self) -> str:
        return f"Crop({', '.join(map(str, self.shape))}, keep={self.keep!r})"

    def _text(self, field: str) -> str:
        return _as_json({"Crop": {"shape": self.shape, "keep": self.keep.capitalize()}})


class Resize(SlotWay):
    """Resizes images to one size.

        image = bl.Field(slot=bl.Resize(224, 224, to="first"))
        loader = bl.DataLoader(dataset, batch_size=8, fields={"image": image})

    Images are of uint8 or float32. Their shape is ``[height, width]``, or has 1 to 4 channels besides. Each channel is
    resized by itself: a fourth one is no opacity. Nearly all bytes are within one level of Pillow's, the others within
    two, except where ``"bicubic"`` is cut off at 0 or 255. Their type stays; ``dtype``, ``scale``, ``mean`` and
    ``std`` of the field apply afterwards.

    Args:
        height: The height of images in a batch.
        width: The width of images in a batch.
        filter: ``"nearest"`` for the nearest pixel, ``"bilinear"`` for a mean of neighbours, or ``"bicubic"`` for a
            cubic curve through more of them, which may go beyond the values of the image.
        antialias: ``True`` for a filter that grows with the scale, so that all pixels count where images become
            smaller, as in Pillow. ``False`` for one that does not, as in OpenCV.
        channels: The dimension of channels in samples: ``"last"`` for ``[height, width, channels]``, ``"first"`` for
            ``[channels, height, width]``.
        to: The dimension of channels in batches: ``"last"`` or ``"first"``; ``None`` to keep the dimension of samples.

    Raises:
        ArgumentError: A number is not at least 1, there is no such filter or dimension, or ``antialias`` is no bool.
    """

    def __init__(
        self,
        height: int,
        width: int,
        *,
        filter: Filter = "bilinear",
        antialias: bool = True,
        channels: Channels = "last",
        to: Channels | None = None,
    ) -> None:
        self.height = integer("height", height, least=1, most=2**31 - 1)
        self.width = integer("width", width, least=1, most=2**31 - 1)
        self.filter = choice("filter", filter, FILTER)
        if not isinstance(antialias, bool):
            raise ArgumentError(f"antialias is {antialias!r}; expected True or False")
        self.antialias = antialias
        self.channels = choice("channels", channels, CHANNELS)
        self.to = self.channels if to is None else choice("to", to, CHANNELS)

    def __repr__(self) -> str:
        return (
            f"Resize({self.height}, {self.width}, filter={self.filter!r}, antialias={self.antialias}, "
            f"channels={self.channels!r}, to={self.to!r})"
        )

    def _text(self, field: str) -> str:
        names = {name: getattr(self, name).capitalize() for name in ("filter", "channels", "to")}
        return _as_json({"Resize": {"height": self.height, "width": self.width, "antialias": self.antialias, **names}})


@dataclass(frozen=True)
class Stack(SlotWay):
    """Stacks samples of one shape, whatever their sizes say: the default of fields that do not vary in length."""

    def _text(self, field: str) -> str:
        return _as_json("Same")


class Slot(SlotWay):
    """Slots that a function of your own fills.

        def spectrum(sample, slot):
            slot[...] = numpy.abs(numpy.fft.rfft(sample))[: len(slot)]

        audio = bl.Field(slot=bl.Slot((128,), spectrum, dtype="float32"))
        loader = bl.DataLoader(dataset, batch_size=8, fields={"audio": audio})

    The function is given the sample, which is read-only, and its slot, both arrays of NumPy. It writes into the slot,
    whose elements are padding until then; a type or a scale for the field is applied to all of the slot afterwards.
    Threads of the loader call it, several at a time; for samples that processes make, the processes do. The slot is
    memory of its own, which is copied into the batch.

    If the function has a parameter ``rng``, as ``function(sample, slot, rng)``, it gets a ``numpy.random.Generator``
    whose numbers follow from the seed, the epoch and the sample. All fields of a sample draw the same numbers, so that
    an image and its mask are cut alike.

    Args:
        shape: The shape of a slot; ``None`` for the largest extents of the batch, as :class:`Pad` gives.
        function: Fills a slot: ``function(sample, slot)`` or ``function(sample, slot, rng)``. A bare function as
            ``slot`` of a field stands for ``Slot(None, function)``.
        dtype: The type of the elements of a slot; ``None`` for the type of samples.

    Raises:
        ArgumentError: An extent is no integer of at least 0, the function cannot be called, has a parameter ``rng``
            beside other ones than a sample and a slot, or there is no such type.
    """

    def __init__(
        self,
        shape: Sequence[int] | int | None,
        function: Callable[..., None],
        dtype: Any = None,
    ) -> None:
        extents = shape if shape is None or isinstance(shape, Iterable) else [shape]
        self.shape = None if extents is None else tuple(integer("shape", extent, most=2**62) for extent in extents)
        if not callable(function):
            raise ArgumentError(f"function is a {type(function).__name__}; expected a function of a sample and a slot")
        self.function, self._takes_rng = function, takes_rng("function", function, "sample, slot")
        self.dtype = None if dtype is None else _numpy_name(dtype)

    def __repr__(self) -> str:
        dtype = "" if self.dtype is None else f", dtype={self.dtype!r}"
        return f"Slot({self.shape}, {getattr(self.function, '__name__', self.function)}{dtype})"

    def _text(self, field: str) -> str:
        return _as_json({"Function": {"name": field, "shape": self.shape, "dtype": self.dtype}})

    def _function(self, field: str) -> SlotFunction:
        return SlotFunction(field, self.function, draws=self._takes_rng)


def _as_json(value: Any) -> str:
    """Return a value as JSON, in which the engine reads slots."""
    import json

    return json.dumps(value)


def _numpy_name(dtype: Any) -> str:
    """Return the name of a type that NumPy has."""
    name = dtype_name(dtype)
    try:
        return numpy.dtype(name).name
    except TypeError:
        raise ArgumentError(f"dtype is {dtype!r}; expected a type that NumPy has, as 'float32'") from None


class SlotFunction:
    """A function that fills slots, as the engine calls it.

    Args:
        field: The name of the field.
        function: The function of the user.
        draws: ``True`` if the function has a parameter ``rng``.
    """

    def __init__(self, field: str, function: Callable[..., None], *, draws: bool) -> None:
        self.field, self.function, self.draws = field, function, draws

    def __call__(
        self, sample: Any, drawn: tuple[int, int, int], shape: list[int], dtype: str, memory: bytearray
    ) -> None:
        """Fill the slot of a sample, which lies in ``memory``.

        Args:
            sample: The sample.
            drawn: The seed, the epoch and the number of the sample, from which random numbers follow.
            shape: The shape of the slot.
            dtype: The type of its elements.
            memory: The bytes of the slot.

        Raises:
            SampleError: The function fails, or returns something.
        """
        number = drawn[2]
        rng = {"rng": make_slot_generator(*drawn)} if self.draws else {}
        given = numpy.from_dlpack(sample)
        given.setflags(write=False)  # it is the array of the item, which may be mapped, or read again
        try:
            returned = self.function(given, numpy.ndarray(shape, dtype, memory), **rng)
        except Exception as error:
            raise self._make_error(number, f"{type(error).__name__}: {error}") from error
        if returned is not None:
            kind = type(returned).__name__
            raise self._make_error(number, f"the function returned a {kind}; expected it to write: slot[...] = values")

    def _make_error(self, number: int, reason: str) -> SampleError:
        return SampleError(f"field {self.field} of sample {number} could not be put into its slot: {reason}", number)


FieldSlot = tuple[str, str, SlotFunction | None]
"""The name of a field, its slot as the engine reads it, and the function that fills it, if there is one."""


def pad_number(label: str, value: Any) -> float:
    """Return a number for padding, as the engine takes it where the type of the field is not known yet.

    Raises:
        ArgumentError: It is no number, or an integer that float64 does not hold.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"{label} is {value!r}; expected a number: {error}") from None
    if isinstance(value, int) and int(number) != value:
        raise ArgumentError(f"{label} is {value}; expected a number that float64 holds, such as {int(number)}")
    return number
