"""Train the forecasting models of the published experiment on windows, epoch by epoch.

Promises:

- DLinear is written from its definition (linear.py). The others are transformers' own: the vanilla Transformer,
  Informer and Autoformer give hidden states, and a linear layer makes the forecast; PatchTST has a head of its own.
- A training starts with the same weights and the same random state in every mode, and its losses are kept. On
  batches that are owned they must be stacking's of the same order, to the last bit; on views they may differ by
  rounding, because torch adds up in an order that follows the strides.
- A model runs ``RUNS`` epochs in each mode with ``--published``, else ``--rounds``. The figure is the mean of the last
  two thirds of them, with an interval of 95 % (Student's). What a mode saves of stacking's time is taken inside a
  round. Beside it stands `next` alone: the seconds of an epoch without a model.
- Timing covers a whole epoch: making batches, bringing them to the device, forward, backward, Adam. Making the model
  and one step before it are left out.
- ``BOUND`` trains as many steps on the first batch again and again: no loading at all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, field
from functools import partial
from itertools import islice, repeat
from statistics import fmean, median, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from bench.harness.claims import Claim, stated
from bench.harness.measure import Candidate, Timing, interleave
from bench.harness.report import print_disturbed, table
from bench.windows.linear import DLinear
from bench.windows.peers import MODES, PER_BATCH, PRELOADED, RANDOM, STACK, STACK_RANDOM, VIEWS, WORKERS
from bench.windows.series import MARKS, Batch, Epochs, Series, Sizes
from bench.windows.setting import Setting, seconds, wait

BOUND = "no loading: one batch, again and again"
# The published windows; the models have the published sizes, or such as a CPU trains in seconds.
WINDOWS = Sizes(features=100, batch=100, length=300, label=40, horizon=60)
PUBLISHED_STEPS, RUNS = 10_000, 15
# Student's t for 95 %, by the number of figures less one.
STUDENT = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
LESS_TIME, ROUNDING = 0.95, 1e-5
# Rounding grows from step to step: only the first losses are compared.
COMPARED = 100
# Each mode, and the stacking pipeline in the same order.
AGAINST = {WORKERS: STACK, PER_BATCH: STACK, PRELOADED: STACK, RANDOM: STACK_RANDOM}
ORDER = (STACK, WORKERS, PER_BATCH, PRELOADED, STACK_RANDOM, RANDOM)


@dataclass(frozen=True)
class Width:
    """The size of a transformer."""

    hidden: int
    heads: int
    inner: int
    encoders: int
    decoders: int
    patch: int
    patch_stride: int


SMALL, PUBLISHED = Width(32, 2, 64, 1, 1, 16, 16), Width(512, 8, 2048, 2, 1, 16, 8)


class Alone(nn.Module):
    """A model that is told x alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, future: Tensor, x_mark: Tensor, future_mark: Tensor) -> Tensor:
        """Return the forecast."""
        return self.model(x)


class Seq2Seq(nn.Module):
    """A model of transformers with an encoder and a decoder, and a linear layer from its hidden states."""

    def __init__(self, sizes: Sizes, width: Width, name: str, **more: Any) -> None:
        import transformers  # takes seconds, and each process of the ranks would wait for it

        super().__init__()
        config = getattr(transformers, f"{name}Config")(
            prediction_length=sizes.horizon,
            context_length=sizes.length - 1,
            lags_sequence=[1],
            input_size=sizes.features,
            num_time_features=MARKS,
            scaling="std",
            d_model=width.hidden,
            encoder_layers=width.encoders,
            decoder_layers=width.decoders,
            encoder_attention_heads=width.heads,
            decoder_attention_heads=width.heads,
            encoder_ffn_dim=width.inner,
            decoder_ffn_dim=width.inner,
            encoder_layerdrop=0.0,
            decoder_layerdrop=0.0,
            use_cache=False,
            **more,
        )
        self.model = getattr(transformers, f"{name}Model")(config)
        self.head = nn.Linear(config.feature_size if name == "Autoformer" else width.hidden, sizes.features)

    def forward(self, x: Tensor, future: Tensor, x_mark: Tensor, future_mark: Tensor) -> Tensor:
        """Return the forecast; the decoder is told the step before each."""
        observed = x.new_ones(()).expand_as(x)
        out = self.model(x, x_mark, observed, future_values=future, future_time_features=future_mark)
        trend = getattr(out, "trend", None)
        hidden = out.last_hidden_state if trend is None else out.last_hidden_state + trend
        return self.head(hidden[:, -future.shape[1] :]) * out.scale + out.loc


class PatchTST(nn.Module):
    """PatchTST of transformers."""

    def __init__(self, sizes: Sizes, width: Width) -> None:
        import transformers  # takes seconds, and each process of the ranks would wait for it

        super().__init__()
        config = transformers.PatchTSTConfig(
            num_input_channels=sizes.features,
            context_length=sizes.length,
            prediction_length=sizes.horizon,
            patch_length=width.patch,
            patch_stride=width.patch_stride,
            d_model=width.hidden,
            num_attention_heads=width.heads,
            num_hidden_layers=width.encoders,
            ffn_dim=width.inner,
        )
        self.model = transformers.PatchTSTForPrediction(config)

    def forward(self, x: Tensor, future: Tensor, x_mark: Tensor, future_mark: Tensor) -> Tensor:
        """Return the forecast."""
        return self.model(x).prediction_outputs


