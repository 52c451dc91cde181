"""Processes that read samples: for functions that are bound by the interpreter.

Each process has a connection, and answers its requests one after the other. Arrays do not travel: a process writes
them into the slots of a block, which lies in memory that both map. Only requests, layouts and errors are pickled.
"""

from __future__ import annotations

import itertools
import mmap
import os
import random
import struct
import sys
import tempfile
import threading
import traceback
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context, reduction
from multiprocessing.connection import Connection
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.dataset.sample_reader import SampleReader
from batchloom.dataset.sample_structure import Structure
from batchloom.errors import ArgumentError, LoaderError, SampleError

Layout = tuple[Structure, list[tuple[str, list[int]]]]

# The number of the sample that a process reads, and whether its request was called off.
STATUS = struct.Struct("qq")

# The time, in seconds, after which a wait for a process looks whether the iteration has stopped.
PATIENCE = 0.05


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
    ) -> list[Any]:
        """Let a process read samples into their slots; return ``None`` for each, or its error or other layout."""
        with self._worker() as worker:
            places = [worker.sent(*self._place(address), length) for address, length in memory]
            request = ("fill", self.structure(text), fields, places, numbers, seed, epoch)
            return [self._outcome(outcome) for outcome in worker.ask(request, stop)]

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
        self._status = Segment(mmap.PAGESIZE)
        self._known: dict[int, weakref.ref[Segment]] = {}
        self.done.clear()
        self._connection, other = context.Pipe()
        self._process = context.Process(target=work, args=(other,), name="batchloom", daemon=True)
        try:
            self._process.start()
            other.close()
            self._connection.send_bytes(_pickled(self._reader))
            reduction.send_handle(self._connection, self._status.file, self._process.pid)
        except BaseException:
            self.close()
            raise

    def sent(self, number: int, offset: int, segment: Segment, length: int) -> tuple[int, int, int]:
        """Return the place of some memory for a request; send the segment that it lies in, the first time."""
        with self._lock:
            if number not in self._known:
                self._require_alive()
                gone = [known for known, place in self._known.items() if place() is None]
                for known in gone:
                    del self._known[known]
                self._connection.send_bytes(_pickled(("segment", number, segment.size, gone)))
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
                STATUS.pack_into(self._status.memory, 0, -1, 0)
                self._connection.send_bytes(_pickled((*request, done)))
                while not self._connection.poll(PATIENCE):
                    if stop:
                        STATUS.pack_into(self._status.memory, 0, -1, 1)
                    if not self._process.is_alive() and not self._connection.poll(0):
                        raise EOFError
                answer = reduction.ForkingPickler.loads(self._connection.recv_bytes())
            except (EOFError, OSError) as error:
                self._process.join(1)
                self._process.kill()  # nothing may write to a block from here on
                self._process.join(5)
                self._require_alive()
                raise SampleError(*(self._end or self._ended())) from error
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _ended(self) -> tuple[str, int]:
        """Return the message for a process that has ended, and the sample that it read."""
        number = STATUS.unpack_from(self._status.memory, 0)[0]
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
        with suppress(OSError):
            self._status.close()


def _pickled(value: Any) -> bytes:
    """Return the bytes of a value, as processes of ``multiprocessing`` exchange them."""
    return bytes(reduction.ForkingPickler.dumps(value))


def require_picklable(reader: SampleReader) -> None:
    """Raise if the items or the function of a reader cannot go to another process.

    Raises:
        ArgumentError: They do not pickle.
    """
    try:
        _pickled(reader)
    except Exception as error:
        raise ArgumentError(
            f'workers is "processes", and the items or a function do not pickle: {type(error).__name__}: {error}; '
            'expected a function at the top level of a module (no lambda), or workers="threads"'
        ) from error


def work(connection: Connection) -> None:
    """Answer requests until the connection ends. This is what a process does."""
    with suppress(EOFError, OSError, KeyboardInterrupt):
        reader = reduction.ForkingPickler.loads(connection.recv_bytes())
        status = mmap.mmap(reduction.recv_handle(connection), mmap.PAGESIZE)
        answers = Answers(reader, status)
        while True:
            request = reduction.ForkingPickler.loads(connection.recv_bytes())
            if request[0] == "segment":
                _, number, size, gone = request
                answers.add_segment(number, size, gone, reduction.recv_handle(connection))
                continue
            try:
                answer = answers.to(request)
                data = _pickled(answer)
            except SampleError as error:
                data = _pickled(_portable(error))
            except Exception as error:
                data = _pickled(LoaderError(f"a process failed: {type(error).__name__}: {error}"))
            connection.send_bytes(data)


