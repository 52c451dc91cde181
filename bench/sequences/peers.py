"""Bring the documents of the published experiment to the model by each strategy, the bound among them.

Promises:

- The four published strategies are a few lines by hand, as published; batchloom's are what its users would write.
- Every strategy runs the same model code, and its run includes all work that depends on the documents: sorting,
  batching, collation, results in order.
- batchloom's come in five forms. Two need nothing of the model but a mask: padded batches, chosen by cost, and packs in
  rows under a block-diagonal mask. Three need a model whose linear layers see tokens without rows: packs with one
  attention for each document; packs in rows of two lengths, with one attention for each length; and padded batches
  joined, with one attention for each batch. The joined batches may be as large as the device likes, whatever the
  batching.
- Where a size has to be chosen (packs, batches that are joined, those of the bound), the one that ran fastest is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

import batchloom
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from bench.sequences.model import Model

BATCH = 8
REAL_TOKENS, SPREAD = 21_000, 8
PAD_ALL = "padded to the longest of all, batches of 8"
GIVEN = "in given order, batches of 8"
SORTED = "sorted by length, batches of 8"
LIMITED = "sorted, at most 21 000 tokens, spread 8"
OPTIMAL = "batchloom CostOptimal"
JOINED = "batchloom CostOptimal, batches joined"
PACKED = "batchloom Packing, attention by document"
PACKED_ROWS = "batchloom Packing, block-diagonal"
PACKED_LENGTHS = "batchloom Packing, block-diagonal, rows of two lengths"
BOUND = "bound: no padding at all"
PUBLISHED = (PAD_ALL, GIVEN, SORTED, LIMITED)
LOOM = (OPTIMAL, JOINED, PACKED, PACKED_ROWS, PACKED_LENGTHS)
BOUND_DEFINITION = (
    "As many tokens as the documents have, and as many pairs of tokens that attend to each other, in documents that "
    "all have one length (pairs / tokens, to a multiple of 8): nothing to pad and nothing to sort, in batches of the "
    "size that ran fastest. The documents themselves cannot be brought to the model in pieces so large and so regular."
)
# Rows of packs are a multiple of this. Sizes that are tried are powers of two, in tokens.
ROW_STEP, LEAST_TRIED, TRIALS = 64, 512, 2
# Short rows have one of these shares of the length of long rows. The documents that are too long for a short row leave
# gaps in long rows, which the shortest documents fill: as many as have this share of the tokens of the long documents.
SHORT_ROWS, FILLING = (2 / 7, 3 / 7, 4 / 7), 0.1

Batch = Mapping[str, Any]
Logits = Callable[[Sequence[Batch]], Tensor]


@dataclass(frozen=True)
class Strategy:
    """One way to bring documents to the model.

    Attributes:
        name: Its name in the tables.
        batches: Makes the batches of one run.
        logits: Returns the two values of each document of some batches, which go through the model together.
        together: The tokens that go through the model at once, where batches are joined; else each goes alone.
        facts: Further entries of its record in the JSON.
    """

    name: str
    batches: Callable[[], Iterable[Batch]]
    logits: Logits
    together: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Tensor:
        """Return the two values of each document, on the CPU and in the documents' order."""
        outputs: list[Tensor] = []
        index: list[Tensor] = []
        for batches in self.passes():
            outputs.append(self.logits(batches))
            index.extend(batch["index"] for batch in batches)
        restored: Tensor = batchloom.restore_order(outputs, index)
        return restored.cpu()

    def passes(self) -> Iterator[list[Batch]]:
        """Return the batches of one run, grouped by the passes through the model."""
        waiting: list[Batch] = []
        for batch in self.batches():
            if waiting and sum(tokens_in(each) for each in (*waiting, batch)) > self.together:
                yield waiting
                waiting = []
            waiting.append(batch)
        yield waiting

    def seconds(self) -> float:
        """Return the seconds of one run."""
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def seconds_of_part(self, passes: int, most: int) -> float:
        """Return the seconds of one run, by its first ``most`` passes of ``passes`` that cost the same."""
        start = time.perf_counter()
        outputs = [self.logits(batches) for batches in islice(self.passes(), most)]
        outputs[-1].cpu()
        return (time.perf_counter() - start) * passes / len(outputs)


def tokens_in(batch: Batch) -> int:
    """Return the tokens of a batch that go through the linear layers, padding among them."""
    tokens: Tensor = batch["tokens"]
    return tokens.numel()


