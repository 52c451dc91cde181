"""The window over chunks: its size, as users give it.

Promise: the size is either a number of chunks or a number of bytes, and both at once are an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from batchloom.arguments import byte_count, integer
from batchloom.errors import ArgumentError


class WindowSize(NamedTuple):
    """The size of the window over chunks: one of the two."""

    chunks_open: int | None
    """The number of chunks whose samples are mixed at a time."""
    memory: int | None
    """The bytes of memory for chunks."""


def window_size(chunks_open: int | None, memory: int | str | None) -> WindowSize:
    """Return the size of the window over chunks that a user gave: 16 chunks by default.

    Raises:
        ArgumentError: Both are given, or one of them is no such number.
    """
    if memory is None:
        return WindowSize(integer("chunks_open", 16 if chunks_open is None else chunks_open, least=1), None)
    if chunks_open is not None:
        raise ArgumentError(
            f"memory is {memory!r} and chunks_open is {chunks_open}; expected one of them: memory decides how many "
            "chunks are mixed"
        )
    return WindowSize(None, byte_count("memory", memory))


def require_same_limits(windows: Iterable[tuple[str, WindowSize]]) -> None:
    """Refuse windows where some have a number of bytes and some have none: their sum would limit nothing.

    Args:
        windows: The name of each dataset in messages, and its window.

    Raises:
        ArgumentError: There are both.
    """
    sizes = list(windows)
    limited = next((each for each in sizes if each[1].memory is not None), None)
    unlimited = next((each for each in sizes if each[1].memory is None), None)
    if limited is not None and unlimited is not None:
        raise ArgumentError(
            f"{limited[0]} has memory={limited[1].memory}, and {unlimited[0]} has none; expected memory= for each or "
            "for none: chunks of all lie in the sum of it (an array in memory is a chunk of its nbytes)"
        )
