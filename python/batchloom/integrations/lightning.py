"""Lightning: a callback for runs with epochs of different lengths, or another number of ranks at a resume.

A loader passed to ``Trainer.fit`` needs nothing from here: Lightning saves its state in every checkpoint and loads it.
Lightning also counts the batches of an epoch itself, in steps of a rank. With another number of ranks that count is no
longer true, and :class:`Resume` restates it.
"""

from __future__ import annotations

from typing import Any

from batchloom.integrations.claim import claim, release
from batchloom.integrations.lightning_counters import combined_of, epoch_length, mode_of
from batchloom.integrations.requirement import RequirementError, require
from batchloom.loader.interleave import LOADERS

try:
    require("lightning", "2.5")
except RequirementError:
    # The same code is also published under its former name.
    require("pytorch-lightning", "2.5")
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class ExactEpochs(Callback):  # type: ignore[misc, unused-ignore]
    """Keeps Lightning's count of batches equal to the loader's.

    Lightning takes the number of batches of the first epoch for that of all, and its place in an epoch for a number of
    steps that each rank took. The callback restates the first for rules that make another number of batches in each
    epoch, as ``TokenBudget``, and the second after a checkpoint was loaded by another number of ranks. Without it both
    are refused. It also refuses a loader that another trainer is using.

        trainer = Trainer(strategy="ddp", devices=4, callbacks=[ExactEpochs()])
        trainer.fit(model, loader, ckpt_path="saved-by-two-ranks.ckpt")

    ``trainer.global_step`` remains the number of optimizer steps that were taken, by however many ranks.
    """

    # How the loader knows this callback, which it cannot import.
    restates_counters = True

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Claim the loaders, and restate the count of batches if a checkpoint was loaded."""
        loaders = _loaders(trainer)
        for loader in loaders:
            claim(loader, trainer)
        fit = trainer.fit_loop
        if not loaders or not fit.restarting:
            return
        # Lightning asked for the length before it loaded the state.
        self._restate_length(trainer)
        progress = fit.epoch_loop.batch_progress
        current = progress.current
        # At the last batch, the epoch is over, whatever number its batches had.
        is_over = progress.is_last_batch
        taken = int(trainer.num_training_batches) if is_over else _count_taken(combined_of(fit), loaders)
        # A checkpoint of the end of a batch was saved before that batch was counted as completed.
        behind = current.ready - current.completed
        current.ready = current.started = current.processed = taken
        current.completed = taken - behind

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Restate the number of batches of the epoch that begins."""
        self._restate_length(trainer)

    def _restate_length(self, trainer: Any) -> None:
        fit = trainer.fit_loop
        combined, loaders = combined_of(fit), _loaders(trainer)
        if not loaders:
            return
        limit = trainer.limit_train_batches
        limits = list(combined.limits)
        for place, loader in enumerate(combined.flattened):
            if isinstance(loader, LOADERS):
                whole = len(loader)
                limits[place] = min(whole, limit) if isinstance(limit, int) else int(whole * limit)
        combined.limits = limits
        if (iterator := combined._iterator) is not None:
            iterator.limits = limits
        fit.max_batches = fit._data_fetcher.length = epoch_length(combined, limits)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Release the loaders."""
        for loader in _loaders(trainer):
            release(loader, trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Release the loaders."""
        self.on_train_end(trainer, pl_module)


def _count_taken(combined: Any, loaders: list[Any]) -> int:
    """Return the batches that were taken in the epoch under way: by the loader with which the epoch ends."""
    choose = min if mode_of(combined) == "min_size" else max
    last = choose(loaders, key=len)
    taken: int = len(last) - last.remaining
    return taken


def _loaders(trainer: Any) -> list[Any]:
    """Return the training loaders of a trainer that are batchloom's."""
    combined = combined_of(trainer.fit_loop)
    return [] if combined is None else [loader for loader in combined.flattened if isinstance(loader, LOADERS)]
