"""The batches of a run, by definition: slow, obvious, and taken from the engine only in the order itself.

And runs that are left and resumed. ``seen`` makes values out of batches, which can be compared.
"""

import itertools
import json
from dataclasses import dataclass, replace

import batchloom as bl
import numpy
from hypothesis import settings
from hypothesis import strategies as st
from oracles import batching


@dataclass(frozen=True)
class Run:
    """The arguments of a run, small enough to list all that it delivers."""

    samples: int
    batch_size: int
    shuffle: bool | str = True
    drop_last: bool = False
    seed: int = 0
    uneven: str = "pad"

    def options(self):
        return {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "seed": self.seed,
            "uneven": self.uneven,
        }

    def order(self, epoch):
        """All samples as one batch of one rank."""
        return batching.order(self.samples, self.shuffle is True, self.seed, epoch)

    def batches(self, epoch):
        """The order in pieces of ``batch_size``, behind those that come before the first full run."""
        order = self.order(epoch)
        before = self.before(epoch) if self.shuffle == "runs" else 0
        pieces = [order[:before]] * (before > 0) + batching.pieces(order[before:], self.batch_size)
        pieces = [piece for piece in pieces if not self.drop_last or len(piece) == self.batch_size]
        if self.shuffle != "runs" or not pieces:
            return pieces
        return [pieces[place] for place in self.run_order(len(pieces), epoch)]

    def before(self, epoch):
        """The samples before the first full run, as the engine has them."""
        if self.samples < self.batch_size:
            return 0
        options = {"shuffle": "runs", "seed": self.seed, "epoch": epoch, "drop_last": self.drop_last}
        plan = bl.Plan(self.samples, self.batch_size, **options)
        first = plan[self.run_order(len(plan), epoch).index(0)]
        if self.drop_last:
            return int(first[0])
        return len(first) % self.batch_size if len(plan) > 1 else 0

    def run_order(self, runs, epoch):
        """The order of runs, as the engine has it: a run of one sample stands for a batch."""
        return [int(batch[0]) for batch in bl.Plan(runs, 1, shuffle="runs", seed=self.seed, epoch=epoch)]

    def steps(self, epoch, world_size):
        """The batches of each step."""
        return dealt(self.batches(epoch), world_size, self.drop_last, self.uneven)

    def seen(self, epoch, world_size=1, rank=0):
        """The batches of one rank."""
        return [step[rank] for step in self.steps(epoch, world_size) if rank < len(step)]

    def plan(self, epoch=0, world_size=1, rank=0):
        return bl.Plan(self.samples, **self.options(), epoch=epoch, world_size=world_size, rank=rank)

    def loader(self, world_size=1, rank=0, **more):
        """A loader over the sample numbers, so that a batch says which samples it holds."""
        dataset = bl.TensorDataset(numpy.arange(self.samples))
        return bl.DataLoader(dataset, **self.options(), world_size=world_size, rank=rank, **more)

    def loaders(self, world_size):
        return [self.loader(world_size, rank) for rank in range(world_size)]

    def with_seed(self, seed):
        return replace(self, seed=seed)


def dealt(batches, world_size, drop_last, uneven, equal=True):
    """The batches, ``world`` at a time, and what becomes of those that do not fill a step."""
    steps = batching.pieces(batches, world_size)
    if drop_last:
        return [step for step in steps if len(step) == world_size]
    if uneven == "short":
        return steps
    again = batches if uneven == "pad" else batches[-1:]
    return [filled(step, again, world_size, equal) for step in steps]


def filled(step, again, world_size, equal):
    """As many batches as ranks; if they are ``equal``, as large as the largest of ``step``: each is repeated."""
    size = max(map(len, step))
    batches = [*step, *cycled(again, world_size - len(step))]
    return [cycled(batch, size) for batch in batches] if equal else batches


def cycled(elements, count):
    """So many elements: the first ones, or all and then the first ones again."""
    return list(itertools.islice(itertools.cycle(elements), count))


def unfilled(batch):
    """The samples of a batch without those that come again at its end."""
    return tuple(dict.fromkeys(batch))


def listed(batches):
    """The samples of each batch that a loader over the sample numbers yields."""
    return [batch[0].tolist() for batch in batches]


def saved(state):
    """A state after a trip through text, as a checkpoint makes it."""
    return json.loads(json.dumps(state))


