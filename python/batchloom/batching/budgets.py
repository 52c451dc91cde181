"""Budgets of a batch by the names of sizes, as a value that rules hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from batchloom.arguments import integer
from batchloom.errors import ArgumentError

# The characters of names that mean something else in the text of a rule, or in JSON.
ESCAPES = str.maketrans({character: f"%{ord(character):02X}" for character in '%+=,"\\'})


class Budgets(Mapping[str, int]):
    """Limits of a batch by the names of sizes. They compare as the dict of the same limits, hash and pickle.

    Args:
        limits: The limits by name.

    Raises:
        ArgumentError: There are none, a name is no text, or a limit is below 1.
    """

    __slots__ = ("_limits",)

    def __init__(self, limits: Mapping[str, int]) -> None:
        if not limits:
            raise ArgumentError(f"max_tokens is {limits!r}; expected a number, or a limit for each of some names")
        for name in limits:
            if not isinstance(name, str) or not name:
                raise ArgumentError(f"max_tokens has a budget for {name!r}; expected the name of sizes")
        self._limits = {name: integer(f"max_tokens[{name!r}]", limit, least=1) for name, limit in limits.items()}

    def __getitem__(self, name: str) -> int:
        return self._limits[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._limits)

    def __len__(self) -> int:
        return len(self._limits)

    def __hash__(self) -> int:
        return hash(frozenset(self._limits.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Budgets, (self._limits,)

    def __repr__(self) -> str:
        return repr(self._limits)

    def __str__(self) -> str:
        """Return the text that stands for the budgets in the text of a rule."""
        return "+".join(f"{name.translate(ESCAPES)}={limit}" for name, limit in self._limits.items())
