"""Measure the limits of the device: copies on it, copies to it, and products of matrices."""

from __future__ import annotations

from typing import Any

import torch

from bench.device.place import CHUNK, Found, Place, spread
from bench.harness.measure import Candidate
from bench.harness.report import fastest_first, print_disturbed, table

PAGEABLE = "pageable memory to the device"
SIDE, MOST_TIMES, COPIES = 4096, 20, 4
CPU_BYTES, CPU_SIDE = 1 / 16, 1 / 8
PRODUCTS = {
    "product in float16": torch.float16,
    "product in bfloat16": torch.bfloat16,
    "product in float32": torch.float32,
}


def measure_limits(place: Place) -> Found:
    """Measure all limits in the same rounds; return its record for the JSON."""
    size = 4 * place.scaled(CHUNK, CPU_BYTES)
    side = place.scaled(SIDE, CPU_SIDE, least=64)
    # On the device more, so that starting and waiting does not show.
    candidates = [place.copying(COPIES * size), place.sending(size), pageable(place, size)]
    candidates += [product(place, name, dtype, side) for name, dtype in PRODUCTS.items()]
    timings = place.interleave("limits", candidates)
    records: list[dict[str, Any]] = []
    rows = []
    for timing in fastest_first(timings):
        facts = timing.candidate.facts
        amount, unit = (facts["bytes"] / 1e9, "GB/s") if "bytes" in facts else (facts["operations"] / 1e12, "TFLOP/s")
        rate = amount / timing.median
        rows.append((timing.name, f"{timing.median * 1e3:.3f}", f"{spread(timing):.1%}", f"{rate:.1f} {unit}"))
        records.append({**timing.record({}), "spread": spread(timing), "rate": rate, "unit": unit})
    table(f"limits of {place.name}: {size / 1e9:.2f} GB, {side}^3", ("", "median ms", "spread", "rate"), rows)
    print_disturbed("limits", timings)
    rates = {f"{each['name']}, {each['unit']}": each["rate"] for each in records}
    return Found({"bytes": size, "side": side, "candidates": records}, ratios=rates)


def pageable(place: Place, size: int) -> Candidate:
    """Copy so many bytes to the device from ordinary memory."""
    source = place.rand(size // 4).cpu()
    target = torch.ones_like(source, device=place.device)
    return Candidate(PAGEABLE, lambda: place.seconds(lambda: target.copy_(source)), {"bytes": size})


def product(place: Place, name: str, dtype: torch.dtype, side: int) -> Candidate:
    """Multiply two square matrices of random numbers; the seconds are those of one product."""
    one, other = (torch.randn(side, side, device=place.device).to(dtype) for _ in range(2))
    result = torch.empty_like(one)
    times = MOST_TIMES if place.is_gpu else 1

    def multiply() -> None:
        for _ in range(times):
            torch.mm(one, other, out=result)

    return Candidate(name, lambda: place.seconds(multiply) / times, {"operations": 2 * side**3})
