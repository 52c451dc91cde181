"""Hold the model of the published experiment on documents of any length, and its documents.

Promises:

- ``Model`` is the published function: an embedding, ``depth`` blocks without residuals and activations (query, key
  and value projections without bias, single-head attention over the whole document, an output projection, a linear
  layer with bias, a normalisation over the last dimension), and a head of two values on the first token. Weights
  are random, of a size that keeps values of order one from block to block, so that float16 holds them.
- All forms of batches run the same code. Only attention knows where one token stands to another: it is called for
  each ``Group``, documents of one length side by side. A padded batch is one group, padded batches joined are
  several, a packed one is a group for each document, or one of rows in which documents follow each other.
- A document's two values do not depend on the form, but for rounding: ``Model.tolerance``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

EPSILON = 1e-5
# In a block a value is rounded when it leaves each of five linear layers, both products of the attention, the softmax
# and the two steps of the normalisation.
ROUNDINGS = 10
# Tolerated deviations in standard deviations of a random walk of roundings. On the CPU, 70 blocks in float16 had their
# largest deviation at 1.6 of them, 4 and 70 blocks in float32 at 0.3 and 1.5; the documents were few.
DEVIATIONS = 5


@dataclass(frozen=True)
class Group:
    """Rows of one length among the tokens of a batch, that attend together.

    Attributes:
        start: The group's first token.
        rows: The number of its rows.
        length: The length of each row.
        bias: The addend to the score of each pair of tokens in a row: minus infinity where they must not meet.
    """

    start: int
    rows: int
    length: int
    bias: Tensor

    def of(self, x: Tensor) -> Tensor:
        """Return this group's part of all tokens' values, ``[rows, length, hidden]``: a view."""
        return x[self.start : self.start + self.rows * self.length].view(self.rows, self.length, -1)


@dataclass(frozen=True)
class Block:
    """The weights of one block: four projections without bias, and a linear layer with one."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor, groups: Sequence[Group]) -> Tensor:
        """Apply the block to the values of all tokens, ``[tokens, hidden]``."""
        met = attend(linear(x, self.query), linear(x, self.key), linear(x, self.value), groups)
        x = linear(linear(met, self.output), self.weight, self.bias)
        deviation, mean = torch.std_mean(x, -1, keepdim=True)
        return (x - mean) / (deviation + EPSILON)


def attend(query: Tensor, key: Tensor, value: Tensor, groups: Sequence[Group]) -> Tensor:
    """Let the tokens of each group meet: softmax(Q K^T / sqrt(hidden) + bias) V."""
    met = torch.empty_like(value)
    for group in groups:
        scores = torch.baddbmm(group.bias, group.of(query), group.of(key).mT, alpha=query.shape[-1] ** -0.5)
        torch.bmm(scores.softmax(-1), group.of(value), out=group.of(met))
    return met


