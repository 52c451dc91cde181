"""Run the published experiment on documents of any length: the cost of padding, by strategy.

    python -m bench sequences [--device cpu] [--hidden 128] [--depth 4] [--rounds 9] [--scale 0.1] [--output FILE]

1000 documents with exponential lengths go through a model of blocks of attention and linear layers (model.py), and one
bit is decided for each. Four strategies are the published ones; batchloom's are
``CostOptimal``, with a cost that ``bl.calibrate`` measured on this model, and ``Packing``, with two forms of attention
(peers.py). On a CUDA device the model is the published one, 4096 x 70 in float16; elsewhere it is a small one in
float32. Promises:

- Padding is masked out of the attention, so it decides nothing. Before anything is timed, each strategy has shown that
  it decides every document as the first one does; it may differ only where rounding may tip the decision
  (``Model.tolerance``), and the JSON counts those documents.
- Timing covers a whole inference run: sorting, batching, collation, moving batches to the device, the model, and
  results in order on the CPU. Work that is done once for a model is left out: building it, the calibration (its
  seconds are in the JSON) and the choice of a size for packs.
- Padding is counted where the linear layers see it: tokens that go through them, less the real ones.
- The bound is measured in the same rounds; ``peers.BOUND_DEFINITION`` defines it.
- It draws the documents and the batches that it measured (pictures.py).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import batchloom
import torch
from torch import Tensor

from bench.harness.claims import Claim, stated
from bench.harness.command import PICTURES, arguments, is_whole
from bench.harness.measure import Candidate, Timing, interleave
from bench.harness.record import pictures_folder, write
from bench.harness.report import faster_than, print_disturbed, table
from bench.sequences.model import Model, random_documents
from bench.sequences.peers import (
    BATCH,
    BOUND,
    LOOM,
    OPTIMAL,
    PAD_ALL,
    PUBLISHED,
    Experiment,
    Strategy,
    bound,
    loom,
    published,
    tokens_in,
)
from bench.sequences.pictures import Cut, draw

DOCUMENTS, MEAN_LENGTH, VOCABULARY, SEED = 1000, 50.0, 65_535, 0
# The published model, and one that a CPU runs in seconds.
DEFAULTS: dict[str, dict[str, Any]] = {
    "cuda": {"hidden": 4096, "depth": 70, "dtype": "float16", "max_tokens": 32_768},
    "cpu": {"hidden": 128, "depth": 4, "dtype": "float32", "max_tokens": 8192},
}
# A calibration that another process disturbed fits badly: it is tried again, at most so often, and the best one counts.
GOOD_FIT, CALIBRATIONS = 0.2, 3
FASTER_THAN_FIRST, SHARE_OF_BOUND = 8.5, 0.95


def calibrate(experiment: Experiment, most: int = CALIBRATIONS) -> tuple[batchloom.CostModel, dict[str, Any]]:
    """Measure the cost of a padded batch on this model, at most so often; return it, and its record for the JSON."""
    model = experiment.model

    def step(documents: int, length: int) -> None:
        tokens = torch.zeros(documents, length, dtype=torch.int64)
        model.padded(tokens, torch.ones(documents, length, dtype=torch.bool))

    start = time.perf_counter()
    costs: list[batchloom.CostModel] = []
    while len(costs) < most and not (costs and error(costs[-1]) <= GOOD_FIT):
        costs.append(batchloom.calibrate(step, shapes=shapes(experiment), device=model.device))
    seconds, cost = time.perf_counter() - start, min(costs, key=error)
    print(f"calibrated in {seconds:.1f} s: {cost}\n{cost.fit}", flush=True)
    return cost, {"seconds": seconds, "tries": len(costs), **asdict(cost)}


def error(cost: batchloom.CostModel) -> float:
    """Return the median relative error of a calibrated cost."""
    return cost.fit.error if cost.fit else 0.0


def shapes(experiment: Experiment) -> list[tuple[int, int]]:
    """Return a spread of batch shapes: lengths that occur, from one document to the most that the memory holds."""
    longest, most = max(experiment.lengths), experiment.max_tokens
    lengths = sorted({max(longest // part, 1) for part in (1, 2, 4, 8, 16, 64)})
    return [(count, length) for length in lengths for count in (1, 8, 32, 128) if count * length <= most]


def check(strategies: Sequence[Strategy], model: Model) -> dict[str, dict[str, Any]]:
    """Run each strategy once; return the record of its decisions, or stop where one is wrong."""
    margins = {strategy.name: margins_of(strategy.run()) for strategy in strategies}
    return {name: compare(name, each, margins[PAD_ALL], model.tolerance) for name, each in margins.items()}


def margins_of(logits: Tensor) -> Tensor:
    """Return the second of a document's two values less the first; its sign is the decision."""
    return logits[:, 1].double() - logits[:, 0].double()