def part(fraction, count):
    """A number from 0 to ``count``, both included."""
    return min(int(fraction * (count + 1)), count)


def resume(loader, state):
    """Load a state that was a checkpoint; the loader then saves the same one, unless its ranks have nothing left."""
    loader.load_state_dict(saved(state))
    if loader.epoch == state["epoch"]:
        assert loader.state_dict() == state
    else:
        assert (loader.epoch, loader.state_dict()["batches"]) == (state["epoch"] + 1, 0)
    return loader


def resume_after(make, step):
    """Return a loader that goes on where another one stands after some steps of its first epoch."""
    before = make()
    batches = iter(before)
    for _ in range(step):
        next(batches)
    after = make()
    after.load_state_dict(before.state_dict())
    return after


def until(loader, epochs, seen):
    """The batches of a loader to the end of its last epoch."""
    received = []
    while (epoch := loader.epoch) < epochs:
        left, whole = loader.remaining, len(loader.plan(epoch))
        assert (loader.plan().epoch, len(loader.plan()), len(loader)) == (epoch, left, whole)
        batches = seen(loader)
        assert len(batches) == left
        state = loader.state_dict()
        assert (state["epoch"], state["batches"]) == (epoch + 1, 0)
        received += batches
    return received


def assert_resumes(loader, other, expected, seen):
    """A run has these batches, a list for each epoch, and from any state of it ``other()`` delivers what is left."""
    whole, taken = batching.flat(expected), 0

    def check():
        resumed = resume(other(), loader.state_dict())
        assert until(resumed, len(expected), seen) == whole[taken:]

    check()
    for _ in expected:
        batches = iter(loader)
        check()
        for batch in batches:
            assert seen([batch]) == whole[taken : taken + 1]
            taken += 1
            check()
        check()
    assert taken == len(whole)


def advance(loaders, stop, seen, state=None):
    """Load a state on these ranks, and take some steps; return their batches, step by step, and the state of all ranks.

    ``stop`` is a number of steps, ``None`` for the rest of the epoch, or, a float, the fraction of those that all have.
    After all steps, the state is the start of the next epoch.
    """
    if state is not None:
        loaders = [resume(loader, state) for loader in loaders]
    # With "short" the last step has no state of its own: only steps that all ranks have.
    stop = part(stop, min(loader.remaining for loader in loaders)) if isinstance(stop, float) else stop
    steps = zip(*loaders, strict=True)
    taken = [batch for step in itertools.islice(steps, stop) for batch in seen(step)]
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states)
    return taken, states[0]


def finish(loaders, seen, state, epoch=0):
    """Load a state on these ranks; return the rest of the epoch, if any, in the order of steps and ranks."""
    received = []
    for rank, loader in enumerate(loaders):
        left = resume(loader, state).remaining
        if loader.epoch != epoch:
            assert (loader.epoch, left) == (epoch + 1, len(loader))
            continue
        batches = seen(loader)
        assert len(batches) == left
        received += [(step, rank, batch) for step, batch in enumerate(batches)]
    return [batch for _, _, batch in sorted(received, key=lambda place: place[:2])]


def chained(state, worlds, last, seen):
    """An epoch from a state on, by one world after the other: its ranks, and where it stops; the last one finishes."""
    taken, epoch = [], state["epoch"]
    for loaders, stop in worlds:
        more, state = advance(loaders, stop, seen, state)
        taken += more
        if state["epoch"] != epoch:
            assert state["batches"] == 0
            break
        assert state["batches"] == len(taken)
    return taken + finish(last, seen, state, epoch)


def runs(most=200, batch_size=30, **fixed):
    choices = {
        "samples": st.integers(1, most),
        "batch_size": st.integers(1, batch_size),
        "shuffle": st.sampled_from([False, True, "runs"]),
        "drop_last": st.booleans(),
        "seed": st.integers(0, 2**64 - 1),
        "uneven": st.sampled_from(["pad", "short"]),
    }
    given = {name: st.just(value) for name, value in fixed.items()}
    return st.builds(Run, **(choices | given))


worlds = st.integers(1, 9)
fractions = st.floats(0, 1)
# For laws whose one example takes many iterations.
few = settings(max_examples=max(settings.default.max_examples // 3, 5))
