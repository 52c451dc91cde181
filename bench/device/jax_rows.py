"""Measure rows that JAX gets on its own device, beside loops by hand.

Promises:

- Every way has shown on an epoch that it brings every row exactly once beside its own label, to JAX's first device.
- batchloom makes batches on the CPU, and JAX copies each to its device. By hand: NumPy's ``take`` and
  ``jax.device_put`` of each batch, and ``jnp.take`` of rows that lie on the device, one batch at a time.
- JAX takes memory as it needs it here, so that torch's own stays free.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import batchloom
import numpy

from bench.device.peers import CPU_ROWS, LARGE, WIDTH
from bench.device.place import Found, Place, report
from bench.harness.claims import Claim
from bench.harness.measure import Candidate, exhaust

ROWS = 200_000
GIVEN, BY_HAND, THERE = "batchloom, output jax", "by hand: take and device_put", "by hand: jnp.take on the device"
Epochs = Callable[[], Iterable[Any]]


def measure_jax(place: Place) -> Found:
    """Measure epochs; return their record for the JSON."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    device, count = jax.devices()[0], place.scaled(ROWS, CPU_ROWS, least=4 * LARGE)
    if place.is_gpu and device.platform == "cpu":
        return Found(
            {"jax_device": str(device)}, failure=f"JAX {jax.__version__} finds no GPU: its first device is {device}"
        )
    generator = numpy.random.default_rng(0)
    features = generator.random((count, WIDTH), numpy.float32)
    labels = numpy.arange(count, dtype=numpy.float32)
    ways = made(device, features, labels)
    for name, epochs in ways.items():
        check(name, epochs, features, device)
    candidates = [
        Candidate(name, lambda epochs=epochs: place.seconds(lambda: exhaust_ready(epochs())))
        for name, epochs in ways.items()
    ]
    timings = place.interleave(f"JAX, batches of {LARGE}", candidates)
    size = features.nbytes + labels.nbytes
    body = report(f"JAX, batches of {LARGE}", timings, size, -(-count // LARGE), {"batchloom": GIVEN})
    text = f"JAX on {device.platform}: time of {{}}, times batchloom's"
    claims = [Claim.of_ratio(text.format(BY_HAND), timings[BY_HAND], timings[GIVEN], ">=", 1.0)]
    ratios = {text.format(THERE): timings[THERE].ratio(timings[GIVEN])}
    return Found({"jax_device": str(device), "jax": jax.__version__, **body}, claims, ratios)


def made(device: Any, features: numpy.ndarray, labels: numpy.ndarray) -> dict[str, Epochs]:
    """Return every way."""
    import jax
    import jax.numpy as jnp

    dataset = batchloom.TensorDataset(features, labels)
    loader = batchloom.DataLoader(dataset, batch_size=LARGE, shuffle=True, output="jax", device=device)
    there = jax.device_put((features, labels), device)

    def by_hand() -> Iterator[Any]:
        order = numpy.random.default_rng().permutation(len(labels))
        for start in range(0, len(order), LARGE):
            batch = order[start : start + LARGE]
            yield jax.device_put((features.take(batch, axis=0), labels[batch]), device)

    def taken() -> Iterator[Any]:
        order = jax.device_put(numpy.random.default_rng().permutation(len(labels)).astype(numpy.int32), device)
        for start in range(0, len(labels), LARGE):
            batch = order[start : start + LARGE]
            yield jnp.take(there[0], batch, axis=0), jnp.take(there[1], batch, axis=0)

    return {GIVEN: lambda: loader, BY_HAND: by_hand, THERE: taken}


def exhaust_ready(epoch: Iterable[Any]) -> None:
    """Run the loop; wait until the last batch is there."""
    last = None
    for batch in epoch:
        last = batch
    exhaust(array.block_until_ready() for array in last or ())


def check(name: str, epochs: Epochs, features: numpy.ndarray, device: Any) -> None:
    """Refuse a way unless an epoch brings every row to the device exactly once, beside its label.

    Raises:
        AssertionError: It does not.
    """
    numbers = []
    for rows, labels in epochs():
        assert rows.devices() == {device}, f"{name}: batches are on {rows.devices()}"
        numbers.append(numpy.asarray(labels).astype(numpy.int64))
        assert numpy.array_equal(numpy.asarray(rows), features[numbers[-1]]), f"{name}: other values"
    assert numpy.array_equal(numpy.sort(numpy.concatenate(numbers)), numpy.arange(len(features))), f"{name}: rows"
