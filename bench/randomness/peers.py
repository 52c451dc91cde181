"""Make batches of samples of any length as batchloom and its peers do, at settings from most random to least padded.

Promises:

- Each maker is a function of a setting that returns the batches of some epochs, as lists of samples.
- ``transformers`` is asked itself. Noise on lengths (AllenNLP's ``padding_noise``) and buckets of lengths (tf.data's
  ``bucket_by_sequence_length``) are a few lines each and are made by hand here, from their documentation.
- Batches of a budget hold as many samples as fit, padding counted, for everyone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import batchloom
import numpy
from numpy.typing import NDArray

Lengths = NDArray[numpy.int64]
Batch = Sequence[int]
Maker = Callable[[Any, numpy.random.Generator], list[Batch]]

BATCH, BUDGET = 64, 16_384
LENGTHS: dict[str, Callable[[numpy.random.Generator, int], Any]] = {
    "exponential": lambda random, samples: random.exponential(100, samples),
    "lognormal": lambda random, samples: random.lognormal(5, 0.8, samples),
    "uniform": lambda random, samples: random.uniform(1, 512, samples),
}
# Settings: the share of the samples in a pool; the noise on a length, as its share; the number of buckets.
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0)
NOISES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5)
BUCKETS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 48, 64)


def lengths_of(kind: str, samples: int) -> Lengths:
    """Return the lengths of a set, the same in every run."""
    drawn = LENGTHS[kind](numpy.random.default_rng(0), samples)
    return numpy.clip(drawn, 1, 4000).astype(numpy.int64)


def by_count(order: Iterable[int], lengths: Lengths) -> list[Batch]:
    """Cut an order into equal numbers of samples."""
    listed = list(order)
    return [listed[start : start + BATCH] for start in range(0, len(listed), BATCH)]


def by_budget(order: Iterable[int], lengths: Lengths) -> list[Batch]:
    """Cut an order into as many samples as fit, padding counted."""
    batches: list[list[int]] = []
    longest = BUDGET + 1
    for sample in order:
        longest = max(longest, int(lengths[sample]))
        if longest * (len(batches[-1]) + 1 if batches else 1) > BUDGET:
            batches.append([])
            longest = int(lengths[sample])
        batches[-1].append(int(sample))
    return batches


CUTS = {"LengthBuckets": by_count, "TokenBudget": by_budget}


def rule_of(rule: str, share: float | None, samples: int) -> Any:
    """Return the rule with a pool of this share of the samples; ``None`` for the default."""
    if rule == "LengthBuckets":
        pool = None if share is None else "all" if share == 1 else max(round(share * samples / BATCH), 2)
        return batchloom.LengthBuckets(BATCH, pool=pool)
    return batchloom.TokenBudget(
        BUDGET, pool=None if share is None else "all" if share == 1 else round(share * samples)
    )


def noise(lengths: Lengths, rule: str) -> Maker:
    """Sort by lengths that random noise changes by a share of themselves."""

    def make(setting: float, random: numpy.random.Generator) -> list[Batch]:
        noisy = lengths * (1 + setting * random.uniform(-1, 1, len(lengths)))
        return CUTS[rule](numpy.argsort(-noisy, kind="stable").tolist(), lengths)

    return make


def mega_batches(lengths: Lengths, rule: str) -> Maker:
    """Sort runs of a random order, by the function of transformers."""
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices

    known = lengths.tolist()

    def make(setting: float, random: numpy.random.Generator) -> list[Batch]:
        generator = torch.Generator().manual_seed(int(random.integers(2**31)))
        batches = max(round(setting * len(known) / BATCH), 2)
        order = get_length_grouped_indices(known, BATCH, mega_batch_mult=batches, generator=generator)
        return CUTS[rule](order, lengths)

    return make


def buckets(lengths: Lengths, rule: str) -> Maker:
    """Collect a random order in buckets of lengths, each of which gives a batch when it is full."""

    def make(setting: int, random: numpy.random.Generator) -> list[Batch]:
        ends = numpy.quantile(lengths, numpy.arange(1, setting + 1) / setting, method="higher")
        batches: list[Batch] = []
        for bucket in numpy.unique(numpy.searchsorted(ends, lengths)):
            members = random.permutation(numpy.flatnonzero(numpy.searchsorted(ends, lengths) == bucket)).tolist()
            size = BATCH if rule == "LengthBuckets" else max(BUDGET // int(lengths[members].max()), 1)
            batches += [members[start : start + size] for start in range(0, len(members), size)]
        return batches

    return make


NOISE, MEGA, TF_BUCKETS = "noise on lengths", "mega-batches (transformers)", "buckets of lengths (tf.data)"
PEERS: dict[str, tuple[Callable[[Lengths, str], Maker], Sequence[Any]]] = {
    NOISE: (noise, NOISES),
    MEGA: (mega_batches, SHARES),
    TF_BUCKETS: (buckets, BUCKETS),
}


def padding(batches: list[Batch], lengths: Lengths) -> float:
    """Return the share of padding."""
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - int(lengths.sum()) / padded


def mates_kept(batches: list[Batch], others: list[Batch]) -> float:
    """Return the share of pairs that share a batch in both epochs, of those that do in the first."""
    batch_of = numpy.empty(sum(map(len, others)), numpy.int64)
    for place, batch in enumerate(others):
        batch_of[batch] = place
    pairs = kept = 0
    for batch in batches:
        counts = numpy.unique(batch_of[batch], return_counts=True)[1]
        kept += int((counts * (counts - 1) // 2).sum())
        pairs += len(batch) * (len(batch) - 1) // 2
    return kept / max(pairs, 1)
