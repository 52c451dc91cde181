"""Conversions of fields: the types and the scales that fields have in batches, as the engine takes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import batchloom._native as _native
import numpy
from batchloom.arrays.dtypes import dtype_name
from batchloom.batching.rules import Rule, engine_rule
from batchloom.collate.block_options import BlockOptions
from batchloom.collate.field import Field
from batchloom.collate.field_names import FieldNames, Namer
from batchloom.collate.slots import FieldSlot
from batchloom.errors import ArgumentError

INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


EngineOptions = tuple[str, str | None, float | None, list[float], list[float], str | None]
"""A field's name, type, scale, means, deviations, and the dimension of the latter two: as the engine takes them."""


@dataclass(frozen=True)
class Conversions:
    """The conversions of the fields of a loader.

    Attributes:
        options: The options of each field, as the engine takes them.
        each: The conversion of each field whose types or values change, by name.
        dtypes: The types of fields in batches, where they differ from the types of the data.
    """

    options: list[EngineOptions]
    each: dict[str, _native.Conversion]
    dtypes: dict[str, str]

    def for_engine(
        self,
        blocks: BlockOptions,
        padded: dict[str, bytes],
        stored: dict[str, bytes],
        numbers: list[tuple[str | None, float]],
        offset: Collection[str] = (),
        *,
        has_bans: bool,
    ) -> EngineFields:
        """Return what the engine does to fields, and what it leaves to a delivery.

        Args:
            blocks: The options of blocks.
            padded: The elements that pad fields, in the types of batches.
            stored: The same elements in the types of the data; empty where a type does not hold one.
            numbers: The numbers that pad fields whose types only the engine knows.
            offset: The fields of indices, to which the engine adds offsets in the types of batches.
            has_bans: ``True`` if samples may be banned, whose places the engine clears.
        """
        if blocks.index_table or not self.each:
            return EngineFields(self.options, list(padded.items()), numbers, self.each)
        left = {
            name: conversion
            for name, conversion in self.each.items()
            if blocks.converts
            and name not in offset
            and _is_best_stored(conversion, name in padded, name in stored)
            # A place that was cleared has to stay so.
            and not (has_bans and any(conversion.mean))
        }
        elements = {name: element for name, element in padded.items() if name not in left}
        elements |= {name: element for name, element in stored.items() if name in left}
        formed = [options for options in self.options if options[0] not in left]
        return EngineFields(formed, list(elements.items()), numbers, left)


UNCHANGED = Conversions([], {}, {})
"""The conversions of fields that keep their types and values."""


class EngineFields(NamedTuple):
    """The treatment of fields by the engine, and the conversions that a delivery makes instead.

    Attributes:
        options: The options of the fields that the engine converts.
        pad_values: The elements that pad fields.
        pad_numbers: The numbers that pad fields whose types only the engine knows.
        left: The conversions that a delivery makes, by field.
    """

    options: list[EngineOptions]
    pad_values: list[tuple[str, bytes]]
    pad_numbers: list[tuple[str | None, float]]
    left: dict[str, _native.Conversion]


def _is_best_stored(conversion: _native.Conversion, is_padded: bool, is_stored: bool) -> bool:
    """Return whether a field is best copied to a device as it is stored.

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
    fields: Mapping[str, Field],
    dtype: Any,
    namer: Namer,
    slots: Sequence[FieldSlot] = (),
) -> Conversions:
    """Return the conversions of fields.

    Args:
        dataset: Returns the dataset as the engine sees it.
        rule: The rule that makes batches.
        fields: The treatment of each field, by name.
        dtype: The type of all fields of floats or of integers that have no type of their own, or ``None``.
        namer: Names fields by keys. It knows whether the fields are known yet.
        slots: The slots of fields.

    Raises:
        ArgumentError: An option makes no sense, or is for no field.
    """
    fields = {name: field for name, field in fields.items() if field.converts}
    if not fields and dtype is None:
        return UNCHANGED
    known = isinstance(namer.names, FieldNames)
    if dtype is not None and not known:
        raise ArgumentError(
            f"dtype is {dtype!r}, and fields of samples that are made on demand are not known yet; expected types by "
            f"field, as in fields={{'x': bl.Field(dtype={dtype!r})}}"
        )
    dtypes = {name: dtype_name(field.dtype) for name, field in fields.items() if field.dtype is not None}
    if dtype is not None:
        assert isinstance(namer.names, FieldNames)
        scaled = {name for name, field in fields.items() if field.scales}
        dtypes = _spread_type(namer.names, dtype_name(dtype), scaled) | dtypes
    named = {**fields, **{name: Field() for name in dtypes if name not in fields}}
    options = [_options(name, field, dtypes.get(name)) for name, field in named.items()]
    if not known:
        return Conversions(options, {}, {})
    engine = _native.conversions(dataset(), engine_rule(rule), options, slots)
    return Conversions(
        options,
        {conversion.field: conversion for conversion in engine},
        {conversion.field: conversion.dtype for conversion in engine},
    )


def _options(name: str, field: Field, dtype: str | None) -> EngineOptions:
    """Return the conversion of a field as the engine takes it.

    Raises:
        ArgumentError: A scale is no number, or means and deviations are numbers of different dimensions.
    """
    scale = None if field.scale is None else _number("scale", name, field.scale)
    mean, mean_dimension = ([], None) if field.mean is None else _numbers("mean", name, field.mean)
    std, std_dimension = ([], None) if field.std is None else _numbers("std", name, field.std)
    if None not in (mean_dimension, std_dimension) and mean_dimension != std_dimension:
        raise ArgumentError(
            f"field {name}: mean is of the {mean_dimension} dimension of a sample, std of the {std_dimension}; "
            "expected one of them"
        )
    return name, dtype, scale, mean, std, mean_dimension or std_dimension


def _spread_type(names: FieldNames, dtype: str, scaled: Collection[str]) -> dict[str, str]:
    """Return the type of each field that a single type applies to: all floats, or all integers that are not scaled.

    Raises:
        ArgumentError: There is no such field, or the type is neither.
    """
    for kind, types in (("floating numbers", FLOATS), ("integers", INTEGERS)):
        if dtype in types:
            held = [name for name, stored in names.dtypes.items() if stored in types]
            if held:
                # Integers that are scaled become floats.
                return {name: dtype for name in held if types is FLOATS or name not in scaled}
            raise ArgumentError(
                f"dtype is {dtype!r}, which is for all fields of {kind}, and there is none; expected types by field, "
                f"in fields=: fields are {dict(names.dtypes)}"
            )
    raise ArgumentError(f"dtype is {dtype!r}; expected types by field, in fields=: fields are {dict(names.dtypes)}")


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
    """Return numbers, and the dimension of a sample that their shape names; ``None`` without one."""
    try:
        numbers = numpy.asarray(value, dtype=numpy.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ArgumentError(f"{label} of field {name} is {value!r}; expected one number or several: {error}") from None
    if numbers.ndim <= 1 and numbers.size:
        return numbers.reshape(-1).tolist(), None
    places = [place for place, length in enumerate(numbers.shape) if length != 1]
    if numbers.size and places in ([0], [numbers.ndim - 1]):
        return numbers.reshape(-1).tolist(), "first" if places == [0] else "last"
    raise ArgumentError(
        f"{label} of field {name} has shape {numbers.shape}; expected one number, or one for each channel, in the "
        "first or in the last of its dimensions: all others of length 1"
    )
