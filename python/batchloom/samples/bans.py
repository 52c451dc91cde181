"""Samples that a run leaves without weight, as users name them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from batchloom.arguments import integer, is_mask, out_of_range
from batchloom.errors import ArgumentError, many

# Numbers that may come twice, beyond those of all samples: an iterator may not end.
REPEATED = 1 << 20


def read_ban(ban: Any, samples: int, number: Callable[[str, int], int] | None = None) -> list[int] | None:
    """Return the numbers of the samples in ``ban``; ``None`` if it is ``None``.

    Args:
        ban: Numbers of samples, or pairs of the name of a source and the number of a sample there.
        samples: The number of samples.
        number: Returns the number of a sample of a source; ``None`` if there is one source.

    Raises:
        ArgumentError: It is no list of such numbers, or there is no such source.
        RangeError: There is no such sample.
    """
    if ban is None:
        return None
    if isinstance(ban, str | bytes) or not isinstance(ban, Iterable):
        raise ArgumentError(f"ban is {ban!r}; expected numbers of samples, as in ban=[17]")
    if is_mask(ban):
        raise ArgumentError("ban is a mask; expected numbers of samples, as in ban=numpy.flatnonzero(mask)")
    numbers: list[int] = []
    for sample in ban:
        if len(numbers) >= samples + REPEATED:
            raise ArgumentError(
                f"ban gave {many(len(numbers), 'number')} of {many(samples, 'sample')}; expected each of them once"
            )
        if isinstance(sample, tuple):
            if number is None or len(sample) != 2:
                raise ArgumentError(f"ban has {sample!r}; expected numbers of samples, as in ban=[17]")
            numbers.append(number(*sample))
            continue
        banned = integer("a sample in ban", sample)
        if banned >= samples:
            raise out_of_range("sample", banned, samples, " in ban")
        numbers.append(banned)
    return numbers
