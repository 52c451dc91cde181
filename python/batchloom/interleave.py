"""One run of several loaders, whose batches take turns: for datasets of different kinds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from batchloom.arguments import U64, choice, weight
from batchloom.errors import ArgumentError, StateError
from batchloom.loader import DataLoader

VERSION = 1

WHEN_EXHAUSTED = ("stop", "repeat", "renormalise")

Loaders = Sequence[DataLoader[Any]] | Mapping[Any, DataLoader[Any]]


class Interleaved:
    """Loaders whose batches take turns, made by :func:`batchloom.interleave`.

    Iteration yields ``(name, batch)`` until the epoch ends, and goes on where it was left: one state says what was
    taken of each loader. Loaders go from epoch to epoch by themselves.
    """

    def __init__(self, loaders: dict[Hashable, DataLoader[Any]], weights: list[Fraction], when_exhausted: str) -> None:
        self._loaders, self._weights, self._when_exhausted = loaders, weights, when_exhausted
        self._names = list(loaders)
        self._epoch = 0
        # The batches of each loader in the epoch, and the loaders that came to an end of theirs in it.
        self._taken = [0] * len(weights)
        self._ended: set[int] = set()
        self._batches: dict[int, Iterator[Any]] = {}

    @property
    def loaders(self) -> dict[Hashable, DataLoader[Any]]:
        """The loaders, by name."""
        return dict(self._loaders)

    @property
    def epoch(self) -> int:
        """The epoch under way, or the next one."""
        return self._epoch

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yield the name of a loader and its next batch, until the epoch ends; what is left of one comes first.

        Raises:
            ArgumentError: Ranks of a loader take different numbers of steps (``uneven="short"``).
        """
        self._check_ranks()
        while True:
            place = self._next()
            batch = self._take(place)
            ends = self._ends()
            if ends:
                self._epoch, self._taken, self._ended = self._epoch + 1, [0] * len(self._weights), set()
            yield self._names[place], batch
            if ends:
                return

    def _next(self) -> int:
        """Return the loader that is due: the one that has had least, in relation to its weight."""
        rests = self._ended if self._when_exhausted == "renormalise" else ()
        open_ = [place for place, weight in enumerate(self._weights) if weight > 0 and place not in rests]
        return min(open_, key=lambda place: ((2 * self._taken[place] + 1) / self._weights[place], place))

    def _take(self, place: int) -> Any:
        """Take a batch of a loader, and note the end of its epoch."""
        loader = self._loaders[self._names[place]]
        if place not in self._batches:
            loader._go_on()
            self._batches[place] = iter(loader)
        batch = next(self._batches[place])
        self._taken[place] += 1
        if loader.remaining == 0:
            for _ in self._batches.pop(place):
                pass  # it sees its end
            self._ended.add(place)
        return batch

    def _ends(self) -> bool:
        return bool(self._ended) if self._when_exhausted == "stop" else self._drawn <= self._ended

    def _check_ranks(self) -> None:
        for name, loader in self._loaders.items():
            plan = loader.plan()
            if plan.uneven == "short" and not plan.drop_last and plan.world_size > 1:
                raise ArgumentError(
                    f"loader {name!r} has uneven='short', by which ranks take different numbers of steps; expected "
                    "'pad' or 'mask', so that all ranks take turns alike"
                )

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run after the last batch that was handed over: plain values, alike on all ranks."""
        return {
            "version": VERSION,
            "epoch": self._epoch,
            "weights": [str(weight) for weight in self._weights],
            "taken": list(self._taken),
            "ended": sorted(self._ended),
            "loaders": [loader.state_dict() for loader in self._loaders.values()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``. Other weights than then hold from here on.

        Raises:
            StateError: The state is of other loaders or another version, or damaged. The run is then unchanged.
        """
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise StateError(f"the state is {state!r:.80}; expected the dict that state_dict() returned")
        count = len(self._loaders)
        loaders, weights = (_listed(state, key, count) for key in ("loaders", "weights"))
        if not all(isinstance(weight, str) for weight in weights):
            raise StateError(f"the state is damaged: weights is {weights!r:.80}; expected texts")
        epoch = _integer("epoch", state.get("epoch"), U64)
        taken = [_integer("taken", each, U64) for each in _listed(state, "taken", count)]
        ended = {_integer("ended", place, count - 1) for place in _listed(state, "ended")}
        is_same = weights == [str(weight) for weight in self._weights]
        if self._drawn <= ended:
            if is_same:
                raise StateError(
                    f"the state is damaged: ended is {sorted(ended)}, in mid-epoch; expected fewer loaders"
                )
            epoch, ended = epoch + 1, set()  # all that have a share now came to their ends
        before = self.state_dict()["loaders"]
        done: list[DataLoader[Any]] = []
        try:
            for loader, found in zip(self._loaders.values(), loaders, strict=True):
                done.append(loader)
                loader.load_state_dict(found)
        except Exception:
            for loader, found in zip(done, before, strict=False):
                loader.load_state_dict(found)
            raise
        self._epoch, self._ended, self._batches = epoch, ended, {}
        self._taken = taken if is_same else [0] * count

    @property
    def _drawn(self) -> set[int]:
        """The loaders that have a share."""
        return {place for place, weight in enumerate(self._weights) if weight > 0}

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {float(weight):g}" for name, weight in zip(self._names, self._weights, strict=True))
        return f"interleave({parts}; epoch {self._epoch})"


