"""Types and scales of the fields of batches: the arguments of a loader, and the conversions that follow from them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.arrays.dtypes import dtype_name
from batchloom.batching.rules import Rule
from batchloom.collate.block_options import BlockOptions
from batchloom.collate.field_names import FieldNames, Namer
from batchloom.collate.slots import FieldSlot
from batchloom.errors import ArgumentError

INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


FieldOptions = tuple[str, str | None, float | None, list[float], list[float], str | None]
"""A field's name, type, scale, means and deviations, and the dimension that these are of: as the engine takes them."""


@dataclass(frozen=True)
class FieldArguments:
    """The arguments of a loader about the types and the scales of fields, as the user gave them.

    Each is one value for all fields, or a dict of values by field; ``None`` changes nothing.
    """

    dtype: Any = None
    scale: Any = None
    mean: Any = None
    std: Any = None

    @property
    def are_given(self) -> bool:
        """``True`` if there is any."""
        return any(value is not None for value in (self.dtype, self.scale, self.mean, self.std))


@dataclass(frozen=True)
class Conversions:
    """The conversions of the fields of a loader.

    Attributes:
        options: The options of each field, as the engine takes them.
        each: The conversion of each field whose types or values change, by name.
    """

    options: list[FieldOptions] = field(default_factory=list)
    each: dict[str, _native.Conversion] = field(default_factory=dict)

    @property
    def dtypes(self) -> dict[str, str]:
        """The types that fields have in batches, where these are others."""
        return {name: conversion.dtype for name, conversion in self.each.items()}

    def left(
        self,
        blocks: BlockOptions,
        pad_values: list[tuple[str, bytes]],
        stored_pad_values: Callable[[], list[tuple[str, bytes]]],
        has_bans: bool = False,
    ) -> LeftConversions:
        """Return the conversions that the engine leaves to a device.

        Args:
            blocks: The options of blocks.
            pad_values: The elements that pad fields, in the types of batches.
            stored_pad_values: Returns the same elements in the types of the data; raises where these cannot hold them.
            has_bans: ``True`` if samples may be banned, whose places the engine clears.
        """
        if blocks.index_table:
            return LeftConversions(self.options, pad_values, self.each)
        padded, stored = dict(pad_values), {}
        if blocks.converts and self.each:
            with suppress(ArgumentError):
                stored = dict(stored_pad_values())
        travelling = {
            name: conversion
            for name, conversion in self.each.items()
            if blocks.converts
            and _travels(conversion, name in padded, name in stored)
            # A place that was cleared has to stay so.
            and not (has_bans and any(conversion.mean))
        }
        own = {name: element for name, element in padded.items() if name not in travelling}
        elements = own | {name: element for name, element in stored.items() if name in travelling}
        formed = [options for options in self.options if options[0] not in travelling]
        return LeftConversions(formed, list(elements.items()), travelling)


@dataclass(frozen=True)
class LeftConversions:
    """The conversions that the engine makes, and those that it leaves to a device.

    Attributes:
        formed: The options of the fields that the engine converts.
        pad_values: The elements that the engine pads fields with.
        conversions: The conversions that are left, by field.
    """

    formed: list[FieldOptions]
    pad_values: list[tuple[str, bytes]]
    conversions: dict[str, _native.Conversion]


def _travels(conversion: _native.Conversion, is_padded: bool, is_stored: bool) -> bool:
    """Return whether a field had better come to a device as it is stored.

    Fewer bytes travel then, no value has to be looked at, and what pads the field is converted to what was asked for.

    Args:
        conversion: The conversion of the field.
        is_padded: ``True`` if it is padded with an element that is given.
        is_stored: ``True`` if the type of the data has that element.
    """
    if not conversion.is_total or conversion.growth < 1:
        return False
    if not conversion.is_padded or not is_padded:
        return not (conversion.is_padded and any(conversion.mean))
    return is_stored and conversion.scale is None and conversion.stored in INTEGERS


def conversions(
    dataset: Callable[[], _native.Dataset],
    rule: Rule,
    arguments: FieldArguments,
    namer: Namer,
    slots: Sequence[FieldSlot] = (),
) -> Conversions:
    """Return the conversions that the arguments of a loader ask for.

    Args:
        dataset: Returns the dataset as the engine sees it.
        rule: The rule that forms batches.
        arguments: The arguments of the loader.
        namer: Names fields by keys. It tells whether the fields are known yet.
        slots: The slots of fields.

    Raises:
        ArgumentError: An argument makes no sense, or does not say which fields it is for.
    """
    if not arguments.are_given:
        return Conversions()
    if not isinstance(namer.names, FieldNames):
        return _late(namer, arguments)
    fields = dict(namer.names.dtypes)
    options = _options(namer, tuple(fields), arguments, lambda value: _every(fields, dtype_name(value)))
    found = _native.conversions(dataset(), rule._native(), options, slots)
    return Conversions(options, {conversion.field: conversion for conversion in found})


