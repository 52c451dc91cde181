"""Train a PatchTST on patches that batchloom cuts, beside one that unfolds stacked windows itself.

Promises:

- Both models have one body with the same weights, and normalise each window by its own mean and deviation, out of
  place. The peer stacks windows in torch's ``DataLoader``, and its model pads the end (``ReplicationPad1d``) and
  unfolds. batchloom's batches are patches, and its model takes the statistics from those that do not overlap. Batches
  are the same in the same order, so losses must be equal, but for rounding.
- Two pairs: with the repeated end that PatchTST/42 has, in random order; and without it, in runs, where patches are a
  view of the series.
- Preparing alone is loading a batch and cutting it: as the first layer is given it, and as that layer reads it, where
  every candidate copies its patches to compact memory.
- Memory is the most that a fresh process grew while batches came, from before its loader was made.
- Each is measured with two threads of torch and with one. The model has no dropout, so that losses can be compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import batchloom
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, Dataset

from bench.harness.claims import Claim, stated
from bench.harness.measure import Candidate, Timing, interleave
from bench.harness.processes import elsewhere, peak, reset_peak
from bench.harness.report import print_disturbed, table
from bench.windows.setting import Setting

Pair = tuple[Tensor, Tensor]
OWN, LOOM = "stacked, padded and unfolded by the model", "batchloom, padded patches"
OWN_VIEW, LOOM_VIEW = "stacked, unfolded by the model, runs", "batchloom, patches that view the series, runs"
AGAINST = {LOOM: OWN, LOOM_VIEW: OWN_VIEW}
THREADS = (2, 1)
# Losses of the same batches differ by rounding alone: a sum in another order.
ROUNDING = 1e-4
# The epochs that are prepared hold so many batches, and fresh processes see some.
PREPARED, GROWN, LEAST = 20, 4, 2


@dataclass(frozen=True)
class Case:
    """The sizes of windows, patches and a model."""

    name: str
    features: int
    batch: int
    length: int
    horizon: int
    patch: int
    stride: int
    hidden: int
    heads: int
    inner: int
    layers: int
    steps: int

    @property
    def apart(self) -> int:
        """Return the number of patches from one to the next that shares no step with it."""
        return self.patch // self.stride


# As published for ETTh1; and features and batch as published for electricity, with a model that a CPU trains.
CASES = (
    Case("ETTh1", 7, 128, 336, 96, 16, 8, hidden=16, heads=4, inner=128, layers=3, steps=6),
    Case("electricity", 321, 32, 336, 96, 16, 8, hidden=16, heads=4, inner=128, layers=1, steps=2),
)


class Slices(Dataset[Pair]):
    """The data set as it is usually written: one window at a time."""

    def __init__(self, case: Case, values: Tensor) -> None:
        self.case, self.values = case, values

    def __getitem__(self, window: int) -> Pair:
        """Return the slices of one window."""
        end = window + self.case.length
        return self.values[window:end], self.values[end : end + self.case.horizon]


class Body(nn.Module):
    """The transformer over patches of PatchTST, and its head: ``[batch, features, patches, patch]`` to a forecast."""

    def __init__(self, case: Case, patches: int) -> None:
        super().__init__()
        self.embed = nn.Linear(case.patch, case.hidden)
        self.places = nn.Parameter(torch.rand(patches, case.hidden) / 50)
        layer = nn.TransformerEncoderLayer(case.hidden, case.heads, case.inner, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, case.layers, enable_nested_tensor=False)
        self.head = nn.Linear(patches * case.hidden, case.horizon)

    def forward(self, patches: Tensor) -> Tensor:
        """Return the forecast ``[batch, features, horizon]``."""
        hidden = self.embed(patches) + self.places
        return self.head(self.encoder(hidden.flatten(0, 1)).unflatten(0, patches.shape[:2]).flatten(2))


class Own(nn.Module):
    """Normalises stacked windows, and cuts them into patches."""

    def __init__(self, case: Case, pads: bool) -> None:
        super().__init__()
        self.cut = partial(unfolded, case, nn.ReplicationPad1d((0, case.stride)) if pads else nn.Identity())
        self.body = Body(case, patches_of(case, pads))

    def forward(self, x: Tensor) -> Tensor:
        """Return the forecast ``[batch, horizon, features]``."""
        mean, deviation = x.mean(1, keepdim=True), deviation_of(x, (1,))
        return self.body(self.cut((x - mean) / deviation)).mT * deviation + mean


class Given(nn.Module):
    """Normalises patches that it is given."""

    def __init__(self, case: Case, pads: bool) -> None:
        super().__init__()
        self.apart = case.apart
        self.body = Body(case, patches_of(case, pads))

    def forward(self, patches: Tensor) -> Tensor:
        """Return the forecast ``[batch, horizon, features]``."""
        once = patches[:, :, :: self.apart]
        mean, deviation = once.mean((2, 3), keepdim=True), deviation_of(once, (2, 3))
        return (self.body((patches - mean) / deviation) * deviation[..., 0] + mean[..., 0]).mT


def deviation_of(steps: Tensor, dimensions: tuple[int, ...]) -> Tensor:
    """Return the deviation of the steps of each window."""
    return (steps.var(dimensions, keepdim=True, correction=0) + 1e-5).sqrt()


def unfolded(case: Case, pad: nn.Module, x: Tensor) -> Tensor:
    """Return the patches of stacked windows: a view, of a copy with a longer end where the layer pads."""
    return pad(x.permute(0, 2, 1)).unfold(-1, case.patch, case.stride)


def patches_of(case: Case, pads: bool) -> int:
    """Return the number of patches of a window."""
    return (case.length - case.patch) // case.stride + 1 + pads


@dataclass(frozen=True)
class Mode:
    """A way to patches.

    Attributes:
        batches: Returns a maker of epochs, given the case and the series.
        cut: Cuts what a batch holds into patches, given the case.
        model: Makes the model.
    """

    batches: Callable[[Case, Tensor], Callable[[], Iterable[Any]]]
    cut: Callable[[Case], Callable[[Tensor], Tensor]]
    model: Callable[[Case], nn.Module]


def loader(case: Case, values: Tensor, pads: bool, **patches: Any) -> batchloom.DataLoader:
    """Return batchloom's loader: random windows where ends are padded, and runs where not."""
    data = batchloom.WindowDataset(values, case.length, case.horizon, **patches)
    return batchloom.DataLoader(data, batch_size=case.batch, shuffle=True if pads else "runs")


