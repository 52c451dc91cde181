"""Hugging Face's Trainer, resumed from its last checkpoint."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import Trainer, TrainerCallback, TrainingArguments

from bench.resume import peers
from bench.resume.run import Record, Run

# Its Trainer makes torch's loader itself; there is no option for torchdata's.
LOADERS = ("batchloom", "torch")


def skips(loader: str, rule: str) -> bool:
    """Return whether this loader cannot be had here."""
    return loader not in LOADERS


class Model(torch.nn.Module):
    """One weight."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.layer, self.record, self.epoch = torch.nn.Linear(1, 1), record, 0

    def forward(
        self, x: Any = None, input_ids: Any = None, index: Any = None, weight: Any = None, **rest: Any
    ) -> dict[str, torch.Tensor]:
        """Train a batch, and note it: the model is what gets the batches."""
        batch = {"x": x, "input_ids": input_ids, "index": index}
        batch = {name: value for name, value in batch.items() if value is not None}
        self.record.trained(self.epoch, peers.samples_of(batch))
        return {"loss": self.layer(peers.values_of(batch)).sum()}


class Notes(TrainerCallback):
    """Notes checkpoints and epochs, and dies."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Note the epoch: the trainer's own number of it."""
        self.model.epoch = int(state.epoch or 0)

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Die where the run dies; a checkpoint of this step is saved after it, so the step before counts."""
        self.model.record.die_if_due()

    def on_save(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Note the checkpoint."""
        self.model.record.checkpoint()
        if torch.distributed.is_initialized():
            torch.distributed.barrier()


def work(run: Run, rank: int) -> None:
    """Train one rank."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    args = TrainingArguments(
        **{"output_dir": run.folder, "use_cpu": True, "num_train_epochs": run.epochs, "seed": peers.SEED},
        **{"per_device_train_batch_size": peers.BATCH, "report_to": [], "disable_tqdm": True, "logging_strategy": "no"},
        **{"save_strategy": "steps" if run.save_every else "no", "save_steps": run.save_every or 500},
        **{"remove_unused_columns": False, "learning_rate": 1e-6, "ddp_find_unused_parameters": False},
    )
    model = Model(Record(run, rank))
    kind, options = Trainer, {}
    if run.loader == "batchloom":
        from batchloom.integrations.hf import TrainerMixin

        kind = type("OurTrainer", (TrainerMixin, Trainer), {})
        options = {"train_dataset": peers.batchloom(run.rule)}
    elif run.rule == "rows":
        options = {"train_dataset": peers.Rows()}
    else:

        def get_train_dataloader(self: Trainer) -> Any:
            return self.accelerator.prepare(peers.of_torch(run.rule, rank, run.world, sharded_by_trainer=True))

        kind = type("TheirTrainer", (Trainer,), {"get_train_dataloader": get_train_dataloader})
        options = {"train_dataset": peers.Documents()}
    trainer = kind(model, args, callbacks=[Notes(model)], **options)
    last = max(Path(run.folder).glob("checkpoint-*"), key=lambda path: int(path.name[11:])) if run.resume else None
    trainer.train(resume_from_checkpoint=str(last) if last else None)
