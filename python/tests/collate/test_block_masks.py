"""Block masks are those that torch makes of the same pairs of tokens, and attention sees documents alone."""

import shutil
from copy import copy

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import document_masks as oracle
from refusals import refused
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

# Tests compare the results of attention: as torch runs it without a compiler, too.
pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")

PARTS = [
    *("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"),
    *("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"),
]

lengths = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), min_size=1, max_size=12)
masks = st.builds(
    bl.DocumentMask,
    kind=st.sampled_from(["causal", "full"]),
    window=st.none() | st.integers(0, 200),
    block_size=st.sampled_from([16, 17, 32, 64, 128]),
)


def documents_of(samples, *, prompts=True, **options):
    """A dataset of samples of such lengths, with the lengths of their prompts, in the form that ``options`` ask for."""
    ids = [numpy.full(length, 1, numpy.int64) for length, _ in samples]
    fields = {"prompt": numpy.array([prompt for _, prompt in samples], numpy.int32)} if prompts else {}
    return bl.SequenceDataset(ids=ids, **fields, **options)


def rows_of(batch, has_prefix):
    """The documents of a pack."""
    prompts = batch["prompt"].tolist() if has_prefix else [0] * len(batch["index"])
    return [list(zip(batch["cu_seqlens"].diff().tolist(), prompts, strict=True))]


def require_same(given, mask, rows, tokens):
    """Compare a mask with the one that torch makes, array by array."""
    expected = create_block_mask(
        oracle.mask_mod(mask, rows, tokens), len(rows), None, tokens, tokens, "cpu", BLOCK_SIZE=mask.block_size
    )
    assert given.seq_lengths == expected.seq_lengths
    assert given.BLOCK_SIZE == expected.BLOCK_SIZE
    for part in PARTS:
        assert torch.equal(getattr(given, part), getattr(expected, part)), part
    assert torch.equal(given.to_dense(), expected.to_dense())


@pytest.mark.law("L9")
@given(samples=lengths, mask=masks, has_prefix=st.booleans(), seed=st.integers(0, 9))
def test_masks_of_packs_are_those_of_torch(samples, mask, has_prefix, seed):
    has_prefix = has_prefix and mask.kind == "causal"
    mask = bl.DocumentMask(mask.kind, mask.window, "prompt" if has_prefix else None, mask.block_size)
    loader = bl.DataLoader(
        documents_of(samples), batching=bl.Packing(500), shuffle=True, seed=seed, block_mask=mask, output="torch"
    )
    for batch in loader:
        if len(batch["ids"]):  # torch makes no mask without tokens
            require_same(bl.as_block_mask(batch), mask, rows_of(batch, has_prefix), len(batch["ids"]))


def rows_of_one_shape(batch, has_prefix):
    """The documents of each row."""
    rows = []
    for row, ends in enumerate(batch["cu_seqlens"].diff().tolist()):
        is_held = (batch["index"][row] >= 0).tolist()
        prompts = batch["prompt"][row].tolist() if has_prefix else [0] * len(is_held)
        rows.append([each[:2] for each in zip(ends, prompts, is_held, strict=True) if each[2]])
    return rows


@pytest.mark.law("L9")
@given(samples=lengths, mask=masks, has_prefix=st.booleans(), rows=st.integers(1, 4), seed=st.integers(0, 9))
def test_masks_of_rows_are_those_of_torch(samples, mask, has_prefix, rows, seed):
    has_prefix = has_prefix and mask.kind == "causal"
    mask = bl.DocumentMask(mask.kind, mask.window, "prompt" if has_prefix else None, mask.block_size)
    loader = bl.DataLoader(
        documents_of([(length + 1, prompt) for length, prompt in samples]),
        batching=bl.Packing(250, rows=rows),
        shuffle=True,
        seed=seed,
        block_mask=mask,
        output="torch",
    )
    for batch in loader:
        assert batch["block_mask"]["first"].shape == (rows, 250)
        require_same(bl.as_block_mask(batch), mask, rows_of_one_shape(batch, has_prefix), 250)


