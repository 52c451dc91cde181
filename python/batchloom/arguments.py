"""Checks of arguments that are the same everywhere."""

import operator
from collections.abc import Sequence
from typing import SupportsIndex

from batchloom.errors import ArgumentError

U32 = 2**32 - 1
U64 = 2**64 - 1

UNEVEN = ("pad", "short")
RUNS = "runs"
PAD_SIDE = ("right", "left")


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return ``value``, one of ``allowed``.

    Raises:
        ArgumentError: It is none of them.
    """
    if isinstance(value, str) and value in allowed:
        return value
    raise ArgumentError(f"{name} is {value!r}; expected {' or '.join(map(repr, allowed))}")


def shuffled(shuffle: object) -> str:
    """Return what is in random order, as the engine names it: "samples", "nothing" or "runs".

    Raises:
        ArgumentError: ``shuffle`` is a string other than "runs".
    """
    if isinstance(shuffle, str):
        if shuffle != RUNS:
            raise ArgumentError(f"shuffle is {shuffle!r}; expected True, False or 'runs'")
        return RUNS
    return "samples" if shuffle else "nothing"


def streamed(shuffle: object, mode: str) -> tuple[str, bool]:
    """Return what of a stream is in random order: its pieces, as the engine names it, and whether documents are.

    Raises:
        ArgumentError: ``shuffle`` is another string, or rows that go on would not.
    """
    if shuffle == "documents":
        return "nothing", True
    if mode == "continuous" and shuffle:
        raise ArgumentError(
            f"shuffle is {shuffle!r}, but rows of a stream go on with mode 'continuous'; expected False or 'documents'"
        )
    if shuffle == "chunks":
        return "samples", False
    if isinstance(shuffle, str) and shuffle != RUNS:
        raise ArgumentError(f"shuffle is {shuffle!r}; expected True, False, 'documents', 'chunks' or 'runs'")
    return shuffled(shuffle), bool(shuffle) and shuffle != RUNS


def unpadded(pad_value: object, what: str) -> list[tuple[str, bytes]]:
    """Return no values to pad with.

    Raises:
        ArgumentError: One is given.
    """
    if not isinstance(pad_value, int | float) or pad_value != 0:
        raise ArgumentError(f"pad_value is {pad_value!r}; expected 0: {what}")
    return []


def integer(name: str, value: SupportsIndex, least: int = 0, most: int = U64) -> int:
    """Return ``value`` as an integer between ``least`` and ``most``.

    Raises:
        ArgumentError: It is no integer (a float, even a whole one, is none), or lies outside.
    """
    if isinstance(value, bool):
        raise ArgumentError(f"{name} is {value}; expected an integer")
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}; expected an integer") from None
    if number < least:
        raise ArgumentError(f"{name} is {number}; expected at least {least}")
    if number > most:
        raise ArgumentError(f"{name} is {number}; expected at most {most}")
    return number
