"""Batches of pieces of a stream of tokens, gathered from passages of documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import batchloom._native as _native
import torch
from batchloom.batch import IGNORED
from batchloom.device.collate.gather import ResidentRows, padded, split, to_int64
from batchloom.device.collate.rows import Outline, samples, split_marks, table


class Tokens:
    """Gathers the passages of pieces.

    Args:
        tokens: Fetches the tokens.
        seq_len: Tokens of a piece.
        separator: The token between documents, or ``None``.
        extras: The names of the fields after inputs and labels, in order.
    """

    def __init__(
        self, tokens: Callable[[], ResidentRows], seq_len: int, separator: int | None, extras: Sequence[str]
    ) -> None:
        self._tokens, self._seq_len, self._separator, self._extras = tokens, seq_len, separator, extras

    def inputs(self, block: _native.Block) -> tuple[list[_native.Tensor], Any]:
        """Return the index table of a block: the passages of each piece."""
        return table(block)

    def make(self, arrived: list[torch.Tensor], outline: Outline) -> list[Sequence[Any]]:
        """Gather inputs, labels and extras, and cut them into batches."""
        rows, elements, counts, places, documents, begins = arrived[0]
        total = sum(batches * prod(space) for batches, _, space, _ in outline.runs)
        owners = torch.repeat_interleave(counts, output_size=total)
        steps = torch.arange(total, dtype=owners.dtype, device=owners.device) - elements.index_select(0, owners)
        rows = rows.index_select(0, owners)
        exists = None if self._separator is None else rows >= 0
        rows = rows + steps
        found = [self._read(rows, exists, 0), self._read(rows, exists, 1)]
        if outline.marked:
            found[1].masked_fill_((arrived[-1] < 0).view(-1, 1), IGNORED)
        extras = {
            "position_ids": lambda: (places.index_select(0, owners) + steps).to(torch.int64),
            "segment_ids": lambda: documents.index_select(0, owners).to(torch.int32),
            "resets": lambda: (begins.index_select(0, owners) > 0) & (steps == 0),
        }
        found += [self._piece(extras[name](), 0) for name in self._extras]
        sizes = samples(outline.runs)
        fields: list[Sequence[Any]] = [split(field.contiguous(), sizes) for field in found]
        return fields + split_marks(arrived, outline)

    def _piece(self, numbers: torch.Tensor, ahead: int) -> torch.Tensor:
        """Return the numbers of inputs (``ahead`` is 0) or of labels (``ahead`` is 1)."""
        return numbers.view(-1, self._seq_len + 1)[:, ahead : ahead + self._seq_len]

    def _read(self, rows: torch.Tensor, exists: torch.Tensor | None, ahead: int) -> torch.Tensor:
        rows = self._piece(rows, ahead).flatten()
        exists = None if exists is None else self._piece(exists, ahead).flatten()
        found = to_int64(padded(self._tokens(), rows, exists))
        if exists is not None and self._separator is not None:
            found = found.masked_fill_(exists.logical_not(), self._separator)
        return found.view(-1, self._seq_len)
