"""Trains a classifier on handwritten digits with Accelerate, on two processes, and goes on from a state in mid-epoch.

``prepare`` makes the accelerator know the loader: ``save_state`` holds its place, and ``gather_for_metrics`` returns
each digit once.

    python examples/digits_accelerate.py
"""

import tempfile
from pathlib import Path
from typing import Any

import batchloom as bl
import torch
from accelerate import Accelerator, notebook_launcher
from batchloom.integrations.accelerate import prepare
from sklearn.datasets import load_digits
from torch import nn

EPOCHS = 10


def digits() -> tuple[bl.TensorDataset, bl.TensorDataset]:
    """Return the digits for training and those for the test."""
    pixels, numbers = load_digits(return_X_y=True)
    images, labels = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(numbers)
    return bl.TensorDataset(images[:1400], labels[:1400]), bl.TensorDataset(images[1400:], labels[1400:])


def train(folder: str, resume: bool) -> None:
    """Train on one process; stop after 50 steps, or go on from there and evaluate."""
    training, test = digits()
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), 1e-2))
    loader = prepare(accelerator, bl.DataLoader(training, 32, shuffle=True))
    if resume:
        accelerator.load_state(folder)
    steps = 0
    while loader.plan().epoch < EPOCHS:
        for images, labels in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(images), labels))
            optimizer.step()
            steps += 1
            if steps == 50 and not resume:
                accelerator.save_state(folder)
                return
    tested = prepare(accelerator, bl.DataLoader(test, 32))
    hits: list[Any] = [accelerator.gather_for_metrics(model(images).argmax(1) == labels) for images, labels in tested]
    right = torch.cat(hits)
    world = accelerator.num_processes
    accelerator.print(f"{50 + steps} steps of {world} processes; right: {int(right.sum())} of {len(right)} digits")


def main() -> None:
    """Train half of the way, and go on in a second run."""
    folder = str(Path(tempfile.gettempdir(), "batchloom-digits-accelerate"))
    for resume in (False, True):
        # Starts two processes, as `accelerate launch` does for a script.
        notebook_launcher(train, (folder, resume), num_processes=2)


if __name__ == "__main__":
    main()
