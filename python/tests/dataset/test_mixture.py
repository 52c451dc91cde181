"""Mixtures: every source in passes of its own, as often as its weight says, under every rule, rank and resume."""

import json
import pickle
from collections import Counter

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.batching import flat
from oracles.runs import assert_resumes, chained, few
from oracles.selections import KINDS, torch_seen
from refusals import refused

RULES = [bl.FixedSize(8), bl.LengthBuckets(8), bl.TokenBudget(60), bl.Packing(60)]
BY = ("samples", "tokens", "labels")


def lengths(first, samples, longest):
    return [1 + (first + 5 * k) % longest for k in range(samples)]


SIZES = {"web": lengths(0, 90, 7), "books": lengths(3, 20, 29), "code": lengths(1, 40, 13)}


def sources():
    # Each token tells its source and its sample.
    return {
        name: bl.SequenceDataset(ids=[torch.full((size,), 1000 * place + k) for k, size in enumerate(sizes)])
        for place, (name, sizes) in enumerate(SIZES.items())
    }


WEIGHTS = {"web": 0.5, "books": 0.3, "code": 0.2}


def samples(batch):
    """The source and the number, there, of each sample of a batch, as its tokens tell them."""
    ends = numpy.cumsum([0, *map(len, SIZES.values())])
    found = []
    for place, (source, index) in enumerate(zip(batch["source"].tolist(), batch["index"].tolist(), strict=True)):
        if "cu_seqlens" in batch:
            tokens = batch["ids"][batch["cu_seqlens"][place] : batch["cu_seqlens"][place + 1]]
        else:
            tokens = batch["ids"][place][batch["attention_mask"][place]]
        assert set(tokens.tolist()) == {1000 * source + index - ends[source]}
        found.append((source, int(index - ends[source])))
    return found


def delivered(loader):
    return [samples(batch) for batch in loader]


@pytest.mark.law("L1")
@few
@given(
    rule=st.sampled_from(RULES),
    by=st.sampled_from(BY),
    when=st.sampled_from(["stop", "repeat", "renormalise"]),
    seed=st.integers(0, 3),
)
def test_sources_go_through_passes_and_hold_their_shares(rule, by, when, seed):
    mixture = bl.Mixture(sources(), WEIGHTS, by=by, when_exhausted=when)
    loader = bl.DataLoader(mixture, batching=rule, shuffle=True, seed=seed, labels="ids")
    measure = {"samples": lambda size: 1, "tokens": lambda size: size, "labels": lambda size: max(size - 1, 0)}[by]
    had, epochs = Counter(), []
    for _ in range(3):
        epochs.append(flat(delivered(loader)))
        for source, sample in epochs[-1]:
            had[source] += measure(list(SIZES.values())[source][sample])
    if when != "renormalise":
        for source, weight in enumerate(WEIGHTS.values()):
            assert abs(had[source] - weight * sum(had.values())) <= 3 * 2 * 29
    for source, sizes in enumerate(SIZES.values()):
        counts = Counter(sample for epoch in epochs for origin, sample in epoch if origin == source)
        passes = sum(counts.values()) / len(sizes)
        assert all(int(passes) <= counts[sample] <= int(passes) + 1 for sample in range(len(sizes)))
        if when == "renormalise":
            assert set(counts.values()) == {3}
    once = [{source: len({s for o, s in epoch if o == source}) for source in range(3)} for epoch in epochs[:1]]
    full = [len(sizes) for sizes in SIZES.values()]
    gone = [once[0][source] == full[source] for source in range(3)]
    assert any(gone) if when == "stop" else all(gone)


@pytest.mark.law("L5")
@pytest.mark.parametrize("rule", RULES, ids=repr)
@pytest.mark.parametrize("by", BY)
def test_any_chain_of_worlds_delivers_each_draw_once(rule, by):
    options = {"batching": rule, "shuffle": True, "seed": 7, "uneven": "short", "labels": "ids"}

    def loaders(world_size):
        mixture = bl.Mixture(sources(), WEIGHTS, by=by)
        return [bl.DataLoader(mixture, **options, rank=rank, world_size=world_size) for rank in range(world_size)]

    (alone,) = loaders(1)
    expected = [delivered(alone) for _ in range(2)]
    for epoch in range(2):
        (start,) = loaders(1)
        start.set_epoch(epoch)
        taken = chained(start.state_dict(), [(loaders(4), 0.3), (loaders(3), 0.5)], loaders(2), delivered)
        assert Counter(flat(taken)) == Counter(flat(expected[epoch]))
    assert_resumes(loaders(1)[0], lambda: loaders(1)[0], expected, delivered)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("pieces", "shuffled documents", "sized")])
