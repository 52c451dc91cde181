"""The epochs that a caller counts, beside the epochs of a loader: one rule for every ``set_epoch``.

A trainer counts its epochs, and passes the number of each to loaders. A loader counts its passes over the data. The two
agree until a loader goes round more than once in an epoch of the trainer, or until a trainer counts anew after a state
was loaded. This class remembers which epoch of the loader each number began with, so that a number is never taken for
another pass. ``docs/trainers/README.md`` states the rule for users.
"""

from __future__ import annotations

from typing import Any

from batchloom.arguments import U64
from batchloom.errors import LoaderError, StateError

# The name of the count in states, where it is no default.
KEY = "set_epoch"


class EpochCount:
    """The numbers that a caller gave to ``set_epoch``, and the epoch of the loader that each of them began with."""

    def __init__(self) -> None:
        # The last number of the caller; None until it gives one: it then speaks of the loader's own epochs.
        self._number: int | None = None
        self._firsts: dict[int, int] = {}
        # The loader's epoch at the last call or load: it is still the next one if nothing was taken since.
        self._place = 0
        self._is_loaded = False

    def enter(self, number: int, upcoming: int, *, is_rest: bool) -> int | None:
        """Return the epoch of the loader that epoch ``number`` of the caller begins with; ``None`` to keep the place.

        Args:
            number: The number that the caller gives.
            upcoming: The epoch that the loader begins next by itself.
            is_rest: ``True`` if that is the rest of an epoch, of which batches were taken.

        Raises:
            LoaderError: The caller returns to a number, and the loader does not know the epoch that began with it.
        """
        target = self._target(number, upcoming, is_rest)
        first = self._firsts[self._number] if target is None and self._number is not None else target
        if self._number is not None and number < self._number:
            self._firsts = {each: began for each, began in self._firsts.items() if each < number}
        self._number, self._firsts[number] = number, upcoming if first is None else first
        if target is not None:
            self._place, self._is_loaded = target, False
        return target

    def _target(self, number: int, upcoming: int, is_rest: bool) -> int | None:
        is_untouched = upcoming == self._place
        if self._number is None:
            return None if self._is_loaded and is_untouched and number <= upcoming else number
        if number > self._number:
            return max(number, min(upcoming + is_rest, U64))
        if is_untouched and (number == self._number or self._is_loaded):
            return None
        if number in self._firsts:
            return self._firsts[number]
        following = min(each for each in self._firsts if each > number)
        began = self._firsts[following]
        if began != following:
            raise LoaderError(
                f"set_epoch({number}) goes back before {following}, which began with epoch {began} of the loader, and "
                f"the epoch that {number} began with is not known; expected {following} or more, or a number that was "
                "given since this loader was made or its state was loaded"
            )
        return number

    def entry(self, epoch: int) -> dict[str, list[int]]:
        """Return what a state of ``epoch`` holds of the count: nothing where number and epoch agree."""
        if self._number is None or self._number == epoch == self._firsts[self._number]:
            return {}
        return {KEY: [self._number, self._firsts[self._number]]}

    def load(self, entry: list[int] | None, upcoming: int) -> None:
        """Go on with the count of a state that was loaded, after which ``upcoming`` is the loader's next epoch."""
        self._number = None if entry is None else entry[0]
        self._firsts = {} if entry is None else {entry[0]: entry[1]}
        self._place, self._is_loaded = upcoming, True

    def copy(self, upcoming: int) -> EpochCount:
        """Return the count of a copy of the loader, which stands at the start or the rest of epoch ``upcoming``."""
        copy = EpochCount()
        copy.load(None if self._number is None else [self._number, self._firsts[self._number]], upcoming)
        return copy


def without_count(state: dict[str, Any]) -> tuple[dict[str, Any], list[int] | None]:
    """Return a state without the count of a caller, and that count; ``None`` where it is the default.

    Raises:
        StateError: The state is no dict, or the count is damaged.
    """
    if not isinstance(state, dict):
        raise StateError(f"the state is a {type(state).__name__}; expected the dict that state_dict() returned")
    if KEY not in state:
        return state, None
    entry = state[KEY]
    is_pair = isinstance(entry, list | tuple) and len(entry) == 2
    if not is_pair or not all(type(each) is int and 0 <= each <= U64 for each in entry):
        raise StateError(
            f"the state is damaged: {KEY} is {entry!r:.80}; expected the last number that set_epoch() was given, and "
            "the epoch that began with it"
        )
    return {name: value for name, value in state.items() if name != KEY}, list(entry)
