"""Run epochs of eight simulated ranks of a small attention model on the CPU, as packs come and balanced by true cost.

    python -m bench balance --only epochs [--rounds 3] [--scale 0.5] [--output FILE]

The model has one layer of causal attention and one block of two matrices; a step is forward and backward, on one core.
Promises:

- ``batchloom.calibrate`` times steps of equal samples and fits the cost of the model. ``crossover`` is the length at
  which attention costs as much as all else by this fit.
- ``fit``: the share of the variance of the time of 200 packs that the fit explains, from packs of many short samples to
  packs of one long one. ``explained`` is by the cost of ``calibrate`` up to its unit, as plans use it: one factor is
  fitted. ``in_seconds`` fits nothing. ``repeats`` is the share that the times of every other round explain of those of
  the rounds between: the noise. ``by_these_packs`` fits the coefficients to the packs themselves, and
  ``by_tokens`` a line in their tokens.
- ``epochs``: every batch of every rank runs. The time of a step is the largest of its ranks, and the time of an epoch
  the sum over steps. Sets are 1K to 16K in packs of 16 384 tokens, and uniform to 4096 in packs of 8192, where balance
  has little to gain.
- Memory that is freed is kept, as devices keep it: glibc returns each tensor of 32 MiB or more to the system, and a
  step would fault in its pages again, which is a cost of no model.
- The time of a pack is the least over rounds, in seconds of the processor: other processes only add to it. Rounds go
  through all packs in turn. A pack that both plans hold is one pack.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable, Sequence
from typing import Any

import batchloom as bl
import numpy
import torch

from bench.balance.lengths import draw_lengths
from bench.harness.claims import Claim, stated
from bench.harness.measure import progress

WIDTH, HIDDEN, LAYERS, HEADS = 64, 1792, 1, 1
RANKS, STEPS = 8, 7
PACKS, PACK = 200, 8192
# The shapes that are timed for the fit, (samples, length): about as many tokens as packs have.
SHAPES = [
    (tokens // length, length)
    for tokens in (4096, 8192)
    for length in (64, 256, 1024, 2048, 4096, 8192)
    if length <= tokens
]
# At least so many times as fast with balance, and the crossover in tokens.
GAINS = {"1K-16K": 1.2, "uniform": 0.99}
CROSSOVER = (4096, 16_384)
FIT = 0.97

Pack = tuple[int, ...]

# The parameters of glibc's mallopt: the most allocations that are mapped, and the free memory that is given back.
MMAP_MAX, TRIM_THRESHOLD = -4, -1


def keep_freed_memory() -> bool:
    """Keep memory that is freed in this process; return False where the C library is another one."""
    options = getattr(ctypes.CDLL(None), "mallopt", None)
    return options is not None and bool(options(MMAP_MAX, 0)) and bool(options(TRIM_THRESHOLD, 2**31 - 1))


class Layer(torch.nn.Module):
    """Causal attention over the samples of a pack, and a block of two matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: torch.Tensor, lengths: Sequence[int]) -> torch.Tensor:
        """Return the tokens of a pack after the layer."""
        heads = (part.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1) for part in self.queries(x).split(WIDTH, 1))
        samples = zip(*(part.split(list(lengths), 1) for part in heads), strict=True)
        seen = [torch.nn.functional.scaled_dot_product_attention(*each, is_causal=True) for each in samples]
        x = x + self.out(torch.cat(seen, 1).transpose(0, 1).reshape(len(x), WIDTH))
        return x + self.down(torch.relu(self.up(x)))


