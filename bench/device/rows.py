"""Measure rows on a device: the published experiment on a small model, its loop alone and its training.

Promises:

- 500 000 rows of 1000 float32 and 2 million of 16 float32, a label each, batches of 64 and of 1024, shuffled. The
  network is 1000-500-125-1 with ReLU, trained by SGD with a rate of 1e-3 on the mean squared error.
- Before anything is timed, each way has shown on an epoch that it brings every row exactly once, all its values beside
  its own label, in an order that is not the stored one, to the device. batchloom's ways have shown it on all rows of
  4 KB, the other ways on the first of them.
- Objects that serve all epochs are made before the clock, and resident data moves before it: ``first_batch_seconds`` of
  the JSON has that time. batch-iter draws its order when it is made, so it is made in each epoch.
- torch's loader makes the first batches of its epoch (place.py), and batches of 64 alone.
- Training runs on the first 2000 batches. Training without loading runs on batches that were made before: the same
  steps on the same rows, in stored order.
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
    NARROW_ROWS,
    NARROW_WIDTH,
    ROW_WAYS,
    ROWS,
    STREAMED,
    TORCH_MOVED,
    TORCH_THERE,
    WIDTH,
    Data,
)
from bench.device.place import PINNED, Found, Place, report
from bench.device.profiles import profile
from bench.harness.claims import Claim, slower
from bench.harness.measure import COPY, Candidate, Timing
from bench.rows.peers import BATCH, Epochs

FIXED = "no loading: batches made before"
LEARNING_RATE = 1e-3
TORCH_RATIO, BATCH_ITER_RATIO, COPY_SHARE, PINNED_SHARE, LOADER_SHARE = 100, 10, 0.6, 0.85, 0.02
# What is checked of slow ways, what torch's loader makes of an epoch, and the steps of training.
CHECKED_ROWS, TORCH_BATCHES, TRAINING_STEPS, TRAINING_ROUNDS = 20_000, 300, 2000, 3

SLOW = (TORCH_MOVED, TORCH_THERE)
LOOM = (GIVEN, MOVED, STREAMED)


def measure_rows(place: Place) -> Found:
    """Measure rows of 4 KB; return their record for the JSON."""
    return measure_loops(place, "rows of 4 KB", ROWS, WIDTH)


def measure_narrow_rows(place: Place) -> Found:
    """Measure rows of 64 B; return their record for the JSON."""
    return measure_loops(place, "rows of 64 B", NARROW_ROWS, NARROW_WIDTH)


def measure_loops(place: Place, of: str, rows: int, width: int) -> Found:
    """Measure the loop alone, with small and with large batches."""
    data = Data.make(place, rows, width)
    cases, claims, profiles = [], [], {}
    for batch in (BATCH, LARGE):
        case, more, kept = loop(place, of, data.in_batches_of(batch))
        cases.append(case)
        claims += more
        profiles |= {f"{name}, batches of {batch}": profile(place, kept[name]) for name in (GIVEN, STREAMED)}
    return Found({"cases": cases, "profiles": profiles}, claims)


def loop(place: Place, of: str, data: Data) -> tuple[dict[str, Any], list[Claim], dict[str, Epochs]]:
    """Measure one size of batches; return its record, its claims, and the ways."""
    title, size = f"{of}, batches of {data.batch}", data.host.bytes
    candidates = [place.copying(size), place.sending(size)]
    kept = {}
    for name, way in ROW_WAYS.items():
        if name in SLOW and data.batch == LARGE:
            continue
        few = data.first(CHECKED_ROWS)
        check(name, way(few), few)
        epochs = kept[name] = way(data)
        first = place.seconds(partial(first_of, epochs))
        if name in SLOW:
            candidates.append(place.first_batches(name, epochs, data.batches, TORCH_BATCHES))
            continue
        if name in LOOM and data.batch == LARGE:
            check(name, epochs, data)
        candidates.append(place.epochs(name, epochs, first_batch_seconds=first))
    timings = place.interleave(title, candidates)
    against = {"copy": COPY, "pinned": PINNED, "batchloom": GIVEN}
    facts = {"rows": len(data.host), "row_bytes": size // len(data.host), "batch_size": data.batch}
    return {**facts, **report(title, timings, size, data.batches, against)}, loop_claims(title, timings, data), kept


def first_of(epochs: Epochs) -> Any:
    """Return the first batch of an epoch."""
    return next(iter(epochs()))


def loop_claims(title: str, timings: dict[str, Timing], data: Data) -> list[Claim]:
    """Return the numbers to reach."""
    loom, sent = timings[GIVEN], timings[STREAMED]
    claims = [
        slower(title, timings[name], loom, bound)
        for name, bound in {TORCH_MOVED: TORCH_RATIO, TORCH_THERE: TORCH_RATIO, BATCH_ITER: BATCH_ITER_RATIO}.items()
        if data.batch == BATCH
    ]
    text = f"{title}: bandwidth of {{}}, times that of the copy {{}}"
    if data.batch == LARGE and data.there.features.shape[1] == WIDTH:
        claims.append(Claim.of_ratio(text.format(GIVEN, "on the device"), timings[COPY], loom, ">=", COPY_SHARE))
    if data.there.features.shape[1] == WIDTH:
        claims.append(
            Claim.of_ratio(text.format(STREAMED, "from pinned memory"), timings[PINNED], sent, ">=", PINNED_SHARE)
        )
    return claims


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
    data = Data.make(place, TRAINING_STEPS * BATCH).with_labels_below(1.0)
    title, fixed = f"training, batches of {BATCH}", cut_before(data)
    candidates = [training(place, FIXED, lambda: fixed, data)]
    candidates += [training(place, name, way(data), data) for name, way in ROW_WAYS.items()]
    timings = place.interleave(title, candidates, TRAINING_ROUNDS)
    shares = {name: loader_share(timing, timings[FIXED]) for name, timing in timings.items()}
    against = {"no_loading": FIXED, "batchloom": GIVEN}
    found = report(title, timings, data.host.bytes, data.batches, against)
    for record in found["candidates"]:
        record["loader_share"] = shares[record["name"]]
    claims = [share_claim(title, timings[name], timings[FIXED]) for name in LOOM]
    ratios = {f"{title}: share of the epoch that loading takes, {name}": share for name, share in shares.items()}
    facts = {"rows": len(data.host), "row_floats": WIDTH, "batch_size": data.batch, "learning_rate": LEARNING_RATE}
    return Found({**facts, **found}, claims, ratios)


def cut_before(data: Data) -> Sequence[tuple[Tensor, Tensor]]:
    """Return all batches in stored order: views."""
    rows = data.there
    return list(zip(rows.features.split(data.batch), rows.labels.split(data.batch), strict=True))


def training(place: Place, name: str, epochs: Epochs, data: Data) -> Candidate:
    """Train a model of its own, an epoch in each run."""
    torch.manual_seed(0)
    layers = [nn.Linear(WIDTH, 500), nn.ReLU(), nn.Linear(500, 125), nn.ReLU(), nn.Linear(125, 1)]
    model = nn.Sequential(*layers).to(place.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def trained(epoch: Iterable[Any]) -> Iterable[None]:
        for features, labels in epoch:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(features).squeeze(1), labels).backward()
            optimizer.step()
            yield

    if name in SLOW:
        return place.first_batches(name, lambda: trained(epochs()), data.batches, TORCH_BATCHES)
    candidate = place.epochs(name, lambda: trained(epochs()), slow=True)
    candidate.run()
    return candidate


def loader_share(timing: Timing, fixed: Timing) -> float:
    """Return the share of an epoch that loading takes: the median over rounds."""
    return 1 - fixed.ratio(timing)


def share_claim(title: str, timing: Timing, fixed: Timing) -> Claim:
    """Claim that loading takes a small share."""
    text = f"{title}: share of the epoch that loading takes, {timing.name}"
    return Claim(text, loader_share(timing, fixed), "<", LOADER_SHARE, 1 - fixed.best_ratio(timing))
