"""Streams of tokens: what goes in, what a piece holds, views, memory maps, and what is refused."""

import copy
import gc
import itertools
import os
import pickle

import batchloom as bl
import jax.numpy
import numpy
import pandas
import polars
import pyarrow
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.tokens import EXTRAS, NAMES, SEPARATOR, SHUFFLES, Corpus, corpora, epochs, lists
from refusals import refused

DOCUMENTS = [[1, 2, 3], [4], [], [5, 6, 7, 8, 9], [10, 11]]
FLAT, ENDS = list(itertools.chain(*DOCUMENTS)), [0, 3, 4, 4, 9, 11]


# What goes in

ALL = {
    "list of lists": lambda: (DOCUMENTS, None),
    "list of arrays": lambda: ([numpy.array(document, numpy.uint16) for document in DOCUMENTS], None),
    "list of tensors": lambda: ([torch.tensor(document, dtype=torch.int32) for document in DOCUMENTS], None),
    "list of jax": lambda: ([jax.numpy.array(document, "int32") for document in DOCUMENTS], None),
    "list, one empty": lambda: ([document and numpy.array(document) for document in DOCUMENTS], None),
    "values and offsets": lambda: ((numpy.array(FLAT, numpy.uint8), ENDS), None),
    "inside values": lambda: ((numpy.array([0, 0, *FLAT, 0]), numpy.array(ENDS) + 2), None),
    "inside torch": lambda: ((torch.tensor([0, 0, *FLAT, 0]), torch.tensor(ENDS) + 2), None),
    "offsets": lambda: (numpy.array(FLAT, numpy.int16), ENDS),
    "unsigned offsets": lambda: (numpy.array(FLAT, numpy.uint32), numpy.array(ENDS, numpy.uint64)),
    "big-endian offsets": lambda: (numpy.array(FLAT, numpy.int8), numpy.array(ENDS, ">i4")),
    "strided offsets": lambda: (numpy.array(FLAT), numpy.repeat(ENDS, 2)[::2]),
    "torch": lambda: (torch.tensor(FLAT, dtype=torch.uint16), torch.tensor(ENDS)),
    "jax": lambda: (jax.numpy.array(FLAT, "uint16"), jax.numpy.array(ENDS)),
    "every other": lambda: (numpy.repeat(FLAT, 2).astype("u2")[::2], ENDS),
    "backwards": lambda: (numpy.array(FLAT[::-1], "u2")[::-1], ENDS),
    "torch every other": lambda: (torch.tensor(FLAT).repeat_interleave(2)[::2], ENDS),
    "arrow": lambda: (pyarrow.array(FLAT, pyarrow.uint16()), pyarrow.array(ENDS)),
    "arrow in parts": lambda: (pyarrow.chunked_array([FLAT[:5], FLAT[5:]], pyarrow.int32()), ENDS),
    "arrow lists": lambda: (pyarrow.array(DOCUMENTS, pyarrow.list_(pyarrow.uint16())), None),
    "arrow lists in parts": lambda: (pyarrow.chunked_array([DOCUMENTS[:2], DOCUMENTS[2:]]), None),
    "arrow large lists": lambda: (pyarrow.array([[0], *DOCUMENTS], pyarrow.large_list(pyarrow.uint8()))[1:], None),
    "arrow column": lambda: (pyarrow.table({"tokens": DOCUMENTS})["tokens"], None),
    "polars": lambda: (polars.Series(FLAT, dtype=polars.UInt16), polars.Series(ENDS)),
    "polars lists": lambda: (polars.Series(DOCUMENTS, dtype=polars.List(polars.UInt16)), None),
    "polars column": lambda: (polars.DataFrame({"tokens": DOCUMENTS})["tokens"], None),
    "pandas": lambda: (pandas.Series(FLAT, dtype="uint16"), pandas.Series(ENDS)),
    "record": lambda: (numpy.rec.fromarrays([numpy.zeros(11, "u1"), numpy.array(FLAT, "u2")], names="a,b")["b"], ENDS),
}


