"""What batchloom claims for streams of tokens, measured beside the loops that people write.

    python -m bench tokens [--only epoch] [--rounds 5] [--scale 0.02] [--output FILE]

100 million uint16 tokens in a memory map, pieces of 1024, batches of 8, handed over as int64 tensors of torch: inputs,
and labels one token later. Loop body ``pass``. Promises:

- Before anything is timed, every candidate ran on a small corpus whose tokens are all different: who sells an epoch
  delivered each of them once, labels one token after inputs; documents came whole.
- Slow peers make the first batches of an epoch only; their time is scaled to all (``measured_batches`` says so).
- nanoGPT's ``get_batch`` opens the map for each batch, as published (else its resident memory grows); the same with a
  map that is opened once stands beside it. It draws with replacement: its epoch is as many batches, not each token.
- The file was written just before: all of it lies in the system's cache, and so it does for everybody.
- The copy is torch's, on all its threads, of an eighth of the bytes that an epoch of batches has, times eight.
- ``planning``: the time from ``iter()`` to the first batch, and by how much a process of its own grows meanwhile, for
  up to 100 million documents of an imaginary corpus (one token again and again, 10 billion times, in the memory of one,
  so that no reading is in the time). What the offsets take is there before. What an epoch without an order of documents
  takes as well, blocks of batches and threads, is taken off where a figure is for each document.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import batchloom
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

from bench.harness.claims import Claim
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.measure import COPY, LOOM, Candidate, Timing, interleave
from bench.harness.processes import elsewhere, peak, reset_peak
from bench.harness.record import write
from bench.harness.report import report, table

TOKENS, SEQ_LEN, BATCH, DOCUMENTS = 100_000_000, 1024, 8, 200_000
PART, COPY_PART = 1 / 8, 8
CHECKED_TOKENS, CHECKED_SEQ_LEN, CHECKED_DOCUMENTS = 60_000, 16, 700
PLANNED, PLANNED_TOKENS = (1_000_000, 10_000_000, 100_000_000), 10**10
MEBIBYTE = 2**20

Epoch = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Corpus:
    """Tokens in a file, and where documents begin in them."""

    path: Path
    seq_len: int
    documents: numpy.ndarray

    @classmethod
    def make(cls, path: Path, tokens: numpy.ndarray, seq_len: int, documents: int) -> Corpus:
        """Write tokens as nanoGPT does; divide them in so many documents at random."""
        tokens.tofile(path)
        cuts = numpy.sort(numpy.random.default_rng(1).integers(0, len(tokens) + 1, documents - 1))
        return cls(path, seq_len, numpy.concatenate([[0], cuts, [len(tokens)]]))

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return -(-self.pieces // BATCH)

    @property
    def pieces(self) -> int:
        """Pieces with a label for each token."""
        return (int(self.documents[-1]) - 1) // self.seq_len

    def map(self) -> numpy.ndarray:
        """Map the file."""
        return numpy.memmap(self.path, numpy.uint16, "r")


def loom(corpus: Corpus, shuffle: bool | str, documents: bool = False) -> Epoch:
    """Use batchloom with its defaults."""
    offsets = corpus.documents if documents else None
    dataset = batchloom.TokenDataset(corpus.map(), corpus.seq_len, documents=offsets)
    loader = batchloom.DataLoader(dataset, BATCH, shuffle=shuffle, output="torch")
    return lambda: loader


class Chunks(Dataset):
    """Pieces as a map-style dataset, as everybody writes it."""

    def __init__(self, corpus: Corpus) -> None:
        self._tokens, self._seq_len, self._pieces = corpus.map(), corpus.seq_len, corpus.pieces

    def __len__(self) -> int:
        return self._pieces

    def __getitem__(self, piece: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = piece * self._seq_len
        chunk = torch.from_numpy(self._tokens[start : start + self._seq_len + 1].astype(numpy.int64))
        return chunk[:-1], chunk[1:]


def torch_loader(corpus: Corpus) -> Epoch:
    """Use torch's ``DataLoader`` with its default collation."""
    loader = DataLoader(Chunks(corpus), batch_size=BATCH, shuffle=True)
    return lambda: loader


