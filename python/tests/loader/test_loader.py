"""The loader: its options, and how epochs follow each other."""

import contextlib
import copy
import gc
import itertools
import os
import pickle
import threading
import time
import weakref
from pathlib import Path

import batchloom as bl
import numpy
import pytest
import torch
from batchloom.collate.schema import field_views
from batchloom.dataset.base import samples_of
from batchloom.plan.options import NumberedSamples
from hypothesis import given
from hypothesis import strategies as st
from oracles.runs import Run, listed, runs
from refusals import refused


def epoch_numbers(loader, count):
    """The epochs of the next iterations, told from the order of their samples."""
    orders = {str([batch.tolist() for batch in loader.plan(epoch)]): epoch for epoch in range(20)}
    return [orders[str(listed(loader))] for _ in range(count)]


# Threads of other libraries, as pyarrow's, which have the name of the thread that first used them.
OF_OTHERS = set()


def named_threads():
    """The threads of this process that have a name of batchloom's."""
    named = set()
    for task in os.listdir("/proc/self/task"):
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            if Path(f"/proc/self/task/{task}/comm").read_text().startswith("batchloom"):
                named.add(task)
    return named


@pytest.fixture(scope="module", autouse=True)
def others():
    """Leave out the threads that tests before left; caught errors and their frames are collected."""
    gc.collect()
    OF_OTHERS.update(named_threads())


def workers():
    """The number of worker threads of batchloom in this process."""
    return len(named_threads() - OF_OTHERS)


def assert_workers(least, most):
    """Threads take a moment to get their names, and to leave the list of tasks once they ended."""
    deadline = time.monotonic() + 2
    while not least <= workers() <= most and time.monotonic() < deadline:
        time.sleep(0.01)
    assert least <= workers() <= most


def test_defaults():
    loader = bl.DataLoader(bl.TensorDataset(numpy.arange(100)))
    assert [len(batch[0]) for batch in loader] == [64, 36]
    assert loader.batching == bl.FixedSize(64)
    assert (loader.rank, loader.world_size) == (0, 1)
    assert listed(loader) == [list(range(64)), list(range(64, 100))]


def test_a_rule_instead_of_a_batch_size():
    run = Run(20, 3, seed=4)
    dataset = bl.TensorDataset(numpy.arange(20))
    assert listed(bl.DataLoader(dataset, batching=bl.FixedSize(3), shuffle=True, seed=4)) == run.seen(0)


@pytest.mark.parametrize("device", [None, "cpu", torch.device("cpu")])
def test_the_processor_is_a_device(device):
    assert len(list(bl.DataLoader(bl.TensorDataset(torch.arange(5)), 2, device=device))) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": numpy.int64(3), "seed": numpy.uint64(5)},
        {"batch_size": torch.tensor(3), "seed": torch.tensor(5)},
        {"batching": bl.FixedSize(numpy.int32(3)), "seed": 5, "num_threads": numpy.int8(2), "prefetch": numpy.int8(1)},
    ],
)
def test_integers_of_any_kind(options):
    loader = bl.DataLoader(bl.TensorDataset(numpy.arange(10)), shuffle=True, **options)
    assert listed(loader) == Run(10, 3, seed=5).seen(0)


def test_the_repr_tells_what_is_loaded():
    text = repr(bl.DataLoader(bl.TensorDataset(x=numpy.zeros((10, 2))), 3, rank=1, world_size=2))
    for part in ("DataLoader", "x: float64[10, 2]", "batch_size=3", "rank 1 of 2", "2 batches"):
        assert part in text


def test_batches_larger_than_the_dataset():
    for batch_size in (10, 11, 2**32, 2**64 - 1):
        assert listed(Run(10, batch_size, shuffle=False).loader()) == [list(range(10))]


def test_blocks_of_many_batches():
    # More batches than one block may hold.
    run = Run(150_000, 2)
    flat = numpy.concatenate([batch for (batch,) in run.loader()])
    assert flat.tolist() == run.order(0)


