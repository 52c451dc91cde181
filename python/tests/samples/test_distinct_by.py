"""Several keys a sample, which no batch holds twice, and samples that no batch has room for."""

from __future__ import annotations

import pickle
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import batchloom as bl
import numpy
import pandas
import pyarrow
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

Columns = dict[str, list[int]]


@st.composite
def drawn_columns(draw: st.DrawFn) -> Columns:
    """Columns of keys, some of them frequent, with values in common."""
    samples, most = draw(st.integers(1, 80)), draw(st.sampled_from([4, 20, 200]))
    key = st.one_of(st.integers(0, most), st.integers(0, 500), st.integers(0, 500))
    names = draw(st.sampled_from([["anchor"], ["anchor", "positive"], ["anchor", "positive", "negative"]]))
    return {name: draw(st.lists(key, min_size=samples, max_size=samples)) for name in names}


def keys_of(columns: Columns, sample: int) -> set[int]:
    return {keys[sample] for keys in columns.values()}


def require_apart(columns: Columns, batches: list[list[int]], batch_size: int) -> None:
    """Check that samples of a batch share no key, that no sample is in two, and that all batches but one are full."""
    for batch in batches:
        held = Counter(key for sample in batch for key in keys_of(columns, sample))
        assert not held or max(held.values()) == 1, batch
    assert max(Counter(sample for batch in batches for sample in batch).values(), default=1) == 1
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)


@pytest.mark.law("L1")
@given(drawn_columns(), st.integers(1, 9), st.integers(0, 2**64 - 1), st.integers(0, 3))
def test_samples_of_a_batch_share_no_key(columns: Columns, batch_size: int, seed: int, epoch: int) -> None:
    samples = len(columns["anchor"])
    options: dict[str, Any] = {"shuffle": True, "seed": seed, "epoch": epoch}
    dropping = bl.Plan(samples, batch_size, distinct_by=bl.DistinctBy(columns, surplus="drop"), **options)
    batches = [batch.tolist() for batch in dropping]
    require_apart(columns, batches, batch_size)
    assert dropping.stats()["dropped"] == samples - sum(map(len, batches))
    try:
        plan = bl.Plan(samples, batch_size, distinct_by=columns, **options)
    except bl.ArgumentError:
        with pytest.raises(bl.ArgumentError, match=r'key.*surplus "drop"'):
            bl.Plan(samples, batch_size, distinct_by=columns, **options)
    else:
        assert [batch.tolist() for batch in plan] == batches
        assert plan.stats()["dropped"] == 0