class Loss(nn.Module):
    """The mean squared error of a model's forecast, the loss of a batch."""

    def __init__(self, model: nn.Module, horizon: int) -> None:
        super().__init__()
        self.model, self.horizon = model, horizon

    def forward(self, x: Tensor, y: Tensor, x_mark: Tensor, y_mark: Tensor) -> Tensor:
        """Return the loss; the label steps of y are no part of it."""
        future = y[:, -self.horizon :]
        return mse_loss(self.model(x, future, x_mark, y_mark[:, -self.horizon :]), future)


@dataclass(frozen=True)
class Kind:
    """A model to train, and the steps of its epochs unless the published ones are asked for."""

    name: str
    make: Callable[[Sizes, Width], nn.Module]
    steps: int


KINDS = (
    Kind("DLinear", lambda sizes, width: Alone(DLinear(sizes.length, sizes.horizon)), 60),
    Kind("Transformer", lambda sizes, width: Seq2Seq(sizes, width, "TimeSeriesTransformer"), 6),
    Kind("Informer", lambda sizes, width: Seq2Seq(sizes, width, "Informer"), 6),
    Kind("Autoformer", lambda sizes, width: Seq2Seq(sizes, width, "Autoformer", label_length=sizes.label), 6),
    Kind("PatchTST", PatchTST, 6),
)


@dataclass
class Training:
    """An epoch of training one model in one mode, repeatable."""

    kind: Kind
    width: Width
    sizes: Sizes
    epochs: Epochs
    steps: int
    device: torch.device
    losses: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    def model(self) -> Loss:
        """Make the model, the same each time."""
        torch.manual_seed(0)
        return Loss(self.kind.make(self.sizes, self.width), self.sizes.horizon).to(self.device)

    def __call__(self) -> float:
        """Train for an epoch; return its seconds."""
        model = self.model()
        optimizer = torch.optim.Adam(model.parameters())
        torch.manual_seed(0)  # what makes the model may have drawn
        wait(self.device)
        start = time.perf_counter()
        losses, waited = train(model, optimizer, islice(self.epochs(), self.steps))
        wait(self.device)
        passed = time.perf_counter() - start
        self.losses = torch.stack(losses).tolist()
        self.waited.append(waited)
        return passed


def train(model: nn.Module, optimizer: torch.optim.Optimizer, epoch: Iterable[Batch]) -> tuple[list[Tensor], float]:
    """Train on each batch; return the losses, and the seconds that were spent waiting for batches."""
    losses: list[Tensor] = []
    waited, asked = 0.0, time.perf_counter()
    for batch in epoch:
        waited += time.perf_counter() - asked
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        asked = time.perf_counter()
    return losses, waited + time.perf_counter() - asked