def test_a_mixture_of_one_is_the_dataset(kind):
    make, options = KINDS[kind]
    alone, mixed = make(range(40)), bl.Mixture({"only": make(range(40))}, {"only": 3})
    found = bl.DataLoader(mixed, **options)
    expected = bl.DataLoader(alone, **options)
    for _ in range(2):
        for batch, other in zip(map(without_source, found), expected, strict=True):
            assert torch_seen([batch]) == torch_seen([other])


def without_source(batch):
    """A batch without the sources of its samples, which are all of the only one; a single field is an array again."""
    if isinstance(batch, dict):
        assert not batch["source"].any()
        return {name: field for name, field in batch.items() if name != "source"}
    assert not batch[-1].any()
    return batch[:-1]


def test_pieces_of_streams_are_mixed():
    streams = {"a": bl.TokenDataset(numpy.arange(100), 4), "b": bl.TokenDataset(numpy.arange(1000, 1050), 4)}
    loader = bl.DataLoader(bl.Mixture(streams, {"a": 1, "b": 1}), 4, shuffle=True)
    for x, _, source in loader:
        assert ((x >= 1000).all(axis=1) == (source == 1)).all()
        assert source.sum() == 2


def test_places_of_sources():
    mixture = bl.Mixture(sources(), WEIGHTS, by="tokens")
    loader = bl.DataLoader(mixture, batching=bl.Packing(60), shuffle=True)
    batches = delivered(loader)
    plan = loader.plan(0)
    for name, source in (("web", 0), ("books", 1), ("code", 2)):
        for sample in range(0, len(SIZES[name]), 5):
            expected = [step for step, batch in enumerate(batches) if (source, sample) in batch]
            assert sorted({place.step for place in plan.where((name, sample))}) == expected
    assert plan.at_epoch(1).where(("books", 3)) == loader.plan(1).where(("books", 3))
    with refused(bl.ArgumentError, "'films'", "'web'"):
        plan.where(("films", 3))
    with refused(bl.RangeError, "20", "books"):
        plan.where(("books", 20))
    with pytest.raises(TypeError, match="mixture"):
        bl.Plan(10).where(("web", 3))


def test_mixtures_pickle_and_say_what_they_are():
    mixture = bl.Mixture(sources(), WEIGHTS, by="tokens", when_exhausted="repeat")
    again = pickle.loads(pickle.dumps(mixture))
    assert (again.names, again.weights, again.by, again.when_exhausted) == (
        ("web", "books", "code"),
        WEIGHTS,
        "tokens",
        "repeat",
    )
    assert len(again) == 150
    assert "books: 20 samples at 0.3" in repr(again)
    loader = bl.DataLoader(mixture, batching=bl.Packing(60), shuffle=True)
    batches = iter(loader)
    next(batches)
    assert delivered(pickle.loads(pickle.dumps(loader))) == [samples(batch) for batch in batches]


def test_sources_weigh_what_they_have_by_default():
    loader = bl.DataLoader(bl.Mixture(sources()), 10, shuffle=True)
    assert Counter(flat(delivered(loader))) == Counter((s, k) for s, n in enumerate((90, 20, 40)) for k in range(n))
    by_tokens = bl.DataLoader(bl.Mixture(sources(), by="tokens"), 10, shuffle=True)
    assert len(flat(delivered(by_tokens))) >= 145


def test_num_samples_and_weights_of_zero():
    weights = {"web": 1, "books": 0, "code": 1}
    loader = bl.DataLoader(bl.Mixture(sources(), weights), 10, shuffle=True, num_samples=70)
    found = [flat(delivered(loader)) for _ in range(4)]
    assert {len(epoch) for epoch in found} == {70}
    counts = Counter(flat(found))
    assert {source for source, _ in counts} == {0, 2}
    assert [counts[2, k] for k in range(40)].count(4) + [counts[2, k] for k in range(40)].count(3) == 40


