"""Rollouts in hand: milliseconds of a call, and the time that ranks wait, beside verl, TRL and first fit decreasing.

Time: 512 samples on 8 and 64 ranks and 4096 on 64, each set of lengths. ``verl, as trainers call it`` is its division
among ranks over a tensor of workloads, ``verl, lists`` the same over a list; neither makes micro-batches, and the time
of batchloom includes them. TRL's batcher has rows that only count.

Quality: random inputs of up to 1024 samples on 2 to 64 ranks. All plans are judged by ``L + L**2 / 8192``, with as many
micro-batches as the peer has. Each plan of batchloom is checked: every sample once, cap, counts, none empty. Settings
where balance gains nothing are in the table too: one sample forces the wait of 512 samples on 64 ranks.
"""

from __future__ import annotations

import itertools
from statistics import mean
from typing import Any

import batchloom as bl
import numpy
import torch

from bench.balance.lengths import COST, SETS, cost_of, draw_lengths
from bench.balance.peers import (
    Plan,
    load_trl,
    load_verl,
    make_sample,
    plan_by_first_fit,
    plan_by_trl,
    plan_by_verl,
)
from bench.harness.claims import Claim, stated
from bench.harness.measure import LOOM, Candidate, Pace, interleave, progress
from bench.harness.report import print_not_measured, print_timings, table

SIZES = ((512, 8), (512, 64), (4096, 64))
MOST_MILLISECONDS = {(512, 64): dict.fromkeys(SETS, 0.5), (4096, 64): {**dict.fromkeys(SETS, 16.0), "lognormal": 10.0}}
TENSORS, LISTS, TRL = "verl, as trainers call it", "verl, lists", "TRL TokenBudgetBatcher"
BOUNDS = {TENSORS: 50.0, LISTS: 3.0, TRL: 20.0}
INPUTS, COMPARED, TABLED = 10_000, 2_000, 20
TOLERANCE = 1e-3
SYNCS = ("micro_batch", "update")


def measure_microbatches(rounds: int, scale: float) -> dict[str, Any]:
    """Measure time and quality."""
    torch.set_num_threads(1)
    verl, trl = load_verl(), load_trl()
    absent = {"verl": verl, "TRL": trl}
    reasons = {name: "it is not installed" for name, module in absent.items() if module is None}
    print_not_measured(reasons)
    timings, claims = _time_calls(verl, trl, rounds)
    tabled = _compare_sets(verl, trl, max(round(TABLED * scale), 1))
    quality, more = _compare_inputs(verl, trl, max(round(INPUTS * scale), 1), max(round(COMPARED * scale), 1))
    return {
        "part": "microbatches",
        "timings": timings,
        "sets": tabled,
        "quality": quality,
        "not_measured": reasons,
        "claims": stated([*claims, *more]),
    }


def _time_calls(verl: Any, trl: Any, rounds: int) -> tuple[list[dict[str, Any]], list[Claim]]:
    """Time calls of every planner in turn."""
    records, claims = [], []
    for name, (samples, world) in itertools.product(SETS, SIZES):
        title = f"{name}, {samples} samples on {world} ranks"
        full, most = draw_lengths(name, 400_000, seed=5)
        lengths = numpy.random.default_rng(3).choice(full, samples)
        timings = interleave(title, _candidates(verl, trl, lengths, world, most), rounds, Pace(seconds=0.1))
        print_timings(title, timings, {}, (LOOM, LOOM))
        for sync in ("", ", once an update"):
            bound = MOST_MILLISECONDS.get((samples, world), {}).get(name)
            if bound is not None:
                claims.append(Claim(f"{title}{sync}: milliseconds", timings[LOOM + sync].median * 1e3, "<=", bound))
        if samples == 512 and world == 64:
            claims += [
                Claim.of_ratio(f"{title}: {peer}, times batchloom's", timings[peer], timings[LOOM], ">=", bound)
                for peer, bound in BOUNDS.items()
                if peer in timings
            ]
        against = {"batchloom": timings[LOOM]}
        candidates = [timing.record(against) for timing in timings.values()]
        records.append({"set": name, "samples": samples, "world": world, "candidates": candidates})
    return records, claims


def _candidates(verl: Any, trl: Any, lengths: Any, world: int, most: int) -> list[Candidate]:
    def plan(sync: str) -> None:
        bl.microbatches(lengths, world_size=world, max_tokens=most, cost=COST, sync=sync)

    candidates = [
        Candidate(LOOM, lambda: plan("micro_batch")),
        Candidate(f"{LOOM}, once an update", lambda: plan("update")),
    ]
    if verl is not None:
        tensor = torch.tensor(lengths)

        def divide(as_list: bool) -> None:
            work = verl.calculate_workload(tensor)
            verl.get_seqlen_balanced_partitions(work.tolist() if as_list else work, k_partitions=world, equal_size=True)

        candidates.append(Candidate(TENSORS, lambda: divide(False), slow=len(lengths) > 512))
        candidates.append(Candidate(LISTS, lambda: divide(True)))
    if trl is not None:
        stream = [make_sample(number, length) for number, length in enumerate(lengths.tolist())]
        candidates.append(Candidate(TRL, lambda: _exhaust(trl(stream, world, most, {}))))
    return candidates


def _exhaust(batches: Any) -> None:
    for _ in batches:
        pass


