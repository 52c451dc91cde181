"""Faults at random points of a run: signals, exceptions, breaks, forks, threads, kills, and limits of the process.

Each fault happens in a process of its own, forked from one that has loaded everything. The run has to end in time, in
the way that the fault asks for; where the loader outlives the fault, its next epoch is compared with the plan.
"""

import contextlib
import gc
import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import batchloom as bl
import numpy
from campaign import kinds
from campaign.tally import reported

# A fault that takes longer than this hangs.
PATIENCE = 60
TESTS = str(Path(__file__).parents[1])


def campaign(tally, seed, first=0, most=None):
    """Run the faults of one process after the other, until time is up, or so many.

    Raises:
        FindingError: One hung, ended otherwise than asked for, or delivered a wrong batch.
    """
    # Threads that a loader left would not survive the fork.
    gc.collect()
    for number in tally.numbers(first, most):
        draw = random.Random(f"faults/{seed}/{number}")
        fault = draw.choice(FAULTS)
        with reported("faults", seed, number) as told:
            told.append(fault.__name__)
            tally.add(fault.__name__, fault(draw))


def forked(work, draw, during=lambda child: None, ends_by=None):
    """Run ``work(draw)`` in a forked process, and return what it returned, unless a signal has to end it.

    Raises:
        AssertionError: It failed, took too long, or ended by another signal.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        done = {"error": "no end"}
        try:
            done = {"value": work(draw)}
        except BaseException:
            done = {"error": traceback.format_exc()}
        finally:
            os.write(writing, json.dumps(done)[:60_000].encode())
            os._exit(0)
    os.close(writing)
    try:
        during(child)
        ready, _, _ = select.select([reading], [], [], PATIENCE)
        if not ready:
            os.kill(child, signal.SIGKILL)
        text = os.read(reading, 65_536)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(reading)
    assert ready, f"nothing was heard of the process for {PATIENCE} s"
    found = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    assert found == ends_by, f"ended by signal {found}, expected {ends_by}"
    if ends_by is not None:
        return 1
    done = json.loads(text)
    assert "error" not in done, done["error"]
    return done["value"]


def loader_of(draw, **more):
    """Draw a loader of some kind whose epochs have batches, and its configuration."""
    while True:
        configuration = kinds.drawn(draw)
        with contextlib.suppress(bl.Error):
            loader = configuration.loader(draw.choice(kinds.HOST), **more)
            if len(loader):
                return configuration, loader


def large(draw):
    """Return a loader whose epochs take some milliseconds, in several blocks, and its rows."""
    rows = numpy.arange(20_000 * 64, dtype=numpy.int32).reshape(20_000, 64)
    options = {"num_threads": draw.randint(1, 4), "prefetch": draw.choice([None, 0, 3]), "shuffle": True}
    return bl.DataLoader(bl.TensorDataset(rows), draw.randint(20, 400), seed=draw.getrandbits(32), **options), rows


def verify(loader, check):
    """Compare the next epoch of a loader with its plan."""
    plan = loader.plan()
    count = 0
    for samples, batch in zip(plan, loader, strict=True):
        check(batch, samples)
        count += 1
    assert count == len(plan)


def of_rows(rows):
    """Return the check of batches of these rows."""

    def check(batch, samples):
        assert numpy.array_equal(batch[0], rows[samples])

    return check


def interrupts(draw):
    """A signal whose handler raises, at any time: it comes out of the loop, and the next epoch is whole."""

    def work(draw):
        loader, rows = large(draw)
        signal.signal(signal.SIGALRM, stop)
        for _ in range(FEW):
            signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.0001, 0.02))
            with contextlib.suppress(StoppedError):
                for _ in range(100):
                    for _ in loader:
                        pass
                raise AssertionError("the signal never came out")
            signal.setitimer(signal.ITIMER_REAL, 0)
            verify(loader, of_rows(rows))
        return FEW

    return forked(work, draw)


class StoppedError(Exception):
    """Raised by a handler of signals."""


def stop(number, frame):
    """Raise out of a handler."""
    raise StoppedError


FEW = 10


def exceptions(draw):
    """An exception in the body of the loop: the state is that of the batches that came, and the rest follows."""

    def work(draw):
        for _ in range(FEW):
            configuration, loader = loader_of(draw)
            plan, taken = loader.plan(), 0
            least = draw.randint(1, len(plan))
            with contextlib.suppress(StoppedError):
                for _ in loader:
                    taken += 1
                    if taken == least:
                        raise StoppedError
            state = loader.state_dict()
            again = configuration.loader(draw.choice(kinds.HOST))
            again.load_state_dict(state)
            left = [batch.tolist() for batch in again.plan()] if again.epoch == plan.epoch else []
            assert left == [batch.tolist() for batch in plan][taken:]
            # Taken before the epoch: the next may have another number of batches.
            expected = len(left) or len(again)
            assert sum(1 for _ in again) == expected
        return FEW

    return forked(work, draw)


def breaks(draw):
    """Iterators that are left, closed, dropped or kept: the next one is whole."""

    def work(draw):
        kept = []
        for _ in range(FEW):
            loader, rows = large(draw)
            batches = iter(loader)
            for _ in range(draw.randint(0, 3)):
                next(batches)
            draw.choice([batches.close, lambda: None, lambda batches=batches: kept.append(batches), gc.collect])()
            del batches
            loader.set_epoch(draw.randint(0, 3))
            verify(loader, of_rows(rows))
        return FEW

    return forked(work, draw)


def forks(draw):
    """A fork in mid-epoch: the child's old iterator says so, its next epoch is whole, and the parent goes on."""

    def work(draw):
        loader, rows = large(draw)
        batches, plan = iter(loader), loader.plan(0)
        taken = draw.randint(1, 5)  # an iterator that has not begun begins in either process
        for _ in range(taken):
            next(batches)

        def child(draw):
            try:
                next(batches)
            except bl.LoaderError:
                pass
            else:
                raise AssertionError("the child got a batch of its parent's iterator")
            loader.set_epoch(1)
            verify(loader, of_rows(rows))
            return 1

        assert forked(child, draw) == 1
        for samples, batch in zip(list(plan)[taken:], batches, strict=True):
            of_rows(rows)(batch, samples)
        return 1

    return forked(work, draw)


