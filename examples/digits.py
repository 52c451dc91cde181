"""Trains a classifier on scikit-learn's handwritten digits, with torch's loader and with batchloom.

Both reach the same accuracy. Then a training is killed in mid-epoch (a real process, SIGKILL) and resumed from its
checkpoint in another process. It ends with the same weights, to the bit, as a training that was never interrupted.

    python examples/digits.py
"""

import argparse
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import batchloom as bl
import torch
from sklearn.datasets import load_digits
from torch import nn
from tqdm import tqdm

EPOCHS = 30
BATCH = 32


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return 1 437 images to train on and 360 to test on, with their labels."""
    pixels, numbers = load_digits(return_X_y=True)
    x = torch.tensor(pixels, dtype=torch.float32) / 16
    y = torch.tensor(numbers)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    test, train = order[:360], order[360:]
    return x[train], y[train], x[test], y[test]


def network() -> nn.Module:
    """Return the classifier, always with the same weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of the classifier."""
    return torch.optim.Adam(model.parameters(), lr=2e-3)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, xb: torch.Tensor, yb: torch.Tensor) -> None:
    """Train on one batch."""
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(xb), yb).backward()
    optimizer.step()


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the share of images that are classified correctly."""
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def digest(model: nn.Module) -> str:
    """Return a fingerprint of the weights, equal only if all weights are equal to the bit."""
    weights = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()[:16]


def train(name: str, loader: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    """Train with any loader; return the accuracy and the seconds that the epochs took."""
    _, _, x_test, y_test = digits()
    model = network()
    optimizer = make_optimizer(model)
    seconds = 0.0
    bar = tqdm(range(EPOCHS), desc=f"{name:18}", unit="epoch", disable=None)
    for _ in bar:
        begun = time.perf_counter()
        for xb, yb in loader:
            step(model, optimizer, xb, yb)
        seconds += time.perf_counter() - begun
        bar.set_postfix(accuracy=f"{accuracy(model, x_test, y_test):.3f}")
    return accuracy(model, x_test, y_test), seconds


def loading_time(loader: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return the seconds that an epoch takes without a model: the median of nine."""
    times = []
    for _ in range(9):
        begun = time.perf_counter()
        for _ in loader:
            pass
        times.append(time.perf_counter() - begun)
    return sorted(times)[4]


def compare() -> None:
    """Train with both loaders and print accuracy and time."""
    x, y, x_test, _ = digits()
    print(f"handwritten digits: {len(x)} images to train on, {len(x_test)} to test on, {EPOCHS} epochs\n")
    rival = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), BATCH, shuffle=True)
    ours = bl.DataLoader(bl.TensorDataset(x, y), BATCH, shuffle=True)
    rows = {"torch DataLoader": (*train("torch DataLoader", rival), loading_time(rival))}
    trained, waits = train("batchloom", ours), ours.metrics()
    rows["batchloom"] = (*trained, loading_time(ours))
    print(f"\n{'':18} {'accuracy':>9} {'training':>10} {'an epoch of loading alone':>27}")
    for name, (reached, seconds, loading) in rows.items():
        print(f"{name:18} {reached:9.3f} {seconds:8.2f} s {loading * 1e3:24.2f} ms")
    if rows["batchloom"][0] < rows["torch DataLoader"][0] - 0.03:
        raise SystemExit("batchloom's training did not reach the accuracy of torch's")
    ratio = rows["torch DataLoader"][2] / rows["batchloom"][2]
    print(f"\nbatchloom delivers the same data {ratio:.0f} times as fast; in the last epoch of training, {waits}")


def checkpointed(checkpoint: Path, die_after: int | None) -> None:
    """Train to the end, from ``checkpoint`` if it exists; save and die after some steps if asked to."""
    x, y, _, _ = digits()
    loader = bl.DataLoader(bl.TensorDataset(x, y), BATCH, shuffle=True, seed=7)
    model = network()
    optimizer = make_optimizer(model)
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
    steps = 0
    while loader.plan().epoch < 10:
        for xb, yb in loader:
            step(model, optimizer, xb, yb)
            steps += 1
            if steps == die_after:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                }
                torch.save(state, checkpoint)
                os.kill(os.getpid(), signal.SIGKILL)
    print(digest(model))


def run_checkpointed(checkpoint: Path, die_after: int | None) -> subprocess.CompletedProcess[str]:
    """Run ``checkpointed`` in a process of its own."""
    command = [sys.executable, __file__, "--checkpoint", str(checkpoint)]
    command += [] if die_after is None else ["--die-after", str(die_after)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=die_after is None)


def interrupt() -> None:
    """Show that a killed training ends with the weights of one that was never interrupted."""
    with tempfile.TemporaryDirectory() as folder:
        print("\ntraining 10 epochs without interruption ...", end=" ", flush=True)
        whole = run_checkpointed(Path(folder) / "never", None).stdout.strip()
        print(f"weights {whole}")
        print("training again, to be killed after 197 steps (epoch 4, step 17) ...", end=" ", flush=True)
        killed = run_checkpointed(Path(folder) / "killed", 197)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        state = torch.load(Path(folder) / "killed")["loader"]
        print(f"killed\n  the loader's state: {state}")
        print("resuming from it in a new process ...", end=" ", flush=True)
        resumed = run_checkpointed(Path(folder) / "killed", None).stdout.strip()
        print(f"weights {resumed}")
    if whole != resumed:
        raise SystemExit("the weights differ")
    print("identical to the bit")


def main() -> None:
    """Compare, then interrupt; with ``--checkpoint``, be the process that is killed or resumed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--die-after", type=int)
    arguments = parser.parse_args()
    # So small a model gains little from a second core, and loses much where something else runs on it.
    torch.set_num_threads(1)
    if arguments.checkpoint:
        checkpointed(arguments.checkpoint, arguments.die_after)
    else:
        compare()
        interrupt()


if __name__ == "__main__":
    main()
