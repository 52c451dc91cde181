"""Measure how long ranks wait for each other in packed epochs, as batches come and balanced by true cost.

    python -m bench balance --only plans [--rounds 5] [--scale 0.1] [--output FILE]

Four seeded sets of lengths: lognormal (mean 500, packs of 8192), 1K to 16K (a power law, packs of 16 384), a tail of
128K (lognormal, median 1500, packs of 131 072) and uniform (1 to 4096, packs of 8192). A sample of ``L`` tokens costs
``L + L**2 / 8192``. Promises:

- ``waiting``: the share of all ranks' time that is spent waiting, for 8, 64 and 512 ranks, of 1 000 000 and of 200 000
  samples. Shares are recounted from the samples of every step, for one setting of each set, and have to agree with
  ``stats()``. Steps that lack batches are dropped. ``bound`` is a lower bound for any packs of these samples: those
  above half a pack are alone in theirs.
- ``updates``: the same for updates of 8 steps of 64 ranks that hold random packs, where ranks wait at each step or once
  an update: as packs come, with ``balance_within="update"`` and with ``"update_sum"``. The last update, which lacks
  steps, is left out. ``step_spread`` is of updates, and ``packs`` of each pack alone: what random updates have.
- ``planning``: seconds to plan an epoch of 10 million lengths, balanced and as batches come, one after the other in
  each round.
- Shares are counts, not times: they are the same on every machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import batchloom as bl
import numpy

from bench.harness.claims import Claim, stated
from bench.harness.measure import LOOM, Candidate, interleave

EQUAL_AT = 8192
COST = bl.CostModel(per_token=1, per_pair=1 / EQUAL_AT)
RANKS = (8, 64, 512)
MANY, FEW, PLANNED = 1_000_000, 200_000, 10_000_000
# The longest that ranks may wait, and the largest spread of steps.
BOUNDS = {MANY: {8: 0.001, 64: 0.005, 512: 0.006}, FEW: {8: 0.003, 64: 0.02}}
LONG_TAIL = {(MANY, 512): 0.03}
SPREADS = {"lognormal": 3, "1K to 16K": 30, "128K tail": 5, "uniform": 1.5}
FILL = 0.002
ACCUMULATE = 8
# The longest that ranks may wait at each step of an update, and once an update.
AT_EACH_STEP = {"lognormal": 0.07, "1K to 16K": 0.06, "128K tail": 0.17, "uniform": 0.02}
ONCE_AN_UPDATE = {"lognormal": 0.06, "1K to 16K": 0.01, "128K tail": 0.06, "uniform": 0.005}
UPDATE_SPREAD = 1.3
SECONDS = {"lognormal": 1.0, "128K tail": 1.0, "1K to 16K": 1.5, "uniform": 1.5}
Costs = numpy.ndarray[Any, numpy.dtype[numpy.float64]]
Lengths = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


def draw(name: str, samples: int) -> tuple[Lengths, int]:
    """Return the lengths of samples, and the tokens of a pack."""
    random = numpy.random.default_rng(0)
    least, drawn, pack = {
        "lognormal": (16, lambda: random.lognormal(numpy.log(500) - 0.5, 1.0, samples), 8192),
        "1K to 16K": (16, lambda: numpy.maximum(1024 * random.random(samples) ** (-1 / 1.2), 1024), 16_384),
        "128K tail": (16, lambda: random.lognormal(numpy.log(1500), 1.5, samples), 131_072),
        "uniform": (1, lambda: random.integers(1, 4097, samples), 8192),
    }[name]
    return numpy.clip(drawn().astype(numpy.int64), least, pack), pack


def plan_of(lengths: Lengths, pack: int, world_size: int, **options: Any) -> bl.Plan:
    """Return the plan of an epoch."""
    order: dict[str, Any] = {"shuffle": True, "seed": 0, "world_size": world_size, "rank": 0, "drop_last": True}
    return bl.Plan(sizes=lengths, batching=bl.Packing(pack), **order, **options)


def recount(plan: bl.Plan, lengths: Lengths) -> float:
    """Return the share of time that ranks wait, from the samples of every step."""
    busy = longest = 0.0
    for step in range(len(plan)):
        batches = [lengths[batch].astype(float) for batch in plan.step(step).batches]
        costs = [float(batch.sum() + (batch * batch).sum() / EQUAL_AT) for batch in batches]
        busy, longest = busy + sum(costs), longest + max(costs)
    return 1 - busy / (longest * plan.world_size)


def least_waiting(lengths: Lengths, pack: int, world_size: int) -> float:
    """Return a lower bound of the share of time that ranks wait, for any packs and steps of these samples.

    Samples above half a pack are in packs without each other. So at least ``i`` steps have a maximum no less than the
    cost of the sample in place ``(i - 1) * world_size + 1``, the longest first, and the first of these steps hold no
    more cost than the longest tokens that fit their packs. The rest is divided evenly at best.
    """
    ordered = numpy.sort(lengths.astype(float))[::-1]
    each = ordered + ordered * ordered / EQUAL_AT
    total, tokens, costs = each.sum(), numpy.cumsum(ordered), numpy.cumsum(each)
    forced, most = 0.0, total / world_size
    for step, place in enumerate(range(0, int((ordered > pack / 2).sum()), world_size), 1):
        forced += each[place]
        last = min(int(numpy.searchsorted(tokens, step * world_size * pack)), len(costs) - 1)
        carried = min(world_size * forced, costs[last])
        most = max(most, forced + max(0.0, total - carried) / world_size)
    return float(1 - total / (world_size * most))


def measure_waiting(name: str, samples: int, scale: float) -> list[dict[str, Any]]:
    """Count how long ranks wait, as batches come and balanced."""
    lengths, pack = draw(name, round(samples * scale))
    rows = []
    for world_size in (ranks for ranks in RANKS if lengths.sum() > 2 * ranks * pack):
        plain, even = plan_of(lengths, pack, world_size), plan_of(lengths, pack, world_size, balance=COST)
        before, after, by_tokens = plain.stats(cost=COST), even.stats(), plain.stats()
        if world_size == RANKS[0] and abs(recount(even, lengths) - after["imbalance"]) > 1e-9:
            raise AssertionError(f"{name}: stats() do not agree with a recount")
        row = {
            "set": name,
            "samples": len(lengths),
            "ranks": world_size,
            "by_tokens": by_tokens["imbalance"],
            "as_they_come": before["imbalance"],
            "balanced": after["imbalance"],
            "bound": least_waiting(lengths, pack, world_size),
            "fill": [before["efficiency"], after["efficiency"]],
            "step_spread": [before["step_spread"], after["step_spread"]],
            "mates_kept": [before["mates_kept"], after["mates_kept"]],
        }
        rows.append(row)
        shares = " ".join(f"{key} {row[key]:.4f}" for key in ("by_tokens", "as_they_come", "balanced", "bound"))
        pairs = "; ".join(f"{key} {row[key][0]:.4f} {row[key][1]:.4f}" for key in ("fill", "step_spread", "mates_kept"))
        print(f"{name}, {len(lengths)} samples, {world_size} ranks: {shares}; {pairs}", flush=True)
    return rows


def claims_of(rows: list[dict[str, Any]], samples: int) -> list[Claim]:
    """Return the claims about one set."""
    claims = []
    for row in rows:
        name, ranks = row["set"], row["ranks"]
        bound = LONG_TAIL.get((samples, ranks)) if name == "128K tail" else None
        bound = bound or BOUNDS[samples].get(ranks)
        if bound is not None:
            claims.append(Claim(f"{name}, {samples} samples, {ranks} ranks: waiting", row["balanced"], "<=", bound))
        if ranks == RANKS[0]:
            claims.append(Claim(f"{name}, {samples}: fill lost", row["fill"][0] - row["fill"][1], "<=", FILL))
            if samples == MANY:
                spread = row["step_spread"][1]
                claims.append(Claim(f"{name}, {ranks} ranks: spread of steps", spread, "<=", SPREADS[name]))
    return claims


def update_costs(plan: bl.Plan, lengths: Lengths) -> Costs:
    """Return the costs of whole updates from the samples of their batches: update, step, rank."""
    each = lengths + lengths.astype(float) ** 2 / EQUAL_AT
    whole = [update.steps for update in map(plan.update, range(plan.updates)) if len(update.steps) == ACCUMULATE]
    rows = [[[each[batch].sum() for batch in plan.step(step).batches] for step in steps] for steps in whole]
    return numpy.array(rows)


def waits_of(costs: Costs) -> dict[str, float]:
    """Return the shares of time that ranks wait at each step, and once an update."""
    at_each, once = costs.max(2).sum(), costs.sum(1).max(1).sum()
    busy = costs.mean(2).sum()
    return {"at_each_step": float(1 - busy / at_each), "once_an_update": float(1 - busy / once)}


def spread_of_packs(plan: bl.Plan, lengths: Lengths) -> float:
    """Return the spread of packs, each by itself."""
    logs = numpy.log(lengths)
    mean, variance = logs.mean(), logs.var()
    packs = [logs[batch] for step in range(len(plan)) for batch in plan.step(step).batches]
    return float(numpy.mean([len(pack) * (pack.mean() - mean) ** 2 for pack in packs]) / variance)


def measure_updates(name: str, scale: float) -> tuple[dict[str, Any], list[Claim]]:
    """Count how long ranks wait in updates of random packs."""
    lengths, pack = draw(name, round(MANY * scale))
    ranks = RANKS[1]
    within = {way: {"balance": COST, "balance_within": way} for way in ("update", "update_sum")}
    plans = {
        way: plan_of(lengths, pack, ranks, accumulate=ACCUMULATE, **options)
        for way, options in {"as_they_come": {}, **within}.items()
    }
    waits = {way: waits_of(update_costs(plan, lengths)) for way, plan in plans.items()}
    spread, packs = plans["update"].stats()["step_spread"], spread_of_packs(plans["update"], lengths)
    for way, row in waits.items():
        print(f"{name}, updates of {ACCUMULATE} steps, {ranks} ranks, {way}: {row}", flush=True)
    print(f"{name}: spread of updates {spread:.2f}, of packs {packs:.2f}", flush=True)
    at_each, once = waits["update"]["at_each_step"], waits["update_sum"]["once_an_update"]
    claims = [
        Claim(f"{name}, update: waiting at each step", at_each, "<=", AT_EACH_STEP[name]),
        Claim(f"{name}, update_sum: waiting once an update", once, "<=", ONCE_AN_UPDATE[name]),
        Claim(f"{name}, update: spread of updates", spread, "<=", max(UPDATE_SPREAD, packs)),
    ]
    row = {"set": name, "samples": len(lengths), "ranks": ranks, "steps": ACCUMULATE, **waits}
    return row | {"step_spread": spread, "packs": packs}, claims


def planned(lengths: Lengths, pack: int, **options: Any) -> Callable[[], float]:
    """Return a function that plans an epoch and returns the seconds."""

    def run() -> float:
        start = time.perf_counter()
        len(plan_of(lengths, pack, RANKS[1], **options))
        return time.perf_counter() - start

    return run


def measure_planning(name: str, rounds: int, scale: float) -> tuple[dict[str, Any], list[Claim]]:
    """Time plans of many lengths."""
    lengths, pack = draw(name, round(PLANNED * scale))
    candidates = [
        Candidate(LOOM, planned(lengths, pack, balance=COST)),
        Candidate("as they come", planned(lengths, pack)),
    ]
    timings = interleave(f"planning, {name}", candidates, rounds)
    seconds = {each: timing.median for each, timing in timings.items()}
    ratio = timings[LOOM].ratio(timings["as they come"])
    print(f"{name}: balanced {seconds[LOOM]:.2f} s, as they come {seconds['as they come']:.2f} s, {ratio:.2f} times")
    least = min(seconds[LOOM] / SECONDS[name], ratio / 2)
    claim = Claim(f"planning {name}: seconds of its bound, or half of the ratio to as they come", least, "<=", 1)
    return {"set": name, "samples": len(lengths), "seconds": seconds, "ratio": ratio}, [claim]


def measure(rounds: int, scale: float) -> dict[str, Any]:
    """Measure all sets."""
    waiting, updates, planning, claims = [], [], [], []
    for samples in (MANY, FEW):
        for name in SPREADS:
            rows = measure_waiting(name, samples, scale)
            waiting += rows
            claims += claims_of(rows, samples)
    for name in SPREADS:
        counted, claimed = measure_updates(name, scale)
        updates.append(counted)
        claims += claimed
    for name in SPREADS:
        timed, claimed = measure_planning(name, rounds, scale)
        planning.append(timed)
        claims += claimed
    return {
        "part": "plans",
        "waiting": waiting,
        "updates": updates,
        "planning": planning,
        "claims": stated(claims),
    }
