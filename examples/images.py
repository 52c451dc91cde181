"""Trains a classifier on a folder of JPEG files, which are decoded, augmented and resized when their batch is formed.

The files are scikit-learn's handwritten digits, each painted in a colour of its own on a piece of a photograph, in many
sizes. Pillow decodes them in threads; the engine resizes and normalises them. torch's loader does the same work in two
processes, and both trainings reach the same accuracy on files that neither saw. Then a training is killed in mid-epoch
(a real process, SIGKILL) and resumed from its checkpoint, with as many threads and with more. It ends with the same
weights, to the bit, as the training that was never interrupted: augmentation is part of what is resumed.

    python examples/images.py
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
from typing import Any

import batchloom as bl
import numpy
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

SMALLEST, LARGEST, SIDE = 96, 224, 32  # pixels of a file, and of an image in a batch
TESTS, EPOCHS, BATCH, THREADS = 360, 5, 32, 2
SAVED, KILLED = 107, 115  # steps of a training of 225, in epoch 2
MEAN, STD = [0.43, 0.42, 0.39], [0.25, 0.23, 0.24]  # of the three channels, over all files

Numbers = numpy.ndarray[Any, numpy.dtype[Any]]
Batches = Iterable[dict[str, Tensor]]


def paint(folder: Path) -> None:
    """Write the digits as JPEG files, ``label/number.jpg``."""
    random = numpy.random.default_rng(0)
    photographs = [Image.fromarray(photograph) for photograph in load_sample_images().images]
    digits = load_digits()
    for number, (digit, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        size = width, height = random.integers(SMALLEST, LARGEST + 1, 2)
        photograph = photographs[random.integers(len(photographs))]
        left, top = random.integers(photograph.width - width), random.integers(photograph.height - height)
        behind = photograph.crop((left, top, left + width, top + height)).point(lambda level: level * 0.6)
        opacity = Image.fromarray((digit * 15.9).astype(numpy.uint8)).resize(size, Image.Resampling.BICUBIC)
        ink = Image.new("RGB", behind.size, tuple(random.integers(128, 256, 3).tolist()))
        path = folder / str(label) / f"{number:04}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.composite(ink, behind, opacity).save(path, quality=90)


def split(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the files to train on and those to test on, the same ones always."""
    paths = sorted(folder.glob("*/*.jpg"))
    order = numpy.random.default_rng(0).permutation(len(paths))
    return [paths[number] for number in order[TESTS:]], [paths[number] for number in order[:TESTS]]


def read(path: Path) -> dict[str, Any]:
    """Return an image as it lies in its file, and its label."""
    return {"image": numpy.asarray(Image.open(path)), "label": int(path.parent.name)}


def augment(path: Path, rng: numpy.random.Generator) -> dict[str, Any]:
    """Return a part of an image, darker or brighter than it is."""
    sample = read(path)
    top, bottom, left, right = rng.random(4) * 0.12
    height, width, _ = sample["image"].shape
    part = sample["image"][int(top * height) : int((1 - bottom) * height), int(left * width) : int((1 - right) * width)]
    brighter = numpy.arange(256) * rng.uniform(0.7, 1.3)
    return {**sample, "image": brighter.clip(0, 255).astype(numpy.uint8)[part]}


def load(paths: list[Path], fn: Any, **options: Any) -> bl.DataLoader:
    """Return a loader of normalised images of one size."""
    return bl.DataLoader(
        bl.MapDataset(paths, fn),
        batch_size=BATCH,
        fields={
            "image": bl.Field(
                slot=bl.Resize(SIDE, SIDE, to="first"), dtype="float32", scale=1 / 255, mean=MEAN, std=STD
            )
        },
        output="torch",
        **options,
    )


