"""Decoding of images and sounds by the libraries that people have, in threads, in processes and in torch's loader.

Four sets of files: ``photographs``, 256 JPEG files of 500 x 375 pixels, cut from the two photographs of scikit-learn;
``large photographs``, 64 of 1600 x 1200, such pieces made larger, with noise; ``WAV`` and ``FLAC``, 512 clips of two
seconds at 16 kHz, drawn by this module. A batch is 64 images of 224 x 224 pixels in uint8 (16 of the large ones), or 64
clips; shuffled, loop body ``pass``. Workers of torch get as many batches each. Promises:

- Before anything is timed, each function has made the images of Pillow, but for a few levels of 256 on average, or the
  sounds that were written, but for a step of 16 bits; and each loader the samples of its function, in order.
- All libraries and all ways run in the same rounds, so that any two of them may be compared. Files were read before.
- A library that is not installed, or lacks a library of the system, is not measured, and the JSON says why.
- ``in_threads``: how many times as fast as one thread two threads of Python call a function, without a loader. A
  function that holds the interpreter has about 1 there, and one that releases it as much as two processes have.
- ``processor_milliseconds``: the time of the processor for a file, in one thread, which a busy machine changes little.
"""

from __future__ import annotations

import threading
import time
import wave
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from bench.harness.claims import Claim, stated
from bench.harness.measure import Candidate, Pace, Timing, interleave, progress, with_threads
from bench.harness.report import print_disturbed, print_not_measured, table
from bench.on_demand import decoder_peers as peers
from bench.on_demand.decoder_peers import ALONE, PAIR, PROCESSES, RESIZED, THREADS, TORCH, WAYS, Decode

PHOTOGRAPHS, LARGE, SOUNDS, LEAST_BATCHES = 256, 64, 512, 4
BATCH, BATCH_OF_LARGE = 64, 16
SIZE, LARGE_SIZE, QUALITY = (500, 375), (1600, 1200), 85
RATE, SECONDS = 16_000, 2
# The most that a pixel differs from Pillow's on average, in levels of 256: libraries resize by other filters.
LEVELS = 6.0
CHECKED, FEW_FILES, TRIES = 8, 32, 5
PACE = Pace(seconds=0.3, tries=3)

Files = Sequence[str]


def write_photographs(folder: Path, count: int, size: tuple[int, int]) -> list[str]:
    """Write JPEG files, each a piece of a photograph at a random place, mirrored or not."""
    random, files = numpy.random.default_rng(0), []
    photographs = [Image.fromarray(each) for each in load_sample_images().images]
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        left, top = (
            int(random.integers(0, whole - part + 1)) for whole, part in zip(photograph.size, SIZE, strict=True)
        )
        piece = photograph.crop((left, top, left + SIZE[0], top + SIZE[1]))
        if random.random() < 0.5:
            piece = piece.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if size != SIZE:
            pixels = numpy.asarray(piece.resize(size, Image.Resampling.BICUBIC), numpy.float32)
            noise = 4 * random.standard_normal((*pixels.shape[:2], 1), numpy.float32)
            piece = Image.fromarray((pixels + noise).clip(0, 255).astype(numpy.uint8))
        files.append(str(folder / f"{number}.jpg"))
        piece.save(files[-1], quality=QUALITY)
    return files


def draw_sound(random: numpy.random.Generator) -> numpy.ndarray:
    """Draw two seconds with about the entropy of speech: a voice with ten harmonics, syllables, noise."""
    times = numpy.arange(RATE * SECONDS) / RATE
    pitch = random.uniform(90, 250) * (1 + 0.1 * numpy.sin(2 * numpy.pi * random.uniform(0.3, 1.0) * times))
    phase = 2 * numpy.pi * numpy.cumsum(pitch) / RATE
    voice = sum(random.uniform(0, 1) / k * numpy.sin(k * phase) for k in range(1, 11))
    syllables = numpy.sin(2 * numpy.pi * random.uniform(1.5, 4) * times).clip(0, 1)
    sound = 0.1 * voice * syllables + 0.003 * random.standard_normal(len(times))
    return (sound.clip(-1, 1) * 32767).astype(numpy.int16)


