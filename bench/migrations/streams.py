"""Rows of streams of tokens: nanoGPT, build-nanogpt, word_language_model and the characters of minGPT.

Corpora count up, modulo a vocabulary, so that each token names the one that follows. No code of the scripts is here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy
import torch
from batchloom import DataLoader, TokenDataset, WindowDataset
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from bench.harness.checkouts import need_checkout, take
from bench.migrations.rows import Pass, Row, Source, expect_equal, fields, same_in_order

VOCABULARY = 50_257
NANOGPT = Source("karpathy/nanoGPT", "3adf61e", "train.py")
BUILD = Source("karpathy/build-nanogpt", "6104ab1", "train_gpt2.py")
BPTT = Source("pytorch/examples", "77f55b9", "word_language_model/main.py")
CHARACTERS = Source("pytorch/examples", "77f55b9", "distributed/minGPT-ddp/mingpt/char_dataset.py")


def count_up(length: int, vocabulary: int = VOCABULARY) -> numpy.ndarray[Any, Any]:
    """Return tokens that count up."""
    return numpy.arange(length) % vocabulary


# ---- nanoGPT: offsets at random, with replacement --------------------------------------------------------------------

BLOCK, BLOCKS_A_BATCH, CORPUS = 1024, 12, 10_000_000


def prepare_nanogpt(folder: Path, scale: float) -> Any:
    """Write ``train.bin``; load ``get_batch``."""
    file = need_checkout(NANOGPT.checkout) / NANOGPT.file
    count_up(max(round(CORPUS * scale), 20 * BLOCK)).astype(numpy.uint16).tofile(folder / "train.bin")
    names = {"data_dir": folder, "block_size": BLOCK, "batch_size": BLOCKS_A_BATCH}
    space = {"np": numpy, "torch": torch, "os": os, "device": "cpu", "device_type": "cpu", **names}
    return SimpleNamespace(folder=folder, get_batch=take(file, ["get_batch"], space)["get_batch"])


def nanogpt(data: Any, shuffle: bool) -> Pass:
    """Use ``get_batch`` as it is: it has no epochs."""
    return lambda: (data.get_batch("train") for _ in range(200))


def nanogpt_pieces(data: Any, shuffle: bool) -> Pass:
    """Use pieces, each token once an epoch."""
    tokens = numpy.memmap(data.folder / "train.bin", numpy.uint16, "r")
    loader = DataLoader(TokenDataset(tokens, BLOCK), BLOCKS_A_BATCH, shuffle=True, drop_last=True, output="torch")
    return lambda: endless(loader)


def nanogpt_windows(data: Any, shuffle: bool) -> Pass:
    """Use windows at any offset, as ``get_batch`` has them, but each once an epoch."""
    tokens = numpy.memmap(data.folder / "train.bin", numpy.uint16, "r")
    windows = WindowDataset(tokens, BLOCK, 1, label_len=BLOCK - 1)
    loader = DataLoader(windows, BLOCKS_A_BATCH, shuffle=True, drop_last=True, dtype="int64", output="torch")
    return lambda: endless(loader)


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Go from epoch to epoch, as a loop over steps does."""
    while True:
        yield from loader


def check_draws(row: Row, data: Any) -> int:
    """Compare draws of both sides with the stream: shapes, types, neighbours, and labels one token later."""
    for side in (row.script, row.loom):
        for number, (_, batch) in enumerate(zip(range(20), side(data, True)(), strict=False)):
            x, y = fields(batch).values()
            follows = torch.equal(y, (x + 1) % VOCABULARY) and torch.equal(x[:, 1:], y[:, :-1])
            if not (follows and x.dtype == y.dtype == torch.int64 and x.shape == y.shape == (BLOCKS_A_BATCH, BLOCK)):
                raise SystemExit(f"row {row.name}, batch {number}: no pieces of the stream")
    return 40


# ---- build-nanogpt: shards in order ----------------------------------------------------------------------------------

