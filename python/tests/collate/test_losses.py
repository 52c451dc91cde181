"""The weights of labels add up to the loss of one large batch, however its samples are divided."""

import batchloom as bl
import jax
import numpy
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import losses
from refusals import refused

KINDS = ["token-mean", "sequence-mean", "sequence-sum"]
# Labels of -100 are ignored; token 7 pads labels of a field, so that padding is told by masks alone.
sentences = st.lists(st.lists(st.integers(0, 999), max_size=9), min_size=1, max_size=30)
rules = st.sampled_from(
    [
        bl.FixedSize(3),
        bl.LengthBuckets(2, pool=3),
        bl.TokenBudget(30),
        bl.CostOptimal(bl.CostModel(1, 1), max_tokens=40),
        bl.Packing(20),
    ]
)


def tokens_of(lists):
    return [numpy.array(tokens, numpy.int64) for tokens in lists]


def made_by_the_loader(lists):
    """Tokens, whose labels the loader makes."""
    return bl.SequenceDataset(input_ids=tokens_of(lists)), {"labels": "input_ids"}


def given_as_a_field(lists):
    """Labels that a field holds, every third of them ignored."""
    labels = [numpy.where(tokens % 3 == 0, -100, tokens).astype(numpy.int32) for tokens in tokens_of(lists)]
    dataset = bl.SequenceDataset(input_ids=tokens_of(lists), labels=labels)
    return dataset, {"label_counts": dataset.count_labels("labels"), "pad_value": 7}


def one_a_sample(lists):
    """Rows with a label each, some of them ignored."""
    labels = numpy.array([len(tokens) if len(tokens) % 4 else -100 for tokens in lists])
    dataset = bl.TensorDataset(x=numpy.arange(len(lists)), labels=labels)
    return dataset, {"label_counts": dataset.count_labels("labels")}


def on_demand(lists):
    """Samples that a function makes, with labels among their fields."""
    labels = [numpy.where(tokens % 3 == 0, -100, tokens) for tokens in tokens_of(lists)]
    sizes = [len(tokens) for tokens in lists]
    counts = [int((each != -100).sum()) for each in labels]
    dataset = bl.MapDataset(labels, lambda own: {"input_ids": abs(own), "labels": own}, sizes=sizes)
    return dataset, {"label_counts": counts, "pad_value": 7}


def all_batches(dataset, world_size, state=None, **options):
    """The batches of all ranks, step by step, and the plan."""
    loaders = [bl.DataLoader(dataset, rank=rank, world_size=world_size, **options) for rank in range(world_size)]
    for loader in loaders if state is not None else ():
        loader.load_state_dict(state)
    plan = loaders[0].plan()
    ranks = [list(loader) for loader in loaders]
    return plan, [[rank[step] for rank in ranks if step < len(rank)] for step in range(max(map(len, ranks)))]


def assert_one_large_batch(kind, plan, steps):
    """Weights times terms of each update add up to its loss by definition, and denominators are its numbers."""
    for number in range(plan.updates):
        update = plan.update(number)
        batches = [batch for step in update.steps for batch in steps[step]]
        held = [sample for batch in batches for sample in losses.samples_of(batch)]
        expected, divisor = losses.loss_of(kind, [labels for labels, _ in held])
        found = sum(
            losses.term(label) * weight
            for labels, weights in held
            for label, weight in zip(labels, weights, strict=True)
        )
        assert found == pytest.approx(expected, rel=1e-5)
        assert {int(batch["loss_denominator"][0]) for batch in batches} == {divisor}
        counted = update.labels if kind == "token-mean" else update.sequences
        assert divisor == max(counted, 1)
        for batch in batches:
            assert batch["loss_weight"].shape == batch["labels"].shape
            assert str(batch["loss_weight"].dtype).endswith("float32")
            assert str(batch["loss_denominator"].dtype).endswith("int64")


@settings(max_examples=settings.default.max_examples * 2)
@given(
    lists=sentences,
    make=st.sampled_from([made_by_the_loader, given_as_a_field, one_a_sample, on_demand]),
    rule=rules,
    kind=st.sampled_from(KINDS),
    uneven=st.sampled_from(["pad", "mask", "short"]),
    accumulate=st.integers(1, 4),
    world_size=st.integers(1, 3),
    left=st.booleans(),
    banned=st.sampled_from([None, [], [0, 4]]),
    seed=st.integers(0, 5),
)
def test_weights_add_up_to_the_loss_of_one_large_batch(
    lists, make, rule, kind, uneven, accumulate, world_size, left, banned, seed
):
    dataset, options = make(lists)
    if make is one_a_sample:
        rule = bl.FixedSize(3)
    options |= {"batching": rule, "uneven": uneven, "accumulate": accumulate, "seed": seed, "shuffle": True}
    options |= {"pad_side": "left"} if left else {}
    options |= {} if banned is None else {"ban": [sample for sample in banned if sample < len(lists)]}
    # Fields of samples on demand are those of the first one that is read.
    assume(make is not on_demand or len(options.get("ban", [])) < len(lists))
    assert_one_large_batch(kind, *all_batches(dataset, world_size, loss=kind, **options))


