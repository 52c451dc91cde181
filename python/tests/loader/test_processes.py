"""Forks, signals, exits, workers of others: nothing hangs, nothing leaks, nothing aborts."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import batchloom as bl
import pytest
import torch
from oracles.runs import Run, listed

# Rows that take their time: one value for all, gathered element by element. Nothing of it is in memory but batches.
SLOW = """
    import os
    import sys
    import time
    import numpy
    import batchloom as bl

    def slow(rows, batch_size, threads=2, prefetch=None):
        values = numpy.broadcast_to(numpy.zeros((1, 1), numpy.uint8), (rows, 1_000_000))
        return bl.DataLoader(bl.TensorDataset(values), batch_size, num_threads=threads, prefetch=prefetch)

    def workers(wait=True):
        for _ in range(200):
            names = []
            for task in os.listdir("/proc/self/task"):
                try:
                    names.append(open(f"/proc/self/task/{task}/comm").read())
                except OSError:
                    pass
            found = sum(name.startswith("batchloom") for name in names)
            if not found or not wait:
                break
            time.sleep(0.01)
        return found
"""


def joined(*parts):
    return "\n".join(textwrap.dedent(part) for part in parts)


# Forks

FORK = """
    import os
    import sys
    import threading
    import numpy
    import batchloom as bl

    X = numpy.arange(20_000 * 100, dtype=numpy.int32).reshape(20_000, 100)
    taken, prefetch = map(int, sys.argv[1:])
    loader = bl.DataLoader(bl.TensorDataset(X), 8, shuffle=True, num_threads=3, prefetch=prefetch)

    def whole(epoch):
        count = 0
        for samples, (batch,) in zip(loader.plan(epoch), loader, strict=True):
            assert numpy.array_equal(batch, X[samples])
            count += len(batch)
        assert count == len(X)

    def refused(batches):
        for _ in range(2):
            try:
                next(batches)
            except bl.LoaderError as error:
                assert str(os.getpid()) in str(error), error
                assert str(os.getppid()) in str(error), error
            else:
                raise AssertionError("the child got a batch")

    def child(batches, held):
        refused(batches)
        assert numpy.array_equal(held[0], X[loader.plan(0)[0]])
        held[0][:] = -1
        del held
        whole(1)
        del batches
        whole(2)
        assert threading.active_count() == 1

    batches = iter(loader)
    held = next(batches)
    for _ in range(taken - 1):
        next(batches)
    for _ in range(3):
        process = os.fork()
        if process == 0:
            code = 1
            try:
                child(batches, held)
                code = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(process, 0)
        assert status == 0, status
        # The parent goes on as if nothing had been.
        assert numpy.array_equal(held[0], X[loader.plan(0)[0]])
        assert numpy.array_equal(next(batches)[0], X[loader.plan(0)[taken]])
        taken += 1
    assert len(list(batches)) == len(loader) - taken
    whole(1)
