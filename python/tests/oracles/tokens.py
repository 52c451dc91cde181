"""Streams of tokens, by definition: documents one after the other, made as one list and sliced."""

import itertools
from dataclasses import dataclass

import batchloom as bl
import numpy
from hypothesis import strategies as st

NAMES = ("input_ids", "labels", "position_ids", "segment_ids", "resets")
EXTRAS = dict.fromkeys(NAMES[2:], True)
SEPARATOR = -7
SHUFFLES = (True, "documents", "chunks", "runs", False)


@dataclass(frozen=True)
class Corpus:
    """Documents whose tokens are all different, and how they are cut and batched."""

    lengths: tuple[int, ...]
    seq_len: int = 4
    separator: int | None = None
    mode: str = "chunk"
    shuffle: bool | str = False
    batch_size: int = 3
    seed: int = 0
    kind: str = "uint16"
    jitter: bool = False

    @property
    def offsets(self):
        return numpy.cumsum([0, *self.lengths])

    @property
    def documents(self):
        return [list(range(start, end)) for start, end in itertools.pairwise(self.offsets.tolist())]

    @property
    def shuffles_documents(self):
        return self.shuffle in (True, "documents")

    @property
    def length(self):
        """Tokens of the stream."""
        return sum(self.lengths) + (self.separator is not None) * (len(self.lengths) - 1)

    def pieces(self, rows=1):
        """The number of pieces of an epoch, in so many rows that go on."""
        most = self.seq_len - 1 if self.jitter else 0
        return max(self.length - 1 - most, 0) // rows // self.seq_len * rows

    def offset(self, epoch):
        """The token at which the first piece begins, as the engine has it for any stream."""
        dataset = bl.TokenDataset(numpy.arange(2 * self.seq_len), self.seq_len, jitter=self.jitter)
        loader = bl.DataLoader(dataset, 1, seed=self.seed)
        loader.set_epoch(epoch)
        return int(next(iter(loader))[0][0, 0])

    def dataset(self, **more):
        tokens = numpy.arange(sum(self.lengths), dtype=self.kind)
        options = {"documents": self.offsets, "mode": self.mode, "separator": self.separator, "jitter": self.jitter}
        options |= EXTRAS | more
        return bl.TokenDataset(tokens, options.pop("seq_len", self.seq_len), **options)

    def loader(self, world_size=1, rank=0, dataset=None, **more):
        options = {"batch_size": self.batch_size, "shuffle": self.shuffle, "seed": self.seed} | more
        return bl.DataLoader(dataset or self.dataset(), **options, world_size=world_size, rank=rank)

    def loaders(self, world_size, **more):
        return [self.loader(world_size, rank, **more) for rank in range(world_size)]

    def stream(self, documents):
        """All tokens of documents in this order: of each its value, its document, and whether that begins with it."""
        found = []
        for number, document in enumerate(documents):
            found += [(token, number, place == 0) for place, token in enumerate(document)]
            if self.separator is not None and number + 1 < len(documents):
                found.append((self.separator, number, not document))
        return found

    def epoch(self, epoch=0):
        """The stream of an epoch, from the first piece on."""
        return self.whole(epoch)[self.offset(epoch) :]

    def whole(self, epoch=0):
        """The stream of an epoch. Which document comes when is read off batches of single tokens, and checked."""
        if not self.shuffles_documents:
            return self.stream(self.documents)
        loader = self.loader(
            dataset=self.dataset(seq_len=1, mode="chunk", jitter=False), batch_size=64, shuffle="documents"
        )
        loader.set_epoch(epoch)
        batches = list(loader)
        values = [*itertools.chain(*(batch[0][:, 0].tolist() for batch in batches)), int(batches[-1][1][-1, 0])]
        assert len(values) == self.length
        documents = self._parted(values)
        whole = self.documents if self.separator is not None else [document for document in self.documents if document]
        assert sorted(documents) == sorted(whole)
        return self.stream(documents)

    def _parted(self, values):
        """The documents of a stream: what lies between separators, or from one first token to the next."""
        if self.separator is not None:
            marks = [-1, *(place for place, value in enumerate(values) if value == self.separator), len(values)]
            return [values[start + 1 : end] for start, end in itertools.pairwise(marks)]
        first = {document[0] for document in self.documents if document}
        marks = [*(place for place, value in enumerate(values) if value in first), len(values)]
        assert marks[0] == 0
        return [values[start:end] for start, end in itertools.pairwise(marks)]

    def piece(self, stream, start):
        """The fields of a piece of a stream."""
        inside = stream[start : start + self.seq_len]
        inputs = [token for token, _, _ in stream[start : start + self.seq_len + 1]]
        assert len(inputs) == self.seq_len + 1
        runs = [list(run) for _, run in itertools.groupby(inside, key=lambda token: token[1])]
        positions = list(itertools.chain(*(range(len(run)) for run in runs)))
        segments = list(itertools.chain(*([number] * len(run) for number, run in enumerate(runs, 1))))
        return inputs[:-1], inputs[1:], positions, segments, [begins for _, _, begins in inside]

    def batch(self, stream, samples, rows=None):
        """The fields of a batch of these samples: pieces, or, in so many rows that go on, the next one of each."""
        steps = None if rows is None else self.pieces(rows) // rows
        places = [k if rows is None else k % rows * steps + k // rows for k in samples]
        pieces = [self.piece(stream, place * self.seq_len) for place in places]
        return [list(field) for field in zip(*pieces, strict=True)]


def lists(batch):
    return [numpy.asarray(field).tolist() for field in batch]


def listed(batches):
    return [lists(batch) for batch in batches]


def epochs(loaders):
    """The batches of loaders, one loader after the other, as lists."""
    return listed(itertools.chain(*loaders))


lengths = st.lists(st.one_of(st.integers(0, 2), st.integers(0, 25)), min_size=1, max_size=40)


def corpora(**fixed):
    """Corpora with at least one piece."""
    choices = {
        "lengths": lengths.map(tuple),
        "seq_len": st.integers(1, 30),
        "separator": st.sampled_from([None, SEPARATOR]),
        "shuffle": st.sampled_from(SHUFFLES),
        "batch_size": st.integers(1, 8),
        "seed": st.integers(0, 2**64 - 1),
        "kind": st.sampled_from(["uint16", "int16", "uint32", "int32", "int64"]),
        "jitter": st.booleans(),
    }
    given = {name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in fixed.items()}
    return st.builds(Corpus, **(choices | given)).filter(Corpus.pieces)
