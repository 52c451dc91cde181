"""Ask batchloom and each peer to make the same batches of sequences, padded or packed.

Promises:

- Peers are given the batches as lists of sample numbers, made outside the clock from ``bl.Plan``; batchloom plans
  inside it. They get each sequence as an object made before: a view, or a list where they are faster with lists.
- All make the same batches: ``check`` compares every value. ``lacks`` names the parts that a peer does not make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import batchloom
import numpy
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

Array = numpy.ndarray
Batch = dict[str, Any]
Batches = Sequence[list[int]]
Epochs = Callable[[], Iterable[Batch]]
# Fills in the sequences of a batch, given its padded array, mask, samples and lengths.
Fill = Callable[[Array, Array, Array, Array], None]
VOCABULARY = 50_000
PADDED = ("input_ids", "label", "attention_mask", "lengths", "index")
PACKED = ("input_ids", "label", "cu_seqlens", "max_seqlen", "position_ids", "segment_ids", "index")


@dataclass(frozen=True)
class Corpus:
    """Sequences of tokens, one after the other, and a label of each."""

    tokens: Tensor
    offsets: Tensor
    labels: Tensor

    @classmethod
    def make(cls, lengths: numpy.ndarray) -> Corpus:
        """Random tokens; the label of a sequence is its number."""
        offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
        tokens = torch.randint(1, VOCABULARY, (int(offsets[-1]),))
        return cls(tokens, torch.from_numpy(offsets), torch.arange(len(lengths)))

    @cached_property
    def lengths(self) -> Tensor:
        """Return the length of each."""
        return self.offsets.diff()

    @cached_property
    def views(self) -> list[Tensor]:
        """Return each as a tensor."""
        return list(self.tokens.split(self.lengths.tolist()))

    @cached_property
    def arrays(self) -> list[numpy.ndarray]:
        """Return each as an array of NumPy."""
        return [view.numpy() for view in self.views]


@dataclass(frozen=True)
class Former:
    """A way to make batches.

    Attributes:
        name: Its name in the tables.
        epochs: Prepares outside the clock; returns a maker of epochs.
        lacks: The parts of a batch that it does not make.
        names: Its own names of some parts of a batch.
        part: The part of the batches that it is measured on.
    """

    name: str
    epochs: Callable[[Corpus, Batches], Epochs]
    lacks: tuple[str, ...] = ()
    names: dict[str, str] = field(default_factory=dict)
    part: float = 1.0


def loom(corpus: Corpus, batching: Any) -> Epochs:
    """Use batchloom with its defaults: the first epoch of a plan, again each time."""
    data = batchloom.SequenceDataset(input_ids=(corpus.tokens, corpus.offsets), label=corpus.labels)
    loader = batchloom.DataLoader(data, batching=batching, shuffle=True)

    def epoch() -> Iterable[Batch]:
        loader.set_epoch(0)
        return loader

    return epoch


class Samples:
    """A data set as it is usually written: one sample at a time."""

    def __init__(self, corpus: Corpus) -> None:
        self.views, self.labels = corpus.views, corpus.labels.tolist()

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.views)

    def __getitem__(self, sample: int) -> tuple[Tensor, int, int]:
        """Return one: its tokens, its label, its number."""
        return self.views[sample], self.labels[sample], sample


def torch_loader(corpus: Corpus, batches: Batches) -> Epochs:
    """Use torch's ``DataLoader``, and ``pad_sequence`` to collate."""
    loader = DataLoader(Samples(corpus), batch_sampler=batches, collate_fn=_pad_samples)
    return lambda: loader


