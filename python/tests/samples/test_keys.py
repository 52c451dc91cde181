"""Keys of samples: batches of one key, and batches of different keys."""

from __future__ import annotations

import datetime
import math
import pickle
from typing import Any

import batchloom as bl
import numpy
import pandas
import pyarrow
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

KEYS = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=60)


@given(KEYS, st.integers(1, 3), st.booleans(), st.integers(0, 2**32))
def test_batches_and_steps_hold_one_key(keys: list[str], world_size: int, drop_last: bool, seed: int) -> None:
    dataset = bl.TensorDataset(x=numpy.arange(len(keys)))
    batches: list[list[Any]] = []
    for rank in range(world_size):
        options: dict[str, Any] = {"seed": seed, "rank": rank, "world_size": world_size, "drop_last": drop_last}
        whole = sum(keys.count(key) // 4 // world_size for key in set(keys))
        if drop_last and whole == 0:
            with pytest.raises(bl.ArgumentError, match=r"leaves no step|drop_last does not go with homogeneous_by"):
                bl.DataLoader(dataset, 4, True, homogeneous_by=keys, **options)
            return
        loader = bl.DataLoader(dataset, 4, True, homogeneous_by=keys, uneven="mask", num_threads=1, **options)
        batches.append(list(loader))
        assert len(batches[-1]) == len(loader) == len(batches[0])
    for step in zip(*batches, strict=True):
        assert len({keys[sample] for batch in step for sample in batch["x"]}) == 1
        assert len({len(batch["x"]) for batch in step}) == 1
    everything = [batch for rank in batches for batch in rank]
    seen = sorted(int(sample) for batch in everything for sample in batch["x"][batch.get("weight", 1) != 0].ravel())
    assert len(set(seen)) == len(seen)
    assert drop_last or seen == list(range(len(keys)))


@pytest.mark.parametrize("rule", [bl.LengthBuckets(4), bl.TokenBudget(40), bl.Packing(40)])
def test_every_rule_makes_batches_of_one_key(rule: bl.Rule) -> None:
    words = [numpy.full(1 + sample * 5 % 9, sample) for sample in range(80)]
    keys = [sample % 3 for sample in range(80)]
    loader = bl.DataLoader(bl.SequenceDataset(x=words), batching=rule, shuffle=True, homogeneous_by=keys)
    seen = []
    for batch in loader:
        assert len({keys[sample] for sample in batch["index"]}) == 1
        seen += batch["index"].tolist()
    assert sorted(seen) == list(range(80))


def test_batches_of_a_mixture_hold_one_source() -> None:
    sources = {"web": bl.TensorDataset(x=numpy.arange(90)), "books": bl.TensorDataset(x=numpy.arange(90, 120))}
    mixture = bl.Mixture(sources, weights={"web": 3, "books": 1})
    loader = bl.DataLoader(mixture, 8, True, homogeneous_by="source")
    for epoch in range(3):
        batches = list(loader)
        assert all(len(set(batch["source"].tolist())) == 1 for batch in batches), epoch
        assert sum(len(batch["x"]) for batch in batches) == loader.plan(epoch).stats()["samples"]


@given(st.lists(st.integers(0, 9), min_size=20, max_size=80), st.integers(1, 5), st.integers(0, 2**32))
def test_batches_hold_different_keys(keys: list[int], batch_size: int, seed: int) -> None:
    counts = numpy.bincount(keys)
    if counts.max() > -(-len(keys) // batch_size):
        with pytest.raises(bl.ArgumentError, match="have the key of"):
            bl.Plan(len(keys), batch_size, shuffle=True, seed=seed, distinct_by=keys)
        return
    if counts.max() > len(keys) // batch_size:
        return  # it depends on the samples of the last batch
    plan = bl.Plan(len(keys), batch_size, shuffle=True, seed=seed, distinct_by=keys)
    for batch in plan:
        assert len({keys[sample] for sample in batch}) == len(batch)
    assert sorted(sample for batch in plan for sample in batch) == list(range(len(keys)))


def test_plans_and_samplers_with_keys_resume_and_pickle() -> None:
    for option in ("homogeneous_by", "distinct_by"):
        keys = numpy.arange(60) % 4 if option == "homogeneous_by" else numpy.arange(60) // 3
        plan = bl.Plan(60, 5, shuffle=True, **{option: keys})
        other = pickle.loads(pickle.dumps(plan))
        assert other == plan != bl.Plan(60, 5, shuffle=True)
        assert [batch.tolist() for batch in other] == [batch.tolist() for batch in plan]
        sampler = bl.BatchSampler(60, 5, True, **{option: keys})
        batches = iter(sampler)
        first = [next(batches) for _ in range(4)]
        resumed = bl.BatchSampler(60, 5, True, **{option: keys})
        resumed.load_state_dict(sampler.state_dict())
        assert first + list(resumed) == [batch.tolist() for batch in plan]


def test_a_field_holds_the_keys() -> None:
    kinds = numpy.arange(60) % 3
    dataset = bl.TensorDataset(x=numpy.arange(60), kind=kinds)
    for option in ("homogeneous_by", "distinct_by", "balanced_by"):
        named, given_keys = (
            [batch["x"].tolist() for batch in bl.DataLoader(dataset, 3, True, **{option: keys})]
            for keys in ("kind", kinds)
        )
        assert named == given_keys
    mixture = bl.Mixture({"a": dataset, "b": dataset.take(20)})
    loader = bl.DataLoader(mixture, 3, True, homogeneous_by="kind")
    assert all(len(set(batch["kind"].tolist())) == 1 for batch in loader)
    with pytest.raises(bl.ArgumentError, match=r"homogeneous_by names 'other'; expected 'x' \(int64.*'kind'"):
        bl.DataLoader(dataset, 3, homogeneous_by="other")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"homogeneous_by": [1] * 9}, "homogeneous_by has 9 values for 12 samples"),
        ({"homogeneous_by": [1] * 12, "distinct_by": [1] * 12}, "both given"),
        ({"distinct_by": range(12), "shuffle": False}, "stored order does not go with distinct_by"),
        ({"distinct_by": [7] * 6 + list(range(6))}, "6 samples have the key of sample 0.*3 batches of 4"),
        ({"distinct_by": range(12), "weights": [1] * 12}, "weights does not go with distinct_by"),
        ({"distinct_by": range(12), "num_samples": 5}, "num_samples does not go with distinct_by"),
        ({"homogeneous_by": [0, 1] * 6, "balanced_by": [0] * 12}, "balanced_by does not go with homogeneous_by"),
        ({"balanced_by": [0, 1] * 6, "shard_size": 4}, "shard_size does not go with balanced_by"),
        ({"homogeneous_by": [1] * 12, "uneven": "short"}, "uneven short does not go with homogeneous_by"),
        ({"homogeneous_by": [1] * 12, "shard_size": 4}, "shard_size does not go with homogeneous_by"),
        ({"homogeneous_by": numpy.zeros((12, 2))}, "shape"),
    ],
)
def test_wrong_keys_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(bl.Error, match=message):
        bl.Plan(12, 4, **{"shuffle": True} | options)