def test_samples_made_on_demand_are_mixed():
    parts = {"a": bl.MapDataset(range(20), read), "b": bl.MapDataset(range(100, 105), read)}
    loader = bl.DataLoader(bl.Mixture(parts, {"a": 2, "b": 1}), 6, shuffle=True, output="numpy")
    for batch in loader:
        assert ((batch["x"][:, 0] >= 100) == (batch["source"] == 1)).all()
        assert batch["source"].sum() == 2 or len(batch["source"]) < 6


def read(item):
    return {"x": numpy.full(3, item)}


@pytest.mark.law("L5")
@few
@given(
    rule=st.sampled_from(RULES),
    by=st.sampled_from(("samples", "tokens")),
    when_exhausted=st.sampled_from(("stop", "repeat", "renormalise")),
    changes=st.lists(
        st.tuples(st.integers(0, 12), st.tuples(*[st.integers(1, 5)] * 3), st.sampled_from((3, 8, 4))),
        min_size=3,
        max_size=3,
    ),
)
def test_weights_change_between_a_save_and_a_load(rule, by, when_exhausted, changes):
    """Three chained resumes in other worlds, each with other weights: every source goes on through its passes."""

    def ranks(weights, world_size):
        mixture = bl.Mixture(sources(), dict(zip(SIZES, weights, strict=True)), by=by, when_exhausted=when_exhausted)
        options = {"batching": rule, "shuffle": True, "seed": 5, "uneven": "short", "world_size": world_size}
        return [bl.DataLoader(mixture, rank=rank, **options) for rank in range(world_size)]

    counts = Counter()
    loaders = ranks((1, 1, 1), 4)
    for stop, weights, world_size in changes:
        stop = max(0, min(stop, len(loaders[-1].plan()) - 1))
        for loader in loaders:
            batches = iter(loader)
            counts.update(flat(samples(next(batches)) for _ in range(stop)))
        states = [loader.state_dict() for loader in loaders]
        assert all(state == states[0] for state in states)
        loaders = ranks(weights, world_size)
        for loader in loaders:
            loader.load_state_dict(states[0])
    for loader in loaders:
        counts.update(flat(delivered(loader)))
    for place, sizes in enumerate(SIZES.values()):
        times = [counts[place, k] for k in range(len(sizes))]
        assert max(times) - min(times) <= 1


def test_weights_change_by_schedule():
    schedule = [(0, {"web": 1, "books": 0, "code": 0}), (30, WEIGHTS), (60, {"web": 0, "books": 1, "code": 1})]
    mixture = bl.Mixture(sources(), schedule=schedule)
    assert mixture.weights == schedule[0][1]
    assert mixture.schedule == schedule[1:]
    loader = bl.DataLoader(mixture, 5, shuffle=True, seed=2)
    found = flat(delivered(loader))
    assert {source for source, _ in found[:30]} == {0}
    assert Counter(source for source, _ in found[30:60]) == {0: 15, 1: 9, 2: 6}
    assert {source for source, _ in found[60:]} == {1, 2}
    same = bl.Mixture(sources(), schedule[0][1], schedule=schedule[1:])
    again = bl.DataLoader(same, 10, shuffle=True, seed=2)
    assert sorted(flat(delivered(again))) == sorted(found)
    # Resume at any step, and a pickle, are on schedule too.
    for stop in (3, 6, 9, 12):
        loader.set_epoch(0)
        batches = iter(loader)
        before = [samples(next(batches)) for _ in range(stop)]
        resumed = bl.DataLoader(mixture, 5, shuffle=True)
        resumed.load_state_dict(loader.state_dict())
        assert flat(before + delivered(pickle.loads(pickle.dumps(resumed)))) == found