def write_sounds(folder: Path, count: int) -> tuple[list[str], list[numpy.ndarray]]:
    """Write WAV files; return them and what they hold."""
    random, files = numpy.random.default_rng(0), []
    sounds = [draw_sound(random) for _ in range(count)]
    for number, sound in enumerate(sounds):
        files.append(str(folder / f"{number}.wav"))
        with wave.open(files[-1], "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(sound.tobytes())
    return files, sounds


def write_flac(files: Files, sounds: Sequence[numpy.ndarray]) -> list[str]:
    """Write the same sounds as FLAC files.

    Raises:
        ImportError: soundfile is not installed.
    """
    import soundfile

    written = [str(Path(path).with_suffix(".flac")) for path in files]
    for path, sound in zip(written, sounds, strict=True):
        soundfile.write(path, sound, RATE)
    return written


def require_image(decode: Decode, path: str) -> None:
    """Refuse a function that makes another image than Pillow.

    Raises:
        AssertionError: It does.
    """
    image, expected = numpy.asarray(decode(path)), peers.pillow(path)
    assert (image.shape, image.dtype) == (expected.shape, expected.dtype), f"{decode.__name__}: {image.shape}"
    levels = numpy.abs(image.astype(int) - expected).mean()
    assert levels <= LEVELS, f"{decode.__name__} makes images that differ by {levels:.2f} levels on average"


def require_sound(sounds: Mapping[str, numpy.ndarray], decode: Decode, path: str) -> None:
    """Refuse a function that makes another sound than the one that was written.

    Raises:
        AssertionError: It does.
    """
    sound, expected = numpy.asarray(decode(path)), sounds[Path(path).stem] / numpy.float32(1 << 15)
    assert (sound.shape, sound.dtype) == (expected.shape, numpy.float32), f"{decode.__name__}: {sound.shape}"
    assert numpy.abs(sound - expected).max() <= 1.01 / (1 << 15), f"{decode.__name__} makes another sound"


def decode_all(decode: Decode, files: Files) -> None:
    """Decode all files in this thread, and do nothing else."""
    for path in files:
        decode(path)


def decode_in_threads(decode: Decode, files: Files) -> None:
    """Decode all files in two threads, and do nothing else."""
    count = peers.WORKERS
    threads = [threading.Thread(target=decode_all, args=(decode, files[first::count])) for first in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def processor_milliseconds(decode: Decode, files: Files) -> float:
    """Return the time that a processor takes for a file, in one thread: the least of several tries."""
    files, tries = files[:FEW_FILES], []
    for _ in range(TRIES):
        start = time.process_time()
        decode_all(decode, files)
        tries.append(time.process_time() - start)
    return min(tries) / len(files) * 1000


def find_here(decoders: Mapping[str, Decode], path: str) -> tuple[dict[str, Decode], dict[str, str]]:
    """Return the libraries that decode here, and those that do not, with the first line of the error."""
    torch.set_num_threads(1)
    missing = {}
    for name, decode in decoders.items():
        try:
            decode(path)
        except (ImportError, OSError, RuntimeError, ValueError) as error:
            missing[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return {name: decode for name, decode in decoders.items() if name not in missing}, missing


def require_ways(name: str, decode: Decode, files: Files) -> None:
    """Refuse a loader that makes other samples than its function, by the first ones in order.

    Raises:
        AssertionError: It does.
    """
    expected = torch.from_numpy(numpy.stack([numpy.asarray(decode(path)) for path in files]))
    for way, make in WAYS.items():
        (found,) = make(decode, files, len(files), shuffle=False)()
        assert torch.equal(found, expected), f"{name}: {way} makes other batches"


def measure_set(
    title: str, decoders: Mapping[str, Decode], files: Files, batch: int, check: Any, rounds: int
) -> dict[str, Any]:
    """Check and time all libraries in all ways over the files of one set."""
    here, missing = find_here(decoders, files[0])
    candidates = []
    for name, decode in here.items():
        for path in files[:CHECKED]:
            check(decode, path)
        require_ways(name, decode, files[:CHECKED])
        facts = {"library": name, "processor_milliseconds": processor_milliseconds(decode, files)}
        candidates += [
            Candidate(f"{name}: {ALONE}", partial(decode_all, decode, files), {**facts, "way": ALONE}),
            Candidate(f"{name}: {PAIR}", partial(decode_in_threads, decode, files), {"library": name, "way": PAIR}),
        ]
        ways: dict[str, Any] = {way: partial(make, decode) for way, make in WAYS.items()}
        if name in peers.RESIZED_BY_ENGINE:
            ways[RESIZED] = partial(peers.with_resize, peers.IMAGES[name][1])
        candidates += [
            Candidate(f"{name}: {way}", partial(with_threads, 1, make(files, batch)), {"library": name, "way": way})
            for way, make in ways.items()
        ]
    timings = interleave(title, candidates, rounds, PACE)
    found = {(timing.candidate.facts["library"], timing.candidate.facts["way"]): timing for timing in timings.values()}
    for timing in timings.values():
        timing.candidate.facts["files_a_second"] = round(len(files) / timing.median)
    for name in here:
        found[name, ALONE].candidate.facts["in_threads"] = round(found[name, ALONE].ratio(found[name, PAIR]), 2)
    print_set(title, found, missing)
    print_disturbed(title, timings)
    size = sum(Path(path).stat().st_size for path in files)
    facts = {"workload": title, "files": len(files), "bytes_of_files": size, "batch_size": batch}
    records = [
        timing.record({"alone": found[name, ALONE], "threads": found[name, THREADS]})
        for (name, _), timing in found.items()
    ]
    return {
        **facts,
        "candidates": records,
        "not_measured": missing,
        "claims": stated([claim_over_torch(title, name, found) for name in here]),
        "faster_than_batchloom": [
            f"{name}: {TORCH}" for name in here if best(name, found).ratio(found[name, TORCH]) > 1
        ],
    }


def best(name: str, found: Mapping[tuple[str, str], Timing]) -> Timing:
    """Return batchloom's fastest way with a library, in which the function does the same work as elsewhere."""
    return min((found[name, way] for way in (THREADS, PROCESSES)), key=lambda timing: timing.median)


def claim_over_torch(title: str, name: str, found: Mapping[tuple[str, str], Timing]) -> Claim:
    """Claim that torch's loader takes as long with a library as the faster of batchloom's threads and processes."""
    text = f"{title}: {name}: time of {TORCH}, times that of {best(name, found).candidate.facts['way']}"
    return Claim.of_ratio(text, found[name, TORCH], best(name, found), ">=", 1.0)


def print_set(title: str, found: Mapping[tuple[str, str], Timing], missing: Mapping[str, str]) -> None:
    """Print the files a second of each library in each way, and what two threads gain."""
    names = list(dict.fromkeys(name for name, _ in found))
    ways = list(dict.fromkeys(way for _, way in found))

    def cell(name: str, way: str) -> str:
        return str(found[name, way].candidate.facts["files_a_second"]) if (name, way) in found else "-"

    alone = {name: found[name, ALONE].candidate.facts for name in names}
    facts = {name: (f"{of['processor_milliseconds']:.2f}", f"{of['in_threads']:.2f}") for name, of in alone.items()}
    rows = [(name, *facts[name], *(cell(name, way) for way in ways)) for name in names]
    table(f"{title}: files a second", ("library", "processor ms", "in threads", *ways), rows)
    print_not_measured(missing)


def measure(scale: float, rounds: int, over: Callable[..., dict[str, Any]] = measure_set) -> list[dict[str, Any]]:
    """Measure all sets, each by ``over``."""
    return [*measure_images(scale, rounds, over), *measure_sounds(scale, rounds, over)]


def measure_images(scale: float, rounds: int, over: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    """Measure photographs of two sizes."""
    decoders, cases = {name: decode for name, (decode, _) in peers.IMAGES.items()}, []
    sets = (("photographs", PHOTOGRAPHS, SIZE, BATCH), ("large photographs", LARGE, LARGE_SIZE, BATCH_OF_LARGE))
    for title, count, size, batch in sets:
        with TemporaryDirectory() as folder:
            progress(f"{title}: writing")
            files = write_photographs(Path(folder), scaled(count, scale, batch), size)
            cases.append(over(title, decoders, files, batch, require_image, rounds))
    return cases


def measure_sounds(scale: float, rounds: int, over: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    """Measure sounds in two formats."""
    cases = []
    with TemporaryDirectory() as folder:
        progress("sounds: writing")
        files, sounds = write_sounds(Path(folder), scaled(SOUNDS, scale, BATCH))
        check = partial(require_sound, {Path(path).stem: sound for path, sound in zip(files, sounds, strict=True)})
        cases.append(over("WAV", peers.WAV, files, BATCH, check, rounds))
        try:
            files = write_flac(files, sounds)
        except ImportError as error:
            print_not_measured({"FLAC": str(error)})
        else:
            cases.append(over("FLAC", peers.FLAC, files, BATCH, check, rounds))
    return cases


def scaled(count: int, scale: float, batch: int) -> int:
    """Return a number of files: whole batches, equally many for each of two workers."""
    return max(round(count * scale / batch / 2), LEAST_BATCHES // 2) * 2 * batch
