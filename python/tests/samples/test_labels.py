"""Labels of a step (L2): the exact count of those that are not -100, for every rule, layout and side."""

import pickle

import batchloom as bl
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

LENGTHS = [3, 0, 9, 1, 14, 2, 7, 7, 5, 22, 4, 1, 6, 11, 2]
RULES = [
    bl.FixedSize(4),
    bl.LengthBuckets(3, pool=2),
    bl.TokenBudget(24),
    bl.TokenBudget(12, oversize="truncate"),
    bl.CostOptimal(bl.CostModel(10, 1), max_tokens=24),
    bl.Packing(24),
    bl.Packing(8, oversize="split"),
    bl.Packing(8, oversize="truncate"),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


def used(loaders, field, left=False):
    """The labels of all ranks that are not -100, step by step; those of padding and of fillers are left out."""
    found = {}
    for loader in loaders:
        for step, batch in enumerate(loader):
            labels, counts = batch[field], batch.get("weight")
            if "cu_seqlens" in batch:
                rows = numpy.split(labels, batch["cu_seqlens"][1:-1])
            elif left:
                rows = [row[len(row) - length :] for row, length in zip(labels, batch["lengths"], strict=True)]
            else:
                rows = [row[:length] for row, length in zip(labels, batch["lengths"], strict=True)]
            kept = [row for place, row in enumerate(rows) if counts is None or counts[place] > 0]
            found[step] = found.get(step, 0) + sum(int((row != -100).sum()) for row in kept)
    return found


def masked(lengths, every):
    """Fields of labels of which each ``every``-th is -100."""
    values = numpy.arange(sum(lengths)) + 1
    values[::every] = -100
    return numpy.split(values, numpy.cumsum(lengths)[:-1])


def loaders_of(dataset, world_size, **options):
    return [bl.DataLoader(dataset, **options, rank=rank, world_size=world_size) for rank in range(world_size)]


@every_rule
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("uneven", ["pad", "mask", "short"])
def test_labels_that_the_loader_makes_follow_from_sizes(rule, side, uneven):
    dataset = bl.SequenceDataset(t=[numpy.arange(length) + 1 for length in LENGTHS])
    for world_size in (1, 2, 5):
        loaders = loaders_of(dataset, world_size, batching=rule, shuffle=True, labels="t", pad_side=side, uneven=uneven)
        plan = loaders[0].plan()
        found = used(loaders, "labels", side == "left")
        assert found == {step: plan.step(step).labels for step in found}
        assert all(plan.step(step).labels < plan.step(step).tokens for step in found if plan.step(step).tokens)


@pytest.mark.law("L3")
@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=30),
    every=st.integers(1, 6),
    rule=st.sampled_from(RULES[:2] + RULES[3:4] + RULES[6:]),
    uneven=st.sampled_from(["pad", "mask", "short"]),
    world_size=st.integers(1, 4),
    shifted=st.booleans(),
)
def test_labels_of_a_field_are_counted(lengths, every, rule, uneven, world_size, shifted):
    dataset = bl.SequenceDataset(tokens=masked(lengths, every))
    counts = dataset.count_labels("tokens", batching=rule, next_tokens=shifted)
    labels = {"labels": "tokens"} if shifted else {}
    loaders = loaders_of(dataset, world_size, batching=rule, shuffle=True, uneven=uneven, label_counts=counts, **labels)
    plan = loaders[0].plan()
    found = used(loaders, "labels" if shifted else "tokens")
    assert found == {step: plan.step(step).labels for step in found}


@pytest.mark.law("L3")
@given(
    lengths=st.lists(st.integers(0, 20), min_size=2, max_size=30),
    every=st.integers(1, 6),
    rule=st.sampled_from(RULES),
    shifted=st.booleans(),
    of_chunk=st.integers(1, 9),
)
def test_labels_are_counted_alike_wherever_samples_lie(lengths, every, rule, shifted, of_chunk):
    rows = masked(lengths, every)
    chunks = [rows[start : start + of_chunk] for start in range(0, len(rows), of_chunk)]
    read = []

    def lists(chunk):
        read.append(chunk)
        return {"tokens": chunks[chunk]}

    in_chunks = bl.ChunkDataset([len(chunk) for chunk in chunks], lists, lengths=lengths)
    by_row = bl.MapDataset([{"tokens": row} for row in rows], sizes=lengths)
    expected = bl.SequenceDataset(tokens=rows).count_labels("tokens", batching=rule, next_tokens=shifted)
    for dataset in (in_chunks, by_row, in_chunks.select(slice(1, None)), by_row.select(slice(1, None))):
        counts = dataset.count_labels("tokens", batching=rule, next_tokens=shifted)
        if len(dataset) < len(rows):
            held = bl.SequenceDataset(tokens=rows).select(slice(1, None))
            expected = held.count_labels("tokens", batching=rule, next_tokens=shifted)
        assert counts == expected
    # Each chunk is read once for each pass, but for one without a selected sample.
    assert len(read) in (2 * len(chunks), 2 * len(chunks) - 1)


