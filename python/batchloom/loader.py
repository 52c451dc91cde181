"""The loader: an iterable over the batches of one rank, epoch after epoch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NoReturn

import batchloom._native as _native
from batchloom.arguments import PAD_SIDE, UNEVEN, choice, integer, renamed
from batchloom.batch import CollateOptions
from batchloom.batching import Rule, rule
from batchloom.dataset.base import Dataset
from batchloom.delivery.choose import choose
from batchloom.delivery.placement import Placement, PlacementRequest
from batchloom.errors import ArgumentError, StateError
from batchloom.plan import Plan
from batchloom.ranks import is_worker, rank_and_world

# More threads, or more blocks ahead, than any machine has use for.
MOST = 4096

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.forked)


@renamed(world="world_size", static="static_buffers")
class DataLoader:
    """Yields the batches of one rank. An ordinary iterable, usable again: each ``iter()`` is the next epoch.

    A batch is a tuple of arrays, or a dict where the dataset's fields are named; the dataset says what it holds. Arrays
    are compact, 64-byte aligned (but where they are gathered on a device), the consumer's own to keep and to write to.
    Their memory returns to the loader when the last array of the block (about 4 MiB of consecutive batches) is gone.

    Threads start at ``iter()`` and end with the iterator. A loader does not pickle and an iterator does not survive
    a fork; datasets and plans do both.

    Args:
        dataset: What to batch.
        batch_size: Samples in a batch; 64 where neither this nor ``batching`` is given.
        batching: A rule instead of ``batch_size``.
        shuffle: Whether each epoch has a random order of its own. ``"runs"`` keeps neighbours together: batches are
            runs of samples as stored, and come in random order (with ``FixedSize``). For streams of tokens,
            ``"documents"`` and ``"chunks"`` shuffle one of both.
        shard_size: Samples are shuffled within shards of so many neighbours, and shards among each other: for data that
            is larger than the memory of a device, or read from disk. One shard at a time then holds all that batches
            need. A multiple of the batch size, where there is one; a pool of other rules ends where its shard ends.
            ``None``: everything is shuffled at once.
        drop_last: Whether to leave out what does not fill a batch and a step.
        seed: What the random orders depend on, besides the epoch.
        uneven: What happens to batches that do not fill the last step, where none is dropped: ``"pad"`` repeats
            batches, so that every rank has as many steps; ``"short"`` gives some ranks one step less, so that every
            sample comes exactly once.
        balance: Whether batches of similar cost form a step, so that no rank waits for another.
        largest_first: Whether the largest batch comes first, so that memory is claimed once and its want shows at once.
        rank: Which of ``world_size`` processes this is. Where neither is given: ``torch.distributed`` if it is
            initialised, else the environment's RANK and WORLD_SIZE, else 0 of 1.
        world_size: How many processes there are.
        device: A device of torch where batches are to be; ``None`` for where the data is. Batches are torch's there,
            ready for the stream that is the current one when they are taken.
        resident: ``True`` moves the data to the device once, when the loader is made, and makes batches there (windows
            of neighbours are views). ``False`` copies blocks that are formed in memory (for windows of neighbours the
            rows that a batch covers, ``batch_size + input_len + horizon - 1`` of them). ``"auto"`` is ``True`` where
            the data fits into ``memory_limit``, or else into half of what is free there; and ``False`` or shards where
            not. Without a device, ``True`` and ``False`` let torch do the same on the CPU. (There, windows of other
            frameworks are formed by the engine where they are no views.)
        memory_limit: The bytes that data may take on the device. Data that takes more goes there in shards, of
            ``shard_size`` samples or of as many as fit twice: samples are then shuffled within shards. (Windows of
            neighbours keep their order: the rows of as many batches as fit move at a time.)
        output: ``"torch"``, ``"numpy"`` or ``"jax"``; ``None`` for what each field came in.
        pad_value: What sequences are padded with: one value for all variable fields, or a dict of values by field.
        pad_side: Where padding goes: ``"right"``, after the data, or ``"left"``.
        labels: The field whose next tokens each batch holds as ``labels`` (int64): shifted by one, -100 at the last
            token of each sample and at padding.
        copy: Whether batches of windows are always owned, never views on the series.
        static: Whether every batch is written into the same tensors of torch, one set for each shape, as CUDA graphs
            need: then the next batch overwrites it.
        num_threads: How many threads form blocks, the consumer among them while it waits; ``None`` for one on each
            core, at most 8, or one in a worker of a torch ``DataLoader``. With one, a thread of its own forms them.
        prefetch: How many blocks are formed ahead of the one in use.

    Raises:
        ArgumentError: An argument makes no sense, ``drop_last`` would leave no step, or data that is to be resident
            exceeds ``memory_limit``.
        DataError: The dataset has no samples.
        DeviceError: There is no such device, fields are on several, data that is to be resident takes more memory than
            is free, or two shards of ``memory_limit`` would.
        DTypeError: A field's type does not exist in ``output``.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int | None = None,
        *,
        batching: Rule | None = None,
        shuffle: bool | str = False,
        shard_size: int | None = None,
        drop_last: bool = False,
        seed: int = 0,
        uneven: str = "pad",
        balance: bool = False,
        largest_first: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        device: Any = None,
        resident: bool | str = "auto",
        memory_limit: int | None = None,
        output: str | None = None,
        copy: bool = False,
        static_buffers: bool = False,
        pad_value: Any = 0,
        pad_side: str = "right",
        labels: str | None = None,
        num_threads: int | None = None,
        prefetch: int = 2,
    ) -> None:
        if not isinstance(dataset, Dataset):
            kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
            raise ArgumentError(
                f"dataset is a {kind}; expected one of batchloom: a TensorDataset, SequenceDataset, WindowDataset, "
                "GroupDataset or TokenDataset"
            )
        self._dataset = dataset
        self._batching = rule(batch_size, batching)
        self._rank, self._world = rank_and_world(rank, world_size)
        request = PlacementRequest(
            dataset,
            device=device,
            resident=resident,
            memory_limit=memory_limit,
            copy=copy,
            static_buffers=static_buffers,
            output=output,
            shard_size=shard_size,
        )
        order, documents = dataset._shuffled(shuffle)
        self._delivery = choose(dataset, self._batching, order, documents, request, self._world)
        labels = dataset._labels(labels)
        pad_values, side = dataset._pad_values(pad_value), choice("pad_side", pad_side, PAD_SIDE)
        blocks = self._delivery.blocks
        self._native = _native.Loader(
            dataset._native_dataset(),
            self._batching._native(),
            shuffle=order,
            shuffle_documents=documents,
            drop_last=bool(drop_last),
            seed=integer("seed", seed),
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
        )
        columns = self._native.columns
        options = CollateOptions([name for name, _ in columns], dict(pad_values), side == "left", labels)
        self._delivery.prepare(dataset._schema(columns), options)

    def __len__(self) -> int:
        """Return how many batches the iteration under way yields in all, or, where there is none, the next one.

        Exact, for every epoch; after a state was loaded, what is left of the interrupted one.
        """
        return len(self._native)

    def __iter__(self) -> Iterator[Any]:
        """Begin the next epoch.

        Raises:
            DataError: An array of the dataset was resized, moved, or lost its file since the dataset was made.
        """
        self.dataset._check()
        begun: Iterator[Any] = self._delivery.begin(self._native)
        return begun

    @property
    def dataset(self) -> Dataset:
        """What is batched."""
        return self._dataset

    @property
    def batching(self) -> Rule:
        """How samples share a batch."""
        return self._batching

    @property
    def rank(self) -> int:
        """Which of ``world_size`` processes this is."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many processes there are."""
        return self._world

    @property
    def placement(self) -> Placement:
        """Where batches are made, how data comes there, and why."""
        return self._delivery.placement

    def plan(self, epoch: int | None = None) -> Plan:
        """Return the plan of an epoch, or of the next iteration (after a load, the rest of the epoch)."""
        return Plan._wrap(self._native.plan(None if epoch is None else integer("epoch", epoch)), self._batching)

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one: from its start, unless a state in that very epoch was just loaded.

        There is no need to call this: the epoch advances by itself.
        """
        self._native.set_epoch(integer("epoch", epoch))

    def state_dict(self) -> dict[str, Any]:
        """Return where the run stands, after the last batch that was handed over.

        A dict of a few plain values, the same on every rank (with ``uneven="short"``: up to the last step that all
        ranks have). Costs microseconds, wherever the epoch stands.
        """
        return self._native.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state`` was taken: the next iteration yields the rest of that epoch.

        The seed and the epoch are the state's. ``world_size`` may be another than when it was saved: the ranks of now
        share exactly what was left.

        Raises:
            StateError: The state is of another plan or version, or damaged. The loader is unchanged then.
        """
        if not isinstance(state, dict):
            raise StateError(f"the state is a {type(state).__name__}; expected the dict that state_dict() returned")
        self._native.load(state)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a DataLoader does not pickle: it owns threads and memory of its process. Pickle its dataset, its plan() "
            "and its state_dict(), and make a loader from them where it is to run"
        )

    def __repr__(self) -> str:
        return (
            f"DataLoader({self.dataset!r}, {self.batching}, rank {self.rank} of {self.world_size}: {len(self)} batches)"
        )


def _threads(num_threads: int | None) -> int | None:
    if num_threads is not None:
        return integer("num_threads", num_threads, least=1, most=MOST)
    return 1 if is_worker() else None
