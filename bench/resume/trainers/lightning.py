"""Lightning's Trainer with DDP under torchrun's variables; checkpoints every so many steps, as users set them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from bench.resume import peers
from bench.resume.run import Record, Run

LOADERS = ("batchloom", "torch", "stateful")
# Rules of two loaders.
PARTS = ("beside", "turns")
# A sampler made by hand has dealt to ranks already.
DEALT = ("budget", "packing", "turns")


class Model(lightning.LightningModule):
    """One weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, batch_index: int) -> torch.Tensor:
        """Train a batch."""
        return self.layer(peers.values_of(batch)).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Make the optimizer."""
        return torch.optim.SGD(self.parameters(), 1e-6)


class Recorder(Callback):
    """Notes what is trained, and dies."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        """Tell a batch sampler made by hand which epoch begins: Lightning tells samplers alone."""
        if self.record.run.loader != "batchloom":
            peers.set_epoch(trainer.train_dataloader, trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
        """Note the batch."""
        self.record.trained(trainer.current_epoch, peers.samples_of(batch))


class Saved(Callback):
    """Notes checkpoints; comes after the callback that saves them."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int) -> None:
        """Note a checkpoint, die where the run dies."""
        every = self.record.run.save_every
        if every and self.record.steps % every == 0:
            self.record.checkpoint()
            torch.distributed.barrier()
        self.record.die_if_due()


class SavesThenNotes(ModelCheckpoint):
    """The stock callback, which Lightning moves behind all others: the note has to come after it."""

    def __init__(self, record: Record, **options: Any) -> None:
        super().__init__(**options)
        self.note = Saved(record)

    def on_train_batch_end(self, trainer: Any, *arguments: Any) -> None:
        """Save, then note it."""
        super().on_train_batch_end(trainer, *arguments)
        self.note.on_train_batch_end(trainer, *arguments)


def work(run: Run, rank: int) -> None:
    """Train one rank."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    record, callbacks = Record(run, rank), []
    if run.loader == "batchloom":
        from batchloom.integrations.lightning import ExactEpochs

        loader, callbacks = peers.batchloom(run.rule), [ExactEpochs()]
    else:
        loader = peers.of_torch(
            run.rule, rank, run.world, run.loader == "stateful", sharded_by_trainer=run.rule not in DEALT
        )
    saving = SavesThenNotes(
        record, dirpath=run.folder, filename="{step}", every_n_train_steps=run.save_every or 10**6, save_top_k=-1
    )
    trainer = lightning.Trainer(
        **{"accelerator": "cpu", "devices": run.world, "strategy": "ddp", "max_epochs": run.epochs},
        **{"logger": False, "enable_progress_bar": False, "enable_model_summary": False},
        use_distributed_sampler=run.rule not in DEALT,
        callbacks=[Recorder(record), saving, *callbacks],
    )
    last = max(Path(run.folder).glob("step*.ckpt"), key=lambda path: path.stat().st_mtime) if run.resume else None
    trainer.fit(Model(), loader, ckpt_path=last)