def test_labels_of_samples_on_demand_that_cannot_be_counted_are_refused():
    rows = bl.MapDataset([{"x": numpy.arange(3), "y": numpy.float32(1)}] * 4)
    assert rows.count_labels("x").counts.tolist() == [3] * 4
    with refused(bl.ArgumentError, "z", "x, y"):
        rows.count_labels("z")
    with refused(bl.ArgumentError, "y", "float32", "integers"):
        rows.count_labels("y")
    with refused(bl.ArgumentError, "x", "SequenceDataset"):
        rows.count_labels("x", next_tokens=True)
    broken = bl.MapDataset(range(4), lambda item: {"x": numpy.arange(3) // (item != 2)})
    with refused(bl.DataError, "2"), numpy.errstate(all="raise"):
        broken.count_labels("x")


def test_sizes_of_the_user_do_not_count_as_labels():
    documents = [numpy.arange(length) for length in LENGTHS]
    dataset = bl.SequenceDataset(t=documents, sizes=[7] * len(documents))
    plan = bl.DataLoader(dataset, len(documents), labels="t").plan()
    assert plan.step(0).labels == sum(max(length - 1, 0) for length in LENGTHS)


def test_streams_have_a_label_for_each_token():
    for uneven in ("pad", "mask"):
        loaders = [
            bl.DataLoader(bl.TokenDataset(numpy.arange(101), 8), 5, uneven=uneven, rank=rank, world_size=2)
            for rank in range(2)
        ]
        plan = loaders[0].plan()
        for step, batches in enumerate(zip(*loaders, strict=True)):
            assert plan.step(step).labels == sum(int((batch[1] != -100).sum()) for batch in batches)


def test_rows_groups_and_fixed_fields_are_counted():
    labels = numpy.array([[1, -100], [-100, -100], [3, 4], [5, -100]], numpy.int32)
    rows = bl.TensorDataset(numpy.zeros(4), labels)
    assert rows.count_labels(1).counts.tolist() == [1, 0, 2, 1]
    plan = bl.DataLoader(rows, 2, label_counts=rows.count_labels(1)).plan()
    assert [plan.step(step).labels for step in range(2)] == [1, 3]
    groups = bl.GroupDataset(numpy.array([0, 1, 0, 0]), y=labels[:, 0], max_rows=2, oversize="truncate")
    assert groups.count_labels("y").counts.tolist() == [2, 0]
    sequences = bl.SequenceDataset(t=[[1], [2, 3]], y=numpy.array([-100, 4], numpy.int8))
    assert sequences.count_labels("y").counts.tolist() == [0, 1]
    assert sequences.count_labels("t").counts.tolist() == [1, 2]


def test_without_counts_labels_are_an_error_and_never_the_tokens():
    plain = bl.DataLoader(bl.SequenceDataset(t=[[1, 2], [3]]), 2).plan()
    with refused(bl.ArgumentError, "label_counts", "count_labels", "labels"):
        plain.step(0).labels  # noqa: B018
    assert plain.step(0).tokens == 3
    assert bl.Plan(4, 2, label_counts=[1, 0, 5, 2]).step(1).labels == 7


def test_counts_that_do_not_fit_are_refused():
    dataset = bl.SequenceDataset(t=[numpy.arange(9), numpy.arange(3)])
    split = bl.Packing(4, oversize="split")
    with refused(bl.ArgumentError, "3", "2", "label_counts"):
        bl.DataLoader(dataset, 2, label_counts=[1, 2, 3])
    with refused(bl.ArgumentError, "0", "9", "4", "count_labels"):
        bl.DataLoader(dataset, batching=split, label_counts=dataset.count_labels("t"))
    with refused(bl.ArgumentError, "4", "FixedSize"):
        bl.DataLoader(dataset, 2, label_counts=dataset.count_labels("t", batching=split))
    with refused(bl.DataError, "-1"):
        bl.DataLoader(dataset, 2, label_counts=[1, -1])
    with refused(bl.ArgumentError, "y", "t"):
        dataset.count_labels("y")
    with refused(bl.ArgumentError, "x", "float32", "integers"):
        bl.TensorDataset(x=numpy.zeros(4, numpy.float32)).count_labels("x")
    with refused(bl.ArgumentError, "x", "SequenceDataset"):
        bl.TensorDataset(x=numpy.arange(4)).count_labels("x", next_tokens=True)
    groups = bl.GroupDataset(numpy.zeros(5, int), y=numpy.arange(5), max_rows=2, oversize="subsample")
    with refused(bl.ArgumentError, "y", "2", "5", "truncate"):
        groups.count_labels("y")


def test_a_plan_keeps_its_counts_when_it_is_pickled_and_in_other_epochs():
    dataset = bl.SequenceDataset(t=masked(LENGTHS, 3))
    split = bl.Packing(8, oversize="split")
    for options in (
        {"labels": "t"},
        {"label_counts": dataset.count_labels("t")},
        {"batching": split, "label_counts": dataset.count_labels("t", batching=split)},
    ):
        loader = bl.DataLoader(dataset, **options, shuffle=True)
        for plan in (loader.plan(), loader.plan(3), loader.plan().at_epoch(5)):
            same = pickle.loads(pickle.dumps(plan))
            assert [same.step(step).labels for step in range(len(plan))] == [
                plan.step(step).labels for step in range(len(plan))
            ]
            assert sum(plan.step(step).labels for step in range(len(plan))) > 0
    assert pickle.loads(pickle.dumps(plan.step(0))).labels == plan.step(0).labels


def test_counts_change_no_plan():
    dataset = bl.SequenceDataset(t=masked(LENGTHS, 3))
    plain, counted = bl.DataLoader(dataset, 4), bl.DataLoader(dataset, 4, label_counts=dataset.count_labels("t"))
    assert plain.plan().fingerprint == counted.plan().fingerprint
    counted.load_state_dict(plain.state_dict())
    assert plain.plan() == counted.plan()
