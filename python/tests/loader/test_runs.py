"""Runs: steps and epochs to the end of a run, seeds that are drawn, and batches that are formed again."""

import itertools
import pickle

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles.devices import KINDS, bits, data, seen
from oracles.runs import few
from oracles.windows import pretended
from refusals import refused

SAMPLES = 50


def rows(**options):
    return bl.DataLoader(bl.TensorDataset(torch.arange(SAMPLES)), 8, **({"shuffle": True, "seed": 5} | options))


def numbers(batches):
    return [batch[0].tolist() for batch in batches]


# Steps and epochs


@few
@given(stop=st.integers(0, 30), end=st.integers(0, 40))
def test_steps_end_at_the_step_of_the_run(stop, end):
    endless = rows()
    whole = [batch for _ in range(6) for batch in numbers(endless)]
    loader = rows()
    taken = numbers(loader.steps(stop))
    assert loader.steps_taken == stop
    resumed = rows()
    resumed.load_state_dict(loader.state_dict())
    assert taken + numbers(resumed.steps(end)) == whole[: max(stop, end)]
    assert resumed.steps_taken == max(stop, end)
    # The loader itself goes on as well.
    assert taken + numbers(loader.steps(end)) == whole[: max(stop, end)]


def test_endless_steps():
    found = numbers(itertools.islice(rows().steps(), 20))
    assert found == numbers(rows().steps(20))


def test_ranks_take_as_many_steps():
    loaders = [rows(rank=rank, world_size=3, uneven="short") for rank in range(3)]
    assert [len(list(loader)) for loader in loaders] == [3, 2, 2]
    assert [loader.steps_taken for loader in loaders] == [3, 3, 3]
    assert len({str(loader.state_dict()) for loader in loaders}) == 1


def test_steps_of_other_worlds_count_as_steps():
    loader = rows(world_size=2, rank=0)
    assert len(list(loader.steps(3))) == 3
    other = rows()
    other.load_state_dict(loader.state_dict())
    assert len(list(other.steps(5))) == 2
    assert other.steps_taken == 5


def test_epochs_end_at_the_epoch_of_the_run():
    whole = [numbers(loader) for loader in [rows()] for _ in range(3)]
    assert [(epoch, numbers(batches)) for epoch, batches in rows().epochs(3)] == list(enumerate(whole))
    loader = rows()
    for epoch, batches in loader.epochs():
        if epoch == 1:
            taken = numbers(itertools.islice(batches, 3))
            break
    resumed = rows()
    resumed.load_state_dict(loader.state_dict())
    rest = [(epoch, numbers(batches)) for epoch, batches in resumed.epochs(3)]
    assert rest == [(1, whole[1][3:]), (2, whole[2])]
    assert taken == whole[1][:3]
    # Epochs whose batches are left alone, or some of them, are over.
    assert [epoch for epoch, _ in rows().epochs(4)] == [0, 1, 2, 3]
    assert [(epoch, numbers([next(batches)])) for epoch, batches in rows().epochs(3)] == [
        (epoch, batches[:1]) for epoch, batches in enumerate(whole)
    ]
    assert list(resumed.epochs(3)) == []


@pytest.mark.parametrize("end", [-1, 2.5, "x", True])
def test_ends_that_make_no_sense(end):
    for method in (rows().steps, rows().epochs):
        with refused(bl.ArgumentError, "end", str(end)):
            method(end)


def test_pickles_keep_the_steps():
    loader = rows()
    for steps in (0, 3, 7, 10, 14):
        assert len(list(loader.steps(steps))) + loader.steps_taken >= steps
        again = pickle.loads(pickle.dumps(loader))
        assert again.steps_taken == loader.steps_taken == steps
        assert again.state_dict() == loader.state_dict()


# Seeds


def test_a_seed_is_drawn_once_and_kept():
    loader, other = rows(seed=None), rows(seed=None)
    assert loader.seed != other.seed
    state = loader.state_dict()
    assert state["seed"] == loader.seed == pickle.loads(pickle.dumps(loader)).seed
    first = numbers(loader)
    again = rows(seed=None)
    again.load_state_dict(state)
    assert numbers(again) == first == numbers(rows(seed=state["seed"]))
    assert again.seed == state["seed"]


@pytest.mark.parametrize("make", [lambda: torch.Generator().manual_seed(3), lambda: numpy.random.default_rng(3)])
def test_a_generator_as_the_seed_draws_it(make):
    loader = bl.DataLoader(bl.TensorDataset(torch.arange(9)), 2, shuffle=True, seed=make())
    assert loader.seed == bl.DataLoader(bl.TensorDataset(torch.arange(9)), 2, shuffle=True, generator=make()).seed
    with refused(bl.ArgumentError, "seed", "generator"):
        bl.DataLoader(bl.TensorDataset(torch.arange(9)), 2, seed=make(), generator=make())


