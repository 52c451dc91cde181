"""Block masks for FlexAttention: batches that hold them, beside masks that torch makes of a function.

Promises:

- Before anything is timed, the masks of 10 000 random packs were compared with masks of ``create_block_mask``: every
  array, bit by bit, and ``to_dense()``. Kinds, windows, prefixes and sizes of blocks are drawn; packs lie in one row or
  in rows of one shape, and some documents are empty.
- Everything runs on one core: batchloom, which is timed for the whole batch with its tokens, and torch.
- ``torch, compiled`` is ``torch.compile(create_block_mask)``, compiled before the clock starts. Its function looks up
  the documents of two tokens, as examples of FlexAttention do. ``torch`` is the same, not compiled: it makes all pairs
  of tokens, and is left out where these exceed the memory.
- ``from_kv_blocks`` wraps the arrays of batchloom without those for the way back, and makes these itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import batchloom as bl
import numpy
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from bench.harness.claims import Claim, slower
from bench.harness.measure import LOOM, Candidate, Timing, exhaust, interleave, progress
from bench.harness.report import report

FORWARD, PLAIN = "batchloom, backward=False", "batchloom without a mask"
EAGER, COMPILED, WRAPPED = "torch", "torch, compiled", "from_kv_blocks"
PACKS, BATCHES, COMPARED = 20, 20, 10_000
# Pairs of tokens that fit the memory of a small machine as torch makes them.
MOST_PAIRS = 16_384**2
PARTS = (
    *("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"),
    *("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"),
)


@dataclass(frozen=True)
class Case:
    """Packs of documents.

    Attributes:
        title: What they are.
        tokens: The most tokens of a pack.
        mean: The mean length of a document, lognormal as texts of the web are; ``None`` for one document a pack.
        bound: The seconds that a batch with its mask may take, if that is claimed.
        beside_torch: ``True`` to time torch's masks too: its time depends on the number of tokens alone.
    """

    title: str
    tokens: int
    mean: int | None
    bound: float | None = None
    beside_torch: bool = True


CASES = (
    Case("packs of 131 072 tokens, documents of 1024 on average", 131_072, 1024, 1e-3),
    Case("packs of 131 072 tokens, one document", 131_072, None, 1e-3, beside_torch=False),
    Case("packs of 8192 tokens, documents of 1024 on average", 8192, 1024),
)


def measure_masks(rounds: int, scale: float) -> dict[str, Any]:
    """Compare and time; return the record."""
    compared = compare(max(int(COMPARED * scale), 20))
    with one_core():
        cases = [measure(case, rounds) for case in CASES if scale >= 1 or case.tokens <= 8192]
    return {"compared_packs": compared, "cases": cases}


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and the threads that it starts, on one core."""
    cores, threads = os.sched_getaffinity(0), torch.get_num_threads()
    os.sched_setaffinity(0, {min(cores)})
    torch.set_num_threads(1)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(threads)


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Time batches of one case, and masks of torch for the same packs."""
    dataset = documents_of(case)
    loaders = {
        LOOM: loader_of(dataset, case, "causal"),
        FORWARD: loader_of(dataset, case, bl.DocumentMask(backward=False)),
        PLAIN: loader_of(dataset, case, None),
    }
    batch = next(iter(loaders[LOOM]))
    torch_masks = {}
    if case.beside_torch:
        torch_masks[COMPILED] = torch.compile(create_block_mask, dynamic=False)
        if case.tokens**2 <= MOST_PAIRS:
            torch_masks[EAGER] = create_block_mask
    candidates = [Candidate(name, partial(epoch, loader)) for name, loader in loaders.items()]
    candidates.append(Candidate(WRAPPED, partial(wrap, batch["block_mask"])))
    for name, make in torch_masks.items():
        ids = batch["segment_ids"].long()
        expected = make_mask(make, ids)
        assert same(bl.as_block_mask(batch), expected), name
        run = partial(discard, make_mask, make, ids)
        candidates.append(Candidate(name, run, slow=case.tokens**2 > MOST_PAIRS))
    timings = interleave(case.title, candidates, rounds)
    bar = ("no mask", PLAIN)
    facts = {"tokens": case.tokens, "blocks": int(batch["block_mask"]["kv_indices"].shape[-1])}
    return {"name": case.title, **facts, **report(case.title, timings, claims(case, timings), {}, bar=bar)}


def claims(case: Case, timings: dict[str, Timing]) -> list[Claim]:
    """Return the numbers to reach."""
    made = []
    if COMPILED in timings:
        made.append(slower(case.title, timings[COMPILED], timings[LOOM], 10))
    if case.bound is not None:
        for name in (FORWARD, LOOM):
            text = f"{case.title}: milliseconds of a batch, {name}"
            made.append(Claim(text, timings[name].median * 1e3, "<=", case.bound * 1e3))
    return made


def documents_of(case: Case) -> bl.SequenceDataset:
    """Return documents for the packs of an epoch."""
    rng = numpy.random.default_rng(0)
    if case.mean is None:
        lengths = numpy.full(PACKS, case.tokens)
    else:
        drawn = rng.lognormal(numpy.log(case.mean) - 0.5, 1.0, PACKS * case.tokens // case.mean * 2)
        lengths = drawn.astype(numpy.int64).clip(1, case.tokens)
        lengths = lengths[: int(numpy.searchsorted(lengths.cumsum(), PACKS * case.tokens))]
    offsets = numpy.concatenate([[0], lengths.cumsum()])
    return bl.SequenceDataset(ids=(numpy.zeros(offsets[-1], numpy.int32), offsets))


def loader_of(dataset: bl.SequenceDataset, case: Case, mask: Any) -> bl.DataLoader[Any]:
    """Return a loader of packs."""
    return bl.DataLoader(
        dataset,
        batching=bl.Packing(case.tokens),
        shuffle=True,
        block_mask=mask,
        extras=("segment_ids",),
        num_threads=1,
        output="torch",
    )


def epoch(loader: bl.DataLoader[Any]) -> float:
    """Return the seconds that a batch of an epoch takes."""
    start = time.perf_counter()
    exhaust(loader)
    return (time.perf_counter() - start) / len(loader)


def wrap(entry: dict[str, Any]) -> None:
    """Make a mask of the arrays of batchloom, and those for the way back in torch."""
    tokens = entry["first"].shape[-1]
    BlockMask.from_kv_blocks(*(entry[part] for part in PARTS[:4]), seq_lengths=(tokens, tokens))


def discard(make: Callable[..., Any], *arguments: Any) -> None:
    """Call a function alone for its time."""
    make(*arguments)


def make_mask(make: Callable[..., BlockMask], segments: torch.Tensor) -> BlockMask:
    """Make the causal mask of documents in torch."""

    def document_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (segments[q_idx] == segments[kv_idx]) & (q_idx >= kv_idx)

    tokens = len(segments)
    return make(document_mask, None, None, tokens, tokens, device="cpu")


def same(mask: BlockMask, expected: BlockMask) -> bool:
    """Tell whether two masks have the same arrays."""
    return all(torch.equal(getattr(mask, part), getattr(expected, part)) for part in PARTS)


def compare(packs: int) -> int:
    """Compare masks of random packs with masks of torch; return the number of packs."""
    rng, done = numpy.random.default_rng(7), 0
    while done < packs:
        tokens, rows = int(rng.integers(60, 400)), rng.choice([None, 16], p=[0.1, 0.9])
        lengths = rng.integers(0, min(tokens, rng.choice([2, 10, 100, 400])) + 1, int(rng.integers(1, 400)))
        lengths[0] = max(lengths[0], 1)
        prompts = rng.integers(0, 200, len(lengths)).astype(numpy.int32)
        offsets = numpy.concatenate([[0], lengths.cumsum()])
        dataset = bl.SequenceDataset(ids=(numpy.zeros(offsets[-1], numpy.int8), offsets), prompt=prompts)
        rule, mask = bl.Packing(tokens, rows=rows), draw_mask(rng)
        loader = bl.DataLoader(dataset, batching=rule, shuffle=True, block_mask=mask, output="torch")
        for batch in loader:
            if not batch["ids"].numel() or done >= packs:
                continue
            own, expected = bl.as_block_mask(batch), define(batch, mask)
            assert same(own, expected), (mask, batch["cu_seqlens"])
            assert torch.equal(own.to_dense(), expected.to_dense())
            done += own.shape[0]
        progress(f"compared {done} of {packs} packs")
    return done


def draw_mask(rng: numpy.random.Generator) -> bl.DocumentMask:
    """Draw the options of a mask."""
    kind = rng.choice(["causal", "full"])
    return bl.DocumentMask(
        "causal" if kind == "causal" else "full",
        window=None if rng.random() < 0.5 else int(rng.integers(0, 200)),
        prefix="prompt" if kind == "causal" and rng.random() < 0.5 else None,
        block_size=int(rng.integers(16, 129)) if rng.random() < 0.5 else int(rng.choice([16, 32, 64, 128])),
    )


def define(batch: dict[str, Any], mask: bl.DocumentMask) -> BlockMask:
    """Return the mask of packs as torch makes it of a definition of all pairs."""
    tokens = batch["ids"].shape[-1]
    segments, places = batch["segment_ids"].reshape(-1, tokens).long(), batch["position_ids"].reshape(-1, tokens)
    prompts = batch["prompt"].reshape(len(segments), -1).long()
    prefixes = prompts.gather(1, (segments - 1).clamp(min=0)) if mask.prefix else torch.zeros_like(segments)

    def sees(b: Any, h: Any, q: Any, k: Any) -> Any:
        near = q == q if mask.window is None else (q - k).abs() <= mask.window
        allowed = near & (q >= k) if mask.kind == "causal" else near
        prefixed = (places[b, q] < prefixes[b, q]) & (places[b, k] < prefixes[b, k])
        return (segments[b, q] == segments[b, k]) & (segments[b, q] > 0) & (allowed | prefixed)

    return create_block_mask(sees, len(segments), None, tokens, tokens, device="cpu", BLOCK_SIZE=mask.block_size)
