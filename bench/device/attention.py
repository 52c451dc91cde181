"""Train a small transformer on documents of any length: padded batches beside packs, by two kinds of attention.

The same documents go through the same blocks in three ways: padded batches of similar length under a mask, packs
through FlexAttention with a block mask made from ``segment_ids``, and packs through attention of variable lengths,
which takes ``cu_seqlens``.

Promises:

- Before anything is timed, the output at every token of one batch was compared with attention over each document alone.
- A pass takes all documents, forward and backward, masks included, in bfloat16. batchloom's batches are made during
  the pass, from documents that lie on the device.
- Without a GPU there is no attention of variable lengths, and FlexAttention runs without a compiler, forward alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import batchloom
import numpy
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import pad, scaled_dot_product_attention

from bench.device.place import Found, Place, spread
from bench.harness.claims import Claim
from bench.harness.measure import Candidate, Timing
from bench.harness.report import print_disturbed, print_not_measured, table

PADDED, FLEX, VARLEN = "padded, masked attention", "packs, FlexAttention", "packs, variable lengths"
DOCUMENTS, MEAN, LONGEST, TOKENS = 2000, 600.0, 8192, 32_768
CPU_DOCUMENTS, CPU_TOKENS, CPU_LONGEST = 24, 512, 128
HEADS, HEAD, LAYERS, ROUNDS = 16, 64, 4, 3
CPU_HEADS, CPU_LAYERS = 2, 1
TOLERANCE = {torch.bfloat16: 3e-2, torch.float32: 1e-4}

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Batch = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """The sizes of documents, batches and the model."""

    documents: int
    longest: int
    tokens: int
    heads: int
    layers: int
    dtype: torch.dtype

    @classmethod
    def of(cls, place: Place) -> Sizes:
        """Return the sizes for a device."""
        if place.is_gpu:
            return cls(DOCUMENTS, LONGEST, TOKENS, HEADS, LAYERS, torch.bfloat16)
        return cls(CPU_DOCUMENTS, CPU_LONGEST, CPU_TOKENS, CPU_HEADS, CPU_LAYERS, torch.float32)


class Block(nn.Module):
    """Attention and a linear layer, each added to its input. Tokens come in rows of any number."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, hidden = heads, heads * HEAD
        self.into, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.norm, self.feed = nn.LayerNorm(hidden), nn.Linear(hidden, hidden)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """Return tokens ``[..., tokens, hidden]`` that have attended."""
        query, key, value = self.into(self.norm(x)).unflatten(-1, (3, self.heads, HEAD)).unbind(-3)
        x = x + self.out(attend(query, key, value).flatten(-2))
        return x + torch.nn.functional.gelu(self.feed(x))


class Model(nn.Module):
    """Blocks over embedded tokens."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.embed = nn.Embedding(1024, sizes.heads * HEAD)
        self.blocks = nn.ModuleList(Block(sizes.heads) for _ in range(sizes.layers))

    def forward(self, tokens: Tensor, attend: Attend) -> Tensor:
        """Return the hidden state of each token."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, attend)
        return x


