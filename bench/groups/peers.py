"""Ask batchloom and each peer for batches of whole groups, concatenated or padded.

Promises:

- A peer is a function from groups and batches to a maker of epochs. What torch's loader and the loops by hand need to
  know of groups is made before the clock; batchloom finds the groups and batch-iter draws its order inside it.
- ``check`` lets no peer pass that makes other batches than it was told or, where it draws its own, divides a group,
  loses one, or repeats one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import batchloom
import numpy
import torch
from batch_iter import GroupBatchIter
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from bench.harness.measure import LOOM

WIDTH, LONGEST, BATCH = 1024, 15, 64
LOOM_MADE = "batchloom, made before the clock"
BATCH_ITER, TORCH, SELECT, VIEWS = "batch-iter", "torch DataLoader", "index_select a batch, by hand", "views, by hand"
TORCH_VIEWS = "torch DataLoader, slices made before"

Batch = tuple[Tensor, ...]
Batches = Sequence[list[int]]
Epochs = Callable[[], Iterable[Batch]]


@dataclass(frozen=True)
class Groups:
    """Rows with the ids of their groups; groups are numbered as they first appear."""

    ids: Tensor
    features: Tensor
    labels: Tensor

    @classmethod
    def make(cls, rows: int, scattered: bool, features: Tensor) -> Groups:
        """Draw groups of random sizes under random names; the label of a row is its number."""
        random = torch.Generator().manual_seed(0)
        groups = max(round(rows / ((1 + LONGEST) / 2) / BATCH), 2) * BATCH
        sizes = torch.randint(1, LONGEST + 1, (groups,), generator=random)
        ids = torch.randperm(10 * groups, generator=random)[:groups].repeat_interleave(sizes)
        ids = ids[torch.randperm(len(ids), generator=random)] if scattered else ids
        return cls(ids, features[: len(ids)], torch.arange(len(ids)))

    @cached_property
    def numbers(self) -> Tensor:
        """Return the group of each row."""
        _, first, inverse = numpy.unique(self.ids.numpy(), return_index=True, return_inverse=True)
        return torch.from_numpy(first.argsort().argsort()[inverse])

    @cached_property
    def order(self) -> Tensor:
        """Return the rows, group by group."""
        return self.numbers.argsort(stable=True)

    @cached_property
    def lengths(self) -> Tensor:
        """Return the number of rows of each group."""
        return self.numbers.bincount()

    @cached_property
    def starts(self) -> Tensor:
        """Return the first row of each group when they lie one after the other."""
        return self.lengths.cumsum(0) - self.lengths

    @property
    def together(self) -> bool:
        """Tell whether the rows of each group lie one after the other."""
        return torch.equal(self.order, torch.arange(len(self.ids)))

    @property
    def arrays(self) -> Batch:
        """Return ids, features and labels."""
        return self.ids, self.features, self.labels


@dataclass(frozen=True)
class Way:
    """A way to make batches of groups.

    Attributes:
        name: Its name in the tables.
        epochs: Prepares outside the clock, given groups and batches; returns a maker of epochs.
        told: True where it makes the batches that it is given.
        tuned: True where torch's threads are chosen for it.
        slow: True where it runs without a warm-up.
    """

    name: str
    epochs: Callable[[Groups, Batches], Epochs]
    told: bool = True
    tuned: bool = True
    slow: bool = False


def loom(groups: Groups, layout: str, shuffle: bool = True) -> batchloom.DataLoader:
    """Use batchloom with its defaults."""
    dataset = batchloom.GroupDataset(*groups.arrays, layout=layout)
    return batchloom.DataLoader(dataset, BATCH, shuffle=shuffle)


def loom_made(groups: Groups, layout: str) -> Epochs:
    """Use batchloom, made once: the same epoch again and again."""
    loader = loom(groups, layout)

    def epoch() -> Iterable[Batch]:
        loader.set_epoch(0)
        return loader

    return epoch


def batch_iter(groups: Groups, _: Batches) -> Epochs:
    """Use batch-iter: an object for each epoch, of another seed, as its documentation says."""
    seeds = count()
    options = {"batch_size": BATCH, "shuffle": True}
    return lambda: GroupBatchIter(*groups.arrays, **options, shuffle_seed=next(seeds))


def batch_iter_padded(groups: Groups, batches: Batches) -> Epochs:
    """Use batch-iter, which does not pad: by hand."""
    epochs = batch_iter(groups, batches)

    def epoch() -> Iterator[Batch]:
        for ids, features, labels in epochs():
            names, lengths = ids.unique_consecutive(return_counts=True)
            mask = torch.arange(int(lengths.max())) < lengths[:, None]
            padded = features.new_zeros(*mask.shape, WIDTH), labels.new_zeros(mask.shape)
            for target, rows in zip(padded, (features, labels), strict=True):
                target[mask] = rows
            yield names, *padded, mask

    return epoch


class Slices(torch.utils.data.Dataset[Batch]):
    """A data set as it is usually written: the rows of one group, sliced, or gathered where they are scattered."""

    def __init__(self, groups: Groups) -> None:
        self._arrays = groups.arrays
        self._rows: Sequence[Any] = groups.order.split(groups.lengths.tolist())
        if groups.together:
            self._rows = [slice(int(rows[0]), int(rows[-1]) + 1) for rows in self._rows]

    def __getitem__(self, group: int) -> Batch:
        """Return the ids, features and labels of one group."""
        rows = self._rows[group]
        return tuple(array[rows] for array in self._arrays)


class Views(torch.utils.data.Dataset[Batch]):
    """Every slice as a tensor that was made before."""

    def __init__(self, groups: Groups) -> None:
        lengths = groups.lengths.tolist()
        self._views = list(zip(*(array.split(lengths) for array in groups.arrays), strict=True))

    def __getitem__(self, group: int) -> Batch:
        """Return the ids, features and labels of one group."""
        return self._views[group]


def concatenate(samples: list[Batch]) -> Batch:
    """Collate groups one after the other."""
    return tuple(map(torch.cat, zip(*samples, strict=True)))


def pad(samples: list[Batch]) -> Batch:
    """Collate groups beside padding."""
    ids, features, labels = zip(*samples, strict=True)
    lengths = torch.tensor([len(rows) for rows in labels])
    padded = (pad_sequence(rows, batch_first=True) for rows in (features, labels))
    return torch.stack([names[0] for names in ids]), *padded, torch.arange(int(lengths.max())) < lengths[:, None]


def torch_loader(dataset: type[Slices | Views], collate: Callable[[list[Batch]], Batch]) -> Any:
    """Use torch's ``DataLoader``."""

    def make(groups: Groups, batches: Batches) -> Epochs:
        loader = DataLoader(dataset(groups), batch_sampler=batches, collate_fn=collate)
        return lambda: loader

    return make


