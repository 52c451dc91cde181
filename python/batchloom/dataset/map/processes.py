"""Processes that read samples: for functions that are bound by the interpreter.

Threads of the engine call them without the interpreter (``python/src/dataset/processes.rs``). Here they are started,
told of what is not a number, and ended. Arrays do not travel: a process writes them into the slots of a block, which
lies in memory that both map. Only layouts and errors are pickled.
"""

from __future__ import annotations

import atexit
import itertools
import mmap
import os
import socket
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context, reduction
from multiprocessing.connection import Connection
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from multiprocessing.forkserver import ensure_running
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.dataset.map.libraries import find_libraries
from batchloom.dataset.map.reader import SampleReader
from batchloom.dataset.map.worker import CALLED_OFF, LAYOUT, SAMPLE, SEGMENT, pickle_value, status_of, work
from batchloom.errors import ArgumentError

# Modules that take long to import, which most functions use: the server of processes imports those that are here too.
SHARED = ("numpy", "torch", "batchloom.dataset.map.worker")

# Seconds in which processes end by themselves, before they are ended by a signal.
PATIENCE = 0.5

# The process that has the server. One that was forked from it cannot ask that server for processes.
_PROCESS = os.getpid()


def choose_context(workers: str, libraries: Sequence[str] = ()) -> ForkContext | ForkServerContext | SpawnContext:
    """Return the way in which processes start.

    With ``workers="fork"``, this process forks itself. Otherwise, on Linux a server, which all loaders share, imports
    :data:`SHARED` and the libraries of the first loader once, and forks itself: it has no thread, and a process is
    there in milliseconds. Elsewhere, and in a forked process, each process begins as a new interpreter.
    """
    if workers == "fork":
        return get_context("fork")
    if sys.platform != "linux" or os.getpid() != _PROCESS:
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([*(name for name in SHARED if name in sys.modules), *libraries])
    return context


class Segment:
    """Memory that processes map: the blocks of a loader."""

    def __init__(self, size: int) -> None:
        if hasattr(os, "memfd_create"):
            self.file = os.memfd_create("batchloom")
        else:
            with tempfile.TemporaryFile() as file:
                self.file = os.dup(file.fileno())
        os.ftruncate(self.file, size)
        self.memory = mmap.mmap(self.file, size)
        self.size = size

    def close(self) -> None:
        """Close the file. The memory lasts as long as something views it."""
        os.close(self.file)


class SampleProcesses:
    """The processes of one loader. They start with the first requests, and end with the loader.

    Args:
        reader: Reads samples; it is pickled once for each process.
        count: The number of processes.
        workers: The way in which they start, ``"processes"`` or ``"fork"``.

    Attributes:
        lines: The way of the engine to them.
    """

    def __init__(self, reader: SampleReader, count: int, workers: str) -> None:
        self._reader = reader
        self._starter = Starter(reader, workers)
        self._numbers = itertools.count()
        self.lines = _native.Processes(self._starter, count)

    def allocate(self, size: int) -> Any:
        """Return memory for a block, as an array of bytes."""
        segment, number = Segment(size), next(self._numbers)
        array = numpy.frombuffer(segment.memory, numpy.uint8)
        address = array.__array_interface__["data"][0]
        self._starter.segments[number] = segment
        self.lines.add_segment(number, address, size)
        weakref.finalize(array, _forget, self._starter.segments, self.lines, number, address)
        return array

    def answer(self, data: bytes) -> Any:
        """Return the answer of a process, with the structures of samples as this process knows them.

        Raises:
            SampleError: The answer is an error.
            LoaderError: The answer is an error.
            ArgumentError: An argument of the loader names a field that is not there.
        """
        answer = reduction.ForkingPickler.loads(data)
        if isinstance(answer, BaseException):
            raise answer
        number, (outcomes, table) = answer if isinstance(answer[0], int) else (None, answer)
        known = None if outcomes is None else [self._outcome(outcome) for outcome in outcomes]
        return (known, table) if number is None else (number, (known, table))

    def _outcome(self, outcome: Any) -> Any:
        if isinstance(outcome, tuple):
            structure, fields = outcome
            self._reader.require_named(structure, (dtype for dtype, _ in fields))
            return self._reader.structures.add(structure), fields
        return outcome

    def __del__(self) -> None:
        # At the end of the interpreter, names of this module may be gone: suppress is one of them.
        try:
            self._starter.close()
        except Exception:
            return


def _forget(segments: dict[int, Segment], lines: _native.Processes, number: int, address: int) -> None:
    lines.remove_segment(number, address)
    with suppress(KeyError, OSError):
        segments.pop(number).close()