def get_batch(corpus: Corpus, reopen: bool) -> Epoch:
    """Use nanoGPT's function (train.py): random offsets, a tensor for each row, stacked."""
    data, block_size = corpus.map(), corpus.seq_len

    def draw() -> tuple[torch.Tensor, torch.Tensor]:
        tokens = corpus.map() if reopen else data
        ix = torch.randint(len(tokens) - block_size, (BATCH,))
        x = torch.stack([torch.from_numpy((tokens[i : i + block_size]).astype(numpy.int64)) for i in ix])
        y = torch.stack([torch.from_numpy((tokens[i + 1 : i + 1 + block_size]).astype(numpy.int64)) for i in ix])
        return x, y

    return lambda: (draw() for _ in range(corpus.batches))


def by_hand(corpus: Corpus) -> Epoch:
    """Pick from a strided view of the map."""
    tokens = corpus.map()
    return lambda: picked(tokens, corpus)


def by_hand_with_documents(corpus: Corpus) -> Epoch:
    """Make the stream of each epoch in memory, document after document, and pick from that."""
    tokens, ends = corpus.map(), corpus.documents.tolist()

    def epoch() -> Iterator[Any]:
        order = torch.randperm(len(ends) - 1).tolist()
        yield from picked(numpy.concatenate([tokens[ends[k] : ends[k + 1]] for k in order]), corpus)

    return epoch


def picked(tokens: numpy.ndarray, corpus: Corpus) -> Iterator[Any]:
    """Pick pieces at random and cast them once; inputs and labels are views of one array."""
    pieces = numpy.lib.stride_tricks.sliding_window_view(tokens, corpus.seq_len + 1)[:: corpus.seq_len]
    order = torch.randperm(corpus.pieces).numpy()
    for start in range(0, len(order), BATCH):
        batch = torch.from_numpy(pieces[order[start : start + BATCH]].astype(numpy.int64))
        yield batch[:, :-1], batch[:, 1:]


def by_hand_in_order(corpus: Corpus) -> Epoch:
    """Cast one stretch of the map for each batch; inputs and labels are views of it."""
    tokens, seq_len = corpus.map(), corpus.seq_len

    def epoch() -> Iterator[Any]:
        for piece in range(0, corpus.pieces, BATCH):
            start, end = piece * seq_len, min(piece + BATCH, corpus.pieces) * seq_len
            stretch = torch.from_numpy(tokens[start : end + 1].astype(numpy.int64))
            yield stretch[:-1].view(-1, seq_len), stretch[1:].view(-1, seq_len)

    return epoch


@dataclass(frozen=True)
class Way:
    """A way to make batches.

    Attributes:
        name: What the tables call it.
        epoch: Makes an epoch of a corpus.
        part: The part of an epoch that is measured.
        against: The candidate that its time is compared with.
        bound: How many times the seconds of that one it has to take at least.
        once: Whether it delivers each token once.
    """

    name: str
    epoch: Callable[[Corpus], Epoch]
    part: float = 1
    against: str | None = None
    bound: float | None = None
    once: bool = True


IN_ORDER, DIVIDED = "batchloom, in order", "batchloom, documents and pieces"
WAYS = (
    Way(LOOM, partial(loom, shuffle=True)),
    Way('batchloom, "chunks"', partial(loom, shuffle="chunks")),
    Way(DIVIDED, partial(loom, shuffle=True, documents=True)),
    Way("batchloom, documents alone", partial(loom, shuffle="documents", documents=True)),
    Way(IN_ORDER, partial(loom, shuffle=False)),
    Way("torch DataLoader", torch_loader, PART, LOOM, 8),
    Way("nanoGPT's get_batch", partial(get_batch, reopen=True), PART, LOOM, 14, once=False),
    Way("nanoGPT's get_batch, mapped once", partial(get_batch, reopen=False), PART, LOOM, once=False),
    Way("NumPy by hand", by_hand, 1, LOOM, 1),
    Way("NumPy by hand, in order", by_hand_in_order, 1, IN_ORDER),
    Way("NumPy by hand, documents and pieces", by_hand_with_documents, 1, DIVIDED),
)