"""


@pytest.mark.parametrize(("taken", "prefetch"), [(1, 2), (300, 2), (300, 0), (2400, 2), (2400, 0)])
def test_a_fork_in_mid_iteration(script, taken, prefetch):
    script(FORK, taken, prefetch)


def test_a_fork_before_iteration_and_a_fork_of_a_fork(script):
    script(
        """
        import os
        import numpy
        import batchloom as bl

        loader = bl.DataLoader(bl.TensorDataset(numpy.arange(10_000)), 8, shuffle=True)
        expected = [batch.tolist() for batch in loader.plan(0)]

        def descend(depth):
            assert [batch.tolist() for (batch,) in loader] == expected
            loader.set_epoch(0)
            if depth:
                process = os.fork()
                if process == 0:
                    try:
                        descend(depth - 1)
                    except BaseException:
                        os._exit(1)
                    os._exit(0)
                assert os.waitpid(process, 0)[1] == 0

        descend(3)
        """
    )


def test_an_iterator_that_had_ended_before_a_fork_stays_ended(script):
    script(
        """
        import os
        import numpy
        import batchloom as bl

        batches = iter(bl.DataLoader(bl.TensorDataset(numpy.arange(10)), 5))
        assert len(list(batches)) == 2
        process = os.fork()
        if process == 0:
            try:
                code = next(batches, 0)
            except bl.LoaderError as error:
                print(error, flush=True)
                code = 1
            os._exit(code)
        assert os.waitpid(process, 0)[1] == 0
        """
    )


def test_a_forked_child_may_exit_as_python_does(interpreter):
    out = interpreter(
        """
        import os
        import sys
        import numpy
        import batchloom as bl

        batches = iter(bl.DataLoader(bl.TensorDataset(numpy.zeros((50_000, 300))), 8))
        held = [next(batches), next(batches)]
        for _ in range(5):
            process = os.fork()
            if process == 0:
                sys.exit(0)
            assert os.waitpid(process, 0)[1] == 0
        print(len(list(batches)))
        """
    )
    assert out.split() == [str(50_000 // 8 - 2)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(script, tmp_path, method):
    path = tmp_path / "child.py"
    path.write_text(
        textwrap.dedent(
            """
            import multiprocessing
            import sys
            import numpy
            import batchloom as bl

            def total(dataset, state):
                loader = bl.DataLoader(dataset, 7, shuffle=True)
                loader.load_state_dict(state)
                return sum(int(batch.sum()) for (batch,) in loader)

            if __name__ == "__main__":
                loader = bl.DataLoader(bl.TensorDataset(numpy.arange(1000)), 7, shuffle=True)
                batches = iter(loader)
                first = int(next(batches)[0].sum())
                with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
                    given = [(loader.dataset, loader.state_dict())] * 4
                    totals = pool.starmap(total, given)
                assert totals == [999 * 500 - first] * 4, totals
                assert sum(int(batch.sum()) for (batch,) in batches) == totals[0]
            """
        )
    )
    subprocess.run([sys.executable, str(path), method], check=True, timeout=60)


# Workers of torch


class Stream(torch.utils.data.IterableDataset):
    """Each worker is a rank."""

    def __init__(self, run):
        self.run = run

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        loader = self.run.loader(worker.num_workers, worker.id)
        before = len(os.listdir("/proc/self/task"))
        batches = iter(loader)
        assert len(os.listdir("/proc/self/task")) <= before + 1
        yield from listed(batches)


# JAX, once imported, warns of every fork.
@pytest.mark.filterwarnings("ignore:os.fork")
def test_inside_a_worker_of_torch():
    run = Run(40_000, 13, uneven="short")
    loader = torch.utils.data.DataLoader(Stream(run), batch_size=None, num_workers=2)
    # Workers deliver in turn, so batches come as steps.
    assert list(loader) == run.batches(0)


class Shared(torch.utils.data.IterableDataset):
    """A loader that was made, and begun, before the workers were forked."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        yield from listed(self.loader)


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_loader_that_a_worker_of_torch_inherited():
    run = Run(10_000, 13)
    loader = run.loader()
    live = iter(loader)
    next(live)
    forked = {"num_workers": 1, "multiprocessing_context": "fork"}
    received = list(torch.utils.data.DataLoader(Shared(loader), batch_size=None, **forked))
    assert received == run.seen(1)
    assert listed(live) == run.seen(0)[1:]


# Ctrl-C


def interrupted(code, *arguments, after=0.5):
    """Start a script, wait for it to say "ready", send SIGINT; return its exit code, output and how long it took."""
    command = [sys.executable, "-c", joined(SLOW, code), *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes)
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        time.sleep(after)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err, time.monotonic() - begun
    finally:
        process.kill()


WAITING = """
    batches = iter(slow(4000, 4000, prefetch=int(sys.argv[1])))
    print("ready", flush=True)
    try:
        next(batches)
    except KeyboardInterrupt:
        working = workers()
        batches.close()
        print("interrupted", working > 0, workers(), next(batches, "end"))
    raise KeyboardInterrupt
"""

CONSUMING = """
    for number, _ in enumerate(slow(4000, 4, threads=int(sys.argv[1]))):
        if number == 0:
            print("ready", flush=True)
        time.sleep(0.05)
"""

LISTING = """
    print("ready", flush=True)
    small = bl.DataLoader(bl.TensorDataset(numpy.arange(100_000)), 1)
    while True:
        list(small)
"""


@pytest.mark.parametrize("prefetch", [0, 1])
def test_control_c_while_waiting_for_a_block(prefetch):
    code, out, err, seconds = interrupted(WAITING, prefetch)
    assert out == "interrupted True 0 end\n"
    assert code == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err
    assert seconds < 3


@pytest.mark.parametrize("threads", [1, 4])
def test_control_c_in_a_slow_consumer(threads):
    code, _, err, seconds = interrupted(CONSUMING, threads)
    assert code == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err
    assert seconds < 3


def test_control_c_in_a_list_of_batches():
    code, _, err, seconds = interrupted(LISTING)
    assert code == -signal.SIGINT, err
    assert seconds < 3


def test_a_run_goes_on_after_control_c(script):
    script(
        joined(
            SLOW,
            """
            import signal

            loader = slow(2000, 1000)
            def interrupt(*_):
                raise KeyboardInterrupt
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                for _ in loader:
                    raise AssertionError("too quick for this test")
            except KeyboardInterrupt:
                pass
            # Its worker has parked.
            begun = time.process_time()
            time.sleep(0.2)
            assert time.process_time() - begun < 0.1
            state = loader.state_dict()
            assert (state["epoch"], state["batches"]) == (0, 0), state
            loader.load_state_dict(state)
            assert len(loader) == 2
            """,
        )
    )


# Exits

EXITS = {
    "a live iterator": "batches = iter(loader)\nnext(batches)",
    "an iterator that nobody asked": "batches = iter(loader)",
    "a loop that is left": "for batch in loader:\n    break",
    "a loop inside a function": "def loop():\n    for batch in loader:\n        sys.exit(0)\nloop()",
    "batches only": "held = list(itertools.islice(loader, 50))\ndel loader",
    "a thread that iterates": "run = threading.Thread(target=forever, daemon=True)\nrun.start()\ntime.sleep(0.1)",
    "a thread that waits": "run = threading.Thread(target=wait, daemon=True)\nrun.start()\ntime.sleep(0.1)",
    "a module that keeps all": "sys.kept = [loader, iter(loader), next(iter(loader))]",
    "a cycle": "dataset.batches = iter(loader)\nnext(dataset.batches)\ndel loader",
}

