"""The end of a stream of tokens: left out, padded, or shorter. Where it is kept, a loss over all tokens is exact."""

import itertools
import math
import pickle
from collections import Counter

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.tokens import SEPARATOR, Corpus
from oracles.windows import pretended
from refusals import refused

IGNORED = -100
EXTRAS = ("position_ids", "segment_ids", "resets")
few = settings(max_examples=max(settings.default.max_examples // 2, 10))

PLACES = {
    "numpy": {},
    "torch": {"output": "torch"},
    "jax": {"output": "jax"},
    "resident": {"output": "torch", "resident": True},
    "streamed": {"output": "torch", "resident": False},
    "on a device": {"device": "meta"},
    "streamed to a device": {"device": "meta", "resident": False},
    "in shards": {"device": "meta", "resident": 400},
}

tails = st.sampled_from(["pad", "short"])
modes = st.sampled_from(["chunk", "continuous"])
lengths = st.lists(st.integers(0, 12), min_size=1, max_size=12).filter(lambda found: sum(found) > 1)


def stream_of(documents, separator):
    """The tokens of a stream, one list."""
    tokens = []
    for number, document in enumerate(documents):
        tokens += ([] if separator is None or not number else [separator]) + document
    return tokens


def corpus(lengths):
    """Documents whose tokens are all different."""
    numbers = itertools.count(1)
    return [list(itertools.islice(numbers, length)) for length in lengths]


def dataset_of(documents, seq_len, **options):
    tokens = numpy.array([token for document in documents for token in document], numpy.uint16)
    return bl.TokenDataset(tokens, seq_len, documents=numpy.cumsum([0, *map(len, documents)]), **options)


def rows_of(targets, rows):
    """The first and the last token of each row: a row has as many as another, or one more."""
    lengths = [targets // rows + (row < targets % rows) for row in range(rows)]
    ends = list(itertools.accumulate(lengths))
    return [(end - length, end) for length, end in zip(lengths, ends, strict=True)]


def expected(tokens, seq_len, rows, tail, samples):
    """The inputs and the labels of a batch, by definition."""
    cut = rows_of(len(tokens) - 1, rows)
    steps = math.ceil((cut[0][1] - cut[0][0]) / seq_len)
    pieces = []
    for sample in samples:
        (begin, end), before = cut[sample % rows], sample // rows
        places = range(min(begin + before * seq_len, end), min(begin + (before + 1) * seq_len, end))
        pieces.append(([tokens[k] for k in places], [tokens[k + 1] for k in places]))
    are_last = all(sample // rows == steps - 1 for sample in samples)
    length = cut[0][1] - cut[0][0] - (steps - 1) * seq_len if tail == "short" and are_last else seq_len
    return (
        [inputs + [0] * (length - len(inputs)) for inputs, _ in pieces],
        [labels + [IGNORED] * (length - len(labels)) for _, labels in pieces],
    )


def listed(field):
    return numpy.asarray(field).tolist()


@pytest.mark.law("L1")
@given(
    lengths=lengths,
    seq_len=st.integers(1, 9),
    batch_size=st.integers(1, 4),
    world_size=st.integers(1, 3),
    separator=st.sampled_from([None, 999]),
    tail=tails,
    mode=modes,
    place=st.sampled_from(list(PLACES)),
    extras=st.booleans(),
    data=st.data(),
)
def test_batches_are_pieces_of_the_stream(
    lengths, seq_len, batch_size, world_size, separator, tail, mode, place, extras, data
):
    documents = corpus(lengths)
    tokens = stream_of(documents, separator)
    options = dict.fromkeys(EXTRAS, extras)
    dataset = dataset_of(documents, seq_len, separator=separator, tail=tail, mode=mode, **options)
    shuffle = mode == "chunk" and data.draw(st.sampled_from([False, "chunks"]))
    rows = batch_size * world_size if mode == "continuous" else 1
    found = []
    for rank in range(world_size):
        with pretended():
            loader = bl.DataLoader(
                dataset, batch_size, shuffle=shuffle, rank=rank, world_size=world_size, uneven="mask", **PLACES[place]
            )
        plan = loader.plan(0)
        for samples, batch in zip(plan, loader, strict=True):
            x, y, *more, _, weight = batch
            inputs, labels = expected(tokens, seq_len, rows, tail, samples.tolist())
            labels = [
                row if counts else [IGNORED] * len(row) for row, counts in zip(labels, listed(weight), strict=True)
            ]
            assert (listed(x), listed(y)) == (inputs, labels)
            found += [pair for row in zip(inputs, labels, strict=True) for pair in zip(*row, strict=True)]
            if extras:
                positions, segments, resets = map(listed, more)
                for row, own in enumerate(expected(tokens, seq_len, rows, tail, samples.tolist())[1]):
                    real = [label != IGNORED for label in own]
                    assert [segment > 0 for segment in segments[row]] == real
                    ends = [k for k, is_real in enumerate(real) if not is_real]
                    assert not any(positions[row][k] or resets[row][k] for k in ends)
        assert sum(plan.step(k).labels for k in range(len(plan))) == len(tokens) - 1
    pairs = sorted(pair for pair in found if pair[1] != IGNORED)
    assert pairs == sorted(itertools.pairwise(tokens))
    stats = dataset.stats(rows)
    assert (stats.inputs, stats.tail) == (len(tokens) - 1, 1)
    assert stats.samples == loader.plan(0).samples


@pytest.mark.law("L1")
@given(
    lengths=lengths,
    seq_len=st.integers(1, 6),
    batch_size=st.integers(1, 3),
    world_size=st.integers(1, 3),
    tail=tails,
    mode=modes,
    seed=st.integers(0, 9),
    documents=st.booleans(),
)
def test_the_cross_entropy_over_all_targets_is_exact(
    lengths, seq_len, batch_size, world_size, tail, mode, seed, documents
):
    """The sum over batches of all ranks, resumed in the middle, is that over the whole stream at once."""
    texts = corpus(lengths)
    vocabulary = sum(lengths) + 1
    dataset = dataset_of(texts, seq_len, tail=tail, mode=mode)
    logits = torch.randn(vocabulary, vocabulary, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def loss(x, y):
        return torch.nn.functional.cross_entropy(logits[x].flatten(0, -2), y.flatten(), reduction="sum").item()

    def loader_of(rank):
        shuffle = "documents" if documents else False
        options = {"shuffle": shuffle, "seed": seed, "uneven": "mask", "output": "torch"}
        return bl.DataLoader(dataset, batch_size, rank=rank, world_size=world_size, **options)

    total, labels = 0.0, 0
    for rank in range(world_size):
        loader = loader_of(rank)
        labels = sum(loader.plan(0).step(k).labels for k in range(len(loader)))
        for x, y, *_ in itertools.islice(loader, len(loader) // 2):
            total += loss(x, y)
        resumed = loader_of(rank)
        resumed.load_state_dict(loader.state_dict())
        for x, y, *_ in resumed:
            total += loss(x, y)
    assert labels == sum(lengths) - 1
    if not documents:
        tokens = torch.tensor(stream_of(texts, None))
        assert math.isclose(total, loss(tokens[:-1], tokens[1:]), rel_tol=1e-12)


@given(
    lengths=lengths,
    seq_len=st.integers(1, 6),
    batch_size=st.integers(1, 3),
    world_size=st.integers(1, 3),
    separator=st.sampled_from([None, SEPARATOR]),
    tail=tails,
    mode=modes,
    pieces=st.booleans(),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 3),
)
def test_the_cross_entropy_over_shuffled_documents_is_exact(
    lengths, seq_len, batch_size, world_size, separator, tail, mode, pieces, seed, epoch
):
    """Each token but the first of that epoch's stream is a label once; the sum is what a loop over the labels gives."""
    shuffle = True if pieces and mode == "chunk" else "documents"
    corpus = Corpus(tuple(lengths), seq_len, separator, mode, shuffle, batch_size, seed)
    stream = [token for token, _, _ in corpus.whole(epoch)]
    numbers = {token: number for number, token in enumerate(sorted(set(stream)))}
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(numbers), len(numbers), dtype=torch.float64, generator=generator)

    total, pairs, counted = 0.0, [], 0
    for rank in range(world_size):
        loader = corpus.loader(world_size, rank, corpus.dataset(tail=tail), uneven="mask", output="torch")
        loader.set_epoch(epoch)
        counted = sum(loader.plan().step(k).labels for k in range(len(loader)))
        for x, y, *_ in loader:
            real = y != IGNORED
            before, after = (torch.tensor([numbers[token] for token in part[real].tolist()]) for part in (x, y))
            if real.any():
                total += torch.nn.functional.cross_entropy(logits[before], after, reduction="sum").item()
            pairs += zip(x[real].tolist(), y[real].tolist(), strict=True)

    assert Counter(pairs) == Counter(itertools.pairwise(stream))
    assert counted == len(pairs) == len(stream) - 1
    table = logits.tolist()
    losses = [
        math.log(math.fsum(map(math.exp, table[numbers[x]]))) - table[numbers[x]][numbers[y]]
        for x, y in itertools.pairwise(stream)
    ]
    assert math.isclose(total, math.fsum(losses), rel_tol=1e-12)


@pytest.mark.law("L4")
@few
@given(lengths=lengths, seq_len=st.integers(1, 5), tail=tails, mode=modes, world_size=st.integers(1, 2))
def test_a_resume_after_every_step(lengths, seq_len, tail, mode, world_size):
    dataset = dataset_of(corpus(lengths), seq_len, tail=tail, mode=mode)
    for rank in range(world_size):

        def loader_of(rank=rank):
            return bl.DataLoader(dataset, 2, rank=rank, world_size=world_size)

        whole = [[listed(x), listed(y)] for x, y in loader_of()]
        for stop in range(1, len(whole)):
            loader = loader_of()
            first = [[listed(x), listed(y)] for x, y in itertools.islice(loader, stop)]
            resumed = loader_of()
            resumed.load_state_dict(loader.state_dict())
            assert first + [[listed(x), listed(y)] for x, y in resumed] == whole


@given(lengths=lengths, seq_len=st.integers(1, 9), separator=st.sampled_from([None, 999]), tail=tails)
def test_a_sample_is_what_a_batch_of_one_holds(lengths, seq_len, separator, tail):
    documents = corpus(lengths)
    dataset = dataset_of(documents, seq_len, separator=separator, tail=tail)
    assert dataset.tail == tail
    assert len(dataset) == math.ceil((len(stream_of(documents, separator)) - 1) / seq_len)
    copy = pickle.loads(pickle.dumps(dataset))
    for sample, (x, y) in enumerate(bl.DataLoader(copy, 1)):
        assert [listed(field) for field in dataset[sample]] == [listed(x)[0], listed(y)[0]]


@given(lengths=lengths, seq_len=st.integers(1, 9), mode=modes)
def test_whole_pieces_are_those_that_are_dropped_to(lengths, seq_len, mode):
    """The pieces of a stream that has no end too many do not depend on the tail."""
    documents = corpus(lengths)
    assume((sum(lengths) - 1) % (2 * seq_len) == 0)
    batches = [
        [[listed(field) for field in batch] for batch in bl.DataLoader(dataset_of(documents, seq_len, tail=tail), 2)]
        for tail in ("drop", "pad", "short")
    ]
    assert batches[0] == batches[1] == batches[2]


def test_rows_that_end_early_are_counted():
    dataset = bl.TokenDataset(numpy.arange(12), 4, mode="continuous", tail="short")
    stats = dataset.stats(rows=2)
    assert (stats.samples, stats.inputs, stats.tail, stats.padding) == (4, 11, 1, 1)
    assert bl.TokenDataset(numpy.arange(12), 4, mode="continuous", tail="pad").stats(rows=2).padding == 5
    assert bl.TokenDataset(numpy.arange(12), 4).stats().padding == 0
    *_, (x, y) = bl.DataLoader(dataset, 2)
    assert y.tolist() == [[5, 6], [11, IGNORED]]
    assert x.tolist() == [[4, 5], [10, 0]]


def test_a_run_goes_on_with_its_own_tail():
    loaders = [bl.DataLoader(bl.TokenDataset(numpy.arange(41), 4, tail=tail), 2) for tail in ("drop", "pad", "short")]
    assert len({loader.plan().fingerprint for loader in loaders}) == 3
    with refused(bl.StateError, "fingerprint"):
        loaders[1].load_state_dict(loaders[0].state_dict())


def test_buffers_of_one_shape_need_batches_of_one_shape():
    tokens = torch.arange(30)
    padded = bl.DataLoader(bl.TokenDataset(tokens, 4, tail="pad"), 2, buffers="static")
    assert len({id(x) for x, _ in padded}) == 1
    with refused(bl.ArgumentError, "buffers", "tail", "short"):
        bl.DataLoader(bl.TokenDataset(tokens, 4, tail="short"), 2, buffers="static")


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"tail": "keep"}, ("tail", "'keep'", "'drop'", "'pad'", "'short'")),
        ({"tail": None}, ("tail", "None")),
        ({"tail": "pad", "jitter": True}, ("tail", "'pad'", "jitter")),
    ],
)
def test_tails_that_make_no_sense(options, values):
    with refused(bl.ArgumentError, *values):
        bl.TokenDataset(numpy.arange(20), 4, **options)


def test_tails_that_cannot_be_joined():
    short, padded = (bl.TokenDataset(numpy.arange(11), 4, tail=tail) for tail in ("short", "pad"))
    with refused(bl.ArgumentError, "dataset 0", "short"):
        short.concat(short)
    with refused(bl.ArgumentError, "short"):
        bl.Mixture({"a": short, "b": short})
    joined = padded.concat(padded)
    assert [y.tolist()[0] for _, y in bl.DataLoader(joined, 1)][2::3] == [[9, 10, IGNORED, IGNORED]] * 2
    loader = bl.DataLoader(joined, 2)
    assert sum(loader.plan(0).step(k).labels for k in range(len(loader))) == 20


def test_a_stream_of_one_token_has_no_target():
    with refused(bl.DataError, "1 tokens", "2"):
        bl.DataLoader(bl.TokenDataset(numpy.arange(1), 4, tail="pad"), 1)
    ((x, y),) = bl.DataLoader(bl.TokenDataset(numpy.arange(2), 4, tail="short"), 3)
    assert (x.tolist(), y.tolist()) == ([[0]], [[1]])
