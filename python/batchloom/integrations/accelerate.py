"""Hugging Face Accelerate: loaders that an ``Accelerator`` knows, as it knows torch's.

    loader = prepare(accelerator, bl.DataLoader(dataset, batch_size=64, shuffle=True))

``Accelerator.prepare`` leaves loaders alone that are not torch's. They train well, but Accelerate does not know them:
batches stay where they are, the last step of an epoch does not end an accumulation of gradients, and
``gather_for_metrics`` keeps what only fills up the last step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, overload

from batchloom.errors import ArgumentError, LoaderError, RangeError, StateError, many
from batchloom.integrations.claim import claim
from batchloom.integrations.rank_checks import refuse_other_rank, refuse_short
from batchloom.integrations.requirement import require
from batchloom.loader.inside import skip
from batchloom.loader.interleave import LOADERS, Interleaved, is_between_epochs, is_under_way, latest_step
from batchloom.loader.loader import DataLoader
from batchloom.plan.plan import Plan

require("accelerate", "1.0")

import accelerate  # noqa: E402
from accelerate.data_loader import DataLoaderStateMixin  # noqa: E402
from accelerate.state import GradientState  # noqa: E402
from accelerate.utils import gather_object, recursively_apply, send_to_device  # noqa: E402


@overload
def prepare(accelerator: accelerate.Accelerator, loader: DataLoader | Interleaved, /) -> PreparedLoader: ...
@overload
def prepare(
    accelerator: accelerate.Accelerator, loader: DataLoader | Interleaved, /, *loaders: DataLoader | Interleaved
) -> tuple[PreparedLoader, ...]: ...
def prepare(accelerator: accelerate.Accelerator, /, *loaders: DataLoader | Interleaved) -> Any:
    """Make loaders known to ``accelerator``, in the order in which its checkpoints number them.

    Batches then come on its device, ``gather_for_metrics`` returns each sample of a step once, gradients that are
    accumulated end with the epoch, ``save_state`` and ``load_state`` hold the place of the loaders, and
    ``accelerator.skip_first_batches`` takes them.

    Raises:
        ArgumentError: Something else than a loader of batchloom is given, or a loader's rank is not the accelerator's.
        LoaderError: Another accelerator has the loader.
    """
    prepared = tuple(_prepare(accelerator, loader) for loader in loaders)
    return prepared[0] if len(prepared) == 1 else prepared


def skip_first_batches(loader: PreparedLoader | DataLoader | Interleaved, num_batches: int = 0) -> Any:
    """Move ``loader`` past the first batches of the next epoch, and return it.

    Nothing is read or formed for batches that are skipped. A loader whose state was loaded stands at its place already:
    skipping the same batches again is an error.

    Raises:
        RangeError: The epoch has fewer batches.
        StateError: The loader stands elsewhere in its epoch.
    """
    inner: Any = loader.loader if isinstance(loader, PreparedLoader) else loader
    is_left = isinstance(inner, Interleaved) and is_under_way(inner)
    length, taken = len(inner), 0 if is_left else len(inner) - inner.remaining
    if not 0 <= num_batches < length:
        raise RangeError(
            f"num_batches is {num_batches}; expected 0 to {length - 1}, as an epoch has {many(length, 'batch')}. "
            "After the "
            "last one, begin the next epoch"
        )
    if taken not in (0, num_batches):
        raise StateError(
            f"the loader stands at batch {taken} of its epoch, from the state that was loaded; expected to skip "
            f"none, or {taken}, found {num_batches}"
        )
    if taken == 0 and num_batches:
        skip(inner, num_batches)
    return loader


class PreparedLoader(DataLoaderStateMixin):  # type: ignore[misc, unused-ignore]
    """A loader that an ``Accelerator`` knows. It has the attributes and methods of the loader.

    Attributes:
        loader: The loader.
    """

    # So that Accelerate saves the state of this loader, and does not prepare it again.
    use_stateful_dataloader = True
    _is_accelerate_prepared = True

    def __init__(self, loader: DataLoader | Interleaved, device: Any, non_blocking: bool) -> None:
        self.loader, self.device = loader, device
        self.gradient_state = GradientState()
        self._non_blocking = non_blocking
        # The plan that the present step is of, and its number there.
        self._step: tuple[Plan, int] | None = None
        self._repeated: tuple[Plan, int] | None = None
        self.reset()

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the loader; the last batch is known to be the last before it is handed over."""
        self.begin()
        try:
            self._step = None
            for batch, step, is_last in _steps(self.loader):
                self._step, self.end_of_dataloader = step, is_last
                yield send_to_device(batch, self.device, non_blocking=self._non_blocking)
        finally:
            self.end()

    def count_rows(self) -> tuple[list[int], list[int]]:
        """Return the number of rows of the present step on each rank, and how many of the first rows count.

        Raises:
            ArgumentError: Batches are repeated, and it is not known which.
        """
        if self._step is None:
            raise LoaderError("no batch was taken yet; expected gather_for_metrics() in a loop over the loader")
        plan, number = self._step
        step: Any = plan.step(number)
        rows = [len(batch) for batch in step.batches]
        if plan.options.uneven == "pad" and (self._repeated is None or self._repeated[0] is not plan):
            self._repeated = plan, plan.stats()["repeated"]
        repeated = 0 if plan.options.uneven != "pad" or self._repeated is None else self._repeated[1]
        if not repeated:
            return rows, list(step.counts)
        if plan.shuffle:
            raise ArgumentError(
                f'{repeated} samples of the epoch come twice, at steps of a random order; expected uneven="mask", '
                "which marks them, or shuffle=False, in the loader"
            )
        left = sum(rows) - (repeated if number + 1 == len(plan) else 0)
        return rows, [min(count, max(left - sum(rows[:rank]), 0)) for rank, count in enumerate(rows)]

    @property
    def dataset(self) -> Any:
        """The dataset of the loader; for loaders that take turns, a dict of datasets by name."""
        if isinstance(self.loader, Interleaved):
            return {name: loader.dataset for name, loader in self.loader.loaders.items()}
        return self.loader.dataset

    def begin(self) -> None:
        """Tell Accelerate that an epoch begins."""
        self.reset()
        self.gradient_state._add_dataloader(self)

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run after the last batch that was handed over."""
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from ``state``."""
        self.loader.load_state_dict(state)

    def set_epoch(self, epoch: int) -> None:
        """Make ``epoch`` the next one."""
        self.loader.set_epoch(epoch)

    def __getattr__(self, name: str) -> Any:
        """Return what the loader has."""
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)


