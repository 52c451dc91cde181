"""Make the same data into batches: by batchloom, by torch's DataLoader, by torchdata's StatefulDataLoader.

Rules: ``rows`` are batches of 4 of 96 rows; ``budget`` are sequences of 1 to 16 tokens, at most 48 padded ones in a
batch; ``packing`` concatenates at most 48 tokens. A peer has no rules of its own for the last two: it is given lists of
samples that are cut the same way by hand, a fresh order for each epoch, each rank every so-manyth list: what people
write, as a ``batch_sampler`` with ``set_epoch``. Every row or token of a sample is its number, so a batch tells what is
in it.

Two rules more are of two loaders of rows. ``beside`` is Lightning's ``CombinedLoader``: a step takes a batch of each,
and the short one goes round five times while the long one lasts. ``turns`` takes a batch of one, then of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import batchloom as bl
import numpy
import torch

RULES = ("rows", "budget", "packing", "beside", "turns")
# Rules of two loaders: the rows of each. Rows of the second one are numbered after those of the first.
PARTS = {"beside": (80, 16), "turns": (48, 48)}
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


def wanted(rule: str) -> numpy.ndarray:
    """Return how often each sample is trained in an epoch."""
    first, second = PARTS.get(rule, (SAMPLES, 0))
    return numpy.repeat([1, first // second if rule == "beside" else 1], [first, second])


def samples_of(batch: Any) -> numpy.ndarray:
    """Return which samples a batch holds; places that only fill up are left out."""
    if isinstance(batch, dict) and set(batch) == {"long", "short"}:
        return numpy.concatenate([samples_of(batch["long"]), samples_of(batch["short"])])
    if isinstance(batch, (tuple, list)) and isinstance(batch[0], str):
        return samples_of(batch[1])
    if isinstance(batch, dict) and "row" in batch:
        found, real = numpy.asarray(batch["row"]), numpy.asarray(batch.get("weight", numpy.ones(len(batch["row"]))))
        return found[real > 0]
    if not isinstance(batch, dict):
        return numpy.asarray(batch[0])[:, 0].astype(int)
    if "index" in batch:
        found = numpy.asarray(batch["index"])
        return found[found >= 0]
    return numpy.asarray(batch["x"])[:, 0].astype(int)


def values_of(batch: Any) -> torch.Tensor:
    """Return numbers of a batch that a model of one weight can be trained on."""
    if not isinstance(batch, torch.Tensor) and not isinstance(batch, dict) and isinstance(batch[0], str):
        return values_of(batch[1])
    if isinstance(batch, dict) and ("long" in batch or "row" in batch):
        return torch.ones(1, 1)
    array = batch[0] if not isinstance(batch, dict) else batch["x"] if "x" in batch else batch["input_ids"]
    return torch.as_tensor(numpy.asarray(array)).float().mean().reshape(1, 1)


def parts(rule: str) -> dict[str, torch.Tensor]:
    """Return the rows of each loader of a rule of two."""
    first, second = PARTS[rule]
    return {"long": torch.arange(first), "short": torch.arange(first, first + second)}


def batchloom(rule: str, **options: Any) -> Any:
    """Make batchloom's loader."""
    chosen: dict[str, Any] = {"shuffle": True, "seed": SEED, "uneven": "mask", "output": "torch", **options}
    if rule in PARTS:
        made = {name: bl.DataLoader(bl.TensorDataset(row=part), BATCH, **chosen) for name, part in parts(rule).items()}
        return beside(made) if rule == "beside" else bl.interleave(made, when_exhausted="renormalise")
    if rule == "rows":
        return bl.DataLoader(bl.TensorDataset(x=rows()), BATCH, **chosen)
    batching = bl.TokenBudget(BUDGET, pool=POOL) if rule == "budget" else bl.Packing(BUDGET, pool=POOL)
    return bl.DataLoader(bl.SequenceDataset(input_ids=documents()), batching=batching, **chosen)


def beside(loaders: dict[str, Any]) -> Any:
    """Make Lightning's combination of loaders."""
    from lightning.pytorch.utilities import CombinedLoader

    return CombinedLoader(loaders, "max_size_cycle")


class HandTurns:
    """Two loaders whose batches take turns, as people write them: their states, and the epochs of their samplers."""

    def __init__(self, loaders: dict[str, Any]) -> None:
        self.loaders, self.sampler = loaders, self

    def set_epoch(self, epoch: int) -> None:
        """Choose the orders of an epoch."""
        for loader in self.loaders.values():
            set_epoch(loader, epoch)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for batches in zip(*self.loaders.values(), strict=True):
            yield from zip(self.loaders, batches, strict=True)

    def __len__(self) -> int:
        return sum(map(len, self.loaders.values()))


class StatefulTurns(HandTurns):
    """The same with the states of torchdata's loaders."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each."""
        return {name: loader.state_dict() for name, loader in self.loaders.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume each."""
        for name, loader in self.loaders.items():
            loader.load_state_dict(state[name])


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

    def __init__(self, name: str = "x", rows_of: torch.Tensor | None = None) -> None:
        self.name, self.rows = name, rows() if rows_of is None else rows_of

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {self.name: self.rows[index]}


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

    def of_rows(data: Rows) -> Any:
        if sharded_by_trainer:
            return kind(data, batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(SEED))
        sampler = DistributedSampler(data, world, rank, shuffle=True, seed=SEED)
        return kind(data, batch_size=BATCH, sampler=sampler)

    if rule == "rows":
        return of_rows(Rows())
    if rule in PARTS:
        made = {name: of_rows(Rows("row", part)) for name, part in parts(rule).items()}
        if rule == "beside":
            return beside(made)
        return (StatefulTurns if stateful else HandTurns)(made)
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
    for sampler in (
        loader if isinstance(loader, HandTurns) else getattr(loader, "sampler", None),
        getattr(loader, "batch_sampler", None),
    ):
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
