"""The loader: an iterable over the batches of one rank, epoch after epoch."""

from __future__ import annotations

import copy
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from logging import INFO
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, SupportsIndex, Unpack, overload

import batchloom._native as _native
from batchloom.arguments import (
    PAD_SIDE,
    U64,
    Output,
    PadSide,
    PadTo,
    Resident,
    Shuffle,
    Truncate,
    Uneven,
    boolean,
    choice,
    integer,
    kept,
    used,
)
from batchloom.batching.rules import Listed, Rule, rule
from batchloom.collate.conversions import FieldArguments, conversions
from batchloom.collate.field_names import Namer
from batchloom.collate.schema import CollateOptions
from batchloom.collate.slots import SlotWay, collated, pad_numbers
from batchloom.dataset.base import Batch, Dataset, Dicts, Tuples
from batchloom.dataset.map.map_dataset import samples_of
from batchloom.dataset.mixture import Mixture
from batchloom.delivery.choose import choose
from batchloom.delivery.placement import Placement, PlacementRequest
from batchloom.errors import ArgumentError, Error, RangeError, StateError, many
from batchloom.loader.digest import BatchDigest
from batchloom.loader.epoch_count import EpochCount, without_count
from batchloom.loader.metrics import LOGGER, LoggedBatches, Metrics, PassedOn
from batchloom.loader.options import LoaderOptions
from batchloom.loader.torch.attributes import TorchAttributes
from batchloom.loader.torch.datasets import taken
from batchloom.loader.torch.lists import EpochLists
from batchloom.loader.torch.options import TorchOptions, accepted
from batchloom.loader.watchers import Standing, watchers
from batchloom.plan.options import PlanOptions
from batchloom.plan.plan import Plan, table, warn_of_one_pool
from batchloom.ranks.mesh import Mesh
from batchloom.ranks.ranks import RankFinder, is_worker
from batchloom.samples.bans import banned
from batchloom.samples.draws import drawn, grouped
from batchloom.samples.label_counts import LabelCounts
from batchloom.samples.label_counts import label_counts as counted

if TYPE_CHECKING:
    from jax import Array
    from numpy.typing import NDArray
    from torch import Tensor

# More threads, or more blocks ahead, than any machine has use for.
MOST = 4096

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.forked)