class Files(torch.utils.data.Dataset[dict[str, Any]]):
    """Decodes, augments, resizes and normalises a file when it is asked for: the usual way."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        random = numpy.random.default_rng(int(torch.randint(2**62, ())))
        sample = augment(self.paths[index], random)
        image = Image.fromarray(sample["image"]).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1) / 255
        mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in (MEAN, STD))
        return {**sample, "image": (pixels - mean) / std}


class Training:
    """A small convolutional network and its optimizer, always with the same first weights."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for channels, filters in ((3, 8), (8, 16), (16, 32)):
            layers += [nn.Conv2d(channels, filters, 3, padding=1), nn.MaxPool2d(2), nn.BatchNorm2d(filters), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * (SIDE // 8) ** 2, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)

    def step(self, batch: dict[str, Tensor]) -> None:
        """Train on one batch."""
        self.optimizer.zero_grad()
        functional.cross_entropy(self.model(batch["image"]), batch["label"]).backward()
        self.optimizer.step()

    @torch.no_grad()
    def accuracy(self, batches: Batches) -> float:
        """Return the share of images that are classified correctly."""
        self.model.eval()
        right = torch.cat([self.model(batch["image"]).argmax(1) == batch["label"] for batch in batches])
        self.model.train()
        return float(right.float().mean())

    def digest(self) -> str:
        """Return a fingerprint of the weights, equal only if all are equal to the bit."""
        values = [value.numpy().tobytes() for value in self.model.state_dict().values()]
        return hashlib.sha256(b"".join(values)).hexdigest()[:16]


def train(name: str, loader: Batches, tests: Batches) -> tuple[Training, float]:
    """Train with any loader; return the model and the seconds that an epoch took."""
    training, seconds = Training(), 0.0
    bar = tqdm(range(EPOCHS), desc=f"{name:18}", unit="epoch", disable=None)
    for _ in bar:
        begun = time.perf_counter()
        for batch in loader:
            training.step(batch)
        seconds += time.perf_counter() - begun
        bar.set_postfix(accuracy=f"{training.accuracy(tests):.3f}")
    return training, seconds / EPOCHS


def loading_time(loader: Batches) -> float:
    """Return the seconds that an epoch takes without a model: the median of three."""
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        for _ in loader:
            pass
        times.append(time.perf_counter() - begun)
    return sorted(times)[1]


def compare(folder: Path) -> str:
    """Train with both loaders, print accuracy and time, and return the digest of batchloom's weights."""
    train_paths, test_paths = split(folder)
    tests = list(load(test_paths, read))  # batches stay as they are for as long as they are held
    rival: dict[str, Any] = {"num_workers": THREADS, "persistent_workers": True}
    loaders: dict[str, Batches] = {
        "torch DataLoader": torch.utils.data.DataLoader(Files(train_paths), BATCH, shuffle=True, **rival),
        "batchloom": load(train_paths, augment, shuffle=True, seed=7, num_threads=THREADS),
    }
    rows: dict[str, tuple[float, float, float]] = {}
    for name, loader in loaders.items():
        training, seconds = train(name, loader, tests)
        rows[name] = training.accuracy(tests), seconds, loading_time(loader)
    print(f"\n{'':18} {'accuracy':>9} {'training, an epoch':>20} {'its loading alone':>19}")
    for name, (reached, seconds, loading) in rows.items():
        print(f"{name:18} {reached:9.3f} {seconds:18.2f} s {loading:17.2f} s")
    if rows["batchloom"][0] < rows["torch DataLoader"][0] - 0.05:
        raise SystemExit("batchloom's training did not reach the accuracy of torch's")
    return training.digest()


def checkpointed(folder: Path, checkpoint: Path, threads: int) -> None:
    """Train from a checkpoint to the end; where there is none, save one and be killed some steps later."""
    loader = load(split(folder)[0], augment, shuffle=True, seed=7, num_threads=threads)
    training, steps, resumes = Training(), 0, checkpoint.exists()
    if resumes:
        saved = torch.load(checkpoint)
        training.model.load_state_dict(saved["model"])
        training.optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])
    while loader.epoch < EPOCHS:
        for batch in loader:
            training.step(batch)
            steps += 1
            if steps == SAVED and not resumes:
                states = {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}
                torch.save({**states, "loader": loader.state_dict()}, checkpoint)
            if steps == KILLED and not resumes:
                os.kill(os.getpid(), signal.SIGKILL)
    print(training.digest())


def run(folder: Path, checkpoint: Path, threads: int) -> subprocess.CompletedProcess[str]:
    """Run ``checkpointed`` in a process of its own."""
    command = [sys.executable, __file__, "--folder", str(folder)]
    command += ["--checkpoint", str(checkpoint), "--threads", str(threads)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def interrupt(folder: Path, checkpoint: Path, whole: str) -> None:
    """Show that a killed training ends with the weights of one that was never interrupted."""
    print(f"\nweights of the training that was not interrupted: {whole}")
    print(f"training again, saved after {SAVED} steps, killed after {KILLED} ...", end=" ", flush=True)
    killed = run(folder, checkpoint, THREADS)
    if killed.returncode != -signal.SIGKILL:
        raise SystemExit(f"the training ended before it was killed: {killed.stderr}")
    print(f"killed\n  the loader's state: {torch.load(checkpoint)['loader']}")
    for threads in (THREADS, 5):
        print(f"resuming in a new process with {threads} threads ...", end=" ", flush=True)
        resumed = run(folder, checkpoint, threads)
        print(f"weights {resumed.stdout.strip()}")
        if resumed.stdout.strip() != whole:
            raise SystemExit(f"the weights differ {resumed.stderr}")
    print("identical to the bit")


def main() -> None:
    """Compare, then interrupt; with ``--checkpoint``, be the process that is killed or resumed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option, kind in {"--folder": Path, "--checkpoint": Path, "--threads": int}.items():
        parser.add_argument(option, type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    # The model takes one core; what reads files has the others.
    torch.set_num_threads(1)
    if arguments.checkpoint:
        checkpointed(arguments.folder, arguments.checkpoint, arguments.threads)
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "images"
        folder.mkdir()
        paint(folder)
        sizes = [path.stat().st_size for path in folder.glob("*/*.jpg")]
        print(f"{len(sizes)} JPEG files, {SMALLEST} to {LARGEST} pixels a side, {sum(sizes) / 1e6:.1f} MB")
        print(f"{len(sizes) - TESTS} to train on, {TESTS} to test on, {EPOCHS} epochs\n")
        interrupt(folder, Path(place) / "checkpoint", compare(folder))


if __name__ == "__main__":
    main()
