"""Metrics of an epoch: counts are exact, times add up, and the log has a line for each epoch."""

import logging
import pickle
import threading
import time

import batchloom as bl
import numpy
import pytest
from refusals import refused


def loader(samples=1000, width=100, **options):
    return bl.DataLoader(bl.TensorDataset(numpy.zeros((samples, width))), 10, **options)


def test_before_any_epoch():
    metrics = loader().metrics()
    assert (metrics.batches, metrics.blocks, metrics.bytes, metrics.seconds) == (0, 0, 0, 0.0)
    assert str(metrics) == "no epoch has begun"


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"prefetch": 0}, {"num_threads": 1}, {"prefetch": 5}])
def test_counts(options):
    batches = loader(**options)
    for count, _ in enumerate(batches, 1):
        assert batches.metrics().batches == count
    metrics = batches.metrics()
    assert metrics.batches == 100
    assert 1 <= metrics.blocks <= 100
    assert metrics.bytes >= 1000 * 100 * 8
    assert metrics.queued == metrics.queued_bytes == 0
    assert metrics.bytes // metrics.blocks <= metrics.most_queued_bytes <= metrics.bytes
    assert 0 <= metrics.waited_seconds <= metrics.seconds
    assert metrics.idle_seconds >= 0
    assert str(metrics).startswith("the loop waited ")
    assert batches.metrics() == metrics, "after the end, the clock stands still"


def test_each_epoch_is_counted_alone():
    batches = loader()
    first = [list(batches), batches.metrics()][1]
    list(batches)
    second = batches.metrics()
    assert (first.batches, first.bytes) == (second.batches, second.bytes)


def test_a_slow_loop_waits_for_little():
    batches = loader(width=20_000, num_threads=2)
    for _ in batches:
        time.sleep(0.002)
    metrics = batches.metrics()
    assert metrics.seconds > 0.2
    assert metrics.waited_seconds < metrics.seconds / 2
    assert metrics.idle_seconds > 0


def test_a_slow_dataset_makes_the_loop_wait():
    def slow(sample):
        time.sleep(0.005)
        return numpy.zeros(3)

    batches = bl.DataLoader(bl.MapDataset(range(20), slow), 2, num_threads=1)
    for _ in batches:
        pass
    metrics = batches.metrics()
    assert metrics.batches == 10
    assert metrics.waited_seconds > metrics.seconds / 2


def test_batches_whose_samples_are_read_are_queued():
    go_on = threading.Event()

    def waits(sample):
        if sample >= 2:
            go_on.wait(60)
        return numpy.zeros(3)

    batches = bl.DataLoader(bl.MapDataset(range(20), waits), 2, num_threads=2, prefetch=3)
    epoch = iter(batches)
    next(epoch)
    end = time.monotonic() + 60
    while not batches.metrics().queued and time.monotonic() < end:
        time.sleep(0.001)
    assert batches.metrics().queued > 0
    go_on.set()
    list(epoch)
    assert batches.metrics().queued == 0


def test_an_epoch_that_is_left():
    batches = loader()
    epoch = iter(batches)
    next(epoch)
    next(epoch)
    epoch.close()
    assert batches.metrics().batches == 2
    assert batches.metrics().queued == batches.metrics().queued_bytes == 0
    seconds = batches.metrics().seconds
    assert batches.metrics().seconds == seconds


def test_views_wait_for_nothing():
    windows = bl.DataLoader(bl.WindowDataset(numpy.zeros((1000, 3)), 20), 50)
    count = len(list(windows))
    metrics = windows.metrics()
    assert (metrics.batches, metrics.blocks, metrics.waited_seconds) == (count, 0, 0.0)


def test_the_log_has_a_line_for_each_epoch(caplog):
    batches = loader()
    with caplog.at_level(logging.INFO, "batchloom"):
        for _ in range(2):
            list(batches)
        for _ in batches:
            break
    lines = [record.getMessage() for record in caplog.records if record.name == "batchloom"]
    assert [line.partition(":")[0] for line in lines] == ["epoch 0", "epoch 1", "epoch 2"]
    assert all("the loop waited" in line for line in lines)


def test_iterators_that_are_logged_are_as_others(caplog):
    with caplog.at_level(logging.INFO, "batchloom"):
        batches = loader(samples=100)
        iterator = iter(batches)
        with refused(TypeError, "state_dict"):
            pickle.dumps(iterator)

        def fail():
            for taken, _ in enumerate(iterator):
                1 / (2 - taken)

        with pytest.raises(ZeroDivisionError):
            fail()
        assert len(list(iterator)) == 7  # an exception in the body of a loop ends no epoch
        iterator = iter(batches)
        next(iterator)
        iterator.close()
        with pytest.raises(StopIteration):
            next(iterator)
    lines = [record.getMessage() for record in caplog.records if record.name == "batchloom"]
    assert [line.partition(":")[0] for line in lines] == ["epoch 0", "epoch 1"]


def test_nothing_is_logged_unless_asked(caplog):
    list(loader())
    assert not [record for record in caplog.records if record.name == "batchloom"]


def count(number):
    """A function that holds the interpreter."""
    return numpy.float64(sum(range(20_000)) + number)


def wait(number):
    """A function that lets other threads into the interpreter."""
    time.sleep(0.0005)
    return numpy.float64(number)


def read_all(function, threads, **options):
    batches = bl.DataLoader(bl.MapDataset(range(600), function, **options), 10, num_threads=threads)
    list(batches)
    return batches.metrics()


def test_threads_that_wait_for_the_interpreter_are_told_of_processes():
    metrics = read_all(count, 2)
    assert 0 < metrics.interpreter_seconds < metrics.reading_seconds
    free = read_all(wait, 2)
    assert 0 <= free.interpreter_seconds < free.reading_seconds
    share, waits = (each.interpreter_seconds / each.reading_seconds for each in (free, metrics))
    assert share < waits


def test_other_data_is_read_by_no_thread_that_enters_python():
    batches = loader()
    list(batches)
    assert (batches.metrics().reading_seconds, batches.metrics().interpreter_seconds) == (0, 0)


@pytest.mark.parametrize(
    ("times", "cores", "said"),
    [
        ((1.0, 0.5, 0.0, 2.0, 1.0), 8, '50 % of their time for the interpreter: workers="processes" would read up to'),
        ((1.0, 0.5, 0.0, 4.0, 3.0), 2, "up to 2.0 times"),
        ((1.0, 0.5, 0.0, 4.0, 2.0), 2, None),
        ((1.0, 0.5, 0.0, 2.0, 0.1), 8, None),
        ((0.1, 0.0, 0.0, 0.005, 0.004), 8, None),
        ((0.0, 0.0, 0.0, 0.0, 0.0), 8, None),
    ],
    ids=["two threads", "no more than cores", "no core is free", "seldom", "too short", "nothing read"],
)  # fmt: skip
def test_the_verdict_says_what_processes_would_give(times, cores, said, monkeypatch):
    from batchloom.loader import metrics

    monkeypatch.setattr(metrics, "count_cores", lambda: cores)
    measured = metrics.make_metrics((10, 1, 100, list(times), 0, 0, 100, "the loop waited"), (0, 0))
    assert (measured.reading_seconds, measured.interpreter_seconds) == times[3:]
    assert (said in str(measured)) if said else str(measured) == "the loop waited"
