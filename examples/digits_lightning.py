"""Trains a classifier on handwritten digits in Lightning, on two processes; a second run resumes it in mid-epoch.

The loader is passed to ``fit`` as it is. The checkpoint holds its place, so the second run trains what the first
left. The evaluation counts each digit once, on both processes together.

    python examples/digits_lightning.py
"""

import tempfile
from pathlib import Path

import batchloom as bl
import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn


def digits() -> tuple[bl.TensorDataset, bl.TensorDataset]:
    """Return the digits for training and those for the test."""
    pixels, numbers = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(numbers)
    return bl.TensorDataset(images[:1400], labels[:1400]), bl.TensorDataset(images[1400:], labels[1400:])


class Classifier(lightning.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch: tuple[torch.Tensor, ...], step: int) -> torch.Tensor:
        """Return the loss of a batch."""
        images, labels = batch
        return nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch: tuple[torch.Tensor, ...], step: int) -> None:
        """Count the hits; places that only fill up a step weigh 0."""
        images, labels, _, weight = batch
        hits = (self.layers(images).argmax(1) == labels) * weight
        self.log_dict({"hits": hits.sum(), "digits": weight.sum()}, reduce_fx="sum", sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), 1e-2)


def main() -> None:
    """Train half of the way, go on in a second run, and evaluate."""
    training, test = digits()
    folder = Path(tempfile.gettempdir(), "batchloom-digits-lightning")
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", **quiet}

    saving = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=50, enable_version_counter=False)
    trainer = lightning.Trainer(**options, max_steps=50, callbacks=[saving])
    trainer.fit(Classifier(), bl.DataLoader(training, 32, shuffle=True))

    model, loader = Classifier(), bl.DataLoader(training, 32, shuffle=True)
    trainer = lightning.Trainer(**options, max_epochs=10, enable_checkpointing=False)
    trainer.fit(model, loader, ckpt_path=folder / "step=50.ckpt")
    trainer.validate(model, bl.DataLoader(test, 32, uneven="mask"), verbose=False)
    hits, count = (int(trainer.callback_metrics[name]) for name in ("hits", "digits"))
    if trainer.is_global_zero:
        print(f"{trainer.global_step} steps of {trainer.world_size} processes; right: {hits} of {count} digits")


if __name__ == "__main__":
    main()