class Starter:
    """Starts processes, and ends those that it has started in this process.

    Attributes:
        reader: The reader of samples there.
        segments: The memory that processes may map, by number.
        workers: The way in which they start.
    """

    def __init__(self, reader: SampleReader, workers: str) -> None:
        self.reader = reader
        self.workers = workers
        self.segments: dict[int, Segment] = {}
        self._process = os.getpid()
        self._workers: list[Worker] = []
        _starters.add(self)
        if isinstance(choose_context(workers, find_libraries(reader)), ForkServerContext):
            ensure_running()  # the server imports while the program goes on

    def __call__(self, ours: int, other: int) -> Worker:
        """Start a process, given the files of both ends of its connection; it takes the other end."""
        if self._process != os.getpid():
            self._process, self._workers = os.getpid(), []
        worker = Worker(self, ours, other)
        self._workers = [*(known for known in self._workers if known.is_alive()), worker]
        return worker

    def close(self) -> None:
        """End the processes, together."""
        if self._process == os.getpid():
            for worker in self._workers:
                worker.hang_up()
            end = time.monotonic() + PATIENCE
            for worker in self._workers:
                worker.close(max(0, end - time.monotonic()))


_starters: weakref.WeakSet[Starter] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End all processes before `multiprocessing` does so by signals, at the end of the interpreter."""
    for starter in list(_starters):
        starter.close()


class Worker:
    """One process."""

    def __init__(self, starter: Starter, ours: int, other: int) -> None:
        self._structures, self._segments = starter.reader.structures, starter.segments
        self._known: set[int] = set()
        self._connection, end = Connection(os.dup(ours)), Connection(other)
        status = Segment(mmap.PAGESIZE)
        self._status = status_of(status.memory)
        self._process = choose_context(starter.workers).Process(target=work, args=(end,), name="batchloom", daemon=True)
        try:
            self._process.start()
            end.close()
            self._connection.send_bytes(pickle_value(starter.reader))
            self._send_file(status.file)
        except BaseException:
            self.close()
            raise
        finally:
            status.close()

    def introduce_segment(self, number: int) -> list[int]:
        """Send a segment, and return the numbers of those that are gone. The engine does so between two requests."""
        segment = self._segments[number]
        gone = [known for known in self._known if known not in self._segments]
        self._known = {*self._known.difference(gone), number}
        # If the process has ended, the next request says so.
        with suppress(OSError):
            self._connection.send_bytes(SEGMENT + pickle_value((number, segment.size, gone)))
            self._send_file(segment.file)
        return gone

    def _send_file(self, file: int) -> None:
        reduction.send_handle(self._connection, file, self._process.pid)
        # With a default timeout of sockets, sending makes the connection one that does not block, for both its users.
        os.set_blocking(self._connection.fileno(), True)

    def layout_message(self, number: int, text: str, fields: list[tuple[str, list[int]]]) -> bytes:
        """Return the message of the structure that a text stands for, and of the types and shapes of arrays."""
        return LAYOUT + pickle_value((number, self._structures.of_text(text), fields))

    def look(self, is_called_off: bool) -> bool:
        """Return whether the process is alive; note that its request was called off."""
        if is_called_off:
            self._status[CALLED_OFF] = 1
        return self.is_alive()

    def is_alive(self) -> bool:
        """Return whether the process is alive."""
        return bool(self._process.is_alive())

    def end(self, is_patient: bool) -> tuple[str, int]:
        """End a process that does not answer; return the message for its end, and the sample that it read."""
        self._process.join(1 if is_patient else 0)
        self._process.kill()  # nothing may write to a block from here on
        self._process.join(5)
        number, code = self._status[SAMPLE], self._process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        named = f"sample {number}" if number >= 0 else "a batch"
        message = (
            f"process {self._process.pid} ended {how} while it read {named}; look for a crash in the function, or for "
            "the system's out-of-memory killer"
        )
        self.close()
        return message, number

    def hang_up(self) -> None:
        """End the connection for both its users: a process that waits for a request ends by itself."""
        with suppress(Exception), socket.socket(fileno=os.dup(self._connection.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)

    def close(self, patience: float = 0) -> None:
        """End the process: by a signal if it does not end by itself within some seconds.

        A process that ends by itself removes what libraries made there, such as semaphores.
        """
        self.hang_up()
        with suppress(Exception):
            self._connection.close()
        with suppress(Exception):
            self._process.join(patience)
            self._process.terminate()
            self._process.join(5)


def require_picklable(reader: SampleReader, workers: str) -> None:
    """Raise if the items or the function of a reader cannot go to another process.

    Raises:
        ArgumentError: They do not pickle.
    """
    try:
        pickle_value(reader)
    except Exception as error:
        raise ArgumentError(
            f'workers is "{workers}", and the items or a function do not pickle: {type(error).__name__}: {error}; '
            'expected a function at the top level of a module (no lambda), or workers="threads"'
        ) from error
