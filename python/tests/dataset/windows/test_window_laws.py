"""The laws of every loader, for windows in each of the ways that they are handed over."""

import itertools
import pickle
import sys
import threading
from collections import Counter
from dataclasses import replace

import batchloom as bl
import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles.runs import assert_resumes, chained, few, fractions, part
from oracles.windows import MODES, Slid, modes, seen, slid
from refusals import refused

worlds = st.integers(1, 4)


@pytest.mark.law("L10")
@given(run=slid(), world_size=worlds)
def test_epochs_are_what_the_plan_says_and_lengths_are_exact(run, world_size):
    assume(run.steps(0, world_size))
    for rank in range(world_size):
        loader = run.loader(world_size, rank)
        for epoch in (0, 1):
            assert loader.plan().epoch == epoch
            length = len(loader)
            batches = seen(loader)
            assert batches == run.seen(epoch, world_size, rank)
            assert length == len(batches) == len(loader.plan(epoch))
        loader.set_epoch(7)
        assert seen(loader) == run.seen(7, world_size, rank)


@pytest.mark.law("L1")
@given(run=slid(), world_size=worlds)
def test_every_window_comes_once(run, world_size):
    assume(run.steps(0, world_size) and not run.drop_last)
    times = Counter(
        sample for rank in range(world_size) for batch in seen(run.loader(world_size, rank)) for sample in batch
    )
    assert set(times) == set(range(run.samples))
    assert run.uneven == "pad" or set(times.values()) == {1}


