"""Rows of tables in memory: minibatches of a rollout, tabular data, the examples of batch-iter, sparse cells.

``ppo.py`` and the notebook of TabM have their loops inline, between the steps of their models: the same statements are
here in our words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from batchloom import DataLoader, Field, GroupDataset, SparseRows, TensorDataset
from torch import Tensor

from bench.harness.checkouts import need_package
from bench.migrations.rows import Pass, Row, Source, same, same_in_order, samples

PPO = Source("vwxyzjn/cleanrl", "fe8d8a0", "cleanrl/ppo.py")
TABM = Source("yandex-research/tabm", "28e47ae", "example.ipynb")
BATCH_ITER = Source("batch-iter 0.1.1", "", "README")
SCVI = Source("scvi-tools 1.4.2", "", "scvi/dataloaders/_ann_dataloader.py")


# ---- ppo.py: minibatches of a rollout --------------------------------------------------------------------------------

ENVIRONMENTS, GAME_STEPS, MINIBATCH, UPDATE_EPOCHS, ROLLOUTS = 4, 128, 128, 4, 12
ROLLOUT = ("obs", "logprobs", "actions", "advantages", "returns", "values")


def prepare_ppo(folder: Path, scale: float, width: int = 4) -> Any:
    """Make a rollout of ``CartPole`` in the script's storage: flat views of steps and environments."""
    torch.manual_seed(0)
    play = (GAME_STEPS, ENVIRONMENTS)
    arrays = {name: torch.randn(*play).reshape(-1) for name in ROLLOUT}
    arrays["obs"] = torch.randn(*play, width).reshape(-1, width)
    arrays["actions"] = torch.randint(0, 2, play).float().reshape(-1)
    return SimpleNamespace(**arrays)


def ppo(data: Any, shuffle: bool) -> Pass:
    """Index every tensor by minibatches of shuffled numbers; actions become integers in each minibatch."""

    def rollout() -> Iterator[tuple[Tensor, ...]]:
        batch_size = len(data.obs)
        numbers = numpy.arange(batch_size)
        for _ in range(UPDATE_EPOCHS):
            if shuffle:
                numpy.random.shuffle(numbers)
            for start in range(0, batch_size, MINIBATCH):
                chosen = numbers[start : start + MINIBATCH]
                yield (
                    data.obs[chosen],
                    data.actions.long()[chosen],
                    data.logprobs[chosen],
                    data.advantages[chosen],
                    data.returns[chosen],
                    data.values[chosen],
                )

    return lambda: (batch for _ in range(ROLLOUTS) for batch in rollout())


def ppo_kept(data: Any, shuffle: bool) -> Pass:
    """Make the loader once, over the storage; what the script computes anew is copied there after each rollout."""
    advantages, returns = data.advantages.clone(), data.returns.clone()
    dataset = TensorDataset(data.obs, data.actions, data.logprobs, advantages, returns, data.values)
    loader = DataLoader(dataset, MINIBATCH, shuffle=shuffle, fields={1: Field(dtype="int64")})

    def rollout() -> Iterator[Any]:
        advantages.copy_(data.advantages)
        returns.copy_(data.returns)
        for _ in range(UPDATE_EPOCHS):
            yield from loader

    return lambda: (batch for _ in range(ROLLOUTS) for batch in rollout())


def ppo_anew(data: Any, shuffle: bool) -> Pass:
    """Make a loader for each rollout, whose actions become integers once."""

    def rollout() -> Iterator[Any]:
        rows = (data.obs, data.actions.long(), data.logprobs, data.advantages, data.returns, data.values)
        loader = DataLoader(TensorDataset(*rows), MINIBATCH, shuffle=shuffle)
        for _ in range(UPDATE_EPOCHS):
            yield from loader

    return lambda: (batch for _ in range(ROLLOUTS) for batch in rollout())


# ---- TabM: one order, or one for each of its k models ----------------------------------------------------------------