@pytest.mark.parametrize("separator", [None, SEPARATOR])
@pytest.mark.parametrize("name", ALL)
def test_all_ways_in_are_the_same_stream(name, separator):
    tokens, documents = ALL[name]()
    dataset = bl.TokenDataset(tokens, 3, documents=documents, separator=separator, **EXTRAS)
    stream = [token for document in DOCUMENTS for token in (*document, separator) if token is not None]
    stream = stream if separator is None else stream[:-1]
    expected = [(stream[k : k + 3], stream[k + 1 : k + 4]) for k in range(0, len(stream) - 3, 3)]
    assert [
        tuple(map(numpy.ndarray.tolist, piece)) for piece in map(dataset.__getitem__, range(len(dataset)))
    ] == expected
    found = [lists(batch)[:2] for batch in bl.DataLoader(dataset, 2)]
    assert [row for batch in found for row in zip(*batch, strict=True)] == expected
    assert numpy.asarray(dataset.offsets).tolist() == ENDS
    # In another order the same documents, whatever they came in.
    shuffled = [lists(batch) for batch in bl.DataLoader(dataset, 2, shuffle=True, output="numpy")]
    plain = bl.TokenDataset(numpy.array(FLAT), 3, documents=ENDS, separator=separator, **EXTRAS)
    assert shuffled == epochs([bl.DataLoader(plain, 2, shuffle=True)])
    stats = dataset.stats()
    assert (stats.tokens, stats.documents, stats.separators) == (11, 5, 0 if separator is None else 4)


