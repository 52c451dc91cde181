"""Samples that processes make: the same batches as of threads, failures that name the sample, and ends in time."""

import gc
import multiprocessing
import os
import pickle
import socket
import sys
import time

import batchloom as bl
import pytest
from oracles.draws import drawn
from oracles.samples import (
    LENGTHS,
    Handles,
    failing,
    fill_drawn,
    killed,
    late_variable,
    many_arrays,
    parent,
    process,
    refuses,
    rests,
    row,
    sequence,
    torch_threads,
)
from oracles.samples import draws_of_another_generator as of_another
from refusals import refused

PLAIN = {"fn": row, "options": {"batch_size": 7}}
PADDED = {"fn": sequence, "options": {"batching": bl.TokenBudget(25)}}
PACKED = {"fn": sequence, "options": {"batching": bl.Packing(25)}}

# JAX, which other tests import, warns of every fork.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork")


@pytest.fixture(params=["processes", *["fork"][: hasattr(os, "fork")]])
def workers(request):
    return request.param


def loader(fn, workers, samples=60, *, threads=2, **options):
    dataset = {name: options.pop(name) for name in ("sizes", "on_error") if name in options}
    return bl.DataLoader(bl.MapDataset(range(samples), fn, workers=workers, **dataset), num_threads=threads, **options)


def plain(batch):
    arrays = batch.values() if isinstance(batch, dict) else batch
    return [array.tolist() if hasattr(array, "tolist") else array for array in arrays]


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("case", [PLAIN, PADDED, PACKED])
def test_batches_are_those_of_threads(case, processes, workers):
    sizes = {} if case is PLAIN else {"sizes": LENGTHS}
    options = case["options"] | sizes | {"shuffle": True, "seed": 3}
    ours = loader(case["fn"], workers, threads=processes, **options)
    others = loader(case["fn"], "threads", **options)
    for _ in range(2):
        assert list(map(plain, ours)) == list(map(plain, others))


@pytest.mark.parametrize("slot", [{"slot": bl.Crop(4)}, {"slot": bl.Pad(3), "pad": -1}])
def test_slots_and_types_are_those_of_threads(slot):
    fields = {0: bl.Field(dtype="float32", scale=0.5, **slot), 1: bl.Field(dtype="float64")}
    options = {"batch_size": 7, "fields": fields}
    ours, others = (loader(sequence, workers, **options) for workers in ("processes", "threads"))
    assert list(map(plain, ours)) == list(map(plain, others))


def test_slot_functions_that_draw_are_seeded_for_each_sample(workers):
    def filled(epoch, **options):
        ours = loader(sequence, workers, sizes=LENGTHS, fields={0: bl.Field(slot=bl.Slot((), fill_drawn))}, **options)
        ours.set_epoch(epoch)
        return dict(sorted((n, value) for x, y, *_ in ours for n, value in zip(y.tolist(), x.tolist(), strict=True)))

    first = filled(0, threads=1, batch_size=5)
    assert first == filled(0, threads=3, batch_size=16, shuffle=True)
    assert len(set(first.values())) > 50
    assert first != filled(1, threads=1, batch_size=5)


def test_another_bit_generator_is_seeded_for_each_sample(workers):
    def numbers(**options):
        return sorted(tuple(row.tolist()) for batch in loader(of_another, workers, **options) for row in batch)

    found = numbers(threads=1, batch_size=5)
    assert found == numbers(threads=3, batch_size=16)
    assert len({row[1:] for row in found}) == 60


def test_an_item_that_cannot_be_made_again_is_left_out_of_the_error(workers):
    ours = bl.DataLoader(bl.MapDataset(Handles(), refuses, workers=workers), batch_size=4, num_threads=2)
    with refused(bl.SampleError, "sample 0", "no such handle") as caught:
        next(iter(ours))
    assert (caught.value.sample, caught.value.item) == (0, None)


def test_samples_of_thousands_of_arrays(workers):
    for first, batch in zip((0, 2), loader(many_arrays, workers, samples=4, batch_size=2), strict=True):
        assert [array[:, 0].tolist() for array in batch] == [[first + n, first + 1 + n] for n in range(3000)]


def test_a_default_timeout_of_sockets_changes_nothing(workers):
    socket.setdefaulttimeout(5)
    try:
        ours = loader(row, workers, batch_size=7)
        assert list(map(plain, ours)) == list(map(plain, loader(row, "threads", batch_size=7)))
        started = time.process_time()
        assert len(list(loader(rests, workers, samples=2, batch_size=1, threads=1))) == 2
        assert time.process_time() - started < 1, "a connection that does not block is asked all the time"
    finally:
        socket.setdefaulttimeout(None)


def test_processes_that_were_killed_in_a_pause_start_anew(workers):
    ours, expected = loader(row, workers, batch_size=7), list(map(plain, loader(row, "threads", batch_size=7)))
    for _ in range(3):
        assert list(map(plain, ours)) == expected
        for child in multiprocessing.active_children():
            child.kill()
            child.join()


def assert_no_processes():
    """Processes take a moment to end."""
    deadline = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not multiprocessing.active_children()


def test_processes_live_as_long_as_the_loader(workers):
    ours = loader(process, workers, batch_size=4)
    seen = {pid for _ in range(3) for batch in ours for pid in batch.tolist()}
    assert os.getpid() not in seen
    assert len(seen) <= 2
    del ours
    gc.collect()
    assert_no_processes()


