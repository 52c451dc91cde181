"""Slots: the way from a sample of its own shape to its place in a batch."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from batchloom.arguments import PAD_SIDE, PadSide, choice, integer
from batchloom.errors import ArgumentError

Keep = Literal["start", "center", "end"]
KEEP = ("start", "center", "end")
Filter = Literal["nearest", "bilinear", "bicubic"]
FILTER = ("nearest", "bilinear", "bicubic")
Channels = Literal["first", "last"]
CHANNELS = ("first", "last")


class Slot(ABC):
    """The way from a sample to its slot in a batch, for ``collate=`` of a loader."""

    @abstractmethod
    def _text(self) -> str:
        """Return the slot as the engine reads it."""


@dataclass(frozen=True)
class Pad(Slot):
    """Pads samples to the largest extent of the batch, in each dimension.

        loader = bl.DataLoader(dataset, batch_size=8, collate={"audio": bl.Pad(multiple_of=160)})

    Attributes:
        multiple_of: The number that the first padded extent is a multiple of; several for the first dimensions.
        side: ``"right"`` for padding after the data, ``"left"`` for padding before it.

    Raises:
        ArgumentError: A number is not at least 1, or there is no such side.
    """

    multiple_of: int | Sequence[int] = 1
    side: PadSide = "right"

    def __post_init__(self) -> None:
        self._multiples()
        choice("side", self.side, PAD_SIDE)

    def _multiples(self) -> list[int]:
        given = self.multiple_of
        numbers = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        return [integer("multiple_of", number, least=1, most=2**62) for number in numbers]

    def _text(self) -> str:
        return json.dumps({"Pad": {"multiple_of": self._multiples(), "side": self.side.capitalize()}})


class Crop(Slot):
    """Cuts samples to a shape, and pads those that are smaller.

        loader = bl.DataLoader(dataset, batch_size=8, collate={"image": bl.Crop(224, 224)})

    Args:
        shape: The extents of the first dimensions; further ones stay as they are.
        keep: The part that is kept of a sample that is larger: ``"start"``, ``"center"`` or ``"end"``. A smaller one
            lies at the same place of its slot.

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

    def _text(self) -> str:
        return json.dumps({"Crop": {"shape": self.shape, "keep": self.keep.capitalize()}})


class Resize(Slot):
    """Resizes images to one size.

        loader = bl.DataLoader(dataset, batch_size=8, collate={"image": bl.Resize(224, 224, to="first")})

    Images are of uint8 or float32. Their shape is ``[height, width]``, or has 1 to 4 channels besides. Each channel is
    resized by itself: a fourth one is no opacity. Bytes are within one level of Pillow's, except where ``"bicubic"`` is
    cut off at 0 or 255. Their type stays; ``dtype=``, ``scale=``, ``mean=`` and ``std=`` of
    the loader come afterwards.

    Args:
        height: The height of images in a batch.
        width: The width of images in a batch.
        filter: ``"nearest"`` for the nearest pixel, ``"bilinear"`` for a mean of neighbours, or ``"bicubic"`` for a
            cubic curve through more of them, which may go beyond the values of the image.
        antialias: ``True`` for a filter that grows with the scale, so that all pixels count where images become
            smaller, as in Pillow. ``False`` for one that does not, as in OpenCV.
        channels: The dimension of channels in samples: ``"last"`` for ``[height, width, channels]``, ``"first"`` for
            ``[channels, height, width]``.
        to: The dimension of channels in batches: ``"last"`` or ``"first"``; ``None`` for that of samples.

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

    def _text(self) -> str:
        names = {name: getattr(self, name).capitalize() for name in ("filter", "channels", "to")}
        return json.dumps(
            {"Resize": {"height": self.height, "width": self.width, "antialias": self.antialias, **names}}
        )


@dataclass(frozen=True)
class Stack(Slot):
    """Stacks samples of one shape, whatever their sizes say: the default of fields that do not vary in length."""

    def _text(self) -> str:
        return json.dumps("Same")


def slots(collate: Any) -> list[tuple[str, str]]:
    """Return the slots of fields by name, as the engine reads them.

    Raises:
        ArgumentError: ``collate`` is no dict of slots.
    """
    if collate is None:
        return []
    if not isinstance(collate, Mapping):
        raise ArgumentError(
            f"collate is {collate!r}; expected a dict of slots by field, as in {{'audio': bl.Pad(multiple_of=160)}}"
        )
    for field, slot in collate.items():
        if not isinstance(slot, Slot):
            expected = "bl.Pad(), bl.Crop(), bl.Resize() or bl.Stack()"
            raise ArgumentError(f"collate has {slot!r} for field {field}; expected {expected}")
    return [(str(field), slot._text()) for field, slot in collate.items()]


def pad_numbers(pad_value: Any) -> list[tuple[str | None, float]]:
    """Return numbers for padding, by field, or one for all, as ``pad_value`` gives them.

    Raises:
        ArgumentError: They are no numbers.
    """
    given = pad_value if isinstance(pad_value, Mapping) else {None: pad_value}
    try:
        numbers = [(None if field is None else str(field), float(number)) for field, number in given.items()]
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"pad_value is {pad_value!r}; expected a number, or numbers by field: {error}") from None
    return [(field, number) for field, number in numbers if field is not None or number != 0]