@given(
    run=runs(most=300, batch_size=60),
    widths=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    block_bytes=st.integers(1, 5000),
    threads=st.integers(1, 4),
    prefetch=st.integers(0, 3),
    rank=st.integers(0, 2),
)
def test_blocks_of_any_size(run, widths, block_bytes, threads, prefetch, rank):
    """The size of blocks never shows. The interface has no word for it, so the engine is asked itself."""
    if not run.steps(0, 3):
        return
    fields = [numpy.arange(run.samples * width, dtype=numpy.int16).reshape(run.samples, width) for width in widths]
    dataset = bl.TensorDataset(numpy.arange(run.samples), *fields)
    loader = bl.DataLoader(dataset, **run.options(), rank=rank, world_size=3, prefetch=prefetch)
    options = {name: value for name, value in run.options().items() if name != "batch_size"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BATCHLOOM_POISON", "1")
        loader._native = type(loader._native)(
            samples_of(dataset).engine(),
            bl.PlanOptions(**options).native(loader.batching, NumberedSamples(run.samples)),
            rank=rank,
            world_size=3,
            pad_values=[],
            pad_side="right",
            labels=None,
            num_threads=threads,
            prefetch=prefetch,
            block_bytes=block_bytes,
        )
    for epoch in range(2):
        held = list(loader)
        expected = run.seen(epoch, 3, rank)
        assert [batch[0].tolist() for batch in held] == expected
        for batch, samples in zip(held, expected, strict=True):
            assert all(numpy.array_equal(part, field[samples]) for part, field in zip(batch[1:], fields, strict=True))


# Epochs


def test_each_iteration_is_the_next_epoch():
    assert epoch_numbers(Run(30, 4).loader(), 5) == [0, 1, 2, 3, 4]


def test_set_epoch_is_where_the_next_iteration_begins():
    loader = Run(30, 4).loader()
    loader.set_epoch(7)
    assert loader.plan() == loader.plan(7)
    assert epoch_numbers(loader, 2) == [7, 8]
    loader.set_epoch(3)
    loader.set_epoch(2)
    assert epoch_numbers(loader, 2) == [2, 3]
    loader.set_epoch(2)
    assert epoch_numbers(loader, 2) == [2, 3]
    loader.set_epoch(3)  # a larger number never goes back: epoch 3 was the second round of 2
    assert epoch_numbers(loader, 1) == [4]
    for epoch in range(4):
        loader.set_epoch(epoch)
        assert epoch_numbers(loader, 1) == [epoch]


def test_set_epoch_keeps_the_place_of_a_state_in_that_very_epoch():
    run = Run(30, 4)
    loader = run.loader()
    loader.set_epoch(5)
    batches = iter(loader)
    next(batches), next(batches)
    state = loader.state_dict()
    resumed = run.loader()
    resumed.load_state_dict(state)
    resumed.set_epoch(5)
    assert listed(resumed) == run.seen(5)[2:]
    resumed.load_state_dict(state)
    resumed.set_epoch(6)
    assert listed(resumed) == run.seen(6)
    resumed.load_state_dict(state)
    next(iter(resumed))
    resumed.set_epoch(5)
    assert listed(resumed) == run.seen(5)


def test_the_last_epoch_there_is():
    loader = Run(10, 3).loader()
    loader.set_epoch(2**64 - 1)
    assert listed(loader) == Run(10, 3).seen(2**64 - 1)
    assert listed(loader) == Run(10, 3).seen(2**64 - 1)


def test_plan_is_of_the_next_iteration():
    loader = Run(30, 4).loader(world_size=2, rank=1)
    for epoch in range(3):
        assert loader.plan() == loader.plan(epoch) == Run(30, 4).plan(epoch, 2, 1)
        planned = [batch.tolist() for batch in loader.plan()]
        assert listed(loader) == planned


def test_two_live_iterators_are_two_epochs():
    run = Run(50, 4)
    loader = run.loader()
    first, second = iter(loader), iter(loader)
    assert first is not second
    pairs = [(listed([a])[0], listed([b])[0]) for a, b in zip(first, second, strict=True)]
    assert pairs == list(zip(run.seen(0), run.seen(1), strict=True))
    assert loader.state_dict()["epoch"] == 2


def test_the_state_follows_the_latest_iteration():
    loader = Run(50, 4).loader()
    first = iter(loader)
    second = iter(loader)
    next(first)
    next(second)
    list(first)
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (1, 1)


@pytest.mark.law("L7")
def test_iter_alone_spends_nothing():
    """A framework may ask for iterators and drop them: each epoch begins with its first batch."""
    run = Run(50, 4)
    loader = run.loader()
    unused = [iter(loader) for _ in range(3)]
    assert (loader.epoch, loader.plan().epoch, loader.state_dict()["epoch"]) == (0, 0, 0)
    for epoch in range(3):
        iter(loader)
        seen = []
        for batch in loader:
            assert loader.epoch == epoch
            iter(loader)
            seen.append(batch[0].tolist())
        assert seen == run.seen(epoch) == [batch.tolist() for batch in loader.plan(epoch)]
    # They begin in the order in which they are asked, not in the one in which they were made.
    assert [next(batches)[0].tolist() for batches in reversed(unused)] == [run.seen(epoch)[0] for epoch in (3, 4, 5)]


def test_set_epoch_keeps_the_place_of_a_state_in_that_epoch():
    run = Run(50, 4)
    state = run.plan(2)._native.state(5)
    # A caller that counts anew after a state was loaded, as Accelerate does, is not sent back either.
    for number, epoch, expected in ((1, 2, run.seen(2)[5:]), (2, 2, run.seen(2)[5:]), (3, 3, run.seen(3))):
        for asked in (0, 1, 2):
            loader = run.loader()
            loader.load_state_dict(state)
            unused = [iter(loader) for _ in range(asked)]
            loader.set_epoch(number)
            assert (loader.epoch, loader.remaining, len(loader)) == (epoch, len(expected), 13)
            assert listed(loader) == expected
            assert loader.epoch == epoch + 1
            del unused


def test_what_keeps_an_epoch_from_beginning_is_raised_by_the_first_batch_and_spends_nothing():
    numbers = numpy.arange(100)
    loader = bl.DataLoader(bl.TensorDataset(numbers), 10, shuffle=True)
    batches = iter(loader)
    numbers.resize(200, refcheck=False)
    with refused(bl.DataError):
        next(batches)
    assert next(batches, None) is None
    assert (loader.epoch, loader.remaining, loader.state_dict()["batches"]) == (0, 10, 0)


def test_an_iterator_is_its_own_iterator_and_stays_exhausted():
    batches = iter(Run(10, 3).loader())
    assert iter(batches) is batches
    assert len(list(batches)) == 4
    assert [next(batches, "end") for _ in range(3)] == ["end"] * 3


def test_loading_does_not_disturb_a_live_iterator():
    run = Run(30, 4)
    loader = run.loader()
    state = loader.state_dict()
    batches = iter(loader)
    taken = listed(itertools.islice(batches, 3))
    loader.load_state_dict(state)
    assert taken + listed(batches) == run.seen(0)
    assert loader.state_dict() == state
    assert listed(loader) == run.seen(0)


def test_a_state_is_a_copy_of_plain_values():
    loader = Run(30, 4).loader()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    kept = copy.deepcopy(state)
    next(batches)
    assert state == kept
    assert {type(value) for value in state.values()} <= {int, str, list}
    state["worlds"].append([9, 9])
    assert loader.state_dict()["worlds"] == [[1, 2]]
    assert pickle.loads(pickle.dumps(kept)) == kept


# Ends


def test_workers_live_as_long_as_their_loader():
    X = numpy.zeros((20_000, 1000))
    loader = bl.DataLoader(bl.TensorDataset(X), 8, num_threads=3)
    assert_workers(0, 0)
    first = iter(loader)
    next(first)
    for taken in (0, 1, 100, 2500):
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
        assert_workers(1, 6)
        del batches
        # They park, and use no processor.
        assert_workers(1, 6)
        assert quiet()
    del loader
    next(first)
    assert_workers(1, 6)
    del first
    assert_workers(0, 0)


def quiet():
    """Return true if this process uses next to no processor while it sleeps."""
    before = time.process_time()
    time.sleep(0.2)
    return time.process_time() - before < 0.1


def test_an_exhausted_iterator_has_no_threads_of_its_own():
    batches = iter(bl.DataLoader(bl.TensorDataset(numpy.zeros((2000, 1000))), 8, num_threads=3))
    for _ in batches:
        pass
    assert_workers(0, 0)


def test_an_epoch_of_a_moment_starts_no_thread():
    loader = bl.DataLoader(bl.TensorDataset(numpy.zeros((1000, 16))), 64, shuffle=True, num_threads=3)
    for _ in range(3):
        assert len(list(loader)) == 16
    assert_workers(0, 0)


def test_an_exception_in_the_consumer_passes_and_nothing_is_left():
    X = numpy.zeros((20_000, 1000))
    loader = bl.DataLoader(bl.TensorDataset(X), 8, num_threads=3)

    def consume():
        for number, _ in enumerate(loader):
            if number == 5:
                raise KeyError("mine")

    for _ in range(3):
        with pytest.raises(KeyError, match="mine"):
            consume()
        gc.collect()
        assert_workers(1, 3)
        assert quiet()
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (2, 6)


def consumed(loader):
    list(loader)


def left(loader):
    next(iter(loader))
    loader.state_dict(), loader.plan(3), repr(loader), list(loader.sampler), loader.batch_sampler


def failed(loader):
    consumed(loader)
    loader.dataset.fields[0].resize((1, 1000), refcheck=False)  # no thread is reading
    # Some versions of Python keep the traceback of what pytest caught, and with it the loader.
    said = ""
    try:
        consumed(loader)
    except bl.DataError as error:
        said = str(error)
    assert "field 0" in said


@pytest.mark.parametrize("use", [consumed, left, failed, pickle.dumps, iter], ids=lambda use: use.__name__)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampler": [*range(20_000)]},
        {"generator": numpy.random.default_rng(1)},
        {"resident": False, "output": "torch"},
        {"buffers": "static", "resident": True, "output": "torch"},
        {"distributed": {"dp": 1, "tp": 1}},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_a_loader_that_nothing_holds_is_freed_at_once(use, options):
    """Its threads end when the last name is gone, and not at some later collection of garbage."""
    gc.collect()
    gc.disable()
    try:
        loader = bl.DataLoader(
            bl.TensorDataset(numpy.zeros((20_000, 1000), numpy.float32)), 8, num_threads=2, **options
        )
        alive = weakref.ref(loader)
        use(loader)
        del loader
        assert alive() is None
        assert_workers(0, 0)
    finally:
        gc.enable()


def test_an_iterator_that_a_cycle_holds_is_collected():
    dataset = bl.TensorDataset(numpy.zeros((20_000, 1000)))
    dataset.batches = iter(bl.DataLoader(dataset, 8, num_threads=3))
    next(dataset.batches)
    alive = weakref.ref(dataset)
    del dataset
    gc.collect()
    try:
        assert alive() is None
        assert_workers(0, 0)
    finally:
        if alive() is not None:
            alive().batches = None


def test_arrays_are_let_go_with_loader_and_iterators():
    class Owner(numpy.ndarray):
        pass

    X = numpy.zeros((1000, 100)).view(Owner)
    alive = weakref.ref(X)
    loader = bl.DataLoader(bl.TensorDataset(X), 8)
    batches = iter(loader)
    next(batches)
    del X, loader
    gc.collect()
    assert alive() is not None
    del batches
    gc.collect()
    assert alive() is None


def test_an_iterator_outlives_its_loader():
    run = Run(100, 7)
    batches = iter(run.loader())
    gc.collect()
    assert listed(batches) == run.seen(0)


def test_two_threads_at_one_iterator_get_batches_or_a_clear_error():
    # One value for all, gathered one by one: each block takes its time.
    X = numpy.broadcast_to(numpy.zeros((1, 1), numpy.uint8), (1600, 100_000))
    batches = iter(bl.DataLoader(bl.TensorDataset(X), 100, num_threads=1))
    failures, count = [], []

    def consume():
        try:
            count.extend(1 for _ in batches)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(failure, bl.Error) for failure in failures), failures
    assert len(count) == 16


