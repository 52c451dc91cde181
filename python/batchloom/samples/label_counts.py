"""The numbers of labels that losses do not ignore, so that every rank knows the divisor of a step's loss."""

from __future__ import annotations

from typing import Any

import batchloom._native as _native
from batchloom.arguments import U32, integer
from batchloom.samples.sizes import Sizes, check_sizes, read_sizes


class LabelCounts:
    """The labels of each sample that are not -100; made by ``dataset.count_labels()``, or from numbers of your own.

    Args:
        counts: One number for each sample; or one for each piece of each sample, in order.
        piece: The elements of a piece, for a rule that truncates or splits samples; ``None`` if each number counts
            a whole sample.

    Attributes:
        counts: The numbers, as uint32.
        piece: The elements of a piece, or ``None``.
    """

    __slots__ = ("counts", "piece")

    counts: Sizes
    piece: int | None

    def __init__(self, counts: Any, piece: int | None = None) -> None:
        self.counts = check_sizes(counts, "label_counts")
        self.piece = None if piece is None else integer("piece", piece, least=1, most=U32)

    def __len__(self) -> int:
        """Return how many numbers there are."""
        return len(self.counts)

    def __repr__(self) -> str:
        pieces = "samples" if self.piece is None else f"pieces of {self.piece} elements"
        return f"LabelCounts({int(self.counts.sum())} labels in {len(self)} {pieces})"


def as_label_counts(given: Any) -> LabelCounts | None:
    """Return the argument ``label_counts``: counts, numbers of samples, or ``None``."""
    return given if given is None or isinstance(given, LabelCounts) else LabelCounts(given)


def read_counts(counts: _native.Tensor, piece: int | None) -> LabelCounts:
    """Return counts of the engine."""
    return LabelCounts(read_sizes(counts), piece)


def engine_counts(counts: LabelCounts | None) -> tuple[_native.Tensor, int | None] | None:
    """Return counts as the engine takes them."""
    return None if counts is None else (_native.borrow(counts.counts, "label_counts"), counts.piece)