def _pad_samples(samples: list[tuple[Tensor, int, int]]) -> Batch:
    sequences, labels, index = zip(*samples, strict=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    padded = pad_sequence(sequences, batch_first=True)
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    return dict(zip(PADDED, (padded, torch.tensor(labels), mask, lengths, torch.tensor(index)), strict=True))


def padded_by_hand(corpus: Corpus, batches: Batches, fill: Fill) -> Epochs:
    """By hand: NumPy's zeros for each batch, filled in, with masks and labels."""
    labels, all_lengths = corpus.labels.numpy(), corpus.lengths.numpy()

    def epoch() -> Iterator[Batch]:
        for batch in batches:
            index = numpy.array(batch)
            lengths = all_lengths[index]
            mask = numpy.arange(lengths.max()) < lengths[:, None]
            padded = numpy.zeros(mask.shape, numpy.int64)
            fill(padded, mask, index, lengths)
            yield dict(zip(PADDED, (padded, labels[index], mask, lengths, index), strict=True))

    return epoch


def copy_rows(corpus: Corpus, batches: Batches) -> Epochs:
    """By hand: NumPy, one row after the other copied to its place."""
    arrays = corpus.arrays

    def fill(padded: Array, mask: Array, index: Array, lengths: Array) -> None:
        for row, sample in zip(padded, index.tolist(), strict=True):
            sequence = arrays[sample]
            row[: len(sequence)] = sequence

    return padded_by_hand(corpus, batches, fill)


def take_and_mask(corpus: Corpus, batches: Batches) -> Epochs:
    """By hand: NumPy, all tokens of a batch taken at once and put where the mask is true."""
    tokens, offsets = corpus.tokens.numpy(), corpus.offsets.numpy()

    def fill(padded: Array, mask: Array, index: Array, lengths: Array) -> None:
        ends = lengths.cumsum()
        places = numpy.arange(ends[-1]) + numpy.repeat(offsets[index] - ends + lengths, lengths)
        padded[mask] = tokens.take(places)

    return padded_by_hand(corpus, batches, fill)


def joined(corpus: Corpus, batches: Batches) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """By hand: ``torch.cat`` of each batch's sequences; yield its samples, lengths, tokens and boundaries."""
    views, all_lengths = corpus.views, corpus.lengths
    for batch in batches:
        index = torch.tensor(batch)
        lengths = all_lengths[index]
        tokens = torch.cat([views[sample] for sample in batch])
        yield index, lengths, tokens, pad(lengths.cumsum(0), (1, 0))


def jagged(corpus: Corpus, batches: Batches) -> Epochs:
    """By hand: torch's jagged tensor of a batch, converted to a padded one."""

    def epoch() -> Iterator[Batch]:
        for index, lengths, tokens, boundaries in joined(corpus, batches):
            known = {"min_seqlen": int(lengths.min()), "max_seqlen": int(lengths.max())}
            padded = torch.nested.nested_tensor_from_jagged(tokens, boundaries, **known).to_padded_tensor(0)
            mask = torch.arange(padded.shape[1]) < lengths[:, None]
            yield dict(zip(PADDED, (padded, corpus.labels[index], mask, lengths, index), strict=True))

    return epoch


def concatenate(corpus: Corpus, batches: Batches) -> Epochs:
    """By hand: ``torch.cat`` of a bin's sequences, and torch for positions and segments."""

    def epoch() -> Iterator[Batch]:
        for index, lengths, tokens, boundaries in joined(corpus, batches):
            positions = torch.arange(len(tokens)) - boundaries[:-1].repeat_interleave(lengths)
            segments = torch.arange(1, len(index) + 1, dtype=torch.int32).repeat_interleave(lengths)
            found = (tokens, corpus.labels[index], boundaries.int(), int(lengths.max()), positions, segments, index)
            yield dict(zip(PACKED, found, strict=True))

    return epoch


def take_tokens(corpus: Corpus, batches: Batches) -> Epochs:
    """By hand: NumPy, all tokens of a bin taken at once."""
    tokens, offsets, labels = corpus.tokens.numpy(), corpus.offsets.numpy(), corpus.labels.numpy()
    all_lengths = corpus.lengths.numpy()

    def epoch() -> Iterator[Batch]:
        for batch in batches:
            index = numpy.array(batch)
            lengths = all_lengths[index]
            boundaries = numpy.zeros(len(batch) + 1, numpy.int32)
            lengths.cumsum(out=boundaries[1:])
            positions = numpy.arange(boundaries[-1]) - numpy.repeat(boundaries[:-1], lengths)
            packed = tokens.take(positions + numpy.repeat(offsets[index], lengths))
            segments = numpy.repeat(numpy.arange(1, len(batch) + 1, dtype=numpy.int32), lengths)
            found = (packed, labels[index], boundaries, int(lengths.max()), positions, segments, index)
            yield dict(zip(PACKED, found, strict=True))

    return epoch


class Features:
    """A data set as transformers' collators want it: a dict for each sample, its tokens a list."""

    def __init__(self, corpus: Corpus, batches: Batches) -> None:
        used = [sample for batch in batches for sample in batch]
        self.samples = {
            sample: {"input_ids": corpus.views[sample].tolist(), "label": int(corpus.labels[sample])} for sample in used
        }

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.samples)

    def __getitem__(self, sample: int) -> dict[str, Any]:
        """Return one."""
        return self.samples[sample]


def padding_collator(corpus: Corpus, batches: Batches) -> Epochs:
    """Use transformers' ``DataCollatorWithPadding`` in a ``DataLoader``. Its mask is of int64."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    collate = DataCollatorWithPadding(PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]"))
    loader = DataLoader(Features(corpus, batches), batch_sampler=batches, collate_fn=collate)
    return lambda: loader


def flattening_collator(corpus: Corpus, batches: Batches) -> Epochs:
    """Use transformers' ``DataCollatorWithFlattening`` with all that it can add, in a ``DataLoader``."""
    from transformers import DataCollatorWithFlattening

    collate = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
    loader = DataLoader(Features(corpus, batches), batch_sampler=batches, collate_fn=collate)
    return lambda: loader


def check(ours: Iterable[Batch], theirs: Iterable[Batch], former: Former) -> int:
    """Compare two epochs, as far as the shorter one goes; return the number of their batches.

    Raises:
        AssertionError: They differ.
    """
    number = 0
    for number, (expected, found) in enumerate(zip(ours, theirs, strict=False), 1):
        for name, value in expected.items():
            if name not in former.lacks:
                mine, other = torch.as_tensor(value), torch.as_tensor(found[former.names.get(name, name)])
                same = torch.equal(mine.long(), other.long().view_as(mine))
                assert same, f"{former.name}: another {name} in batch {number}"
    assert number, "no batch was compared"
    return number


TORCH, ROWS, CAT = "torch DataLoader, pad_sequence", "NumPy row copies, by hand", "torch.cat, by hand"
COLLATOR = "transformers DataCollatorWithPadding"
PADDING = (
    Former(TORCH, torch_loader),
    Former(ROWS, copy_rows),
    Former("NumPy take and mask, by hand", take_and_mask),
    Former("torch jagged to padded, by hand", jagged),
    Former(COLLATOR, padding_collator, ("lengths", "index"), {"label": "labels"}, 1 / 20),
)
FLATTENED = {"cu_seqlens": "cu_seq_lens_q", "max_seqlen": "max_length_q"}
# Theirs counts segments from 0.
LACKED = ("label", "index", "segment_ids")
PACKING = (
    Former(CAT, concatenate),
    Former("NumPy take, by hand", take_tokens),
    Former("transformers DataCollatorWithFlattening", flattening_collator, LACKED, FLATTENED, 1 / 20),
)