@pytest.mark.law("L4", "L5")
@settings(max_examples=settings.default.max_examples // 2)
@given(
    lists=sentences,
    rule=rules,
    kind=st.sampled_from(KINDS),
    worlds=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    accumulate=st.integers(1, 4),
    stop=st.integers(0, 5),
)
def test_an_update_that_a_resume_cuts_counts_what_is_left(lists, rule, kind, worlds, accumulate, stop):
    dataset, options = made_by_the_loader(lists)
    options |= {"batching": rule, "uneven": "mask", "accumulate": accumulate, "shuffle": True, "loss": kind}
    loader = bl.DataLoader(dataset, rank=0, world_size=worlds[0], **options)
    for _ in zip(range(stop), loader, strict=False):
        pass
    rest, steps = all_batches(dataset, worlds[1], loader.state_dict(), **options)
    assert_one_large_batch(kind, rest, steps)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("oversize", ["split", "truncate"])
def test_parts_of_samples_are_samples(kind, oversize):
    dataset, options = made_by_the_loader([range(40), range(3), range(11), range(1), range(27)])
    rule = bl.Packing(10, oversize=oversize)
    assert_one_large_batch(kind, *all_batches(dataset, 2, loss=kind, batching=rule, accumulate=3, **options))
    labels = bl.SequenceDataset(x=dataset.fields["input_ids"], labels=dataset.fields["input_ids"])
    options = {"label_counts": labels.count_labels("labels", batching=rule)}
    assert_one_large_batch(kind, *all_batches(labels, 2, loss=kind, batching=rule, accumulate=3, **options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tail", ["drop", "pad", "short"])
@pytest.mark.parametrize("uneven", ["pad", "mask"])
def test_pieces_of_a_stream(kind, tail, uneven):
    dataset = bl.TokenDataset(numpy.arange(203, dtype=numpy.uint16), seq_len=8, tail=tail)
    options = {"batch_size": 3, "shuffle": True, "accumulate": 2, "uneven": uneven}
    plan, steps = all_batches(dataset, 2, loss=kind, **options)
    extras = ["loss_weight", "loss_denominator"]
    names = ["x", "labels", *(["index", "weight"] if uneven == "mask" else []), *extras]
    named = [[dict(zip(names, batch, strict=True)) for batch in step] for step in steps]
    assert_one_large_batch(kind, plan, named)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_chunks_and_datasets_put_together(kind):
    numbers = numpy.arange(60)
    labels = numpy.where(numbers % 4 == 1, -100, numbers)
    groups = bl.GroupDataset(numbers // 7, x=numbers, labels=labels)
    rest = {"label_counts": groups.count_labels("labels"), "batch_size": 2, "accumulate": 2}
    plan, steps = all_batches(groups, 2, loss=kind, **rest)
    for step in steps:
        for batch in step:
            batch["cu_seqlens"] = batch["offsets"]
            del batch["group_ids"]
    assert_one_large_batch(kind, plan, steps)
    lists = [range(length) for length in (3, 9, 0, 4, 2, 6, 1)]
    (one, options), (other, _) = made_by_the_loader(lists), made_by_the_loader(lists[::-1])
    both = bl.ConcatDataset([one, other])
    assert_one_large_batch(kind, *all_batches(both, 2, loss=kind, batching=bl.Packing(16), accumulate=2, **options))
    chunks = [{"x": numbers[i : i + 10], "labels": labels[i : i + 10]} for i in range(0, 60, 10)]
    read = bl.ChunkDataset([10] * 6, chunks.__getitem__)
    options = {"label_counts": (labels != -100).astype(int), "batch_size": 4, "accumulate": 3, "shuffle": True}
    assert_one_large_batch(kind, *all_batches(read, 2, loss=kind, **options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [None, [3, 5, 1, 4, 2, 6]])
def test_samples_that_cannot_be_read_have_no_weight(kind, sizes):
    lists = tokens_of([range(length) for length in sizes or [4] * 6])

    def read(item):
        if item == 3:
            raise ValueError("no such sample")
        return {"x": lists[item], "labels": lists[item]}

    dataset = bl.MapDataset(range(6), read, sizes=sizes, on_error="skip")
    counts = [len(tokens) for tokens in lists]
    loader = bl.DataLoader(dataset, batch_size=3, accumulate=2, loss=kind, label_counts=counts)
    for _ in range(2):
        batches = list(loader)
        assert {int(batch["loss_denominator"][0]) for batch in batches} == {sum(counts) if "token" in kind else 6}
        total = sum(float(batch["loss_weight"].sum()) for batch in batches)
        missing = counts[3] / sum(counts) if kind == "token-mean" else counts[3] / 6 if "sum" in kind else 1 / 6
        whole = sum(counts) / 6 if kind == "sequence-sum" else 1
        assert total == pytest.approx(whole - missing)


@pytest.mark.parametrize("way", ["threads", "streamed", "static", "jax", "checked"])
def test_weights_go_where_batches_go(way):
    dataset, options = made_by_the_loader([range(length) for length in (3, 9, 2, 4, 2, 6, 1, 8)])
    options |= {"batching": bl.TokenBudget(24), "accumulate": 2, "shuffle": True, "loss": "sequence-mean"}
    more = {
        "threads": {"num_threads": 3, "output": "torch"},
        "streamed": {"device": "meta"},
        "static": {"buffers": "static", "output": "torch"},
        "jax": {"output": "jax"},
        "checked": {"buffers": "checked", "output": "torch"},
    }[way]
    plain = [dict(batch) for batch in bl.DataLoader(dataset, **options)]
    loader = bl.DataLoader(dataset, **options, **more)
    for batch, expected in zip(loader, plain, strict=True):
        assert list(batch) == list(expected)
        for name in ("loss_weight", "loss_denominator"):
            assert batch[name].shape == expected[name].shape
            assert isinstance(batch[name], jax.Array if way == "jax" else torch.Tensor)
            if way != "streamed":
                assert numpy.asarray(batch[name]).tolist() == expected[name].tolist()
    replayed = bl.DataLoader(dataset, **options).replay(0, 1)
    assert replayed["loss_weight"].tolist() == plain[1]["loss_weight"].tolist()


def test_extras_choose_among_them():
    dataset, options = made_by_the_loader([range(4), range(2)])
    whole = bl.DataLoader(dataset, batch_size=2, loss="token-mean", **options)
    fewer = bl.DataLoader(dataset, batch_size=2, loss="token-mean", extras=("loss_weight",), **options)
    assert list(next(iter(fewer))) == ["input_ids", "labels", "loss_weight"]
    assert list(next(iter(whole)))[-2:] == ["loss_weight", "loss_denominator"]
    with refused(bl.ArgumentError, "loss_weight", "extras"):
        bl.DataLoader(dataset, batch_size=2, extras=("loss_weight",))


def test_losses_that_cannot_be_known_are_refused_before_any_work():
    rows = numpy.arange(12).reshape(4, 3)
    tokens, options = made_by_the_loader([range(4), range(2)])
    labelled = bl.TensorDataset(x=rows, labels=rows)
    for wrong in ("mean", 3, True, ["token-mean"]):
        with refused(bl.ArgumentError, "loss", "sequence-mean"):
            bl.DataLoader(tokens, loss=wrong, **options)
    for dataset in (tokens, bl.TensorDataset(rows, rows), bl.TensorDataset(x=rows)):
        with refused(bl.ArgumentError, "loss", "token-mean", "labels"):
            bl.DataLoader(dataset, loss="token-mean")
    for dataset in (labelled, bl.MapDataset(range(4), lambda item: {"labels": rows[item]})):
        with refused(bl.ArgumentError, "loss", "label_counts", "count_labels"):
            bl.DataLoader(dataset, loss="token-mean")
    with refused(bl.ArgumentError, "loss", "float32", "integers"):
        bl.DataLoader(bl.TensorDataset(labels=rows.astype("float32")), loss="token-mean", label_counts=[3] * 4)
    with refused(bl.ArgumentError, "collate", "loss"):
        bl.DataLoader(labelled, loss="token-mean", label_counts=[3] * 4, collate=lambda samples: samples)
    taken = bl.TensorDataset(labels=rows, loss_weight=rows)
    with refused(bl.ArgumentError, "loss_weight", "loss"):
        bl.DataLoader(taken, loss="token-mean", label_counts=[3] * 4)
    with refused(bl.ArgumentError, "resident", "weights of labels"):
        bl.DataLoader(labelled, loss="token-mean", label_counts=[3] * 4, resident=True, output="torch")
    unnamed = bl.MapDataset(range(4), lambda item: {"x": rows[item]})
    with refused(bl.ArgumentError, "loss", "labels", "x"):
        next(iter(bl.DataLoader(unnamed, loss="token-mean", label_counts=[3] * 4)))


def test_an_update_without_a_label_weighs_nothing():
    dataset, options = made_by_the_loader([[1], [2], [3, 4], [5, 6]])
    first, second = bl.DataLoader(dataset, batch_size=2, loss="token-mean", **options)
    assert first["loss_weight"].tolist() == [[0.0], [0.0]]
    assert first["loss_denominator"].tolist() == [1]
    assert second["loss_weight"].tolist() == [[0.5, 0.0], [0.5, 0.0]]
