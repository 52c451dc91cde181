"""`Fields`: the options of a loader about fields, resolved for its data and its rule.

Promises:

- Whatever is wrong with the fields that a user names is an error when `Fields` is made, or, where samples are made on
  demand, with the first sample.
- `Fields` knows nothing of devices: a delivery declares which conversions it makes itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import batchloom._native as _native
from batchloom.arguments import text
from batchloom.arrays.dtypes import dtype_name
from batchloom.arrays.padding import pad_values
from batchloom.batching.rules import Packing, Rule
from batchloom.collate.block_options import BlockOptions
from batchloom.collate.conversions import FLOATS, INTEGERS, Conversions, EngineFields, conversions
from batchloom.collate.document_mask import read_block_mask
from batchloom.collate.extras import Extras
from batchloom.collate.field import Field, FieldOptions, repeats_edge
from batchloom.collate.field_names import FieldNames, LateFieldNames, Namer
from batchloom.collate.schema import BOUNDARIES, LOSS_EXTRAS, MARKS, OWNERS, CollateOptions
from batchloom.collate.slots import FieldSlot, SlotFunction, pad_number
from batchloom.errors import ArgumentError


class FieldSamples(Protocol):
    """The facts about samples that decide what a batch holds."""

    @property
    def is_on_demand(self) -> bool:
        """``True`` if samples are made when their batch is formed, so that fields are known with the first block."""

    def engine(self) -> _native.Dataset:
        """Return the samples as the engine sees them."""

    def list_extras(self, rule: Rule) -> list[str]:
        """Return the names of what batches of a rule hold beside the fields of samples, in order."""

    def field_names(self, rule: Rule) -> FieldNames | LateFieldNames:
        """Return the fields of batches of a rule, and the keys that name them in arguments."""

    def padded_fields(self) -> Mapping[str, str]:
        """Return the types of the fields that are padded, by name."""

    @property
    def batch_types(self) -> Mapping[str, str]:
        """The types of fields in batches, by name, where they are not the types of the data."""


def choose_extras(samples: FieldSamples, rule: Rule, options: FieldOptions, *, has_marks: bool) -> Extras:
    """Choose what batches hold beside the fields of samples.

    Args:
        samples: The samples.
        rule: The rule that makes batches.
        options: The options of the loader.
        has_marks: ``True`` if places that only fill up are marked.

    Raises:
        ArgumentError: An extra is named that these batches do not have.
    """
    names = [] if options.collate is not None else samples.list_extras(rule)
    if options.has_offsets and BOUNDARIES in names:
        names += OWNERS
    names += [name for name in MARKS if has_marks and name not in names]
    names += LOSS_EXTRAS if options.loss is not None else ()
    return Extras(tuple(names), options.extras, read_block_mask(options.block_mask))


class Fields:
    """The treatment of each field of a batch.

    Attributes:
        side: The side of padding.
        labels: The field whose next tokens are labels; ``None`` without labels.
        whole: The function that makes whole batches; ``None`` where the engine does.
        loss: The loss, if batches hold the weight of each label in it.
        offset_by: The fields of indices, and what they count.
        block_mask: The mask of attention, if batches hold its blocks.
        slots: The slots of fields, as the engine takes them.
        namer: Names fields by the keys of arguments.

    Args:
        samples: The samples, with the extras of their batches.
        rule: The rule that makes batches.
        options: The options of the loader.
        pads_to_longest: ``True`` if the plan pads samples to no other length.

    Raises:
        ArgumentError: An option names no field, is for another kind of data, or excludes another one.
    """

    def __init__(self, samples: FieldSamples, rule: Rule, options: FieldOptions, *, pads_to_longest: bool) -> None:
        self._samples, self._options, self._rule = samples, options, rule
        self.side, self.labels, self.whole, self.loss = options.pad_side, options.labels, options.collate, options.loss
        self.block_mask = read_block_mask(options.block_mask)
        self.namer = Namer(lambda: samples.field_names(rule))
        if self.whole is not None:
            self._require_alone(pads_to_longest)
        given = self._by_name(options.fields)
        if self.whole is None:
            given |= self._use_batch_types(given)
        ways = {name: field.way(self.side) for name, field in given.items()}
        self.slots: list[FieldSlot] = [way.for_engine(name) for name, way in ways.items() if way is not None]
        self._conversions: Conversions = conversions(samples.engine, rule, given, options.dtype, self.namer, self.slots)
        self.offset_by = [(name, field.offset_by) for name, field in given.items() if field.offset_by is not None]
        self._pads = {name: field.pad for name, field in given.items() if field.pad is not None}
        # Fields of samples on demand are known with the first block.
        if self.side == "left" and isinstance(rule, Packing) and rule.rows is not None:
            raise ArgumentError('pad_side is "left", and rows are padded after their last sample; expected "right"')
        self._padded = self._find_padded()
        self._require_padded()

    @property
    def conversions(self) -> Mapping[str, _native.Conversion]:
        """The conversion of each field whose types or values change, by name."""
        return self._conversions.each

    @property
    def floats(self) -> list[str]:
        """The fields that an argument makes floats."""
        return [name for name, dtype, *_ in self._conversions.options if dtype in FLOATS]

    @property
    def slot_functions(self) -> dict[str, SlotFunction]:
        """The functions that fill slots, by field."""
        return {name: function for name, _, function in self.slots if function is not None}

    @property
    def edges(self) -> list[str]:
        """The fields that repeat the nearest step of a series where a window leaves it."""
        slotted = {name for name, _, _ in self.slots}
        names = (name for name in self._padded if name not in slotted)
        return [name for name in names if repeats_edge(self._pads.get(name, self._options.pad_value))]

    def for_engine(self, blocks: BlockOptions, *, has_bans: bool) -> EngineFields:
        """Return what the engine does to fields, and what it leaves to a delivery.

        Args:
            blocks: The options of blocks, with what the delivery converts.
            has_bans: ``True`` if samples may be banned, whose places the engine clears.

        Raises:
            ArgumentError: A type does not hold the value that pads its field.
        """
        padded = self._pad_values(self._conversions.dtypes)
        stored: dict[str, bytes] = {}
        if blocks.converts and self.conversions:
            with suppress(ArgumentError):
                stored = self._pad_values({})
        offset = {name for name, _ in self.offset_by}
        return self._conversions.for_engine(blocks, padded, stored, self._pad_numbers(), offset, has_bans=has_bans)

    def collate_options(self, names: list[str], engine: EngineFields) -> CollateOptions:
        """Return the options of a device that makes batches.

        Args:
            names: The names of all that batches hold, in order.
            engine: The treatment of fields by the engine.
        """
        padded = self._pad_values(self._conversions.dtypes)
        left, edges = self.side == "left", frozenset(self.edges)
        return CollateOptions(names, padded, left, self.labels, engine.left, edges)

    def columns(self, stored: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the names and types of the fields of batches, given the types in which the engine makes them."""
        dtypes = self._conversions.dtypes
        return [(name, dtypes.get(name, dtype)) for name, dtype in stored] if dtypes else stored

    def _by_name(self, fields: Field | Mapping[Any, Field] | None) -> dict[str, Field]:
        """Return what happens to each field that the argument names."""
        if fields is None:
            return {}
        if isinstance(fields, Field):
            fields = {self._find_only_key(): fields}
        if not isinstance(fields, Mapping):
            raise ArgumentError(f"fields is {fields!r}; expected a dict of bl.Field by field, or one bl.Field")
        for key, field in fields.items():
            if not isinstance(field, Field):
                raise ArgumentError(
                    f"fields has {field!r} for {key!r}; expected a bl.Field, as bl.Field(dtype='int64')"
                )
        return {text("a field in fields", name): field for name, field in self.namer.by_name("fields", fields).items()}

    def _use_batch_types(self, given: Mapping[str, Field]) -> dict[str, Field]:
        """Return the treatment of the fields whose types the dataset knows, unless the user knows better."""
        dtype = self._options.dtype
        if dtype is not None and dtype_name(dtype) in INTEGERS:
            return {}
        types = {
            name: kind for name, kind in self._samples.batch_types.items() if not given.get(name, Field()).converts
        }
        return {name: replace(given.get(name, Field()), dtype=kind) for name, kind in types.items()}

    def _find_only_key(self) -> Any:
        """Return the key of the only field.

        Raises:
            ArgumentError: There are several, or fields are not known yet.
        """
        names = self.namer.names
        if not isinstance(names, FieldNames):
            raise ArgumentError(
                "fields is one bl.Field, and fields of samples that are made on demand are not known yet; expected a "
                "dict of bl.Field by field"
            )
        if len(names.dtypes) > 1:
            raise ArgumentError(
                "fields is one bl.Field, and there are several fields; "
                f"expected a dict by {names.list_keys(names.dtypes)}"
            )
        name = next(iter(names.dtypes))
        return next((place for place, other in names.places.items() if other == name), name)

    def _find_padded(self) -> Mapping[str, str]:
        """Return the types of the fields that are padded, by name: all of them in rows of one shape."""
        if self._samples.is_on_demand:
            return {}
        padded = self._samples.padded_fields()
        if not (isinstance(self._rule, Packing) and self._rule.rows is not None):
            return padded
        names = self.namer.names
        return {**names.dtypes, **padded} if isinstance(names, FieldNames) else padded

    def _require_alone(self, pads_to_longest: bool) -> None:
        """Refuse options that a function of whole batches leaves no room for."""
        if isinstance(self._rule, Packing) and self._rule.is_formed_in_memory:
            raise ArgumentError(
                f"{self._rule} lays samples out in rows or continues them, and collate is a function of whole samples; "
                "expected Packing without rows and rests, or no collate"
            )
        oversize = getattr(self._rule, "oversize", None)
        if oversize in ("truncate", "split"):
            raise ArgumentError(f"{self._rule} has oversize {oversize!r}, and collate is a function of whole samples")
        options = self._options
        usual = {
            "fields": options.fields is None,
            "dtype": options.dtype is None,
            "pad_to": pads_to_longest,
            "pad_value": type(options.pad_value) is int and options.pad_value == 0,
            "pad_side": options.pad_side == "right",
            "loss": options.loss is None,
            "block_mask": options.block_mask is None,
        }
        for name in (name for name, is_usual in usual.items() if not is_usual):
            given = f" is {getattr(options, name)!r}" if hasattr(options, name) else " is given"
            raise ArgumentError(
                f"{name}{given}, and collate is a function that makes whole batches; do it there, or leave collate out"
            )

    def _require_padded(self) -> None:
        """Refuse values that pad fields of one shape."""
        value = self._options.pad_value
        if self._samples.is_on_demand or not (self._pads or type(value) is not int or value != 0):
            return
        padded = {*self._padded, *(name for name, _, _ in self.slots)}
        for name in (name for name in self._pads if name not in padded):
            names = self.namer.names
            assert isinstance(names, FieldNames)
            raise ArgumentError(
                f"fields pads {names.list_keys([name])} with {self._pads[name]!r}, and its samples have one shape; "
                f"expected pad for {names.list_keys(padded) or 'no field'}"
            )
        if not padded and not (isinstance(value, int | float) and value == 0):
            raise ArgumentError(f"pad_value is {value!r}, and fields have one shape, so nothing is padded; expected 0")

    def _pad_values(self, dtypes: Mapping[str, str]) -> dict[str, bytes]:
        """Return the bytes of one element of padding, for each field that is padded with more than zeros.

        Args:
            dtypes: The types of fields in batches, where these are not the types of the data.
        """
        if not self._padded:
            return {}
        others = {*self.edges, *(name for name, _, _ in self.slots)}
        padded = {name: dtypes.get(name, dtype) for name, dtype in self._padded.items() if name not in others}
        return pad_values(padded, self._options.pad_value, self._pads)

    def _pad_numbers(self) -> list[tuple[str | None, float]]:
        """Return the numbers that pad fields whose types only the engine knows: with slots, or made on demand."""
        value = self._options.pad_value
        if self._samples.is_on_demand:
            own = [(name, pad_number(f"pad of field {name}", pad)) for name, pad in self._pads.items()]
            number = pad_number("pad_value", value)
            return [*own, *([] if number == 0 else [(None, number)])]
        numbers: list[tuple[str | None, float]] = []
        for name, _, _ in self.slots:
            option, pad = (f"pad of field {name}", self._pads[name]) if name in self._pads else ("pad_value", value)
            numbers.append((name, pad_number(option, pad)))
        return numbers