def _late(namer: Namer, arguments: FieldArguments) -> Conversions:
    """Return the conversions of samples that are made on demand: the engine looks at them with the first batch."""
    fields: dict[str, None] = {}
    for label, value in vars(arguments).items():
        if value is not None and not isinstance(value, Mapping):
            raise ArgumentError(
                f"{label} is {value!r}, and fields of samples that are made on demand are not known yet; expected a "
                "dict of values by field"
            )
        fields |= dict.fromkeys(namer.by_name(label, value) or ())
    return Conversions(_options(namer, tuple(fields), arguments))


def _options(
    namer: Namer,
    fields: tuple[str, ...],
    arguments: FieldArguments,
    every: Callable[[Any], dict[str, Any]] | None = None,
) -> list[FieldOptions]:
    """Return the options of each field that arguments name.

    ``every`` returns the values by field that a single type stands for.
    """
    dtypes = _by_field(namer, fields, "dtype", arguments.dtype, every)
    scales, means, stds = (
        _by_field(namer, fields, label, values)
        for label, values in (("scale", arguments.scale), ("mean", arguments.mean), ("std", arguments.std))
    )
    options: list[FieldOptions] = []
    for name in fields:
        if not any(name in given for given in (dtypes, scales, means, stds)):
            continue
        dtype = dtype_name(dtypes[name]) if name in dtypes else None
        scale = _number("scale", name, scales[name]) if name in scales else None
        mean, of_means = _numbers("mean", name, means[name]) if name in means else ([], None)
        std, of_stds = _numbers("std", name, stds[name]) if name in stds else ([], None)
        if None not in (of_means, of_stds) and of_means != of_stds:
            raise ArgumentError(
                f"field {name}: mean is of the {of_means} dimension of a sample, std of the {of_stds}; expected one of "
                "them"
            )
        options.append((name, dtype, scale, mean, std, of_means or of_stds))
    return options


def _by_field(
    namer: Namer,
    fields: tuple[str, ...],
    label: str,
    value: Any,
    every: Callable[[Any], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the values of an argument by the names of fields.

    Args:
        namer: Names fields by keys.
        fields: The names of the fields that can be converted.
        label: The name of the argument.
        value: One value, or values by field; ``None`` for no value.
        every: Returns the values by field that a single value stands for; ``None`` if it is for the only field.

    Raises:
        ArgumentError: There is no such field, two keys stand for one, or one value is given for several fields.
    """
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(namer.by_name(label, value))
    if every is not None:
        return every(value)
    if len(fields) > 1:
        listed = namer.names.listed(fields) if isinstance(namer.names, FieldNames) else ", ".join(map(repr, fields))
        raise ArgumentError(f"{label} is {value!r}, and there are several fields; expected a dict by {listed}")
    return {fields[0]: value}


def _every(fields: dict[str, str], dtype: str) -> dict[str, str]:
    """Return the fields that a single type is for: those of floats, or those of integers, as the type is."""
    for kind, types in (("floating numbers", FLOATS), ("integers", INTEGERS)):
        if dtype in types:
            found = {name: dtype for name, stored in fields.items() if stored in types}
            if found:
                return found
            raise ArgumentError(
                f"dtype is {dtype!r}, which is for all fields of {kind}, and there is none; expected a dict that "
                f"names fields: they are {fields}"
            )
    raise ArgumentError(f"dtype is {dtype!r}; expected a dict that names its fields: they are {fields}")


def _number(label: str, name: str, value: Any) -> float:
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ArgumentError(f"{label} of field {name} is {value!r}; expected a number")
    return _float(f"{label} of field {name}", value)


def _float(label: str, value: Any) -> float:
    """Return a number as a float."""
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{label} is larger than any float; expected at most {sys.float_info.max}") from None


def _numbers(label: str, name: str, value: Any) -> tuple[list[float], str | None]:
    """Return numbers, and the dimension of a sample that they are of if their shape tells."""
    try:
        found = numpy.asarray(value, dtype=numpy.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ArgumentError(f"{label} of field {name} is {value!r}; expected one number or several: {error}") from None
    if found.ndim <= 1 and found.size:
        return found.reshape(-1).tolist(), None
    places = [place for place, length in enumerate(found.shape) if length != 1]
    if found.size and places in ([0], [found.ndim - 1]):
        return found.reshape(-1).tolist(), "first" if places == [0] else "last"
    raise ArgumentError(
        f"{label} of field {name} has shape {found.shape}; expected one number, or one for each channel, in the "
        "first or in the last of its dimensions: all others of length 1"
    )
