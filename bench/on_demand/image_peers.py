"""Ask batchloom and each peer for the same batches of images, from the same files.

Promises:

- Everyone opens a file the same way (``opened``), so decoding takes everyone as long. A peer resizes by torchvision, on
  tensors, which was faster than on Pillow's images; or by Pillow, without torchvision.
- A peer is a function from files to a maker of epochs. Workers of torch's loader persist: they start with its first
  epoch. SPDL's pipeline is made for each epoch, as it ends with one.
- ``check`` lets no peer pass whose labels, or whose images by more than two levels of 256, differ from batchloom's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

import batchloom
import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader

from bench.harness.measure import LOOM

BATCH, SIZE = 64, 224
# Mean and deviation of each channel that models for images are trained with.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# The greatest difference of a value: everyone rounds pixels to bytes twice, in another order.
TOLERANCE = 2.01 / 255 / min(DEVIATION)
ONE_THREAD = "batchloom, one thread"
TORCH, TORCH_PILLOW = "torch DataLoader, 2 workers, torchvision", "torch DataLoader, 2 workers, Pillow"
TORCH_ALONE = "torch DataLoader, no workers, torchvision"
SPDL = "SPDL, 2 threads, torchvision"

# The path of each image, and its label.
Files = Sequence[tuple[str, int]]
Epochs = Callable[[], Iterable[tuple[torch.Tensor, torch.Tensor]]]
Transform = Callable[[Image.Image], torch.Tensor]


def opened(path: str) -> Image.Image:
    """Read and decode a file."""
    with Image.open(path) as image:
        return image.convert("RGB")


def decode(file: tuple[str, int]) -> tuple[numpy.ndarray, int]:
    """Return the pixels and the label of an image."""
    path, label = file
    return numpy.asarray(opened(path)), label


def loom(files: Files, shuffle: bool = True, threads: int | None = None) -> Epochs:
    """Use batchloom: the function decodes, the engine does the rest. ``threads``: the default is one for each core."""
    loader = batchloom.DataLoader(
        batchloom.MapDataset(files, decode),
        BATCH,
        shuffle=shuffle,
        num_threads=threads,
        output="torch",
        fields={
            0: batchloom.Field(
                slot=batchloom.Resize(SIZE, SIZE, to="first"), dtype="float32", scale=1 / 255, mean=MEAN, std=DEVIATION
            )
        },
    )
    return lambda: loader


def torchvision_transform() -> Transform:
    """Resize and normalise by torchvision.

    Raises:
        ImportError: It is not installed.
    """
    from torchvision.transforms import v2

    resized = v2.Resize((SIZE, SIZE), antialias=True)
    floats = v2.ToDtype(torch.float32, scale=True)
    return v2.Compose([v2.PILToTensor(), resized, floats, v2.Normalize(MEAN, DEVIATION, inplace=True)])


def pillow_transform() -> Transform:
    """Resize by Pillow, and normalise by NumPy."""
    factors = (1 / 255 / numpy.array(DEVIATION)).astype(numpy.float32)
    offsets = (numpy.array(MEAN) / DEVIATION).astype(numpy.float32)

    def transform(image: Image.Image) -> torch.Tensor:
        pixels = numpy.asarray(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR))
        return torch.from_numpy((pixels * factors - offsets).transpose(2, 0, 1))

    return transform


class Images:
    """A data set as it is usually written for torch: one image at a time."""

    def __init__(self, files: Files, transform: Transform) -> None:
        self.files, self.transform = files, transform

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.files)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        """Return one, and its label."""
        path, label = self.files[number]
        return self.transform(opened(path)), label


def torch_loader(make: Callable[[], Transform], workers: int, files: Files, shuffle: bool = True) -> Epochs:
    """Use torch's ``DataLoader``, with workers that persist."""
    images = Images(files, make())
    loader = DataLoader(images, BATCH, shuffle=shuffle, num_workers=workers, persistent_workers=workers > 0)
    return lambda: loader


def spdl_pipeline(files: Files, shuffle: bool = True) -> Epochs:
    """Use a pipeline of SPDL, whose threads do the same as workers of torch's loader.

    Its own decoder needs libraries of FFmpeg that no package of Python brings.

    Raises:
        ImportError: It is not installed.
    """
    from spdl.pipeline import PipelineBuilder

    images = Images(files, torchvision_transform())

    def epoch() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        order = (torch.randperm(len(files)) if shuffle else torch.arange(len(files))).tolist()
        steps = PipelineBuilder().add_source(order)
        steps = steps.pipe(images.__getitem__, concurrency=2, output_order="input" if not shuffle else "completion")
        pipeline = steps.aggregate(BATCH).pipe(_stacked).add_sink(2).build(num_threads=2)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)

    return epoch


def _stacked(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = zip(*samples, strict=True)
    return torch.stack(images), torch.tensor(labels)


MAKERS: dict[str, Callable[..., Epochs]] = {
    LOOM: loom,
    ONE_THREAD: partial(loom, threads=1),
    TORCH: partial(torch_loader, torchvision_transform, 2),
    TORCH_PILLOW: partial(torch_loader, pillow_transform, 2),
    TORCH_ALONE: partial(torch_loader, torchvision_transform, 0),
    SPDL: spdl_pipeline,
}


def prepare(name: str) -> None:
    """Import what a way needs, in a fresh process; torch's operators get one thread."""
    torch.set_num_threads(1)
    if name not in (LOOM, ONE_THREAD, TORCH_PILLOW):
        torchvision_transform()


def check(name: str, files: Files, batches: int) -> None:
    """Refuse a way that makes other batches, by the first ones in order.

    Raises:
        AssertionError: It does.
        ImportError: A package is not installed.
    """
    first = files[: batches * BATCH]
    pairs = zip(MAKERS[name](first, shuffle=False)(), loom(first, shuffle=False)(), strict=True)
    for (images, labels), (expected, numbers) in islice(pairs, batches):
        assert torch.equal(labels, numbers), f"{name} makes batches of other samples"
        assert (images.shape, images.dtype) == (expected.shape, expected.dtype), f"{name} makes other batches"
        difference = (images - expected).abs().max().item()
        assert difference <= TOLERANCE, f"{name} makes images that differ by {difference}"