def test_ranks_that_know_no_others_are_asked_for_a_number():
    with refused(bl.ArgumentError, "seed", "2", "number"):
        rows(seed=None, rank=0, world_size=2).state_dict()


SEEDS = """
    import json, os, torch, torch.distributed as dist, batchloom as bl
    dist.init_process_group("gloo", init_method="file://{store}", rank=int(os.environ["RANK"]), world_size=2)
    loaders = [bl.DataLoader(bl.TensorDataset(torch.arange(50)), 8, shuffle=True, seed=None) for _ in range(2)]
    found = [[batch[0].tolist() for batch in loader] for loader in loaders]
    print(json.dumps([[loader.seed for loader in loaders], found]))
    dist.destroy_process_group()
"""


def test_two_processes_share_the_seed_that_the_first_draws(ranks, tmp_path):
    (seeds, first), (others, second) = ranks(SEEDS.format(store=tmp_path / "store"), 2)
    assert seeds == others
    assert seeds[0] != seeds[1]
    for taken in zip(first, second, strict=True):
        assert sorted({sample for batches in taken for batch in batches for sample in batch}) == list(range(50))


# Replay


@pytest.mark.law("L2")
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_formed_again_bit_for_bit(kind):
    dataset, options = data(kind)
    loader = bl.DataLoader(dataset, **options, output="torch")
    epochs = [seen(loader) for _ in range(2)]
    batches = iter(loader)
    held = [next(batches)]
    state, length = loader.state_dict(), len(loader)
    for epoch, expected in enumerate(epochs):
        for step in (0, len(expected) // 2, -1):
            assert seen([loader.replay(epoch, step)]) == [expected[step]]
    assert seen([loader[0]]) == seen(held)
    # The run stays where it is.
    assert loader.state_dict() == state
    assert len(held + list(batches)) == length


@pytest.mark.parametrize("device", [{"resident": True}, {"device": "meta"}, {"device": "meta", "resident": False}])
def test_devices_form_batches_again(device):
    with pretended():
        loader = rows(output="torch", **device)
        expected = seen(loader)
        for step in range(len(expected)):
            assert seen([loader.replay(0, step)]) == [expected[step]]


@pytest.mark.law("L5")
@few
@given(first=st.integers(1, 4), steps=st.integers(0, 3), second=st.integers(1, 4), seed=st.integers(0, 3))
def test_steps_of_a_chain_of_worlds_are_formed_again(first, steps, second, seed):
    options = {"seed": seed, "uneven": "pad", "drop_last": False}
    before = [rows(rank=rank, world_size=first, **options) for rank in range(first)]
    steps = min(steps, len(before[0]))
    taken = [numbers(itertools.islice(loader, steps)) for loader in before]
    state = before[0].state_dict()
    if state["epoch"]:
        return
    after = [rows(rank=rank, world_size=second, **options) for rank in range(second)]
    for rank, loader in enumerate(after):
        loader.load_state_dict(state)
        rest = numbers(loader)
        whole = (taken[rank] if rank < first else [None] * steps) + rest
        for step, expected in enumerate(whole):
            if expected is None:
                with refused(bl.RangeError, f"step {step}", f"rank {rank}"):
                    loader.replay(0, step, state=state)
                continue
            assert loader.replay(0, step, state=state)[0].tolist() == expected
        with refused(bl.RangeError, f"step {len(whole)}"):
            loader.replay(0, len(whole), state=state)


def test_samples_on_demand_are_read_again():
    read = []
    loader = bl.DataLoader(bl.MapDataset(range(40), lambda item: read.append(item) or numpy.array(item)), 4, seed=2)
    batches = list(loader)
    read.clear()
    assert bits(torch.from_numpy(loader.replay(0, 3))) == bits(torch.from_numpy(batches[3]))
    assert set(read) >= set(batches[3].tolist())
    assert len(read) <= 12


def test_mixtures_and_weights_are_replayed():
    sources = {"a": bl.TensorDataset(torch.arange(30)), "b": bl.TensorDataset(torch.arange(100, 110))}
    for loader in (
        bl.DataLoader(bl.Mixture(sources, {"a": 1, "b": 1}), 4, shuffle=True),
        rows(weights=range(1, SAMPLES + 1), num_samples=70),
    ):
        epochs = [seen(loader) for _ in range(2)]
        for epoch, expected in enumerate(epochs):
            assert [seen([loader.replay(epoch, step)])[0] for step in range(len(expected))] == expected


def test_lists_of_a_sampler_are_replayed():
    loader = bl.DataLoader(bl.TensorDataset(torch.arange(9)), batch_sampler=[[1, 2], [8, 7, 6], [0]])
    expected = numbers(loader)
    assert [loader.replay(0, step)[0].tolist() for step in range(3)] == expected


@pytest.mark.parametrize(
    ("arguments", "kind", "named"),
    [
        ((0, 7), bl.RangeError, ("step 7", "7")),
        ((0, -8), bl.RangeError, ("step -8", "7")),
        ((-1, 0), bl.ArgumentError, ("epoch", "-1")),
        ((0.5, 0), bl.ArgumentError, ("epoch", "0.5")),
    ],
)
def test_steps_that_there_are_not(arguments, kind, named):
    with refused(kind, *named):
        rows().replay(*arguments)
    with refused(bl.StateError, "epoch 0", "epoch 1"):
        rows().replay(1, 0, state=rows().state_dict())
    with refused(bl.RangeError, "step 7"):
        rows()[7]


# Digests


@few
@given(stop=st.integers(1, 20), rest=st.integers(0, 20))
def test_the_digest_of_a_run_is_that_of_what_determines_it(stop, rest):
    def after(steps, **options):
        loader = rows(**options)
        numbers(loader.steps(steps))
        return loader

    expected = after(stop + rest).state_dict()
    interrupted = pickle.loads(pickle.dumps(after(stop)))
    resumed = rows()
    resumed.load_state_dict(interrupted.state_dict())
    numbers(resumed.steps(stop + rest))
    assert resumed.state_dict() == expected
    others = [after(stop + rest, seed=6), after(stop + rest, drop_last=True), after(stop + rest + 1)]
    assert len({loader.state_dict()["digest"] for loader in others} | {expected["digest"]}) == 4
    assert after(0).state_dict().get("digest") is None


def test_the_digest_of_a_run_is_the_same_on_every_rank():
    loaders = [rows(rank=rank, world_size=3, uneven="short") for rank in range(3)]
    for loader in loaders:
        numbers(loader)
    assert len({loader.state_dict()["digest"] for loader in loaders}) == 1


def digest_of(batches):
    digest = bl.BatchDigest()
    for _ in map(digest.add, batches):
        pass
    return digest.hex()


def test_the_digest_of_batches_is_that_of_their_bytes():
    values = numpy.arange(SAMPLES, dtype=numpy.float32)

    def digest(output, steps=9, **options):
        dataset = bl.TensorDataset(x=values, y=numpy.arange(SAMPLES))
        return digest_of(bl.DataLoader(dataset, 8, shuffle=True, output=output, **options).steps(steps))

    found = digest("numpy")
    assert len(found) == 32
    assert digest("torch") == found
    others = [digest("numpy", seed=1), digest("numpy", 8), digest("numpy", fields={"x": bl.Field(dtype="float64")})]
    assert len({found, *others}) == 4
    assert digest_of([]) == bl.BatchDigest().hex()


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_every_kind_have_digests(kind):
    dataset, options = data(kind)

    def digest(state):
        loader = bl.DataLoader(dataset, **options)
        if state is not None:
            loader.load_state_dict(state)
        digest, batches = bl.BatchDigest(), iter(loader)
        digest.add(next(batches))
        place = loader.state_dict()
        for batch in batches:
            digest.add(batch)
        return digest.hex(), place

    (first, place), (again, _) = digest(None), digest(None)
    assert first == again
    assert digest(place)[0] != first


def test_digests_of_types_that_numpy_lacks_and_of_sparse_rows():
    rows = torch.arange(24.0).reshape(8, 3)
    for dataset, dtype in ((bl.TensorDataset(rows), torch.bfloat16), (bl.TensorDataset(rows.to_sparse_csr()), None)):
        first, second = (digest_of(bl.DataLoader(dataset, 4, dtype=dtype)) for _ in range(2))
        assert first == second
        assert first != bl.BatchDigest().hex()


def test_steps_leave_the_run_where_the_next_iteration_goes_on():
    loader = bl.DataLoader(bl.TensorDataset(x=numpy.arange(20)), 4, True)
    before = [batch["x"].tolist() for batch in loader.steps(7)]
    assert loader.epoch == loader.state_dict()["epoch"] == 1
    assert loader[1]["x"].tolist() == before[6]
    plan = loader.plan(1)
    assert [batch["x"].tolist() for batch in loader] == [plan[step].tolist() for step in (2, 3, 4)]


def test_a_sampler_keeps_the_steps_and_the_digest_of_a_run():
    loader = bl.DataLoader(bl.TensorDataset(x=numpy.arange(20)), 3, True)
    sampler = bl.BatchSampler(20, 3, True)
    for end in (3, 8, 14, 15, 21, 28):
        list(loader.steps(end))
        state = loader.state_dict()
        other = bl.BatchSampler(20, 3, True)
        other.load_state_dict(state)
        assert other.state_dict() == state
        sampler = pickle.loads(pickle.dumps(sampler))
        while sampler.state_dict().get("steps", 0) < end:
            for _ in sampler:
                if sampler.state_dict()["steps"] == end:
                    break
            sampler = pickle.loads(pickle.dumps(sampler))
        assert sampler.state_dict() == state
