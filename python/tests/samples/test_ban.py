"""Bans: a banned sample keeps its place, which holds no data and has no weight, and nothing else changes."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator
from typing import Any

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.windows import pretended

SAMPLES = 40
SIZES = [1 + sample * 7 % 11 for sample in range(SAMPLES)]
GROUPS = numpy.repeat(numpy.arange(SAMPLES), SIZES)
READ: list[int] = []


def read(item: int) -> dict[str, Any]:
    READ.append(item)
    return {"x": numpy.full(3, item + 1.0)}


def datasets() -> dict[str, tuple[bl.Dataset[Any], bl.Rule]]:
    rng = numpy.random.default_rng(0)
    words = [rng.integers(1, 99, size) for size in SIZES]
    values = numpy.arange(1, SAMPLES + 1, dtype=numpy.float32)
    return {
        "rows": (bl.TensorDataset(x=values.repeat(3).reshape(SAMPLES, 3)), bl.FixedSize(6)),
        "padded": (bl.SequenceDataset(x=words), bl.TokenBudget(40)),
        "buckets": (bl.SequenceDataset(x=words), bl.LengthBuckets(6)),
        "packed": (bl.SequenceDataset(x=words), bl.Packing(32)),
        "groups": (bl.GroupDataset(GROUPS, x=numpy.arange(1, len(GROUPS) + 1)), bl.FixedSize(6)),
        "map": (bl.MapDataset(range(SAMPLES), read), bl.FixedSize(6)),
        "map of sizes": (
            bl.MapDataset(range(SAMPLES), lambda item: {"x": numpy.full(SIZES[item], item + 1)}, sizes=SIZES),
            bl.Packing(32),
        ),
    }


DATASETS = datasets()


def rows(batch: dict[str, Any]) -> list[Any]:
    """Return the data of each place of a batch."""
    data = numpy.asarray(batch["x"])
    bounds = batch.get("cu_seqlens", batch.get("offsets"))
    if bounds is None:
        return list(data)
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


@given(
    st.sampled_from(sorted(DATASETS)),
    st.booleans(),
    st.integers(1, 3),
    st.sampled_from(["pad", "mask", "short"]),
    st.lists(st.integers(0, SAMPLES - 1), max_size=12),
)
def test_a_banned_sample_leaves_a_place_without_data_or_weight(
    kind: str, shuffle: bool, world_size: int, uneven: Any, ban: list[int]
) -> None:
    dataset, rule = DATASETS[kind]
    for rank in range(world_size):
        options: dict[str, Any] = {
            "batching": rule, "shuffle": shuffle, "rank": rank, "world_size": world_size, "uneven": uneven
        } | {"num_threads": 1}  # fmt: skip
        whole = list(bl.DataLoader(dataset, ban=[], **options))
        loader = bl.DataLoader(dataset, ban=ban, **options)
        plan = loader.plan()
        found = list(loader)
        assert len(found) == len(whole)
        for step, (batch, expected) in enumerate(zip(found, whole, strict=True)):
            assert batch.keys() == expected.keys()
            banned = numpy.isin(plan[step], ban)
            numpy.testing.assert_array_equal(batch["index"], numpy.where(banned, -1, expected["index"]))
            numpy.testing.assert_array_equal(batch["weight"], numpy.where(banned, 0, expected["weight"]))
            for is_banned, row, other in zip(banned, rows(batch), rows(expected), strict=True):
                numpy.testing.assert_array_equal(row, other * 0 if is_banned else other)
            for name in batch.keys() - {"x", "index", "weight", "group_ids"}:
                numpy.testing.assert_array_equal(batch[name], expected[name])
            assert plan.step(step).counts[rank] == int((numpy.asarray(batch["weight"]) > 0).sum())


@pytest.mark.parametrize("way", [{}, {"resident": False}, {"device": "meta"}, {"device": "meta", "resident": False}])
def test_a_banned_place_holds_zeros_where_fields_are_scaled(way: dict[str, Any]) -> None:
    values = torch.arange(1, 13, dtype=torch.int32).reshape(6, 2)
    with pretended():
        loader = bl.DataLoader(
            bl.TensorDataset(x=values), 3, ban=[1], fields=bl.Field(scale=2, mean=3, std=[1, 2]), **way
        )
    first = next(iter(loader))["x"]
    assert first.tolist() == [[-1, 0.5], [0, 0], [7, 4.5]]


def test_a_banned_sample_is_not_read() -> None:
    READ.clear()
    list(bl.DataLoader(DATASETS["map"][0], 6, shuffle=True, ban=[3, 17], num_threads=2))
    assert sorted(READ) == [sample for sample in range(SAMPLES) if sample not in (3, 17)]


@pytest.mark.parametrize("kind", sorted(DATASETS))
def test_all_samples_of_a_batch_and_of_an_epoch_may_be_banned(kind: str) -> None:
    dataset, rule = DATASETS[kind]
    plan = bl.DataLoader(dataset, batching=rule).plan()
    first = next(iter(bl.DataLoader(dataset, batching=rule, ban=plan[0].tolist())))
    assert numpy.asarray(first["weight"]).sum() == 0
    if kind.startswith("map"):
        return  # a shape has to be seen
    for batch in bl.DataLoader(dataset, batching=rule, ban=range(SAMPLES)):
        assert not numpy.asarray(batch["x"]).any()


def test_a_map_all_of_whose_samples_are_banned_is_an_error_that_says_so() -> None:
    with pytest.raises(bl.Error, match="banned"):
        next(iter(bl.DataLoader(DATASETS["map"][0], 6, ban=range(SAMPLES))))


def test_not_a_number_does_not_reach_a_weighted_loss() -> None:
    x = torch.ones(12, 2)
    x[5] = torch.nan
    total = torch.zeros(())
    for features, _, weight in bl.DataLoader(bl.TensorDataset(x), 4, shuffle=True, ban=[5]):
        total += (features.sum(1) * weight).sum()
    assert total == 22


def test_labels_of_banned_samples_are_ignored() -> None:
    tokens = bl.TokenDataset(numpy.arange(1, 100, dtype=numpy.uint16), seq_len=8)
    for inputs, labels, index, weight in bl.DataLoader(tokens, 4, ban=[2, 5]):
        banned = index == -1
        assert (numpy.asarray(labels)[banned] == -100).all()
        assert (numpy.asarray(inputs)[banned] == 0).all()
        assert (numpy.asarray(labels)[~banned] != -100).all()
        assert ((weight == 0) == banned).all()
    words = bl.SequenceDataset(x=[numpy.arange(1, 6)] * 8)
    plan = bl.DataLoader(words, batching=bl.Packing(20), labels="x", ban=[2]).plan()
    assert sum(plan.step(step).labels for step in range(len(plan))) == 7 * 4


def test_windows_that_are_views_are_formed_where_one_is_banned() -> None:
    series = numpy.arange(1, 60, dtype=numpy.float32)[:, None]
    windows = bl.WindowDataset(series, input_len=4, horizon=1)
    expected = list(bl.DataLoader(windows, 5, ban=[]))
    for (x, y, index, weight), (x0, y0, index0, _) in zip(
        bl.DataLoader(windows, 5, ban=[7, 31]), expected, strict=True
    ):
        banned = numpy.isin(index0, [7, 31])
        numpy.testing.assert_array_equal(index, numpy.where(banned, -1, index0))
        numpy.testing.assert_array_equal(weight, numpy.where(banned, 0, 1))
        numpy.testing.assert_array_equal(x, numpy.where(banned[:, None, None], 0, x0))
        numpy.testing.assert_array_equal(y, numpy.where(banned[:, None, None], 0, y0))


def taken(batches: Iterator[Any], count: int) -> list[Any]:
    return [next(batches) for _ in range(count)]


def same(batch: Any, other: Any) -> bool:
    return all(numpy.array_equal(batch[name], other[name]) for name in batch)


@pytest.mark.law("L4")
@pytest.mark.parametrize("kind", sorted(DATASETS))
def test_a_run_bans_a_sample_and_goes_on(kind: str) -> None:
    dataset, rule = DATASETS[kind]

    def loader(ban: Any, rank: int = 0, world_size: int = 1) -> Any:
        return bl.DataLoader(
            dataset, batching=rule, shuffle=True, seed=3, ban=ban, rank=rank, world_size=world_size, uneven="mask"
        )

    first = loader([])
    before = taken(iter(first), 2)
    saved = json.loads(json.dumps(first.state_dict()))
    second = loader([4, 9])
    second.load_state_dict(saved)
    after = list(second)
    plan = first.plan(0)
    assert all((numpy.isin(plan[step], [4, 9]) <= (batch["index"] == -1)).all() for step, batch in enumerate(after, 2))
    delivered = numpy.concatenate([batch["index"] for batch in before + after])
    missing = set(range(SAMPLES)) - set(delivered[delivered >= 0].tolist())
    assert missing == {sample for sample in (4, 9) if not any(sample in batch["index"] for batch in before)}

    # The state tells what was banned when: batches come again as they were, and other ranks take the rest.
    again = loader([4, 9])
    again.load_state_dict(saved)
    steps = iter(again)
    later = taken(steps, 1)
    state = pickle.loads(pickle.dumps(again.state_dict()))
    other = loader([11])
    for step, batch in enumerate(before + later):
        assert same(other.replay(0, step, state=state), batch)
    third = loader([11])
    third.load_state_dict(state)
    assert third.state_dict()["bans"] == [[0, 2, [4, 9]], [0, 3, [11]]]
    rest = []
    for rank in range(2):
        part = loader([11], rank, 2)
        part.load_state_dict(state)
        rest += [batch["index"] for batch in part]
    counted = numpy.concatenate([batch["index"] for batch in before + later] + rest)
    found = sorted(counted[counted >= 0].tolist())
    assert len(found) == len(set(found))
    gone = set(range(SAMPLES)) - set(found)
    assert gone <= {4, 9, 11}


def test_bans_are_part_of_the_digest_and_not_of_the_fingerprint() -> None:
    def run(ban: Any) -> dict[str, Any]:
        loader = bl.DataLoader(DATASETS["rows"][0], 6, shuffle=True, ban=ban)
        taken(iter(loader), 2)
        return loader.state_dict()

    assert run([3])["fingerprint"] == run(None)["fingerprint"]
    assert run([3])["digest"] == run([3])["digest"] != run([4])["digest"]
    assert run([])["digest"] == run(None)["digest"]
    assert "bans" not in run([])


def test_a_state_that_bans_needs_a_list() -> None:
    dataset = DATASETS["rows"][0]
    loader = bl.DataLoader(dataset, 6, ban=[3])
    taken(iter(loader), 1)
    state = loader.state_dict()
    with pytest.raises(bl.StateError, match=r"bans 1 samples, the first of them 3.*an empty one to lift the ban"):
        bl.DataLoader(dataset, 6).load_state_dict(state)
    lifted = bl.DataLoader(dataset, 6, ban=[])
    lifted.load_state_dict(state)
    assert all((batch["weight"] == 1).all() for batch in lifted)


def test_samples_of_a_mixture_are_banned_by_their_sources() -> None:
    sources = {"web": bl.TensorDataset(x=numpy.arange(1, 31)), "books": bl.TensorDataset(x=numpy.arange(101, 131))}
    mixture = bl.Mixture(sources, weights={"web": 1, "books": 1})
    loader = bl.DataLoader(mixture, 10, shuffle=True, ban=[("books", 4)])
    assert loader.plan().where(("books", 4)) == []
    seen = numpy.concatenate([batch["x"][batch["weight"] > 0] for batch in loader])
    assert sorted(seen) == [*range(1, 31), *(value for value in range(101, 131) if value != 105)]


def test_plans_with_bans_compare_pickle_and_count() -> None:
    plan = bl.Plan(30, 4, shuffle=True, ban=[3, 8])
    other = pickle.loads(pickle.dumps(plan))
    assert other == plan != bl.Plan(30, 4, shuffle=True)
    assert other.where(3) == []
    assert plan.stats()["banned"] == 2
    assert sum(plan.step(step).samples for step in range(len(plan))) == 28
    with pytest.raises(bl.Error, match="the plan bans 2 samples"):
        next(iter(torch.utils.data.DataLoader(range(30), batch_sampler=plan)))


@pytest.mark.parametrize(
    ("ban", "message"),
    [
        ([40], "sample 40 in ban is out of range; expected 0 <= sample < 40"),
        ([-1], "a sample in ban is -1"),
        (7, "ban is 7; expected numbers"),
        ("7", "ban is '7'; expected numbers"),
        ([1.5], "a sample in ban is 1.5"),
        ([("web", 3)], "ban has"),
        (numpy.zeros(40, bool), "ban is a mask"),
    ],
)
def test_wrong_bans_are_refused(ban: Any, message: str) -> None:
    with pytest.raises((bl.Error, TypeError), match=message):
        bl.DataLoader(DATASETS["rows"][0], 6, ban=ban)


def test_bans_are_refused_where_batches_have_no_places() -> None:
    with pytest.raises(bl.Error, match="places of banned samples are cleared in memory"):
        bl.DataLoader(DATASETS["rows"][0], 6, ban=[1], resident=True, output="torch")
    loader = bl.DataLoader(DATASETS["map"][0], 6, ban=[1], collate=lambda samples: samples[0])
    with pytest.raises(bl.Error, match="a function that makes whole batches"):
        next(iter(loader))