def loom(case: Case, values: Tensor, pads: bool) -> Callable[[], Iterable[Any]]:
    """Use batchloom's patches: the first epoch of a plan, again each time."""
    found = loader(
        case, values, pads, patch_len=case.patch, patch_stride=case.stride, patch_pad="end" if pads else None
    )

    def epoch() -> Iterable[Any]:
        found.set_epoch(0)
        return found

    return epoch


def stacked(case: Case, values: Tensor, pads: bool) -> Callable[[], Iterable[Any]]:
    """Use torch's ``DataLoader`` with its default collation, in the same order."""
    order = [batch.tolist() for batch in loader(case, values, pads).plan(0)]
    found = DataLoader(Slices(case, values), batch_sampler=order, generator=torch.Generator())
    return lambda: found


def cut_by(pad: bool) -> Callable[[Case], Callable[[Tensor], Tensor]]:
    """Return what cuts as the model does, given a case."""
    return lambda case: partial(unfolded, case, nn.ReplicationPad1d((0, case.stride)) if pad else nn.Identity())


def given(case: Case) -> Callable[[Tensor], Tensor]:
    """Return what leaves patches as they are."""
    return lambda patches: patches


MODES = {
    OWN: Mode(partial(stacked, pads=True), cut_by(True), partial(Own, pads=True)),
    LOOM: Mode(partial(loom, pads=True), given, partial(Given, pads=True)),
    OWN_VIEW: Mode(partial(stacked, pads=False), cut_by(False), partial(Own, pads=False)),
    LOOM_VIEW: Mode(partial(loom, pads=False), given, partial(Given, pads=False)),
}


