"""Processes that read samples: for functions that are bound by the interpreter.

Each process has a connection, and answers its requests one after the other. Arrays do not travel: a process writes
them into the slots of a block, which lies in memory that both map. Only requests, layouts and errors are pickled.
"""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import select
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, reduction
from typing import Any

import numpy
from batchloom.dataset.sample_answers import CALLED_OFF, SAMPLE, pickled, status_of, work
from batchloom.dataset.sample_reader import SampleReader
from batchloom.dataset.sample_structure import Structure
from batchloom.errors import ArgumentError, LoaderError, SampleError

Layout = tuple[Structure, list[tuple[str, list[int]]]]

# The time, in milliseconds, after which a wait for a process looks whether the iteration has stopped.
PATIENCE = 50

# The time, in seconds, that a function may go on when its sample is of no use any more.
GRACE = 5.0


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
    """The processes of one loader. They start with the first request, and end with the loader.

    Args:
        reader: Reads samples; it is pickled once for each process.
        count: The number of processes.
    """

    def __init__(self, reader: SampleReader, count: int) -> None:
        self._reader, self._count = reader, count
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._workers: list[Worker] = []
        self._free = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._segments: dict[int, tuple[int, Segment]] = {}
        self._numbers = itertools.count()

    def allocate(self, size: int) -> Any:
        """Return memory for a block, as an array of bytes."""
        segment = Segment(size)
        array = numpy.frombuffer(segment.memory, numpy.uint8)
        address = array.__array_interface__["data"][0]
        self._segments[address] = (next(self._numbers), segment)
        weakref.finalize(array, _forget, self._segments, address, segment)
        return array

    def _find(self, address: int) -> tuple[int, int, Segment] | None:
        """Return the number of the segment that an address lies in, the offset, and the segment, if there is one."""
        # A list of its own: a segment may go at any time.
        for start, (number, segment) in list(self._segments.items()):
            if start <= address < start + segment.size:
                return number, address - start, segment
        return None

    def _place(self, address: int) -> tuple[int, int, Segment]:
        """Return the place of an address that lies in a segment."""
        found = self._find(address)
        if found is None:
            raise LoaderError("a block lies in no memory that processes share; please report this")
        return found

    @contextmanager
    def _worker(self) -> Iterator[Worker]:
        """Lend a process that is free; start it if need be."""
        if self._process != os.getpid():
            self._reset()
        with self._lock:
            if not self._workers:
                self._workers = [Worker(self._reader) for _ in range(self._count)]
                for _ in self._workers:
                    self._free.release()
        self._free.acquire()
        with self._lock:
            worker = next(worker for worker in self._workers if not worker.is_lent)
            worker.is_lent = True
        try:
            yield worker
        finally:
            with self._lock:
                worker.is_lent = False
            self._free.release()

    def structure(self, text: str) -> Structure:
        """Return the structure that a text stands for."""
        return self._reader.structures.of_text(text)

    def _outcome(self, found: Any) -> Any:
        """Return an outcome of a process with structures and errors as this process knows them."""
        if isinstance(found, tuple) and isinstance(found[0], Structure):
            return self._reader.structures.add(found[0]), found[1]
        return found

    def read(self, numbers: list[int], seed: int, epoch: int, stop: Any) -> tuple[Handle, list[Any]]:
        """Let a process read samples and hold them; return a handle, and the layout or the error of each."""
        with self._worker() as worker:
            part, found = worker.ask(("read", numbers, seed, epoch), stop)
            return Handle(worker, part, worker.starts), [self._outcome(outcome) for outcome in found]

    def fill(
        self,
        fields: list[tuple[str, list[int]]],
        text: str,
        numbers: list[int],
        seed: int,
        epoch: int,
        memory: list[tuple[int, int]],
        stop: Any,
    ) -> list[Any] | None:
        """Let a process read samples into their slots; return as ``SampleReader.fill`` does."""
        with self._worker() as worker:
            places = [worker.sent(*self._place(address), length) for address, length in memory]
            request = ("fill", self.structure(text), fields, places, numbers, seed, epoch)
            outcomes = worker.ask(request, stop)
            return None if outcomes is None else [self._outcome(outcome) for outcome in outcomes]

    def write(
        self, handle: Handle, field: int, places: list[Any], writer: str, concatenates: bool, memory: tuple[int, int]
    ) -> Any:
        """Let the process that holds samples write one field of them into slots.

        Return an array of their bytes, if they lie in memory that processes do not share.
        """
        worker, (address, length) = handle.worker, memory
        place = self._find(address)
        shared = None
        if place is None:
            # What is converted afterwards is written to memory of a thread, which processes do not share.
            shared = self.allocate(length)
            place = self._place(shared.__array_interface__["data"][0])
        request = ("write", handle.part, field, places, writer, concatenates, worker.sent(*place, length))
        worker.ask(request, None, handle.starts)
        return shared

    def close(self) -> None:
        """End the processes."""
        if self._process == os.getpid():
            for worker in self._workers:
                worker.close()
        self._workers = []

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()