def test_shared_generators_are_seeded_for_each_sample(workers):
    first, second = (
        {
            n: plain(dict(own=own, shared=shared))
            for batch in loader(drawn, workers, threads=t, batch_size=b)
            for own, shared, n in zip(batch["own"], batch["shared"], batch["number"].tolist(), strict=True)
        }
        for t, b in ((1, 5), (3, 16))
    )
    assert first == second
    assert len({tuple(shared) for _, shared in first.values()}) == 60
    threads = {
        n: own.tolist()
        for batch in loader(drawn, "threads", batch_size=9)
        for own, n in zip(batch["own"], batch["number"].tolist(), strict=True)
    }
    assert threads == {n: own for n, (own, _) in first.items()}


def test_an_error_comes_with_its_traceback(workers):
    ours, taken = loader(failing, workers, batch_size=4), []
    for _ in range(2):
        with refused(bl.SampleError, "13", "KeyError", "thirteen") as caught:
            taken.extend(ours)
        assert caught.value.sample == caught.value.item == 13
        assert 'raise KeyError("thirteen")' in "".join(caught.value.__notes__)
    assert len(taken) == 6


def test_skipped_samples_weigh_nothing(workers):
    ours = loader(failing, workers, batch_size=4, on_error="skip")
    x, weight = list(ours)[3]
    assert (x[:, 0].tolist(), weight.tolist()) == ([12, 0, 14, 15], [1, 0, 1, 1])
    assert [sample for sample, _ in ours.skipped] == [13]


def test_a_process_that_is_killed_is_an_error_that_names_the_sample(workers):
    def use():
        ours = loader(killed, workers, batch_size=4)
        for _ in range(2):
            taken = []
            with refused(bl.SampleError, "13", "9"):
                taken.extend(ours)
            assert len(taken) <= 3  # what the process had read ends with it

    use()
    gc.collect()
    assert_no_processes()  # no error holds the loader


def test_an_epoch_left_in_the_middle(workers):
    ours = loader(row, workers, batch_size=4)
    for taken in (1, 5):
        for _ in zip(range(taken), ours, strict=False):
            pass
    assert len(list(ours)) == 15
    again = pickle.loads(pickle.dumps(ours))
    assert list(map(plain, again)) == list(map(plain, ours))


def test_kept_batches_never_change(workers):
    ours = loader(row, workers, batch_size=4, shuffle=True)
    kept = [(batch, plain(batch)) for _ in range(3) for batch in ours]
    del ours
    gc.collect()
    assert all(plain(batch) == before for batch, before in kept)


def test_files_do_not_pile_up(workers):
    def files():
        return len(os.listdir("/proc/self/fd"))

    list(loader(row, workers, batch_size=4))
    gc.collect()
    before = files()
    for _ in range(2):
        list(loader(row, workers, batch_size=4))
        gc.collect()
    assert files() <= before


def test_functions_that_do_not_pickle(workers):
    with refused(bl.ArgumentError, "pickle", "threads"):
        bl.MapDataset(range(3), lambda number: number, workers=workers)


def test_exit_and_interrupts_in_the_middle(interpreter):
    code = """
        import os, signal, sys, threading, time
        import batchloom as bl

        def slow(number):
            time.sleep(0.2)
            return number

        loader = bl.DataLoader(bl.MapDataset(range(1000), slow), batch_size=100, num_threads=2)
        batches = iter(loader)
        if sys.argv[1] == "interrupt":
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                next(batches)
            except KeyboardInterrupt:
                print("interrupted")
        else:
            threading.Thread(target=lambda: next(batches), daemon=True).start()
            time.sleep(0.3)
            print("exit")
    """
    for way, word in (("interrupt", "interrupted"), ("exit", "exit")):
        before = time.monotonic()
        assert interpreter(code, way).strip() == word
        assert time.monotonic() - before < 20


def test_processes_end_by_themselves_and_leave_no_lock_behind(interpreter):
    code = """
        import batchloom as bl
        from oracles.samples import hold_lock

        import os

        for workers in ("processes", *["fork"][: hasattr(os, "fork")]):
            loader = bl.DataLoader(bl.MapDataset(range(20), hold_lock, workers=workers), batch_size=5, num_threads=2)
            print(sum(len(batch) for batch in loader))
    """
    assert set(interpreter(code).split()) == {"20"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, processes are spawned")
def test_processes_of_all_loaders_are_forked_by_one_server():
    found = {int(value) for _ in range(2) for (batch,) in [list(loader(parent, "processes", 10, batch_size=10))]
             for value in batch}  # fmt: skip
    assert len(found) == 1
    assert found != {os.getpid()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot fork here")
def test_forked_processes_have_what_was_imported_and_set_here(monkeypatch):
    monkeypatch.setenv("BATCHLOOM_SET_LATE", "seen")
    ours = loader(parent, "fork", 10, batch_size=10)
    assert {int(value) for (batch,) in [list(ours)] for value in batch} == {os.getpid()}
    assert [
        set(*batch) if isinstance(batch, tuple) else set(batch)
        for batch in loader(late_variable, "fork", 4, batch_size=2)
    ] == [{"seen"}] * 2


def test_torch_computes_with_one_thread_in_each_process(workers):
    threads = loader(torch_threads, workers, 40, batch_size=4)
    list(threads)  # a server that was started without torch has none before
    assert [batch.tolist() for batch in threads] == [[1] * 4] * 10


def test_a_forked_process_starts_processes_of_its_own(script):
    script(
        """
        import os
        import batchloom as bl
        from oracles.samples import row

        if __name__ == "__main__":
            def read():
                loader = bl.DataLoader(bl.MapDataset(range(20), row, workers="processes"), 5, num_threads=1)
                return [[array.tolist() for array in (batch.values() if isinstance(batch, dict) else batch)]
                        for batch in loader]

            expected = read()
            process = os.fork()
            if process == 0:
                os._exit(0 if read() == expected else 1)
            _, status = os.waitpid(process, 0)
            assert status == 0, status
            assert read() == expected
        """
    )
