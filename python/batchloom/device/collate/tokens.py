"""Batches of pieces of a stream of tokens, gathered from passages of documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from math import prod
from typing import Any

import batchloom._native as _native
import torch
from batchloom.collate.schema import IGNORED
from batchloom.device.collate.gather import ResidentRows, gather_padded, split, to_int64
from batchloom.device.collate.rows import Outline, Runs, samples, split_marks, table

# The rows that index tables have for what is no stored token.
SEPARATOR, PADDING = -1, -2

# The values of places after the end of a piece, where they are not 0.
PADDED = {"labels": IGNORED}


class Tokens:
    """Gathers the passages of pieces.

    Args:
        tokens: Fetches the tokens.
        separator: The token between documents, or ``None``.
        extras: The names of the fields after inputs and labels, in order.
        marks: The marks that batches hold.
        pads: ``True`` if pieces may be padded.
    """

    def __init__(
        self,
        tokens: Callable[[], ResidentRows],
        separator: int | None,
        extras: Sequence[str],
        marks: Sequence[str],
        *,
        pads: bool,
    ) -> None:
        self._tokens, self._separator, self._pads = tokens, separator, pads
        self._extras, self._marks = extras, marks

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
        tokens = self._read(rows, steps)
        numbers: dict[str, Callable[[], torch.Tensor]] = {
            "input_ids": lambda: tokens,
            "labels": lambda: tokens,
            "position_ids": lambda: (places.index_select(0, owners) + steps).to(torch.int64),
            "segment_ids": lambda: (documents + 1).index_select(0, owners).to(torch.int32),
            "resets": lambda: (begins.index_select(0, owners) > 0) & (steps == 0),
        }
        padding = rows == PADDING if self._pads else None
        groups = [list(group) for _, group in groupby(outline.runs, key=_length)]
        fields: list[Sequence[Any]] = []
        for name in ("input_ids", "labels", *self._extras):
            pieces = _pieces(numbers[name](), groups, ahead=int(name == "labels"))
            if padding is not None:
                ends = _pieces(padding, groups, ahead=1)
                pieces = [piece.masked_fill(end, PADDED.get(name, 0)) for piece, end in zip(pieces, ends, strict=True)]
            if name == "labels" and outline.marked:
                fillers = split(arrived[-1] < 0, [len(piece) for piece in pieces])
                pieces = [
                    piece.masked_fill(filler.view(-1, 1), IGNORED)
                    for piece, filler in zip(pieces, fillers, strict=True)
                ]
            batches = (split(piece.contiguous(), samples(of)) for piece, of in zip(pieces, groups, strict=True))
            fields.append([batch for several in batches for batch in several])
        return fields + split_marks(arrived, outline, self._marks)

    def _read(self, rows: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Return the token of each place, the separator between documents, and 0 for padding."""
        exists = None if self._separator is None and not self._pads else rows >= 0
        tokens = to_int64(gather_padded(self._tokens(), rows + steps, exists))
        return tokens if self._separator is None else tokens.masked_fill_(rows == SEPARATOR, self._separator)


def _length(run: Any) -> int:
    """Return the places of a piece of a run, the last label's among them."""
    _, _, space, _ = run
    length: int = space[-1]
    return length


def _pieces(numbers: torch.Tensor, groups: list[Runs], ahead: int) -> list[torch.Tensor]:
    """Return the numbers of inputs (``ahead`` is 0) or labels (``ahead`` is 1), ``[pieces, length]`` for each group.

    Runs of one length that follow each other are a group: the operations are as many however many runs there are.
    """
    places = split(numbers, [sum(batches * prod(space) for batches, _, space, _ in runs) for runs in groups])
    lengths = [_length(runs[0]) for runs in groups]
    return [part.view(-1, length)[:, ahead : ahead + length - 1] for part, length in zip(places, lengths, strict=True)]