class DataLoader(TorchAttributes, Generic[Batch]):
    """Iterates over the batches of one rank, one epoch after the other.

    An epoch begins with the first ``next`` of an iterator. ``iter()`` alone starts nothing, reads nothing and spends
    nothing, so of several iterators each has the epoch after that of the one that began before it.

    A batch is a tuple of arrays, or a dict if the fields of the dataset are named; the dataset documents the contents.
    Arrays are compact and 64-byte aligned (except those gathered on a device). The consumer may keep them and write to
    them. Their memory returns to the loader when the last array of the block (about 2 MiB of consecutive batches) is
    gone.

    Threads start with the first epoch, serve every epoch, and end with the loader. A loader pickles as its recipe: the
    copy has the same dataset, options and state, and threads and memory of its own. An iterator that has begun neither
    pickles nor survives a fork.

    Args:
        dataset: The dataset to batch. An array, or a dataset of torch's that holds rows of tensors (``TensorDataset``,
            and ``Subset`` and ``ConcatDataset`` of those), is taken as it is.
        batch_size: Samples in a batch; 64 if neither this nor ``batching`` is given.
        batching: A rule instead of ``batch_size``.
        shuffle: If ``True``, each epoch has a random order of its own. ``"runs"`` keeps neighbours together: batches
            are runs of samples as stored, in random order (with ``FixedSize``); each epoch cuts the runs at other
            samples, so that there may be one more short run. For streams of tokens, ``"documents"`` shuffles
            documents alone, and ``"chunks"`` shuffles pieces alone.
        shard_size: Samples in a shard, for data that is larger than the memory of a device, or read from disk. Samples
            are shuffled within shards, and shards among each other, so that one shard at a time holds all that batches
            need. A multiple of the batch size, for rules that have one; pools of other rules end where their shard
            ends. ``None`` shuffles all samples at once.
        drop_last: If ``True``, leave out samples that do not fill a batch, and batches that do not fill a step.
        seed: The seed of the random orders, which depend on the epoch too. ``None`` draws one when the run begins; its
            state has it, and a loader without a seed takes that of a state that it loads. With several processes of
            ``torch.distributed`` or JAX the first one draws it. A ``torch.Generator`` or a ``numpy.random.Generator``
            draws it as ``generator`` does.
        uneven: Treatment of batches that do not fill a step, unless they are dropped. ``"pad"`` repeats samples, so
            that all ranks have the same number of steps and, with ``FixedSize`` and ``LengthBuckets``, as many samples
            at each. ``"short"`` gives some ranks one step less, so that every sample is used exactly once. ``"mask"``
            gives the steps of ``"pad"``, and every sample counts exactly once: places that only fill up repeat samples
            of the step and are the last of their batch. They are marked by an ``index`` of -1 and a ``weight`` of 0,
            which all batches then hold (int64 and float32 a sample; last in tuples); labels that the loader makes are
            -100 there.
        balance: If ``True``, batches of similar cost form a step, so that ranks do not wait for each other.
        largest_first: If ``True``, the largest batch that the rule makes is the first, so that memory is allocated
            once, and an out-of-memory error occurs in the first step.
        weights: The weight of each sample: an epoch draws samples with replacement, in proportion to their weights,
            instead of every sample once. Needs ``shuffle=True``. The expected number of draws of a sample is exactly
            its share, and the actual number differs by less than 2. Weights may change from epoch to epoch: they are no
            part of the fingerprint.
        num_samples: The number of samples that an epoch draws; ``None`` for as many as there are. Without weights, each
            epoch continues where the last one stopped, so every sample is used once before any repeats.
        balanced_by: The class of each sample, as numbers or texts: batches of a fixed size hold as many samples of each
            class, to one (rules that sort by size balance each pool), and each class goes through permutations of its
            samples. The name of a field, or its place in a tuple, stands for what it holds.
        homogeneous_by: The class of each sample, as numbers or texts: a batch holds samples of one class, and all
            batches of a step have the same class. A step that the batches of its class do not fill is left out with
            ``drop_last=True``; otherwise batches of the class are repeated in it, or it has places of weight 0 with
            ``uneven="mask"``. The name of a field stands for what it holds; of a mixture, ``"source"`` stands
            for the sources.
        distinct_by: The key of each sample, as numbers or texts: a batch holds no two samples of one key. Needs
            ``shuffle=True`` and batches of a fixed size. The name of a field stands for what it holds.
        ban: Samples that are left without weight, by number: each keeps its place in its batch, so that no other sample
            moves. The list may change when a state is loaded: the new list holds from there on. A state with bans needs
            a list here: the same, another, or an empty one. Places of banned samples hold zeros (labels that the loader
            makes are -100), an ``index`` of -1 and a ``weight`` of 0, which all batches then hold (last in tuples).
            Samples on demand are not read. Samples of a mixture are named as ``("web", 17)``. Where documents of a
            stream are shuffled, a number names other tokens in each epoch: ban pieces in the epoch that they spoil, or
            shuffle pieces alone.
        rank: The rank of this process, from 0 to ``world_size - 1``. If neither ``rank`` nor ``world_size`` is given,
            they are found when the first epoch begins, or when something asks for them: as ``torch.distributed`` says
            if it is initialised, or JAX, for batches of JAX, if ``jax.distributed`` is; otherwise as the launcher says
            in RANK and WORLD_SIZE (or LOCAL_RANK, NODE_RANK and WORLD_SIZE, as Lightning sets them); and otherwise they
            are 0 and 1. If ``torch.distributed`` says something else afterwards, the next epoch follows it.
        world_size: The number of processes.
        distributed: If ``False``, the loader is for one rank: each process that iterates over it gets every batch, as
            in an evaluation on rank 0 alone. It stands for ``rank=0, world_size=1``.
        mesh: The mesh of all processes, where some of them work on one batch together: a ``DeviceMesh`` with names, or
            a dict of sizes, as ``{"dp": 4, "tp": 2, "cp": 2, "pp": 1}``. Batches differ along data-parallel dimensions
            alone, of which ``loader.rank`` and ``loader.world_size`` speak then.
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
        pad_value: The value that pads sequences: one for all variable fields, or a dict of values by field, by name or
            by its place in a tuple. Batches hold it as it is: in their type, and not scaled.
        pad_side: ``"right"`` for padding after the data, ``"left"`` for padding before it.
        pad_to: The length that samples which differ in length are padded to, or several, of which each batch takes the
            smallest that holds its samples. Rules sort, count and budget by these lengths. ``"longest"`` pads to the
            longest sample of the batch (as the rule rounds it up).
        truncate: The treatment of samples that are longer than every length of ``pad_to``: ``"error"`` names the first
            one, ``"left"`` takes off their first elements, and ``"right"`` their last. ``plan.stats()`` counts what
            that costs.
        collate: The way from samples to their slots in a batch, for some fields: a dict with :class:`batchloom.Pad`,
            :class:`batchloom.Crop`, :class:`batchloom.Resize`, :class:`batchloom.Stack` or :class:`batchloom.Slot`, or
            a function ``f(sample, slot)``, by the name of a field, or by its place in a tuple. The slot of a field goes
            before ``pad_side`` and what a rule rounds lengths to; masks and lengths are those of samples, as without
            it. Slots are filled in memory, so a device does not gather such data. Or a function that makes a batch of
            a list of samples: arrays of any shapes, in a structure that is the same for all batches. Threads call it,
            or processes, as they do the function of a :class:`batchloom.MapDataset`; ``shuffle`` and rules decide
            which samples it gets. Values and padding (``dtype``, ``scale``, ``pad_to``, ``pad_value``) are then up to
            the function.
        labels: The field whose next tokens each batch holds as ``labels`` (int64): shifted by one, -100 at the last
            token of each sample and at padding.
        label_counts: The labels of each sample that losses do not ignore, for ``plan.step(k).labels``: numbers, or the
            result of ``dataset.count_labels()``. ``None`` for labels that the loader makes, whose number follows from
            sizes.
        dtype: The types of fields in batches, as ``{"input_ids": "int64", "image": "float32"}``: names of types, or
            those of torch or NumPy, by the name of the field, or by its place where batches are tuples. They are
            converted as batches are formed, or on the device. A value that the type cannot hold is an error: one out
            of its range, or a fraction or NaN as an integer; floats may be rounded. A single floating type is for all
            fields of floats, a single type of integers for all fields of integers (booleans are neither). Masks,
            lengths and marks keep their types. Windows in other types are no views: they are formed.
        scale: The numbers that values are multiplied by, by field, or one number where there is one field. Values come
            out as ``(x * scale - mean) / std``, computed in float32 (in float64 where that is the type in batches);
            integers come out as float32, unless ``dtype`` names another floating type. Padding is not scaled.
        mean: The numbers that are taken off then, by field: one, or one for each channel. Channels are the last
            dimension of a sample, or the first, whichever has as many elements; where both have, numbers of shape
            ``[3, 1, 1]`` or ``[1, 1, 3]`` say which.
        std: The numbers that values are divided by in the end, given as ``mean`` is.
        copy: If ``True``, batches of windows always own their memory and are never views on the series.
        static_buffers: If ``True``, every batch is written into the same torch tensors, one set for each shape, as
            CUDA graphs need: the next batch overwrites it.
        check: If ``True``, or with ``BATCHLOOM_CHECK=1`` in the environment, a write into a batch of windows that is a
            view is an error when the next batch is asked for, at the end of the epoch, or when the iterator is closed
            (after ``break``, a warning). It names the step, the window and the field; in fields whose windows share a
            row (masks, covariates of series), the step and the field. That copies the rows of each batch and compares
            them, for debugging. Batches that own their memory need no check, and have none.
        num_threads: The number of threads that form blocks, including the consumer while it waits; ``None`` for one on
            each core, at most 8 (16 where blocks are streamed to a device), or for one in a worker of a torch
            ``DataLoader``. With one, a separate thread forms blocks. An epoch of less than 512 KiB is formed by the
            consumer alone.
        prefetch: The number of blocks that are formed ahead of the one in use (for samples on demand: of batches);
            ``None`` for 2, or 1 where a batch is larger than a block of 2 MiB (on demand: than 32 MiB). With 0, a block
            is formed when it is asked for, by all threads, in the memory of the last one if that was let go of.
        digest: If ``True``, batches are hashed as they are handed over, for :meth:`digest`. That reads each of them
            once more, and copies it from a device.
        torch: Arguments of torch's ``DataLoader``: see :class:`~batchloom.loader.torch.options.TorchOptions`.
            ``sampler`` and ``batch_sampler`` give the samples and the batches of each epoch, of which each rank takes
            its share; ``generator`` draws the seed. Those that are of no use here have no effect, with a warning.

    Raises:
        ArgumentError: An argument makes no sense, ``drop_last`` would leave no step, or data that must be resident
            exceeds ``memory_limit``.
        DataError: The dataset has no samples, or data on a device holds values that ``dtype`` cannot hold. (Where
            batches are formed in memory, such a value is an error of its batch.)
        DeviceError: The device does not exist, fields are on several devices, data that must be resident takes more
            than the free memory, or two shards of ``memory_limit`` would.
        DTypeError: The type of a field does not exist in ``output``.
    """

    _block_bytes: int | None = None

    # Batches of a named framework hold its arrays; others those of the data, or of the device.
    # fmt: off
    @overload
    def __init__(
        self: DataLoader[tuple[Tensor, ...]], dataset: Dataset[Tuples], batch_size: int | None = None,
        shuffle: Shuffle = False, *, output: Literal["torch"], **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: DataLoader[dict[str, Tensor]], dataset: Dataset[Dicts], batch_size: int | None = None,
        shuffle: Shuffle = False, *, output: Literal["torch"], **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: DataLoader[tuple[NDArray[Any], ...]], dataset: Dataset[Tuples], batch_size: int | None = None,
        shuffle: Shuffle = False, *, output: Literal["numpy"], **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: DataLoader[dict[str, NDArray[Any]]], dataset: Dataset[Dicts], batch_size: int | None = None,
        shuffle: Shuffle = False, *, output: Literal["numpy"], **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: DataLoader[tuple[Array, ...]], dataset: Dataset[Tuples], batch_size: int | None = None,
        shuffle: Shuffle = False, *, output: Literal["jax"], **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: DataLoader[dict[str, Array]], dataset: Dataset[Dicts], batch_size: int | None = None,
        shuffle: Shuffle = False, *, output: Literal["jax"], **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: DataLoader[tuple[Any, ...]], dataset: Dataset[Tuples], batch_size: int | None = None,
        shuffle: Shuffle = False, *, output: Output | None = None, **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: DataLoader[dict[str, Any]], dataset: Dataset[Dicts], batch_size: int | None = None,
        shuffle: Shuffle = False, *, output: Output | None = None, **options: Unpack[LoaderOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: DataLoader[Any], dataset: Any, batch_size: int | None = None,
        shuffle: Shuffle = False, *, output: Output | None = None, **options: Unpack[LoaderOptions],
    ) -> None: ...
    # fmt: on
    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: Shuffle = False,
        *,
        batching: Rule | None = None,
        shard_size: int | None = None,
        drop_last: bool = False,
        seed: Any = 0,
        uneven: Uneven = "pad",
        balance: bool = False,
        largest_first: bool = False,
        weights: Any = None,
        num_samples: int | None = None,
        balanced_by: Any = None,
        homogeneous_by: Any = None,
        distinct_by: Any = None,
        ban: Any = None,
        rank: int | None = None,
        world_size: int | None = None,
        distributed: bool = True,
        mesh: Any = None,
        device: Any = None,
        sharding: Any = None,
        resident: Resident = "auto",
        memory_limit: int | None = None,
        output: Output | None = None,
        copy: bool = False,
        static_buffers: bool = False,
        check: bool = False,
        pad_value: Any = 0,
        pad_side: PadSide = "right",
        pad_to: PadTo = "longest",
        truncate: Truncate = "error",
        collate: Mapping[Any, SlotWay | Callable[[Any, Any], None]] | Callable[[list[Any]], Any] | None = None,
        labels: str | None = None,
        label_counts: Any = None,
        dtype: Any = None,
        scale: Any = None,
        mean: Any = None,
        std: Any = None,
        num_threads: int | None = None,
        prefetch: int | None = None,
        digest: bool = False,
        **torch: Unpack[TorchOptions],
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "torch", "dataset")}
        recipe = {"dataset": dataset} | {name: kept(value) for name, value in given.items()}
        asked, seed = accepted(kept(torch)).with_seed(seed)
        self._mixture = dataset if isinstance(dataset, Mixture) else None
        dataset = taken(dataset if self._mixture is None else self._mixture.dataset)._current()
        if callable(collate) and not dataset._is_on_demand:
            dataset = samples_of(dataset)
        self._dataset: Dataset = dataset
        planned = PlanOptions(
            drop_last=drop_last,
            seed=0 if seed is None else seed,
            uneven=uneven,
            balance=balance,
            largest_first=largest_first,
            pad_to=pad_to,
            truncate=truncate,
        )
        number = integer("seed", planned.seed)
        self._lists = asked.lists(len(dataset), batch_size, batching, shuffle, drop_last)
        self.generator, self._draw_seed = asked.generator, asked.seed_source(number)
        self._batching = rule(batch_size, batching) if self._lists is None else self._lists.at(0)
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
        namer = Namer(lambda: dataset._field_names(self._batching))
        collation = collated(namer.by_name("collate", collate))
        collation.require_alone(
            self._batching,
            dtype=(dtype, None),
            scale=(scale, None),
            mean=(mean, None),
            std=(std, None),
            pad_to=(pad_to, "longest"),
            pad_value=(pad_value, 0),
            pad_side=(pad_side, "right"),
        )
        arguments = FieldArguments(dtype, scale, mean, std)
        types = conversions(dataset._native_dataset, self._batching, arguments, namer, collation.slots)
        labels, counts = dataset._labels(labels), counted(label_counts)
        draws = self._drawn(weights, num_samples, balanced_by, labels, counts)
        recipe["ban"] = ban = banned(ban, len(dataset), None if self._mixture is None else self._mixture.sample)
        neighbours = (
            order if draws is None and homogeneous_by is None and distinct_by is None else "samples"
        )  # what is drawn by weight is no run of neighbours
        self._delivery = choose(
            dataset,
            self._batching,
            neighbours,
            documents,
            request,
            types.each,
            collation,
            bool(ban),
            boolean("check", check) or _is_set("BATCHLOOM_CHECK"),
        )
        on_demand = dataset._is_on_demand
        if not on_demand and isinstance(pad_value, Mapping) and (dataset._padded_fields or collation.slots):
            padded = {*dataset._padded_fields, *(field for field, _, _ in collation.slots)}
            pad_value = namer.by_name("pad_value", pad_value, padded)
        elif on_demand:
            pad_value = namer.by_name("pad_value", pad_value)
        padding, numbers = collation.padding(pad_value)
        pad_values = collation.without(dataset._pad_values(padding, types.dtypes))
        side = choice("pad_side", pad_side, PAD_SIDE)
        blocks = self._delivery.blocks
        left = types.left(
            blocks, pad_values, lambda: collation.without(dataset._pad_values(padding, {})), has_bans=ban is not None
        )
        # Other ranks than given ones are found when something asks for them.
        makes_jax = request.device is None and "jax" in request.frameworks
        ranks_of = None if mesh is None else Mesh(mesh)
        self._ranks = RankFinder(rank, world_size, jax=makes_jax, mesh=ranks_of, distributed=distributed)
        if seed is None and self._draw_seed is None:
            self._draw_seed = self._ranks.seed_source()
        first_rank, first_world_size = self._ranks.given or (0, 1)
        threads = _threads(num_threads)
        engine, memory = dataset._for_loader(threads, collation, namer)
        self._native = _native.Loader(
            engine,
            planned.plain(self._batching)
            | {
                "shuffle": order,
                "shard_size": self._delivery.placement.shard_size,
                "draws": draws,
                "ban": ban,
                "grouping": grouped(
                    len(dataset), self._keys("homogeneous_by", homogeneous_by), self._keys("distinct_by", distinct_by)
                ),
            },
            fields=left.formed,
            shuffle_documents=documents,
            rank=first_rank,
            world_size=first_world_size,
            pad_values=left.pad_values,
            pad_side=side,
            labels=labels,
            num_threads=threads,
            prefetch=None if prefetch is None else integer("prefetch", prefetch, most=MOST),
            poison=bool(os.environ.get("BATCHLOOM_POISON")),
            block_bytes=blocks.block_bytes if self._block_bytes is None else self._block_bytes,
            memory=blocks.memory if memory is None else memory,
            index_table=blocks.index_table,
            label_counts=None if counts is None else counts._native(),
            slots=collation.slots,
            pad_numbers=pad_numbers(pad_value) if on_demand else numbers,
        )
        columns = [(name, types.dtypes.get(name, stored)) for name, stored in self._native.columns]
        names, marked = [name for name, _ in columns], uneven == "mask" or ban is not None
        # Marks come beside the array.
        self._is_bare = dataset._is_bare and not marked
        options = CollateOptions(names, dict(pad_values), side == "left", labels, marked, left.conversions)
        # Fields of samples on demand are known with the first block.
        self._delivery.prepare(dataset._schema([] if on_demand else columns), options)
        warn_of_one_pool(self._native.plan(None), self._batching)
        # Arguments that were refused, or have no effect, are no part of it.
        self._recipe: dict[str, Any] = recipe | vars(asked)
        if self._lists is not None:
            self._recipe[self._lists.name] = self._lists.sampler  # an iterator was read
        self._is_compared = self._is_watched_alone = False
        self._count = EpochCount()
        # Whether the next iteration is empty: that of a loader which waits for the epoch of a trainer to end.
        self._is_over = False
        self._digest = BatchDigest() if boolean("digest", digest) else None
        self._own = frozenset((*vars(self), "_own"))
        if self._ranks.is_said:
            self._follow()  # arguments that leave so many ranks no step are an error now

    def _drawn(
        self, weights: Any, num_samples: int | None, balanced_by: Any, labels: str | None, counts: LabelCounts | None
    ) -> _native.Draws | None:
        """Return the draws of an epoch; ``None`` if it is every sample once."""
        if self._mixture is None:
            return drawn(len(self._dataset), weights, num_samples, self._keys("balanced_by", balanced_by))
        for name, given in (("weights", weights), ("balanced_by", balanced_by)):
            if given is not None:
                raise ArgumentError(f"{name} is given, and the mixture has weights of its own; expected None")
        return self._mixture._draws(num_samples, labels, counts)

    def _keys(self, option: str, keys: Any) -> Any:
        """Return the key of each sample, which a field may hold; ``"source"`` stands for the sources of a mixture."""
        if not isinstance(keys, str | int) or isinstance(keys, bool):
            return keys
        if keys == "source" and self._mixture is not None:
            return self._mixture._sources()
        return self._dataset._classes(option, keys)

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch on this rank, whatever was taken of it.

        It is the length of the epoch under way, or else of the next one, and exact: rules that form batches by size may
        make another number in each epoch. What is left of an epoch is ``remaining``.
        """
        self._follow()
        return len(self._native)

    @property
    def remaining(self) -> int:
        """The number of batches that are left of the epoch under way, or else of the next one.

        After a state was loaded, that is the rest of its epoch.
        """
        self._follow()
        return self._native.remaining

    @property
    def epoch(self) -> int:
        """The epoch under way, or else the one that begins next."""
        return self._native.epoch

    @property
    def steps_taken(self) -> int:
        """The steps that the run has taken, over all epochs: those before a state that was loaded included."""
        return self._native.steps_taken

    def metrics(self) -> Metrics:
        """Return the metrics of the latest epoch: its work so far, and the time that the loop waited for batches.

            for batch in loader:
                ...
            print(loader.metrics())  # the loop waited 2.1 % of the epoch for batches; at most 12.0 MB were ready ahead

        Where the logger ``batchloom`` logs at level ``INFO``, each epoch logs this line as it ends.
        """
        found = self._native.metrics()
        return Metrics(*found[:-1], *self._delivery.copies(), found[-1])

    def steps(self, end: int | None = None) -> Iterator[Batch]:
        """Yield batches, epoch after epoch, until the run has taken ``end`` steps: after a resume, the rest of them.

            for batch in loader.steps(100_000):
                ...

        The steps that a run has taken are in its state. An epoch that was left in the middle goes on where it stopped,
        before and after: the next iteration of any kind is the rest of it.

        Args:
            end: The step of the run at which to stop; ``None`` goes on for ever.
        """
        end = None if end is None else integer("end", end)
        return self._steps(end)

    def _go_on(self) -> None:
        """Make the rest of an epoch that was left in the middle the next iteration."""
        self._follow()
        self._native.go_on()

    def _skip(self, batches: int) -> None:
        """Pass over batches of the next iteration and of those after it; what is left then is the next one."""
        while batches:
            epoch = self.plan().epoch
            if self._lists is not None:
                self._native.set_lists(self._lists.at(epoch)._native())
            batches -= self._native.skip(batches)
        if self._native.is_rest:
            self.load_state_dict(self._native.state())

    def _steps(self, end: int | None) -> Iterator[Batch]:
        self._go_on()
        try:
            while end is None or self.steps_taken < end:
                for batch in self:
                    yield batch
                    if end is not None and self.steps_taken >= end:
                        return
        finally:
            self._go_on()

    def epochs(self, end: int | None = None) -> Iterator[tuple[int, Iterator[Batch]]]:
        """Yield the number and the batches of each epoch, until the run's epoch ``end``: after a resume, of the rest.

        An epoch that was left in the middle before the call goes on where it stopped.

            for epoch, batches in loader.epochs(10):
                for batch in batches:
                    ...

        Args:
            end: The epoch before which to stop; ``None`` goes on for ever.
        """
        end = None if end is None else integer("end", end)
        return self._epochs(end)

    def _epochs(self, end: int | None) -> Iterator[tuple[int, Iterator[Batch]]]:
        self._go_on()
        while True:
            self._follow()
            upcoming = self._native.plan(None).epoch
            if end is not None and upcoming >= end:
                return
            yield upcoming, iter(self)
            if upcoming == U64:
                return  # no epoch follows it
            if self._native.plan(None).epoch == upcoming:
                # Its batches were left alone. No caller counted that.
                self._native.set_epoch(upcoming + 1)
                self._is_over = False

    def __getitem__(self, step: SupportsIndex) -> Batch:
        """Form one batch of this rank in the epoch ``loader.epoch``, as :meth:`replay` does."""
        return self.replay(self.epoch, step)

    def digest(self) -> str:
        """Return a digest of the batches that this loader handed over since it was made: 32 hexadecimal digits.

        Loaders with the same one handed over the same names, types, shapes and values in the same order, whatever the
        framework. What determines a run is hashed in its state, at no cost: ``state_dict()["digest"]``, the same on
        every rank once a step was taken.

        Raises:
            ArgumentError: The loader hashes nothing.
        """
        if self._digest is None:
            raise ArgumentError("digest is False, so batches are not hashed; expected DataLoader(..., digest=True)")
        return self._digest.hex()

    def replay(self, epoch: int, step: SupportsIndex, *, state: dict[str, Any] | None = None) -> Batch:
        """Form one batch of this rank again, bit for bit, without iterating: to look at the batch of a loss spike.

        The run stays where it is. Samples that are made on demand are read again.

        Args:
            epoch: The number of the epoch.
            step: The number of the step in the epoch; negative ones count from its end.
            state: A state of that epoch, for the world sizes that it was run with; ``None`` for the present one.

        Raises:
            RangeError: There is no such step.
            StateError: The state is of another run, or of another epoch.
        """
        if self._dataset._current() is not self._dataset:
            # torch has moved arrays to shared memory; the run follows them with its next epoch.
            return DataLoader.replay(copy.copy(self), epoch, step, state=state)
        plan = self.plan(epoch)._native
        if state is not None:
            place, _ = without_count(state)
            if place.get("epoch") != plan.epoch:
                raise StateError(f"the state is of epoch {place.get('epoch')}; expected one of epoch {plan.epoch}")
            # It knows the weights and the bans of then.
            rest = plan.resume(place)
            plan = rest if rest.epoch == plan.epoch else rest.at_epoch(plan.epoch)
        formed = self._delivery.form(self._native, *self._part_with(plan, step))
        batch: Batch = formed[0] if self._is_bare else formed
        return batch

    def _part_with(self, plan: _native.Plan, step: SupportsIndex) -> tuple[_native.Plan, int]:
        """Return the part of an epoch in which a step was taken, for the ranks of then, and its number in that part.

        Raises:
            RangeError: There is no such step, or this rank took no part in it.
        """
        parts = plan.by_world()
        number, whole = operator.index(step), sum(steps for _, steps in parts)
        if not -whole <= number < whole:
            raise RangeError(f"step {number} is not in epoch {plan.epoch}; expected 0 <= step < {whole}")
        left, place = number % whole, 0
        while left >= parts[place][1]:
            left, place = left - parts[place][1], place + 1
        part = parts[place][0]
        if part.rank >= part.world_size:
            raise RangeError(
                f"step {number % whole} of epoch {plan.epoch} was taken by {part.world_size} ranks, and this is rank "
                f"{part.rank}; expected a rank below {part.world_size}"
            )
        return part, left

    def __iter__(self) -> Iterator[Batch]:
        """Return the batches of the next epoch, which begins with the first ``next``.

        The first ``next`` looks up the rank, and raises what keeps an epoch from beginning:

        - ``DataError`` if an array of the dataset was resized, moved, or lost its file since the dataset was made, or
          if ranks of ``torch.distributed`` have different datasets, options or seeds;
        - ``LoaderError`` if ``torch.distributed`` says another rank than before, and some, but not all batches of an
          epoch were taken.
        """
        if self._is_over:
            return self._nothing()
        if (current := self._dataset._current()) is not self._dataset:
            self._renew(current)
        batches: Iterator[Any] = self._delivery.begin(self._native, self._begin)
        batches = PassedOn(itemgetter(0), batches) if self._is_bare else batches
        batches = batches if self._digest is None else PassedOn(self._digest.add, batches)
        is_first = not self._is_compared and self._ranks.is_said
        return LoggedBatches(self, batches) if is_first or LOGGER.isEnabledFor(INFO) else batches

    def _nothing(self) -> Iterator[Batch]:
        """End an iteration without a batch."""
        self._is_over = False
        yield from ()

    def _log_epoch(self, epoch: int) -> None:
        """Log an epoch as it ends, and whether this rank takes its share of the batches alone."""
        if LOGGER.isEnabledFor(INFO):
            LOGGER.info("epoch %d: %s", epoch, self.metrics())
        if not self._is_watched_alone and self._ranks.is_alone:
            rank, world_size = self._native.ranks
            LOGGER.warning(
                "rank %d of %d has taken its share of epoch %d, and no other rank has begun this loader so far. The "
                "other ranks may be late; a loop that one rank runs alone sees every sample with distributed=False",
                *(rank, world_size, epoch),
            )
        self._is_watched_alone = True

    def _begin(self) -> None:
        """Prepare for an epoch that is about to begin: its ranks, its seed, and the batches of a sampler.

        The delivery has checked the data just before.
        """
        self._follow(begins=True)
        self._settle_seed()
        if self._lists is not None:
            self._take_lists(self._lists)
        if not self._is_compared:
            state = self._native.state()
            facts = {"samples": len(self._dataset), "seed": state["seed"], "fingerprint": state["fingerprint"]}
            facts |= {"lists": self._batching.digest} if isinstance(self._batching, Listed) else {}
            facts |= {"weights": weights} if (weights := self._native.plan(None).weights) is not None else {}
            name = f"{type(self._dataset).__name__}/{self._batching}"
            self._ranks.compare(name, facts, "the same dataset, options and seed")
            self._is_compared = True
        for watcher in watchers():
            watcher.check_length(self, lambda: len(self._native.plan(self._native.plan(None).epoch)))

    def _take_lists(self, lists: EpochLists) -> None:
        """Make the lists of the epoch that is about to begin its batches; ranks have to have the same."""
        epoch = self._native.plan(None).epoch
        given = lists.at(epoch)
        self._native.set_lists(given._native())
        expected = "lists of the same samples, by a generator with the same seed or by set_epoch,"
        self._ranks.compare(f"{lists.name}/{epoch}", {"epoch": epoch, "lists": given.digest}, expected)

    def _follow(self, *, begins: bool = False) -> None:
        """Serve the rank that this process has now, except in the middle of an epoch.

        Raises:
            LoaderError: An epoch ``begins``, and the last one was left in the middle by another rank.
        """
        ranks = self._ranks.find()
        if ranks != self._native.ranks and (begins or not self._native.is_mid_epoch):
            self._native.set_rank(*ranks)

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
        self._follow()
        return self._native.ranks[0]

    @property
    def world_size(self) -> int:
        """The number of processes."""
        self._follow()
        return self._native.ranks[1]

    @property
    def placement(self) -> Placement:
        """The device that makes batches, the way that data takes there, and the reason."""
        return self._delivery.placement

    @property
    def skipped(self) -> list[tuple[int, str]]:
        """The samples that could not be read and were left out, with the reasons, since the loader was made.

        A sample is listed each time that it is left out: see ``on_error`` of :class:`batchloom.MapDataset`.
        """
        return self._native.skipped

    def stats(self) -> dict[str, Any]:
        """Return the costs of the epoch under way, or else of the next one: :meth:`batchloom.Plan.stats`.

        ``skipped`` besides is the number of places in batches, since the loader was made, whose sample could not be
        read.
        """
        return {**self.plan(self.epoch).stats(), "skipped": len(self.skipped)}

    def plan(self, epoch: int | None = None) -> Plan:
        """Return the plan of a whole epoch, or of the one that begins next (after a state was loaded, its rest)."""
        self._follow()
        self._settle_seed()
        upcoming = self._native.plan(None)
        plan = upcoming if epoch is None else self._native.plan(integer("epoch", epoch))
        if self._lists is None:
            return Plan._wrap(plan, self._batching, None if self._mixture is None else self._mixture.sample)
        if plan.epoch not in (upcoming.epoch, self._lists.epoch) and not self._lists.foresees:
            raise ArgumentError(
                f"epoch is {epoch}, whose batches {self._lists.name} gives when it begins; expected {upcoming.epoch}, "
                "or a sampler with set_epoch"
            )
        lists = self._lists.at(plan.epoch)
        return Plan._wrap(plan.with_lists(lists._native()), lists)

    def set_epoch(self, epoch: int) -> None:
        """Begin epoch ``epoch`` of the caller with the next iteration. Without calls, epochs advance by themselves.

        The caller counts its epochs, and the loader its passes over the data. A larger number than the last one begins
        the epoch of that number, or the next one of the loader where it is further, as one that goes round several
        times in an epoch of a trainer. The same number again, or a smaller one, repeats what began with it. Where a
        state was loaded and no batch was taken since, the loader keeps its place, unless the number is larger than the
        last one before the state was saved.

        Raises:
            LoaderError: The number is smaller than the last one, numbers and epochs differ, and the epoch that began
                with it is not known.
        """
        for watcher in watchers():
            watcher.restore(self)
        upcoming = self._native.plan(None).epoch
        target = self._count.enter(integer("epoch", epoch), upcoming, is_rest=self._native.is_rest)
        if target is not None:
            self._native.set_epoch(target)
            self._is_over = False

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state of the run, to save in a checkpoint: after the last batch that was handed over.

        The state is a dict of a few plain values, the same on every rank (with ``uneven="short"``: up to the last step
        that all ranks have). After the last batch of an epoch, it is the start of the next one. It costs microseconds
        at any point of an epoch.

        Args:
            batches: The number of batches that were used of the latest iteration, for loops that ask for batches ahead
                of their use; negative ones count from the last batch that was handed over, so that -1 leaves out one
                that waits for its step. ``None`` for all that were handed over.

        Raises:
            ArgumentError: The iteration handed over fewer batches.
        """
        self._follow()
        self._settle_seed()
        state = self._native.state(None if batches is None else used(batches, self._native.handed_over))
        return state | self._count.entry(state["epoch"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``: the next iteration yields the rest of its epoch.

        The seed and the epoch are those of the state. ``world_size`` may differ from the one at the time of saving:
        the present ranks share exactly the samples that were left.

        Raises:
            StateError: The state is of another plan or version, or damaged, or a trainer that is loading it stands
                elsewhere. The loader is then unchanged.
        """
        self._follow()
        place, count = without_count(state)
        epoch = place.get("epoch")
        lists = self._lists.at(epoch)._native() if self._lists is not None and isinstance(epoch, int) else None
        for watcher in watchers():
            watcher.check_place(self, lambda: self._standing(place, lists))
        self._native.load(place, lists)
        self._count.load(count, self._native.plan(None).epoch)
        self._draw_seed = None
        self._is_over = any(
            watcher.is_over(self, lambda: Standing(len(self), self.remaining, False)) for watcher in watchers()
        )

    def _standing(self, state: dict[str, Any], lists: _native.Rule | None) -> Standing:
        """Return where this loader would stand after a state was loaded."""
        plan = self._native.plan(None)
        if lists is not None:
            plan = plan.at_epoch(state["epoch"]).with_lists(lists)
        rest = plan.resume(state)
        is_resized = any(size != self.world_size for size, _ in state["worlds"])
        return Standing(len(rest.at_epoch(rest.epoch)), len(rest), is_resized)

    def _renew(self, dataset: Dataset) -> None:
        """Go on with the next epoch over a dataset of the same samples in other memory."""
        plan, recipe, lists = self.plan(), self._recipe, self._lists
        self._native.set_epoch(plan.epoch)
        state = self._native.state()
        ranks, is_compared, others, digest = self._ranks, self._is_compared, self._own, self._digest
        count = self._count
        same = {name: None for name in ("batch_size", "sampler", "batch_sampler", "generator")}
        renewed = dataset if self._mixture is None else self._mixture._over(dataset)
        place = {"dataset": renewed, "batching": plan.batching, "seed": plan.seed}
        DataLoader.__init__(self, **{**recipe, **same, **place})
        self._recipe, self._lists = recipe | {"dataset": renewed}, lists
        self._ranks, self._is_compared, self._own, self._digest = ranks, is_compared, others, digest
        self.load_state_dict(state)
        self._count = count

    def _settle_seed(self) -> None:
        """Draw the seed from the generator that was given, once."""
        draw, self._draw_seed = self._draw_seed, None
        if draw is not None:
            self._native.set_seed(draw())
            self._recipe |= {"seed": self._native.plan(None).seed, "generator": None}

    def __getstate__(self) -> dict[str, Any]:
        """Return the recipe of this loader: its arguments, its place, and attributes that others have set."""
        state = self.state_dict()
        others = {name: value for name, value in vars(self).items() if name not in self._own}
        return {"recipe": {**self._recipe, "seed": state["seed"]}, "state": state, "others": others}

    def __setstate__(self, state: dict[str, Any]) -> None:
        DataLoader.__init__(self, **state["recipe"])
        vars(self).update(state["others"])
        place = state["state"]
        # The start of an epoch is one for any world, which this process may yet learn of.
        if place["batches"]:
            self.load_state_dict(place)
        else:
            place, count = without_count(place)
            self._native.load(place, None)
            self._count.load(count, place["epoch"])

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the dataset, the rule, and the costs of the next epoch."""
        return table(f"DataLoader: {self._dataset!r}, {self.batching}", self.plan().stats())

    def __repr__(self) -> str:
        try:
            place = f"rank {self.rank} of {self.world_size}: {many(len(self), 'batch')}"
        except Error as error:
            place = f"rank unknown: {error}"
        return f"DataLoader({self._dataset!r}, {self.batching}, {place})"


def _is_set(variable: str) -> bool:
    """Return whether a variable of the environment turns something on."""
    return os.environ.get(variable, "").lower() not in ("", "0", "false", "no", "off")


def _threads(num_threads: int | None) -> int | None:
    if num_threads is not None:
        return integer("num_threads", num_threads, least=1, most=MOST)
    return 1 if is_worker() else None