@pytest.mark.law("L4")
@few
@given(run=slid(most=30), world_size=worlds, other=modes())
def test_resume_at_every_step_in_any_mode(run, world_size, other):
    assume(run.steps(0, world_size))
    rank = world_size - 1
    resumed = replace(run, mode=other, seed=run.seed // 2).loader(world_size, rank)
    expected = [run.seen(epoch, world_size, rank) for epoch in range(2)]
    assert_resumes(run.loader(world_size, rank), lambda: resumed, expected, seen)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shuffle", [False, True, "runs"])
def test_states_of_all_modes_are_the_same(mode, shuffle):
    run = Slid(100, 7, shuffle=shuffle, seed=5, mode=mode)
    loader, other = run.loader(), run.over("copy").loader()
    assert loader.state_dict() == other.state_dict()
    for _, _ in zip(loader, other, strict=True):
        assert loader.state_dict() == other.state_dict()
    assert loader.state_dict() == other.state_dict()


@pytest.mark.law("L5")
@few
@given(
    run=slid(uneven="short", drop_last=False),
    chain=st.lists(st.tuples(worlds, fractions, modes()), max_size=3),
    end=worlds,
)
def test_any_chain_of_worlds_and_modes_delivers_each_batch_once(run, chain, end):
    before = ((run.over(mode).loaders(world_size), stop) for world_size, stop, mode in chain)
    assert chained(run.loader().state_dict(), before, run.loaders(end), seen) == run.batches(0)


@few
@given(run=slid(), stop=fractions)
def test_an_iterator_that_is_left_or_closed_loses_nothing(run, stop):
    assume(run.steps(0, 1))
    loader = run.loader()
    taken = part(stop, len(loader))
    batches = iter(loader)
    received = seen(itertools.islice(batches, taken))
    state = loader.state_dict()
    if run.seed % 2:
        batches.close()
        assert list(batches) == []
        batches.close()
    del batches
    assert loader.state_dict() == state
    again = run.loader()
    again.load_state_dict(state)
    assert received + (seen(again) if again.epoch == 0 else []) == run.seen(0)


@pytest.mark.parametrize("mode", MODES)
def test_an_exception_between_batches_loses_nothing(mode):
    run = Slid(100, 7, shuffle="runs", mode=mode)
    loader, received = run.loader(), []
    batches = iter(loader)
    while True:
        try:
            for x, _ in batches:
                received += seen([(x,)])
                if len(received) % 3 == 0:
                    raise KeyboardInterrupt
            break
        except KeyboardInterrupt:
            resumed = run.loader()
            resumed.load_state_dict(loader.state_dict())
            assert received + (seen(resumed) if resumed.epoch == 0 else []) == run.seen(0)
    assert received == run.seen(0)


def interrupted(batches, number):
    """The batches until the ``number``-th line of ``window_views.py`` is interrupted, and whether it was."""
    received, lines = [], 0

    def trace(frame, event, _):
        nonlocal lines
        if not frame.f_code.co_filename.endswith("window_views.py"):
            return None
        lines += event == "line"
        if lines == number:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for batch in batches:
            received += seen([batch])
    except KeyboardInterrupt:
        return received, True
    finally:
        sys.settrace(before)
    return received, False


@pytest.mark.parametrize("mode", ["views", "rows", "shards"])
def test_an_interrupt_anywhere_loses_nothing(mode):
    run = Slid(30, 7, shuffle="runs", mode=mode)
    number, stopped = 0, True
    while stopped:
        loader, number = run.loader(), number + 1
        batches = iter(loader)
        received, stopped = interrupted(batches, number)
        resumed = run.loader()
        resumed.load_state_dict(loader.state_dict())
        assert loader.plan().epoch == 1 or received + seen(resumed) == run.seen(0)
        assert received + seen(batches) == run.seen(0)
    assert number > 50


@pytest.mark.parametrize("mode", ["views", "rows", "shards", "copy"])
def test_threads_that_share_an_iterator_get_each_batch_once_or_an_error(mode):
    run = Slid(4000, 3, shuffle="runs", mode=mode)
    batches, received, refused = iter(run.loader()), [], []

    def consume():
        while True:
            try:
                received.append(seen([next(batches)])[0])
            except StopIteration:
                return
            except bl.LoaderError as error:
                refused.append(error)

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(received) == sorted(run.seen(0))
    assert all("thread" in str(error) for error in refused)


FORK = """
    import os
    import signal
    import sys
    import numpy
    import batchloom as bl

    modes = {"views": {}, "copy": {"buffers": "own"}, "rows": {"resident": False}, "shards": {"resident": 500}}
    options = modes[sys.argv[1]]
    dataset = bl.WindowDataset([numpy.arange(103), numpy.arange(100, 203)], 3, 1)
    loader = bl.DataLoader(dataset, batch_size=8, num_threads=2, **options)
    batches = iter(loader)
    first = [next(batches) for _ in range(3)]
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            next(batches)
            code = 1
        except bl.LoaderError as error:
            code = 0 if "fork" in str(error) else 2
        again = [x[:, 0].tolist() for x, _ in loader]
        whole = [x[:, 0].tolist() for x, _ in bl.DataLoader(dataset, batch_size=8, **options)]
        batches.close()
        os._exit(code if sum(map(len, whole)) == len(dataset) and sum(map(len, again)) == len(dataset) else 3)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert sum(len(x) for x, _ in first + list(batches)) == len(dataset)
"""


@pytest.mark.parametrize("mode", ["views", "copy", "rows", "shards"])
def test_a_forked_child_is_told_and_can_begin_anew(script, mode):
    script(FORK, mode, timeout=60)


WORKERS = """
    import torch
    import batchloom as bl

    dataset = bl.WindowDataset([torch.arange(60.0), torch.arange(2.0)], 3, 1)
    loader = bl.DataLoader(dataset, batch_size=8, shuffle=True)
    theirs = torch.utils.data.DataLoader(dataset, batch_sampler=loader.plan(0), num_workers=1)
    # Where workers are not forked, torch first moves the data to memory that they share.
    for other, mine in zip(theirs, loader, strict=True):
        assert all(map(torch.equal, mine, other))
"""


@pytest.mark.law("L2")
def test_workers_of_torch_take_the_same_windows(script):
    """A plan is a batch sampler, and a window by number what a batch holds."""
    script(WORKERS)


@pytest.mark.parametrize("mode", ["views", "rows"])
def test_loaders_pickle_and_iterators_say_what_does(mode):
    run = Slid(30, 3, mode=mode)
    loader = run.loader()
    next(iter(loader))
    assert seen(pickle.loads(pickle.dumps(loader))) == run.seen(0)[1:]
    with refused(TypeError, "state_dict"):
        pickle.dumps(iter(loader))


def test_the_values_of_now_are_read():
    values = numpy.arange(20.0)
    loader = bl.DataLoader(bl.WindowDataset(values, 3), batch_size=5)
    values += 100
    assert next(iter(loader))[0][0].tolist() == [100, 101, 102]


def test_series_that_are_resized_against_all_warnings():
    values = numpy.arange(10_000.0)
    loader = bl.DataLoader(bl.WindowDataset((values, [0, 5000, 10_000]), 3), batch_size=5)
    values.resize(3_000_000, refcheck=False)
    with refused(bl.DataError, "resized"):
        next(iter(loader))


def test_a_series_that_moved_is_noticed():
    values = torch.arange(20.0)
    loader = bl.DataLoader(bl.WindowDataset(values, 3), batch_size=5)
    values.resize_(200_000)
    with refused(bl.DataError, "resized"):
        next(iter(loader))
