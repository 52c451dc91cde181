"""What a run delivers, by definition: slow, obvious, and taken from the engine only in the order itself."""

import itertools
import json
from dataclasses import dataclass, replace

import batchloom as bl
import numpy
from hypothesis import strategies as st


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
        if self.shuffle is not True:
            return list(range(self.samples))
        return bl.Plan(self.samples, self.samples, shuffle=True, seed=self.seed, epoch=epoch)[0].tolist()

    def batches(self, epoch):
        """The order in pieces of ``batch_size``."""
        order = self.order(epoch)
        pieces = [order[start : start + self.batch_size] for start in range(0, self.samples, self.batch_size)]
        pieces = [piece for piece in pieces if not self.drop_last or len(piece) == self.batch_size]
        if self.shuffle != "runs" or not pieces:
            return pieces
        # Which run comes when is taken from the engine: a run of one sample stands for a batch.
        order = bl.Plan(len(pieces), 1, shuffle="runs", seed=self.seed, epoch=epoch)
        return [pieces[place] for (place,) in map(numpy.ndarray.tolist, order)]

    def steps(self, epoch, world):
        """The batches, ``world`` at a time, and what becomes of those that do not fill the last step."""
        batches = self.batches(epoch)
        steps = [batches[start : start + world] for start in range(0, len(batches), world)]
        if steps and len(steps[-1]) < world:
            if self.drop_last:
                steps.pop()
            elif self.uneven == "pad":
                steps[-1] += itertools.islice(itertools.cycle(batches), world - len(steps[-1]))
        return steps

    def seen(self, epoch, world=1, rank=0):
        """The batches of one rank."""
        return [step[rank] for step in self.steps(epoch, world) if rank < len(step)]

    def plan(self, epoch=0, world=1, rank=0):
        return bl.Plan(self.samples, **self.options(), epoch=epoch, world=world, rank=rank)

    def loader(self, world=1, rank=0, **more):
        """A loader over the sample numbers, so that a batch says which samples it holds."""
        dataset = bl.TensorDataset(numpy.arange(self.samples))
        return bl.DataLoader(dataset, **self.options(), world=world, rank=rank, **more)

    def loaders(self, world):
        return [self.loader(world, rank) for rank in range(world)]

    def with_seed(self, seed):
        return replace(self, seed=seed)


def listed(batches):
    """The samples of each batch that a loader over the sample numbers yields."""
    return [batch[0].tolist() for batch in batches]


def saved(state):
    """A state after a trip through text, as a checkpoint makes it."""
    return json.loads(json.dumps(state))


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
