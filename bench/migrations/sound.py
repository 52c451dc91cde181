"""The row of speech: recordings and their texts, in batches of some seconds, as lhotse makes them for k2."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
from batchloom import DataLoader, MapDataset, TokenBudget
from scipy.io import wavfile
from torch.utils.data import DataLoader as TorchLoader

from bench.harness.checkouts import need_package
from bench.migrations.rows import Pass, Row, Source

SPEECH = Source("lhotse 1.33", "", "lhotse/dataset/speech_recognition.py")
RECORDINGS, RATE, SECONDS_A_BATCH, BUCKETS = 400, 16_000, 60, 10


def prepare_speech(folder: Path, scale: float) -> Any:
    """Write recordings of 1 to 5 seconds, unless they are there; make a set of cuts of them."""
    lhotse, sound = need_package("lhotse"), need_package("soundfile")
    dataset = need_package("lhotse.dataset")
    random, cuts = numpy.random.default_rng(0), []
    for number in range(max(round(RECORDINGS * scale), 60)):
        samples = int(random.integers(RATE, 5 * RATE))
        path = folder / f"{number}.wav"
        if not path.exists():
            noise = numpy.random.default_rng(number).integers(-3000, 3000, samples)
            wavfile.write(path, RATE, noise.astype(numpy.int16))
        name = f"recording-{number}"
        text = f"the words of {number}"
        recording = lhotse.Recording.from_file(path, recording_id=name)
        said = lhotse.SupervisionSegment(name, name, 0, recording.duration, text=text)
        cuts.append(lhotse.MonoCut(name, 0, recording.duration, 0, supervisions=[said], recording=recording))
    return SimpleNamespace(cuts=lhotse.CutSet.from_cuts(cuts), dataset=dataset, read=sound.read)


def speech(data: Any, shuffle: bool) -> Pass:
    """Use the dataset of k2 over audio, and buckets of similar duration."""
    dataset = data.dataset.K2SpeechRecognitionDataset(input_strategy=data.dataset.AudioSamples())
    options = {"max_duration": SECONDS_A_BATCH, "shuffle": shuffle, "num_buckets": BUCKETS}
    sampler = data.dataset.DynamicBucketingSampler(data.cuts, **options)
    loader = TorchLoader(dataset, sampler=sampler, batch_size=None)
    epochs = iter(range(10**9))

    def epoch() -> Iterable[Any]:
        sampler.set_epoch(next(epochs))
        return loader

    return epoch


class Listener:
    """Reads the audio of a cut, its text beside it."""

    def __init__(self, read: Any) -> None:
        self._read = read

    def __call__(self, item: tuple[str, str]) -> dict[str, Any]:
        """Return the samples and the text."""
        path, text = item
        return {"inputs": self._read(path, dtype="float32")[0], "text": text}


def speech_loom(data: Any, shuffle: bool) -> Pass:
    """Read the files of the cuts on demand, in batches of equal seconds, padding included."""
    items = [(cut.recording.sources[0].source, cut.supervisions[0].text) for cut in data.cuts]
    sizes = [cut.num_samples for cut in data.cuts]
    dataset = MapDataset(items, Listener(data.read), sizes=sizes, columns=["inputs"])
    budget = TokenBudget(SECONDS_A_BATCH * RATE)
    loader = DataLoader(dataset, batching=budget, shuffle=shuffle, output="torch")
    return lambda: loader


def check_speech(row: Row, data: Any) -> int:
    """Compare recordings by their texts: lengths and values, zeros behind them, and the seconds of batches."""
    found: list[dict[str, Any]] = []
    number = 0
    for side in (row.script, row.loom):
        heard: dict[str, Any] = {}
        for batch in side(data, True)():
            number += 1
            said = batch.get("supervisions", batch)
            order = said["sequence_idx"].tolist() if "sequence_idx" in said else range(len(said["text"]))
            lengths = said["num_samples"] if "num_samples" in said else batch["lengths"]
            for row_of, text, length in zip(order, said["text"], lengths.tolist(), strict=True):
                audio = batch["inputs"][row_of]
                if text in heard or audio[length:].any():
                    raise SystemExit(f"row {row.name}, batch {number}: {text!r} comes twice or is not padded by zeros")
                heard[text] = audio[:length].numpy().tobytes()
        found.append(heard)
    if found[0] != found[1] or len(found[0]) != len(data.cuts):
        raise SystemExit(f"row {row.name}: recordings differ")
    return number


ROWS = (Row("20", "speech", SPEECH, prepare_speech, speech, speech_loom, check_speech, changed="4 / 9"),)
