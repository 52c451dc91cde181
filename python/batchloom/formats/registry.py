"""`find_format`: the format of files, by their names and by their first bytes.

Promises:

- A format is one line of `FORMATS`; its module is imported when a file of it is opened.
- Files of several formats, and files whose first bytes are another format than their names, are errors that name them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from batchloom.errors import ArgumentError, DataError
from batchloom.formats.tar_headers import has_checksum, is_end

# The format of a folder that is read as a whole.
FOLDER = "hugging_face"

# The format of tokens beside which an index lies, and the suffixes of both files.
PAIRED, PAIR = "megatron", (".bin", ".idx")

# The suffixes of files of torch.save, which are archives as those of NumPy are.
TORCH = (".pt", ".pth")

# The bytes at the beginning of a file that tell formats apart.
LOOKED_AT = 512


def _is_safetensors(head: bytes) -> bool:
    """Return whether bytes begin with the length of a header and the header itself, which is JSON."""
    return len(head) > 9 and head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") < 1 << 40


def _begins(*magic: bytes) -> Callable[[bytes], bool]:
    return lambda head: head.startswith(magic)


@dataclass(frozen=True)
class Format:
    """A format of files.

    Attributes:
        name: Its name, as the option ``format`` takes it.
        title: Its name in messages.
        suffixes: The ends of the names of its files.
        module: The module, with ``open_files(files, options)``, which returns a dataset.
        takes: The options that it has a use for, beside ``columns``, ``kind`` and ``format``.
        is_begun_by: Returns whether the first bytes of a file are its own; ``None`` where nothing marks them.
        is_empty: Returns whether the first bytes are those of a file without contents, which its name alone gives away;
            ``None`` where there is no such file.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    module: str
    takes: tuple[str, ...] = ()
    is_begun_by: Callable[[bytes], bool] | None = None
    is_empty: Callable[[bytes], bool] | None = None

    def open_files(self, files: Sequence[str], options: Any) -> Any:
        """Return the dataset of files."""
        return import_module(f"batchloom.formats.{self.module}").open_files(files, options)


FORMATS = (
    Format("npy", "NumPy arrays", (".npy",), "npy", ("memory",), _begins(b"\x93NUMPY")),
    Format("npz", "NumPy archives", (".npz",), "npz", ("memory",), _begins(b"PK\x03\x04", b"PK\x05\x06")),
    Format("safetensors", "safetensors", (".safetensors",), "safetensors", ("memory",), _is_safetensors),
    Format(
        "arrow",
        "Arrow IPC",
        (".arrow", ".arrows", ".feather", ".ipc"),
        "arrow",
        ("nulls", "memory", "chunks_open", "on_error", "fn"),
        _begins(b"ARROW1", b"\xff\xff\xff\xff"),
    ),
    Format("hugging_face", "folders of datasets", (), "hugging_face", ("nulls", "memory", "on_error", "fn")),
    Format(
        "parquet",
        "Parquet",
        (".parquet", ".pq"),
        "parquet",
        ("nulls", "memory", "chunks_open", "on_error", "fn"),
        _begins(b"PAR1"),
    ),
    Format(
        "jsonl",
        "lines of JSON",
        (".jsonl", ".ndjson"),
        "json_lines",
        ("nulls", "memory", "chunks_open", "on_error", "fn"),
    ),
    Format("text", "lines of text", (".txt",), "text", ("fn", "on_error")),
    Format(
        "tar",
        "tars that are not compressed",
        (".tar", ".tgz", ".tar.gz", ".tar.zst"),
        "tar",
        ("fn", "on_error"),
        has_checksum,
        is_end,
    ),
    Format("megatron", "a corpus of Megatron", (".idx",), "megatron", ("memory",), _begins(b"MMIDIDX\x00\x00")),
    Format("tokens", "tokens", (".bin", ".tok"), "tokens", ("dtype", "header", "memory")),
)
"""All formats; of those that first bytes fit, the first one counts."""


