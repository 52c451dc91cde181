"""Batches of sample numbers for other loaders: each iteration is the next epoch, and a state resumes it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sized
from numbers import Integral
from typing import Any, Unpack

import batchloom._native as engine
from batchloom.arguments import Shuffle, count_used, integer
from batchloom.batching.rules import Packing, Rule
from batchloom.dataset.base import Dataset, samples_of
from batchloom.dataset.mixture import Mixture
from batchloom.errors import ArgumentError, many
from batchloom.loader.epoch_count import EpochCount, without_count
from batchloom.loader.torch.lists import EpochSampler
from batchloom.plan.attributes import PlanAttributes
from batchloom.plan.options import PlanKeywords, PlanOptions
from batchloom.plan.plan import Plan, engine_plan, wrap_plan
from batchloom.ranks.ranks import RankFinder


class BatchSampler(PlanAttributes, EpochSampler):
    """The batches of one rank, as lists of sample numbers. Each ``iter()`` yields the next epoch.

    It gives every rule and every order of a :class:`batchloom.DataLoader` to loaders that are not ours, for data that
    has to be read or decoded sample by sample::

        sampler = bl.BatchSampler(lengths, batching=bl.TokenBudget(8192), shuffle=True)
        loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler, collate_fn=pad, num_workers=4)

    An epoch begins with its first batch: ``iter()`` alone spends nothing. A loader that asks for batches ahead of their
    use, as torch's does with workers, is ahead of what was trained on: ``state_dict(batches)`` then takes the number of
    batches that were. (torchdata's ``StatefulDataLoader`` keeps count by itself.)

    A plan is the batches of one epoch, for ever; a sampler goes from epoch to epoch.

    Args:
        data: The sizes of samples, as an array or a list of numbers; or a dataset of batchloom, whose sizes are used;
            or any other dataset with a length, where all samples count the same; or the number of samples.
        batch_size: Samples in a batch; 64 if neither this nor ``batching`` is given.
        shuffle: If ``True``, each epoch has another random order: see :class:`batchloom.PlanOptions`.
        batching: A rule instead of ``batch_size``.
        rank: The rank of this process. If neither ``rank`` nor ``world_size`` is given, they are looked up, as by a
            :class:`batchloom.DataLoader`, when an epoch begins. For a loader that divides batches among ranks itself,
            as Accelerate does, give ``distributed=False``.
        world_size: The number of processes.
        distributed: If ``False``, the sampler is for one rank, and holds every batch: ``rank=0, world_size=1``.
        **options: Keywords that :class:`batchloom.PlanOptions` documents. Lists hold no marks and no weights, so
            ``uneven`` is ``"pad"`` or ``"short"``, and there is no ``ban``.

    Raises:
        ArgumentError: An argument makes no sense, or ``drop_last`` would leave no step.
        DataError: There are no samples; a size is wrong, or exceeds the limits of the rule.
    """

    def __init__(
        self,
        data: Any,
        batch_size: int | None = None,
        shuffle: Shuffle = False,
        *,
        batching: Rule | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        distributed: bool = True,
        **options: Unpack[PlanKeywords],
    ) -> None:
        if options.get("uneven") == "mask":
            raise ArgumentError('uneven is "mask", and lists of samples hold no marks; expected "pad" or "short"')
        if options.get("ban") is not None:
            raise ArgumentError(
                "ban is given, and lists of samples hold no weights; expected DataLoader(..., ban=...), or None"
            )
        if isinstance(batching, Packing) and (batching.oversize == "split" or batching.rests == "continue"):
            raise ArgumentError(
                f"{batching} divides samples among batches, and lists of samples name no parts; expected DataLoader "
                "or a rule that keeps samples whole"
            )
        PlanOptions.from_keywords("BatchSampler", shuffle, options)
        samples, sizes = _count_samples(data)
        self._ranks = RankFinder(rank, world_size, distributed=distributed)
        first_rank, first_world_size = self._ranks.given or (0, 1)
        plan = Plan(
            samples,
            batch_size,
            batching=batching,
            sizes=sizes,
            shuffle=shuffle,
            rank=first_rank,
            world_size=first_world_size,
            **options,
        )
        self._batching = plan.batching
        self._run = engine.Run(engine_plan(plan))
        self._is_compared = False
        self._count = EpochCount()

    def __iter__(self) -> Iterator[list[int]]:
        """Return the batches of the next epoch, or of the rest of the one in a state that was loaded.

        Raises:
            ArgumentError: Accelerate would divide batches among ranks that are divided already.
        """
        self._refuse_to_be_divided_twice(sys._getframe(1))
        return _EpochBatches(self._begin)

    def __len__(self) -> int:
        """Return the number of batches of this rank in a whole epoch: the one under way, or else the next one."""
        plan = self._at_place(self._run.current())
        return len(plan.at_epoch(plan.epoch))

    @property
    def batching(self) -> Rule:
        """The rule that makes batches of samples."""
        return self._batching

    @property
    def epoch(self) -> int:
        """The epoch under way, or the next one if none is."""
        return int(self._run.state()["epoch"])

    def plan(self, epoch: int | None = None) -> Plan:
        """Return the plan of an epoch, or of the next iteration."""
        plan = self._at_place(self._run.plan(None))
        return plan if epoch is None else plan.at_epoch(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Begin epoch ``epoch`` of the caller with the next iteration. Without calls, epochs advance by themselves.

        Numbers are understood as by :meth:`batchloom.DataLoader.set_epoch`.

        Raises:
            LoaderError: The number is smaller than the last one, numbers and epochs differ, and the epoch that began
                with it is not known.
        """
        upcoming = self._run.plan(None).epoch
        target = self._count.enter(integer("epoch", epoch), upcoming, is_rest=self._run.is_rest)
        if target is not None:
            self._run.set_epoch(target)

    def state_dict(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state of the run, to save in a checkpoint: after the last batch, the start of the next epoch.

        Args:
            batches: The number of batches that were used of the latest iteration, for loaders that take batches
                ahead of their use; negative ones count from the last batch that was handed over. ``None`` for all that
                were.

        Raises:
            ArgumentError: The iteration handed over fewer batches.
        """
        state = self._run.state(None if batches is None else count_used(batches, self._run.handed_over))
        return state | self._count.entry(state["epoch"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``, of a sampler or of a loader: the next iteration yields the rest of its epoch.

        The seed and the epoch are those of the state. ``world_size`` may differ from the one at the time of saving.

        Raises:
            StateError: The state is of another plan or version, or damaged. The sampler is then unchanged.
        """
        state, count = without_count(state)
        self._run.load(state)
        self._count.load(count, self._run.plan(None).epoch)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy starts from: the place in the run. It finds its rank anew."""
        plan, state = wrap_plan(self._run.plan(None), self._batching), self._run.state()
        ranks = RankFinder(*(self._ranks.given or (None, None)))
        return {**vars(self), "_run": (plan, state), "_ranks": ranks, "_count": self._count.copy(state["epoch"])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        plan, place = state["_run"]
        vars(self).update(state | {"_run": engine.Run(engine_plan(plan))})
        self._run.load(place)

    def __repr__(self) -> str:
        return f"BatchSampler({many(self._run.current().samples, 'sample')}, {self.batching}, epoch {self.epoch})"

    def _plan_all_ranks(self, epoch: int) -> Plan:
        """Return the batches of all ranks in an epoch.

        Raises:
            ArgumentError: The sampler was made for one rank of several.
        """
        rank, world_size = self._ranks.given or (0, 1)
        if world_size > 1:
            raise ArgumentError(
                f"the BatchSampler holds the batches of rank {rank} of {world_size}; expected one of rank 0 in a world "
                "of 1, as the loader deals batches to ranks itself"
            )
        return wrap_plan(self._deal(self._run.plan(epoch), 0, 1), self._batching)

    def _at_place(self, plan: engine.Plan) -> Plan:
        """Return what is left of an epoch for the rank and the world size of now."""
        return wrap_plan(self._deal(plan, *self._ranks.find()), self._batching)

    def _deal(self, plan: engine.Plan, rank: int, world_size: int) -> engine.Plan:
        return plan if (rank, world_size) == (plan.rank, plan.world_size) else plan.in_world(rank, world_size)

    def _begin(self) -> engine.Iteration:
        """Begin the next epoch, on the rank that this process has now."""
        self._run.serve(*self._ranks.find())
        if not self._is_compared:
            plan = self._run.plan(None)
            facts: dict[str, Any] = {"samples": plan.samples, "seed": plan.seed, "fingerprint": plan.fingerprint}
            facts |= {} if plan.weights is None else {"weights": plan.weights}
            self._ranks.compare(f"BatchSampler/{self._batching}", lambda: facts, "the same sizes, options and seed")
            self._is_compared = True
        return self._run.begin()

    def _refuse_to_be_divided_twice(self, caller: Any) -> None:
        # A look at the variables of a function keeps them alive until it returns: functions of users are left alone.
        if not caller.f_globals.get("__name__", "").startswith("accelerate."):
            return
        if type(caller.f_locals.get("self")).__name__ != "BatchSamplerShard":
            return
        rank, world_size = self._ranks.find()
        if world_size > 1:
            raise ArgumentError(
                f"Accelerate divides the batches of a sampler among ranks, and these are those of rank {rank} of "
                f"{world_size} already; expected BatchSampler(..., distributed=False)"
            )


class _EpochBatches:
    """One iteration of a sampler. It begins an epoch with its first batch."""

    def __init__(self, begin: Callable[[], engine.Iteration]) -> None:
        self._begin = begin
        self._batches: engine.Iteration | None = None

    def __iter__(self) -> _EpochBatches:
        return self

    def __next__(self) -> list[int]:
        if self._batches is None:
            self._batches = self._begin()
        return next(self._batches)


def _count_samples(data: Any) -> tuple[int, Any]:
    """Return the number of samples, and their sizes where they have some."""
    if isinstance(data, Mixture):
        raise ArgumentError(
            "data is a Mixture, and a batch sampler of torch's has no sources; expected DataLoader(mixture, ...), or "
            "BatchSampler(mixture.dataset, ...) for all samples alike"
        )
    if isinstance(data, Integral) and not isinstance(data, bool):
        return integer("data", int(data)), None
    if isinstance(data, Dataset):
        return len(data), samples_of(data).sizes()
    if hasattr(data, "__array__") or hasattr(data, "__dlpack__") or _are_numbers(data):
        return len(data), data
    if isinstance(data, Sized):
        return len(data), None
    raise ArgumentError(
        f"data is a {type(data).__name__}; expected the sizes of samples, a dataset with a length, or the number of "
        "samples"
    )


def _are_numbers(data: Any) -> bool:
    return isinstance(data, list | tuple) and all(isinstance(size, Integral) for size in data)