@pytest.mark.law("L4", "L5")
@given(drawn_columns(), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.data())
def test_a_surplus_is_the_same_on_all_ranks_and_after_a_stop(
    columns: Columns, batch_size: int, first: int, then: int, data: st.DataObject
) -> None:
    dataset = bl.TensorDataset(x=numpy.arange(len(columns["anchor"])))
    options: dict[str, Any] = {
        "distinct_by": bl.DistinctBy(columns, surplus="drop"),
        "uneven": "short",
        "num_threads": 1,
    }

    def read(rank: int, world_size: int, state: Any, most: int | None) -> tuple[list[list[int]], Any]:
        loader = bl.DataLoader(dataset, batch_size, True, rank=rank, world_size=world_size, **options)
        loader.load_state_dict(state) if state is not None else loader.set_epoch(1)
        batches = iter(loader)
        found = [batch["x"].tolist() for _, batch in zip(range(10**6 if most is None else most), batches, strict=False)]
        return found, loader.state_dict()

    alone, _ = read(0, 1, None, None)
    stop = data.draw(st.integers(0, len(alone) // first))
    taken, states = zip(*(read(rank, first, None, stop) for rank in range(first)), strict=True)
    assert all(state == states[0] for state in states)
    if stop == len(alone) / first:
        return  # the state is the start of the next epoch
    rest = [read(rank, then, states[0], None)[0] for rank in range(then)]
    found = [batch for ranks in (*taken, *rest) for batch in ranks]
    assert sorted(found) == sorted(alone)


def test_each_epoch_drops_other_samples() -> None:
    keys = numpy.where(numpy.arange(90) < 40, 0, numpy.arange(90))
    for way in (keys, {"a": keys, "b": numpy.arange(90) + 1000}):
        plan = bl.Plan(90, 5, shuffle=True, distinct_by=bl.DistinctBy(way, surplus="drop"))
        times = numpy.zeros(90)
        for epoch in range(200):
            held = numpy.concatenate(list(plan.at_epoch(epoch)))
            times[held] += 1
            assert plan.at_epoch(epoch).stats()["dropped"] == 90 - len(held) == 27
        assert (times[40:] == 200).all()
        # 13 of 40 are kept: 65 times each, with a deviation of less than seven.
        assert times[:40].min() > 35
        assert times[:40].max() < 95


def test_fields_hold_the_keys() -> None:
    anchors, positives = numpy.arange(90) // 2, 30 + numpy.arange(90) // 3
    dataset = bl.TensorDataset(anchor=anchors, positive=positives)
    ways: list[Any] = [
        {"anchor": anchors, "positive": positives},
        ["anchor", "positive"],
        {"a": "anchor", "b": positives.tolist()},
        bl.DistinctBy(("anchor", "positive")),
        bl.DistinctBy({"a": torch.tensor(anchors), "b": pyarrow.array(positives)}),
    ]
    found = [list(bl.DataLoader(dataset, 6, True, distinct_by=way)) for way in ways]
    for batch in found[0]:
        assert len({*batch["anchor"].tolist(), *batch["positive"].tolist()}) == 12 - sum(
            batch["anchor"] == batch["positive"]
        )
    for other in found[1:]:
        assert [batch["anchor"].tolist() for batch in other] == [batch["anchor"].tolist() for batch in found[0]]
    places = bl.DataLoader(bl.TensorDataset(anchors, positives), 6, True, distinct_by={"a": 0, "b": 1})
    assert [batch[0].tolist() for batch in places] == [batch["anchor"].tolist() for batch in found[0]]
    one, same = (bl.DataLoader(dataset, 6, True, distinct_by=way) for way in (["anchor"], "anchor"))
    assert [batch["anchor"].tolist() for batch in one] == [batch["anchor"].tolist() for batch in same]
    assert one.plan(0) == same.plan(0)


def test_selections_and_concatenations_have_the_keys_of_their_samples() -> None:
    dataset = bl.TensorDataset(a=numpy.arange(60) // 2, b=40 + numpy.arange(60) // 2)
    for chosen in (
        dataset.select(numpy.arange(60)[::-1]),
        bl.ConcatDataset([dataset.take(30), dataset.select(range(30, 60))]),
    ):
        count = 0
        for batch in bl.DataLoader(chosen, 6, True, distinct_by=["a", "b"]):
            assert len({*batch["a"].tolist(), *batch["b"].tolist()}) == 2 * len(batch["a"])
            count += len(batch["a"])
        assert count == 60


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ([1, 2, 3, 4], [4.0, 5, 6, 7], {(0, 3)}),
        (numpy.array([2**63, 1, 2, 3], "uint64"), numpy.array([-1, 5, 6, 2**63 - 1]), set()),
        (numpy.array([2**53 + 1, 1, 2, 3]), [2.0**53, 1.5, 7, 8], set()),
        (["a", "b", "c", "d"], numpy.array(["e", "a", "f", "g"]), {(0, 1)}),
        (pandas.Series(["a", "b", "c", "d"]), pyarrow.array(["e", "f", "g", "c"]), {(2, 3)}),
        ([b"a", b"b", b"c", b"d"], [b"e", b"f", b"b", b"g"], {(1, 2)}),
        ([(1, 2), (3, 4), (5, 6), (7, 8)], [(2, 1), (9, 9), (1, 2), (0, 0)], {(0, 2)}),
        (numpy.array(["2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04"], "datetime64[D]"),) * 2 + (set(),),
        ([Fraction(1), Fraction(2), Fraction(3), Fraction(4)], [9, 8, 7, 1], {(0, 3)}),
    ],
)
def test_keys_are_equal_where_python_finds_them_equal(first: Any, second: Any, shared: set[tuple[int, int]]) -> None:
    met = set()
    for seed in range(60):
        for batch in bl.Plan(
            4, 2, shuffle=True, seed=seed, distinct_by=bl.DistinctBy({"a": first, "b": second}, surplus="drop")
        ):
            met.add(tuple(sorted(batch.tolist())))
    pairs = {(one, other) for one in range(4) for other in range(one + 1, 4)}
    # Where two samples are apart, so are the other two.
    apart = shared | {tuple(sorted({0, 1, 2, 3} - set(pair))) for pair in shared}
    assert {pair for pair in met if len(pair) == 2} == pairs - apart


def test_options_and_pickles_have_the_keys() -> None:
    columns = {"a": [number // 3 for number in range(60)], "b": list(range(10, 70))}
    for way in (columns, bl.DistinctBy(columns, surplus="drop"), bl.DistinctBy(columns["a"], surplus="drop")):
        plan = bl.Plan(60, 3, shuffle=True, distinct_by=way)
        again = bl.Plan(60, 3, shuffle=True, distinct_by=plan.options.distinct_by)
        other = pickle.loads(pickle.dumps(plan))
        assert plan == again == other
        assert [batch.tolist() for batch in plan] == [batch.tolist() for batch in other]
        sampler = bl.BatchSampler(60, 3, True, distinct_by=way)
        assert list(sampler) == [batch.tolist() for batch in plan]
    assert repr(bl.DistinctBy(columns)) == "DistinctBy(surplus='error')"


def test_a_report_names_what_is_dropped(tmp_path: Path) -> None:
    plan = bl.Plan(40, 4, shuffle=True, distinct_by=bl.DistinctBy([0] * 20 + list(range(1, 21)), surplus="drop"))
    plan.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text()
    assert "for their size or their keys" in text
    assert plan.stats()["dropped"] == 13


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bl.DistinctBy(range(12), surplus="drops"), "surplus is 'drops'; expected 'error' or 'drop'"),
        (lambda: {}, "distinct_by is an empty dict"),
        (lambda: {"a": range(12), "b": range(11)}, r"distinct_by\['b'\] has 11 values for 12 samples"),
        (lambda: {"a": range(12), "b": [1, None] * 6}, r"distinct_by\['b'\] has None for sample 1"),
        (
            lambda: {"a": range(12), "b": ["x"] * 12},
            r"\['a'\] has 0 and distinct_by\['b'\] has 'x'; expected numbers",
        ),
        (lambda: {"a": range(12), "b": [[1]] * 12}, r"distinct_by\['b'\] has \[1\]"),
        (lambda: ["a", "b"], r"distinct_by\['a'\] is 'a', the name of a field, and a plan knows no fields"),
        (
            lambda: {"a": [7] * 5 + list(range(7)), "b": range(20, 32)},
            "5 samples have the key of sample 0.*3 batches",
        ),
        (lambda: {"a": [0, 1] * 6, "b": [2, 3, 4] * 4}, "6 samples have the key of sample 0"),
        (lambda: {"a": [0, 1, 2, 3] * 3, "b": [4, 5, 6, 7] * 3}, "sample 0 shares its keys 4 times"),
    ],
)
def test_wrong_keys_are_refused(make: Any, message: str) -> None:
    with pytest.raises(bl.Error, match=message):
        bl.Plan(12, 4, shuffle=True, distinct_by=make())


def test_what_is_meant_is_named() -> None:
    with pytest.raises(TypeError, match=r"surpluss.*surplus"):
        bl.DistinctBy([1], surpluss="drop")  # type: ignore[call-arg]
    with pytest.raises(bl.ArgumentError, match="homogeneous_by is a dict"):
        bl.Plan(12, 4, homogeneous_by={"a": range(12)})  # type: ignore[arg-type]
    dataset = bl.TensorDataset(x=numpy.arange(12), y=numpy.arange(12))
    with pytest.raises(bl.ArgumentError, match=r"distinct_by\['z'\] names 'z'; expected 'x' .* or 'y'"):
        bl.DataLoader(dataset, 4, True, distinct_by=["x", "z"])


def test_names_of_fields_are_names_though_there_are_as_many_samples():
    data = bl.TensorDataset(first=numpy.array([3, 1]), second=numpy.array([5, 3]))
    options = {"shuffle": True, "distinct_by": bl.DistinctBy(["first", "second"], surplus="drop")}
    assert [len(batch["first"]) for batch in bl.DataLoader(data, 2, **options)] == [1]
    assert len(next(iter(bl.DataLoader(data, 2, shuffle=True, distinct_by=["first", "unknown"])))["first"]) == 2
