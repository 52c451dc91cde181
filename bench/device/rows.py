"""Measure rows on a device: the published experiment on a small model, its loop alone and its training.

Promises:

- 500 000 rows of 1000 float32, a label each, batches of 64 and of 1024, shuffled. The network is 1000-500-125-1 with
  ReLU, trained by SGD with a rate of 1e-3 on the mean squared error.
- Before anything is timed, each way has shown on an epoch of all rows that it brings every row exactly once, all its
  values beside its own label, in an order that is not the stored one, to the device.
- Objects that serve all epochs are made before the clock, and resident data moves before it: ``first_batch_seconds`` of
  the JSON has that time. batch-iter draws its order when it is made, so it is made in each epoch.
- Training without loading runs on batches that were made before: the same steps on the same rows, in stored order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from bench.device.peers import (
    BATCH_ITER,
    GIVEN,
    LARGE,
    MOVED,
    ROW_WAYS,
    STREAMED,
    TORCH_MOVED,
    TORCH_THERE,
    WIDTH,
    Data,
)
from bench.device.place import PINNED, Found, Place, report
from bench.harness.claims import Claim, slower
from bench.harness.measure import COPY, Candidate, Timing, interleave
from bench.rows.peers import BATCH, Epochs

FIXED = "no loading: batches made before"
LEARNING_RATE = 1e-3
TORCH_RATIO, BATCH_ITER_RATIO, COPY_SHARE, PINNED_SHARE, LOADER_SHARE = 100, 10, 0.6, 0.85, 0.02


SLOW = (TORCH_MOVED, TORCH_THERE)
LOOM = (GIVEN, MOVED, STREAMED)


def measure_rows(place: Place) -> Found:
    """Measure the loop alone, with small and with large batches; return its record for the JSON."""
    data = Data.make(place, BATCH)
    small, claims = loop(place, data, ROW_WAYS)
    few = [name for name in ROW_WAYS if name not in SLOW]
    large, more = loop(place, Data(data.host, data.there, LARGE), few)
    return Found({"cases": [small, large]}, claims + more)


def loop(place: Place, data: Data, names: Iterable[str]) -> tuple[dict[str, Any], list[Claim]]:
    """Measure one size of batches."""
    title, size = f"rows, batches of {data.batch}", data.host.bytes
    candidates = [place.copying(size), place.sending(size)]
    for name in names:
        epochs = ROW_WAYS[name](data)
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
    """Measure epochs of training; return its record for the JSON."""
    data, title = Data.make(place, BATCH, highest=1.0), f"training, batches of {BATCH}"
    fixed = cut_before(data)
    candidates = [training(place, FIXED, lambda: fixed)]
    candidates += [training(place, name, way(data), slow=name in SLOW) for name, way in ROW_WAYS.items()]
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
    """Return the share of an epoch that loading takes: the median over rounds."""
    return 1 - fixed.ratio(timing)


def share_claim(title: str, timing: Timing, fixed: Timing) -> Claim:
    """Claim that loading takes a small share."""
    text = f"{title}: share of the epoch that loading takes, {timing.name}"
    return Claim(text, loader_share(timing, fixed), "<", LOADER_SHARE, 1 - fixed.best_ratio(timing))
