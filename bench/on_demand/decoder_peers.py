"""Decode images and sounds by the libraries that people have, and load them by batchloom and by torch.

Promises:

- A function takes a path. An image is ``[height, width, 3]`` in uint8, a sound ``[samples]`` in float32, whichever
  library decodes it, as an array of NumPy or as a tensor, whichever the library makes.
- A library is imported by the functions that use it, so that one may be absent.
- All loaders call the same function and stack what it returns. ``with_resize`` alone decodes by a function and leaves
  the resizing to the engine.
- Workers of torch and processes of batchloom persist: they start with the first epoch of a loader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import batchloom
import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader

SIDE, WORKERS = 224, 2

Decode = Callable[[str], Any]
Epochs = Callable[[], Iterable[Any]]


def decode_by_pillow(path: str) -> numpy.ndarray:
    """Decode an image whole."""
    with Image.open(path) as image:
        return numpy.asarray(image.convert("RGB"))


def pillow(path: str) -> numpy.ndarray:
    """Decode an image whole, and resize it."""
    with Image.open(path) as image:
        return numpy.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def decode_by_draft(path: str) -> numpy.ndarray:
    """Decode an image at a half, a quarter or an eighth of its size, where that is no less than the size of a batch."""
    with Image.open(path) as image:
        image.draft("RGB", (SIDE, SIDE))
        return numpy.asarray(image.convert("RGB"))


def pillow_draft(path: str) -> numpy.ndarray:
    """Decode an image at a part of its size, and resize it."""
    with Image.open(path) as image:
        image.draft("RGB", (SIDE, SIDE))
        return numpy.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def decode_by_torchvision(path: str) -> torch.Tensor:
    """Decode an image whole."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file

    return decode_jpeg(read_file(path), ImageReadMode.RGB).permute(1, 2, 0)


def torchvision(path: str) -> torch.Tensor:
    """Decode an image whole, and resize it."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms.v2.functional import resize

    return resize(decode_jpeg(read_file(path), ImageReadMode.RGB), [SIDE, SIDE], antialias=True).permute(1, 2, 0)


def decode_by_torchcodec(path: str) -> torch.Tensor:
    """Decode an image whole."""
    from torchcodec.decoders import decode_jpeg

    return decode_jpeg(path).permute(1, 2, 0)


def torchcodec_jpeg(path: str) -> torch.Tensor:
    """Decode an image whole, and resize it by torchvision."""
    from torchcodec.decoders import decode_jpeg
    from torchvision.transforms.v2.functional import resize

    return resize(decode_jpeg(path), [SIDE, SIDE], antialias=True).permute(1, 2, 0)


def decode_by_simplejpeg(path: str) -> numpy.ndarray:
    """Decode an image at the least number of eighths of its size that is no less than the size of a batch."""
    import simplejpeg

    return simplejpeg.decode_jpeg(Path(path).read_bytes(), "RGB", min_height=SIDE, min_width=SIDE)


def simplejpeg_scaled(path: str) -> numpy.ndarray:
    """Decode an image at a part of its size, and resize it by Pillow."""
    image = Image.fromarray(decode_by_simplejpeg(path))
    return numpy.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def soundfile(path: str) -> numpy.ndarray:
    """Decode a sound."""
    from soundfile import read

    return read(path, dtype="float32")[0]


def torchcodec_ffmpeg(path: str) -> torch.Tensor:
    """Decode a sound by FFmpeg."""
    from torchcodec.decoders import AudioDecoder

    return AudioDecoder(path).get_all_samples().data[0]


def torchcodec_wav(path: str) -> torch.Tensor:
    """Read a sound that is not compressed by torchcodec alone."""
    from torchcodec.decoders import WavDecoder

    return WavDecoder(path).get_all_samples().data[0]


def scipy(path: str) -> numpy.ndarray:
    """Read a sound that is not compressed."""
    from scipy.io import wavfile

    return wavfile.read(path)[1].astype(numpy.float32) / numpy.float32(1 << 15)


# The function that makes a sample, and the function that leaves resizing to the engine.
IMAGES: dict[str, tuple[Decode, Decode]] = {
    "Pillow": (pillow, decode_by_pillow),
    "Pillow, draft": (pillow_draft, decode_by_draft),
    "torchvision": (torchvision, decode_by_torchvision),
    "torchcodec": (torchcodec_jpeg, decode_by_torchcodec),
    "simplejpeg, scaled": (simplejpeg_scaled, decode_by_simplejpeg),
}
RESIZED_BY_ENGINE = ("Pillow", "Pillow, draft", "torchvision")
FLAC: dict[str, Decode] = {"soundfile": soundfile, "torchcodec, FFmpeg": torchcodec_ffmpeg}
WAV: dict[str, Decode] = {**FLAC, "torchcodec, WavDecoder": torchcodec_wav, "scipy": scipy}


class Files:
    """A data set as it is usually written for torch: one file at a time."""

    def __init__(self, decode: Decode, paths: Sequence[str]) -> None:
        self.decode, self.paths = decode, paths

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self.paths)

    def __getitem__(self, number: int) -> Any:
        """Return what one holds."""
        return self.decode(self.paths[number])


def loom(workers: str, decode: Decode, paths: Sequence[str], batch: int, shuffle: bool = True) -> Epochs:
    """Use batchloom with two threads or two processes."""
    dataset = batchloom.MapDataset(paths, decode, workers=workers)
    loader = batchloom.DataLoader(dataset, batch, shuffle=shuffle, output="torch", num_threads=WORKERS)
    return lambda: loader


def with_resize(decode: Decode, paths: Sequence[str], batch: int, shuffle: bool = True) -> Epochs:
    """Use batchloom with two threads, which decode by a function and resize by the engine."""
    loader = batchloom.DataLoader(
        batchloom.MapDataset(paths, lambda path: (decode(path),)),
        batch,
        shuffle=shuffle,
        output="torch",
        num_threads=WORKERS,
        fields={0: batchloom.Field(slot=batchloom.Resize(SIDE, SIDE))},
    )
    return lambda: (image for (image,) in loader)


def torch_loader(decode: Decode, paths: Sequence[str], batch: int, shuffle: bool = True) -> Epochs:
    """Use torch's ``DataLoader`` with two workers that persist."""
    loader = DataLoader(Files(decode, paths), batch, shuffle=shuffle, num_workers=WORKERS, persistent_workers=True)
    return lambda: loader


ALONE, PAIR = "one thread, no loader", "two threads, no loader"
THREADS, PROCESSES = "batchloom, 2 threads", "batchloom, 2 processes"
RESIZED, TORCH = "batchloom, 2 threads and bl.Resize", "torch DataLoader, 2 workers"
# The ways in which a function is called for every file, by loaders.
WAYS: dict[str, Callable[..., Epochs]] = {
    THREADS: partial(loom, "threads"),
    PROCESSES: partial(loom, "processes"),
    TORCH: torch_loader,
}