SHARD, SHARDS, MICRO_BATCH = 10_000_000, 2, 64


def prepare_build(folder: Path, scale: float) -> Any:
    """Write shards, to a folder that the script looks for in its own; load ``DataLoaderLite``."""
    file = need_checkout(BUILD.checkout) / BUILD.file
    shards = folder / "edu_fineweb10B"
    shards.mkdir(exist_ok=True)
    length = max(round(SHARD * scale), 3 * MICRO_BATCH * BLOCK)
    for shard in range(SHARDS):
        numpy.save(shards / f"train_{shard}.npy", (count_up(length) + 7 * shard).astype(numpy.uint16))
    here = SimpleNamespace(
        listdir=lambda name: os.listdir(folder / name),
        path=SimpleNamespace(join=lambda *parts: os.path.join(folder, *parts)),
    )
    space = {"np": numpy, "torch": torch, "os": here, "master_process": False}
    lite = take(file, ["load_tokens", "DataLoaderLite"], space)["DataLoaderLite"]
    batches = SHARDS * ((length - 1) // (MICRO_BATCH * BLOCK))
    return SimpleNamespace(shards=sorted(shards.iterdir()), lite=lite, batches=batches)


def build(data: Any, shuffle: bool) -> Pass:
    """Use ``DataLoaderLite`` as it is; a pass is all shards, and its last step loads the first one."""
    loader = data.lite(B=MICRO_BATCH, T=BLOCK, process_rank=0, num_processes=1, split="train")
    return lambda: (loader.next_batch() for _ in range(data.batches))


def build_loom(data: Any, shuffle: bool) -> Pass:
    """Map the shards, and read one after the other."""
    shards = [TokenDataset(numpy.load(shard, mmap_mode="r"), BLOCK) for shard in data.shards]
    loaders = [DataLoader(shard, MICRO_BATCH, drop_last=True, output="torch") for shard in shards]
    return lambda: (batch for loader in loaders for batch in loader)


# ---- word_language_model: truncated backpropagation through time -----------------------------------------------------

STREAMS, STEPS, WORDS = 20, 35, 2_088_628  # the words of wikitext-2


def prepare_bptt(folder: Path, scale: float) -> Any:
    """Make the tensor of ``Corpus``; load ``batchify`` and ``get_batch``."""
    file = need_checkout(BPTT.checkout) / BPTT.file
    space = {"device": torch.device("cpu"), "args": SimpleNamespace(bptt=STEPS)}
    found = take(file, ["batchify", "get_batch"], space)
    words = torch.from_numpy(count_up(max(round(WORDS * scale), 4000), 33_278))
    return SimpleNamespace(words=words, batchify=found["batchify"], get_batch=found["get_batch"])


def bptt(data: Any, shuffle: bool) -> Pass:
    """Use ``batchify`` and the loop of ``train`` over ``get_batch``."""
    source = data.batchify(data.words, STREAMS)
    return lambda: (data.get_batch(source, i) for i in range(0, source.size(0) - 1, STEPS))


def bptt_steps(data: Any, shuffle: bool) -> Pass:
    """Use windows over the batchified tokens: a sample is a step of all rows, a batch is ``bptt`` steps."""
    steps = WindowDataset(data.batchify(data.words, STREAMS).view(-1), STREAMS, STREAMS, stride=STREAMS)
    loader = DataLoader(steps, STEPS)
    return lambda: ((inputs, targets.view(-1)) for inputs, targets in loader)


def bptt_rows(data: Any, shuffle: bool) -> Pass:
    """Use rows of a stream, for a model with ``batch_first=True`` and a loss over ``output.mT``."""
    loader = DataLoader(TokenDataset(data.words, STEPS, mode="continuous"), STREAMS)
    return lambda: loader


def check_stream(row: Row, data: Any) -> int:
    """Compare a pass with the stream: rows go on from batch to batch, labels are one token later, no token repeats."""
    number, before, seen = 0, None, 0
    for number, (x, y) in enumerate(row.loom(data, False)(), 1):
        follows = torch.equal(y, (x + 1) % 33_278) and (before is None or torch.equal(x[:, 0], before))
        if not (follows and x.dtype == y.dtype == torch.int64 and x.shape == (STREAMS, STEPS)):
            raise SystemExit(f"row {row.name}, batch {number}: no pieces of the stream")
        before, seen = y[:, -1], seen + x.numel()
    if not len(data.words) - STREAMS * (STEPS + 1) <= seen < len(data.words):
        raise SystemExit(f"row {row.name}: {seen} of {len(data.words)} tokens came")
    return number


# ---- minGPT: characters at any offset --------------------------------------------------------------------------------

CHARACTERS_IN_TEXT, CONTEXT, CHARACTERS_A_BATCH = 1_115_394, 128, 216


def prepare_characters(folder: Path, scale: float) -> Any:
    """Write a text of the size of tinyshakespeare; load ``CharDataset``."""
    file = need_checkout(CHARACTERS.checkout) / CHARACTERS.file
    letters = numpy.frombuffer(b" abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:!?-'\n&$3", numpy.uint8)
    length = max(round(CHARACTERS_IN_TEXT * scale), 1000)
    path = folder / "input.txt"
    path.write_bytes(letters[numpy.random.default_rng(0).integers(0, len(letters), length)].tobytes())
    space = {"torch": torch, "Dataset": Dataset, "fsspec": fsspec, "DataConfig": object, "print": lambda *_: None}
    found = take(file, ["CharDataset"], space)["CharDataset"]
    return SimpleNamespace(path=path, dataset=found)


def characters(data: Any, shuffle: bool) -> Pass:
    """Use ``CharDataset`` in torch's loader, with no worker processes."""
    config = SimpleNamespace(path=str(data.path), block_size=CONTEXT, truncate=1.0)
    loader = TorchLoader(data.dataset(config), batch_size=CHARACTERS_A_BATCH, shuffle=shuffle)
    return lambda: loader


def characters_loom(data: Any, shuffle: bool) -> Pass:
    """Number the characters once, and cut windows of these numbers."""
    text = numpy.frombuffer(data.path.read_bytes(), numpy.uint8)
    numbers = numpy.zeros(256, numpy.uint8)
    used = numpy.flatnonzero(numpy.bincount(text, minlength=256))
    numbers[used] = numpy.arange(len(used))
    windows = WindowDataset(numbers[text], CONTEXT, 1, label_len=CONTEXT - 1)
    loader = DataLoader(windows, CHARACTERS_A_BATCH, shuffle=shuffle, dtype="int64", output="torch")
    return lambda: loader


def check_first(row: Row, data: Any) -> int:
    """Compare the first batches in order: all of them are many."""
    pairs = zip(row.script(data, False)(), row.loom(data, False)(), strict=True)
    for number, (theirs, ours) in zip(range(1, 101), pairs, strict=False):
        expect_equal(row.name, number, theirs, ours)
    return number


ROWS = (
    Row(
        "01", "tokens at any offset", NANOGPT, prepare_nanogpt, nanogpt, nanogpt_windows, check_draws, changed="21 / 14"
    ),
    Row("01", "tokens in pieces", NANOGPT, prepare_nanogpt, nanogpt, nanogpt_pieces, check_draws, "pieces"),
    Row("02", "shards of tokens", BUILD, prepare_build, build, build_loom, same_in_order, changed="50 / 23"),
    Row("10", "truncated backpropagation", BPTT, prepare_bptt, bptt, bptt_rows, check_stream, changed="47 / 14"),
    Row("10", "the same, time first", BPTT, prepare_bptt, bptt, bptt_steps, same_in_order, "time first"),
    Row(
        "15",
        "windows of text",
        CHARACTERS,
        prepare_characters,
        characters,
        characters_loom,
        check_first,
        changed="21 / 5",
    ),
)
