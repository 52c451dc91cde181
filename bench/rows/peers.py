"""Ask batchloom and each peer for the same thing: one epoch of rows in batches of 64, shuffled.

Promises:

- Every peer is set as its documentation, or our own trials, found fastest; what was tuned stands beside it.
- A peer is a function from rows to a maker of epochs. What can be made once for all epochs is made before the
  clock runs; what belongs to an epoch (its order, its workers) is made inside it.
- ``check`` lets no peer pass that loses or repeats a row, or that puts a label beside another row.
"""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import batchloom
import numpy
import torch
from batch_iter import BatchIter
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bench.harness.record import BENCH

BATCH = 64
BLOCK = 4096
# The names of some peers in tables and claims.
BATCH_ITER, RUST, TORCH = "batch-iter", "dataloader-rs", "torch DataLoader"
SELECT, SELECT_BLOCKS = "index_select a batch, by hand", "index_select of 4096 and split, by hand"
Epochs = Callable[[], Iterable[Any]]


@dataclass(frozen=True)
class Rows:
    """Features and the label of each row."""

    features: torch.Tensor
    labels: torch.Tensor

    @classmethod
    def make(cls, rows: int, width: int) -> Rows:
        """Draw random features; the label of a row is its number, exact in float32 below 2**24."""
        return cls(torch.rand(rows, width), torch.arange(rows, dtype=torch.float32))

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)

    def first(self, rows: int) -> Rows:
        """Return the first ``rows`` of them: a view."""
        return Rows(self.features[:rows], self.labels[:rows])

    @property
    def bytes(self) -> int:
        """Bytes of all features and labels."""
        return self.features.nbytes + self.labels.nbytes


def copy(rows: Rows) -> Callable[[], None]:
    """Copy the same bytes with torch into memory that was written before, on all its threads."""
    features, labels = rows.features.clone(), rows.labels.clone()

    def run() -> None:
        features.copy_(rows.features)
        labels.copy_(rows.labels)

    return run


def loom(rows: Rows, batch: int = BATCH, shuffle: bool = True, **options: Any) -> Epochs:
    """Use batchloom with its defaults."""
    dataset = batchloom.TensorDataset(rows.features, rows.labels)
    loader = batchloom.DataLoader(dataset, batch_size=batch, shuffle=shuffle, **options)
    return lambda: loader


def batch_iter(rows: Rows, batch: int = BATCH) -> Epochs:
    """Use batch-iter, an object for each epoch: it draws its order in the constructor."""
    return lambda: BatchIter(rows.features, rows.labels, batch_size=batch, shuffle=True)


def select_batches(rows: Rows, batch: int = BATCH) -> Epochs:
    """By hand: ``index_select`` for each batch, on the device of the rows."""

    def epoch() -> Iterator[Any]:
        for chosen in torch.randperm(len(rows), device=rows.labels.device).split(batch):
            yield rows.features.index_select(0, chosen), rows.labels.index_select(0, chosen)

    return epoch


def select_blocks(rows: Rows, batch: int = BATCH) -> Epochs:
    """By hand: ``index_select`` for 4096 rows on their device, then views of it."""

    def epoch() -> Iterator[Any]:
        for block in torch.randperm(len(rows), device=rows.labels.device).split(BLOCK):
            features, labels = rows.features.index_select(0, block), rows.labels.index_select(0, block)
            yield from zip(features.split(batch), labels.split(batch), strict=True)

    return epoch


def select_whole(rows: Rows) -> Epochs:
    """By hand: one ``index_select`` for the whole epoch, then views of it."""

    def epoch() -> Iterator[Any]:
        order = torch.randperm(len(rows))
        features, labels = rows.features.index_select(0, order), rows.labels.index_select(0, order)
        yield from zip(features.split(BATCH), labels.split(BATCH), strict=True)

    return epoch


def take_batches(rows: Rows) -> Epochs:
    """By hand: NumPy's ``take`` for each batch, in torch's order, which is drawn faster than NumPy's."""
    features, labels = rows.features.numpy(), rows.labels.numpy()

    def epoch() -> Iterator[Any]:
        order = torch.randperm(len(rows)).numpy()
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            yield features.take(batch, axis=0), labels.take(batch, axis=0)

    return epoch


