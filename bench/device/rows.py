"""Rows on a device: the published experiment on a small model, its loop alone and its training.

What it promises:

- 500 000 rows of 1000 float32, a label each, batches of 64 and of 1024, shuffled. The network is 1000-500-125-1 with
  ReLU, trained by SGD with a rate of 1e-3 on the mean squared error.
- Before anything is timed, each way has shown on an epoch of all rows that it brings every row exactly once, all its
  values beside its own label, in an order that is not the stored one, to the device.
- What is made once for all epochs is made before the clock, the moving of resident data among it:
  ``first_batch_seconds`` of the JSON has it. batch-iter draws its order when it is made, so it is made in each epoch.
- Training without loading runs on batches that were cut before: the same steps on the same rows, in stored order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import batchloom
import torch
from batch_iter import BatchIter
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bench.device.place import PINNED, Found, Place, report
from bench.harness.claims import Claim, slower
from bench.harness.measure import COPY, Candidate, Timing, interleave
from bench.rows.peers import BATCH, BLOCK, Epochs, Rows
from bench.windows.peers import moved

ROWS, WIDTH, LARGE = 500_000, 1000, 1024
CPU_ROWS = 1 / 25
GIVEN, MOVED, STREAMED = "batchloom resident", "batchloom resident, data from the CPU", "batchloom streamed"
TORCH_MOVED, TORCH_THERE = "torch DataLoader, .to(device)", "torch DataLoader, data on the device"
BATCH_ITER, SELECT = "batch-iter", "index_select a batch, by hand"
SELECT_BLOCKS = "index_select of 4096 and split, by hand"
FIXED = "no loading: batches made before"
LEARNING_RATE = 1e-3
TORCH_RATIO, BATCH_ITER_RATIO, COPY_SHARE, PINNED_SHARE, LOADER_SHARE = 100, 10, 0.6, 0.85, 0.02


@dataclass(frozen=True)
class Data:
    """Rows in memory of the CPU, the same rows on the device, and how many make a batch."""

    host: Rows
    there: Rows
    batch: int

    @classmethod
    def make(cls, place: Place, batch: int, highest: float | None = None) -> Data:
        """Draw rows. The label of a row is its number, unless ``highest`` scales these."""
        host = Rows.make(place.scaled(ROWS, CPU_ROWS, least=4 * LARGE), WIDTH)
        if highest is not None:
            host = Rows(host.features, host.labels * (highest / len(host)))
        return cls(host, Rows(host.features.to(place.device), host.labels.to(place.device)), batch)

    @property
    def device(self) -> torch.device:
        """Where batches are to be."""
        return self.there.features.device

    @property
    def batches(self) -> int:
        """How many there are."""
        return -(-len(self.host) // self.batch)


def torch_moved(data: Data) -> Epochs:
    """Use torch's ``DataLoader`` as everybody writes it, and bring each batch to the device."""
    loader = DataLoader(TensorDataset(data.host.features, data.host.labels), data.batch, shuffle=True)
    return lambda: moved(loader, data.device)


def torch_there(data: Data) -> Epochs:
    """Use torch's ``DataLoader`` over rows that are on the device, as published."""
    loader = DataLoader(TensorDataset(data.there.features, data.there.labels), data.batch, shuffle=True)
    return lambda: loader


def batch_iter(data: Data) -> Epochs:
    """Use batch-iter on the device."""
    return lambda: BatchIter(data.there.features, data.there.labels, batch_size=data.batch, shuffle=True)


def select(data: Data) -> Epochs:
    """By hand: ``index_select`` on the device for each batch."""
    rows = data.there

    def epoch() -> Iterator[Any]:
        for batch in torch.randperm(len(rows), device=data.device).split(data.batch):
            yield rows.features.index_select(0, batch), rows.labels.index_select(0, batch)

    return epoch


def select_blocks(data: Data) -> Epochs:
    """By hand: ``index_select`` on the device for 4096 rows, then views of it."""
    rows = data.there

    def epoch() -> Iterator[Any]:
        for block in torch.randperm(len(rows), device=data.device).split(BLOCK):
            features, labels = rows.features.index_select(0, block), rows.labels.index_select(0, block)
            yield from zip(features.split(data.batch), labels.split(data.batch), strict=True)

    return epoch


def given(data: Data) -> Epochs:
    """Use batchloom on rows that are on the device."""
    return loom(data.there, data.batch, resident=True)


def resident(data: Data) -> Epochs:
    """Use batchloom, which moves the rows to the device once."""
    return loom(data.host, data.batch, resident=True, device=data.device)


def streamed(data: Data) -> Epochs:
    """Use batchloom, which sends blocks to the device as they are needed."""
    return loom(data.host, data.batch, resident=False, device=data.device)


def loom(rows: Rows, batch: int, **options: Any) -> Epochs:
    """Use batchloom."""
    dataset = batchloom.TensorDataset(rows.features, rows.labels)
    loader = batchloom.DataLoader(dataset, batch_size=batch, shuffle=True, **options)
    return lambda: loader


WAYS: dict[str, Callable[[Data], Epochs]] = {
    GIVEN: given,
    MOVED: resident,
    STREAMED: streamed,
    SELECT: select,
    SELECT_BLOCKS: select_blocks,
    BATCH_ITER: batch_iter,
    TORCH_THERE: torch_there,
    TORCH_MOVED: torch_moved,
}
SLOW = (TORCH_MOVED, TORCH_THERE)
LOOM = (GIVEN, MOVED, STREAMED)


