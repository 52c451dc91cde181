"""Streams of tokens: concatenated documents, in pieces of equal length."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import batchloom._native as _native
import numpy
from batchloom.arguments import answer_unknown_keywords, boolean, choice, integer, read_stream_shuffle
from batchloom.arrays import frames
from batchloom.arrays.chunked import ChunkedArray, borrow_field
from batchloom.arrays.field import BorrowedArray, host
from batchloom.arrays.frameworks import is_arrow
from batchloom.arrays.inputs import is_array, read_plain
from batchloom.collate.schema import IGNORED, Column, Columns, Schema
from batchloom.dataset.array_windows import ArrayWindows, SeriesTable, Span
from batchloom.dataset.base import Dataset, Tuples
from batchloom.dataset.concat import StoredSamples
from batchloom.dataset.location import Location
from batchloom.dataset.on_device import SamplesOnDevice
from batchloom.dataset.samples import Recipe, override
from batchloom.dataset.selection import refuse_unnamed
from batchloom.dataset.variable import variable
from batchloom.dataset.window_shape import WindowShape
from batchloom.device.data import DeviceData
from batchloom.errors import ArgumentError, DataError
from batchloom.samples.sizes import copy_offsets

if TYPE_CHECKING:
    from batchloom.batching.rules import Rule
    from batchloom.collate.schema import CollateOptions
    from batchloom.device.pipeline import Collator
    from batchloom.device.resident import Resident

Array = numpy.ndarray[Any, Any]

# More tokens than any corpus has.
MOST = 2**60

# Tokens that are searched at a time for the one that ends documents.
SEARCHED = 1 << 24


@dataclass(frozen=True)
class TokenStats:
    """Counts of a stream of tokens."""

    tokens: int
    """Tokens of all documents."""
    documents: int
    """Documents."""
    separators: int
    """Tokens that are put between documents."""
    samples: int
    """Pieces of an epoch."""
    inputs: int
    """Tokens and separators that are inputs, each once in an epoch."""
    tail: int
    """Tokens and separators left over.

    With ``tail="drop"``, too few for a full piece with a label for each token; otherwise the last one, without a label.
    """
    padding: int
    """Places without a token, after the ends of rows; beside longer pieces, batches pad short ones further."""


@answer_unknown_keywords
class TokenDataset(Dataset[Tuples]):
    """Documents of tokens as one stream, in pieces of ``seq_len`` tokens with the next token of each as its label.

    The stream is never copied together: documents are borrowed from their arrays, and may come in another order in each
    epoch. Batches are tuples ``(x, y)``, int64, ``[batch, seq_len]``, with ``y`` one token after ``x``, followed by
    ``position_ids``, ``segment_ids`` and ``resets`` on request: their extras (``extras=`` of a loader).

    With ``mode="chunk"``, the stream is sliced in pieces. ``shuffle=`` of the loader chooses the random order:
    ``"documents"`` (among themselves, never inside), ``"chunks"``, or ``True`` for both. Every token is an input
    exactly once an epoch, except a tail too short for a piece, which :meth:`stats` counts. To evaluate over all tokens,
    keep the tail: ``tail="pad"`` or ``"short"``.

    With ``mode="continuous"``, for truncated backpropagation through time, the stream is cut in ``batch_size`` times
    ``world_size`` rows, and row ``r`` of a batch continues row ``r`` of the batch before it, on every rank and after
    every resume (with the same number of ranks). Only documents may be shuffled.

    If tokens are int64, without separators and in stored order, batches are views on them (with ``shuffle="runs"``
    too). Such views are read-only in NumPy, and must not be written in place in torch; ``buffers="own"`` of the loader
    makes batches that own their memory.

    Args:
        tokens: An array of integers, ``[tokens]``, of any width that int64 holds: NumPy, a memory map (such as those of
            nanoGPT), torch, JAX, an Arrow column, or anything else that :class:`batchloom.TensorDataset` takes as an
            array; or a list of documents, or an Arrow column of lists.
        seq_len: Tokens of a piece.
        documents: The offsets of documents in an array of tokens, including the end of the last one
            (``[documents + 1]``); or the token that ends each document; or ``None`` for a single document.
        mode: ``"chunk"`` or ``"continuous"``.
        separator: A token to put between documents, or ``None``.
        position_ids: If ``True``, batches hold the position of each token in its document (int64), counted from the
            start of the piece if the document begins before it.
        segment_ids: If ``True``, batches hold the number of each token's document in the piece (int32), from 1, for
            attention that stays inside documents. A separator belongs to the document before it.
        resets: If ``True``, batches hold a mask of the tokens that begin a document (bool).
        jitter: If ``True``, the first piece begins at another token in each epoch, one of the first ``seq_len``, so
            that tokens come at other places in their pieces and beside others. An epoch then leaves out what lies
            before it too: with the tail, less than two pieces. Batches are no views.

        tail: Treatment of the end of the stream, where too few tokens are left for a piece: with
            ``mode="continuous"``, of the end of each row. ``"drop"`` leaves it out. ``"pad"`` keeps it in a last piece
            of ``seq_len``, and ``"short"`` in a shorter one, so that every token but the first of the stream is a label
            exactly once an epoch. A batch is as long as its longest piece; places after the end of a piece hold inputs
            of 0, labels of -100, positions and segments of 0 and resets of False. Rows of
            ``mode="continuous"`` differ by one token at most, so that ``"short"`` makes the last batch shorter; of
            ``mode="chunk"``, a batch that holds the last piece alone. Neither goes with ``jitter``, and ``"short"``
            neither with ``buffers="static"`` of a loader nor in a mixture or a concatenation.

    Raises:
        ArgumentError: An argument makes no sense.
        DataError: Tokens that are not integers of one dimension; offsets that do not go from 0 to the number of tokens.
        DeviceError: An array that is neither on the CPU nor of torch.
    """

    _samples: TokenSamples

    def __init__(
        self,
        tokens: Any,
        seq_len: int,
        *,
        documents: Any = None,
        mode: str = "chunk",
        separator: int | None = None,
        position_ids: bool = False,
        segment_ids: bool = False,
        resets: bool = False,
        jitter: bool = False,
        tail: str = "drop",
    ) -> None:
        options: dict[str, Any] = {
            "mode": choice("mode", mode, ("chunk", "continuous")),
            "separator": None if separator is None else _token("separator", separator),
            "position_ids": boolean("position_ids", position_ids),
            "segment_ids": boolean("segment_ids", segment_ids),
            "resets": boolean("resets", resets),
            "jitter": boolean("jitter", jitter),
            "tail": choice("tail", tail, ("drop", "pad", "short")),
        }
        if options["jitter"] and tail != "drop":
            raise ArgumentError(
                f"jitter is True, which leaves out tokens at the beginning of the stream, and tail is {tail!r}, which "
                'leaves out none; expected jitter=False or tail="drop"'
            )
        length = integer("seq_len", seq_len, least=1, most=MOST)
        self._samples = TokenSamples(tokens, length, documents, options)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays of a batch, in order."""
        return self._samples.names

    @property
    def tokens(self) -> Any:
        """The tokens of all documents: of a run of documents, if one was selected."""
        return self._samples.field.array

    @property
    def offsets(self) -> Array | None:
        """The beginning of each document, and the end of the last one; ``None`` if all tokens are one document.

        They are those of ``tokens``, where documents may have been selected: ``indices`` are the numbers of those.
        """
        return self._samples.offsets

    @property
    def seq_len(self) -> int:
        """Tokens of a piece."""
        return self._samples.seq_len

    @property
    def mode(self) -> str:
        """``"chunk"`` or ``"continuous"``."""
        mode: str = self._samples.options["mode"]
        return mode

    @property
    def tail(self) -> str:
        """``"drop"``, ``"pad"`` or ``"short"``."""
        tail: str = self._samples.options["tail"]
        return tail

    @property
    def separator(self) -> int | None:
        """The token between documents; ``None`` for none."""
        token: int | None = self._samples.options["separator"]
        return token

    @property
    def position_ids(self) -> bool:
        """``True`` if batches hold the position of each token in its document."""
        return bool(self._samples.options["position_ids"])

    @property
    def segment_ids(self) -> bool:
        """``True`` if batches hold the number of each token's document in the piece."""
        return bool(self._samples.options["segment_ids"])

    @property
    def resets(self) -> bool:
        """``True`` if batches hold a mask of the tokens that begin a document."""
        return bool(self._samples.options["resets"])

    @property
    def jitter(self) -> bool:
        """``True`` if the first piece begins at another token in each epoch."""
        return bool(self._samples.options["jitter"])

    @override
    def split(self, /, *unnamed: Any, seed: int | None = 0, stratify: Any = None, **parts: Any) -> tuple[Self, ...]:
        refuse_unnamed(unnamed)
        if self._samples.selectable < 2:
            raise DataError(
                "the tokens are one document, and split() divides documents; expected documents=, or a slice of the "
                "tokens for each part, as bl.TokenDataset(tokens[:n], seq_len)"
            )
        return super().split(seed=seed, stratify=stratify, **parts)

    def stats(self, rows: int = 1) -> TokenStats:
        """Return the counts of the stream, and of the tokens that an epoch leaves out.

        Args:
            rows: With ``mode="continuous"``, the rows that the stream is cut in: ``batch_size`` times ``world_size``.
        """
        rows = integer("rows", rows, least=1) if self.mode == "continuous" else 1
        return self._samples.stats(rows)

    def __repr__(self) -> str:
        samples, pieces = self._samples, f"{len(self)} pieces of {self.seq_len}, {self.mode}"
        return f"TokenDataset({samples.field!r} in {samples.selectable} documents; {pieces})"


