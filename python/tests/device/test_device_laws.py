"""The laws of every loader, where batches are made in the ways of a device."""

import gc
import itertools
import pickle
import signal
import threading
import weakref
from functools import partial

import batchloom as bl
import pytest
import torch
from batchloom.dataset.base import samples_of
from batchloom.delivery.on_device import OnDevice
from batchloom.delivery.window_views import BatchMaker
from batchloom.device.pipeline import Pipeline
from hypothesis import given
from hypothesis import strategies as st
from oracles.batching import flat
from oracles.devices import KINDS, REAL, WAYS, arrays, bits, data, loader_on, seen
from oracles.runs import Run, assert_resumes, chained, few, fractions, listed, resume, runs, saved
from oracles.windows import pretended
from refusals import refused

ways, kinds = st.sampled_from(WAYS), st.sampled_from(KINDS)
every_way = pytest.mark.parametrize("way", WAYS)
# A device makes the batches of windows that are neighbours in a way of its own, all others as the CPU does.
PAIRS = [*itertools.product(WAYS[:3], KINDS), *((way, "neighbours") for way in WAYS[3:])]
every_pair = pytest.mark.parametrize(("way", "kind"), PAIRS)


def pair(way, kind, **more):
    """A loader in one of the ways of a device, and what makes the same loader of the host."""
    torch.manual_seed(0)
    dataset, options = data(kind)
    loader, same = loader_on(way, dataset, **options, **more)
    return (
        loader,
        lambda **others: bl.DataLoader(dataset, **same | others),
        lambda: loader_on(way, dataset, **options)[0],
    )


# L1 to L3, L5, L10: what ranks deliver, however they are resumed


def over(run, way, world_size=1, rank=0):
    """A loader over the sample numbers of a run."""
    dataset = bl.TensorDataset(torch.arange(run.samples))
    return loader_on(
        way if way != "sharded" else "resident", dataset, 64, **run.options(), world_size=world_size, rank=rank
    )[0]


@pytest.mark.law("L1")
@few
@given(run=runs(most=60, batch_size=9), way=ways, world_size=st.integers(1, 5))
def test_ranks_deliver_what_the_oracle_says(run, way, world_size):
    if not run.steps(0, world_size):
        return
    for rank in range(world_size):
        loader = over(run, way, world_size, rank)
        for epoch in range(2):
            length = len(loader)
            batches = listed(loader)
            assert batches == run.seen(epoch, world_size, rank)
            assert len(batches) == length


@pytest.mark.law("L4")
@few
@given(run=runs(most=40, batch_size=9, drop_last=False), way=ways)
def test_resume_at_every_step_of_two_epochs(run, way):
    expected = [run.seen(epoch) for epoch in range(2)]
    assert_resumes(over(run, way), lambda: over(run, way), expected, listed)


@pytest.mark.law("L5")
@few
@given(
    run=runs(most=60, batch_size=5, drop_last=False, uneven="short"),
    chain=st.lists(st.tuples(st.integers(1, 5), fractions, ways), min_size=1, max_size=3),
    last=st.tuples(st.integers(1, 5), ways),
)
def test_any_chain_of_worlds_and_ways_delivers_each_batch_once(run, chain, last):
    def loaders(world_size, way):
        return [over(run, way, world_size, rank) for rank in range(world_size)]

    state = Run.loader(run).state_dict()
    worlds = [(loaders(world_size, way), stop) for world_size, stop, way in chain]
    taken = chained(state, worlds, loaders(*last), listed)
    assert sorted(flat(taken)) == list(range(run.samples))


