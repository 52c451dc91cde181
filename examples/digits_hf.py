"""Trains a classifier on handwritten digits in Hugging Face's Trainer, on two processes, and resumes it in mid-epoch.

The mixin takes loaders for datasets, resumes them exactly, and evaluates each digit once.

    torchrun --nproc-per-node 2 examples/digits_hf.py
"""

import tempfile
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
import torch
from batchloom.integrations.hf import TrainerMixin
from sklearn.datasets import load_digits
from torch import nn
from transformers import EvalPrediction, Trainer, TrainingArguments


class OurTrainer(TrainerMixin, Trainer):
    """A trainer that takes loaders."""


class Classifier(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss of a batch, and the scores."""
        scores = self.layers(images)
        return {"loss": nn.functional.cross_entropy(scores, labels), "scores": scores}


def right(found: EvalPrediction) -> dict[str, float]:
    """Count the hits."""
    hits = numpy.argmax(found.predictions, axis=1) == found.label_ids
    return {"right": int(hits.sum()), "digits": len(hits)}


def trainer(folder: Path, **options: Any) -> OurTrainer:
    """Make a trainer of a fresh model."""
    pixels, numbers = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(numbers)
    parts = [bl.TensorDataset(images=images[part], labels=labels[part]) for part in (slice(1400), slice(1400, None))]
    quiet: dict[str, Any] = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "logging_strategy": "no"}
    args = TrainingArguments(str(folder), num_train_epochs=10, learning_rate=1e-2, **quiet, **options)
    # The mixin lets loaders stand where the trainer's own types ask for datasets.
    training: Any = bl.DataLoader(parts[0], 32, shuffle=True)
    evaluation: Any = bl.DataLoader(parts[1], 32, uneven="mask")
    return OurTrainer(Classifier(), args, train_dataset=training, eval_dataset=evaluation, compute_metrics=right)


def main() -> None:
    """Train, saving on the way; then go on from a checkpoint in the third epoch, and evaluate."""
    folder = Path(tempfile.gettempdir(), "batchloom-digits-hf")
    trainer(folder, save_strategy="steps", save_steps=50, save_total_limit=None).train()
    resumed = trainer(folder, save_strategy="no")
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-50"))
    found = resumed.evaluate()
    if resumed.is_world_process_zero():
        steps, world = resumed.state.global_step, resumed.args.world_size
        print(f"{steps} steps of {world} processes; right: {found['eval_right']} of {found['eval_digits']} digits")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
