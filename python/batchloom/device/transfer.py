"""Copies to a device, beside its computation.

A copy is asynchronous where its source is pinned memory. The source must not be written to before the copy is over, so
the transfer keeps hold of it until then. At most two copies are under way, which bounds the memory that is held. Any
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

# Devices with streams of the one interface that is used here. Copies to other devices are made at once.
STREAMED = ("cuda", "xpu")


class Transfer:
    """Copies to one device.

    Attributes:
        device: The device.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._streams = _streams(device)
        self._stream: Any = None
        self._pending: deque[PendingCopy] = deque()
        self._others: list[Transfer] = []
        self._lock = RLock()
        self._warned, self._process = False, os.getpid()
        # Once this transfer is gone, the sources of its copies may be used again, or be freed.
        finalize(self, _finish_all, self._pending, self._process)

    def with_new_stream(self) -> Transfer:
        """Return another transfer to the same device, with another stream."""
        self._others.append(type(self)(self.device))
        return self._others[-1]

    def under_way(self) -> tuple[int, int]:
        """Return the number of copies that are under way, on every transfer to this device, and their bytes.

        Takes no lock and waits for nothing, so that any thread may ask. Copies that are made at once are over, and a
        forked child has none.
        """
        if self._process != os.getpid():
            return 0, 0
        own = [copy.size for copy in self._pending.copy() if not copy.is_over()]
        others = [other.under_way() for other in self._others]
        return len(own) + sum(count for count, _ in others), sum(own) + sum(size for _, size in others)

    @property
    def has_streams(self) -> bool:
        """``True`` if the device works in streams, which have to wait for each other."""
        return self._streams is not None

    def memory(self) -> int:
        """Return the bytes of all memory of the device; 0 where the device does not report them."""
        tell = getattr(self._streams, "mem_get_info", None)
        return 0 if tell is None else int(tell(self.device)[1])

    def current_stream(self) -> Any:
        """Return the current stream; ``None`` where the device has no streams."""
        return self._streams.current_stream(self.device) if self.has_streams else None

    def stream_key(self) -> Callable[[], Any]:
        """Return a fast function that identifies the current stream: it is called for every batch."""
        number = getattr(torch._C, f"_{self.device.type}_getCurrentRawStream", None)
        return self.current_stream if number is None else partial(number, self.device.index)

    def allocate(self, size: int) -> torch.Tensor:
        """Return memory to copy from asynchronously: pinned, where the device needs that."""
        try:
            return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=self.has_streams)
        except RuntimeError as error:
            if not self._warned:
                reason = str(error).partition("\n")[0]
                _log.warning("%d bytes cannot be pinned, so that computation waits for their copy: %s", size, reason)
            self._warned = True
            return torch.empty(size, dtype=torch.uint8, device="cpu")

    def copy(self, host: torch.Tensor, into: torch.Tensor | None = None, after: Sequence[Any] = ()) -> Copy:
        """Begin to copy an array, after earlier copies. Waits while too many are under way.

        Args:
            host: The array to copy.
            into: The memory to copy to; ``None`` for new memory.
            after: Events to wait for before.
        """
        with self._lock:
            while len(self._pending) >= UNDER_WAY or (self._pending and self._pending[0].is_over()):
                first = self._pending[0]
                first.wait()
                # Not before: an interrupt may come at any point, and may have copied, too.
                if self._pending and self._pending[0] is first:
                    self._pending.popleft()
            with self._use_stream():
                for event in after:
                    self._stream.wait_event(event)
                if not self.has_streams:
                    return Copy(self, self.send(host, into), None)
                # Before the copy begins: an interrupt must not free memory that is being read.
                pending_copy = PendingCopy(host, self._stream)
                self._pending.append(pending_copy)
                return Copy(self, self.send(host, into), pending_copy.end(self._streams.Event()))

    def carry(self, host: torch.Tensor, into: torch.Tensor | None = None, after: Sequence[Any] = ()) -> Copy:
        """Begin to copy an array from any memory: by way of pinned memory, where the device needs that."""
        # Another consumer may get the copy: it must not be marked by the inference mode of this one.
        with torch.inference_mode(False):
            host = host.detach()
            if self.has_streams and not (host.is_contiguous() and host.is_pinned()):
                # Compact: gaps between rows are not pinned.
                pinned = self.allocate(host.numel() * host.element_size()).view(host.dtype).view(host.shape)
                host = pinned.copy_(host)
            return self.copy(host, into, after)

    def empty(self, like: torch.Tensor, rows: int) -> torch.Tensor:
        """Return memory on the device for a number of rows of an array, to copy into."""
        with self._use_stream():
            return torch.empty((rows, *like.shape[1:]), dtype=like.dtype, device=self.device)

    def send(self, host: torch.Tensor, into: torch.Tensor | None) -> torch.Tensor:
        """Copy on the current stream; at once, where the device has no streams to wait with."""
        flies = self.has_streams
        if into is not None:
            return into.copy_(host, non_blocking=flies)
        return host.to(self.device, non_blocking=flies, copy=True, memory_format=torch.contiguous_format)

    def record_events(self, streams: Sequence[Any]) -> list[Any]:
        """Record an event on each stream, which marks the end of its work so far."""
        events = [self._streams.Event() for _ in streams] if self.has_streams else []
        for event, stream in zip(events, streams, strict=False):
            event.record(stream)
        return events

    def _use_stream(self) -> Any:
        """Return a context that makes the stream of the copies current."""
        if self._streams is None:
            return nullcontext()
        if self._stream is None:
            self._stream = self._streams.Stream(self.device)
        return self._streams.stream(self._stream)


class PendingCopy:
    """A copy that is under way; it keeps its source alive.

    Attributes:
        size: The bytes to copy.
    """

    def __init__(self, host: torch.Tensor, stream: Any) -> None:
        self._host, self.size = host, host.numel() * host.element_size()
        # The event recorded after the copy; before it exists, the stream itself.
        self._end = stream

    def end(self, event: Any) -> Any:
        """Record and return the event that follows the copy."""
        event.record(self._end)
        self._end = event
        return event

    def is_over(self) -> bool:
        """Return whether the copy is over, without waiting."""
        return bool(self._end.query())

    def wait(self) -> None:
        """Wait until the copy is over."""
        self._end.synchronize()


class Copy:
    """An array on the device, or on its way there."""

    def __init__(self, transfer: Transfer, there: torch.Tensor, event: Any) -> None:
        self._transfer, self._there, self._event = transfer, there, event
        self._reader: Any = None

    def arrive(self) -> torch.Tensor:
        """Return the array on the device, for later work on the current stream."""
        current = self._transfer.current_stream()
        # Before torch 2.15, a stream is neither equal to None nor unequal.
        waits = self._reader is None or current != self._reader
        if self._event is not None and current is not None and waits:
            current.wait_event(self._event)
            self._there.record_stream(current)
            self._reader = current
        return self._there


def _finish_all(pending: deque[PendingCopy], process: int) -> None:
    """Wait for copies that are under way; a forked child has no copies to wait for."""
    while pending and process == os.getpid():
        pending.popleft().wait()


def _streams(device: torch.device) -> Any:
    """Return the module of torch with the streams of a device; ``None`` where the device has no streams."""
    return torch.get_device_module(device) if device.type in STREAMED else None
