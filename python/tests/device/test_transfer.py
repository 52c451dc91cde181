"""Copies to a device that are late: memory is kept until they are over, streams wait for them, the host does not."""

import gc
import itertools
import sys
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import batchloom as bl
import batchloom.arrays.torch
import numpy
import pytest
import torch
from batchloom.dataset.base import samples_of
from batchloom.delivery.on_device import TABLE
from batchloom.device import transfer
from batchloom.device.pipeline import Pipeline
from batchloom.device.shards import MovingShard, Shards
from batchloom.device.transfer import Transfer
from hypothesis import given
from hypothesis import strategies as st
from oracles.devices import KINDS, arrays, blocks, data, seen
from oracles.runs import few
from oracles.transfers import Accelerator, Event, Late, Stream, accelerated
from torch.utils._python_dispatch import TorchDispatchMode

STREAMED = {"resident": False}
MODES = {"resident": {}, "streamed": STREAMED, "sharded": {}}
PAIRS = [pair for pair in itertools.product(MODES, KINDS) if pair != ("sharded", "neighbours")]
every_pair = pytest.mark.parametrize(("mode", "kind"), PAIRS)


@pytest.fixture(autouse=True)
def _poison(monkeypatch):
    monkeypatch.setenv("BATCHLOOM_POISON", "1")


def loader_of(mode, kind, size=600, **more):
    """A loader on the accelerator, and what its batches have to be."""
    torch.manual_seed(0)
    dataset, options = data(kind)
    chosen = dict(MODES[mode])
    if mode == "sharded":
        chosen["resident"] = sum(field.tensor.nbytes for field in samples_of(dataset).location.all_arrays) - 1
    with blocks(size):
        loader = bl.DataLoader(dataset, **options, **chosen, output="torch", device="meta", **more)
    host = bl.DataLoader(dataset, **options, output="torch", shard_size=loader.placement.shard_size)
    return loader, host


@every_pair
@pytest.mark.parametrize("patience", [2, 10**9])
def test_memory_is_kept_until_its_copy_is_over(mode, kind, patience):
    """Slots are poisoned when they come back; a copy that reads one then, or a batch made of it, is torn."""
    with accelerated(patience) as device:
        loader, host = loader_of(mode, kind, prefetch=1, num_threads=2)
        held, expected = [], []
        for _ in range(3):
            held += list(loader)
            expected += seen(host)
            assert device.most <= (4 if mode == "sharded" else 2)  # shards have a lane of their own
        del loader
        assert seen(held) == expected
        assert not device.torn
        assert all(event.is_over for event in Event.made)
        assert Event.made or (mode, kind) == ("resident", "neighbours")


@pytest.mark.parametrize(("mode", "most"), [("streamed", 2), ("sharded", 4)])
def test_copies_that_are_under_way_are_counted(mode, most):
    with accelerated(10**9) as device:
        loader, _ = loader_of(mode, "rows", prefetch=1)
        assert (loader.metrics().copying, loader.metrics().copying_bytes) == (0, 0)
        counted = []
        for _ in loader:
            metrics = loader.metrics()
            assert metrics.copying == device.flying()
            counted.append((metrics.copying, metrics.copying_bytes))
        assert 1 < max(counts := [count for count, _ in counted]) <= most
        assert all((size > 0) == (count > 0) for count, size in counted), counts
        for event in Event.made:
            event.end()
        assert (loader.metrics().copying, loader.metrics().copying_bytes) == (0, 0)