def travelled(loader):
    return pickle.loads(pickle.dumps(loader))


@pytest.mark.parametrize("copied", [travelled, copy.copy, copy.deepcopy])
def test_a_loader_pickles_as_its_recipe(copied):
    run = Run(50, 4, seed=3)
    for taken in range(2 * 13 + 2):
        loader = run.loader()
        batches = (batch for _ in range(3) for batch in loader)
        for _ in range(taken):
            next(batches)
        again = copied(loader)
        assert again.state_dict() == loader.state_dict()
        assert (again.epoch, again.remaining, len(again)) == (taken // 13, 13 - taken % 13, 13)
        assert listed(again) == run.seen(taken // 13)[taken % 13 :]
        # It is a loader of its own.
        assert loader.state_dict() == copied(loader).state_dict() != again.state_dict()
    with refused(TypeError, "pickle"):
        pickle.dumps(iter(loader))


class Named(bl.DataLoader):
    def __init__(self, samples, name):
        super().__init__(bl.TensorDataset(numpy.arange(samples)), 4, shuffle=True, seed=5)
        self.name = name


def test_a_subclass_pickles_with_what_it_adds():
    loader = Named(50, "mine")
    loader.note = [1]
    again = travelled(loader)
    assert (type(again), again.name, again.note, listed(again)) == (Named, "mine", [1], listed(loader))


def test_the_seed_of_a_loaded_state_travels():
    loader = Run(50, 4, seed=3).loader()
    loader.load_state_dict(Run(50, 4, seed=8).loader().state_dict())
    assert listed(travelled(loader)) == Run(50, 4, seed=8).seen(0)


def test_what_a_loader_is_made_of_pickles():
    run = Run(30, 4)
    loader = run.loader()
    batches = iter(loader)
    next(batches)
    dataset, state = pickle.loads(pickle.dumps((loader.dataset, loader.state_dict())))
    again = bl.DataLoader(dataset, **run.options())
    again.load_state_dict(state)
    assert listed(again) == run.seen(0)[1:]


# Ranks


def test_ranks_of_one_step_hold_what_the_step_says():
    run = Run(100, 7)
    loaders = run.loaders(3)
    for number, step in enumerate(zip(*loaders, strict=True)):
        planned = loaders[0].plan(0).step(number)
        assert listed(step) == [batch.tolist() for batch in planned.batches]
        assert planned.samples == planned.tokens == sum(map(len, listed(step)))


# Interruptions


def test_an_exception_while_batches_are_cut_loses_none(monkeypatch):
    calls = []

    def views(*options):
        (field,) = field_views(*options)

        def interrupted(column):
            calls.append(len(column))
            if len(calls) % 2:
                raise KeyboardInterrupt
            return field.many(column)

        return [field._replace(many=interrupted)]

    monkeypatch.setattr("batchloom.delivery.host.field_views", views)
    loader = Run(5000, 4, seed=2).loader()
    batches, received = iter(loader), []
    while True:
        try:
            received.append(next(batches)[0].tolist())
        except KeyboardInterrupt:
            assert loader.state_dict()["batches"] == len(received)
        except StopIteration:
            break
    assert received == Run(5000, 4, seed=2).seen(0)
    assert len(calls) > 8


@pytest.mark.law("L10")
def test_length_is_that_of_an_epoch_and_remaining_what_is_left():
    run = Run(100, 8)
    loader = run.loader()
    loader.load_state_dict(run.plan(2)._native.state(4))
    assert (len(loader), loader.remaining, loader.epoch) == (13, 9, 2)
    assert [(len(loader), loader.remaining, loader.epoch) for _ in loader] == [(13, left, 2) for left in range(9)[::-1]]
    assert (len(loader), loader.remaining, loader.epoch) == (13, 13, 3)
    for _ in loader:
        break
    assert (len(loader), loader.remaining, loader.epoch) == (13, 13, 4)


def test_what_a_loader_was_made_of_cannot_be_changed():
    loader = Run(10, 3).loader()
    for name in ("rank", "world_size", "dataset", "batching"):
        with pytest.raises(AttributeError):
            setattr(loader, name, 5)


def test_an_iterator_says_why_it_does_not_pickle():
    with refused(TypeError, "state_dict"):
        pickle.dumps(iter(Run(10, 3).loader()))
