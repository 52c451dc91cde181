"""Make the same data into batches: by batchloom, by torch's DataLoader, by torchdata's StatefulDataLoader.

Rules: ``rows`` are batches of 4 of 96 rows; ``budget`` are sequences of 1 to 16 tokens, at most 48 padded ones in a
batch; ``packing`` concatenates at most 48 tokens. A peer has no rules of its own for the last two: it is given lists of
samples that are cut the same way by hand, a fresh order for each epoch, each rank every so-manyth list: what people
write, as a ``batch_sampler`` with ``set_epoch``. Every row or token of a sample is its number, so a batch tells what is
in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import batchloom as bl
import numpy
import torch

RULES = ("rows", "budget", "packing")
SAMPLES, BATCH, BUDGET, POOL, SEED = 96, 4, 48, 8, 3


def lengths() -> numpy.ndarray:
    """Return the lengths of the sequences."""
    return numpy.random.default_rng(0).integers(1, 17, SAMPLES)


def documents() -> list[numpy.ndarray]:
    """Return sequences whose tokens are all the number of their sequence."""
    return [numpy.full(length, sample, dtype=numpy.int64) for sample, length in enumerate(lengths())]


def rows() -> torch.Tensor:
    """Return rows that hold their own number."""
    return torch.arange(SAMPLES, dtype=torch.float32)[:, None].repeat(1, 4)


def samples_of(batch: Any) -> numpy.ndarray:
    """Return which samples a batch holds; places that only fill up are left out."""
    if not isinstance(batch, dict):
        return numpy.asarray(batch[0])[:, 0].astype(int)
    if "index" in batch:
        found = numpy.asarray(batch["index"])
        return found[found >= 0]
    return numpy.asarray(batch["x"])[:, 0].astype(int)


def values_of(batch: Any) -> torch.Tensor:
    """Return numbers of a batch that a model of one weight can be trained on."""
    array = batch[0] if not isinstance(batch, dict) else batch["x"] if "x" in batch else batch["input_ids"]
    return torch.as_tensor(numpy.asarray(array)).float().mean().reshape(1, 1)


def batchloom(rule: str, **options: Any) -> bl.DataLoader:
    """Make batchloom's loader."""
    chosen: dict[str, Any] = {"shuffle": True, "seed": SEED, "uneven": "mask", "output": "torch", **options}
    if rule == "rows":
        return bl.DataLoader(bl.TensorDataset(x=rows()), BATCH, **chosen)
    batching = bl.TokenBudget(BUDGET, pool=POOL) if rule == "budget" else bl.Packing(BUDGET, pool=POOL)
    return bl.DataLoader(bl.SequenceDataset(input_ids=documents()), batching=batching, **chosen)


class HandSampler:
    """Lists of samples for a torch loader, as people write them: another order each epoch, dealt to ranks in turn."""

    def __init__(self, rule: str, rank: int, world: int) -> None:
        self.rule, self.rank, self.world, self.epoch = rule, rank, world, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch."""
        self.epoch = epoch

    def batches(self) -> list[list[int]]:
        """Return the batches of all ranks."""
        drawn = numpy.random.default_rng(SEED + self.epoch).permutation(SAMPLES)
        sizes, found = lengths(), [[]]
        for sample in drawn:
            joined = [*found[-1], int(sample)]
            cost = sizes[joined].sum() if self.rule == "packing" else len(joined) * sizes[joined].max()
            if len(joined) > BATCH if self.rule == "rows" else cost > BUDGET:
                found.append([])
            found[-1].append(int(sample))
        return found[: len(found) // self.world * self.world] if self.world > 1 else found

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.batches()[self.rank :: self.world]

    def __len__(self) -> int:
        return len(self.batches()) // self.world


class Documents(torch.utils.data.Dataset):
    """The sequences as a dataset of torch."""

    def __init__(self) -> None:
        self.documents = documents()

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.from_numpy(self.documents[index])


class Rows(torch.utils.data.Dataset):
    """The rows as a dataset of torch, in dicts."""

    def __init__(self) -> None:
        self.rows = rows()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.rows[index]}


def together(samples: list[tuple[int, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Collate sequences: padded to the longest."""
    padded = torch.nn.utils.rnn.pad_sequence([tokens for _, tokens in samples], batch_first=True)
    return {"input_ids": padded, "index": torch.tensor([index for index, _ in samples])}


def of_torch(rule: str, rank: int, world: int, stateful: bool = False, sharded_by_trainer: bool = False) -> Any:
    """Make torch's loader, or torchdata's, which has a state; for rows with the samplers that everyone uses."""
    from torch.utils.data import DataLoader, DistributedSampler

    kind = DataLoader
    if stateful:
        from torchdata.stateful_dataloader import StatefulDataLoader as kind  # noqa: N813
    if rule == "rows":
        if sharded_by_trainer:
            return kind(Rows(), batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(SEED))
        sampler = DistributedSampler(Rows(), world, rank, shuffle=True, seed=SEED)
        return kind(Rows(), batch_size=BATCH, sampler=sampler)
    sampler = HandSampler(rule, *((0, 1) if sharded_by_trainer else (rank, world)))
    return kind(Documents(), batch_sampler=sampler, collate_fn=together)


def chunks_of_litdata(folder: str) -> None:
    """Write the rows as the chunks that litData reads."""
    import litdata

    litdata.optimize(_row, list(range(SAMPLES)), folder, num_workers=1, chunk_size=BATCH, verbose=False)


def _row(sample: int) -> dict[str, Any]:
    return {"x": rows()[sample]}


def of_litdata(folder: str) -> Any:
    """Make litData's loader of rows; it asks ``torch.distributed`` for its rank."""
    from litdata import StreamingDataLoader, StreamingDataset

    return StreamingDataLoader(StreamingDataset(folder, shuffle=True, drop_last=True, seed=SEED), batch_size=BATCH)


def set_epoch(loader: Any, epoch: int) -> None:
    """Tell the sampler of a torch loader which epoch begins."""
    for sampler in (getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
