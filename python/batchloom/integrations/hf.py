"""Hugging Face's ``Trainer``: a mixin that resumes a loader of batchloom exactly, and evaluates each sample once.

    class MyTrainer(TrainerMixin, Trainer):
        def get_train_dataloader(self):
            return bl.DataLoader(dataset, batch_size=8, shuffle=True)

The trainer computes the place in an epoch from the number of steps, and skips these batches of a torch loader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from batchloom.errors import StateError, many
from batchloom.integrations.accelerate import PreparedLoader, prepare, skip_first_batches
from batchloom.integrations.claim import claim, release
from batchloom.integrations.rank_checks import refuse_other_rank, refuse_short
from batchloom.integrations.requirement import require
from batchloom.loader.interleave import LOADERS, Interleaved, lengths
from batchloom.loader.loader import DataLoader

require("transformers", "5.0")

import torch  # noqa: E402
import transformers.trainer as trainer_module  # noqa: E402

# What a loader adds to batches of sequences; few models take these.
MARKS = (
    "index",
    "lengths",
    "weight",
    "segment_ids",
    "cu_seqlens",
    "max_seqlen",
    "loss_weight",
    "loss_denominator",
)
# The name of the state among those of callbacks, in the checkpoint's trainer_state.json.
KEY = "batchloom"
# The place of the number of all steps among the values that training begins with.
MAX_STEPS = 6


class TrainerMixin:
    """Goes before ``Trainer``: ``class MyTrainer(TrainerMixin, Trainer)``.

    ``get_train_dataloader`` and ``get_eval_dataloader`` of the class return a loader of batchloom, or ``train_dataset``
    and ``eval_dataset`` are one. Each process makes the same loader. Then

    - ``train(resume_from_checkpoint=...)`` continues with the batch after the checkpoint, on any number of processes;
    - evaluation and prediction count each sample once, on any number of processes;
    - batches lose what the loader adds to them, as ``index``, unless the model's ``forward`` names it.

    Other loaders work as without the mixin.
    """

    _loader: DataLoader | Interleaved | None = None
    _restated: bool = False

    def get_train_dataloader(self) -> Any:
        """Return ``train_dataset``, if it is a loader."""
        given = getattr(self, "train_dataset", None)
        return given if isinstance(given, LOADERS) else super().get_train_dataloader()  # type: ignore[misc]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return ``eval_dataset``, if it is a loader."""
        given = getattr(self, "eval_dataset", None) if eval_dataset is None else eval_dataset
        if isinstance(given, str):
            given = self.eval_dataset[given]  # type: ignore[attr-defined]
        return given if isinstance(given, LOADERS) else super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return ``test_dataset``, if it is a loader."""
        return test_dataset if isinstance(test_dataset, LOADERS) else super().get_test_dataloader(test_dataset)  # type: ignore[misc]

    def set_initial_training_values(self, args: Any, dataloader: Any, *rest: Any) -> Any:
        """Remember the loader, and count the steps of each epoch: rules may make another number in each."""
        values = list(super().set_initial_training_values(args, dataloader, *rest))  # type: ignore[misc]
        self._loader = dataloader if isinstance(dataloader, LOADERS) else None
        if self._loader is not None:
            self._check_rank(self._loader)
            claim(self._loader, self)
            if args.max_steps <= 0:
                values[MAX_STEPS] = self._steps_before(args.num_train_epochs)
        return tuple(values)

    def _batches(self, epoch: int) -> int:
        """Return the number of batches of a whole epoch on this process."""
        loader = self._loader
        assert loader is not None
        if isinstance(loader, Interleaved):
            return next(islice(lengths(loader), epoch, None))
        return len(loader.plan(epoch))

    def _steps(self, epoch: int) -> int:
        """Return the number of optimizer steps of a whole epoch."""
        accumulated: int = self.args.gradient_accumulation_steps  # type: ignore[attr-defined]
        return -(-self._batches(epoch) // accumulated)

    def _steps_before(self, epochs: float) -> int:
        """Return the number of optimizer steps of the first epochs; the last one may be a part of an epoch."""
        whole = int(epochs)
        return sum(map(self._steps, range(whole))) + math.ceil((epochs - whole) * self._steps(whole))

    def _inner_training_loop(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super()._inner_training_loop(*arguments, **options)  # type: ignore[misc]
        finally:
            if self._loader is not None:
                release(self._loader, self)

    def _init_training_state(
        self,
        max_steps: int,
        num_update_steps_per_epoch: int,
        num_train_epochs: int,
        resume_from_checkpoint: Any,
        trial: Any,
    ) -> tuple[int, int]:
        """Load the state of the loader; state the trainer's counters in steps of the present number of processes."""
        epochs, steps = super()._init_training_state(  # type: ignore[misc]
            max_steps, num_update_steps_per_epoch, num_train_epochs, resume_from_checkpoint, trial
        )
        loader, state, args = self._loader, self.state, self.args  # type: ignore[attr-defined]
        self._restated = False
        if loader is None or resume_from_checkpoint is None or args.ignore_data_skip:
            return epochs, steps
        saved = state.stateful_callbacks.get(KEY)
        if saved is None:
            raise StateError(
                f"the checkpoint {resume_from_checkpoint} holds no state of a loader; expected one that TrainerMixin "
                "saved. ignore_data_skip=True begins its epoch again"
            )
        loader.load_state_dict(saved["attributes"]["state"])
        epochs = loader.epoch
        steps = len(loader) - loader.remaining
        global_step = self._steps_before(epochs) + steps // args.gradient_accumulation_steps
        if global_step != state.global_step:
            self._restate(global_step, steps)
        return epochs, steps

    def _restate(self, global_step: int, steps: int) -> None:
        """Count the steps so far as the present processes would have taken them."""
        args, state = self.args, self.state  # type: ignore[attr-defined]
        if args.max_steps > 0:
            raise StateError(
                f"the checkpoint was saved after {many(state.global_step, 'step')}, by another number of "
                "processes; the "
                f"present ones would have taken {global_step}, and max_steps={args.max_steps} counts neither: expected "
                "num_train_epochs instead"
            )
        if steps % args.gradient_accumulation_steps:
            raise StateError(
                f"the present processes stand at batch {steps} of an epoch, between two optimizer steps of "
                f"{many(args.gradient_accumulation_steps, 'batch')}; expected gradient_accumulation_steps to "
                "divide it, or a "
                "checkpoint of the end of an epoch"
            )
        state.global_step, self._restated = global_step, True

    def _prepare_for_training(self, *arguments: Any, **options: Any) -> Any:
        """Move the schedule of the learning rate to where the present processes would stand."""
        prepared = super()._prepare_for_training(*arguments, **options)  # type: ignore[misc]
        scheduler = self.lr_scheduler  # type: ignore[attr-defined]
        if self._restated and isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
            scheduler.last_epoch = self.state.global_step - 1  # type: ignore[attr-defined]
            scheduler.step()
        return prepared

    def _run_epoch(self, *arguments: Any, **options: Any) -> Any:
        if self._loader is not None:
            # The trainer takes the number of the first epoch for that of all.
            options["steps_in_epoch"] = self._batches(options["epoch"])
            options["num_update_steps_per_epoch"] = self._steps(options["epoch"])
        with _skipping_nothing():
            return super()._run_epoch(*arguments, **options)  # type: ignore[misc]

    def _save_checkpoint(self, *arguments: Any, **options: Any) -> Any:
        if self._loader is not None:
            held = {"args": {}, "attributes": {"state": self._loader.state_dict()}}
            self.state.stateful_callbacks[KEY] = held  # type: ignore[attr-defined]
        return super()._save_checkpoint(*arguments, **options)  # type: ignore[misc]

    def _prepare_inputs(self, inputs: Any) -> Any:
        """Leave out what the loader adds, unless the model takes it."""
        if isinstance(inputs, tuple) and isinstance(self._loader, Interleaved):
            name, batch = inputs
            return name, self._prepare_inputs(batch)
        if isinstance(inputs, dict) and any(mark in inputs for mark in MARKS):
            self._set_signature_columns_if_needed()  # type: ignore[attr-defined]
            taken = self._signature_columns  # type: ignore[attr-defined]
            inputs = {name: value for name, value in inputs.items() if name not in MARKS or name in taken}
        return super()._prepare_inputs(inputs)  # type: ignore[misc]

    def evaluation_loop(self, dataloader: Any, *arguments: Any, **options: Any) -> Any:
        """Evaluate; places that only fill up a step are left out."""
        if not isinstance(dataloader, LOADERS):
            return super().evaluation_loop(dataloader, *arguments, **options)  # type: ignore[misc]
        self._check_rank(dataloader)
        accelerator = self.accelerator  # type: ignore[attr-defined]
        prepared: PreparedLoader = prepare(accelerator, dataloader)
        self.gather_function = self._gathers_losses(prepared)
        try:
            return super().evaluation_loop(prepared, *arguments, **options)  # type: ignore[misc]
        finally:
            accelerator._dataloaders.remove(prepared)
            release(dataloader, accelerator)

    def _gathers_losses(self, prepared: PreparedLoader) -> Callable[[Any], Any]:
        """Return the function that gathers a step: the trainer repeats a loss as often as a whole batch has samples."""
        accelerator, args = self.accelerator, self.args  # type: ignore[attr-defined]

        def gather(values: Any) -> Any:
            here = prepared.count_rows()[0][args.process_index]
            if isinstance(values, torch.Tensor) and values.ndim == 1 and len(values) == args.eval_batch_size != here:
                values = values[:1].repeat(here)
            return accelerator.gather_for_metrics(values)

        return gather

    def _check_rank(self, loader: DataLoader | Interleaved) -> None:
        args = self.args  # type: ignore[attr-defined]
        refuse_other_rank(loader, "trainer", args.process_index, args.world_size)
        refuse_short(loader)


@contextmanager
def _skipping_nothing() -> Iterator[None]:
    """Have the trainer skip no batches of a loader of batchloom, which stands at its place already."""
    module: Any = trainer_module
    theirs = module.skip_first_batches

    def skip(dataloader: Any, num_batches: int = 0) -> Any:
        return (skip_first_batches if isinstance(dataloader, LOADERS) else theirs)(dataloader, num_batches)

    module.skip_first_batches = skip
    try:
        yield
    finally:
        module.skip_first_batches = theirs
