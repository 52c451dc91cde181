"""Profile an epoch of batches on a GPU: the operations that take the device's time and the host's.

Promise: the profile is one epoch, loop body ``pass``, outside any timing. Without a GPU it is empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from torch.profiler import ProfilerActivity
from torch.profiler import profile as profiled

from bench.device.place import Place
from bench.harness.measure import exhaust

# More batches than these make a trace that takes longer than what it shows; so many operations are kept.
MOST_BATCHES, KEPT = 500, 14


def profile(place: Place, epochs: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    """Return the operations with the most time on the device and on the host, in microseconds."""
    if not place.is_gpu:
        return {}
    with profiled(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        start = time.perf_counter()
        exhaust(islice(epochs(), MOST_BATCHES))
        place.wait()
        seconds = time.perf_counter() - start
    events = trace.key_averages()
    longest = sorted(events, key=lambda event: -event.self_device_time_total)[:KEPT]
    longest += sorted(events, key=lambda event: -event.self_cpu_time_total)[:KEPT]
    return {
        "seconds": seconds,
        "operations": {
            event.key[:120]: {
                "count": event.count,
                "device_microseconds": event.self_device_time_total,
                "host_microseconds": event.self_cpu_time_total,
            }
            for event in longest
        },
    }
