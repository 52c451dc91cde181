"""Headers of tars: the members of an archive, by a walk over its headers.

Promises:

- Each header is checked by its sum; contents of members are not read.
- What a walk cannot give as plain bytes is an error that names the member: sparse files, links, devices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple
from zlib import adler32

from batchloom.errors import DataError

BLOCK, HALF = 512, 256

# The fields of a header.
_NAME, _SIZE, _SUM = slice(0, 100), slice(124, 136), slice(148, 156)
_KIND, _MAGIC, _PREFIX = slice(156, 157), slice(257, 263), slice(345, 500)
USTAR = b"ustar\x00"

# Kinds of members: files, folders, and those that describe the member after them.
FILES, FOLDER = (b"0", b"\0", b"7"), b"5"
LONG_NAME, LONG_LINK, PAX, GLOBAL_PAX = b"L", b"K", b"x", b"g"
_OTHERS = {
    b"1": "a hard link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a sparse file",
}

# The most bytes of a description of a member: no path is as long.
LONGEST = 1 << 20

# Bytes after the end of an archive that are looked at: writers fill up a record.
TAIL = 1 << 16


class Member(NamedTuple):
    """A member of a tar: its name, and its bytes in the archive."""

    name: str
    start: int
    size: int


def is_end(block: bytes) -> bool:
    """Return whether a block ends an archive: it has no byte but zeros."""
    return len(block) == BLOCK and not any(block)


def has_checksum(block: bytes) -> bool:
    """Return whether a block is a header: its bytes have the sum that it holds."""
    if len(block) < BLOCK:
        return False
    # An Adler sum counts bytes up to 65 520 in its lower half, which 256 bytes do not exceed.
    found = (adler32(block[:HALF]) & 0xFFFF) + (adler32(block[HALF:BLOCK]) & 0xFFFF) - 2
    field = block[_SUM]
    try:
        return found - sum(field) + 8 * ord(" ") == _read_number(field)
    except ValueError:
        return False


def list_members(path: str) -> Iterator[Member]:
    """Yield the files in a tar, in order.

    Raises:
        DataError: The archive is damaged, ends early, or has a member that is no plain file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    try:
        yield from _walk(path, descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _walk(path: str, descriptor: int, total: int) -> Iterator[Member]:
    """Yield the files in an open tar."""
    place, described = 0, dict[str, str]()
    while True:
        block = os.pread(descriptor, BLOCK, place)
        if len(block) < BLOCK:
            raise DataError(f"{path} ends at byte {total} without its mark of an end; expected a whole tar")
        if block[0] == 0 and not block.strip(b"\0"):
            _require_end(path, descriptor, place)
            return
        if not has_checksum(block):
            raise DataError(f"{path} has no header of a tar at byte {place}; expected a whole tar")
        start = place + BLOCK
        try:
            size = int(described["size"]) if "size" in described else _read_number(block[_SIZE])
        except ValueError:
            size = -1
        if not 0 <= size <= total - start:
            raise DataError(
                f"the member at byte {place} of {path} takes {size} bytes, and {total - start} are there; expected a "
                "whole tar"
            )
        kind = block[_KIND]
        if kind in (LONG_NAME, LONG_LINK, PAX, GLOBAL_PAX):
            described |= _read_description(path, descriptor, place, size, kind)
        else:
            name = described.get("path") or _read_name(block)
            _require_plain(path, name, kind, described)
            if kind in FILES:
                yield Member(name, start, size)
            described = {}
        place = start + -(-size // BLOCK) * BLOCK


def _require_plain(path: str, name: str, kind: bytes, described: dict[str, str]) -> None:
    """Refuse a member that is neither a file nor a folder."""
    if kind in FILES and not described:
        return
    is_sparse = any(key.startswith("GNU.sparse.") for key in described)
    if is_sparse or kind not in (*FILES, FOLDER):
        what = "a sparse file" if is_sparse else _OTHERS.get(kind, f"of kind {kind!r}")
        raise DataError(f"member {name!r} of {path} is {what}; expected plain files and folders")


def _require_end(path: str, descriptor: int, place: int) -> None:
    """Refuse an archive with members after its end, as tars that were put together have."""
    if os.pread(descriptor, TAIL, place).strip(b"\0"):
        raise DataError(
            f"{path} goes on after the mark of its end at byte {place}; expected one tar: tars that were put together "
            "are several files"
        )


def _read_description(path: str, descriptor: int, place: int, size: int, kind: bytes) -> dict[str, str]:
    """Return the description that a member holds of the member after it, by the names of pax."""
    if size > LONGEST:
        raise DataError(f"the member at byte {place} of {path} describes another one in {size} bytes; expected a path")
    contents = os.pread(descriptor, size, place + BLOCK)
    if kind == LONG_NAME:
        return {"path": _decode(contents.rstrip(b"\0"))}
    if kind != PAX:
        return {}
    found: dict[str, str] = {}
    while contents:
        length, _, _ = contents.partition(b" ")
        if not length.isdigit() or not len(length) + 1 < int(length) <= len(contents):
            raise DataError(f"the member at byte {place} of {path} has damaged records; expected a whole tar")
        key, _, value = contents[len(length) + 1 : int(length) - 1].partition(b"=")
        found[_decode(key)] = _decode(value)
        contents = contents[int(length) :]
    return found


def _read_name(block: bytes) -> str:
    """Return the name in a header."""
    name = block[_NAME].split(b"\0", 1)[0]
    prefix = block[_PREFIX].split(b"\0", 1)[0] if block[_MAGIC] == USTAR else b""
    return _decode(prefix + b"/" + name if prefix else name)


def _read_number(field: bytes) -> int:
    """Return a number: in octal digits, or in binary where its first bit is set."""
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise ValueError("a number is negative")
        return int.from_bytes(field[1:], "big")
    return int(field.split(b"\0", 1)[0].strip() or b"0", 8)


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")