def _forget(segments: dict[int, tuple[int, Segment]], address: int, segment: Segment) -> None:
    segments.pop(address, None)
    with suppress(OSError):
        segment.close()


class Handle:
    """Samples that a process holds, until this is gone.

    Attributes:
        worker: The process.
        part: The number of the samples there.
        starts: The number of times that it had been started when it read them.
    """

    def __init__(self, worker: Worker, part: int, starts: int) -> None:
        self.worker, self.part, self.starts = worker, part, starts

    def __del__(self) -> None:
        if self.starts == self.worker.starts:
            self.worker.done.append(self.part)


class Worker:
    """One process, and the connection to it."""

    def __init__(self, reader: SampleReader) -> None:
        self._reader = reader
        self.is_lent, self.starts = False, 0
        # Why the process ended, as the arguments of an error: one that was raised would hold what its traceback sees.
        self._end: tuple[str, int] | None = None
        self.done: deque[int] = deque()
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self.starts += 1
        context = get_context("spawn")
        status = Segment(mmap.PAGESIZE)
        self._status = status_of(status.memory)
        self._known: dict[int, weakref.ref[Segment]] = {}
        self.done.clear()
        self._connection, other = context.Pipe()
        self._process = context.Process(target=work, args=(other,), name="batchloom", daemon=True)
        try:
            self._process.start()
            other.close()
            self._connection.send_bytes(pickled(self._reader))
            reduction.send_handle(self._connection, status.file, self._process.pid)
            # Made once: the connection's own poll makes another each time.
            self._answers = select.poll()
            self._answers.register(self._connection.fileno(), select.POLLIN)
        except BaseException:
            self.close()
            raise
        finally:
            status.close()

    def sent(self, number: int, offset: int, segment: Segment, length: int) -> tuple[int, int, int]:
        """Return the place of some memory for a request; send the segment that it lies in, the first time."""
        with self._lock:
            if number not in self._known:
                self._require_alive()
                gone = [known for known, place in self._known.items() if place() is None]
                for known in gone:
                    del self._known[known]
                self._connection.send_bytes(pickled(("segment", number, segment.size, gone)))
                reduction.send_handle(self._connection, segment.file, self._process.pid)
                self._known[number] = weakref.ref(segment)
        return number, offset, length

    def _require_alive(self) -> None:
        """Start the process again if it has ended."""
        if not self._process.is_alive():
            self._end = self._ended()
            self.close()
            self._start()

    def ask(self, request: tuple[Any, ...], stop: Any, starts: int | None = None) -> Any:
        """Return the answer to a request.

        Args:
            request: The request.
            stop: Becomes true if the answer is of no use any more.
            starts: The number of times that the process had been started when it read samples that the request is
                about; ``None`` if it is about no such samples.

        Raises:
            SampleError: The process ended.
        """
        with self._lock:
            if starts not in (None, self.starts) and self._end is not None:
                raise SampleError(*self._end)
            done = [self.done.popleft() for _ in range(len(self.done))]
            try:
                self._status[SAMPLE], self._status[CALLED_OFF] = -1, 0
                self._connection.send_bytes(pickle.dumps((*request, done)))
                called_off = None
                while not self._answers.poll(PATIENCE):
                    if stop:
                        self._status[CALLED_OFF] = 1
                        called_off = called_off or time.monotonic()
                        if time.monotonic() > called_off + GRACE:
                            raise EOFError
                    if not self._process.is_alive() and not self._connection.poll(0):
                        raise EOFError
                answer = reduction.ForkingPickler.loads(self._connection.recv_bytes())
            except (EOFError, OSError) as error:
                self._process.join(0 if stop else 1)
                self._process.kill()  # nothing may write to a block from here on
                self._process.join(5)
                self._require_alive()
                raise SampleError(*(self._end or self._ended())) from error
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _ended(self) -> tuple[str, int]:
        """Return the message for a process that has ended, and the sample that it read."""
        number = self._status[SAMPLE]
        code = self._process.exitcode
        how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
        named = f"sample {number}" if number >= 0 else "a batch"
        message = (
            f"process {self._process.pid} ended {how} while it read {named}; look for a crash in the function, or for "
            "the system's out-of-memory killer"
        )
        return message, number

    def close(self) -> None:
        """End the process."""
        with suppress(Exception):
            self._connection.close()
        with suppress(Exception):
            self._process.terminate()
            self._process.join(5)


def require_picklable(reader: SampleReader) -> None:
    """Raise if the items or the function of a reader cannot go to another process.

    Raises:
        ArgumentError: They do not pickle.
    """
    try:
        pickled(reader)
    except Exception as error:
        raise ArgumentError(
            f'workers is "processes", and the items or a function do not pickle: {type(error).__name__}: {error}; '
            'expected a function at the top level of a module (no lambda), or workers="threads"'
        ) from error
