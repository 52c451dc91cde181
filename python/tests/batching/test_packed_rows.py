"""Rows of one shape and rests that are continued, through every kind of data, rank and stop."""

import itertools
import json
from collections import Counter

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import batching, packed_rows
from oracles.batching import sized

rules = st.builds(
    bl.Packing,
    st.integers(4, 60),
    max_samples=st.none() | st.integers(1, 9),
    oversize=st.sampled_from([None, "split", "drop", "truncate"]),
    order=st.sampled_from(["random", "decreasing"]),
    pool=st.sampled_from([None, "all"]) | st.integers(1, 70),
    rows=st.integers(1, 4),
    rests=st.sampled_from(["none", "continue"]),
)


def wholes(rule, sizes):
    """Return the elements that batches take of each sample of ``batching.dataset``."""
    offsets = numpy.concatenate([[0], numpy.cumsum(sizes, dtype=numpy.int64)]).tolist()
    return {
        sample: list(range(start, start + kept(rule, end - start)))
        for sample, (start, end) in enumerate(itertools.pairwise(offsets))
    }


def kept(rule, size):
    """The elements that batches take of a sample, in all of its parts."""
    if size <= rule.max_tokens or rule.oversize in ("split", None):
        return size
    return 0 if rule.oversize == "drop" else rule.max_tokens


def readable(rule, sizes):
    """Leave out what a plan refuses: samples that are too large, and epochs of which nothing is left."""
    longer = [size > rule.max_tokens for size in sizes]
    assume(not (any(longer) and rule.oversize is None and rule.rests == "none"))
    assume(not (all(longer) and rule.oversize == "drop"))


def on_demand(sizes):
    """The samples of ``batching.dataset``, each made when its batch is."""
    rows = [values for _, values in sorted(wholes(bl.Packing(2**20), sizes).items())]
    return bl.MapDataset([{"x": numpy.array(row, numpy.int64)} for row in rows], sizes=sizes)


def twice(sizes):
    """The samples of ``batching.dataset``, as two datasets put together."""
    rows = [values for _, values in sorted(wholes(bl.Packing(2**20), sizes).items())]
    half = len(sizes) // 2
    left, right = (
        bl.SequenceDataset(x=[numpy.array(row, numpy.int64) for row in part]) for part in (rows[:half], rows[half:])
    )
    return left.concat(right)


KINDS = {"stored": batching.dataset, "on demand": on_demand, "concatenated": twice}


def epochs(dataset, worlds, **options):
    """The batches that all ranks see, while each world takes some steps; the last one takes the rest."""
    state, seen = None, []
    for world_size, steps in worlds:
        loaders = [bl.DataLoader(dataset, rank=rank, world_size=world_size, **options) for rank in range(world_size)]
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(json.loads(json.dumps(state)))
        iterators = [iter(loader) for loader in loaders]
        taken = 0
        while taken != steps:
            came = [batch for batch in (next(iterator, None) for iterator in iterators) if batch is not None]
            seen.extend(came)
            taken += 1
            if not came:
                return seen
        state = loaders[0].state_dict()
        if state["epoch"] > 0:
            return seen
    return seen


