"""Measure the randomness of batches against their padding: how many batch mates stay together from epoch to epoch.

    python -m bench randomness [--rounds 5] [--scale 0.1] [--output FILE] [--pictures FOLDER]

Promises:

- ``defaults``: mates kept, padding and batches of every rule for three sets of lengths of 1e3 to 1e6 samples: as the
  defaults were before they kept batches new (pools of 100 batches or of 16 384 samples, packing the longest first),
  and as they are.
- ``frontier``: padding against mates kept of two rules, for 1e3 and 1e4 samples: batchloom's default, its pools that
  are given, and the peers at settings from most random to least padded; each point a mean over epochs, as many as
  ``--rounds``.
- A peer's padding at the mates that batchloom's default keeps is read off the line between its nearest points. A peer
  that cannot keep as few is left out, and the JSON says so.
- These are counts, not times: they are the same on every machine.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from statistics import fmean
from typing import Any

import batchloom
import numpy

from bench.harness.claims import Claim, stated
from bench.harness.command import PICTURES, arguments, is_whole
from bench.harness.record import pictures_folder, write
from bench.harness.report import table
from bench.randomness.peers import (
    BATCH,
    BUDGET,
    LENGTHS,
    PEERS,
    SHARES,
    Lengths,
    lengths_of,
    mates_kept,
    padding,
    rule_of,
)
from bench.randomness.pictures import draw

SIZES, FRONTIER_SIZES = (1000, 10_000, 100_000, 1_000_000), (1000, 10_000)
COST = batchloom.CostModel(2000, 1, 0)
CAPACITY = 8192
# Each rule as its defaults were, and as they are.
RULES = {
    "LengthBuckets": (batchloom.LengthBuckets(BATCH, pool=100), batchloom.LengthBuckets(BATCH)),
    "TokenBudget": (batchloom.TokenBudget(BUDGET, pool=16_384), batchloom.TokenBudget(BUDGET)),
    "CostOptimal": (
        batchloom.CostOptimal(COST, max_tokens=BUDGET, pool=16_384),
        batchloom.CostOptimal(COST, max_tokens=BUDGET),
    ),
    "Packing": (batchloom.Packing(CAPACITY, order="decreasing"), batchloom.Packing(CAPACITY)),
}
# The share of mates that a default may keep.
MOST_KEPT = 0.27
Record = dict[str, Any]


def figures(lengths: Lengths, rule: Any) -> Record:
    """Return mates kept, padding and batches of an epoch by this rule."""
    stats = batchloom.Plan(sizes=lengths, batching=rule, shuffle=True).stats()
    filled = {} if stats["efficiency"] is None else {"efficiency": stats["efficiency"]}
    return {name: stats[name] for name in ("mates_kept", "padding", "batches", "length_correlation")} | filled


def measure_defaults(scale: float) -> Record:
    """Measure the defaults of every rule, before and now."""
    found: list[Record] = []
    for samples in (max(round(size * scale), 200) for size in SIZES):
        for kind in LENGTHS:
            lengths = lengths_of(kind, samples)
            for name, (before, now) in RULES.items():
                of_rule = {"before": figures(lengths, before), "now": figures(lengths, now)}
                found.append({"samples": samples, "lengths": kind, "rule": name, **of_rule})
    rows = [
        (
            *(str(each[name]) for name in ("samples", "lengths", "rule")),
            *(f"{each[when][what]:.3f}" for what in ("mates_kept", "padding") for when in ("before", "now")),
            *(str(each[when]["batches"]) for when in ("before", "now")),
        )
        for each in found
    ]
    heads = ("samples", "lengths", "rule", "kept before", "now", "padding before", "now", "batches before", "now")
    table("defaults", heads, rows)
    most = max(each["now"]["mates_kept"] for each in found)
    return {"workload": "defaults", "rules": found, "claims": stated([Claim("mates kept", most, "<=", MOST_KEPT)])}


def measure_frontier(kind: str, samples: int, rule: str, epochs: int) -> Record:
    """Measure padding against mates kept, of batchloom and of the peers."""
    lengths = lengths_of(kind, samples)
    points = {"batchloom, pools": [loom_point(lengths, rule, share, epochs) for share in SHARES]}
    for name, (peer, settings) in PEERS.items():
        make = peer(lengths, rule)
        points[name] = [peer_point(make, setting, lengths, epochs) for setting in settings]
    default = loom_point(lengths, rule, None, epochs)
    at_default = {name: between(each, default["mates_kept"]) for name, each in points.items()}
    claims = [
        Claim(f"{samples} {kind} lengths, {rule}: padding, times that of {name}", default["padding"] / found, "<=", 1)
        for name, found in at_default.items()
        if name in PEERS and found is not None
    ]
    print(f"{samples} {kind} {rule}: default keeps {default['mates_kept']:.3f}, pads {default['padding']:.3f}")
    return {
        "workload": "frontier",
        "samples": samples,
        "lengths": kind,
        "rule": rule,
        "default": default,
        "points": points,
        "padding_of_others_at_the_mates_of_the_default": at_default,
        "claims": stated(claims),
    }


def loom_point(lengths: Lengths, rule: str, share: float | None, epochs: int) -> Record:
    """Return batchloom's mates kept and padding with a pool of this share; ``None`` for the default."""
    plan = batchloom.Plan(sizes=lengths, batching=rule_of(rule, share, len(lengths)), shuffle=True)
    stats = [plan.at_epoch(epoch).stats() for epoch in range(epochs)]
    means = {name: fmean(each[name] for each in stats) for name in ("mates_kept", "padding", "batches")}
    return {"setting": share, **means}


def peer_point(make: Any, setting: Any, lengths: Lengths, epochs: int) -> Record:
    """Return a peer's mates kept and padding at one setting."""
    found = [make(setting, numpy.random.default_rng(epoch)) for epoch in range(epochs + 1)]
    return {
        "setting": setting,
        "mates_kept": fmean(mates_kept(now, later) for now, later in pairwise(found)),
        "padding": fmean(padding(batches, lengths) for batches in found),
        "batches": fmean(map(len, found)),
    }


def between(points: list[Record], kept: float) -> float | None:
    """Return the padding on the line between the nearest points; the least that is known where more are kept."""
    ordered = sorted((each["mates_kept"], each["padding"]) for each in points)
    if kept < ordered[0][0]:
        return None
    return float(numpy.interp(kept, *zip(*ordered, strict=True)))


def main() -> None:
    """Run the chapter."""
    chosen: argparse.Namespace = arguments(__doc__, pictures=PICTURES)
    cases = [measure_defaults(chosen.scale)]
    for samples in (max(round(size * chosen.scale), 200) for size in FRONTIER_SIZES):
        for kind in LENGTHS:
            cases += [measure_frontier(kind, samples, rule, chosen.rounds) for rule in ("LengthBuckets", "TokenBudget")]
    write("randomness", chosen, {"cases": cases}, is_whole(chosen))
    print(f"drawn: {draw(cases, pictures_folder(chosen, is_whole(chosen)))}")


if __name__ == "__main__":
    main()