@every_pair
def test_a_run_goes_on_where_it_stopped_in_another_way(way, kind):
    """A state says nothing of how batches are made: the host goes on with what a device left, and back."""
    loader, host, again = pair(way, kind)
    whole = seen(host())
    for stop in (1, len(whole) // 2):
        loader.load_state_dict(saved(host().state_dict()))
        taken = seen(itertools.islice(loader, stop))
        assert loader.state_dict()["batches"] == stop
        rest, back = resume(host(), loader.state_dict()), resume(again(), loader.state_dict())
        assert taken + seen(rest) == whole
        assert taken + seen(back) == whole
        assert seen(back) == seen(rest)


# L11: batches stay


@pytest.mark.law("L11")
@every_pair
def test_a_consumer_that_keeps_every_batch(way, kind, monkeypatch):
    monkeypatch.setenv("BATCHLOOM_POISON", "1")
    loader, host, _ = pair(way, kind, num_threads=2, prefetch=1)
    held = [batch for _ in range(3) for batch in loader]
    other = host()
    expected = [content for _ in range(3) for content in seen(other)]
    del loader
    junk = [torch.full((64,), 7) for _ in range(100)]
    assert seen(held) == expected
    del junk


@every_pair
def test_a_consumer_that_writes_to_batches_in_place(way, kind, monkeypatch):
    """Of views only copies may be written to; all else is the consumer's own."""
    monkeypatch.setenv("BATCHLOOM_POISON", "1")
    loader, host, _ = pair(way, kind, buffers="own" if kind == "neighbours" else "views")
    other = host()
    expected = [seen(other) for _ in range(3)]
    found = []
    for _ in range(3):
        found.append([])
        for batch in loader:
            found[-1] += seen([batch])
            for array in arrays(batch):
                array.fill_(1) if array.dtype == torch.bool else array.fill_(77)
    assert found == expected
    assert seen(host()) == expected[0]


@every_way
@pytest.mark.parametrize("kind", KINDS[:-1])
def test_arrays_of_all_batches_are_apart(way, kind):
    """No field of any batch shares memory with another one, or with the data."""
    loader, _, _ = pair(way, kind)
    held = list(loader)
    places = []
    for array in itertools.chain(*map(arrays, held)):
        if array.numel():
            assert array.is_contiguous()
            places.append((array.data_ptr(), array.data_ptr() + array.nbytes))
    places.sort()
    assert all(end <= after for (_, end), (after, _) in itertools.pairwise(places))
    fields = [
        field.array for field in samples_of(loader.dataset).location.arrays if isinstance(field.array, torch.Tensor)
    ]
    for field in fields:
        low, high = field.data_ptr(), field.data_ptr() + field.nbytes
        assert all(end <= low or high <= start for start, end in places)


@every_way
@pytest.mark.parametrize("kind", ["rows", "named rows", "sequences", "packed", "groups", "padded groups"])
def test_a_graph_keeps_its_batch_while_another_is_written_in_place(way, kind):
    loader, _, _ = pair(way, kind)
    batches = [batch for _, batch in zip(range(4), loader, strict=False)]
    for first, second in itertools.pairwise(batches):
        weight = torch.ones((), requires_grad=True)
        held = [array for array in arrays(first) if array.is_floating_point()]
        losses = [(array * weight).square().sum() for array in held]
        for array in arrays(second):
            array.zero_()
        if losses:
            sum(losses).backward()
            expected = 2 * sum(array.double().square().sum() for array in held)
            assert weight.grad.item() == pytest.approx(expected.item(), rel=1e-4)


@every_way
def test_a_graph_that_needs_its_batch_says_so_when_that_is_written(way):
    loader, _, _ = pair(way, "rows")
    batch = next(iter(loader))[1]
    loss = (batch * torch.ones(3, requires_grad=True)).sum()
    batch.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@every_pair
@pytest.mark.parametrize("buffers", ["views", "static"])
def test_batches_do_not_remember_the_mode_of_their_consumer(way, kind, buffers):
    loader, _, _ = pair(way, kind, buffers=buffers)
    with torch.inference_mode():
        batches = iter(loader)
        next(batches)
    for batch in itertools.chain(batches, loader):
        for array in arrays(batch):
            assert not array.is_inference()
            assert not array.requires_grad
            if array.is_floating_point():
                (array * torch.ones((), requires_grad=True)).sum().backward()
            if kind != "neighbours":
                array.zero_()
    with torch.inference_mode():
        list(loader)


# Consumers on other threads, several iterations


@every_pair
def test_a_consumer_on_another_thread(way, kind):
    loader, host, _ = pair(way, kind)
    batches = iter(loader)
    found = seen(itertools.islice(batches, 2))
    thread = threading.Thread(target=lambda: found.extend(seen(batches)))
    thread.start()
    thread.join(30)
    assert found == seen(host())


@every_pair
def test_two_iterations_of_a_loader_side_by_side(way, kind):
    loader, host, _ = pair(way, kind)
    other = host()
    expected = [seen(other), seen(other)]
    iterations = [iter(loader), iter(loader)]
    found = [[], []]
    for pairs in itertools.zip_longest(*iterations):
        for number, batch in enumerate(pairs):
            if batch is not None:
                found[number] += seen([batch])
    assert found == expected


@every_way
def test_two_threads_that_iterate_a_loader(way):
    loader, host, _ = pair(way, "sequences")
    other = host()
    expected = [seen(other) for _ in range(6)]
    found, iterations = [], [iter(loader) for _ in range(6)]

    def consume(batches):
        found.append(seen(batches))

    threads = [threading.Thread(target=consume, args=(batches,)) for batches in iterations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found, key=str) == sorted(expected, key=str)


# Interruptions


@every_pair
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("buffers", ["views", "static"])
def test_control_c_in_any_step_loses_no_batch(way, kind, after, buffers, monkeypatch):
    """Before a step, or when it is done but nobody knows yet: every third time."""
    loader, host, _ = pair(way, kind, buffers=buffers)
    expected = seen(host())
    made = [(Pipeline, "start"), (Pipeline, "finish"), (Pipeline, "_hand_over"), (BatchMaker, "__call__")]
    for owner, name in made:
        method, calls = getattr(owner, name), itertools.count()

        def step(self, *arguments, method=method, calls=calls):
            if after:
                done = method(self, *arguments)
            if next(calls) % 3 == 1:
                raise KeyboardInterrupt
            return done if after else method(self, *arguments)

        monkeypatch.setattr(owner, name, step)
    batches = iter(loader)
    found, interruptions, number = [], 0, 0
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except KeyboardInterrupt:
            interruptions += 1
        else:
            number += 1
            found += seen([batch])
        if number < len(expected):
            assert loader.state_dict()["batches"] == number
    assert found == expected
    # Views on series that stay where they are are sliced without a step in Python.
    stays = ("resident", "device") if REAL else ("resident",)
    assert interruptions or (way in stays and kind == "neighbours")
    assert len(found) == number


def checked(kind, raises):
    """A dataset whose check raises what ``raises`` returns for the number of its call, if anything."""
    dataset, options = data(kind)
    samples = samples_of(dataset)
    check, calls = samples.check, itertools.count()

    def check_or_raise():
        error = raises(next(calls))
        if error is not None:
            raise error
        check()

    samples.check = check_or_raise
    return dataset, options


IN_ANY_WAY = pytest.mark.parametrize("way", [None, *WAYS[:3]])


@IN_ANY_WAY
@pytest.mark.parametrize("kind", ["rows", "sequences"])
def test_control_c_while_data_is_checked_loses_no_batch(way, kind):
    torch.manual_seed(0)
    dataset, options = checked(kind, lambda call: KeyboardInterrupt() if call % 3 == 1 else None)
    loader, same = loader_on(way, dataset, **options) if way else (bl.DataLoader(dataset, **options), options)
    torch.manual_seed(0)
    expected = seen(bl.DataLoader(data(kind)[0], **same | {"output": "torch"}))
    for _ in range(2):
        loader.set_epoch(0)
        batches, found, interruptions = iter_again(loader), [], 0
        while True:
            try:
                found += seen([next(batches)])
            except StopIteration:
                break
            except KeyboardInterrupt:
                interruptions += 1
        assert interruptions
        assert found == expected


def iter_again(loader):
    """An iteration, though its beginning is interrupted."""
    while True:
        try:
            return iter(loader)
        except KeyboardInterrupt:
            continue


# What is raised in a finalizer Python tells, but does not raise.
@pytest.mark.law("L4")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@IN_ANY_WAY
def test_signals_at_any_time_lose_no_batch(way):
    """Whatever they interrupt, a wait for a block or the memory for one; and whatever their handler raises."""
    armed = []

    def raises(number, frame):
        if armed:
            armed.clear()
            raise TimeoutError

    dataset, options = bl.TensorDataset(torch.arange(40_000).view(-1, 1).expand(-1, 16)), {"batch_size": 7}
    make = partial(loader_on, way) if way else lambda dataset, **options: (bl.DataLoader(dataset, **options), options)
    loader, same = make(dataset, **options, shuffle=True)
    expected = [samples.tolist() for samples in bl.DataLoader(dataset, **same).plan(0)]
    before, interruptions, batches = signal.signal(signal.SIGALRM, raises), 0, iter(loader)
    signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
    try:
        while True:
            try:
                armed.append(True)
                batch = next(batches, None)
                armed.clear()
            except TimeoutError:
                interruptions += 1
                continue
            if batch is None:
                break
            # One that came just before a signal did was handed over, though nobody has it.
            number = loader.state_dict()["batches"] or len(expected)
            assert batch[0][:, 0].tolist() == expected[number - 1]
    finally:
        armed.clear()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (1, 0)
    assert interruptions


@IN_ANY_WAY
def test_data_that_moved_ends_an_iteration(way):
    """Once and for all: no batch is made of what is no longer there."""
    moved = []
    dataset, options = checked("rows", lambda _: bl.DataError("field 0 was moved") if moved else None)
    loader = loader_on(way, dataset, **options)[0] if way else bl.DataLoader(dataset, **options)
    batches = iter(loader)
    next(batches)
    moved.append(True)
    with refused(bl.DataError, "field 0"):
        list(batches)
    assert list(batches) == []


@every_pair
def test_a_state_counts_batches_that_were_handed_over_and_none_ahead(way, kind):
    """Blocks are on their way to the device while batches of those before are in use."""
    loader, _, _ = pair(way, kind, prefetch=3, num_threads=2)
    assert loader.state_dict()["batches"] == 0
    batches, steps = iter(loader), len(loader)
    assert loader.state_dict()["batches"] == 0
    for number, _ in enumerate(batches, 1):
        if number < steps:
            assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (0, number)
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (1, 0)


# Ends


@every_pair
def test_an_abandoned_iterator_leaves_the_loader_as_it_was(way, kind):
    loader, host, _ = pair(way, kind)
    other = host()
    expected = [seen(other) for _ in range(4)]
    for epoch in range(3):
        batches = iter(loader)
        assert seen(itertools.islice(batches, 3 * epoch + 1)) == expected[epoch][: 3 * epoch + 1]
        if epoch == 1 and hasattr(batches, "close"):
            batches.close()
            assert list(batches) == []
        del batches
    assert seen(loader) == expected[3]


@every_pair
def test_what_a_loader_holds_goes_with_it(way, kind):
    """Data on a device, and memory on the way there, are let go at once: no cycle waits to be collected."""
    gc.disable()
    try:
        loader, _, _ = pair(way, kind, buffers="static")
        batches = iter(loader)
        held = [next(batches), next(batches)]
        watched = [loader._delivery]
        if isinstance(loader._delivery, OnDevice):
            made = loader._delivery.pipeline(loader._native)
            watched += [made, made._transfer, made._resident, made._collator]
            del made
        watched = [weakref.ref(part) for part in watched if hasattr(part, "__weakref__") or hasattr(part, "__dict__")]
        assert watched
        del batches, loader, _
        assert [part() for part in watched] == [None] * len(watched)
        assert held
    finally:
        gc.enable()


@every_pair
def test_loaders_pickle_as_their_recipe_and_iterators_do_not(way, kind):
    loader, host, _ = pair(way, kind)
    with refused(TypeError, "pickle"):
        pickle.dumps(iter(loader))
    if kind != "stream":
        expected = seen(host())
        next(iter(loader))
        with pretended():
            again = pickle.loads(pickle.dumps(loader))
        assert again.placement.mode == loader.placement.mode
        assert seen(again) == expected[1:]
    # Datasets do too, once they are on a device; but torch does not read its own uint16 again.
    list(loader)
    if kind == "stream":
        return
    travelled = pickle.loads(pickle.dumps(loader.dataset))
    assert len(travelled) == len(loader.dataset)


FORKED = """
    import os, warnings
    import batchloom as bl
    import torch
    from oracles.devices import data, loader_on, seen

    torch.manual_seed(0)
    torch.set_num_threads(1)
    for way in ("resident", "streamed", "sharded"):
        for kind in ("rows", "sequences", "neighbours"):
            dataset, options = data(kind)
            loader, _ = loader_on(way, dataset, **options)
            expected = [seen(loader) for _ in range(2)]
            loader.set_epoch(0)
            batches = iter(loader)
            next(batches)
            process = os.fork()
            if process == 0:
                if kind != "neighbours":
                    try:
                        next(batches)
                    except bl.LoaderError as error:
                        assert "fork" in str(error), error
                    else:
                        os._exit(3)
                loader.set_epoch(1)
                os._exit(0 if seen(loader) == expected[1] else 4)
            assert os.waitpid(process, 0)[1] == 0, (way, kind)
            assert seen(batches) == expected[0][1:]
"""


def test_a_forked_child_is_told_and_may_begin_anew(script):
    script(FORKED)


@every_way
def test_data_that_was_resized_is_an_error_and_not_read(way):
    values = torch.arange(400.0)
    loader, _ = loader_on(way, bl.TensorDataset(values), batch_size=8)
    assert bits(next(iter(loader))[0])[1] == (8,)
    values.resize_(4000)
    with refused(bl.DataError, "field 0", "resized"):
        list(loader)
