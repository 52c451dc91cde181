"""Checks of arguments that are the same everywhere."""

import functools
import inspect
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, Protocol, SupportsIndex, TypeVar

import numpy
from batchloom.errors import ArgumentError, RangeError

PACKAGE = os.path.dirname(__file__) + os.sep

U32 = 2**32 - 1
U64 = 2**64 - 1

Class = TypeVar("Class", bound=type)

Uneven = Literal["pad", "mask", "short"]
Shuffle = bool | Literal["runs", "documents", "chunks"]
PadSide = Literal["right", "left"]
PadTo = int | Literal["longest"] | Sequence[int]
Truncate = Literal["error", "left", "right"]
Resident = bool | int | Literal["auto"]
Buffers = Literal["views", "own", "static", "checked"]


class SupportsArray(Protocol):
    """Anything that becomes an array of NumPy: an array, a tensor, a column of a frame."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the values as an array of NumPy."""


PerSample = Sequence[float] | SupportsArray
"""One number for each sample."""

SampleKeys = Sequence[Any] | SupportsArray | int
"""One number or text for each sample; or the field that holds them, by its name or by its place in a tuple."""

UNEVEN = ("pad", "mask", "short")
RUNS = "runs"
DOCUMENTS, CHUNKS = "documents", "chunks"
PAD_SIDE = ("right", "left")
BUFFERS = ("views", "own", "static", "checked")
TRUNCATE = ("error", "left", "right")


