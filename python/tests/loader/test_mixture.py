"""Mixtures: every source in passes of its own, as often as its weight says, under every rule, rank and resume."""

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
    with refused(bl.ArgumentError, "20", "19"):
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


def test_a_state_of_other_weights_is_refused():
    loader = bl.DataLoader(bl.Mixture(sources(), WEIGHTS), 10, shuffle=True)
    other = bl.DataLoader(bl.Mixture(sources(), {"web": 1, "books": 1, "code": 1}), 10, shuffle=True)
    with refused(bl.StateError, "weights"):
        other.load_state_dict(loader.state_dict())
    assert loader.plan().fingerprint == other.plan().fingerprint


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
        (sources, {"weights": [1, 2, 3]}, ("[1, 2, 3]", "by name")),
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
