"""One run of several loaders, whose batches take turns: for datasets of different kinds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from math import ceil, floor
from typing import TYPE_CHECKING, Any, NamedTuple

from batchloom.arguments import U64, choice, count_used, integer, weight
from batchloom.errors import ArgumentError, LoaderError, StateError
from batchloom.loader.epoch_count import EpochCount, without_count
from batchloom.loader.inside import engine_loader, go_on, skip
from batchloom.loader.loader import DataLoader
from batchloom.loader.watchers import Standing, watchers
from batchloom.plan.plan import Plan

if TYPE_CHECKING:
    from fractions import Fraction

VERSION = 1

# A run passes over epochs one by one, so that it refuses to pass over more than these: seconds.
MOST_PASSED = 100_000

WHEN_EXHAUSTED = ("stop", "repeat", "renormalise")

Loaders = Sequence[DataLoader[Any]] | Mapping[Any, DataLoader[Any]]


class Turns(NamedTuple):
    """The turns of an epoch so far.

    Attributes:
        epoch: The epoch.
        taken: The batches that were taken of each loader.
        ended: The loaders that came to an end of their own epoch.
    """

    epoch: int
    taken: tuple[int, ...]
    ended: frozenset[int] = frozenset()

    @property
    def following(self) -> Turns:
        """The start of the next epoch."""
        return Turns(self.epoch + 1, (0,) * len(self.taken))

    def after(self, place: int) -> Turns:
        """Return the turns after one more batch of a loader."""
        return self._replace(taken=(*self.taken[:place], self.taken[place] + 1, *self.taken[place + 1 :]))

    def at_end_of(self, place: int) -> Turns:
        """Return the turns where a loader came to the end of its epoch."""
        return self._replace(ended=self.ended | {place})


class Interleaved:
    """Loaders that take turns, made by :func:`batchloom.interleave`: a loader wherever one is expected.

    Iteration yields ``(name, batch)``. Each iteration is the next epoch, or the rest of an epoch after a state was
    loaded. One state holds the place of each loader. Each loader counts its own epochs: when one ends, the next one
    begins, also in the middle of an epoch of the whole run.
    """

    def __init__(self, loaders: dict[Hashable, DataLoader[Any]], weights: list[Fraction], when_exhausted: str) -> None:
        self._loaders, self._weights, self._when_exhausted = loaders, weights, when_exhausted
        self._names = list(loaders)
        self._turns = Turns(0, (0,) * len(weights))
        # The iterations of the loaders that are under way, and the plans that they began with.
        self._batches: dict[int, Iterator[Any]] = {}
        self._plans: dict[int, Plan] = {}
        # The iteration under way; None where the next one is of the epoch above, or of the rest of it.
        self._iteration: object | None = None
        # An epoch at whose start the states of the loaders are known, to go back to.
        self._origin: tuple[int, list[dict[str, Any]]] | None = None
        self._count = EpochCount()
        # Whether the next iteration is empty: that of a run which waits for the epoch of a trainer to end.
        self._is_over = False
        # The batches of the latest iteration, the turns before the last of them, and the loader that was due.
        self._handed = 0
        self._before: tuple[Turns, int] | None = None

    @property
    def loaders(self) -> dict[Hashable, DataLoader[Any]]:
        """The loaders, by name."""
        return dict(self._loaders)

    @property
    def epoch(self) -> int:
        """The epoch under way, or the next one."""
        return self._turns.epoch

    @property
    def rank(self) -> int:
        """The rank of this process, from 0 to ``world_size - 1``."""
        return self._ranks()[0]

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return self._ranks()[1]

    @property
    def sampler(self) -> Interleaved:
        """This run, whose ``set_epoch`` trainers look for there."""
        return self

    def __len__(self) -> int:
        """Return the number of batches of the whole epoch that is under way, or of the next one, on this rank."""
        return sum(self._count_batches())

    @property
    def remaining(self) -> int:
        """The number of batches that are left of the epoch under way, or of the next one."""
        return len(self) - sum(self._turns.taken)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Return the batches of the next epoch, each with the name of its loader. It begins with the first ``next``.

        The first ``next`` raises what keeps an epoch from beginning:

        - ``ArgumentError`` if ranks of a loader take different numbers of steps (``uneven="short"``), or loaders have
          different ranks;
        - ``LoaderError`` at a later ``next`` if another iteration began meanwhile, or a state was loaded.
        """
        if self._is_over:
            self._is_over = False
            return
        self._check_ranks()
        if self._iteration is not None:
            self._go_to(self._turns.epoch + 1)
        for watcher in watchers():
            watcher.check_length(self, self.__len__)
        self._note_origin()
        mine = self._iteration = object()
        self._handed, self._before = 0, None
        while True:
            place = self._next()
            before = self._turns, place
            batch = self._take(place)
            self._handed, self._before = self._handed + 1, before
            ends = self._ends()
            if ends:
                self._begin_next()
            yield self._names[place], batch
            if ends:
                return
            if self._iteration is not mine:
                raise LoaderError(
                    f"another iteration began, or another place was chosen, while one of {self!r} was under way; "
                    "expected one iteration at a time, since its loaders have one place each"
                )

    def _begin_next(self) -> None:
        """Stand at the start of the next epoch, which loaders begin where they are."""
        self._turns, self._iteration = self._turns.following, None

    def set_epoch(self, epoch: int) -> None:
        """Begin epoch ``epoch`` of the caller with the next iteration. Without calls, epochs advance by themselves.

        Numbers are understood as by :meth:`batchloom.DataLoader.set_epoch`. What is left of epochs in between is
        passed over.

        Raises:
            LoaderError: The number is smaller than the last one, and where the loaders stood then is not known.
        """
        for watcher in watchers():
            watcher.restore(self)
        is_rest = self._iteration is None and any(self._turns.taken)
        upcoming = self._turns.epoch + (self._iteration is not None)
        target = self._count.enter(integer("epoch", epoch), upcoming, is_rest=is_rest)
        if target is not None:
            self._go_to(target)
            self._is_over = False

    def _go_to(self, epoch: int) -> None:
        """Stand at the start of an epoch: pass over the epochs before it, from here or from the origin."""
        self._note_origin()
        self._handed, self._before = 0, None
        now = self._turns.epoch
        if epoch - now > MOST_PASSED:
            raise LoaderError(
                f"epoch {epoch} is asked for in epoch {now}, and loaders that take turns pass over epochs one by one; "
                f"expected at most {now + MOST_PASSED}"
            )
        if epoch < now or (epoch == now and not self._is_between_epochs):
            if self._origin is None or epoch < self._origin[0]:
                raise LoaderError(
                    f"epoch {epoch} is asked for, and its loaders are known from epoch "
                    f"{now + 1 if self._origin is None else self._origin[0]} on, since a state was loaded in "
                    "the middle; expected that or more"
                )
            for loader, state in zip(self._loaders.values(), self._origin[1], strict=True):
                loader.load_state_dict(state)
            self._batches.clear()
            self._turns, self._iteration = Turns(self._origin[0], (0,) * len(self._names)), None
        while self._turns.epoch < epoch:
            left = [whole - taken for whole, taken in zip(self._count_batches(), self._turns.taken, strict=True)]
            self._leave()
            for loader, batches in zip(self._loaders.values(), left, strict=True):
                skip(loader, batches)
            self._begin_next()
            self._note_origin()

    @property
    def _is_between_epochs(self) -> bool:
        """``True`` if the latest batch was the last one of its epoch."""
        return self._iteration is None and not any(self._turns.taken)

    def _note_origin(self) -> None:
        """Remember where the loaders stand, if no earlier start of an epoch is known."""
        if self._origin is None and self._is_between_epochs:
            for place, loader in enumerate(self._loaders.values()):
                if place not in self._batches:
                    go_on(loader)
            self._origin = self.epoch, [loader.state_dict() for loader in self._loaders.values()]

    def _skip(self, batches: int) -> None:
        """Pass over the first batches of the next iteration, which has more."""
        if self._iteration is not None:
            self._go_to(self._turns.epoch + 1)
        self._note_origin()
        self._leave()
        for _ in range(batches):
            place = self._next()
            loader = self._loaders[self._names[place]]
            skip(loader, 1)
            self._turns = self._turns.after(place)
            if not engine_loader(loader).is_rest:
                self._turns = self._turns.at_end_of(place)

    def _leave(self) -> None:
        """Leave the iterations of the loaders; the next iterations are the rest of their epochs."""
        self._batches.clear()
        for loader in self._loaders.values():
            go_on(loader)

    def _next(self) -> int:
        """Return the loader that is due: it has had the fewest batches, divided by its weight."""
        _, taken, ended = self._turns
        rests = ended if self._when_exhausted == "renormalise" else ()
        open_ = [place for place, weight in enumerate(self._weights) if weight > 0 and place not in rests]
        return min(open_, key=lambda place: ((2 * taken[place] + 1) / self._weights[place], place))

    def _take(self, place: int) -> Any:
        """Take a batch of a loader, and note the end of its epoch."""
        loader = self._loaders[self._names[place]]
        if place not in self._batches:
            go_on(loader)
            self._plans[place] = loader.plan()
            self._batches[place] = iter(loader)
        batch = next(self._batches[place])
        self._turns = self._turns.after(place)
        if loader.remaining == 0:
            for _ in self._batches.pop(place):
                pass  # it sees its end
            self._turns = self._turns.at_end_of(place)
        return batch

    def _latest_step(self) -> tuple[Plan, int]:
        """Return the plan that the latest batch is of, and its step there."""
        assert self._before is not None
        _, place = self._before
        return self._plans[place], engine_loader(self._loaders[self._names[place]]).handed_over - 1

    def _ends(self) -> bool:
        ended = self._turns.ended
        return bool(ended) if self._when_exhausted == "stop" else self._drawn <= ended

    def _count_batches(self) -> list[int]:
        """Return the batches of each loader in the whole of this epoch."""
        left = []
        for place, loader in enumerate(self._loaders.values()):
            if place not in self._batches:
                go_on(loader)
            left.append(loader.remaining)
        return self._shares(self._turns.taken, left, self._drawn - self._turns.ended)

    def _shares(self, taken: Sequence[int], left: list[int], open_: set[int]) -> list[int]:
        """Return the batches of each loader in an epoch: the batches taken, and ``left`` batches of its own epoch.

        Loaders that are ``open_`` did not reach the end of their own epoch in it.
        """
        if self._when_exhausted == "renormalise":
            return [have + left[place] if place in open_ else have for place, have in enumerate(taken)]
        ends = [((2 * (taken[place] + left[place]) - 1) / self._weights[place], place) for place in open_]
        end, last = min(ends) if self._when_exhausted == "stop" else max(ends)
        # Turns are in the order of (2 * batches + 1) / weight, and of places where these are equal.
        wholes = [(end * weight + 1) / 2 for weight in self._weights]
        return [
            0 if not weight else ceil(whole) - 1 if place > last else floor(whole)
            for place, (weight, whole) in enumerate(zip(self._weights, wholes, strict=True))
        ]

    def _lengths(self) -> Iterator[int]:
        """Yield the number of batches of each epoch of a run that begins with epoch 0 of each loader."""
        loaders = list(self._loaders.values())
        epochs = [0] * len(loaders)
        left = [len(loader.plan(0)) for loader in loaders]
        while True:
            turns = self._shares([0] * len(loaders), left, self._drawn)
            yield sum(turns)
            for place, loader in enumerate(loaders):
                while turns[place] >= left[place]:
                    turns[place] -= left[place]
                    epochs[place] += 1
                    left[place] = len(loader.plan(epochs[place]))
                left[place] -= turns[place]

    def _ranks(self) -> tuple[int, int]:
        """Return the rank and the world size, which all loaders share.

        Raises:
            ArgumentError: They differ.
        """
        ranks = {name: (loader.rank, loader.world_size) for name, loader in self._loaders.items()}
        if len(set(ranks.values())) > 1:
            said = ", ".join(f"{name!r} {rank} of {size}" for name, (rank, size) in ranks.items())
            raise ArgumentError(f"loaders have different ranks: {said}; expected the same")
        return next(iter(ranks.values()))

    def _check_ranks(self) -> None:
        self._ranks()
        for name, loader in self._loaders.items():
            plan = loader.plan()
            if plan.options.uneven == "short" and not plan.drop_last and plan.world_size > 1:
                raise ArgumentError(
                    f"loader {name!r} has uneven='short', by which ranks take different numbers of steps; expected "
                    "'pad' or 'mask', so that all ranks take turns alike"
                )

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state of the run after the last batch that was handed over: plain values, alike on all ranks.

        Args:
            batches: The number of batches that were used of the latest iteration: all, or all but the last one (-1),
                for loops that take a batch ahead of its use. ``None`` for all that were handed over.

        Raises:
            ArgumentError: The iteration handed over fewer batches, or more than one waits.
        """
        left = self._handed if batches is None else count_used(batches, self._handed)
        if left < self._handed - 1:
            raise ArgumentError(
                f"batches is {batches}, and the iteration handed over {self._handed}; expected all of them, or all but "
                "the last one (-1), of loaders that take turns"
            )
        states = [loader.state_dict() for loader in self._loaders.values()]
        turns = self._turns
        if left < self._handed and self._before is not None:
            turns, place = self._before
            states[place] = self._loaders[self._names[place]].state_dict(batches=-1)
        names = [repr(name) for name in self._names]
        return {
            "version": VERSION,
            "epoch": turns.epoch,
            "weights": [str(weight) for weight in self._weights],
            "taken": list(turns.taken),
            "ended": sorted(turns.ended),
            "loaders": states,
            **({} if names == _name_by_place(len(names)) else {"names": names}),
            **self._count.entry(turns.epoch),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``. Other weights than then hold from here on.

        Raises:
            StateError: The state is of other loaders or another version, or damaged, or a trainer that is loading it
                stands elsewhere. The run is then unchanged.
        """
        state, count = without_count(state)
        if state.get("version") != VERSION:
            raise StateError(f"the state is of version {state.get('version')!r:.80}; expected {VERSION}")
        many = len(self._loaders)
        state = self._in_order(state)
        loaders, weights = (_read_list(state, key, many) for key in ("loaders", "weights"))
        if not all(isinstance(weight, str) for weight in weights):
            raise StateError(f"the state is damaged: weights is {weights!r:.80}; expected texts")
        epoch = _integer("epoch", state.get("epoch"), U64)
        taken = [_integer("taken", each, U64) for each in _read_list(state, "taken", many)]
        ended = {_integer("ended", place, many - 1) for place in _read_list(state, "ended")}
        is_same = weights == [str(weight) for weight in self._weights]
        if self._drawn <= ended:
            if is_same:
                raise StateError(
                    f"the state is damaged: ended is {sorted(ended)}, in mid-epoch; expected fewer loaders"
                )
            epoch, ended = epoch + 1, set()  # all that have a share now came to their ends
        before = self.state_dict()
        kept = {name: value for name, value in vars(self).items() if name != "_count"}
        done: list[DataLoader[Any]] = []
        try:
            for loader, saved in zip(self._loaders.values(), loaders, strict=True):
                done.append(loader)
                loader.load_state_dict(saved)
            self._turns = Turns(epoch, tuple(taken) if is_same else (0,) * many, frozenset(ended))
            self._batches, self._handed = {}, 0
            self._iteration = self._origin = self._before = None
            steps = [saved.get("steps", 0) for saved in loaders]
            if any(have > most for have, most in zip(self._turns.taken, steps, strict=True)):
                raise StateError(
                    f"the state is damaged: taken is {taken}, of loaders that took {steps}; expected no more"
                )
            for watcher in watchers():
                watcher.check_place(self, lambda: Standing(len(self), self.remaining, self._is_resized(loaders)))
        except Exception:
            vars(self).update(kept | {"_batches": {}})
            for loader, saved in zip(done, before["loaders"], strict=False):
                loader.load_state_dict(saved)
            raise
        self._count.load(count, epoch)
        self._is_over = any(
            watcher.is_over(self, lambda: Standing(len(self), self.remaining, False)) for watcher in watchers()
        )

    def _in_order(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state with the entries of each loader in the order of this run, by name.

        Raises:
            StateError: The state is of loaders of other names.
        """
        many = len(self._names)
        mine, names = [repr(name) for name in self._names], _read_list(state, "names") if "names" in state else None
        theirs = _name_by_place(many) if names is None else names
        if sorted(map(str, theirs)) != sorted(mine):
            raise StateError(f"the state is of loaders named {', '.join(map(str, theirs))}; expected {', '.join(mine)}")
        order = [theirs.index(name) for name in mine]
        moved = {key: _read_list(state, key, many) for key in ("weights", "taken", "loaders")}
        ended = [_integer("ended", place, many - 1) for place in _read_list(state, "ended")]
        lists = {key: [entries[place] for place in order] for key, entries in moved.items()}
        return {**state, **lists, "ended": [order.index(place) for place in ended]}

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy starts from: the loaders, and the place in the run. No iteration is under way there."""
        fresh: dict[str, Any] = {
            "_batches": {},
            "_plans": {},
            "_iteration": None,
            "_handed": 0,
            "_before": None,
        }
        epoch = self.epoch + (self._iteration is not None and not any(self._turns.taken))
        return {**vars(self), **fresh, "_count": self._count.copy(epoch)}

    def _is_resized(self, states: list[dict[str, Any]]) -> bool:
        """Return whether loaders stand in an epoch that another number of ranks took batches of."""
        return any(size != self.world_size for state in states for size, _ in state["worlds"])

    @property
    def _drawn(self) -> set[int]:
        """The loaders that have a share."""
        return {place for place, weight in enumerate(self._weights) if weight > 0}

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {float(weight):g}" for name, weight in zip(self._names, self._weights, strict=True))
        return f"interleave({parts}; epoch {self.epoch})"


# The kinds of loaders, for what takes any of them.
LOADERS = (DataLoader, Interleaved)


def interleave(loaders: Loaders, weights: Any = None, *, when_exhausted: str = "stop") -> Interleaved:
    """Return one run of several loaders that take turns by weight.

    Datasets of one kind are better put into a :class:`batchloom.Mixture`: a batch may then hold samples of several.
    Here each batch is of one loader, with its own rule, fields and device::

        run = bl.interleave({"images": images, "captions": captions}, weights={"images": 3, "captions": 1})
        for name, batch in run:
            ...

    The next batch is of the loader with the fewest batches so far, divided by its weight. Shares therefore hold at
    every place, to one batch. Turns are the same on every rank.

    Args:
        loaders: Loaders by name, or a list of loaders, named 0, 1 and so on.
        weights: The weight of each loader, in batches: by name, or a list; ``None`` for equal weights. A loader of
            weight 0 is left out.
        when_exhausted: The end of an epoch: ``"stop"`` when the epoch of one loader ends (the next epoch continues the
            epochs of the other loaders), ``"repeat"`` when the epoch of every loader has ended at least once,
            ``"renormalise"`` when every loader has ended its epoch once, and the remaining loaders share the weight of
            a loader that ended.

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
    given = _read_weights(named, weights)
    exact = [_to_fraction(weight(f"loader {name!r}", each)) for name, each in zip(named, given, strict=True)]
    if not any(exact):
        raise ArgumentError("all weights are 0; expected one above 0")
    return Interleaved(named, exact, choice("when_exhausted", when_exhausted, WHEN_EXHAUSTED))


def _read_weights(loaders: dict[Hashable, Any], weights: Any) -> list[Any]:
    if weights is None:
        return [1] * len(loaders)
    if isinstance(weights, Mapping):
        if weights.keys() != loaders.keys():
            raise ArgumentError(f"weights names {list(weights)}; expected one for each of {list(loaders)}")
        return [weights[name] for name in loaders]
    if isinstance(weights, str) or not hasattr(weights, "__len__") or len(weights) != len(loaders):
        raise ArgumentError(f"weights is {weights!r}; expected one for each of {len(loaders)} loaders")
    return list(weights)


def _to_fraction(number: Any) -> Fraction:
    """Return a weight without rounding."""
    from fractions import Fraction

    return Fraction(number) if isinstance(number, int) else Fraction(float(number))


def _read_list(state: dict[str, Any], key: str, count: int | None = None) -> list[Any]:
    """Return a list in a state, with an entry for each loader if ``count`` is the number of loaders."""
    entries = state.get(key)
    if not isinstance(entries, list | tuple):
        raise StateError(f"the state is damaged: {key} is {entries!r:.80}; expected a list")
    if count is not None and len(entries) != count:
        raise StateError(f"the state is of {len(entries)} loaders; expected {count}")
    return list(entries)


def _name_by_place(many: int) -> list[str]:
    """Return the names of loaders that were given as a list."""
    return [repr(place) for place in range(many)]


def _integer(key: str, value: Any, most: int) -> int:
    """Return a number in a state."""
    if type(value) is not int or not 0 <= value <= most:
        raise StateError(f"the state is damaged: {key} has {value!r:.80}; expected a whole number from 0 to {most}")
    return value


def is_under_way(loader: Interleaved) -> bool:
    """Return whether an iteration has begun and is not over."""
    return loader._iteration is not None


def is_between_epochs(loader: Interleaved) -> bool:
    """Return whether the latest batch was the last one of its epoch."""
    return loader._is_between_epochs


def latest_step(loader: Interleaved) -> tuple[Plan, int]:
    """Return the plan that the latest batch is of, and its step there."""
    return loader._latest_step()


def lengths(loader: Interleaved) -> Iterator[int]:
    """Return the number of batches of each epoch of a run that begins with epoch 0 of each loader."""
    return loader._lengths()
