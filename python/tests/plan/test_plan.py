"""The plan as the thing that users hold: a sequence, a batch sampler, a value, a table of costs."""

import copy
import itertools
import pickle
import time
from collections import Counter

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.runs import Run, few, runs, saved, worlds
from refusals import refused


class Squares(torch.utils.data.Dataset):
    """A map-style dataset of somebody else's."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, sample):
        return sample, sample * sample


def resumed(run, epoch, world_size, stop, then):
    """The plan of the rest of an epoch, for another world."""
    loader = run.loader(world_size)
    loader.set_epoch(epoch)
    batches = iter(loader)
    for _ in range(int(stop * len(loader.plan(epoch)))):
        next(batches)
    rest = run.loader(then, then - 1)
    rest.load_state_dict(saved(loader.state_dict()))
    return rest.plan()


# A sequence


@given(run=runs(), world_size=worlds, epoch=st.integers(0, 2**64 - 1))
def test_a_plan_is_a_sequence_of_index_arrays(run, world_size, epoch):
    assume(run.steps(epoch, world_size))
    rank = world_size - 1
    expected, plan = run.seen(epoch, world_size, rank), run.plan(epoch, world_size, rank)
    assert len(plan) == len(expected)
    assert [batch.tolist() for batch in plan] == expected
    assert [plan[step].tolist() for step in range(len(plan))] == expected
    assert [plan[step - len(plan)].tolist() for step in range(len(plan))] == expected
    assert [batch.tolist() for batch in reversed(plan)] == expected[::-1]
    assert all((batch.dtype, batch.ndim) == (numpy.int64, 1) for batch in plan)
    for outside in (len(plan), -len(plan) - 1, 2**70, -(2**70)):
        with refused(bl.RangeError, str(len(plan))):
            plan[outside]


@given(run=runs(drop_last=False), index=st.slices(30))
def test_slices_are_lists(run, index):
    expected = run.seen(0)
    found = run.plan()[index]
    assert type(found) is list
    assert [batch.tolist() for batch in found] == expected[index]


@pytest.mark.parametrize("kind", [numpy.int64, numpy.uint8, torch.tensor, int])
def test_integers_of_any_kind_are_indices(kind):
    plan = Run(50, 4).plan()
    assert plan[kind(3)].tolist() == Run(50, 4).seen(0)[3]
    assert plan.where(kind(3)) == plan.where(3)
    assert plan.step(kind(3)).index == 3


@pytest.mark.parametrize("index", [1.5, "a", None, (1, 2), numpy.float64(1)])
def test_what_is_no_index_is_a_type_error_as_with_any_sequence(index):
    plan = Run(50, 4).plan()
    for ask in (plan.__getitem__, plan.where, plan.step):
        with pytest.raises(TypeError):
            ask(index)


def test_index_arrays_are_the_callers_own():
    plan = Run(50, 4).plan()
    plan[0][:] = 7
    assert plan[0].tolist() == Run(50, 4).seen(0)[0]
    plan.step(0).batches[0][:] = 7
    assert plan.step(0).batches[0].tolist() == Run(50, 4).seen(0)[0]


def test_a_list_of_a_plan_indexes_arrays_of_every_framework():
    X = numpy.arange(50.0)
    for samples in Run(50, 4).plan():
        assert numpy.array_equal(X[samples], torch.from_numpy(X)[torch.from_numpy(samples)].numpy())
        assert numpy.array_equal(X[samples], torch.from_numpy(X)[samples].numpy())


# Steps, places, costs


@given(run=runs(), world_size=worlds)
def test_steps_know_all_ranks(run, world_size):
    assume(run.steps(0, world_size))
    expected = run.steps(0, world_size)
    plan = run.plan(0, world_size)
    for index in (*range(len(expected)), -1, -len(expected)):
        step = plan.step(index)
        assert [batch.tolist() for batch in step.batches] == expected[index]
        assert step.index == index % len(expected)
        assert step.samples == step.tokens == sum(map(len, expected[index]))
    for outside in (len(expected), -len(expected) - 1):
        with refused(bl.RangeError, str(len(expected))):
            plan.step(outside)


def places(steps):
    found = {}
    for step, batches in enumerate(steps):
        for rank, batch in enumerate(batches):
            for index, sample in enumerate(batch):
                found.setdefault(sample, []).append(bl.Place(step, rank, index))
    return found


@given(run=runs(most=100), world_size=worlds, epoch=st.integers(0, 5))
def test_where_is_every_place_of_a_sample(run, world_size, epoch):
    assume(run.steps(epoch, world_size))
    expected, plan = places(run.steps(epoch, world_size)), run.plan(epoch, world_size)
    for sample in range(run.samples):
        assert plan.where(sample) == expected.get(sample, [])
    for outside in (run.samples, -run.samples - 1):
        with refused(bl.RangeError, str(run.samples)):
            plan.where(outside)


@few
@given(run=runs(most=100), world_size=worlds, stop=st.floats(0, 1), then=worlds)
def test_where_and_stats_of_the_rest_of_an_epoch(run, world_size, stop, then):
    assume(run.steps(2, world_size) and run.steps(2, then))
    plan = resumed(run, 2, world_size, stop, then)
    steps = [[batch.tolist() for batch in plan.step(step).batches] for step in range(plan.stats()["steps"])]
    expected = places(steps)
    for sample in range(run.samples):
        assert plan.where(sample) == expected.get(sample, [])
    stats = plan.stats()
    assert stats["real"] == sum(len(batch) for step in steps for batch in step)
    assert stats["samples"] + stats["repeated"] == stats["real"] + stats["dropped"] + stats["earlier"]
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert [batch.tolist() for batch in pickle.loads(pickle.dumps(plan))] == [batch.tolist() for batch in plan]


def test_where_names_its_parts():
    (place,) = Run(50, 4, shuffle=False).plan(0, 3).where(21)
    assert (place.step, place.rank, place.index) == (1, 2, 1)


@given(run=runs(), world_size=worlds)
def test_stats_are_what_the_oracle_counts(run, world_size):
    steps = run.steps(0, world_size)
    assume(steps)
    stats = run.plan(0, world_size).stats()
    sizes = [[len(batch) for batch in step] for step in steps]
    times = Counter(sample for step in steps for batch in step for sample in batch)
    real = times.total()
    assert stats == {
        "samples": run.samples,
        "tokens": run.samples,
        "batches": sum(map(len, steps)),
        "steps": len(steps),
        "world_size": world_size,
        "real": real,
        "padded": real,
        "padding": 0.0,
        "efficiency": None,
        "shapes": len(set(itertools.chain(*sizes))),
        "dropped": run.samples - len(times),
        "dropped_tokens": run.samples - len(times),
        "truncated": 0,
        "truncated_tokens": 0,
        "split": 0,
        "repeated": real - len(times),
        "repeated_tokens": real - len(times),
        "banned": 0,
        "banned_tokens": 0,
        "earlier": 0,
        "earlier_tokens": 0,
        "tail": 0,
        "largest": max(itertools.chain(*sizes)),
        "imbalance": pytest.approx(1 - real / sum(max(step) * world_size for step in sizes)),
        "imbalance_cost": "tokens",
        "step_spread": None,
        "mates_kept": stats["mates_kept"],
        "length_correlation": None,
    }


# A value


def test_attributes():
    plan = bl.Plan(100, 8, shuffle=True, seed=5, epoch=3, rank=1, world_size=4)
    found = (plan.samples, plan.batching, plan.shuffle, plan.seed, plan.epoch, plan.rank, plan.world_size)
    assert found == (100, bl.FixedSize(8), True, 5, 3, 1, 4)
    text = repr(plan)
    for part in ("100 samples", "batch_size=8", "epoch 3", "rank 1 of 4", "4 batches"):
        assert part in text


DIFFERENT = [
    {"samples": 101},
    {"batch_size": 9},
    {"shuffle": False},
    {"drop_last": True},
    {"seed": 6},
    {"uneven": "short"},
]
PLACED = [{"epoch": 4}, {"rank": 2}, {"world_size": 5}]
OPTIONS = {"samples": 100, "batch_size": 8, "shuffle": True, "seed": 5, "epoch": 3, "rank": 1, "world_size": 4}


@pytest.mark.parametrize("change", DIFFERENT + PLACED, ids=str)
def test_plans_compare_by_value(change):
    plan, same, other = bl.Plan(**OPTIONS), bl.Plan(**OPTIONS), bl.Plan(**OPTIONS | change)
    assert plan == same
    assert hash(plan) == hash(same)
    assert plan != other
    assert len({plan, same, other}) == 2
    assert plan != "plan"
    assert (plan.fingerprint == other.fingerprint) == (change in PLACED)


def test_a_fingerprint_is_32_hexadecimal_digits():
    fingerprint = bl.Plan(**OPTIONS).fingerprint
    assert len(fingerprint) == 32
    assert int(fingerprint, 16) >= 0


@given(run=runs(), world_size=worlds, epoch=st.integers(0, 2**64 - 1))
def test_plans_pickle(run, world_size, epoch):
    assume(run.steps(epoch, world_size))
    plan = run.plan(epoch, world_size, world_size - 1)
    for again in (pickle.loads(pickle.dumps(plan)), copy.copy(plan), copy.deepcopy(plan)):
        assert again == plan
        assert [batch.tolist() for batch in again] == [batch.tolist() for batch in plan]


def test_a_plan_of_the_rest_differs_from_the_whole():
    run = Run(100, 8)
    rest, whole = resumed(run, 0, 1, 0.5, 1), run.plan()
    assert rest != whole
    assert rest.fingerprint == whole.fingerprint
    assert rest.at_epoch(0) == whole
    assert rest.at_epoch(1) == run.plan(1)


@pytest.mark.law("L2")
def test_a_plan_says_the_same_in_another_process(interpreter):
    code = """
        import batchloom as bl
        plan = bl.Plan(1000, 7, shuffle=True, seed=2**63, epoch=9, rank=1, world_size=3)
        print(plan.fingerprint, [batch.tolist() for batch in plan])
    """
    plan = bl.Plan(1000, 7, shuffle=True, seed=2**63, epoch=9, rank=1, world_size=3)
    for seed in (0, 1):
        expected = f"{plan.fingerprint} {[batch.tolist() for batch in plan]}\n"
        assert interpreter(code, PYTHONHASHSEED=seed) == expected


# A batch sampler


# JAX, once imported, warns of every fork.
@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.filterwarnings("ignore:a loader of torch reads this plan again")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_plan_is_a_batch_sampler_of_torch(workers):
    plan = bl.Plan(50, 4, shuffle=True, rank=1, world_size=2)
    loader = torch.utils.data.DataLoader(Squares(50), batch_sampler=plan, num_workers=workers)
    assert len(loader) == len(plan) == 7
    for _ in range(2):
        for samples, (numbers, squares) in zip(plan, loader, strict=True):
            assert numbers.tolist() == samples.tolist()
            assert squares.tolist() == (samples**2).tolist()


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.parametrize("workers", [0, 2])
def test_our_dataset_is_a_map_style_dataset_of_torch(workers):
    X = torch.arange(100.0).reshape(50, 2)
    dataset = bl.TensorDataset(x=X, y=numpy.arange(50))
    plan = bl.Plan(50, 4, shuffle=True)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=plan, num_workers=workers)
    for samples, batch in zip(plan, loader, strict=True):
        assert torch.equal(batch["x"], X[samples])
        assert batch["y"].tolist() == samples.tolist()


def test_a_plan_survives_the_trip_to_a_spawned_worker():
    again = torch.utils.data.DataLoader(
        Squares(20), batch_sampler=bl.Plan(20, 4), num_workers=1, multiprocessing_context="spawn"
    )
    assert len(list(again)) == 5


# Size


def test_a_billion_samples_cost_nothing():
    begun = time.perf_counter()
    plan = bl.Plan(10**9, 64, shuffle=True, world_size=8, rank=7)
    assert len(plan[len(plan) - 1]) == 64
    assert plan.where(plan[10**6][5]) == [bl.Place(10**6, 7, 5)]
    assert plan.stats()["steps"] == len(plan) == 1_953_125
    assert time.perf_counter() - begun < 0.5


def test_the_most_samples_there_can_be():
    plan = bl.Plan(2**62, 3, shuffle=True, drop_last=True)
    assert len(plan) == 2**62 // 3
    for step in (0, 12345, len(plan) - 1):
        for index, sample in enumerate(plan[step]):
            assert 0 <= sample < 2**62
            assert plan.where(sample) == [bl.Place(step, 0, index)]
