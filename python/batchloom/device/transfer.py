"""Copies to a device that go on beside its computation.

A copy is asynchronous where the memory that it comes from is pinned. That memory must not be written before it is over,
so the lane keeps hold of it until then; and it has at most two copies under way, so that no more memory is held. Any
thread may copy.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from threading import RLock
from typing import Any
from weakref import finalize

import torch

_log = logging.getLogger("batchloom")

# Copies under way: one that is waited for, and the next.
UNDER_WAY = 2

# Devices whose streams torch has in the one way that is used here. To others copies are made at once.
STREAMED = ("cuda", "xpu")


class Transfer:
    """The way to one device.

    Attributes:
        device: Where it leads.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams = _streams(device)
        self._stream: Any = None
        self._flying: deque[Flight] = deque()
        self._lock = RLock()
        self._warned = False
        # The memory that copies come from may be used again, or be gone, once nobody has this lane any more.
        finalize(self, _land, self._flying, os.getpid())

    def beside(self) -> Transfer:
        """Return another transfer to the same device, with a stream of its own."""
        return type(self)(self.device)

    @property
    def has_streams(self) -> bool:
        """Whether work on the device goes on by itself, in streams that have to wait for each other."""
        return self._streams is not None

    def current(self) -> Any:
        """Return the stream that work is given to at the moment; ``None`` where there are none."""
        return self._streams.current_stream(self.device) if self.has_streams else None

    def teller(self) -> Callable[[], Any]:
        """Return what tells streams apart that work is given to: in the fastest way, as it is asked for every batch."""
        number = getattr(torch._C, f"_{self.device.type}_getCurrentRawStream", None)
        return self.current if number is None else partial(number, self.device.index)

    def allocate(self, size: int) -> torch.Tensor:
        """Return memory that copies can be made from while others go on: pinned, where the device needs that."""
        try:
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=self.has_streams)
        except RuntimeError as error:
            if not self._warned:
                reason = str(error).partition("\n")[0]
                _log.warning("%d bytes cannot be pinned, so that computation waits for their copy: %s", size, reason)
            self._warned = True
            return torch.empty(size, dtype=torch.uint8, device="cpu")

    def copy(self, host: torch.Tensor, into: torch.Tensor | None = None, after: Sequence[Any] = ()) -> Copy:
        """Begin to copy an array, after those that were begun before. Waits while too many are under way.

        Args:
            host: What is copied.
            into: Where it goes; ``None`` for memory of its own.
            after: The events that have to be over before.
        """
        with self._lock:
            while len(self._flying) >= UNDER_WAY or (self._flying and self._flying[0].is_over()):
                first = self._flying[0]
                first.wait()
                # Only now, whatever interrupts; and what interrupted may have copied, too.
                if self._flying and self._flying[0] is first:
                    self._flying.popleft()
            with self._beside():
                for event in after:
                    self._stream.wait_event(event)
                if not self.has_streams:
                    return Copy(self, self.send(host, into), None)
                # Before it is sent: what interrupts must not let go of memory that is read.
                flight = Flight(host, self._stream)
                self._flying.append(flight)
                return Copy(self, self.send(host, into), flight.end(self._streams.Event()))

    def carry(self, host: torch.Tensor, into: torch.Tensor | None = None, after: Sequence[Any] = ()) -> Copy:
        """Begin to copy an array that lies anywhere: by way of memory that is pinned, where the device needs that."""
        # Others than the consumer of the moment may get what arrives: it must not be marked by that one's mode.
        with torch.inference_mode(False):
            host = host.detach()
            if self.has_streams and not (host.is_contiguous() and host.is_pinned()):
                # Compact: what lies between rows is not pinned with them.
                pinned = self.allocate(host.numel() * host.element_size()).view(host.dtype).view(host.shape)
                host = pinned.copy_(host)
            return self.copy(host, into, after)

    def empty(self, like: torch.Tensor, rows: int) -> torch.Tensor:
        """Return memory on the device for so many rows of an array, to copy into."""
        with self._beside():
            return torch.empty((rows, *like.shape[1:]), dtype=like.dtype, device=self.device)

    def send(self, host: torch.Tensor, into: torch.Tensor | None) -> torch.Tensor:
        """Return a copy that is under way on the present stream; made at once, where nobody could wait for it."""
        flies = self.has_streams
        if into is not None:
            return into.copy_(host, non_blocking=flies)
        return host.to(self.device, non_blocking=flies, copy=True, memory_format=torch.contiguous_format)

    def passed(self, streams: Sequence[Any]) -> list[Any]:
        """Return the events that streams have done what they were given so far."""
        events = [self._streams.Event() for _ in streams] if self.has_streams else []
        for event, stream in zip(events, streams, strict=False):
            event.record(stream)
        return events

    def _beside(self) -> Any:
        """Give work to the stream of copies."""
        if self._streams is None:
            return nullcontext()
        if self._stream is None:
            self._stream = self._streams.Stream(self.device)
        return self._streams.stream(self._stream)


class Flight:
    """What has to be kept until a copy is over: the memory that it comes from."""

    def __init__(self, host: torch.Tensor, stream: Any) -> None:
        self._host = host
        # Whichever tells that it is over: all that its stream was given, until the event that follows it is known.
        self._end = stream

    def end(self, event: Any) -> Any:
        """Note that the copy is on its way, and return the event that follows it."""
        event.record(self._end)
        self._end = event
        return event

    def is_over(self) -> bool:
        """Whether it is over, without waiting."""
        return bool(self._end.query())

    def wait(self) -> None:
        """Wait until it is over."""
        self._end.synchronize()


class Copy:
    """What arrives of a copy."""

    def __init__(self, transfer: Transfer, there: torch.Tensor, event: Any) -> None:
        self._transfer, self._there, self._event = transfer, there, event
        self._reader: Any = None

    def arrive(self) -> torch.Tensor:
        """Return the array on the device, for work that is given to the present stream from now on."""
        current = self._transfer.current()
        if self._event is not None and current is not None and current != self._reader:
            current.wait_event(self._event)
            self._there.record_stream(current)
            self._reader = current
        return self._there


def _land(flying: deque[Flight], process: int) -> None:
    """Wait for copies; in a forked child there are none to wait for."""
    while flying and process == os.getpid():
        flying.popleft().wait()


def _streams(device: torch.device) -> Any:
    """The module of torch that has the streams of a device; ``None`` where it has none."""
    return torch.get_device_module(device) if device.type in STREAMED else None