@dataclass(frozen=True)
class Experiment:
    """The documents, the model, and the limits of the tokens that go through it at once.

    Attributes:
        documents: The tokens of each document.
        model: The model.
        max_tokens: The most tokens that the memory holds.
        least_tried: The least size that is tried where a size is chosen.
    """

    documents: Sequence[Tensor]
    model: Model
    max_tokens: int
    least_tried: int = LEAST_TRIED

    @property
    def lengths(self) -> list[int]:
        """Return the length of each document."""
        return [len(document) for document in self.documents]

    @property
    def tokens(self) -> int:
        """Return the number of real tokens."""
        return sum(self.lengths)

    @property
    def pairs(self) -> int:
        """Return the number of pairs of tokens that attend to each other."""
        return sum(length**2 for length in self.lengths)

    def padded(self, batches: Sequence[Batch]) -> Tensor:
        """Run the model on padded batches."""
        return self.model.joined(values(batches, "tokens"), values(batches, "attention_mask"))

    def packed(self, batches: Sequence[Batch]) -> Tensor:
        """Run the model on a packed batch, one attention for each document."""
        (batch,) = batches
        return self.model.packed(batch["tokens"], batch["cu_seqlens"])

    def packed_rows(self, batches: Sequence[Batch]) -> Tensor:
        """Run the model on packed batches that are rows, one masked attention for all rows of one length."""
        parts = [list(part) for _, part in groupby(batches, key=tokens_in)]
        return self.model.packed_rows(
            *([torch.stack(values(part, name)) for part in parts] for name in ("tokens", "segment_ids"))
        )

    def parted(self, longest: int) -> tuple[Tensor, Tensor]:
        """Return the numbers of the documents up to a length; and of the longer ones, with short ones between them."""
        lengths, order = torch.tensor(self.lengths).sort(stable=True)
        short = int((lengths <= longest).sum())
        filling = int(torch.searchsorted(lengths[:short].cumsum(0), FILLING * lengths[short:].sum()))
        return order[filling:short], torch.cat([order[:filling], order[short:]])


def values(batches: Sequence[Batch], name: str) -> list[Tensor]:
    """Return one field of some batches."""
    return [batch[name] for batch in batches]


def published(experiment: Experiment) -> list[Strategy]:
    """Return the four published strategies."""
    documents, longest = experiment.documents, max(experiment.lengths)
    given = range(len(documents))
    batches: dict[str, Callable[[], Iterable[Batch]]] = {
        PAD_ALL: lambda: (padded(documents, group, longest) for group in eights(given)),
        GIVEN: lambda: (padded(documents, group) for group in eights(given)),
        SORTED: lambda: (padded(documents, group) for group in eights(shortest_first(documents))),
        LIMITED: lambda: (padded(documents, group) for group in limited(documents, shortest_first(documents))),
    }
    return [Strategy(name, batches[name], experiment.padded) for name in PUBLISHED]


def shortest_first(documents: Sequence[Tensor]) -> list[int]:
    """Return the documents' numbers in ascending order of length."""
    return sorted(range(len(documents)), key=lambda document: len(documents[document]))


def eights(order: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cut into eights, in order."""
    return (order[start : start + BATCH] for start in range(0, len(order), BATCH))


def limited(documents: Sequence[Tensor], order: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cut where the next document would bring too many real tokens, or too much spread."""
    group: list[int] = []
    tokens = 0
    for document in order:
        length = len(documents[document])
        if group and (tokens + length > REAL_TOKENS or length - len(documents[group[0]]) > SPREAD):
            yield group
            group, tokens = [], 0
        group.append(document)
        tokens += length
    yield group


def padded(documents: Sequence[Tensor], group: Sequence[int], length: int | None = None) -> Batch:
    """Pad some documents to the longest of them, or to ``length``."""
    chosen = [documents[document] for document in group]
    lengths = torch.tensor([len(document) for document in chosen])
    tokens = pad_sequence(chosen, batch_first=True)
    if length is not None:
        tokens = pad(tokens, (0, length - tokens.shape[1]))
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]
    return {"tokens": tokens, "attention_mask": mask, "index": torch.tensor(group)}


