"""Several budgets at once: how full batches are beside the bound of linear programming, and the time of planning.

Two seeded tables. *Vision-language*: text of a lognormal length, images of which three samples in five have none, and
256 to 1024 patches for each image; budgets of 8192 tokens of text, 16384 patches and 48 images. *Molecules*: 5 to 60
atoms, about 2.1 bonds for each atom and 1.6 triplets for each bond; budgets of 300, 640 and 1050. Promises:

- The bound is the largest sum of sizes divided by its budget: no division of the same samples makes fewer batches. What
  is reported is the bound over the number of batches; it is the fill of the budget that binds, but for rounding.
- Every batch of every candidate was checked: no budget is exceeded, and each sample comes once.
- Peers are in our words, and pack the same samples. *First fit decreasing* sorts them by the sum of their shares, and
  puts each into the first bin that has room; it does so in pools of as many samples as ours. *One batch at a time* is
  what dynamic samplers with several constraints do: samples in random order go into one batch until one exceeds a
  budget.
- The time is that of one process for all samples: of arrays to a plan that knows its number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import batchloom as bl
import numpy

from bench.harness.claims import Claim, stated
from bench.harness.command import LEAST_ROUNDS
from bench.harness.measure import LOOM, Candidate, interleave
from bench.harness.report import print_disturbed, table

PACKED, PLANNED, POOL = 65_536, 10_000_000, 16_384
FIRST_FIT, GREEDY, ONE = "first fit decreasing", "one batch at a time", "batchloom, one budget"
LEAST_FILL, MOST_SECONDS = 0.97, 1.5

Array = numpy.ndarray[Any, Any]
Sizes = Mapping[str, Array]
Budgets = Mapping[str, int]

VISION: Budgets = {"text": 8192, "patches": 16_384, "images": 48}
MOLECULES: Budgets = {"atoms": 300, "bonds": 640, "triplets": 1050}


def draw_vision(samples: int) -> Sizes:
    """Return lengths of samples of a vision-language model."""
    random = numpy.random.default_rng(0)
    text = random.lognormal(5.5, 1.0, samples).clip(8, 8192)
    images = numpy.where(random.random(samples) < 0.4, random.integers(1, 8, samples, endpoint=True), 0)
    patches = numpy.zeros(samples, numpy.int64)
    for place in range(8):
        patches += (place < images) * random.integers(256, 1024, samples, endpoint=True)
    return {"text": text.astype(numpy.uint32), "patches": patches.astype(numpy.uint32), "images": images}


def draw_molecules(samples: int) -> Sizes:
    """Return sizes of molecules."""
    random = numpy.random.default_rng(1)
    atoms = random.lognormal(3.1, 0.35, samples).clip(5, 60).astype(numpy.int64)
    bonds = (atoms * 2.1 + random.normal(0, 2, samples)).clip(atoms, 3 * atoms).astype(numpy.int64)
    triplets = (bonds * random.normal(1.6, 0.15, samples)).clip(0, 3 * bonds).astype(numpy.int64)
    return {"atoms": atoms, "bonds": bonds, "triplets": triplets}


TABLES: dict[str, tuple[Callable[[int], Sizes], Budgets]] = {
    "vision-language": (draw_vision, VISION),
    "molecules": (draw_molecules, MOLECULES),
}


def plan_batches(sizes: Sizes, budgets: Budgets) -> list[Array]:
    """Return the batches of a shuffled epoch of batchloom."""
    return list(bl.Plan(sizes=sizes, batching=bl.Packing(budgets), shuffle=True))


def fit_first(sizes: Sizes, budgets: Budgets) -> list[Array]:
    """Return bins by first fit decreasing, pool by pool."""
    rows = numpy.stack([sizes[name] for name in budgets], 1).astype(numpy.int64)
    limits = numpy.array(list(budgets.values()))
    order, bins = numpy.random.default_rng(2).permutation(len(rows)), []
    for start in range(0, len(rows), POOL):
        pool = order[start : start + POOL]
        pool = pool[numpy.argsort(-(rows[pool] / limits).sum(1), kind="stable")]
        free, held = numpy.empty((len(pool), len(limits)), numpy.int64), []
        for sample in pool:
            fits = (free[: len(held)] >= rows[sample]).all(1)
            place = int(fits.argmax()) if fits.any() else len(held)
            if place == len(held):
                free[place] = limits
                held.append([])
            free[place] -= rows[sample]
            held[place].append(sample)
        bins += [numpy.array(each) for each in held]
    return bins


def fill_one(sizes: Sizes, budgets: Budgets) -> list[Array]:
    """Return batches that end where a sample, in random order, exceeds a budget."""
    rows = numpy.stack([sizes[name] for name in budgets], 1).tolist()
    limits = list(budgets.values())
    batches, batch, used = [], [], [0] * len(limits)
    for sample in numpy.random.default_rng(2).permutation(len(rows)).tolist():
        row = rows[sample]
        if any(held + size > limit for held, size, limit in zip(used, row, limits, strict=True)):
            batches.append(numpy.array(batch))
            batch, used = [], [0] * len(limits)
        batch.append(sample)
        used = [held + size for held, size in zip(used, row, strict=True)]
    return [*batches, numpy.array(batch)]


WAYS = {LOOM: plan_batches, FIRST_FIT: fit_first, GREEDY: fill_one}


def find_bound(sizes: Sizes, budgets: Budgets) -> tuple[str, float]:
    """Return the budget that binds, and the batches that its sizes fill."""
    bounds = {name: int(sizes[name].sum(dtype=numpy.int64)) / limit for name, limit in budgets.items()}
    binding = max(bounds, key=bounds.__getitem__)
    return binding, bounds[binding]


def check(batches: list[Array], sizes: Sizes, budgets: Budgets) -> None:
    """Check that each sample comes once, and that no batch exceeds a budget.

    Raises:
        AssertionError: It is not so.
    """
    order = numpy.concatenate(batches)
    assert numpy.array_equal(numpy.sort(order), numpy.arange(len(order)))
    starts = numpy.cumsum([0, *map(len, batches)])[:-1]
    for name, limit in budgets.items():
        assert numpy.add.reduceat(sizes[name][order].astype(numpy.int64), starts).max() <= limit, name


def count(samples: int) -> dict[str, Any]:
    """Return how full the batches of each candidate are, on each table."""
    found: dict[str, Any] = {}
    for title, (draw, budgets) in TABLES.items():
        sizes = draw(samples)
        binding, bound = find_bound(sizes, budgets)
        fills = {}
        for name, way in WAYS.items():
            batches = way(sizes, budgets)
            check(batches, sizes, budgets)
            fills[name] = bound / len(batches)
        rows = [(name, f"{fill:.4f}", f"{bound / fill:.0f}") for name, fill in fills.items()]
        table(f"{title}: {samples} samples, {binding} binds, bound {bound:.0f}", ("candidate", "fill", "batches"), rows)
        found[title] = {"budgets": dict(budgets), "binding": binding, "bound": bound, "fill": fills}
    return found


def plan(sizes: Sizes, budgets: Any) -> None:
    """Plan an epoch, and count its steps."""
    len(bl.Plan(sizes=sizes, batching=bl.Packing(budgets), shuffle=True))


def measure_budgets(rounds: int = LEAST_ROUNDS, scale: float = 1.0) -> dict[str, Any]:
    """Measure batches under several budgets, and the time to plan them."""
    filled = count(max(round(PACKED * scale), POOL // 8))
    samples = max(round(PLANNED * scale), POOL)
    claims, planned = [], {}
    for title, facts in filled.items():
        text = f"{title}: fill of the budget that binds, over the bound of linear programming"
        claims.append(Claim(text, facts["fill"][LOOM], ">=", LEAST_FILL))
    for title, (draw, budgets) in TABLES.items():
        sizes = draw(samples)
        first = next(iter(budgets))
        candidates = [
            Candidate(LOOM, partial(plan, sizes, budgets), slow=True),
            Candidate(ONE, partial(plan, sizes[first], budgets[first]), slow=True),
        ]
        timings = interleave(f"planning, {title}", candidates, rounds)
        rows = [(each.name, f"{each.median:.3f}", f"{each.minimum:.3f}") for each in timings.values()]
        table(f"planning {samples} samples, {title}", ("candidate", "median s", "min s"), rows)
        print_disturbed(title, timings)
        text = f"{title}: seconds to plan {samples} samples with three budgets"
        claims.append(Claim(text, timings[LOOM].median, "<=", MOST_SECONDS))
        against = {"one budget": timings[ONE]}
        planned[title] = {"samples": samples, "candidates": [each.record(against) for each in timings.values()]}
    return {"filled": filled, "planned": planned, "claims": stated(claims)}
