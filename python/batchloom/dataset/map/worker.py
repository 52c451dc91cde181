"""Answers of a process to requests for samples: the work of one of the processes that ``processes.py`` starts.

Promises:

- Requests are answered one after the other, until the connection ends.
- Both sides map the status, the number of the sample being read, so that a sample that ends the process is named.
- Any failure is an answer. Errors travel with their traceback as text.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache, partial
from itertools import takewhile
from multiprocessing import parent_process, reduction
from multiprocessing.connection import Connection, wait
from typing import Any

import batchloom._native as _native
import numpy
from batchloom.collate.objects import Table
from batchloom.dataset.map.reader import SampleReader
from batchloom.dataset.map.seeded_generators import SeededGenerators
from batchloom.dataset.map.source import describe_error
from batchloom.dataset.map.structure import Structure
from batchloom.errors import LoaderError, SampleError

# Places in the status: the number of the sample that is being read, and whether the request was called off.
SAMPLE, CALLED_OFF = 0, 1

# The first byte of a message: what the parent tells, pickled, or what the engine asks for, in numbers.
SEGMENT, LAYOUT = b"S", b"L"
READ, FILL, WRITE = b"R", b"F", b"W"

# The bytes before a message, which say how long it is.
HEADER = 4

# The number of a sample, or of an element, where there is none.
ABSENT = 2**64 - 1

# The most slots that are kept for further requests.
MOST_SLOTS = 64


def status_of(memory: mmap.mmap) -> memoryview:
    """Return the status that lies in memory that both sides map."""
    return memoryview(memory).cast("q")


def pickle_value(value: Any) -> bytes:
    """Return the bytes of a value, as processes of ``multiprocessing`` exchange them."""
    return bytes(reduction.ForkingPickler.dumps(value))


def work(connection: Connection) -> None:
    """Answer requests until the connection ends. This is what a process does."""
    # Ctrl-C goes to all processes of a terminal: the one that reads batches says what comes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        file = connection.fileno()
        reader = _receive(file)
        status = status_of(mmap.mmap(_file(connection), mmap.PAGESIZE))
        status[SAMPLE] = -1
        answers = _answers(reader, status)
        is_alone = False
        while True:
            message = _receive(file)
            is_alone = is_alone or _compute_alone()
            kind = message[:1]
            if kind == SEGMENT:
                number, size, gone = reduction.ForkingPickler.loads(message[1:])
                answers.add_segment(number, size, gone, _file(connection))
            elif kind == LAYOUT:
                answers.add_layout(*reduction.ForkingPickler.loads(message[1:]))
            else:
                status[CALLED_OFF] = 0
                answer = _answer(answers, kind, message)
                status[SAMPLE] = -1
                _send(file, answer)


def _compute_alone() -> bool:
    """Let torch compute with one thread in this process, once it is imported; return whether it is.

    The other processes use the other cores.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
    return torch is not None


# A `Connection` says the same, in the time of one or two samples of a fast function.
def _receive(file: int) -> bytes:
    """Receive a message.

    Raises:
        EOFError: The connection has ended.
    """
    return _read_bytes(file, int.from_bytes(_read_bytes(file, HEADER), "big"))


def _read_bytes(file: int, length: int) -> bytes:
    received = os.read(file, length)
    while len(received) < length:
        more = os.read(file, length - len(received))
        if not more:
            raise EOFError
        received += more
    return received


def _send(file: int, message: bytes) -> None:
    """Send a message."""
    left = memoryview(len(message).to_bytes(HEADER, "big") + message)
    while left:
        left = left[os.write(file, left) :]


def _file(connection: Connection) -> int:
    """Receive a file."""
    file = int(reduction.recv_handle(connection))
    # With a default timeout of sockets, to receive it makes the connection one that does not block.
    os.set_blocking(connection.fileno(), True)
    return file