def interleave(loaders: Loaders, weights: Any = None, *, when_exhausted: str = "stop") -> Interleaved:
    """Return one run of several loaders, whose batches take turns by weight.

    Datasets of one kind are better put into a :class:`batchloom.Mixture`, whose batches may hold samples of several.
    Here each batch is of one loader, with its own rule, fields and device::

        run = bl.interleave({"images": images, "captions": captions}, weights={"images": 3, "captions": 1})
        for name, batch in run:
            ...

    The next batch is always of the loader that has had least, in relation to its weight, so that shares hold at every
    place, to one batch. Turns are the same on every rank.

    Args:
        loaders: Loaders by name, or a list of them, whose names are then 0, 1 and so on.
        weights: The weight of each loader, in batches: by name, or a list; ``None`` for equal ones. 0 leaves one out.
        when_exhausted: The end of an epoch: ``"stop"`` when one loader came to the end of its own (the others go on
            where they stopped in the next one), ``"repeat"`` when all did at least once, ``"renormalise"`` when all did
            once, where those that did leave their share to the others.

    Raises:
        ArgumentError: There are no loaders, one is given twice, or weights are not one for each of them.
    """
    if not isinstance(loaders, Iterable):
        raise ArgumentError(f"loaders is a {type(loaders).__name__}; expected loaders by name, or a list of them")
    named: dict[Hashable, Any] = dict(loaders) if isinstance(loaders, Mapping) else dict(enumerate(loaders))
    if not named:
        raise ArgumentError("loaders is empty; expected at least one DataLoader")
    for name, loader in named.items():
        if not isinstance(loader, DataLoader):
            raise ArgumentError(f"loader {name!r} is a {type(loader).__name__}; expected a batchloom.DataLoader")
    if len({id(loader) for loader in named.values()}) < len(named):
        raise ArgumentError("a loader is given twice; expected a loader of its own for each name")
    given = _given(named, weights)
    found = [_exact(weight(f"loader {name!r}", each)) for name, each in zip(named, given, strict=True)]
    if not any(found):
        raise ArgumentError("all weights are 0; expected one above 0")
    return Interleaved(named, found, choice("when_exhausted", when_exhausted, WHEN_EXHAUSTED))


def _given(loaders: dict[Hashable, Any], weights: Any) -> list[Any]:
    if weights is None:
        return [1] * len(loaders)
    if isinstance(weights, Mapping):
        if weights.keys() != loaders.keys():
            raise ArgumentError(f"weights names {list(weights)}; expected one for each of {list(loaders)}")
        return [weights[name] for name in loaders]
    if isinstance(weights, str) or not hasattr(weights, "__len__") or len(weights) != len(loaders):
        raise ArgumentError(f"weights is {weights!r}; expected one for each of {len(loaders)} loaders")
    return list(weights)


def _exact(number: Any) -> Fraction:
    """Return a weight without rounding."""
    return Fraction(number) if isinstance(number, int) else Fraction(float(number))


def _listed(state: dict[str, Any], key: str, count: int | None = None) -> list[Any]:
    """Return a list in a state, which has an entry for each loader if ``count`` says how many there are."""
    found = state.get(key)
    if not isinstance(found, list | tuple):
        raise StateError(f"the state is damaged: {key} is {found!r:.80}; expected a list")
    if count is not None and len(found) != count:
        raise StateError(f"the state is of {len(found)} loaders; expected {count}")
    return list(found)


def _integer(key: str, value: Any, most: int) -> int:
    """Return a number in a state."""
    if type(value) is not int or not 0 <= value <= most:
        raise StateError(f"the state is damaged: {key} has {value!r:.80}; expected a whole number from 0 to {most}")
    return value