def check(folder: Path) -> int:
    """Run every way on a small corpus whose tokens are their own places; return how many batches were compared.

    Raises:
        SystemExit: One does not deliver what it has to.
    """
    tokens = numpy.arange(CHECKED_TOKENS, dtype=numpy.uint16)
    corpus = Corpus.make(folder / "checked.bin", tokens, CHECKED_SEQ_LEN, CHECKED_DOCUMENTS)
    checked = 0
    for way in WAYS:
        batches = [(x.clone(), y.clone()) for x, y in way.epoch(corpus)()]
        x, y = (torch.cat(fields) for fields in zip(*batches, strict=True))
        # Labels follow inputs in the stream: the next token, or, where a document ends, the first of another.
        begins = numpy.isin(y.numpy(), corpus.documents[:-1])
        follows = (y == x + 1).numpy() | (begins & ("documents" in way.name))
        shifted = torch.equal(x[:, 1:], y[:, :-1])
        whole = not way.once or (len(x.unique()) == x.numel() == corpus.pieces * corpus.seq_len)
        typed = x.dtype == y.dtype == torch.int64 and x.shape == (corpus.pieces, corpus.seq_len)
        if not way.once:
            typed = x.dtype == y.dtype == torch.int64 and x.shape == (corpus.batches * BATCH, corpus.seq_len)
        if not (follows.all() and shifted and whole and typed):
            raise SystemExit(f"{way.name} does not deliver the stream")
        checked += len(batches)
    return checked


def candidate(way: Way, corpus: Corpus) -> Candidate:
    """Make a way ready for its part of an epoch."""
    epoch = way.epoch(corpus)
    batches = max(round(corpus.batches * way.part), 1)

    def run() -> float:
        start = time.perf_counter()
        for _ in itertools.islice(epoch(), batches):
            pass
        return (time.perf_counter() - start) * corpus.batches / batches

    facts = {"batches": corpus.batches, "measured_batches": batches, "each_token_once": way.once}
    return Candidate(way.name, run, facts, slow=way.part < 1)