class FoundFormat(NamedTuple):
    """The files of a source, and their format."""

    format: Format
    files: list[str]


def find_format(files: Sequence[str], name: str | None) -> FoundFormat:
    """Return the format of files, and the files that have it.

    In a folder lie files beside the data, such as a README: files of no known format are left out where the files
    beside them have one.

    Args:
        files: The files.
        name: The name of the format; ``None`` to find it.

    Raises:
        ArgumentError: There is no format of this name.
        DataError: Files are of several formats, or of none that is known.
    """
    if name is not None:
        return FoundFormat(name_format(name), list(files))
    formats = {file: _format_of(file) for file in files}
    known = {file: found for file, found in formats.items() if found is not None}
    if not known:
        if files[0].lower().endswith(TORCH):
            raise DataError(
                f"{files[0]} is named as a file of torch.save; expected files that bl.open reads, or "
                "bl.TensorDataset over the tensors that torch.load(path, mmap=True) returns"
            )
        raise DataError(
            f"{files[0]} is of no known format; expected {_list_suffixes()}, or format= with the name of one"
        )
    first = next(iter(known))
    other = next((file for file in known if known[file] is not known[first]), None)
    if other is not None:
        raise DataError(
            f"{first} holds {known[first].title} and {other} {known[other].title}; expected files of one format: a "
            f'pattern such as "*{known[first].suffixes[0]}" chooses among them'
        )
    left_out = next((file for file in files if formats[file] is None), None)
    if left_out is not None and len({os.path.dirname(file) for file in files}) > 1:
        raise DataError(f"{left_out} is of no known format; expected {_list_suffixes()}")
    return FoundFormat(known[first], list(known))


def require_taken(found: Format, given: Sequence[str], always: Sequence[str]) -> None:
    """Refuse options that a format has no use for.

    Raises:
        ArgumentError: There is one.
    """
    for name in given:
        if name not in (*always, *found.takes):
            takers = [each.name for each in FORMATS if name in each.takes]
            raise ArgumentError(
                f"{name} is given, and {found.title} have no use for it; expected it for {' or '.join(takers)} alone"
            )


def name_format(name: object) -> Format:
    """Return the format of a name.

    Raises:
        ArgumentError: No format has this name.
    """
    found = next((each for each in FORMATS if each.name == name), None)
    if found is None:
        raise ArgumentError(f"format is {name!r}; expected {' or '.join(repr(each.name) for each in FORMATS)}")
    return found


def _format_of(file: str) -> Format | None:
    """Return the format of a file; ``None`` where neither its name nor its first bytes fit one.

    Raises:
        DataError: Its first bytes are another format than its name.
    """
    if os.path.isdir(file):  # which nothing but a folder of datasets is
        return name_format(FOLDER)
    stem, suffix = os.path.splitext(file)
    if suffix == PAIR[0] and os.path.isfile(stem + PAIR[1]):
        return name_format(PAIRED)
    named = next((each for each in FORMATS if file.lower().endswith(each.suffixes)), None)
    head = _read_head(file)
    begun = next((each for each in FORMATS if each.is_begun_by is not None and each.is_begun_by(head)), None)
    if named is None:
        return None if file.lower().endswith(TORCH) else begun
    if named.is_begun_by is None or named.is_begun_by(head) or (named.is_empty is not None and named.is_empty(head)):
        return named
    holds = "is empty" if not head else f"begins with {head[:8]!r}" if begun is None else f"holds {begun.title}"
    raise DataError(f"{file} is named as {named.title}, and {holds}; expected a file of {named.title}")


def _read_head(file: str) -> bytes:
    try:
        with open(file, "rb") as opened:
            return opened.read(LOOKED_AT)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}") from None


def _list_suffixes() -> str:
    return ", ".join(each.suffixes[0] for each in FORMATS if each.suffixes)
