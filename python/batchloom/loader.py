"""The loader: an iterable over the batches of one rank, epoch after epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NoReturn, Unpack

import batchloom._native as _native
from batchloom.arguments import (
    PAD_SIDE,
    UNEVEN,
    Output,
    PadSide,
    Resident,
    Shuffle,
    Uneven,
    choice,
    integer,
    renamed,
)
from batchloom.batch import CollateOptions
from batchloom.batching import Rule, rule
from batchloom.dataset.base import Dataset
from batchloom.dataset.torch_datasets import taken
from batchloom.delivery.choose import choose
from batchloom.delivery.placement import Placement, PlacementRequest
from batchloom.errors import ArgumentError, StateError
from batchloom.label_counts import label_counts as counted
from batchloom.plan import Plan, table
from batchloom.ranks import is_worker, rank_and_world
from batchloom.torch_attributes import TorchAttributes
from batchloom.torch_options import TorchOptions, accepted

# More threads, or more blocks ahead, than any machine has use for.
MOST = 4096

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.forked)


@renamed(world="world_size", static="static_buffers")
class DataLoader(TorchAttributes):
    """Iterates over the batches of one rank. Each ``iter()`` begins the next epoch.

    A batch is a tuple of arrays, or a dict if the fields of the dataset are named; the dataset documents the contents.
    Arrays are compact and 64-byte aligned (except those gathered on a device). The consumer may keep them and write to
    them. Their memory returns to the loader when the last array of the block (about 2 MiB of consecutive batches) is
    gone.

    Threads start with the first ``iter()``, serve every epoch, and end with the loader. A loader does not pickle, and
    an iterator does not survive a fork; datasets and plans do both.

    Args:
        dataset: The dataset to batch. An array, or a dataset of torch's that holds rows of tensors (``TensorDataset``,
            and ``Subset`` and ``ConcatDataset`` of those), is taken as it is.
        batch_size: Samples in a batch; 64 if neither this nor ``batching`` is given.
        batching: A rule instead of ``batch_size``.
        shuffle: If ``True``, each epoch has a random order of its own. ``"runs"`` keeps neighbours together: batches
            are runs of samples as stored, and come in random order (with ``FixedSize``). For streams of tokens,
            ``"documents"`` shuffles documents alone, and ``"chunks"`` shuffles pieces alone.
        shard_size: Samples in a shard, for data that is larger than the memory of a device, or read from disk. Samples
            are shuffled within shards, and shards among each other, so that one shard at a time holds all that batches
            need. A multiple of the batch size, for rules that have one; pools of other rules end where their shard
            ends. ``None`` shuffles all samples at once.
        drop_last: If ``True``, leave out samples that do not fill a batch, and batches that do not fill a step.
        seed: The seed of the random orders, which depend on the epoch too.
        uneven: Treatment of batches that do not fill a step, unless they are dropped. ``"pad"`` repeats samples, so
            that all ranks have the same number of steps and, with ``FixedSize`` and ``LengthBuckets``, as many samples
            at each. ``"short"`` gives some ranks one step less, so that every sample comes exactly once. ``"mask"``
            gives the steps of ``"pad"``, and every sample counts exactly once: places that only fill up repeat samples
            of the step and come last in their batch. They are marked by an ``index`` of -1 and a ``weight`` of 0, which
            all batches then hold (int64 and float32 a sample; last in tuples); labels that the loader makes are -100
            there.
        balance: If ``True``, batches of similar cost form a step, so that ranks do not wait for each other.
        largest_first: If ``True``, the largest batch that the rule makes comes first, so that memory is allocated once,
            and an out-of-memory error shows up in the first step.
        rank: The rank of this process, from 0 to ``world_size - 1``. If neither ``rank`` nor ``world_size`` is given,
            they come from ``torch.distributed`` if it is initialised, otherwise from RANK and WORLD_SIZE in the
            environment, and otherwise are 0 and 1.
        world_size: The number of processes.
        device: The torch device for batches; ``None`` for the device of the data. Batches on a device are torch
            tensors, ready for the stream that is current when they are taken. With ``output="jax"``, a device of JAX,
            to which JAX copies batches.
        sharding: A ``jax.sharding.Sharding`` for all fields, or a dict of one for each: batches are global arrays, in
            which those of all processes lie one after the other.
        resident: ``True`` moves the data to the device once, when the loader is made, and makes batches there (windows
            of neighbours are views). ``False`` copies blocks that are formed in memory (for windows of neighbours, the
            rows that a batch covers: ``batch_size + input_len + horizon - 1`` of them). ``"auto"`` means ``True`` if
            the data fits into ``memory_limit``, or without one into half of the free memory of the device; otherwise
            it means ``False`` or shards. Without a device, ``True`` and ``False`` let torch do the same on the CPU.
            (There, the engine forms windows of other frameworks that cannot be views.)
        memory_limit: The bytes that the data may take on the device. Larger data moves there in shards, of
            ``shard_size`` samples or of as many as fit twice: samples are then shuffled within shards. (Windows of
            neighbours keep their order: the rows of as many batches as fit move at a time.)
        output: ``"torch"``, ``"numpy"`` or ``"jax"``; ``None`` for the framework of each field.
        pad_value: The value that pads sequences: one for all variable fields, or a dict of values by field.
        pad_side: ``"right"`` for padding after the data, ``"left"`` for padding before it.
        labels: The field whose next tokens each batch holds as ``labels`` (int64): shifted by one, -100 at the last
            token of each sample and at padding.
        label_counts: The labels of each sample that losses do not ignore, for ``plan.step(k).labels``: numbers, or the
            result of ``dataset.count_labels()``. ``None`` for labels that the loader makes, whose number follows from
            sizes.
        copy: If ``True``, batches of windows always own their memory and are never views on the series.
        static_buffers: If ``True``, every batch is written into the same torch tensors, one set for each shape, as
            CUDA graphs need: the next batch overwrites it.
        num_threads: The number of threads that form blocks, including the consumer while it waits; ``None`` for one on
            each core, at most 8, or for one in a worker of a torch ``DataLoader``. With one, a separate thread forms
            blocks. An epoch of less than 512 KiB is formed by the consumer alone.
        prefetch: The number of blocks that are formed ahead of the one in use.
        torch: Arguments of torch's ``DataLoader``: see :class:`batchloom.torch_options.TorchOptions`. ``sampler`` and
            ``batch_sampler`` give the samples and the batches of each epoch, of which each rank takes its share;
            ``generator`` draws the seed. Those that are of no use here have no effect, with a warning.

    Raises:
        ArgumentError: An argument makes no sense, ``drop_last`` would leave no step, or data that must be resident
            exceeds ``memory_limit``.
        DataError: The dataset has no samples.
        DeviceError: The device does not exist, fields are on several devices, data that must be resident takes more
            than the free memory, or two shards of ``memory_limit`` would.
        DTypeError: The type of a field does not exist in ``output``.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: Shuffle = False,
        *,
        batching: Rule | None = None,
        shard_size: int | None = None,
        drop_last: bool = False,
        seed: int = 0,
        uneven: Uneven = "pad",
        balance: bool = False,
        largest_first: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        device: Any = None,
        sharding: Any = None,
        resident: Resident = "auto",
        memory_limit: int | None = None,
        output: Output | None = None,
        copy: bool = False,
        static_buffers: bool = False,
        pad_value: Any = 0,
        pad_side: PadSide = "right",
        labels: str | None = None,
        label_counts: Any = None,
        num_threads: int | None = None,
        prefetch: int = 2,
        **torch: Unpack[TorchOptions],
    ) -> None:
        recipe = {name: value for name, value in locals().items() if name not in ("self", "torch")}
        asked = accepted(torch)
        dataset = self._dataset = taken(dataset)._current()
        seed = integer("seed", seed)
        self._lists = asked.lists(batch_size, batching, shuffle, drop_last)
        self.generator, self._draw_seed = asked.generator, asked.seed_source(seed)
        self._batching = rule(batch_size, batching) if self._lists is None else self._lists.at(0)
        self._rank, self._world = rank_and_world(rank, world_size)
        request = PlacementRequest(
            dataset,
            device=device,
            sharding=sharding,
            resident=resident,
            memory_limit=memory_limit,
            copy=copy,
            static_buffers=static_buffers,
            output=output,
            shard_size=shard_size,
        )
        order, documents = dataset._shuffled(shuffle)
        self._delivery = choose(dataset, self._batching, order, documents, request, self._world)
        labels, counts = dataset._labels(labels), counted(label_counts)
        pad_values, side = dataset._pad_values(pad_value), choice("pad_side", pad_side, PAD_SIDE)
        blocks = self._delivery.blocks
        self._native = _native.Loader(
            dataset._native_dataset(),
            self._batching._native(),
            shuffle=order,
            shuffle_documents=documents,
            drop_last=bool(drop_last),
            seed=seed,
            uneven=choice("uneven", uneven, UNEVEN),
            balance=bool(balance),
            largest_first=bool(largest_first),
            rank=self._rank,
            world_size=self._world,
            pad_values=pad_values,
            pad_side=side,
            labels=labels,
            num_threads=_threads(num_threads),
            prefetch=integer("prefetch", prefetch, least=1, most=MOST),
            shard_size=self._delivery.placement.shard_size,
            poison=bool(os.environ.get("BATCHLOOM_POISON")),
            block_bytes=blocks.block_bytes,
            memory=blocks.memory,
            index_table=blocks.index_table,
            label_counts=None if counts is None else counts._native(),
        )
        columns = self._native.columns
        names, marked = [name for name, _ in columns], uneven == "mask"
        options = CollateOptions(names, dict(pad_values), side == "left", labels, marked)
        self._delivery.prepare(dataset._schema(columns), options)
        # Arguments that were refused, or have no effect, are no part of it.
        self._recipe: dict[str, Any] = recipe | vars(asked)

    def __len__(self) -> int:
        """Return the number of batches of the current iteration, or of the next one if the loader is not iterating.

        The number is exact for every epoch. After a state was loaded, it is the rest of the interrupted epoch.
        """
        return len(self._native)

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch.

        Raises:
            DataError: An array of the dataset was resized, moved, or lost its file since the dataset was made.
        """
        if (current := self._dataset._current()) is not self._dataset:
            self._renew(current)
        self.dataset._check()
        self._prepare()
        begun: Iterator[Any] = self._delivery.begin(self._native)
        return map(itemgetter(0), begun) if self._dataset._is_bare else begun

    @property
    def dataset(self) -> Dataset:
        """The dataset."""
        return self._dataset

    @property
    def batching(self) -> Rule:
        """The rule that forms batches of samples."""
        return self._batching

    @property
    def rank(self) -> int:
        """The rank of this process, from 0 to ``world_size - 1``."""
        return self._rank

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return self._world

    @property
    def placement(self) -> Placement:
        """The device that makes batches, the way that data takes there, and the reason."""
        return self._delivery.placement

    def plan(self, epoch: int | None = None) -> Plan:
        """Return the plan of an epoch, or of the next iteration (after a state was loaded, the rest of its epoch)."""
        self._settle_seed()
        upcoming = self._native.plan(None)
        plan = upcoming if epoch is None else self._native.plan(integer("epoch", epoch))
        if self._lists is None:
            return Plan._wrap(plan, self._batching)
        if plan.epoch != upcoming.epoch and not self._lists.foresees:
            raise ArgumentError(
                f"epoch is {epoch}, whose batches {self._lists.name} gives when it begins; expected {upcoming.epoch}, "
                "or a sampler with set_epoch"
            )
        lists = self._lists.at(plan.epoch)
        return Plan._wrap(plan.with_lists(lists._native()), lists)

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one: from its start, unless a state of the same epoch was just loaded.

        Calls are optional: the epoch advances by itself.
        """
        self._native.set_epoch(integer("epoch", epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run after the last batch that was handed over, to save in a checkpoint.

        The state is a dict of a few plain values, the same on every rank (with ``uneven="short"``: up to the last step
        that all ranks have). It costs microseconds at any point of an epoch.
        """
        self._settle_seed()
        return self._native.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``: the next iteration yields the rest of its epoch.

        The seed and the epoch are those of the state. ``world_size`` may differ from the one at the time of saving:
        the present ranks share exactly the samples that were left.

        Raises:
            StateError: The state is of another plan or version, or damaged. The loader is then unchanged.
        """
        if not isinstance(state, dict):
            raise StateError(f"the state is a {type(state).__name__}; expected the dict that state_dict() returned")
        epoch = state.get("epoch")
        lists = self._lists.at(epoch)._native() if self._lists is not None and isinstance(epoch, int) else None
        self._native.load(state, lists)
        self._draw_seed = None

    def _renew(self, dataset: Dataset) -> None:
        """Go on with the next epoch over a dataset of the same samples in other memory."""
        plan, recipe, lists = self.plan(), self._recipe, self._lists
        same = {name: None for name in ("batch_size", "sampler", "batch_sampler", "generator")}
        place = {"dataset": dataset, "batching": plan.batching, "seed": plan.seed}
        DataLoader.__init__(self, **{**recipe, **same, **place})
        self._recipe, self._lists = recipe | {"dataset": dataset}, lists
        self.load_state_dict(plan._native.state(0))

    def _prepare(self) -> None:
        """Draw what an epoch that is about to begin depends on: the seed, and the batches of a sampler."""
        self._settle_seed()
        if self._lists is not None:
            self._native.set_lists(self._lists.at(self._native.plan(None).epoch)._native())

    def _settle_seed(self) -> None:
        """Draw the seed from the generator that was given, once."""
        draw, self._draw_seed = self._draw_seed, None
        if draw is not None:
            self._native.set_seed(draw())
            self._recipe |= {"seed": self._native.plan(None).seed, "generator": None}

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a DataLoader does not pickle: it owns threads and memory of its process. Pickle its dataset, its plan() "
            "and its state_dict(), and make a loader from them in the other process"
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the dataset, the rule, and the costs of the next epoch."""
        return table(f"DataLoader: {self.dataset!r}, {self.batching}", self.plan().stats())

    def __repr__(self) -> str:
        return (
            f"DataLoader({self.dataset!r}, {self.batching}, rank {self.rank} of {self.world_size}: {len(self)} batches)"
        )


def _threads(num_threads: int | None) -> int | None:
    if num_threads is not None:
        return integer("num_threads", num_threads, least=1, most=MOST)
    return 1 if is_worker() else None