TYPES = ["uint8", "uint16", "uint32", "int8", "int16", "int32", "int64"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_every_type_up_to_its_limits(kind, output, step):
    limits = numpy.iinfo(kind)
    values = numpy.array([limits.max, limits.min, limits.max - 1, 0, 1, *range(60)], kind)
    dataset = bl.TokenDataset(values[::step], 4)
    expected = values[::step].astype(numpy.int64).tolist()
    for x, y in bl.DataLoader(dataset, len(dataset), output=output):
        assert str(x.dtype).removeprefix("torch.") == str(y.dtype).removeprefix("torch.") == "int64"
        assert x.flatten().tolist() == expected[: 4 * len(dataset)]
        assert y.flatten().tolist() == expected[1 : 4 * len(dataset) + 1]


@pytest.mark.parametrize(("kind", "last"), [("uint16", 65_535), ("uint32", 65_536), ("int32", 65_536)])
def test_vocabularies_around_the_limit_of_uint16(kind, last):
    tokens = numpy.array([last, 0, last, 1, last], kind)
    ((x, y),) = bl.DataLoader(bl.TokenDataset(tokens, 4, documents=last, separator=last + 1), 1)
    assert x.tolist() == [[last, last + 1, 0, last]]
    assert y.tolist() == [[last + 1, 0, last, last + 1]]


@given(values=st.lists(st.integers(0, 3), min_size=3, max_size=60), token=st.integers(0, 4))
@pytest.mark.parametrize("kind", ["numpy", "torch", "pyarrow"])
def test_documents_end_with_a_token(kind, values, token):
    """Each with its own, the last one with or without; two in a row end a document of one token."""
    tokens = {"numpy": numpy.array, "torch": torch.tensor, "pyarrow": pyarrow.array}[kind](values)
    offsets = [0, *(place + 1 for place, value in enumerate(values) if value == token)]
    offsets += [len(values)] if offsets[-1] != len(values) else []
    assert bl.TokenDataset(tokens, 2, documents=token).offsets.tolist() == offsets
    assert bl.TokenDataset(tokens, 2, documents=numpy.int64(token)).stats().documents == len(offsets) - 1


def test_documents_end_with_a_token_far_on(monkeypatch):
    monkeypatch.setattr("batchloom.dataset.tokens.SEARCHED", 7)
    tokens = numpy.arange(100, dtype=numpy.uint8) % 5
    assert bl.TokenDataset(tokens, 2, documents=4).offsets.tolist() == list(range(0, 101, 5))
    assert bl.TokenDataset(tokens, 2, documents=-1).offsets.tolist() == [0, 100]


# What a piece holds


def test_what_a_batch_is():
    dataset = bl.TokenDataset(numpy.arange(50, dtype=numpy.uint16), 4, **EXTRAS)
    assert dataset.names == NAMES
    batch = next(iter(bl.DataLoader(dataset, 3)))
    assert [str(field.dtype) for field in batch] == ["int64", "int64", "int64", "int32", "bool"]
    assert [field.shape for field in batch] == [(3, 4)] * 5
    assert all(field.flags.writeable and field.flags.c_contiguous and field.flags.aligned for field in batch)
    for name in EXTRAS:
        assert bl.TokenDataset(numpy.arange(50), 4, **{name: True}).names == (*NAMES[:2], name)


def test_documents_are_told_by_places_and_never_by_values():
    """All tokens are the same, and the same as the separator; every second document is of one token or of none."""
    dataset = bl.TokenDataset(numpy.zeros(6, numpy.uint8), 8, documents=[0, 0, 2, 3, 3, 6], separator=0, **EXTRAS)
    ((x, y, positions, segments, resets),) = bl.DataLoader(dataset)
    assert not x.any()
    assert not y.any()
    # |   | 0 1 | | 2 | | | 3 4 5: five documents, a separator after each but the last.
    assert segments.tolist() == [[1, 2, 2, 2, 3, 3, 4, 5]]
    assert positions.tolist() == [[0, 0, 1, 2, 0, 1, 0, 0]]
    assert resets.astype(int).tolist() == [[1, 1, 0, 0, 1, 0, 1, 1]]


@given(corpus=corpora(shuffle=st.sampled_from(SHUFFLES), separator=0, kind="uint16"))
def test_segments_and_resets_agree(corpus):
    for _, _, positions, segments, resets in corpus.loader():
        assert (segments[:, 0] == 1).all()
        assert not positions[:, 0].any()
        grows = segments[:, 1:] - segments[:, :-1]
        assert (grows == resets[:, 1:]).all()
        assert ((positions[:, 1:] == 0) == resets[:, 1:]).all()


@given(corpus=corpora())
def test_a_piece_by_its_number_is_what_a_batch_says(corpus):
    stored = corpus.stream(corpus.documents)
    dataset, pieces = corpus.dataset(), corpus.pieces()
    assert len(dataset) == pieces
    for k in range(pieces):
        x, y = dataset[k]
        assert (x.dtype, y.dtype) == (numpy.int64, numpy.int64)
        assert (x.tolist(), y.tolist()) == corpus.piece(stored, k * corpus.seq_len)[:2]
    with refused(bl.RangeError, f"sample {pieces}"):
        dataset[pieces]
    with refused(bl.RangeError, f"sample {-pieces - 1}"):
        dataset[-pieces - 1]


def test_pieces_of_nothing_but_separators():
    dataset = bl.TokenDataset([[1, 2], [], [], []], 1, separator=0)
    assert [tuple(part.item() for part in dataset[k]) for k in range(4)] == [(1, 2), (2, 0), (0, 0), (0, 0)]


def test_inputs_and_labels_of_a_piece_are_their_own():
    x, y = bl.TokenDataset(numpy.arange(9), 4)[0]
    if x.flags.writeable:
        x[1] = -5
    assert y.tolist() == [1, 2, 3, 4]


def test_pieces_of_tensors_make_nobody_warn():
    x, y = bl.TokenDataset(torch.arange(9), 4)[1]
    assert lists((x, y)) == [[4, 5, 6, 7], [5, 6, 7, 8]]


def test_a_plan_picks_pieces_for_torch():
    dataset = Corpus((30, 0, 41), seq_len=5).dataset()
    plan = bl.DataLoader(dataset, 4, shuffle="chunks", seed=2).plan(0)
    theirs = torch.utils.data.DataLoader(dataset, batch_sampler=plan)
    ours = bl.DataLoader(dataset, 4, shuffle="chunks", seed=2, output="torch")
    for (x, y), batch in zip(theirs, ours, strict=True):
        assert lists((x, y)) == lists(batch)[:2]


@pytest.mark.parametrize("mode", ["chunk", "continuous"])
def test_corpora_that_are_too_short(mode):
    for length in range(6):
        dataset = bl.TokenDataset(numpy.arange(length), 5, mode=mode)
        assert (len(dataset), dataset.stats().inputs, dataset.stats().tail) == (0, 0, length)
        with refused(bl.DataError, f"{length} tokens", "5"):
            bl.DataLoader(dataset, 1)
    dataset = bl.TokenDataset(numpy.arange(6), 5, mode=mode)
    assert [lists(batch) for batch in bl.DataLoader(dataset, 1)] == [[[[0, 1, 2, 3, 4]], [[1, 2, 3, 4, 5]]]]
    assert dataset.stats().tail == 1
    with refused(bl.DataError, "0 tokens"):
        bl.DataLoader(bl.TokenDataset(numpy.arange(0), 5, mode=mode, documents=[0], separator=1), 1)


# Copies of a dataset and of a plan


@given(corpus=corpora(mode=st.sampled_from(["chunk", "continuous"]), shuffle=st.sampled_from([False, "documents"])))
def test_datasets_and_plans_survive_pickling(corpus):
    dataset = corpus.dataset()
    try:
        loader = corpus.loader(dataset=dataset)
    except bl.ArgumentError:  # too short for its rows
        return
    for again in (pickle.loads(pickle.dumps(dataset)), copy.deepcopy(dataset)):
        assert (again.stats(), again.names, repr(again)) == (dataset.stats(), dataset.names, repr(dataset))
        loaders = corpus.loader(dataset=dataset), corpus.loader(dataset=again)
        assert epochs(loaders[:1]) == epochs(loaders[1:])
        assert loaders[0].state_dict() == loaders[1].state_dict()
    next(iter(loader))
    for plan in (loader.plan(), loader.plan(5)):
        again = pickle.loads(pickle.dumps(plan))
        assert (again, hash(again), again.fingerprint) == (plan, hash(plan), plan.fingerprint)
        assert [samples.tolist() for samples in again] == [samples.tolist() for samples in plan]


# Views


def view_of(kind):
    values = numpy.arange(200, dtype=numpy.int64)
    return torch.from_numpy(values) if kind == "torch" else values


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("output", [None, "numpy", "torch", "jax"])
@pytest.mark.parametrize(
    "options", [{}, {"shuffle": "runs"}, {"buffers": "own"}, {"shuffle": True}, {"shuffle": "documents"}]
)
def test_who_shares_memory(kind, output, options):
    """Neighbours of int64 as stored are views, read-only in NumPy; all else, and all of JAX, is the batch's own."""
    values = view_of(kind)
    dataset = bl.TokenDataset(values, 7, documents=[0, 50, 50, 200])
    shared = output != "jax" and options in ({}, {"shuffle": "runs"})
    loader = bl.DataLoader(dataset, 4, output=output, **options)
    again = bl.DataLoader(
        bl.TokenDataset(values.astype("i4") if kind == "numpy" else values.int(), 7, documents=[0, 50, 50, 200]),
        4,
        **options,
    )
    for (x, y), expected in zip(loader, again, strict=True):
        assert [numpy.asarray(field).tolist() for field in (x, y)] == lists(expected)
        for field in map(numpy.asarray, (x, y)):
            assert numpy.shares_memory(field, numpy.asarray(values)) == shared
        if (output or kind) == "numpy":
            assert x.flags.writeable == y.flags.writeable == (not shared)
        if not shared and (output or kind) != "jax":
            x[:] = y[:] = -1
    assert numpy.asarray(values).tolist() == list(range(200))


@pytest.mark.parametrize("world_size", [1, 3])
def test_batches_that_continue_are_views_a_row_apart(world_size):
    """As a slice of the matrix that examples of truncated backpropagation make."""
    values = view_of("numpy")
    rows, pieces = 2 * world_size, len(values[:-1]) // (2 * world_size) // 7
    matrix = values[: rows * pieces * 7].reshape(rows, -1)
    for rank in range(world_size):
        dataset = bl.TokenDataset(values, 7, mode="continuous")
        loader = bl.DataLoader(dataset, 2, rank=rank, world_size=world_size)
        batches = list(loader)
        assert len(batches) == pieces
        for step, (x, y) in enumerate(batches):
            assert numpy.shares_memory(x, values)
            assert numpy.shares_memory(y, values)
            assert x.strides == (pieces * 7 * 8, 8)
            assert numpy.array_equal(x, matrix[2 * rank : 2 * rank + 2, step * 7 : step * 7 + 7])
            assert numpy.array_equal(y[:, :-1], x[:, 1:])
        whole = list(bl.DataLoader(dataset, 2, rank=rank, world_size=world_size, buffers="own"))
        for ours, formed in zip(batches, whole, strict=True):
            assert all(map(numpy.array_equal, ours, formed))
    marked = list(bl.DataLoader(dataset, 2, rank=0, world_size=world_size, uneven="mask"))
    assert all(map(numpy.array_equal, marked[1][:2], list(bl.DataLoader(dataset, 2, world_size=world_size, rank=0))[1]))


@pytest.mark.parametrize("more", [{"separator": 3}, {"resets": True}, {"jitter": True}])
def test_what_is_no_view(more):
    values = view_of("numpy")
    for batch in bl.DataLoader(bl.TokenDataset(values, 7, documents=[0, 50, 200], **more), 4):
        assert not any(numpy.shares_memory(field, values) or not field.flags.writeable for field in batch)


VIEWED = st.sampled_from([("chunk", False), ("chunk", "runs"), ("continuous", False)])


@given(
    corpus=VIEWED.flatmap(
        lambda way: corpora(separator=None, kind="int64", mode=st.just(way[0]), shuffle=st.just(way[1]))
    ),
    stop=st.integers(0, 5),
)
def test_views_resume_as_copies_do(corpus, stop):
    dataset = corpus.dataset(**dict.fromkeys(EXTRAS, False))
    loader, copies = (corpus.loader(dataset=dataset, buffers=buffers) for buffers in ("views", "own"))
    whole = epochs([corpus.loader(dataset=dataset, buffers="own")])
    head = [lists(batch) for batch in itertools.islice(loader, stop)]
    copies.load_state_dict(loader.state_dict())
    assert (head + epochs([copies]))[: len(whole)] == whole


def test_batches_outlive_everything():
    for dataset in (bl.TokenDataset(view_of("numpy"), 7), bl.TokenDataset(view_of("numpy").astype("u2"), 7)):
        held = list(bl.DataLoader(dataset, 4))
        del dataset
        gc.collect()
        assert numpy.concatenate([x for x, _ in held]).reshape(-1).tolist() == list(range(28 * 7))


# Memory maps


def mapped(tmp_path, kind, tokens=30_000):
    """Random tokens in a file as nanoGPT writes it, and as NumPy does."""
    values = numpy.random.default_rng(0).integers(0, 50_257, tokens).astype(kind)
    values.tofile(tmp_path / "train.bin")
    numpy.save(tmp_path / "train.npy", values)
    return values, (
        numpy.memmap(tmp_path / "train.bin", kind, "r"),
        numpy.memmap(tmp_path / "train.bin", kind, "c"),
        numpy.load(tmp_path / "train.npy", mmap_mode="r"),
        numpy.asarray(numpy.load(tmp_path / "train.npy", mmap_mode="r+")),
    )


@pytest.mark.parametrize("kind", ["uint16", "int64"])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_maps_say_what_arrays_say(tmp_path, kind, shuffle):
    """Also where their pages are let go of at every turn; what was written to a private map stays."""
    values, maps = mapped(tmp_path, kind)
    maps[1][5] = 7
    ends = [0, 10, 10, 20_000, len(values)]
    for tokens in maps:
        datasets = [bl.TokenDataset(array, 64, documents=ends) for array in (tokens, numpy.array(tokens))]
        if tokens is not maps[1]:
            datasets[0] = datasets[0].with_memory(1)
        found, wanted = (epochs([bl.DataLoader(dataset, 16, shuffle=shuffle)] * 2) for dataset in datasets)
        assert found == wanted
    assert maps[1][5] == 7


RESIDENT = """
    import sys
    import batchloom as bl
    import numpy

    path, kind, shuffle, copies, documents = sys.argv[1:]

    def resident():
        line = next(line for line in open("/proc/self/status") if line.startswith("RssFile"))
        return int(line.split()[1]) << 10

    tokens = numpy.memmap(path, kind, "r")
    offsets = numpy.append(numpy.arange(0, len(tokens), 1000), len(tokens)) if documents else None
    dataset = bl.TokenDataset(tokens, 1024, documents=offsets).with_memory(16 << 20)
    shuffle = {"True": True, "False": False}.get(shuffle, shuffle)
    buffers = "own" if copies else "views"
    loader = bl.DataLoader(dataset, 64, shuffle=shuffle, buffers=buffers, num_threads=1, prefetch=1)
    early, most, seen = resident(), 0, 0
    for _ in range(2):
        for number, (x, y) in enumerate(loader):
            seen += x.size + int(x[:, ::32].sum())
            if number % 4 == 0:
                most = max(most, resident() - early)
    assert seen == 2 * len(dataset) * 1024
    print(most)
"""
UNMAPPED = [
    ("uint16", False, "", ""),
    ("uint16", True, "", ""),
    ("uint16", "documents", "", "yes"),
    ("int64", False, "copy", ""),
    ("int64", True, "", ""),
    ("int64", False, "", ""),
    ("int64", "runs", "", ""),
]


@pytest.mark.parametrize(("kind", "shuffle", "copies", "documents"), UNMAPPED)
def test_resident_memory_is_flat_over_twice_a_file(script, tmp_path, kind, shuffle, copies, documents):
    """Two blocks read so much: of each random piece the system maps 64 KiB, or 128 KiB where it lies across two of
    these; of the file, all zeros and nowhere on the disk, twice as much."""
    path, size = tmp_path / "train.bin", 160 << 20
    path.touch()
    os.truncate(path, size)
    assert int(script(RESIDENT, path, kind, shuffle, copies, documents)) < size // 2


def test_a_map_that_is_cut_is_an_error_before_a_batch(tmp_path):
    _, maps = mapped(tmp_path, "uint16")
    datasets = [bl.TokenDataset(tokens, 64) for tokens in (maps[0], maps[2])]
    loaders = [bl.DataLoader(dataset, 8, shuffle=shuffle) for dataset in datasets for shuffle in (False, True)]
    list(loaders[1])
    for name in ("train.bin", "train.npy"):
        os.truncate(tmp_path / name, 4096)
    for epoch, loader in zip((0, 1, 0, 0), loaders, strict=True):
        with refused(bl.DataError, "tokens", "4096", "truncated"):
            next(iter(loader))
        assert loader.plan().epoch == loader.epoch == epoch
        assert loader.state_dict()["batches"] == 0


def test_offsets_in_a_map_that_is_cut(script, tmp_path):
    numpy.save(tmp_path / "offsets.npy", numpy.arange(0, 200_001, 2))
    script(
        """
        import os
        import sys
        import batchloom as bl
        import numpy

        offsets = numpy.load(sys.argv[1], mmap_mode="r")
        loader = bl.DataLoader(bl.TokenDataset(numpy.zeros(200_000, "u2"), 64, documents=offsets), 8, shuffle=True)
        os.truncate(sys.argv[1], 4096)
        assert sum(len(x) for x, _ in loader) == len(loader.dataset)  # the dataset has offsets of its own
        """,
        tmp_path / "offsets.npy",
    )


def test_offsets_that_are_written_to_later_hang_nothing(script):
    code = """
        import batchloom as bl
        import numpy

        offsets = numpy.arange(0, 2001, 20)
        loader = bl.DataLoader(bl.TokenDataset(numpy.arange(2000), 8, documents=offsets, resets=True), 4)
        offsets[:] = 0
        assert sum(len(x) for x, *_ in loader) == len(loader.dataset)
        """
    script(code, timeout=60)