def test_a_state_of_a_thousand_sources_is_small():
    parts = {f"s{k}": bl.TensorDataset(torch.arange(3)) for k in range(1000)}
    weights = {name: 0.1 + k / 7 for k, name in enumerate(parts)}
    loader = bl.DataLoader(bl.Mixture(parts, weights), 100, shuffle=True)
    next(iter(loader))
    changed = bl.DataLoader(bl.Mixture(parts, {name: 1.0 for name in parts}), 100, shuffle=True)
    changed.load_state_dict(loader.state_dict())
    next(iter(changed))
    assert len(json.dumps(changed.state_dict())) < 16 << 10


@pytest.mark.parametrize(
    ("rule", "batch_size"), [(None, 8), (bl.TokenBudget(16_384), None), (bl.Packing(16_384), None)]
)
def test_shares_hold_token_for_token(rule, batch_size):
    """Documents of 400 and 4000 tokens at 1:1: half of all tokens of each, at every document and over batches."""
    draw = numpy.random.default_rng(1).integers
    sizes = {"short": draw(200, 601, 60_000), "long": draw(2000, 6001, 6000)}
    parts = {
        name: bl.SequenceDataset(ids=(numpy.zeros(each.sum(), numpy.uint8), numpy.cumsum([0, *each])))
        for name, each in sizes.items()
    }
    mixture = bl.Mixture(parts, {"short": 1, "long": 1}, by="tokens")
    options = {"batch_size": batch_size} if rule is None else {"batching": rule}
    plan = bl.DataLoader(mixture, shuffle=True, seed=3, **options).plan(0)
    tokens = numpy.concatenate(list(sizes.values()))
    ones = bl.DataLoader(mixture, 1, shuffle=True, seed=3).plan(0)
    order = numpy.concatenate([ones[k] for k in range(len(ones))])
    is_long = (order >= 60_000) * tokens[order]
    assert abs(is_long.cumsum() * 2 - tokens[order].cumsum()).max() <= 2 * 6000
    place = numpy.empty(len(tokens), numpy.int64)
    place[order] = numpy.arange(len(order))
    had, delivered_samples, furthest, ends = numpy.zeros(2), 0, 0, 0
    for step in range(len(plan)):
        batch = plan[step]
        had += [tokens[batch[batch < 60_000]].sum(), tokens[batch[batch >= 60_000]].sum()]
        delivered_samples, furthest = delivered_samples + len(batch), max(furthest, place[batch].max() + 1)
        is_end = delivered_samples == furthest
        ends += is_end and step >= 1000
        if step >= 1000 and is_end:
            assert abs(had[1] / had.sum() - 0.5) < 0.001
        if step % 1000 == 999:
            assert abs(had[1] / had.sum() - 0.5) < 0.015
    assert ends >= 1
    by_documents = bl.DataLoader(bl.Mixture(parts, {"short": 1, "long": 1}), 8, shuffle=True).plan(0)
    found = numpy.concatenate([by_documents[k] for k in range(500)])
    assert 8 < tokens[found[found >= 60_000]].sum() / tokens[found[found < 60_000]].sum() < 12


@pytest.mark.parametrize(
    ("given_sources", "options", "named"),
    [
        ({}, {}, ("sources",)),
        ([1], {}, ("sources",)),
        (sources, {"weights": {"web": 1}}, ("'books'",)),
        (sources, {"weights": WEIGHTS | {"films": 1}}, ("'films'", "'web'")),
        (sources, {"weights": WEIGHTS | {"web": -1}}, ("web", "-1")),
        (sources, {"weights": WEIGHTS | {"web": float("nan")}}, ("web", "nan")),
        (sources, {"weights": WEIGHTS | {"web": True}}, ("web", "True")),
        (sources, {"weights": WEIGHTS | {"web": 1e-12}}, ("source web", "1e-12", "1e-09")),
        (sources, {"schedule": [(5, {"web": 2e300, "books": 1e290, "code": 2e300})]}, ("books", "1e+290", "2e+291")),
        (sources, {"weights": [1, 2, 3]}, ("[1, 2, 3]", "by name")),
        (sources, {"schedule": [(9, WEIGHTS), (4, WEIGHTS)]}, ("4", "9", "increase")),
        (sources, {"schedule": [(-1, WEIGHTS)]}, ("schedule", "-1")),
        (sources, {"schedule": [(9, {"web": 1})]}, ("'books'",)),
        (sources, {"schedule": {9: WEIGHTS}}, ("schedule", "pairs")),
        (sources, {"schedule": [9]}, ("schedule", "9")),
        (sources, {"schedule": [(0, WEIGHTS)], "weights": WEIGHTS}, ("schedule", "weights")),
        (sources, {"by": "words"}, ("by", "'words'", "'tokens'")),
        (sources, {"when_exhausted": "never"}, ("when_exhausted", "'never'")),
        ({"a": bl.TensorDataset(x=torch.arange(3)), "b": bl.TensorDataset(y=torch.arange(3))}, {}, ("x", "y")),
        ({"a": bl.TensorDataset(x=torch.arange(3)), "b": bl.TensorDataset(x=torch.ones(3))}, {}, ("field x", "int64")),
        ({"a": bl.TensorDataset(x=torch.arange(3)), "b": bl.MapDataset([1])}, {}, ("TensorDataset", "MapDataset")),
        ({"a": bl.TensorDataset(source=torch.arange(3))}, {}, ("source",)),
    ],
)
def test_mixtures_that_make_no_sense(given_sources, options, named):
    with refused(bl.ArgumentError, *named):
        bl.Mixture(given_sources() if callable(given_sources) else given_sources, **options)


