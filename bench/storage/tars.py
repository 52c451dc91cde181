"""Measure tars of JPEG files beside webdataset, and a folder of many documents from opening it to its first pack.

Promises:

- Both sides decode by Pillow, and make batches of torch. webdataset resizes by Pillow, and has two workers and a
  shuffle buffer of 1000. batchloom has two threads, shuffles all images, and resizes by ``bl.Resize``, whose pixels
  differ by 1 at most: the first batch is compared. A further candidate is batchloom with webdataset's function.
- The time of processors is counted over all processes. Images of batchloom come once each: their numbers are compared.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
import pyarrow
import torch
from PIL import Image

from bench.harness.claims import Claim
from bench.harness.measure import LOOM, Candidate, interleave
from bench.harness.report import report
from bench.storage.peers import BATCH, SEED

IMAGES, TARS, SIDE, SHUFFLED = 3000, 6, 224, 1000
DOCUMENTS, MEAN, FILES, PER_RECORD_BATCH, PACK = 10_000_000, 30, 10, 1000, 4096
SMALL = "batchloom, resized by Pillow"
WEBDATASET, PROCESSOR = "webdataset, two workers", "processor time"
DECODING = f"decoding alone, {PROCESSOR}"


def write_tars(folder: Path, count: int) -> None:
    """Write JPEG files of 400 x 300 and their numbers, as WebDataset groups them."""
    order = numpy.random.default_rng(SEED)
    for number, images in enumerate(numpy.array_split(numpy.arange(count), TARS)):
        with tarfile.open(folder / f"images-{number:03}.tar", "w") as archive:
            for image in images.tolist():
                file = io.BytesIO()
                # Smooth, as photographs are: noise would take decoders longer.
                pixels = Image.fromarray(order.integers(0, 256, (15, 20, 3), dtype=numpy.uint8))
                pixels.resize((400, 300), Image.Resampling.BICUBIC).save(file, "jpeg", quality=90)
                for suffix, contents in (("jpg", file.getvalue()), ("cls", b"%d" % image)):
                    member = tarfile.TarInfo(f"{image:06}.{suffix}")
                    member.size = len(contents)
                    archive.addfile(member, io.BytesIO(contents))


def decode(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the pixels and the number of an image."""
    return {"image": numpy.asarray(Image.open(io.BytesIO(sample["jpg"]))), "number": int(sample["cls"])}


def decode_small(sample: dict[str, Any]) -> dict[str, Any]:
    """Return the pixels and the number of an image, resized by Pillow."""
    image = Image.open(io.BytesIO(sample["jpg"])).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    return {"image": numpy.asarray(image), "number": int(sample["cls"])}


def of_tars(pattern: str) -> Iterable[Any]:
    """Return an epoch of batchloom, which resizes."""
    fields = {"image": bl.Field(slot=bl.Resize(SIDE, SIDE))}
    dataset = bl.open(pattern, fn=decode)
    return bl.DataLoader(dataset, BATCH, shuffle=True, output="torch", num_threads=2, fields=fields)


def of_small(pattern: str) -> Iterable[Any]:
    """Return an epoch of batchloom, with images that Pillow resizes."""
    dataset = bl.open(pattern, fn=decode_small)
    return bl.DataLoader(dataset, BATCH, shuffle=True, output="torch", num_threads=2)


def of_webdataset(files: list[str]) -> Iterable[Any]:
    """Return an epoch of webdataset."""
    import webdataset

    stream = webdataset.WebDataset(files, shardshuffle=True, empty_check=False, seed=SEED)
    samples = stream.shuffle(SHUFFLED).map(decode_small)
    return torch.utils.data.DataLoader(samples, BATCH, num_workers=2)