def drawn(case: Case, batches: int) -> Tensor:
    """Return a series with so many batches of windows."""
    steps = batches * case.batch + case.length + case.horizon - 1
    return torch.randn(steps, case.features, generator=torch.Generator().manual_seed(0))


def prepare(case: Case, mode: Mode, epochs: Callable[[], Iterable[Any]], compact: bool) -> Iterator[Tensor]:
    """Yield the patches of each batch, compact if so asked."""
    cut = mode.cut(case)
    for x, _ in epochs():
        patches = cut(x)
        del x
        yield patches.contiguous() if compact else patches


def train(model: nn.Module, epoch: Iterable[Any]) -> list[float]:
    """Train on each batch; return the losses."""
    optimizer, losses = torch.optim.Adam(model.parameters()), []
    for x, y in epoch:
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def made(case: Case, mode: Mode) -> nn.Module:
    """Return the model, the same each time."""
    torch.manual_seed(0)
    return mode.model(case)


def measure_patches(setting: Setting) -> dict[str, Any]:
    """Measure all cases; return the record for the JSON."""
    cases = [scaled(case, setting) for case in CASES]
    before = torch.get_num_threads()
    try:
        return {"cases": [measure_case(case, setting) for case in cases]}
    finally:
        torch.set_num_threads(before)


def scaled(case: Case, setting: Setting) -> Case:
    """Return a case with fewer windows in a batch, where the setting asks for less."""
    return case if setting.scale == 1 else replace(case, batch=setting.scaled(case.batch))


def measure_case(case: Case, setting: Setting) -> dict[str, Any]:
    """Measure one case."""
    checked = check(case)
    print(f"compared: patches of {checked} batches of {case.name}")
    parts: dict[str, Any] = {"memory": measure_memory(case)}
    claims = memory_claims(case, parts["memory"])
    for threads in THREADS:
        torch.set_num_threads(threads)
        timed = {
            "given": prepared(case, setting, threads, compact=False),
            "compact": prepared(case, setting, threads, compact=True),
        }
        steps, differences = trained(case, setting, threads)
        claims += time_claims(case, threads, timed, steps, differences)
        parts[f"threads_{threads}"] = {
            **{name: records(timings) for name, timings in timed.items()},
            "step": records(steps),
            "loss_differences": differences,
        }
    return {"case": asdict(case), **parts, "claims": stated(claims)}


def check(case: Case) -> int:
    """Compare every patch of each pair; return the number of compared batches.

    Raises:
        SystemExit: One differs.
    """
    values, compared = drawn(case, LEAST), 0
    for name, own in AGAINST.items():
        both = [prepare(case, MODES[each], MODES[each].batches(case, values), False) for each in (name, own)]
        for mine, theirs in zip(*both, strict=True):
            compared += 1
            if not torch.equal(mine, theirs):
                raise SystemExit(f"{name}: batch {compared - 1} of {case.name} differs from what a model unfolds")
    return compared


def prepared(case: Case, setting: Setting, threads: int, compact: bool) -> dict[str, Timing]:
    """Time the preparation of a batch."""
    values = drawn(case, PREPARED)

    def run(mode: Mode, epochs: Callable[[], Iterable[Any]]) -> float:
        start, count = time.perf_counter(), 0
        for patches in prepare(case, mode, epochs, compact):
            del patches
            count += 1
        return (time.perf_counter() - start) / count

    candidates = [Candidate(name, partial(run, mode, mode.batches(case, values))) for name, mode in MODES.items()]
    as_what = "compact, as the first layer reads it" if compact else "as the first layer is given it"
    title = f"{case.name}: preparing a batch, {as_what}, {threads} threads"
    timings = interleave(title, candidates, setting.rounds)
    print_pairs(title, timings)
    return timings


