"""The laws of the design, against slow and obvious oracles."""

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import batchloom as bl
import ml_dtypes
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.runs import (
    Run,
    advance,
    assert_resumes,
    chained,
    few,
    finish,
    fractions,
    listed,
    part,
    runs,
    unfilled,
    worlds,
)
from refusals import refused

GOLDEN = Path(__file__).parents[3] / "crates" / "batchloom" / "tests" / "golden"


# L1 partition


@pytest.mark.law("L2")
@given(run=runs(), epoch=st.integers(0, 2**64 - 1), world_size=worlds)
def test_plans_are_what_the_oracle_says(run, epoch, world_size):
    steps = run.steps(epoch, world_size)
    if not steps:
        with refused(bl.ArgumentError, "drop_last"):
            run.plan(epoch, world_size)
        return
    plans = [run.plan(epoch, world_size, rank) for rank in range(world_size)]
    assert [plan[step].tolist() for plan in plans for step in range(len(plan))] == [
        batch for rank in range(world_size) for batch in run.seen(epoch, world_size, rank)
    ]
    assert [[batch.tolist() for batch in plans[0].step(step).batches] for step in range(len(steps))] == steps


@pytest.mark.law("L1")
@given(run=runs(), world_size=worlds)
def test_every_sample_comes_once_less_what_the_plan_says(run, world_size):
    assume(run.steps(0, world_size))
    times = Counter(sample for loader in run.loaders(world_size) for batch in listed(loader) for sample in batch)
    stats = run.plan(0, world_size).stats()
    assert set(times) <= set(range(run.samples))
    assert stats["dropped"] == run.samples - len(times)
    assert stats["repeated"] == times.total() - len(times)
    assert stats["real"] == times.total()
    assert run.drop_last or stats["dropped"] == 0
    assert (run.uneven == "pad" and not run.drop_last) or stats["repeated"] == 0


@given(run=runs(shuffle=False))
def test_without_shuffle_samples_come_as_stored(run):
    assume(run.steps(0, 1))
    flat = [sample for batch in listed(run.loader()) for sample in batch]
    assert flat == list(range(len(flat)))


# L2 pure


def wide_rows():
    """Rows that fill several blocks: 16 MB."""
    return numpy.arange(4000 * 1024, dtype=numpy.float32).reshape(4000, 1024)


@pytest.mark.law("L2")
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_threads_and_a_slow_consumer_never_change_a_byte(threads, prefetch):
    X = wide_rows()
    dataset = bl.TensorDataset(X, numpy.arange(4000))
    loader = bl.DataLoader(dataset, 37, shuffle=True, seed=5, num_threads=threads, prefetch=prefetch)
    pauses = random.Random(threads)
    for epoch in range(2):
        for samples, (rows, numbers) in zip(loader.plan(epoch), loader, strict=True):
            assert numbers.tolist() == samples.tolist()
            assert rows.tobytes() == X[samples].tobytes()
            if pauses.random() < 0.1:
                time.sleep(pauses.random() / 200)