def _steps(loader: DataLoader | Interleaved) -> Iterator[tuple[Any, tuple[Plan, int], bool]]:
    """Yield each batch of an epoch, the plan that it is of with its step there, and whether it is the last one."""
    if isinstance(loader, Interleaved):
        for batch in loader:
            yield batch, latest_step(loader), is_between_epochs(loader)
        return
    plan = loader.plan()
    for step, batch in enumerate(loader):
        yield batch, (plan, step), step + 1 == len(plan)


def _prepare(accelerator: accelerate.Accelerator, loader: DataLoader | Interleaved) -> PreparedLoader:
    if not isinstance(loader, LOADERS):
        raise ArgumentError(
            f"found a {type(loader).__name__}; expected a loader of batchloom. Others are for accelerator.prepare()"
        )
    refuse_other_rank(loader, "accelerator", accelerator.process_index, accelerator.num_processes)
    refuse_short(loader)
    claim(loader, accelerator)
    prepared = PreparedLoader(
        loader, accelerator.device if accelerator.device_placement else None, accelerator.non_blocking
    )
    accelerator._dataloaders.append(prepared)
    _teach(accelerator)
    return prepared


def _teach(accelerator: accelerate.Accelerator) -> None:
    """Let the methods of ``accelerator`` that take torch's loaders apart take loaders of batchloom."""
    if getattr(accelerator, "takes_batchloom", False):
        return
    skip_others, gather_others = accelerator.skip_first_batches, accelerator.gather_for_metrics

    def skip(dataloader: Any, num_batches: int = 0) -> Any:
        is_ours = isinstance(dataloader, (PreparedLoader, *LOADERS))
        return (skip_first_batches if is_ours else skip_others)(dataloader, num_batches)

    def gather_for_metrics(input_data: Any, use_gather_object: bool = False) -> Any:
        active = accelerator.gradient_state.active_dataloader
        if not isinstance(active, PreparedLoader):
            return gather_others(input_data, use_gather_object)
        return _gather(accelerator, input_data, use_gather_object, *active.count_rows())

    accelerator.skip_first_batches = skip
    accelerator.gather_for_metrics = gather_for_metrics
    accelerator.takes_batchloom = True


def _gather(
    accelerator: accelerate.Accelerator, values: Any, as_objects: bool, rows: list[int], counts: list[int]
) -> Any:
    """Gather values of every rank, a row for each sample that counts, in the order of the plan."""
    if as_objects or not _is_tensors(values):
        gathered = gather_object(values)
        return gathered if rows == counts else [gathered[place] for place in _places(gathered, rows, counts)]
    if len(set(rows)) > 1:
        # Rules of budgets give ranks different numbers of samples, which collectives cannot take.
        values, rows = accelerator.pad_across_processes(values, dim=0), [max(rows)] * len(rows)
    gathered = accelerator.gather(values)
    if rows == counts:
        return gathered
    return recursively_apply(lambda tensor: tensor[_places(tensor, rows, counts)], gathered)


def _places(gathered: Any, rows: list[int], counts: list[int]) -> list[int]:
    """Return which rows of what was gathered count."""
    if len(gathered) != sum(rows):
        raise ArgumentError(
            f"gather_for_metrics() found {many(len(gathered), 'row')} from {len(rows)} ranks, of which some only "
            "fill up; "
            f"expected {sum(rows)}: one for each sample of a batch"
        )
    starts = itertools.accumulate(rows, initial=0)
    return [start + row for start, count in zip(starts, counts, strict=False) for row in range(count)]


def _is_tensors(values: Any) -> bool:
    try:
        recursively_apply(lambda value: value, values, error_on_other_type=True)
    except TypeError:
        return False
    return True