def trained(case: Case, setting: Setting, threads: int) -> tuple[dict[str, Timing], dict[str, float]]:
    """Time a training step; return the timings, and how far the losses of each pair differ."""
    values, losses = drawn(case, case.steps), {}

    def run(name: str, mode: Mode, epochs: Callable[[], Iterable[Any]]) -> float:
        model, start = made(case, mode), time.perf_counter()
        losses[name] = train(model, islice(epochs(), case.steps))
        return (time.perf_counter() - start) / case.steps

    candidates = []
    for name, mode in MODES.items():
        epochs = mode.batches(case, values)
        train(made(case, mode), islice(epochs(), 1))
        candidates.append(Candidate(name, partial(run, name, mode, epochs), slow=True))
    title = f"{case.name}: a training step, {threads} threads"
    timings = interleave(title, candidates, setting.rounds)
    print_pairs(title, timings)
    differences = {
        name: max(abs(mine - theirs) for mine, theirs in zip(losses[name], losses[own], strict=True))
        for name, own in AGAINST.items()
    }
    return timings, differences


def measure_memory(case: Case) -> dict[str, dict[str, int]]:
    """Return by how much fresh processes grew, by what they did and in which mode."""
    grown = {
        work: {name: elsewhere(growth, case, name, work) for name in MODES} for work in ("given", "compact", "step")
    }
    rows = [(name, *(f"{grown[work][name] / 1e6:.1f}" for work in grown)) for name in MODES]
    heads = ("mode", "preparing MB", "preparing, compact MB", "training MB")
    table(f"{case.name}: growth of a process", heads, rows)
    return grown


def growth(case: Case, name: str, work: str) -> int:
    """Return the growth of this process while it prepares batches or trains on them, in bytes, at most."""
    mode, values = MODES[name], drawn(case, GROWN)
    tiny = replace(case, batch=2, features=2)
    spend(tiny, mode, made(tiny, mode), drawn(tiny, 1), work)
    model = made(case, mode)
    before = reset_peak()
    spend(case, mode, model, values, work)
    return peak() - before


def spend(case: Case, mode: Mode, model: nn.Module, values: Tensor, work: str) -> None:
    """Prepare an epoch of batches, or train on its first ones."""
    epochs = mode.batches(case, values)
    if work == "step":
        train(model, islice(epochs(), LEAST))
        return
    for patches in prepare(case, mode, epochs, work == "compact"):
        del patches


def records(timings: dict[str, Timing]) -> list[dict[str, Any]]:
    """Return the records of both pairs, each with ratios to the peer of its pair."""
    return [timing.record({"own_unfolding": timings[AGAINST.get(name, name)]}) for name, timing in timings.items()]


def print_pairs(title: str, timings: dict[str, Timing]) -> None:
    """Print one line for each mode."""
    rows = [
        (
            name,
            f"{timing.median * 1e3:.3f}",
            f"{timing.minimum * 1e3:.3f}",
            f"{timing.ratio(timings[AGAINST.get(name, name)]):.3f}",
        )
        for name, timing in timings.items()
    ]
    table(title, ("mode", "median ms", "min ms", "x own unfolding"), rows)
    print_disturbed(title, timings)


def memory_claims(case: Case, grown: dict[str, dict[str, int]]) -> list[Claim]:
    """Return the claim about memory."""
    share = grown["step"][LOOM_VIEW] / max(grown["step"][OWN_VIEW], 1)
    return [Claim(f"patches: {case.name}: memory of training on views, times that of stacked batches", share, "<=", 1)]


def time_claims(
    case: Case,
    threads: int,
    timed: dict[str, dict[str, Timing]],
    steps: dict[str, Timing],
    differences: dict[str, float],
) -> list[Claim]:
    """Return the numbers to reach."""
    claims = []
    for name, own in AGAINST.items():
        text = f"patches: {case.name}, {threads} threads: {name}, times {own}"
        compact = timed["compact"]
        claims += [
            Claim.of_ratio(f"{text}: preparing, compact", compact[name], compact[own], "<", 1),
            Claim.of_ratio(f"{text}: a training step", steps[name], steps[own], "<=", 1),
            Claim(f"{text}: largest difference of a loss", differences[name], "<=", ROUNDING),
        ]
    return claims
