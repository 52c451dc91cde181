"""Lines of JSON: numbers and lists of numbers by the engine's parser, everything else as dicts to a function.

Promises:

- Numbers are read a run of lines at a time, in the order of a plan, by threads of the loader.
- Where lines hold texts, or a function makes samples, each line is read when its batch is formed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.dataset.base import Dataset
from batchloom.dataset.map.chunk_window import window_size
from batchloom.dataset.map.file_dataset import FileDataset
from batchloom.dataset.tables import ATTENTION
from batchloom.errors import ArgumentError, DataError
from batchloom.formats.cache import cache_folder
from batchloom.formats.columns import choose_columns, make_unknown_column_error
from batchloom.formats.items import Lines, open_items
from batchloom.formats.kinds import ROWS, SEQUENCES, require_keywords, warn_of_ones
from batchloom.formats.options import NAMES, OpenOptions
from batchloom.formats.places import Places
from batchloom.formats.progress import ShownProgress

# The largest number that a float holds without losing others beside it.
MOST = 2**53


def open_files(files: Sequence[str], options: OpenOptions) -> Dataset[Any]:
    """Return the dataset of files.

    Raises:
        ArgumentError: A key does not exist, or options exclude each other.
        DataError: A line is no object of JSON, lacks a key, or holds another kind of value than the first line.
    """
    if options.drops_nulls:
        raise ArgumentError(
            f"nulls is 'drop', and {files[0]} holds lines of JSON, whose nulls are found as they are read; expected a "
            "dict of values by key"
        )
    opened = _native.JsonLines(list(files))
    listed = opened.columns()
    words = dict(listed)
    if options.fn is not None and options.nulls is not None:
        raise ArgumentError("nulls and fn are both given; expected no nulls: fn gets None for a null of JSON")
    if options.fn is not None and options.columns is None:
        return open_items(_lines(files, _parse_object), options)
    chosen = choose_columns([name for name, _ in listed], options.columns, files[0])
    joined = next((name for name, column in chosen.items() if column.joined), None)
    if joined is not None:
        raise ArgumentError(f"columns[{joined!r}] joins keys, which lines of JSON do not; expected a list in each line")
    keys = {name: column.name for name, column in chosen.items()}
    if options.fn is not None:
        return open_items(_lines(files, _Chosen(keys)), options)
    unknown = next((key for key in keys.values() if words[key] == "null"), None)
    if unknown is not None:
        raise DataError(
            f"key {unknown!r} is null in the first line of {files[0]}; expected a value there, which tells its type: "
            "another line first, or columns= without it"
        )
    other = next((key for key in keys.values() if words[key] not in ("number", "list")), None)
    if other is not None:
        for name in ("memory", "chunks_open", "nulls"):
            if getattr(options, name) is not None:
                raise ArgumentError(
                    f"{name} is given, and key {other!r} of {files[0]} holds no number; expected no {name}"
                )
        return open_items(_lines(files, _Chosen(keys)), options)
    keys = _leave_out_attention(opened, keys, words, files)
    kind = options.kind or (SEQUENCES if "list" in {words[key] for key in keys.values()} else ROWS)
    if kind not in (ROWS, SEQUENCES):
        raise ArgumentError(f"kind is {kind!r}, and {files[0]} holds lines of JSON; expected 'rows' or 'sequences'")
    require_keywords(kind, options.more, NAMES)
    if options.more:
        raise ArgumentError(f"{next(iter(options.more))} is given, which data in memory has; expected no such keyword")
    nulls = options.fills
    for key, value in nulls.items():
        if key not in words:
            raise make_unknown_column_error(key, list(words), files[0])
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MOST:
            raise ArgumentError(f"nulls has {value!r} for key {key!r}; expected a number of at most 2**53 in size")
    numbers = tuple((name, key, nulls.get(key)) for name, key in sorted(keys.items()))
    open_chunks = OpenJsonLines(tuple(files), numbers, kind == ROWS)
    are_lists = {name: words[key] == "list" for name, key in keys.items()}
    window = window_size(options.chunks_open, options.memory)
    return FileDataset(files, open_chunks, are_lists, window, options.on_error or "raise")


def _leave_out_attention(
    opened: _native.JsonLines, keys: dict[str, str], words: Mapping[str, str], files: Sequence[str]
) -> dict[str, str]:
    """Return keys without an attention mask of ones, which batches have anyway, with a warning.

    Raises:
        DataError: The mask marks padding.
    """
    mask = keys.get(ATTENTION)
    if mask is None or words[mask] != "list" or len(keys) == 1:
        return keys
    with ShownProgress(f"looking at {mask!r}", "runs of lines") as progress:
        other = opened.find_other_than_one(mask, cache_folder(), progress)
    if other is not None:
        file, row = other
        raise DataError(
            f"key {ATTENTION!r} is not all ones: sample {row} of {file} has padding; expected columns= without it, for "
            "sequences without padding: bl.SequenceDataset takes padded ones with their mask"
        )
    warn_of_ones(Places(files, [0]))
    return {name: key for name, key in keys.items() if name != ATTENTION}


class OpenJsonLines:
    """Opens the chunks of lines of JSON; it pickles, and other processes open them again.

    Args:
        files: The paths.
        keys: The name of each field, its key, and the number in place of a null.
        as_rows: ``True`` if lists have to have one length, and are rows then.
    """

    def __init__(self, files: tuple[str, ...], keys: tuple[tuple[str, str, Any], ...], as_rows: bool) -> None:
        self._files, self._keys, self._as_rows = files, keys, as_rows

    def __call__(self) -> _native.FileChunks:
        """Return the chunks of the files."""
        with ShownProgress(f"looking at {self._files[0]}", "runs of lines") as progress:
            opened = _native.JsonLines(list(self._files))
            names, keys, nulls = zip(*self._keys, strict=True)
            floats = [None if null is None else float(null) for null in nulls]
            return opened.open(list(names), list(keys), floats, self._as_rows, cache_folder(), progress)


class _Chosen:
    """Makes a sample of a line: some of its keys.

    Args:
        keys: The key of each field by name; a dot leads into an object.
    """

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = {name: key.split(".") for name, key in keys.items()}

    def __call__(self, line: bytes) -> dict[str, Any]:
        """Return the fields of a line."""
        found = _parse_object(line)
        return {name: self._value(found, path) for name, path in self._keys.items()}

    def _value(self, found: Any, path: list[str]) -> Any:
        for key in path:
            if not isinstance(found, dict) or key not in found:
                raise DataError(f"it has no key {'.'.join(path)!r}; expected the keys of the first line in each")
            found = found[key]
        return found


def _parse_object(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise DataError(f"it is no JSON: {error}") from None


def _lines(files: Sequence[str], parse: Any) -> Lines:
    places = [numpy.from_dlpack(_native.line_places(file)) for file in files]
    return Lines(files, places, parse)