@few
@given(
    lengths=st.lists(st.integers(0, 40), min_size=20, max_size=60),
    size=st.sampled_from([64, 500, 4000]),
    patience=st.integers(0, 6),
    threads=st.integers(1, 3),
    prefetch=st.integers(0, 3),
    mode=st.sampled_from(["resident", "streamed"]),
    keep=st.integers(1, 5),
)
def test_a_consumer_that_keeps_some_batches_of_varying_lengths(lengths, size, patience, threads, prefetch, mode, keep):
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    dataset = bl.SequenceDataset(x=(torch.arange(int(offsets[-1])), offsets), y=torch.arange(len(lengths)))
    options = {"batching": bl.TokenBudget(80, oversize="alone", pool=8), "shuffle": True, "num_threads": threads}
    with accelerated(patience) as device, blocks(size):
        loader = bl.DataLoader(dataset, device="meta", prefetch=prefetch, **options, **MODES[mode])
        host, held = bl.DataLoader(dataset, **options, output="torch"), []
        for _ in range(2):
            for number, (batch, other) in enumerate(zip(loader, host, strict=True)):
                if number % keep == 0:
                    held.append((batch, seen([other])))
                else:
                    assert seen([batch]) == seen([other])
        assert all(seen([batch]) == expected for batch, expected in held)
        assert not device.torn
        assert device.most <= 2


@every_pair
def test_a_dropped_loader_and_an_abandoned_iterator_wait_for_their_copies(mode, kind):
    for taken, close in ((0, False), (1, True), (3, False)):
        with accelerated(10**9) as device:
            loader, _ = loader_of(mode, kind, prefetch=2)
            batches = iter(loader)
            held = list(itertools.islice(batches, taken))
            if close and hasattr(batches, "close"):
                batches.close()
            content = seen(held)
            del batches, loader, _
            assert all(event.is_over for event in Event.made)
            assert not device.torn
            assert seen(held) == content