EXIT = """
    import itertools
    import sys
    import threading
    import time
    import numpy
    import batchloom as bl

    dataset = bl.TensorDataset(numpy.zeros((20_000, 500)), numpy.arange(20_000))
    loader = bl.DataLoader(dataset, 16, shuffle=True, num_threads=3)

    def forever():
        while True:
            for _ in loader:
                pass

    def wait():
        values = numpy.broadcast_to(numpy.zeros((1, 1), numpy.uint8), (4000, 1_000_000))
        for _ in bl.DataLoader(bl.TensorDataset(values), 2000):
            pass
"""


@pytest.mark.parametrize("case", EXITS)
def test_the_interpreter_exits_in_mid_epoch(interpreter, case):
    for _ in range(10 if case == "a live iterator" else 3):
        interpreter(joined(EXIT, EXITS[case]))


def test_the_interpreter_exits_in_mid_epoch_with_torch(interpreter):
    for _ in range(2):
        interpreter(
            """
            import torch
            import batchloom as bl

            loader = bl.DataLoader(bl.TensorDataset(torch.zeros(20_000, 500)), 16, shuffle=True)
            batches = iter(loader)
            held = [next(batches) for _ in range(100)]
            """
        )


def test_an_exception_that_nobody_catches():
    code = joined(EXIT, "for batch in loader:\n    raise KeyError('mine')")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("KeyError: 'mine'")


# The machine says no

POOR = """
    import resource
    import sys
    import numpy
    import batchloom as bl

    def allow(more):
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))

    def allow_all():
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize(
    "count", ["len(later)", "later.stats()", "later.report('/dev/null')", "loader.set_epoch(1) or len(loader)"]
)
def test_counting_the_steps_of_an_epoch_without_memory_is_an_error(script, count):
    script(
        joined(
            POOR,
            """
            offsets = numpy.arange(3_000_001) * 2 - numpy.arange(3_000_001) // 2
            tokens = numpy.zeros(offsets[-1], numpy.uint8)
            rule = bl.TokenBudget(4096, pool="all")
            loader = bl.DataLoader(bl.SequenceDataset(x=(tokens, offsets)), batching=rule, shuffle=True)
            later = loader.plan().at_epoch(1)
            steps = len(loader)
            allow(8 * 2**20)
            try:
                COUNT
            except bl.OutOfMemoryError as error:
                assert "memory" in str(error), error
            else:
                raise AssertionError("3 000 000 samples were cut in 8 MB")
            allow_all()
            COUNT
            assert steps > 1000
            """.replace("COUNT", count),
        )
    )


def test_threads_that_cannot_start_are_an_error_and_cost_no_epoch(script):
    script(
        joined(
            POOR,
            """
            # More than one small block, which would be formed without a thread.
            loader = bl.DataLoader(bl.TensorDataset(numpy.zeros((100, 10_000))), 10, shuffle=True, num_threads=64)
            before = loader.state_dict(), loader.plan()
            allow(20 * 2**20)
            try:
                next(iter(loader))
            except bl.LoaderError as error:
                assert "thread" in str(error)
            else:
                raise AssertionError("64 threads in 20 MB")
            allow_all()
            assert (loader.state_dict(), loader.plan()) == before, loader.plan()
            assert len(list(loader)) == 10
            """,
        )
    )


def test_memory_that_is_not_there_is_an_error(script):
    script(
        joined(
            POOR,
            """
            values = numpy.broadcast_to(numpy.zeros((1, 1), numpy.uint8), (1000, 1_000_000))
            loader = bl.DataLoader(bl.TensorDataset(values), 500)
            allow(100 * 2**20)
            batches = iter(loader)
            try:
                next(batches)
            except bl.LoaderError as error:
                assert "500000000 bytes" in str(error), error
            else:
                raise AssertionError("500 MB in 100 MB")
            assert next(batches, "end") == "end"
            state = loader.state_dict()
            assert (state["epoch"], state["batches"]) == (0, 0)
            """,
        )
    )


def test_closing_does_not_wait_for_the_block(script):
    script(
        joined(
            SLOW,
            """
            batches = iter(slow(8000, 4000))
            time.sleep(0.2)
            begun = time.monotonic()
            del batches
            assert time.monotonic() - begun < 1
            """,
        )
    )


def test_what_is_closed_is_at_its_end():
    loader = Run(100, 3).loader()
    batches = iter(loader)
    next(batches)
    batches.close()
    assert next(batches, "end") == "end"
    batches.close()
    assert (loader.state_dict()["epoch"], loader.state_dict()["batches"]) == (0, 1)
    assert isinstance(loader, bl.DataLoader)
