"""Batches of images from JPEG files.

2000 files of about 400 x 300 pixels and 27 KB, drawn by this module: smooth colours, textures, noise. Pillow decodes
them. A batch is 64 images of 224 x 224 pixels, float32, normalised, channels first, and labels; shuffled, loop body
``pass``. Promises:

- Before anything is timed, each way has made the same first batches in order: labels equal, pixels within two levels of
  256, as everyone rounds them to bytes twice.
- ``epochs``: batchloom runs with its defaults, and beside them with one thread. Workers of torch's loader persist, and
  all files were read before. torch's operators have one thread, which is faster for one image at a time. One candidate
  decodes all files in one thread, and does nothing else.
- ``first batch``: in a fresh process that has imported what it needs, from making the loader to having its first batch.
- ``memory``: in a fresh process, the most memory of it and its descendants while it takes batches and holds each one
  longer than making it takes, so that loaders make as many ahead as they do. What they share counts once. The figure is
  what the loader adds to the process that makes it.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
from PIL import Image

from bench.harness.claims import Claim, all_slower, stated
from bench.harness.measure import LOOM, Candidate, interleave, progress, with_threads
from bench.harness.processes import FamilyWatch, elsewhere
from bench.harness.report import report, table
from bench.on_demand import image_peers as peers
from bench.on_demand.image_peers import MAKERS, SPDL, TORCH, TORCH_ALONE, TORCH_PILLOW, Files

IMAGES, LEAST, CHECKED_BATCHES = 2000, 1024, 4
HEIGHTS, WIDTHS, QUALITY = (270, 331), (360, 441), 85
# Layers of an image: the number of random points in its width, and the strength; noise comes on top.
LAYERS, NOISE = ((3, 0.95), (8, 0.47), (24, 0.24), (72, 0.14), (160, 0.09)), 4
DECODE = "decoding alone, one thread"
FRESH = (LOOM, TORCH, TORCH_ALONE, SPDL)
HOLD_SECONDS, HELD_BATCHES = 0.1, 12
MEBIBYTE = 2**20


def draw(random: numpy.random.Generator) -> Image.Image:
    """Draw an image with about the entropy of a photograph."""
    height, width = int(random.integers(*HEIGHTS)), int(random.integers(*WIDTHS))
    pixels = numpy.full((height, width, 3), 128, numpy.float32)
    for points, strength in LAYERS:
        layer = Image.fromarray(random.integers(0, 256, (points * 3 // 4 + 1, points, 3), dtype=numpy.uint8))
        pixels += strength * (
            numpy.asarray(layer.resize((width, height), Image.Resampling.BICUBIC)) - numpy.float32(128)
        )
    pixels += NOISE * random.standard_normal((height, width, 1), dtype=numpy.float32)
    return Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))


def write(folder: Path, images: int) -> list[tuple[str, int]]:
    """Write so many files; the label of each is its number."""
    random, files = numpy.random.default_rng(0), []
    for label in range(images):
        if label % 100 == 0:
            progress(f"images: {label} of {images} written")
        path = folder / f"{label}.jpg"
        draw(random).save(path, quality=QUALITY)
        files.append((str(path), label))
    return files


def decode_all(files: Files) -> None:
    """Decode all files in this thread."""
    for file in files:
        peers.decode(file)


def first_batch(name: str, files: Files) -> float:
    """Return the seconds from making a loader to its first batch. Runs in a fresh process."""
    peers.prepare(name)
    start = time.perf_counter()
    next(iter(MAKERS[name](files)()))
    return time.perf_counter() - start


def memory(name: str, files: Files) -> tuple[int, int]:
    """Return the bytes before a loader, and the most with it. Runs in a fresh process."""
    peers.prepare(name)
    peers.decode(files[0])
    with FamilyWatch() as watch:
        for _ in islice(MAKERS[name](files)(), HELD_BATCHES):
            time.sleep(HOLD_SECONDS)
    return watch.before, watch.peak


def measure(scale: float, rounds: int) -> list[dict[str, Any]]:
    """Run all cases."""
    with TemporaryDirectory() as folder:
        files = write(Path(folder), max(round(IMAGES * scale), LEAST))
        missing = {}
        for name in MAKERS:
            try:
                peers.check(name, files, CHECKED_BATCHES)
            except ImportError as error:
                missing[name] = str(error)
        size = sum(Path(path).stat().st_size for path, _ in files)
        facts = {"images": len(files), "bytes_of_files": size, "batch_size": peers.BATCH, "side": peers.SIZE}
        cases = (epochs, first_batches, memories)
        return [{**facts, **case(files, missing, rounds)} for case in cases]


def epochs(files: Files, missing: dict[str, str], rounds: int) -> dict[str, Any]:
    """Time epochs."""
    candidates = [Candidate(DECODE, partial(decode_all, files))]
    candidates += [
        Candidate(name, partial(with_threads, 1, make(files))) for name, make in MAKERS.items() if name not in missing
    ]
    timings = interleave("images", candidates, rounds)
    for timing in timings.values():
        timing.candidate.facts["images_a_second"] = round(len(files) / timing.median)
    claims = all_slower("images", timings, {TORCH: 1.3, TORCH_PILLOW: 1.3})
    columns = {"images/s": "images_a_second"}
    found = report("images: epochs", timings, claims, columns, missing, ("decoding", DECODE))
    return {"workload": "images: epochs", **found}


def first_batches(files: Files, missing: dict[str, str], rounds: int) -> dict[str, Any]:
    """Time first batches."""
    candidates = [
        Candidate(name, partial(elsewhere, first_batch, name, files), slow=True)
        for name in FRESH
        if name not in missing
    ]
    timings = interleave("images: first batch", candidates, rounds)
    claims = []
    if TORCH in timings:
        text = f"images: time to the first batch, times that of {TORCH}"
        claims = [Claim.of_ratio(text, timings[LOOM], timings[TORCH], "<=", 0.3)]
    title = "images: first batch of a fresh process"
    return {"workload": title, **report(title, timings, claims, {}, missing, ("batchloom", LOOM))}


def memories(files: Files, missing: dict[str, str], rounds: int) -> dict[str, Any]:
    """Measure memory."""
    title = "images: memory of all processes, MiB"
    found = {name: _mebibytes(name, files) for name in FRESH if name not in missing}
    lines = [(name, *(f"{each[key]:.0f}" for key in ("before", "peak", "added"))) for name, each in found.items()]
    table(title, ("candidate", "before the loader", "peak", "added"), lines)
    claims = []
    if TORCH in found:
        text = f"images: memory that the loader adds, times that of {TORCH}"
        claims = [Claim(text, found[LOOM]["added"] / found[TORCH]["added"], "<=", 0.5)]
    candidates = [{"name": name, **each} for name, each in found.items()]
    return {"workload": title, "candidates": candidates, "not_measured": missing, "claims": stated(claims)}


def _mebibytes(name: str, files: Files) -> dict[str, float]:
    before, peak = (size / MEBIBYTE for size in elsewhere(memory, name, files))
    return {"before": before, "peak": peak, "added": peak - before}
