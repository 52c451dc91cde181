"""The loader: an iterable over the batches of one rank, epoch after epoch."""

from __future__ import annotations

import atexit
import copy
import os
from collections.abc import Iterator
from logging import INFO
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, SupportsIndex, Unpack

import batchloom._native as _native
from batchloom.arguments import U64, Shuffle, SupportsArray, count_used, integer
from batchloom.batching.cost_model import CostModel
from batchloom.batching.rules import Listed, Rule, engine_rule
from batchloom.collate.fields import Fields, choose_extras
from batchloom.dataset.base import Batch, Dataset, refresh
from batchloom.dataset.mixture import Mixture, with_dataset
from batchloom.delivery.choose import choose
from batchloom.delivery.options import DeliveryOptions
from batchloom.delivery.placement import Placement, PlacementRequest
from batchloom.errors import ArgumentError, Error, StateError, many
from batchloom.loader.batch_order import BatchOrder
from batchloom.loader.epoch_count import EpochCount, without_count
from batchloom.loader.introductions import introduce_loaders
from batchloom.loader.keywords import LoaderKeywords, divide, fix_options
from batchloom.loader.metrics import LOGGER, LoggedBatches, Metrics, PassedOn, make_metrics
from batchloom.loader.source import LoaderSamples
from batchloom.loader.torch.attributes import TorchAttributes
from batchloom.loader.torch.datasets import as_dataset
from batchloom.loader.torch.lists import EpochLists
from batchloom.loader.watchers import Standing, watchers
from batchloom.plan.plan import Plan, engine_plan, table, warn_of_one_pool, wrap_plan
from batchloom.plan.world_parts import find_step
from batchloom.ranks.ranks import RankFinder, is_worker
from batchloom.samples.label_counts import engine_counts

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TorchDataset

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.forked)
atexit.register(_native.settle)