class Model:
    """The model, and the time of its steps."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self._layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def step(self, lengths: Sequence[int]) -> None:
        """Run forward and backward on a pack."""
        x = torch.randn(sum(lengths), WIDTH)
        for layer in self._layers:
            x = layer(x, lengths)
        x.square().mean().backward()

    def time_rounds(self, packs: Iterable[Pack], rounds: int, title: str) -> dict[Pack, list[float]]:
        """Return the seconds of each pack in every round."""
        seconds: dict[Pack, list[float]] = {pack: [] for pack in packs}
        self.step(next(iter(seconds)))
        for number in range(rounds):
            progress(f"{title}: round {number + 1} of {rounds}, {len(seconds)} packs")
            for pack, times in seconds.items():
                start = time.process_time()
                self.step(pack)
                times.append(time.process_time() - start)
        return seconds

    def time_packs(self, packs: Iterable[Pack], rounds: int, title: str) -> dict[Pack, float]:
        """Return the seconds of each pack: the least over rounds."""
        return {pack: min(times) for pack, times in self.time_rounds(packs, rounds, title).items()}


def draw_packs(count: int) -> list[Pack]:
    """Return packs of many short samples to packs of one long one, some of them not full."""
    random, packs = numpy.random.default_rng(0), []
    for _ in range(count):
        mean, left = random.choice([100, 300, 1000, 3000, PACK]), int(PACK * random.uniform(0.5, 1))
        pack: list[int] = []
        while left > 0:
            pack.append(int(min(left, max(16, random.exponential(mean)))))
            left -= pack[-1]
        packs.append(tuple(pack))
    return packs


def explained(predicted: Any, measured: Any) -> float:
    """Return the share of the variance of ``measured`` that ``predicted`` explains."""
    return float(1 - ((measured - predicted) ** 2).sum() / ((measured - measured.mean()) ** 2).sum())


def measure_fit(model: Model, cost: bl.CostModel, rounds: int, scale: float) -> dict[str, Any]:
    """Compare the fitted cost of packs with their time."""
    timed = model.time_rounds(draw_packs(max(round(PACKS * scale), 2)), rounds, "packs for the fit")
    times = numpy.array(list(timed.values()))
    measured = times.min(1)
    halves = times[:, ::2].min(1), times[:, 1::2].min(1) if rounds > 1 else times[:, 0]
    tokens = numpy.array([float(sum(pack)) for pack in timed])
    squares = numpy.array([float(sum(length**2 for length in pack)) for pack in timed])
    predicted = cost.fixed + cost.per_token * tokens + cost.per_pair * squares
    unit = (measured @ predicted) / (predicted @ predicted)
    terms = numpy.stack([numpy.ones(len(tokens)), tokens, squares], 1)
    return {
        "packs": len(timed),
        "repeats": float(numpy.corrcoef(*halves)[0, 1] ** 2),
        "explained": explained(unit * predicted, measured),
        "in_seconds": explained(predicted, measured),
        "by_these_packs": explained(terms @ numpy.linalg.lstsq(terms, measured)[0], measured),
        "by_tokens": explained(terms[:, :2] @ numpy.linalg.lstsq(terms[:, :2], measured)[0], measured),
    }


def plan_of(lengths: Any, pack: int, **options: Any) -> bl.Plan:
    """Return the plan of an epoch."""
    order: dict[str, Any] = {"shuffle": True, "seed": 0, "world_size": RANKS, "drop_last": True}
    return bl.Plan(sizes=lengths, batching=bl.Packing(pack), **order, **options)


def steps_of(plan: bl.Plan, lengths: Any) -> list[list[Pack]]:
    """Return the packs of each step, as lengths of samples."""
    steps = (plan.step(number).batches for number in range(len(plan)))
    return [[tuple(sorted(lengths[batch].tolist(), reverse=True)) for batch in step] for step in steps]


def measure_epoch(model: Model, cost: bl.CostModel, name: str, rounds: int, scale: float) -> dict[str, Any]:
    """Time an epoch as packs come, and balanced."""
    many, pack = draw_lengths(name, 100_000)
    samples = int(numpy.searchsorted(numpy.cumsum(many), RANKS * max(STEPS * scale, 1) * pack * 1.1))
    lengths = many[:samples]
    plans = {"as_packs_come": plan_of(lengths, pack), "balanced": plan_of(lengths, pack, balance=cost)}
    steps = {way: steps_of(plan, lengths) for way, plan in plans.items()}
    seconds = model.time_packs((each for way in steps.values() for step in way for each in step), rounds, name)
    row: dict[str, Any] = {"set": name, "samples": samples, "ranks": RANKS}
    for way, epoch in steps.items():
        times = [[seconds[each] for each in step] for step in epoch]
        longest, tokens = sum(map(max, times)), sum(sum(each) for step in epoch for each in step)
        row[way] = {
            "steps": len(epoch),
            "seconds": longest,
            "tokens_per_second": tokens / longest,
            "waiting": 1 - sum(map(sum, times)) / (RANKS * longest),
            "predicted_waiting": plans[way].stats(cost=cost)["imbalance"],
        }
    row["gain"] = row["balanced"]["tokens_per_second"] / row["as_packs_come"]["tokens_per_second"]
    return row


def measure_epochs(rounds: int, scale: float) -> dict[str, Any]:
    """Calibrate, look at the fit, and run epochs."""
    torch.set_num_threads(1)
    keeps = keep_freed_memory()
    model = Model()
    progress("calibration")
    cost = bl.calibrate(lambda samples, length: model.step([length] * samples), SHAPES)
    crossover = cost.per_token / cost.per_pair if cost.per_pair else float("inf")
    fit = measure_fit(model, cost, rounds, scale)
    print(f"{LAYERS} layer of width {WIDTH}, hidden width {HIDDEN}; {cost}; crossover {crossover:.0f} tokens")
    shares = ", ".join(f"{name} {share:.4f}" for name, share in fit.items() if name != "packs")
    print(f"variance of the time of {fit['packs']} packs: {shares}")
    rows = [measure_epoch(model, cost, name, rounds, scale) for name in GAINS]
    claims = [
        Claim("crossover of the model: tokens, at least", crossover, ">=", CROSSOVER[0]),
        Claim("crossover of the model: tokens, at most", crossover, "<=", CROSSOVER[1]),
        Claim("variance of the time of packs that calibrate explains", fit["explained"], ">=", FIT),
    ]
    for row in rows:
        before, after = row["as_packs_come"], row["balanced"]
        print(
            f"{row['set']}: {before['seconds']:.1f} s as packs come, {after['seconds']:.1f} s balanced, "
            f"{row['gain']:.2f} times as fast; ranks wait {before['waiting']:.3f} and {after['waiting']:.3f} "
            f"(predicted {before['predicted_waiting']:.3f} and {after['predicted_waiting']:.3f})"
        )
        claims.append(Claim(f"{row['set']}: times as fast with balance", row["gain"], ">=", GAINS[row["set"]]))
    shape = {"layers": LAYERS, "width": WIDTH, "hidden": HIDDEN, "heads": HEADS}
    coefficients = {name: getattr(cost, name) for name in ("fixed", "per_token", "per_pair")}
    return {
        "part": "epochs",
        "model": {**shape, "cost": coefficients, "crossover": crossover, "keeps_freed_memory": keeps},
        "fit": fit,
        "epochs": rows,
        "claims": stated(claims),
    }