@pytest.mark.law("L9")
@given(
    sizes=st.lists(st.integers(0, 90), min_size=2, max_size=12),
    mask=masks,
    seq_len=st.integers(1, 200),
    tail=st.sampled_from(["drop", "pad", "short"]),
)
def test_masks_of_pieces_are_those_of_torch(sizes, mask, seq_len, tail):
    tokens = [numpy.full(size, 3, numpy.int64) for size in sizes]
    if sum(sizes) < seq_len + 2:
        return
    dataset = bl.TokenDataset(tokens, seq_len, separator=0, segment_ids=True, tail=tail)
    loader = bl.DataLoader(dataset, 3, shuffle="documents", block_mask=mask, output="torch")
    for _, labels, segments, entry in loader:
        rows = []
        for segment, label in zip(segments, labels, strict=True):
            _, counts = segment[label != -100].unique_consecutive(return_counts=True)
            rows.append([(int(count), 0) for count in counts])
        require_same(bl.as_block_mask(entry), mask, rows, labels.shape[1])


@pytest.mark.parametrize(
    "mask",
    [
        bl.DocumentMask(),
        bl.DocumentMask("full"),
        bl.DocumentMask(window=7),
        bl.DocumentMask("full", window=3),
        bl.DocumentMask(prefix="prompt"),
        bl.DocumentMask(prefix="prompt", window=4),
    ],
    ids=repr,
)
def test_attention_is_that_of_each_document(mask):
    samples = [(40, 9), (1, 0), (0, 0), (130, 200), (17, 17), (60, 1)]
    loader = bl.DataLoader(documents_of(samples), batching=bl.Packing(300), block_mask=mask, output="torch")
    (batch,) = loader
    tokens = len(batch["ids"])
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, tokens, 8, dtype=torch.float64, generator=generator)
    out = flex_attention(query[None], key[None], value[None], block_mask=bl.as_block_mask(batch))[0]
    rows = rows_of(batch, mask.prefix is not None)
    torch.testing.assert_close(out, oracle.attention(mask, rows[0], query, key, value))


def test_places_without_a_document_see_nothing_and_harm_nothing():
    dataset = bl.TokenDataset([numpy.arange(60)], 40, tail="pad")
    loader = bl.DataLoader(dataset, 2, block_mask=bl.DocumentMask(block_size=16), output="torch")
    ((_, labels, entry),) = loader
    assert entry["kv_num_blocks"].tolist() == [[[1, 1, 3]], [[1, 2, 0]]]  # no token of the last block is data
    query = torch.randn(2, 1, 40, 8)
    out = flex_attention(query, query, query, block_mask=bl.as_block_mask(entry))
    assert (out[1, 0, labels[1] == -100] == 0).all()
    assert out.isfinite().all()


