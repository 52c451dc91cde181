"""`find_files`: the files that a path, a pattern, a folder or a list of these stands for.

Promises:

- Files of a pattern or a folder come in natural order: numbers in names count as numbers, so ``shard-2`` is before
  ``shard-10``. Entries of a list, and of braces, keep their order.
- A pattern that fits nothing is an error that shows what there is.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from batchloom.arguments import find_alike
from batchloom.errors import ArgumentError, DataError, many

# Names in a message.
SHOWN = 8

# Files that one pattern with braces may stand for.
MOST_FILES = 10_000_000

_NUMBER = re.compile(r"(\d+)")
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

# Folders of other tools: a name in the folder, the tool, and the way to read them.
FOREIGN = (
    ("_versions", "Lance", "bl.ChunkDataset over lance.dataset(path)"),
    ("zarr.json", "Zarr", "bl.ChunkDataset over zarr.open(path)"),
    (".zarray", "Zarr", "bl.ChunkDataset over zarr.open(path)"),
    (".zgroup", "Zarr", "bl.ChunkDataset over zarr.open(path)"),
    ("_delta_log", "Delta Lake", "the Parquet files of its current version, by their names"),
    ("data.mdb", "LMDB", "bl.MapDataset over the keys"),
    ("dataset_dict.json", "datasets, with several splits", ""),
)
# Folders with a file index.json, told apart by a word in it.
INDEXED = (('"shards"', "mosaic streaming (MDS)"), ('"chunks"', "litData"))


def find_files(source: Any) -> list[str]:
    """Return the files of a source, in order, each once.

    Args:
        source: A path, a pattern with ``*``, ``?``, ``[...]`` and ``**``, braces as in ``{000..011}`` and ``{a,b}``, a
            folder, or a list of these.

    Raises:
        ArgumentError: It is no such thing, or a file comes twice.
        DataError: There is no such file, or a folder holds none.
    """
    listed = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(listed, list | tuple | Iterator):
        raise ArgumentError(
            f"source is a {type(source).__name__}; expected a path, a pattern, a folder or a list of these"
        )
    files = [file for each in listed for file in _find(each)]
    if not files:
        raise ArgumentError(f"source is {source!r}; expected at least one path")
    repeated, count = Counter(map(os.path.abspath, files)).most_common(1)[0]
    if count > 1:
        raise ArgumentError(
            f"source has {repeated} {count} times; expected every file once: a bl.Mixture repeats datasets"
        )
    return files


def natural_key(name: str) -> list[Any]:
    """Return the key that sorts names with the numbers in them as numbers."""
    parts = _NUMBER.split(name)
    # The text itself tells `a01` and `a1` apart.
    return [*((int(part), "") if part.isdecimal() else (-1, part) for part in parts), (-1, name)]


def expand_braces(pattern: str) -> Iterator[str]:
    """Yield what braces stand for, in order: ``{08..10}`` for ``08``, ``09``, ``10``, and ``{a,b}`` for both.

    Raises:
        ArgumentError: A range has its end first, or the pattern stands for too many names.
    """
    pieces: list[list[str]] = []
    place, count = 0, 1
    for found in _BRACES.finditer(pattern):
        words = _read_braces(found[1], pattern)
        if words is None:
            continue
        pieces += [[pattern[place : found.start()]], words]
        place, count = found.end(), count * len(words)
    if count > MOST_FILES:
        raise ArgumentError(f"{pattern!r} stands for {count} names; expected at most {MOST_FILES}")
    return ("".join(parts) for parts in itertools.product(*pieces, [pattern[place:]]))


def _read_braces(inner: str, pattern: str) -> list[str] | None:
    """Return the words of a pair of braces; ``None`` for braces that are part of a name."""
    found = _RANGE.fullmatch(inner)
    if found is None:
        return inner.split(",") if "," in inner else None
    first, last = int(found[1]), int(found[2])
    if first > last:
        raise ArgumentError(f"{pattern!r} has the range {found[0]}; expected its least number first")
    if last - first >= MOST_FILES:
        raise ArgumentError(f"{pattern!r} stands for {last - first + 1} names; expected at most {MOST_FILES}")
    return [f"{number:0{len(found[1])}}" for number in range(first, last + 1)]


def _find(entry: Any) -> list[str]:
    """Return the files of one path, pattern or folder."""
    if not isinstance(entry, str | os.PathLike):
        raise ArgumentError(f"source has a {type(entry).__name__}; expected paths, patterns and folders")
    name = os.fsdecode(os.path.expanduser(entry))
    if not name or "\0" in name:
        raise ArgumentError(f"source has {name!r}; expected a path")
    if _REMOTE.match(name):
        raise ArgumentError(
            f"source has {name!r}, which is not on this machine; expected files that are: copy them, or read them by "
            "a bl.ChunkDataset"
        )
    if os.path.isdir(name):
        return _list_folder(name)
    if os.path.lexists(name):
        return [_require_file(name)]
    return [file for each in expand_braces(name) for file in _match(each)]


def _match(pattern: str) -> list[str]:
    """Return the files that a pattern without braces fits."""
    if os.path.isdir(pattern):
        return _list_folder(pattern)
    if os.path.lexists(pattern):
        return [_require_file(pattern)]
    found = sorted(glob.glob(pattern, recursive=True), key=natural_key) if glob.has_magic(pattern) else []
    files = [file for file in found if os.path.isfile(file)]
    if not files and found and all(map(os.path.isdir, found)):
        return [file for folder in found for file in _list_folder(folder)]
    if files or os.path.lexists(f"{pattern}.idx"):
        return files or [f"{pattern}.idx"]
    raise _make_missing_error(pattern)


def _require_file(path: str) -> str:
    if os.path.isfile(path):
        return path
    what = "a broken link" if os.path.islink(path) else "no plain file"
    raise DataError(f"{path} is {what}; expected a file")


def _list_folder(folder: str) -> list[str]:
    """Return the files of a folder that may be data: the folder itself, where `datasets` has saved it.

    Raises:
        DataError: Another tool has written it, or it holds no file.
    """
    names = _names(folder)
    if "state.json" in names and "dataset_info.json" in names:
        return [folder]
    _refuse_foreign(folder, names)
    shown = [name for name in names if not name.startswith((".", "_"))]
    files = [name for name in shown if os.path.isfile(os.path.join(folder, name))]
    if not files:
        inner = [f"{name}{os.sep}" for name in shown]
        below = os.path.join(folder, "**", "*.parquet")
        held = f"; expected files, or a pattern such as {below!r}: it has {_show(inner)}" if inner else ""
        raise DataError(f"folder {folder} holds no file{held or '; expected one with files'}")
    return [os.path.join(folder, name) for name in sorted(files, key=natural_key)]


def _refuse_foreign(folder: str, names: Sequence[str]) -> None:
    """Refuse the folder of another tool, with the way to read it."""
    for name, tool, way in FOREIGN:
        if name in names:
            if way:
                raise DataError(f"{folder} is a folder of {tool}; expected files that bl.open reads, or {way}")
            splits = [each for each in names if os.path.isfile(os.path.join(folder, each, "state.json"))]
            raise DataError(
                f"{folder} is a folder of {tool}: {', '.join(splits)}; expected one of them, as "
                f"{os.path.join(folder, splits[0] if splits else 'train')!r}"
            )
    if "index.json" in names:
        with open(os.path.join(folder, "index.json"), errors="replace") as file:
            text = file.read(1 << 20)
        for word, tool in INDEXED:
            if word in text:
                raise DataError(f"{folder} is a folder of {tool}; expected files that bl.open reads: its own reader")


def _make_missing_error(pattern: str) -> DataError:
    """Return the error for a path or pattern that fits no file, with what its folder holds."""
    folder = os.path.dirname(pattern)
    while folder and (glob.has_magic(folder) or not os.path.isdir(folder)):
        folder = os.path.dirname(folder)
    names = sorted(_names(folder or "."), key=natural_key)
    wanted = pattern[len(folder) :].lstrip(os.sep)
    alike = None if glob.has_magic(wanted) else find_alike(wanted, names)
    meant = "" if alike is None else f"; did you mean {os.path.join(folder, alike)!r}?"
    fits = "fits no file" if glob.has_magic(pattern) else "does not exist"
    return DataError(f"{pattern} {fits}{meant or ';'} folder {folder or '.'} holds {_show(names) or 'nothing'}")


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError as error:
        raise DataError(f"folder {folder} cannot be read: {error}") from None


def _show(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {many(len(names) - SHOWN, 'more name')}"