def _answer(answers: Answers | Failure, kind: bytes, message: bytes) -> bytes:
    """Return the answer to a request, without bytes if all went well."""
    count = int.from_bytes(message[1:9], sys.byteorder)
    numbers = memoryview(message)[9 : 9 + 8 * count].cast("Q").tolist()
    try:
        answer = answers.to(kind, numbers, message[9 + 8 * count :].decode())
        return b"" if answer is None else pickle_value(answer)
    except SampleError as error:
        return pickle_value(_make_portable(error))
    except LoaderError as error:
        return pickle_value(error)
    except Exception as error:
        return pickle_value(LoaderError(f"a process failed: {describe_error(error)}"))


def _end_with_parent() -> None:
    """End this process when its parent has ended, even in the middle of a function."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _answers(reader: bytes, status: memoryview) -> Answers | Failure:
    """Return the answers of a reader that was pickled, or the reason why it cannot be read."""
    try:
        return Answers(reduction.ForkingPickler.loads(reader), status)
    except Exception as error:
        return Failure(f"the items or a function cannot be made in another process: {describe_error(error)}")


class Failure:
    """The answer to any request if there is no reader."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def add_segment(self, number: int, size: int, gone: list[int], file: int) -> None:
        """Close a segment."""
        os.close(file)

    def add_layout(self, number: int, structure: Structure, fields: Any) -> None:
        """Do nothing."""

    def to(self, kind: bytes, numbers: list[int], text: str) -> Any:
        """Raise the reason.

        Raises:
            LoaderError: Always.
        """
        raise LoaderError(self._reason)


class Answers:
    """The answers of a process to requests."""

    def __init__(self, reader: SampleReader, status: memoryview) -> None:
        self._generators = SeededGenerators()
        self._reader = ProcessReader(reader, self._generators, status)
        self._segments: dict[int, mmap.mmap] = {}
        self._held: dict[int, tuple[int, int, list[Any]]] = {}
        self._parts = 0
        # The sign that a request was called off: an array of one number is as true as the number.
        self._stop = numpy.frombuffer(status, numpy.int64)[CALLED_OFF : CALLED_OFF + 1]
        self._layouts: dict[int, tuple[str, _native.SlotPlan]] = {}
        # Blocks use few pieces of memory again and again.
        self._slots = lru_cache(MOST_SLOTS)(self._make_slots)

    def add_segment(self, number: int, size: int, gone: list[int], file: int) -> None:
        """Map a segment, and forget those that are gone."""
        self._slots.cache_clear()
        for known in gone:
            self._segments.pop(known, None)
        self._segments[number] = mmap.mmap(file, size)
        os.close(file)

    def add_layout(self, number: int, structure: Structure, fields: list[tuple[str, list[int]]]) -> None:
        """Remember the layout of samples that go straight into their slots."""
        structure = self._reader.structures.add(structure)
        self._layouts[number] = structure.text, _native.SlotPlan(structure, fields)

    def _memory(self, segment: int, offset: int, length: int) -> Any:
        return numpy.frombuffer(self._segments[segment], numpy.uint8, length, offset)

    def to(self, kind: bytes, numbers: list[int], text: str) -> Any:
        """Return the answer to a request, which begins with the requests that are called off."""
        done = numbers[0]
        for part in numbers[1 : 1 + done]:
            self._held.pop(part, None)
        numbers = numbers[1 + done :]
        if kind == FILL:
            return self._fill(numbers)
        return self._read(numbers) if kind == READ else self._write(numbers, text)

    def _read(self, numbers: list[int]) -> tuple[int, tuple[list[Any], Table | None]]:
        seed, epoch, *samples = numbers
        self._parts += 1
        attempt = partial(self._reader.attempt, samples, seed, epoch, self._stop)
        attempts, table = self._generators.request(attempt)
        held: list[Any] = []
        outcomes: list[Any] = []
        for each in attempts:
            _add(held, outcomes, each)
        self._held[self._parts] = seed, epoch, held
        return self._parts, (outcomes, table)

    def _fill(self, numbers: list[int]) -> tuple[list[Any] | None, Table | None] | None:
        layout, seed, epoch, places = numbers[:4]
        first = 4 + 3 * places
        slots, text = self._slots(layout, *numbers[4:first]), self._layouts[layout][0]
        fill = partial(self._reader.fill, slots, text, numbers[first:], seed, epoch, self._stop)
        outcomes, table = self._generators.request(fill)
        if outcomes is None:
            return None if table is None else (None, table)
        return [
            _make_portable(outcome) if isinstance(outcome, BaseException) else outcome for outcome in outcomes
        ], table

    def _make_slots(self, layout: int, *places: int) -> _native.Slots:
        """Return the slots of a layout in some places of segments."""
        memory = [self._memory(*places[place : place + 3]) for place in range(0, len(places), 3)]
        return _native.Slots(self._layouts[layout][1], memory)

    def _write(self, numbers: list[int], writer: str) -> None:
        part, field, concatenates = numbers[:3]
        memory, places = self._memory(*numbers[3:6]), iter(numbers[6:])
        seed, epoch, samples = self._held[part]
        arrays = [None if held is None else held[field] for held in samples]
        slots = [
            (number, None if sample == ABSENT else sample, None if start == ABSENT else (start, count))
            for number, sample, start, count in zip(places, places, places, places, strict=True)
        ]
        functions = {name: partial(self._fill_seeded, fill) for name, fill in self._reader.functions.items()}
        _native.write_slots(writer, bool(concatenates), (seed, epoch), slots, arrays, memory, functions)

    def _fill_seeded(self, fill: Callable[..., None], sample: Any, drawn: tuple[int, int, int], *slot: Any) -> None:
        """Fill the slot of a sample; the generators that the function draws from are seeded for it.

        They are seeded before each call: a slot function cannot be called again for a slot that it has written to.
        """
        self._generators.seed(*drawn)
        fill(sample, drawn, *slot)