def loom(
    experiment: Experiment,
    cost: batchloom.CostModel,
    sizes: Mapping[str, int] | None = None,
    names: Sequence[str] = LOOM,
    **options: Any,
) -> list[Strategy]:
    """Return batchloom's strategies.

    Args:
        experiment: The experiment that they run.
        cost: The cost of a padded batch.
        sizes: The tokens at once, by name, of strategies for which they are chosen already.
        names: The strategies to return.
        **options: Options of the loaders.
    """
    dataset = batchloom.SequenceDataset(tokens=experiment.documents)
    row = -(-max(experiment.lengths) // ROW_STEP) * ROW_STEP

    def loader(rule: batchloom.CostOptimal | batchloom.Packing) -> batchloom.DataLoader:
        return batchloom.DataLoader(dataset, batching=rule, **options)

    def optimal() -> Iterable[Batch]:
        return loader(batchloom.CostOptimal(cost, max_tokens=experiment.max_tokens))

    def joined(tokens: int) -> Strategy:
        return Strategy(JOINED, optimal, experiment.padded, together=tokens)

    def packed(tokens: int) -> Strategy:
        return Strategy(PACKED, lambda: loader(batchloom.Packing(tokens)), experiment.packed)

    def packed_rows(tokens: int) -> Strategy:
        packs = batchloom.Packing(row)
        return Strategy(PACKED_ROWS, lambda: rows(loader(packs), row), experiment.packed_rows, together=tokens)

    def packed_lengths(short: int) -> Strategy:
        def batches() -> Iterator[Batch]:
            for length, documents in zip((short, row), experiment.parted(short), strict=True):
                packs = batchloom.DataLoader(dataset.select(documents), batching=batchloom.Packing(length), **options)
                for pack in rows(packs, length):
                    documents = documents.to(pack["index"].device)
                    yield {**pack, "index": documents[pack["index"]]}

        return Strategy(PACKED_LENGTHS, batches, experiment.packed_rows, together=experiment.max_tokens)

    known, tried = sizes or {}, tried_sizes(experiment)
    short_rows = [max(round(row * share / 8), 1) * 8 for share in SHORT_ROWS]
    forms = {
        JOINED: (joined, tried),
        PACKED: (packed, tried),
        PACKED_ROWS: (packed_rows, tried),
        PACKED_LENGTHS: (packed_lengths, short_rows),
    }
    chosen = [
        fastest(form, [known[name]] if name in known else those)
        for name, (form, those) in forms.items()
        if name in names
    ]
    return [Strategy(OPTIMAL, optimal, experiment.padded), *chosen]


def rows(packs: Iterable[Batch], length: int) -> Iterator[Batch]:
    """Pad packs to one length."""
    for pack in packs:
        short = length - tokens_in(pack)
        tokens, segments = pad(pack["tokens"], (0, short)), pad(pack["segment_ids"], (0, short))
        yield {"tokens": tokens, "segment_ids": segments, "index": pack["index"]}


def bound(experiment: Experiment) -> Strategy:
    """Return the run that ``BOUND_DEFINITION`` describes."""
    length = max(round(experiment.pairs / experiment.tokens / 8), 1) * 8
    count = round(experiment.tokens / length)
    tokens = torch.randint(experiment.model.vocabulary, (count, length), generator=torch.Generator().manual_seed(0))
    mask, index = torch.ones_like(tokens, dtype=torch.bool), torch.arange(count)

    def in_batches_of(size: int) -> Strategy:
        parts = zip(*(each.split(max(size // length, 1)) for each in (tokens, mask, index)), strict=True)
        batches = [dict(zip(("tokens", "attention_mask", "index"), part, strict=True)) for part in parts]
        return Strategy(BOUND, lambda: batches, experiment.padded)

    chosen = fastest(in_batches_of, tried_sizes(experiment))
    chosen.facts.update(definition=BOUND_DEFINITION, documents=count, length=length)
    return chosen


def tried_sizes(experiment: Experiment) -> list[int]:
    """Return the powers of two that hold the longest document and that the memory holds."""
    least = (max(experiment.least_tried, *experiment.lengths) - 1).bit_length()
    return [2**power for power in range(least, experiment.max_tokens.bit_length())] or [2**least]


def fastest(strategy_of: Callable[[int], Strategy], sizes: Sequence[int]) -> Strategy:
    """Return the strategy of the size, in tokens, that runs fastest; its facts list the sizes that were tried."""
    seconds = {size: min(strategy_of(size).seconds() for _ in range(TRIALS)) for size in sizes}
    size = min(seconds, key=seconds.__getitem__)
    chosen = strategy_of(size)
    chosen.facts.update(chosen=size, tried_seconds=seconds)
    return chosen