class Ways:
    """Ways to bring a batch through the model; each returns the hidden states of the real tokens, in order."""

    def __init__(self, place: Place, model: Model, most: int) -> None:
        self.model, self.place, self.most = model, place, most
        self.flex = torch.compile(flex_attention) if place.is_gpu else flex_attention
        self.mask = torch.compile(create_block_mask) if place.is_gpu else create_block_mask

    def padded(self, batch: Batch) -> Tensor:
        """Use padded batches."""
        real = batch["attention_mask"]
        mask = real[:, None, None]

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            heads = (each.transpose(1, 2) for each in (query, key, value))
            return scaled_dot_product_attention(*heads, attn_mask=mask).transpose(1, 2)

        return self.model(batch["tokens"], attend)[real]

    def packed(self, batch: Batch) -> Tensor:
        """Use packs through FlexAttention, padded to one length, for which it is compiled once."""
        count = len(batch["tokens"])
        tokens = pad(batch["tokens"], (0, self.most - count))
        segments = pad(batch["segment_ids"], (0, self.most - count))

        def same(_: Tensor, __: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return segments[query] == segments[key]

        mask = self.mask(same, None, None, self.most, self.most, device=str(self.place.device))

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            heads = (each.transpose(0, 1)[None] for each in (query, key, value))
            return self.flex(*heads, block_mask=mask)[0].transpose(0, 1)

        return self.model(tokens, attend)[:count]

    def variable(self, batch: Batch) -> Tensor:
        """Use packs through attention that takes the borders of documents."""
        from torch.nn.attention.varlen import varlen_attn

        borders, longest = batch["cu_seqlens"], batch["max_seqlen"]

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return varlen_attn(query, key, value, borders, borders, longest, longest)

        return self.model(batch["tokens"], attend)

    def alone(self, batch: Batch) -> Tensor:
        """Use one attention for each document of a pack: slow and obvious."""
        borders = batch["cu_seqlens"].tolist()

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            parts = [
                scaled_dot_product_attention(*(each[start:end].transpose(0, 1) for each in (query, key, value)))
                for start, end in pairwise(borders)
            ]
            return torch.cat(parts, 1).transpose(0, 1)

        return self.model(batch["tokens"], attend)


def measure_attention(place: Place) -> Found:
    """Measure all ways; return their record for the JSON."""
    sizes = Sizes.of(place)
    torch.manual_seed(0)
    model, dataset = Model(sizes).to(place.device, sizes.dtype), documents(place, sizes)
    ways, real = Ways(place, model, sizes.tokens), int(sum(dataset.sizes))
    packs = loader(place, dataset, batchloom.Packing(sizes.tokens, pool=sizes.documents))
    forms = {PADDED: ways.padded, FLEX: ways.packed}
    if place.is_gpu:
        forms[VARLEN] = ways.variable
    compared, not_measured = compare(ways, forms, packs, sizes)
    padded = loader(place, dataset, batchloom.TokenBudget(sizes.tokens, pool=sizes.documents))
    loaders = {name: padded if name == PADDED else packs for name in compared}
    candidates = [candidate(place, model, name, forms[name], loaders[name]) for name in compared]
    timings = place.interleave("attention", candidates, ROUNDS)
    print_not_measured(not_measured)
    body = {**report(sizes, real, timings, loaders, compared), "not_measured": not_measured}
    return Found(body, claims(timings), ratios(timings))


def documents(place: Place, sizes: Sizes) -> batchloom.SequenceDataset:
    """Draw documents of lognormal length."""
    draw = numpy.random.default_rng(0)
    most = sizes.longest
    lengths = numpy.clip(draw.lognormal(numpy.log(MEAN * most / LONGEST), 1.0, sizes.documents), 1, most).astype(int)
    tokens = torch.from_numpy(draw.integers(1024, size=int(lengths.sum())))
    return batchloom.SequenceDataset(tokens=(tokens, numpy.concatenate([[0], lengths.cumsum()])))


def loader(place: Place, dataset: batchloom.SequenceDataset, rule: Any) -> batchloom.DataLoader:
    """Return batches on the device, the same in every epoch."""
    moved = {"device": place.device} if place.is_gpu else {}
    return batchloom.DataLoader(dataset, batching=rule, resident=True, **moved)


def compare(
    ways: Ways, forms: dict[str, Any], packs: Iterable[Batch], sizes: Sizes
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the deviation of each way from documents alone, and why a way does not run here.

    Raises:
        AssertionError: A deviation is larger than rounding.
    """
    found, not_measured = {}, {}
    with torch.no_grad():
        pack = next(iter(packs))
        expected = ways.alone(pack).float()
        for name, form in forms.items():
            batch = as_padded(pack) if name == PADDED else pack
            try:
                outputs = form(batch).float()
            except (ImportError, RuntimeError, TypeError) as error:
                if name == PADDED:
                    raise
                not_measured[name] = f"{type(error).__name__}: {error}"[:500]
                continue
            found[name] = ((outputs - expected).norm() / expected.norm()).item()
            assert found[name] <= TOLERANCE[sizes.dtype], f"{name}: {found[name]:.2g} away from documents alone"
    return found, not_measured


def as_padded(pack: Batch) -> Batch:
    """Pad the documents of a pack."""
    parts = pack["tokens"].split(pack["cu_seqlens"].diff().tolist())
    tokens = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    lengths = torch.tensor([len(part) for part in parts], device=tokens.device)
    return {"tokens": tokens, "attention_mask": torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]}


def candidate(place: Place, model: Model, name: str, form: Callable[[Batch], Tensor], batches: Any) -> Candidate:
    """Make a way ready to be timed, after one pass that warms it up and compiles."""

    def run() -> None:
        batches.set_epoch(0)
        for batch in batches:
            if not place.is_gpu:
                with torch.no_grad():
                    form(batch)
                continue
            model.zero_grad(set_to_none=True)
            form(batch).float().square().mean().backward()

    place.seconds(run)
    return Candidate(name, lambda: place.seconds(run), slow=True)


def claims(timings: dict[str, Timing]) -> list[Claim]:
    """Return the number to reach: packs are faster than padding."""
    packed = [timing for name, timing in timings.items() if name != PADDED]
    if not packed:
        return []
    fastest = min(packed, key=lambda timing: timing.median)
    text = f"attention: time of {PADDED}, times that of {fastest.name}"
    return [Claim.of_ratio(text, timings[PADDED], fastest, ">=", 1.0)]


def ratios(timings: dict[str, Timing]) -> dict[str, float]:
    """Return the time of padding over the time of each other way."""
    return {
        f"attention: time of {PADDED}, times that of {name}": timings[PADDED].ratio(timing)
        for name, timing in timings.items()
        if name != PADDED
    }


def report(
    sizes: Sizes, real: int, timings: dict[str, Timing], loaders: dict[str, Any], compared: dict[str, float]
) -> dict[str, Any]:
    """Print the measurements; return them for the JSON."""
    padding = {name: each.plan(0).stats()["padding"] for name, each in loaders.items()}
    rows = [
        (name, f"{each.median:.4f}", f"{real / each.median / 1e6:.2f}", f"{padding[name]:.1%}", f"{compared[name]:.1g}")
        for name, each in timings.items()
    ]
    heads = ("way", "median s", "M tokens/s", "padding", "deviation")
    table(f"{sizes.documents} documents, {real} tokens, {sizes.layers} blocks", heads, rows)
    print_disturbed("attention", timings)
    return {
        "documents": sizes.documents,
        "tokens": real,
        "max_tokens": sizes.tokens,
        "deviations": compared,
        "padding": padding,
        "candidates": [
            {**each.record({"padded": timings[PADDED]}), "spread": spread(each)} for each in timings.values()
        ],
    }