@pytest.mark.parametrize(
    ("mixture_options", "options", "named"),
    [
        ({"weights": {"web": 0, "books": 0, "code": 0}}, {}, ("sum to 0",)),
        ({}, {"weights": [1] * 150}, ("weights", "mixture")),
        ({}, {"balanced_by": [1] * 150}, ("balanced_by", "mixture")),
        ({"by": "labels"}, {}, ("labels", "label_counts")),
        ({"by": "tokens"}, {"num_samples": 10}, ("num_samples",)),
        ({}, {"shuffle": "runs"}, ("runs",)),
        ({}, {"shard_size": 50}, ("shard_size",)),
    ],
)
def test_loaders_of_mixtures_that_make_no_sense(mixture_options, options, named):
    with refused(bl.ArgumentError, *named):
        bl.DataLoader(bl.Mixture(sources(), **mixture_options), **({"batch_size": 10, "shuffle": True} | options))


def test_tokens_need_sizes():
    rows = {"a": bl.TensorDataset(torch.arange(3)), "b": bl.TensorDataset(torch.arange(3))}
    with refused(bl.ArgumentError, "tokens", "sizes"):
        bl.DataLoader(bl.Mixture(rows, by="tokens"), 2)


@pytest.mark.parametrize("shuffle", [True, "documents", "chunks", False])
def test_a_pass_over_a_stream_has_each_token_once(shuffle):
    """Documents stay in their order for as long as a pass takes, whatever number of epochs that is."""
    tokens = numpy.arange(1, 401)
    stream = bl.TokenDataset(tokens, seq_len=3, documents=numpy.arange(0, 401, 10))
    assert len(stream) == 7 * 19
    other = bl.TokenDataset(tokens + 1000, seq_len=3, documents=numpy.arange(0, 401, 10))
    mixture = bl.Mixture({"a": stream, "b": other}, weights={"a": 1, "b": 3})
    for dataset, options in ((stream, {"num_samples": 19}), (mixture, {})):
        loader = bl.DataLoader(dataset, 1, shuffle, **options)
        seen = []
        while len(seen) < 7 * 19:
            seen += [batch for batch in (numpy.asarray(batch[0]).ravel() for batch in loader) if batch[0] < 1000]
        found = numpy.concatenate(seen[: 7 * 19])
        assert len(set(found.tolist())) == len(found) == 399


def test_numbers_of_pieces_are_refused_where_pieces_move():
    stream = bl.TokenDataset(numpy.arange(100), seq_len=4, documents=[0, 50, 100])
    numbers = numpy.arange(len(stream))
    for options in (
        {"weights": numbers},
        {"balanced_by": numbers},
        {"homogeneous_by": numbers},
        {"distinct_by": numbers},
    ):
        with pytest.raises(bl.ArgumentError, match="shuffled documents or jitter does not go with"):
            bl.DataLoader(stream, 4, True, **options)
        next(iter(bl.DataLoader(stream, 4, "chunks", **options)))
    mixture = bl.Mixture({"a": stream, "b": stream})
    next(iter(bl.DataLoader(mixture, 4, True, homogeneous_by="source")))
    with pytest.raises(bl.ArgumentError, match="does not go with keys of samples"):
        bl.DataLoader(mixture, 4, True, homogeneous_by=numpy.arange(len(mixture)))