@pytest.mark.law("L1", "L6")
@given(
    sizes=sized(size=90),
    rule=rules,
    kind=st.sampled_from(sorted(KINDS)),
    shuffle=st.booleans(),
    balance=st.booleans(),
    labels=st.booleans(),
    world_size=st.integers(1, 9),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_every_element_lies_in_one_row(sizes, rule, kind, shuffle, balance, labels, world_size, threads, seed):
    readable(rule, sizes)
    assume(kind != "concatenated" or len(sizes) > 1)
    labels = labels and kind != "on demand"
    options = {"labels": "x"} if labels else {}
    options |= {"batching": rule, "shuffle": shuffle, "balance": balance, "seed": seed, "num_threads": threads}
    batches = epochs(KINDS[kind](sizes), [(world_size, None)], uneven="short", **options)
    expected = wholes(rule, sizes)
    for batch in batches:
        packed_rows.check(batch, rule)
        if labels and rule.rests == "continue":
            packed_rows.check_labels(batch, expected)
    found = packed_rows.elements(batches)
    if rule.rests == "none" and not balance:
        # Parts of a sample that is split come in any order.
        found = {sample: sorted(values) for sample, values in found.items()}
    dropped = {sample for sample, size in enumerate(sizes) if size > rule.max_tokens and rule.oversize == "drop"}
    assert {sample: sorted(values) for sample, values in found.items()} == {
        sample: values for sample, values in expected.items() if sample not in dropped
    }
    if rule.rests == "continue":
        assert all(found[sample] == expected[sample] for sample in found)


@pytest.mark.law("L4", "L5")
@given(
    sizes=sized(size=90),
    rule=rules,
    balance=st.booleans(),
    worlds=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
def test_stops_lose_and_repeat_no_element(sizes, rule, balance, worlds, seed):
    readable(rule, sizes)
    options = {"batching": rule, "shuffle": True, "balance": balance, "seed": seed, "uneven": "short"}
    batches = epochs(batching.dataset(sizes), [*worlds, (1, None)], **options)
    found = packed_rows.elements(batches)
    dropped = {sample for sample, size in enumerate(sizes) if size > rule.max_tokens and rule.oversize == "drop"}
    expected = {sample: values for sample, values in wholes(rule, sizes).items() if sample not in dropped}
    assert {sample: sorted(values) for sample, values in found.items()} == expected


@pytest.mark.law("L4")
@pytest.mark.parametrize("rests", ["none", "continue"])
def test_every_step_resumes_with_the_same_batches(rests):
    sizes = numpy.random.default_rng(3).integers(0, 50, 120).tolist()
    rule = bl.Packing(32, rows=3, rests=rests, oversize="split", pool=40)

    def loader():
        return bl.DataLoader(batching.dataset(sizes), batching=rule, shuffle=True, labels="x", seed=5)

    whole = list(loader())
    for step in range(len(whole)):
        first = loader()
        list(itertools.islice(first, step))
        rest = loader()
        rest.load_state_dict(first.state_dict())
        batches = list(rest) if step else list(loader())
        assert len(batches) == len(whole) - step
        for batch, expected in zip(batches, whole[step:], strict=True):
            assert all(numpy.array_equal(batch[name], expected[name]) for name in expected)


def web_lengths(count, seed=0):
    """Lengths of documents like those of web pages: most of a few hundred tokens, some of many thousands."""
    return numpy.random.default_rng(seed).lognormal(6.2, 1.1, count).astype(numpy.int64).clip(1, 100_000)


@pytest.mark.law("L6", "L8")
def test_rests_fill_rows_of_web_pages():
    sizes = web_lengths(20_000)
    rule = bl.Packing(2048, rows=8, rests="continue")
    plan = bl.Plan(len(sizes), batching=rule, sizes=sizes, shuffle=True)
    stats = plan.stats()
    assert stats["real"] == sizes.sum()
    assert stats["shapes"] == 1
    # Only the last batch of the epoch has padding.
    assert len(plan) == -(-int(sizes.sum()) // (8 * 2048))
    full = bl.Plan(len(sizes), batching=rule, sizes=sizes, shuffle=True, drop_last=True).stats()
    assert full["real"] == full["padded"]
    assert full["efficiency"] == 1
    assert 0 < full["dropped_tokens"] < 8 * 2048 <= sizes.sum() // 200


@pytest.mark.law("L1")
def test_no_target_is_lost_at_a_border():
    sizes = web_lengths(300, seed=1) // 20 + 1
    dataset = batching.dataset(sizes.tolist())
    rule = bl.Packing(64, rows=2, rests="continue")
    loader = bl.DataLoader(dataset, batching=rule, shuffle=True, labels="x", loss="token-mean", drop_last=False)
    plan, weights = loader.plan(), 0.0
    targets = []
    for step, batch in enumerate(loader):
        counted = batch["labels"] != -100
        targets += batch["labels"][counted].tolist()
        assert plan.step(step).labels == counted.sum()
        weights += float(batch["loss_weight"].sum())
    # Every element but the first of each sample is the target of the one before it.
    firsts = {values[0] for values in wholes(rule, sizes.tolist()).values()}
    assert sorted(targets) == sorted(set(range(int(sizes.sum()))) - firsts)
    assert weights == pytest.approx(len(plan), rel=1e-5)


def test_rows_that_fill_up_hold_padding_alone():
    dataset = bl.SequenceDataset(x=[[5, 6], [7, 8, 9]], y=[1, 2], name=["a", "b"])
    (batch,) = bl.DataLoader(
        dataset,
        batching=bl.Packing(4, rows=3, max_samples=2),
        labels="x",
        fields={"x": bl.Field(pad=-7), "y": bl.Field(pad=9)},
    )
    assert batch["x"].tolist() == [[7, 8, 9, -7], [5, 6, -7, -7], [-7] * 4]
    assert batch["y"].tolist() == [[2, 9], [1, 9], [9, 9]]
    assert batch["name"] == [["b", None], ["a", None], [None, None]]
    assert batch["index"].tolist() == [[1, -1], [0, -1], [-1, -1]]
    assert batch["cu_seqlens"].tolist() == [[0, 3, 3], [0, 2, 2], [0, 0, 0]]
    assert batch["segment_ids"].tolist() == [[1, 1, 1, 0], [1, 1, 0, 0], [0] * 4]
    assert batch["labels"].tolist() == [[8, 9, -100, -100], [6, -100, -100, -100], [-100] * 4]


@pytest.mark.parametrize("oversize", [None, "split", "drop", "truncate", "error"])
@pytest.mark.parametrize("rests", ["none", "continue"])
def test_a_document_longer_than_a_row(oversize, rests):
    sizes = [10, 3, 0, 4]
    rule = bl.Packing(4, rows=2, oversize=oversize, rests=rests)
    loader = lambda: bl.DataLoader(batching.dataset(sizes), batching=rule)  # noqa: E731
    if oversize == "error" or (oversize is None and rests == "none"):
        with pytest.raises(bl.DataError, match="sample 0 has size 10"):
            loader()
        return
    found = packed_rows.elements(loader())
    assert {sample: sorted(values) for sample, values in found.items()} == {
        sample: values for sample, values in wholes(rule, sizes).items() if not (sample == 0 and oversize == "drop")
    }


def test_rows_of_one_sample():
    sizes = [3, 5, 1, 5]
    rule = bl.Packing(5, rows=2, max_samples=1, rests="continue")
    batches = list(bl.DataLoader(batching.dataset(sizes), batching=rule))
    assert [batch["index"].shape for batch in batches] == [(2, 1)] * 2
    assert packed_rows.elements(batches) == wholes(rule, sizes)


def test_rests_of_packs_without_rows():
    sizes = [7, 7, 7, 7]
    loader = bl.DataLoader(batching.dataset(sizes), batching=bl.Packing(8, rests="continue"), labels="x")
    batches = list(loader)
    assert [len(batch["x"]) for batch in batches] == [8, 8, 8, 4]
    assert sorted(numpy.concatenate([batch["x"] for batch in batches]).tolist()) == list(range(28))
    assert sum(int((batch["labels"] != -100).sum()) for batch in batches) == 28 - 4


@pytest.mark.law("L3", "L6")
@pytest.mark.parametrize("uneven", ["pad", "mask", "short"])
@pytest.mark.parametrize("rests", ["none", "continue"])
@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_ranks_take_steps_of_one_shape(uneven, rests, world_size):
    sizes = numpy.random.default_rng(1).integers(1, 30, 90).tolist()
    rule = bl.Packing(32, rows=2, rests=rests)
    options = {"batching": rule, "shuffle": True, "uneven": uneven, "seed": 3}
    ranks = [
        list(bl.DataLoader(batching.dataset(sizes), rank=rank, world_size=world_size, **options))
        for rank in range(world_size)
    ]
    if uneven != "short":
        assert len({len(batches) for batches in ranks}) == 1
    shapes = {
        tuple((name, getattr(value, "shape", value)) for name, value in batch.items()) for batch in batching.flat(ranks)
    }
    assert len(shapes) == 1
    if uneven == "mask":
        weights = [batch["weight"] for batches in ranks for batch in batches]
        index = [batch["index"] for batches in ranks for batch in batches]
        counted = sum(float(weight.sum()) for weight in weights)
        assert counted == sum(int((numbers >= 0).sum()) for numbers in index)
        assert counted >= len(sizes)


def test_bans_clear_their_places_and_no_padding():
    options = {"batching": bl.Packing(8, rows=2), "fields": {"x": bl.Field(pad=-7)}}
    (batch,) = bl.DataLoader(batching.dataset([6, 5]), ban=[1], **options)
    assert batch["x"].tolist() == [[0, 1, 2, 3, 4, 5, -7, -7], [0, 0, 0, 0, 0, -7, -7, -7]]
    assert batch["index"][:, 0].tolist() == [0, -1]
    assert batch["weight"][:, 0].tolist() == [1, 0]


def test_bans_are_counted():
    sizes = [6, 5, 4, 3]
    rule = bl.Packing(8, rows=2, rests="continue")
    loader = bl.DataLoader(batching.dataset(sizes), batching=rule, labels="x", ban=[1])
    for batch in loader:
        weight = dict(zip(batch["index"].ravel().tolist(), batch["weight"].ravel().tolist(), strict=True))
        assert weight.get(-1, 0) == 0
    stats = loader.plan().stats()
    assert stats["banned_tokens"] == 5
    assert stats["real"] == 13


def test_mixtures_by_tokens_and_weights_fill_rows():
    left, right = web_lengths(400, seed=2) // 10 + 1, web_lengths(300, seed=3) // 20 + 1
    datasets = {"left": batching.dataset(left.tolist()), "right": batching.dataset(right.tolist())}
    mixture = bl.Mixture(datasets, {"left": 0.75, "right": 0.25}, by="tokens")
    loader = bl.DataLoader(mixture, batching=bl.Packing(64, rows=4, rests="continue", pool=50), shuffle=True, seed=1)
    shares, full = numpy.zeros(2), 0
    batches = list(loader)
    for batch in batches:
        packed_rows.check(batch, bl.Packing(64, rows=4, rests="continue"))
        lengths = numpy.diff(batch["cu_seqlens"])
        assert (batch["source"][batch["index"] < 0] == -1).all()
        shares += [lengths[batch["source"] == source].sum() for source in (0, 1)]
        full += int((batch["segment_ids"] > 0).all())
    assert full == len(batches) - 1
    assert shares[0] / shares.sum() == pytest.approx(0.75, abs=0.02)
    # Weights that change within an epoch change nothing before the next pool, and rows stay full.
    iterator = iter(loader)
    first = list(itertools.islice(iterator, 5))
    state = loader.state_dict()
    other = bl.DataLoader(
        bl.Mixture(datasets, {"left": 0.25, "right": 0.75}, by="tokens"),
        batching=bl.Packing(64, rows=4, rests="continue", pool=50),
        shuffle=True,
        seed=1,
    )
    other.load_state_dict(state)
    rest = list(other)
    assert sum(int((batch["segment_ids"] > 0).all()) for batch in rest) >= len(rest) - 1
    # Whatever was drawn comes whole, also where weights changed inside of an epoch.
    offsets = {0: left, 1: right}
    counts = {0: Counter(), 1: Counter()}
    for batch in first + rest:
        for row, sources in zip(packed_rows.parts(batch), batch["source"].tolist(), strict=True):
            for (_, values), source in zip(row, sources, strict=False):
                counts[source].update(values)
    for source, lengths in offsets.items():
        starts = numpy.cumsum(lengths) - lengths
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            assert len({counts[source][value] for value in range(start, start + length)}) == 1


def test_weighted_draws_fill_rows():
    sizes = web_lengths(200, seed=4) // 10 + 1
    loader = bl.DataLoader(
        batching.dataset(sizes.tolist()),
        batching=bl.Packing(64, rows=4, rests="continue"),
        shuffle=True,
        weights=numpy.arange(1, 201),
        num_samples=500,
    )
    batches = list(loader)
    assert sum(int((batch["segment_ids"] > 0).all()) for batch in batches) == len(batches) - 1
    stats = loader.plan().stats()
    assert stats["real"] == stats["tokens"]


@pytest.mark.law("L6")
def test_files_make_the_rows_of_memory(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    sizes = web_lengths(500, seed=5) // 20
    rows = [values for _, values in sorted(wholes(bl.Packing(2**20), sizes.tolist()).items())]
    pyarrow.parquet.write_table(pa.table({"x": pa.array(rows, pa.list_(pa.int64()))}), tmp_path / "x.parquet")
    rule = bl.Packing(64, rows=4, rests="continue")
    for options in ({"shuffle": False}, {"shuffle": True, "seed": 3}):
        batches = list(bl.DataLoader(bl.open(tmp_path / "x.parquet"), batching=rule, **options))
        for batch in batches:
            packed_rows.check(batch, rule)
        found = packed_rows.elements(batches)
        assert {sample: sorted(values) for sample, values in found.items()} == dict(enumerate(rows))


def test_samples_that_cannot_be_read_leave_their_places():
    def read(sample):
        if sample == 1:
            raise ValueError("damaged")
        return {"x": numpy.full(sample + 2, sample + 1)}

    dataset = bl.MapDataset(range(4), read, sizes=[2, 3, 4, 5], on_error="skip")
    batches = list(bl.DataLoader(dataset, batching=bl.Packing(6, rows=3, max_samples=2)))
    for batch in batches:
        index, weight = batch["index"].ravel().tolist(), batch["weight"].ravel().tolist()
        assert all(counts == (sample not in (-1, 1)) for sample, counts in zip(index, weight, strict=True))
        assert set(batch["x"].ravel().tolist()) <= {0, 1, 3, 4}


def test_devices_keep_the_addresses_of_rows():
    sizes = numpy.random.default_rng(2).integers(1, 30, 60).tolist()
    rule = bl.Packing(32, rows=2, rests="continue")
    options = {"batching": rule, "shuffle": True, "labels": "x", "seed": 3}
    dataset = bl.SequenceDataset(x=[torch.arange(size) for size in sizes], y=torch.arange(60))
    static = bl.DataLoader(dataset, device="cpu", buffers="static", **options)
    plain, addresses = list(bl.DataLoader(dataset, **options)), set()
    for batch, expected in zip(static, plain, strict=True):
        addresses.add(tuple((name, value.data_ptr()) for name, value in batch.items() if torch.is_tensor(value)))
        assert all(torch.equal(torch.as_tensor(batch[name]), torch.as_tensor(expected[name])) for name in expected)
    assert len(addresses) == 1


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda: bl.Packing(64, rows=0), "rows is 0"),
        (lambda: bl.Packing(64, rows=-1), "rows is -1"),
        (lambda: bl.Packing(64, rows=1.5), "rows is 1.5"),
        (lambda: bl.Packing(64, rows=2, max_samples=0), "max_samples is 0"),
        (lambda: bl.Packing(2**28, rows=16), "16 rows of 268435456 elements make batches of 4294967296"),
        (lambda: bl.Packing(64, rests="later"), "rests is 'later'"),
    ],
)
def test_rules_that_make_no_rows(rule, message):
    with pytest.raises(bl.ArgumentError, match=message):
        rule()


def test_an_epoch_without_a_full_batch():
    with pytest.raises(bl.ArgumentError, match="2 samples have 7 elements, and a full batch has 16"):
        bl.DataLoader(batching.dataset([3, 4]), batching=bl.Packing(8, rows=2, rests="continue"), drop_last=True)


def test_labels_that_are_counted_whole_and_continued():
    dataset = bl.SequenceDataset(x=[[1, 2, 3]], labels=[[1, -100, 2]])
    rule = bl.Packing(2, rests="continue")
    with pytest.raises(bl.ArgumentError, match="Packing continues samples in later batches"):
        bl.DataLoader(dataset, batching=rule, label_counts=[2])


def test_a_row_has_no_more_places_than_elements():
    (batch,) = bl.DataLoader(batching.dataset([2, 3]), batching=bl.Packing(8, rows=1, max_samples=10**9))
    assert batch["index"].shape == (1, 8)


@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize("pool", [None, 40])
def test_the_batch_with_padding_is_the_last(rows, pool):
    sizes = numpy.random.default_rng(8).integers(0, 30, 200).tolist()
    rule = bl.Packing(16, rows=rows, rests="continue", pool=pool)
    for seed in range(20):
        batches = list(bl.DataLoader(batching.dataset(sizes), batching=rule, shuffle=True, seed=seed))
        assert all((batch["segment_ids"] > 0).sum() == 16 * (rows or 1) for batch in batches[:-1])


def test_lists_of_samples_name_no_parts():
    for rule in (bl.Packing(4, rests="continue"), bl.Packing(4, oversize="split")):
        with pytest.raises(bl.ArgumentError, match="lists of samples name no parts"):
            bl.BatchSampler([3, 7, 2], batching=rule)


def test_rows_are_padded_after_their_samples():
    with pytest.raises(bl.ArgumentError, match='pad_side is "left"'):
        bl.DataLoader(batching.dataset([3]), batching=bl.Packing(4, rows=1), pad_side="left")


def test_indices_of_samples_that_are_cut_are_refused():
    dataset = bl.SequenceDataset(parent=[[1, 1, 1], [0, 0]])
    for rule in (bl.Packing(4, rests="continue"), bl.Packing(4, oversize="truncate")):
        with pytest.raises(bl.ArgumentError, match="offset_by"):
            bl.DataLoader(dataset, batching=rule, fields={"parent": bl.Field(offset_by="parent")})


def test_a_field_named_as_the_mask():
    dataset = bl.SequenceDataset(x=[[1, 2], [3]], block_mask=[1, 2])
    with pytest.raises(bl.ArgumentError, match="block_mask"):
        bl.DataLoader(dataset, batching=bl.Packing(4), block_mask="causal")


def test_groups_are_not_continued():
    dataset = bl.GroupDataset([0, 0, 1], x=[1.0, 2.0, 3.0], layout="concatenated")
    with pytest.raises(bl.ArgumentError):
        bl.DataLoader(dataset, batching=bl.Packing(4, rests="continue"))