@fix_options
class DataLoader(TorchAttributes, Generic[Batch]):
    """Iterates over the batches of one rank, one epoch after the other.

    An epoch begins with the first ``next`` of an iterator. ``iter()`` alone starts nothing, reads nothing and spends
    nothing, so each of several iterators takes the next epoch when its first ``next`` is called.

    A batch is a tuple of arrays, or a dict if the fields of the dataset are named; the dataset documents the contents.
    Arrays are compact and 64-byte aligned (except those gathered on a device). The consumer may keep them and write to
    them. Their memory returns to the loader when the last array of the block (about 2 MiB of consecutive batches) is
    gone.

    Threads start with the first epoch, serve every epoch, and end with the loader. A loader pickles as its recipe: the
    copy has the same dataset, options and state, and threads and memory of its own. An iterator that has begun neither
    pickles nor survives a fork.

    Arguments by question. A class of options documents each of them at length.

    Args:
        dataset: The samples: a dataset of batchloom, or a :class:`batchloom.Mixture` of several. An array, or
            a dataset of torch that holds rows of tensors (a ``TensorDataset``, or a ``Subset`` or a ``ConcatDataset``
            of them), stands for its rows.
        batch_size: Samples in a batch; 64 if neither ``batch_size`` nor ``batching`` is given.
        shuffle: ``True`` for another random order in each epoch; or ``"runs"``, ``"documents"``, ``"chunks"``.
        **keywords: Options by name.

            *How samples share batches, and in which order* (:class:`batchloom.PlanOptions`): ``batching`` (a rule
            instead of ``batch_size``), ``seed``, ``drop_last``, ``uneven``, ``pad_to``, ``truncate``, ``weights``,
            ``num_samples``, ``balanced_by``, ``per_class``, ``homogeneous_by``, ``distinct_by``, ``ban``,
            ``balance``, ``balance_within``, ``accumulate``, ``largest_first``, ``shard_size``.

            *What a batch holds* (:class:`batchloom.FieldOptions`): ``fields``, ``dtype``, ``pad_value``, ``pad_side``,
            ``labels``, ``label_counts``, ``loss``, ``block_mask``, ``collate``, ``extras``.

            *Where batches go* (:class:`batchloom.DeliveryOptions`): ``output``, ``device``, ``resident``,
            ``buffers``, ``num_threads``, ``prefetch``.

            *Which rank is served* (:class:`batchloom.RankOptions`): ``rank``, ``world_size``, ``distributed``.

            *Arguments of torch's loader* (:class:`~batchloom.loader.torch.options.TorchOptions`): ``sampler`` and
            ``batch_sampler`` give the samples and the batches of each epoch, of which each rank takes its share;
            ``generator`` draws the seed. Arguments that have no use here, such as ``num_workers``, have no effect, with
            a warning.

    Raises:
        ArgumentError: An argument makes no sense, ``drop_last`` would leave no step, or a shard exceeds the bytes
            that ``resident`` allows.
        DataError: The dataset has no samples, or data on a device holds values that ``dtype`` cannot hold. (Where
            batches are formed in memory, such a value is an error of its batch.)
        DeviceError: The device does not exist, fields are on several devices, data that must be resident takes more
            than the free memory, or the bytes that ``resident`` allows exceed it.
        DTypeError: The type of a field does not exist in ``output``.
    """

    def __init__(
        self,
        dataset: Dataset[Batch] | Mixture | SupportsArray | TorchDataset[Any],
        batch_size: int | None = None,
        shuffle: Shuffle = False,
        **keywords: Unpack[LoaderKeywords],
    ) -> None:
        divided = divide(keywords)
        self._source = source = LoaderSamples(as_dataset(dataset), divided.fields)
        self._order = order = BatchOrder(source, batch_size, shuffle, divided)
        extras = choose_extras(source.held, order.rule, divided.fields, has_marks=order.has_marks)
        self._samples = samples = source.held.in_shards(order.options.shard_size).with_extras(extras)
        self._fields = fields = Fields(
            samples, order.rule, divided.fields, pads_to_longest=order.options.pads_to_longest
        )
        request = PlacementRequest(samples, divided.delivery, order.options.shard_size)
        self._delivery = choose(samples, order, fields, request)
        self._ranks = RankFinder(**vars(divided.ranks), jax=request.makes_jax)
        self._native = self._engine(divided.delivery)
        self._prepare()
        given = {"dataset": dataset, "batch_size": batch_size, "shuffle": shuffle}
        self._recipe = {**given, **divided.recipe, **order.recipe}
        self._start()

    def _engine(self, delivery: DeliveryOptions) -> _native.Loader:
        """Return the engine's loader, of what the stages decided."""
        samples, order, blocks = self._samples, self._order, self._delivery.blocks
        fields = self._engine_fields = self._fields.for_engine(blocks, has_bans=order.has_bans)
        takes_one = delivery.num_threads is None and (is_worker() or samples.holds_interpreter)
        threads = 1 if takes_one else delivery.num_threads
        dataset, memory = samples.for_loader(threads, self._fields)
        rank, world_size = self._ranks.given or (0, 1)
        return _native.Loader(
            dataset,
            order.for_engine(self._delivery.placement.shard_size),
            fields=fields.options,
            shuffle_documents=order.shuffles_documents,
            rank=rank,
            world_size=world_size,
            pad_values=fields.pad_values,
            pad_side=self._fields.side,
            labels=self._fields.labels,
            num_threads=threads,
            prefetch=delivery.prefetch,
            block_bytes=blocks.block_bytes,
            memory=blocks.memory if memory is None else memory,
            index_table=blocks.index_table,
            label_counts=engine_counts(order.label_counts),
            slots=self._fields.slots,
            pad_numbers=fields.pad_numbers,
            pad_edges=self._fields.edges,
            left_out=samples.extras.left_out,
            loss=self._fields.loss,
            offset_by=self._fields.offset_by,
            block_mask=None if self._fields.block_mask is None else self._fields.block_mask.for_engine(),
        )

    def _prepare(self) -> None:
        """Prepare the delivery for batches of the engine."""
        samples, columns = self._samples, self._fields.columns(self._native.columns)
        # Fields of samples on demand are known with the first block.
        schema = samples.schema([] if samples.is_on_demand else columns)
        options = self._fields.collate_options(schema.all_keys, self._engine_fields)
        self._is_bare = samples.is_bare and not options.marks  # marks come beside the array
        self._delivery.prepare(schema, options)
        warn_of_one_pool(self._native.plan(None), self._order.rule)

    def _start(self) -> None:
        """Set up the run, which begins with the first batch."""
        self.generator, self._lists = self._order.generator, self._order.lists
        self._draw_seed = self._ranks.seed_source() if self._order.is_unseeded else self._order.draw_seed
        self._is_compared = self._is_watched_alone = False
        self._count = EpochCount()
        # Whether the next iteration is empty: that of a loader which waits for the epoch of a trainer to end.
        self._is_over = False
        self._own = frozenset((*vars(self), "_own"))
        introduce_loaders()
        if self._ranks.is_said:
            self._follow()  # arguments that leave so many ranks no step are an error now

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch on this rank, whatever was taken of it.

        It is the length of the epoch under way, or else of the next one, and exact: rules that make batches by size may
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
        return make_metrics(self._native.metrics(), self._delivery.copies())

    def steps(self, end: int | None = None) -> Iterator[Batch]:
        """Yield batches, epoch after epoch, until the run has taken ``end`` steps: after a resume, the rest of them.

            for batch in loader.steps(100_000):
                ...

        The steps that a run has taken are in its state. An epoch that was left in the middle goes on where it stopped,
        before and after: the next iteration of any kind is the rest of it.

        Args:
            end: The step of the run at which to stop; ``None`` for no end.
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
                self._native.set_lists(engine_rule(self._lists.at(epoch)))
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
            # As the interpreter ends, this may run when modules are gone already: only the engine is asked.
            self._native.go_on()

    def epochs(self, end: int | None = None) -> Iterator[tuple[int, Iterator[Batch]]]:
        """Yield the number and the batches of each epoch, until the run's epoch ``end``: after a resume, of the rest.

        An epoch that was left in the middle before the call continues where it stopped.

            for epoch, batches in loader.epochs(10):
                for batch in batches:
                    ...

        Args:
            end: The epoch before which to stop; ``None`` for no end.
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
        """Make one batch of this rank in the epoch ``loader.epoch``, as :meth:`replay` does."""
        return self.replay(self.epoch, step)

    def replay(self, epoch: int, step: SupportsIndex, *, state: dict[str, Any] | None = None) -> Batch:
        """Make one batch of this rank again, bit for bit, without iterating: to look at the batch of a loss spike.

        The run stays where it is. Samples that are made on demand are read again.

        Args:
            epoch: The number of the epoch.
            step: The number of the step in the epoch; negative ones count from its end.
            state: A state of that epoch, for the world sizes that it was run with; ``None`` for the present one.

        Raises:
            RangeError: There is no such step.
            StateError: The state is of another run, or of another epoch.
        """
        if refresh(self._source.dataset) is not self._source.dataset:
            # torch has moved arrays to shared memory; the run follows them with its next epoch.
            return DataLoader.replay(copy.copy(self), epoch, step, state=state)
        plan = engine_plan(self.plan(epoch))
        if state is not None:
            place, _ = without_count(state)
            if place.get("epoch") != plan.epoch:
                raise StateError(f"the state is of epoch {place.get('epoch')}; expected one of epoch {plan.epoch}")
            # It knows the weights and the bans of then.
            rest = plan.resume(place)
            plan = rest if rest.epoch == plan.epoch else rest.at_epoch(plan.epoch)
        formed = self._delivery.form(self._native, *find_step(plan, step))
        batch: Batch = formed[0] if self._is_bare else formed
        return batch

    def __iter__(self) -> Iterator[Batch]:
        """Return the batches of the next epoch, which begins with the first ``next``.

        The first ``next`` looks up the rank, and raises what keeps an epoch from beginning:

        - ``DataError`` if an array of the dataset was resized, moved, or lost its file since the dataset was made, or
          if ranks of ``torch.distributed`` have different datasets, options or seeds;
        - ``LoaderError`` if ``torch.distributed`` has another rank than before, and some, but not all batches of an
          epoch were taken.
        """
        if self._is_over:
            return self._nothing()
        if (now := refresh(self._source.dataset)) is not self._source.dataset:
            self._renew(now)
        batches: Iterator[Any] = self._delivery.begin(self._native, self._begin)
        batches = PassedOn(itemgetter(0), batches) if self._is_bare else batches
        is_first = not self._is_compared and self._ranks.is_said
        is_logged = is_first or self._samples.is_watched or LOGGER.isEnabledFor(INFO)
        return LoggedBatches(self, batches, self._log_epoch) if is_logged else batches

    def _nothing(self) -> Iterator[Batch]:
        """End an iteration without a batch."""
        self._is_over = False
        yield from ()

    def _log_epoch(self, epoch: int) -> None:
        """Log an epoch as it ends, and what it met: chunks that were read again, or no other rank."""
        if LOGGER.isEnabledFor(INFO):
            LOGGER.info("epoch %d: %s", epoch, self.metrics())
        self._samples.warn_after(epoch)
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

        The delivery has checked the data just before: all of it, but for some of many chunks.
        """
        self._samples.location.check_chunks()
        self._follow(begins=True)
        self._settle_seed()
        if self._lists is not None:
            self._take_lists(self._lists)
        if not self._is_compared:
            name = f"{type(self._source.dataset).__name__}/{self._order.rule}"
            self._ranks.compare(name, self._shared_facts, "the same dataset, options and seed")
            self._is_compared = True
        for watcher in watchers():
            watcher.check_length(self, lambda: len(self._native.plan(self._native.plan(None).epoch)))

    def _shared_facts(self) -> dict[str, Any]:
        """Return the facts that all ranks have to share before their first epoch."""
        state = self._native.state()
        facts = {"samples": len(self._source.dataset), "seed": state["seed"], "fingerprint": state["fingerprint"]}
        facts |= {"lists": self._order.rule.digest} if isinstance(self._order.rule, Listed) else {}
        weights = self._native.plan(None).weights
        return facts if weights is None else facts | {"weights": weights}

    def _take_lists(self, lists: EpochLists) -> None:
        """Make the lists of the epoch that is about to begin its batches; ranks have to have the same."""
        epoch = self._native.plan(None).epoch
        given = lists.at(epoch)
        self._native.set_lists(engine_rule(given))
        expected = "lists of the same samples, by a generator with the same seed or by set_epoch,"
        self._ranks.compare(f"{lists.name}/{epoch}", lambda: {"epoch": epoch, "lists": given.digest}, expected)

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
        return self._source.dataset

    @property
    def batching(self) -> Rule:
        """The rule that makes batches of samples."""
        return self._order.rule

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

    def stats(self, *, cost: CostModel | None = None) -> dict[str, Any]:
        """Return the costs of the epoch under way, or else of the next one: :meth:`batchloom.Plan.stats`.

        ``skipped`` besides is the number of places in batches, since the loader was made, whose sample could not be
        read.
        """
        return {**self.plan(self.epoch).stats(cost=cost), "skipped": len(self.skipped)}

    def plan(self, epoch: int | None = None) -> Plan:
        """Return the plan of a whole epoch, or of the one that begins next (after a state was loaded, its rest)."""
        self._follow()
        self._settle_seed()
        upcoming = self._native.plan(None)
        plan = upcoming if epoch is None else self._native.plan(integer("epoch", epoch))
        if self._lists is None:
            return wrap_plan(plan, self._order.rule, self._source.number)
        if plan.epoch not in (upcoming.epoch, self._lists.epoch) and not self._lists.foresees:
            raise ArgumentError(
                f"epoch is {epoch}, whose batches {self._lists.name} gives when it begins; expected {upcoming.epoch}, "
                "or a sampler with set_epoch"
            )
        lists = self._lists.at(plan.epoch)
        return wrap_plan(plan.with_lists(engine_rule(lists)), lists)

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
            batches: The number of batches that were used of the latest iteration, for loops that take batches ahead
                of their use; negative ones count from the last batch that was handed over, so that -1 leaves out one
                that waits for its step. ``None`` for all that were handed over.

        Raises:
            ArgumentError: The iteration handed over fewer batches.
        """
        self._follow()
        self._settle_seed()
        state = self._native.state(None if batches is None else count_used(batches, self._native.handed_over))
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
        lists = engine_rule(self._lists.at(epoch)) if self._lists is not None and isinstance(epoch, int) else None
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
        ranks, is_compared, others = self._ranks, self._is_compared, self._own
        count = self._count
        same = {name: None for name in ("batch_size", "sampler", "batch_sampler", "generator")}
        mixture = self._source.mixture
        renewed = dataset if mixture is None else with_dataset(mixture, dataset)
        place = {"dataset": renewed, "batching": plan.batching, "seed": plan.seed}
        DataLoader.__init__(self, **{**recipe, **same, **place})
        self._recipe, self._lists = recipe | {"dataset": renewed}, lists
        self._ranks, self._is_compared, self._own = ranks, is_compared, others
        self.load_state_dict(state)
        self._count = count

    def _settle_seed(self) -> None:
        """Draw the seed from the generator that was given, once."""
        draw, self._draw_seed = self._draw_seed, None
        if draw is not None:
            self._native.set_seed(draw())
            self._recipe |= {"seed": self._native.plan(None).seed, "generator": None}

    def __getstate__(self) -> dict[str, Any]:
        """Return the recipe of this loader: its arguments, its place, and attributes that callers have set."""
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
        return table(f"DataLoader: {self._source.dataset!r}, {self.batching}", self.plan().stats())

    def __repr__(self) -> str:
        try:
            place = f"rank {self.rank} of {self.world_size}: {many(len(self), 'batch')}"
        except Error as error:
            place = f"rank unknown: {error}"
        return f"DataLoader({self._source.dataset!r}, {self.batching}, {place})"