class TokenSamples(StoredSamples):
    """Pieces of a stream of tokens.

    Attributes:
        field: The tokens of all documents: of a run of documents, if one was selected.
        offsets: The beginning of each document, and the end of the last one; ``None`` if all tokens are one document.
        seq_len: Tokens of a piece.
        options: The options of the stream, by name.
    """

    unit = "document"
    reads_once = True

    def __init__(self, tokens: Any, seq_len: int, documents: Any, options: dict[str, Any]) -> None:
        self.seq_len, self.options = seq_len, options
        values, offsets = _corpus(tokens, documents)
        self.field = borrow_field("tokens", values)
        self.offsets = _offsets(values, documents) if offsets is None else offsets
        borrowed = None if self.offsets is None else _native.borrow(self.offsets, "documents")
        self._engine = _native.Tokens(self.field.tensor, seq_len, documents=borrowed, **options)
        self._first = 0  # the number, in the selection, of the first document that the arrays hold
        self.location = Location((self.field,))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the arrays of a batch, in order."""
        extras = ("position_ids", "segment_ids", "resets")
        return ("input_ids", "labels", *(name for name in extras if self.options[name]))

    def __len__(self) -> int:
        """Return the number of pieces of the stream."""
        return len(self._engine)

    @property
    @override
    def lie_in_order(self) -> bool:
        return self.are_neighbours and self.offsets is None  # documents may be shuffled

    @override
    def whole_len(self) -> int:
        return len(self)

    @property
    @override
    def selectable(self) -> int:
        return self._engine.document_count()

    @override
    def narrow(self, selection: _native.Selection) -> None:
        self._engine = self._engine.select(selection)
        assert self.selection is not None
        assert self.offsets is not None
        if self.selection.range is None:
            return
        # A run of documents is a stream of its own, which begins and ends with them.
        first, end = (document - self._first for document in self.selection.range)
        start, stop = int(self.offsets[first]), int(self.offsets[end])
        self.field = borrow_field("tokens", self.field.narrow(start, stop))
        self.offsets, self._first = self.offsets[first : end + 1] - start, self._first + first
        self.location = Location((self.field,))

    @override
    def locate_selected(self) -> _native.Selection:
        assert self.offsets is not None
        return super().locate_selected().cut(self._first, self._first + len(self.offsets) - 1)

    def sample(self, sample: int) -> tuple[Array, Array]:
        """Return the inputs and the labels of a piece of the stream, with documents in stored order; int64.

        It is the piece as it is without ``jitter``, in one row.
        """
        start = sample * self.seq_len
        stats = self._engine.counts(1)
        count = min(self.seq_len, stats[4] - start)
        tokens = self._slice(start, start + count + 1)
        places = (0, self.seq_len - count if self.options["tail"] == "pad" else 0)
        return numpy.pad(tokens[:-1], places), numpy.pad(tokens[1:], places, constant_values=IGNORED)

    def _slice(self, start: int, end: int) -> Array:
        """Return tokens ``start`` to ``end`` of the stream, with documents in stored order, as int64."""
        separator, are_listed = self.options["separator"], not self.are_neighbours
        if self.offsets is None or (separator is None and not are_listed):
            return self._read_stored(start, end)
        documents: Array = numpy.arange(len(self.offsets) - 1)
        if are_listed and self.selection is not None:
            documents = numpy.from_dlpack(self.selection.numbers()) - self._first
        firsts, ends = self.offsets[documents], self.offsets[documents + 1]
        between = [] if separator is None else [numpy.array([separator], numpy.int64)]
        begins = numpy.cumsum(ends - firsts + len(between)) - (ends - firsts + len(between))
        document = int(numpy.searchsorted(begins, start, side="right")) - 1
        pieces, skipped, wanted = [], start - int(begins[document]), end - start
        while wanted > 0:
            first, last = int(firsts[document]) + skipped, int(ends[document])
            pieces += [self._read_stored(first, min(last, first + wanted)), *between]
            wanted -= last - first + len(between)
            document, skipped = document + 1, 0
        return numpy.concatenate(pieces)[: end - start]

    def _read_stored(self, start: int, end: int) -> Array:
        """Return tokens as they are stored, as int64."""
        return numpy.asarray(host("tokens", self.field.slice(start, end))).astype(numpy.int64)

    def stats(self, rows: int) -> TokenStats:
        """Return the counts of the stream, which is cut in rows."""
        return TokenStats(*self._engine.counts(rows))

    @override
    def recipe(self) -> Recipe:
        return TokenSamples, (self.field.array, self.seq_len, self.offsets, self.options)

    @override
    def engine(self) -> _native.Dataset:
        return self._engine.dataset()

    @override
    def list_extras(self, rule: Rule) -> list[str]:
        return list(self.names[2:])

    @override
    def schema(self, columns: Columns) -> Schema:
        framework = self.field.framework
        with_frameworks = (Column(name, dtype, framework) for name, dtype in columns)
        return Schema(tuple(with_frameworks), named=False, nested=self.extras.nested(columns))

    @override
    def shuffle(self, shuffle: bool | str) -> tuple[str, bool]:
        return read_stream_shuffle(shuffle, self.options["mode"])

    def lies_together(self, documents: bool) -> bool:
        """Return whether neighbouring pieces lie together, where documents may be shuffled."""
        return self.are_neighbours and not documents and self.options["mode"] == "chunk"

    @property
    @override
    def other_shapes(self) -> str | None:
        is_short = self.options["tail"] == "short"
        return 'tail is "short", whose last batch is shorter than others' if is_short else None

    def windows(self, documents: bool) -> ArrayWindows | None:
        """Return the pieces as windows on the tokens; ``None`` if they are not plain slices of them."""
        options = self.options
        plain = self.field.dtype == "int64" and options["separator"] is None and len(self.names) == 2
        is_whole = not options["jitter"] and options["tail"] == "drop"
        is_whole = is_whole and not isinstance(self.field.array, ChunkedArray)
        if not self.are_neighbours or documents or not plain or not is_whole or not len(self):
            return None
        seq_len, offsets = self.seq_len, numpy.array([0, len(self.field)], numpy.int64)
        shape = WindowShape(seq_len, horizon=1, label_len=seq_len - 1, stride=seq_len)
        tokens = self.field.array
        x, y = Span(BorrowedArray("x", tokens), shape.input_steps), Span(BorrowedArray("y", tokens), shape.target_steps)
        native = shape.slide(offsets)
        table = SeriesTable.of(native, native, shape, offsets)
        for name, span in (("x", x), ("y", y)):
            native = native.with_steps(name, span.field.tensor, span.steps.native)
        where = partial(frames.where, offsets=offsets, ids=None)
        continues = options["mode"] == "continuous"
        return ArrayWindows(native, shape, {"x": x, "y": y}, {}, {}, table, False, where, continues=continues)

    @override
    def device_data(self) -> DeviceData:
        return TokensOnDevice(self)


class TokensOnDevice(SamplesOnDevice[TokenSamples]):
    """A stream of tokens on a device, which are gathered token by token."""

    element_bytes = 16  # inputs and labels, each int64

    @override
    def lies_together(self, documents: bool) -> bool:
        return self.samples.lies_together(documents)

    @override
    def why_not_gathered(self, conversions: Mapping[str, _native.Conversion]) -> str | None:
        name = next(iter(conversions), None)
        return None if name is None else f"field {name} comes in another type than int64"

    @override
    def collator(self, resident: Resident, options: CollateOptions) -> Collator:
        from batchloom.device.collate.tokens import Tokens

        samples = self.samples
        tokens = partial(resident.rows_of, samples.field)
        pads = samples.options["tail"] != "drop"
        extras = [name for name in samples.names[2:] if name in options.names]
        return Tokens(tokens, samples.options["separator"], extras, options.marks, pads=pads)


def _corpus(tokens: Any, documents: Any) -> tuple[Any, Array | None]:
    """Return an array of all tokens, and the offsets of documents if they were given as a list."""
    listed = isinstance(tokens, list | tuple) or (is_arrow(tokens) and not _native.are_numbers(tokens))
    if not listed:
        return frames.as_array("tokens", tokens), None
    if documents is not None:
        raise ArgumentError("tokens are a list of documents, and documents= is given too; expected only one of them")
    if isinstance(tokens, tuple) and len(tokens) != 2:
        raise DataError(f"tokens are a tuple of {len(tokens)}; expected a list of documents, or (values, offsets)")
    corpus = variable("tokens", tokens)
    if corpus.shapes is not None:
        raise DataError("documents have more than one dimension; expected a list of tokens for each")
    first, end = int(corpus.offsets[0]), int(corpus.offsets[-1])
    whole_array = first == 0 and end == len(corpus.values.tensor)
    return corpus.values.array if whole_array else corpus.values.narrow(first, end), corpus.offsets - first


def _offsets(tokens: Any, documents: Any) -> Array | None:
    """Return the offsets of documents in an array of tokens."""
    if documents is None:
        return None
    are_several = (hasattr(documents, "__len__") or is_array(documents)) and getattr(documents, "ndim", 1) != 0
    if not are_several:
        return _ends_with(tokens, _token("documents", documents))
    offsets = read_plain("documents", documents, "an array of offsets", DataError)
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu":
        raise DataError(
            f"documents have type {offsets.dtype} and shape {offsets.shape}; expected offsets, or one token"
        )
    # A copy, so that later writes to the offsets do not change the stream.
    return copy_offsets("documents", offsets)


def _ends_with(tokens: Any, token: int) -> Array:
    """Return the offsets of documents that end with ``token``; the last one may end without it."""
    total = len(tokens)
    ends = [numpy.zeros(1, numpy.int64)]
    for start in range(0, total, SEARCHED):
        part = numpy.asarray(host("tokens", tokens[start : start + SEARCHED]))
        ends.append(numpy.flatnonzero(part == token) + start + 1)
    offsets = numpy.concatenate(ends)
    return offsets if offsets[-1] == total else numpy.append(offsets, total)


def _token(name: str, token: Any) -> int:
    try:
        number = operator.index(token)
    except TypeError:
        number = None
    if isinstance(token, bool) or number is None or not -(2**63) <= number < 2**63:
        raise ArgumentError(f"{name} is {token!r}; expected a token, an integer that int64 holds")
    return number
