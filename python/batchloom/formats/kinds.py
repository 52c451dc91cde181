"""`make_dataset`: the dataset of fields, of the kind that was asked for or that fields have by themselves.

Promises:

- Each keyword of a kind is documented and checked by the class of its dataset alone.
- Lists whose lengths are promised to be one are rows without a copy; a row that breaks the promise is named.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy
from batchloom.arguments import caller, make_unknown_keyword_error
from batchloom.arrays.chunked import ChunkedArray
from batchloom.dataset.base import Dataset
from batchloom.dataset.groups import GroupDataset
from batchloom.dataset.sequences import SequenceDataset
from batchloom.dataset.tables import ATTENTION
from batchloom.dataset.tensors import TensorDataset
from batchloom.dataset.tokens import TokenDataset
from batchloom.dataset.windows.window_dataset import WindowDataset
from batchloom.errors import ArgumentError, DataError, DTypeError
from batchloom.formats.columns import choose_columns, show_names
from batchloom.formats.lists import Lists, Shaped
from batchloom.formats.places import Places

Array = numpy.ndarray[Any, Any]

ROWS, SEQUENCES, GROUPS, TOKENS, WINDOWS = "rows", "sequences", "groups", "tokens", "windows"

# The classes of kinds that take further keywords, and of rows.
KINDS: dict[str, type[Dataset[Any]]] = {
    ROWS: TensorDataset,
    SEQUENCES: SequenceDataset,
    GROUPS: GroupDataset,
    TOKENS: TokenDataset,
    WINDOWS: WindowDataset,
}
# The keyword by which a kind takes the column that it needs most.
ID = "id"
# The parameters that fields take the places of.
_OF_DATA = {"self", "table", "tokens", "series", "group_ids", "columns", "arrays", "fields", "named"}


Fields = Mapping[str, Any]
"""Arrays, lists of numbers and objects by name, each with an entry for every sample."""


def require_keywords(kind: str, keywords: Mapping[str, Any], others: Collection[str]) -> None:
    """Refuse keywords that the class of a kind does not have.

    Args:
        kind: The kind.
        keywords: The keywords.
        others: Keywords that are no part of a kind, and may be meant.

    Raises:
        ArgumentError: A keyword belongs to another kind, or one is missing that the kind needs.
        TypeError: No kind has it.
    """
    known = _keywords_of(kind)
    for name in keywords:
        if name not in known:
            owner = next((each for each in KINDS if name in _keywords_of(each)), None)
            if owner is not None:
                raise ArgumentError(
                    f"{name} is given, which kind {owner!r} has, and the kind is {kind!r}; expected kind={owner!r}, or "
                    f"no {name}"
                )
            every = {each for kind in KINDS for each in _keywords_of(kind)}
            raise make_unknown_keyword_error("open", name, {*every, *others})
    needed = {GROUPS: ID, TOKENS: "seq_len"}.get(kind)
    if needed is not None and needed not in keywords:
        raise ArgumentError(f"kind is {kind!r}, without {needed}; expected {needed}=, as for {KINDS[kind].__name__}")


def _keywords_of(kind: str) -> set[str]:
    names = {*inspect.signature(KINDS[kind].__init__).parameters} - _OF_DATA
    return names | {ID} if kind == GROUPS else names


def make_dataset(data: Fields | Any, kind: str, more: Mapping[str, Any], places: Places) -> Dataset[Any]:
    """Return the dataset of fields, or of one array without a name.

    Args:
        data: The fields, or an array.
        kind: The kind.
        more: The keywords of its class.
        places: The files that the samples lie in, for messages.

    Raises:
        ArgumentError: The kind needs other fields, or a keyword makes no sense.
        DataError: Fields differ in their numbers of samples, or lists in length where these were promised to be one.
    """
    return _MAKERS[kind](data, dict(more), places)


def natural_kind(data: Fields | Any) -> str:
    """Return the kind that fields have by themselves: lists make sequences."""
    is_listed = isinstance(data, Mapping) and any(isinstance(field, Lists | Shaped) for field in data.values())
    return SEQUENCES if is_listed else ROWS


def list_frame_columns(columns: Any, more: Mapping[str, Any], available: list[str], where: str) -> list[str]:
    """Return the columns of a frame of windows: those that are chosen, and those that keywords name.

    Raises:
        ArgumentError: A column does not exist, or columns are joined.
    """
    if isinstance(columns, Mapping):
        raise ArgumentError("columns is a dict, and windows take the columns of a frame; expected a list of names")
    chosen = [*choose_columns(available, columns, where)]
    named = {*_list_texts(list(more.values()))}
    return [name for name in available if name in chosen or name in named]


def _list_texts(value: Any) -> list[str]:
    """Return all texts in lists and dicts."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [text for part in parts for text in _list_texts(part)]


def _make_rows(data: Any, more: dict[str, Any], places: Places) -> Dataset[Any]:
    if not isinstance(data, Mapping):
        return TensorDataset(data)
    return TensorDataset(**{name: fix_length(name, field, places) for name, field in data.items()})


def _make_sequences(data: Any, more: dict[str, Any], places: Places) -> Dataset[Any]:
    if not isinstance(data, Mapping):
        raise ArgumentError(f"kind is 'sequences', and {places.first} holds an array of rows; expected lists")
    return SequenceDataset(_leave_out_attention(data, places), **more)


