"""Images that are resized, and nothing else.

256 images of uint8 in memory, 400 x 300 pixels with 3 channels, to 224 x 224, antialiased, on one core. Promises:

- batchloom's time is that of its loader with one thread, over images that a function returns as they are: with the call
  of the function, the making of batches of 64 and their delivery. Peers only resize: they make no batches.
- Pillow is given its own images and makes its own, so nothing is converted. torchvision is given tensors whose channels
  come last in memory, which was fastest, and has one thread.
- Pillow-SIMD has Pillow's names, so it runs in a process of its own, from ``.venv/pillow-simd``, on images of its own,
  and says how long it took. Its images are not compared.
- Before anything is timed, bytes were compared with Pillow's: two levels of 256 at most for ``bilinear`` and
  ``bicubic``, as everyone rounds twice. ``nearest`` has equal bytes but where two pixels are equally near.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import batchloom
import numpy
import torch
from PIL import Image

from bench.harness.claims import all_slower
from bench.harness.measure import LOOM, Candidate, exhaust, interleave, with_threads
from bench.harness.report import report

IMAGES, BATCH, HEIGHT, WIDTH, SIDE = 256, 64, 300, 400, 224
FILTERS, BOUNDS = ("bilinear", "bicubic", "nearest"), {"bilinear": 3, "bicubic": 3}
PILLOW, TORCHVISION, SIMD = "Pillow", "torchvision", "Pillow-SIMD"
SIMD_FOLDER = Path(sys.prefix) / "pillow-simd"
LEVELS = 2

Array = numpy.ndarray


def draw(images: int) -> list[Array]:
    """Draw images whose bytes stay away from 0 and 255, where curves are cut off."""
    random = numpy.random.default_rng(0)
    small = random.integers(64, 192, (images, HEIGHT // 4, WIDTH // 4, 3), dtype=numpy.uint8)
    scaled = (Image.fromarray(each).resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR) for each in small)
    return [numpy.array(each) for each in scaled]


def loom(images: list[Array], filter: str) -> Callable[[], Any]:
    """Use batchloom with one thread."""
    slots = {"image": batchloom.Resize(SIDE, SIDE, filter=filter)}
    dataset = batchloom.MapDataset(images, _sample)
    loader = batchloom.DataLoader(dataset, BATCH, collate=slots, output="numpy", num_threads=1)
    return lambda: loader


def _sample(image: Array) -> dict[str, Array]:
    return {"image": image}


def by_pillow(images: list[Array], filter: str) -> Callable[[], Any]:
    """Use Pillow, on its images."""
    own, kind = [Image.fromarray(image) for image in images], Image.Resampling[filter.upper()]
    return lambda: (image.resize((SIDE, SIDE), kind) for image in own)


def by_torchvision(images: list[Array], filter: str) -> Callable[[], Any]:
    """Use torchvision, on tensors.

    Raises:
        ImportError: It is not installed.
    """
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms.v2 import functional

    kind = InterpolationMode(filter if filter != "nearest" else "nearest-exact")
    own = [torch.from_numpy(image).permute(2, 0, 1) for image in images]
    return lambda: (functional.resize(image, [SIDE, SIDE], kind, antialias=True) for image in own)


class PillowSimd:
    """A process that resizes by Pillow-SIMD when it is told to.

    Raises:
        ImportError: It is not installed.
    """

    def __init__(self, images: int, filter: str) -> None:
        if not (SIMD_FOLDER / "PIL").is_dir():
            raise ImportError("it is not installed, as it has to be compiled")
        program = [sys.executable, "-c", PROGRAM, str(SIMD_FOLDER), str(images), filter]
        self._process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts = json.loads(self._answer())

    def run(self) -> float:
        """Resize all images; return the seconds."""
        print(file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of Pillow-SIMD ended with status {self._process.wait()}")
        return line

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


PROGRAM = f"""
import json, sys, time
sys.path.insert(0, sys.argv[1])
import PIL
from PIL import Image
assert PIL.__file__.startswith(sys.argv[1]), PIL.__file__
pixels = [Image.effect_noise(({WIDTH}, {HEIGHT}), 30) for _ in range(3)]
images = [Image.merge("RGB", pixels).copy() for _ in range(int(sys.argv[2]))]
kind = Image.Resampling[sys.argv[3].upper()]
print(json.dumps({{"version": PIL.__version__}}), flush=True)
for _ in sys.stdin:
    start = time.perf_counter()
    for image in images:
        image.resize(({SIDE}, {SIDE}), kind)
    print(time.perf_counter() - start, flush=True)
"""


def one_is_nearest(extent: int) -> Array:
    """Tell for each pixel whether one is nearest to its center: that is on no edge."""
    return (2 * numpy.arange(SIDE) + 1) * extent % (2 * SIDE) != 0


def check(name: str, found: list[Array], expected: list[Array], filter: str) -> None:
    """Refuse a way that makes other images.

    Raises:
        AssertionError: It does.
    """
    clear = one_is_nearest(HEIGHT)[:, None] & one_is_nearest(WIDTH)
    for image, other in zip(found, expected, strict=True):
        difference = numpy.abs(image.astype(int) - other)
        most = difference[clear].max() if filter == "nearest" else difference.max()
        allowed = 0 if filter == "nearest" else LEVELS
        assert most <= allowed, f"{name} makes images that differ by {most} levels"


def measure(scale: float, rounds: int) -> list[dict[str, Any]]:
    """Run all filters."""
    images = draw(max(round(IMAGES * scale), BATCH))
    return [_case(images, filter, rounds) for filter in FILTERS]


def _case(images: list[Array], filter: str, rounds: int) -> dict[str, Any]:
    """Check and time the ways of one filter."""
    epochs, pillow = loom(images, filter), by_pillow(images, filter)
    expected = [numpy.asarray(image) for image in pillow()]
    check(LOOM, [image for batch in epochs() for image in batch["image"]], expected, filter)
    candidates = [
        Candidate(LOOM, lambda: exhaust(epochs())),
        Candidate(PILLOW, lambda: exhaust(pillow())),
    ]
    missing, simd = {}, None
    try:
        other = by_torchvision(images, filter)
        check(TORCHVISION, [image.permute(1, 2, 0).numpy() for image in other()], expected, filter)
        candidates.append(Candidate(TORCHVISION, lambda: with_threads(1, other)))
    except ImportError as error:
        missing[TORCHVISION] = str(error)
    try:
        simd = PillowSimd(len(images), filter)
        candidates.append(Candidate(SIMD, simd.run, simd.facts))
    except ImportError as error:
        missing[SIMD] = str(error)
    name = f"resize, {filter}"
    timings = interleave(name, candidates, rounds)
    if simd is not None:
        simd.close()
    for timing in timings.values():
        timing.candidate.facts["microseconds_an_image"] = round(timing.median / len(images) * 1e6, 1)
    claims = all_slower(name, timings, {PILLOW: BOUNDS[filter]} if filter in BOUNDS else {})
    columns = {"us an image": "microseconds_an_image"}
    found = report(name, timings, claims, columns, missing, (PILLOW, PILLOW))
    return {"workload": name, "images": len(images), "batch_size": BATCH, **found}