def seconds_of_processors() -> float:
    """Return the time of processors of this process and of those that ended before."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


def both_times(name: str, make: Callable[[], Iterable[Any]]) -> list[Candidate]:
    """Return a candidate for the time on the clock, and one for the time of processors of all processes."""

    def run() -> None:
        for _ in make():
            pass

    def run_by_processor() -> float:
        start = seconds_of_processors()
        run()
        return seconds_of_processors() - start

    return [Candidate(name, run, slow=True), Candidate(f"{name}, {PROCESSOR}", run_by_processor, slow=True)]


def decode_alone(files: list[str]) -> Callable[[], float]:
    """Return what decodes all images in one thread: they lie in memory, so it takes the time that no reader saves."""
    members: dict[str, dict[str, bytes]] = {}
    for file in files:
        with tarfile.open(file) as archive:
            for member in archive:
                stem, _, suffix = member.name.partition(".")
                contents = archive.extractfile(member)
                assert contents is not None
                members.setdefault(stem, {})[suffix] = contents.read()

    def run() -> float:
        start = seconds_of_processors()
        for sample in members.values():
            decode_small(sample)
        return seconds_of_processors() - start

    return run


def measure_tars(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure tars of JPEG files."""
    count = round(IMAGES * scale)
    write_tars(folder, count)
    pattern = f"{folder}/images-{{000..{TARS - 1:03}}}.tar"
    numbers = numpy.sort(numpy.concatenate([batch["number"].numpy() for batch in of_tars(pattern)]))
    assert numpy.array_equal(numbers, numpy.arange(count)), "an image is missing, or comes twice"
    first, small = (next(iter(make(pattern)))["image"].numpy().astype(int) for make in (of_tars, of_small))
    assert abs(first - small).max() <= 1, "images differ from those that Pillow resizes"
    files = sorted(map(str, folder.glob("*.tar")))
    candidates = [
        *both_times(LOOM, lambda: of_tars(pattern)),
        *both_times(SMALL, lambda: of_small(pattern)),
        *both_times(WEBDATASET, lambda: of_webdataset(files)),
        Candidate(DECODING, decode_alone(files), slow=True),
    ]
    timings = interleave("tars", candidates, rounds)
    mine, theirs = (timings[f"{name}, {PROCESSOR}"] for name in (LOOM, WEBDATASET))
    decoding = timings[DECODING].ratio(theirs)
    print(f"tars: decoding alone takes {decoding:.2f} of the processor time of {WEBDATASET}")
    claims = [
        Claim.of_ratio(f"tars: processor time, times that of {WEBDATASET}", mine, theirs, "<=", 0.65),
        Claim.of_ratio(f"tars: time of {WEBDATASET}, times batchloom's", timings[WEBDATASET], timings[LOOM], ">=", 1.3),
    ]
    facts = {"part": "tars", "images": count, "decoding_times_webdataset": decoding}
    return {**facts, **report("tars", timings, claims, {}, bar=(WEBDATASET, WEBDATASET))}


def write_folder(folder: Path, count: int) -> None:
    """Write documents as ``datasets`` saves them: streams of Arrow in record batches of 1000."""
    order, files = numpy.random.default_rng(SEED), []
    for number in range(FILES):
        lengths = numpy.clip(order.exponential(MEAN, count // FILES).astype(numpy.int64), 1, 512)
        offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
        tokens = order.integers(0, 50_000, offsets[-1], dtype=numpy.int32)
        lists = pyarrow.ListArray.from_arrays(pyarrow.array(offsets.astype(numpy.int32)), pyarrow.array(tokens))
        table = pyarrow.table({"input_ids": lists})
        name = f"data-{number:05}-of-{FILES:05}.arrow"
        with (
            pyarrow.OSFile(str(folder / name), "wb") as file,
            pyarrow.ipc.new_stream(file, table.schema) as writer,
        ):
            writer.write_table(table, max_chunksize=PER_RECORD_BATCH)
        files.append({"filename": name})
    (folder / "state.json").write_text(json.dumps({"_data_files": files}))
    (folder / "dataset_info.json").write_text("{}")


def measure_folder(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure how long the first pack of a folder of documents takes."""
    count = round(DOCUMENTS * scale)
    write_folder(folder, count)
    before = sorted(os.listdir(folder))

    def first_packs(epochs: int) -> float:
        start = time.perf_counter()
        loader = bl.DataLoader(bl.open(folder), batching=bl.Packing(PACK), shuffle=True, output="torch")
        for _ in range(epochs):
            batch = next(iter(loader))
        assert batch["input_ids"].dtype == torch.int64
        return time.perf_counter() - start

    opened, twice = LOOM, "two epochs begun, packed anew"
    candidates = [
        Candidate(opened, lambda: first_packs(1), slow=True),
        Candidate(twice, lambda: first_packs(2), slow=True),
    ]
    timings = interleave("folder", candidates, rounds)
    assert sorted(os.listdir(folder)) == before, "something was written"
    claims = [Claim("folder: seconds from opening to the first batch", timings[opened].median, "<=", 2)]
    return {"part": "folder", "documents": count, **report("folder", timings, claims, {}, bar=(opened, opened))}