def threads(draw):
    """Threads that share an iterator: one at a time, the others are told, and every batch comes to one of them."""

    def work(draw):
        loader, _ = large(draw)
        batches, found, lock = iter(loader), [], threading.Lock()

        def consume():
            while True:
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                except bl.LoaderError:
                    continue  # another thread is taking one
                with lock:
                    found.append(int(batch[0][0, 0]))

        consumers = [threading.Thread(target=consume) for _ in range(draw.randint(2, 6))]
        for consumer in consumers:
            consumer.start()
        for consumer in consumers:
            consumer.join(PATIENCE / 2)
            assert not consumer.is_alive(), "a consumer hangs"
        expected = [int(samples[0]) * 64 for samples in loader.plan(0)]
        assert sorted(found) == sorted(expected)
        return 1

    return forked(work, draw)


def kills(draw):
    """A signal that ends the process at any time, with or without handlers of Python."""
    number = draw.choice([signal.SIGKILL, signal.SIGTERM])

    def work(draw):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        loader, _ = large(draw)
        while True:
            for _ in loader:
                pass

    def during(child):
        time.sleep(draw.uniform(0, 0.05))
        os.kill(child, number)

    return forked(work, draw, during, number)


def files(draw):
    """No more files: an error or a run that goes on, and the loader works again when there are some."""

    def work(draw):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for _ in range(FEW):
            resource.setrlimit(resource.RLIMIT_NOFILE, (draw.randint(0, 12), hard))
            loader = None
            with contextlib.suppress(bl.Error, OSError):
                loader, rows = large(draw)
                for _ in loader:
                    pass
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            if loader is not None:
                verify(loader, of_rows(rows))
        return FEW

    return forked(work, draw)