TRAIN_ROWS, FEATURES, TABM_BATCH, MODELS = 13_209, 8, 256, 32  # California housing


def prepare_tabm(folder: Path, scale: float) -> Any:
    """Make rows of the size of California housing."""
    torch.manual_seed(0)
    rows = max(round(TRAIN_ROWS * scale), 1000)
    return SimpleNamespace(x_num=torch.randn(rows, FEATURES), y=torch.randn(rows))


def tabm(data: Any, shuffle: bool) -> Pass:
    """Index by the parts of a permutation, as with ``share_training_batches``."""

    def epoch() -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(data.y)) if shuffle else torch.arange(len(data.y))
        for chosen in order.split(TABM_BATCH):
            yield data.x_num[chosen], data.y[chosen]

    return epoch


def tabm_loom(data: Any, shuffle: bool) -> Pass:
    """Make a loader of the rows."""
    loader = DataLoader(TensorDataset(data.x_num, data.y), TABM_BATCH, shuffle=shuffle)
    return lambda: loader


def tabm_orders(data: Any, shuffle: bool) -> Pass:
    """Index by a permutation for each model, as without ``share_training_batches``."""

    def epoch() -> Iterator[tuple[Tensor, Tensor]]:
        rows = len(data.y)
        each = torch.rand((rows, MODELS)).argsort(dim=0) if shuffle else torch.arange(rows)[:, None].expand(-1, MODELS)
        for chosen in each.split(TABM_BATCH, dim=0):
            yield data.x_num[chosen], data.y[chosen]

    return epoch


def tabm_orders_loom(data: Any, shuffle: bool) -> Pass:
    """Let a loader for each model take turns, and stack their batches."""
    dataset = TensorDataset(data.x_num, data.y)
    loaders = [DataLoader(dataset, TABM_BATCH, shuffle=shuffle, seed=model) for model in range(MODELS)]

    def epoch() -> Iterator[tuple[Tensor, Tensor]]:
        for batches in zip(*loaders, strict=True):
            x, y = zip(*batches, strict=True)
            yield torch.stack(x, dim=1), torch.stack(y, dim=1)

    return epoch


def check_orders(row: Row, data: Any) -> int:
    """Compare in order, and, shuffled, the rows that each model gets."""
    number = same_in_order(row, data)
    for side in (row.script, row.loom):
        batches = list(side(data, True)())
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        for model in range(MODELS):
            found, _ = samples([(x[:, model], y[:, model])])
            if found != samples([(data.x_num, data.y)])[0]:
                raise SystemExit(f"row {row.name}: model {model} does not get every row once")
    return number + 2 * math.ceil(len(data.y) / TABM_BATCH)


# ---- batch-iter: the examples of its README --------------------------------------------------------------------------

ITERATED, WIDE, ITERATED_BATCH = 100_000, 64, 64


