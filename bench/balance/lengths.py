"""Seeded sets of lengths, and the cost by which everyone is judged: ``L + L**2 / 8192``."""

from __future__ import annotations

from typing import Any

import batchloom as bl
import numpy

EQUAL_AT = 8192  # the length at which attention costs as much as all else
COST = bl.CostModel(per_token=1.0, per_pair=1 / EQUAL_AT)
SETS = ("lognormal", "1K-16K", "128K", "uniform")

Array = numpy.ndarray[Any, Any]


def draw_lengths(name: str, samples: int, seed: int = 0) -> tuple[Array, int]:
    """Return lengths, and the tokens that a micro-batch or a pack holds."""
    rng = numpy.random.default_rng(seed)
    least = 16
    if name == "lognormal":  # a mean of 500 before lengths are cut
        found, most = rng.lognormal(numpy.log(500) - 0.5, 1.0, samples), 8192
    elif name == "1K-16K":  # a power law
        found, most = numpy.maximum(1024 * rng.random(samples) ** (-1 / 1.2), 1024), 16_384
    elif name == "128K":  # a median of 1500, and one sample of 700 at the end of the tail
        found, most = rng.lognormal(numpy.log(1500), 1.5, samples), 131_072
    else:
        found, most, least = rng.integers(1, 4097, samples), 8192, 1
    return numpy.clip(found.astype(numpy.int64), least, most), most


def cost_of(lengths: Any) -> Array:
    """Return what each sample costs."""
    sizes = numpy.asarray(lengths, numpy.float64)
    return sizes + sizes * sizes / EQUAL_AT