def plan_by_batchloom(lengths: Any, world: int, most: int, sync: str, **options: Any) -> Plan:
    """Plan with batchloom, and check every law."""
    planned = bl.microbatches(lengths, world_size=world, max_tokens=most, cost=COST, sync=sync, **options)
    slots = numpy.full(len(lengths), -1, numpy.int64)
    for rank, micro_batches in enumerate(planned):
        for place, (samples, weights) in enumerate(zip(micro_batches, planned.weights(rank), strict=True)):
            assert len(samples)
            assert lengths[samples].sum() <= most
            slots[samples[weights > 0]] = place * world + rank
    assert slots.min() >= 0
    assert planned.weight.sum() == len(lengths)
    assert (planned.index[planned.inverse] == numpy.arange(len(lengths))).all()
    return slots, planned.count


def waiting(plan: Plan, lengths: Any, world: int, sync: str) -> float:
    """Return the share of the time of all ranks that is spent waiting."""
    slots, count = plan
    costs = numpy.bincount(slots, weights=cost_of(lengths), minlength=count * world).reshape(count, world)
    time = costs.sum(0).max() if sync == "update" else costs.max(1).sum()
    return float(1 - costs.sum() / world / time)


def _compare_sets(verl: Any, trl: Any, draws: int) -> list[dict[str, Any]]:
    """Compare planners at the numbers of micro-batches that they choose, on seeded draws of each set."""
    rows, records = [], []
    for name, (samples, world) in itertools.product(SETS, ((512, 8), (512, 64), (2048, 64))):
        full, most = draw_lengths(name, 400_000, seed=5)
        rng = numpy.random.default_rng(11)
        found: dict[str, list[tuple[float, float, float]]] = {}
        bounds = []
        for _ in range(draws):
            lengths = rng.choice(full, samples)
            for peer, plan in _plan_by_peers(verl, trl, lengths, world, most).items():
                if plan is not None:
                    waits = [waiting(plan, lengths, world, sync) for sync in SYNCS]
                    found.setdefault(peer, []).append((plan[1], waits[0], waits[1]))
            plans = [plan_by_batchloom(lengths, world, most, sync) for sync in SYNCS]
            waits = [waiting(plan, lengths, world, sync) for plan, sync in zip(plans, SYNCS, strict=True)]
            found.setdefault(LOOM, []).append((plans[0][1], waits[0], waits[1]))
            options = {"world_size": world, "max_tokens": most, "cost": COST}
            bounds.append([bl.microbatches(lengths, sync=sync, **options).bound for sync in SYNCS])
        least = [mean(column) for column in zip(*bounds, strict=True)]
        means = {peer: [mean(column) for column in zip(*values, strict=True)] for peer, values in found.items()}
        records.append({"set": name, "samples": samples, "world": world, "bound": least, "means": means})
        for peer, (count, each, once) in means.items():
            case = f"{name} {samples} x {world}"
            cells = (f"{count:.2f}", f"{each:.4f}", f"{least[0]:.4f}", f"{once:.4f}", f"{least[1]:.4f}")
            rows.append((case, peer, *cells))
    heads = ("set", "planner", "micro-batches", "waits at each", "at least", "once an update", "at least")
    table("Waiting, at the planner's own number of micro-batches", heads, rows)
    return records


def _plan_by_peers(verl: Any, trl: Any, lengths: Any, world: int, most: int) -> dict[str, Plan | None]:
    plans: dict[str, Plan | None] = {}
    numbers = lengths.tolist()
    if verl is not None:
        plans["verl"] = plan_by_verl(verl, numbers, world, most)
        plans["first fit and differencing"] = plan_by_first_fit(verl, numbers, world, most)
    if trl is not None:
        plans["TRL"] = plan_by_trl(trl, numbers, world, most)
    return plans


def _compare_inputs(verl: Any, trl: Any, inputs: int, compared: int) -> tuple[dict[str, Any], list[Claim]]:
    """Check the laws on random inputs, and compare the first of them with each peer at as many micro-batches."""
    rng = numpy.random.default_rng(0)
    sets = {name: draw_lengths(name, 100_000, seed=9) for name in SETS}
    counts: dict[str, int] = {}
    more = 0
    for number in range(inputs):
        full, most = sets[SETS[rng.integers(4)]]
        world = int(rng.choice([2, 4, 8, 16, 32, 64]))
        samples = world * int(rng.integers(1, 1 + min(32, 1024 // world)))
        lengths = rng.choice(full, samples)
        cap = int(max(lengths.max(), most * rng.choice([0.25, 0.5, 1, 2])))
        plans = {sync: plan_by_batchloom(lengths, world, cap, sync) for sync in SYNCS}
        if number >= compared:
            continue
        progress(f"quality: {number + 1} of {compared}")
        for peer, plan in _plan_by_peers(verl, trl, lengths, world, cap).items():
            if plan is None:
                continue
            more += peer == "verl" and plans["update"][1] > plan[1]
            for sync in SYNCS:
                own = plan_by_batchloom(lengths, world, cap, sync, least=plan[1])
                is_close = own[1] == plan[1]
                no_worse = waiting(own, lengths, world, sync) <= waiting(plan, lengths, world, sync) + TOLERANCE
                for key, value in ((f"{peer}, {sync}: inputs", is_close), (f"{peer}, {sync}", is_close and no_worse)):
                    counts[key] = counts.get(key, 0) + value
    names = [name for name in counts if not name.endswith("inputs")]
    shares = {name: counts[name] / max(counts[f"{name}: inputs"], 1) for name in names}
    claims = [Claim(f"no worse than {name}: share of inputs", share, ">=", 0.99) for name, share in shares.items()]
    if verl is not None:
        claims.append(Claim("inputs with more micro-batches than verl", more, "<=", 0))
    return {"inputs_with_all_laws": inputs, "compared": compared, "counts": counts, "shares": shares}, claims