def prepare_iterated(folder: Path, scale: float) -> Any:
    """Make rows, and groups of 1 to 15 of them."""
    torch.manual_seed(0)
    rows = max(round(ITERATED * scale), 2000)
    lengths = torch.randint(1, 16, (rows // 8,))
    lengths = lengths[: len(lengths) - len(lengths) % ITERATED_BATCH]  # batch-iter loses groups that fill no batch
    query = torch.arange(len(lengths)).repeat_interleave(lengths)
    package = need_package("batch_iter")
    return SimpleNamespace(package=package, query=query, x=torch.randn(len(query), WIDE), y=torch.randn(len(query)))


def iterated(data: Any, shuffle: bool) -> Pass:
    """Use ``BatchIter``."""
    return lambda: data.package.BatchIter(data.x, data.y, batch_size=ITERATED_BATCH, shuffle=shuffle)


def iterated_loom(data: Any, shuffle: bool) -> Pass:
    """Make a loader of the rows."""
    loader = DataLoader(TensorDataset(data.x, data.y), ITERATED_BATCH, shuffle=shuffle)
    return lambda: loader


def grouped(data: Any, shuffle: bool) -> Pass:
    """Use ``GroupBatchIter``."""
    return lambda: data.package.GroupBatchIter(data.query, data.x, data.y, batch_size=ITERATED_BATCH, shuffle=shuffle)


def grouped_loom(data: Any, shuffle: bool) -> Pass:
    """Make a loader of the groups."""
    loader = DataLoader(GroupDataset(data.query, data.x, data.y), ITERATED_BATCH, shuffle=shuffle)
    return lambda: loader


def check_groups(row: Row, data: Any) -> int:
    """Compare in order, and the rows of shuffled passes."""
    found = [samples(side(data, True)())[0] for side in (row.script, row.loom)]
    if found[0] != found[1]:
        raise SystemExit(f"row {row.name}: rows of shuffled groups differ")
    return same_in_order(row, data)


# ---- scvi-tools: cells of a sparse matrix ----------------------------------------------------------------------------

CELLS, GENES, CELLS_A_BATCH = 10_000, 2000, 128


def prepare_cells(folder: Path, scale: float) -> Any:
    """Make an ``AnnData`` of counts, a tenth of them stored, registered for the SCVI module."""
    scvi, anndata = need_package("scvi"), need_package("anndata")
    from scipy import sparse

    random = numpy.random.default_rng(0)
    cells = max(round(CELLS * scale), 500)
    counts = sparse.random(cells, GENES, density=0.1, format="csr", dtype=numpy.float32, rng=random)
    counts.data = numpy.ceil(counts.data * 20)
    found = anndata.AnnData(counts)
    found.obs["batch"] = random.integers(0, 3, cells).astype(str)
    scvi.model.SCVI.setup_anndata(found, batch_key="batch")
    manager = scvi.model.SCVI(found).adata_manager
    return SimpleNamespace(loader=scvi.dataloaders.AnnDataLoader, manager=manager, adata=found, scvi=scvi)


def cells(data: Any, shuffle: bool) -> Pass:
    """Use ``AnnDataLoader``."""
    loader = data.loader(data.manager, batch_size=CELLS_A_BATCH, shuffle=shuffle)
    return lambda: loader


def cells_loom(data: Any, shuffle: bool) -> Pass:
    """Make a loader of the matrix and the columns that the module reads."""
    keys = data.scvi.REGISTRY_KEYS
    columns = {key: data.manager.get_from_registry(key) for key in data.manager.data_registry if key != keys.X_KEY}
    columns = {key: widen(numpy.asarray(column)) for key, column in columns.items()}
    counts = SparseRows(data.manager.get_from_registry(keys.X_KEY), layout="dense")
    dataset = TensorDataset(**{keys.X_KEY: counts}, **columns)
    loader = DataLoader(dataset, CELLS_A_BATCH, shuffle=shuffle, output="torch")
    return lambda: loader


def widen(column: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Return a column in the type that the module takes."""
    return column.astype(numpy.int64 if column.dtype.kind in "iu" else numpy.float32)


ROWS = (
    Row("05", "rows", BATCH_ITER, prepare_iterated, iterated, iterated_loom, same, "rows", changed="1 / 1"),
    Row("05", "groups", BATCH_ITER, prepare_iterated, grouped, grouped_loom, check_groups, "groups", changed="1 / 1"),
    Row("12", "tabular", TABM, prepare_tabm, tabm, tabm_loom, same, changed="3 / 3"),
    Row("12", "tabular, 32 orders at once", TABM, prepare_tabm, tabm_orders, tabm_orders_loom, check_orders, "orders"),
    Row("13", "cells of a sparse matrix", SCVI, prepare_cells, cells, cells_loom, same, changed="1 / 5"),
    Row("16", "a rollout, loader kept", PPO, prepare_ppo, ppo, ppo_kept, same, "kept", changed="14 / 11"),
    Row("16", "a rollout, loader made anew", PPO, prepare_ppo, ppo, ppo_anew, same, "anew"),
)