def compare(name: str, margins: Tensor, first: Tensor, tolerance: float) -> dict[str, Any]:
    """Compare decisions with those of the first strategy."""
    if not margins.isfinite().all():
        raise SystemExit(f"{name}: values are not finite; this model does not fit its numbers")
    otherwise, near = (margins >= 0) != (first >= 0), first.abs() < tolerance
    wrong = (otherwise & ~near).nonzero().flatten().tolist()
    if wrong:
        raise SystemExit(f"{name}: documents {wrong[:8]} ({len(wrong)} in all) are decided otherwise than by the first")
    return {
        "largest_deviation": (margins - first).abs().max().item(),
        "documents_near": int(near.sum()),
        "decided_otherwise": int(otherwise.sum()),
    }


def candidate(strategy: Strategy, real: int, checked: dict[str, Any]) -> Candidate:
    """Make a strategy ready to be timed; its check has warmed it up."""
    passes = [sum(map(tokens_in, batches)) for batches in strategy.passes()]
    tokens = sum(passes)
    counted = {"passes": len(passes), "largest_pass": max(passes), "tokens": tokens, "padded_tokens": tokens - real}
    return Candidate(strategy.name, strategy.seconds, {**counted, **strategy.facts, **checked}, slow=True)


def claims_of(timings: dict[str, Timing], on_cuda: bool) -> list[Claim]:
    """Return the numbers to reach on this device."""
    if not on_cuda:
        ours = timings[OPTIMAL]
        text = f"time of {OPTIMAL}, times that of"
        return [Claim.of_ratio(f"{text}: {name}", ours, timings[name], "<", 1) for name in PUBLISHED]
    first, limit = timings[PAD_ALL], timings[BOUND]
    fastest = min((timings[name] for name in LOOM), key=lambda timing: timing.median)
    text = f"speed of {fastest.name}, times"
    return [
        Claim.of_ratio(f"{text} that of: {PAD_ALL}", first, fastest, ">=", FASTER_THAN_FIRST),
        Claim.of_ratio(f"{text} the bound's", limit, fastest, ">=", SHARE_OF_BOUND),
    ]


def print_timings(title: str, timings: dict[str, Timing]) -> None:
    """Print one line for each strategy."""
    first, limit = timings[PAD_ALL], timings[BOUND]
    heads = ("strategy", "median s", "min s", "passes", "padded tokens", "padding", "x first", "of bound")
    rows = []
    for timing in timings.values():
        facts = timing.candidate.facts
        padding = (f"{facts['padded_tokens']}", f"{facts['padded_tokens'] / facts['tokens']:.1%}")
        ratios = (f"{first.ratio(timing):.2f}", f"{limit.ratio(timing):.1%}")
        rows.append(
            (timing.name, f"{timing.median:.3f}", f"{timing.minimum:.3f}", f"{facts['passes']}", *padding, *ratios)
        )
    table(title, heads, rows)


def measure(experiment: Experiment, rounds: int, pictures: Path) -> dict[str, Any]:
    """Run everything; return its record for the JSON."""
    cost, calibration = calibrate(experiment)
    limit, strategies = bound(experiment), [*published(experiment), *loom(experiment, cost)]
    checked = check(strategies, experiment.model)
    for path in draw(pictures, experiment.documents, {each.name: cuts_of(each) for each in strategies}):
        print(f"drawn: {path}")
    candidates = [candidate(each, experiment.tokens, checked[each.name]) for each in strategies]
    candidates.append(candidate(limit, limit.facts["documents"] * limit.facts["length"], {}))
    return {"calibration": calibration, **report(experiment, interleave("sequences", candidates, rounds))}