def test_many_sources_meet_others_in_each_epoch_and_seed():
    """Turns of sources begin elsewhere in each epoch, so that sources which fit no batch do not come in one order."""
    firsts = [
        tuple(bl.Plan(1000, 50, shuffle=True, balanced_by=numpy.arange(1000), seed=seed, epoch=epoch)[0].tolist())
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len(set(firsts)) == 4
    plan = bl.Plan(1000, 50, shuffle=True, balanced_by=numpy.arange(1000) // 2)
    assert plan.stats()["mates_kept"] < 0.1
    assert all(len(set((batch // 2).tolist())) == 50 for batch in plan)


def test_a_state_knows_the_names_of_its_sources():
    first, second = (bl.TensorDataset(x=numpy.arange(10) + start) for start in (0, 10))
    loader = bl.DataLoader(bl.Mixture({"a": first, "b": second}), 4, True)
    next(iter(loader))
    state = loader.state_dict()
    bl.DataLoader(bl.Mixture({"a": first, "b": second}), 4, True).load_state_dict(state)
    for sources in ({"b": second, "a": first}, {"a": first, "c": second}):
        with pytest.raises(bl.StateError):
            bl.DataLoader(bl.Mixture(sources), 4, True).load_state_dict(state)


def test_a_sampler_takes_no_mixture():
    mixture = bl.Mixture({"a": bl.TensorDataset(x=numpy.arange(10))})
    with pytest.raises(bl.ArgumentError, match=r"data is a Mixture.*mixture\.dataset"):
        bl.BatchSampler(mixture, 4)


@pytest.mark.parametrize("least", [1e-9, 3e-9, 1e-8, 1e-6])
def test_small_weights_are_drawn_as_often_as_they_say(least):
    """As far as whole numbers below 2^32 go: half a unit of the smallest weight."""
    data = bl.TensorDataset(x=numpy.arange(100))
    mixture = bl.Mixture({"a": data, "b": data}, weights={"a": 1, "b": least}, when_exhausted="repeat")
    draws = len(bl.DataLoader(mixture, 1, True))
    assert draws == pytest.approx(100 / least, rel=0.5 / (2**31 * least), abs=1 / least)


def test_epochs_that_cannot_be_listed_are_refused():
    words = bl.SequenceDataset(x=[numpy.arange(3)] * 20)
    mixture = bl.Mixture({"a": words, "b": words}, weights={"a": 1, "b": 1e-9}, by="tokens", when_exhausted="repeat")
    with pytest.raises(bl.ArgumentError, match="an epoch would draw about"):
        bl.DataLoader(mixture, 4, True)


def test_a_source_without_labels_is_an_error():
    words = [bl.SequenceDataset(x=[numpy.arange(1, 2 + length)] * 4) for length in (4, 0)]
    mixture = bl.Mixture({"long": words[0], "short": words[1]}, by="labels", when_exhausted="renormalise")
    with pytest.raises(bl.ArgumentError, match="source 'short' has no labels"):
        bl.DataLoader(mixture, batching=bl.Packing(16), labels="x")


def test_what_is_not_there_is_out_of_range():
    mixture = bl.Mixture({"a": bl.TensorDataset(x=numpy.arange(10))})
    plan = bl.DataLoader(mixture, 4, True).plan()
    with pytest.raises(bl.RangeError, match="sample 10 of source 'a' is out of range; expected 0 <= sample < 10"):
        plan.where(("a", 10))
    with pytest.raises(TypeError, match="expected the name of a source"):
        plan.where(("a",))
    joined = bl.TensorDataset(numpy.arange(4)).concat(bl.TensorDataset(numpy.arange(5)))
    with pytest.raises(bl.RangeError, match="sample 9 is out of range; expected 0 <= sample < 9"):
        joined.origin(9)