def copying(corpus: Corpus) -> Candidate:
    """Copy as many bytes as an epoch of inputs and labels has, a part again and again."""
    size = corpus.pieces * corpus.seq_len * 2 * 8
    source = torch.ones(size // COPY_PART // 8, dtype=torch.int64)
    target = source.clone()

    def run() -> None:
        for _ in range(COPY_PART):
            target.copy_(source)

    return Candidate(COPY, run, {"bytes": size})


def measure_epoch(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure epochs of every way in the same rounds."""
    checked = check(folder)
    print(f"compared with the stream: {checked} batches of {len(WAYS)} ways")
    length, documents = round(TOKENS * scale), max(round(DOCUMENTS * scale), 2)
    drawn = numpy.random.default_rng(0).integers(0, 50_257, length, dtype=numpy.uint16)
    corpus = Corpus.make(folder / "train.bin", drawn, SEQ_LEN, documents)
    del drawn
    candidates = [copying(corpus), *(candidate(way, corpus) for way in WAYS)]
    timings = interleave("epoch", candidates, rounds)
    claims = [claim(way, timings) for way in WAYS if way.bound is not None]
    pairs = [(timing, timings[way.against]) for way in WAYS if way.against for timing in [timings[way.name]]]
    return {
        "name": "epoch",
        "tokens": length,
        "documents": documents,
        "seq_len": SEQ_LEN,
        "batch_size": BATCH,
        "checked_batches": checked,
        **report("epoch", timings, claims, {"batches measured": "measured_batches"}),
        "faster_than_batchloom": [timing.name for timing, ours in pairs if timing.ratio(ours) < 1],
    }


def claim(way: Way, timings: dict[str, Timing]) -> Claim:
    """One number to reach: how many times batchloom's time a peer takes; of a loop by hand, batchloom its time."""
    peer, ours = timings[way.name], timings[way.against]
    if way.bound == 1:
        return Claim.of_ratio(f"time of {ours.name}, times that of {way.name}", ours, peer, "<=", 1)
    return Claim.of_ratio(f"time of {way.name}, times that of {ours.name}", peer, ours, ">=", way.bound)


def measure_planning(folder: Path, rounds: int, scale: float) -> dict[str, Any]:
    """Measure the start of an epoch for more and more documents, each number in a process of its own."""
    counts = [max(round(documents * scale), 1000) for documents in PLANNED]
    cases = [elsewhere(first_batch, documents, rounds) for documents in counts]
    heads = (
        "documents",
        "dataset s",
        "loader s",
        "first batch s",
        "without s",
        "ns each",
        "MiB",
        "without MiB",
        "bytes each",
    )
    rows = [
        (
            f"{case['documents']:,}",
            f"{case['dataset_seconds']:.3f}",
            f"{case['loader_seconds']:.3f}",
            f"{case['first_batch_seconds']:.4f}",
            f"{case['without_seconds']:.4f}",
            f"{case['nanoseconds_a_document']:.1f}",
            f"{case['grown_mebibytes']:.1f}",
            f"{case['without_mebibytes']:.1f}",
            f"{case['bytes_a_document']:.2f}",
        )
        for case in cases
    ]
    table("planning: from iter() to the first batch, documents and pieces shuffled; without: pieces alone", heads, rows)
    less, more = cases[0], cases[-1]
    factor = more["documents"] / less["documents"]
    names = {"seconds": "first_batch_seconds", "mebibytes": "grown_mebibytes"}
    growth = {name: more[key] / max(less[key], 1e-9) for name, key in names.items()}
    said = f"{growth['seconds']:.1f} times the time, {growth['mebibytes']:.1f} times the memory"
    print(f"{factor:g} times as many documents: {said}")
    return {"name": "planning", "cases": cases, "growth": {"documents": factor, **growth}, "claims": []}


def first_batch(documents: int, rounds: int) -> dict[str, Any]:
    """Return what it takes to begin an epoch of so many documents: seconds, and memory beside the offsets."""
    offsets = numpy.zeros(documents + 1, numpy.int64)
    lengths = numpy.random.default_rng(0).integers(0, 2 * PLANNED_TOKENS // documents, documents, numpy.int64)
    numpy.cumsum(lengths, out=offsets[1:])
    del lengths
    tokens = numpy.broadcast_to(numpy.uint16(7), (int(offsets[-1]),))
    begun = time.perf_counter()
    dataset = batchloom.TokenDataset(tokens, SEQ_LEN, documents=offsets)
    made = time.perf_counter()
    loader = batchloom.DataLoader(dataset, BATCH, shuffle=True, output="torch")
    ready = time.perf_counter()
    without = batchloom.DataLoader(dataset, BATCH, shuffle="chunks", output="torch")
    start(without)  # what the first start of all takes is neither's
    (seconds, grown), (alone, grown_alone) = (starts(each, rounds) for each in (loader, without))
    return {
        "documents": documents,
        "tokens": len(tokens),
        "offset_mebibytes": offsets.nbytes / MEBIBYTE,
        "dataset_seconds": made - begun,
        "loader_seconds": ready - made,
        "first_batch_seconds": seconds,
        "without_seconds": alone,
        "nanoseconds_a_document": (seconds - alone) / documents * 1e9,
        "grown_mebibytes": grown,
        "without_mebibytes": grown_alone,
        "bytes_a_document": (grown - grown_alone) * MEBIBYTE / documents,
    }


def starts(loader: batchloom.DataLoader, rounds: int) -> tuple[float, float]:
    """Return the median seconds to the first batch, and by how many MiB the first start made this process grow."""
    before = reset_peak()
    first = start(loader)
    grown = (peak() - before) / MEBIBYTE
    return median([first, *(start(loader) for _ in range(rounds - 1))]), grown


def start(loader: batchloom.DataLoader) -> float:
    """Return the seconds to the first batch of an epoch, which is then left."""
    begun = time.perf_counter()
    batches = iter(loader)
    next(batches)
    return time.perf_counter() - begun


PARTS = {"epoch": measure_epoch, "planning": measure_planning}


def main() -> None:
    """Run the script."""
    chosen = arguments(__doc__, PARTS)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        cases = [part(Path(folder), chosen.rounds, chosen.scale) for part in wanted(chosen, PARTS).values()]
    write("tokens", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
