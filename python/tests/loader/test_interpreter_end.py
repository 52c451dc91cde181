"""The end of the interpreter, while threads of the engine visit it: nothing hangs, nothing aborts."""

import time

import pytest

COLLECTED = """
    import gc
    import sys
    import time
    import batchloom as bl
    import torch
    from batchloom.device.transfer import Transfer

    gc.disable()
    allocate, asked, dropped, trainers = Transfer.allocate, [], [], []

    class Trainer:
        def __init__(self, batches):
            self.batches, self.cycle = batches, self

    def collecting(self, size):
        asked.append(size)
        while len(asked) > 1 and not trainers and not dropped:
            time.sleep(0.001)  # until the iterator is garbage
        if trainers and not dropped:
            trainers.clear()
            dropped.append(gc.collect())
            time.sleep(0.2)
        return allocate(self, size)

    Transfer.allocate = collecting
    for threads in (1, 3):
        for resident in (True, False):
            dropped.clear()
            loader = bl.DataLoader(
                bl.TensorDataset(torch.zeros(4_000_000, 4)), 64, resident=resident, num_threads=threads, prefetch=8
            )
            asked.clear()
            batches = iter(loader)
            next(batches)
            trainers.append(Trainer(batches))
            del batches
            while not dropped:
                pass
            assert dropped[0]
            if len(sys.argv) > 1:
                sys.exit()
            assert len(list(loader)) == 62_500
    print("done")
"""


def test_garbage_that_is_collected_while_memory_is_asked_for(interpreter):
    """The iterator itself may be garbage: then its own worker drops it, also while the process ends."""
    assert interpreter(COLLECTED).strip() == "done"
    assert interpreter(COLLECTED, "at the end") == ""


def test_threads_that_outlive_the_interpreter_leave_it_alone(interpreter):
    """Here another thread ends it, so that this one is such a thread."""
    interpreter(
        """
        import threading
        import weakref

        import batchloom as bl
        import numpy
        import torch

        class Rows(numpy.ndarray):
            pass

        def dataset():
            rows = numpy.zeros((100, 4)).view(Rows)
            gone = weakref.ref(rows)
            return bl.TensorDataset(rows), gone

        before, gone_before = dataset()
        after, gone_after = dataset()
        del before
        assert gone_before() is None
        loader = bl.DataLoader(bl.TensorDataset(torch.zeros(1_000_000, 4)), 64, resident=False)
        ending = threading.Thread(target=bl._native.settle)
        ending.start()
        ending.join()
        del after
        assert gone_after() is not None
        try:
            list(loader)
        except bl.LoaderError as error:
            assert "the interpreter is ending" in str(error), error
        else:
            raise AssertionError("workers asked for memory at the end")
        """
    )


def test_a_process_ends_with_iterations_under_way_and_says_nothing(interpreter):
    """Globals of modules are gone by the time that a generator is closed."""
    interpreter(
        """
        import batchloom as bl
        import torch

        loaders = [bl.DataLoader(bl.TensorDataset(torch.zeros(100)), 10) for _ in range(4)]
        steps, (_, batches), rows = loaders[0].steps(None), next(loaders[1].epochs(3)), iter(loaders[2])
        both = iter(bl.interleave({"a": loaders[3]}))
        next(steps), next(batches), next(rows), next(both)
        """
    )


def test_a_process_ends_while_daemon_threads_iterate(interpreter):
    """A thread that returns to an interpreter that has ended is ended on the spot: one process in eight aborted."""
    for _ in range(6):
        interpreter(
            """
            import threading
            import time
            import numpy
            import batchloom as bl

            dataset = bl.TensorDataset(numpy.zeros((20_000, 500)), numpy.arange(20_000))

            def forever():
                while True:
                    for _ in bl.DataLoader(dataset, 16, num_threads=1):
                        pass

            for _ in range(5):
                threading.Thread(target=forever, daemon=True).start()
            time.sleep(0.05)
            """
        )


@pytest.mark.parametrize("resident", [True, False])
def test_a_process_ends_with_an_iteration_on_a_device_under_way(interpreter, resident):
    """Its workers may be about to ask the interpreter for memory. Twice: without care, two in three hung."""
    for _ in range(2):
        interpreter(
            """
            import sys

            import batchloom as bl
            import torch

            rows = torch.randn(1_000_000, 2)
            loader = bl.DataLoader(bl.TensorDataset(rows), 64, shuffle=True, resident=sys.argv[1] == "True")
            batches = iter(loader)
            next(batches)
            """,
            resident,
        )


def test_the_end_waits_for_functions_in_threads_but_not_for_ever(interpreter):
    """A function that goes on for longer than ten seconds is left behind; with torch, its return ended in an abort."""
    started = time.monotonic()
    interpreter(
        """
        import time

        import batchloom as bl
        import numpy
        import torch

        def function(number):
            time.sleep(100 if number > 3 else 0)
            return numpy.full(3, number)

        loader = bl.DataLoader(bl.MapDataset(range(400), function), batch_size=4, num_threads=3)
        batches = iter(loader)
        next(batches)
        """
    )
    assert time.monotonic() - started < 60