@every_pair
def test_the_stream_of_the_consumer_waits_for_each_copy(mode, kind):
    """Whatever batch arrives: the stream that is present knows of all copies that it was made of."""
    with accelerated() as device:
        loader, host = loader_of(mode, kind)
        streams = [Stream() for _ in range(3)]
        found = []
        batches = iter(loader)
        for number in itertools.count():
            stream = streams[number // 2 % 3]  # changes in the middle of blocks, too
            with device.stream(stream):
                try:
                    batch = next(batches)
                except StopIteration:
                    break
            found.append(batch)
            places = {array.untyped_storage().data_ptr() for array in arrays(batch)} if mode == "streamed" else ()
            for event in Event.made:
                if event.storage in places:
                    assert event in stream.knows
                    assert (event.storage, stream) in device.recorded
        assert seen(found) == seen(host)
        waits = [wait for stream in streams for wait in stream.waits]
        assert waits or (mode, kind) == ("resident", "neighbours")


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("mode", ["resident", "sharded"])
def test_the_stream_that_gathers_waits_for_what_it_reads(mode, kind, monkeypatch):
    finish, blocks_seen = Pipeline.finish, []

    def checked(self, begun):
        found = finish(self, begun)
        copies = list(begun[0])
        if isinstance(self._resident, Shards):
            copies += self._resident._held[self._resident._shard]._sent
        assert copies
        assert {copy._event for copy in copies} <= self._transfer.current_stream().knows
        blocks_seen.append(len(copies))
        return found

    with accelerated() as device:
        monkeypatch.setattr(Pipeline, "finish", checked)
        loader, host = loader_of(mode, kind)
        streams, found, batches = [Stream() for _ in range(3)], [], iter(loader)
        for number in range(len(loader)):
            with device.stream(streams[number % 3]):
                found.append(next(batches))
        assert seen(found) == seen(host)
        assert len(blocks_seen) > 2


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_that_was_made_for_another_stream(mode):
    """The consumer's stream waits for the one that gathered, and the memory is not given away before it is done."""
    with accelerated() as device:
        loader, _ = loader_of(mode, "rows", size=1 << 20)
        first, second = Stream(), Stream()
        batches = iter(loader)
        with device.stream(first):
            next(batches)
        before = len(first.waits)
        with device.stream(first):
            next(batches)
        assert len(first.waits) == before
        assert second.waits == []
        with device.stream(second):
            batch = next(batches)
        if mode != "sharded":
            assert second.waits[-1] is first
            assert second.knows >= first.knows
            for array in arrays(batch):
                assert (array.untyped_storage().data_ptr(), second) in device.recorded


def test_two_iterations_on_two_streams():
    """The stream of one iteration's blocks is not that of the other's."""
    with accelerated() as device:
        loader, host = loader_of("resident", "rows", size=1 << 20)
        streams = [Stream(), Stream()]
        iterations = [iter(loader), iter(loader)]
        for _ in range(3):
            for stream, batches in zip(streams, iterations, strict=True):
                with device.stream(stream):
                    next(batches)
        with device.stream(streams[1]):
            batch = next(iterations[0])
        assert streams[0] in streams[1].waits
        assert streams[1] not in streams[0].waits
        assert all((array.untyped_storage().data_ptr(), streams[1]) in device.recorded for array in arrays(batch))
        assert host is not None


def test_rows_of_several_batches_are_waited_for_by_each_stream():
    """Windows over rows that moved once for many batches: each stream that reads them waits for them."""
    values = torch.arange(1000.0)
    with accelerated() as device:
        loader = bl.DataLoader(bl.WindowDataset(values, 6), batch_size=10, resident=3000, device="meta")
        found, batches = [], iter(loader)
        for stream in [Stream() for _ in range(60)]:
            with device.stream(stream):
                (batch,) = next(batches)
            found.append(batch)
            (event,) = (event for event in Event.made if event.storage == batch.untyped_storage().data_ptr())
            assert event in stream.knows
            assert (event.storage, stream) in device.recorded
        assert len(Event.made) < 40
        assert torch.equal(torch.cat(found)[:, 0], values[:600])


# Nobody waits


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("mode", ["resident", "streamed"])
def test_nothing_waits_but_for_the_third_copy(mode, kind):
    with accelerated(2) as device:
        loader, _ = loader_of(mode, kind)
        for _ in range(3):
            for _ in loader:
                pass
        assert len(Event.made) > 6
        # When one is waited for, two are under way.
        assert all(flying >= 2 for flying in device.waited)


class Operations(TorchDispatchMode):
    """Counts what a device has to do, and refuses what its consumer would have to wait for."""

    WAITS = ("_local_scalar_dense", "nonzero", "item", "unique", "masked_select", "is_nonzero", "equal", "_to_cpu")
    CUTS = (
        "split",
        "view",
        "slice",
        "select",
        "squeeze",
        "as_strided",
        "detach",
        "alias",
        "unbind",
        "unfold",
        "t.",
        "permute",
    )

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, arguments=(), given=None):
        name = str(function).removeprefix("aten.")
        assert not any(wait in name.split(".")[0] for wait in self.WAITS), name
        # Memory for blocks is the CPU's, and taken by whatever thread comes first.
        if not any(cut in name for cut in self.CUTS) and name != "empty.memory_format":
            self.counts[name] += 1
        return function(*arguments, **(given or {}))


def operations(loader):
    """The operations of a device for each block of an epoch, cuts aside, and how often each is called."""
    counts, finish = [], Pipeline.finish
    mode = Operations()

    def counted(self, begun):
        before = mode.counts.copy()
        found = finish(self, begun)
        counts.append(mode.counts - before)
        return found

    with pytest.MonkeyPatch.context() as patch, mode:
        patch.setattr(Pipeline, "finish", counted)
        list(loader)
    return counts


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("way", [True, False])
def test_operations_of_a_block_are_as_many_whatever_batches_it_has(kind, way):
    dataset, options = data(kind)
    with blocks(300):
        loader = bl.DataLoader(dataset, **options, resident=way, output="torch")
    list(loader)  # data goes to the device once
    some = operations(loader)
    loader = bl.DataLoader(dataset, **options, resident=way, output="torch")
    list(loader)
    (whole,) = operations(loader)
    assert len(some) > 5
    assert all(block <= whole for block in some)
    assert any(block == whole for block in some)
    assert whole.total() <= (60 if way else 0)


# Memory