def _make_groups(data: Any, more: dict[str, Any], places: Places) -> Dataset[Any]:
    name = more.pop(ID)
    if not isinstance(data, Mapping):
        raise ArgumentError(f"kind is 'groups', and {places.first} holds no column {name!r}; expected columns by name")
    fields = dict(choose_fields(data, [name], places))
    rest = {other: fix_length(other, field, places) for other, field in data.items() if other != name}
    return GroupDataset(fields[name], **more, **rest)


def _make_tokens(data: Any, more: dict[str, Any], places: Places) -> Dataset[Any]:
    if isinstance(data, Mapping):
        if len(data) != 1:
            raise ArgumentError(
                f"kind is 'tokens', and {places.first} has {len(data)} columns; expected one of them, as columns="
                f"{next(iter(data))!r}: {show_names(list(data))}"
            )
        ((_, data),) = data.items()
    return TokenDataset(data, **more)


def _make_windows(data: Any, more: dict[str, Any], places: Places) -> Dataset[Any]:
    return WindowDataset(dict(data) if isinstance(data, Mapping) else data, **more)


_MAKERS: dict[str, Callable[[Any, dict[str, Any], Places], Dataset[Any]]] = {
    ROWS: _make_rows,
    SEQUENCES: _make_sequences,
    GROUPS: _make_groups,
    TOKENS: _make_tokens,
    WINDOWS: _make_windows,
}


def choose_fields(data: Fields, names: list[str], places: Places) -> Fields:
    """Return some fields.

    Raises:
        ArgumentError: There is no such field.
    """
    return {name: data[name] for name in choose_columns(list(data), names, places.first)}


def fix_length(name: str, field: Any, places: Places) -> Any:
    """Return lists of one length as rows over the same memory; other fields as they are.

    Raises:
        DataError: Lists differ in length.
    """
    if isinstance(field, Shaped):
        return _fix_shape(name, field, places)
    if not isinstance(field, Lists):
        return field
    lengths = numpy.diff(field.offsets)
    if not len(lengths):
        raise DataError(f"column {name!r} of {places.first} has no rows; expected at least one")
    width = int(lengths[0])
    other = lengths != width
    if other.any():
        row = int(other.argmax())
        raise DataError(
            f"column {name!r} has lists of {width} elements, and one of {int(lengths[row])} in {places.name(row)}; "
            "expected one length for kind 'rows': kind 'sequences' takes lists of any length"
        )
    first, end = int(field.offsets[0]), int(field.offsets[-1])
    return _reshape(field.values, first, end, width)


def _fix_shape(name: str, field: Shaped, places: Places) -> Any:
    """Return lists of lists as rows, if all have one shape.

    Raises:
        DataError: They differ in shape.
    """
    other = (field.shapes != field.shapes[0]).any(axis=1)
    if other.any():
        row = int(other.argmax())
        first, found = field.shapes[0].tolist(), field.shapes[row].tolist()
        raise DataError(
            f"column {name!r} has samples of shape {first}, and one of {found} in {places.name(row)}; expected one "
            "shape for kind 'rows': kind 'sequences' takes any"
        )
    return field.values.reshape(len(field.shapes), *field.shapes[0].tolist(), *field.values.shape[1:])


def _reshape(values: Any, first: int, end: int, width: int) -> Any:
    """Return elements as rows of a width, over the same memory where rows lie in one chunk."""
    if not isinstance(values, ChunkedArray):
        return values[first:end].reshape(-1, width, *values.shape[1:]) if width else numpy.zeros((0, 0))
    chunks = [chunk for chunk in values.cut(first, end) if len(chunk)]
    if not width or any(len(chunk) % width for chunk in chunks):
        return values[first:end].reshape(-1, width, *values.shape[1:])
    rows = [chunk.reshape(-1, width, *values.shape[1:]) for chunk in chunks]
    return rows[0] if len(rows) == 1 else ChunkedArray(rows)


def _leave_out_attention(data: Fields, places: Places) -> Fields:
    """Return fields without an attention mask of ones, which batches have anyway, with a warning.

    Raises:
        DataError: The mask marks padding.
    """
    if ATTENTION not in data:
        return data
    require_ones(data[ATTENTION], places)
    if len(data) == 1:
        raise DataError(f"{places.first} has column {ATTENTION!r} alone; expected the sequences beside it")
    warn_of_ones(places)
    return {name: field for name, field in data.items() if name != ATTENTION}


def warn_of_ones(places: Places) -> None:
    """Warn of an attention mask that is left out."""
    warnings.warn(
        f"column {ATTENTION!r} of {places.first} is all ones and is left out, as batches have such a mask anyway; "
        "columns= without it reads less",
        stacklevel=caller(),
    )


def require_ones(mask: Any, places: Places) -> None:
    """Refuse an attention mask that marks padding.

    Raises:
        DataError: An element is not 1.
        DTypeError: It holds no numbers.
    """
    values = mask.values if isinstance(mask, Lists) else mask
    if not hasattr(values, "dtype"):
        raise DTypeError(f"column {ATTENTION!r} of {places.first} holds objects; expected numbers")
    chunks = values.chunks if isinstance(values, ChunkedArray) else (values,)
    start = 0
    for chunk in chunks:
        is_other = numpy.asarray(chunk) != 1
        if is_other.any():
            place = start + int(is_other.reshape(len(chunk), -1).any(axis=1).argmax())
            row = int(numpy.searchsorted(mask.offsets, place, "right")) - 1 if isinstance(mask, Lists) else place
            raise DataError(
                f"column {ATTENTION!r} is not all ones: {places.name(row)} has padding; expected sequences without "
                f"padding, which batches are padded to: bl.SequenceDataset takes padded ones with their mask"
            )
        start += len(chunk)
