"""Rows of one shape, beside packs that differ in length and a loader that cuts documents off to fill rows.

Documents have lengths like those of FineWeb: lognormal, about 700 tokens in the mean, a few of tens of thousands; rows
of 2048 tokens, 8 in a batch, shuffled, loop body ``pass``. Promises:

- The packs of today hold as many tokens as a batch of rows, of the same documents.
- The peer is the algorithm of nanochat's loader in our words: a buffer of documents, from which a row takes the longest
  that fits until none does, and then the first tokens of the shortest. The rest of that document is lost. It finds
  documents by a scan of its buffer, and makes tokens, and labels one token on. Documents are lists of numbers, as
  tokenizers return them and as theirs are; and once more arrays, with their lengths in a list beside them.
- What is lost and how full rows are is counted in the batches themselves, before anything is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import batchloom as bl
import numpy
import torch

from bench.harness.claims import Claim, all_slower
from bench.harness.command import LEAST_ROUNDS
from bench.harness.measure import LOOM, Candidate, exhaust, interleave
from bench.harness.report import report

DOCUMENTS, TOKENS, ROWS, BUFFER = 20_000, 2048, 8, 1000
MEAN_LOG, SPREAD, LONGEST = 5.95, 1.1, 200_000
PACKS, RESTS = "batchloom, packs of as many tokens", "batchloom, rests continued"
CROPPED, CROPPED_ARRAYS = "nanochat's algorithm", "nanochat's algorithm, arrays"
CLAIMS = {CROPPED: 20.0}
MOST_TO_PACKS, MOST_LOST = 1.05, 0.005

Array = numpy.ndarray[Any, Any]


def draw_documents(count: int) -> tuple[Array, Array]:
    """Return tokens, and the offsets of documents."""
    random = numpy.random.default_rng(0)
    lengths = random.lognormal(MEAN_LOG, SPREAD, count).astype(numpy.int64).clip(16, LONGEST)
    offsets = numpy.concatenate([[0], lengths.cumsum()])
    return random.integers(1, 50_000, offsets[-1]).astype(numpy.int32), offsets


def loom(tokens: Array, offsets: Array, rule: bl.Packing, **options: Any) -> bl.DataLoader[Any]:
    """Return a loader of batchloom."""
    dataset = bl.SequenceDataset(ids=(torch.from_numpy(tokens), torch.from_numpy(offsets)))
    return bl.DataLoader(dataset, batching=rule, shuffle=True, labels="ids", **options)


def first_epoch(loader: Any) -> Iterable[Any]:
    """Return the batches of the first epoch."""
    loader.set_epoch(0)
    return loader


def crop_documents(documents: Sequence[Any], as_tensor: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Make rows by best fit, each filled up with the beginning of a document that is then lost."""
    left = iter(documents)
    buffer: list[Any] = []
    lengths: list[int] = []
    rows = torch.empty(ROWS, TOKENS + 1, dtype=torch.int64)
    while True:
        for row in range(ROWS):
            place = 0
            while place <= TOKENS:
                for document in islice(left, BUFFER - len(buffer)):
                    buffer.append(document)
                    lengths.append(len(document))
                if len(buffer) < BUFFER:
                    return
                free, best, longest = TOKENS + 1 - place, -1, 0
                for number, length in enumerate(lengths):
                    if longest < length <= free:
                        best, longest = number, length
                if best < 0:
                    best, longest = lengths.index(min(lengths)), free
                lengths.pop(best)
                rows[row, place : place + longest] = as_tensor(buffer.pop(best)[:longest])
                place += longest
        yield rows[:, :-1].clone(), rows[:, 1:].clone()


def count_rows(batches: Iterable[Any]) -> dict[str, int]:
    """Return the numbers of tokens, of places and of labels in batches, and of their shapes."""
    found = {"tokens": 0, "places": 0, "labels": 0}
    shapes = set()
    for batch in batches:
        shapes.add(tuple(tuple(value.shape) for value in batch.values() if torch.is_tensor(value)))
        found["tokens"] += int((batch["segment_ids"] > 0).sum())
        found["places"] += batch["ids"].numel()
        found["labels"] += int((batch["labels"] >= 0).sum())
    return found | {"shapes": len(shapes)}


def measure_rows(rounds: int = LEAST_ROUNDS, scale: float = 1.0) -> dict[str, Any]:
    """Measure an epoch of rows.

    Raises:
        AssertionError: Rows are not full, or more than half a percent of the tokens are lost.
    """
    tokens, offsets = draw_documents(max(round(DOCUMENTS * scale), 4 * BUFFER))
    total, order = len(tokens), numpy.random.default_rng(1).permutation(len(offsets) - 1).tolist()
    arrays = [tokens[offsets[number] : offsets[number + 1]] for number in order]
    numbers = list(range(int(tokens.max()) + 1))  # one object for each token, not for each place
    lists = [[numbers[token] for token in array.tolist()] for array in arrays]
    peers = {
        CROPPED: lambda: crop_documents(lists, torch.tensor),
        CROPPED_ARRAYS: lambda: crop_documents(arrays, torch.from_numpy),
    }
    whole = loom(tokens, offsets, bl.Packing(TOKENS, rows=ROWS, oversize="split"))
    full = loom(tokens, offsets, bl.Packing(TOKENS, rows=ROWS, rests="continue"), drop_last=True)
    packs = loom(tokens, offsets, bl.Packing(TOKENS * ROWS, oversize="split"))
    counted = {LOOM: count_rows(whole), RESTS: count_rows(full)}
    lost = {name: 1 - found["tokens"] / total for name, found in counted.items()}
    assert counted[RESTS]["tokens"] == counted[RESTS]["places"], "rows with rests are not full"
    assert lost[RESTS] <= MOST_LOST, f"{lost[RESTS]:.2%} of the tokens are lost"
    assert {found["shapes"] for found in counted.values()} == {1}
    delivered = sum(inputs.numel() for inputs, _ in peers[CROPPED]())
    # What the peer still holds when its documents end is not lost: a run goes on with more documents.
    seen = (len(order) - BUFFER) / len(order) * total
    facts = {
        "documents": len(order),
        "tokens": total,
        "fill": {name: found["tokens"] / found["places"] for name, found in counted.items()},
        "lost": lost | {CROPPED: 1 - delivered / seen},
        "labels": {name: found["labels"] for name, found in counted.items()},
    }
    candidates = [
        Candidate(LOOM, lambda: exhaust(first_epoch(whole))),
        Candidate(RESTS, lambda: exhaust(first_epoch(full))),
        Candidate(PACKS, lambda: exhaust(first_epoch(packs))),
        *(Candidate(name, partial(_exhaust, epoch), slow=True) for name, epoch in peers.items()),
    ]
    timings = interleave("rows", candidates, rounds)
    claims = all_slower("rows", timings, CLAIMS)
    for name in (LOOM, RESTS):
        text = f"rows: time of {name}, times that of packs"
        claims.append(Claim.of_ratio(text, timings[name], timings[PACKS], "<=", MOST_TO_PACKS))
    return {**facts, **report("rows", timings, claims, {}, bar=("packs", PACKS))}


def _exhaust(epoch: Callable[[], Iterable[Any]]) -> None:
    exhaust(epoch())
