"""Some samples of a dataset: by their numbers, by a mask, or as the parts of a split."""

from __future__ import annotations

import math
import operator
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arguments import U64, integer, out_of_range
from batchloom.arrays.inputs import read_plain
from batchloom.errors import ArgumentError
from batchloom.samples.keys import classes_of
from batchloom.samples.per_sample import require_each

Array = numpy.ndarray[Any, Any]

# The names of parts in a message, by their number.
NAMES = {1: ["train"], 2: ["train", "val"], 3: ["train", "val", "test"]}


def read_selection(which: Any, samples: int, unit: str) -> _native.Selection:
    """Return the selection that numbers, a slice or a mask stand for, out of ``samples``, called ``unit``.

    Raises:
        ArgumentError: They are neither integers nor a mask.
        DataError: A mask of another length; no sample is selected.
        RangeError: There is no such sample.
    """
    if isinstance(which, slice):
        which = _range(which, samples)
    if isinstance(which, range) and which.step == 1 and 0 <= which.start < which.stop <= samples:
        return _native.Selection.neighbours(which.start, which.stop, samples)
    numbers = _numbers(which)
    if numbers.dtype.kind == "b":
        require_each("the mask", numbers, samples, unit)
        numbers = numpy.flatnonzero(numbers)
    outside = (numbers < -samples) | (numbers >= samples)
    if outside.any():
        raise out_of_range(unit, int(numbers[outside.argmax()]), samples)
    places = numpy.where(numbers < 0, numbers + samples, numbers) if numbers.size and numbers.min() < 0 else numbers
    return _native.Selection.listed(_native.borrow(numpy.ascontiguousarray(places, numpy.int64), "indices"), samples)


def _range(which: slice, samples: int) -> range:
    """Return the numbers that a slice stands for."""
    try:
        return range(*which.indices(samples))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"indices are {which}; expected a slice of integers, with a step other than 0: {error}"
        ) from None


def _numbers(which: Any) -> Array:
    """Return numbers of samples, or a mask, as an array of one dimension."""
    numbers = read_plain("indices", which, "integers or a mask", ArgumentError)
    if numbers.ndim == 1 and not numbers.size:
        return numbers.astype(numpy.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "biu":
        raise ArgumentError(
            f"indices have type {numbers.dtype} and shape {numbers.shape}; expected integers or a mask, of one "
            "dimension"
        )
    return numbers


def refuse_unnamed(unnamed: tuple[Any, ...]) -> None:
    """Refuse parts of a split without names, as ``torch.utils.data.random_split`` takes them.

    Raises:
        ArgumentError: There are some; the message names them.
    """
    if not unnamed:
        return
    found = list(unnamed[0]) if len(unnamed) == 1 and isinstance(unnamed[0], list | tuple) else list(unnamed)
    names = NAMES.get(len(found)) or [f"part{number}" for number in range(len(found))]
    named = ", ".join(f"{name}={part!r:.40}" for name, part in zip(names, found, strict=True))
    shown = ", ".join(f"{each!r:.80}" for each in unnamed)
    raise ArgumentError(f"split({shown}) has parts without names; expected parts by name, as split({named})")


def split(samples: int, seed: Any, strata: Any, parts: dict[str, Any]) -> list[_native.Selection]:
    """Return the samples of each part of a split of ``samples``.

    Args:
        samples: The number of samples.
        seed: The seed by which samples are drawn; ``None`` for neighbours.
        strata: The class of each sample, or ``None``.
        parts: The share or the number of samples of each part, or ``None`` for the rest.

    Raises:
        ArgumentError: A part is neither, or parts are of both kinds.
        DataError: Parts hold more than all samples, or one holds none; strata are not one for each sample.
    """
    seed = None if seed is None else integer("seed", seed, most=U64)
    codes = None if strata is None else _native.borrow(classes_of(strata, "stratify"), "stratify")
    return _native.Selection.split(samples, _ends(parts), seed, codes)


def _ends(parts: dict[str, Any]) -> list[tuple[str, _native.PartEnd]]:
    """Return the end of each part, counted in samples."""
    if not parts:
        raise ArgumentError("split() names no part; expected parts, such as train=0.8, val=0.2")
    *before, (last, rest) = parts.items()
    for name, part in before:
        if part is None:
            raise ArgumentError(f"part {name} is None, which means the rest; expected None for the last part only")
    said = before if rest is None else list(parts.items())
    kinds = {name: "share" if isinstance(part, float | numpy.floating) else "number" for name, part in said}
    if len(set(kinds.values())) > 1:
        text = ", ".join(f"{name} by {kind}" for name, kind in kinds.items())
        raise ArgumentError(f"parts are given {text}; expected one kind for all")
    ends, end = [], 0
    for name, part in said:
        if kinds[name] == "share":
            ends.append((name, share(name, part)))
            continue
        if isinstance(part, bool) or not hasattr(part, "__index__"):
            raise ArgumentError(f"part {name} is {part!r}; expected a share, a number of samples, or None")
        end += integer(f"part {name}", operator.index(part), least=1, most=2**62)
        ends.append((name, _native.PartEnd.step(min(end, 2**62))))
    return [*ends, (last, _native.PartEnd.rest())] if rest is None else ends


def pickle_selection(selection: _native.Selection) -> tuple[Any, ...]:
    """Return what :func:`restore_selection` takes: four bytes a sample at most, and nothing for neighbours."""
    neighbours, listed, *rest = selection.written()
    return (neighbours, None if listed is None else numpy.from_dlpack(listed), *rest)


def restore_selection(
    neighbours: tuple[int, int] | None, listed: Array | None, samples: int, base: int, total: int
) -> _native.Selection:
    """Return a selection from what :func:`pickle_selection` returned."""
    numbers = None if listed is None else _native.borrow(listed, "indices")
    return _native.Selection.restored(neighbours, numbers, samples, base, total)


def share(name: str, part: Any) -> _native.PartEnd:
    """Return the end of a part that is given as a share.

    Raises:
        ArgumentError: It is no number above 0 and at most 1.
    """
    return _native.PartEnd.share(share_number(name, part))


def share_number(name: str, part: Any) -> float:
    """Return a part that is given as a share as a number.

    Raises:
        ArgumentError: It is no number above 0 and at most 1.
    """
    try:
        number = float(part)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number <= 1:
        raise ArgumentError(f"part {name} is {part!r}; expected a share above 0 and at most 1")
    return number