def measure_rows(place: Place) -> Found:
    """Measure the loop alone, with small and with large batches; return what the JSON says."""
    data = Data.make(place, BATCH)
    small, claims = loop(place, data, WAYS)
    few = [name for name in WAYS if name not in SLOW]
    large, more = loop(place, Data(data.host, data.there, LARGE), few)
    return Found({"cases": [small, large]}, claims + more)


def loop(place: Place, data: Data, names: Iterable[str]) -> tuple[dict[str, Any], list[Claim]]:
    """Measure one size of batches."""
    title, size = f"rows, batches of {data.batch}", data.host.bytes
    candidates = [place.copying(size), place.sending(size)]
    for name in names:
        epochs = WAYS[name](data)
        first = place.seconds(partial(first_of, epochs))
        check(name, epochs, data)
        candidates.append(place.epochs(name, epochs, slow=name in SLOW, first_batch_seconds=first))
    timings = interleave(title, candidates, place.rounds)
    against = {"copy": COPY, "pinned": PINNED, "batchloom": GIVEN}
    facts = {"rows": len(data.host), "row_floats": WIDTH, "batch_size": data.batch}
    return {**facts, **report(title, timings, size, data.batches, against)}, loop_claims(title, timings, data.batch)


def first_of(epochs: Epochs) -> Any:
    """Return the first batch of an epoch."""
    return next(iter(epochs()))


def loop_claims(title: str, timings: dict[str, Timing], batch: int) -> list[Claim]:
    """Return the numbers to reach."""
    loom, sent = timings[GIVEN], timings[STREAMED]
    share = f"{title}: bandwidth of"
    pinned = Claim.of_ratio(f"{share} {STREAMED}, times the pinned copy's", timings[PINNED], sent, ">=", PINNED_SHARE)
    if batch == LARGE:
        text = f"{share} {GIVEN}, times the device's copy's"
        return [Claim.of_ratio(text, timings[COPY], loom, ">=", COPY_SHARE), pinned]
    bounds = {TORCH_MOVED: TORCH_RATIO, TORCH_THERE: TORCH_RATIO, BATCH_ITER: BATCH_ITER_RATIO}
    return [*(slower(title, timings[name], loom, bound) for name, bound in bounds.items()), pinned]


def check(name: str, epochs: Epochs, data: Data) -> None:
    """Refuse a way unless an epoch brings every row to the device exactly once, shuffled, values beside their label.

    Raises:
        AssertionError: It does not.
    """
    numbers = []
    for features, labels in epochs():
        assert features.device == labels.device == data.device, f"{name}: batches are on {features.device}"
        numbers.append(labels.long())
        assert torch.equal(features, data.there.features.index_select(0, numbers[-1])), f"{name}: other values"
    assert all(len(batch) == data.batch for batch in numbers[:-1]), f"{name}: a batch of another size"
    found, everyone = torch.cat(numbers), torch.arange(len(data.host), device=data.device)
    assert torch.equal(found.sort().values, everyone), f"{name}: not every row exactly once"
    assert not torch.equal(found, everyone), f"{name}: the order is the stored one"


def measure_training(place: Place) -> Found:
    """Measure epochs of training; return what the JSON says."""
    data, title = Data.make(place, BATCH, highest=1.0), f"training, batches of {BATCH}"
    fixed = cut_before(data)
    candidates = [training(place, FIXED, lambda: fixed)]
    candidates += [training(place, name, way(data), slow=name in SLOW) for name, way in WAYS.items()]
    timings = interleave(title, candidates, place.rounds)
    shares = {name: loader_share(timing, timings[FIXED]) for name, timing in timings.items()}
    against = {"no_loading": FIXED, "batchloom": GIVEN}
    found = report(title, timings, data.host.bytes, data.batches, against)
    for record in found["candidates"]:
        record["loader_share"] = shares[record["name"]]
    claims = [share_claim(title, timings[name], timings[FIXED]) for name in LOOM]
    facts = {"rows": len(data.host), "row_floats": WIDTH, "batch_size": data.batch, "learning_rate": LEARNING_RATE}
    return Found({**facts, **found}, claims)


def cut_before(data: Data) -> Sequence[tuple[Tensor, Tensor]]:
    """Return all batches in stored order: views."""
    rows = data.there
    return list(zip(rows.features.split(data.batch), rows.labels.split(data.batch), strict=True))


def training(place: Place, name: str, epochs: Epochs, slow: bool = False) -> Candidate:
    """Train a model of its own, an epoch in each run."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, 500), nn.ReLU(), nn.Linear(500, 125), nn.ReLU(), nn.Linear(125, 1)]
    model = nn.Sequential(*layers).to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def epoch() -> None:
        for features, labels in epochs():
            optimizer.zero_grad()
            nn.functional.mse_loss(model(features).squeeze(1), labels).backward()
            optimizer.step()

    return Candidate(name, lambda: place.seconds(epoch), slow=slow)


def loader_share(timing: Timing, fixed: Timing) -> float:
    """Return which share of an epoch is not there without loading: the median over rounds."""
    return 1 - fixed.ratio(timing)


def share_claim(title: str, timing: Timing, fixed: Timing) -> Claim:
    """Claim that loading is next to nothing."""
    text = f"{title}: share of the epoch that loading takes, {timing.name}"
    return Claim(text, loader_share(timing, fixed), "<", LOADER_SHARE, 1 - fixed.best_ratio(timing))
