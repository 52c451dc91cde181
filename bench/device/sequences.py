"""Measure documents of any length on a device: the published experiment, with batchloom's batches made there.

Model, documents, calibration and check are those of the chapter ``sequences``, and so are its promises: each strategy
decides every document as the first one does, and the whole of an inference run is timed. batchloom's batches are made
in two ways: *resident* moves the documents to the device, pads and packs there; *streamed* makes batches in pinned
memory and copies them. Sizes that have to be chosen are chosen once, for both. Batches that are padded to the longest
of all cost the same, so the first of them are timed. Packs with an attention for each document are left out: a device
would wait for the start of each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import batchloom
import torch

from bench.device.place import Found, Place, spread
from bench.harness.claims import Claim
from bench.harness.measure import Candidate, Timing
from bench.harness.report import print_disturbed
from bench.sequences import bench as sequences
from bench.sequences.bench import DOCUMENTS, FASTER_THAN_FIRST, MEAN_LENGTH, SEED, SHARE_OF_BOUND, VOCABULARY
from bench.sequences.model import Model, random_documents
from bench.sequences.peers import (
    BATCH,
    BOUND,
    BOUND_DEFINITION,
    JOINED,
    OPTIMAL,
    PACKED_LENGTHS,
    PACKED_ROWS,
    PAD_ALL,
    Experiment,
    Strategy,
    bound,
    loom,
    published,
)

# The CPU takes fewer documents and a smaller model.
CPU_DOCUMENTS, CPU_HIDDEN, CPU_DEPTH, CPU_TOKENS = 1 / 16, 32, 2, 1024
RESIDENT, STREAMED = "resident", "streamed"
LOOM = (OPTIMAL, JOINED, PACKED_ROWS, PACKED_LENGTHS)
# The sizes that a GPU tries, in tokens; a round takes seconds there, so there are few.
MAX_TOKENS, LEAST_TRIED, ROUNDS, PADDED_BATCHES = 65_536, 16_384, 3, 16


def measure_sequences(place: Place) -> Found:
    """Measure all strategies; return its record for the JSON."""
    experiment = drawn(place)
    cost, calibration = sequences.calibrate(experiment, most=1)
    limit, strategies = bound(experiment), [*published(experiment), *made_there(place, experiment, cost)]
    checked = sequences.check(strategies, experiment.model)
    candidates = [candidate(each, experiment, checked[each.name]) for each in strategies]
    candidates.append(sequences.candidate(limit, limit.facts["documents"] * limit.facts["length"], {}))
    timings = place.interleave("sequences", candidates, ROUNDS)
    facts = {"calibration": calibration, "bound": BOUND_DEFINITION}
    return Found({**facts, **report(experiment, timings)}, claims_of(timings))


def candidate(strategy: Strategy, experiment: Experiment, checked: dict[str, Any]) -> Candidate:
    """Make a strategy ready to be timed: all of a run, or the first of batches that cost the same."""
    whole = sequences.candidate(strategy, experiment.tokens, checked)
    if strategy.name != PAD_ALL:
        return whole
    most = min(PADDED_BATCHES, whole.facts["passes"])
    facts = {**whole.facts, "measured_batches": most}
    return replace(whole, run=lambda: strategy.seconds_of_part(facts["passes"], most), facts=facts)


def drawn(place: Place) -> Experiment:
    """Draw the documents and the model: the published ones, on a GPU."""
    sizes = sequences.defaults(place.device.type)
    dtype = getattr(torch, sizes["dtype"])
    hidden, depth = (sizes["hidden"], sizes["depth"]) if place.is_gpu else (CPU_HIDDEN, CPU_DEPTH)
    model = Model(hidden, depth, VOCABULARY, place.device, dtype, SEED)
    documents = random_documents(place.scaled(DOCUMENTS, CPU_DOCUMENTS, least=BATCH), MEAN_LENGTH, VOCABULARY, SEED)
    if place.is_gpu:
        return Experiment(documents, model, MAX_TOKENS, LEAST_TRIED)
    return Experiment(documents, model, CPU_TOKENS, CPU_TOKENS)


def made_there(place: Place, experiment: Experiment, cost: batchloom.CostModel) -> list[Strategy]:
    """Return batchloom's strategies in both modes. Sizes are chosen for resident documents."""
    resident = loom(experiment, cost, names=LOOM, device=place.device, resident=True)
    facts = {each.name: each.facts for each in resident}
    known = {name: each["chosen"] for name, each in facts.items() if each}
    streamed = loom(experiment, cost, known, LOOM, device=place.device, resident=False)
    modes = {RESIDENT: resident, STREAMED: streamed}
    return [
        replace(each, name=called(each.name, mode), facts=dict(facts[each.name]))
        for mode, strategies in modes.items()
        for each in strategies
    ]


def called(name: str, mode: str) -> str:
    """Return the name of a strategy whose batches are made on the device."""
    return f"{name}, {mode}"


def report(experiment: Experiment, timings: dict[str, Timing]) -> dict[str, Any]:
    """Print the measurements; return them for the JSON."""
    model = experiment.model
    of = f"{len(experiment.documents)} documents, {experiment.tokens} tokens; {model}"
    sequences.print_timings(of, timings)
    print_disturbed("sequences", timings)
    print(sequences.decided(timings, model.tolerance))
    against = {"first": timings[PAD_ALL], "bound": timings[BOUND]}
    documents = {"count": len(experiment.documents), "tokens": experiment.tokens, "longest": max(experiment.lengths)}
    return {
        "model": model.facts,
        "documents": {**documents, "pairs": experiment.pairs},
        "tolerance": model.tolerance,
        "candidates": [{**timing.record(against), "spread": spread(timing)} for timing in timings.values()],
    }


def claims_of(timings: dict[str, Timing]) -> list[Claim]:
    """Return the numbers to reach: of the fastest resident and the fastest streamed strategy."""
    first, limit = timings[PAD_ALL], timings[BOUND]
    claims = []
    for mode in (RESIDENT, STREAMED):
        fastest = min((timings[called(name, mode)] for name in LOOM), key=lambda timing: timing.median)
        text = f"sequences: speed of {fastest.name}, times"
        claims += [
            Claim.of_ratio(f"{text} that of: {PAD_ALL}", first, fastest, ">=", FASTER_THAN_FIRST),
            Claim.of_ratio(f"{text} that without padding", limit, fastest, ">=", SHARE_OF_BOUND),
        ]
    return claims