class Model:
    """Random weights on a device."""

    def __init__(
        self, hidden: int, depth: int, vocabulary: int, device: torch.device, dtype: torch.dtype, seed: int = 0
    ) -> None:
        generator = torch.Generator(device).manual_seed(seed)

        def normal(*shape: int, scale: float = hidden**-0.5) -> Tensor:
            return torch.randn(shape, generator=generator, device=device, dtype=dtype).mul_(scale)

        self.hidden, self.depth, self.vocabulary = hidden, depth, vocabulary
        self.device, self.dtype = device, dtype
        self._embedding = normal(vocabulary, hidden, scale=1.0)
        self._blocks = [Block(*(normal(hidden, hidden) for _ in range(5)), normal(hidden)) for _ in range(depth)]
        self._head = normal(2, hidden)

    def __str__(self) -> str:
        """Name its size, its form of numbers and the device."""
        return "{hidden} x {depth}, {dtype}, {device}".format(**self.facts)

    @property
    def facts(self) -> dict[str, Any]:
        """Return the JSON's record of it."""
        device = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else str(self.device)
        sizes = {"hidden": self.hidden, "depth": self.depth, "vocabulary": self.vocabulary}
        return {**sizes, "dtype": str(self.dtype).removeprefix("torch."), "device": device}

    @property
    def tolerance(self) -> float:
        """Return the largest deviation by rounding of a document's two values from one form of batch to another.

        Independent roundings add up as a random walk, and values are of order one. Products of float16 are summed in
        float32, so only what is stored is rounded; sums of float32 round at each of their ``hidden`` additions.
        """
        additions = self.hidden if self.dtype == torch.float32 else 1
        return DEVIATIONS * torch.finfo(self.dtype).eps * math.sqrt(ROUNDINGS * self.depth * additions)

    def padded(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return ``[n, 2]`` for tokens ``[n, L]``; ``mask`` is true where a token is real."""
        return self.joined([tokens], [mask])

    @torch.inference_mode()
    def joined(self, tokens: Sequence[Tensor], masks: Sequence[Tensor]) -> Tensor:
        """Return ``[n, 2]`` for padded batches that go through the model together."""
        starts = accumulate((part.numel() for part in tokens[:-1]), initial=0)
        groups = [
            Group(start, len(mask), mask.shape[1], self._bias(~mask.to(self.device)[:, None]))
            for start, mask in zip(starts, masks, strict=True)
        ]
        first = [torch.arange(group.rows) * group.length + group.start for group in groups]
        return self._logits(torch.cat([part.flatten() for part in tokens]), groups, torch.cat(first))

    @torch.inference_mode()
    def packed(self, tokens: Tensor, boundaries: Tensor) -> Tensor:
        """Return ``[n, 2]`` for documents one after the other; attention is called for each of them."""
        nothing = torch.zeros(1, 1, 1, dtype=self.dtype, device=self.device)
        starts, lengths = boundaries[:-1].tolist(), boundaries.diff().tolist()
        groups = [Group(start, 1, length, nothing) for start, length in zip(starts, lengths, strict=True)]
        return self._logits(tokens, groups, boundaries[:-1])

    @torch.inference_mode()
    def packed_rows(self, tokens: Sequence[Tensor], segments: Sequence[Tensor]) -> Tensor:
        """Return ``[n, 2]`` for rows of documents one after the other; attention is masked between documents.

        ``segments`` has tensors ``[rows, length]``, each of a length of its own. They number the documents of a row
        from 0, and are -1 where a row is padded.
        """
        starts = accumulate((part.numel() for part in tokens[:-1]), initial=0)
        groups, first = [], []
        for start, part in zip(starts, segments, strict=True):
            begins = part.diff(dim=1, prepend=torch.full_like(part[:, :1], -1)) > 0
            first.append(begins.flatten().nonzero().flatten() + start)
            there = part.to(self.device)
            groups.append(Group(start, *part.shape, self._bias(there[:, :, None] != there[:, None])))
        return self._logits(torch.cat([part.flatten() for part in tokens]), groups, torch.cat(first))

    def _bias(self, apart: Tensor) -> Tensor:
        """Return the addend to scores: minus infinity where tokens are to be kept apart."""
        return torch.zeros(apart.shape, dtype=self.dtype, device=self.device).masked_fill_(apart, -math.inf)

    def _logits(self, tokens: Tensor, groups: Sequence[Group], first: Tensor) -> Tensor:
        """Return the two values of the documents with these first tokens."""
        x = embedding(tokens.to(self.device), self._embedding)
        for block in self._blocks:
            x = block(x, groups)
        return linear(x[first.to(self.device)], self._head)


def random_documents(count: int, scale: float, vocabulary: int, seed: int) -> list[Tensor]:
    """Draw documents whose lengths are exponential, made integers, zeros made one; tokens are random."""
    draw = numpy.random.default_rng(seed)
    lengths = numpy.maximum(draw.exponential(scale, count).astype(numpy.int64), 1)
    return [torch.from_numpy(draw.integers(vocabulary, size=length)) for length in lengths]
