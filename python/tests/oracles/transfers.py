"""An accelerator of a kind: streams that are remembered, copies that are late, and memory that copies come from."""

import contextlib
import ctypes
import threading
from typing import ClassVar

import pytest
import torch
from batchloom.device import transfer


class LateCopy:
    """A copy that has not begun when it was sent. Of its source only the address is known: the transfer keeps it."""

    lock = threading.RLock()

    def __init__(self, source, target):
        self.source, self.size = source.data_ptr(), source.nbytes
        self.content = self._read()
        self.layout = source.dtype, source.shape
        self.target, self.is_over = target, False

    def arrive(self):
        """Perform the copy, from what is there now."""
        with self.lock:
            if self.target is None:
                return
            if self.size:
                kind, shape = self.layout
                content = torch.frombuffer(bytearray(self._read()), dtype=torch.uint8)
                self.target.copy_(content.view(kind).view(shape))
            self.target = None

    def end(self):
        """It is over; only now may others have the memory that it came from."""
        with self.lock:
            if not self.is_over:
                self.arrive()
                Accelerator.torn += self._read() != self.content
                self.is_over = True

    def _read(self):
        return ctypes.string_at(self.source, self.size) if self.size else b""


class Stream:
    """A queue of work; it knows of the copies that it has waited for."""

    def __init__(self, device=None):
        self.knows = set()
        self.waits = []
        self.sent = []

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        """As torch before 2.15 has it, nothing is unequal to None."""
        return other is not None and self is not other

    __hash__ = object.__hash__

    def wait_event(self, event):
        """The work that comes next finds the copy done; its source may yet be read until it is over."""
        self.waits.append(event)
        self.knows.add(event)
        for copy in event.transfers:
            copy.arrive()

    def wait_stream(self, other):
        self.waits.append(other)
        self.knows |= other.knows

    def query(self):
        return not self.sent and all(event.is_over for event in Event.made if event.stream is self)

    def synchronize(self):
        for event in Event.made:
            if event.stream is self:
                event.end()
        for copy in self.sent:
            copy.end()


class Event:
    """The end of the work that a stream was given. It has to be asked about ``patience`` times."""

    patience = 3
    made: ClassVar[list] = []

    def __init__(self):
        self.asked, self.is_over, self.is_waited_for = 0, False, False
        self.storage, self.transfers, self.stream = None, [], None

    def record(self, stream):
        """Of copies; what streams compute is over when they were given it."""
        assert stream is not None
        self.transfers, stream.sent, self.stream = stream.sent, [], stream
        if self.transfers:
            self.storage = self.transfers[-1].target.untyped_storage().data_ptr()
            type(self).made.append(self)

    def query(self):
        self.asked += 1
        if self.asked > self.patience:
            self.end()
        return self.is_over

    def synchronize(self):
        self.is_waited_for |= not self.is_over
        if not self.is_over:
            Accelerator.waited.append(sum(not event.is_over for event in self.made))
        self.end()

    def end(self):
        for copy in self.transfers:
            copy.end()
        self.is_over = True


class Accelerator:
    """The module that torch has for a device with streams."""

    Stream, Event = Stream, Event
    present = None
    torn = most = 0
    waited: ClassVar[list] = []
    recorded: ClassVar[list] = []
    allocated: ClassVar[list] = []

    @classmethod
    def current_stream(cls, device):
        return cls.present

    @classmethod
    @contextlib.contextmanager
    def stream(cls, stream):
        before, cls.present = cls.present, stream
        try:
            yield
        finally:
            cls.present = before

    @classmethod
    def flying(cls):
        return sum(not event.is_over for event in Event.made)


class Late(transfer.Transfer):
    """A transfer whose copies have not begun when they were sent."""

    has_streams = True

    def send(self, host, into):
        there = torch.empty_like(host, memory_format=torch.contiguous_format) if into is None else into
        there.view(torch.uint8).fill_(0x5A) if there.numel() and there.dim() else None
        self._stream.sent.append(LateCopy(host.contiguous(), there))
        Accelerator.most = max(Accelerator.most, 1 + Accelerator.flying())
        return there

    def allocate(self, size):
        memory = super().allocate(size)
        Accelerator.allocated.append(len(memory))
        return memory


@contextlib.contextmanager
def accelerated(patience=3):
    """A device with streams, whose memory is that of the CPU: name it "meta"."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchloom.arrays.torch.accelerator", lambda device: torch.device("cpu"))
        patch.setattr(transfer, "_streams", lambda device: Accelerator)
        patch.setattr(transfer, "Transfer", Late)
        patch.setattr(torch.Tensor, "is_pinned", lambda self: True)
        recorded = patch.setattr(torch.Tensor, "record_stream", _record, raising=False)
        assert recorded is None
        for name, value in (("waited", []), ("recorded", []), ("allocated", []), ("torn", 0), ("most", 0)):
            patch.setattr(Accelerator, name, value)
        patch.setattr(Accelerator, "present", Stream())
        patch.setattr(Event, "made", [])
        patch.setattr(Event, "patience", patience)
        yield Accelerator


def _record(tensor, stream):
    Accelerator.recorded.append((tensor.untyped_storage().data_ptr(), stream))
