"""Compares epoch times of torch's DataLoader, batch-iter and batchloom, for rows of 4 KB and of 64 bytes.

Takes half a minute. The measurement to quote, with more peers and the machine's own copy, is bench/rows.

    python examples/epochs.py
"""

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import batchloom as bl
import torch
from batch_iter import BatchIter
from tqdm import tqdm

BATCH = 64
ROUNDS = 5
WORKLOADS = {"rows of 4 KB": (40_000, 1024), "rows of 64 B": (400_000, 16)}


def loaders(x: torch.Tensor, y: torch.Tensor) -> dict[str, Callable[[], Iterable[Any]]]:
    """Return a function for each loader that begins an epoch in a new random order."""
    rival = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), BATCH, shuffle=True)
    ours = bl.DataLoader(bl.TensorDataset(x, y), BATCH, shuffle=True)
    # batch-iter draws its order when it is made, so a new epoch needs a new object.
    return {
        "torch DataLoader": lambda: rival,
        "batch-iter": lambda: BatchIter(x, y, batch_size=BATCH, shuffle=True),
        "batchloom": lambda: ours,
    }


def seconds(begin: Callable[[], Iterable[Any]]) -> float:
    """Return the seconds of one epoch with an empty loop body."""
    begun = time.perf_counter()
    for _ in begin():
        pass
    return time.perf_counter() - begun


def measure(rows: int, columns: int, bar: tqdm) -> dict[str, float]:
    """Return the median epoch time of each loader; the loaders take turns."""
    begins = loaders(torch.randn(rows, columns), torch.randn(rows))
    times: dict[str, list[float]] = {name: [] for name in begins}
    for _ in range(ROUNDS):
        for name, begin in begins.items():
            times[name].append(seconds(begin))
            bar.update()
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    """Measure all loaders and print a table."""
    print(f"\nepoch times, batches of {BATCH}, shuffled, empty loop body (median of {ROUNDS})\n")
    with tqdm(total=ROUNDS * 3 * len(WORKLOADS), desc="measuring", leave=False, disable=None) as bar:
        results = {name: measure(*shape, bar) for name, shape in WORKLOADS.items()}
    for name, (rows, _) in WORKLOADS.items():
        print(f"{name}, {rows} of them")
        for loader, taken in results[name].items():
            times = taken / results[name]["batchloom"]
            print(f"  {loader:18} {taken * 1e3:10.1f} ms {times:8.1f} x")


if __name__ == "__main__":
    main()