def choice(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return ``value``, one of ``allowed``.

    Raises:
        ArgumentError: ``value`` is not one of them.
    """
    if isinstance(value, str) and value in allowed:
        return value
    raise ArgumentError(f"{name} is {value!r}; expected {' or '.join(map(repr, allowed))}")


def boolean(name: str, value: object, *others: str) -> bool:
    """Return ``value`` as a boolean: ``True``, ``False``, or the numbers 1 and 0.

    Args:
        name: The name of the argument.
        value: Its value.
        others: Other values that the argument takes, for the message.

    Raises:
        ArgumentError: ``value`` is anything else: what is true or false of other values is seldom what was meant.
    """
    if value is True or value is False:
        return value
    if isinstance(value, int | numpy.bool_) and value in (0, 1):
        return bool(value)
    *expected, last = ["True", "False", *map(repr, others)]
    raise ArgumentError(f"{name} is {value!r}; expected {', '.join(expected)} or {last}")


def read_shuffle(shuffle: object, *others: str) -> str:
    """Return the argument ``shuffle`` as the engine names it: "samples", "nothing" or "runs".

    Args:
        shuffle: The argument.
        others: Other values that it takes, for the message.

    Raises:
        ArgumentError: ``shuffle`` is neither a boolean nor "runs". ``None`` is ``False``, as for torch.
    """
    if isinstance(shuffle, str) and shuffle == RUNS:
        return RUNS
    return "samples" if shuffle is not None and boolean("shuffle", shuffle, *others, RUNS) else "nothing"


def read_stream_shuffle(shuffle: object, mode: str) -> tuple[str, bool]:
    """Return the shuffle of pieces of a token stream, as the engine names it, and whether documents are shuffled.

    Raises:
        ArgumentError: ``shuffle`` is neither a boolean nor a known string, or shuffles pieces with mode "continuous".
    """
    named = shuffle if isinstance(shuffle, str) else None
    if named == DOCUMENTS:
        return "nothing", True
    if mode == "continuous" and not (shuffle is None or (isinstance(shuffle, bool | int) and shuffle == 0)):
        raise ArgumentError(
            f"shuffle is {shuffle!r}, but rows of a stream go on with mode 'continuous'; expected False or 'documents'"
        )
    pieces = "samples" if named == CHUNKS else read_shuffle(shuffle, DOCUMENTS, CHUNKS)
    return pieces, pieces == "samples" and named is None


def require_known(owner: str, keywords: Mapping[str, Any], *kinds: Any, others: Sequence[str] = ()) -> None:
    """Refuse keywords that are in none of several typed dicts; ``others`` are arguments that may be meant.

    Raises:
        TypeError: There is one. The message names it, and a keyword that is spelled alike.
    """
    known = {name for kind in kinds for name in kind.__annotations__} if keywords else set()
    for name in keywords:
        if name not in known:
            raise make_unknown_keyword_error(owner, name, {*known, *others}, {})


def make_unknown_keyword_error(owner: str, name: str, known: Iterable[str], meanings: Mapping[str, str]) -> TypeError:
    """Return the error for a keyword that ``owner`` does not have, with the keyword that is meant, if one is likely.

    Args:
        owner: The name of a class.
        name: The keyword.
        known: The keywords that there are.
        meanings: Names that other libraries use, and the keyword that each stands for.
    """
    import difflib

    alike = [meanings[name]] if name in meanings else difflib.get_close_matches(name, sorted(known), 1)
    meant = f"; did you mean {alike[0]}?" if alike else ""
    return TypeError(f"{owner}() got an unexpected keyword argument {name!r}{meant}")


def answer_unknown_keywords(**meanings: str) -> Callable[[Class], Class]:
    """Return a decorator of a class: its constructor answers an unknown keyword with the one that is meant.

    Args:
        meanings: Names that other libraries use, and the keyword of the class that each stands for.
    """

    def decorate(kind: Class) -> Class:
        construct = kind.__init__  # type: ignore[misc]
        parameters = inspect.signature(construct).parameters

        @functools.wraps(construct)
        def initialise(self: Any, *arguments: Any, **keywords: Any) -> None:
            try:
                construct(self, *arguments, **keywords)
            except TypeError:
                unknown = next((name for name in keywords if name not in parameters), None)
                if unknown is None:
                    raise
                raise make_unknown_keyword_error(kind.__name__, unknown, parameters, meanings) from None

        kind.__init__ = initialise  # type: ignore[misc]
        return kind

    return decorate


def integer(name: str, value: SupportsIndex, least: int = 0, most: int = U64) -> int:
    """Return ``value`` as an integer between ``least`` and ``most``.

    Raises:
        ArgumentError: ``value`` is not an integer (no float is, not even 2.0), or is out of range.
    """
    if type(value) is int and least <= value <= most:
        return value
    if isinstance(value, bool) or is_mask(value):
        raise ArgumentError(f"{name} is {value}; expected an integer")
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}; expected an integer") from None
    except RuntimeError as error:  # an array without values
        raise ArgumentError(f"{name} is {value!r}; expected an integer: {error}") from None
    if number < least:
        raise ArgumentError(f"{name} is {show_integer(number)}; expected at least {least}")
    if number > most:
        raise ArgumentError(f"{name} is {show_integer(number)}; expected at most {most}")
    return number


def resolve_index(noun: str, index: SupportsIndex, length: int, where: str = "") -> int:
    """Return an index as a place from 0 on; a negative one counts from the end.

    Args:
        noun: The thing that the index numbers.
        index: The index.
        length: The number of such things.
        where: The owner of the things, for the message: `` of source 'x'``.

    Raises:
        RangeError: There is no such thing.
    """
    number = operator.index(index)
    if not -length <= number < length:
        raise out_of_range(noun, number, length, where)
    return number % length


def out_of_range(noun: str, number: int, length: int, where: str = "") -> RangeError:
    """Return the error for a number that is out of range, in the words that all of the package uses."""
    return RangeError(f"{noun} {show_integer(number)}{where} is out of range; expected 0 <= {noun} < {length}")


def count_used(batches: SupportsIndex, taken: int) -> int:
    """Return how many of ``taken`` batches were used: ``batches``; a negative number counts from the last batch.

    Raises:
        ArgumentError: ``batches`` is larger than ``taken``.
    """
    number = integer("batches", batches, least=-taken, most=taken)
    return number if number >= 0 else taken + number


def weight(name: str, value: Any) -> Any:
    """Return ``value``, the weight of a source.

    Raises:
        ArgumentError: It is no number, negative, or larger than any float.
    """
    try:
        is_weight = isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < float("inf")
    except OverflowError:
        is_weight = False
    if not is_weight:
        raise ArgumentError(f"the weight of {name} is {value!r:.80}; expected a finite number, at least 0")
    return value


def text(name: str, value: object) -> str:
    """Return ``value``, a name that can be written as UTF-8.

    Raises:
        ArgumentError: It is no text, or has half of a surrogate pair.
    """
    if not isinstance(value, str):
        raise ArgumentError(f"{name} is {value!r}; expected a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name} is {value!r}; expected a text that UTF-8 can write: {error}") from None
    return value


def is_mask(value: object) -> bool:
    """Return whether a value is of a type of booleans of NumPy or torch: a mask, or an element of one."""
    return str(getattr(value, "dtype", "")).removeprefix("torch.") == "bool"


def show_integer(number: int) -> str:
    """Return an integer as text; Python writes out none of thousands of digits."""
    return str(number) if number.bit_length() <= 256 else f"an integer of {number.bit_length()} bits"


def caller() -> int:
    """Return the level of the first caller outside of the package and of loaders of torch, for a warning's position.

    The level is an argument of ``warnings.warn`` in the function that calls this one.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename, frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    return level


def _is_inside(file: str, module: str) -> bool:
    return file.startswith(PACKAGE) or module.startswith(("torch.", "torchdata.", "accelerate."))
