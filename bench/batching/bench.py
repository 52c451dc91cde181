"""Measure planning: which of ten million sequences share a batch, within seconds.

    python -m bench batching [--only "token budget"] [--rounds 5] [--scale 0.02] [--output FILE]

Lengths are lognormal (median 300, sigma 1), whole numbers from 1 to 8192. Four rules, each shuffled with its default
pools and as one pool that holds everything, beside planners for the same purpose. Promises:

- Before anything is timed, each planner's answer is recounted: every sample exactly once, its padding, the batches
  over the budget. ``plan.stats()`` must agree with the recount. The cost-optimal batches of a part must cost as
  little as those of an exhaustive dynamic programme.
- batchloom is timed as a loader uses it (the plan, its length, its first batch), and with every batch named.
- Slow peers plan the first samples only; their seconds are scaled to all (``measured_samples`` says so). This favours
  them: a sort of all takes longer than its part. Functions of numba are compiled before the clock starts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch

from bench.batching.peers import CHEAPEST, PLANNERS, RULES, Cut, Planner, Work, account, loom
from bench.harness.claims import Claim, stated
from bench.harness.command import arguments, is_whole, wanted
from bench.harness.measure import LOOM, Candidate, Timing, interleave
from bench.harness.record import write
from bench.harness.report import faster_than, fastest_first, print_disturbed, print_not_measured, table

SAMPLES = 10_000_000
MEDIAN, SIGMA, LONGEST = 300, 1.0, 8192
SLOW_SECONDS = 1.0
BOUNDS = {"token budget": 0.5, "cost-optimal": 2.0, "packing": 2.0}
EFFICIENCY = 0.999


def draw(samples: int) -> numpy.ndarray:
    """Draw the lengths."""
    drawn = numpy.random.default_rng(0).lognormal(math.log(MEDIAN), SIGMA, samples)
    return numpy.clip(numpy.rint(drawn), 1, LONGEST).astype(numpy.int64)


def candidate(planner: Planner, work: Work) -> Candidate:
    """Recount the answer of a planner, and make it ready for the clock.

    Raises:
        ImportError: It is not installed.
    """
    part = work.first(min(planner.samples or len(work.lengths), len(work.lengths)))
    run = planner.prepare(part)
    answer, seconds = timed(run)
    counted = account(planner.cut(answer, part), part)
    factor = SAMPLES / len(part.lengths)
    facts = {"samples": len(work.lengths), "measured_samples": len(part.lengths), **counted}
    return Candidate(planner.name, lambda: timed(run)[1] * factor, facts, slow=seconds > SLOW_SECONDS)


def timed(run: Callable[[], Any]) -> tuple[Any, float]:
    """Run a planner; return its answer and its seconds. To forget the answer does not count."""
    start = time.perf_counter()
    answer = run()
    return answer, time.perf_counter() - start


def measure(rule: str, shuffle: bool, lengths: numpy.ndarray, rounds: int) -> dict[str, Any]:
    """Run one rule in one order."""
    work, candidates, not_measured = Work(rule, lengths, shuffle), [], {}
    for planner in PLANNERS[rule]:
        if shuffle not in planner.orders:
            continue
        try:
            candidates.append(candidate(planner, work))
        except ImportError as error:
            not_measured[planner.name] = str(error)
    check_stats(work, candidates[0].facts)
    check_cost(work, candidates)
    title = f"{rule}, {'shuffled' if shuffle else 'one pool'}"
    return report(title, work, interleave(title, candidates, rounds), not_measured)


def check_stats(work: Work, counted: dict[str, Any]) -> None:
    """Refuse a plan whose statistics differ from the count.

    Raises:
        AssertionError: They differ.
    """
    stats = loom(work)().stats()
    assert stats["samples"] == len(work.lengths), "samples in plan.stats()"
    assert stats["batches"] == counted["batches"], "batches in plan.stats()"
    assert stats["real"] == work.lengths.sum(), "real elements in plan.stats()"
    assert counted["over_budget"] == 0, "a batch over its budget"
    stated = stats["efficiency"] if work.rule == "packing" else stats["real"] / stats["padded"]
    assert math.isclose(stated, counted["efficiency"]), "efficiency in plan.stats()"


def check_cost(work: Work, candidates: list[Candidate]) -> None:
    """Refuse a cut that calls itself optimal and is not: one pool, against the exhaustive programme.

    Raises:
        AssertionError: There is a cheaper cut.
    """
    exact = next((each.facts for each in candidates if each.name == CHEAPEST), None)
    if exact is None or work.shuffle:
        return
    part = work.first(exact["measured_samples"])
    found = account(Cut.of(loom(part)()), part)["modelled_seconds"]
    assert math.isclose(found, exact["modelled_seconds"], rel_tol=1e-9), "not the cheapest cut"


def report(title: str, work: Work, timings: dict[str, Timing], not_measured: dict[str, str]) -> dict[str, Any]:
    """Print the measurements; return them for the JSON."""
    loom = timings[LOOM]
    print_timings(title, timings)
    print_disturbed(title, timings)
    print_not_measured(not_measured)
    return {
        "rule": work.rule,
        "shuffle": work.shuffle,
        "settings": repr(RULES[work.rule]),
        "tokens": int(work.lengths.sum()),
        "seconds_are_for_samples": SAMPLES,
        "candidates": [timing.record({"batchloom": loom}) for timing in timings.values()],
        "not_measured": not_measured,
        "claims": stated(claims_of(title, work.rule, loom)),
        "faster_than_batchloom": faster_than(LOOM, timings),
    }


def claims_of(title: str, rule: str, loom: Timing) -> list[Claim]:
    """Return the numbers to reach."""
    if rule not in BOUNDS:
        return []
    claims = [Claim(f"{title}: seconds for {SAMPLES // 10**6} million", loom.median, "<=", BOUNDS[rule])]
    if rule == "packing":
        claims.append(Claim(f"{title}: efficiency", loom.candidate.facts["efficiency"], ">=", EFFICIENCY))
    return claims


def print_timings(title: str, timings: dict[str, Timing]) -> None:
    """Print one line for each candidate, the fastest first; counts are for a million samples."""
    heads = ("candidate", "median s", "min s", "x batchloom", "measured", "batches/M", "efficiency", "over", "cost/M")
    rows = [row(timing, timings[LOOM]) for timing in fastest_first(timings)]
    table(f"{title}: seconds for {SAMPLES // 10**6} million", heads, rows)


def row(timing: Timing, loom: Timing) -> tuple[str, ...]:
    """Return one line of the table."""
    facts = timing.candidate.facts
    millions = facts["measured_samples"] / 1e6
    cost = facts.get("modelled_seconds")
    return (
        timing.name,
        f"{timing.median:.3f}",
        f"{timing.minimum:.3f}",
        f"{timing.ratio(loom):.2f}",
        f"{facts['measured_samples']}",
        f"{facts['batches'] / millions:.0f}",
        f"{facts['efficiency']:.5f}",
        f"{facts['over_budget']}",
        "-" if cost is None else f"{cost / millions:.2f}",
    )


def main() -> None:
    """Run the chapter."""
    chosen = arguments(__doc__, RULES)
    torch.manual_seed(0)
    lengths = draw(max(round(SAMPLES * chosen.scale), 1000))
    orders = [(rule, shuffle) for rule in wanted(chosen, RULES) for shuffle in (True, False)]
    cases = [measure(rule, shuffle, lengths, chosen.rounds) for rule, shuffle in orders]
    write("batching", chosen, {"cases": cases}, is_whole(chosen))


if __name__ == "__main__":
    main()
