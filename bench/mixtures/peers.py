"""Ask batchloom and each peer for samples by weight, and for batches of two sources.

Promises:

- A first batch of weighted samples includes the making of the sampler, from weights in an array.
- Batches of two sources hold rows of eight numbers, half of them of each source, in random order. Each row holds its
  number first, so what a resumed run lost and repeated can be counted.
- A peer is saved and loaded as its guide says: by the state of its iterator, into a pipeline that was made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import batchloom
import numpy
import torch

from bench.harness.measure import LOOM

BATCH = 64
COLUMNS = 8
# HF shuffles streams through a buffer of so many rows.
BUFFER = 1000


def weights_of(samples: int) -> numpy.ndarray[Any, Any]:
    """Return a weight for each sample."""
    return numpy.random.default_rng(0).random(samples)


def first_of_plan(weights: numpy.ndarray[Any, Any]) -> Any:
    """Return the first batch of a weighted plan."""
    return batchloom.Plan(len(weights), batch_size=BATCH, shuffle=True, weights=weights)[0]


def first_of_torch(weights: numpy.ndarray[Any, Any]) -> Any:
    """Return the first batch of torch's sampler, which draws an epoch."""
    sampler = torch.utils.data.WeightedRandomSampler(torch.from_numpy(weights), len(weights))
    return next(iter(torch.utils.data.BatchSampler(sampler, BATCH, drop_last=False)))


def first_of_numpy(weights: numpy.ndarray[Any, Any]) -> Any:
    """Return the first batch of NumPy's draws of an epoch."""
    return numpy.random.default_rng(0).choice(len(weights), len(weights), p=weights / weights.sum())[:BATCH]


FIRST: dict[str, Callable[[numpy.ndarray[Any, Any]], Any]] = {
    LOOM: first_of_plan,
    "torch WeightedRandomSampler": first_of_torch,
    "numpy choice": first_of_numpy,
}


class Sources:
    """Two arrays of rows, and their batches by each peer."""

    def __init__(self, samples: int) -> None:
        rows = numpy.zeros((2 * samples, COLUMNS), numpy.float32)
        rows[:, 0] = numpy.arange(2 * samples)
        self.rows = rows
        self.parts = rows[:samples], rows[samples:]

    def of_batchloom(self, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
        """Return batches, from a state if there is one, and what tells the state."""
        first, second = (batchloom.TensorDataset(part) for part in self.parts)
        mixture = batchloom.Mixture({"a": first, "b": second}, {"a": 1, "b": 1})
        loader = batchloom.DataLoader(mixture, BATCH, shuffle=True, output="numpy")
        if state is not None:
            loader.load_state_dict(state)
        return (batch[0][:, 0] for batch in loader), loader.state_dict

    def of_grain(self, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
        """Return the batches of grain's ``MapDataset.mix``."""
        logging.getLogger("absl").setLevel(logging.ERROR)
        import grain

        sources = [grain.MapDataset.source(part).shuffle(seed=0) for part in self.parts]
        mixed = grain.MapDataset.mix(sources, weights=[0.5, 0.5]).batch(BATCH)
        batches = iter(mixed.to_iter_dataset())
        if state is not None:
            batches.set_state(state)
        return (batch[:, 0] for batch in batches), batches.get_state

    def of_datasets(self, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
        """Return the batches of ``datasets.interleave_datasets`` over streams."""
        import datasets

        streams = [
            datasets.Dataset.from_dict({"x": part})
            .with_format("numpy")
            .to_iterable_dataset()
            .shuffle(seed=0, buffer_size=BUFFER)
            for part in self.parts
        ]
        mixed = datasets.interleave_datasets(streams, probabilities=[0.5, 0.5], seed=0).batch(BATCH)
        if state is not None:
            mixed.load_state_dict(state)
        return (numpy.asarray(batch["x"])[:, 0] for batch in mixed), mixed.state_dict

    def of_torchdata(self, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
        """Return the batches of torchdata's ``MultiNodeWeightedSampler``."""
        from torchdata import nodes

        def source(part: Any) -> Any:
            generator = torch.Generator().manual_seed(0)
            sampler = torch.utils.data.RandomSampler(range(len(part)), generator=generator)
            return nodes.MapStyleWrapper(map_dataset=part, sampler=sampler)

        each = {name: source(part) for name, part in zip("ab", self.parts, strict=True)}
        mixed = nodes.MultiNodeWeightedSampler(each, {"a": 1.0, "b": 1.0}, "FIRST_DATASET_EXHAUSTED", seed=0)
        loader = nodes.Loader(nodes.Mapper(nodes.Batcher(mixed, BATCH), numpy.stack))
        if state is not None:
            loader.load_state_dict(state)
        return (batch[:, 0] for batch in loader), loader.state_dict

    def by_hand(self, state: Any) -> tuple[Iterator[Any], Callable[[], Any]]:
        """Return batches by NumPy: two permutations, put together half and half. There is no state."""
        draw = numpy.random.default_rng(0)
        half, (first, second) = BATCH // 2, (draw.permutation(len(part)) for part in self.parts)
        starts = range(0, len(first) - half + 1, half)
        chosen = (
            numpy.concatenate([first[start : start + half], second[start : start + half] + len(first)])
            for start in starts
        )
        return (self.rows[numbers][:, 0] for numbers in chosen), lambda: None

    @property
    def peers(self) -> dict[str, Callable[[Any], tuple[Iterator[Any], Callable[[], Any]]]]:
        """Return all of them by name."""
        return {
            LOOM: self.of_batchloom,
            "datasets interleave_datasets": self.of_datasets,
            "grain mix": self.of_grain,
            "torchdata MultiNodeWeightedSampler": self.of_torchdata,
            "numpy by hand": self.by_hand,
        }