def test_memory_for_copies_is_bounded_over_many_epochs():
    lengths = [(37 * k) % 101 for k in range(300)]
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    dataset = bl.SequenceDataset(x=(torch.arange(int(offsets[-1])), offsets))
    for mode in ("resident", "streamed"):
        for prefetch, threads in ((0, 2), (1, 1), (2, 2)):
            with accelerated(5) as device, blocks(1 << 12):
                options = {"batching": bl.TokenBudget(400, pool=50), "shuffle": True}
                loader = bl.DataLoader(
                    dataset, device="meta", **options, **MODES[mode], prefetch=prefetch, num_threads=threads
                )
                for _ in range(15):
                    for batch in loader:
                        assert batch["x"].shape[0] == len(batch["lengths"])
                blocks_made = len(Event.made)
                assert blocks_made > 150
                # Those ahead, one in use, two under way, those that are formed; and each may have been smaller once.
                assert len(device.allocated) <= 2 * (prefetch + 4 + threads)
                assert sum(device.allocated) <= 2 * (prefetch + 4 + threads) * (1 << 14)
                assert {size & (size - 1) for size in device.allocated} == {0}


def test_memory_that_cannot_be_pinned_is_taken_anyway(monkeypatch):
    way = Transfer(torch.device("cpu"))
    assert len(way.allocate(100)) == 100
    monkeypatch.setattr(Transfer, "has_streams", True)
    empty = torch.empty

    def refuse(*sizes, pin_memory=False, **options):
        if pin_memory:
            raise RuntimeError("no memory can be pinned")
        return empty(*sizes, **options)

    monkeypatch.setattr(torch, "empty", refuse)
    assert len(way.allocate(100)) == 100