@pytest.mark.parametrize(
    "keys",
    [
        [2**63 + 1, 2**63 + 2, -1],
        [2.0**53, 2**53 + 1],
        ["a", "a\0", "b"],
        [b"a", b"a\0"],
        [(1, 2), (2, 1)],
        [datetime.date(2026, 1, 1), datetime.date(2026, 1, 2)],
    ],
)
def test_keys_that_differ_stay_apart(keys: list[Any]) -> None:
    given = (keys * 12)[:12]
    for batch in bl.Plan(12, 4, shuffle=True, homogeneous_by=given):
        assert len({given[sample] for sample in batch}) == 1


def test_keys_that_are_equal_are_one() -> None:
    tensors = [torch.tensor(place % 2) for place in range(12)]
    given = [[True, 1, 1.0] * 2 + [0, False] * 3, tensors, pyarrow.array(["a", "b"] * 6).dictionary_encode()]
    for keys in given:
        assert len(bl.Plan(12, 6, homogeneous_by=keys)) == 2


@pytest.mark.parametrize(
    ("keys", "sample"),
    [
        ([1.0, math.nan] * 6, 1),
        (numpy.array([1.0, math.nan] * 6), 1),
        (["a", "b", None] * 4, 2),
        (numpy.array(["2026-01-01", "NaT"] * 6, "datetime64[D]"), 1),
        (pyarrow.array([1, None] * 6), 1),
        (pyarrow.array(["a", None] * 6), 1),
        (pandas.array([1, None] * 6, dtype="Int64"), 1),
        (pandas.Series(["a", None] * 6).astype("category"), 1),
    ],
)
@pytest.mark.parametrize("option", ["homogeneous_by", "balanced_by"])
def test_a_sample_without_a_key_is_named(option: str, keys: Any, sample: int) -> None:
    with pytest.raises(bl.DataError, match=f"{option} has .* for sample {sample}; expected a class for each sample"):
        bl.Plan(12, 4, shuffle=True, **{option: keys})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([1, "1"] * 6, "has 1 for sample 0 and '1' for sample 1; expected numbers alone, or texts alone"),
        ([[1], [2, 3]] * 6, r"has \[1\]; expected a number or a text for each sample"),
        ([1j, 2j] * 6, "values without an order"),
        ([torch.zeros(2)] * 12, "array of shape"),
        (numpy.ma.array(range(12), mask=[1] + [0] * 11), "masked array; expected a class for each sample"),
    ],
)
def test_keys_of_several_kinds_are_refused(keys: Any, message: str) -> None:
    for option in ("homogeneous_by", "balanced_by"):
        with pytest.raises(bl.Error, match=message):
            bl.Plan(12, 4, shuffle=True, **{option: keys})
    with pytest.raises(bl.Error, match=message):
        bl.TensorDataset(numpy.arange(12)).split(stratify=keys, a=0.5, b=0.5)