def select(groups: Groups, batches: Batches) -> Epochs:
    """By hand: the rows of each batch, and ``index_select`` of them."""
    order = None if groups.together else groups.order
    starts, lengths = groups.starts, groups.lengths

    def epoch() -> Iterator[Batch]:
        for batch in map(torch.tensor, batches):
            counts = lengths[batch]
            ends = counts.cumsum(0)
            rows = torch.arange(int(ends[-1])) + (starts[batch] - ends + counts).repeat_interleave(counts)
            rows = rows if order is None else order[rows]
            yield tuple(array.index_select(0, rows) for array in groups.arrays)

    return epoch


def select_padded(groups: Groups, batches: Batches) -> Epochs:
    """By hand: ``index_select`` of as many rows of each group as the longest has, and zeros over the surplus."""

    def epoch() -> Iterator[Batch]:
        for batch in map(torch.tensor, batches):
            counts = groups.lengths[batch]
            places = torch.arange(int(counts.max()))
            mask = places < counts[:, None]
            rows = (groups.starts[batch][:, None] + places.minimum(counts[:, None] - 1)).flatten()
            features, labels = (array.index_select(0, rows) for array in (groups.features, groups.labels))
            features = features.view(*mask.shape, WIDTH).masked_fill_(~mask[..., None], 0)
            yield groups.ids[groups.starts[batch]], features, labels.view(mask.shape).masked_fill_(~mask, 0), mask

    return epoch


def views(groups: Groups, batches: Batches) -> Epochs:
    """By hand, in order: views of the data itself, nothing copied."""
    rows = [int(groups.lengths[batch].sum()) for batch in map(torch.tensor, batches)]
    return lambda: zip(*(array.split(rows) for array in groups.arrays), strict=True)


def check(way: Way, found: Iterable[Batch], expected: Iterable[Batch], groups: Groups) -> None:
    """Refuse a way unless it makes the batches that it was told, or, where it draws its own, holds each group whole.

    Raises:
        AssertionError: It does not.
    """
    if way.told:
        for batch, other in zip(found, expected, strict=True):
            same = [torch.equal(one, another) for one, another in zip(batch, other, strict=True)]
            assert all(same), f"{way.name} makes other batches"
        return
    seen = []
    for ids, features, labels, *mask in found:
        rows = labels[mask[0]] if mask else labels
        assert torch.equal(features[mask[0]] if mask else features, groups.features[rows]), "other features"
        names, counts = groups.numbers[rows].unique_consecutive(return_counts=True)
        assert torch.equal(ids if not mask else ids.repeat_interleave(counts), groups.ids[rows]), "other ids"
        assert torch.equal(counts, groups.lengths[names]), f"{way.name} divides groups"
        assert torch.equal(rows, torch.cat([rows.sort().values for rows in rows.split(counts.tolist())])), (
            "out of order"
        )
        seen.append(names)
    everyone = torch.arange(len(groups.lengths))
    assert torch.equal(torch.cat(seen).sort().values, everyone), f"{way.name} does not hold every group once"


def batchlooms(layout: str, shuffle: bool = True) -> tuple[Way, ...]:
    """Return the ways of batchloom."""
    fresh = Way(LOOM, lambda groups, _: lambda: loom(groups, layout, shuffle), tuned=False)
    made = Way(LOOM_MADE, lambda groups, _: loom_made(groups, layout), tuned=False)
    return (fresh, made) if shuffle else (fresh,)


CONCATENATED = (
    *batchlooms("concatenated"),
    Way(BATCH_ITER, batch_iter, told=False),
    Way(SELECT, select),
    Way(TORCH, torch_loader(Slices, concatenate), slow=True),
)
PADDED = (
    *batchlooms("padded"),
    Way(BATCH_ITER, batch_iter_padded, told=False),
    Way(SELECT, select_padded),
    Way(TORCH, torch_loader(Slices, pad), slow=True),
)
IN_ORDER = (*batchlooms("concatenated", shuffle=False), Way(VIEWS, views))