def torch_loader(rows: Rows, workers: int = 0) -> Epochs:
    """Use torch's ``DataLoader`` as it is usually written."""
    dataset = TensorDataset(rows.features, rows.labels)
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=workers)
    return lambda: loader


class WholeBatches(Dataset[Any]):
    """A dataset that gathers a whole batch at once, by the hook that torch's fetcher looks for."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)

    def __getitems__(self, samples: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return one batch."""
        batch = torch.tensor(samples)
        return self.rows.features.index_select(0, batch), self.rows.labels.index_select(0, batch)


def torch_whole_batches(rows: Rows) -> Epochs:
    """Use torch's ``DataLoader`` without work for each row."""
    loader = DataLoader(WholeBatches(rows), batch_size=BATCH, shuffle=True, collate_fn=_same)
    return lambda: loader


def _same(batch: Any) -> Any:
    return batch


class RowSource:
    """Rows as grain reads them: one at a time."""

    def __init__(self, rows: Rows) -> None:
        self.features, self.labels = rows.features.numpy(), rows.labels.numpy()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        """Return one row."""
        return self.features[row], self.labels[row]


def grain_rows(rows: Rows) -> Epochs:
    """Use grain over rows, with a new seed for each epoch."""
    grain, source, seeds = _grain(), RowSource(rows), iter(range(1 << 30))
    return lambda: _grain_epoch(grain.MapDataset.source(source).shuffle(seed=next(seeds)).batch(BATCH))


def grain_whole_batches(rows: Rows) -> Epochs:
    """Use grain over row numbers, and gather the rows of a batch at once."""
    grain, seeds = _grain(), iter(range(1 << 30))
    features, labels = rows.features.numpy(), rows.labels.numpy()

    def gather(batch: numpy.ndarray) -> tuple[numpy.ndarray, numpy.ndarray]:
        return features.take(batch, axis=0), labels.take(batch, axis=0)

    numbers = grain.MapDataset.range(len(rows))
    return lambda: _grain_epoch(numbers.shuffle(seed=next(seeds)).batch(BATCH).map(gather))


def _grain() -> Any:
    logging.getLogger("absl").setLevel(logging.ERROR)  # else it warns that there is no JAX
    import grain

    return grain


def _grain_epoch(dataset: Any) -> Iterable[Any]:
    """Iterate without read threads: on trial 11 microseconds a row of 4 KB, with the default 16 it was 30."""
    return dataset.to_iter_dataset(_grain().ReadOptions(num_threads=0, prefetch_buffer_size=0))


def split_views(rows: Rows) -> Epochs:
    """By hand, not shuffled: views of the data itself, nothing copied."""
    return lambda: zip(rows.features.split(BATCH), rows.labels.split(BATCH), strict=True)


def check(epochs: Epochs, rows: Rows, shuffled: bool = True) -> None:
    """Refuse a peer unless each of two epochs holds every row exactly once, features beside their label.

    Raises:
        AssertionError: It does not.
    """
    for _ in range(2):
        batches = [(torch.as_tensor(features), torch.as_tensor(labels)) for features, labels in epochs()]
        numbers = torch.cat([labels for _, labels in batches]).long()
        everyone = torch.arange(len(rows))
        assert torch.equal(numbers.sort().values, everyone), "not every row exactly once"
        features = torch.cat([features for features, _ in batches])
        assert torch.equal(features, rows.features[numbers]), "a label beside another row"
        assert shuffled != torch.equal(numbers, everyone), "the order is not what was asked for"
        assert all(len(labels) == BATCH for _, labels in batches[:-1]), "a batch of another size"


class RustLoader:
    """The Rust program in ``dataloader_rs/``: it holds rows of its own and runs an epoch when told to."""

    def __init__(self, rows: int, width: int) -> None:
        crate = BENCH / "rows" / "dataloader_rs"
        build = ["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", "target"]
        subprocess.run(build, cwd=crate, check=True)
        program = crate / "target" / "release" / "dataloader_rs_bench"
        self._process = subprocess.Popen(
            [program, str(rows), str(width)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.settings = self._answer()

    @staticmethod
    def missing() -> str | None:
        """Return the reason why it cannot be measured here, if there is one."""
        return None if shutil.which("cargo") else "cargo is not installed"

    def epoch(self) -> float:
        """Run one epoch; return its seconds."""
        print(file=self._process.stdin, flush=True)
        return self._answer()["seconds"]

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"dataloader_rs_bench ended with status {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