def test_loaders_that_run_side_by_side_do_not_disturb_each_other():
    expected = listed(Run(5000, 7).loader())
    found = {}

    def consume(place):
        found[place] = listed(Run(5000, 7).loader(num_threads=place + 1))

    threads = [threading.Thread(target=consume, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[place] for place in range(4)] == [expected] * 4


@pytest.mark.law("L2")
@given(run=runs(), world_size=worlds)
def test_torch_and_numpy_see_the_same_order(run, world_size):
    assume(run.steps(0, world_size))
    dataset = bl.TensorDataset(torch.arange(run.samples))
    loader = bl.DataLoader(dataset, **run.options(), world_size=world_size, rank=world_size - 1)
    assert listed(loader) == listed(run.loader(world_size, world_size - 1))
    assert loader.plan(0).fingerprint == run.plan(0, world_size).fingerprint


@pytest.mark.law("L2")
def test_the_order_is_the_one_of_the_rust_interface():
    for vector in json.loads((GOLDEN / "permutation.json").read_text()):
        plan = bl.Plan(vector["samples"], 8, shuffle=True, seed=vector["seed"], epoch=vector["epoch"])
        for position, sample in enumerate(vector["order"], vector["start"]):
            assert plan.where(sample) == [bl.Place(position // 8, 0, position % 8)]


def test_the_state_is_the_one_of_the_rust_interface():
    golden = json.loads((GOLDEN / "state.json").read_text())
    loader = Run(1000, 8, seed=1).loader(world_size=3, rank=2)
    loader.load_state_dict(golden)
    found = loader.state_dict()
    assert found == golden | {"steps": 7} | {name: found[name] for name in ("digest", "digest_before")}
    assert loader.plan().seed == 42


# L3 equal


@pytest.mark.law("L3")
@given(run=runs())
def test_ranks_take_equal_steps_and_together_see_everything(run):
    for world_size in range(1, 10):
        steps = run.steps(0, world_size)
        if not steps:
            continue
        loaders = run.loaders(world_size)
        lengths = [len(loader) for loader in loaders]
        received = [listed(loader) for loader in loaders]
        assert lengths == [len(batches) for batches in received]
        if run.drop_last or run.uneven == "pad":
            assert set(lengths) == {len(steps)}
        else:
            assert set(lengths) <= {len(steps), len(steps) - 1}
            assert lengths == sorted(lengths, reverse=True)
        assert received == [run.seen(0, world_size, rank) for rank in range(world_size)]
        assert all(batch for batches in received for batch in batches)


@pytest.mark.law("L3")
def test_more_ranks_than_batches():
    run = Run(5, 4)
    assert [listed(loader) for loader in run.loaders(4)] == [run.seen(0, 4, rank) for rank in range(4)]
    assert [len(loader) for loader in run.loaders(4)] == [1, 1, 1, 1]
    short = Run(5, 4, uneven="short")
    assert [len(list(loader)) for loader in short.loaders(4)] == [1, 1, 0, 0]
    with refused(bl.ArgumentError, "drop_last"):
        Run(5, 4, drop_last=True).loader(world_size=4)


# L4 resume


@pytest.mark.law("L4")
@few
@given(
    run=runs(most=40, batch_size=12),
    world_size=st.integers(1, 4),
    last=st.booleans(),
    prefetch=st.sampled_from([None, 0]),
)
def test_resume_at_every_step_of_three_epochs(run, world_size, last, prefetch):
    assume(run.steps(0, world_size))
    rank = world_size - 1 if last else 0
    other = run.with_seed(run.seed // 2)
    expected = [run.seen(epoch, world_size, rank) for epoch in range(3)]
    options = {"prefetch": prefetch}
    assert_resumes(
        run.loader(world_size, rank, **options), lambda: other.loader(world_size, rank, **options), expected, listed
    )


@pytest.mark.law("L4")
@given(run=runs(), world_size=worlds, stops=st.tuples(fractions, fractions, fractions))
def test_three_resumes_inside_one_epoch(run, world_size, stops):
    assume(run.steps(0, world_size))
    rank = world_size - 1
    received, state, loader = [], None, run.loader(world_size, rank)
    loader.set_epoch(4)
    for stop in stops:
        more, state = advance([loader], stop, listed, state)
        received += more
        loader = run.loader(world_size, rank)
        if state["epoch"] != 4:
            break
    assert received + finish([loader], listed, state, 4) == run.seen(4, world_size, rank)
    assert listed(loader) == run.seen(5, world_size, rank)


@pytest.mark.law("L4")
def test_a_state_before_the_first_batch_after_the_last_and_after_the_end():
    run = Run(10, 4, seed=3)
    loader = run.loader()
    fresh = loader.state_dict()
    batches = iter(loader)
    begun = loader.state_dict()
    last = [(next(batches), loader.state_dict())[1] for _ in range(3)][-1]
    assert next(batches, None) is None
    ended = loader.state_dict()
    assert fresh == begun
    assert last == ended
    assert (ended["epoch"], ended["batches"], ended["worlds"]) == (1, 0, [])
    resumed = run.loader()
    resumed.load_state_dict(ended)
    assert (resumed.remaining, listed(resumed), listed(resumed)) == (3, run.seen(1), run.seen(2))


@given(run=runs(), world_size=worlds, stop=fractions)
def test_the_epoch_after_a_resume_is_whole(run, world_size, stop):
    assume(run.steps(0, world_size))
    loader = run.loader(world_size)
    batches = iter(loader)
    for _ in range(part(stop, len(run.seen(0, world_size)))):
        next(batches)
    resumed = run.loader(world_size)
    resumed.load_state_dict(loader.state_dict())
    if resumed.epoch == 0:
        listed(resumed)
    assert len(resumed) == resumed.remaining == len(run.seen(1, world_size))
    assert listed(resumed) == run.seen(1, world_size)
    assert listed(resumed) == run.seen(2, world_size)


@given(run=runs(uneven="pad"), world_size=worlds, stop=fractions)
def test_every_rank_saves_the_same_state(run, world_size, stop):
    assume(run.steps(0, world_size))
    states = []
    for loader in run.loaders(world_size):
        batches = iter(loader)
        for _ in range(part(stop, len(loader.plan(0)))):
            next(batches)
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)


@pytest.mark.law("L4")
def test_loading_does_not_replay():
    # Half a million million samples, all of them one byte in memory.
    dataset = bl.TensorDataset(numpy.broadcast_to(numpy.zeros(1, numpy.uint8), (2**40,)))
    loader = bl.DataLoader(dataset, 8, shuffle=True)
    begun = time.perf_counter()
    loader.load_state_dict(loader.state_dict() | {"batches": 2**36, "worlds": [[1, 2**36]]})
    assert loader.plan()[0].tolist() == loader.plan(0)[2**36].tolist()
    assert next(iter(loader))[0].shape == (8,)
    assert loader.state_dict()["batches"] == 2**36 + 1
    assert time.perf_counter() - begun < 5


def test_a_state_costs_the_same_wherever_the_epoch_stands():
    loader = Run(100_000, 2).loader()
    batches = iter(loader)

    def cost():
        begun = time.perf_counter()
        for _ in range(200):
            loader.state_dict()
        return time.perf_counter() - begun

    early = min(cost() for _ in range(5))
    for _ in range(49_000):
        next(batches)
    assert min(cost() for _ in range(5)) < 5 * early + 0.01


# L5 elastic


@pytest.mark.law("L5")
def test_world_four_then_three():
    run = Run(100, 3, seed=9, uneven="short")
    taken, state = advance(run.loaders(4), 0.5, listed)
    assert 0 < len(taken) < 34
    assert taken + finish(run.loaders(3), listed, state) == run.batches(0)


@pytest.mark.law("L5")
@few
@given(run=runs(uneven="short", drop_last=False), chain=st.lists(st.tuples(worlds, fractions), max_size=3), end=worlds)
def test_any_chain_of_worlds_delivers_each_batch_once(run, chain, end):
    before = ((run.loaders(world_size), stop) for world_size, stop in chain)
    assert chained(run.loader().state_dict(), before, run.loaders(end), listed) == run.batches(0)


@few
@given(run=runs(uneven="pad", drop_last=False), first=worlds, stop=fractions, end=worlds)
def test_a_padded_remainder_loses_nothing_and_ranks_stay_equal(run, first, stop, end):
    taken, state = advance(run.loaders(first), stop, listed)
    left = Counter(map(tuple, run.batches(0))) - Counter(map(unfilled, taken))
    received = finish(run.loaders(end), listed, state)
    assert not left - Counter(map(unfilled, received))
    assert len(received) % end == 0
    assert len(received) - left.total() < end


@few
@given(run=runs(drop_last=True), first=worlds, stop=fractions, end=worlds)
def test_a_dropping_remainder_repeats_nothing(run, first, stop, end):
    assume(run.steps(0, first) and run.steps(0, end))
    taken, state = advance(run.loaders(first), stop, listed)
    received = taken + finish(run.loaders(end), listed, state)
    assert received == run.batches(0)[: len(received)]
    # Too few batches for a step are dropped, by the ranks that came to them.
    assert len(run.batches(0)) - len(received) < (end if state["epoch"] == 0 else first)


# L7 fresh


@pytest.mark.law("L7")
def test_seeds_and_epochs_give_different_orders():
    keys = [(seed, epoch) for seed in (0, 1, 2, 7, 2**63) for epoch in (0, 1, 2, 7, 2**63)]
    orders = {tuple(Run(50, 50, seed=seed).order(epoch)) for seed, epoch in keys}
    assert len(orders) == len(keys)


@pytest.mark.law("L7")
def test_the_epoch_advances_by_itself():
    run = Run(40, 7)
    loader = run.loader()
    epochs = [listed(loader) for _ in range(4)]
    assert epochs == [run.seen(epoch) for epoch in range(4)]
    assert len({str(epoch) for epoch in epochs}) == 4


@pytest.mark.law("L7")
@few
@given(run=runs(most=300, shuffle=True), epoch=st.integers(0, 2**64 - 2))
def test_orders_of_neighbouring_epochs_are_strangers(run, epoch):
    assume(run.samples > 20)
    same = sum(a == b for a, b in zip(run.order(epoch), run.order(epoch + 1), strict=True))
    assert same < 12


# L9 alignment


def fields_of(samples, numbers):
    """Fields of many types and layouts that all tell their sample."""
    wide = numpy.arange(samples * 6).reshape(samples, 6)
    return {
        "column": (wide[:, 2], numbers * 6 + 2),
        "backwards": (wide[::-1, ::-2], (samples - 1 - numbers)[:, None] * 6 + numpy.array([5, 3, 1])),
        "transposed": (numpy.asfortranarray(wide), numbers[:, None] * 6 + numpy.arange(6)),
        "small": ((numpy.arange(samples) % 251).astype(numpy.uint8), numbers % 251),
        "truth": (numpy.arange(samples) % 3 == 0, numbers % 3 == 0),
        "brief": ((numpy.arange(samples) % 256).astype(ml_dtypes.bfloat16), numbers % 256),
        "tensor": (
            torch.arange(samples, dtype=torch.float64)[:, None].expand(samples, 3),
            numbers[:, None].repeat(3, 1),
        ),
        "empty": (numpy.zeros((samples, 0)), numpy.zeros((len(numbers), 0))),
    }


@pytest.mark.law("L9")
@given(run=runs(), world_size=worlds)
def test_every_field_holds_the_same_samples_at_the_same_places(run, world_size):
    assume(run.steps(0, world_size))
    fields = {name: field for name, (field, _) in fields_of(run.samples, numpy.arange(1)).items()}
    loader = bl.DataLoader(bl.TensorDataset(**fields), **run.options(), world_size=world_size, rank=world_size - 1)
    batches = list(loader)
    assert len(batches) == len(run.seen(0, world_size, world_size - 1))
    for batch, samples in zip(batches, run.seen(0, world_size, world_size - 1), strict=True):
        assert list(batch) == list(fields)
        for name, (_, expected) in fields_of(run.samples, numpy.array(samples)).items():
            assert numpy.array_equal(numpy.asarray(batch[name]).astype(float), expected.astype(float)), name


# L10 exact length


class Progress:
    """A progress bar: asks for the length before it iterates, and counts."""

    def __init__(self, iterable):
        self.iterable, self.total, self.count = iterable, len(iterable), 0

    def __iter__(self):
        for item in self.iterable:
            self.count += 1
            yield item


@pytest.mark.law("L10")
@given(run=runs(), world_size=worlds)
def test_the_length_is_exact_in_every_epoch(run, world_size):
    assume(run.steps(0, world_size))
    for loader in run.loaders(world_size):
        for _ in range(3):
            bar = Progress(loader)
            assert len(list(bar)) == bar.total == bar.count


@pytest.mark.law("L10")
@given(run=runs(), world_size=worlds, stop=fractions)
def test_the_length_is_exact_after_a_load(run, world_size, stop):
    assume(run.steps(0, world_size))
    _, state = advance(run.loaders(world_size), stop, listed)
    loader = run.loader(world_size)
    loader.load_state_dict(state)
    whole, left = len(loader), loader.remaining
    assert whole == len(run.seen(state["epoch"], world_size))
    assert len(list(Progress(loader))) == left
    bar = Progress(loader)
    assert len(list(bar)) == bar.total == loader.remaining


# L11 lifetime

KEEP = """
    import sys
    import numpy
    import batchloom as bl

    output, keep, prefetch = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    X = numpy.arange(4096 * 1024, dtype=numpy.float32).reshape(4096, 1024)
    y = numpy.arange(4096)
    loader = bl.DataLoader(bl.TensorDataset(X, y), 24, True, output=output, num_threads=3, prefetch=prefetch)
    held, count = [], 0
    for epoch in range(6):
        for samples, batch in zip(loader.plan(epoch), loader):
            count += 1
            assert numpy.array_equal(numpy.asarray(batch[0]), X[samples])
            if count % keep == 0:
                held.append((samples, batch))
            elif count % keep == 1:
                held.append((samples, batch[:1]))
            del batch
    list(loader)
    for samples, batch in held:
        assert numpy.array_equal(numpy.asarray(batch[0]), X[samples])
        if len(batch) > 1:
            assert numpy.asarray(batch[1]).tolist() == samples.tolist()
    del loader
    for samples, batch in held:
        assert numpy.array_equal(numpy.asarray(batch[0]), X[samples])
    print(len(held))
"""


@pytest.mark.law("L11")
@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("prefetch", [0, 2])
def test_kept_batches_never_change(script, output, prefetch):
    batches = 6 * -(-4096 // 24)
    assert int(script(KEEP, output, 1, prefetch, BATCHLOOM_POISON=1)) == batches
    assert int(script(KEEP, output, 50, prefetch, BATCHLOOM_POISON=1)) > batches // 50


@pytest.mark.law("L11")
def test_poison_is_seen_by_who_looks_at_memory_that_was_let_go(script):
    """The test above can fail: an address that outlives its batch reads poison."""
    script(
        """
        import ctypes
        import numpy
        import batchloom as bl

        loader = bl.DataLoader(bl.TensorDataset(numpy.arange(1000.0)), 100)
        batches = list(loader)
        address = batches[3][0].__array_interface__["data"][0]
        del batches
        # The loader keeps the memory for its next block.
        assert ctypes.string_at(address, 100) == b"\\xa5" * 100
        """,
        BATCHLOOM_POISON=1,
    )


@pytest.mark.law("L11")
def test_batches_outlive_loader_dataset_and_arrays():
    X = numpy.arange(300.0).reshape(100, 3)
    batches = list(bl.DataLoader(bl.TensorDataset(X), 7))
    expected = [X[start : start + 7].copy() for start in range(0, 100, 7)]
    del X
    assert all(numpy.array_equal(batch[0], rows) for batch, rows in zip(batches, expected, strict=True))


# L12 lazy

MAPPED = """
    import sys
    import numpy
    import batchloom as bl
    from oracles.memory import resident_of

    path = sys.argv[1]
    X = numpy.memmap(path, dtype=numpy.uint8, mode="r", shape=(2**18, 1024))
    loader = bl.DataLoader(bl.TensorDataset(X), 64)
    len(loader), loader.plan().stats(), loader.state_dict(), repr(loader), loader.plan(3)[7]
    loader.load_state_dict(loader.state_dict())
    assert resident_of(path) == 0, resident_of(path)
    batches = iter(loader)
    next(batches)
    assert 0 < resident_of(path) < 2**26, resident_of(path)
"""


@pytest.mark.law("L12")
def test_nothing_is_read_before_its_block_is_formed(script, tmp_path):
    path = tmp_path / "rows.bin"
    with path.open("wb") as file:
        file.truncate(2**28)
    script(MAPPED, path)


@pytest.mark.law("L12")
def test_values_are_read_when_blocks_are_formed():
    X = numpy.zeros(10)
    loader = bl.DataLoader(bl.TensorDataset(X), 10)
    X[:] = 7
    assert next(iter(loader))[0].tolist() == [7.0] * 10
    X[:] = 8
    assert next(iter(loader))[0].tolist() == [8.0] * 10


@pytest.mark.law("L12")
def test_no_thread_before_iteration(script):
    script(
        """
        import os
        import numpy

        def threads():
            return len(os.listdir("/proc/self/task"))

        before = threads()
        import batchloom as bl
        assert threads() == before
        loader = bl.DataLoader(bl.TensorDataset(numpy.zeros((10000, 1000))), 8, num_threads=3)
        len(loader), loader.plan().stats(), loader.state_dict()
        batches = iter(loader)
        assert threads() == before
        next(batches)
        assert before < threads() <= before + 3
        """
    )
