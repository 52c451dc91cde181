"""Rows of images: the digits of ``mnist/main.py`` and the folders of JPEG files of ``imagenet/main.py``.

Both scripts make their loaders inline: the same statements are here in our words.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from batchloom import DataLoader, Field, MapDataset, TensorDataset
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader as TorchLoader

from bench.harness.checkouts import need_package
from bench.migrations.rows import Pass, Row, Source, fields, same_in_order
from bench.on_demand.images import draw

MNIST = Source("pytorch/examples", "77f55b9", "mnist/main.py")
IMAGENET = Source("pytorch/examples", "77f55b9", "imagenet/main.py")


# ---- mnist/main.py ---------------------------------------------------------------------------------------------------

DIGITS, DIGITS_A_BATCH, MEAN_DIGIT, STD_DIGIT = 60_000, 64, 0.1307, 0.3081


def prepare_digits(folder: Path, scale: float) -> Any:
    """Write the files of MNIST."""
    vision = need_package("torchvision")
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    random, count = numpy.random.default_rng(0), max(round(DIGITS * scale), 1000)
    pixels = random.integers(0, 256, (count, 28, 28), dtype=numpy.uint8)
    labels = random.integers(0, 10, count, dtype=numpy.uint8)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, count, 28, 28) + pixels.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, count) + labels.tobytes())
    return SimpleNamespace(folder=folder, vision=vision)


def digits(data: Any, shuffle: bool) -> Pass:
    """Use torchvision's ``MNIST`` with its transforms: on a CPU the script neither shuffles nor has workers."""
    transforms = data.vision.transforms
    change = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN_DIGIT,), (STD_DIGIT,))])
    dataset = data.vision.datasets.MNIST(data.folder, train=True, transform=change)
    loader = TorchLoader(dataset, batch_size=DIGITS_A_BATCH)
    return lambda: loader


def digits_loom(data: Any, shuffle: bool) -> Pass:
    """Make rows of the pixels that torchvision read."""
    digits = data.vision.datasets.MNIST(data.folder, train=True)
    pixels = Field(scale=1 / 255, mean=MEAN_DIGIT, std=STD_DIGIT)
    loader = DataLoader(TensorDataset(digits.data[:, None], digits.targets), DIGITS_A_BATCH, fields={0: pixels})
    return lambda: loader


# ---- imagenet/main.py ------------------------------------------------------------------------------------------------

FILES, CLASSES, IMAGES_A_BATCH, WORKERS = 640, 8, 64, 2
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def prepare_folder(folder: Path, scale: float) -> Any:
    """Write files in a folder for each class, unless they are there."""
    vision = need_package("torchvision")
    random = numpy.random.default_rng(0)
    for number in range(max(round(FILES * scale), 2 * IMAGES_A_BATCH)):
        path = folder / "train" / f"class-{number % CLASSES}" / f"{number}.jpg"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draw(random).save(path, quality=85)
    return SimpleNamespace(folder=folder / "train", vision=vision)


def open_folder(data: Any, train: bool) -> Any:
    """Return the folder with the transforms of the script."""
    transforms = data.vision.transforms
    random = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
    fixed = [transforms.Resize(256), transforms.CenterCrop(224)]
    last = [transforms.ToTensor(), transforms.Normalize(mean=MEAN, std=STD)]
    return data.vision.datasets.ImageFolder(data.folder, transforms.Compose((random if train else fixed) + last))


def folder_of_images(data: Any, shuffle: bool) -> Pass:
    """Use ``ImageFolder`` in torch's loader with two worker processes; validation where the order is fixed."""
    loader = TorchLoader(
        open_folder(data, shuffle), batch_size=IMAGES_A_BATCH, shuffle=shuffle, num_workers=WORKERS, pin_memory=False
    )
    return lambda: loader


def folder_by_processes(data: Any, shuffle: bool) -> Pass:
    """Read the same ``ImageFolder`` on demand by two processes, which start as torch's do."""
    dataset = MapDataset(open_folder(data, shuffle), workers="fork")
    loader = DataLoader(dataset, IMAGES_A_BATCH, shuffle=shuffle, num_threads=WORKERS)
    return lambda: loader


class Reader:
    """Reads a file as the script's transforms do, in threads, with random numbers of the loader.

    The crop is drawn as ``RandomResizedCrop`` draws it.
    """

    def __init__(self, vision: Any, is_random: bool) -> None:
        self._functions, self._random = vision.transforms.functional, is_random

    def __call__(self, item: tuple[str, int], rng: numpy.random.Generator) -> tuple[Tensor, int]:
        """Return the pixels and the class."""
        path, label = item
        with Image.open(path) as file:
            image = file.convert("RGB")
        if not self._random:
            image = self._functions.center_crop(self._functions.resize(image, 256), 224)
        else:
            left, top, width, height = draw_crop(*image.size, rng)
            image = image.resize((224, 224), Image.Resampling.BILINEAR, (left, top, left + width, top + height))
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else image
        return self._functions.pil_to_tensor(image), label


def draw_crop(width: int, height: int, rng: numpy.random.Generator) -> tuple[int, int, int, int]:
    """Return a crop of 8 to 100 percent of the area, with a ratio of sides between 3/4 and 4/3."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        ratio = numpy.exp(rng.uniform(numpy.log(3 / 4), numpy.log(4 / 3)))
        wide, high = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < wide <= width and 0 < high <= height:
            return int(rng.integers(width - wide + 1)), int(rng.integers(height - high + 1)), wide, high
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def folder_by_read(data: Any, shuffle: bool) -> Pass:
    """Read files by a function of this module, in threads; batches are normalised by the loader."""
    items = data.vision.datasets.ImageFolder(data.folder).samples
    pixels = Field(scale=1 / 255, mean=MEAN, std=STD)
    dataset = MapDataset(items, Reader(data.vision, shuffle))
    loader = DataLoader(dataset, IMAGES_A_BATCH, shuffle=shuffle, fields={0: pixels})
    return lambda: loader


def check_images(row: Row, data: Any) -> int:
    """Compare validation in order, to the last bits of a quotient, and the labels and shapes of training."""
    number = same_in_order(row, data, tolerance=1e-6)
    found = []
    for side in (row.script, row.loom):
        batches = [fields(batch).values() for batch in side(data, True)()]
        labels = torch.cat([label for _, label in batches])
        found.append((sorted(labels.tolist()), [(image.dtype, image.shape) for image, _ in batches]))
    if found[0] != found[1]:
        raise SystemExit(f"row {row.name}: labels or shapes of training differ")
    return number


def check_digits(row: Row, data: Any) -> int:
    """Compare in order, to the last bits of a quotient."""
    return same_in_order(row, data, tolerance=1e-6)


ROWS = (
    Row("08", "digits", MNIST, prepare_digits, digits, digits_loom, check_digits, changed="11 / 7"),
    Row(
        "09",
        "a folder of JPEG, processes",
        IMAGENET,
        prepare_folder,
        folder_of_images,
        folder_by_processes,
        check_images,
        "processes",
        changed="26 / 9",
    ),
    Row(
        "09",
        "a folder of JPEG, own read",
        IMAGENET,
        prepare_folder,
        folder_of_images,
        folder_by_read,
        check_images,
        "read",
    ),
)