def _add(held: list[Any], outcomes: list[Any], attempt: Any) -> None:
    """Hold arrays that were read, and add their layout to the outcomes; or add the error."""
    if isinstance(attempt, BaseException):
        held.append(None)
        outcomes.append(_make_portable(attempt))
    else:
        structure, arrays = attempt
        held.append(arrays)
        outcomes.append((structure, [(array.dtype, array.shape) for array in arrays]))


class ProcessReader(SampleReader):
    """Makes samples as ``reader`` does, beside the generators and the status of a process."""

    def __init__(self, reader: SampleReader, generators: SeededGenerators, status: memoryview) -> None:
        super().__init__(reader.source, reader.functions, reader.whole, floats=reader.floats)
        self._generators, self._announced = generators, status[SAMPLE : SAMPLE + 1]

    def samples(self, numbers: Iterable[int], seed: int, epoch: int, stop: Any = False) -> Iterator[Any]:
        """Yield samples; the status names each, and the generators that it draws from are seeded for it."""
        generators = self._generators

        def make_samples(some: Iterable[int], stop: Any = False) -> Iterator[Any]:
            if isinstance(some, list) and getattr(self.source, "takes_many", False) and not generators.are_drawn:
                self._announced[0] = some[0]
                return self.source.samples(some, seed, epoch, stop)
            return self.source.samples(self._announce(some, seed, epoch), seed, epoch, stop)

        def one(number: int) -> Any:
            return next(make_samples((number,)))

        if not generators.is_first:
            return make_samples(numbers, stop)
        wanted = takewhile(lambda _: not stop, numbers)
        return (generators.first(partial(one, number)) for number in wanted)

    def _announce(self, numbers: Iterable[int], seed: int, epoch: int) -> Iterator[int]:
        """Yield the numbers of samples; before each is read, the status names it, and generators are seeded."""
        announced, generators = self._announced, self._generators
        seeds = generators.are_drawn
        for number in numbers:
            announced[0] = number
            if seeds:
                generators.seed(seed, epoch, number)
            yield number


def _make_portable(error: BaseException) -> BaseException:
    """Return an error that pickles, with its traceback as text."""
    cause = error.__cause__
    text = "".join(traceback.format_exception(cause if cause is not None else error))
    portable = SampleError(str(error), getattr(error, "sample", -1), None)
    try:
        item = getattr(error, "item", None)
        reduction.ForkingPickler.loads(pickle_value(item))  # some items pickle, and cannot be made of that
        portable.item = item
    except Exception:
        portable.item = None
    portable.add_note(f"In the process that read it:\n{text}")
    return portable
