"""Trains a classifier on handwritten digits in Ray Train, on two workers, and goes on from a checkpoint with one.

Ray Data makes the set; each worker makes its own loader of it. A checkpoint holds the place of the loader in the middle
of an epoch, and any number of workers may go on from there.

    python examples/digits_ray.py
"""

import tempfile
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
import ray
import ray.train
import torch
from batchloom.integrations.ray import from_ray, materialize
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from sklearn.datasets import load_digits
from torch import nn

EPOCHS = 10


def train(config: dict[str, Any]) -> None:
    """Train on one worker; stop after 50 steps if asked."""
    loader = bl.DataLoader(from_ray(config["digits"]), 32, shuffle=True, uneven="mask", output="torch")
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    parallel = prepare_model(model)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    if config["checkpoint"]:
        with config["checkpoint"].as_directory() as folder:
            saved = torch.load(Path(folder, "saved.pt"))
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
    steps, samples = 0, 0
    while (plan := loader.plan()).epoch < EPOCHS:
        for step, batch in enumerate(loader):
            losses = nn.functional.cross_entropy(parallel(batch["images"]), batch["labels"], reduction="none")
            optimizer.zero_grad()
            # Places that only fill up a step weigh 0. The plan knows how many samples count, on all workers.
            (losses * batch["weight"]).mean().backward()
            optimizer.step()
            steps, samples = steps + 1, samples + sum(plan.step(step).counts)
            if steps == config["steps"]:
                return report(model, loader, samples)
    return report(model, loader, samples)


def report(model: nn.Module, loader: bl.DataLoader, samples: int) -> None:
    """Report a checkpoint, which the first worker has, and the samples of all workers."""
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, Path(folder, "saved.pt"))
        is_first = ray.train.get_context().get_world_rank() == 0
        checkpoint = ray.train.Checkpoint.from_directory(folder) if is_first else None
        ray.train.report({"samples": samples}, checkpoint=checkpoint)


def fit(digits: Any, folder: str, workers: int, steps: int | None, checkpoint: Any = None) -> Any:
    """Run a number of workers."""
    return TorchTrainer(
        train,
        train_loop_config={"digits": digits, "steps": steps, "checkpoint": checkpoint},
        scaling_config=ray.train.ScalingConfig(num_workers=workers),
        run_config=ray.train.RunConfig(storage_path=folder),
        torch_config=TorchConfig(backend="gloo"),
    ).fit()


def main() -> None:
    """Train with two workers, and go on with one."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    pixels, numbers = map(numpy.asarray, load_digits(return_X_y=True))
    rows = ray.data.from_numpy([pixels.astype(numpy.float32)]).map_batches(lambda batch: {"images": batch["data"] / 16})
    digits = materialize(rows.zip(ray.data.from_numpy([numbers]).rename_columns({"data": "labels"})))
    with tempfile.TemporaryDirectory() as folder:
        first = fit(digits, folder, workers=2, steps=50)
        rest = fit(digits, folder, workers=1, steps=None, checkpoint=first.checkpoint)
    samples = [found.metrics["samples"] for found in (first, rest)]
    print(f"{samples[0]} samples on two workers and {samples[1]} on one: {EPOCHS} epochs of {len(numbers)} digits")
    ray.shutdown()


if __name__ == "__main__":
    main()
