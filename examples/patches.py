"""Trains a small PatchTST on patches that the loader cuts, and tests it on every window.

The series is ETTh1 if ../shared/data holds it: two years of a transformer's load and oil temperature, hour by hour.
Otherwise it is one that is made up, with cycles of a day and a week. Batches come as ``[batch, features, patches,
patch_len]``: 42 patches that overlap by half, of 336 steps whose last one is repeated, as PatchTST repeats it. They are
a view of the windows that a batch holds, so the model unfolds nothing itself. The output is the bytes that this takes,
the loss of each epoch, and the errors of the test.

    python examples/patches.py --epochs 3
"""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path

import batchloom as bl
import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional

ETTH1 = Path(__file__).parents[2] / "shared" / "data" / "ETTh1.csv"
INPUT, HORIZON, PATCH, STRIDE, BATCH = 336, 96, 16, 8, 64
HIDDEN, HEADS, INNER, LAYERS, DROPOUT = 16, 4, 64, 1, 0.2
LEARNING_RATE = 2e-3
# Each so many-th patch, and no step of the input comes twice.
APART = PATCH // STRIDE

Batches = Iterable[tuple[Tensor, Tensor]]


def series() -> tuple[str, numpy.ndarray]:
    """Return a series of hours ``[time, features]``, and its name."""
    if ETTH1.exists():
        return "ETTh1", numpy.loadtxt(ETTH1, numpy.float32, delimiter=",", skiprows=1, usecols=range(1, 8))
    random, hours = numpy.random.default_rng(0), numpy.arange(17_420)[:, None]
    day, week = (numpy.sin(2 * numpy.pi * (hours / period + random.random(7))) for period in (24, 168))
    drift = random.normal(0, 0.02, (len(hours), 7)).cumsum(0)
    values = 2 * day + week + drift + random.normal(0, 0.3, (len(hours), 7))
    return "a series that is made up", values.astype(numpy.float32)


class PatchTST(nn.Module):
    """Forecasts each feature on its own: its patches are the tokens of a transformer."""

    def __init__(self, patches: int) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH, HIDDEN)
        self.places = nn.Parameter(0.02 * torch.randn(patches, HIDDEN))
        layer = nn.TransformerEncoderLayer(HIDDEN, HEADS, INNER, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(patches * HIDDEN, HORIZON)

    def forward(self, patches: Tensor) -> Tensor:
        """Return the next steps ``[batch, HORIZON, features]``."""
        steps = patches[:, :, ::APART]
        mean = steps.mean((2, 3), keepdim=True)
        deviation = (steps.var((2, 3), keepdim=True, correction=0) + 1e-5).sqrt()
        # Not in place: patches overlap, so a change of one would be a change of its neighbour.
        hidden = self.embed((patches - mean) / deviation) + self.places
        encoded = self.encoder(hidden.flatten(0, 1)).unflatten(0, patches.shape[:2])
        forecast: Tensor = self.head(encoded.flatten(2)) * deviation[..., 0] + mean[..., 0]
        return forecast.mT


@torch.no_grad()
def errors(model: nn.Module, loader: Batches) -> tuple[float, float, float]:
    """Return MSE and MAE over all windows of a loader, and the MSE of the last step said again and again."""
    model.eval()
    squares = distances = repeated = 0.0
    values = 0
    for patches, y in loader:
        error = (model(patches) - y).double()
        squares, distances = squares + error.square().sum().item(), distances + error.abs().sum().item()
        repeated += (patches[:, None, :, -1, -1] - y).double().square().sum().item()
        values += y.numel()
    return squares / values, distances / values, repeated / values


def train(model: nn.Module, loader: bl.DataLoader, val: Batches, epochs: int) -> None:
    """Train, and print the loss of each epoch and the error of the validation after it."""
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * len(loader))
    for epoch in range(epochs):
        model.train()
        total, begun = torch.zeros(()), time.perf_counter()
        for patches, y in loader:
            loss = functional.mse_loss(model(patches), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        seconds = time.perf_counter() - begun
        mse, _, _ = errors(model, val)
        print(
            f"epoch {epoch + 1}: loss {total.item() / len(loader):.3f}, val MSE {mse:.3f}, {seconds:.1f} s of training"
        )


def describe(name: str, dataset: bl.WindowDataset) -> int:
    """Print what a batch of patches is, and what it takes; return the number of patches of a window."""
    patches, _ = dataset[0]
    stats = dataset.stats(BATCH)
    gathered, patched = stats.gathered_bytes / 1e6, stats.patched_bytes / 1e6
    print(f"{name}: {len(dataset)} windows to train, each {list(patches.shape)}: features, patches, steps of a patch")
    print(f"{BATCH} windows and targets take {gathered:.2f} MB; patches view them, where copies take {patched:.2f} MB")
    return int(patches.shape[1])


def main() -> None:
    """Train on the first part of a series, and test on the last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2, help="how many epochs to train")
    epochs = parser.parse_args().epochs
    # A model this small gains little from a second core, and loses much if something else runs there.
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name, values = series()
    whole = bl.WindowDataset(
        torch.from_numpy(values), INPUT, HORIZON, short="error", patch_len=PATCH, patch_stride=STRIDE, patch_pad="end"
    )
    parts = whole.split("ett-hour", scale="standard")
    model = PatchTST(describe(name, parts[0]))
    val, test = (bl.DataLoader(part, batch_size=BATCH) for part in parts[1:])
    train(model, bl.DataLoader(parts[0], batch_size=BATCH, shuffle=True), val, epochs)
    mse, mae, repeated = errors(model, test)
    print(f"test, {len(parts[2])} windows: MSE {mse:.3f}, MAE {mae:.3f}; the last step again and again: {repeated:.3f}")


if __name__ == "__main__":
    main()
