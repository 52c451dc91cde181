"""Ask batchloom and each peer for an epoch of pieces of a stream of tokens.

Promises:

- A peer is a function from a corpus to a maker of epochs; all read the same memory map and hand over int64.
- ``check`` lets no peer pass whose labels are not the next tokens, or that loses or repeats one, where it promises an
  epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import batchloom
import numpy
import torch
from torch.utils.data import DataLoader, Dataset

from bench.harness.measure import LOOM

SEQ_LEN, BATCH = 1024, 8
# Slow peers make this part of an epoch.
PART = 1 / 8
CHECKED_TOKENS, CHECKED_SEQ_LEN, CHECKED_DOCUMENTS = 60_000, 16, 700

Epoch = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Corpus:
    """Tokens in a file, and the first token of each document."""

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
        """Return the number of batches of an epoch."""
        return -(-self.pieces // BATCH)

    @property
    def pieces(self) -> int:
        """Return the number of pieces with a label for each token."""
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
    """Pieces as a map-style dataset, as it is usually written."""

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
        name: Its name in the tables.
        epoch: Makes an epoch of a corpus.
        part: The part of an epoch that is measured.
        against: The candidate that its time is compared with.
        bound: The least ratio of its seconds to those of that candidate.
        once: True where it delivers each token once.
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
    """Run every way on a small corpus whose tokens are their own places; return the number of compared batches.

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