@dataclass(frozen=True)
class Mean:
    """The mean of some figures, and how far that of all such figures may be from it."""

    mean: float
    interval: float

    @classmethod
    def of_last(cls, figures: Sequence[float]) -> Mean:
        """Return the mean of the last two thirds of the figures: ten of fifteen."""
        last = figures[len(figures) // 3 :]
        if len(last) < 2:
            return cls(fmean(last), math.inf)
        return cls(fmean(last), STUDENT[min(len(last), len(STUDENT)) - 1] * stdev(last) / len(last) ** 0.5)

    def __str__(self) -> str:
        return f"{self.mean:.4f} +- {self.interval:.4f}"


def saved(mine: Timing, theirs: Timing) -> Mean:
    """Return the share of another mode's time that this one saves."""
    return Mean.of_last([1 - one / other for one, other in zip(mine.rounds, theirs.rounds, strict=True)])


def measure_models(setting: Setting) -> dict[str, Any]:
    """Train every model in every mode; return its record for the JSON."""
    sizes, width = setting.sizes(WINDOWS), PUBLISHED if setting.published else SMALL
    cases = []
    for kind in KINDS:
        steps = setting.scaled(PUBLISHED_STEPS if setting.published else kind.steps)
        trainings = prepare(kind, width, sizes, steps, setting.device)
        alone = next_alone(kind, trainings, setting)
        cases.append(report(kind, trainings, interleave(kind.name, candidates(trainings), runs(setting)), alone))
    return {"sizes": asdict(sizes), "width": asdict(width), "cases": cases}


def runs(setting: Setting) -> int:
    """Return the number of epochs that a mode runs."""
    return RUNS if setting.published else setting.rounds


def next_alone(kind: Kind, trainings: dict[str, Training], setting: Setting) -> dict[str, Timing]:
    """Time the epochs of every mode without a model."""

    def epoch(training: Training) -> float:
        return seconds(training.epochs, setting.device, training.steps) * training.steps

    loading = {name: training for name, training in trainings.items() if name != BOUND}
    alone = [Candidate(name, partial(epoch, each), slow=True) for name, each in loading.items()]
    return interleave(f"{kind.name}, next alone", alone, setting.rounds)


def prepare(kind: Kind, width: Width, sizes: Sizes, steps: int, device: torch.device) -> dict[str, Training]:
    """Make one training for each mode and for the bound, which runs once to warm up."""
    series = Series.of_batches(sizes, steps)
    epochs = {name: MODES[name].epochs(series, device) for name in ORDER}
    first = next(iter(epochs[STACK]()))
    epochs[BOUND] = lambda: repeat(first)
    trainings = {name: Training(kind, width, sizes, each, steps, device) for name, each in epochs.items()}
    trainings[BOUND]()
    return trainings


def candidates(trainings: dict[str, Training]) -> list[Candidate]:
    """Make trainings ready to be timed."""
    return [Candidate(name, training, {"steps": training.steps}, slow=True) for name, training in trainings.items()]


def report(
    kind: Kind, trainings: dict[str, Training], timings: dict[str, Timing], alone: dict[str, Timing]
) -> dict[str, Any]:
    """Print the measurements; return them for the JSON."""
    model = trainings[STACK].model()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    differences = {name: difference(trainings[name], trainings[peer]) for name, peer in AGAINST.items()}
    for name, timing in timings.items():
        facts = timing.candidate.facts
        facts |= {"losses": trainings[name].losses, "waited_seconds": median(trainings[name].waited)}
        facts["mean_seconds"], facts["interval_seconds"] = astuple(Mean.of_last(timing.rounds))
        if name in alone:
            facts["next_seconds"] = alone[name].median
        if name in AGAINST:
            facts["loss_difference"] = differences[name]
            facts["saved"], facts["saved_interval"] = astuple(saved(timing, timings[AGAINST[name]]))
    print_timings(f"{kind.name}, {parameters} parameters, {trainings[STACK].steps} steps", timings)
    print_disturbed(kind.name, timings)
    against = {"stacking": timings[STACK], "stacking_random": timings[STACK_RANDOM], "no_loading": timings[BOUND]}
    return {
        "model": kind.name,
        "parameters": parameters,
        "candidates": [timing.record(against) for timing in timings.values()],
        "claims": stated(claims_of(kind, timings)),
    }


def difference(mine: Training, theirs: Training) -> float:
    """Return the largest difference between the first losses of two trainings."""
    pairs = zip(mine.losses[:COMPARED], theirs.losses[:COMPARED], strict=True)
    return max(abs(one - other) for one, other in pairs)


def claims_of(kind: Kind, timings: dict[str, Timing]) -> list[Claim]:
    """Return the numbers to reach."""
    claims = same_losses(kind.name, {name: timings[name].candidate.facts["loss_difference"] for name in AGAINST})
    if kind.name != "DLinear":
        return claims
    stack, preloaded, bound = timings[STACK], timings[PRELOADED], timings[BOUND]
    most = f"no loading at all saves {1 - bound.ratio(stack):.3g} here"
    text = f"{kind.name}: share of the epoch's time that preloading saves ({most})"
    less = Claim(text, 1 - preloaded.ratio(stack), ">=", LESS_TIME, 1 - preloaded.best_ratio(stack))
    waited = preloaded.candidate.facts["waited_seconds"] / stack.candidate.facts["waited_seconds"]
    text = f"{kind.name}: share of the time waiting for batches that preloading saves"
    return [*claims, less, Claim(text, 1 - waited, ">=", LESS_TIME)]


def same_losses(name: str, differences: dict[str, float]) -> list[Claim]:
    """Claim that modes have the losses that stacking has in the same order."""
    viewed = max(most for mode, most in differences.items() if mode in VIEWS)
    owned = max(most for mode, most in differences.items() if mode not in VIEWS)
    text = f"{name}: largest difference of a loss from stacking's in the same order"
    return [Claim(f"{text}, owned batches", owned, "<=", 0), Claim(f"{text}, views", viewed, "<=", ROUNDING)]


def print_timings(title: str, timings: dict[str, Timing]) -> None:
    """Print one line for each mode."""
    last = len(timings[STACK].rounds) - len(timings[STACK].rounds) // 3
    heads = ("mode", f"mean s of the last {last}", "saved of stacking's", "x no loading", "waited s", "next alone s")
    rows = []
    for timing in timings.values():
        facts = timing.candidate.facts
        share = str(saved(timing, timings[AGAINST[timing.name]])) if timing.name in AGAINST else ""
        alone = f"{facts['next_seconds']:.4f}" if "next_seconds" in facts else ""
        bound = f"{timing.ratio(timings[BOUND]):.3f}"
        rows.append(
            (timing.name, str(Mean.of_last(timing.rounds)), share, bound, f"{facts['waited_seconds']:.4f}", alone)
        )
    table(title, heads, rows)