class Answers:
    """The answers of a process to requests."""

    def __init__(self, reader: SampleReader, status: mmap.mmap) -> None:
        self._reader, self._status = reader, status
        self._segments: dict[int, mmap.mmap] = {}
        self._held: dict[int, list[Any]] = {}
        self._parts = 0
        self._stop = CalledOff(status)
        self._plans: dict[Any, _native.SlotPlan] = {}

    def add_segment(self, number: int, size: int, gone: list[int], file: int) -> None:
        """Map a segment, and forget those that are gone."""
        for known in gone:
            self._segments.pop(known, None)
        self._segments[number] = mmap.mmap(file, size)
        os.close(file)

    def _memory(self, place: tuple[int, int, int]) -> Any:
        number, offset, length = place
        return numpy.frombuffer(self._segments[number], numpy.uint8, length, offset)

    def to(self, request: tuple[Any, ...]) -> Any:
        """Return the answer to a request."""
        kind, *arguments, done = request
        for part in done:
            self._held.pop(part, None)
        return getattr(self, f"_{kind}")(*arguments)

    def _begin(self, number: int, seed: int, epoch: int) -> None:
        """Note the sample that is read next, and seed the generators that the process has."""
        STATUS.pack_into(self._status, 0, number, self._stop.flag)
        seed_globals(seed, epoch, number)

    def _read(self, numbers: list[int], seed: int, epoch: int) -> tuple[int, list[Any]]:
        self._parts += 1
        held: list[Any] = []
        outcomes: list[Any] = []
        add = partial(_add, held, outcomes)
        if self._reader.whole is not None:
            try:
                add(self._reader.batch(numbers, seed, epoch, self._stop, self._begin))
            except SampleError as error:
                add(error)
            numbers = []
        for number in numbers:
            if self._stop:
                break
            self._begin(number, seed, epoch)
            add(self._reader.attempt(number, seed, epoch))
        self._held[self._parts] = held
        return self._parts, outcomes

    def _fill(
        self,
        structure: Structure,
        fields: list[tuple[str, list[int]]],
        places: list[tuple[int, int, int]],
        numbers: list[int],
        seed: int,
        epoch: int,
    ) -> list[Any]:
        structure = self._reader.structures.add(structure)
        key = structure.text, tuple((dtype, tuple(shape)) for dtype, shape in fields)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = _native.SlotPlan(structure, fields)
        slots = _native.Slots(plan, [self._memory(place) for place in places])
        outcomes = self._reader.fill(slots, structure.text, numbers, seed, epoch, self._stop, self._begin)
        return [_portable(outcome) if isinstance(outcome, BaseException) else outcome for outcome in outcomes]

    def _write(
        self, part: int, field: int, places: list[Any], writer: str, concatenates: bool, place: tuple[int, int, int]
    ) -> None:
        arrays = [None if held is None else held[field] for held in self._held[part]]
        _native.write_slots(writer, concatenates, places, arrays, self._memory(place), self._reader.functions)


def _add(held: list[Any], outcomes: list[Any], found: Any) -> None:
    """Hold arrays that were read, and add their layout to the outcomes; or add the error."""
    if isinstance(found, BaseException):
        held.append(None)
        outcomes.append(_portable(found))
    elif found is not None:
        structure, arrays = found
        held.append(arrays)
        outcomes.append((structure, [(array.dtype, array.shape) for array in arrays]))


class CalledOff:
    """The sign that a request was called off, as the process that asked writes it."""

    def __init__(self, status: mmap.mmap) -> None:
        self._status = status

    @property
    def flag(self) -> int:
        """1 if the request was called off, else 0."""
        return int(STATUS.unpack_from(self._status, 0)[1])

    def __bool__(self) -> bool:
        return self.flag != 0


def _portable(error: BaseException) -> BaseException:
    """Return an error that pickles, with its traceback as text."""
    cause = error.__cause__
    text = "".join(traceback.format_exception(cause if cause is not None else error))
    portable = SampleError(str(error), getattr(error, "sample", -1), None)
    try:
        item = getattr(error, "item", None)
        _pickled(item)
        portable.item = item
    except Exception:
        portable.item = None
    portable.add_note(f"In the process that read it:\n{text}")
    return portable


def seed_globals(seed: int, epoch: int, sample: int) -> None:
    """Seed the generators that a function may share with others, by the seed, the epoch and the sample."""
    first, second = _native.sample_key(seed, epoch, sample)
    random.seed(first)
    numpy.random.seed(second & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        # Generators of accelerators are left alone: to seed them takes longer than many functions.
        torch.default_generator.manual_seed(first & 0x7FFFFFFFFFFFFFFF)