def cuts_of(strategy: Strategy) -> list[Cut]:
    """Return the batches of a run: their documents and their shapes."""
    return [Cut(batch["index"].tolist(), tuple(batch["tokens"].shape)) for batch in strategy.batches()]


def report(experiment: Experiment, timings: dict[str, Timing]) -> dict[str, Any]:
    """Print the measurements; return them for the JSON."""
    model, on_cuda = experiment.model, experiment.model.device.type == "cuda"
    of = f"{len(experiment.documents)} documents, {experiment.tokens} tokens; {model}"
    print_timings(of, timings)
    print_disturbed("sequences", timings)
    print(decided(timings, model.tolerance))
    against = {"first": timings[PAD_ALL], "bound": timings[BOUND], "cost_optimal": timings[OPTIMAL]}
    return {
        "model": model.facts,
        "documents": {
            "count": len(experiment.documents),
            "tokens": experiment.tokens,
            "pairs": experiment.pairs,
            "longest": max(experiment.lengths),
        },
        "tolerance": model.tolerance,
        "candidates": [timing.record(against) for timing in timings.values()],
        "claims": stated(claims_of(timings, on_cuda)),
        "faster_than_cost_optimal": faster_than(OPTIMAL, timings),
    }


def decided(timings: dict[str, Timing], tolerance: float) -> str:
    """Return a line that says whether all decide alike."""
    facts = [timing.candidate.facts for name, timing in timings.items() if name != BOUND]
    otherwise, near = max(each["decided_otherwise"] for each in facts), facts[0]["documents_near"]
    deviation = max(each["largest_deviation"] for each in facts)
    return (
        f"decisions: {otherwise} documents decided otherwise than by the first, at most; {near} are so near that they "
        f"might be (tolerance {tolerance:.2g}, largest deviation {deviation:.2g})"
    )


OPTIONS: dict[str, dict[str, Any]] = {
    "device": {"help": "where the model runs; cuda if there is one"},
    "hidden": {"type": int, "help": "hidden size: 4096 on CUDA, else 128"},
    "depth": {"type": int, "help": "blocks: 70 on CUDA, else 4"},
    "dtype": {"choices": ["float16", "float32"], "help": "float16 on CUDA, else float32"},
    "max_tokens": {"type": int, "help": "what batchloom may put in a batch: 32768 on CUDA, else 8192"},
    "vocabulary": {"type": int, "default": VOCABULARY, "help": "how many tokens there are"},
    "mean_length": {"type": float, "default": MEAN_LENGTH, "help": "mean length of a document"},
    "seed": {"type": int, "default": SEED, "help": "seed of the documents and the model"},
    "pictures": PICTURES,
}


def completed(chosen: argparse.Namespace) -> argparse.Namespace:
    """Fill in the options that the command line leaves out; they depend on the device."""
    chosen.device = chosen.device or ("cuda" if torch.cuda.is_available() else "cpu")
    for name, value in defaults(chosen.device).items():
        if getattr(chosen, name) is None:
            setattr(chosen, name, value)
    return chosen


def defaults(device: str) -> dict[str, Any]:
    """Return the model that a device runs unless it is told otherwise."""
    return DEFAULTS["cuda" if torch.device(device).type == "cuda" else "cpu"]


def is_published(chosen: argparse.Namespace) -> bool:
    """Tell whether the experiment is the published one: no option changed it."""
    usual = {**defaults(chosen.device), "mean_length": MEAN_LENGTH, "vocabulary": VOCABULARY, "seed": SEED}
    return is_whole(chosen) and all(getattr(chosen, name) == value for name, value in usual.items())


def main() -> None:
    """Run the chapter."""
    chosen = completed(arguments(__doc__, rounds=9, **OPTIONS))
    device, whole = torch.device(chosen.device), is_published(chosen)
    model = Model(chosen.hidden, chosen.depth, chosen.vocabulary, device, getattr(torch, chosen.dtype), chosen.seed)
    count = max(round(DOCUMENTS * chosen.scale), BATCH)
    documents = random_documents(count, chosen.mean_length, chosen.vocabulary, chosen.seed)
    body = measure(Experiment(documents, model, chosen.max_tokens), chosen.rounds, pictures_folder(chosen, whole))
    name = "sequences" if device.type == "cpu" else f"sequences-{device.type}"
    write(name, chosen, body, whole)


if __name__ == "__main__":
    main()
