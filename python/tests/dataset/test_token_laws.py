"""The laws of the design for streams of tokens: against the stream itself, made the slow way."""

import itertools
import json
import textwrap
from collections import Counter
from dataclasses import replace

import batchloom as bl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.runs import advance, assert_resumes, chained, fractions, resume, worlds
from oracles.tokens import EXTRAS, SEPARATOR, SHUFFLES, Corpus, corpora, epochs, listed, lists
from refusals import refused

# For laws whose one example takes many iterations.
few = settings(max_examples=max(settings.default.max_examples // 2, 10))
continuous = {"mode": "continuous", "shuffle": st.sampled_from([False, "documents"])}


def seen(batches):
    """The number of times that each token, separators among them, was an input."""
    return Counter(itertools.chain(*(itertools.chain(*batch[0]) for batch in batches)))


# L1 and L9: pieces are the stream


@pytest.mark.law("L9")
@given(corpus=corpora(), epoch=st.integers(0, 2**64 - 1), drop_last=st.booleans())
def test_pieces_are_slices_of_the_stream(corpus, epoch, drop_last):
    assume(not drop_last or corpus.pieces() >= corpus.batch_size)
    stream = corpus.epoch(epoch)
    loader = corpus.loader(drop_last=drop_last)
    loader.set_epoch(epoch)
    batches = listed(loader)
    plan = loader.plan(epoch)
    assert batches == [corpus.batch(stream, samples.tolist()) for samples in plan]
    assert len(batches) == len(loader)
    assert drop_last or sorted(itertools.chain(*plan)) == list(range(corpus.pieces()))


@pytest.mark.law("L1")
@given(corpus=corpora(), world_size=st.integers(1, 5))
def test_every_token_is_an_input_once_less_the_tail(corpus, world_size):
    stats, stream = corpus.dataset().stats(), corpus.epoch()
    times = seen(epochs(corpus.loaders(world_size, uneven="short")))
    between = times.pop(SEPARATOR, 0)
    assert set(times.values()) <= {1}
    assert times.total() + between == stats.inputs == stats.samples * corpus.seq_len
    assert stats.inputs + stats.tail == stats.tokens + stats.separators == corpus.length
    assert 1 <= stats.tail <= corpus.seq_len + (corpus.seq_len - 1) * corpus.jitter
    # What is left out is the end of the stream, and what lies before the first piece.
    whole = Counter(token for token, *_ in corpus.whole())
    left = whole - Counter(token for token, *_ in stream[: stats.inputs])
    assert times == Counter(range(stats.tokens)) - left
    assert between == stats.separators - left[SEPARATOR]


@pytest.mark.law("L8")
@given(corpus=corpora(shuffle=st.sampled_from([True, "documents"])))
def test_documents_are_never_torn_or_turned(corpus):
    """Inside a document each token is followed by the next one, and labels say so across pieces too."""
    ends = {document[-1] for document in corpus.documents if document}
    for inputs, labels, *_ in epochs([corpus.loader()]):
        for token, after in zip(itertools.chain(*inputs), itertools.chain(*labels), strict=True):
            assert token in ends or token == SEPARATOR or after == token + 1


@given(corpus=corpora(separator=SEPARATOR))
def test_separators_stand_between_documents_and_nowhere_else(corpus):
    values = [token for token, *_ in corpus.whole()]
    assert values.count(SEPARATOR) == len(corpus.lengths) - 1
    empty = corpus.lengths.count(0)
    assert sum(pair == (SEPARATOR, SEPARATOR) for pair in itertools.pairwise(values)) <= empty


# L2 and L3: pure, and equal on every rank


@pytest.mark.law("L2")
@few
@given(corpus=corpora(), threads=st.integers(1, 6), prefetch=st.integers(0, 4), world_size=worlds)
def test_threads_and_blocks_change_nothing(corpus, threads, prefetch, world_size):
    loaders = corpus.loaders(world_size, num_threads=threads, prefetch=prefetch)
    assert epochs(loaders) == epochs(corpus.loaders(world_size, num_threads=1))
    assert len({loader.plan(0).fingerprint for loader in loaders}) == 1
    assert len({len(loader) for loader in loaders}) == 1


@pytest.mark.law("L10")
@few
@given(corpus=corpora(), world_size=worlds, uneven=st.sampled_from(["pad", "short"]))
def test_lengths_are_known_for_every_epoch(corpus, world_size, uneven):
    for loader in corpus.loaders(world_size, uneven=uneven):
        for epoch in range(3):
            expected = len(loader)
            assert len(loader.plan(epoch)) == expected == sum(1 for _ in loader)


# L4: resume


@pytest.mark.law("L4")
@few
@given(corpus=corpora(), world_size=st.integers(1, 3))
def test_resume_after_every_step(corpus, world_size):
    for rank in range(world_size):
        first, other = (corpus.loader(world_size, rank) for _ in range(2))
        other.set_epoch(1)
        expected = [listed(first), listed(other)]
        assert_resumes(
            corpus.loader(world_size, rank), lambda rank=rank: corpus.loader(world_size, rank), expected, listed
        )
        # Nothing is left, and yet the epoch is not over: the next one is whole, and new, for whoever asks for it.
        _, state = advance([corpus.loader(world_size, rank)], len(expected[0]), listed)
        resumed = resume(corpus.loader(world_size, rank), state)
        resumed.set_epoch(1)
        assert listed(resumed) == expected[1]


@few
@given(corpus=corpora(batch_size=st.integers(1, 3)), stops=st.lists(st.integers(0, 4), min_size=3, max_size=6))
def test_chains_of_resumes(corpus, stops):
    expected = epochs([loader := corpus.loader()]) + epochs([loader])
    found, state = [], None
    for stop in [*stops, None, None, None]:
        more, state = advance([corpus.loader()], stop, listed, state)
        found += more
    assert found[: len(expected)] == expected[: len(found)]
    assert len(found) >= len(expected)


# L5: another world in mid-epoch


@pytest.mark.law("L5")
@few
@given(
    corpus=corpora(seq_len=st.integers(1, 6), batch_size=st.integers(1, 3)),
    parts=st.lists(st.tuples(st.integers(1, 5), fractions), min_size=1, max_size=3),
    last=worlds,
)
def test_another_world_takes_what_was_left(corpus, parts, last):
    """For all orders, shuffled documents too: every piece comes once, from the stream of that epoch."""
    stream, loader = corpus.epoch(), corpus.loader(uneven="short")
    before = ((corpus.loaders(world_size, uneven="short"), stop) for world_size, stop in parts)
    found = chained(loader.state_dict(), before, corpus.loaders(last, uneven="short"), listed)
    assert found == listed(loader)
    rows = [row for batch in found for row in zip(*batch, strict=True)]
    expected = [corpus.piece(stream, k * corpus.seq_len) for k in range(corpus.pieces())]
    assert sorted(rows) == sorted(expected)


# L7: fresh


@pytest.mark.law("L7")
@pytest.mark.parametrize("shuffle", [True, "documents", "chunks", "runs"])
def test_seeds_and_epochs_have_orders_of_their_own(shuffle):
    corpus = Corpus(tuple(range(30)), seq_len=5, shuffle=shuffle, separator=SEPARATOR)
    loader, other = corpus.loader(), corpus.loader(seed=1)
    orders = [epochs([loader]) for _ in range(3)] + [epochs([other]) for _ in range(3)]
    assert all(a != b for a, b in itertools.combinations(orders, 2))
    loader.set_epoch(1)
    assert epochs([loader]) == orders[1]


def test_documents_and_pieces_are_shuffled_apart():
    """True has the documents' order of "documents" and the pieces' order of "chunks"."""
    corpus = Corpus(tuple(range(30)), seq_len=5)
    both, documents, chunks = (replace(corpus, shuffle=shuffle) for shuffle in (True, "documents", "chunks"))
    assert both.epoch() == documents.epoch() != chunks.epoch()
    plans = [each.loader().plan(0) for each in (both, chunks, documents)]
    orders = [[samples.tolist() for samples in plan] for plan in plans]
    assert orders[0] == orders[1] != orders[2]


# Rows that go on


@pytest.mark.law("L3")
@given(
    corpus=corpora(**continuous, batch_size=st.integers(1, 4)), world_size=st.integers(1, 4), epoch=st.integers(0, 3)
)
def test_rows_go_on_in_every_rank(corpus, world_size, epoch):
    rows = corpus.batch_size * world_size
    if not corpus.pieces(rows):
        with refused(bl.ArgumentError, f"{corpus.length} tokens", f"{rows} rows"):
            corpus.loader(world_size)
        return
    stream, before, inputs = corpus.epoch(epoch), [None] * world_size, []
    loaders = corpus.loaders(world_size)
    for rank, loader in enumerate(loaders):
        loader.set_epoch(epoch)
        for step, batch in enumerate(loader):
            first = step * rows + rank * corpus.batch_size
            samples = range(first, first + corpus.batch_size)
            assert lists(batch) == corpus.batch(stream, samples, rows)
            assert before[rank] is None or batch[0][:, 0].tolist() == before[rank]
            before[rank] = batch[1][:, -1].tolist()
            inputs += batch[0].reshape(-1).tolist()
        assert step + 1 == len(loader) == corpus.pieces(rows) // rows
    stats = corpus.dataset().stats(rows)
    assert (stats.samples, stats.inputs) == (corpus.pieces(rows), len(inputs))
    assert stats.inputs + stats.tail == corpus.length
    times = Counter(inputs)
    times.pop(SEPARATOR, None)
    assert set(times.values()) <= {1}


@few
@given(
    corpus=corpora(**continuous, batch_size=st.integers(1, 3), seq_len=st.integers(1, 4)), world_size=st.integers(1, 3)
)
def test_rows_go_on_after_every_resume(corpus, world_size):
    rows = corpus.batch_size * world_size
    assume(corpus.pieces(rows))
    for rank in range(world_size):
        state = None
        for batch in listed(corpus.loader(world_size, rank)):  # resumed after each batch
            loader = corpus.loader(world_size, rank)
            found, state = advance([loader], 1, listed, state)
            assert found == [batch]
        assert loader.plan().epoch == 1


@given(corpus=corpora(**continuous, batch_size=st.integers(1, 2), seq_len=1), worlds=st.tuples(worlds, worlds))
def test_rows_do_not_go_on_in_another_world(corpus, worlds):
    before, after = worlds
    assume(before != after)
    assume(corpus.pieces(corpus.batch_size * max(worlds)))
    loader = corpus.loader(before)
    next(iter(loader))
    other = corpus.loader(after)
    unchanged = other.state_dict()
    with refused(bl.StateError, "fingerprint"):
        other.load_state_dict(loader.state_dict())
    assert other.state_dict() == unchanged


@pytest.mark.parametrize("words", [{"rank", "ranks", "world", "world_size"}, {"seq_len", "documents"}], ids=sorted)
def test_the_error_says_what_differs(words):
    corpus = Corpus((50, 50), mode="continuous")
    other = corpus.loader(2) if "rank" in words else replace(corpus, seq_len=5).loader()
    with refused(bl.StateError, words):
        other.load_state_dict(corpus.loader().state_dict())


# Fingerprints

CHANGES = [
    {"lengths": (30, 41, 29)},
    {"lengths": (30, 40, 31)},
    {"lengths": (100,)},
    {"seq_len": 5},
    {"separator": SEPARATOR},
    {"separator": 3},
    {"batch_size": 4},
    {"seed": 1},
    *({"shuffle": shuffle} for shuffle in SHUFFLES if shuffle != "documents"),
    {"mode": "continuous"},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_a_state_of_other_pieces_is_refused(change):
    corpus = Corpus((30, 40, 30), shuffle="documents")
    other = replace(corpus, **change).loader()
    if "seed" not in change:  # which is the state's
        assert other.plan().fingerprint != corpus.loader().plan().fingerprint
        with refused(bl.StateError, "fingerprint"):
            other.load_state_dict(corpus.loader().state_dict())


def test_separators_have_fingerprints_of_their_own():
    prints = [Corpus((30, 40), separator=separator).loader().plan().fingerprint for separator in (None, 0, 1, -1)]
    assert len(set(prints)) == 4


def test_what_batches_say_besides_changes_no_plan():
    """A run may go on with position_ids, in another type of the same tokens, or with other threads."""
    corpus = Corpus((30, 40, 30), shuffle=True)
    plain = bl.DataLoader(
        corpus.dataset(**dict.fromkeys(EXTRAS, False)), corpus.batch_size, shuffle=True, num_threads=3
    )
    loader = replace(corpus, kind="int64").loader()
    next(iter(loader))
    resumed = corpus.loader()
    resumed.load_state_dict(loader.state_dict())
    plain.load_state_dict(loader.state_dict())
    assert [lists(batch) for batch in plain] == [batch[:2] for batch in epochs([resumed])]


# Processes that are ranks

DATASET = """
    import numpy
    import batchloom as bl

    def loader_of(mode, **more):
        ends = numpy.cumsum(numpy.random.default_rng(0).integers(0, 200, 50))
        tokens = numpy.arange(int(ends[-1]), dtype=numpy.int32)
        dataset = bl.TokenDataset(tokens, 16, documents=numpy.concatenate([[0], ends]), mode=mode)
        shuffle = True if mode == "chunk" else "documents"
        return bl.DataLoader(dataset, 4, shuffle=shuffle, seed=3, uneven="short", **more)
"""

RANK = """
    import json
    import os
    import sys
    import torch.distributed as distributed

    path, stop, states = sys.argv[1:]
    distributed.init_process_group(
        "gloo", init_method=f"file://{path}", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
    found = {}
    for mode, state in json.loads(states).items():
        loader = loader_of(mode, output="torch")
        if state is not None:
            loader.load_state_dict(state)
        last, seen = None, []
        for step, (x, y) in enumerate(loader):
            if step == int(stop):
                break
            assert mode == "chunk" or last is None or x[:, 0].tolist() == last
            last = y[:, -1].tolist()
            seen += x.flatten().tolist()
            state = loader.state_dict()
        found[mode] = {"seen": seen, "state": state, "last": last}
    print(json.dumps(found))
    distributed.barrier()
    distributed.destroy_process_group()
"""


def test_processes_stop_in_mid_epoch_and_another_goes_on(ranks, tmp_path):
    """With one rank instead of two where pieces are of shuffled documents; as two, one by one, where rows go on."""
    code = textwrap.dedent(DATASET) + textwrap.dedent(RANK)
    first = ranks(code, 2, tmp_path / "first", 7, json.dumps({"chunk": None, "continuous": None}))
    names = {}
    exec(textwrap.dedent(DATASET), names)
    for mode, world_size, most in (("chunk", 1, 16), ("continuous", 2, 16 * (2 * 4 + 1))):
        assert first[0][mode]["state"] == first[1][mode]["state"]
        seen = [token for rank in first for token in rank[mode]["seen"]]
        for rank in range(world_size):
            loader = names["loader_of"](mode, rank=rank, world_size=world_size)
            loader.load_state_dict(first[rank][mode]["state"])
            batches = epochs([loader])
            assert mode == "chunk" or [row[0] for row in batches[0][0]] == first[rank][mode]["last"]
            seen += itertools.chain(*(itertools.chain(*inputs) for inputs, _ in batches))
        times = Counter(seen)
        assert set(times.values()) == {1}
        assert 1 <= loader.dataset.stats().tokens - len(times) <= most
