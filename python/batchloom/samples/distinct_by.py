"""`DistinctBy`: the keys that samples of a batch never share, one a sample or several, and what happens to a surplus.

Promise: samples share a key exactly where Python finds two of their values equal, in whichever columns these stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy
from batchloom.arguments import SampleKeys, answer_unknown_keywords, choice
from batchloom.errors import ArgumentError, Error
from batchloom.samples.keys import classes_of, classes_of_columns
from batchloom.samples.per_sample import require_each

Array = numpy.ndarray[Any, Any]

Surplus = Literal["error", "drop"]
SURPLUS = ("error", "drop")
OPTION = "distinct_by"


@answer_unknown_keywords
@dataclass(frozen=True, eq=False)
class DistinctBy:
    """The keys that samples of a batch never share, and the treatment of samples that no batch has room for.

    Attributes:
        keys: The key of each sample, as numbers or texts; or several keys a sample, as a dict of such columns. Samples
            then share a key if a value in any column of one is equal to a value in any column of the other. A loader
            takes names of fields in place of columns, and a list of names in place of a dict.
        surplus: The treatment of samples that no batch has room for because their keys are too frequent. ``"error"``
            names such a key. ``"drop"`` leaves these samples out: other ones in each epoch, which ``plan.stats()``
            counts. The number of batches then follows from the samples that are kept, and with several keys it may
            differ from epoch to epoch.

    Raises:
        ArgumentError: ``surplus`` is no known choice.
    """

    keys: SampleKeys | Mapping[str, SampleKeys] = field(repr=False)
    surplus: Surplus = field(default="error", kw_only=True)

    def __post_init__(self) -> None:
        choice("surplus", self.surplus, SURPLUS)

    @classmethod
    def of(cls, given: Any) -> DistinctBy:
        """Return what was given for ``distinct_by``: keys alone, or a `DistinctBy`."""
        return given if isinstance(given, DistinctBy) else cls(given)

    @classmethod
    def from_numbers(cls, numbers: Any, surplus: Any) -> Any:
        """Return what means the same as numbers that :meth:`read` returned: keys alone, where that is all."""
        if numbers.ndim == 1:
            return numbers if surplus == "error" else cls(numbers, surplus=surplus)
        return cls({str(column): keys for column, keys in enumerate(numbers.T)}, surplus=surplus)

    def read(self, samples: int, read: Callable[[str, Any], Any]) -> Array:
        """Return the key of each sample as numbers ``[samples]``, or several keys ``[samples, columns]``.

        Args:
            samples: The number of samples.
            read: Returns the keys that a field holds, for an option and the name of a field.

        Raises:
            ArgumentError: Keys are no numbers or texts, or columns hold keys of different kinds.
            DataError: Keys are not one for each sample in each column.
        """
        columns = _columns(self.keys, samples, read)
        if columns is None:
            numbers = classes_of(read(OPTION, self.keys), OPTION)
            require_each(OPTION, numbers, samples)
            return numbers.astype(numpy.uint32)
        labels = {name: f"{OPTION}[{name!r}]" for name in columns}
        given = {labels[name]: read(labels[name], keys) for name, keys in columns.items()}
        for name, keys in given.items():
            if isinstance(keys, str | int):
                raise ArgumentError(
                    f"{name} is {keys!r}, the name of a field, and a plan knows no fields; expected keys"
                )
        numbers = classes_of_columns(given, OPTION, samples).astype(numpy.uint32)
        return numbers[:, 0] if len(given) == 1 else numbers


def _columns(keys: Any, samples: int, read: Callable[[str, Any], Any]) -> Mapping[Any, Any] | None:
    """Return the columns of several keys a sample, by their names; ``None`` if there is one key."""
    if isinstance(keys, Mapping):
        if not keys:
            raise ArgumentError(f"{OPTION} is an empty dict; expected a column of keys, or several")
        return keys
    if not isinstance(keys, list | tuple) or not keys or not all(isinstance(name, str) for name in keys):
        return None
    # As many texts as samples are one key for each, unless all of them name a field.
    return {name: name for name in keys} if len(keys) != samples or _are_fields(keys, read) else None


def _are_fields(names: Sequence[str], read: Callable[[str, Any], Any]) -> bool:
    try:
        return not any(isinstance(read(OPTION, name), str) for name in names)
    except Error:
        return False