def memory(draw):
    """Too little memory for what is made of the data: a MemoryError, and all works when there is enough."""

    def work(draw):
        unlimited = resource.getrlimit(resource.RLIMIT_AS)
        name, make = draw.choice(list(MEMORY.items()))
        given = given_of(draw)
        expected = make(given)
        for _ in range(FEW):
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            # A share for what is small: Python itself ends without a few kilobytes.
            more = draw.randrange(4 << 20, 64 << 20)
            resource.setrlimit(resource.RLIMIT_AS, (used + more, unlimited[1]))
            found = None
            try:
                assert make(given) == expected
            except (MemoryError, bl.LoaderError) as error:
                found = error
            finally:
                resource.setrlimit(resource.RLIMIT_AS, unlimited)
            # A thread needs memory of its own.
            assert found is None or isinstance(found, MemoryError) or "thread" in str(found), (name, more, found)
        assert make(given) == expected
        return FEW

    return forked(work, draw)


def given_of(draw):
    """Return lengths, their values and ids of as many rows, in NumPy."""
    source = numpy.random.default_rng(draw.getrandbits(32))
    lengths = source.integers(0, 8, draw.randrange(200_000, 600_000))
    offsets = numpy.concatenate([[0], numpy.cumsum(lengths)])
    return {
        "lengths": lengths,
        "offsets": offsets,
        "values": numpy.ones(offsets[-1], numpy.int16),
        "ids": source.integers(0, 1 << 40, len(lengths)),
        "others": source.permutation(len(lengths)),
        "texts": numpy.array([f"{number:x}" for number in source.integers(0, 10_000, len(lengths))]),
    }


def sequences_of(given):
    """Return a dataset of sequences."""
    return bl.SequenceDataset(ids=(given["values"], given["offsets"]))


def first_batch(loader):
    """Return a number for the length and for the first batch."""
    return len(loader), int(numpy.asarray(next(iter(loader))["ids"]).sum())


def stream_of(given):
    """Return a number for the first batch of a stream whose documents are shuffled."""
    dataset = bl.TokenDataset(given["values"], 16, documents=given["offsets"], separator=0)
    return int(next(iter(bl.DataLoader(dataset, 8, shuffle=True)))[0].sum())


MEMORY = {
    "sequences": lambda given: len(sequences_of(given)),
    "texts": lambda given: len(bl.GroupDataset(given["texts"], given["ids"])),
    "plan": lambda given: len(bl.Plan(sizes=given["lengths"], batching=bl.TokenBudget(512), shuffle=True)),
    "packing": lambda given: first_batch(bl.DataLoader(sequences_of(given), batching=bl.Packing(64), shuffle=True)),
    "groups": lambda given: len(bl.GroupDataset(given["ids"], given["lengths"])),
    "tokens": lambda given: stream_of(given),
    "selection": lambda given: len(sequences_of(given).select(given["others"])),
}


def processes(draw):
    """Processes that make samples and are killed: an error that says so, or a run that goes on with others."""

    def work(draw):
        from oracles.samples import row

        dataset = bl.MapDataset(range(200), row, workers="processes")
        loader = bl.DataLoader(dataset, 5, num_threads=2)
        for _ in range(3):
            at = draw.randint(0, 30)
            with contextlib.suppress(bl.Error):
                for step, _ in enumerate(loader):
                    if step == at:
                        for child in children():
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(child, signal.SIGKILL)
            loader.set_epoch(0)
        assert sum(1 for _ in loader) == 40
        return 3

    return forked(work, draw)


def children():
    """Return the processes that this one has started."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


ENDS = {
    "sys.exit(7)": 7,
    "os._exit(8)": 8,
    "raise ValueError('the end')": 1,
    "signal.raise_signal(signal.SIGINT)": -signal.SIGINT,
}
SCRIPT = """
import os, random, signal, sys
from campaign import faults
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background are born deaf to it
draw = random.Random(int(sys.argv[1]))
loader, rows = faults.large(draw)
last = draw.randint(0, len(loader) - 1)
for step, batch in enumerate(loader):
    if step == last:
        %s
"""


def ends(draw):
    """The end of the interpreter in mid-epoch: at once, with the code that was asked for, and no crash."""
    line, code = draw.choice(list(ENDS.items()))
    command = [sys.executable, "-c", SCRIPT % line, str(draw.getrandbits(30))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert "panicked" not in done.stderr, done.stderr
    assert "Fatal" not in done.stderr, done.stderr
    return 1


FAULTS = (interrupts, exceptions, breaks, forks, threads, kills, kills, files, memory, processes, ends)