def compiled_for(loaders, backend):
    """The graphs that epochs compile, and the number of batches. Attention is what all pairs say."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()

    @torch.compile(backend=backend, fullgraph=True)
    def attend(query, mask):
        return flex_attention(query, query, query, block_mask=mask)

    batches = 0
    with torch.no_grad():
        for batch in (batch for loader in loaders for batch in loader):
            mask = bl.as_block_mask(batch)
            rows, _, tokens, _ = mask.shape
            query = torch.randn(rows, 2, tokens, 16)
            entry = batch["block_mask"] if isinstance(batch, dict) else batch[-1]
            places = torch.arange(tokens)
            sees = (places >= entry["first"][:, :, None]) & (places < entry["end"][:, :, None])
            expected = torch.nn.functional.scaled_dot_product_attention(query, query, query, attn_mask=sees[:, None])
            expected = torch.where(sees.any(-1)[:, None, :, None], expected, 0.0)
            torch.testing.assert_close(attend(query, mask), expected, atol=1e-5, rtol=1e-4)
            batches += 1
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    torch._dynamo.reset()
    return graphs, batches


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_batches_of_one_shape_are_compiled_once_for_all_masks(backend):
    if backend == "inductor" and shutil.which("g++") is None:
        pytest.skip("torch compiles for the CPU by g++")
    rng = numpy.random.default_rng(0)
    dataset = bl.TokenDataset([rng.integers(0, 50, size) for size in rng.integers(1, 200, 40)], 256, tail="pad")
    kinds = ["causal", "full", bl.DocumentMask(window=30), bl.DocumentMask("full", window=30)]
    options = {"shuffle": "documents", "drop_last": True, "output": "torch"}
    graphs, batches = compiled_for([bl.DataLoader(dataset, 2, block_mask=kind, **options) for kind in kinds], backend)
    assert batches > 20
    assert graphs == 1


@pytest.mark.parametrize("rests", ["none", "continue"])
def test_rows_of_one_shape_are_compiled_once(rests):
    rng = numpy.random.default_rng(0)
    loader = bl.DataLoader(
        documents_of([(size, 0) for size in rng.integers(1, 250, 120).tolist()]),
        batching=bl.Packing(256, rows=4, rests=rests),
        shuffle=True,
        block_mask="causal",
        output="torch",
    )
    graphs, batches = compiled_for([loader], "eager")
    assert batches > 5
    assert graphs == 1


def test_packs_of_any_length_are_compiled_a_few_times():
    rng = numpy.random.default_rng(0)
    loader = bl.DataLoader(
        documents_of([(size, 0) for size in rng.integers(1, 200, 80).tolist()]),
        batching=bl.Packing(600),
        shuffle=True,
        block_mask="causal",
        output="torch",
    )
    graphs, batches = compiled_for([loader], "eager")
    assert batches > 5
    assert graphs <= 3  # for the first length, for any length, and for one block


def on_demand(samples, **options):
    """Samples that a function makes, packed by their sizes."""
    fields = [(numpy.full(length, 1), numpy.int64(prompt)) for length, prompt in samples]
    made = [{"ids": ids, "prompt": prompt} for ids, prompt in fields]
    return bl.MapDataset(made, lambda own: own, sizes=[length for length, _ in samples], columns=["ids"], **options)


def in_parts(samples):
    """Samples of two datasets."""
    return documents_of(samples[:3]).concat(documents_of(samples[3:]))


@pytest.mark.parametrize("make", [documents_of, on_demand, in_parts])
def test_every_kind_of_packs_has_the_mask(make):
    samples = [(40, 9), (1, 0), (30, 40), (130, 200), (17, 17), (60, 1)]
    mask = bl.DocumentMask(prefix="prompt", block_size=16)
    loader = bl.DataLoader(make(samples), batching=bl.Packing(150), shuffle=True, block_mask=mask, output="torch")
    for step, batch in enumerate(loader):
        require_same(bl.as_block_mask(batch), mask, rows_of(batch, True), len(batch["ids"]))
        again = loader.replay(0, step)["block_mask"]
        assert all(torch.equal(again[part], batch["block_mask"][part]) for part in PARTS)


def in_chunks(sizes):
    """Samples that are read three at a time."""
    ids = [[1] * size for size in sizes]
    return bl.ChunkDataset(
        [3] * (len(sizes) // 3), lambda chunk: {"ids": ids[3 * chunk : 3 * chunk + 3]}, lengths=sizes
    )


def as_tuples(sizes):
    """Samples that are tuples, which a function makes."""
    return bl.MapDataset(sizes, lambda size: (numpy.full(size, 1),), sizes=sizes)


@pytest.mark.law("L9")
@given(
    samples=lengths.filter(lambda samples: len(samples) > 2), rows=st.sampled_from([None, 3]), seed=st.integers(0, 9)
)
def test_samples_in_chunks_have_masks_with_prefixes(samples, rows, seed):
    samples = [(length + 1, prompt) for length, prompt in samples]
    ids, prompts = [[1] * length for length, _ in samples], numpy.array([prompt for _, prompt in samples])

    def read(chunk):
        return {"ids": ids[3 * chunk : 3 * chunk + 3], "prompt": prompts[3 * chunk : 3 * chunk + 3]}

    sizes = [len(ids[start : start + 3]) for start in range(0, len(ids), 3)]
    dataset = bl.ChunkDataset(sizes, read, lengths=[len(each) for each in ids], columns=["ids"])
    mask, rule = bl.DocumentMask(prefix="prompt", block_size=16), bl.Packing(250, rows=rows)
    for threads in (1, 3):
        loader = bl.DataLoader(
            dataset, batching=rule, shuffle=True, seed=seed, block_mask=mask, output="torch", num_threads=threads
        )
        for batch in loader:
            documents = rows_of(batch, True) if rows is None else rows_of_one_shape(batch, True)
            require_same(bl.as_block_mask(batch), mask, documents, len(batch["ids"]) if rows is None else 250)


@pytest.mark.parametrize("make", [in_chunks, as_tuples])
@pytest.mark.parametrize("rule", [bl.Packing(150), bl.Packing(150, rows=2)], ids=repr)
def test_samples_on_demand_have_the_mask(make, rule):
    mask = bl.DocumentMask(window=20, block_size=16)
    loader = bl.DataLoader(
        make([40, 1, 30, 130, 17, 60]), batching=rule, block_mask=mask, extras=("cu_seqlens",), output="torch"
    )
    for batch in loader:
        ends = batch["cu_seqlens"] if isinstance(batch, dict) else batch[1]
        rows = [[(length, 0) for length in row] for row in ends.diff().reshape(-1, ends.shape[-1] - 1).tolist()]
        tokens = 150 if rule.rows else int(ends[-1])
        require_same(bl.as_block_mask(batch), mask, rows, tokens)


def test_parts_of_a_sample_have_what_is_left_of_its_prefix():
    mask = bl.DocumentMask(prefix="prompt", block_size=16)
    rule = bl.Packing(50, oversize="split")
    (first, second, third) = bl.DataLoader(documents_of([(120, 70)]), batching=rule, block_mask=mask, output="torch")
    for batch, prefix in ((first, 50), (second, 20), (third, 0)):
        length = len(batch["ids"])
        start = batch["block_mask"]["end"][0, 0].item()
        assert start == max(prefix, 1) or length < prefix
        require_same(bl.as_block_mask(batch), mask, [[(length, prefix)]], length)


def test_groups_in_packs_see_their_group():
    groups = numpy.repeat(numpy.arange(6), [3, 9, 1, 20, 4, 7])
    dataset = bl.GroupDataset(groups, x=numpy.arange(len(groups)))
    mask = bl.DocumentMask("full", block_size=16)
    (batch,) = bl.DataLoader(dataset, batching=bl.Packing(100), block_mask=mask, output="torch")
    rows = [[(length, 0) for length in batch["offsets"].diff().tolist()]]
    require_same(bl.as_block_mask(batch), mask, rows, len(groups))


def test_masks_without_the_way_back():
    mask = bl.DocumentMask(backward=False)
    (batch,) = bl.DataLoader(documents_of([(300, 0)]), batching=bl.Packing(300), block_mask=mask, output="torch")
    assert not any(name.startswith(("q_", "full_q_")) for name in batch["block_mask"])
    made = bl.as_block_mask(batch)
    assert made.q_indices is None
    query = torch.randn(1, 1, 300, 8)
    with torch.no_grad():
        out = flex_attention(query, query, query, block_mask=made)
    torch.testing.assert_close(out[0], oracle.attention(mask, [(300, 0)], *query.expand(3, 1, 300, 8)))


def test_static_buffers_hold_the_mask():
    sizes = numpy.random.default_rng(0).integers(1, 150, 40)
    dataset = bl.TokenDataset([numpy.arange(size) for size in sizes], 128)
    small = bl.DocumentMask(block_size=16)
    options = {"block_mask": small, "shuffle": "documents", "drop_last": True, "seed": 3}
    plain = [bl.as_block_mask(batch) for batch in bl.DataLoader(dataset, 4, output="torch", **options)]
    addresses = set()
    for batch, expected in zip(
        bl.DataLoader(dataset, 4, buffers="static", output="torch", **options), plain, strict=True
    ):
        mask = bl.as_block_mask(batch)
        for part in PARTS:
            assert torch.equal(getattr(mask, part), getattr(expected, part))
        addresses.add((mask.kv_indices.data_ptr(), mask.full_q_indices.data_ptr(), batch[-1]["first"].data_ptr()))
    assert len(addresses) == 1


def test_packs_that_are_copied_to_a_device_have_the_mask_at_its_place():
    loader = bl.DataLoader(
        documents_of([(40, 9), (30, 3)]), batching=bl.Packing(100), block_mask="causal", resident=False, output="torch"
    )
    (batch,) = loader
    assert loader.placement.mode == "streamed"
    assert isinstance(batch["max_seqlen"], int)
    assert list(batch)[-1] == "block_mask"
    require_same(bl.as_block_mask(batch), bl.DocumentMask(), rows_of(batch, False), 70)


def test_extras_leave_the_mask_alone():
    (batch,) = bl.DataLoader(
        documents_of([(40, 9)]), batching=bl.Packing(100), block_mask="full", extras=(), output="torch"
    )
    assert list(batch) == ["ids", "prompt", "block_mask"]
    again = bl.DataLoader(documents_of([(40, 9)]), batching=bl.Packing(100), block_mask=bl.DocumentMask("full"))
    assert copy(again)._recipe["block_mask"] == bl.DocumentMask("full")


STREAM = bl.TokenDataset(numpy.arange(100), 8)
REFUSED = [
    (None, bl.FixedSize(2), "causal", ["FixedSize", "Packing"]),
    (None, bl.TokenBudget(100), "causal", ["TokenBudget", "Packing"]),
    (None, bl.LengthBuckets(2), "causal", ["LengthBuckets", "Packing"]),
    (None, bl.Packing(100), "casual", ["casual", "causal", "full"]),
    (None, bl.Packing(100), True, ["True", "causal", "full"]),
    (None, bl.Packing(100), bl.DocumentMask(prefix="none"), ["none", "ids", "prompt"]),
    (None, bl.Packing(100), bl.DocumentMask(prefix="ids"), ["ids"]),
    (bl.TensorDataset(numpy.arange(8)), bl.FixedSize(4), "full", ["Packing"]),
    (bl.SequenceDataset(ids=[[1, 2]], block_mask_first=[3]), bl.Packing(4), "full", ["block_mask_first"]),
    (STREAM, bl.FixedSize(4), bl.DocumentMask(prefix="prompt"), ["prompt"]),
]


@pytest.mark.parametrize(("dataset", "rule", "mask", "values"), REFUSED, ids=[str(case[2:]) for case in REFUSED])
def test_what_makes_no_sense_is_refused_before_the_first_batch(dataset, rule, mask, values):
    with refused(bl.ArgumentError, "block_mask", *values):
        bl.DataLoader(dataset or documents_of([(40, 9), (30, 3)]), batching=rule, block_mask=mask)


def test_masks_are_made_in_memory():
    packs = {"batching": bl.Packing(100), "block_mask": "causal", "output": "torch"}
    with refused(bl.ArgumentError, "memory", "resident=False"):
        bl.DataLoader(documents_of([(40, 9)]), resident=True, **packs)
    with refused(bl.ArgumentError, "block_mask", "collate"):
        bl.DataLoader(documents_of([(40, 9)]), collate=lambda samples: samples, **packs)


@pytest.mark.parametrize(
    "wrong", [{"kind": "prefix"}, {"window": -1}, {"block_size": 0}, {"prefix": 3}, {"kind": "full", "prefix": "p"}]
)
def test_options_of_masks_are_checked(wrong):
    *_, name = wrong
    with refused(bl.ArgumentError, name, str(wrong[name])):
        bl.DocumentMask(**wrong)


def test_what_is_no_mask_is_refused():
    dataset = documents_of([(40, 9)])
    (plain,) = bl.DataLoader(dataset, batching=bl.Packing(100), output="torch")
    for batch in (plain, torch.zeros(3), (torch.zeros(3),)):
        with refused(bl.ArgumentError, "block_mask"):
            bl.as_block_mask(batch)
    (others,) = bl.DataLoader(dataset, batching=bl.Packing(100), block_mask="causal", output="numpy")
    with refused(bl.ArgumentError, "numpy.ndarray", 'output="torch"'):
        bl.as_block_mask(others)


def test_a_negative_prefix_is_found_before_the_first_batch():
    samples = [(40, 9), (1, 0), (30, -3), (20, 1)]
    options = {"batching": bl.Packing(64), "block_mask": bl.DocumentMask(prefix="prompt", block_size=16)}
    with refused(bl.DataError, "prompt", "-3", "sample 2"):
        bl.DataLoader(documents_of(samples), **options)
    with refused(bl.DataError, "prompt", "-3", "sample 1"):
        bl.DataLoader(documents_of(samples).select([0, 2]), **options)
    bl.DataLoader(documents_of(samples).select([0, 1, 3]), **options)
    with refused(bl.DataError, "prompt", "-3", "sample 2"):
        list(bl.DataLoader(on_demand(samples), **options))  # prefixes that a function makes are not known before
