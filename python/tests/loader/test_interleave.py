"""Loaders whose batches take turns: shares at every place, ends of epochs, and one state."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import batchloom as bl
import numpy
import pytest
from batchloom.loader.interleave import lengths
from hypothesis import given
from hypothesis import strategies as st

WORDS = [numpy.full(1 + sample * 5 % 9, sample) for sample in range(60)]


def loaders(rank: int = 0, world_size: int = 1) -> dict[str, Any]:
    options: dict[str, Any] = {
        "shuffle": True,
        "rank": rank,
        "world_size": world_size,
        "uneven": "mask",
        "num_threads": 1,
    }
    series = numpy.arange(40, dtype=numpy.float32)[:, None]
    return {
        "rows": bl.DataLoader(bl.TensorDataset(x=numpy.arange(50)), 4, **options),
        "words": bl.DataLoader(bl.SequenceDataset(x=WORDS), batching=bl.TokenBudget(40), **options),
        "windows": bl.DataLoader(bl.WindowDataset(series, 4, 1), 5, **options),
    }


def bits(batch: Any) -> list[tuple[Any, ...]]:
    fields = batch.values() if isinstance(batch, dict) else batch
    return [(field.shape, field.tobytes()) for field in map(numpy.asarray, fields)]


WEIGHTS = st.lists(st.sampled_from([0, 1, 2, 0.5, 3]), min_size=3, max_size=3).filter(any)
ENDS = st.sampled_from(["stop", "repeat", "renormalise"])


@given(WEIGHTS, ENDS)
def test_shares_hold_at_every_place_and_each_loader_goes_through_its_epochs(weights: list[float], end: str) -> None:
    run = bl.interleave(loaders(), dict(zip(loaders(), weights, strict=True)), when_exhausted=end)
    alone = {name: [bits(batch) for epoch in range(30) for batch in loader] for name, loader in loaders().items()}
    taken = dict.fromkeys(alone, 0)
    share = {name: weight / sum(weights) for name, weight in zip(alone, weights, strict=True)}
    lengths = {name: len(loader) for name, loader in loaders().items()}
    for epoch in range(3):
        assert run.epoch == epoch
        counts = dict.fromkeys(alone, 0)
        for place, (name, batch) in enumerate(run, 1):
            assert bits(batch) == alone[name][taken[name]]
            taken[name] += 1
            counts[name] += 1
            if end != "renormalise":
                assert all(abs(counts[other] - share[other] * place) <= 1.5 for other in counts)
        drawn = [name for name in counts if share[name]]
        if epoch == 0:
            ended = [name for name in drawn if counts[name] >= lengths[name]]
            assert len(ended) == (1 if end == "stop" else len(drawn)) or end == "stop"
        if end == "renormalise" and epoch == 0:
            assert all(counts[name] == lengths[name] for name in drawn)
        assert all(counts[name] == 0 for name in counts if not share[name])


@pytest.mark.law("L4")
@given(WEIGHTS, ENDS, st.lists(st.integers(0, 25), min_size=1, max_size=3))
def test_a_run_resumes_from_one_state(weights: list[float], end: str, stops: list[int]) -> None:
    whole = bl.interleave(list(loaders().values()), weights, when_exhausted=end)
    expected = [(name, bits(batch)) for _ in range(4) for name, batch in whole]
    found: list[Any] = []
    run = bl.interleave(list(loaders().values()), weights, when_exhausted=end)
    for stop in stops:
        batches = iter(run)
        for _ in range(stop):
            try:
                name, batch = next(batches)
            except StopIteration:
                batches = iter(run)
                name, batch = next(batches)
            found.append((name, bits(batch)))
        state = json.loads(json.dumps(run.state_dict()))
        run = bl.interleave(list(loaders().values()), weights, when_exhausted=end)
        run.load_state_dict(state)
        assert run.state_dict() == state
    while len(found) < len(expected):
        found += [(name, bits(batch)) for name, batch in run]
    assert found[: len(expected)] == expected


def test_ranks_take_turns_alike_and_other_ranks_take_the_rest() -> None:
    runs = [bl.interleave(loaders(rank, 2), {"rows": 2, "words": 1, "windows": 1}) for rank in range(2)]
    batches = [iter(run) for run in runs]
    taken: list[Any] = []
    for _ in range(7):
        step = [next(each) for each in batches]
        assert len({name for name, _ in step}) == 1
        taken += step
    states = [run.state_dict() for run in runs]
    assert states[0] == states[1]
    other = bl.interleave(loaders(), {"rows": 2, "words": 1, "windows": 1}, when_exhausted="renormalise")
    other.load_state_dict(states[0])
    taken += list(other)
    rows = numpy.concatenate([batch["x"][batch["weight"] > 0] for name, batch in taken if name == "rows"])
    assert sorted(rows.tolist()) == list(range(50))


def test_weights_may_change_when_a_state_is_loaded() -> None:
    run = bl.interleave(loaders(), {"rows": 1, "words": 0, "windows": 0})
    batches = iter(run)
    assert [next(batches)[0] for _ in range(5)] == ["rows"] * 5
    other = bl.interleave(loaders(), {"rows": 1, "words": 1, "windows": 0})
    other.load_state_dict(run.state_dict())
    batches = iter(other)
    assert [next(batches)[0] for _ in range(6)] == ["rows", "words"] * 3


def test_a_state_of_others_is_refused_and_leaves_the_loaders_alone() -> None:
    run = bl.interleave(loaders())
    batches = iter(run)
    next(batches)
    before = run.state_dict()
    damaged = before | {"loaders": [before["loaders"][0], before["loaders"][0], before["loaders"][2]]}
    changes: list[dict[str, Any]] = [
        {"taken": [1]},
        {"taken": ["a", 1, 1]},
        {"taken": [-5, 0, 0]},
        {"taken": "abc"},
        {"epoch": -3},
        {"epoch": 1.7},
        {"epoch": float("inf")},
        {"epoch": "7"},
        {"ended": [True]},
        {"ended": [3]},
        {"ended": [0, 1, 2]},
        {"weights": [1, None, 2]},
        {"loaders": before["loaders"][:2]},
    ]
    for state in (3, {}, *(before | change for change in changes), damaged):
        with pytest.raises(bl.StateError):
            run.load_state_dict(state)  # type: ignore[arg-type]
        assert run.state_dict() == before


def test_an_epoch_is_over_where_new_weights_leave_only_loaders_that_ended() -> None:
    run = bl.interleave(list(loaders().values()), when_exhausted="renormalise")
    batches = iter(run)
    while not run.state_dict()["ended"]:
        next(batches)
    (ended,) = run.state_dict()["ended"]
    weights = [int(place == ended) for place in range(3)]
    other = bl.interleave(list(loaders().values()), weights, when_exhausted="renormalise")
    other.load_state_dict(run.state_dict())
    assert other.epoch == 1
    assert {name for name, _ in other} == {ended}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "loaders is empty"),
        ((5,), "loaders is a int"),
        (([3],), "loader 0 is a int"),
        (([loaders()["rows"]], [10**400]), "weight of loader 0 is 1000.*expected a finite number"),
        (([loaders()["rows"]], [0]), "all weights are 0"),
        (([loaders()["rows"]], [-1]), "weight of loader 0 is -1"),
        (([loaders()["rows"]], [float("nan")]), "weight of loader 0 is nan"),
        (([loaders()["rows"]], [1, 2]), "expected one for each of 1 loaders"),
        ((loaders(), {"rows": 1}), r"weights names \['rows'\]"),
        (([LOADER := loaders()["rows"], LOADER],), "given twice"),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(bl.ArgumentError, match=message):
        bl.interleave(*arguments)


def test_ranks_of_different_lengths_are_refused() -> None:
    loader = bl.DataLoader(bl.TensorDataset(x=numpy.arange(9)), 4, uneven="short", rank=0, world_size=2)
    with pytest.raises(bl.ArgumentError, match="uneven='short'"):
        next(iter(bl.interleave([loader])))


# A loader wherever one is expected


def named(run: Any) -> list[Any]:
    return [(name, bits(batch)) for name, batch in run]


def epochs(weights: list[float], end: str, count: int) -> list[list[Any]]:
    run = bl.interleave(list(loaders().values()), weights, when_exhausted=end)
    return [named(run) for _ in range(count)]


@given(WEIGHTS, ENDS)
def test_lengths_are_those_of_the_epochs_at_every_step(weights: list[float], end: str) -> None:
    run = bl.interleave(list(loaders().values()), weights, when_exhausted=end)
    ahead = lengths(run)
    for expected in epochs(weights, end, 3):
        assert len(run) == run.remaining == len(expected) == next(ahead)
        for step, _ in enumerate(run, 1):
            if step < len(expected):
                assert (len(run), run.remaining) == (len(expected), len(expected) - step)
                other = bl.interleave(list(loaders().values()), weights, when_exhausted=end)
                other.load_state_dict(run.state_dict())
                assert (len(other), other.remaining) == (len(expected), len(expected) - step)


@given(WEIGHTS, ENDS, st.lists(st.integers(1, 12), max_size=3), st.booleans())
def test_epochs_that_are_left_are_passed_over(weights: list[float], end: str, stops: list[int], tells: bool) -> None:
    """Each iteration is the next epoch, and so is the next number of a trainer, wherever the one before it was left."""
    expected = epochs(weights, end, 5)
    run = bl.interleave(list(loaders().values()), weights, when_exhausted=end)
    for epoch, stop in enumerate(stops):
        if tells:
            run.sampler.set_epoch(epoch)
        batches = iter(run)
        stop = min(stop, len(expected[epoch]) - 1)
        assert [(name, bits(batch)) for name, batch in (next(batches) for _ in range(stop))] == expected[epoch][:stop]
        again = bl.interleave(list(loaders().values()), weights, when_exhausted=end)
        again.load_state_dict(run.state_dict())
        if tells:
            again.set_epoch(epoch)
        assert named(again) == expected[epoch][stop:]
        if stop:
            again.load_state_dict(run.state_dict())
            again.set_epoch(epoch + 1)
            assert named(again) == expected[epoch + 1]
    left = len(stops) - 1 if stops and not min(stops[-1], len(expected[len(stops) - 1]) - 1) else len(stops)
    if tells:
        run.set_epoch(len(stops))
        left = len(stops)
    assert named(run) == expected[left]
    assert run.epoch == left + 1


@given(WEIGHTS, ENDS, st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_any_epoch_by_its_number(weights: list[float], end: str, numbers: list[int]) -> None:
    expected = epochs(weights, end, 5)
    run = bl.interleave(list(loaders().values()), weights, when_exhausted=end)
    for number in numbers:
        run.set_epoch(number)
        assert named(run) == expected[number]


def test_a_number_before_the_loaders_are_known_is_refused_with_both() -> None:
    run = bl.interleave(loaders())
    run.set_epoch(1)
    batches = iter(run)
    next(batches)
    other = bl.interleave(loaders())
    other.load_state_dict(run.state_dict())
    batches = iter(other)
    next(batches)
    with pytest.raises(bl.LoaderError, match=r"epoch 1 .* epoch 2"):
        other.set_epoch(1)


def test_one_iteration_at_a_time() -> None:
    run = bl.interleave(loaders())
    first, second = iter(run), iter(run)
    assert run.state_dict() == bl.interleave(loaders()).state_dict()
    next(first)
    next(second)
    assert run.epoch == 1
    with pytest.raises(bl.LoaderError, match="another iteration"):
        next(first)


def test_ranks_of_the_loaders_are_those_of_the_run() -> None:
    run = bl.interleave(loaders(1, 3))
    assert (run.rank, run.world_size) == (1, 3)
    mixed = bl.interleave([loaders()["rows"], loaders(1, 2)["words"]])
    with pytest.raises(bl.ArgumentError, match=r"0 0 of 1, 1 1 of 2"):
        next(iter(mixed))


def turns(end: str) -> Any:
    """A run of two loaders of different lengths."""
    few, many = numpy.arange(12), numpy.arange(10)
    pair = {"a": bl.DataLoader(few, 4, shuffle=True), "b": bl.DataLoader(many, 2, shuffle=True)}
    return bl.interleave(pair, when_exhausted=end)


def flat(batches: Any) -> list[tuple[str, list[int]]]:
    return [(name, batch.tolist()) for name, batch in batches]


def after(end: str, count: int) -> Any:
    """A run that has handed over some batches."""
    run = turns(end)
    batches = iter(run)
    for _ in range(count):
        try:
            next(batches)
        except StopIteration:
            batches = iter(run)
            next(batches)
    return run


@pytest.mark.parametrize("end", ["stop", "repeat", "renormalise"])
def test_a_batch_that_waits_is_left_out_of_the_state_at_every_step(end: str) -> None:
    run = turns(end)
    whole = [batch for _ in range(9) for batch in flat(run)]
    for count in range(1, 16):
        ahead = after(end, count)
        again = turns(end)
        again.load_state_dict(json.loads(json.dumps(ahead.state_dict(batches=-1))))
        found = [batch for _ in range(2) for batch in flat(again)]
        assert found == whole[count - 1 : count - 1 + len(found)]
    with pytest.raises(bl.ArgumentError, match="-2"):
        after(end, 3).state_dict(batches=-2)


@pytest.mark.parametrize("end", ["stop", "repeat", "renormalise"])
def test_a_copy_goes_on_where_the_run_stands(end: str) -> None:
    run = turns(end)
    whole = [batch for _ in range(9) for batch in flat(run)]
    for count in range(15):
        for make in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))):
            found = flat(make(after(end, count)))
            assert found == whole[count : count + len(found)]
            assert found


def test_a_state_is_of_loaders_by_name() -> None:
    def pair(names: str) -> Any:
        makers = {name: bl.DataLoader(numpy.arange(24), 2, shuffle=True, seed=ord(name)) for name in names}
        return bl.interleave(makers, {name: 3 if name == "a" else 1 for name in names})

    first = pair("ab")
    batches = iter(first)
    seen = flat(next(batches) for _ in range(8))
    state = json.loads(json.dumps(first.state_dict()))
    swapped = pair("ba")
    swapped.load_state_dict(state)
    rest = flat(swapped)
    delivered = [sample for name, batch in seen + rest if name == "a" for sample in batch]
    assert sorted(delivered) == list(range(24))
    with pytest.raises(bl.StateError, match="'a', 'b'; expected 'a', 'c'"):
        pair("ac").load_state_dict(state)
    listed = bl.interleave([bl.DataLoader(numpy.arange(4), 2), bl.DataLoader(numpy.arange(4), 2)])
    assert "names" not in listed.state_dict()


def test_states_that_took_more_than_their_loaders_are_damaged() -> None:
    run = after("stop", 1)
    state = run.state_dict()
    with pytest.raises(bl.StateError, match="999"):
        run.load_state_dict(state | {"taken": [999, 999]})
    assert run.state_dict() == state


def test_epochs_too_far_to_pass_over_are_refused() -> None:
    run = turns("stop")
    with pytest.raises(bl.LoaderError, match="100000"):
        run.set_epoch(2**64 - 1)
    assert len(flat(run)) == len(turns("stop"))


def test_a_state_after_batches_that_were_skipped_is_that_of_a_run_that_took_them() -> None:
    pytest.importorskip("accelerate")
    from batchloom.integrations.accelerate import skip_first_batches

    for count in range(1, 4):
        taken = after("stop", count)
        skipped = skip_first_batches(turns("stop"), count)
        assert skipped.state_dict() == taken.state_dict()
        again = turns("stop")
        again.load_state_dict(skipped.state_dict())
        assert flat(again) == flat(skipped) == flat(turns("stop"))[count:]