def test_a_device_without_streams_gets_copies_at_once(monkeypatch):
    monkeypatch.setattr(transfer, "_streams", lambda device: None)
    for mode, kind in (
        ("resident", "sequences"),
        ("streamed", "rows"),
        ("sharded", "rows"),
        ("streamed", "neighbours"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("batchloom.arrays.torch.accelerator", lambda device: torch.device("cpu"))
            loader, host = loader_of(mode, kind)
            assert seen(loader) == seen(host)


@pytest.mark.parametrize("mode", MODES)
def test_what_an_interrupt_kept_back_goes_later(mode, monkeypatch):
    """One copy of an epoch after the other is interrupted before it begins; the consumer goes on."""
    copy = Transfer.copy
    with accelerated(1):
        loader, host = loader_of(mode, "rows", size=200)
        for interrupted in range(6):
            calls = itertools.count()

            def begin(self, *given, at=interrupted, count=calls):
                if next(count) == at:
                    raise KeyboardInterrupt
                return copy(self, *given)

            monkeypatch.setattr(Transfer, "copy", begin)
            assert seen(patiently(iter(loader))) == seen(host)
            assert next(calls) > interrupted


def patiently(batches):
    """Every batch of an iteration, whatever interrupts."""
    while True:
        try:
            yield next(batches)
        except KeyboardInterrupt:
            continue
        except StopIteration:
            return


@pytest.mark.parametrize("shuffle", [False, "runs", True])
def test_series_move_once_though_no_batch_is_a_view(shuffle, monkeypatch):
    moved, move = [], batchloom.arrays.torch.on
    monkeypatch.setattr("batchloom.arrays.torch.on", lambda *given: moved.append(given) or move(*given))
    series = [torch.randn(60, 3) for _ in range(20)]
    with accelerated(1):
        loader = bl.DataLoader(bl.WindowDataset(series, 48, 8), 32, shuffle=shuffle, resident=True, device="meta")
        assert sum(len(x) for _ in range(2) for x, _ in loader) == 2 * 20 * 5
    assert len(moved) == 1


def test_parts_of_a_split_share_the_series_on_a_device(monkeypatch):
    moved, move = [], batchloom.arrays.torch.on
    monkeypatch.setattr("batchloom.arrays.torch.on", lambda *given: moved.append(given) or move(*given).clone())
    series = torch.randn(1000, 3)
    parts = bl.WindowDataset(series, 5, 2).split(train=0.6, val=0.2, test=0.2)
    with accelerated(1):
        loaders = [bl.DataLoader(part, 32, resident=True, device="meta") for part in parts]
        loaders += [bl.DataLoader(part, 32, shuffle=True, resident=True, device="meta") for part in parts]
        for loader, part in zip(loaders, [*parts, *parts], strict=True):
            assert sum(len(x) for x, _ in loader) == len(part)
    assert len(moved) == 1


def test_a_limit_is_of_no_use_where_the_series_is_on_the_device(monkeypatch):
    monkeypatch.setattr("batchloom.arrays.torch.HOLLOW", frozenset())
    series = torch.zeros(1000, 3, device="meta")
    loader = bl.DataLoader(bl.WindowDataset(series, 5, 2), batch_size=8, resident=3000)
    assert loader.placement.reason == "the series are on the device"
    assert sum(len(x) for x, _ in loader) == 994


@pytest.mark.parametrize("layout", ["transposed", "expanded", "some columns"])
def test_what_is_pinned_is_compact(layout):
    wide = torch.arange(6000.0).view(30, 200)
    rows = {
        "transposed": wide.T,
        "expanded": wide[0].view(-1, 1).expand(-1, 30),
        "some columns": wide.view(200, 30)[:, :4],
    }
    with accelerated(1) as device:
        loader = bl.DataLoader(bl.TensorDataset(rows[layout]), 10, resident=3000, device="meta")
        assert loader.placement.mode == "sharded"
        assert torch.equal(torch.cat([batch for (batch,) in loader]), rows[layout])
        assert max(size for size in device.allocated if size != TABLE) <= 3000 / 2


# Shards take turns in the same memory


@pytest.mark.parametrize("kind", [kind for kind in KINDS[:-1] if kind != "stream"])
def test_two_shards_share_two_rooms_over_epochs(kind, monkeypatch):
    """However far ahead the CPU is: what moves into a room waits for the streams that read the shard before it."""
    made, guarded, readers, guards = [], [], {}, {}
    room, leave, finish, send = Transfer.empty, MovingShard.leave, Pipeline.finish, Late.send

    def storage(array):
        return array.untyped_storage().data_ptr()

    def gathered(self, begun):
        found = finish(self, begun)
        readers.setdefault(self._resident._held[self._resident._shard], set()).add(Accelerator.present)
        return found

    def left(self):
        leave(self)
        free = self._buffers._free[-1]
        assert {event.stream for event in free.readers} == readers.pop(self, set())
        guarded.extend(free.readers)
        guards.update({storage(array): set(free.readers) for array in free.arrays})

    def sent(self, host, into):
        assert into is None or guards.get(storage(into), set()) <= self._stream.knows
        return send(self, host, into)

    monkeypatch.setattr(Transfer, "empty", lambda *given: made.append(room(*given)) or made[-1])
    monkeypatch.setattr(MovingShard, "leave", left)
    monkeypatch.setattr(Pipeline, "finish", gathered)
    monkeypatch.setattr(Late, "send", sent)
    with accelerated() as device:
        loader, host = loader_of("sharded", kind)
        streams, kept = [Stream(), Stream()], []
        for epoch in range(4):
            found, batches = [], iter(loader)
            for number in range(len(loader) // (1 + epoch % 2)):
                with device.stream(streams[number // 3 % 2]):
                    found.append(next(batches))
            if epoch % 2 == 0:
                kept.append(batches)  # what has ended holds nothing
                assert list(batches) == []
            del batches  # others in the middle
            assert seen(found) == seen(itertools.islice(iter(host), len(found)))
        assert len(made) == 2 * len(samples_of(loader.dataset).device_data().most_rows(1))
        assert sum(array.nbytes for array in made) <= loader.placement.free
        assert len(guarded) > 2


def test_an_iteration_beside_another_has_rooms_of_its_own():
    with accelerated():
        loader, host = loader_of("sharded", "rows")
        for _ in range(3):
            pairs = list(zip(loader, loader, strict=True))
            assert seen(first for first, _ in pairs) == seen(host)
            assert seen(second for _, second in pairs) == seen(host)


# Threads and interrupts


@pytest.mark.parametrize("mode", ["resident", "streamed"])
def test_only_the_engines_threads_ask_for_memory(mode, monkeypatch):
    """In the main thread, what is raised there may be no matter of memory: Ctrl-C is."""
    allocate, threads = Transfer.allocate, set()
    monkeypatch.setattr(Transfer, "allocate", lambda *given: threads.add(threading.get_ident()) or allocate(*given))
    dataset = bl.TensorDataset(torch.zeros(3000, 4))
    with blocks(200):
        for count in (1, 2, 4):
            list(bl.DataLoader(dataset, 10, num_threads=count, prefetch=4, resident=mode == "resident"))
    assert threads
    assert threading.get_ident() not in threads


# In parts: the accelerator looks at all copies that it remembers with each further one.
@pytest.mark.parametrize("_part", range(4))
def test_threads_share_a_transfer(_part):
    values = [torch.full((50,), float(number)) for number in range(6)]
    with accelerated(1) as device:
        way = Late(torch.device("cpu"))

        def copies(value, way=way):
            return all(torch.equal(way.copy(value).arrive(), value) for _ in range(500))

        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            with ThreadPoolExecutor(6) as threads:
                assert all(threads.map(copies, values))
        finally:
            sys.setswitchinterval(interval)
        del way
        assert not device.torn


def test_memory_is_kept_though_the_end_of_its_copy_is_not_known(monkeypatch):
    """An interrupt after a copy was sent, and before the event that tells that it is over."""

    def interrupted(self, stream):
        raise KeyboardInterrupt

    with accelerated(10**9) as device:
        way = Late(torch.device("cpu"))
        host = torch.arange(100)
        kept = weakref.ref(host)
        with monkeypatch.context() as patch:
            patch.setattr(Event, "record", interrupted)
            with pytest.raises(KeyboardInterrupt):
                way.copy(host)
        del host
        gc.collect()
        assert kept() is not None
        for number in range(3):
            assert torch.equal(way.copy(torch.full((5,), number)).arrive(), torch.full((5,), number))
        assert kept() is None
        assert not device.torn


def test_each_stream_that_reads_a_series_is_known():
    series = torch.arange(400.0)
    with accelerated() as device:
        loader = bl.DataLoader(bl.WindowDataset(series, 5), 8, device="meta", resident=True)
        batches, streams = iter(loader), [Stream() for _ in range(3)]
        for stream in [*streams, *streams]:
            with device.stream(stream):
                (batch,) = next(batches)
            assert device.recorded.count((batch.untyped_storage().data_ptr(), stream)) == 1


@pytest.mark.parametrize(
    ("dataset", "share"),
    [
        (bl.TensorDataset(torch.zeros(100, 4)), 1),
        (bl.GroupDataset(torch.arange(100) // 3, torch.zeros(100, 10)), 0.5),
    ],
)
def test_blocks_of_resident_data_grow_with_the_memory_of_the_device(monkeypatch, dataset, share):
    """Unless a limit is given: a fast device would wait for Python between small blocks."""
    for total, expected in ((0, 32 << 20), (16 << 30, 64 << 20), (80 << 30, 320 << 20), (1 << 40, 512 << 20)):
        monkeypatch.setattr(transfer.Transfer, "memory", lambda self, total=total: total)
        loader = bl.DataLoader(dataset, 10, resident=True)
        assert loader._delivery.blocks.block_bytes == int(expected * share)
        if share == 1:
            limited = bl.DataLoader(dataset, 10, resident=1300)
            assert limited.placement.mode == "sharded"
            assert limited._delivery.blocks.block_bytes == 32 << 20
